//! The naive wrapper refuses what it should and has the holes it should. A test of a session that this
//! wrapper would pass as well proves nothing about the layer it is named after.

#![cfg(test)]

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command};

use bailiwick_test::act::{self, Report, Scopes, naively, report_of};
use bailiwick_test::{Need, Snapshot, World, cases, process, requires, tool};

/// Runs an act under the wrapper with fd 7 open for appending on the file outside.
fn with_descriptor_seven(world: &World, act: &[&str]) -> Report {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 7>>"$0""#]).arg(world.outside_file());
    shell.arg(tool("naive")).arg("-w").arg(world.write_root()).arg("--").arg(tool("act")).args(act);
    report_of(&mut shell)
}

struct Victim(Child);

impl Victim {
    fn new() -> Self {
        Victim(Command::new(tool("act")).args(["pause", "60"]).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        process::kill_tree(self.0.id());
        self.0.wait().unwrap();
    }
}

cases! {
    /// Content and names outside the write root are out of reach; the twin lies inside.
    fn refuses_writes_outside(world: &World) {
        requires!(Need::Landlock);
        let (outside, file) = (world.outside(), world.outside_file());
        let inside = world.write_root().join("f");
        std::fs::write(&inside, "w").unwrap();
        let attempts: [(&str, Vec<&std::path::Path>, Vec<&std::path::Path>); 3] = [
            ("open-append", vec![&file], vec![&inside]),
            ("truncate", vec![&file], vec![&inside]),
            ("unlink", vec![&file], vec![&inside]),
        ];
        for (name, refused, done) in attempts {
            let before = [Snapshot::of(&outside), Snapshot::of(&file)];
            let command = |paths: Vec<&std::path::Path>| {
                let mut command = vec![name.to_owned()];
                command.extend(paths.iter().map(|path| path.to_str().unwrap().to_owned()));
                naively(&[world.write_root()], Scopes::None, &command)
            };
            command(refused).assert_refused(&["EACCES"]);
            before.iter().for_each(Snapshot::assert_unchanged);
            let twin = Snapshot::of(&inside);
            command(done).assert_done();
            twin.assert_changed();
        }
    }

    /// Hole: a descriptor that was open before is usable (C25).
    fn hole_inherited_descriptor(world: &World) {
        requires!(Need::Landlock);
        let seen = with_descriptor_seven(world, &["list-fds"]);
        assert!(seen.value.as_array().unwrap().contains(&7.into()), "{seen:?}");
        with_descriptor_seven(world, &["write-fd", "7", "leak"]).assert_done();
        assert_eq!(std::fs::read_to_string(world.outside_file()).unwrap(), "xleak");
    }

    /// Hole: metadata is outside Landlock's reach (C35).
    fn hole_metadata(world: &World) {
        requires!(Need::Landlock);
        let file = world.outside_file();
        let file = file.to_str().unwrap();
        for act in [vec!["chmod", file, "0666"], vec!["utimes", file], vec!["setid-mode", file]] {
            let before = Snapshot::of(file);
            naively(&[world.write_root()], Scopes::None, &act).assert_done();
            before.assert_changed();
        }
    }

    /// Hole without scopes: signals reach the host's processes (C28). The twin with scopes does not.
    fn hole_signals(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut victim = Victim::new();
        let act = ["kill", &victim.pid(), "9"];
        naively(&[world.write_root()], Scopes::All, &act).assert_refused(&["EPERM"]);
        assert!(victim.is_alive());
        naively(&[world.write_root()], Scopes::None, &act).assert_done();
        assert!(process::wait_until(process::GENEROUS, || !victim.is_alive()));
    }

    /// Hole without scopes: abstract sockets of the host (C28). The twin with scopes is refused.
    fn hole_abstract_sockets(world: &World) {
        requires!(Need::LandlockAbi6);
        let name = format!("bw-{}", world.path().file_name().unwrap().display());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let act = ["abstract-connect", &name];
        naively(&[world.write_root()], Scopes::All, &act).assert_refused(&["EPERM"]);
        naively(&[world.write_root()], Scopes::None, &act).assert_done();
        let mut received = String::new();
        listener.accept().unwrap().0.read_to_string(&mut received).unwrap();
        assert_eq!(received, "act");
    }

    /// Hole: named sockets, scopes or not (C27).
    fn hole_named_sockets(world: &World) {
        requires!(Need::LandlockAbi6);
        let path = world.outside().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        bailiwick_test::fixture::assert_socket(&path);
        naively(&[world.write_root()], Scopes::All, &["unix-connect", path.to_str().unwrap()]).assert_done();
        let mut received = String::new();
        listener.accept().unwrap().0.read_to_string(&mut received).unwrap();
        assert_eq!(received, "act");
    }

    /// Hole: no filter of system calls, so every family, ABI and limit is open.
    fn hole_system_calls(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut victim = Victim::new();
        let pid = victim.pid();
        let acts: [&[&str]; 6] = [
            &["socket", "inet", "stream", "0"],
            &["socket", "netlink", "raw", "0"],
            &["tcp-listen-without-bind"],
            &["keyctl"],
            &["prlimit", &pid, "17"],
            &["setpriority", &pid, "19"],
        ];
        for act in acts {
            naively(&[world.write_root()], Scopes::All, act).assert_done();
        }
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        assert!(limits.lines().any(|line| line.starts_with("Max open files") && line.contains(" 17 ")), "{limits}");
        assert!(victim.is_alive());
    }

    /// Hole: the ring makes sockets although... nothing even forbids the plain call (C30).
    fn hole_ring(world: &World) {
        requires!(Need::Landlock);
        requires!(Need::IoUring);
        naively(&[world.write_root()], Scopes::None, &["io-uring-socket"]).assert_done();
    }

    /// Hole: the other entry into the kernel (C31).
    fn hole_foreign_calls(world: &World) {
        requires!(Need::Landlock);
        requires!(Need::Ia32);
        naively(&[world.write_root()], Scopes::None, &["int80-socket"]).assert_done();
    }

    /// Hole: signal dispositions are handed on (C63): a Rust program ignores `SIGPIPE`, so its child does.
    fn hole_signal_state(world: &World) {
        requires!(Need::Landlock);
        let ignores_pipe = |report: Report| {
            let ignored = u64::from_str_radix(report.value["SigIgn"].as_str().unwrap(), 16).unwrap();
            ignored & (1 << 12) != 0 // SIGPIPE is 13
        };
        assert!(ignores_pipe(naively(&[world.write_root()], Scopes::None, &["signals-status"])));
        // The control: std resets it for the children that it starts itself.
        assert!(!ignores_pipe(act::bare(&["signals-status"])));
    }

    /// What Landlock does refuse beside files: looking into processes outside the domain.
    fn refuses_tracing(world: &World) {
        requires!(Need::Landlock);
        let victim = Victim::new();
        for act in [&["ptrace-attach", &victim.pid()], &["vm-read", &victim.pid()]] {
            act::bare(act).assert_done();
            naively(&[world.write_root()], Scopes::None, act).assert_refused(&["EPERM"]);
        }
    }
}
