//! What this user may do in a directory, by the kernel's own answer.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, accessat};

use super::fault::Fault;
use crate::error::SystemCall;

/// Asks whether the effective user may enter a directory, and whatever `more` says.
///
/// # Security
/// Advice, never a boundary: it only makes a session fail early and by name where every write would fail. For
/// root it counts capabilities, which commands do not have.
pub(crate) fn check_access(dir: impl AsFd, more: Access, name: &Path) -> Result<(), Fault> {
    accessat(dir, ".", Access::EXEC_OK | more, AtFlags::EACCESS)
        .map_err(|errno| Fault::Denied(SystemCall::new("faccessat2", name, errno)))
}

/// The effective user id of this process.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
