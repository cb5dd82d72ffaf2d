//! Descriptors by number, and requests of `ioctl`.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use super::check;

/// The descriptor with this number, which may not be open: then every use says `EBADF`.
pub(crate) fn borrow(number: i32) -> Result<BorrowedFd<'static>, Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not -1, and this program closes no descriptor that it has borrowed.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Closes every descriptor, as a daemon does.
pub(crate) fn close_all() {
    // SAFETY: the process goes on to sleep or to execute; it uses none of them any more.
    let _errors_are_of_no_use = unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32) };
}

/// Any request, with a zeroed argument that is larger than any request of the kernel reads or writes.
pub(crate) fn any_ioctl(file: BorrowedFd<'_>, request: u64) -> Result<(), Errno> {
    let mut argument = [0_u64; 4096]; // the size field of a request has 14 bits: at most 16383 bytes
    // SAFETY: `argument` is valid for reading and writing and larger than the size field can say. Requests
    // that take a number instead of a pointer read none of it.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, argument.as_mut_ptr()) }).map(drop)
}

/// Types one character into the terminal, as if its user had.
pub(crate) fn type_character(terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    let character = b'#';
    // SAFETY: TIOCSTI reads one byte.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const character) }).map(drop)
}

/// Sends one datagram to a named socket by the call that sends several.
pub(crate) fn send_messages(socket: &OwnedFd, path: &Path, text: &[u8]) -> Result<(), Errno> {
    let mut address = libc::sockaddr_un { sun_family: 1, sun_path: [0; 108] }; // AF_UNIX
    let name = path.as_os_str().as_encoded_bytes();
    let room =
        address.sun_path.get_mut(..name.len()).filter(|_| name.len() < 108).ok_or(Errno::NAMETOOLONG)?;
    for (place, byte) in room.iter_mut().zip(name) {
        *place = byte.cast_signed();
    }
    let mut part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    // SAFETY: all its fields may be zero.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = (&raw mut address).cast();
    message.msg_hdr.msg_namelen = 110; // sizeof(struct sockaddr_un)
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    // SAFETY: the one message names an address and a part that live until the call returns; the part is only read.
    check(unsafe { libc::sendmmsg(socket.as_raw_fd(), &raw mut message, 1, libc::MSG_NOSIGNAL) }).map(drop)
}
