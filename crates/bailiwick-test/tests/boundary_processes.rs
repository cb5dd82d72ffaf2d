//! Other processes: limits, priorities and scheduling, which are signals by another name, and memory,
//! descriptors and secrets.

#![cfg(test)]

use std::fs;

use bailiwick::{Layer, Protection, Session};
use bailiwick_test::act::{self, Scopes, naively};
use bailiwick_test::boundary::{Arena, Denial, Victim, run, session};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::Process;
use bailiwick_test::{Places, case, cases, user_cases, wait_until};

const SECCOMP: &[Layer] = &[Layer::Seccomp];
/// Both are domains, and a domain sees into no process outside.
const DOMAINS: &[Layer] = &[Layer::Landlock, Layer::Scope];

/// A field of `/proc/PID/stat`, by its number in proc(5).
fn stat(pid: u32, field: usize) -> i64 {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = line.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(field - 3).unwrap().parse().unwrap()
}

fn nice(pid: u32) -> i64 {
    stat(pid, 19)
}

fn policy(pid: u32) -> i64 {
    stat(pid, 41)
}

fn limit(pid: u32, name: &str) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
}

fn processors(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap().to_owned()
}

/// `prlimit64` with a new limit of processor time: one second, after which the kernel kills.
fn processor_time(pid: u32) -> Calls {
    Calls::of(libc::SYS_prlimit64, [pid.into(), 0.into(), Word::Words(vec![1, 1]), 0.into()])
}

fn priority(which: i32, who: u32, nice: i32) -> Calls {
    Calls::of(libc::SYS_setpriority, [which.into(), who.into(), nice.into()])
}

/// `struct sched_attr`: the policy for what may wait, and nothing else.
fn attributes(pid: u32) -> Calls {
    Calls::of(
        libc::SYS_sched_setattr,
        [pid.into(), Word::HalfWords(vec![48, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 0.into()],
    )
}

cases! {
    /// Resource limits. One of them kills: the victim that uses a processor goes on using it.
    async fn limits_of_the_host(world: &World) {
        let arena = Arena::open(world, SECCOMP).await;
        let victim = Victim::asleep();
        let files = Denial::of(SECCOMP, &["prlimit", &victim.argument(), "17"])
            .harm(|| limit(victim.pid(), "Max open files").contains(" 17 "));
        arena.denies(&files).await;
        let busy = Victim::busy();
        let unlimited = limit(busy.pid(), "Max cpu time");
        let kill = Denial::of_calls(SECCOMP, &processor_time(busy.pid()))
            .harm(|| !busy.is_alive() || limit(busy.pid(), "Max cpu time") != unlimited);
        arena.denies(&kill).await;
        assert!(busy.ends(), "without the layer, the limit kills");
        // The naive wrapper, scopes or not, lets it through.
        let busy = Victim::busy();
        naively(&[world.write_root()], Scopes::All, processor_time(busy.pid()).arguments()).assert_done();
        assert!(busy.ends());
        // Reading them is refused as well; the twin reads and lowers its own.
        let read =
            |pid: u32| Calls::of(libc::SYS_prlimit64, [pid.into(), 7.into(), 0.into(), Word::Zeros(16)]);
        run(arena.whole(), read(victim.pid()).arguments()).await.assert_refused(&["EPERM"]);
        arena.permits(read(0).arguments()).await;
        assert_eq!(done(&sh(arena.whole(), "ulimit -n 17 && ulimit -n").await), "17\n");
        arena.close().await;
    }

    /// Priorities, scheduling, processors.
    async fn scheduling_of_the_host(world: &World) {
        // Root's processes hold capabilities, and who has fewer may not schedule them.
        let layers: &[Layer] = if case::is_root() { &[Layer::Seccomp, Layer::Capabilities] } else { SECCOMP };
        let arena = Arena::open(world, layers).await;
        let lowest = 3 << 13; // IOPRIO_CLASS_IDLE
        let io_priority =
            |pid: u32| act::bare(Calls::of(libc::SYS_ioprio_get, [1.into(), pid.into()]).arguments()).value;
        let is_single = processors(std::process::id()) == "Cpus_allowed_list:\t0";
        // What was done to a process cannot be taken back by everybody, so each act has a victim of its own.
        type Harm<'a> = &'a dyn Fn(u32) -> bool;
        let before = processors(std::process::id());
        let idle: Harm<'_> = &|pid| policy(pid) != 0;
        let niced: Harm<'_> = &|pid| nice(pid) == 7;
        // On a machine with one processor, binding to it changes nothing to be seen.
        let bound: Harm<'_> = &|pid| is_single || processors(pid) != before;
        let io: Harm<'_> = &|pid| io_priority(pid) == lowest;
        let word = |text: &str| std::ffi::OsString::from(text);
        type Attempt<'a> = (&'a dyn Fn(u32) -> Vec<std::ffi::OsString>, Harm<'a>);
        let attempts: [Attempt<'_>; 5] = [
            (&|pid| vec![word("sched"), word(&pid.to_string())], idle),
            (&|pid| attributes(pid).arguments().to_vec(), idle),
            (&|pid| vec![word("setpriority"), word(&pid.to_string()), word("7")], niced),
            (&|pid| vec![word("affinity"), word(&pid.to_string())], bound),
            (
                &|pid| {
                    Calls::of(libc::SYS_ioprio_set, [1.into(), pid.into(), lowest.into()])
                        .arguments()
                        .to_vec()
                },
                io,
            ),
        ];
        for (index, (attempt, harm)) in attempts.iter().enumerate() {
            let victim = Victim::asleep();
            let denial = Denial::of(layers, &attempt(victim.pid()));
            let is_blind = index == 3 && is_single;
            let denial = if is_blind { denial } else { denial.harm(|| harm(victim.pid())) };
            arena.denies(&denial).await;
            if layers == SECCOMP {
                let victim = Victim::asleep();
                naively(&[world.write_root()], Scopes::All, &attempt(victim.pid())).assert_done();
                assert!(harm(victim.pid()));
            }
        }
        // The twins: its own.
        for calls in [
            priority(0, 0, 5),
            attributes(0),
            Calls::of(libc::SYS_ioprio_set, [1.into(), 0.into(), lowest.into()]),
        ] {
            arena.permits(calls.arguments()).await;
        }
        arena.permits(&["calls", &libc::SYS_sched_setaffinity.to_string(), "0", "8", "w:-1"]).await;
        assert_eq!(done(&sh(arena.whole(), "nice -n 5 nice").await), "5\n");
        arena.close().await;
    }

    /// Memory, descriptors, tracing: of the host, of an unrelated process, and of the session's machinery.
    async fn no_process_is_looked_into(world: &World) {
        let arena = Arena::open(world, DOMAINS).await;
        let victim = Victim::asleep();
        let pid = victim.argument();
        arena.denies(&Denial::of(DOMAINS, &["vm-read", &pid])).await;
        arena.denies(&Denial::of(DOMAINS, &["ptrace-attach", &pid])).await;
        arena.denies(&Denial::of(DOMAINS, &["pidfd-getfd", &pid, "0"])).await;
        for file in ["mem", "environ", "maps", "auxv"] {
            let path = format!("/proc/{pid}/{file}");
            let open = |flags: i32| Calls::of(libc::SYS_open, [path.as_str().into(), flags.into()]);
            arena.denies(&Denial::of_calls(DOMAINS, &open(libc::O_RDONLY))).await;
            if file == "mem" {
                arena.denies(&Denial::of_calls(DOMAINS, &open(libc::O_RDWR))).await;
            }
        }
        for link in ["cwd/etc", "root/etc", "fd/0", "exe"] {
            let path = format!("/proc/{pid}/{link}");
            let calls = Calls::of(libc::SYS_open, [path.as_str().into(), libc::O_RDONLY.into()]);
            run(arena.whole(), calls.arguments()).await.assert_refused(&["EACCES"]);
        }
        let (keeper, worker) = arena.whole().own_processes();
        let mut machinery: Vec<u32> =
            Places::of(world).machinery().iter().map(|process| process.pid).collect();
        assert!(
            machinery.contains(&keeper) && machinery.contains(&worker) && machinery.len() >= 5,
            "{machinery:?}"
        );
        machinery.push(std::process::id());
        for pid in machinery {
            assert_closed(arena.whole(), pid).await;
        }
        // The twin: a process of the session, for debuggers.
        let mut server = arena.whole().command("/bin/sleep").arg("60").spawn().await.unwrap();
        let pid = server.id().to_string();
        for act in [&["vm-read", &pid][..], &["ptrace-attach", &pid], &["pidfd-getfd", &pid, "0"]] {
            arena.permits(act).await;
        }
        let environ = format!("tr '\\0' '\\n' < /proc/{pid}/environ | grep ^TMPDIR=");
        assert!(sh(arena.whole(), &environ).await.status.success());
        server.kill().await.unwrap();
        arena.close().await;
    }

    /// What a command is can be asked of the machinery as of any process; that is all.
    async fn the_machinery_is_not_hidden(world: &World) {
        let session = open(session(world)).await;
        assert!(!session.enforcement().await.keeps(Protection::HiddenState));
        let (_, worker) = session.own_processes();
        assert_eq!(done(&sh(&session, &format!("cat /proc/{worker}/comm")).await), "bailiwick-work\n");
        close(&session).await;
    }
}

async fn assert_closed(session: &Session, pid: u32) {
    let start = Process::of(pid).unwrap().start_time;
    let argument = pid.to_string();
    for act in [&["vm-read", &argument][..], &["ptrace-attach", &argument], &["pidfd-getfd", &argument, "0"]]
    {
        run(session, act).await.assert_refused(&["EPERM", "EACCES"]);
    }
    for file in ["mem", "environ", "maps"] {
        let path = format!("/proc/{pid}/{file}");
        let calls = Calls::of(libc::SYS_open, [path.as_str().into(), libc::O_RDONLY.into()]);
        run(session, calls.arguments()).await.assert_refused(&["EACCES", "EPERM"]);
    }
    for calls in [processor_time(pid), priority(0, pid, 19), attributes(pid)] {
        run(session, calls.arguments()).await.assert_refused(&["EPERM"]);
    }
    assert_eq!(Process::of(pid).map(|process| process.start_time), Some(start));
}

user_cases! {
    /// Every process of the user at once. Where it happens it cannot be taken back, so it is tried under a
    /// uid that nobody else has.
    async fn priorities_of_the_user(world: &World, uid = 61311) {
        let arena = Arena::open(world, SECCOMP).await;
        let victim = Victim::asleep();
        let everybody = priority(2, 0, 3);
        arena.denies(&Denial::of_calls(SECCOMP, &everybody).harm(|| nice(victim.pid()) == 3)).await;
        let us = rustix::process::getuid().as_raw();
        run(arena.whole(), priority(2, us, 19).arguments()).await.assert_refused(&["EPERM"]);
        let group = u32::try_from(rustix::process::getpgrp().as_raw_nonzero().get()).unwrap();
        run(arena.whole(), priority(1, group, 19).arguments()).await.assert_refused(&["EPERM"]);
        run(
            arena.whole(),
            Calls::of(libc::SYS_ioprio_set, [3.into(), 0.into(), (3 << 13).into()]).arguments(),
        )
        .await
        .assert_refused(&["EPERM"]);
        assert!(!wait_until(std::time::Duration::from_millis(100), || nice(victim.pid()) == 19));
        arena.close().await;
    }
}
