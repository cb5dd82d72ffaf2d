//! Calls made on behalf of another process: its memory, its descriptors, and connecting for it.

use std::ffi::{CStr, c_int};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use super::{Errno, Result, call, int, number, owned};

/// PIDFD_THREAD: the descriptor names the thread, and its descriptor table (Linux 6.9).
pub(super) const PIDFD_THREAD: usize = 0o200;
const KCMP_FILES: usize = 2;
const SOL_SOCKET: usize = 1;
pub(super) const SO_SNDTIMEO: usize = 21;
pub(super) const SO_DOMAIN: usize = 39;
const F_GETFL: usize = 3;
pub(super) const ST_RDONLY: i64 = 1;

/// A descriptor that names the thread, or its process where the kernel has none for threads.
///
/// # Errors
/// `EACCES` in the second case, when the thread has descriptors of its own. `ESRCH` when it is gone.
pub(crate) fn open_thread(thread: i32, process: impl FnOnce() -> Option<i32>) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    match unsafe { call(number::PIDFD_OPEN, [int(thread), PIDFD_THREAD, 0, 0, 0, 0]) } {
        Err(Errno::INVAL) => {}
        made => return owned(made?),
    }
    let process = process().ok_or(Errno::SRCH)?;
    let opened = super::pidfd_open(process)?;
    if process != thread {
        // SAFETY: no pointers.
        match unsafe { call(number::KCMP, [int(process), int(thread), KCMP_FILES, 0, 0, 0]) } {
            // Without the call (CONFIG_KCMP) it cannot be told, and threads with tables of their own are rare: such
            // a one may find that another socket of its process was connected.
            Ok(0) | Err(Errno::NOSYS) => {}
            Ok(_) => return Err(Errno::ACCES),
            Err(errno) => return Err(errno),
        }
    }
    Ok(opened)
}

/// A copy of another process's descriptor, close-on-exec (`pidfd_getfd(2)`, Linux 5.6).
///
/// # Errors
/// `EBADF` when there is none, `EPERM` when this process may not trace that one.
pub(crate) fn take_descriptor(process: &OwnedFd, fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { call(number::PIDFD_GETFD, [int(process.as_raw_fd()), int(fd), 0, 0, 0, 0]) }?)
}

/// Reads another process's memory.
///
/// # Errors
/// `EFAULT` when not all of it is there, `EPERM` when this process may not trace that one.
pub(crate) fn read_memory(thread: i32, address: u64, into: &mut [u8]) -> Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    let address = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    let local = [into.as_mut_ptr() as usize, into.len()];
    let remote = [address, into.len()];
    // SAFETY: one local vector, of writable memory; the remote one is the kernel's to check.
    let read = unsafe {
        call(
            number::PROCESS_VM_READV,
            [int(thread), local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0],
        )
    }?;
    if read == into.len() { Ok(()) } else { Err(Errno::FAULT) }
}

fn socket_option<T: Copy>(socket: &OwnedFd, option: usize, mut value: T) -> Result<T> {
    let mut length = u32::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: `value` has that many writable bytes, of a type that any bytes are valid for.
    unsafe {
        call(
            number::GETSOCKOPT,
            [
                int(socket.as_raw_fd()),
                SOL_SOCKET,
                option,
                (&raw mut value) as usize,
                (&raw mut length) as usize,
                0,
            ],
        )
    }?;
    Ok(value)
}

/// The family of a socket (`SO_DOMAIN`).
///
/// # Errors
/// `ENOTSOCK`, and `EBADF` for a descriptor that only names a file.
pub(crate) fn family(socket: &OwnedFd) -> Result<i32> {
    socket_option(socket, SO_DOMAIN, 0_i32)
}

/// How long a socket waits when it sends or connects; zero for ever.
pub(crate) fn send_timeout(socket: &OwnedFd) -> Result<std::time::Duration> {
    // struct timeval
    let [seconds, microseconds] = socket_option(socket, SO_SNDTIMEO, [0_u64; 2])?;
    Ok(std::time::Duration::from_secs(seconds) + std::time::Duration::from_micros(microseconds))
}

/// Whether calls on the descriptor wait.
pub(crate) fn waits(fd: &OwnedFd) -> Result<bool> {
    // SAFETY: no pointers.
    let flags = unsafe { call(number::FCNTL, [int(fd.as_raw_fd()), F_GETFL, 0, 0, 0, 0]) }?;
    Ok(flags & int(super::O_NONBLOCK) == 0)
}

/// `connect(2)`.
///
/// # Errors
/// The kernel's. `EINTR` is not repeated here.
pub(crate) fn connect(socket: &OwnedFd, address: &[u8]) -> Result<()> {
    // SAFETY: the address lives through the call, with the length given.
    unsafe {
        call(number::CONNECT, [int(socket.as_raw_fd()), address.as_ptr() as usize, address.len(), 0, 0, 0])
    }
    .map(drop)
}

/// Whether nothing can be written on the mount of an open file, or on its file system (`fstatfs(2)`).
pub(crate) fn is_read_only(file: &OwnedFd) -> Result<bool> {
    // struct statfs: 15 words, the flags are the eleventh.
    let mut room = [0_i64; 15];
    // SAFETY: `struct statfs` is 120 bytes, and so is the room.
    unsafe { call(number::FSTATFS, [int(file.as_raw_fd()), room.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    Ok(room[10] & ST_RDONLY != 0)
}

/// `struct sigaction` of the C library.
#[repr(C)]
pub(super) struct SignalAction {
    pub(super) handler: usize,
    pub(super) mask: [u64; 16],
    pub(super) flags: c_int,
    pub(super) restorer: usize,
}

/// SIGALRM: interrupts a call that waits.
pub(super) const ALARM: c_int = 14;

unsafe extern "C" {
    // The library's, since the kernel's own call wants code to return from a handler by.
    fn sigaction(signal: c_int, action: *const SignalAction, old: *mut SignalAction) -> c_int;
}

extern "C" fn nothing(_signal: c_int) {}

/// Has [`Alarm`] interrupt calls, which then are not restarted.
pub(crate) fn handle_alarms() -> Result<()> {
    let handler: extern "C" fn(c_int) = nothing;
    let action = SignalAction { handler: handler as usize, mask: [0; 16], flags: 0, restorer: 0 };
    // SAFETY: `action` lives through the call, and the handler does nothing.
    match unsafe { sigaction(ALARM, &raw const action, std::ptr::null_mut()) } {
        0 => super::set_mask(!(1 << (ALARM - 1))),
        _ => Err(Errno::INVAL),
    }
}

/// Interrupts the thread that made it again and again, while it is set.
#[derive(Debug)]
pub(crate) struct Alarm(i32);

impl Alarm {
    /// For the calling thread.
    ///
    /// # Errors
    /// `EAGAIN` when the user has too many.
    pub(crate) fn make() -> Result<Self> {
        const MONOTONIC: usize = 1;
        /// SIGEV_THREAD_ID.
        const THREAD: i32 = 4;
        // struct sigevent: a value, the signal, how, the thread; 64 bytes.
        #[repr(C)]
        struct Event {
            value: u64,
            signal: i32,
            how: i32,
            thread: i32,
            rest: [i32; 11],
        }
        // SAFETY: no arguments.
        let thread = unsafe { call(number::GETTID, [0; 6]) }?;
        let thread = i32::try_from(thread).map_err(|_| Errno::PROTO)?;
        let event = Event { value: 0, signal: ALARM, how: THREAD, thread, rest: [0; 11] };
        let mut timer: i32 = 0;
        // SAFETY: `event` has the kernel's size, and `timer` is writable.
        unsafe {
            call(
                number::TIMER_CREATE,
                [MONOTONIC, (&raw const event) as usize, (&raw mut timer) as usize, 0, 0, 0],
            )
        }?;
        Ok(Self(timer))
    }

    /// Begins, or ends with `None`: after each of so many milliseconds, below 1000.
    pub(crate) fn every(&self, milliseconds: Option<u64>) -> Result<()> {
        let nanoseconds = milliseconds.unwrap_or(0) * 1_000_000;
        // struct itimerspec: the interval, then the first time.
        let time: [u64; 4] = [0, nanoseconds, 0, nanoseconds];
        // SAFETY: `time` has the kernel's size.
        unsafe { call(number::TIMER_SETTIME, [int(self.0), 0, (&raw const time) as usize, 0, 0, 0]) }
            .map(drop)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: no pointers; the timer is this one's own. Nothing can be done about a failure.
        let _gone = unsafe { call(number::TIMER_DELETE, [int(self.0), 0, 0, 0, 0, 0]) };
    }
}

/// Listens on a new local socket with a name, relative to the working directory. `EADDRINUSE` when it exists.
pub(crate) fn listen_here(name: &CStr) -> Result<OwnedFd> {
    const AF_UNIX: u16 = 1;
    let socket = super::channel::unix_stream()?;
    let address = [&AF_UNIX.to_ne_bytes()[..], name.to_bytes_with_nul()].concat();
    let fd = int(socket.as_raw_fd());
    // SAFETY: the address lives through the call, with the length given; `listen` takes no pointers.
    unsafe {
        call(number::BIND, [fd, address.as_ptr() as usize, address.len(), 0, 0, 0])?;
        call(number::LISTEN, [fd, 8, 0, 0, 0, 0])?;
    }
    Ok(socket)
}

/// Connects a new local socket to a name, relative to the working directory.
pub(crate) fn connect_here(name: &CStr) -> Result<()> {
    const AF_UNIX: u16 = 1;
    let socket = super::channel::unix_stream()?;
    connect(&socket, &[&AF_UNIX.to_ne_bytes()[..], name.to_bytes_with_nul()].concat())
}
