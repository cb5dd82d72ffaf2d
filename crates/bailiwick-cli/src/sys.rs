//! The only `unsafe` of the crate: a descriptor that is known by its number alone, and the one question to Landlock
//! that no crate passes on.
#![expect(unsafe_code, reason = "inherited descriptors have no owner, and libc has no wrapper for Landlock")]

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// An inherited descriptor, duplicated, and how it was opened.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) descriptor: OwnedFd,
    pub(crate) flags: OFlags,
}

/// Duplicates a descriptor that this process was started with, and sees to it that no program started from here
/// inherits either of the two.
///
/// # Errors
/// `EBADF` when nothing is open under that number.
///
/// # Panics
/// If `number` is -1.
pub(crate) fn inherited(number: RawFd) -> Result<Inherited, Errno> {
    // SAFETY: it is used for the three calls below and not kept. Nothing closes a descriptor meanwhile: this is
    // called while the program has one thread. For a number that is not open the kernel answers EBADF.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(given, FdFlags::CLOEXEC)?;
    let flags = fcntl_getfl(given)?;
    // Above the standard ones, whatever is closed there.
    Ok(Inherited { descriptor: fcntl_dupfd_cloexec(given, 3)?, flags })
}

/// The version of the kernel's Landlock interface.
///
/// # Errors
/// `ENOSYS` where the kernel was built without it, `EOPNOTSUPP` where it was not enabled at boot; a container's
/// filter may answer something else.
///
/// # Source
/// `landlock_create_ruleset(2)`: with `LANDLOCK_CREATE_RULESET_VERSION` (1) no attributes are read.
pub(crate) fn landlock_abi() -> Result<i64, Errno> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel requires a null pointer and a size of zero, and touches no memory.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION)
    };
    if answer < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS))
    } else {
        Ok(answer)
    }
}
