//! Replacing roots while commands run, and calls that meet each other: each has a defined end.

#![cfg(test)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::{Error, ErrorKind, Field, WhenBusy};
use bailiwick_test::host::usage;
use bailiwick_test::places::{close, done, refused, sh};
use bailiwick_test::process::{self, GENEROUS, pid_gone};
use bailiwick_test::{Places, Snapshot, cases};

fn numbers(error: &Error, field: &str) -> Vec<i64> {
    error.field(field).and_then(Field::as_list).unwrap().iter().filter_map(Field::as_number).collect()
}

/// The kinds that a call may end with when another call closes the session under it.
#[track_caller]
fn assert_closing(error: &Error) {
    let kinds = [ErrorKind::SessionClosed, ErrorKind::WorkerLost];
    assert!(kinds.contains(&error.kind()), "{}", error.report());
}

cases! {
    /// By default a replacement is refused while commands run, and lists them.
    async fn refuse_lists_what_runs(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let one = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        // The second one has ended, but left something.
        let output = sh(&session, "sleep 600 & echo $!").await;
        let left = i64::from(output.still_running[0].pid);
        let error = refused(session.replace_write_roots([places.outside()]).await, ErrorKind::SessionBusy);
        assert!(error.can_retry());
        let commands = error.field("commands").and_then(Field::as_list).unwrap();
        assert_eq!(commands.len(), 2, "{error:?}");
        assert_eq!(commands[0].as_text(), Some(one.command_id().to_string().as_str()));
        assert!(numbers(&error, "pids").contains(&i64::from(one.id())), "{error:?}");
        assert_eq!(session.write_roots().await, [places.write_root()]);
        assert!(!pid_gone(one.id(), one.start_time()));
        // A guard's refusal comes first, and ends nothing even where killing was asked for.
        let around = session.replace_write_roots([places.path()]).when_busy(WhenBusy::Kill).await;
        refused(around, ErrorKind::RootOverlap);
        assert!(!pid_gone(one.id(), one.start_time()));
        // The twin: the same once nothing runs.
        let mut one = one;
        one.kill().await.unwrap();
        let left = rustix::process::Pid::from_raw(i32::try_from(left).unwrap()).unwrap();
        rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
        let deadline = Instant::now() + GENEROUS;
        while let Err(error) = session.replace_write_roots([places.outside()]).await {
            assert!(error.kind() == ErrorKind::SessionBusy && Instant::now() < deadline, "{error:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(session.write_roots().await, [places.outside()]);
        close(&session).await;
    }

    /// `Wait` waits for what runs, and refuses when its time is over.
    async fn wait(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let mut child = session.command("/bin/sleep").arg("0.4").spawn().await.unwrap();
        let before = Instant::now();
        let early = session.replace_write_roots([places.outside()]).when_busy(WhenBusy::Wait(Duration::ZERO)).await;
        refused(early, ErrorKind::SessionBusy);
        session.replace_write_roots([places.outside()]).when_busy(WhenBusy::Wait(GENEROUS)).await.unwrap();
        assert!(before.elapsed() >= Duration::from_millis(350) && before.elapsed() < GENEROUS);
        // It had ended by itself.
        assert!(child.wait().await.unwrap().success());
        assert_eq!(session.write_roots().await, [places.outside()]);

        let child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        let limit = Duration::from_millis(200);
        let late = session.replace_write_roots([places.write_root()]).when_busy(WhenBusy::Wait(limit)).await;
        let error = refused(late, ErrorKind::SessionBusy);
        assert_eq!(numbers(&error, "pids"), [i64::from(child.id())]);
        assert_eq!(session.write_roots().await, [places.outside()]);
        close(&session).await;
    }

    /// `Kill` ends whole trees, and commands that start afterwards are under the new grant.
    async fn kill(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let script = "trap '' TERM; (setsid sleep 600 &); sleep 600 & echo ready > ready; wait";
        let mut child = session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap();
        while !places.write_root().join("ready").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let tree = child.processes().await.unwrap();
        session.replace_write_roots([places.outside()]).when_busy(WhenBusy::Kill).await.unwrap();
        assert!(tree.len() >= 3 && tree.iter().all(|process| pid_gone(process.pid, process.start_time)), "{tree:?}");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().await.unwrap()), Some(9));
        let before = Snapshot::of(places.write_root());
        let script = format!("echo x > {}/n; echo x > {}/n", places.outside().display(), places.write_root().display());
        assert!(!sh(&session, &script).await.status.success());
        assert!(places.outside().join("n").exists());
        before.assert_unchanged();
        close(&session).await;
    }

    /// What runs keeps the grant that it started under, through a replacement that waits for it.
    async fn a_running_command_keeps_its_grant(world: &World) {
        let places = Places::of(world);
        let session = Arc::new(places.open().await);
        let script = format!(
            "echo started > started; while ! [ -e {0}/go ]; do sleep 0.01; done; echo old > old; echo new > {0}/new",
            places.outside().display()
        );
        let mut child = session.command("/bin/sh").args(["-c", &script]).spawn().await.unwrap();
        let replacing = tokio::spawn({
            let (session, outside) = (Arc::clone(&session), places.outside());
            async move { session.replace_write_roots([outside]).when_busy(WhenBusy::Wait(GENEROUS)).await }
        });
        while !places.write_root().join("started").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A command that is to start meanwhile waits for the replacement, and runs under the new grant.
        let later = tokio::spawn({
            let (session, path) = (Arc::clone(&session), places.outside().join("later"));
            async move { session.command("/bin/sh").args(["-c", &format!("echo x > {}", path.display())]).output().await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::fs::write(places.outside().join("go"), "").unwrap();
        replacing.await.unwrap().unwrap();
        let later = later.await.unwrap().unwrap();
        assert!(later.status.success() && places.outside().join("later").exists());
        assert_eq!(later.write_roots, [places.outside()]);
        assert!(!child.wait().await.unwrap().success());
        assert!(places.write_root().join("old").exists());
        assert!(!places.outside().join("new").exists());
        close(&session).await;
    }

    /// Commands, replacements and a close at once, at every point in time: each call ends with a result or a
    /// typed error, none hangs, and nothing is left.
    async fn calls_that_meet_a_close(world: &World, seconds = 240) {
        let places = Places::of(world);
        for round in 0..24_u64 {
            let session = Arc::new(places.open().await);
            let mut calls: Vec<tokio::task::JoinHandle<Result<(), Error>>> = Vec::new();
            for number in 0..6 {
                let (session, outside) = (Arc::clone(&session), places.outside());
                calls.push(tokio::spawn(async move {
                    match number {
                        0 => session.command("/bin/true").output().await.map(drop),
                        1 => session.command("/bin/sleep").arg("600").output().await.map(drop),
                        2 => session.command("/bin/sleep").arg("600").spawn().await?.wait().await.map(drop),
                        3 => session.replace_write_roots([outside]).when_busy(WhenBusy::Wait(GENEROUS)).await,
                        4 => session.processes().await.map(drop),
                        _ => session.command("/bin/sh").args(["-c", "setsid sleep 600 & exec sleep 600"]).output().await.map(drop),
                    }
                }));
            }
            tokio::time::sleep(Duration::from_micros(round * 400)).await;
            let closes = [Arc::clone(&session), Arc::clone(&session)].map(|session| {
                tokio::spawn(async move { session.close().await })
            });
            for (number, call) in calls.into_iter().enumerate() {
                let ended = tokio::time::timeout(GENEROUS, call).await;
                let ended = ended.unwrap_or_else(|_| panic!("round {round}: call {number} hangs")).unwrap();
                // Killed by the close, it ended; not started, it says so.
                if let Err(error) = ended {
                    assert_closing(&error);
                }
            }
            let [one, other] = closes;
            let (one, other) = (one.await.unwrap().unwrap(), other.await.unwrap().unwrap());
            assert_eq!(one, other);
            assert!(!one.by_keeper);
            let error = session.command("/bin/true").output().await.unwrap_err();
            assert_closing(&error);
            let error = session.replace_write_roots([places.outside()]).await.unwrap_err();
            assert_closing(&error);
            drop(session);
            places.assert_nothing_left();
        }
    }

    /// Hundreds of replacements, with and without a command under each: the session's own processes do not
    /// grow in number, nor its worker in descriptors.
    async fn many_replacements_cost_nothing(world: &World) {
        let places = Places::of(world);
        let roots = [places.write_root(), places.outside()];
        let session = places.open().await;
        let (keeper, worker) = session.own_processes();
        let turn = async |number: usize| {
            session.replace_write_roots([&roots[number % 2]]).await.unwrap();
            if number.is_multiple_of(5) {
                done(&sh(&session, "echo x > x").await);
            }
        };
        for number in 0..20 {
            turn(number).await;
        }
        // Only root may list the descriptors of the worker, which is not dumpable.
        let descriptors = || usage(worker)["descriptors"].as_u64().unwrap_or(0);
        let processes = || process::descendants(keeper).iter().filter(|one| !one.is_zombie()).count();
        let before = (processes(), descriptors());
        for number in 0..300 {
            turn(number).await;
        }
        let deadline = Instant::now() + GENEROUS;
        while processes() > before.0 + 2 || descriptors() > before.1 + 8 {
            assert!(Instant::now() < deadline, "before {before:?}, after {:?}", (processes(), descriptors()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        close(&session).await;
    }

    /// Replacements that meet each other, and commands between them: always one whole grant or the other.
    async fn replacements_that_meet(world: &World) {
        let places = Places::of(world);
        let session = Arc::new(places.open().await);
        let roots = [places.write_root(), places.outside()];
        let mut tasks = Vec::new();
        for number in 0..4 {
            let (session, roots) = (Arc::clone(&session), roots.clone());
            tasks.push(tokio::spawn(async move {
                for turn in 0..10 {
                    let granted = roots[(number + turn) % 2].clone();
                    session.replace_write_roots([granted]).when_busy(WhenBusy::Wait(GENEROUS)).await.unwrap();
                    let probe = format!("p-{number}-{turn}");
                    let script = format!(
                        "echo x > {0}/{probe} && echo 0; echo x > {1}/{probe} && echo 1; true",
                        roots[0].display(),
                        roots[1].display()
                    );
                    let output = session.command("/bin/sh").args(["-c", &script]).output().await.unwrap();
                    let said = &output.write_roots[0];
                    let wrote = usize::from(output.stdout.text().trim() == "1");
                    assert_eq!(&roots[wrote], said);
                    assert!(roots[wrote].join(&probe).exists() && !roots[1 - wrote].join(&probe).exists());
                }
            }));
        }
        for task in tasks {
            tokio::time::timeout(GENEROUS * 2, task).await.expect("a replacement hangs").unwrap();
        }
        close(&session).await;
    }
}
