//! The processes below a process, read from `/proc`.
//!
//! A walk is a snapshot of something that moves: a process may fork, end or be re-parented while it is
//! read. So nothing here concludes that a tree is empty; that is said only by `wait` with no child left,
//! in a process that inherits every orphan.
//!
//! All numbers here are those of the `/proc` that this process sees, which is the host's. In a pid namespace
//! they are not the numbers that system calls take, so a process is signalled by its directory in `/proc`.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

use bailiwick_wire::Process;

use crate::sys::{self, Errno};

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: Vec<u8>,
    pub(crate) state: u8,
    pub(crate) start_time: u64,
}

/// Reads a process's name, state and start time; `None` when it is gone.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The number of this process in `/proc`.
///
/// # Errors
/// There is no `/proc`.
pub(crate) fn own() -> sys::Result<i32> {
    let link = fs::read_link("/proc/self").map_err(|_| Errno::NOSYS)?;
    link.to_str().and_then(|name| name.parse().ok()).ok_or(Errno::NOSYS)
}

/// The number in `/proc` of the process that a descriptor names; `None` when it has been waited for.
pub(crate) fn number_of(pidfd: &OwnedFd) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok().filter(|pid| *pid > 0)
}

/// The number in `/proc` of a child of this process, which has not waited for it.
pub(crate) fn number_of_child(pid: i32) -> Option<i32> {
    number_of(&sys::pidfd_open(pid).ok()?)
}

/// A process of `/proc`, held: signalling it reaches no other one, whatever becomes of its number.
struct Held(OwnedFd);

impl Held {
    fn open(pid: i32) -> sys::Result<Self> {
        const SRCH: Errno = Errno(3);
        let path = std::ffi::CString::new(format!("/proc/{pid}")).map_err(|_| SRCH)?;
        sys::open_at(sys::AT_FDCWD, &path, sys::O_DIRECTORY, 0).map(Self).map_err(|_| SRCH)
    }

    fn stat(&self) -> Option<Stat> {
        let mut line = Vec::new();
        let file = sys::open_at(self.0.as_raw_fd(), c"stat", 0, 0).ok()?;
        fs::File::from(file).read_to_end(&mut line).ok()?;
        parse_stat(&line)
    }
}

/// Continues a process if it is stopped.
pub(crate) fn resume(pid: i32) {
    const SIGCONT: i32 = 18;
    if let Ok(held) = Held::open(pid)
        && held.stat().is_some_and(|stat| stat.state == b'T')
    {
        // It may have been killed since.
        sys::may_fail(sys::pidfd_signal(&held.0, SIGCONT));
    }
}

/// Kills a process of `/proc`.
pub(crate) fn kill(pid: i32) {
    const SIGKILL: i32 = 9;
    // It may be gone.
    sys::may_fail(Held::open(pid).and_then(|held| sys::pidfd_signal(&held.0, SIGKILL)));
}

/// The name may hold spaces and parentheses, so fields count from the last `)`.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let name = line.get(open + 1..close)?.to_vec();
    let mut fields = line.get(close + 2..)?.split(|byte| *byte == b' ');
    let state = *fields.next()?.first()?;
    // State is field 3, the start time field 22.
    let start_time = std::str::from_utf8(fields.nth(18)?).ok()?.parse().ok()?;
    Some(Stat { name, state, start_time })
}

/// Children of all threads of `pid`.
///
/// Needs CONFIG_PROC_CHILDREN (Linux 3.5); the caller checks with [`readable`].
fn children(pid: i32, into: &mut Vec<i32>) {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for thread in threads.flatten() {
        let Ok(list) = fs::read_to_string(thread.path().join("children")) else { continue };
        into.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
}

/// Whether this kernel lists children.
pub(crate) fn readable() -> bool {
    own().is_ok_and(|own| fs::read(format!("/proc/{own}/task/{own}/children")).is_ok())
}

/// Direct children of a process.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    children(pid, &mut found);
    found
}

/// Direct children of this process.
pub(crate) fn own_children() -> Vec<i32> {
    own().map(children_of).unwrap_or_default()
}

/// Which processes below the root are the session's own: walked through, but not listed.
#[derive(Debug)]
pub(crate) enum Own {
    /// None.
    Nothing,
    /// All children of the root, also those that appear during the walk.
    Children,
    /// These.
    Listed(HashSet<i32>),
}

impl Own {
    fn contains(&self, parent: i32, root: i32, pid: i32) -> bool {
        match self {
            Self::Nothing => false,
            Self::Children => parent == root,
            Self::Listed(pids) => pids.contains(&pid),
        }
    }
}

/// Every process below `root` that has not ended, without the session's own. `command_of` names the
/// command that one of those holds, or that begins with a process; `0` where it is that of the parent.
pub(crate) fn below(root: i32, own: &Own, command_of: impl Fn(i32) -> u64) -> Vec<Process> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut queue = vec![(root, command_of(root))];
    let mut list = Vec::new();
    while let Some((pid, command)) = queue.pop() {
        list.clear();
        children(pid, &mut list);
        for child in list.drain(..) {
            if !seen.insert(child) {
                continue;
            }
            if own.contains(pid, root, child) {
                queue.push((child, command_of(child)));
                continue;
            }
            let command = match command_of(child) {
                0 => command,
                its_own => its_own,
            };
            queue.push((child, command));
            // A zombie has ended; only its parent's wait is missing.
            if let (Some(stat), Ok(number)) = (stat(child), u32::try_from(child))
                && !matches!(stat.state, b'Z' | b'X')
            {
                found.push(Process {
                    pid: number,
                    start_time: stat.start_time,
                    state: stat.state,
                    command,
                    name: stat.name,
                });
            }
        }
    }
    found
}

/// Signals exactly this process: not another one that got its number since.
///
/// # Errors
/// `ESRCH` when it is gone.
pub(crate) fn signal(process: &Process, signal: i32) -> sys::Result<()> {
    const SRCH: Errno = Errno(3);
    let held = Held::open(i32::try_from(process.pid).map_err(|_| SRCH)?)?;
    // The descriptor names one process for good, so comparing after it was made leaves no window.
    match held.stat() {
        Some(stat) if stat.start_time == process.start_time => sys::pidfd_signal(&held.0, signal),
        _ => Err(SRCH),
    }
}

/// Ends a tree whose processes fork meanwhile.
///
/// Each is stopped when it is met, and killed when it is met again. Killed at once, each would make room
/// for another under a limit on processes, and where many run for few processors, they would fork faster
/// than one walk reads. What is stopped neither forks nor competes.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    met: HashSet<(u32, u64)>,
}

impl Ending {
    /// Goes on with the processes of one walk; says for each whether a kill has reached it.
    pub(crate) fn go_on(&mut self, alive: &[Process]) -> Vec<bool> {
        const SIGKILL: i32 = 9;
        const SIGSTOP: i32 = 19;
        let known: Vec<bool> =
            alive.iter().map(|process| !self.met.insert((process.pid, process.start_time))).collect();
        for (process, _) in alive.iter().zip(&known).filter(|(_, known)| !**known) {
            // It may have ended since the walk; the next one tells.
            sys::may_fail(signal(process, SIGSTOP));
        }
        alive.iter().zip(known).map(|(process, known)| known && signal(process, SIGKILL).is_ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_names_with_parentheses_and_spaces() {
        let line = b"7 (a) R (b c) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0 rest";
        assert_eq!(
            parse_stat(line),
            Some(Stat { name: b"a) R (b c".to_vec(), state: b'S', start_time: 4242 })
        );
        assert_eq!(parse_stat(b"7 (a"), None);
        assert_eq!(parse_stat(b"7 (a) S 1"), None);
    }

    #[test]
    fn this_process_is_found_below_its_parent() {
        assert!(readable());
        let own = sys::process_id();
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let found = below(parent, &Own::Nothing, |_| 0);
        assert!(found.iter().any(|process| i32::try_from(process.pid) == Ok(own)), "{found:?}");
        let hidden = below(parent, &Own::Listed(HashSet::from([own])), |_| 0);
        assert!(!hidden.iter().any(|process| i32::try_from(process.pid) == Ok(own)), "{hidden:?}");
    }
}
