//! System calls of the worker, and the only raw memory outside the child side.
//!
//! The worker has no other crate below it than `std`, so the calls that `std` lacks go through libc's
//! `syscall(2)` with numbers and structures written out here. `tests` compares each of them with the
//! `libc` crate. x86-64 only: the image is not built for another architecture.
#![expect(unsafe_code, reason = "system calls that std does not offer; each with its preconditions")]

mod caller;
mod channel;
mod credentials;
mod file;
mod listen;
mod mount;
mod process;
mod segment;
mod signal;
#[cfg(test)]
mod tests;

pub(crate) use caller::{
    Alarm, connect, connect_here, family, handle_alarms, is_read_only, listen_here, open_thread, read_memory,
    send_timeout, take_descriptor, waits,
};
pub(crate) use channel::{Channel, Received, UnixAddress, bind_abstract, poll, socket_pair};
pub(crate) use credentials::{
    Capabilities, capabilities, drop_bounding, exec_favours_root, has_bounding, install_filter,
    keep_capabilities, no_new_privs, restrict_self, set_capabilities, set_dumpable, set_name,
    set_no_new_privs, set_subreaper, subreaper,
};
pub(crate) use file::*;
pub(crate) use listen::{
    Question, Questions, Slot, answer, answer_synchronously, install_listening_filter, is_unused, is_waiting,
};
pub(crate) use mount::*;
pub(crate) use process::{
    CLONE_PARENT, CORE, OPEN_FILES, PROCESSES, ResourceLimit, Waited, clone_child, detach, exit_now, kill,
    limit, pidfd_open, pidfd_signal, process_id, set_limit, setsid, user_and_group, wait,
};
pub(crate) use segment::{make_segment, reaches_segment};
pub(crate) use signal::{SignalFd, block_all_signals, default_dispositions, set_mask, wait_for_child_signal};

use std::ffi::c_long;

/// An error number of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const PERM: Self = Self(1);
    pub(crate) const NOENT: Self = Self(2);
    pub(crate) const SRCH: Self = Self(3);
    pub(crate) const INTR: Self = Self(4);
    pub(crate) const BADF: Self = Self(9);
    pub(crate) const CHILD: Self = Self(10);
    pub(crate) const AGAIN: Self = Self(11);
    pub(crate) const ACCES: Self = Self(13);
    pub(crate) const FAULT: Self = Self(14);
    pub(crate) const EXIST: Self = Self(17);
    pub(crate) const NOTDIR: Self = Self(20);
    pub(crate) const ISDIR: Self = Self(21);
    pub(crate) const INVAL: Self = Self(22);
    pub(crate) const NOTTY: Self = Self(25);
    pub(crate) const ROFS: Self = Self(30);
    pub(crate) const NOSYS: Self = Self(38);
    pub(crate) const OPNOTSUPP: Self = Self(95);
    pub(crate) const PIPE: Self = Self(32);
    pub(crate) const CONNABORTED: Self = Self(103);
    pub(crate) const CONNRESET: Self = Self(104);
    pub(crate) const CONNREFUSED: Self = Self(111);
    pub(crate) const PROTO: Self = Self(71);
    pub(crate) const NOTEMPTY: Self = Self(39);
    pub(crate) const TIMEDOUT: Self = Self(110);
    pub(crate) const INPROGRESS: Self = Self(115);
    pub(crate) const STALE: Self = Self(116);

    fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(Self::PROTO.0))
    }
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

unsafe extern "C" {
    // SAFETY: callers of the wrapper below keep the contract of each system call.
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
}

/// Calls the kernel with up to six arguments.
///
/// # Safety
/// The arguments must satisfy the contract of the system call: a pointer must be valid for what the
/// kernel reads or writes through it, and the call must not invalidate memory that Rust still uses.
pub(crate) unsafe fn call(number: c_long, args: [usize; 6]) -> Result<usize> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: as this function's own contract; `syscall` takes its arguments by value.
    let value = unsafe { syscall(number, a, b, c, d, e, f) };
    usize::try_from(value).map_err(|_| Errno::last())
}

/// `usize` image of a signed argument, sign-extended as the kernel expects it.
pub(crate) fn int(value: i32) -> usize {
    #[expect(clippy::cast_sign_loss, reason = "the register image of a signed argument is what is wanted")]
    let image = value as isize as usize;
    image
}

/// Marks a call whose failure is expected and means nothing here; the comment at the call says why.
pub(crate) fn may_fail<T>(_: Result<T>) {}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut f: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match f() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// System call numbers of x86-64 (`asm/unistd_64.h`).
pub(crate) mod number {
    use std::ffi::c_long;
    macro_rules! numbers {
        ($($name:ident = $value:literal,)+) => {
            $(pub(crate) const $name: c_long = $value;)+
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, c_long)] = &[$((stringify!($name), $value)),+];
        };
    }
    numbers! {
        READ = 0, POLL = 7, LSEEK = 8, RT_SIGACTION = 13, RT_SIGPROCMASK = 14, RT_SIGTIMEDWAIT = 128, IOCTL = 16, GETPID = 39,
        SOCKET = 41, CONNECT = 42, SENDMSG = 46, RECVMSG = 47, BIND = 49, LISTEN = 50, GETSOCKNAME = 51,
        SOCKETPAIR = 53, CLONE = 56, WAIT4 = 61, KILL = 62, FCNTL = 72, TRUNCATE = 76, FCHDIR = 81,
        FCHMOD = 91, SETSID = 112, CAPGET = 125, CAPSET = 126,
        GETPRIORITY = 140, SETPRIORITY = 141, PRCTL = 157, CHROOT = 161, SETTIMEOFDAY = 164, MOUNT = 165,
        SETHOSTNAME = 170, GETDENTS64 = 217, EXIT_GROUP = 231, OPENAT = 257, MKDIRAT = 258, MKNODAT = 259,
        UNLINKAT = 263, RENAMEAT = 264, LINKAT = 265, FCHMODAT = 268, UNSHARE = 272, SHMGET = 29,
        SHMCTL = 31, SIGNALFD4 = 289, DUP3 = 292, PERF_EVENT_OPEN = 298, FANOTIFY_INIT = 300,
        PRLIMIT64 = 302, PROCESS_VM_READV = 310, SECCOMP = 317, BPF = 321, USERFAULTFD = 323, EXECVE = 59,
        KEYCTL = 250, PIDFD_SEND_SIGNAL = 424, IO_URING_SETUP = 425, OPEN_TREE = 428, PIDFD_OPEN = 434,
        CLOSE_RANGE = 436, OPENAT2 = 437, LANDLOCK_RESTRICT_SELF = 446, MEMFD_CREATE = 319, PTRACE = 101,
        FACCESSAT2 = 439, SETNS = 308, MOVE_MOUNT = 429, FSOPEN = 430, FSCONFIG = 431, FSMOUNT = 432,
        MOUNT_SETATTR = 442, STATX = 332, LANDLOCK_ADD_RULE = 445, UTIMENSAT = 280, SETXATTR = 188, FCHOWNAT = 260,
        SHMAT = 30, GETEUID = 107, GETEGID = 108,
        MMAP = 9, GETSOCKOPT = 55, FSTATFS = 138, GETTID = 186, TIMER_CREATE = 222, TIMER_SETTIME = 223,
        TIMER_DELETE = 226, KCMP = 312, PIDFD_GETFD = 438,
    }
}
