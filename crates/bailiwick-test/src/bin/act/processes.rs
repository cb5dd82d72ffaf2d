//! Acts on other processes.

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource, Signal};
use rustix::thread::CpuSet;

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("kill", "PID SIGNAL", kill),
    ("pidfd-kill", "PID SIGNAL", pidfd_kill),
    ("kill-all", "", |_| Ok(sys::processes::probe_all()?).and_then(done)),
    ("ptrace-attach", "PID", |a| Ok(sys::processes::trace(a.pid()?)?).and_then(done)),
    ("vm-read", "PID", vm_read),
    ("pidfd-getfd", "PID FD", pidfd_getfd),
    ("prlimit", "PID FILES", prlimit),
    ("setpriority", "PID NICE", set_priority),
    ("sched", "PID", |a| Ok(sys::processes::schedule_idle(a.pid()?)?).and_then(done)),
    ("affinity", "PID", affinity),
    ("gain-user", "PROGRAM [ARGUMENT]...", gain_user),
];

/// Signal 0 only asks whether it may.
fn kill(arguments: &mut Arguments) -> Answer {
    let (pid, number) = (arguments.pid()?, arguments.number()?);
    match signal(number)? {
        Some(signal) => rustix::process::kill_process(pid, signal)?,
        None => rustix::process::test_kill_process(pid)?,
    }
    done(())
}

fn pidfd_kill(arguments: &mut Arguments) -> Answer {
    let process = rustix::process::pidfd_open(arguments.pid()?, PidfdFlags::empty())?;
    let number = arguments.number()?;
    let Some(signal) = signal(number)? else { return crate::answer::cannot_try("signal 0") };
    rustix::process::pidfd_send_signal(process, signal)?;
    done(())
}

fn signal(number: i32) -> Result<Option<Signal>, Failed> {
    if number == 0 {
        return Ok(None);
    }
    let signal = Signal::from_named_raw(number);
    signal.map(Some).ok_or_else(|| Failed::CannotTry(format!("no signal has the number {number}")))
}

/// Reads eight bytes at the start of the first readable mapping of the other process. Where its map is
/// hidden, at an address of this process: the permission is checked before the address, so the answer is
/// `EFAULT` if reading is permitted.
fn vm_read(arguments: &mut Arguments) -> Answer {
    let pid = arguments.pid()?;
    let map = std::fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero()));
    let address = map.ok().and_then(|map| usize::from_str_radix(map.split_once('-')?.0, 16).ok());
    let here = 0_u64;
    let address = address.unwrap_or(std::ptr::from_ref(&here).addr());
    let bytes = sys::processes::read_memory(pid, address)?;
    Ok(format!("{bytes:02x?}").into())
}

fn pidfd_getfd(arguments: &mut Arguments) -> Answer {
    let process = rustix::process::pidfd_open(arguments.pid()?, PidfdFlags::empty())?;
    rustix::process::pidfd_getfd(process, arguments.number()?, PidfdGetfdFlags::empty())?;
    done(())
}

/// Lowers how many files the other process may open; `/proc/PID/limits` shows whether it happened.
fn prlimit(arguments: &mut Arguments) -> Answer {
    let (pid, files) = (arguments.pid()?, arguments.number()?);
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = Some(files);
    rustix::process::prlimit(Some(pid), Resource::Nofile, limit)?;
    done(())
}

fn set_priority(arguments: &mut Arguments) -> Answer {
    rustix::process::setpriority_process(Some(arguments.pid()?), arguments.number()?)?;
    done(())
}

/// Binds the other process to the first processor that this one may use.
fn affinity(arguments: &mut Arguments) -> Answer {
    let pid: Pid = arguments.pid()?;
    let ours = rustix::thread::sched_getaffinity(None).prepare("read the affinity")?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| ours.is_set(*cpu));
    let mut set = CpuSet::new();
    set.set(first.unwrap_or(0));
    rustix::thread::sched_setaffinity(Some(pid), &set)?;
    done(())
}

/// Runs a program whose file says that it runs as somebody else, and looks whether it does. It is given an input that
/// does not end, and killed.
fn gain_user(arguments: &mut Arguments) -> Answer {
    let program = arguments.path()?;
    let quiet = std::process::Stdio::null;
    let mut command = std::process::Command::new(&program);
    while !arguments.is_empty() {
        command.arg(arguments.text()?);
    }
    let started = command.stdin(std::process::Stdio::piped()).stdout(quiet()).stderr(quiet()).spawn();
    let mut child = started.prepare("start the program")?;
    let user = user_of_program(child.id(), &program);
    let _gone_already = child.kill();
    child.wait().prepare("wait for the program")?;
    match user {
        Some(user) if user == rustix::process::geteuid().as_raw() => Err(Failed::Nothing("SAMEUSER")),
        Some(user) => Ok(user.into()),
        None => crate::answer::cannot_try("the program cannot be looked at"),
    }
}

/// The effective user of a process once it is this program: its user is set before its arguments can be seen.
fn user_of_program(pid: u32, program: &std::path::Path) -> Option<u32> {
    let is_executed = || {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(program.as_os_str().as_encoded_bytes())
    };
    for _ in 0..5000 {
        if is_executed() {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            return line.split_whitespace().nth(1)?.parse().ok();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}
