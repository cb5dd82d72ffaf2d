//! The directories that one thread of a scan is in, from the lowest to the one that it reads, and the names of their
//! subdirectories that are still to be visited.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::glance::Glance;
use super::targets::Device;

/// Directories held open at most, besides the lowest one. The others are found again by `..`.
const HELD: usize = 100;

/// Bytes of names of one directory before they are visited and the rest is read later.
const LEVEL_NAMES: usize = 64 << 10;

/// Bytes of names of all levels. Beyond it each level may add one name only, so that the walk still goes on.
const ALL_NAMES: usize = 1 << 20;

/// One directory.
#[derive(Debug)]
pub(super) struct Level {
    /// `None` while it is closed.
    pub(super) dir: Option<OwnedFd>,
    pub(super) device: Device,
    /// What it was when it was left, where that may be needed to find it again.
    pub(super) stamp: Option<Glance>,
    /// Position behind the last entry that was inspected.
    pub(super) cookie: u64,
    /// Whether the descriptor stands elsewhere than at `cookie`.
    pub(super) must_seek: bool,
    /// Whether it has been read to its end.
    pub(super) ended: bool,
    /// Length of the names when this level was entered.
    base: usize,
    /// Where the name of the subdirectory begins that is being visited, where the next one begins, and where those
    /// of this level end.
    current: usize,
    next: usize,
    end: usize,
}

impl Level {
    pub(super) fn new(dir: OwnedFd, device: Device, ended: bool) -> Self {
        Self {
            dir: Some(dir),
            device,
            stamp: None,
            cookie: 0,
            must_seek: false,
            ended,
            base: 0,
            current: 0,
            next: 0,
            end: 0,
        }
    }
}

/// The stack of levels, and the stack of names below it.
#[derive(Debug, Default)]
pub(super) struct Levels {
    levels: Vec<Level>,
    /// Names, each with its final NUL. A level's own follow those of the levels below it.
    names: Vec<u8>,
    /// The lowest level above the bottom that is open. Those above it are open too.
    first_held: usize,
    /// No level below this one has names left.
    first_full: usize,
}

impl Levels {
    /// Begins anew with one level, some of whose subdirectories may be known already.
    pub(super) fn begin(&mut self, mut level: Level, names: &[u8]) {
        self.levels.clear();
        self.names.clear();
        self.names.extend_from_slice(names);
        level.end = names.len();
        self.levels.push(level);
        (self.first_held, self.first_full) = (1, 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn at(&self, place: usize) -> &Level {
        &self.levels[place]
    }

    /// The level that is being read. There is one unless the stack is empty.
    pub(super) fn top(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }

    pub(super) fn top_mut(&mut self) -> &mut Level {
        let top = self.levels.len() - 1;
        &mut self.levels[top]
    }

    /// Goes on to the next subdirectory of the top level, if it has one.
    pub(super) fn advance(&mut self) -> bool {
        let top = self.levels.len() - 1;
        let level = &mut self.levels[top];
        if level.next == level.end {
            // All visited: the room is free for the next batch.
            self.names.truncate(level.base);
            (level.current, level.next, level.end) = (level.base, level.base, level.base);
            return false;
        }
        level.current = level.next;
        level.next += name_at(&self.names, level.current).to_bytes_with_nul().len();
        true
    }

    /// The subdirectory that the top level is at.
    pub(super) fn current(&self) -> &CStr {
        name_at(&self.names, self.top().current)
    }

    /// Names of the levels above the lowest one.
    pub(super) fn names_above_base(&self) -> impl Iterator<Item = &[u8]> {
        let below_top = self.levels.len().saturating_sub(1);
        self.levels[..below_top].iter().map(|level| name_at(&self.names, level.current).to_bytes())
    }

    /// Enters a directory; the oldest one held is closed when there are too many.
    ///
    /// The errno is that of looking at the latter, without which it could not be found again.
    pub(super) fn push(&mut self, mut level: Level) -> Result<(), Errno> {
        let base = self.names.len();
        (level.base, level.current, level.next, level.end) = (base, base, base, base);
        self.levels.push(level);
        if self.levels.len() - self.first_held > HELD {
            let oldest = &mut self.levels[self.first_held];
            if let Some(dir) = oldest.dir.take() {
                if oldest.stamp.is_none() {
                    oldest.stamp = Some(Glance::at(&dir)?);
                }
                oldest.must_seek = true;
            }
            self.first_held += 1;
        }
        Ok(())
    }

    /// Leaves the top level.
    pub(super) fn pop(&mut self) -> Option<Level> {
        let level = self.levels.pop()?;
        self.names.truncate(level.base);
        self.first_full = self.first_full.min(self.levels.len());
        Some(level)
    }

    /// Puts the top level, which was closed, back in place; false if it is another directory.
    pub(super) fn restore(&mut self, dir: OwnedFd, found: &Glance) -> bool {
        let top = self.levels.len() - 1;
        let level = &mut self.levels[top];
        let is_it = level.stamp.is_some_and(|left| (left.key, left.mount) == (found.key, found.mount));
        level.dir = Some(dir);
        self.first_held = self.first_held.min(top.max(1));
        is_it
    }

    /// Notes a subdirectory of the top level; false when there is no room.
    pub(super) fn add_name(&mut self, name: &CStr) -> bool {
        let top = self.levels.len() - 1;
        let level = &mut self.levels[top];
        let name = name.to_bytes_with_nul();
        if self.names.len() + name.len() > ALL_NAMES && level.next < level.end {
            return false;
        }
        self.names.extend_from_slice(name);
        level.end = self.names.len();
        self.first_full = self.first_full.min(top);
        true
    }

    /// Whether the top level has subdirectories to visit.
    pub(super) fn has_names(&self) -> bool {
        self.top().next < self.top().end
    }

    /// Whether the top level has so many that they should be visited before more is read.
    pub(super) fn has_many_names(&self) -> bool {
        self.top().end - self.top().next >= LEVEL_NAMES
    }

    /// Takes half of the subdirectories of the lowest open level that has any: whole subtrees, as large as may be.
    ///
    /// The top level keeps at least one.
    pub(super) fn split(&mut self) -> Option<(usize, Vec<u8>)> {
        let top = self.levels.len() - 1;
        while self.first_full < top && !has_names(&self.levels[self.first_full]) {
            self.first_full += 1;
        }
        let mut open = std::iter::once(0).chain(self.first_held..=top);
        let place = open.find(|place| *place >= self.first_full && has_names(&self.levels[*place]))?;
        let level = &mut self.levels[place];
        let mut middle = level.next + (level.end - level.next) / 2;
        // To the beginning of a name, forward; if that is the end, there is one name only.
        while middle < level.end && self.names[middle - 1] != 0 {
            middle += 1;
        }
        if middle == level.end {
            if place == top {
                return None;
            }
            middle = level.next;
        }
        let names = self.names[middle..level.end].to_vec();
        level.end = middle;
        Some((place, names))
    }

    /// Puts back what [`split`](Self::split) took.
    pub(super) fn take_back(&mut self, place: usize, names: &[u8]) {
        self.levels[place].end += names.len();
        self.first_full = self.first_full.min(place);
    }
}

fn has_names(level: &Level) -> bool {
    level.next < level.end
}

fn name_at(names: &[u8], place: usize) -> &CStr {
    CStr::from_bytes_until_nul(&names[place..]).unwrap_or_default()
}
