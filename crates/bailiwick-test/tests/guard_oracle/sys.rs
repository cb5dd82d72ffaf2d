//! A thread with mounts of its own.

#![expect(unsafe_code, reason = "namespaces have no safe call")]

use rustix::mount::{MountPropagationFlags, mount_change};

/// Runs `body` on a thread with mounts of its own, which nobody else sees and which end with it.
pub(crate) fn with_private_mounts<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: gives this thread copies of its own; nothing in memory changes.
            let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) };
            assert_eq!(unshared, 0, "{}", std::io::Error::last_os_error());
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            body()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
