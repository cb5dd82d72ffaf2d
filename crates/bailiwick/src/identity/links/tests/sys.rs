//! Threads with mounts or a user of their own.
#![expect(unsafe_code, reason = "namespaces and the user of one thread have no safe call")]

use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

fn on_a_thread_that(prepares: impl FnOnce() + Send, body: impl FnOnce() + Send) {
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            prepares();
            body();
        });
        thread.join()
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `body` on a thread whose mounts nobody else sees, and which end with it.
pub(super) fn in_private_mounts(body: impl FnOnce() + Send) {
    let unshare = || {
        // SAFETY: gives this thread copies of its own; nothing in memory changes.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "{}", std::io::Error::last_os_error());
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    };
    on_a_thread_that(unshare, body);
}

/// Runs `body` on a thread that has given up root for another user. Threads that it starts are that user too.
pub(super) fn as_user(uid: u32, body: impl FnOnce() + Send) {
    let change = || {
        // SAFETY: the bare calls take numbers only, and change this thread alone.
        let changed = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()),
                libc::syscall(libc::SYS_setresgid, uid, uid, uid),
                libc::syscall(libc::SYS_setresuid, uid, uid, uid),
            ]
        };
        assert_eq!(changed, [0; 3], "{}", std::io::Error::last_os_error());
    };
    on_a_thread_that(change, body);
}

pub(super) fn bind(source: &Path, target: &Path) {
    mount_bind(source, target).unwrap();
}

pub(super) fn tmpfs(target: &Path) {
    mount("tmpfs", target, "tmpfs", MountFlags::empty(), None).unwrap();
}

pub(super) fn overlay(lower: &Path, upper: &Path, work: &Path, xino: &str, target: &Path) {
    let show = |path: &Path| path.display().to_string();
    let options =
        format!("lowerdir={},upperdir={},workdir={},xino={xino}\0", show(lower), show(upper), show(work));
    let options = std::ffi::CStr::from_bytes_until_nul(options.as_bytes()).unwrap();
    mount("overlay", target, "overlay", MountFlags::empty(), Some(options)).unwrap();
}
