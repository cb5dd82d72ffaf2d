//! A thread with mounts of its own, and a process with a user namespace of its own.

#![expect(unsafe_code, reason = "namespaces have no safe call")]

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
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

/// Lets a command run as root of a user namespace of its own, with mounts of its own.
pub(crate) fn with_user_namespace(command: &mut Command) {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let maps: [(&CStr, String); 3] = [
        (c"/proc/self/setgroups", "deny".into()),
        (c"/proc/self/uid_map", format!("0 {user} 1")),
        (c"/proc/self/gid_map", format!("0 {group} 1")),
    ];
    let enter = move || {
        // SAFETY: takes a number only, and this process has one thread.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        for (path, text) in &maps {
            let file = rustix::fs::open(*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls only; what it needs of memory was made before.
    unsafe { command.pre_exec(enter) };
}
