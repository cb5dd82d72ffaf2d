//! What numbers and names mean on a type of file system.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstatfs, ioctl_getflags, openat};
use rustix::io::Errno;

use super::{Fault, Mount};
use crate::error::SystemCall;

/// How far a file system's own numbers and names can be believed, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// The inode number of a directory entry is that of the file, device and inode name one file, and names differ
    /// where their bytes differ (in directories that do not [fold case](folds_case)).
    Sound,
    /// Device and inode name one file, but only `stat` tells them: an entry may show the number of a layer.
    Stat,
    /// Others may reach the same files under other numbers: another mount, another machine, a server.
    Remote,
    /// Neither a name nor a number proves anything.
    Unreliable,
}

/// Type number, the name of the type in the mount table, and what can be believed.
///
/// # Source
/// Numbers: `linux/magic.h`, or the kernel source of the type. Beliefs: measured for ext4, xfs, btrfs, tmpfs, overlay
/// and exfat by FUSE on Linux 6.18 (`getdents64` against `stat` for files, hard links and links).
const TYPES: &[(u64, &str, Trust)] = &[
    (0xef53, "ext2", Trust::Sound),
    (0xef53, "ext3", Trust::Sound),
    (0xef53, "ext4", Trust::Sound),
    (0x5846_5342, "xfs", Trust::Sound),
    (0x9123_683e, "btrfs", Trust::Sound),
    (0x0102_1994, "tmpfs", Trust::Sound),
    (0x0102_1994, "devtmpfs", Trust::Sound),
    (0x8584_58f6, "ramfs", Trust::Sound),
    (0xf2f5_2010, "f2fs", Trust::Sound),
    (0x794c_7630, "overlay", Trust::Stat),
    (0x6969, "nfs", Trust::Remote),
    (0x6969, "nfs4", Trust::Remote),
    (0xff53_4d42, "cifs", Trust::Remote),
    (0xfe53_4d42, "smb3", Trust::Remote),
    (0x517b, "smbfs", Trust::Remote),
    (0x0102_1997, "9p", Trust::Remote),
    (0x00c3_6400, "ceph", Trust::Remote),
    (0x6b41_4653, "afs", Trust::Remote),
    (0x5346_414f, "afs", Trust::Remote), // OpenAFS
    (0x7375_7245, "coda", Trust::Remote),
    (0x786f_4256, "vboxsf", Trust::Remote),
    (0x7461_636f, "ocfs2", Trust::Remote),
    (0x0116_1970, "gfs2", Trust::Remote),
    (0x0bd0_0bd0, "lustre", Trust::Remote),
    (0x4750_4653, "gpfs", Trust::Remote),
    (0x2003_0528, "pvfs2", Trust::Remote), // OrangeFS
];

/// The number of everything that a process answers, `virtiofs` and `fuseblk` included.
const FUSE: u64 = 0x6573_5546;

impl Trust {
    /// By the type number of `statfs`. A type that is not known is [`Trust::Unreliable`].
    fn of_magic(magic: u64) -> Self {
        TYPES.iter().find(|(known, ..)| *known == magic).map_or(Self::Unreliable, |(.., trust)| *trust)
    }

    /// By the name of the type in the mount table. A type that is not known is [`Trust::Unreliable`].
    fn of_type(fs_type: &str) -> Self {
        match fs_type {
            // Its number is that of FUSE, so only its name tells.
            "virtiofs" => Self::Remote,
            _ => TYPES
                .iter()
                .find(|(_, known, _)| *known == fs_type)
                .map_or(Self::Unreliable, |(.., trust)| *trust),
        }
    }
}

impl Mount {
    /// What can be believed of what it shows, by the name of its type: for mounts that are not opened.
    pub(crate) fn trust(&self) -> Trust {
        Trust::of_type(&self.fs_type)
    }
}

/// What can be believed of the file system that holds the descriptor's object. `name` serves the error only.
///
/// # Errors
/// The kernel's answer to `fstatfs`.
pub(crate) fn trust(fd: impl AsFd, name: &Path) -> Result<Trust, Fault> {
    let stat = fstatfs(fd).map_err(|errno| failed("fstatfs", name, errno))?;
    Ok(Trust::of_magic(u64::from_ne_bytes(stat.f_type.to_ne_bytes())))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_or_name_has_one_answer() {
        for (magic, fs_type, trust) in TYPES {
            assert_eq!((Trust::of_magic(*magic), Trust::of_type(fs_type)), (*trust, *trust), "{fs_type}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_believed() {
        for fs_type in
            ["fuse", "fuse.sshfs", "fuseblk", "vfat", "exfat", "ntfs3", "hfsplus", "iso9660", "ext5", ""]
        {
            assert_eq!(Trust::of_type(fs_type), Trust::Unreliable, "{fs_type}");
        }
        assert_eq!(Trust::of_magic(FUSE), Trust::Unreliable);
        assert_eq!(Trust::of_magic(0), Trust::Unreliable);
    }
}
