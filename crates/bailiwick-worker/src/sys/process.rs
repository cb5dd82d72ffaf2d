//! Processes: making, waiting for, and signalling them.

use std::os::fd::{AsRawFd as _, OwnedFd};

use super::{Errno, Result, call, int, number, owned, retry};

const SIGCHLD: usize = 17;
/// The child becomes a child of the caller's parent.
pub(crate) const CLONE_PARENT: usize = 0x8000;
const WNOHANG: i32 = 1;
const WUNTRACED: i32 = 2;
/// Also children that do not send SIGCHLD (`clone` with another exit signal, or none).
const __WALL: i32 = 0x4000_0000;

/// Makes a copy of this process, with `CLONE_PARENT` or in new namespaces (`CLONE_NEW*`); `None` in the copy.
///
/// # Safety
/// The process must have a single thread, and every descriptor that the child must not keep has to be
/// closed there.
pub(crate) unsafe fn clone_child(flags: usize) -> Result<Option<i32>> {
    let flags = SIGCHLD | flags;
    // SAFETY: no memory is shared and no new stack is given, so both sides continue as after fork(2).
    let pid = unsafe { call(number::CLONE, [flags, 0, 0, 0, 0, 0]) }?;
    match i32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some(pid)),
        Err(_) => Err(Errno::PROTO),
    }
}

/// A child that changed state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waited {
    pub(crate) pid: i32,
    /// Wait status, as `waitpid(2)` gives it.
    pub(crate) status: i32,
}

impl Waited {
    /// The child did not end, it was stopped. Without asking for stops this is so only for a child that
    /// made its parent its tracer (`PTRACE_TRACEME`).
    pub(crate) fn stopped(self) -> bool {
        self.status & 0xff == 0x7f
    }
}

/// Waits for any child to end or stop. `None` when `block` is false and none has.
///
/// # Errors
/// `ECHILD` when there is no child: the tree is empty.
pub(crate) fn wait(block: bool, stops: bool) -> Result<Option<Waited>> {
    let mut status: i32 = 0;
    let options = __WALL | if block { 0 } else { WNOHANG } | if stops { WUNTRACED } else { 0 };
    let pid = retry(|| {
        // SAFETY: `status` is writable.
        unsafe { call(number::WAIT4, [int(-1), (&raw mut status) as usize, int(options), 0, 0, 0]) }
    })?;
    match i32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some(Waited { pid, status })),
        Err(_) => Err(Errno::PROTO),
    }
}

/// Lets a child go that made this process its tracer.
pub(crate) fn detach(pid: i32) -> Result<()> {
    const PTRACE_DETACH: usize = 17;
    // SAFETY: no pointers.
    unsafe { call(number::PTRACE, [PTRACE_DETACH, int(pid), 0, 0, 0, 0]) }.map(drop)
}

/// `kill(2)`.
pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::KILL, [int(pid), int(signal), 0, 0, 0, 0]) }.map(drop)
}

/// `pidfd_open(2)`; Linux 5.3.
pub(crate) fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { call(number::PIDFD_OPEN, [int(pid), 0, 0, 0, 0, 0]) }?)
}

/// `pidfd_send_signal(2)`; Linux 5.1. Reaches the process that the descriptor names, or none.
pub(crate) fn pidfd_signal(pidfd: &OwnedFd, signal: i32) -> Result<()> {
    // SAFETY: a null siginfo pointer is permitted.
    unsafe { call(number::PIDFD_SEND_SIGNAL, [int(pidfd.as_raw_fd()), int(signal), 0, 0, 0, 0]) }.map(drop)
}

/// `setsid(2)`.
pub(crate) fn setsid() -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::SETSID, [0; 6]) }.map(drop)
}

fn small(number: std::ffi::c_long) -> i32 {
    // SAFETY: calls without arguments that cannot fail.
    unsafe { call(number, [0; 6]) }.ok().and_then(|value| i32::try_from(value).ok()).unwrap_or(0)
}

/// This process.
pub(crate) fn process_id() -> i32 {
    small(number::GETPID)
}

/// Effective user and group of this process.
pub(crate) fn user_and_group() -> (u32, u32) {
    let id = |call| u32::try_from(small(call)).unwrap_or(0);
    (id(number::GETEUID), id(number::GETEGID))
}

/// Ends this process without running anything of the runtime.
pub(crate) fn exit_now(code: i32) -> ! {
    loop {
        // SAFETY: no pointers; the call does not return.
        let _never = unsafe { call(number::EXIT_GROUP, [int(code), 0, 0, 0, 0, 0]) };
    }
}

/// `struct rlimit64`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceLimit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// RLIMIT_NOFILE.
pub(crate) const OPEN_FILES: u32 = 7;
/// RLIMIT_CORE.
pub(crate) const CORE: u32 = 4;
/// RLIMIT_NPROC.
pub(crate) const PROCESSES: u32 = 6;

/// Sets a limit of this process (`prlimit(2)` with pid 0).
pub(crate) fn set_limit(resource: u32, value: ResourceLimit) -> Result<()> {
    // SAFETY: `value` lives through the call.
    unsafe { call(number::PRLIMIT64, [0, resource as usize, (&raw const value) as usize, 0, 0, 0]) }.map(drop)
}

/// Reads a limit of `pid`; `0` is this process.
pub(crate) fn limit(pid: i32, resource: u32) -> Result<ResourceLimit> {
    let mut value = ResourceLimit { soft: 0, hard: 0 };
    // SAFETY: `value` is writable.
    unsafe { call(number::PRLIMIT64, [int(pid), resource as usize, 0, (&raw mut value) as usize, 0, 0]) }?;
    Ok(value)
}
