//! An emulated kernel: a filter of system calls on one thread, which its children inherit.

#![expect(unsafe_code, reason = "neither std nor rustix installs filters or answers their notifications")]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// How `landlock_create_ruleset` answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    /// With this error, whatever is asked.
    Refuses(i32),
    /// As this version of the Landlock ABI, 1 to 6.
    Version(u8),
}

/// Runs `body` on a thread for which, and for whose children, the kernel is another.
pub(crate) fn emulate<T: Send>(kernel: Kernel, body: impl FnOnce() -> T + Send) -> T {
    let (listener, listeners) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let filtered = scope.spawn(move || {
            let action = match kernel {
                Kernel::Refuses(errno) => libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap(),
                Kernel::Version(_) => libc::SECCOMP_RET_USER_NOTIF,
            };
            listener.send(install(action).unwrap()).unwrap();
            body()
        });
        let listener: Option<OwnedFd> = listeners.recv().unwrap();
        if let (Some(listener), Kernel::Version(version)) = (listener, kernel) {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    answer(&listener, version);
                }
            });
        }
        let outcome = filtered.join();
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Installs, for this thread, a filter that does `action` on `landlock_create_ruleset` and allows all else.
fn install(action: u32) -> io::Result<Option<OwnedFd>> {
    const NUMBER: u32 = 444; // landlock_create_ruleset, in all tables of system calls
    let statement = |code: u32, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k };
    let load_number = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let unless_it =
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, NUMBER) };
    let returns = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut program = [load_number, unless_it, returns(action), returns(libc::SECCOMP_RET_ALLOW)];
    let filter =
        libc::sock_fprog { len: u16::try_from(program.len()).unwrap(), filter: program.as_mut_ptr() };
    let is_listening = action == libc::SECCOMP_RET_USER_NOTIF;
    let flags = if is_listening { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    // SAFETY: takes numbers only, and binds this thread alone, which ends with the emulation.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: the filter and the program that it points to live through the call, which copies them.
    let result = check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    })?;
    if !is_listening {
        return Ok(None);
    }
    // SAFETY: with the flag, the call returns a new descriptor.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(i32::try_from(result).unwrap()) }))
}

/// Answers the next call, if one comes soon.
fn answer(listener: &OwnedFd, version: u8) {
    let mut waiting = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives through the call.
    if unsafe { libc::poll(&raw mut waiting, 1, 20) } < 1 || waiting.revents & libc::POLLIN == 0 {
        return;
    }
    // SAFETY: all zeros is what the call wants to be given.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `struct seccomp_notif`.
    if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } < 0 {
        return; // whoever asked has died meanwhile
    }
    let [attributes, size, flags, ..] = call.data.args;
    let mut response = libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: 0 };
    match judge(call.pid, attributes, size, flags, version) {
        Verdict::Version => response.val = version.into(),
        Verdict::Refused(errno) => response.error = -errno,
        Verdict::AsItIs => response.flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap(),
    }
    // SAFETY: the call reads one `struct seccomp_notif_resp`. It fails when whoever asked has died.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
}

enum Verdict {
    Version,
    Refused(i32),
    AsItIs,
}

fn judge(pid: u32, attributes: u64, size: u64, flags: u64, version: u8) -> Verdict {
    const ASKS_VERSION: u64 = 1; // LANDLOCK_CREATE_RULESET_VERSION
    match flags {
        0 => {}
        ASKS_VERSION => return Verdict::Version,
        _ => return Verdict::Refused(libc::EINVAL),
    }
    // `struct landlock_ruleset_attr`: rights of files, rights of ports (ABI 4), scopes (ABI 6).
    let known = match version {
        0 => [0, 0, 0],
        1 => [(1 << 13) - 1, 0, 0],
        2 => [(1 << 14) - 1, 0, 0],
        3 => [(1 << 15) - 1, 0, 0],
        4 => [(1 << 15) - 1, 3, 0],
        5 => [(1 << 16) - 1, 3, 0],
        _ => [(1 << 16) - 1, 3, 3],
    };
    let length = match version {
        0..4 => 1,
        4..6 => 2,
        _ => 3,
    };
    let Ok(asked) = read_words(pid, attributes, usize::try_from(size).unwrap_or(0) / 8) else {
        return Verdict::AsItIs; // the kernel answers EFAULT by itself
    };
    if asked.iter().skip(length).any(|word| *word != 0) {
        return Verdict::Refused(libc::E2BIG);
    }
    let is_known = asked.iter().zip(known).all(|(asked, known)| asked & !known == 0);
    if is_known { Verdict::AsItIs } else { Verdict::Refused(libc::EINVAL) }
}

fn read_words(pid: u32, address: u64, count: usize) -> io::Result<Vec<u64>> {
    let mut words = vec![0_u64; count.min(64)];
    let length = size_of_val(words.as_slice());
    let here = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: length };
    let address = usize::try_from(address).unwrap();
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: length };
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: the local vector describes `words`; the remote one is the kernel's to check.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    check(i64::try_from(read).unwrap()).map(|_| words)
}
