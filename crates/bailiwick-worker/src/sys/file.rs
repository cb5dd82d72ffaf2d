//! Files, directories and descriptors.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};

use super::{Errno, Result, call, int, number, retry};

pub(crate) const O_WRONLY: i32 = 1;
pub(crate) const O_RDWR: i32 = 2;
pub(crate) const O_CREAT: i32 = 0o100;
pub(crate) const O_EXCL: i32 = 0o200;
pub(crate) const O_NOCTTY: i32 = 0o400;
pub(crate) const O_NONBLOCK: i32 = 0o4000;
pub(crate) const O_DIRECTORY: i32 = 0o200_000;
/// With `O_DIRECTORY`, which the kernel demands in it.
pub(crate) const O_TMPFILE: i32 = 0o20_200_000;
pub(crate) const O_NOFOLLOW: i32 = 0o400_000;
pub(crate) const O_CLOEXEC: i32 = 0o2_000_000;
pub(crate) const O_PATH: i32 = 0o10_000_000;
pub(crate) const RESOLVE_NO_XDEV: u64 = 1;
pub(crate) const RESOLVE_NO_MAGICLINKS: u64 = 2;
pub(crate) const RESOLVE_NO_SYMLINKS: u64 = 4;
pub(crate) const RESOLVE_BENEATH: u64 = 8;
pub(crate) const AT_REMOVEDIR: i32 = 0x200;
pub(crate) const AT_FDCWD: RawFd = -100;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_GETFD: usize = 1;
const MFD_CLOEXEC: usize = 1;

/// Takes over a descriptor that the kernel returned from a call.
pub(crate) fn owned(fd: usize) -> Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: only the wrappers of this module call this, with a descriptor just made for them.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes over one of the descriptors that the program was started with.
///
/// # Safety
/// `fd` must be open, and nothing else may own it.
pub(crate) unsafe fn inherited(fd: RawFd) -> OwnedFd {
    // SAFETY: as this function's own contract.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// `openat(2)`, close-on-exec. `directory` is a descriptor or [`AT_FDCWD`].
pub(crate) fn open_at(directory: RawFd, name: &CStr, flags: i32, mode: u32) -> Result<OwnedFd> {
    let fd = retry(|| {
        // SAFETY: `name` is a C string.
        unsafe {
            call(
                number::OPENAT,
                [int(directory), name.as_ptr() as usize, int(flags | O_CLOEXEC), mode as usize, 0, 0],
            )
        }
    })?;
    owned(fd)
}

/// `openat2(2)`, close-on-exec: what lies beneath `directory`, no link followed and no mount crossed.
///
/// # Errors
/// `EXDEV` for a mount point, a bind mount of the same file system included. `ENOSYS` before Linux 5.6; there
/// is no fallback.
pub(crate) fn open_beneath(directory: RawFd, name: &CStr, flags: i32) -> Result<OwnedFd> {
    let resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    // struct open_how: flags, mode, resolve.
    let how = [int(flags | O_CLOEXEC) as u64, 0, resolve];
    let fd = retry(|| {
        // SAFETY: `name` is a C string, and `how` has the size that is given.
        unsafe {
            call(
                number::OPENAT2,
                [int(directory), name.as_ptr() as usize, how.as_ptr() as usize, size_of_val(&how), 0, 0],
            )
        }
    })?;
    owned(fd)
}

fn named(number: std::ffi::c_long, directory: RawFd, name: &CStr, c: usize, d: usize) -> Result<()> {
    // SAFETY: `name` is a C string; the remaining arguments are numbers.
    unsafe { call(number, [int(directory), name.as_ptr() as usize, c, d, 0, 0]) }.map(drop)
}

/// Whether the effective user may enter and write a directory, by owner and mode (`faccessat2(2)`).
pub(crate) fn may_write(path: &CStr) -> Result<()> {
    const WRITE_AND_ENTER: usize = 3;
    const AT_EACCESS: usize = 0x200;
    named(number::FACCESSAT2, AT_FDCWD, path, WRITE_AND_ENTER, AT_EACCESS)
}

/// `mkdirat(2)`.
pub(crate) fn mkdir_at(directory: RawFd, name: &CStr, mode: u32) -> Result<()> {
    named(number::MKDIRAT, directory, name, mode as usize, 0)
}

/// `mknodat(2)`; the device is the null device.
pub(crate) fn mknod_at(directory: RawFd, name: &CStr, mode: u32) -> Result<()> {
    named(number::MKNODAT, directory, name, mode as usize, 0x103)
}

/// `unlinkat(2)`.
pub(crate) fn unlink_at(directory: RawFd, name: &CStr, flags: i32) -> Result<()> {
    named(number::UNLINKAT, directory, name, int(flags), 0)
}

/// `fchmodat(2)`. Follows a symlink in the last component.
pub(crate) fn chmod_at(directory: RawFd, name: &CStr, mode: u32) -> Result<()> {
    named(number::FCHMODAT, directory, name, mode as usize, 0)
}

/// Sets the times of a file to now (`utimensat(2)`).
pub(crate) fn set_times(directory: RawFd, name: &CStr) -> Result<()> {
    named(number::UTIMENSAT, directory, name, 0, 0)
}

/// Sets owner and group of a file to what they are (`fchownat(2)` with -1).
pub(crate) fn keep_owner(directory: RawFd, name: &CStr) -> Result<()> {
    named(number::FCHOWNAT, directory, name, int(-1), int(-1))
}

/// Sets an extended attribute of a file in a directory (`setxattr(2)`), from which it is reached.
pub(crate) fn set_attribute(directory: RawFd, name: &CStr) -> Result<()> {
    fchdir(directory)?;
    // SAFETY: C strings; a value without bytes.
    let tried = unsafe {
        call(number::SETXATTR, [name.as_ptr() as usize, c"user.probe".as_ptr() as usize, 0, 0, 0, 0])
    };
    let root = open_at(AT_FDCWD, c"/", O_DIRECTORY, 0)?;
    fchdir(root.as_raw_fd())?;
    tried.map(drop)
}

/// `renameat(2)`.
pub(crate) fn rename_at(from: RawFd, name: &CStr, to: RawFd, new: &CStr) -> Result<()> {
    // SAFETY: both names are C strings.
    unsafe {
        call(number::RENAMEAT, [int(from), name.as_ptr() as usize, int(to), new.as_ptr() as usize, 0, 0])
    }
    .map(drop)
}

/// `linkat(2)` without following.
pub(crate) fn link_at(from: RawFd, name: &CStr, to: RawFd, new: &CStr) -> Result<()> {
    // SAFETY: both names are C strings.
    unsafe { call(number::LINKAT, [int(from), name.as_ptr() as usize, int(to), new.as_ptr() as usize, 0, 0]) }
        .map(drop)
}

/// `truncate(2)`, relative to the working directory.
pub(crate) fn truncate(name: &CStr, length: usize) -> Result<()> {
    // SAFETY: `name` is a C string.
    unsafe { call(number::TRUNCATE, [name.as_ptr() as usize, length, 0, 0, 0, 0]) }.map(drop)
}

/// `fchdir(2)`.
pub(crate) fn fchdir(directory: RawFd) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::FCHDIR, [int(directory), 0, 0, 0, 0, 0]) }.map(drop)
}

/// `fchmod(2)`.
pub(crate) fn fchmod(fd: RawFd, mode: u32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::FCHMOD, [int(fd), mode as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `ioctl(2)` with a null argument.
pub(crate) fn ioctl_null(fd: RawFd, request: usize) -> Result<()> {
    // SAFETY: a null argument; requests that dereference it answer EFAULT.
    unsafe { call(number::IOCTL, [int(fd), request, 0, 0, 0, 0]) }.map(drop)
}

/// `ioctl(2)` for `TCGETS`, with room for its answer.
pub(crate) fn terminal_settings(fd: RawFd) -> Result<()> {
    let mut room = [0_u8; 256];
    // SAFETY: `struct termios` is 60 bytes, and the room is larger.
    unsafe { call(number::IOCTL, [int(fd), 0x5401, room.as_mut_ptr() as usize, 0, 0, 0]) }.map(drop)
}

/// A copy of `fd` at or above `lowest`, close-on-exec.
pub(crate) fn duplicate_above(fd: RawFd, lowest: usize) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { call(number::FCNTL, [int(fd), F_DUPFD_CLOEXEC, lowest, 0, 0, 0]) }?)
}

/// Whether the descriptor number is open.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { call(number::FCNTL, [int(fd), F_GETFD, 0, 0, 0, 0]) }.is_ok()
}

/// Makes `target` a copy of `fd`; `target` loses close-on-exec unless they are the same number.
///
/// # Safety
/// Nothing may own `target`, or whoever does must expect the change.
pub(crate) unsafe fn replace_descriptor(fd: RawFd, target: RawFd, keep_on_exec: bool) -> Result<()> {
    let flags = if keep_on_exec { 0 } else { int(O_CLOEXEC) };
    // SAFETY: no pointers; ownership as this function's own contract.
    unsafe { call(number::DUP3, [int(fd), int(target), flags, 0, 0, 0]) }.map(drop)
}

/// Closes every descriptor from `first` to `last`.
///
/// # Safety
/// No owner of a descriptor in that range may use or close it afterwards.
///
/// # Errors
/// `ENOSYS` before Linux 5.9; there is no fallback, the caller refuses.
pub(crate) unsafe fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: no pointers; ownership as this function's own contract.
    unsafe { call(number::CLOSE_RANGE, [first as usize, last as usize, 0, 0, 0, 0]) }.map(drop)
}

/// An anonymous file for a long message.
pub(crate) fn memfd(name: &CStr) -> Result<std::fs::File> {
    // SAFETY: `name` is a C string.
    let fd = unsafe { call(number::MEMFD_CREATE, [name.as_ptr() as usize, MFD_CLOEXEC, 0, 0, 0, 0]) }?;
    Ok(owned(fd)?.into())
}

/// Names in a directory, except `.`, `..` and those in `known`, from its beginning: at least `enough`, or all.
pub(crate) fn names(directory: &OwnedFd, enough: usize, known: &BTreeSet<CString>) -> Result<Vec<CString>> {
    let mut names = Vec::new();
    // The descriptor keeps its place between calls.
    // SAFETY: no pointers.
    unsafe { call(number::LSEEK, [int(directory.as_raw_fd()), 0, 0, 0, 0, 0]) }?;
    let mut room = vec![0_u8; 32 * 1024];
    loop {
        // SAFETY: `room` is writable for the length given.
        let filled = unsafe {
            call(
                number::GETDENTS64,
                [int(directory.as_raw_fd()), room.as_mut_ptr() as usize, room.len(), 0, 0, 0],
            )
        }?;
        if filled == 0 || names.len() >= enough {
            return Ok(names);
        }
        let mut rest = room.get(..filled).ok_or(Errno::PROTO)?;
        // struct linux_dirent64: inode 8, offset 8, length 2, type 1, then the name and its NUL.
        while let Some(length) = rest.get(16..18) {
            let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
            let (entry, tail) = rest.split_at_checked(length).ok_or(Errno::PROTO)?;
            let name = entry.get(19..).and_then(|name| CStr::from_bytes_until_nul(name).ok());
            let name = name.ok_or(Errno::PROTO)?;
            if name != c"." && name != c".." && !known.contains(name) {
                names.push(name.to_owned());
            }
            rest = tail;
        }
    }
}
