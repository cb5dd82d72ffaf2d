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

/// Runs `body` on a thread for which the system call `call` fails with `errno`.
pub(crate) fn without_call<T: Send>(call: u32, errno: i32, body: impl FnOnce() -> T + Send) -> T {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
                let mut program = [
                    line(LOAD, 0, 0, 0), // seccomp_data.nr
                    line(JUMP_EQUAL, 0, 1, call),
                    line(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap()),
                    line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
                ];
                let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
                rustix::thread::set_no_new_privs(true).unwrap();
                // SAFETY: `filter` and the program that it points to live until the call returns; the kernel copies them.
                let outcome = unsafe {
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
                };
                assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
                body()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}
