//! The directories of an inventory, and how they are found again with few descriptors.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::glance::Glance;

/// Where a directory stands in its tree.
pub(super) type Place = usize;

/// The lowest directory of a tree.
pub(super) const TOP: Place = 0;

/// Something in a directory that is neither a directory nor a symbolic link.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: CString,
    pub(super) glance: Glance,
    /// The object, so that it can be looked at without its name: a third of the time. Its directory's times tell when
    /// the name is given to another object.
    pub(super) held: Option<OwnedFd>,
    /// Whether its ctime was too young at the last look to tell the next change.
    pub(super) is_young: bool,
}

/// A directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: Place,
    /// Its name there; empty for the lowest one.
    pub(super) name: CString,
    pub(super) depth: usize,
    /// As it was before it was listed.
    pub(super) glance: Glance,
    /// Whether it must be listed again, whatever its times say.
    pub(super) is_stale: bool,
    pub(super) is_unlisted: bool,
    pub(super) entries: Vec<Entry>,
    pub(super) symlinks: Vec<CString>,
    pub(super) directories: Vec<Place>,
}

impl Directory {
    pub(super) fn new(parent: Place, name: CString, depth: usize, glance: Glance) -> Self {
        Self {
            parent,
            name,
            depth,
            glance,
            is_stale: true,
            is_unlisted: false,
            entries: Vec::new(),
            symlinks: Vec::new(),
            directories: Vec::new(),
        }
    }
}

/// Why a directory was not found again.
#[derive(Debug)]
pub(super) enum Lost {
    /// Another object is at its name, or none.
    Moved,
    Refused(Errno),
}

/// Descriptors kept for directories that were opened first, and for those opened last.
const FIRST: usize = 10;
const LAST: usize = 5;

/// All directories below one, that one included.
#[derive(Debug)]
pub(super) struct Tree {
    top: OwnedFd,
    directories: Vec<Option<Directory>>,
    free: Vec<Place>,
    first: Vec<(Place, OwnedFd)>,
    last: [Option<(Place, OwnedFd)>; LAST],
    next: usize,
}

impl Tree {
    pub(super) fn new(top: OwnedFd, directory: Directory) -> Self {
        Self {
            top,
            directories: vec![Some(directory)],
            free: Vec::new(),
            first: Vec::new(),
            last: Default::default(),
            next: 0,
        }
    }

    pub(super) fn get(&self, place: Place) -> Option<&Directory> {
        self.directories.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Directory> {
        self.directories.get_mut(place)?.as_mut()
    }

    /// All directories, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Directory)> {
        let all = self.directories.iter().enumerate();
        all.filter_map(|(place, directory)| Some((place, directory.as_ref()?)))
    }

    pub(super) fn add(&mut self, directory: Directory) -> Place {
        match self.free.pop() {
            Some(place) => {
                self.directories[place] = Some(directory);
                place
            }
            None => {
                self.directories.push(Some(directory));
                self.directories.len() - 1
            }
        }
    }

    /// Removes a directory and all below it, and calls `removed` with each.
    pub(super) fn remove(&mut self, place: Place, mut removed: impl FnMut(&Directory)) {
        let mut left = vec![place];
        while let Some(place) = left.pop() {
            let Some(directory) = self.directories.get_mut(place).and_then(Option::take) else { continue };
            left.extend(&directory.directories);
            removed(&directory);
            self.free.push(place);
            self.forget(place);
        }
    }

    fn forget(&mut self, place: Place) {
        self.first.retain(|(held, _)| *held != place);
        for slot in &mut self.last {
            if slot.as_ref().is_some_and(|(held, _)| *held == place) {
                *slot = None;
            }
        }
    }

    /// The path of a directory, below `path`.
    pub(super) fn path(&self, place: Place, path: &std::path::Path) -> PathBuf {
        let mut names = Vec::new();
        let mut above = place;
        while above != TOP {
            let Some(directory) = self.get(above) else { break };
            names.push(&directory.name);
            above = directory.parent;
        }
        let mut path = path.to_owned();
        path.extend(names.iter().rev().map(|name| OsStr::from_bytes(name.to_bytes())));
        path
    }

    fn held(&self, place: Place) -> Option<BorrowedFd<'_>> {
        if place == TOP {
            return Some(self.top.as_fd());
        }
        let mut all = self.first.iter().chain(self.last.iter().flatten());
        all.find(|(held, _)| *held == place).map(|(_, fd)| fd.as_fd())
    }

    /// The descriptor of a directory, opened anew by the names of it and of those above it if it is not held.
    pub(super) fn open(&mut self, place: Place) -> Result<BorrowedFd<'_>, Lost> {
        if self.held(place).is_none() {
            let fd = self.find(place)?;
            self.hold(place, fd);
        }
        self.held(place).ok_or(Lost::Moved)
    }

    /// What is at the name of a directory now, a mount over it included.
    pub(super) fn look(&mut self, place: Place) -> Result<Glance, Lost> {
        if place == TOP {
            return Glance::at(&self.top).map_err(Lost::Refused);
        }
        let parent = self.get(place).ok_or(Lost::Moved)?.parent;
        self.open(parent)?;
        let (held, directory) = (self.held(parent).ok_or(Lost::Moved)?, self.get(place).ok_or(Lost::Moved)?);
        match Glance::entry(held, &directory.name) {
            Ok(glance) if glance.kind == FileType::Directory => Ok(glance),
            Ok(_) | Err(Errno::NOENT) => Err(Lost::Moved),
            Err(errno) => Err(Lost::Refused(errno)),
        }
    }

    fn find(&self, place: Place) -> Result<OwnedFd, Lost> {
        let mut names = Vec::new();
        let mut above = place;
        let mut found = loop {
            let directory = self.get(above).ok_or(Lost::Moved)?;
            names.push(directory.name.as_c_str());
            above = directory.parent;
            if let Some(held) = self.held(above) {
                break open_below(held, names.pop().unwrap_or_default())?;
            }
        };
        while let Some(name) = names.pop() {
            found = open_below(found.as_fd(), name)?;
        }
        let expected = self.get(place).ok_or(Lost::Moved)?.glance;
        let glance = Glance::at(&found).map_err(Lost::Refused)?;
        if (glance.key, glance.mount) == (expected.key, expected.mount) {
            Ok(found)
        } else {
            Err(Lost::Moved)
        }
    }

    fn hold(&mut self, place: Place, fd: OwnedFd) {
        if self.first.len() < FIRST {
            self.first.push((place, fd));
        } else {
            self.last[self.next] = Some((place, fd));
            self.next = (self.next + 1) % LAST;
        }
    }
}

/// Opens a subdirectory, for finding what is in it. Mounts are entered, links are not.
fn open_below(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Lost> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    rustix::io::retry_on_intr(|| openat2(dir, name, flags, Mode::empty(), resolve)).map_err(|errno| {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Lost::Moved,
            errno => Lost::Refused(errno),
        }
    })
}
