//! Removing what commands left behind.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::chain::{components, hold};
use super::facts::{Facts, Kind};
use super::fault::At;
use super::limits::{Budget, RemoveLimits};
use super::removal::Removal;
use crate::error::{Error, ErrorKind};
use crate::identity::{Key, ObjectId, PinnedDir};

/// Removes trees that commands could write.
///
/// Entry by entry, relative to descriptors: links are removed and never followed, FIFOs and devices removed and never
/// opened, mounts left alone and reported. Depth is no obstacle, nor is a mode that a command took away from a
/// directory of this user: it is given back through the directory's own descriptor. What cannot be removed does not
/// keep the rest.
///
/// # Security
/// A name is removed, whatever it stands for at that moment; what it was before is not compared, unless something is
/// [refused](Self::refuse). A directory that somebody moves out of the tree while it is emptied is emptied all the
/// same. Remove after the session has settled.
#[derive(Debug, Clone, Default)]
pub struct Remover {
    limits: RemoveLimits,
    protected: HashSet<Key>,
}

impl Remover {
    /// A remover with these limits, which count for each of its calls by itself.
    #[must_use]
    pub fn new(limits: RemoveLimits) -> Self {
        Self { limits, protected: HashSet::new() }
    }

    /// Leaves these objects where they are, whatever name they are met under, and reports them.
    ///
    /// # Security
    /// Each entry is looked at before it is removed. Somebody who renames at that very moment can have another one
    /// removed.
    #[must_use]
    pub fn refuse<'b>(mut self, objects: impl IntoIterator<Item = &'b ObjectId>) -> Self {
        self.protected.extend(objects.into_iter().map(ObjectId::key));
        self
    }

    /// Removes everything in a directory, and leaves the directory itself, wherever it has been moved since it was
    /// pinned. Returns how many entries were removed. Its owner gets the right to read, write and enter it, if this
    /// user is the owner and had not.
    ///
    /// # Errors
    /// `TreeNotRemoved` with the number of entries that are left (`left_count`), the first of their paths (`left`),
    /// for each of these the reason (`reasons`), and the number of those `removed`; `TreeLimit` with the same when a
    /// limit ended it.
    pub fn empty(&self, dir: &PinnedDir) -> Result<u64, Error> {
        let at = At::entry(dir.canonical(), Path::new(""));
        let facts = Facts::of(dir, at)?;
        let top = dir
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| at.call("fcntl", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let mut removal = self.removal(dir, Path::new(""));
        let outcome = removal.run(top, facts);
        removal.conclude(outcome)
    }

    /// Removes the directory of this name and everything in it, if it is the one that is meant.
    ///
    /// # Errors
    /// `TreePathInvalid` for what is not a single name, `TreeNotFound`, `TreeRefused` for what is no directory and for
    /// a mount point, `TreeChanged` when the name stands for another directory; then nothing was removed. Otherwise as
    /// [`empty`](Self::empty).
    ///
    /// # Security
    /// The name is compared with `object` before its content is removed, and again before the name itself goes. What
    /// takes the name in between is lost only if it is an empty directory.
    pub fn remove(
        &self,
        parent: &PinnedDir,
        name: impl AsRef<OsStr>,
        object: &ObjectId,
    ) -> Result<u64, Error> {
        let path = Path::new(name.as_ref());
        let at = At::entry(parent.canonical(), path);
        let names = components(parent.canonical(), path)?;
        let [single] = names.as_slice() else {
            return Err(at.invalid("no_single_name", "a path is no single name"));
        };
        let find = || {
            let held = hold(parent, *single, parent.id().mount, at)?;
            if held.facts.kind != Kind::Directory {
                return Err(at.refused(held.facts.kind));
            }
            if held.facts.id != *object {
                return Err(at.changed("replaced").text("expected", object.to_string()));
            }
            Ok(held)
        };
        let held = find()?;
        let facts = held.facts;
        let mut removal = self.removal(parent, path);
        let outcome = removal.run(held.into_fd(), facts);
        if outcome.is_ok() && removal.is_complete() {
            let gone = find().and_then(|_still_it| {
                unlinkat(parent, *single, AtFlags::REMOVEDIR).map_err(|errno| at.call("unlinkat", errno))
            });
            match gone {
                Ok(()) => removal.count(),
                Err(error) if error.kind() == ErrorKind::TreeNotFound => {}
                Err(error) => removal.leave(path, error),
            }
        }
        removal.conclude(outcome)
    }

    fn removal<'r>(&'r self, dir: &'r PinnedDir, prefix: &'r Path) -> Removal<'r> {
        Removal::new(
            dir,
            prefix,
            &self.protected,
            Budget::new(self.limits.entries, self.limits.time),
            self.limits.depth,
        )
    }
}

/// A name as the calls that remove take it.
pub(super) fn as_path(name: &CString) -> &Path {
    Path::new(OsStr::from_bytes(name.as_bytes()))
}
