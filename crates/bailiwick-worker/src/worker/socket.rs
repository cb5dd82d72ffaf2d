//! A named socket outside the roots, for the probe that must not reach it.

use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::boundary;
use crate::sys;

/// Listens while it lives; then its name is gone.
pub(super) struct NamedSocket {
    directory: OwnedFd,
    epoch: u32,
    _listener: OwnedFd,
}

impl NamedSocket {
    /// Listens beside the sentinel. `None` where that does not work: then the probe cannot be tried.
    pub(super) fn listen(directory: &OwnedFd, epoch: u32) -> Option<Self> {
        let name = boundary::named_socket(epoch);
        let directory = sys::duplicate_above(directory.as_raw_fd(), 3).ok()?;
        // One that a worker left which was killed: nobody else has this directory.
        sys::may_fail(sys::unlink_at(directory.as_raw_fd(), &name, 0));
        // The worker has no use for a working directory, but it must not hold one.
        let root = sys::open_at(sys::AT_FDCWD, c"/", sys::O_PATH | sys::O_DIRECTORY, 0).ok()?;
        sys::fchdir(directory.as_raw_fd()).ok()?;
        let listener = sys::listen_here(&name);
        sys::fchdir(root.as_raw_fd()).ok()?;
        Some(Self { directory, epoch, _listener: listener.ok()? })
    }
}

impl Drop for NamedSocket {
    fn drop(&mut self) {
        // It may be gone with the whole directory.
        sys::may_fail(sys::unlink_at(self.directory.as_raw_fd(), &boundary::named_socket(self.epoch), 0));
    }
}
