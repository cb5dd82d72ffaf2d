//! System calls on mounts and file handles that rustix lacks.

use std::ffi::{c_int, c_long, c_uint};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr;

use linux_raw_sys::general::{__NR_listmount, __NR_statmount, LSMT_ROOT, fsuuid2, mnt_id_req, statmount};
use rustix::io::{Errno, Result};

/// The part of `mnt_id_req` that every kernel with these calls takes: all but the mount namespace.
const REQUEST_SIZE: u32 = 24;
const _: () = assert!(offset_of!(mnt_id_req, mnt_ns_id) == 24 && size_of::<statmount>() == 512);

/// The longest handle that a kernel gives: `MAX_HANDLE_SZ` of `linux/exportfs.h`.
const HANDLE_BYTES: usize = 128;

/// The unique ids of the mounts that the calling thread can reach from its root, those after `after` (0: from the
/// first), by rising id. Fewer than `ids` holds means that there are no more.
///
/// # Kernel
/// Linux 6.8.
pub(crate) fn list(after: u64, ids: &mut [u64]) -> Result<usize> {
    // The kernel takes -1 of a field without a sign: every mount below the root of the caller.
    let request = request(u64::from_ne_bytes(i64::from(LSMT_ROOT).to_ne_bytes()), after);
    let call = c_long::from(__NR_listmount);
    // SAFETY: the kernel reads `REQUEST_SIZE` bytes of `request` and writes at most `ids.len()` numbers to `ids`.
    let count = unsafe { libc::syscall(call, &raw const request, ids.as_mut_ptr(), ids.len(), 0 as c_uint) };
    usize::try_from(count).map_err(|_negative| last_errno())
}

/// What the kernel says about one mount.
///
/// # Source
/// `statmount(2)`, `linux/mount.h`.
#[derive(Debug)]
pub(crate) struct Statmount {
    bytes: Vec<u8>,
}

/// A number of the fixed part, by its place there.
macro_rules! number {
    ($name:ident: $type:ty, $field:ident, $doc:literal) => {
        #[doc = $doc]
        pub(crate) fn $name(&self) -> $type {
            self.number(offset_of!(statmount, $field)).map_or(0, <$type>::from_ne_bytes)
        }
    };
}

/// A string of the variable part, without its end; empty where the kernel set none.
macro_rules! string {
    ($name:ident, $field:ident, $doc:literal) => {
        #[doc = $doc]
        pub(crate) fn $name(&self) -> &[u8] {
            self.string(self.number(offset_of!(statmount, $field)).map_or(0, u32::from_ne_bytes))
        }
    };
}

impl Statmount {
    /// Strings begin in a buffer of this size; most mounts fit.
    const BYTES: usize = 4096;
    /// No mount has strings that long: each is at most a few paths.
    const LIMIT: usize = 16 << 20;

    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; Self::BYTES] }
    }

    /// Asks about the mount with the unique id `id`; `fields` are `STATMOUNT_*` bits.
    ///
    /// # Kernel
    /// Linux 6.8; single fields came later, see [`Self::mask`] and [`Self::supported`].
    pub(crate) fn ask(&mut self, id: u64, fields: u64) -> Result<()> {
        loop {
            match self.call(id, fields) {
                Err(Errno::OVERFLOW) if self.bytes.len() < Self::LIMIT => {
                    self.bytes.resize(self.bytes.len() * 2, 0);
                }
                // A buffer that is never filled beyond what the kernel says need not be cleared in between.
                outcome => return outcome,
            }
        }
    }

    fn call(&mut self, id: u64, fields: u64) -> Result<()> {
        let request = request(id, fields);
        let (answer, size) = (self.bytes.as_mut_ptr(), self.bytes.len());
        let call = c_long::from(__NR_statmount);
        // SAFETY: the kernel reads `REQUEST_SIZE` bytes of `request` and writes at most `size` bytes to `answer`,
        // which hold no value with rules.
        let outcome = unsafe { libc::syscall(call, &raw const request, answer, size, 0 as c_uint) };
        if outcome < 0 { Err(last_errno()) } else { Ok(()) }
    }

    number!(mask: u64, mask, "The `STATMOUNT_*` bits that were answered.");
    number!(supported: u64, supported_mask, "The `STATMOUNT_*` bits that this kernel knows, if it says so.");
    number!(device_major: u32, sb_dev_major, "Major number of the file system's device.");
    number!(device_minor: u32, sb_dev_minor, "Minor number of the file system's device.");
    number!(super_flags: u32, sb_flags, "`SB_*` bits of the file system.");
    number!(attributes: u64, mnt_attr, "`MOUNT_ATTR_*` bits of the mount.");
    number!(id_old: u32, mnt_id_old, "The id that `statx` and `mountinfo` show; given again after an unmount.");
    number!(parent_old: u32, mnt_parent_id_old, "The parent's id of that kind.");
    string!(root, mnt_root, "Path of the mount's root within the file system.");
    string!(point, mnt_point, "Path of the mount as seen from the caller's root.");
    string!(fs_type, fs_type, "Type of the file system.");
    string!(fs_subtype, fs_subtype, "What a file system in user space calls itself.");
    string!(source, sb_source, "What was mounted, in the words of who mounted it.");
    string!(options, mnt_opts, "Options of the file system, separated by commas, in the kernel's escapes.");

    fn number<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at + N)?.try_into().ok()
    }

    fn string(&self, offset: u32) -> &[u8] {
        let filled = self.number(offset_of!(statmount, size)).map_or(0, u32::from_ne_bytes);
        let filled = usize::try_from(filled).unwrap_or(usize::MAX).min(self.bytes.len());
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(size_of::<statmount>());
        let rest = self.bytes.get(begin..filled).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

fn request(id: u64, param: u64) -> mnt_id_req {
    mnt_id_req { size: REQUEST_SIZE, spare: 0, mnt_id: id, param, mnt_ns_id: 0 }
}

#[repr(C)]
struct RawHandle {
    size: c_uint,
    kind: c_int,
    bytes: [u8; HANDLE_BYTES],
}

/// The file handle of a descriptor's object: its type and its bytes. `flags` besides `AT_EMPTY_PATH`.
///
/// # Source
/// `name_to_handle_at(2)`.
pub(crate) fn handle(fd: impl AsFd, flags: u32) -> Result<(i32, Vec<u8>)> {
    let mut handle = RawHandle { size: 128, kind: 0, bytes: [0; HANDLE_BYTES] };
    let mut mount: c_int = 0;
    let flags = c_long::from(flags | linux_raw_sys::general::AT_EMPTY_PATH);
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the name is an empty string with its end; the kernel writes no more than the handle's head and the
    // `size` bytes that it names, and one number to `mount`.
    let outcome = unsafe {
        let (handle, mount) = (ptr::from_mut(&mut handle), &raw mut mount);
        libc::syscall(libc::SYS_name_to_handle_at, fd, c"".as_ptr(), handle, mount, flags)
    };
    if outcome < 0 {
        return Err(last_errno());
    }
    let size = usize::try_from(handle.size).unwrap_or(usize::MAX);
    let bytes = handle.bytes.get(..size).ok_or(Errno::OVERFLOW)?;
    Ok((handle.kind, bytes.to_vec()))
}

/// The UUID of the file system that holds a descriptor's object; `None` where it has none of 16 bytes, or where the
/// kernel or the file system does not say. The descriptor must not be one of `O_PATH`.
///
/// # Kernel
/// Linux 6.9.
///
/// # Source
/// `FS_IOC_GETFSUUID` and `struct fsuuid2` of `linux/fs.h`.
pub(crate) fn uuid(fd: impl AsFd) -> Result<Option<[u8; 16]>> {
    /// `_IOR(0x15, 0, struct fsuuid2)`.
    const GET_UUID: libc::Ioctl = 0x8011_1500;
    const _: () = assert!(size_of::<fsuuid2>() == 17);
    let mut answer = fsuuid2 { len: 0, uuid: [0; 16] };
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one `fsuuid2`, which holds bytes only.
    let outcome = unsafe { libc::ioctl(fd, GET_UUID, &raw mut answer) };
    if outcome == 0 {
        return Ok((answer.len == 16).then_some(answer.uuid));
    }
    match last_errno() {
        Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Ok(None),
        errno => Err(errno),
    }
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
