//! Directories that fold case.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ioctl_getflags, openat};
use rustix::io::Errno;

use super::Fault;
use crate::error::SystemCall;

/// Whether names in this directory are compared without case, because it is marked so (ext4, f2fs and tmpfs, by
/// `chattr +F`). Its subdirectories have marks of their own, inherited when they were made.
///
/// A whole file system that folds case (vfat, exfat, xfs made with `-n version=ci`) bears no such mark.
///
/// # Errors
/// The directory may not be listed by this user, so that the mark cannot be read; or it is no directory.
///
/// # Source
/// `FS_IOC_GETFLAGS` in `ioctl_iflags(2)`; `FS_CASEFOLD_FL` in `linux/fs.h`.
pub(crate) fn folds_case(dir: impl AsFd, name: &Path) -> Result<bool, Fault> {
    const CASEFOLD: u32 = 0x4000_0000;
    // A descriptor that only marks a place (`O_PATH`) takes no ioctl.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let dir = openat(dir, ".", flags, Mode::empty()).map_err(|errno| failed("openat", name, errno))?;
    match ioctl_getflags(dir) {
        Ok(flags) => Ok(flags.bits() & CASEFOLD != 0),
        // A type without marks.
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(failed("ioctl", name, errno)),
    }
}

fn failed(call: &'static str, name: &Path, errno: Errno) -> Fault {
    Fault::from_call(SystemCall::new(call, name, errno))
}
