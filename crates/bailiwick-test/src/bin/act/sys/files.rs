//! Calls on files that rustix lacks.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::check;

/// The path as the kernel wants it.
pub(super) fn terminated(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_nul| Errno::INVAL)
}

/// `truncate(2)` by path, without opening. To length 0.
pub(crate) fn truncate(path: &Path) -> Result<(), Errno> {
    let path = terminated(path)?;
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::truncate(path.as_ptr(), 0) }).map(drop)
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ExtendedFlags {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_on_write_extent_size: u32,
    padding: [u8; 8],
}

impl ExtendedFlags {
    /// `FS_XFLAG_NODUMP`.
    pub(crate) fn toggle_no_dump(self) -> Self {
        ExtendedFlags { flags: self.flags ^ 0x80, ..self }
    }
}

// _IOR('X', 31, struct fsxattr) and _IOW('X', 32, struct fsxattr), linux/fs.h.
const GET_EXTENDED: u64 = 0x801c_581f;
const SET_EXTENDED: u64 = 0x401c_5820;
const _: () = assert!(size_of::<ExtendedFlags>() == 0x1c, "the size is part of both requests");

pub(crate) fn extended_flags(file: &OwnedFd) -> Result<ExtendedFlags, Errno> {
    let mut flags = ExtendedFlags::default();
    // SAFETY: the request writes one `struct fsxattr`.
    check(unsafe { libc::ioctl(file.as_raw_fd(), GET_EXTENDED, &raw mut flags) })?;
    Ok(flags)
}

pub(crate) fn set_extended_flags(file: &OwnedFd, flags: ExtendedFlags) -> Result<(), Errno> {
    // SAFETY: the request reads one `struct fsxattr`.
    check(unsafe { libc::ioctl(file.as_raw_fd(), SET_EXTENDED, &raw const flags) }).map(drop)
}

/// `struct btrfs_ioctl_vol_args_v2` of `linux/btrfs.h`.
#[repr(C)]
struct SubvolumeArguments {
    descriptor: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

// _IOW(0x94, 23, struct btrfs_ioctl_vol_args_v2).
const SNAP_CREATE_V2: u64 = 0x5000_9417;
const _: () = assert!(size_of::<SubvolumeArguments>() == 4096, "the size is part of the request");

/// Plants a snapshot of the subvolume `source` in the directory `destination`.
pub(crate) fn btrfs_snapshot(source: &OwnedFd, destination: &OwnedFd, name: &str) -> Result<(), Errno> {
    let mut arguments = SubvolumeArguments {
        descriptor: source.as_raw_fd().into(),
        transaction: 0,
        flags: 0,
        unused: [0; 4],
        name: [0; 4040],
    };
    let place =
        arguments.name.get_mut(..name.len()).filter(|_| name.len() < 4040).ok_or(Errno::NAMETOOLONG)?;
    place.copy_from_slice(name.as_bytes());
    // SAFETY: the request reads one `struct btrfs_ioctl_vol_args_v2`, whose name is NUL-terminated.
    check(unsafe { libc::ioctl(destination.as_raw_fd(), SNAP_CREATE_V2, &raw const arguments) }).map(drop)
}

/// `struct btrfs_ioctl_vol_args` of `linux/btrfs.h`.
#[repr(C)]
struct VolumeArguments {
    descriptor: i64,
    name: [u8; 4088],
}

// _IOW(0x94, 14, struct btrfs_ioctl_vol_args) and _IOW(0x94, 15, struct btrfs_ioctl_vol_args).
const SUBVOL_CREATE: u64 = 0x5000_940e;
const SNAP_DESTROY: u64 = 0x5000_940f;
const _: () = assert!(size_of::<VolumeArguments>() == 4096, "the size is part of both requests");

/// Makes a subvolume in the directory.
pub(crate) fn btrfs_create(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    volume_request(directory, SUBVOL_CREATE, name)
}

/// Removes a subvolume or snapshot of the directory.
pub(crate) fn btrfs_destroy(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    volume_request(directory, SNAP_DESTROY, name)
}

fn volume_request(directory: &OwnedFd, request: u64, name: &str) -> Result<(), Errno> {
    let mut arguments = VolumeArguments { descriptor: 0, name: [0; 4088] };
    let place =
        arguments.name.get_mut(..name.len()).filter(|_| name.len() < 4088).ok_or(Errno::NAMETOOLONG)?;
    place.copy_from_slice(name.as_bytes());
    // SAFETY: both requests read one `struct btrfs_ioctl_vol_args`, whose name is NUL-terminated.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), request, &raw const arguments) }).map(drop)
}
