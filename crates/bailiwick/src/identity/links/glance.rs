//! The least that `statx` can tell about an entry, as fast as it can be had.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

use super::super::fault::Fault;
use super::super::object::Key;
use super::super::resolve::open_exact;
use crate::error::SystemCall;

/// A point of time as the file system keeps it: seconds since 1970 and nanoseconds.
pub(crate) type Time = (i64, u32);

/// What one look at an object tells. Unlike [`Look`](super::super::Look) it asks for neither owner nor mode, and
/// leaves errors bare: a million of them have to be cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Glance {
    pub(super) key: Key,
    pub(super) kind: FileType,
    /// Hard links. Says nothing for a directory.
    pub(super) links: u32,
    pub(super) mount: u64,
    /// Whether something is mounted here, so that the entry's own object is hidden.
    pub(super) is_mount_root: bool,
    pub(super) changed: Time,
    pub(super) modified: Time,
    pub(super) born: Option<Time>,
    pub(super) size: u64,
}

/// What is equal for all names of one object at one time, whatever numbers a file system gives it under each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    links: u32,
    changed: Time,
    modified: Time,
    born: Option<Time>,
    size: u64,
}

/// An object whose other names are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(super) key: Key,
    pub(super) state: State,
}

impl Target {
    /// The object of a descriptor.
    pub(crate) fn of(fd: impl AsFd) -> Result<Self, Errno> {
        Glance::at(fd).map(|glance| glance.target())
    }

    /// Which object it is.
    pub(crate) fn key(&self) -> Key {
        self.key
    }
}

/// Never follows a link, never makes an automount happen, never waits for a server.
const FLAGS: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT).union(AtFlags::STATX_DONT_SYNC);

const MASK: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::NLINK)
    .union(StatxFlags::INO)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::BTIME)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MNT_ID);

impl Glance {
    /// Looks at what a name names in a directory.
    pub(super) fn entry(dir: impl AsFd, name: &CStr) -> Result<Self, Errno> {
        Self::from_statx(&statx(dir, name, FLAGS, MASK)?)
    }

    /// Looks at the object of a descriptor.
    pub(super) fn at(fd: impl AsFd) -> Result<Self, Errno> {
        Self::from_statx(&statx(fd, c"", FLAGS | AtFlags::EMPTY_PATH, MASK)?)
    }

    /// `ENOSYS` where the kernel has no mount ids (before Linux 5.8), as without `statx`.
    fn from_statx(stat: &Statx) -> Result<Self, Errno> {
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(Errno::NOSYS);
        }
        Ok(Self {
            key: Key { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino },
            kind: FileType::from_raw_mode(u32::from(stat.stx_mode)),
            links: stat.stx_nlink,
            mount: stat.stx_mnt_id,
            is_mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            born: (stat.stx_mask & StatxFlags::BTIME.bits() != 0)
                .then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)),
            size: stat.stx_size,
        })
    }

    /// Whether neither the object nor what it held differs, as far as its times tell.
    pub(super) fn is_same_listing(&self, earlier: &Self) -> bool {
        (self.key, self.mount, self.changed, self.modified)
            == (earlier.key, earlier.mount, earlier.changed, earlier.modified)
    }

    pub(super) fn state(&self) -> State {
        let Self { links, changed, modified, born, size, .. } = *self;
        State { links, changed, modified, born, size }
    }

    /// The object as something to look for.
    pub(super) fn target(&self) -> Target {
        Target { key: self.key, state: self.state() }
    }
}

/// Whatever lies at a path that has no link in it, as something to look for; `None` where nothing does.
pub(crate) fn target_at(path: &Path) -> Result<Option<Target>, Fault> {
    let failed = |call, errno| Fault::from_call(SystemCall::new(call, path, errno));
    match open_exact(path) {
        Ok(fd) => Target::of(fd).map(Some).map_err(|errno| failed("statx", errno)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(failed("openat2", errno)),
    }
}
