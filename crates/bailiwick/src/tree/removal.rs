//! One removal: where it is in the tree, and what is left.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, chmodat, openat2, unlinkat};
use rustix::io::{Errno, retry_on_intr};

use super::chain::{hold, link_of, open_directory};
use super::facts::{Facts, Kind};
use super::fault::At;
use super::limits::Budget;
use super::list::for_each_name;
use super::remover::as_path;
use crate::error::{Error, ErrorKind, Field};
use crate::identity::{Key, Node, PinnedDir, user};

/// Paths and reasons that an error carries; all are counted. A guess at what anybody reads.
const REPORTED: usize = 64;

/// A directory that is being emptied.
struct Level {
    /// Its name in the level above; empty for the first.
    name: CString,
    node: Node,
    /// Directories in it that are to be emptied next.
    pending: Vec<CString>,
    /// Names in it that cannot be removed.
    stuck: HashSet<CString>,
}

/// Holds one descriptor, however deep it is: the way back up is `..`, and it counts only if it leads to the directory
/// from which we came. If it does not, somebody moved a directory, and the way down is gone through again.
pub(super) struct Removal<'r> {
    tree: &'r PinnedDir,
    prefix: &'r Path,
    protected: &'r HashSet<Key>,
    budget: Budget,
    depth: usize,
    levels: Vec<Level>,
    removed: u64,
    left: Vec<(PathBuf, String)>,
    left_count: u64,
    first: Option<Error>,
}

impl<'r> Removal<'r> {
    pub(super) fn new(
        tree: &'r PinnedDir,
        prefix: &'r Path,
        protected: &'r HashSet<Key>,
        budget: Budget,
        depth: usize,
    ) -> Self {
        Self {
            tree,
            prefix,
            protected,
            budget,
            depth,
            levels: Vec::new(),
            removed: 0,
            left: Vec::new(),
            left_count: 0,
            first: None,
        }
    }

    /// Empties a directory. An error is a limit; everything else is noted, and the next entry taken.
    pub(super) fn run(&mut self, top: OwnedFd, facts: Facts) -> Result<(), Error> {
        self.levels = vec![open_level(CString::default(), &top, &facts)];
        let mut current = self.duplicate(&top)?;
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.pending.pop() {
                if let Some(below) = self.descend(&current, name)? {
                    current = below;
                }
            } else if !self.scan(&current)? {
                if self.levels.len() == 1 {
                    break;
                }
                current = self.ascend(&top, current)?;
            }
        }
        Ok(())
    }

    /// Notes one entry that was removed.
    pub(super) fn count(&mut self) {
        self.removed += 1;
    }

    /// Notes an entry that is left.
    pub(super) fn leave(&mut self, path: &Path, error: Error) {
        self.left_count += 1;
        if self.left.len() < REPORTED {
            self.left.push((path.to_owned(), error.to_string()));
        }
        self.first.get_or_insert(error);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.left_count == 0
    }

    /// The answer to the caller.
    pub(super) fn conclude(mut self, outcome: Result<(), Error>) -> Result<u64, Error> {
        let error = match (outcome, self.first.take()) {
            (Ok(()), None) => return Ok(self.removed),
            (Ok(()), Some(first)) => {
                At::entry(self.tree.canonical(), self.prefix).not_removed(self.left_count, first)
            }
            (Err(limit), _) => limit,
        };
        let (paths, reasons) =
            self.left.into_iter().map(|(path, why)| (Field::Path(path), Field::Text(why))).unzip();
        Err(error
            .number("removed", self.removed)
            .number("left_count", self.left_count)
            .with("left", Field::List(paths))
            .with("reasons", Field::List(reasons)))
    }

    /// The path of the present directory, relative to the tree.
    fn path(&self) -> PathBuf {
        let mut path = self.prefix.to_owned();
        path.extend(self.levels.iter().skip(1).map(|level| as_path(&level.name)));
        path
    }

    /// Notes that an entry of the present directory is left.
    fn stick(&mut self, name: CString, error: impl FnOnce(At<'_>) -> Error) {
        let path = self.path().join(as_path(&name));
        let error = error(At::entry(self.tree.canonical(), &path));
        self.leave(&path, error);
        if let Some(level) = self.levels.last_mut() {
            level.stuck.insert(name);
        }
    }

    fn spend(&mut self) -> Result<(), Error> {
        // The path is made only when it is needed.
        if self.budget.entry(At::entry(self.tree.canonical(), self.prefix)).is_ok() {
            return Ok(());
        }
        let path = self.path();
        self.budget.entry(At::entry(self.tree.canonical(), &path))
    }

    /// Removes what is no directory from the present one, and notes its directories. False if there was nothing that
    /// is not known to be stuck.
    fn scan(&mut self, current: &OwnedFd) -> Result<bool, Error> {
        let opened = match open_directory(current) {
            Ok(opened) => opened,
            Err(errno) => return Ok(self.give_up(errno, "openat2")),
        };
        let (mut limit, mut is_fresh) = (None, false);
        let listed = for_each_name(&opened, |name| {
            if self.levels.last().is_some_and(|level| level.stuck.contains(name)) {
                return true;
            }
            is_fresh = true;
            limit = self.spend().err();
            if limit.is_none() {
                self.unlink(current, name.to_owned());
            }
            limit.is_none()
        });
        match (limit, listed) {
            (Some(limit), _) => Err(limit),
            (None, Err(errno)) => Ok(self.give_up(errno, "getdents64")),
            (None, Ok(())) => Ok(is_fresh),
        }
    }

    /// Notes that the present directory cannot be listed.
    fn give_up(&mut self, errno: Errno, call: &'static str) -> bool {
        let path = self.path();
        let error = At::entry(self.tree.canonical(), &path).call(call, errno);
        self.leave(&path, error);
        if let Some(level) = self.levels.last_mut() {
            // Something is in it that keeps it from going, whatever its name.
            level.stuck.insert(CString::default());
        }
        false
    }

    /// Removes a name, or notes it as a directory or as stuck.
    fn unlink(&mut self, current: &OwnedFd, name: CString) {
        if !self.protected.is_empty() {
            match self.look(current, &name) {
                Ok(Some(Kind::Directory)) => return self.postpone(name),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => return self.stick(name, |_| error),
            }
        }
        match unlinkat(current, &name, AtFlags::empty()) {
            Ok(()) => self.removed += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => self.postpone(name),
            Err(errno) => match self.look(current, &name) {
                // Some file systems answer EPERM for a directory.
                Ok(Some(Kind::Directory)) => self.postpone(name),
                Ok(Some(_)) => self.stick(name, |at| at.call("unlinkat", errno)),
                Ok(None) => {}
                // A mount point, mostly, and then this says so.
                Err(error) => self.stick(name, |_| error),
            },
        }
    }

    fn postpone(&mut self, name: CString) {
        if let Some(level) = self.levels.last_mut() {
            level.pending.push(name);
        }
    }

    /// What a name in the present directory is; `None` if it is gone. A mount point or a protected object is an error.
    fn look(&self, current: &OwnedFd, name: &CString) -> Result<Option<Kind>, Error> {
        Ok(self.take_hold(current, name)?.map(|(_, facts)| facts.kind))
    }

    fn take_hold(&self, current: &OwnedFd, name: &CString) -> Result<Option<(OwnedFd, Facts)>, Error> {
        let take = |at: At<'_>| match hold(current, name.as_c_str(), self.tree.id().mount, at) {
            Ok(held) if self.protected.contains(&held.facts.id.key()) => Err(at.protected(&held.facts)),
            Ok(held) => {
                let facts = held.facts;
                Ok(Some((held.into_fd(), facts)))
            }
            Err(error) if matches!(error.kind(), ErrorKind::TreeNotFound | ErrorKind::TreeChanged) => {
                Ok(None)
            }
            Err(error) => Err(error),
        };
        // The path of a deep directory is long, so it is made only for an error, by asking once more.
        take(At::entry(self.tree.canonical(), self.prefix)).or_else(|_without_its_path| {
            let path = self.path().join(as_path(name));
            take(At::entry(self.tree.canonical(), &path))
        })
    }

    /// Goes into a directory of the present one.
    fn descend(&mut self, current: &OwnedFd, name: CString) -> Result<Option<OwnedFd>, Error> {
        self.spend()?;
        match self.take_hold(current, &name) {
            Ok(Some((fd, facts))) if facts.kind == Kind::Directory => {
                if self.levels.len() >= self.depth {
                    let path = self.path();
                    return Err(At::entry(self.tree.canonical(), &path).limit("depth", self.depth));
                }
                self.levels.push(open_level(name, &fd, &facts));
                Ok(Some(fd))
            }
            // Something else has the name by now: the next scan finds it.
            Ok(_) => Ok(None),
            Err(error) => {
                self.stick(name, |_| error);
                Ok(None)
            }
        }
    }

    /// Goes back to the directory above, and removes the one that was left.
    fn ascend(&mut self, top: &OwnedFd, current: OwnedFd) -> Result<OwnedFd, Error> {
        let Some(done) = self.levels.pop() else { return Ok(current) };
        self.spend()?;
        let depth = self.levels.len();
        let above = match self.parent(&current) {
            Some(above) => above,
            None => self.descend_again(top)?,
        };
        if self.levels.len() < depth {
            return Ok(above);
        }
        match unlinkat(&above, &done.name, AtFlags::REMOVEDIR) {
            Ok(()) => self.removed += 1,
            Err(Errno::NOENT) => {}
            // What keeps it has been noted.
            Err(Errno::NOTEMPTY | Errno::EXIST) if !done.stuck.is_empty() => {
                if let Some(level) = self.levels.last_mut() {
                    level.stuck.insert(done.name);
                }
            }
            // Something was made in it since, or another object has the name: the next scan finds it.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(errno) => match self.look(&above, &done.name) {
                Ok(Some(_)) => self.stick(done.name, |at| at.call("unlinkat", errno)),
                Ok(None) => {}
                Err(error) => self.stick(done.name, |_| error),
            },
        }
        Ok(above)
    }

    /// The directory above, if it is the one of the last level.
    fn parent(&self, current: &OwnedFd) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let above = retry_on_intr(|| openat2(current, c"..", flags, Mode::empty(), resolve)).ok()?;
        let facts = Facts::of(&above, At::entry(self.tree.canonical(), self.prefix)).ok()?;
        (self.levels.last()?.node == facts.id.node()).then_some(above)
    }

    /// Follows the levels down from the top, as far as their names still lead to them, and forgets the rest.
    fn descend_again(&mut self, top: &OwnedFd) -> Result<OwnedFd, Error> {
        let mut current = self.duplicate(top)?;
        let mut depth = 1;
        while let Some(level) = self.levels.get(depth) {
            let (name, node) = (level.name.clone(), level.node);
            self.spend()?;
            match self.take_hold(&current, &name) {
                Ok(Some((fd, facts))) if facts.id.node() == node => current = fd,
                _ => break,
            }
            depth += 1;
        }
        self.levels.truncate(depth);
        Ok(current)
    }

    fn duplicate(&self, fd: &OwnedFd) -> Result<OwnedFd, Error> {
        let at = At::entry(self.tree.canonical(), self.prefix);
        fd.try_clone().map_err(|error| at.call("fcntl", Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// A directory that is about to be emptied: readable, writable and searchable, if it is this user's.
fn open_level(name: CString, fd: &OwnedFd, facts: &Facts) -> Level {
    if facts.mode & 0o700 != 0o700 && facts.owner == user() {
        let mode = Mode::from_raw_mode(facts.mode | 0o700);
        // Through the descriptor: by name, a link could have taken its place. Where it fails, what follows fails too
        // and is noted with its own reason.
        let _noted_below = chmodat(CWD, link_of(fd), mode, AtFlags::empty());
    }
    Level { name, node: facts.id.node(), pending: Vec::new(), stuck: HashSet::new() }
}
