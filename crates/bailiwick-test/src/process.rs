//! What `/proc` says about processes: who lives, who is whose child.
//!
//! A pid alone names nobody: it is reused. Here a process is a pid with its start time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// A time limit that a loaded machine does not reach: use it wherever a test waits for what must happen
/// soon. A test that promises a speed measures it and does not wait with a short limit.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// One process as `/proc/PID/stat` showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its pid in the namespace of this process.
    pub pid: u32,
    /// Pid of its parent.
    pub parent: u32,
    /// Start time in clock ticks since boot. With `pid` it names one process.
    pub start_time: u64,
    /// Effective uid, as the owner of its `/proc` directory; 0 where the process is not dumpable.
    pub uid: u32,
    /// The `comm` name, at most 15 bytes; a process may change it.
    pub name: String,
    /// State letter of proc(5): `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: char,
}

impl Process {
    /// Reads one process. `None` if there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let (head, tail) = stat.rsplit_once(')')?; // the name may hold anything, parentheses too
        let (_pid, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Process {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?, // field 22 of proc(5), counted from the state
            uid,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
        })
    }

    /// Whether it has ended and only waits for its parent to take note.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Its arguments, empty if it is a zombie, a kernel thread, or has gone.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        if line.is_empty() {
            return Vec::new();
        }
        line.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
    }
}

/// Every process that `/proc` lists now.
///
/// # Panics
///
/// If `/proc` cannot be listed.
#[must_use]
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap_or_else(|error| panic!("list /proc: {error}"));
    entries.filter_map(|entry| Process::of(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// The processes whose effective uid is `uid`, zombies included.
#[must_use]
pub fn of_uid(uid: u32) -> Vec<Process> {
    all().into_iter().filter(|process| process.uid == uid).collect()
}

/// The processes named `name` (`comm`), zombies left out.
#[must_use]
pub fn named(name: &str) -> Vec<Process> {
    all().into_iter().filter(|process| process.name == name && !process.is_zombie()).collect()
}

/// The processes that descend from `pid`, zombies included, at one reading.
///
/// A process whose parent has died belongs to its reaper and is not found.
#[must_use]
pub fn descendants(pid: u32) -> Vec<Process> {
    let all = all();
    let mut family = BTreeSet::from([pid]);
    loop {
        let before = family.len();
        family.extend(
            all.iter().filter(|one| family.contains(&one.parent)).map(|one| one.pid).collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    family.remove(&pid);
    all.into_iter().filter(|one| family.contains(&one.pid)).collect()
}

/// The host's number of the process that a command of a session on this world calls by that number: in a pid namespace
/// it is another one. `None` if there is none.
#[must_use]
pub fn number_of(world: &Path, inside: u32) -> Option<u32> {
    let is_called_so = |process: &Process| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let innermost = numbers.and_then(|numbers| numbers.split_ascii_whitespace().next_back());
        innermost.and_then(|number| number.parse().ok()) == Some(inside)
    };
    let world = world.to_str()?;
    // The keeper and what descends from it carry a path of the world in their arguments.
    let belongs = |process: &Process| {
        let mut above = Some(process.clone());
        while let Some(one) = above {
            if one.arguments().iter().any(|argument| argument.starts_with(world)) {
                return true;
            }
            above = (one.parent > 1).then(|| Process::of(one.parent)).flatten();
        }
        false
    };
    all().into_iter().find(|process| is_called_so(process) && belongs(process)).map(|process| process.pid)
}

/// Start time of the process in clock ticks since boot. `None` if there is none.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    Process::of(pid).map(|process| process.start_time)
}

/// Whether nothing is left of the process, not even a zombie. Another process may have its pid.
#[must_use]
pub fn pid_gone(pid: u32, start_time: u64) -> bool {
    Process::of(pid).is_none_or(|process| process.start_time != start_time)
}

/// Whether the process runs no more: gone, or a zombie that its parent has not reaped.
#[must_use]
pub fn pid_ended(pid: u32, start_time: u64) -> bool {
    Process::of(pid).is_none_or(|process| process.start_time != start_time || process.is_zombie())
}

/// Waits until `condition` holds, looking every 5 ms. Whether it came to hold within `limit`.
///
/// Give [`GENEROUS`] or more: the answer `false` must mean "never", not "not yet on a busy machine".
#[must_use]
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        // Looked at once more after the deadline: the thread may have slept through it.
        let is_late = Instant::now() >= deadline;
        if condition() {
            return true;
        }
        if is_late {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a local stream socket of this name listens in the network namespace of a process; `@name` for an
/// abstract one.
///
/// A name that is bound does not listen yet: between the two calls a connection is refused.
#[must_use]
pub fn listens(pid: u32, name: &Path) -> bool {
    /// `__SO_ACCEPTCON` of `linux/net.h`, as `/proc/net/unix` writes its column of flags.
    const ACCEPTS: &str = "00010000";
    let table = std::fs::read(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    String::from_utf8_lossy(&table).lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields.get(3) == Some(&ACCEPTS) && fields.get(7).is_some_and(|found| Path::new(found) == name)
    })
}

/// Kills a process and all its descendants, until a reading finds none.
pub fn kill_tree(pid: u32) {
    // Stopped first, so that it starts no further children while they are being collected.
    signal(pid, Signal::STOP);
    let _gave_up = wait_until(Duration::from_secs(10), || {
        let family: Vec<Process> = descendants(pid).into_iter().filter(|one| !one.is_zombie()).collect();
        family.iter().for_each(|one| kill(one.pid));
        family.is_empty()
    });
    kill(pid);
}

/// Sends `SIGKILL`. A process that has gone already is no error.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: u32, signal: Signal) {
    // 0 and numbers beyond i32 would address groups, so they are refused by `from_raw` or the conversion.
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone_already = rustix::process::kill_process(pid, signal);
    }
}
