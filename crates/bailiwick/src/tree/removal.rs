//! One removal: where it is in the tree, and what is left.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, chmodat, openat2, unlinkat};
use rustix::io::{Errno, retry_on_intr};

use super::chain::{hold, link_of, open_directory};
use super::facts::{Facts, Kind};
use super::fault::At;
use super::limits::Budget;
use super::list::for_each_name;
use super::remover::as_path;
use crate::error::{Error, ErrorKind, Field};
use crate::identity::{Key, ObjectId, PinnedDir, user};

/// Paths and reasons that an error carries; all are counted. A guess at what anybody reads.
const REPORTED: usize = 64;

/// Directories, from the top, whose descriptors are kept open for the way back: more than ordinary trees are deep, and
/// few enough for a process that may open 1024 files.
const KEPT: usize = 128;

/// A directory that is being emptied.
struct Level {
    /// Its name in the level above; empty for the first.
    name: CString,
    /// Device, inode, mount and birth time.
    id: ObjectId,
    /// Kept for the way back, in the first levels.
    kept: Option<Rc<OwnedFd>>,
    /// Directories in it that are to be emptied next.
    pending: Vec<CString>,
    /// Names in it that cannot be removed.
    stuck: HashSet<CString>,
}

/// Never goes anywhere by name but down. The way back up is a descriptor that was kept; in trees deeper than [`KEPT`] it
/// is `..`, and that counts only if it is the very directory from which we came: same device, inode, mount and birth
/// time. If it is not, somebody moved a directory, and the way down is gone through again from the top.
///
/// # Security
/// This comparison is all that stands between a moved directory and everything above the place it was moved to.
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
        let mut current = Rc::new(top);
        self.levels = vec![open_level(CString::default(), &current, &facts, 0)];
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.pending.pop() {
                if let Some(below) = self.descend(&current, name)? {
                    current = below;
                }
            } else if !self.scan(&current)? {
                if self.levels.len() == 1 {
                    break;
                }
                current = self.ascend(current)?;
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
    fn descend(&mut self, current: &OwnedFd, name: CString) -> Result<Option<Rc<OwnedFd>>, Error> {
        self.spend()?;
        match self.take_hold(current, &name) {
            Ok(Some((fd, facts))) if facts.kind == Kind::Directory => {
                if self.levels.len() >= self.depth {
                    let path = self.path();
                    return Err(At::entry(self.tree.canonical(), &path).limit("depth", self.depth));
                }
                let fd = Rc::new(fd);
                self.levels.push(open_level(name, &fd, &facts, self.levels.len()));
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
    fn ascend(&mut self, current: Rc<OwnedFd>) -> Result<Rc<OwnedFd>, Error> {
        let Some(done) = self.levels.pop() else { return Ok(current) };
        self.spend()?;
        let depth = self.levels.len();
        let above = match self.parent(&current) {
            Some(above) => above,
            None => self.descend_again(current)?,
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

    /// The directory of the last level, from the one below it.
    fn parent(&self, current: &OwnedFd) -> Option<Rc<OwnedFd>> {
        let level = self.levels.last()?;
        if let Some(kept) = &level.kept {
            return Some(Rc::clone(kept));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let above = retry_on_intr(|| openat2(current, c"..", flags, Mode::empty(), resolve)).ok()?;
        let facts = Facts::of(&above, At::entry(self.tree.canonical(), self.prefix)).ok()?;
        (level.id == facts.id).then(|| Rc::new(above))
    }

    /// Follows the levels down from the last that was kept, as far as their names still lead to them, and forgets the
    /// rest. The first level is always kept; `current` is returned only if there is none.
    fn descend_again(&mut self, current: Rc<OwnedFd>) -> Result<Rc<OwnedFd>, Error> {
        let kept = self
            .levels
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, level)| Some((index, level.kept.clone()?)));
        let Some((index, mut at)) = kept else {
            self.levels.clear();
            return Ok(current);
        };
        let mut depth = index + 1;
        while let Some(level) = self.levels.get(depth) {
            let (name, id) = (level.name.clone(), level.id);
            self.spend()?;
            match self.take_hold(&at, &name) {
                Ok(Some((fd, facts))) if facts.id == id => at = Rc::new(fd),
                _ => break,
            }
            depth += 1;
        }
        self.levels.truncate(depth);
        Ok(at)
    }
}

/// A directory that is about to be emptied: readable, writable and searchable, if it is this user's.
fn open_level(name: CString, fd: &Rc<OwnedFd>, facts: &Facts, depth: usize) -> Level {
    if facts.mode & 0o700 != 0o700 && facts.owner == user() {
        let mode = Mode::from_raw_mode(facts.mode | 0o700);
        // Through the descriptor: by name, a link could have taken its place. Where it fails, what follows fails too
        // and is noted with its own reason.
        let _noted_below = chmodat(CWD, link_of(fd), mode, AtFlags::empty());
    }
    let kept = (depth < KEPT).then(|| Rc::clone(fd));
    Level { name, id: facts.id, kept, pending: Vec::new(), stuck: HashSet::new() }
}
