//! System calls that have no wrapper, to see whether this kernel has them.

#![expect(unsafe_code, reason = "asks the kernel for calls that it may lack")]

use std::io;

/// Whether the kernel knows `statmount`: what is wrong with an empty request is not that there is no such call.
pub(crate) fn has_statmount() -> bool {
    const STATMOUNT: libc::c_long = 457;
    // SAFETY: the kernel looks at null pointers and finds that they lead nowhere.
    let answer = unsafe { libc::syscall(STATMOUNT, 0, 0, 0, 0) };
    answer != -1 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Whether the kernel tells file handles that only identify (`AT_HANDLE_FID`).
pub(crate) fn has_identifying_handles() -> bool {
    const HANDLE_FID: libc::c_int = 0x200;
    let mut mount = 0;
    // An empty handle: it is too small (EOVERFLOW), or the flag is unknown (EINVAL).
    let mut handle = [0_u32; 2];
    // SAFETY: a path that ends in NUL, a handle that claims to have no room, and an int; all live through the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            c"/m".as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            HANDLE_FID,
        )
    };
    answer != -1 || io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
}
