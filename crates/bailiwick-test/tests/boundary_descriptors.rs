//! C25 and hygiene: what of the host a command is born with. Nothing but its three standard streams, no
//! signal state, no controlling terminal, no memory image written beside its roots.

#![cfg(test)]

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use bailiwick::{ErrorKind, Layer, Session, Stdio};
use bailiwick_test::act::{self, Report, Scopes};
use bailiwick_test::boundary::{Arena, accepting_all, report, run, session};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::pty::Pty;
use bailiwick_test::{
    Listing, Need, Places, Snapshot, World, cases, image_without_layers, plain_image, requires, tool,
    wait_until,
};
use rustix::io::FdFlags;

/// Descriptors of the host that whoever is started may inherit: a file outside open for appending, private
/// storage, and the same once more far above.
struct Inheritable(Vec<OwnedFd>);

impl Inheritable {
    fn new(world: &World) -> Self {
        let file: OwnedFd = OpenOptions::new().append(true).open(world.outside_file()).unwrap().into();
        let directory: OwnedFd = File::open(world.private()).unwrap().into();
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 700).unwrap();
        let all = vec![file, directory, high];
        for descriptor in &all {
            rustix::io::fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
        }
        Inheritable(all)
    }

    fn numbers(&self) -> Vec<i64> {
        self.0.iter().map(|descriptor| descriptor.as_raw_fd().into()).collect()
    }
}

fn numbers(report: &Report) -> Vec<i64> {
    report.value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

/// Runs an act as a background command whose streams are files.
async fn in_background(session: &Session, world: &World, act: &[&str]) -> Report {
    let out = world.write_root().join("out");
    let file = File::create(&out).unwrap();
    let command = session.command(tool("act")).args(act.iter().map(ToString::to_string));
    let mut child = command.stdout(Stdio::from(file)).spawn().await.unwrap();
    child.wait().await.unwrap();
    child.settled().await.unwrap();
    Report::parse(fs::read(&out).unwrap())
}

/// Runs an act with a terminal as its three streams.
async fn on_a_terminal(session: &Session, act: &[&str]) -> Report {
    let pty = Pty::new();
    let stream = || Stdio::from(pty.subordinate());
    let command = session.command(tool("act")).args(act.iter().map(ToString::to_string));
    let mut child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().await.unwrap();
    child.wait().await.unwrap();
    pty.expect("}\n");
    Report::parse(pty.text().trim_end())
}

cases! {
    /// C25: in each way to start a command, descriptors 0, 1 and 2 are all there is.
    async fn c25_only_the_standard_streams(world: &World) {
        let host = Inheritable::new(world);
        let before = Snapshot::of(world.outside_file());
        let session = open(session(world)).await;
        let list = ["list-fds"];
        let seen = [
            run(&session, &list).await,
            in_background(&session, world, &list).await,
            on_a_terminal(&session, &list).await,
        ];
        for report in seen {
            assert_eq!(numbers(&report), [0, 1, 2], "{report:?}");
        }
        for number in host.numbers() {
            let number = number.to_string();
            for act in [["write-fd", &number, "leak"], ["fchmod", &number, "777"]] {
                run(&session, &act).await.assert_refused(&["EBADF"]);
                in_background(&session, world, &act).await.assert_refused(&["EBADF"]);
                on_a_terminal(&session, &act).await.assert_refused(&["EBADF"]);
            }
        }
        before.assert_unchanged();
        // Closing before a program starts is the last of three times: the keeper and each launcher close what
        // they were born with, and all of theirs is close-on-exec. So without it nothing is there either;
        // `boundary_layers` shows that its absence is found out, and the naive wrapper below what it is for.
        let builder = accepting_all(&Places::of(world), "hygiene")._worker_image(plain_image(Layer::Hygiene));
        let without = open(builder).await;
        assert_eq!(numbers(&run(&without, &list).await), [0, 1, 2]);
        close(&without).await;
        // The twin: a descriptor that is given is there, and is what it was opened as.
        let given = OpenOptions::new().append(true).open(world.outside_file()).unwrap();
        let command = session.command(tool("act")).args(["write-fd", "2", "+"]).stderr(Stdio::from(given));
        report(&command.output().await.unwrap()).assert_done();
        assert_eq!(fs::read_to_string(world.outside_file()).unwrap(), "x+");
        close(&session).await;
    }

    /// C25: the naive wrapper hands them on, so they are inheritable indeed.
    fn c25_naively_inherited(world: &World) {
        requires!(Need::Landlock);
        let host = Inheritable::new(world);
        let report = act::naively(&[world.write_root()], Scopes::All, &["list-fds"]);
        for number in host.numbers() {
            assert!(numbers(&report).contains(&number), "{report:?}");
        }
        let [first, ..] = host.numbers()[..] else { unreachable!() };
        act::naively(&[world.write_root()], Scopes::All, &["write-fd", &first.to_string(), "leak"])
            .assert_done();
        assert_eq!(fs::read_to_string(world.outside_file()).unwrap(), "xleak");
    }

    /// C25: closing does not eat the way in which a failed start is told.
    async fn c25_a_failed_start_is_told(world: &World) {
        let _host = Inheritable::new(world);
        let session = open(session(world)).await;
        let root = world.write_root();
        fs::write(root.join("plain"), "no program").unwrap();
        for (program, kind) in
            [("missing", ErrorKind::CommandNotFound), ("plain", ErrorKind::CommandNotExecutable)]
        {
            let command = || session.command(root.join(program));
            refused(command().output().await.map(drop), kind);
            refused(command().spawn().await.map(drop), kind);
            let pty = Pty::new();
            refused(command().stdin(Stdio::from(pty.subordinate())).spawn().await.map(drop), kind);
        }
        // The twin.
        assert_eq!(done(&sh(&session, "echo fine").await), "fine\n");
        close(&session).await;
    }

    /// The session's own processes keep none of the host's descriptors either: a pipe that the host closes
    /// is closed, while the session goes on.
    async fn the_machinery_keeps_none(world: &World) {
        let (mut reader, writer) = std::io::pipe().unwrap();
        rustix::io::fcntl_setfd(&writer, FdFlags::empty()).unwrap();
        let session = open(session(world)).await;
        let mut server = session.command("/bin/sleep").arg("60").spawn().await.unwrap();
        drop(writer);
        let ended = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()).unwrap());
        assert!(
            wait_until(Duration::from_secs(10), || ended.is_finished()),
            "somebody holds the host's pipe"
        );
        assert_eq!(ended.join().unwrap(), 0);
        server.kill().await.unwrap();
        close(&session).await;
    }

    /// Signals: nothing is blocked, ignored or pending, whatever the host's state. Without hygiene, the
    /// mask of the machinery comes through.
    async fn signal_state_is_clean(world: &World) {
        requires!(Need::Landlock);
        let status = ["signals-status"];
        let arena = Arena::open(world, &[Layer::Hygiene]).await;
        let mask = |report: &Report, field: &str| {
            u64::from_str_radix(report.value[field].as_str().unwrap(), 16).unwrap()
        };
        let clean = run(arena.whole(), &status).await;
        for field in ["SigBlk", "SigIgn", "SigPnd", "ShdPnd"] {
            assert_eq!(mask(&clean, field), 0, "{clean:?}");
        }
        assert_ne!(mask(&run(arena.without(Layer::Hygiene), &status).await, "SigBlk"), 0);
        // Rust ignores SIGPIPE, and so does what the naive wrapper starts.
        let naive = act::naively(&[world.write_root()], Scopes::All, &status);
        assert_ne!(mask(&naive, "SigIgn") & (1 << 12), 0, "{naive:?}");
        arena.close().await;
    }

    /// A session of its own and no controlling terminal: `/dev/tty` opens for nobody, and the process
    /// leads its session. Without hygiene it does not.
    async fn each_command_leads_a_session(world: &World) {
        let arena = Arena::open(world, &[Layer::Hygiene]).await;
        let script =
            "read -r pid comm state ppid pgrp session tty rest < /proc/self/stat; echo $pid $session $tty";
        let fields = |text: String| {
            text.split_whitespace().map(|field| field.parse::<i64>().unwrap()).collect::<Vec<_>>()
        };
        // `read` is a builtin: /proc/self is the shell.
        let whole = fields(done(&sh(arena.whole(), script).await));
        assert_eq!((whole[0], whole[2]), (whole[1], 0), "{whole:?}");
        let without = fields(done(&sh(arena.without(Layer::Hygiene), script).await));
        assert_ne!(without[0], without[1], "{without:?}");
        run(arena.whole(), &["tty-open"]).await.assert_refused(&["ENXIO", "EACCES"]);
        arena.close().await;
    }

    /// The kernel writes a memory image beside all confinement of the one who crashed. None is made, outside
    /// or inside: the limit is 0 for good.
    async fn no_memory_image(world: &World) {
        requires!(Need::CoreFiles, "looks for a memory image");
        let outside = Listing::of(world.outside());
        let session = open(session(world)).await;
        for directory in [world.outside(), world.write_root()] {
            let crash = "ulimit -c unlimited; ulimit -c; kill -SEGV $$";
            let output = session
                .command("/bin/sh")
                .args(["-c", crash])
                .current_dir(&directory)
                .output()
                .await
                .unwrap();
            assert_eq!((output.status.signal(), output.status.core_dumped()), (Some(11), false));
            assert_eq!(output.stdout.text(), "0\n");
            let act = session.command(tool("act")).arg("core-dump").arg(&directory).output().await.unwrap();
            assert_eq!(act.status.code(), Some(3), "the limit could be raised: {}", act.stdout.text());
        }
        outside.assert_unchanged();
        close(&session).await;
    }

    /// Against an image outside, the limit and Landlock are each enough; without both there is one.
    async fn no_memory_image_outside_by_either_layer(world: &World) {
        requires!(Need::CoreFiles, "looks for a memory image");
        let outside = Listing::of(world.outside());
        let places = Places::of(world);
        let directory = world.outside();
        let dump = ["core-dump", directory.to_str().unwrap()];
        let without_limit =
            open(accepting_all(&places, "hygiene")._worker_image(plain_image(Layer::Hygiene))).await;
        run(&without_limit, &dump).await.assert_refused(&["NOCORE"]);
        outside.assert_unchanged();
        // The twin: inside the root it is made.
        run(&without_limit, &["core-dump", world.write_root().to_str().unwrap()]).await.assert_done();
        close(&without_limit).await;
        let without_landlock =
            open(accepting_all(&places, "landlock")._worker_image(plain_image(Layer::Landlock))).await;
        let tried = without_landlock.command(tool("act")).args(dump).output().await.unwrap();
        assert_eq!(tried.status.code(), Some(3), "{}", tried.stdout.text());
        outside.assert_unchanged();
        close(&without_landlock).await;
        let bare = open(accepting_all(&places, "none")._worker_image(image_without_layers())).await;
        run(&bare, &dump).await.assert_done();
        assert!(outside.differences(&Listing::of(&directory)).iter().any(|line| line.contains("core")));
        close(&bare).await;
    }

    /// What a command is told is not the host's: neither its environment nor its working directory.
    async fn no_environment_of_the_host(world: &World) {
        let session = open(session(world)).await;
        assert!(
            std::env::vars_os()
                .any(|(name, _)| !["HOME", "LANG", "PATH", "PWD"].iter().any(|known| name == *known))
        );
        let seen = done(&sh(&session, "env").await);
        let mut names: Vec<&str> =
            seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, ["HOME", "LANG", "PATH", "PWD", "TEMP", "TMP", "TMPDIR"], "{seen}");
        close(&session).await;
    }
}
