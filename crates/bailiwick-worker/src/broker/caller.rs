//! One call of `connect(2)`, made on behalf of who called.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Instant;

use super::Broker;
use super::name::{self, Name};
use crate::sys::{self, Alarm, Errno, Question, Result};

/// How often a call that waits looks whether its caller still does, in milliseconds.
const LOOK_MS: u64 = 20;
/// Largest address that the kernel takes (`sizeof(struct sockaddr_storage)`).
const ADDRESS_LIMIT: usize = 128;
/// ERESTARTSYS of the kernel: the call begins again after a signal whose handler asks for that, and is `EINTR` after
/// another.
const RESTART: Errno = Errno(512);

/// Somebody who called, and waits.
pub(super) struct Caller<'a> {
    pub(super) broker: &'a Broker,
    pub(super) question: &'a Question,
    /// Interrupts this thread while it waits for the caller; without it nothing may wait.
    pub(super) alarm: Option<&'a Alarm>,
}

impl Caller<'_> {
    /// The answer. For a caller that is gone meanwhile it does not matter.
    pub(super) fn connect(&self) -> Result<()> {
        self.try_connect().map_err(|errno| if errno == Errno::SRCH { Errno::ACCES } else { errno })
    }

    fn is_waiting(&self) -> bool {
        sys::is_waiting(&self.broker.listener, self.question.id)
    }

    /// `ESRCH`: the caller is gone.
    fn try_connect(&self) -> Result<()> {
        const CONNECT: i32 = 42;
        let thread = self.question.thread;
        if self.question.number != CONNECT {
            return Err(Errno::NOSYS);
        }
        let [socket, address, length, ..] = self.question.arguments;
        // The kernel takes an `int` for both.
        let (socket, length) = (low(socket), low(length));
        let process = sys::open_thread(thread, || name::process_of(thread))?;
        let socket = sys::take_descriptor(&process, socket).map_err(denied)?;
        let family = sys::family(&socket)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= ADDRESS_LIMIT);
        let mut room = [0; ADDRESS_LIMIT];
        let address_copy = room.get_mut(..length.ok_or(Errno::INVAL)?).ok_or(Errno::INVAL)?;
        sys::read_memory(thread, address, address_copy).map_err(denied)?;
        let named = if family == AF_UNIX { name::of(address_copy)? } else { Name::None };
        let named = match named {
            Name::None => None,
            Name::Path(path) => Some(name::Start::of(&process, path).map_err(denied)?),
        };
        // All that was looked at by number so far was the caller's, if it is there now.
        if !self.is_waiting() {
            return Err(Errno::SRCH);
        }
        match named {
            None => self.connect_to(&process, &socket, address_copy),
            Some(start) => {
                let found = start.open()?;
                self.judge(&found)?;
                // By what was found, so that no name is looked up a second time.
                let mut address = AF_UNIX_BYTES.to_vec();
                address.extend_from_slice(format!("/proc/self/fd/{}\0", found.as_raw_fd()).as_bytes());
                self.connect_to(&process, &socket, &address)
            }
        }
    }

    /// Whether a command may connect to what its name led to.
    fn judge(&self, found: &OwnedFd) -> Result<()> {
        const TYPE: u16 = 0o170_000;
        const SOCKET: u16 = 0o140_000;
        let look = sys::look(found.as_raw_fd())?;
        // For anything else the kernel has an answer of its own, and nothing happens.
        if look.mode & TYPE != SOCKET {
            return Ok(());
        }
        let writable = self.broker.writable.contains(&look.mount);
        if writable && !sys::is_read_only(found)? { Ok(()) } else { Err(Errno::ACCES) }
    }

    /// Connects the caller's socket, and waits for that as the caller would.
    fn connect_to(&self, process: &OwnedFd, socket: &OwnedFd, address: &[u8]) -> Result<()> {
        if !sys::waits(socket)? {
            return loop {
                match sys::connect(socket, address) {
                    Err(Errno::INTR) => {}
                    outcome => break outcome,
                }
            };
        }
        // What the kernel answers when there is no room for another connection and the socket does not wait.
        let Some(alarm) = self.alarm else { return Err(Errno::AGAIN) };
        let since = Instant::now();
        alarm.every(Some(LOOK_MS))?;
        let outcome = loop {
            match sys::connect(socket, address) {
                Err(Errno::INTR) => {
                    if let Some(end) = self.interrupted(process, socket, since) {
                        break Err(end);
                    }
                }
                outcome => break outcome,
            }
        };
        alarm.every(None)?;
        outcome
    }

    /// Why the call ends that has waited since then; `None` when it goes on.
    fn interrupted(&self, process: &OwnedFd, socket: &OwnedFd, since: Instant) -> Option<Errno> {
        if !self.is_waiting() {
            return Some(Errno::SRCH);
        }
        let timeout = sys::send_timeout(socket).unwrap_or_default();
        let is_limited = !timeout.is_zero();
        if name::has_signal(process) {
            return Some(if is_limited { Errno::INTR } else { RESTART });
        }
        // The kernel's own count began again with each interruption.
        let is_over = is_limited && since.elapsed() >= timeout;
        let is_local = sys::family(socket) == Ok(AF_UNIX);
        is_over.then_some(if is_local { Errno::AGAIN } else { Errno::INPROGRESS })
    }
}

const AF_UNIX: i32 = 1;
/// The same, as an address begins.
const AF_UNIX_BYTES: [u8; 2] = 1_u16.to_ne_bytes();

/// The caller cannot be looked into, so that nothing can be done for it.
fn denied(errno: Errno) -> Errno {
    if errno == Errno::PERM { Errno::ACCES } else { errno }
}

/// The lower half of a register, with its sign.
fn low(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}
