//! Deaths: of the host (C67), of the worker, of the keeper, of both; and hosts that end without closing.

#![cfg(test)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailiwick::{ErrorKind, Protection, Ran, Session};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, entries, open, sh};
use bailiwick_test::process::{self, GENEROUS, Process, pid_ended, pid_gone};
use bailiwick_test::{Places, cases, image_without_namespaces, tool, wait_until};

/// Pid and start time of processes, as a host tells its case.
fn told(value: &serde_json::Value) -> Vec<(u32, u64)> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Starts what C67 has running, and more: pipelines, sleepers in sessions of their own, a daemon, a file in the
/// temporary directory. Returns once all of it is there.
async fn make_busy(session: &Session) -> Vec<(u32, u64)> {
    let act = tool("act").display().to_string();
    let script = format!(
        "echo x > $TMPDIR/file; mkdir -p $TMPDIR/closed/deep; echo x > $TMPDIR/closed/deep/x; chmod 0 $TMPDIR/closed
         (setsid sleep 501 &); (setsid sh -c 'trap \"\" TERM HUP; sleep 502; true' &)
         {act} daemonize 120 daemon
         sh -c 'sleep 500 | cat | cat'"
    );
    let child = session.command("/bin/sh").args(["-c", &script]).spawn().await.unwrap();
    drop(child);
    let deadline = Instant::now() + GENEROUS;
    loop {
        let alive = session.processes().await.unwrap();
        let count = |name: &str| alive.iter().filter(|process| process.name == name).count();
        if (count("sleep"), count("cat"), count("daemon")) == (3, 2, 1) {
            return alive.iter().map(|process| (process.pid, process.start_time)).collect();
        }
        assert!(Instant::now() < deadline, "{alive:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Opens, makes busy, tells everything.
async fn busy_session(places: &Places) -> Session {
    let session = places.open().await;
    let running = make_busy(&session).await;
    let (keeper, worker) = session.own_processes();
    say(places, "own", vec![keeper, worker]);
    say(places, "temporary", session.temporary_dir().to_str().unwrap());
    say(places, "running", serde_json::to_value(running).unwrap());
    session
}

/// What a busy host has told: processes of commands, keeper and worker, temporary directory.
struct Busy {
    running: Vec<(u32, u64)>,
    temporary: PathBuf,
}

impl Busy {
    fn hear(host: &mut Host) -> Self {
        let running = told(&host.hear("running"));
        let temporary = PathBuf::from(host.hear("temporary").as_str().unwrap());
        assert!(running.iter().all(|(pid, start)| !pid_gone(*pid, *start)));
        assert!(temporary.join("file").exists());
        Self { running, temporary }
    }

    /// All gone, without anybody's further doing.
    #[track_caller]
    fn assert_gone_soon(&self, places: &Places) {
        let left = || self.running.iter().filter(|(pid, start)| !pid_ended(*pid, *start)).count();
        // Promised are two seconds; a loaded machine gets more.
        assert!(wait_until(GENEROUS, || left() == 0), "{} are left", left());
        places.assert_nothing_left_soon();
        assert!(!self.temporary.exists());
    }
}

/// Signals a process from outside of every session.
fn kill(pid: u32) {
    process::kill(pid);
}

/// Waits until a process runs no more.
#[track_caller]
fn await_end(pid: u32, start: u64) {
    assert!(wait_until(GENEROUS, || pid_ended(pid, start)), "{:?}", Process::of(pid));
}

cases! {
    /// C67: the host is killed hard. Its store can be opened again at once.
    async fn c67_host_killed(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "busy"));
        let busy = Busy::hear(&mut host);
        host.kill();
        busy.assert_gone_soon(&places);
        let session = places.open().await;
        done(&sh(&session, "true").await);
        close(&session).await;
    }

    /// The host ends by itself without closing: by `exit`, by a panic, by returning, by dropping the session.
    fn host_ends_without_closing(world: &World) {
        let places = Places::of(world);
        for (part, ends_well) in [("exits", true), ("panics", false), ("returns", true), ("drops", true), ("forgets", true)] {
            let mut host = Host::start(&places, Host::command(&places, "host", part));
            let busy = Busy::hear(&mut host);
            say(&places, "go", true);
            let status = host.wait();
            assert_eq!(status.success(), ends_well, "{part}: {}", host.output());
            busy.assert_gone_soon(&places);
            std::fs::remove_file(places.join("said")).unwrap();
        }
    }

    /// A session that is dropped while the host lives on: its processes end, and the keeper is no zombie.
    async fn session_dropped(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let running = make_busy(&session).await;
        let (keeper, worker) = session.own_processes();
        let (keeper_start, worker_start) =
            (process::start_time(keeper).unwrap(), process::start_time(worker).unwrap());
        drop(session);
        let deadline = Instant::now() + GENEROUS;
        while !pid_gone(keeper, keeper_start) {
            assert!(Instant::now() < deadline, "{:?}", Process::of(keeper));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(pid_gone(worker, worker_start));
        assert!(running.iter().all(|(pid, start)| pid_gone(*pid, *start)));
        places.assert_nothing_left();
    }

    /// The worker is killed from outside: the keeper ends everything, the host gets typed errors, and `close`
    /// says that the keeper did it.
    async fn worker_killed(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let running = make_busy(&session).await;
        let mut child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        let waiting = session.command("/bin/sleep").arg("600").output();
        let (_, worker) = session.own_processes();
        let killed = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            kill(worker);
        };
        let (waited, ()) = tokio::join!(waiting, killed);
        let error = waited.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WorkerLost, "{error:?}");
        assert_ne!(error.ran(), Ran::Nothing);
        let error = child.wait().await.unwrap_err();
        assert_eq!((error.kind(), error.ran()), (ErrorKind::WorkerLost, Ran::Something), "{error:?}");
        for error in [
            child.settled().await.unwrap_err(),
            child.signal(bailiwick::Signal::TERM).await.unwrap_err(),
            session.processes().await.unwrap_err(),
            session.command("/bin/true").output().await.unwrap_err(),
            session.command("/bin/true").spawn().await.unwrap_err(),
            session.replace_write_roots([places.write_root()]).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::WorkerLost, "{error:?}");
            assert!(!error.hints().is_empty());
        }
        let report = close(&session).await;
        assert!(report.by_keeper && report.processes.is_empty(), "{report:?}");
        assert!(running.iter().all(|(pid, start)| pid_gone(*pid, *start)));
        assert!(pid_gone(child.id(), child.start_time()));
        places.assert_nothing_left();
        assert_eq!(close(&session).await, report);
        // The store is free, and another session works.
        let session = places.open().await;
        done(&sh(&session, "true").await);
        close(&session).await;
    }

    /// The keeper is killed: the session goes on, the worker ends everything all the same, and `close` does
    /// not claim what it does not know.
    async fn keeper_killed(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let running = make_busy(&session).await;
        let (keeper, worker) = session.own_processes();
        let (start, worker_start) = (process::start_time(keeper).unwrap(), process::start_time(worker).unwrap());
        kill(keeper);
        await_end(keeper, start);
        done(&sh(&session, "echo on > on").await);
        match session.close().await {
            Ok(report) => {
                assert!(!report.by_keeper, "nobody was there to say so: {report:?}");
                assert!(running.iter().all(|(pid, start)| {
                    report.processes.iter().any(|one| (one.process.pid, one.process.start_time) == (*pid, *start))
                }));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::SettlementUnknown, "{error:?}"),
        }
        // Whatever it said, nothing runs.
        assert!(running.iter().all(|(pid, start)| pid_ended(*pid, *start)));
        // It has nothing to wait for but its own end, which the keeper would have seen.
        await_end(worker, worker_start);
        assert!(places.machinery().is_empty());
        // Removing the temporary directory was the keeper's work: it is left, and that is all.
        assert_eq!(entries(&places.temporary()), [session.temporary_dir()]);
    }

    /// The keeper is killed, then the host: the worker sees that, and ends everything.
    fn keeper_and_host_killed(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "busy"));
        let busy = Busy::hear(&mut host);
        let own: Vec<u32> = serde_json::from_value(host.hear("own")).unwrap();
        kill(own[0]);
        host.kill();
        assert!(wait_until(GENEROUS, || busy.running.iter().all(|(pid, start)| pid_ended(*pid, *start))));
        assert!(wait_until(GENEROUS, || places.machinery().is_empty()));
        assert_eq!(entries(&places.temporary()), [busy.temporary], "only the keeper's own work is left undone");
    }

    /// The same where the kernel ends what the worker was the first process of. `close` does not claim it: the keeper,
    /// whose end is the proof, was killed.
    async fn keeper_and_worker_killed_in_a_namespace(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let running = make_busy(&session).await;
        let (keeper, worker) = session.own_processes();
        kill(keeper);
        kill(worker);
        let gone = wait_until(GENEROUS, || {
            running.iter().all(|(pid, start)| pid_ended(*pid, *start)) && places.machinery().is_empty()
        });
        assert!(gone, "{running:?}");
        let error = session.close_within(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!((error.kind(), error.ran()), (ErrorKind::SettlementUnknown, Ran::Unknown), "{error:?}");
    }

    /// Keeper and worker are killed from outside, which nothing without namespaces survives: the session's
    /// processes live on, and `close` says that it does not know.
    async fn keeper_and_worker_killed(world: &World) {
        let places = Places::of(world);
        let session = open(places.session()._worker_image(image_without_namespaces())).await;
        let running = make_busy(&session).await;
        let (keeper, worker) = session.own_processes();
        let start = process::start_time(worker).unwrap();
        kill(keeper);
        kill(worker);
        await_end(worker, start);
        let error = session.close_within(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!((error.kind(), error.ran()), (ErrorKind::SettlementUnknown, Ran::Unknown), "{error:?}");
        assert!(error.can_retry() && !error.hints().is_empty());
        let error = session.close_within(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SettlementUnknown);
        let error = session.command("/bin/true").output().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WorkerLost | ErrorKind::SessionClosed), "{error:?}");
        // It would be a false claim: they are there. (Where that changes, the promise has grown.)
        let left: Vec<_> = running.iter().filter(|(pid, start)| !pid_ended(*pid, *start)).collect();
        assert!(!left.is_empty(), "nothing is left, so the answer could be a better one");
        // This world's own clean-up, not the session's.
        left.iter().for_each(|(pid, _)| kill(*pid));
        places.machinery().iter().for_each(|one| kill(one.pid));
        let gone = wait_until(GENEROUS, || {
            running.iter().all(|(pid, start)| pid_ended(*pid, *start)) && places.machinery().is_empty()
        });
        assert!(gone);
    }

    /// The host is stopped, not dead: nothing ends, and once it goes on it is as before.
    fn host_stopped_and_continued(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "stops"));
        let busy = Busy::hear(&mut host);
        let pid = rustix::process::Pid::from_raw(i32::try_from(host.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(busy.running.iter().all(|(pid, start)| !pid_ended(*pid, *start)));
        assert!(busy.temporary.exists());
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        say(&places, "go", true);
        assert_eq!(host.hear("after"), "still here\n");
        host.finish();
        busy.assert_gone_soon(&places);
    }

    /// A command cannot do any of it: neither to the worker nor to the keeper nor to the host.
    async fn commands_cannot_kill_what_holds_them(world: &World) {
        let places = Places::of(world);
        let plain = places.session().accept(Protection::SharedMemory)._worker_image(image_without_namespaces());
        let session = open(plain).await;
        let (keeper, worker) = session.own_processes();
        for pid in [keeper, worker, std::process::id()] {
            for signal in ["KILL", "STOP", "TERM", "CONT", "0"] {
                let output = sh(&session, &format!("kill -{signal} {pid}")).await;
                assert!(!output.status.success());
                assert!(output.stderr.text().contains("not permitted"), "{}", output.stderr.text());
            }
        }
        // The twin: a process of the session.
        let mut sleeper = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        done(&sh(&session, &format!("kill -KILL {}", sleeper.id())).await);
        sleeper.settled().await.unwrap();
        assert_eq!(close(&session).await.killed(), 0);
        // In a namespace there is the worker alone, under a number of its own.
        let session = places.open().await;
        for signal in ["KILL", "STOP", "TERM", "CONT", "0"] {
            let output = sh(&session, &format!("kill -{signal} 1")).await;
            assert!(!output.status.success());
            assert!(output.stderr.text().contains("not permitted"), "{}", output.stderr.text());
        }
        let worker = session.own_processes().1;
        let output = sh(&session, &format!("kill -0 {worker}")).await;
        assert!(output.stderr.text().contains("No such process"), "{}", output.stderr.text());
        close(&session).await;
    }
}

/// Waits until the case says "go".
async fn wait_for_go(places: &Places) {
    while !std::fs::read_to_string(places.join("said")).unwrap_or_default().contains("\"go\"") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn busy(places: &Places) {
    host::block_on(async {
        let _session = busy_session(places).await;
        std::future::pending::<()>().await;
    });
}

#[expect(clippy::exit, reason = "to end without running destructors is what is tested")]
fn exits(places: &Places) {
    host::block_on(async {
        let _session = busy_session(places).await;
        wait_for_go(places).await;
        std::process::exit(0);
    });
}

fn panics(places: &Places) {
    host::block_on(async {
        let _session = busy_session(places).await;
        wait_for_go(places).await;
        panic!("on purpose");
    });
}

fn returns(places: &Places) {
    host::block_on(async {
        let session = busy_session(places).await;
        wait_for_go(places).await;
        drop(session);
    });
}

/// Drops the session outside of its runtime, which has been dropped first.
fn drops(places: &Places) {
    let session = host::block_on(async {
        let session = busy_session(places).await;
        wait_for_go(places).await;
        session
    });
    drop(session);
}

fn forgets(places: &Places) {
    host::block_on(async {
        std::mem::forget(busy_session(places).await);
        wait_for_go(places).await;
    });
}

fn stops(places: &Places) {
    host::block_on(async {
        let session = busy_session(places).await;
        wait_for_go(places).await;
        say(places, "after", done(&sh(&session, "echo still here").await));
        close(&session).await;
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[
        ("busy", busy),
        ("exits", exits),
        ("panics", panics),
        ("returns", returns),
        ("drops", drops),
        ("forgets", forgets),
        ("stops", stops),
    ]);
}
