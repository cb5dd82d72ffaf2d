//! The acts themselves, where one takes more than a call.
#![expect(unsafe_code, reason = "calls that must fail, and that nothing else in the worker makes")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use bailiwick_wire::Outcome;

use super::Judgement;
use crate::sys::{self, Errno, Result, call, int, number};

/// Makes a file in the temporary directory, lets `act` judge it, and removes it.
pub(super) fn with_file(directory: RawFd, name: &CStr, act: impl FnOnce(&OwnedFd) -> Judgement) -> Judgement {
    let flags = sys::O_RDWR | sys::O_CREAT | sys::O_EXCL | sys::O_NOFOLLOW;
    match sys::open_at(directory, name, flags, 0o600) {
        Err(errno) => (Outcome::Untried, Some(errno)),
        Ok(file) => {
            let judgement = act(&file);
            match sys::unlink_at(directory, name, 0) {
                Ok(()) => judgement,
                Err(errno) => (Outcome::Broken, Some(errno)),
            }
        }
    }
}

/// Runs `act` with a directory as the working directory.
pub(super) fn from_within(directory: RawFd, act: impl FnOnce() -> Result<()>) -> Result<()> {
    sys::fchdir(directory)?;
    let outcome = act();
    let root = sys::open_at(sys::AT_FDCWD, c"/", sys::O_DIRECTORY | sys::O_PATH, 0)?;
    sys::fchdir(root.as_raw_fd())?;
    outcome
}

/// What a daemon and its client do, in the working directory.
pub(super) fn listen_and_connect() -> Result<()> {
    // What a launcher left that was killed here must not be in the way of the next one.
    let name = format!(".probe-socket-{}", sys::process_id());
    let name = std::ffi::CString::new(name).map_err(|_| Errno::INVAL)?;
    let listener = sys::listen_here(&name)?;
    let connected = sys::connect_here(&name);
    sys::unlink_at(sys::AT_FDCWD, &name, 0)?;
    drop(listener);
    connected
}

/// What a build does in its directory: make, rename across directories, remove.
pub(super) fn rearrange(directory: RawFd) -> Result<()> {
    let flags = sys::O_RDWR | sys::O_CREAT | sys::O_EXCL | sys::O_NOFOLLOW;
    sys::mkdir_at(directory, c".probe-dir", 0o700)?;
    let below = sys::open_at(directory, c".probe-dir", sys::O_DIRECTORY | sys::O_NOFOLLOW, 0)?;
    drop(sys::open_at(directory, c".probe-file", flags, 0o600)?);
    sys::rename_at(directory, c".probe-file", below.as_raw_fd(), c"moved")?;
    sys::unlink_at(below.as_raw_fd(), c"moved", 0)?;
    sys::unlink_at(directory, c".probe-dir", sys::AT_REMOVEDIR)
}

/// Reads a byte that cannot be mapped: the permission is judged before the address.
pub(super) fn read_memory(pid: i32) -> Result<()> {
    let mut byte = 0_u8;
    let local = [(&raw mut byte) as usize, 1];
    let remote = [8_usize, 1];
    // SAFETY: one local vector to a writable byte; the remote address is not dereferenced here.
    unsafe {
        call(number::PROCESS_VM_READV, [int(pid), local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0])
    }
    .map(drop)
}

/// Sets the priority of `pid` to what it is.
pub(super) fn keep_priority(pid: i32) -> Result<()> {
    // SAFETY: no pointers. getpriority answers 20 - nice, so that it is never negative.
    let answer = unsafe { call(number::GETPRIORITY, [0, int(pid), 0, 0, 0, 0]) }?;
    let nice = 20 - i32::try_from(answer).unwrap_or(20);
    // SAFETY: no pointers.
    unsafe { call(number::SETPRIORITY, [0, int(pid), int(nice), 0, 0, 0]) }.map(drop)
}

fn socket(family: usize, kind: usize) -> Result<()> {
    // SAFETY: no pointers.
    sys::owned(unsafe { call(number::SOCKET, [family, kind | 0o2_000_000, 0, 0, 0, 0]) }?).map(drop)
}

/// Tries every family and type that the policy leaves out.
pub(super) fn socket_families(network: bool) -> Judgement {
    const UNIX: usize = 1;
    const INET: usize = 2;
    const INET6: usize = 10;
    const NETLINK: usize = 16;
    let mut last = (Outcome::Untried, None);
    for family in 0..64 {
        if family == UNIX || (network && [INET, INET6, NETLINK].contains(&family)) {
            continue;
        }
        // Stream, datagram, raw, sequenced packets.
        for kind in [1, 2, 3, 5] {
            match socket(family, kind) {
                Ok(()) => return (Outcome::Broken, None),
                Err(errno) => last = (Outcome::Held, Some(errno)),
            }
        }
    }
    // Not every family exists on every host, so that they all failed proves little by itself: this one
    // does exist wherever there is a network, and must fail by the filter's own error.
    if !network {
        match socket(INET, 1) {
            Err(Errno::PERM) => {}
            Err(errno) => return (Outcome::Broken, Some(errno)),
            Ok(()) => return (Outcome::Broken, None),
        }
    }
    last
}

pub(super) fn io_uring() -> Result<()> {
    // SAFETY: a null parameter block, which answers EFAULT where the call is permitted.
    unsafe { call(number::IO_URING_SETUP, [1, 0, 0, 0, 0, 0]) }.map(drop)
}

/// getpid, by its x32 number.
pub(super) fn x32() -> Result<()> {
    const X32_BIT: std::ffi::c_long = 0x4000_0000;
    // SAFETY: no pointers.
    unsafe { call(number::GETPID | X32_BIT, [0; 6]) }.map(drop)
}

/// Each kind of namespace by `unshare`, in a process that is not needed any more.
pub(super) fn namespaces() -> [Result<()>; 8] {
    const KINDS: [usize; 8] = [
        0x1000_0000, // user
        0x0002_0000, // mount
        0x2000_0000, // pid
        0x4000_0000, // network
        0x0800_0000, // ipc
        0x0400_0000, // uts
        0x0200_0000, // cgroup
        0x0000_0080, // time
    ];
    // SAFETY: no pointers.
    KINDS.map(|kind| unsafe { call(number::UNSHARE, [kind, 0, 0, 0, 0, 0]) }.map(drop))
}

pub(super) fn mounts() -> [Result<()>; 3] {
    let root = c"/".as_ptr() as usize;
    // SAFETY: C strings, or null where that is permitted. A mount of type "none" cannot succeed.
    unsafe {
        [
            call(number::MOUNT, [root, root, c"none".as_ptr() as usize, 0, 0, 0]).map(drop),
            call(number::OPEN_TREE, [int(sys::AT_FDCWD), root, 0o2_000_000, 0, 0, 0]).map(drop),
            call(number::CHROOT, [root, 0, 0, 0, 0, 0]).map(drop),
        ]
    }
}

pub(super) fn kernel_interfaces() -> [Result<()>; 5] {
    const GET_KEYRING_ID: usize = 0;
    const SESSION_KEYRING: i32 = -3;
    const USER_MODE_ONLY: usize = 1;
    const REPORT_FID: usize = 0x200;
    // SAFETY: numbers, and null where it answers EFAULT or EINVAL.
    unsafe {
        [
            call(number::KEYCTL, [GET_KEYRING_ID, int(SESSION_KEYRING), 0, 0, 0, 0]).map(drop),
            call(number::BPF, [0, 0, 0, 0, 0, 0]).map(drop),
            call(number::PERF_EVENT_OPEN, [0, 0, int(-1), int(-1), 0, 0]).map(drop),
            call(number::USERFAULTFD, [USER_MODE_ONLY, 0, 0, 0, 0, 0]).map(drop),
            call(number::FANOTIFY_INIT, [REPORT_FID, 0, 0, 0, 0, 0]).map(drop),
        ]
    }
}

/// Acts that change nothing even where they are permitted.
pub(super) fn host_controls() -> [Result<()>; 2] {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim_ascii_end();
    // SAFETY: `name` lives through the call, with its length; null pointers set neither time nor zone.
    unsafe {
        [
            call(number::SETHOSTNAME, [name.as_ptr() as usize, name.len(), 0, 0, 0, 0]).map(drop),
            call(number::SETTIMEOFDAY, [0; 6]).map(drop),
        ]
    }
}

pub(super) fn shared_memory() -> Result<()> {
    const REMOVE: usize = 0;
    // SAFETY: no pointers.
    let id = unsafe { call(number::SHMGET, [0, 4096, 0o600, 0, 0, 0]) }?;
    // SAFETY: no pointers are read by this command.
    unsafe { call(number::SHMCTL, [id, REMOVE, 0, 0, 0, 0]) }.map(drop)
}

/// No capability is held, and exec cannot add one: the bounding set is empty, or `no_new_privs` is set.
/// The capabilities that are held are those that are to be kept, and exec gives no other.
pub(super) fn capabilities(kept: u64) -> Judgement {
    match crate::boundary::capabilities::holds_exactly(kept) {
        Err(errno) => (Outcome::Untried, Some(errno)),
        Ok(true) => (Outcome::Held, None),
        Ok(false) => (Outcome::Broken, None),
    }
}
