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
    let stat = fstatfs(fd).map_err(|errno| Fault::from_call(SystemCall::new("fstatfs", name, errno)))?;
    let magic = u64::from_ne_bytes(stat.f_type.to_ne_bytes());
    Ok(KERNEL_INTERFACES.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name))
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
    fn no_type_stands_twice() {
        let mut magics: Vec<_> = KERNEL_INTERFACES.iter().map(|(magic, _)| magic).collect();
        magics.sort();
        magics.dedup();
        assert_eq!(magics.len(), KERNEL_INTERFACES.len());
    }
}
