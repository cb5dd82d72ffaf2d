//! Where a store is, or would be.

use std::path::{Path, PathBuf};

use super::directory::StoreDir;
use crate::error::{Error, ErrorKind};
use crate::identity::{Fault, Missing, Pin, PinnedDir, PinnedName, Role};
use crate::policy::path_fault;

#[derive(Debug)]
pub(super) enum Found {
    Existing(PinnedDir),
    Absent(PinnedName),
}

/// Where a store is, or would be, pinned without making anything.
///
/// A session compares its write roots with this before it makes the store, so that a refused policy leaves
/// nothing behind.
#[derive(Debug)]
pub struct StorePlace {
    given: PathBuf,
    found: Found,
}

impl StorePlace {
    /// Looks at the path of a store. The directory that holds it must exist.
    ///
    /// # Errors
    /// `StoreInvalid` for a path that is not absolute, passes through a link of the kernel, or names something
    /// else than a directory; `StoreNotAccessible` when it cannot be reached.
    pub fn find(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (path, role) = (path.as_ref(), Role::Store);
        if let Some(fault) = path_fault(path) {
            return Err(role.error(ErrorKind::StoreInvalid, fault.text(), path).hint(fault.hint()));
        }
        let missing = match PinnedDir::open(path) {
            Ok(dir) => return Ok(Self { given: path.into(), found: Found::Existing(dir) }),
            Err(fault @ Fault::NotFound { .. }) => fault,
            Err(fault) => return Err(role.fault(fault, path)),
        };
        // A link to nothing is not followed: making its target would put the store where nobody named it.
        let (Fault::NotFound { missing: Missing::Part, .. }, Some(parent), Some(entry)) =
            (&missing, path.parent(), path.file_name())
        else {
            return Err(role.fault(missing, path));
        };
        let dir = PinnedDir::open(parent).map_err(|fault| {
            role.error(ErrorKind::StoreNotAccessible, "has no directory to be made in", path)
                .path("parent", parent)
                .hint("make the directory above it first")
                .source(role.fault(fault, parent))
        })?;
        Ok(Self { given: path.into(), found: Found::Absent(PinnedName::new(dir, entry, path)) })
    }

    /// The path as the caller wrote it.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// Whether a directory is there already.
    #[must_use]
    pub fn exists(&self) -> bool {
        matches!(self.found, Found::Existing(_))
    }

    /// Makes the directory where it is absent, checks that it is private, and takes its lock.
    ///
    /// # Errors
    /// As for [`StoreDir::open_or_create`].
    pub fn open(self) -> Result<StoreDir, Error> {
        StoreDir::at(self.given, self.found)
    }

    pub(crate) fn pin(&self) -> Result<Pin, Fault> {
        Ok(match &self.found {
            Found::Existing(dir) => Pin::Directory(dir.duplicate()?),
            Found::Absent(name) => Pin::Unseen(name.duplicate()?),
        })
    }
}
