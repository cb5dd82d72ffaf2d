//! Mounts, namespaces, and what a path names.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use super::file::{RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS};
use super::{Errno, O_CLOEXEC, O_PATH, Result, call, int, number, owned, retry};

pub(crate) const CLONE_NEWNS: usize = 0x0002_0000;
pub(crate) const CLONE_NEWUTS: usize = 0x0400_0000;
pub(crate) const CLONE_NEWIPC: usize = 0x0800_0000;
pub(crate) const CLONE_NEWUSER: usize = 0x1000_0000;
pub(crate) const CLONE_NEWPID: usize = 0x2000_0000;
pub(crate) const CLONE_NEWNET: usize = 0x4000_0000;

const AT_EMPTY_PATH: usize = 0x1000;
const AT_RECURSIVE: usize = 0x8000;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;
const OPEN_TREE_CLONE: usize = 1;
const OPEN_TREE_CLOEXEC: usize = 0o2_000_000;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 4;
const MOVE_MOUNT_T_EMPTY_PATH: usize = 0x40;
const FSOPEN_CLOEXEC: usize = 1;
const FSCONFIG_SET_STRING: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;
const FSMOUNT_CLOEXEC: usize = 1;

pub(crate) const ATTR_RDONLY: u64 = 1;
pub(crate) const ATTR_NOSUID: u64 = 2;
pub(crate) const ATTR_NODEV: u64 = 4;
pub(crate) const ATTR_NOEXEC: u64 = 8;

const EMPTY: &CStr = c"";

/// `unshare(2)`.
pub(crate) fn unshare(kinds: usize) -> Result<()> {
    // SAFETY: no pointers. Nothing of this process depends on what is unshared.
    unsafe { call(number::UNSHARE, [kinds, 0, 0, 0, 0, 0]) }.map(drop)
}

/// Enters a mount namespace (`setns(2)`), with its root as root and working directory.
pub(crate) fn enter_mounts(namespace: &OwnedFd) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::SETNS, [int(namespace.as_raw_fd()), CLONE_NEWNS, 0, 0, 0, 0]) }.map(drop)
}

/// Takes a directory as root and working directory.
pub(crate) fn enter_root(root: &OwnedFd) -> Result<()> {
    super::fchdir(root.as_raw_fd())?;
    // SAFETY: a C string.
    unsafe { call(number::CHROOT, [c".".as_ptr() as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

/// Mounts of other namespaces no longer reach this one, nor the other way round.
pub(crate) fn make_private() -> Result<()> {
    const MS_REC_PRIVATE: usize = 0x4000 | 0x4_0000;
    let root = c"/".as_ptr() as usize;
    // SAFETY: C strings; the type and the data are not read for a change of propagation.
    unsafe { call(number::MOUNT, [c"none".as_ptr() as usize, root, 0, MS_REC_PRIVATE, 0, 0]) }.map(drop)
}

/// A detached copy of the tree of mounts at an open directory, or of one file. Linux 5.2.
pub(crate) fn clone_tree(at: &OwnedFd) -> Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE;
    // SAFETY: an empty C string: the descriptor names the directory.
    owned(unsafe { call(number::OPEN_TREE, [int(at.as_raw_fd()), EMPTY.as_ptr() as usize, flags, 0, 0, 0]) }?)
}

/// Mounts a detached tree on what is open there. Linux 5.2.
pub(crate) fn attach(tree: &OwnedFd, onto: &OwnedFd) -> Result<()> {
    let empty = EMPTY.as_ptr() as usize;
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: empty C strings: the descriptors name both sides.
    unsafe {
        call(number::MOVE_MOUNT, [int(tree.as_raw_fd()), empty, int(onto.as_raw_fd()), empty, flags, 0])
    }
    .map(drop)
}

/// Sets and clears attributes of the mount whose root is open there; of all below it as well when `whole`. Linux 5.12.
pub(crate) fn set_attributes(at: &OwnedFd, set: u64, clear: u64, whole: bool) -> Result<()> {
    // struct mount_attr: attr_set, attr_clr, propagation, userns_fd.
    let attributes = [set, clear, 0, 0];
    let flags = AT_EMPTY_PATH | if whole { AT_RECURSIVE } else { 0 };
    // SAFETY: an empty C string, and a structure of the size that is given.
    unsafe {
        call(
            number::MOUNT_SETATTR,
            [
                int(at.as_raw_fd()),
                EMPTY.as_ptr() as usize,
                flags,
                attributes.as_ptr() as usize,
                size_of_val(&attributes),
                0,
            ],
        )
    }
    .map(drop)
}

/// A new file system of a kind that needs no device, as a detached mount. Linux 5.2.
pub(crate) fn new_file_system(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> Result<OwnedFd> {
    // SAFETY: a C string.
    let context =
        owned(unsafe { call(number::FSOPEN, [kind.as_ptr() as usize, FSOPEN_CLOEXEC, 0, 0, 0, 0]) }?)?;
    let configure = |command, key: usize, value: usize| {
        // SAFETY: the key and the value are C strings, or null where the command takes none.
        unsafe { call(number::FSCONFIG, [int(context.as_raw_fd()), command, key, value, 0, 0]) }
    };
    for (key, value) in options {
        configure(FSCONFIG_SET_STRING, key.as_ptr() as usize, value.as_ptr() as usize)?;
    }
    configure(FSCONFIG_CMD_CREATE, 0, 0)?;
    let attributes = usize::try_from(attributes).map_err(|_| Errno::INVAL)?;
    // SAFETY: no pointers.
    owned(unsafe { call(number::FSMOUNT, [int(context.as_raw_fd()), FSMOUNT_CLOEXEC, attributes, 0, 0, 0]) }?)
}

/// Opens what an absolute path names, without following any link.
pub(crate) fn open_place(path: &CStr, flags: i32) -> Result<OwnedFd> {
    // struct open_how: flags, mode, resolve.
    let how = [int(flags | O_PATH | O_CLOEXEC) as u64, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS];
    owned(retry(|| {
        // SAFETY: `path` is a C string, and `how` has the size that is given.
        unsafe {
            call(
                number::OPENAT2,
                [
                    int(super::AT_FDCWD),
                    path.as_ptr() as usize,
                    how.as_ptr() as usize,
                    size_of_val(&how),
                    0,
                    0,
                ],
            )
        }
    })?)
}

/// What an open descriptor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) mode: u16,
    /// The mount on which it was reached, as mountinfo numbers it.
    pub(crate) mount: u64,
    /// Number of the device that a device node stands for.
    pub(crate) stands_for: (u32, u32),
}

/// `struct statx`, as far as it is read.
#[repr(C)]
#[derive(Default)]
struct Statx {
    mask: u32,
    block_size: u32,
    attributes: u64,
    links: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    spare: u16,
    inode: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    times: [u64; 8],
    rdev: (u32, u32),
    device: (u32, u32),
    mount: u64,
    rest: [u64; 13],
}

/// What a descriptor names; the mount from Linux 5.8.
pub(crate) fn look(at: RawFd) -> Result<Seen> {
    const BASIC_AND_MOUNT: usize = 0x7ff | 0x1000;
    let mut found = Statx::default();
    // SAFETY: an empty C string, and a structure of 256 bytes, which is all that the kernel writes.
    unsafe {
        call(
            number::STATX,
            [
                int(at),
                EMPTY.as_ptr() as usize,
                AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW,
                BASIC_AND_MOUNT,
                (&raw mut found) as usize,
                0,
            ],
        )
    }?;
    Ok(Seen {
        device: found.device,
        inode: found.inode,
        mode: found.mode,
        mount: found.mount,
        stands_for: found.rdev,
    })
}

/// Adds a rule to a Landlock ruleset: rights beneath what is open there.
pub(crate) fn add_rule(ruleset: &OwnedFd, beneath: &OwnedFd, rights: u64) -> Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        parent: i32,
    }
    const PATH_BENEATH: usize = 1;
    let rule = PathBeneath { rights, parent: beneath.as_raw_fd() };
    // SAFETY: a structure of the kind that the number names.
    unsafe {
        call(
            number::LANDLOCK_ADD_RULE,
            [int(ruleset.as_raw_fd()), PATH_BENEATH, (&raw const rule) as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn bring_up_loopback() -> Result<()> {
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: i16,
        rest: [u8; 22],
    }
    const AF_INET: usize = 2;
    const SOCK_DGRAM: usize = 2;
    const SIOCSIFFLAGS: usize = 0x8914;
    const IFF_UP: i16 = 1;
    // SAFETY: no pointers.
    let socket = owned(unsafe { call(number::SOCKET, [AF_INET, SOCK_DGRAM | 0o2_000_000, 0, 0, 0, 0]) }?)?;
    let mut request = Request { name: [0; 16], flags: IFF_UP, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: `struct ifreq` has 40 bytes.
    unsafe {
        call(number::IOCTL, [int(socket.as_raw_fd()), SIOCSIFFLAGS, (&raw mut request) as usize, 0, 0, 0])
    }
    .map(drop)
}

/// A C string of a path that came in a message.
pub(crate) fn c_path(path: &[u8]) -> Result<CString> {
    CString::new(path).map_err(|_| Errno::INVAL)
}
