//! What one directory of an inventory holds: read for the first time, and looked at again.

use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use super::super::resolve::{Want, open_entry};
use super::glance::Glance;
use super::linked::{Freshness, is_other_state, is_young};
use super::tree::Entry;

/// What is in a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: u64,
    pub(super) files: Vec<Entry>,
    pub(super) symlinks: Vec<CString>,
    pub(super) directories: Vec<(CString, Glance)>,
}

impl Listing {
    /// Reads a directory; stops one entry beyond `room`.
    pub(super) fn read(
        &mut self,
        dir: impl AsFd,
        buffer: &mut [MaybeUninit<u8>],
        room: u64,
    ) -> Result<(), Errno> {
        let mut list = RawDir::new(dir.as_fd(), buffer);
        while let Some(entry) = list.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(Errno::NOENT) => break,
                Err(errno) => return Err(errno),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let glance = match Glance::entry(dir.as_fd(), name) {
                Ok(glance) => glance,
                // Gone already, which the directory's times will tell.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            self.entries += 1;
            match glance.kind {
                FileType::Directory => self.directories.push((name.to_owned(), glance)),
                FileType::Symlink => self.symlinks.push(name.to_owned()),
                _ => self.files.push(Entry { name: name.to_owned(), glance, held: None, is_young: false }),
            }
            if self.entries > room {
                break;
            }
        }
        Ok(())
    }
}

/// Looks at each file again, and holds the first `held` of them for the next time; true if the directory must be
/// listed to tell what has become of one.
pub(super) fn look_at_each(
    dir: BorrowedFd<'_>,
    entries: &mut [Entry],
    held: usize,
    fresh: &mut Freshness,
) -> Result<bool, Errno> {
    let mut now = None;
    for (number, entry) in entries.iter_mut().enumerate() {
        if entry.held.is_none() && number < held {
            entry.held =
                open_entry(dir, Path::new(OsStr::from_bytes(entry.name.to_bytes())), Want::Anything).ok();
            // The name must lead to what is held at the first look, and at every other until the directory changes.
            if let Some(fd) = &entry.held {
                let (named, held) = (Glance::entry(dir, &entry.name), Glance::at(fd)?);
                if named.map(|named| named.key) != Ok(held.key) {
                    return Ok(true);
                }
            }
        }
        let looked = match &entry.held {
            Some(fd) => Glance::at(fd),
            None => Glance::entry(dir, &entry.name),
        };
        let glance = match looked {
            Ok(glance) => glance,
            Err(Errno::NOENT) => return Ok(true),
            // May no longer be searched: listing it says so.
            Err(Errno::ACCESS) => return Ok(true),
            Err(errno) => return Err(errno),
        };
        if matches!(glance.kind, FileType::Directory | FileType::Symlink)
            || glance.mount != entry.glance.mount
        {
            return Ok(true);
        }
        fresh.links |= is_other_state(&entry.glance, &glance) || entry.is_young;
        entry.glance = glance;
        if glance.links > 1 {
            entry.is_young = is_young(glance.changed, *now.get_or_insert_with(SystemTime::now));
        }
    }
    Ok(false)
}
