//! The numbers by which the kernel tells objects apart.

use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, statx};
use serde::Serialize;

use super::fault::Fault;
use crate::error::SystemCall;

/// When an object was made, by the clock of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Birth {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// Which object a descriptor holds.
///
/// Equal device and inode mean the same object while a descriptor keeps it alive; without one, an inode number
/// may be given to another object. The mount tells through which mount the object was reached: two bind mounts
/// of one directory differ in it alone.
///
/// # Kernel
/// The mount id needs Linux 5.8. Without it nothing is pinned; there is no weaker comparison.
///
/// # Source
/// `statx(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ObjectId {
    /// Major number of the device (`stx_dev_major`).
    pub device_major: u32,
    /// Minor number of the device. On btrfs the pair belongs to the subvolume.
    pub device_minor: u32,
    /// Inode number.
    pub inode: u64,
    /// Mount id, as in the first column of `/proc/self/mountinfo`; unique while the descriptor is open.
    pub mount: u64,
    /// Birth time, where the file system keeps one.
    pub born: Option<Birth>,
}

/// Device and inode: the object, however reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
}

/// Device, inode and mount: the object at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) key: Key,
    pub(crate) mount: u64,
}

impl Key {
    /// `major:minor`, as in `/proc/self/mountinfo`.
    pub(crate) fn device(&self) -> String {
        format!("{}:{}", self.device.0, self.device.1)
    }

    /// Major and minor number of the device.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        self.device
    }

    /// The inode number.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }
}

impl ObjectId {
    pub(crate) fn key(&self) -> Key {
        Key { device: (self.device_major, self.device_minor), inode: self.inode }
    }

    pub(crate) fn node(&self) -> Node {
        Node { key: self.key(), mount: self.mount }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inode {} on device {}:{}, mount {}",
            self.inode, self.device_major, self.device_minor, self.mount
        )
    }
}

/// Everything that one look at a descriptor tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) id: ObjectId,
    pub(crate) file_type: FileType,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner, as a user id in the namespace of this process.
    pub(crate) owner: u32,
    /// Hard links; 0 for a removed object that a descriptor keeps alive.
    pub(crate) links: u32,
    /// When its inode was last changed, by the clock of its file system: seconds since 1970 and nanoseconds.
    pub(crate) changed: (i64, u32),
}

impl Look {
    /// Looks at the object of a descriptor. `name` serves the error only.
    pub(crate) fn at(fd: impl AsFd, name: &Path) -> Result<Self, Fault> {
        Self::stat(fd, c"", AtFlags::EMPTY_PATH, name)
    }

    /// Looks at what `entry` names in a directory, without following a link.
    pub(crate) fn entry(dir: impl AsFd, entry: &Path, name: &Path) -> Result<Self, Fault> {
        Self::stat(dir, entry, AtFlags::SYMLINK_NOFOLLOW, name)
    }

    fn stat(fd: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags, name: &Path) -> Result<Self, Fault> {
        let mask = StatxFlags::TYPE
            | StatxFlags::MODE
            | StatxFlags::UID
            | StatxFlags::NLINK
            | StatxFlags::INO
            | StatxFlags::BTIME
            | StatxFlags::CTIME
            | StatxFlags::MNT_ID;
        let stat = statx(fd, path, flags | AtFlags::NO_AUTOMOUNT, mask)
            .map_err(|errno| Fault::from_call(SystemCall::new("statx", name, errno)))?;
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(Fault::Unsupported { what: "mount ids in statx", since: "Linux 5.8", cause: None });
        }
        let mode = u32::from(stat.stx_mode);
        Ok(Self {
            id: object_id(&stat),
            file_type: FileType::from_raw_mode(mode),
            mode: Mode::from_raw_mode(mode).bits() & 0o7777,
            owner: stat.stx_uid,
            links: stat.stx_nlink,
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        })
    }
}

/// The mount through which a descriptor was opened. Asks the file system nothing: a dead network mount must not
/// hold this up.
pub(crate) fn mount_of(fd: impl AsFd, name: &Path) -> Result<u64, Fault> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, c"", flags, StatxFlags::MNT_ID)
        .map_err(|errno| Fault::from_call(SystemCall::new("statx", name, errno)))?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Fault::Unsupported { what: "mount ids in statx", since: "Linux 5.8", cause: None });
    }
    Ok(stat.stx_mnt_id)
}

fn object_id(stat: &Statx) -> ObjectId {
    let born = (stat.stx_mask & StatxFlags::BTIME.bits() != 0)
        .then_some(Birth { seconds: stat.stx_btime.tv_sec, nanoseconds: stat.stx_btime.tv_nsec });
    ObjectId {
        device_major: stat.stx_dev_major,
        device_minor: stat.stx_dev_minor,
        inode: stat.stx_ino,
        mount: stat.stx_mnt_id,
        born,
    }
}

/// A type of object in words, with its article.
pub(crate) fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of a type unknown here",
    }
}
