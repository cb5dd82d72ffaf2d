//! The control group of a session, made by the host below one that it may use.
//!
//! The worker enters it before it starts anything, and everything of the session is its descendant. The keeper stays
//! outside, since a group that holds a process cannot be removed, and removes it when all has ended: the host may be
//! dead by then.

use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::sys::{self, Errno};

/// How long the kernel may take to notice that a group is empty. It is so at once; this is for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// A group that this session has for itself.
pub(crate) struct Group {
    parent: OwnedFd,
    name: CString,
    /// Opened before the worker gets credentials of its own.
    processes: Option<File>,
}

impl Group {
    /// The group with this name below the group that is open as `parent`.
    pub(crate) fn new(parent: OwnedFd, name: CString) -> Self {
        let mut file = name.as_bytes().to_vec();
        file.extend_from_slice(b"/cgroup.procs");
        let opened = CString::new(file)
            .map_err(|_| Errno::INVAL)
            .and_then(|file| sys::open_at(parent.as_raw_fd(), &file, sys::O_WRONLY | sys::O_NOFOLLOW, 0));
        Self { parent, name, processes: opened.ok().map(File::from) }
    }

    /// Moves this process into the group. Where it stays outside the host finds the group empty, and goes by that.
    pub(crate) fn enter(&self) {
        if let Some(mut processes) = self.processes.as_ref() {
            processes.write_all(b"0").ok();
        }
    }

    /// Removes the group, once nothing is left in it.
    pub(crate) fn remove(&self) {
        const BUSY: Errno = Errno(16);
        let deadline = Instant::now() + PATIENCE;
        while sys::unlink_at(self.parent.as_raw_fd(), &self.name, sys::AT_REMOVEDIR) == Err(BUSY)
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
