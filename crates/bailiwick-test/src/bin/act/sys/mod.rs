//! Raw system calls, for what std and rustix do not offer or offer with precautions. The only `unsafe` of
//! this program.
//!
//! Errors are error numbers of the kernel.

#![expect(unsafe_code, reason = "a probe of the kernel has to speak to it directly")]

pub(crate) mod connections;
pub(crate) mod descriptors;
mod entry;
pub(crate) mod files;
mod foreign;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod processes;
mod uring;

use rustix::io::Errno;

use crate::Act;

/// The acts that consist of one unusual entry into the kernel.
pub(crate) const ACTS: &[Act] = &[
    ("io-uring-setup", "", |_| Ok(uring::Ring::new()?).and_then(crate::answer::done)),
    ("io-uring-socket", "", |_| Ok(uring::Ring::new()?.socket()?).and_then(crate::answer::done)),
    ("io-uring-open", "PATH", |a| {
        let file = uring::Ring::new()?.open_for_appending(&a.path()?)?;
        rustix::io::write(&file, b"act")?;
        crate::answer::done(())
    }),
    ("io-uring-setxattr", "PATH", |a| {
        Ok(uring::Ring::new()?.set_attribute(&a.path()?)?).and_then(crate::answer::done)
    }),
    ("int80", "", |_| foreign::compatible_getpid()),
    ("int80-socket", "", |_| foreign::compatible_socket()),
    ("x32-getpid", "", |_| foreign::x32_getpid()),
];

/// The result of a call of libc, which reports -1 and `errno`.
fn check(result: impl Into<i64>) -> Result<i64, Errno> {
    match result.into() {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        value => Ok(value),
    }
}

/// The descriptor that a call returned, now owned.
///
/// # Safety
///
/// `result` must come from a call that returns a new descriptor or -1.
unsafe fn owned(result: impl Into<i64>) -> Result<std::os::fd::OwnedFd, Errno> {
    use std::os::fd::FromRawFd as _;
    let number = i32::try_from(check(result)?).map_err(|_| Errno::BADF)?;
    // SAFETY: the caller says that the call made this descriptor, so nobody else owns it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) })
}

/// Any system call, by number. Whoever runs this program with it chose the call: a wrong one harms this
/// process at most.
pub(crate) fn any_call(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> Result<i64, Errno> {
    // SAFETY: addresses among the arguments belong to memory that is never freed (`calls.rs`).
    check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}
