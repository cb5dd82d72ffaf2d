//! The inventory of one protected name that is a file, or may become one.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::super::pinned::PinnedDir;
use super::super::resolve::{Want, open_entry};
use super::fault::InventoryFault;
use super::glance::Glance;
use super::inventory::sort;
use super::linked::{Freshness, LinkedFile, is_young};

/// A protected file: the object that was at the name when it was pinned, and whatever is there now.
///
/// Both count, because an ordinary save gives the name to a new file while the old one may live on under another.
/// Nothing need be there: the journal of a database comes and goes. Holds two descriptors.
#[derive(Debug)]
pub(crate) struct FileInventory {
    dir: OwnedFd,
    name: CString,
    path: PathBuf,
    pinned: Option<OwnedFd>,
    is_symlink: bool,
    /// Whether a ctime was too young at the last look to tell the next change.
    is_young: bool,
    linked: Vec<LinkedFile>,
}

impl FileInventory {
    /// Pins what `name` names in a directory, without following a link, and looks at it.
    ///
    /// # Errors
    /// [`InventoryFault::Directory`] if it is a directory; else an answer of the kernel.
    pub(crate) fn take(dir: &PinnedDir, name: &Path) -> Result<Self, InventoryFault> {
        let path = dir.canonical().join(name);
        let failed = |call, errno| sort(call, errno, &path);
        let held = dir
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| failed("fcntl", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let pinned = match open_entry(&held, name, Want::Anything) {
            Ok(fd) => Some(fd),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed("openat2", errno)),
        };
        let Ok(name) = CString::new(name.as_os_str().as_bytes()) else {
            return Err(failed("openat2", Errno::INVAL));
        };
        let mut inventory =
            Self { dir: held, name, path, pinned, is_symlink: false, is_young: false, linked: Vec::new() };
        inventory.refresh()?;
        Ok(inventory)
    }

    /// Looks again: three `statx`.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub(crate) fn refresh(&mut self) -> Result<Freshness, InventoryFault> {
        let failed = |errno| sort("statx", errno, &self.path);
        let at_name = match Glance::entry(&self.dir, &self.name) {
            Ok(glance) if glance.kind == FileType::Directory => {
                return Err(InventoryFault::Directory { path: self.path.clone() });
            }
            Ok(glance) => Some(glance),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        let home = Glance::at(&self.dir).map_err(failed)?.mount;
        let pinned = match &self.pinned {
            Some(fd) => Some(Glance::at(fd).map_err(failed)?),
            None => None,
        };
        let now = SystemTime::now();
        let was_symlink = std::mem::replace(
            &mut self.is_symlink,
            at_name.is_some_and(|glance| glance.kind == FileType::Symlink),
        );
        // A name of the object at the protected name is not outside; a name of one that left it is.
        let mut files = Vec::new();
        if let Some(glance) = at_name.filter(|glance| glance.kind != FileType::Symlink && glance.links > 1) {
            files.push(self.linked_file(&glance, u32::from(glance.mount == home)));
        }
        let is_elsewhere = |pinned: &Glance| {
            pinned.kind != FileType::Symlink
                && pinned.links > 0
                && at_name.is_none_or(|glance| glance.key != pinned.key)
        };
        if let Some(glance) = pinned.filter(is_elsewhere) {
            files.push(self.linked_file(&glance, 0));
        }
        let is_young = files.iter().any(|file| is_young(file.changed, now));
        let fresh = Freshness {
            links: self.is_young || files != self.linked,
            symlinks: self.is_symlink != was_symlink,
            unlisted: false,
        };
        (self.linked, self.is_young) = (files, is_young);
        Ok(fresh)
    }

    fn linked_file(&self, glance: &Glance, inside: u32) -> LinkedFile {
        let (key, links, changed) = (glance.key, glance.links, glance.changed);
        LinkedFile { path: self.path.clone(), key, links, changed, inside, target: glance.target() }
    }

    #[cfg(test)]
    /// The file at the name if it has more than one link, and the file that was pinned if it is elsewhere now.
    pub(crate) fn linked(&self) -> impl Iterator<Item = &LinkedFile> {
        self.linked.iter()
    }

    /// Those of them with a name that is not the protected one. If there is none, no scan is needed.
    pub(crate) fn links_outside(&self) -> impl Iterator<Item = &LinkedFile> {
        self.linked.iter().filter(|file| file.has_name_outside())
    }

    /// Whether a symbolic link is at the name.
    #[cfg(test)]
    pub(crate) fn is_symlink(&self) -> bool {
        self.is_symlink
    }
}
