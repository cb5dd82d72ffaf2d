//! Connecting by any address, and what disturbs it.

use std::sync::atomic::AtomicU8;
use std::time::Duration;

use rustix::io::Errno;

use super::check;

/// `connect(2)` with registers as given. Without an address, with one that is not mapped.
pub(crate) fn connect_raw(socket: i64, address: Option<&[u8]>, length: i64) -> Result<(), Errno> {
    const UNMAPPED: i64 = 8;
    // Longer than any length that the kernel accepts, so that it reads nothing behind it.
    let mut room = [0_u8; 256];
    let pointer = match address {
        Some(address) => {
            for (place, byte) in room.iter_mut().zip(address) {
                *place = *byte;
            }
            room.as_ptr() as i64
        }
        None => UNMAPPED,
    };
    // SAFETY: the kernel only reads, at most 128 bytes, and `room` lives through the call.
    check(unsafe { libc::syscall(libc::SYS_connect, socket, pointer, length) }).map(drop)
}

/// `connect(2)` by an address that other threads write meanwhile.
pub(crate) fn connect_changing(socket: i32, address: &[AtomicU8]) -> Result<(), Errno> {
    // SAFETY: the kernel only reads, and the memory lives through the call.
    check(unsafe { libc::syscall(libc::SYS_connect, socket, address.as_ptr(), address.len()) }).map(drop)
}

/// Makes this process one that is not dumpable.
pub(crate) fn forbid_dumps() -> Result<(), Errno> {
    // SAFETY: numbers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Runs `act` in a thread with a copy of the descriptor table.
pub(crate) fn with_own_descriptors<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Errno> {
    let thread = std::thread::spawn(move || {
        // SAFETY: no memory is involved; descriptors that this thread owns keep their numbers.
        check(unsafe { libc::unshare(libc::CLONE_FILES) }).map(|_| act())
    });
    thread.join().map_err(|_| Errno::CHILD)?
}

/// SIGALRM again and again, until it is dropped.
pub(crate) struct Alarm;

impl Alarm {
    pub(crate) fn every(interval: Duration, restarts: bool) -> Result<Self, Errno> {
        extern "C" fn nothing(_signal: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: all zero is a valid value of the structure.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as usize;
        action.sa_flags = if restarts { libc::SA_RESTART } else { 0 };
        // SAFETY: `action` lives through the call, and the handler does nothing.
        check(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) })?;
        set_timer(interval)?;
        Ok(Alarm)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let _it_ends_with_the_process = set_timer(Duration::ZERO);
    }
}

fn set_timer(interval: Duration) -> Result<(), Errno> {
    let time = libc::timeval { tv_sec: 0, tv_usec: i64::from(interval.subsec_micros()) };
    let value = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: `value` lives through the call.
    check(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const value, std::ptr::null_mut()) }).map(drop)
}
