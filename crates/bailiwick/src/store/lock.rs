//! One session at a time.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::directory::{failed, open_private_file};
use crate::error::{Error, ErrorKind};
use crate::identity::{Look, PinnedDir, Role};

pub(super) const NAME: &str = "lock";

/// Attempts to lock a file that is still the one at its name. It is replaced only by somebody who removes it
/// between our open and our lock; eight times in a row is not chance.
const ATTEMPTS: usize = 8;

/// The exclusive lock of a store, for as long as it is held.
///
/// `flock(2)`: it belongs to the open file, so it ends with the process however that dies, and a program that the
/// host starts does not share it, the descriptor being closed on exec.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    holder: u32,
}

impl Drop for Lock {
    /// Lets go at once. Closing alone would not do: while another thread of the host is between fork and exec, its
    /// child holds the same open file. The child itself, should it drop its copy of this, must not let go of what
    /// its parent holds.
    fn drop(&mut self) {
        if self.holder == std::process::id() {
            // Fails for a bad descriptor only, and then there is no lock.
            let _released = flock(&self.file, FlockOperation::Unlock).is_ok();
        }
    }
}

impl Lock {
    /// Takes the lock without waiting.
    pub(super) fn take(dir: &PinnedDir) -> Result<Self, Error> {
        let path = dir.canonical().join(NAME);
        for _ in 0..ATTEMPTS {
            let mut file = File::from(open_private_file(dir, NAME)?);
            match rustix::io::retry_on_intr(|| flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive))
            {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(locked(dir, &mut file)),
                Err(errno) => return Err(failed("cannot be locked", "flock", &path, errno)),
            }
            let held = Look::at(&file, &path).map_err(|fault| Role::Store.fault(fault, &path))?;
            let named = Look::entry(dir, Path::new(NAME), &path);
            if named.is_ok_and(|named| named.id.node() == held.id.node()) {
                write_holder(&mut file).map_err(|error| {
                    Role::Store.error(ErrorKind::StoreNotAccessible, "cannot be written", &path).source(error)
                })?;
                return Ok(Self { file, holder: std::process::id() });
            }
        }
        Err(Role::Store
            .error(ErrorKind::StoreNotAccessible, "has a lock that is replaced again and again", &path)
            .retry(true))
    }
}

/// Writes who holds the lock: process id and start time, which together name a process. For the message of the
/// next one who tries; nobody decides by it.
fn write_holder(file: &mut File) -> std::io::Result<()> {
    let text = match start_time() {
        Some(start) => format!("{} {start}\n", std::process::id()),
        None => format!("{}\n", std::process::id()),
    };
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

/// When this process started, in clock ticks since boot: field 22 of `proc_pid_stat(5)`. The second field holds the
/// program's name in parentheses and may hold any byte, so fields are counted from the last parenthesis.
fn start_time() -> Option<u64> {
    let stat = std::fs::read("/proc/self/stat").ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(after_name + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn locked(dir: &PinnedDir, file: &mut File) -> Error {
    let error = Role::Store.error(ErrorKind::StoreLocked, "is held by another session", dir.given());
    // 64 bytes hold two numbers of 20 digits. What cannot be read is left out: the lock is what counts.
    let mut text = String::new();
    let _unread = file.take(64).read_to_string(&mut text).is_err();
    let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    let Some(pid) = numbers.next() else {
        return error.hint("close the other session, or choose another store");
    };
    let hint = if pid == u64::from(std::process::id()) {
        "this process holds it: close its other session, or choose another store".into()
    } else {
        format!("close the session of process {pid}, or choose another store")
    };
    let error = error.number("holder_pid", pid).hint(hint);
    match numbers.next() {
        Some(start) => error.number("holder_start_time", start),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_the_kernels() {
        let all = std::fs::read_to_string("/proc/self/stat").unwrap();
        let expected = all[all.rfind(')').unwrap()..].split_whitespace().nth(20).unwrap();
        assert_eq!(start_time().unwrap().to_string(), expected);
    }
}
