//! The mount table: which part of which file system is seen where.
//!
//! Two names lead to one object when both lie on the same file system and their paths *within* it meet, however
//! they are mounted. Neither device and inode of a directory nor any walk upwards tells that for something further
//! below; the mount table does. It is read by `listmount` and `statmount` where the kernel has them with every field
//! that is needed here, and from `mountinfo` elsewhere, into one model.
//!
//! What a table does not tell, and who uses it must know:
//! - A process in a plain `chroot` sees only mounts below its root, and not the one that its root lies on.
//! - A mount may be covered by another. Whether a path still leads to it only a lookup tells (compare the mount id).
//! - Layers of an overlay stand in the options alone, as whoever mounted it wrote them ([`overlay_layers`]).
//! - A rename of a directory above a mount point changes the point without a sign ([`MountWatch`]).

mod calls;
mod fold;
mod handle;
mod location;
mod overlay;
#[cfg(test)]
mod tests;
mod text;
mod watch;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use fold::folds_case;
pub(crate) use handle::{FileHandle, handle};
pub(crate) use location::{Location, Overlap, Spelling};
pub(crate) use overlay::overlay_layers;
use text::MalformedMountinfo;
pub(crate) use watch::MountWatch;

use super::fault::Fault;
use super::object::ObjectId;

/// The device of a file system, as the mount table shows it.
///
/// Never to be compared with the device of `stat`: on btrfs that one belongs to the subvolume, on overlayfs it may
/// belong to a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Device {
    /// The device of an object, for the file systems on which it is that of the mount table too.
    pub(crate) fn of(id: &ObjectId) -> Self {
        Self { major: id.device_major, minor: id.device_minor }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// As `stx_mnt_id` of `statx` and the first column of `mountinfo`. Given to another mount after an unmount.
    pub(crate) id: u64,
    /// Id of the mount that it is attached to, which may be one that is not listed. Of two mounts stacked on one
    /// point the upper has the lower as its parent.
    pub(crate) parent: u64,
    /// The file system.
    pub(crate) device: Device,
    /// What the mount shows: a path within the file system, or the kernel's own word for it (`net:[4026531840]`).
    pub(crate) root: PathBuf,
    /// The mount's root has no name in the file system any more; `root` is the last one that it had, and may be the
    /// name of something else by now.
    pub(crate) root_removed: bool,
    /// Where it is mounted, as seen from the root of the thread that read the table.
    pub(crate) point: PathBuf,
    /// Type, with the subtype where there is one: `ext4`, `fuse.sshfs`.
    pub(crate) fs_type: String,
    /// What was mounted, in the words of who mounted it; empty where they left it out.
    pub(crate) source: OsString,
    /// Options of the file system without the general ones (`rw`, `sync`...), separated by commas. Values stay in
    /// the kernel's octal escapes: without them a comma in a value could not be told from one between two options.
    pub(crate) options: Vec<u8>,
    /// Nothing can be written through it: the mount or the file system is read-only.
    pub(crate) read_only: bool,
}

/// The mounts that a thread sees, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountTable {
    /// By rising id.
    mounts: Vec<Mount>,
}

impl MountTable {
    /// The table of the calling thread.
    ///
    /// Read again when the mounts changed meanwhile, so that it never shows one mount before and another one after
    /// a change.
    ///
    /// # Errors
    /// `/proc` cannot be read, says something that is not understood, or the mounts do not come to rest (`EAGAIN`).
    pub(crate) fn read() -> Result<Self, Fault> {
        match Self::read_by_calls()? {
            Some(table) => Ok(table),
            None => Self::read_by_text(),
        }
    }

    /// By `listmount` and `statmount`; `None` where this kernel, or a filter of system calls, does not let them
    /// answer everything.
    fn read_by_calls() -> Result<Option<Self>, Fault> {
        MountWatch::new()?.steady(|_watch| calls::read())
    }

    /// From `mountinfo`.
    fn read_by_text() -> Result<Self, Fault> {
        MountWatch::new()?.steady(|watch| text::read(watch.file()))
    }

    /// Understands the contents of a `mountinfo` file.
    ///
    /// # Errors
    /// A line is not of the known form, has no end, or bears the id of another one.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, MalformedMountinfo> {
        let lines = text::lines(text)?;
        let table = Self::of(lines);
        match table.mounts.windows(2).position(|pair| pair[0].id == pair[1].id) {
            Some(at) => Err(MalformedMountinfo::twice(table.mounts[at].id)),
            None => Ok(table),
        }
    }

    fn of(mut mounts: Vec<Mount>) -> Self {
        mounts.sort_by_key(|mount| mount.id);
        Self { mounts }
    }

    /// Every mount, by rising id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// The mount with this id.
    pub(crate) fn get(&self, id: u64) -> Option<&Mount> {
        let at = self.mounts.binary_search_by_key(&id, |mount| mount.id).ok()?;
        self.mounts.get(at)
    }

    /// Where an object lies in its file system: `canonical` is its path without links, reached through the mount.
    ///
    /// `None` when the mount is not listed (the root of a plain `chroot` lies on it, or it was detached) or does not
    /// hold the path at its point. That is no proof of anything: who gets it cannot compare.
    ///
    /// # Security
    /// True for the moment at which both were read. Compare a [`MountWatch`] opened before either.
    pub(crate) fn locate(&self, mount: u64, canonical: &Path) -> Option<Location> {
        let mount = self.get(mount)?;
        let below = canonical.strip_prefix(&mount.point).ok()?;
        // Joining an empty path would add a slash.
        let path = if below.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(below) };
        Some(Location { device: mount.device, path })
    }
}
