//! File systems that are controls of the kernel, not places for files.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::fstatfs;

use super::fault::Fault;
use crate::error::SystemCall;

/// Type number and name.
///
/// # Source
/// `linux/magic.h`, and for those that it leaves out the kernel sources named beside them.
const KERNEL_INTERFACES: &[(u64, &str)] = &[
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0xcafe_4a11, "bpf"),
    (0x1cd1, "devpts"),
    (0x6c6f_6f70, "binderfs"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x0765_5821, "resctrl"),
    (0x6e73_6673, "nsfs"),
    (0xabba_1974, "xenfs"),
    (0x9fa1, "openpromfs"),
    (0x9fa2, "usbdevfs"),
    (0x1980_0202, "mqueue"),     // ipc/mqueue.c
    (0x6265_6570, "configfs"),   // fs/configfs/mount.c
    (0x6573_5543, "fusectl"),    // fs/fuse/control.c
    (0x6e66_7364, "nfsd"),       // fs/nfsd/nfsctl.c
    (0x6759_6969, "rpc_pipefs"), // net/sunrpc/rpc_pipe.c
    (0x0a64_7361, "functionfs"), // drivers/usb/gadget/function/f_fs.c
    (0xaee7_1ee7, "gadgetfs"),   // drivers/usb/gadget/legacy/inode.c
    (0x5049_4446, "pidfs"),      // fs/pidfs.c
];

/// The name of the file system that holds the descriptor's object, if it is one by which the kernel is controlled.
pub(crate) fn kernel_interface(fd: impl AsFd, name: &Path) -> Result<Option<&'static str>, Fault> {
    let magic = magic(fd, name)?;
    Ok(KERNEL_INTERFACES.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name))
}

fn magic(fd: impl AsFd, name: &Path) -> Result<u64, Fault> {
    let stat = fstatfs(fd).map_err(|errno| Fault::from_call(SystemCall::new("fstatfs", name, errno)))?;
    Ok(u64::from_ne_bytes(stat.f_type.to_ne_bytes()))
}

/// Whether a descriptor's object lies on an overlay file system.
pub(crate) fn is_overlay(fd: impl AsFd, name: &Path) -> Result<bool, Fault> {
    /// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
    const OVERLAY: u64 = 0x794c_7630;
    Ok(magic(fd, name)? == OVERLAY)
}

/// What a type of file system promises about the objects on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promises {
    /// One object has one number and one spelling.
    pub(crate) is_exact: bool,
    /// What it holds is kept elsewhere, by a server or by a program: another mount may hold the same.
    pub(crate) is_elsewhere: bool,
    /// It may show directories of this machine under another name: a write through it is another program's write
    /// there, of which no mount table tells.
    pub(crate) may_be_here: bool,
}

/// Types whose names fold case, or whose numbers are made up on the way, and which show a disk, an image or the kernel's
/// figures.
const INEXACT: &[&str] = &[
    "vfat",
    "msdos",
    "exfat",
    "ntfs",
    "ntfs3",
    "hfs",
    "hfsplus",
    "affs",
    "adfs",
    "hpfs",
    "fuseblk",
    "fuse.squashfuse",
    "fuse.squashfuse_ll",
    "fuse.snapfuse",
    "fuse.erofsfuse",
    "fuse.dwarfs",
    "fuse.lxcfs",
];

/// What the types of programs that mount themselves end in: an image, and such a program may be the host.
const IMAGE: &str = ".AppImage";

/// Types of clusters and servers that number their objects faithfully.
const SERVED: &[&str] =
    &["nfs", "nfs4", "ceph", "lustre", "gpfs", "beegfs", "afs", "orangefs", "pvfs2", "coda"];

/// Types whose contents are kept on another machine, or by the one around this one, and whose names or numbers are made
/// up on the way.
const REMOTE: &[&str] = &[
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "virtiofs",
    "vboxsf",
    "prl_fs",
    "fuse.vmhgfs-fuse",
    "fuse.grpcfuse",
    "fuse.sshfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.ceph-fuse",
    "fuse.juicefs",
];

/// Types that keep what they hold on a disk or in memory of this machine.
const LOCAL: &[&str] = &[
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "rootfs",
    "hugetlbfs",
    "f2fs",
    "overlay",
    "zfs",
    "bcachefs",
    "jfs",
    "reiserfs",
    "nilfs2",
    "ubifs",
    "jffs2",
    "squashfs",
    "erofs",
    "cramfs",
    "romfs",
    "iso9660",
    "udf",
    "minix",
    "gfs2",
    "ocfs2",
];

/// What a type promises, by the name that the mount table has for it. A type that is not known promises nothing.
///
/// # Source
/// Own measurement for FUSE (one file has another number under each spelling; what is written through `bindfs` is
/// written in a local directory); `nfs(5)`, `mount.cifs(8)`, and the
/// kernel's documentation of each file system for the others.
pub(crate) fn promises(fs_type: &str) -> Promises {
    let is_kernel = KERNEL_INTERFACES.iter().any(|(_, name)| *name == fs_type);
    let promises = |is_exact, is_elsewhere, may_be_here| Promises { is_exact, is_elsewhere, may_be_here };
    if is_kernel || LOCAL.contains(&fs_type) {
        promises(true, false, false)
    } else if INEXACT.contains(&fs_type) || fs_type.ends_with(IMAGE) {
        promises(false, false, false)
    } else if SERVED.contains(&fs_type) {
        promises(true, true, false)
    } else if REMOTE.contains(&fs_type) {
        promises(false, true, false)
    } else {
        promises(false, true, true)
    }
}

/// Whether a type is one through which the kernel is controlled, by the name that the mount table has for it.
pub(crate) fn is_kernel_interface(fs_type: &str) -> Option<&'static str> {
    KERNEL_INTERFACES.iter().map(|(_, name)| *name).find(|name| *name == fs_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn knows_what_every_host_has() {
        let of = |path: &str| kernel_interface(File::open(path).unwrap(), Path::new(path)).unwrap();
        assert_eq!(of("/proc"), Some("proc"));
        assert_eq!(of("/proc/self/fd"), Some("proc"));
        assert_eq!(of("/sys"), Some("sysfs"));
        assert_eq!(of(std::env::temp_dir().to_str().unwrap()), None);
    }

    #[test]
    fn what_is_not_known_promises_nothing() {
        let may_be_here = |fs_type: &str| promises(fs_type).may_be_here;
        for fs_type in
            ["fuse", "fuse.bindfs", "fuse.mergerfs", "fuse.fuse-overlayfs", "ecryptfs", "aufs", "new"]
        {
            assert!(may_be_here(fs_type) && !promises(fs_type).is_exact, "{fs_type}");
        }
        for fs_type in
            ["ext4", "overlay", "nfs4", "9p", "fuse.sshfs", "fuseblk", "fuse.agent.AppImage", "proc"]
        {
            assert!(!may_be_here(fs_type), "{fs_type}");
        }
        let lists = [LOCAL, INEXACT, SERVED, REMOTE].concat();
        let mut names = lists.clone();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), lists.len());
    }

    #[test]
    fn no_type_stands_twice() {
        let mut magics: Vec<_> = KERNEL_INTERFACES.iter().map(|(magic, _)| magic).collect();
        magics.sort();
        magics.dedup();
        assert_eq!(magics.len(), KERNEL_INTERFACES.len());
    }
}
