//! What the cases do to their own process or thread.

#![expect(unsafe_code, reason = "filters, namespaces and limits have no safe call")]

use std::path::Path;

use bailiwick_test::World;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};

use super::Places;

/// Makes `openat2` fail with `errno` on the calling thread, for good.
pub(crate) fn refuse_openat2(errno: i32) {
    refuse(libc::SYS_openat2, errno);
}

/// Makes a system call fail with `errno` on the calling thread, for good.
pub(crate) fn refuse(call: libc::c_long, errno: i32) {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        line(LOAD, 0, 0, 0), // seccomp_data.nr
        line(JUMP_EQUAL, 0, 1, u32::try_from(call).unwrap()),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap()),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers only.
    let privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: `filter` and the program that it points to live until the call returns; the kernel copies them.
    let installed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!((privileges, installed), (0, 0), "{}", std::io::Error::last_os_error());
}

/// Runs `body` on a thread with mounts of its own: what it mounts is seen by nobody else and ends with it.
pub(crate) fn in_private_mounts(world: &World, body: impl FnOnce(&Places) + Send) {
    let places = Places::of(world);
    let outcome = on_a_thread_with_its_own(libc::CLONE_NEWNS, || {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        body(&places);
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>) {
    mount_bind(source.as_ref(), target.as_ref()).unwrap();
}

pub(crate) fn tmpfs(target: &Path) {
    mount("tmpfs", target, "tmpfs", MountFlags::empty(), None).unwrap();
}

/// Makes a bind mount read-only, the file system below it stays as it is.
pub(crate) fn make_read_only(target: &Path) {
    mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
}

/// Exchanges two names.
pub(crate) fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Soft and hard limit on open files.
pub(crate) fn open_files_limit() -> (u64, u64) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// Runs `body` on a thread with descriptors of its own, this process being limited to `soft` open files: the limit
/// counts in each table by itself, so the other threads hardly notice.
pub(crate) fn with_open_files_limit(soft: u64, body: impl FnOnce() + Send) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(soft), ..before }).unwrap();
    let outcome = on_a_thread_with_its_own(libc::CLONE_FILES, body);
    setrlimit(Resource::Nofile, before).unwrap();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `body` on a thread with a file mode mask of its own.
pub(crate) fn with_umask<T: Send>(mask: u32, body: impl FnOnce() -> T + Send) -> T {
    let outcome = on_a_thread_with_its_own(libc::CLONE_FS, || {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        body()
    });
    match outcome {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(crate) fn on_a_thread_with_its_own<T: Send>(
    what: i32,
    body: impl FnOnce() -> T + Send,
) -> std::thread::Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: gives this thread copies of its own; nothing in memory changes.
                assert_eq!(unsafe { libc::unshare(what) }, 0, "{}", std::io::Error::last_os_error());
                body()
            })
            .join()
    })
}
