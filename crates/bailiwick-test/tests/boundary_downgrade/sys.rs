//! An emulated kernel: a filter of system calls on one thread, which its children inherit.

#![expect(unsafe_code, reason = "neither std nor rustix installs filters or answers their notifications")]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// How the kernel answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    /// `landlock_create_ruleset` with this error, whatever is asked.
    Refuses(i32),
    /// All calls of Landlock with this error.
    RefusesAll(i32),
    /// As this version of the Landlock ABI, 1 to 6.
    Version(u8),
    /// As this version, which it reports, but without some of its rights of files and scopes.
    Claims { version: u8, lacks_files: u64, lacks_scopes: u64 },
    /// `landlock_restrict_self` with this error.
    RefusesEntry(i32),
    /// Says that it has set a resource limit, and has not.
    FakesLimits,
}

/// Numbers of system calls that are the same in all tables.
const CREATE_RULESET: u32 = 444;
const RESTRICT_SELF: u32 = 446;

/// Runs `body` on a thread for which, and for whose children, the kernel is another.
pub(crate) fn emulate<T: Send>(kernel: Kernel, body: impl FnOnce() -> T + Send) -> T {
    let (listener, listeners) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let filtered = scope.spawn(move || {
            listener.send(install(kernel).unwrap()).unwrap();
            body()
        });
        let listener: Option<OwnedFd> = listeners.recv().unwrap();
        if let (Some(listener), Some(interface)) = (listener, Interface::of(kernel)) {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    answer(&listener, &interface);
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

/// The filter of a kernel: what it does to some calls, all others allowed.
fn program(kernel: Kernel) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    // Skips `count` statements unless the word fits.
    let unless = |test: u32, k, count| libc::sock_filter {
        jf: count,
        ..statement(libc::BPF_JMP | test | libc::BPF_K, k)
    };
    let returns = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let errno = |errno: i32| returns(libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap());
    let allow = returns(libc::SECCOMP_RET_ALLOW);
    let only = |number: u32, action| vec![load(0), unless(libc::BPF_JEQ, number, 1), action, allow];
    match kernel {
        Kernel::Refuses(answer) => only(CREATE_RULESET, errno(answer)),
        Kernel::RefusesEntry(answer) => only(RESTRICT_SELF, errno(answer)),
        Kernel::Version(_) | Kernel::Claims { .. } => {
            only(CREATE_RULESET, returns(libc::SECCOMP_RET_USER_NOTIF))
        }
        Kernel::RefusesAll(answer) => vec![
            load(0),
            unless(libc::BPF_JGE, CREATE_RULESET, 2),
            libc::sock_filter {
                jt: 1,
                ..statement(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, RESTRICT_SELF)
            },
            errno(answer),
            allow,
        ],
        Kernel::FakesLimits => vec![
            load(0),
            unless(libc::BPF_JEQ, u32::try_from(libc::SYS_prlimit64).unwrap(), 5),
            // The third argument, where the new values would be: low word, high word.
            load(32),
            libc::sock_filter { jf: 2, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0) },
            load(36),
            libc::sock_filter { jt: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0) },
            errno(0),
            allow,
        ],
    }
}

/// Installs, for this thread, the filter of a kernel.
fn install(kernel: Kernel) -> io::Result<Option<OwnedFd>> {
    let mut program = program(kernel);
    let filter =
        libc::sock_fprog { len: u16::try_from(program.len()).unwrap(), filter: program.as_mut_ptr() };
    let is_listening = Interface::of(kernel).is_some();
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
fn answer(listener: &OwnedFd, interface: &Interface) {
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
    match judge(call.pid, attributes, size, flags, interface) {
        Verdict::Version => response.val = interface.version.into(),
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

/// What a kernel takes of `struct landlock_ruleset_attr`: rights of files, rights of ports (ABI 4), scopes (ABI 6).
struct Interface {
    version: u8,
    known: [u64; 3],
    /// How many words it knows.
    length: usize,
}

impl Interface {
    fn of(kernel: Kernel) -> Option<Self> {
        let (version, lacks_files, lacks_scopes) = match kernel {
            Kernel::Version(version) => (version, 0, 0),
            Kernel::Claims { version, lacks_files, lacks_scopes } => (version, lacks_files, lacks_scopes),
            _ => return None,
        };
        let [files, ports, scopes] = match version {
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
        Some(Self { version, known: [files & !lacks_files, ports, scopes & !lacks_scopes], length })
    }
}

fn judge(pid: u32, attributes: u64, size: u64, flags: u64, interface: &Interface) -> Verdict {
    const ASKS_VERSION: u64 = 1; // LANDLOCK_CREATE_RULESET_VERSION
    match flags {
        0 => {}
        ASKS_VERSION => return Verdict::Version,
        _ => return Verdict::Refused(libc::EINVAL),
    }
    let Ok(asked) = read_words(pid, attributes, usize::try_from(size).unwrap_or(0) / 8) else {
        return Verdict::AsItIs; // the kernel answers EFAULT by itself
    };
    if asked.iter().skip(interface.length).any(|word| *word != 0) {
        return Verdict::Refused(libc::E2BIG);
    }
    let is_known = asked.iter().zip(interface.known).all(|(asked, known)| asked & !known == 0);
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
