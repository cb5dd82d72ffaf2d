//! Devices that programs expect: C47, C48, C49, in every way that a command can be started.

#![cfg(test)]

use std::fs::{self, File};
use std::process::{Command, Stdio as HostStdio};
use std::time::Duration;

use bailiwick::{Protection, Session, SessionBuilder, Stdio};
use bailiwick_test::act::Report;
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::pty::Pty;
use bailiwick_test::{Need, Places, cases, image_without_namespaces, requires, tool, user_cases};

/// C47, as a script whose text is the same wherever it runs.
const STANDARD: &str = "
    echo x > /dev/null && echo y >> /dev/null && exec 3<>/dev/null && echo z >&3 && cat /dev/null
    for d in urandom random zero; do head -c 8 /dev/$d | wc -c; done
    dd if=/dev/zero of=/dev/full bs=1 count=1 2>&1 | grep -c 'No space left'
    (echo x > /dev/full) 2>/dev/null || echo full
    exec 4<>/dev/zero 5<>/dev/urandom && echo x >&4
    [ -c /dev/null ] && [ -w /dev/null ] && echo end
";
const STANDARD_TEXT: &str = "8\n8\n8\n1\nfull\nend\n";

/// C48: the text of standard output, then that of standard error.
const NAMED: &str = "
    echo a > /dev/stdout; echo b > /dev/stderr; echo c | tee /dev/stderr
    awk 'BEGIN { print \"d\" > \"/dev/stderr\" }'
    bash -c 'cat <(echo p)'; echo q | cat /dev/stdin; echo r | cat /dev/fd/0; echo e > /dev/fd/1; echo f > /dev/fd/2
";
const NAMED_TEXT: [&str; 2] = ["a\nc\np\nq\nr\ne\n", "b\nc\nd\nf\n"];

/// Runs a script in the background: standard streams are null, and its text goes to a file of the root.
async fn in_background(session: &Session, script: &str) -> String {
    let script = format!("( {script} ) > text 2>&1");
    let mut child = session.command("/bin/sh").args(["-c", &script]).spawn().await.unwrap();
    assert!(child.wait().await.unwrap().success());
    let root = session.write_roots().await.remove(0);
    let text = fs::read_to_string(root.join("text")).unwrap();
    fs::remove_file(root.join("text")).unwrap();
    text
}

/// Runs a script on a terminal of the host, and returns what appears on it.
async fn on_terminal(session: &Session, script: &str) -> String {
    let pty = Pty::new();
    let command = session.command("/bin/sh").args(["-c", &format!("{script}\necho THE END")]);
    let (stdin, stdout, stderr) = (pty.subordinate(), pty.subordinate(), pty.subordinate());
    let mut child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().await.unwrap();
    let status = tokio::time::timeout(GENEROUS, child.wait()).await.expect("it hangs").unwrap();
    pty.expect("THE END\n");
    assert!(status.success(), "{}", pty.text());
    pty.text().replace("THE END\n", "")
}

/// As on a host without namespaces, where terminals are the host's, and so refused unless that is accepted.
fn plain(places: &Places) -> SessionBuilder {
    places.session()._worker_image(image_without_namespaces())
}

/// Where terminals of a command's own work: accepted, or in a mount view.
fn with_terminals(places: &Places) -> [SessionBuilder; 2] {
    [plain(places).accept(Protection::Terminals), places.session()]
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

cases! {
    /// C47: the standard devices, in three ways of starting and with three kinds of standard input of the host.
    fn c47_standard_devices(world: &World) {
        let places = Places::of(world);
        let (pipe, _kept_open) = std::io::pipe().unwrap();
        let closed = ["sh", "-c", "exec \"$@\" <&-", "sh"];
        for (what, mut command) in [
            ("null", Host::command(&places, "host", "standard")),
            ("closed", Host::wrapped(&places, &closed, "host", "standard")),
            ("open", {
                let mut command = Host::command(&places, "host", "standard");
                command.stdin(HostStdio::from(pipe));
                command
            }),
        ] {
            let mut host = Host::start(&places, { command.env("STDIN_IS", what); command });
            for way in ["output", "background", "terminal"] {
                assert_eq!(host.hear(way), STANDARD_TEXT, "standard input of the host: {what}, way: {way}");
            }
            host.finish();
            fs::remove_file(places.join("said")).unwrap();
        }
        // The twin: the same text without a session.
        let bare = Command::new("/bin/sh").args(["-c", STANDARD]).stdin(HostStdio::null()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&bare.stdout), STANDARD_TEXT);
    }

    /// C47: no other device is opened for writing, and none is made.
    async fn c47_other_devices(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        for device in ["/dev/tty", "/dev/kmsg", "/dev/fuse", "/dev/vda", "/dev/loop-control", "/dev/hpet"] {
            let output = sh(&session, &format!("exec 3<>{device}")).await;
            assert!(!output.status.success(), "{device}");
        }
        for act in ["mknod-chr", "mknod-blk"] {
            let output = session.command(tool("act")).args([act, "node"]).output().await.unwrap();
            Report::parse(&*output.stdout).assert_refused(&["EPERM", "EACCES"]);
            assert!(!places.write_root().join("node").exists());
        }
        // The one that makes terminals makes only the session's own.
        done(&sh(&session, "exec 3<>/dev/ptmx").await);
        let output = session.command(tool("act")).args(["mkfifo", "fifo"]).output().await.unwrap();
        Report::parse(&*output.stdout).assert_done();
        close(&session).await;
        let without = open(plain(&places)).await;
        assert!(!sh(&without, "exec 3<>/dev/ptmx").await.status.success());
        close(&without).await;
    }

    /// C48: names for one's own streams, with pipes, with files of a root, with nothing, and on a terminal.
    async fn c48_names_of_the_streams(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let output = sh(&session, NAMED).await;
        assert!(output.status.success());
        assert_eq!(output.stdout.text(), NAMED_TEXT[0]);
        assert_eq!(sorted(&output.stderr.text()), sorted(NAMED_TEXT[1]));
        // Null: all of it succeeds, and is gone.
        let mut child = session.command("/bin/sh").args(["-ec", NAMED]).spawn().await.unwrap();
        assert!(child.wait().await.unwrap().success());
        // Files of a root, opened by the host for appending: each name reopens the file.
        let [out, err] = ["out", "err"].map(|name| places.write_root().join(name));
        let append = |path| File::options().create(true).append(true).open(path).unwrap();
        let command = session.command("/bin/sh").args(["-ec", NAMED]).stdout(append(&out)).stderr(append(&err));
        let mut child = command.spawn().await.unwrap();
        assert!(child.wait().await.unwrap().success());
        // Reopened for writing they are cut, as without a session; the last line is there in any case.
        assert!(fs::read_to_string(&out).unwrap().ends_with("e\n"));
        assert!(fs::read_to_string(&err).unwrap().ends_with("f\n"));
        // A file outside: written through the descriptor that the host gave, and not reopened.
        let [out, err] = ["out", "err"].map(|name| places.outside().join(name));
        let command = session.command("/bin/sh").args(["-c", "echo given; echo reopened > /dev/stdout"]);
        let mut child = command.stdout(append(&out)).stderr(append(&err)).spawn().await.unwrap();
        assert!(!child.wait().await.unwrap().success());
        assert_eq!(fs::read(&out).unwrap(), b"given\n");
        assert!(fs::read_to_string(&err).unwrap().contains("ermission denied"));
        close(&session).await;
    }

    /// C48, C49: a terminal that the host gives works through its descriptors. Its names are terminals like
    /// others: they open where `terminals` is accepted.
    async fn c48_on_a_terminal(world: &World) {
        let places = Places::of(world);
        // In a mount view the name is one of another set of terminals. The descriptors are what they were.
        let viewed = places.open().await;
        let script = "echo out; echo err >&2; [ -t 0 ] && [ -t 1 ] && stty size >/dev/null && echo sized";
        assert_eq!(on_terminal(&viewed, script).await, "out\nerr\nsized\n");
        close(&viewed).await;
        let session = open(plain(&places)).await;
        let script = "echo out; echo err >&2; [ -t 0 ] && [ -t 1 ] && tty | grep -c '^/dev/pts/'; stty size >/dev/null && echo sized";
        assert_eq!(on_terminal(&session, script).await, "out\nerr\n1\nsized\n");
        let refused = on_terminal(&session, "(echo a > /dev/stdout) 2>/dev/null || echo refused").await;
        assert_eq!(refused, "refused\n");
        close(&session).await;

        let session = open(plain(&places).accept(Protection::Terminals)).await;
        let text = on_terminal(&session, NAMED).await;
        assert_eq!(sorted(&text), sorted(&NAMED_TEXT.concat()));
        close(&session).await;
    }

    /// C49: terminals of a command's own, where that is accepted; where it is not, a typed errno and not a hang.
    async fn c49_openpty(world: &World) {
        let places = Places::of(world);
        let session = open(plain(&places)).await;
        let output = session.command(tool("act")).arg("openpty").output().await.unwrap();
        Report::parse(&*output.stdout).assert_refused(&["EACCES"]);
        close(&session).await;
        for builder in with_terminals(&places) {
            let session = open(builder).await;
            let output = session.command(tool("act")).arg("openpty").output().await.unwrap();
            Report::parse(&*output.stdout).assert_done();
            close(&session).await;
        }
    }

    /// C49: `script` runs a command on a terminal of its own.
    async fn c49_script(world: &World) {
        requires!(Need::Script, "makes a terminal");
        let places = Places::of(world);
        let script = "script -qec 'tty | grep -c pts; echo on a terminal' /dev/null < /dev/null";
        for builder in with_terminals(&places) {
            let session = open(builder).await;
            let output = sh(&session, script).await;
            assert_eq!(done(&output).replace('\r', ""), "1\non a terminal\n");
            close(&session).await;
        }
        let session = open(plain(&places)).await;
        let output = session.command("/bin/sh").args(["-c", script]).timeout(GENEROUS).output().await.unwrap();
        assert!(!output.status.success() && !output.timed_out);
        close(&session).await;
    }

    /// C49: tmux, whose server detaches itself and opens terminals of its own; close ends it.
    async fn c49_tmux(world: &World) {
        requires!(Need::Tmux, "makes terminals");
        let places = Places::of(world);
        let start = "tmux -f /dev/null -S $TMPDIR/s new -d -x 80 -y 24 'tty > tty; sleep 600'";
        let named = places.write_root().join("tty");
        for builder in with_terminals(&places) {
            let session = open(builder.env("TERM", "screen")).await;
            done(&sh(&session, start).await);
                        let deadline = std::time::Instant::now() + GENEROUS;
            while !fs::read_to_string(&named).unwrap_or_default().starts_with("/dev/pts/") {
                assert!(std::time::Instant::now() < deadline, "tmux made no terminal");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(done(&sh(&session, "tmux -S $TMPDIR/s list-sessions | wc -l").await).trim(), "1");
            let alive = session.processes().await.unwrap();
            assert!(alive.iter().any(|process| process.name.starts_with("tmux")), "{alive:?}");
            // Whoever is on its terminal may end by itself when the server goes.
            let report = close(&session).await;
            assert!(report.killed() >= 1 && report.processes.len() >= 2, "{report:?}");
            places.assert_nothing_left();
            fs::remove_file(&named).unwrap();
        }

        let session = open(plain(&places).env("TERM", "screen")).await;
        let output = session.command("/bin/sh").args(["-c", start]).timeout(GENEROUS).output().await.unwrap();
        assert!(!output.timed_out);
        // Its server may start, but has no terminal to run anything on.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!named.exists());
        close(&session).await;
        places.assert_nothing_left();
    }

    /// C49: terminals of the host are out of reach, by name, by `/dev/tty`, by injected input.
    async fn c49_terminals_of_the_host(world: &World) {
        let places = Places::of(world);
        let pty = Pty::new();
        let attack = format!(
            "(echo evil > {0}); (echo evil >> {0}); (exec 3<>{0}; echo evil >&3); (head -c 1 < {0}); (echo evil > /dev/tty); true",
            pty.name()
        );
        for builder in [places.session(), plain(&places)] {
            let session = open(builder).await;
            done(&session.command("/bin/sh").args(["-c", &attack]).timeout(GENEROUS).output().await.unwrap());
            assert_eq!(pty.text(), "");
            close(&session).await;
        }
        // The twin, and the gap that accepting `terminals` names: those of the same user are within reach.
        let session = open(plain(&places).accept(Protection::Terminals)).await;
        sh(&session, &format!("echo reached > {}", pty.name())).await;
        pty.expect("reached\n");
        close(&session).await;
    }
}

user_cases! {
    /// C49: terminals of other users stay closed by ordinary ownership, whatever is accepted.
    async fn c49_terminals_of_other_users(world: &World) {
        use std::os::unix::fs::MetadataExt as _;
        let places = Places::of(world);
        let own = rustix::process::geteuid().as_raw();
        let pty = Pty::new();
        let session = open(plain(&places).accept(Protection::Terminals)).await;
        let mut foreign = 0;
        for entry in fs::read_dir("/dev/pts").unwrap().flatten() {
            let path = entry.path();
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.uid() == own || path.ends_with("ptmx") || found.mode() & 0o002 != 0 {
                continue;
            }
            foreign += 1;
            let output = sh(&session, &format!("exec 3<>{}", path.display())).await;
            assert!(!output.status.success(), "{}", path.display());
        }
        // There may be none here; that of this user shows that the probe would notice.
        done(&sh(&session, &format!("exec 3<>{}", pty.name())).await);
        assert!(foreign < 10_000);
        close(&session).await;
    }
}

/// C47 in its three ways.
fn standard(places: &Places) {
    host::block_on(async {
        let session = places.open().await;
        say(places, "output", done(&sh(&session, STANDARD).await));
        say(places, "background", in_background(&session, STANDARD).await);
        say(places, "terminal", on_terminal(&session, STANDARD).await);
        let quiet = session.command("cat").stdin(Stdio::null()).output().await.unwrap();
        assert_eq!(done(&quiet), "");
        close(&session).await;
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("standard", standard)]);
}
