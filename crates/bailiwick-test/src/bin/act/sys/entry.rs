//! The C entry point. std's own would ignore `SIGPIPE` and open descriptors 0 to 2 where they are closed,
//! and then the program could not tell what it was given.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;

/// Called by the C library with the command line.
// SAFETY: no other item of this program exports the name `main`.
#[unsafe(no_mangle)]
extern "C" fn main(count: libc::c_int, arguments: *const *const libc::c_char) -> libc::c_int {
    let count = usize::try_from(count).unwrap_or(0);
    let arguments = (1..count).map(|index| {
        // SAFETY: the C library passes `count` pointers to NUL-terminated strings, which live as long as
        // the process.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) };
        OsStr::from_bytes(argument.to_bytes()).to_owned()
    });
    crate::run(arguments.collect())
}
