//! Landlock's own answers. The `landlock` crate makes the rulesets; it hides why one could not be made.

use std::ffi::{c_int, c_long};
use std::mem::size_of;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr;

use linux_raw_sys::general::{__NR_landlock_add_rule, __NR_landlock_create_ruleset};
use rustix::io::{Errno, Result};

use super::mount::last_errno;

/// `struct landlock_ruleset_attr` up to ABI 6: rights of files, rights of ports, scopes.
type Attributes = [u64; 3];

/// The version of the interface that the kernel reports.
///
/// # Source
/// `landlock_create_ruleset(2)`, `LANDLOCK_CREATE_RULESET_VERSION`.
pub(crate) fn version() -> Result<u32> {
    const ASKS_VERSION: u32 = 1;
    create(ptr::null(), 0, ASKS_VERSION)
}

/// Whether the kernel takes a ruleset that handles these rights of files and these scopes.
pub(crate) fn takes(files: u64, scopes: u64) -> Result<()> {
    let attributes: Attributes = [files, 0, scopes];
    // What an older kernel does not know must not be handed to it, be it zero.
    let length = if scopes == 0 { size_of::<u64>() } else { size_of::<Attributes>() };
    let made = create(&raw const attributes, length, 0)?;
    // SAFETY: without flags the call returns a new descriptor, which nobody else has.
    drop(unsafe { OwnedFd::from_raw_fd(c_int::try_from(made).map_err(|_| Errno::BADF)?) });
    Ok(())
}

/// What the kernel says of a rule for no ruleset: `EBADF` where it has Landlock in force.
pub(crate) fn rule_for_nothing() -> Errno {
    // SAFETY: the descriptor is refused before the null pointer is looked at.
    let answer = unsafe {
        libc::syscall(c_long::from(__NR_landlock_add_rule), -1 as c_int, 1 as c_int, ptr::null::<u8>(), 0_u32)
    };
    if answer < 0 { last_errno() } else { Errno::IO }
}

fn create(attributes: *const Attributes, length: usize, flags: u32) -> Result<u32> {
    let call = c_long::from(__NR_landlock_create_ruleset);
    // SAFETY: the kernel reads `length` bytes of the attributes, which are there, and none of a null pointer.
    let answer = unsafe { libc::syscall(call, attributes, length, flags) };
    u32::try_from(answer).map_err(|_negative| last_errno())
}
