//! Attacks from inside on what supervises: a command kills, stops or confuses the processes of its own
//! session that it can reach. The session goes on, says what was lost, and closes with nothing left.

#![cfg(test)]

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use bailiwick::{Child, CloseReport, Session};
use bailiwick_test::boundary::{Victim, run, session};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::{self, GENEROUS, Process};
use bailiwick_test::{Places, World, cases, tool, wait_until};

/// A signal to every process of this world's machinery, from inside. Notes how many it reached.
fn signal_machinery(places: &Places, signal: &str) -> String {
    let pids: Vec<String> = places.machinery().iter().map(|process| process.pid.to_string()).collect();
    format!(
        "n=0; for p in {}; do kill -{signal} $p 2>/dev/null && n=$((n+1)); done; echo $n > reached",
        pids.join(" ")
    )
}

/// A loop that goes on doing it to whatever is there.
fn go_on_signalling(signal: &str, seconds: u32) -> String {
    format!(
        "end=$(($(date +%s) + {seconds})); while [ $(date +%s) -lt $end ]; do \
            for c in /proc/[0-9]*/comm; do read -r name < $c 2>/dev/null || continue; \
            case $name in bailiwick-*) p=${{c#/proc/}}; kill -{signal} ${{p%/comm}} 2>/dev/null;; esac; \
            done; done"
    )
}

/// Starts an attack, and lets it begin once its handle is here: before, nobody could be told anything.
async fn begin(session: &Session, world: &World, script: &str) -> Child {
    let go = world.write_root().join("go");
    let _absent = std::fs::remove_file(&go);
    let script = format!("until test -e go; do sleep 0.01; done; {script}");
    let command = session.command("/bin/sh").args(["-c", &script]).spawn();
    let child = tokio::time::timeout(PATIENCE, command).await.expect("the attack does not start");
    std::fs::write(&go, "").unwrap();
    child.unwrap()
}

/// Far beyond what anything here takes, so that only what never comes misses it.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs an attack to its end, whatever is known of that.
async fn attack(session: &Session, world: &World, script: &str) -> Result<ExitStatus, bailiwick::Error> {
    let mut child = begin(session, world, script).await;
    let ended =
        tokio::time::timeout(PATIENCE, child.wait()).await.expect("the end of the attack is not told");
    // Where its end was lost it may be told before it comes; what follows is to run without the attacker.
    let is_over = || process::pid_ended(child.id(), child.start_time());
    assert!(wait_until(GENEROUS, is_over), "the attacker does not end");
    ended
}

/// Keeper and worker live, and a command runs as if nothing had been.
async fn assert_goes_on(session: &Session) {
    let (keeper, worker) = session.own_processes();
    for pid in [keeper, worker] {
        assert!(Process::of(pid).is_some_and(|process| !process.is_zombie()), "{pid} is gone");
    }
    for _ in 0..3 {
        let next = tokio::time::timeout(
            PATIENCE,
            sh(session, "echo fine; echo x > /tmp/no 2>/dev/null || echo denied"),
        );
        let output = next.await.expect("the next command does not run");
        assert_eq!(done(&output), "fine\ndenied\n");
    }
}

/// Closes within a bounded time, and proves for each process that was alive before that it is gone.
async fn close_and_prove(session: &Session, places: &Places) -> CloseReport {
    let mut alive =
        session.processes().await.unwrap().iter().map(|one| (one.pid, one.start_time)).collect::<Vec<_>>();
    alive.extend(places.machinery().iter().map(|one| (one.pid, one.start_time)));
    let began = Instant::now();
    let report = close(session).await;
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    for (pid, start_time) in alive {
        assert!(process::pid_gone(pid, start_time), "{pid} is left: {:?}", Process::of(pid));
    }
    for ended in &report.processes {
        assert!(process::pid_gone(ended.process.pid, ended.process.start_time), "{ended:?}");
    }
    places.assert_nothing_left();
    report
}

async fn sleeper(session: &Session) -> Child {
    session.command("/bin/sleep").arg("100").spawn().await.unwrap()
}

fn alive(child: &Child) -> bool {
    !process::pid_ended(child.id(), child.start_time())
}

cases! {
    /// A command kills its reaper. What it held is told to have lost its supervision, and is ended with the
    /// session all the same.
    async fn a_command_kills_its_reaper(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        let mut child = begin(&session, world, "setsid sleep 100 & kill -9 $PPID; exec sleep 100").await;
        let told = tokio::time::timeout(PATIENCE, async {
            while !child.supervision_lost() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        told.await.expect("nobody tells that the supervision was lost");
        assert!(alive(&child));
        assert_goes_on(&session).await;
        let sleeping = || {
            process::descendants(session.own_processes().1).iter().filter(|one| one.name == "sleep").count()
        };
        assert!(wait_until(GENEROUS, || sleeping() == 2));
        let left = session.processes().await.unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
        // It can still be ended by its handle.
        tokio::time::timeout(PATIENCE, child.kill())
            .await
            .expect("kill does not come back")
            .unwrap();
        assert!(!alive(&child));
        assert_eq!(session.processes().await.unwrap(), []);
        let mut undisturbed = sleeper(&session).await;
        assert!(!undisturbed.supervision_lost());
        undisturbed.kill().await.unwrap();
        close_and_prove(&session, &places).await;
    }

    /// The same, and nobody cares: `close` ends what was lost, and lists it.
    async fn what_was_lost_is_closed(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        for number in 1..=3 {
            begin(&session, world, "setsid sleep 100 & setsid setsid sleep 100 & kill -9 $PPID").await;
            let sleeping = || {
                process::descendants(session.own_processes().1)
                    .iter()
                    .filter(|one| one.name == "sleep")
                    .count()
            };
            assert!(wait_until(GENEROUS, || sleeping() == 2 * number));
        }
        assert_goes_on(&session).await;
        let report = close_and_prove(&session, &places).await;
        assert_eq!(report.killed(), 6, "{report:?}");
    }

    /// All launchers and reapers at once, and whatever else has one of their names.
    async fn the_whole_machinery_is_killed(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        let other = sleeper(&session).await;
        for _ in 0..3 {
            // Its own reaper is among them, so how it ended may be lost, but not that it has.
            let ended = attack(&session, world, &signal_machinery(&places, "9")).await;
            assert!(
                ended.is_ok_and(|status| status.success()) || world.write_root().join("reached").exists()
            );
            assert_ne!(std::fs::read_to_string(world.write_root().join("reached")).unwrap().trim(), "0");
            assert_goes_on(&session).await;
            assert!(alive(&other));
        }
        assert!(other.supervision_lost());
        close_and_prove(&session, &places).await;
    }

    /// For two seconds, everything of that name is killed as soon as it appears. Then the session works.
    async fn the_machinery_is_killed_over_and_over(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        let mut killer =
            session.command("/bin/sh").args(["-c", &go_on_signalling("9", 2)]).spawn().await.unwrap();
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            // It may fail or be lost, but it comes back.
            let command = session.command("/bin/true").output();
            let _lost = tokio::time::timeout(PATIENCE, command)
                .await
                .expect("a call does not come back");
        }
        tokio::time::timeout(PATIENCE, killer.settled())
            .await
            .expect("the killer does not settle")
            .unwrap();
        assert_goes_on(&session).await;
        close_and_prove(&session, &places).await;
    }

    /// Everything that may be stopped is stopped, once and over and over.
    async fn the_machinery_is_stopped(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        for script in [
            "kill -STOP $PPID".to_owned(),
            signal_machinery(&places, "STOP"),
            signal_machinery(&places, "TSTP"),
        ] {
            assert!(attack(&session, world, &script).await.unwrap().success());
            assert_goes_on(&session).await;
        }
        let mut stopper =
            session.command("/bin/sh").args(["-c", &go_on_signalling("STOP", 2)]).spawn().await.unwrap();
        for _ in 0..5 {
            let command = session.command("/bin/true").spawn();
            let mut command =
                tokio::time::timeout(PATIENCE, command).await.expect("a command does not start").unwrap();
            // What was chosen while it had another name may be stopped after its program began, like any command.
            let ended = async {
                while tokio::time::timeout(Duration::from_secs(1), command.wait()).await.is_err() {
                    drop(command.signal(bailiwick::Signal::CONT).await);
                }
            };
            tokio::time::timeout(PATIENCE, ended).await.expect("a call does not come back");
        }
        tokio::time::timeout(PATIENCE, stopper.settled())
            .await
            .expect("does not settle")
            .unwrap();
        assert_goes_on(&session).await;
        close_and_prove(&session, &places).await;
    }

    /// Whatever gets a process id is stopped at once: between its making and its program, a command is a
    /// process of the session that nobody but the worker can continue. Afterwards it is a command like any
    /// other, which commands may stop.
    async fn newborns_are_stopped(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        let mut stopper = session.command(tool("act")).args(["stop-newborns", "4"]).spawn().await.unwrap();
        let mut started = 0;
        while stopper.try_wait().unwrap().is_none() {
            let command = session.command("/bin/sleep").arg("100").spawn();
            let mut child = tokio::time::timeout(PATIENCE, command)
                .await
                .unwrap_or_else(|_| panic!("command {started} does not start"))
                .unwrap();
            tokio::time::timeout(PATIENCE, child.kill()).await.expect("does not end").unwrap();
            started += 1;
        }
        assert!(started > 0);
        assert_goes_on(&session).await;
        close_and_prove(&session, &places).await;
    }

    /// The same, with `close` in the middle of it.
    async fn closing_while_the_machinery_is_attacked(world: &World) {
        let places = Places::of(world);
        for signal in ["STOP", "9"] {
            let session = open(session(world)).await;
            let script = go_on_signalling(signal, 60);
            for _ in 0..2 {
                session.command("/bin/sh").args(["-c", &script]).spawn().await.ok();
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            close_and_prove(&session, &places).await;
        }
    }

    /// Other signals that end or confuse a careless program.
    async fn the_machinery_is_signalled(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        for signal in [
            "HUP", "INT", "QUIT", "PIPE", "ALRM", "TERM", "USR1", "USR2", "CHLD", "CONT", "TTIN", "SEGV",
            "TRAP", "40",
        ] {
            attack(&session, world, &signal_machinery(&places, signal)).await.ok();
            assert_goes_on(&session).await;
        }
        close_and_prove(&session, &places).await;
    }

    /// Every process that it may signal: the session loses its machinery and commands, the host nothing.
    async fn everything_in_reach_is_killed(world: &World, uid = 61312) {
        let places = Places::of(world);
        let victim = Victim::asleep();
        let session = open(session(world)).await;
        let server = sleeper(&session).await;
        // A session without a scope would take this machine down, so that is asked first.
        for pid in [victim.pid(), std::process::id(), session.own_processes().0, 1] {
            run(&session, &["kill", &pid.to_string(), "0"]).await.assert_refused(&["EPERM"]);
        }
        for signal in ["9", "STOP"] {
            attack(&session, world, &format!("kill -{signal} -1; echo survived > survivor")).await.ok();
            assert!(wait_until(GENEROUS, || world.write_root().join("survivor").exists()));
            std::fs::remove_file(world.write_root().join("survivor")).unwrap();
            assert!(wait_until(GENEROUS, || !alive(&server)));
            // A reaper that dies while it takes a command says nothing of it. The next one is taken by another.
            while let Err(error) = session.command("/bin/true").output().await {
                assert_eq!(error.kind(), bailiwick::ErrorKind::OutcomeUnknown, "{}", error.report());
            }
            assert_goes_on(&session).await;
        }
        assert!(victim.is_alive() && !victim.is_stopped());
        close_and_prove(&session, &places).await;
    }

    /// A reaper that is made a tracer would hold its tracee for ever: stopped, at exec, as an orphan.
    async fn a_reaper_is_made_a_tracer(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        for how in ["exit", "stop", "exec", "orphan"] {
            let command = session.command(tool("act")).args(["trace-me", how]).spawn();
            let mut child = tokio::time::timeout(PATIENCE, command)
                .await
                .expect("does not start")
                .unwrap();
            let settled = tokio::time::timeout(PATIENCE, child.settled()).await;
            settled.unwrap_or_else(|_| panic!("{how}: does not settle")).unwrap();
            assert!(child.wait().await.unwrap().success(), "{how}");
            assert_goes_on(&session).await;
        }
        // The worker too, once it has inherited the tracee of a reaper that was killed.
        let script = format!("{} trace-me orphan & kill -9 $PPID; sleep 0.5", tool("act").display());
        let mut child = begin(&session, world, &script).await;
        let settled = tokio::time::timeout(PATIENCE, child.settled()).await;
        settled.expect("the worker waits for its tracee").unwrap();
        assert!(child.supervision_lost());
        assert_goes_on(&session).await;
        close_and_prove(&session, &places).await;
    }

    /// Children that are given to the reaper, and one whose end is told by no signal, belong to the command.
    async fn children_are_given_to_the_reaper(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        let name = format!("bwc{}", std::process::id());
        let mut child =
            session.command(tool("act")).args(["clone-parent", "4", "100", &name]).spawn().await.unwrap();
        assert!(child.wait().await.unwrap().success());
        assert!(wait_until(GENEROUS, || process::named(&name).len() == 4));
        let listed = child.processes().await.unwrap();
        assert_eq!(listed.len(), 4, "{listed:?}");
        assert!(listed.iter().all(|one| one.command == Some(child.command_id())));
        assert_goes_on(&session).await;
        tokio::time::timeout(PATIENCE, child.kill()).await.expect("does not end").unwrap();
        assert!(process::named(&name).is_empty());
        // Once more, and closed instead.
        session.command(tool("act")).args(["clone-parent", "4", "100", &name]).output().await.unwrap();
        let report = close_and_prove(&session, &places).await;
        assert_eq!(report.killed(), 4, "{report:?}");
    }

    /// A flood of processes that detach themselves, from several commands at once.
    async fn a_flood_of_detached_processes(world: &World) {
        let places = Places::of(world);
        let session = open(session(world)).await;
        let name = format!("bwf{}", std::process::id());
        let script = format!("for i in $(seq 25); do {} daemonize 100 {name}; done", tool("act").display());
        let mut commands = Vec::new();
        for _ in 0..4 {
            commands.push(session.command("/bin/sh").args(["-c", &script]).spawn().await.unwrap());
        }
        for child in &mut commands {
            assert!(child.wait().await.unwrap().success());
        }
        assert!(wait_until(GENEROUS, || process::named(&name).len() == 100));
        // Each is its command's, however detached.
        for child in &commands {
            assert_eq!(child.processes().await.unwrap().len(), 25);
        }
        assert_goes_on(&session).await;
        commands[0].kill().await.unwrap();
        assert_eq!(process::named(&name).len(), 75);
        let report = close_and_prove(&session, &places).await;
        assert_eq!(report.killed(), 75, "{report:?}");
        assert!(process::named(&name).is_empty());
    }
}
