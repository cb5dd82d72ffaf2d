//! The listener of a filter: calls that the kernel asks about, and the answers.
//!
//! seccomp_unotify(2); numbers and structures from `linux/seccomp.h`.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use super::{Errno, Result, call, int, number, owned, retry};
use crate::boundary::Instruction;

const SET_MODE_FILTER: usize = 1;
/// Linux 5.0.
pub(super) const NEW_LISTENER: usize = 1 << 3;
/// Linux 5.19.
pub(super) const WAIT_KILLABLE: usize = 1 << 5;
pub(super) const RECEIVE: usize = 0xc050_2100;
pub(super) const SEND: usize = 0xc018_2101;
pub(super) const IS_VALID: usize = 0x4008_2102;
/// Linux 6.6.
pub(super) const SET_FLAGS: usize = 0x4008_2104;
pub(super) const SYNC_WAKE_UP: usize = 1;

/// `struct seccomp_notif`: a call that waits for its answer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Names the call; `0` is none.
    pub(crate) id: u64,
    /// The calling thread, in the pid namespace of who asks.
    pub(crate) thread: i32,
    flags: u32,
    pub(crate) number: i32,
    architecture: u32,
    instruction_pointer: u64,
    pub(crate) arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
pub(super) struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Installs a filter on this thread, and makes the listener that is asked about calls. Needs `no_new_privs`.
///
/// A caller whose call was taken up waits through its signals, but for one that ends it: restarted by a signal,
/// it would connect twice. Before Linux 5.19 it does not.
///
/// # Errors
/// `EBUSY` when this thread has a filter with a listener already.
pub(crate) fn install_listening_filter(program: &[Instruction]) -> Result<OwnedFd> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(|_| Errno::PROTO)?;
    let program = Program { length, filter: program.as_ptr() };
    let install = |flags: usize| {
        // SAFETY: `program` points to that many instructions, and lives through the call.
        unsafe { call(number::SECCOMP, [SET_MODE_FILTER, flags, (&raw const program) as usize, 0, 0, 0]) }
    };
    match install(NEW_LISTENER | WAIT_KILLABLE) {
        Err(Errno::INVAL) => owned(install(NEW_LISTENER)?),
        made => owned(made?),
    }
}

/// Has the kernel run who asks and who answers on one processor, one after the other: a fifth of the time.
///
/// # Errors
/// `EINVAL` before Linux 6.6: it works all the same.
pub(crate) fn answer_synchronously(listener: &OwnedFd) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::IOCTL, [int(listener.as_raw_fd()), SET_FLAGS, SYNC_WAKE_UP, 0, 0, 0]) }.map(drop)
}

/// Whether the call is still waiting: then what was read of its process by number was read of that process.
pub(crate) fn is_waiting(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: `id` lives through the call.
    retry(|| unsafe {
        call(number::IOCTL, [int(listener.as_raw_fd()), IS_VALID, (&raw const id) as usize, 0, 0, 0])
    })
    .is_ok()
}

/// Answers a call with success, or with an error number.
///
/// # Errors
/// `ENOENT` when nobody waits for it any more.
pub(crate) fn answer(listener: &OwnedFd, id: u64, outcome: Result<()>) -> Result<()> {
    let error = outcome.err().map_or(0, |errno| -errno.0);
    let response = Response { id, value: 0, error, flags: 0 };
    retry(|| {
        // SAFETY: `response` lives through the call.
        unsafe {
            call(number::IOCTL, [int(listener.as_raw_fd()), SEND, (&raw const response) as usize, 0, 0, 0])
        }
    })
    .map(drop)
}

/// Memory in which the kernel writes questions, shared with whoever takes over when this process is killed: what
/// was taken up and not answered would otherwise wait for ever.
#[derive(Debug)]
pub(crate) struct Questions {
    base: *mut Question,
}

// SAFETY: the memory is shared between processes anyway; each slot is used by one thread at a time, which holds
// its `Slot`.
unsafe impl Send for Questions {}
// SAFETY: as above.
unsafe impl Sync for Questions {}

/// Room for one question.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    question: *mut Question,
    of: PhantomData<&'a Questions>,
}

// SAFETY: see `Questions`.
unsafe impl Send for Slot<'_> {}

impl Questions {
    /// How many there is room for.
    pub(crate) const COUNT: usize = 128;
    const BYTES: usize = Self::COUNT * size_of::<Question>();

    /// Makes the memory, empty.
    pub(crate) fn make() -> Result<OwnedFd> {
        let file = super::memfd(c"bailiwick-questions")?;
        file.set_len(Self::BYTES as u64).map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::PROTO.0)))?;
        Ok(file.into())
    }

    /// Maps it, for as long as this process lives.
    pub(crate) fn map(memory: &OwnedFd) -> Result<Self> {
        const READ_WRITE: usize = 3;
        const SHARED: usize = 1;
        // SAFETY: a new mapping of a file of that size, which nobody makes smaller.
        let base =
            unsafe { call(number::MMAP, [0, Self::BYTES, READ_WRITE, SHARED, int(memory.as_raw_fd()), 0]) }?;
        Ok(Self { base: base as *mut Question })
    }

    /// What was taken up by a process before this one, and may not have been answered.
    pub(crate) fn left(&self) -> Vec<u64> {
        (0..Self::COUNT)
            .filter_map(|index| {
                let slot = self.at(index);
                // SAFETY: inside the mapping; no thread of this process uses slots yet.
                let id = unsafe { std::ptr::read_volatile(&raw const (*slot.question).id) };
                (id != 0).then_some(id)
            })
            .collect()
    }

    /// The room with this number, which must be below [`Self::COUNT`] and in nobody else's hands.
    pub(crate) fn at(&self, index: usize) -> Slot<'_> {
        assert!(index < Self::COUNT, "room for {} questions, not for {index}", Self::COUNT);
        // SAFETY: inside the mapping, which is never taken back.
        Slot { question: unsafe { self.base.add(index) }, of: PhantomData }
    }
}

impl Slot<'_> {
    /// Waits for the next call.
    ///
    /// # Errors
    /// `ENOENT` when the caller was killed meanwhile, or when no process with the filter is left; `EINTR`.
    pub(crate) fn receive(&mut self, listener: &OwnedFd) -> Result<Question> {
        self.clear();
        // SAFETY: the kernel writes one question there; nobody else uses it.
        unsafe {
            call(number::IOCTL, [int(listener.as_raw_fd()), RECEIVE, self.question as usize, 0, 0, 0])
        }?;
        // SAFETY: the kernel just wrote it, and any bytes are a question.
        Ok(unsafe { std::ptr::read_volatile(self.question) })
    }

    /// What was in it has been answered.
    pub(crate) fn clear(&mut self) {
        // SAFETY: inside the mapping, and in this thread's hands. The kernel demands zeros.
        unsafe { std::ptr::write_bytes(self.question, 0, 1) };
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Whether no process has the filter any more.
pub(crate) fn is_unused(listener: &OwnedFd) -> bool {
    const POLLHUP: i16 = 0x10;
    // struct pollfd
    #[repr(C)]
    struct PollFd {
        fd: RawFd,
        events: i16,
        revents: i16,
    }
    let mut entry = PollFd { fd: listener.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one `struct pollfd`.
    let polled = retry(|| unsafe { call(number::POLL, [(&raw mut entry) as usize, 1, 0, 0, 0, 0]) });
    polled.is_ok() && entry.revents & POLLHUP != 0
}
