//! Whether mounts changed.

use std::fs::File;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Fault;
use crate::error::SystemCall;

/// The mounts as the calling thread sees them.
pub(super) const MOUNTINFO: &str = "/proc/thread-self/mountinfo";

/// How often a table is read again because the mounts changed while it was read. A change at every one of these
/// readings means that somebody mounts without pause.
const ATTEMPTS: usize = 32;

/// Tells cheaply whether the mounts changed since it was last asked.
///
/// It sees what happens in the mount namespace that the thread had when it was made: mounts, unmounts, moves, and
/// changes of a mount's or a file system's flags. It does not see changes of propagation (`make-shared`), which
/// show nothing new by themselves, and **not the rename of a directory above a mount point**, which changes the path
/// of the point in the table.
///
/// # Source
/// `proc_pid_mountinfo(5)`; measured on Linux 6.18.
#[derive(Debug)]
pub(crate) struct MountWatch {
    file: File,
}

impl MountWatch {
    /// Begins to watch the mounts of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted, or no descriptor is left.
    pub(crate) fn new() -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file =
            rustix::fs::open(MOUNTINFO, flags, Mode::empty()).map_err(|errno| failed("open", errno))?;
        Ok(Self { file: file.into() })
    }

    /// Whether the mounts changed since the last call, or since the watch was made. The answer `true` is given once
    /// for all changes so far.
    ///
    /// # Errors
    /// The kernel's answer, `EINTR` excluded.
    pub(crate) fn changed(&self) -> Result<bool, Fault> {
        let mut polled = [PollFd::new(&self.file, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::io::retry_on_intr(|| poll(&mut polled, Some(&at_once))) {
            Ok(_count) => Ok(polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)),
            Err(errno) => Err(failed("poll", errno)),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Reads until the mounts did not change meanwhile. What was read during a change counts for nothing, errors
    /// included: a mount may be gone between its listing and its description.
    pub(super) fn steady<T>(&self, mut read: impl FnMut(&Self) -> Result<T, Fault>) -> Result<T, Fault> {
        for _ in 0..ATTEMPTS {
            let outcome = read(self);
            if !self.changed()? {
                return outcome;
            }
        }
        Err(failed("poll", Errno::AGAIN))
    }
}

/// The table cannot be read. Never [`Fault::NotFound`], whatever the kernel answered: that is said of what a path
/// names, and may mean that there is nothing to compare.
pub(super) fn failed(call: &'static str, errno: Errno) -> Fault {
    let cause = SystemCall::new(call, MOUNTINFO, errno);
    match errno {
        Errno::MFILE | Errno::NFILE => Fault::NoDescriptors(cause),
        _ => Fault::Denied(cause),
    }
}
