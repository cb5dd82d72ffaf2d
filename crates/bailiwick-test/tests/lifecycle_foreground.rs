//! Commands in the foreground: C65, C53, C77; what is dropped is ended; kill and signals.

#![cfg(test)]

use std::fs;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::process::Stdio as HostStdio;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bailiwick::{ErrorKind, Output, Session, Signal, Stdio};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::{GENEROUS, number_of, pid_ended, pid_gone};
use bailiwick_test::pty::Pty;
use bailiwick_test::{Places, Snapshot, cases, image_without_namespaces, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Waits, without blocking the runtime, until the session runs nothing.
async fn idle(session: &Session) {
    let deadline = Instant::now() + GENEROUS;
    loop {
        let left = session.processes().await.unwrap();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "still there: {left:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a file with a number in it.
async fn number_in(path: impl AsRef<std::path::Path>) -> u32 {
    let deadline = Instant::now() + GENEROUS;
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if let Some(number) = text.strip_suffix('\n') {
            return number.parse().unwrap();
        }
        assert!(Instant::now() < deadline, "{} never came", path.as_ref().display());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs a script with and without a time limit that is not reached.
async fn both_ways(session: &Session, script: &str) -> [Output; 2] {
    let run = || session.command("/bin/sh").args(["-c", script]);
    let before = Instant::now();
    let outputs =
        [run().output().await.unwrap(), run().timeout(Duration::from_secs(250)).output().await.unwrap()];
    // The sleepers would take ten minutes.
    assert!(before.elapsed() < Duration::from_secs(120), "{script} took {:?}", before.elapsed());
    outputs
}

cases! {
    /// C65: a grandchild that holds the pipe, or holds nothing, or has left the session of its parent, does
    /// not keep the command from returning with all its text; it is listed, and ended by `close`.
    async fn c65_returns_though_a_grandchild_lives(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let mut left = Vec::new();
        for (script, text) in [
            ("echo first; sleep 600 & echo last", "first\nlast\n"),
            ("setsid sleep 600 & echo x", "x\n"),
            ("(sleep 600 2>&1 &) ; printf tail", "tail"),
            ("sleep 600 >/dev/null 2>&1 & echo silent", "silent\n"),
            ("echo out; echo err >&2; (setsid sh -c 'sleep 600; true' &) ; exit 0", "out\n"),
        ] {
            for output in both_ways(&session, script).await {
                assert_eq!(done(&output), text, "{script}");
                assert!(!output.timed_out);
                assert!(!output.still_running.is_empty(), "{script}");
                for process in &output.still_running {
                    assert!(!pid_gone(process.pid, process.start_time), "{script}: {process:?}");
                    // `setsid` may not have come to its own exec yet.
                    assert!(["sleep", "sh", "setsid"].contains(&process.name.as_str()), "{process:?}");
                }
                left.extend(output.still_running);
            }
        }
        // The twin: a command that leaves nothing.
        for output in both_ways(&session, "echo first; sleep 0.05 & wait; echo last").await {
            assert_eq!((done(&output).as_str(), output.still_running.len()), ("first\nlast\n", 0));
        }
        let mut alive: Vec<u32> = session.processes().await.unwrap().iter().map(|one| one.pid).collect();
        let mut listed: Vec<u32> = left.iter().map(|process| process.pid).collect();
        alive.sort_unstable();
        listed.sort_unstable();
        assert!(listed.iter().all(|pid| alive.contains(pid)), "{listed:?} of {alive:?}");
        let report = close(&session).await;
        for process in &left {
            assert!(pid_gone(process.pid, process.start_time), "{process:?}");
            assert!(report.processes.iter().any(|closed| closed.process.pid == process.pid), "{process:?}");
        }
        places.assert_nothing_left();
    }

    /// C65: all that was written up to the exit is there, in order, however much it is and whoever lives on.
    async fn c65_text_is_complete_and_in_order(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let expected: String = (1..=60_000).map(|line| format!("{line}\n")).collect();
        for script in [
            "seq 1 60000; sleep 600 &",
            "sleep 600 & seq 1 60000",
            "sleep 600 & seq 1 60000 >&2",
            "(seq 1 60000; exec sleep 600) & while ! grep -q sleep /proc/$!/comm; do sleep 0.01; done",
            "seq 1 60000",
        ] {
            for output in both_ways(&session, script).await {
                assert!(output.status.success());
                let text = if script.contains(">&2") { &output.stderr } else { &output.stdout };
                assert_eq!(text.total(), u64::try_from(expected.len()).unwrap(), "{script}");
                assert!(text.text() == expected, "{script}: the text differs");
            }
        }
        close(&session).await;
    }

    /// C53: a tool that trusts `access` spins; the time limit ends its whole tree and the result lists the
    /// roots in force.
    async fn c53_time_limit(world: &World) {
        let places = Places::of(world);
        let truthful = places.open().await;
        // Where the mount is read-only, the test says so.
        let test = format!("test -w {} || echo not writable", places.outside().display());
        assert_eq!(done(&sh(&truthful, &test).await), "not writable\n");
        close(&truthful).await;
        let session = open(places.session()._worker_image(image_without_namespaces())).await;
        let (outside, before) = (places.outside(), Snapshot::of(places.outside()));
        let script = format!(
            "setsid sh -c 'trap \"\" TERM INT HUP; sleep 600' & \
             test -w {0} && echo writable && until (set -C; : > {0}/lock) 2>/dev/null; do :; done; echo locked",
            outside.display()
        );
        let limit = Duration::from_millis(700);
        let started = Instant::now();
        let output = session.command("/bin/sh").args(["-c", &script]).timeout(limit).output().await.unwrap();
        assert!(started.elapsed() >= limit && started.elapsed() < GENEROUS, "{:?}", started.elapsed());
        assert!(output.timed_out);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9));
        assert_eq!(output.stdout.text(), "writable\n");
        assert_eq!(output.write_roots, [places.write_root()]);
        idle(&session).await;
        before.assert_unchanged();
        // The twin: the same script where the lock can be made.
        let script = script.replace(outside.to_str().unwrap(), places.write_root().to_str().unwrap());
        let output = session.command("/bin/sh").args(["-c", &script]).timeout(GENEROUS).output().await.unwrap();
        assert_eq!((done(&output).as_str(), output.timed_out), ("writable\nlocked\n", false));
        assert!(places.write_root().join("lock").exists());
        close(&session).await;
    }

    /// C77: a command that reads gets end of file at once; what waits on the host's standard input stays.
    fn c77_standard_input_of_the_host(world: &World) {
        let places = Places::of(world);
        let mut pty = Pty::new();
        pty.type_in("typed by a person\n");
        let mut on_terminal = Host::command(&places, "host", "reads");
        on_terminal.stdin(HostStdio::from(pty.subordinate()));
        let mut on_pipe = Host::command(&places, "host", "reads");
        let (pipe, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"typed by a person\n").unwrap();
        on_pipe.stdin(HostStdio::from(pipe));
        for command in [on_terminal, on_pipe] {
            let mut host = Host::start(&places, command);
            assert_eq!(host.hear("cat"), "");
            assert_eq!(host.hear("read"), "got:\n");
            assert_eq!(host.hear("spawned"), 0);
            assert_eq!(host.hear("terminal"), "refused\n");
            assert_eq!(host.hear("host"), "typed by a person\n");
            host.finish();
            fs::remove_file(places.join("said")).unwrap();
        }
    }

    /// Standard input that is piped: the command sees what is written, and the end when it is dropped.
    async fn piped_standard_streams(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let command = session.command("/bin/sh").args(["-c", "cat; echo done >&2"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().await.unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let (mut received, mut errors) = (Vec::new(), String::new());
        let send = async {
            stdin.write_all(&sent).await.unwrap();
            drop(stdin);
        };
        tokio::join!(send, async { stdout.read_to_end(&mut received).await.unwrap() });
        assert!(received == sent);
        child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
        assert_eq!(errors, "done\n");
        assert!(child.wait().await.unwrap().success());
        child.settled().await.unwrap();
        close(&session).await;
    }

    /// A future of `output` that is dropped ends its command, with all that the command started.
    async fn dropping_output_ends_the_tree(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let pid_file = places.write_root().join("pid");
        let script = "trap '' TERM HUP; (setsid sleep 600 &); sleep 600 & echo $$ > pid; wait";
        let running = session.command("/bin/sh").args(["-c", script]).output();
        let seen = async {
            let inside = number_in(&pid_file).await;
            let pid = number_of(places.path(), inside).expect("it has ended");
            let alive = session.processes().await.unwrap();
            assert!(alive.iter().any(|process| process.pid == pid), "{pid} is not in {alive:?}");
            alive
        };
        let alive = tokio::select! {
            _ = running => panic!("it ended"),
            alive = seen => alive,
        };
        idle(&session).await;
        assert!(alive.iter().all(|process| pid_ended(process.pid, process.start_time)));
        // The session goes on.
        done(&sh(&session, "true").await);
        // The twin: a dropped handle of `spawn` leaves its command running, until close.
        let child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        let (pid, start) = (child.id(), child.start_time());
        drop(child);
        done(&sh(&session, "true").await);
        assert!(!pid_gone(pid, start));
        close(&session).await;
        assert!(pid_gone(pid, start));
    }

    /// A future of `spawn` that is dropped at any point ends its command, or never starts it.
    async fn dropping_spawn_ends_the_command(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        for polls in 0..6_usize {
            for _ in 0..10 {
                let mut spawning = Box::pin(session.command("/bin/sleep").arg("600").spawn());
                for _ in 0..polls {
                    let polled = spawning.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    if let Poll::Ready(child) = polled {
                        child.unwrap().kill().await.unwrap();
                        spawning = Box::pin(session.command("/bin/sleep").arg("600").spawn());
                    }
                    // So that events of the worker are seen between two polls.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                drop(spawning);
            }
            // What was on its way when it was dropped has been decided once a later command has run.
            done(&sh(&session, "true").await);
            idle(&session).await;
        }
        let report = close(&session).await;
        assert_eq!(report.killed(), 0, "{report:?}");
    }

    /// `kill` ends the whole tree, `signal` one process, `signal_tree` all that are there.
    async fn kill_and_signals(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let root = places.write_root();
        let start = async |name: &str, script: &str| {
            let script = format!("{script}\necho $$ > {name}; wait");
            let child = session.command("/bin/sh").args(["-c", &script]).spawn().await.unwrap();
            let inside = number_in(root.join(name)).await;
            assert_eq!(number_of(places.path(), inside), Some(child.id()));
            child
        };

        let mut killed = start("killed", "trap '' TERM; (setsid sleep 600 &); sleep 600 &").await;
        let tree = killed.processes().await.unwrap();
        assert_eq!(tree.len(), 3, "{tree:?}");
        let mut other = start("other", "sleep 600 &").await;
        killed.kill().await.unwrap();
        assert!(tree.iter().all(|process| pid_gone(process.pid, process.start_time)));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.wait().await.unwrap()), Some(9));
        killed.kill().await.unwrap();
        let error = killed.signal(Signal::TERM).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);

        // Only the shell: its sleeper lives on, and the command is over without being settled.
        assert!(other.try_wait().unwrap().is_none());
        other.signal(Signal::TERM).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&other.wait().await.unwrap()), Some(15));
        let left = other.processes().await.unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        other.signal_tree(Signal::TERM).await.unwrap();
        other.settled().await.unwrap();
        assert!(left.iter().all(|process| pid_gone(process.pid, process.start_time)));

        let mut trapped = start("trapped", "trap 'echo hup > hup; exit 0' HUP; sleep 600 &").await;
        trapped.signal(Signal::HUP).await.unwrap();
        let heard = wait_until(GENEROUS, || root.join("hup").exists());
        assert!(heard);
        assert!(trapped.wait().await.unwrap().code().is_some());
        trapped.kill().await.unwrap();
        idle(&session).await;
        close(&session).await;
    }

    /// The handle of a command that has ended never reaches another process that got its number.
    async fn c70_finished_handles_signal_nobody(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let mut child = session.command("/bin/true").spawn().await.unwrap();
        assert!(child.wait().await.unwrap().success());
        child.settled().await.unwrap();
        let bystander = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        for signal in [Signal::KILL, Signal::TERM] {
            assert_eq!(child.signal(signal).await.unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(child.signal_tree(signal).await.unwrap_err().kind(), ErrorKind::Io);
        }
        child.kill().await.unwrap();
        assert!(!pid_ended(bystander.id(), bystander.start_time()));
        assert!(child.processes().await.unwrap().is_empty());
        close(&session).await;
    }
}

/// Runs commands that read their standard input, then reads its own.
fn reads(places: &Places) {
    host::block_on(async {
        let session = places.open().await;
        say(places, "cat", done(&session.command("cat").output().await.unwrap()));
        say(places, "read", sh(&session, "read x; echo got:$x").await.stdout.text().into_owned());
        let mut child = session.command("cat").spawn().await.unwrap();
        say(places, "spawned", child.wait().await.unwrap().code());
        let terminal = sh(&session, "(read x < /dev/tty && echo $x) 2>/dev/null || echo refused").await;
        say(places, "terminal", done(&terminal));
        close(&session).await;
    });
    let mut line = [0; 18];
    std::io::stdin().read_exact(&mut line).unwrap();
    say(places, "host", String::from_utf8_lossy(&line).into_owned());
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("reads", reads)]);
}
