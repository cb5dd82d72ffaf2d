//! Datagram sockets between the processes of a session, and waiting on them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Read as _;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;

use bailiwick_wire::{BODY_LIMIT, DESCRIPTOR_LIMIT, INLINE_LIMIT};

use super::{Errno, Result, call, int, number, retry};

const AF_UNIX: usize = 1;
const SOCK_SEQPACKET: usize = 5;
const SOCK_STREAM: usize = 1;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const MSG_TRUNC: i32 = 0x20;
const MSG_CTRUNC: i32 = 0x08;

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    base: *mut u8,
    length: usize,
}

/// `struct msghdr`.
#[repr(C)]
struct MessageHeader {
    name: *mut u8,
    name_length: u32,
    vectors: *mut IoVec,
    vector_count: usize,
    control: *mut u8,
    control_length: usize,
    flags: i32,
}

/// Room for one `SCM_RIGHTS` message (`struct cmsghdr`, then the descriptors).
#[repr(C, align(8))]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    descriptors: [RawFd; DESCRIPTOR_LIMIT],
}

const CONTROL_HEADER: usize = size_of::<usize>() + 2 * size_of::<i32>();

/// A message as it came off a channel.
#[derive(Debug)]
pub(crate) struct Received {
    /// The body.
    pub(crate) bytes: Vec<u8>,
    /// Attached descriptors, close-on-exec.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// One end of a connection between two processes of a session.
///
/// Sending never blocks: what the socket does not take is kept in order, and [`Channel::flush`] sends it
/// once the socket is writable. So a peer that does not read stalls nobody else.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    queue: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, queue: VecDeque::new() }
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sends a message, or keeps it for [`Self::flush`].
    ///
    /// # Errors
    /// The peer is gone, or the message cannot be sent at all.
    pub(crate) fn send(&mut self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> Result<()> {
        self.queue.push_back((bytes, descriptors));
        self.flush()
    }

    /// Sends a message that stays the caller's, or does not send it: for one that may have to go elsewhere.
    ///
    /// # Errors
    /// As [`Self::send`], and `EAGAIN` when something is in the way.
    pub(crate) fn send_now(&self, message: &Received) -> Result<()> {
        if self.wants_write() {
            return Err(Errno::AGAIN);
        }
        send(self.socket.as_raw_fd(), &message.bytes, &message.descriptors)
    }

    /// Sends what was kept, as far as the socket takes it.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        while let Some((bytes, descriptors)) = self.queue.front() {
            match send(self.socket.as_raw_fd(), bytes, descriptors) {
                Ok(()) => {
                    self.queue.pop_front();
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Receives one message; `None` at end of file.
    ///
    /// # Errors
    /// `ECONNRESET` when the peer is gone and had not read all that was sent to it (unix(7) leaves that out;
    /// `unix_release_sock` in `net/unix/af_unix.c`). `EAGAIN` when `wait` is false and there is none; `EPROTO` when what came is no message.
    pub(crate) fn receive(&self, wait: bool) -> Result<Option<Received>> {
        receive(self.socket.as_raw_fd(), wait)
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// First byte of a datagram: the body follows.
const INLINE: u8 = 0;
/// First byte of a datagram: the body lies in the memfd that is the first descriptor; its length follows.
const SPILLED: u8 = 1;

fn send(socket: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> Result<()> {
    let mut frame = Vec::with_capacity(bytes.len().min(INLINE_LIMIT) + 16);
    let mut numbers: Vec<RawFd> = Vec::with_capacity(DESCRIPTOR_LIMIT);
    let spill;
    if bytes.len() <= INLINE_LIMIT {
        frame.push(INLINE);
        frame.extend_from_slice(bytes);
    } else {
        let file = super::memfd(c"bailiwick-body")?;
        file.write_all_at(bytes, 0).map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::PROTO.0)))?;
        spill = file;
        numbers.push(spill.as_raw_fd());
        frame.push(SPILLED);
        frame.extend_from_slice(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
    }
    numbers.extend(descriptors.iter().map(AsRawFd::as_raw_fd));
    if numbers.len() > DESCRIPTOR_LIMIT {
        return Err(Errno::PROTO);
    }

    let mut vector = IoVec { base: frame.as_mut_ptr(), length: frame.len() };
    let mut control = Control {
        length: CONTROL_HEADER + numbers.len() * size_of::<RawFd>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        descriptors: [0; DESCRIPTOR_LIMIT],
    };
    for (slot, number) in control.descriptors.iter_mut().zip(&numbers) {
        *slot = *number;
    }
    let header = MessageHeader {
        name: std::ptr::null_mut(),
        name_length: 0,
        vectors: &raw mut vector,
        vector_count: 1,
        control: if numbers.is_empty() { std::ptr::null_mut() } else { (&raw mut control).cast() },
        // The kernel walks messages in steps of 8 bytes, and the room is a multiple of 8.
        control_length: if numbers.is_empty() { 0 } else { control.length.next_multiple_of(8) },
        flags: 0,
    };
    retry(|| {
        // SAFETY: `header` and all it points to live until the call returns, with the lengths given.
        unsafe {
            call(
                number::SENDMSG,
                [int(socket), (&raw const header) as usize, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0, 0],
            )
        }
    })?;
    Ok(())
}

fn receive(socket: RawFd, wait: bool) -> Result<Option<Received>> {
    ROOM.with_borrow_mut(|room| receive_into(room, socket, wait))
}

thread_local! {
    /// Room for one datagram: made once, since every command passes here.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; INLINE_LIMIT + 16]);
}

fn receive_into(room: &mut [u8], socket: RawFd, wait: bool) -> Result<Option<Received>> {
    let mut vector = IoVec { base: room.as_mut_ptr(), length: room.len() };
    let mut control = Control { length: 0, level: 0, kind: 0, descriptors: [-1; DESCRIPTOR_LIMIT] };
    let mut header = MessageHeader {
        name: std::ptr::null_mut(),
        name_length: 0,
        vectors: &raw mut vector,
        vector_count: 1,
        control: (&raw mut control).cast(),
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let flags = MSG_CMSG_CLOEXEC | if wait { 0 } else { MSG_DONTWAIT };
    let length = retry(|| {
        header.control_length = size_of::<Control>();
        // SAFETY: `header` and all it points to are writable and live until the call returns.
        unsafe { call(number::RECVMSG, [int(socket), (&raw mut header) as usize, flags, 0, 0, 0]) }
    })?;

    let mut descriptors = Vec::new();
    if header.control_length >= CONTROL_HEADER && control.level == SOL_SOCKET && control.kind == SCM_RIGHTS {
        let count = control.length.saturating_sub(CONTROL_HEADER) / size_of::<RawFd>();
        for number in control.descriptors.iter().take(count) {
            // SAFETY: the kernel just made this descriptor for us, and nothing else owns it.
            descriptors.push(unsafe { OwnedFd::from_raw_fd(*number) });
        }
    }
    if header.flags & (MSG_TRUNC | MSG_CTRUNC) != 0 {
        return Err(Errno::PROTO);
    }
    if length == 0 {
        return Ok(None);
    }
    match room.get(..length).and_then(<[u8]>::split_first) {
        Some((&INLINE, body)) => Ok(Some(Received { bytes: body.to_vec(), descriptors })),
        Some((&SPILLED, length)) => {
            let length = length
                .get(..8)
                .and_then(|bytes| bytes.try_into().ok())
                .and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok())
                .filter(|length| *length <= BODY_LIMIT)
                .ok_or(Errno::PROTO)?;
            if descriptors.is_empty() {
                return Err(Errno::PROTO);
            }
            let mut file = std::fs::File::from(descriptors.remove(0));
            let mut bytes = Vec::with_capacity(length);
            // Position 0 is not the shared offset of the sender: `take` bounds, `seek` aligns.
            std::io::Seek::rewind(&mut file)
                .and_then(|()| (&mut file).take(length as u64).read_to_end(&mut bytes))
                .map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::PROTO.0)))?;
            if bytes.len() == length { Ok(Some(Received { bytes, descriptors })) } else { Err(Errno::PROTO) }
        }
        _ => Err(Errno::PROTO),
    }
}

/// A pair of connected datagram sockets, close-on-exec.
///
/// # Errors
/// As `socketpair(2)`.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut pair: [RawFd; 2] = [-1; 2];
    // SAFETY: `pair` is room for the two descriptors that the kernel writes.
    unsafe {
        call(
            number::SOCKETPAIR,
            [AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.as_mut_ptr() as usize, 0, 0],
        )
    }?;
    let [left, right] = pair;
    // SAFETY: the kernel just made both descriptors, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(left), OwnedFd::from_raw_fd(right)) })
}

/// `struct sockaddr_un`, with its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnixAddress {
    bytes: [u8; 110],
    length: usize,
}

/// Listens on an abstract address that the kernel chooses, for the probe that must not reach it.
///
/// # Errors
/// As `bind(2)` and `listen(2)`.
pub(crate) fn bind_abstract() -> Result<(OwnedFd, UnixAddress)> {
    let socket = unix_stream()?;
    let fd = int(socket.as_raw_fd());
    let mut address = UnixAddress { bytes: [0; 110], length: 2 };
    address.bytes[0] = 1; // AF_UNIX; two bytes of address ask for a name of the kernel's choice.
    let mut length: u32 = 110;
    // SAFETY: `address.bytes` and `length` live through the three calls, with the lengths given.
    unsafe {
        call(number::BIND, [fd, address.bytes.as_ptr() as usize, 2, 0, 0, 0])?;
        call(number::LISTEN, [fd, 1, 0, 0, 0, 0])?;
        call(
            number::GETSOCKNAME,
            [fd, address.bytes.as_mut_ptr() as usize, (&raw mut length) as usize, 0, 0, 0],
        )?;
    }
    address.length = usize::try_from(length).map_err(|_| Errno::PROTO)?;
    Ok((socket, address))
}

pub(super) fn unix_stream() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { call(number::SOCKET, [AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0]) }?;
    super::owned(fd)
}

impl UnixAddress {
    /// The address as it is passed to a launcher.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        self.bytes.get(..self.length).unwrap_or_default().to_vec()
    }

    /// Reads [`Self::to_bytes`].
    pub(crate) fn from_bytes(given: &[u8]) -> Option<Self> {
        let mut bytes = [0; 110];
        bytes.get_mut(..given.len())?.copy_from_slice(given);
        Some(Self { bytes, length: given.len() })
    }

    /// Connects a new stream socket to the address.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub(crate) fn connect(&self) -> Result<()> {
        let socket = unix_stream()?;
        // SAFETY: the address lives through the call, with the length given.
        unsafe {
            call(
                number::CONNECT,
                [int(socket.as_raw_fd()), self.bytes.as_ptr() as usize, self.length, 0, 0, 0],
            )
        }?;
        Ok(())
    }
}

/// `struct pollfd`.
#[repr(C)]
struct PollFd {
    fd: RawFd,
    events: i16,
    revents: i16,
}

const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;

/// Waits until one of the descriptors is readable (or writable, where `true`), or for `timeout_ms`
/// (`-1`: for ever). Tells, for each, whether anything happened.
///
/// # Errors
/// As `poll(2)`; an interruption counts as a timeout.
pub(crate) fn poll(wanted: &[(RawFd, bool)], timeout_ms: i32) -> Result<Vec<bool>> {
    let mut set: Vec<PollFd> = wanted
        .iter()
        .map(|(fd, write)| PollFd { fd: *fd, events: POLLIN | if *write { POLLOUT } else { 0 }, revents: 0 })
        .collect();
    // SAFETY: `set` is an array of that many `struct pollfd`.
    match unsafe { call(number::POLL, [set.as_mut_ptr() as usize, set.len(), int(timeout_ms), 0, 0, 0]) } {
        Ok(_) | Err(Errno::INTR) => Ok(set.iter().map(|entry| entry.revents != 0).collect()),
        Err(errno) => Err(errno),
    }
}
