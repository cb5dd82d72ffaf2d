//! Parts of the kernel that no path names, and mounts.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use super::files::terminated;
use super::{check, owned};

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Makes the mount at `path` read-only, without remounting.
pub(crate) fn make_mount_read_only(path: &Path) -> Result<(), Errno> {
    let path = terminated(path)?;
    let attributes = MountAttributes { set: 1, clear: 0, propagation: 0, user_namespace: 0 }; // MOUNT_ATTR_RDONLY
    // SAFETY: the path is NUL-terminated; the call reads one `struct mount_attr` of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            0_u32,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    check(result).map(drop)
}

/// Sets the time zone of the kernel to what it is: the permission is that of setting the clock.
pub(crate) fn set_same_time_zone() -> Result<(), Errno> {
    let mut zone = [0_i32; 2]; // struct timezone
    // SAFETY: the call writes one `struct timezone`; a null time is allowed.
    check(unsafe { libc::syscall(libc::SYS_gettimeofday, std::ptr::null::<u8>(), zone.as_mut_ptr()) })?;
    // SAFETY: the call reads one `struct timezone`; a null time leaves the clock alone.
    check(unsafe { libc::syscall(libc::SYS_settimeofday, std::ptr::null::<u8>(), zone.as_ptr()) }).map(drop)
}

/// Asks `keyctl` for the user's keyring.
pub(crate) fn user_keyring() -> Result<(), Errno> {
    // KEYCTL_GET_KEYRING_ID of KEY_SPEC_USER_KEYRING, made if need be (linux/keyctl.h).
    // SAFETY: the operation takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_keyctl, 0_u32, -4_i32, 1_u32) }).map(drop)
}

/// Adds a key to the keyring of this process, which goes with it.
pub(crate) fn add_key() -> Result<(), Errno> {
    // KEY_SPEC_PROCESS_KEYRING is -2.
    // SAFETY: both names are NUL-terminated and the payload is as long as said.
    let result = unsafe {
        libc::syscall(libc::SYS_add_key, c"user".as_ptr(), c"act".as_ptr(), b"act".as_ptr(), 3_usize, -2_i32)
    };
    check(result).map(drop)
}

/// Makes an array map with one entry.
pub(crate) fn bpf_map() -> Result<(), Errno> {
    let mut attributes = [0_u32; 32]; // union bpf_attr, with room for its later fields
    attributes[..4].copy_from_slice(&[2, 4, 4, 1]); // BPF_MAP_TYPE_ARRAY, key and value of 4 bytes, 1 entry
    // SAFETY: BPF_MAP_CREATE (0) reads as many bytes as said.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, 0_u32, attributes.as_ptr(), size_of_val(&attributes)) };
    // SAFETY: the call returns a new descriptor or -1.
    unsafe { owned(result) }.map(drop)
}

/// Counts the processor time of this process.
pub(crate) fn perf_event() -> Result<(), Errno> {
    let mut attributes = [0_u32; 28]; // struct perf_event_attr, 112 bytes (PERF_ATTR_SIZE_VER5)
    attributes[0] = 1; // PERF_TYPE_SOFTWARE, whose event 0 is PERF_COUNT_SW_CPU_CLOCK
    attributes[1] = 112;
    attributes[10] = 0b110_0001; // disabled, exclude_kernel, exclude_hv: what a plain user may count
    // SAFETY: the structure is as long as its size field says; pid 0 is this process.
    let result = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0_i32, -1_i32, -1_i32, 0_u64)
    };
    // SAFETY: the call returns a new descriptor or -1.
    unsafe { owned(result) }.map(drop)
}

/// A descriptor for page faults of user mode, which needs no privilege (`UFFD_USER_MODE_ONLY`, Linux 5.11).
pub(crate) fn user_fault_descriptor() -> Result<(), Errno> {
    // SAFETY: the call takes flags only and returns a new descriptor or -1.
    unsafe { owned(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1)) }.map(drop)
}

/// Watches a file for changes, by file handles, which needs no privilege (Linux 5.13).
pub(crate) fn watch(path: &Path) -> Result<(), Errno> {
    let path = terminated(path)?;
    // SAFETY: the call takes flags only and returns a new descriptor or -1.
    let group = unsafe { owned(libc::fanotify_init(libc::FAN_REPORT_FID | libc::FAN_CLOEXEC, 0)) }?;
    // SAFETY: the path is NUL-terminated and the descriptor open.
    let result = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            libc::FAN_MARK_ADD,
            libc::FAN_MODIFY,
            libc::AT_FDCWD,
            path.as_ptr(),
        )
    };
    check(result).map(drop)
}

/// `struct file_handle` with room for the largest handle (`MAX_HANDLE_SZ`).
#[repr(C)]
pub(crate) struct FileHandle {
    size: u32,
    kind: i32,
    bytes: [u8; 128],
}

impl FileHandle {
    pub(crate) fn of(path: &Path) -> Result<Self, Errno> {
        let path = terminated(path)?;
        let mut handle = FileHandle { size: 128, kind: 0, bytes: [0; 128] };
        let mut mount = 0_i32;
        // SAFETY: the path is NUL-terminated, the handle has the room that its size field says, and the
        // mount id is one int.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &raw mut handle,
                &raw mut mount,
                0_i32,
            )
        };
        check(result).map(|_zero| handle)
    }

    /// Opens the file without its path, on the file system of `mount`.
    pub(crate) fn open_for_writing(&mut self, mount: &OwnedFd) -> Result<OwnedFd, Errno> {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        let handle = std::ptr::from_mut(self);
        // SAFETY: the handle is one that the kernel filled; the call returns a new descriptor or -1.
        unsafe { owned(libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), handle, flags)) }
    }
}
