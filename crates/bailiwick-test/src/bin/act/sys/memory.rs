//! System V memory and messages, and memory shared with children.

use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::check;

/// Makes a segment of 4096 bytes, of this user alone. It stays until it is removed.
pub(crate) fn new_segment() -> Result<i64, Errno> {
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600) })
}

/// Attaches a segment, writes `act` at its start, and lets it go.
pub(crate) fn overwrite_segment(id: i32) -> Result<(), Errno> {
    // SAFETY: with a null address the kernel picks an unused one.
    let address = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    check(address.addr().cast_signed() as i64)?;
    // SAFETY: the segment has at least one page and is attached for writing; nothing here refers to it.
    unsafe { address.cast::<[u8; 3]>().write_volatile(*b"act") };
    // SAFETY: the address is the one that was attached, and is not used after this.
    check(unsafe { libc::shmdt(address) }).map(drop)
}

/// Removes a segment.
pub(crate) fn remove_segment(id: i32) -> Result<(), Errno> {
    // SAFETY: IPC_RMID takes no argument.
    check(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }).map(drop)
}

/// Makes a message queue and removes it.
pub(crate) fn new_queue_and_gone() -> Result<(), Errno> {
    // SAFETY: the call takes numbers only.
    let id = check(unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) })?;
    let id = i32::try_from(id).map_err(|_| Errno::INVAL)?;
    // SAFETY: IPC_RMID takes no argument.
    check(unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) }).map(drop)
}

/// A counter that this process and its children share.
pub(crate) fn shared_counter() -> Result<&'static AtomicU32, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice takes nothing from anybody.
    let address =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED) }?;
    // SAFETY: the mapping is zeroed, aligned to a page, large enough, and never unmapped.
    Ok(unsafe { &*address.cast::<AtomicU32>() })
}
