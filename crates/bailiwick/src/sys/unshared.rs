//! Threads that tests take apart from the rest of their process.

use std::panic::resume_unwind;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `body` on a thread with mounts, root and working directory of its own: what it mounts is seen by nobody
/// else and ends with it. Needs root.
pub(crate) fn in_private_mounts<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: gives this thread mounts and paths of its own; memory and descriptors stay shared.
                unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
                mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
                body()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}
