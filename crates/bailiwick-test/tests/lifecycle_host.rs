//! The embedding program: its signals (C63) do not reach commands, and its children stay its own.

#![cfg(test)]

use std::collections::HashMap;
use std::process::{Command, Stdio as HostStdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, sh};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::{Need, Places, cases, requires, wait_until};
use serde_json::Value;

/// The mask in a line of `/proc/PID/status`: a name, a colon, a tab, sixteen hexadecimal digits.
fn mask(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

cases! {
    /// C63: a host that ignores SIGPIPE and CHLD and blocks TERM, INT and CHLD; its commands start with none of it.
    fn c63_signals_of_the_host(world: &World) {
        let places = Places::of(world);
        let wrapper = ["env", "--block-signal=TERM,INT,CHLD,USR1", "--ignore-signal=PIPE,HUP,CHLD"];
        let mut host = Host::start(&places, Host::wrapped(&places, &wrapper, "host", "signals"));
        // The fixture: the host is as strange as it should be.
        let own = host.hear("host");
        let own = own.as_str().unwrap();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1] {
            assert_ne!(mask(own, "SigBlk") & bit(signal), 0, "{own}");
        }
        for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGCHLD] {
            assert_ne!(mask(own, "SigIgn") & bit(signal), 0, "{own}");
        }
        let status = host.hear("command");
        let status = status.as_str().unwrap();
        for field in ["SigBlk", "SigIgn", "SigPnd", "ShdPnd"] {
            assert_eq!(mask(status, field), 0, "{status}");
        }
        assert_eq!(host.hear("pipe"), serde_json::json!(["1\n141 0\n", ""]));
        // TERM ends what the host asked it to end.
        assert_eq!(host.hear("terminated"), libc::SIGTERM);
        assert_eq!(host.hear("closed"), 1);
        host.finish();
        places.assert_nothing_left();
    }

    /// The host ignores SIGCHLD, so the kernel reaps its children, the keeper too: sessions work and close all
    /// the same, and the disposition stays.
    fn host_that_ignores_its_children(world: &World) {
        let places = Places::of(world);
        let wrapper = ["env", "--ignore-signal=CHLD"];
        let mut host = Host::start(&places, Host::wrapped(&places, &wrapper, "host", "ignores"));
        assert_eq!(host.hear("output"), "ok\n");
        assert_eq!(host.hear("killed"), 1);
        assert_eq!(host.hear("still_ignored"), true);
        host.finish();
        places.assert_nothing_left();
    }

    /// The host waits for all its children in a loop, and gets every status of its own children and no other
    /// process of a session but the keeper; sessions close all the same.
    fn host_that_waits_for_everything(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "reaps"));
        assert_eq!(host.hear("own"), serde_json::json!([7, 8, 9, 10, 11, 12, 13, 14]));
        assert_eq!(host.hear("foreign"), 0);
        assert_eq!(host.hear("killed"), 8);
        host.finish();
        places.assert_nothing_left();
    }

    /// Children of the host that have ended wait for it, through opening, running and closing.
    fn children_of_the_host_are_left_alone(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "keeps"));
        assert_eq!(host.hear("statuses"), serde_json::json!([20, 21, 22, 23, 24]));
        assert_eq!(host.hear("subreaper"), 0);
        assert_eq!(host.hear("handlers"), true);
        host.finish();
    }

    /// A runtime with several threads, and sessions used from all of them.
    fn host_with_threads(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "threads"));
        assert_eq!(host.hear("done"), 400);
        host.finish();
        places.assert_nothing_left();
    }

    /// The twin of C63 for the tools used above: confinement is not what gives 141.
    fn c63_without_confinement(_world: &World) {
        requires!(Need::Landlock);
        let output = Command::new("bash")
            .args(["-c", "seq 1 100000 | head -1; echo ${PIPESTATUS[@]}"])
            .stdin(HostStdio::null())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n141 0\n");
        let ignoring = Command::new("env")
            .args(["--ignore-signal=PIPE", "bash", "-c", "seq 1 100000 | head -1; echo ${PIPESTATUS[@]}"])
            .stdin(HostStdio::null())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&ignoring.stdout), "1\n1 0\n");
    }
}

fn own_status() -> String {
    std::fs::read_to_string("/proc/thread-self/status").unwrap()
}

fn signals(places: &Places) {
    host::block_on(async {
        say(places, "host", own_status());
        let session = places.open().await;
        let status = session.command("cat").arg("/proc/self/status").output().await.unwrap();
        say(places, "command", done(&status));
        let script = "seq 1 100000 | head -1; echo ${PIPESTATUS[@]}";
        let output = session.command("bash").args(["-c", script]).output().await.unwrap();
        say(places, "pipe", vec![output.stdout.text().into_owned(), output.stderr.text().into_owned()]);
        let mut child = session.command("sleep").arg("600").spawn().await.unwrap();
        child.signal(bailiwick::Signal::TERM).await.unwrap();
        let status = child.wait().await.unwrap();
        say(places, "terminated", std::os::unix::process::ExitStatusExt::signal(&status));
        let _left = session.command("sleep").arg("600").spawn().await.unwrap();
        say(places, "closed", close(&session).await.killed());
    });
}

fn ignores(places: &Places) {
    host::block_on(async {
        assert_ne!(mask(&own_status(), "SigIgn") & bit(libc::SIGCHLD), 0);
        let session = places.open().await;
        say(places, "output", done(&sh(&session, "echo ok & wait").await));
        let _left = session.command("sleep").arg("600").spawn().await.unwrap();
        say(places, "killed", close(&session).await.killed());
        say(places, "still_ignored", mask(&own_status(), "SigIgn") & bit(libc::SIGCHLD) != 0);
    });
}

fn reaps(places: &Places) {
    let statuses = Arc::new(Mutex::new(HashMap::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, stopped) = (Arc::clone(&statuses), Arc::clone(&stop));
    let reaper = std::thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            match rustix::process::waitpid(None, rustix::process::WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    seen.lock().unwrap().insert(pid.as_raw_nonzero().get(), status.exit_status());
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    let (mut own, mut keepers) = (Vec::new(), Vec::new());
    let killed = host::block_on(async {
        let mut killed = 0;
        for code in 7..15 {
            // Waited for by the loop above, which is this case's very point.
            #[expect(clippy::zombie_processes, reason = "another thread waits for all children")]
            let child = Command::new("sh")
                .args(["-c", &format!("exit {code}")])
                .stdin(HostStdio::null())
                .spawn()
                .unwrap();
            own.push(i32::try_from(child.id()).unwrap());
            let session = places.open().await;
            keepers.push(i32::try_from(session.own_processes().0).unwrap());
            done(&sh(&session, "sh -c 'exit 5' & wait").await);
            let _left = session.command("sleep").arg("600").spawn().await.unwrap();
            killed += close(&session).await.killed();
        }
        killed
    });
    let complete = wait_until(GENEROUS, || own.iter().all(|pid| statuses.lock().unwrap().contains_key(pid)));
    assert!(complete, "{own:?} of {statuses:?}");
    stop.store(true, Ordering::SeqCst);
    reaper.join().unwrap();
    let statuses = statuses.lock().unwrap();
    let found: Vec<Value> = own.iter().map(|pid| Value::from(statuses[pid])).collect();
    say(places, "own", found);
    let known = |pid: &&i32| own.contains(*pid) || keepers.contains(*pid);
    say(places, "foreign", statuses.keys().filter(|pid| !known(pid)).count());
    say(places, "killed", killed);
}

fn keeps(places: &Places) {
    let mut children: Vec<_> = (20..25)
        .map(|code| {
            Command::new("sh").args(["-c", &format!("exit {code}")]).stdin(HostStdio::null()).spawn().unwrap()
        })
        .collect();
    let before = own_status();
    host::block_on(async {
        for _ in 0..3 {
            let session = places.open().await;
            done(&sh(&session, "true").await);
            close(&session).await;
        }
    });
    let statuses: Vec<_> = children.iter_mut().map(|child| child.wait().unwrap().code()).collect();
    say(places, "statuses", statuses);
    let subreaper = rustix::process::child_subreaper().unwrap();
    say(places, "subreaper", subreaper.map_or(0, |pid| pid.as_raw_nonzero().get()));
    let same = |field: &str| mask(&before, field) == mask(&own_status(), field);
    say(places, "handlers", ["SigBlk", "SigIgn", "SigCgt"].iter().all(|field| same(field)));
}

fn threads(places: &Places) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let count = runtime.block_on(async {
        let session = Arc::new(places.open().await);
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let session = Arc::clone(&session);
                tokio::spawn(async move {
                    for turn in 0..50 {
                        let text = format!("{task}-{turn}");
                        let output = session.command("echo").arg(&text).output().await.unwrap();
                        assert_eq!(done(&output), format!("{text}\n"));
                    }
                    50
                })
            })
            .collect();
        let mut count = 0;
        for task in tasks {
            count += task.await.unwrap();
        }
        close(&session).await;
        count
    });
    say(places, "done", count);
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[
        ("signals", signals),
        ("ignores", ignores),
        ("reaps", reaps),
        ("keeps", keeps),
        ("threads", threads),
    ]);
}
