//! Making processes and meddling with others.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use super::check;

/// How a child ended.
pub(crate) enum Ended {
    Exited(i32),
    Signalled { signal: i32, dumped: bool },
}

/// Forks. `None` in the child.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: this program has one thread, so the child may do all that the parent may.
    check(unsafe { libc::fork() }).and_then(parent_or_child)
}

fn parent_or_child(result: i64) -> Result<Option<Pid>, Errno> {
    i32::try_from(result).map(Pid::from_raw).map_err(|_| Errno::CHILD)
}

/// Makes a child of this process's parent, which is told of its end by `signal`, or by none (0). `None` in
/// the child.
pub(crate) fn clone_sibling(signal: i32) -> Result<Option<Pid>, Errno> {
    let flags = libc::CLONE_PARENT | signal;
    // SAFETY: without CLONE_VM this is a fork; null pointers are allowed without the flags that use them.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    check(result).and_then(parent_or_child)
}

/// Runs `act` in a child, which exits with its result.
pub(crate) fn in_child(act: impl FnOnce() -> i32) -> Result<Ended, Errno> {
    match fork()? {
        Some(pid) => wait(pid),
        None => exit(act()),
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: ends the process; what its parent would have cleaned up is the parent's.
    unsafe { libc::_exit(status) }
}

fn wait(pid: Pid) -> Result<Ended, Errno> {
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::empty())?.ok_or(Errno::CHILD)?;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ok(Ended::Exited(code)),
        (None, Some(signal)) => Ok(Ended::Signalled { signal, dumped: libc::WCOREDUMP(status.as_raw()) }),
        (None, None) => Err(Errno::CHILD),
    }
}

/// A child in a user namespace of its own; it exits at once.
pub(crate) fn clone_into_new_user_namespace() -> Result<(), Errno> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is a fork; null pointers are allowed without the flags that use them.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match parent_or_child(check(result)?)? {
        Some(pid) => wait(pid).map(drop),
        None => exit(0),
    }
}

/// A child made by the newer call; it exits at once.
pub(crate) fn clone3() -> Result<(), Errno> {
    let mut arguments = [0_u64; 8]; // struct clone_args of Linux 5.3
    arguments[4] = u64::try_from(libc::SIGCHLD).unwrap_or(0);
    // SAFETY: the call reads as many bytes as said; without CLONE_VM this is a fork.
    let result = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) };
    match parent_or_child(check(result)?)? {
        Some(pid) => wait(pid).map(drop),
        None => exit(0),
    }
}

pub(crate) fn unshare(flags: u64) -> Result<(), Errno> {
    // SAFETY: nothing in this single-threaded program relies on what is shared.
    check(unsafe { libc::syscall(libc::SYS_unshare, flags) }).map(drop)
}

/// Executes a program without a path, in a child.
pub(crate) fn execute_descriptor(program: &OwnedFd, arguments: &[&CStr]) -> Result<Ended, Errno> {
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let environment = [std::ptr::null::<libc::c_char>()];
    in_child(|| {
        // SAFETY: both arrays end in a null pointer and hold NUL-terminated strings.
        let result = unsafe {
            libc::syscall(
                libc::SYS_execveat,
                program.as_raw_fd(),
                c"".as_ptr(),
                pointers.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        };
        check(result).map_or_else(Errno::raw_os_error, |_| 0)
    })
}

/// Replaces this process by a program without a path, with an empty environment.
pub(crate) fn become_descriptor(program: &OwnedFd, arguments: &[CString]) -> Errno {
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let environment = [std::ptr::null::<libc::c_char>()];
    // SAFETY: both arrays end in a null pointer and hold NUL-terminated strings.
    let result = unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            pointers.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    check(result).err().unwrap_or(Errno::IO)
}

/// Replaces this process by the same program with other arguments and an empty environment.
pub(crate) fn execute_self(arguments: &[&str]) -> Errno {
    let name = arguments.last().copied().unwrap_or_default();
    let strings: Result<Vec<CString>, _> =
        [name].iter().chain(arguments).map(|argument| CString::new(*argument)).collect();
    let Ok(strings) = strings else { return Errno::INVAL };
    let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let environment = [std::ptr::null::<libc::c_char>()];
    // SAFETY: both arrays end in a null pointer and hold NUL-terminated strings.
    let result = unsafe { libc::execve(c"/proc/self/exe".as_ptr(), pointers.as_ptr(), environment.as_ptr()) };
    check(result).err().unwrap_or(Errno::IO)
}

/// Asks whether there is anybody that this process may signal: signal 0 to all.
pub(crate) fn probe_all() -> Result<(), Errno> {
    // SAFETY: signal 0 is not delivered.
    check(unsafe { libc::kill(-1, 0) }).map(drop)
}

/// Attaches as a tracer, without stopping the other process. Ends with this process.
pub(crate) fn trace(pid: Pid) -> Result<(), Errno> {
    // SAFETY: PTRACE_SEIZE takes no memory of this process.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid.as_raw_nonzero().get(), 0_usize, 0_usize) }).map(drop)
}

/// Makes the parent the tracer of this process.
pub(crate) fn trace_me() -> Result<(), Errno> {
    // SAFETY: PTRACE_TRACEME takes no arguments.
    check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) }).map(drop)
}

/// Reads eight bytes of another process.
pub(crate) fn read_memory(pid: Pid, address: usize) -> Result<[u8; 8], Errno> {
    let mut bytes = [0_u8; 8];
    let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: the local vector describes `bytes`; the remote one is the kernel's to check.
    let result = unsafe {
        libc::process_vm_readv(pid.as_raw_nonzero().get(), &raw const here, 1, &raw const there, 1, 0)
    };
    check(i64::try_from(result).map_err(|_| Errno::IO)?).map(|_count| bytes)
}

/// Gives another process the policy that runs only when nobody else wants to.
pub(crate) fn schedule_idle(pid: Pid) -> Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads one `struct sched_param`.
    let result = unsafe {
        libc::sched_setscheduler(pid.as_raw_nonzero().get(), libc::SCHED_IDLE, &raw const parameter)
    };
    check(result).map(drop)
}

/// Has the kernel kill this process after as many seconds.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: takes a number only; the default action of SIGALRM ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Lets children vanish without being waited for.
pub(crate) fn ignore_children() {
    // SAFETY: SIG_IGN is a valid disposition, and this program waits for no child after this.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}
