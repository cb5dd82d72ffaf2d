//! Signal masks and dispositions.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::{Result, call, int, number, owned};

const SIG_SETMASK: usize = 2;
/// Size of the kernel's signal set.
pub(crate) const SET_SIZE: usize = 8;
/// SIGCHLD.
const CHILD: u32 = 17;
const SFD_NONBLOCK_CLOEXEC: usize = 0o2_004_000;

/// `struct sigaction` as the kernel takes it. All zero is the default disposition.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Gives every signal its default disposition, whatever the host or the runtime set up.
pub(crate) fn default_dispositions() {
    let action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    for signal in 1..=64_usize {
        // SAFETY: `action` lives through the call. KILL and STOP answer EINVAL, which changes nothing.
        let _unchangeable =
            unsafe { call(number::RT_SIGACTION, [signal, (&raw const action) as usize, 0, SET_SIZE, 0, 0]) };
    }
}

/// Blocks every signal that can be blocked.
pub(crate) fn block_all_signals() -> Result<()> {
    set_mask(u64::MAX)
}

/// Sets the signal mask of the calling thread.
pub(crate) fn set_mask(mask: u64) -> Result<()> {
    // SAFETY: `mask` lives through the call and has the size given.
    unsafe { call(number::RT_SIGPROCMASK, [SIG_SETMASK, (&raw const mask) as usize, 0, SET_SIZE, 0, 0]) }
        .map(drop)
}

/// Waits until a child changed state, at most `milliseconds` (below 1000). SIGCHLD must be blocked.
pub(crate) fn wait_for_child_signal(milliseconds: u32) {
    let mask: u64 = 1 << (CHILD - 1);
    let time: [u64; 2] = [0, u64::from(milliseconds) * 1_000_000];
    // SAFETY: `mask` and `time` live through the call, with the sizes that the kernel has for them. What
    // came, if anything, is looked for by the caller.
    let _signal_or_timeout = unsafe {
        call(
            number::RT_SIGTIMEDWAIT,
            [(&raw const mask) as usize, 0, (&raw const time) as usize, SET_SIZE, 0, 0],
        )
    };
}

/// A descriptor that is readable when a child changed state.
#[derive(Debug)]
pub(crate) struct SignalFd(OwnedFd);

impl SignalFd {
    /// For SIGCHLD, which must be blocked.
    pub(crate) fn for_children() -> Result<Self> {
        let mask: u64 = 1 << (CHILD - 1);
        // SAFETY: `mask` lives through the call and has the size given.
        let fd = unsafe {
            call(
                number::SIGNALFD4,
                [int(-1), (&raw const mask) as usize, SET_SIZE, SFD_NONBLOCK_CLOEXEC, 0, 0],
            )
        }?;
        Ok(Self(owned(fd)?))
    }

    /// Takes off what has arrived. Signals merge, so the number taken says nothing.
    pub(crate) fn drain(&self) {
        let mut room = [0_u8; 128 * 8];
        // SAFETY: `room` is writable for the length given.
        while unsafe {
            call(number::READ, [int(self.0.as_raw_fd()), room.as_mut_ptr() as usize, room.len(), 0, 0, 0])
        }
        .is_ok_and(|length| length == room.len())
        {}
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
