//! What one look at an entry tells.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, StatxTimestamp, statx};
use serde::Serialize;

use super::fault::At;
use crate::error::Error;
use crate::identity::{Birth, ObjectId};

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    SymbolicLink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A type that this crate does not know.
    Unknown,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::SymbolicLink => "a symbolic link",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Unknown => "of a type unknown here",
        })
    }
}

/// A time by the clock of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Stamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// What one look at an entry told.
///
/// # Security
/// True at one moment. For a file that was read, size and times were the same before and after.
///
/// # Source
/// `statx(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct Facts {
    /// Which object it is.
    pub id: ObjectId,
    /// Its type.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Hard links. Above 1, the file has other names, which need not lie in the tree.
    pub links: u32,
    /// Permission bits, with the set-id and sticky bits.
    pub mode: u32,
    /// User id of the owner, in the namespace of this process.
    pub owner: u32,
    /// Group id, in the namespace of this process.
    pub group: u32,
    /// When its content was last modified.
    pub modified: Stamp,
    /// When content or metadata last changed. Nobody can set it back.
    pub changed: Stamp,
}

impl Facts {
    /// Looks at the object of a descriptor.
    pub(super) fn of(fd: impl AsFd, at: At<'_>) -> Result<Self, Error> {
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
        let stat = statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, mask)
            .map_err(|errno| at.call("statx", errno))?;
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(at.unsupported("mount ids in statx", "Linux 5.8"));
        }
        Ok(Self::from(&stat))
    }

    /// Whether both looks found the same object through the same mount.
    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        self.id.node() == other.id.node() && self.kind == other.kind
    }

    /// What was changed between two looks at one object, if anything that a writer changes was.
    pub(super) fn difference(&self, later: &Self) -> Option<&'static str> {
        if later.size > self.size {
            Some("grew")
        } else if later.size < self.size {
            Some("shrank")
        } else if (self.modified, self.changed, self.links) != (later.modified, later.changed, later.links) {
            Some("modified")
        } else {
            None
        }
    }
}

impl From<&Statx> for Facts {
    fn from(stat: &Statx) -> Self {
        let raw = u32::from(stat.stx_mode);
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = has_birth
            .then_some(Birth { seconds: stat.stx_btime.tv_sec, nanoseconds: stat.stx_btime.tv_nsec });
        Self {
            id: ObjectId {
                device_major: stat.stx_dev_major,
                device_minor: stat.stx_dev_minor,
                inode: stat.stx_ino,
                mount: stat.stx_mnt_id,
                born,
            },
            kind: kind(FileType::from_raw_mode(raw)),
            size: stat.stx_size,
            links: stat.stx_nlink,
            mode: Mode::from_raw_mode(raw).bits() & 0o7777,
            owner: stat.stx_uid,
            group: stat.stx_gid,
            modified: stamp(stat.stx_mtime),
            changed: stamp(stat.stx_ctime),
        }
    }
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::SymbolicLink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharacterDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => Kind::Unknown,
    }
}

fn stamp(time: StatxTimestamp) -> Stamp {
    Stamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}
