//! Other processes of the host: signals, tracing, memory, descriptors, limits, priorities.

use std::rc::Rc;

use bailiwick::{Layer, Protection};
use bailiwick_test::act;
use bailiwick_test::boundary::Victim;
use bailiwick_test::calls::{Calls, Word};

use crate::ground::Ground;
use crate::row::{Attempt, ComesAlong, Row, act, row};

const SCOPE: &[Layer] = &[Layer::Scope];
const SCOPE_AND_PIDS: &[Layer] = &[Layer::Scope, Layer::PidNamespace];
/// Both are domains, and a domain sees into no process outside.
const DOMAINS: &[Layer] = &[Layer::Landlock, Layer::Scope];
const DOMAINS_AND_PIDS: &[Layer] = &[Layer::Landlock, Layer::Scope, Layer::PidNamespace];
const PIDS: &[Layer] = &[Layer::PidNamespace];
const FILTER: &[Layer] = &[Layer::Seccomp];
const FILTER_AND_PIDS: &[Layer] = &[Layer::Seccomp, Layer::PidNamespace];
/// Root's processes hold capabilities, and who has fewer may not schedule them.
const CAPABILITIES: &[Layer] = &[Layer::Capabilities];
/// Who holds the capability to count events of others may look at these, domain or not (measured, Linux 6.18).
const CAPABILITIES_AND_PIDS: &[Layer] = &[Layer::Capabilities, Layer::PidNamespace];
/// In a pid namespace there is nobody of that number.
const NOBODY: &[&str] = &["EPERM", "EACCES", "EROFS", "ESRCH", "ENOENT"];

const PIDFD_OPEN: i64 = 434;
const PIDFD_SEND_SIGNAL: i64 = 424;

const fn signal(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Signals, tries, attempt).by(SCOPE, SCOPE_AND_PIDS).answers(NOBODY)
}

const fn look(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Tracing, tries, attempt)
        .by(DOMAINS, DOMAINS_AND_PIDS)
        .answers(NOBODY)
        .and_from_root(CAPABILITIES)
        .along(ComesAlong::User)
}

const fn limit(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Limits, tries, attempt).by(FILTER, FILTER_AND_PIDS).answers(NOBODY)
}

/// An attempt on a victim of its own that a signal ends or stops.
fn on_victim(attempt: impl Fn(u32) -> Attempt) -> Attempt {
    let victim = Victim::asleep();
    attempt(victim.pid()).shown_by(move || !victim.is_alive() || victim.is_stopped())
}

/// An attempt on a victim that shows otherwise.
fn seen_on_victim(attempt: impl Fn(u32) -> Attempt, harm: impl Fn(u32) -> bool + 'static) -> Attempt {
    let victim = Victim::asleep();
    attempt(victim.pid()).shown_by(move || harm(victim.pid()))
}

/// An attempt that only gives something: the victim just has to live.
fn reported_of_victim(attempt: impl Fn(u32) -> Attempt) -> Attempt {
    let victim = Rc::new(Victim::asleep());
    let mut attempt = attempt(victim.pid());
    attempt.keeps = Some(victim);
    attempt.reported()
}

fn calls(calls: &Calls) -> Attempt {
    Attempt::calls(calls)
}

/// Opens a file of the victim's directory in `/proc`.
fn opens(file: &'static str, flags: i32) -> Attempt {
    reported_of_victim(|pid| {
        let path = format!("/proc/{pid}/{file}");
        calls(&Calls::of(libc::SYS_open, [path.as_str().into(), flags.into()]))
    })
}

/// `siginfo_t` of a signal that a program sends with a value (`SI_QUEUE`).
fn queued(signal: i32) -> Word {
    let mut words = vec![0; 32];
    words[0] = signal;
    words[2] = -1;
    Word::HalfWords(words)
}

/// Has the kernel send a signal on the caller's behalf: input on a descriptor that another process "owns".
fn by_input(s: &Ground, pid: u32) -> Calls {
    const F_SETSIG: i32 = 10;
    let tick = s.ours("tick");
    let command = |command: i32, argument: Word| [Word::Result(0), command.into(), argument];
    Calls::of(libc::SYS_inotify_init1, [0.into()])
        .then(libc::SYS_fcntl, command(libc::F_SETOWN, pid.into()))
        .then(libc::SYS_fcntl, command(F_SETSIG, libc::SIGTERM.into()))
        .then(libc::SYS_fcntl, command(libc::F_SETFL, libc::O_ASYNC.into()))
        .then(libc::SYS_inotify_add_watch, [Word::Result(0), (&s.ours("")).into(), libc::IN_CREATE.into()])
        .then(libc::SYS_mkdir, [(&tick).into(), 0o755.into()])
        .course()
}

/// A field of `/proc/PID/stat`, by its number in proc(5).
pub(crate) fn stat(pid: u32, field: usize) -> Option<i64> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(field - 3)?.parse().ok()
}

fn status(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|line| line.starts_with(name)).map(str::to_owned)
}

fn limits(pid: u32, name: &str) -> Option<String> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    limits.lines().find(|line| line.starts_with(name)).map(str::to_owned)
}

/// `IOPRIO_CLASS_IDLE`.
const LOWEST: i32 = 3 << 13;

fn io_priority(pid: u32) -> serde_json::Value {
    act::bare(Calls::of(libc::SYS_ioprio_get, [1.into(), pid.into()]).arguments()).value
}

pub(crate) const ROWS: &[Row] = &[
    signal("kill", "kills a process of the same user", |_| {
        on_victim(|pid| act!["kill", pid.to_string(), "9"])
    }),
    signal("stop", "stops a process of the same user", |_| {
        on_victim(|pid| act!["kill", pid.to_string(), "19"])
    }),
    signal("kill-by-descriptor", "kills by a descriptor of the process", |_| {
        on_victim(|pid| act!["pidfd-kill", pid.to_string(), "9"])
    }),
    signal("kill-by-proc", "kills by the directory of the process in `/proc`", |_| {
        on_victim(|pid| {
            let sent = [Word::Result(0), libc::SIGKILL.into(), 0.into(), 0.into()];
            let directory = format!("/proc/{pid}");
            let opened = Calls::of(libc::SYS_open, [directory.as_str().into(), libc::O_RDONLY.into()]);
            calls(&opened.then(PIDFD_SEND_SIGNAL, sent).course())
        })
    }),
    signal("kill-group-of-descriptor", "kills the group of a process by its descriptor", |_| {
        on_victim(|pid| {
            // PIDFD_SIGNAL_THREAD: the group would be that of this test.
            let sent = [Word::Result(0), libc::SIGKILL.into(), 0.into(), 1.into()];
            calls(&Calls::of(PIDFD_OPEN, [pid.into(), 0.into()]).then(PIDFD_SEND_SIGNAL, sent).course())
        })
    }),
    signal("tkill", "kills a thread by its number", |_| {
        on_victim(|pid| calls(&Calls::of(libc::SYS_tkill, [pid.into(), libc::SIGKILL.into()])))
    }),
    signal("tgkill", "kills a thread of a process", |_| {
        on_victim(|pid| calls(&Calls::of(libc::SYS_tgkill, [pid.into(), pid.into(), libc::SIGKILL.into()])))
    }),
    signal("sigqueue", "sends a signal with a value", |_| {
        on_victim(|pid| {
            let sent = [pid.into(), libc::SIGTERM.into(), queued(libc::SIGTERM)];
            calls(&Calls::of(libc::SYS_rt_sigqueueinfo, sent))
        })
    }),
    signal("tgsigqueue", "sends a signal with a value to a thread", |_| {
        on_victim(|pid| {
            let sent = [pid.into(), pid.into(), libc::SIGTERM.into(), queued(libc::SIGTERM)];
            calls(&Calls::of(libc::SYS_rt_tgsigqueueinfo, sent))
        })
    }),
    signal("signal-by-input", "has the kernel send a signal when there is input", |s| {
        on_victim(|pid| calls(&by_input(s, pid)))
    })
    .silent(),
    look("trace", "attaches as a tracer", |_| {
        reported_of_victim(|pid| act!["ptrace-attach", pid.to_string()])
    }),
    look("read-memory", "reads the memory of a process", |_| {
        reported_of_victim(|pid| act!["vm-read", pid.to_string()])
    }),
    look("take-descriptor", "takes a copy of a descriptor of a process", |_| {
        reported_of_victim(|pid| act!["pidfd-getfd", pid.to_string(), "0"])
    }),
    row("command-line-of-process", Protection::Processes, "reads how a process was called", |_| {
        opens("cmdline", libc::O_RDONLY)
    })
    .by_namespaces(PIDS)
    .answers(NOBODY),
    row("existence-of-process", Protection::Processes, "asks to which session a process belongs", |_| {
        reported_of_victim(|pid| calls(&Calls::of(libc::SYS_getsid, [pid.into()])))
    })
    .by_namespaces(PIDS)
    .answers(NOBODY),
    look("open-memory", "opens the memory of a process for reading", |_| opens("mem", libc::O_RDONLY)),
    look("open-memory-write", "opens the memory of a process for writing", |_| opens("mem", libc::O_RDWR))
        // The view has a `/proc` of its own, which can be read only. Without it the one of the host is there.
        .by(DOMAINS, &[Layer::Landlock, Layer::Scope, Layer::MountView]),
    look("environment", "reads the environment of a process", |_| opens("environ", libc::O_RDONLY))
        .root_by(CAPABILITIES, CAPABILITIES_AND_PIDS),
    look("memory-map", "reads the memory map of a process", |_| opens("maps", libc::O_RDONLY))
        .root_by(CAPABILITIES, CAPABILITIES_AND_PIDS),
    look("descriptor-of-process", "opens what a process has open", |_| opens("fd/0", libc::O_RDONLY)),
    look("executable-of-process", "opens the program of a process by its link", |_| {
        opens("exe", libc::O_RDONLY)
    }),
    row(
        "working-directory-of-process",
        Protection::Content,
        "writes by the working directory of a process",
        |s| {
            let victim = Rc::new(Victim::asleep_in(&s.scene()));
            let mut attempt = act!["open-append", format!("/proc/{}/cwd/f", victim.pid())];
            attempt.keeps = Some(victim);
            attempt
        },
    )
    .by(DOMAINS, DOMAINS_AND_PIDS)
    .answers(NOBODY)
    .and_from_root(CAPABILITIES)
    .along(ComesAlong::User),
    row("root-of-process", Protection::Content, "writes by the root of a process", |s| {
        let victim = Rc::new(Victim::asleep());
        let mut attempt = act!["open-append", format!("/proc/{}/root{}", victim.pid(), s.at("f").display())];
        attempt.keeps = Some(victim);
        attempt
    })
    .by(DOMAINS, DOMAINS_AND_PIDS)
    .answers(NOBODY)
    .and_from_root(CAPABILITIES)
    .along(ComesAlong::User),
    row("compare-processes", Protection::Tracing, "compares what two processes have open", |_| {
        reported_of_victim(|pid| {
            let compared = [Word::Result(0), pid.into(), 2.into(), 0.into(), 0.into()];
            calls(&Calls::of(libc::SYS_getpid, []).then(libc::SYS_kcmp, compared))
        })
    })
    .by(
        &[Layer::Landlock, Layer::Scope, Layer::Seccomp],
        &[Layer::Landlock, Layer::Scope, Layer::Seccomp, Layer::PidNamespace],
    )
    .answers(NOBODY)
    .and_from_root(CAPABILITIES)
    .along(ComesAlong::User),
    row(
        "enter-namespaces-of-process",
        Protection::Tracing,
        "enters the network namespace of a process",
        |_| reported_of_victim(|pid| act!["setns", pid.to_string(), "net"]),
    )
    .by(
        &[Layer::Landlock, Layer::Scope, Layer::Seccomp],
        &[Layer::Landlock, Layer::Scope, Layer::Seccomp, Layer::PidNamespace],
    )
    .and_from_root(CAPABILITIES)
    .only(crate::row::Actors::Root)
    .answers(NOBODY),
    limit("limit-files", "lowers how many files a process may open", |_| {
        seen_on_victim(
            |pid| act!["prlimit", pid.to_string(), "17"],
            |pid| limits(pid, "Max open files").is_some_and(|line| line.contains(" 17 ")),
        )
    }),
    limit("limit-kills", "has the kernel kill a process by a limit of processor time", |_| {
        let busy = Victim::busy();
        let limit = [busy.pid().into(), 0.into(), Word::Words(vec![1, 1]), 0.into()];
        // With such a limit it is as good as dead: how soon depends on how busy the machine is.
        calls(&Calls::of(libc::SYS_prlimit64, limit)).shown_by(move || {
            let limited = limits(busy.pid(), "Max cpu time").is_some_and(|line| line.contains(" 1 "));
            limited || !busy.is_alive()
        })
    }),
    limit("schedule", "gives a process the lowest scheduling policy", |_| {
        seen_on_victim(
            |pid| act!["sched", pid.to_string()],
            |pid| stat(pid, 41).is_some_and(|policy| policy != 0),
        )
    })
    .and_from_root(CAPABILITIES),
    limit("schedule-attributes", "the same by scheduling attributes", |_| {
        let attributes = || Word::HalfWords(vec![48, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        seen_on_victim(
            |pid| calls(&Calls::of(libc::SYS_sched_setattr, [pid.into(), attributes(), 0.into()])),
            |pid| stat(pid, 41).is_some_and(|policy| policy != 0),
        )
    })
    .and_from_root(CAPABILITIES),
    limit("priority", "lowers the priority of a process", |_| {
        seen_on_victim(|pid| act!["setpriority", pid.to_string(), "7"], |pid| stat(pid, 19) == Some(7))
    })
    .and_from_root(CAPABILITIES),
    limit("io-priority", "lowers the input and output priority of a process", |_| {
        seen_on_victim(
            |pid| calls(&Calls::of(libc::SYS_ioprio_set, [1.into(), pid.into(), LOWEST.into()])),
            |pid| io_priority(pid) == LOWEST,
        )
    })
    .and_from_root(CAPABILITIES),
    limit("processors", "binds a process to one processor", |_| {
        let before = status(std::process::id(), "Cpus_allowed_list");
        let attempt = |pid: u32| act!["affinity", pid.to_string()];
        if std::thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
            // Nothing would be seen of it.
            return reported_of_victim(attempt);
        }
        seen_on_victim(attempt, move |pid| status(pid, "Cpus_allowed_list") != before)
    })
    .and_from_root(CAPABILITIES),
];
