//! The inventory: what a protected directory holds, and whether it still does.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use rustix::io::Errno;

use super::super::object::Key;
use super::super::pinned::PinnedDir;
use super::fault::InventoryFault;
use super::glance::{Glance, Time};
use super::linked::{Freshness, LinkedFile, is_young};
use super::listing::{Listing, look_at_each};
use super::scan::open_list;
use super::tree::{Directory, Entry, Lost, Place, TOP, Tree};
use crate::error::SystemCall;

/// What an inventory may hold.
#[derive(Debug, Clone)]
pub(crate) struct WalkLimits {
    /// Entries of all directories.
    pub(crate) entries: u64,
    /// Directories inside one another.
    pub(crate) depth: usize,
    /// When taking it must be done. It does not bind a later refresh.
    pub(crate) deadline: Option<Instant>,
}

impl Default for WalkLimits {
    /// A million entries, 16,384 directories inside one another (guesses), and no deadline.
    fn default() -> Self {
        Self { entries: 1_000_000, depth: 16_384, deadline: None }
    }
}

/// Files of the lowest directory that are held.
const FILES_HELD: usize = 64;

/// Takes of one directory at most, each after something was moved during the one before.
const ATTEMPTS: usize = 4;

/// Everything in a protected directory that may have another name elsewhere.
///
/// What is mounted inside it is protected too, so mounts are entered; names are counted on the directory's own mount
/// only, since a name below a mount may lie elsewhere as well. Holds 17 descriptors at most, and one for each of the first 64 files of
/// the directory itself.
///
/// # Security
/// True for a moment. A file with more than one link whose ctime is younger than the clock's grain is reported as
/// changed at the next refresh, because a change right after the look would have left the same ctime.
///
/// # Kernel
/// `openat2` needs Linux 5.6, mount ids in `statx` 5.8.
#[derive(Debug)]
pub(crate) struct Inventory {
    path: PathBuf,
    tree: Tree,
    limits: WalkLimits,
    entries: u64,
    /// Whether the last look came to its end.
    is_whole: bool,
    linked: Vec<LinkedFile>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Inventory {
    /// Lists the directory and all below it.
    ///
    /// # Errors
    /// [`InventoryFault`]. A directory that this user cannot list is no error, but [`unlisted`](Self::unlisted).
    pub(crate) fn take(dir: &PinnedDir, limits: &WalkLimits) -> Result<Self, InventoryFault> {
        let path = dir.canonical();
        let top = dir.as_fd().try_clone_to_owned().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            sort("fcntl", errno, path)
        })?;
        let glance = Glance::at(&top).map_err(|errno| sort("statx", errno, path))?;
        let mut inventory = Self {
            path: path.to_owned(),
            tree: Tree::new(top, Directory::new(TOP, CString::default(), 0, glance)),
            limits: limits.clone(),
            entries: 0,
            is_whole: false,
            linked: Vec::new(),
            buffer: vec![MaybeUninit::uninit(); 32 << 10],
        };
        inventory.retake()?;
        inventory.limits.deadline = None;
        Ok(inventory)
    }

    /// Looks again: at each file, and into each directory whose times differ.
    ///
    /// One `statx` for each file and directory, and two more calls for each directory beyond the fifteenth.
    ///
    /// # Errors
    /// [`InventoryFault`]. Afterwards the inventory is not whole; the next refresh begins anew.
    pub(crate) fn refresh(&mut self) -> Result<Freshness, InventoryFault> {
        if !self.is_whole {
            self.retake()?;
            return Ok(Freshness::ALL);
        }
        let mut fresh = Freshness::default();
        match self.look(&mut fresh) {
            Ok(()) => {}
            Err(Stop::Fault(fault)) => {
                self.forget();
                return Err(fault);
            }
            Err(Stop::Moved) => {
                self.retake()?;
                return Ok(Freshness::ALL);
            }
        }
        if fresh.links {
            self.collect();
        }
        Ok(fresh)
    }

    /// Files with more than one link, by path.
    #[cfg(test)]
    pub(crate) fn linked(&self) -> impl Iterator<Item = &LinkedFile> {
        self.linked.iter()
    }

    /// Those of them that have a name which was not found inside. If there is none, no scan is needed.
    pub(crate) fn links_outside(&self) -> impl Iterator<Item = &LinkedFile> {
        self.linked.iter().filter(|file| file.has_name_outside())
    }

    /// Symbolic links, in no order.
    pub(crate) fn symlinks(&self) -> impl Iterator<Item = PathBuf> {
        self.tree.iter().flat_map(|(place, directory)| {
            let path = self.tree.path(place, &self.path);
            directory.symlinks.iter().map(move |name| path.join(std::ffi::OsStr::from_bytes(name.to_bytes())))
        })
    }

    /// Directories that this user cannot list or search, in no order. Nothing is known about what is in them.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = PathBuf> {
        let unlisted = self.tree.iter().filter(|(_, directory)| directory.is_unlisted);
        unlisted.map(|(place, _)| self.tree.path(place, &self.path))
    }

    /// Entries of all directories.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Lists everything anew, however often something is moved meanwhile.
    fn retake(&mut self) -> Result<(), InventoryFault> {
        for _ in 0..ATTEMPTS {
            self.forget();
            match self.look(&mut Freshness::default()) {
                Ok(()) => {
                    self.is_whole = true;
                    self.collect();
                    return Ok(());
                }
                Err(Stop::Fault(fault)) => {
                    self.forget();
                    return Err(fault);
                }
                Err(Stop::Moved) => {}
            }
        }
        self.forget();
        Err(InventoryFault::Changed { path: self.path.clone() })
    }

    fn forget(&mut self) {
        let below = self.tree.get_mut(TOP).map(|top| {
            top.is_stale = true;
            top.entries.clear();
            top.symlinks.clear();
            std::mem::take(&mut top.directories)
        });
        for place in below.unwrap_or_default() {
            self.tree.remove(place, |_| {});
        }
        self.entries = 0;
        self.is_whole = false;
        self.linked.clear();
    }

    fn look(&mut self, fresh: &mut Freshness) -> Result<(), Stop> {
        let mut left = vec![TOP];
        while let Some(place) = left.pop() {
            self.look_at(place, fresh)?;
            if let Some(directory) = self.tree.get(place) {
                left.extend(&directory.directories);
            }
        }
        Ok(())
    }

    fn look_at(&mut self, place: Place, fresh: &mut Freshness) -> Result<(), Stop> {
        let glance = match self.tree.look(place) {
            Ok(glance) => glance,
            Err(Lost::Moved) => return Err(Stop::Moved),
            // A directory above it cannot be searched any more.
            Err(Lost::Refused(errno)) => return Err(self.failed("statx", errno, place)),
        };
        let Some(directory) = self.tree.get(place) else { return Ok(()) };
        if (glance.key, glance.mount) != (directory.glance.key, directory.glance.mount) {
            return Err(Stop::Moved);
        }
        // What could not be listed is tried again: whether it can be may depend on more than its own times.
        let mut is_stale =
            directory.is_stale || directory.is_unlisted || !glance.is_same_listing(&directory.glance);
        if !is_stale {
            is_stale = self.look_at_entries(place, fresh)?;
        }
        if is_stale {
            self.list(place, glance, fresh)?;
        }
        Ok(())
    }

    /// Looks at each file of a directory; true if one of them is not there, so that it must be listed again.
    fn look_at_entries(&mut self, place: Place, fresh: &mut Freshness) -> Result<bool, Stop> {
        let Some(directory) = self.tree.get_mut(place) else { return Ok(false) };
        let mut entries = std::mem::take(&mut directory.entries);
        let outcome = match self.tree.open(place) {
            Ok(fd) => look_at_each(fd, &mut entries, if place == TOP { FILES_HELD } else { 0 }, fresh),
            Err(_) => Ok(true),
        };
        if let Some(directory) = self.tree.get_mut(place) {
            directory.entries = entries;
        }
        outcome.map_err(|errno| self.failed("statx", errno, place))
    }

    /// Lists a directory, and compares it with what it was before.
    fn list(&mut self, place: Place, glance: Glance, fresh: &mut Freshness) -> Result<(), Stop> {
        let mut listing = Listing::default();
        let others = self.entries - self.tree.get(place).map_or(0, count);
        let room = self.limits.entries.saturating_sub(others);
        let read = match self.tree.open(place) {
            Ok(fd) => open_list(fd).and_then(|list| listing.read(&list, &mut self.buffer, room)),
            Err(Lost::Moved) => return Err(Stop::Moved),
            Err(Lost::Refused(errno)) => Err(errno),
        };
        let is_unlisted = match read {
            Ok(()) => false,
            Err(Errno::ACCESS | Errno::PERM) => {
                listing = Listing::default();
                true
            }
            Err(errno) => return Err(self.failed("getdents64", errno, place)),
        };
        self.entries = others.saturating_add(listing.entries);
        if self.entries > self.limits.entries {
            let (path, limit) = (self.path.clone(), self.limits.entries);
            return Err(InventoryFault::Entries { path, limit }.into());
        }
        if self.limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(InventoryFault::Deadline { path: self.path.clone() }.into());
        }
        let directories = self.place_directories(place, &mut listing, fresh)?;
        let now = SystemTime::now();
        for entry in &mut listing.files {
            entry.is_young = entry.glance.links > 1 && is_young(entry.glance.changed, now);
        }
        listing.symlinks.sort();
        let Some(directory) = self.tree.get_mut(place) else { return Ok(()) };
        fresh.links |= linked(&directory.entries) != linked(&listing.files);
        fresh.symlinks |= directory.symlinks != listing.symlinks;
        fresh.unlisted |= directory.is_unlisted != is_unlisted;
        directory.is_stale = is_young(glance.modified, now) || is_young(glance.changed, now);
        directory.is_unlisted = is_unlisted;
        directory.glance = glance;
        directory.entries = listing.files;
        directory.symlinks = listing.symlinks;
        directory.directories = directories;
        Ok(())
    }

    /// Keeps the subdirectories that are still the same, adds new ones, and drops those that are gone.
    fn place_directories(
        &mut self,
        place: Place,
        listing: &mut Listing,
        fresh: &mut Freshness,
    ) -> Result<Vec<Place>, Stop> {
        let Some(directory) = self.tree.get(place) else { return Ok(Vec::new()) };
        let depth = directory.depth + 1;
        if depth > self.limits.depth && !listing.directories.is_empty() {
            let (path, limit) = (self.path.clone(), self.limits.depth);
            return Err(InventoryFault::TooDeep { path, limit }.into());
        }
        let old = directory.directories.iter();
        let mut old: HashMap<CString, Place> =
            old.filter_map(|place| Some((self.tree.get(*place)?.name.clone(), *place))).collect();
        let mut directories = Vec::with_capacity(listing.directories.len());
        for (name, glance) in listing.directories.drain(..) {
            let is_kept = |known: &&Place| {
                self.tree.get(**known).is_some_and(|directory| {
                    (directory.glance.key, directory.glance.mount) == (glance.key, glance.mount)
                })
            };
            match old.get(&name).filter(is_kept) {
                Some(&known) => {
                    old.remove(&name);
                    directories.push(known);
                }
                None => directories.push(self.tree.add(Directory::new(place, name, depth, glance))),
            }
        }
        for gone in old.into_values() {
            let mut entries = 0;
            self.tree.remove(gone, |directory| {
                entries += count(directory);
                fresh.links |= directory.entries.iter().any(|entry| entry.glance.links > 1);
                fresh.symlinks |= !directory.symlinks.is_empty();
                fresh.unlisted |= directory.is_unlisted;
            });
            self.entries = self.entries.saturating_sub(entries);
        }
        Ok(directories)
    }

    /// Gathers the files with more than one link.
    fn collect(&mut self) {
        let home = self.tree.get(TOP).map(|top| top.glance.mount);
        let mut files: HashMap<Key, LinkedFile> = HashMap::new();
        for (place, directory) in self.tree.iter() {
            let mut path = None;
            for Entry { name, glance, .. } in directory.entries.iter().filter(|entry| entry.glance.links > 1)
            {
                let directory_path = path.get_or_insert_with(|| self.tree.path(place, &self.path));
                let path = directory_path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                let (key, links, changed) = (glance.key, glance.links, glance.changed);
                let inside = u32::from(Some(glance.mount) == home);
                let file = files.entry(key);
                let target = glance.target();
                let file = file.or_insert_with(|| LinkedFile {
                    path: path.clone(),
                    key,
                    links,
                    changed,
                    inside: 0,
                    target,
                });
                file.inside += inside;
                // Two looks at one file may have caught it in two states: the more wary one counts.
                (file.links, file.changed) = (file.links.max(links), file.changed.max(changed));
                if path < file.path {
                    file.path = path;
                }
            }
        }
        self.linked = files.into_values().collect();
        self.linked.sort_by(|one, other| one.path.cmp(&other.path));
    }

    fn failed(&self, call: &'static str, errno: Errno, place: Place) -> Stop {
        Stop::Fault(sort(call, errno, self.tree.path(place, &self.path)))
    }
}

/// Why a look was not finished.
#[derive(Debug)]
enum Stop {
    Fault(InventoryFault),
    /// A directory is not where it was a moment ago.
    Moved,
}

impl From<InventoryFault> for Stop {
    fn from(fault: InventoryFault) -> Self {
        Self::Fault(fault)
    }
}

pub(super) fn sort(call: &'static str, errno: Errno, path: impl AsRef<Path>) -> InventoryFault {
    let path = path.as_ref().to_owned();
    let cause = SystemCall::new(call, &path, errno);
    match errno {
        Errno::MFILE | Errno::NFILE => InventoryFault::NoDescriptors { path, cause },
        _ => InventoryFault::Failed { path, cause },
    }
}

fn count(directory: &Directory) -> u64 {
    let entries = directory.entries.len() + directory.symlinks.len() + directory.directories.len();
    u64::try_from(entries).unwrap_or(u64::MAX)
}

/// What counts of the files with more than one link, in an order of its own.
fn linked(entries: &[Entry]) -> Vec<(&CString, Key, u64, u32, Time)> {
    let linked = entries.iter().filter(|entry| entry.glance.links > 1);
    let mut linked: Vec<_> = linked
        .map(|entry| {
            (&entry.name, entry.glance.key, entry.glance.mount, entry.glance.links, entry.glance.changed)
        })
        .collect();
    linked.sort();
    linked
}
