//! The names in a directory.

use std::ffi::{CString, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::RawDir;
use rustix::io::Errno;

use super::facts::Facts;
use super::fault::At;
use super::limits::Budget;
use crate::error::Error;

/// One entry of a listing.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listed {
    /// Its name, byte for byte.
    pub name: OsString,
    /// What it is, or why that cannot be told: `TreeRefused` for a mount point and for a protected object,
    /// `TreeChanged` when it was removed since the directory was listed, `TreeNotAccessible`.
    pub found: Result<Facts, Error>,
}

/// Room for what one `getdents64` returns.
const ROOM: usize = 32 * 1024;

/// Calls back for each name in a directory, from its beginning, `.` and `..` left out. Ends when `each` answers false.
pub(super) fn for_each_name(
    opened: &OwnedFd,
    mut each: impl FnMut(&std::ffi::CStr) -> bool,
) -> Result<(), Errno> {
    let mut room = vec![MaybeUninit::uninit(); ROOM];
    let mut entries = RawDir::new(opened, &mut room);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Ok(entry) => {
                if !each(entry.file_name()) {
                    return Ok(());
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The names in a directory, sorted by their bytes, and the directory as it was while they were read.
///
/// The kernel lists a directory in pieces: a name that moves meanwhile may be given twice or not at all. So one that
/// changed between beginning and end is an error.
pub(super) fn names(dir: impl AsFd, budget: &mut Budget, at: At<'_>) -> Result<(Vec<CString>, Facts), Error> {
    let opened = super::chain::open_directory(&dir).map_err(|errno| at.call("openat2", errno))?;
    let before = Facts::of(&opened, at)?;
    let mut names = Vec::new();
    let mut over = None;
    for_each_name(&opened, |name| {
        over = budget.entry(at).err();
        names.push(name.to_owned());
        over.is_none()
    })
    .map_err(|errno| at.call("getdents64", errno))?;
    if let Some(error) = over {
        return Err(error);
    }
    unchanged(&opened, &before, at)?;
    names.sort_unstable();
    Ok((names, before))
}

/// Refuses a directory in which names were made or removed since it was looked at.
pub(super) fn unchanged(dir: impl AsFd, before: &Facts, at: At<'_>) -> Result<(), Error> {
    let now = Facts::of(dir, at)?;
    if now.links == 0 {
        return Err(at.changed("removed"));
    }
    match before.difference(&now) {
        None => Ok(()),
        Some(_) => Err(at.changed("modified")),
    }
}
