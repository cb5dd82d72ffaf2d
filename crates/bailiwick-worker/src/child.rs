//! The child side: from the moment a command's process exists until its program runs.
//!
//! The child shares the memory of the reaper, which is suspended until the program runs or the child
//! ends (`CLONE_VM | CLONE_VFORK`): a copy would cost page faults for every command. So nothing here
//! allocates, locks or unwinds, and everything it needs was prepared before.
#![expect(unsafe_code, reason = "runs between clone and exec in shared memory")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use bailiwick_wire::{Limit, Step};

use crate::switches::{Switch, without};
use crate::sys::{self, Errno, ResourceLimit};

const CLONE_VM: c_int = 0x100;
const CLONE_VFORK: c_int = 0x4000;
const CLONE_PIDFD: c_int = 0x1000;
const SIGCHLD: c_int = 17;
const STACK: usize = 64 * 1024;

unsafe extern "C" {
    fn clone(
        entry: extern "C" fn(*mut c_void) -> c_int,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        ...
    ) -> c_int;
}

/// Stack of the child; one for each reaper, reused.
pub(crate) struct Stack(Vec<u128>);

impl Stack {
    pub(crate) fn new() -> Self {
        Self(vec![0; STACK / size_of::<u128>()])
    }
}

/// A command made ready: nothing is left to allocate.
pub(crate) struct Prepared {
    /// Paths to try, in order.
    candidates: Vec<CString>,
    args: Vec<CString>,
    env: Vec<CString>,
    limits: Vec<Limit>,
}

impl Prepared {
    /// Resolves the program against the command's own `PATH`, as execvp(3) would, except that an empty
    /// entry does not stand for the working directory.
    ///
    /// # Errors
    /// `EINVAL` for a NUL byte; the session refused it before.
    pub(crate) fn new(spawn: bailiwick_wire::Spawn) -> Result<Self, Errno> {
        const INVALID: Errno = Errno(22);
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| INVALID);
        let mut candidates = Vec::new();
        if spawn.program.contains(&b'/') {
            candidates.push(text(spawn.program)?);
        } else {
            let path = spawn.env.iter().rev().find_map(|entry| entry.strip_prefix(b"PATH="));
            for directory in path.unwrap_or_default().split(|byte| *byte == b':') {
                if !directory.is_empty() {
                    let mut candidate = directory.to_vec();
                    candidate.push(b'/');
                    candidate.extend_from_slice(&spawn.program);
                    candidates.push(text(candidate)?);
                }
            }
        }
        Ok(Self {
            candidates,
            args: spawn.args.into_iter().map(text).collect::<Result<_, _>>()?,
            env: spawn.env.into_iter().map(text).collect::<Result<_, _>>()?,
            limits: spawn.limits,
        })
    }
}

/// Why the program does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// What the child reads and writes. Lives in the reaper, which waits meanwhile.
struct Shared<'a> {
    candidates: &'a [*const c_char],
    args: *const *const c_char,
    env: *const *const c_char,
    limits: &'a [Limit],
    stdio: [RawFd; 3],
    directory: RawFd,
    failure: Option<Failure>,
}

/// Starts the command. The descriptors are stdin, stdout, stderr and the working directory.
///
/// # Errors
/// Where it failed; nothing ran then, and nothing is left to wait for but the child, which has ended.
pub(crate) fn start(
    prepared: &Prepared,
    descriptors: &[OwnedFd; 4],
    stack: &mut Stack,
) -> Result<(i32, OwnedFd), Failure> {
    let pointers = |list: &[CString]| {
        list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const c_char>>()
    };
    let candidates = pointers(&prepared.candidates);
    let (args, env) = (pointers(&prepared.args), pointers(&prepared.env));
    let [stdin, stdout, stderr, directory] = descriptors;
    let mut shared = Shared {
        candidates: candidates.get(..prepared.candidates.len()).unwrap_or_default(),
        args: args.as_ptr(),
        env: env.as_ptr(),
        limits: &prepared.limits,
        stdio: [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
        directory: directory.as_raw_fd(),
        failure: None,
    };
    let (pid, pidfd) =
        vfork(run, (&raw mut shared).cast(), stack).map_err(|errno| Failure { step: Step::Fork, errno })?;
    // The child wrote through the pointer; the compiler must not assume that `shared` is as it was.
    // SAFETY: `shared` is live and initialised, and the child, which shares it, has ended or exec'd.
    match unsafe { std::ptr::read_volatile(&raw const shared.failure) } {
        Some(failure) => {
            // It has called _exit, so this does not wait for a program.
            while sys::wait(true, false).is_ok_and(|waited| waited.is_none_or(|child| child.pid != pid)) {}
            Err(failure)
        }
        None => Ok((pid, pidfd)),
    }
}

/// Runs `act` in a child of this kind, which ends after it, so that what it does to the process does not
/// last. `act` must keep to what this module says of the child side; what it writes is seen here.
///
/// # Errors
/// The child could not be made, or did not end by itself.
pub(crate) fn try_in_child(mut act: &mut dyn FnMut(), stack: &mut Stack) -> sys::Result<()> {
    extern "C" fn run(argument: *mut c_void) -> c_int {
        // SAFETY: `try_in_child` passes its `act`, which outlives the child.
        let act = unsafe { &mut *argument.cast::<&mut dyn FnMut()>() };
        act();
        sys::exit_now(0)
    }
    let (pid, _pidfd) = vfork(run, (&raw mut act).cast(), stack)?;
    loop {
        if let Some(child) = sys::wait(true, false)?
            && child.pid == pid
        {
            return if child.status == 0 { Ok(()) } else { Err(Errno::PROTO) };
        }
    }
}

/// Whether a descriptor that is open and not close-on-exec is gone after tidying, tried in a child.
///
/// # Errors
/// The child could not be made, or did not end by itself.
pub(crate) fn tidies_descriptors(open: &OwnedFd, stack: &mut Stack) -> sys::Result<bool> {
    const PROBE: RawFd = 200;
    // SAFETY: descriptor 200 is used for nothing else in a launcher, and is closed below.
    unsafe { sys::replace_descriptor(open.as_raw_fd(), PROBE, true)? };
    let mut tidied = false;
    let tried = try_in_child(&mut || tidied = tidy().is_ok() && !sys::is_open(PROBE), stack);
    // SAFETY: as above: this launcher made descriptor 200 a few lines before.
    unsafe { sys::close_range(200, 200) }?;
    tried.map(|()| tidied)
}

fn vfork(
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    stack: &mut Stack,
) -> sys::Result<(i32, OwnedFd)> {
    let top = stack.0.as_mut_ptr_range().end;
    let mut pidfd: c_int = -1;
    // SAFETY: the stack is 64 KiB, aligned to 16, and used by nothing else until the parent goes on,
    // which is when the child has exec'd or ended; `entry` allocates nothing and does not unwind;
    // `pidfd` is the place that CLONE_PIDFD writes.
    let pid = unsafe {
        clone(
            entry,
            top.cast(),
            CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
            argument,
            &raw mut pidfd,
            std::ptr::null_mut::<c_void>(),
            std::ptr::null_mut::<c_void>(),
        )
    };
    if pid < 0 {
        return Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(Errno::AGAIN.0)));
    }
    // SAFETY: CLONE_PIDFD made this descriptor for us.
    Ok((pid, unsafe { sys::inherited(pidfd) }))
}

extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: `start` passes its `Shared`, which outlives the child's use of it.
    let shared = unsafe { &mut *argument.cast::<Shared<'_>>() };
    let failure = prepare(shared).err().unwrap_or_else(|| exec(shared));
    shared.failure = Some(failure);
    sys::exit_now(127)
}

fn prepare(shared: &Shared<'_>) -> Result<(), Failure> {
    fn at<T>(step: Step) -> impl Fn(Errno) -> Result<T, Failure> {
        move |errno| Err(Failure { step, errno })
    }
    if !without(Switch::Hygiene) {
        sys::setsid().or_else(at(Step::Session))?;
    }
    // By descriptor, before stdio is moved into place: the path was judged by the session.
    sys::fchdir(shared.directory).or_else(at(Step::WorkingDirectory))?;
    for (fd, target) in shared.stdio.iter().zip(0..) {
        // SAFETY: 0, 1 and 2 belong to the command from here on. The sources are above 2: the reaper
        // keeps those numbers occupied.
        unsafe { sys::replace_descriptor(*fd, target, true) }.or_else(at(Step::Descriptors))?;
    }
    tidy().or_else(at(Step::Descriptors))?;
    for limit in shared.limits {
        // An image without hygiene leaves memory images as the host has them.
        if without(Switch::Hygiene) && limit.resource == sys::CORE {
            continue;
        }
        let value = ResourceLimit { soft: limit.soft, hard: limit.hard };
        sys::set_limit(limit.resource, value).or_else(at(Step::Limits))?;
    }
    // Last, so that no signal ends the child half-way: dispositions are all default since the keeper.
    if !without(Switch::Hygiene) {
        sys::set_mask(0).or_else(at(Step::Signals))?;
    }
    Ok(())
}

/// Leaves the command no descriptor but 0, 1 and 2.
fn tidy() -> sys::Result<()> {
    if without(Switch::Hygiene) {
        return Ok(());
    }
    // SAFETY: the child has its own descriptor table, and nothing in it is used after this.
    unsafe { sys::close_range(3, u32::MAX) }
}

fn exec(shared: &Shared<'_>) -> Failure {
    // As execvp: go on where a directory lacks the program, but remember one that could not be executed.
    let mut errno = Errno::NOENT;
    for candidate in shared.candidates {
        // SAFETY: all three are C strings or null-terminated arrays of them, which `start` holds.
        let failed = unsafe {
            sys::call(
                sys::number::EXECVE,
                [*candidate as usize, shared.args as usize, shared.env as usize, 0, 0, 0],
            )
        };
        match failed.err() {
            None | Some(Errno::NOENT | Errno::NOTDIR) => {}
            Some(Errno::ACCES) => errno = Errno::ACCES,
            Some(other) => {
                errno = other;
                break;
            }
        }
    }
    Failure { step: Step::Exec, errno }
}
