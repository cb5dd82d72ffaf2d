//! `execvp`, which std would not do naively: it resets the signal mask and `SIGPIPE` first.

#![expect(unsafe_code, reason = "std has no exec that leaves signals as they are")]

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// Replaces this process by `command`. Returns only the reason why it could not.
pub(crate) fn execute(command: &[OsString]) -> io::Error {
    let arguments: Result<Vec<CString>, _> =
        command.iter().map(|argument| CString::new(argument.clone().into_vec())).collect();
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return error.into(),
    };
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    if arguments.is_empty() {
        return io::ErrorKind::InvalidInput.into();
    }
    // SAFETY: `pointers` holds at least one pointer to a NUL-terminated string that `arguments` keeps alive,
    // and ends in a null pointer.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    io::Error::last_os_error()
}
