//! Entries that a scan by file handles or birth times looks at more closely.

use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::super::fault::Fault;
use super::super::mount::handle;
use super::super::object::Look;
use super::fault::ScanStop;
use super::glance::Glance;
use super::walker::{Walker, sort};
use crate::error::SystemCall;

/// What the kernel calls the directories that it makes, with mode 000, in the work directory of an overlay.
///
/// # Source
/// `OVL_WORKDIR_NAME` and `OVL_INDEXDIR_NAME` of `fs/overlayfs/overlayfs.h`, `ovl_workdir_create`.
pub(in super::super) const WORK_NAMES: [&[u8]; 2] = [b"work", b"index"];

impl Walker<'_> {
    /// Looks at a directory as far as its numbers do not tell.
    pub(super) fn check_directory(&self, dir: &OwnedFd, name: &CStr) -> Result<(), ScanStop> {
        let Some(births) = self.shared.targets.births() else { return self.check_work_directory(dir, name) };
        let Some((path, look)) = self.look_at(dir, name)? else { return Ok(()) };
        let Some(born) = look.id.born else { return Err(sort("statx", Errno::OPNOTSUPP, path)) };
        if births.contains(&born) || is_work_directory(name, &look) {
            self.shared.add_name(look.id.key(), path);
        }
        Ok(())
    }

    /// Enters a directory that has the form of an overlay's work directory.
    pub(super) fn check_work_directory(&self, dir: &OwnedFd, name: &CStr) -> Result<(), ScanStop> {
        if !self.shared.targets.has_directories() || !WORK_NAMES.contains(&name.to_bytes()) {
            return Ok(());
        }
        match self.look_at(dir, name)? {
            Some((path, look)) if is_work_directory(name, &look) => {
                self.shared.add_name(look.id.key(), path);
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at(&self, dir: &OwnedFd, name: &CStr) -> Result<Option<(PathBuf, Look)>, ScanStop> {
        let path = self.path_of(Some(name));
        match Look::entry(dir, Path::new(OsStr::from_bytes(name.to_bytes())), &path) {
            Ok(look) => Ok(Some((path, look))),
            Err(Fault::NotFound { .. }) => Ok(None),
            Err(fault) => {
                let errno = fault.cause().map_or(Errno::IO, SystemCall::errno);
                Err(sort("statx", errno, path))
            }
        }
    }

    /// Proves by its file handle what the number of an entry says: other file systems, and other subvolumes, have
    /// objects with the same number.
    pub(super) fn confirm_handle(&self, dir: &OwnedFd, name: &CStr) -> Result<(), ScanStop> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::BENEATH;
        let object = match rustix::io::retry_on_intr(|| openat2(dir, name, flags, Mode::empty(), resolve)) {
            Ok(object) => object,
            // Covered by a mount, so it cannot be reached.
            Err(Errno::XDEV) => return Ok(()),
            Err(Errno::NOENT) => return Err(ScanStop::Changed { path: self.path_of(Some(name)) }),
            Err(errno) => return Err(sort("openat2", errno, self.path_of(Some(name)))),
        };
        let path = self.path_of(Some(name));
        let handle = match handle(&object, &path) {
            Ok(Some(handle)) => handle,
            Ok(None) => return Err(sort("name_to_handle_at", Errno::OPNOTSUPP, path)),
            Err(fault) => {
                let errno = fault.cause().map_or(Errno::IO, SystemCall::errno);
                return Err(sort("name_to_handle_at", errno, path));
            }
        };
        if self.shared.targets.has_handle(&handle) {
            let glance = Glance::at(&object).map_err(|errno| sort("statx", errno, path.clone()))?;
            self.shared.add_name(glance.key, path);
        }
        Ok(())
    }
}

/// Whether a directory has the form of one that the kernel makes in the work directory of an overlay.
fn is_work_directory(name: &CStr, look: &Look) -> bool {
    look.file_type == FileType::Directory && look.mode == 0 && WORK_NAMES.contains(&name.to_bytes())
}
