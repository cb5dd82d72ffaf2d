//! Reading files and listing directories.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use super::chain::{Held, beginning, components, hold, open_file};
use super::facts::{Facts, Kind};
use super::fault::At;
use super::limits::{Budget, Bytes, Limits};
use super::list::{Listed, names};
use super::walk::{Step, Visit};
use crate::error::{Error, ErrorKind};
use crate::identity::{Fault, Key, ObjectId, PinnedDir, Role};

/// Bytes asked for at a time.
const CHUNK: usize = 256 * 1024;

/// A file that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// What it was, the same before and after the bytes were read.
    pub facts: Facts,
}

/// Reads what lies below one pinned directory, within limits that count over all its calls.
///
/// Its errors tell absence (`TreeNotFound`: the directories above were looked at, and nothing is there) from what
/// somebody put there (`TreeRefused`) or did meanwhile (`TreeChanged`), from a limit (`TreeLimit`), and from what this
/// user may not read (`TreeNotAccessible`). Each has the fields `tree`, `path` and `component`, and all but the last
/// two kinds a `fact`: `symbolic_link`, `special_file`, `not_a_directory`, `not_a_file`, `mount_point`, `protected`;
/// `replaced`, `removed`, `grew`, `shrank`, `modified`, `moved`.
///
/// # Security
/// See [the module](super): no link is followed, no mount crossed, nothing but regular files and directories opened.
#[derive(Debug)]
pub struct Reader<'a> {
    pub(super) dir: &'a PinnedDir,
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    bytes: Bytes,
    protected: HashSet<Key>,
}

impl<'a> Reader<'a> {
    /// A reader of a directory; its time begins now.
    ///
    /// # Errors
    /// `TreeChanged` when the directory is no longer at the path at which it was pinned, or something is mounted over
    /// it: what lies there would be taken for what was there. `TreeNotAccessible` when that cannot be told.
    pub fn new(dir: &'a PinnedDir, limits: Limits) -> Result<Self, Error> {
        let at = At::entry(dir.canonical(), Path::new(""));
        dir.check_name().map_err(|fault| match fault {
            Fault::Gone | Fault::Changed { .. } => at.changed("moved"),
            fault => Role::Tree.fault(fault, dir.given()),
        })?;
        Ok(Self {
            dir,
            limits,
            budget: Budget::new(limits.entries, limits.time),
            bytes: Bytes::new(&limits),
            protected: HashSet::new(),
        })
    }

    /// Refuses these objects under whatever name they are met: other names of a file that must not be collected.
    ///
    /// Compared are device and inode, so each object must be held open or otherwise exist while the reader is used.
    #[must_use]
    pub fn refuse<'b>(mut self, objects: impl IntoIterator<Item = &'b ObjectId>) -> Self {
        self.protected.extend(objects.into_iter().map(ObjectId::key));
        self
    }

    /// Looks at an entry without opening it. A symbolic link is looked at itself; the empty path is the directory.
    ///
    /// # Errors
    /// `TreePathInvalid`, `TreeNotFound`, `TreeRefused`, `TreeChanged`, `TreeLimit`, `TreeNotAccessible`.
    pub fn look(&mut self, path: impl AsRef<Path>) -> Result<Facts, Error> {
        let path = path.as_ref();
        match self.reach(path)? {
            Some(held) => Ok(held.facts),
            None => Facts::of(self.dir, self.at(path)),
        }
    }

    /// Reads one file.
    ///
    /// # Errors
    /// As [`look`](Self::look); `TreeRefused` for anything but a regular file, and `TreeChanged` for one that was
    /// written meanwhile or gives more or fewer bytes than its size, as the files of `/proc` do.
    pub fn read(&mut self, path: impl AsRef<Path>) -> Result<Content, Error> {
        let mut bytes = Vec::new();
        let facts = self.copy(path, &mut bytes)?;
        Ok(Content { bytes, facts })
    }

    /// Reads one file into a writer, a piece at a time.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `Io` when the writer fails. After an error the writer may hold a part of the file:
    /// throw it away.
    pub fn copy(&mut self, path: impl AsRef<Path>, to: &mut impl Write) -> Result<Facts, Error> {
        let path = path.as_ref();
        match self.reach(path)? {
            Some(held) => self.copy_held(&held, path, to),
            None => Err(self.at(path).refused(Kind::Directory)),
        }
    }

    /// Lists a directory, sorted by the bytes of the names. The empty path lists the pinned directory itself.
    ///
    /// # Errors
    /// As [`look`](Self::look); `TreeChanged` also when names were made or removed while it was listed. What cannot be
    /// told of one entry stands in its place.
    pub fn list(&mut self, path: impl AsRef<Path>) -> Result<Vec<Listed>, Error> {
        let path = path.as_ref();
        let held = self.reach(path)?;
        let dir = self.directory(held.as_ref(), path)?;
        let (names, before) = names(dir, &mut self.budget, At::entry(self.dir.canonical(), path))?;
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            let name = OsString::from_vec(name.into_bytes());
            let found = self.enter(dir, &name, &path.join(&name));
            listed.push(Listed { name, found: found.map(|held| held.facts) });
        }
        super::list::unchanged(dir, &before, self.at(path))?;
        Ok(listed)
    }

    /// Visits everything below a directory, each directory before what is in it, names in the order of their bytes.
    /// The empty path walks the pinned directory itself. The directory that is named is not visited.
    ///
    /// Nothing is left out in silence: what cannot be read is visited with its error. A directory that cannot be
    /// listed, or in which names were made or removed before all of them had been visited, is visited once more, with
    /// that error.
    ///
    /// # Errors
    /// As [`list`](Self::list) for the directory that is named. `TreeLimit` ends the walk, as does what `visit` returns.
    pub fn walk<E: From<Error>>(
        &mut self,
        path: impl AsRef<Path>,
        visit: impl FnMut(&mut Visit<'_, 'a>) -> Result<Step, E>,
    ) -> Result<(), E> {
        super::walk::walk(self, path.as_ref(), visit)
    }

    pub(super) fn at<'p>(&self, path: &'p Path) -> At<'p>
    where
        'a: 'p,
    {
        At::entry(self.dir.canonical(), path)
    }

    /// Follows a path, one name at a time. Nothing for the empty path.
    pub(super) fn reach(&mut self, path: &Path) -> Result<Option<Held>, Error> {
        let tree = self.dir.canonical();
        let names = components(tree, path)?;
        if names.len() > self.limits.depth {
            return Err(self.at(path).limit("depth", self.limits.depth));
        }
        let mut held: Option<Held> = None;
        for (index, name) in names.iter().enumerate() {
            let component = beginning(&names, index + 1);
            let at = At { tree, path, component: &component };
            self.budget.entry(at)?;
            let next = match &held {
                Some(above) => hold(above, *name, self.dir.id().mount, at)?,
                None => hold(self.dir, *name, self.dir.id().mount, at)?,
            };
            self.check_protected(&next.facts, at)?;
            if index + 1 < names.len() && next.facts.kind != Kind::Directory {
                return Err(at.refused(next.facts.kind));
            }
            held = Some(next);
        }
        Ok(held)
    }

    /// Takes hold of an entry that a listing named.
    pub(super) fn enter(&self, dir: impl AsFd, name: &OsStr, path: &Path) -> Result<Held, Error> {
        let at = self.at(path);
        let held =
            hold(dir, OsStr::from_bytes(name.as_bytes()), self.dir.id().mount, at).map_err(|error| {
                if error.kind() == ErrorKind::TreeNotFound { at.changed("removed") } else { error }
            })?;
        self.check_protected(&held.facts, at)?;
        Ok(held)
    }

    fn check_protected(&self, facts: &Facts, at: At<'_>) -> Result<(), Error> {
        if self.protected.contains(&facts.id.key()) { Err(at.protected(facts)) } else { Ok(()) }
    }

    /// The descriptor of a directory that was reached.
    pub(super) fn directory<'h>(
        &self,
        held: Option<&'h Held>,
        path: &Path,
    ) -> Result<std::os::fd::BorrowedFd<'h>, Error>
    where
        'a: 'h,
    {
        match held {
            None => Ok(self.dir.as_fd()),
            Some(held) if held.facts.kind == Kind::Directory => Ok(held.as_fd()),
            Some(held) => Err(self.at(path).refused(held.facts.kind)),
        }
    }

    /// Reads a file that is held.
    pub(super) fn copy_held(
        &mut self,
        held: &Held,
        path: &Path,
        to: &mut impl Write,
    ) -> Result<Facts, Error> {
        let at = At::entry(self.dir.canonical(), path);
        let (file, before) = open_file(held, at)?;
        self.bytes.check(before.size, at)?;
        let read = self.stream(&file, &before, at, to)?;
        let after = Facts::of(&file, at)?;
        match before.difference(&after) {
            Some(fact) => Err(at.changed(fact)),
            None if read < before.size => Err(at.changed("shrank")),
            None => Ok(before),
        }
    }

    fn stream(
        &mut self,
        file: &OwnedFd,
        before: &Facts,
        at: At<'_>,
        to: &mut impl Write,
    ) -> Result<u64, Error> {
        // One byte more than there should be, to see whether there are more.
        let most = usize::try_from(before.size).unwrap_or(usize::MAX).saturating_add(1);
        let mut chunk = vec![0; CHUNK.min(most)];
        let mut done: u64 = 0;
        loop {
            self.budget.time(at)?;
            let count = rustix::io::retry_on_intr(|| rustix::io::read(file, &mut *chunk))
                .map_err(|errno| at.call("read", errno))?;
            if count == 0 {
                return Ok(done);
            }
            let read = u64::try_from(count).unwrap_or(u64::MAX);
            self.bytes.count(read);
            done = done.saturating_add(read);
            if done > before.size {
                return Err(at.changed("grew"));
            }
            to.write_all(chunk.get(..count).unwrap_or_default()).map_err(|error| at.write(error))?;
        }
    }
}
