//! C66 and C71: whatever a command leaves behind, `close` ends it, reports it, and touches nothing else.

#![cfg(test)]

use std::process::{Child, Command, Stdio as HostStdio};
use std::time::{Duration, Instant};

use bailiwick::{CloseReport, Ending, ErrorKind, Ran, Session};
use bailiwick_test::places::{close, done, sh};
use bailiwick_test::process::{self, GENEROUS, Process, pid_gone};
use bailiwick_test::pty::Pty;
use bailiwick_test::{Need, Places, cases, requires, tool, user_cases, wait_until};

/// A process of this user that no session knows.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        let mut command = Command::new("/bin/sleep");
        command.arg("600").stdin(HostStdio::null()).stdout(HostStdio::null()).stderr(HostStdio::null());
        Self(command.spawn().unwrap())
    }

    /// Alive, and neither stopped nor traced.
    #[track_caller]
    fn assert_untouched(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "the bystander has ended");
        let state = Process::of(self.0.id()).unwrap().state;
        assert!(matches!(state, 'S' | 'R' | 'D'), "the bystander is in state {state}");
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A name for a process that nobody else has: the name of the world, 13 bytes, and two more.
fn name(places: &Places, number: usize) -> String {
    let name = format!("{}{number:02}", places.path().file_name().unwrap().to_str().unwrap());
    assert!(name.len() <= 15, "the kernel would cut {name}");
    name
}

/// Waits, without blocking the runtime, until something is found.
async fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + GENEROUS;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[track_caller]
fn assert_killed(report: &CloseReport, process: &Process) {
    assert!(pid_gone(process.pid, process.start_time), "{process:?} is still there");
    let closed = report
        .processes
        .iter()
        .find(|closed| (closed.process.pid, closed.process.start_time) == (process.pid, process.start_time));
    let closed = closed.unwrap_or_else(|| panic!("{process:?} is not in {report:?}"));
    assert_eq!(closed.ending, Ending::Killed, "{closed:?}");
}

/// What the session knows of now, as `/proc` shows it.
async fn alive(session: &Session) -> Vec<Process> {
    let listed = session.processes().await.unwrap();
    let seen =
        listed.iter().filter_map(|one| Process::of(one.pid).filter(|p| p.start_time == one.start_time));
    seen.filter(|process| !process.is_zombie()).collect()
}

cases! {
    /// C66: a session of its own, a double fork, every tie cut, and the same from a terminal.
    async fn c66_detached_descendants(world: &World) {
        let places = Places::of(world);
        let mut bystander = Bystander::start();
        let session = places.open().await;
        let act = tool("act").display().to_string();
        let mut pids = Vec::new();

        let output = sh(&session, "setsid sleep 600 >/dev/null 2>&1 & echo $!").await;
        let inside = |output: &bailiwick::Output| done(output).trim().parse::<u32>().unwrap();
        let known = |inside| process::number_of(places.path(), inside).expect("it has ended");
        pids.push(known(inside(&output)));
        let output = sh(&session, "setsid sh -c 'sleep 600 >/dev/null & echo $!' 2>/dev/null | cat").await;
        pids.push(known(inside(&output)));
        for (number, command) in [
            format!("{act} daemonize 120 {}", name(&places, 0)),
            format!("cd / && exec {act} daemonize 120 {}", name(&places, 1)),
        ]
        .iter()
        .enumerate()
        {
            done(&sh(&session, command).await);
            let named = name(&places, number);
            pids.push(found(&named, || process::named(&named).first().map(|one| one.pid)).await);
        }
        // From a terminal of the host, in the session of the command and in one of its own.
        let pty = Pty::new();
        for (number, command) in [
            format!("{act} daemonize 120 {}; echo made", name(&places, 2)),
            format!("setsid -w sh -c '{act} daemonize 120 {}; echo made'", name(&places, 3)),
        ]
        .iter()
        .enumerate()
        {
            let command = session.command("/bin/sh").args(["-c", command]);
            let (stdin, stdout, stderr) = (pty.subordinate(), pty.subordinate(), pty.subordinate());
            let mut child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().await.unwrap();
            assert!(child.wait().await.unwrap().success(), "{}", pty.text());
            let named = name(&places, 2 + number);
            pids.push(found(&named, || process::named(&named).first().map(|one| one.pid)).await);
        }
        pty.expect("made\nmade\n");

        let known = alive(&session).await;
        let detached: Vec<&Process> = pids
            .iter()
            .map(|pid| known.iter().find(|one| one.pid == *pid).unwrap_or_else(|| panic!("{pid}: {known:?}")))
            .collect();
        let worker = session.own_processes().1;
        assert!(process::descendants(worker).iter().filter(|one| pids.contains(&one.pid)).count() == pids.len());

        let report = close(&session).await;
        assert!(!report.by_keeper);
        detached.into_iter().for_each(|process| assert_killed(&report, process));
        bystander.assert_untouched();
        places.assert_nothing_left();
        // A second close, and one after it, tell the same.
        assert_eq!(close(&session).await, report);
    }

    /// C71: deaf to signals, stopped, traced, or both.
    async fn c71_processes_that_fight(world: &World) {
        requires!(Need::Strace, "traces a process of the session");
        let places = Places::of(world);
        let mut bystander = Bystander::start();
        let session = places.open().await;
        let script = "
            sh -c 'trap \"\" TERM HUP INT QUIT USR1; while :; do sleep 600; done' &
            sh -c 'kill -STOP $$; sleep 600' &
            setsid sh -c 'trap \"\" TERM; kill -STOP $$' &
            strace -f -o trace sh -c 'echo traced > traced; sleep 600' &
            strace -o trace2 sh -c 'echo traced > traced2; kill -STOP $$; sleep 600' &
            wait
        ";
        let _child = session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap();
        let root = places.write_root();
        let mut stopped = 0;
        let deadline = Instant::now() + GENEROUS;
        while !(stopped >= 3 && root.join("traced").exists() && root.join("traced2").exists()) {
            assert!(Instant::now() < deadline, "not all came to be: {stopped} are stopped");
            stopped = alive(&session).await.iter().filter(|process| matches!(process.state, 'T' | 't')).count();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let fighting = alive(&session).await;
        assert!(fighting.len() >= 8, "{fighting:?}");
        let report = close(&session).await;
        for process in &fighting {
            assert!(pid_gone(process.pid, process.start_time), "{process:?}");
            assert!(report.processes.iter().any(|closed| closed.process.pid == process.pid), "{process:?}");
        }
        assert!(report.killed() >= 5, "{report:?}");
        bystander.assert_untouched();
        places.assert_nothing_left();
    }

    /// A command that stops or kills every process of the session that it can reach does not keep `close` from
    /// settling.
    async fn c71_commands_that_fight_the_session(world: &World) {
        let places = Places::of(world);
        for signal in ["STOP", "KILL"] {
            let session = places.open().await;
            let sleeper = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
            // Everything that a signal reaches, itself last.
            let script = format!(
                "for p in /proc/[0-9]*; do p=${{p#/proc/}}; [ $p = $$ ] || kill -{signal} $p 2>/dev/null; done; \
                 kill -{signal} $$"
            );
            let spawned = session.command("/bin/sh").args(["-c", &script]).spawn().await;
            match (signal, spawned) {
                ("STOP", child) => {
                    let pid = child.unwrap().id();
                    found("the stop", || Process::of(pid).filter(|one| one.state == 'T')).await;
                }
                // Its reaper is gone, so its status may be lost; that it is over is not.
                (_, Ok(mut child)) => drop(child.wait().await),
                // It may have killed its reaper before that could say that it had started.
                (_, Err(error)) => {
                    assert_eq!((error.kind(), error.ran()), (ErrorKind::OutcomeUnknown, Ran::Unknown), "{error:?}");
                }
            }
            let before = Instant::now();
            close(&session).await;
            assert!(before.elapsed() < GENEROUS);
            assert!(pid_gone(sleeper.id(), sleeper.start_time()));
            places.assert_nothing_left();
        }
    }
}

user_cases! {
    /// C71: new processes, each in a session of its own and deaf, faster than they can be listed.
    async fn c71_fork_bomb(world: &World, uid = 61720, seconds = 240) {
        const LIMIT: u64 = 100;
        bailiwick_test::case::limit_processes(LIMIT);
        let places = Places::of(world);
        let own = rustix::process::geteuid().as_raw();
        let mut bystander = Bystander::start();
        let session = places.open().await;
        let command = session.command(tool("act")).args(["fork-bomb", &LIMIT.to_string(), "refill"]);
        let child = command.spawn().await.unwrap();
        let bombs = || process::of_uid(own).into_iter().filter(|one| one.name == "act" && !one.is_zombie()).count();
        found("the bomb", || (bombs() > 50).then_some(())).await;
        let before = Instant::now();
        let report = session.close_within(Duration::from_secs(100)).await.unwrap();
        assert!(before.elapsed() < Duration::from_secs(100));
        assert_eq!(bombs(), 0);
        assert!(pid_gone(child.id(), child.start_time()));
        assert!(report.killed() > 20, "{}", report.killed());
        bystander.assert_untouched();
        places.assert_nothing_left();
        drop(bystander);
        let left = wait_until(GENEROUS, || process::of_uid(own).len() <= 1);
        assert!(left, "{:?}", process::of_uid(own));
    }

    /// The same, ended by `kill` of its handle and by the end of its time, while the session goes on.
    async fn c71_fork_bomb_of_one_command(world: &World, uid = 61721, seconds = 240) {
        const LIMIT: u64 = 100;
        bailiwick_test::case::limit_processes(LIMIT);
        let places = Places::of(world);
        let own = rustix::process::geteuid().as_raw();
        let session = places.open().await;
        // Both commands' reapers exist before there is no room for them.
        let kept = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        let bombs = || process::of_uid(own).into_iter().filter(|one| one.name == "act" && !one.is_zombie()).count();
        let bomb = || session.command(tool("act")).args(["fork-bomb", &LIMIT.to_string(), "refill"]);
        let mut child = bomb().spawn().await.unwrap();
        found("the bomb", || (bombs() > 50).then_some(())).await;
        child.kill().await.unwrap();
        assert_eq!(bombs(), 0);
        let output = bomb().timeout(Duration::from_millis(500)).output().await.unwrap();
        assert!(output.timed_out);
        let gone = async {
            while bombs() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(GENEROUS * 2, gone).await.unwrap();
        assert!(!pid_gone(kept.id(), kept.start_time()));
        done(&sh(&session, "true").await);
        close(&session).await;
        places.assert_nothing_left();
    }
}
