//! A system call that failed, as the innermost cause of an error.

use std::ffi::OsStr;
use std::path::PathBuf;

use rustix::io::Errno;

use super::Quoted;

/// A failed system call: which, on what, and the kernel's answer.
#[derive(Debug, thiserror::Error)]
#[error("{call}({}): {}", Quoted::new(.object), std::io::Error::from(*.errno))]
pub(crate) struct SystemCall {
    call: &'static str,
    object: PathBuf,
    errno: Errno,
}

impl SystemCall {
    /// `object` is the path that the call was given, or the path of the descriptor.
    pub(crate) fn new(call: &'static str, object: impl AsRef<OsStr>, errno: Errno) -> Self {
        Self { call, object: PathBuf::from(object.as_ref()), errno }
    }

    /// The kernel's answer.
    pub(crate) fn errno(&self) -> Errno {
        self.errno
    }
}
