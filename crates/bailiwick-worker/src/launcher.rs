//! Launchers: processes that confine themselves once and are then copied.
//!
//! The session's launcher is in the scope domain only, and makes the launchers of the grants. A grant's
//! launcher is in the whole confinement, and makes reapers. Both make them as siblings (`CLONE_PARENT`),
//! so that all are children of the worker and none of a process that a command can kill.

use std::os::fd::{AsRawFd as _, OwnedFd};

use bailiwick_wire::{Event, Grant, Request};

use crate::boundary::{self, Ground, Place};
use crate::child::{Failure, Stack};
use crate::reaper;
use crate::sys::{self, Channel, Errno, UnixAddress};

/// Asks a grant's launcher for a reaper on the attached socket.
pub(crate) const MAKE_REAPER: u8 = 201;
/// Asks the session's launcher to stop every process of its domain.
pub(crate) const FREEZE: u8 = 203;
/// What every launcher stands on as long as there are no namespaces.
const GROUND: Ground = Ground { has_mount_view: false, has_user_namespace: false };
/// Prefix of the address in a message to the session's launcher.
const SEPARATOR: usize = 4;

/// First message of a launcher and of a reaper to the worker: its process id.
pub(crate) fn hello() -> Vec<u8> {
    let mut bytes = vec![HELLO];
    bytes.extend_from_slice(&sys::process_id().to_le_bytes());
    bytes
}

/// Reads [`hello`].
pub(crate) fn read_hello(bytes: &[u8]) -> Option<i32> {
    let (tag, pid) = bytes.split_first()?;
    (*tag == HELLO).then(|| pid.try_into().ok().map(i32::from_le_bytes))?
}

const HELLO: u8 = 200;

/// Makes the session's launcher, as a child of the worker. Returns its process id.
///
/// # Errors
/// The process could not be made.
pub(crate) fn start_session(socket: OwnedFd, scope: OwnedFd) -> sys::Result<i32> {
    fork(false, vec![socket, scope], |mut kept| {
        let (Some(scope), Some(socket)) = (kept.pop(), kept.pop()) else { sys::exit_now(1) };
        let mut channel = Channel::new(socket);
        let entered = sys::set_name(c"bailiwick-sess")
            .map_err(|errno| Failure { step: bailiwick_wire::Step::Fork, errno })
            .and_then(|()| boundary::enter_scope(&scope));
        drop(scope);
        let event = match entered {
            Ok(()) => Event::Ready { version: bailiwick_wire::VERSION, worker_pid: 0 },
            Err(Failure { step, errno }) => Event::OpenFailed { step, errno: errno.0 },
        };
        if channel.send(event.encode(), Vec::new()).is_err() || entered.is_err() {
            sys::exit_now(1);
        }
        serve_session(&channel)
    })
}

fn serve_session(channel: &Channel) -> ! {
    while let Ok(Some(message)) = channel.receive(true) {
        if message.bytes == [FREEZE] {
            freeze();
            continue;
        }
        let descriptors = message.descriptors;
        if read_grant(&message.bytes).is_none() || descriptors.len() != 5 {
            sys::exit_now(1);
        }
        // Whether the copy was made shows on its own channel: it closes with the descriptors here.
        sys::may_fail(fork(true, descriptors, |kept| grant(&message.bytes, kept)));
    }
    sys::exit_now(0)
}

/// Stops every process of the domain but this one: one call, during which none of them can fork.
fn freeze() {
    const EVERYBODY: i32 = -1;
    const SIGSTOP: i32 = 19;
    // Without scopes it would reach every process of the user. The worker is one of them, outside the
    // domain: as long as it cannot be signalled, nobody else out there can.
    let worker = i32::try_from(std::os::unix::process::parent_id());
    if worker.is_ok_and(|worker| sys::kill(worker, 0) == Err(Errno::PERM)) {
        sys::may_fail(sys::kill(EVERYBODY, SIGSTOP));
    }
}

/// The message that asks the session's launcher for a grant's launcher. Descriptors: channel, ruleset,
/// directory of the sentinel, temporary directory, paths of the roots.
pub(crate) fn grant_message(grant: &Grant, address: &UnixAddress) -> Vec<u8> {
    let address = address.to_bytes();
    let mut bytes = u32::try_from(address.len()).unwrap_or(0).to_le_bytes().to_vec();
    bytes.extend_from_slice(&address);
    bytes.extend_from_slice(&Request::Grant(grant.clone()).encode());
    bytes
}

fn read_grant(bytes: &[u8]) -> Option<(Grant, UnixAddress)> {
    let (length, rest) = bytes.split_at_checked(SEPARATOR)?;
    let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (address, request) = rest.split_at_checked(length)?;
    match Request::decode(request) {
        Ok(Request::Grant(grant)) => Some((grant, UnixAddress::from_bytes(address)?)),
        _ => None,
    }
}

/// The launcher of a grant, from its first moment.
fn grant(message: &[u8], mut kept: Vec<OwnedFd>) -> ! {
    let (Some(roots), Some(inside), Some(outside), Some(ruleset), Some(socket)) =
        (kept.pop(), kept.pop(), kept.pop(), kept.pop(), kept.pop())
    else {
        sys::exit_now(1)
    };
    let Some((grant, abstract_socket)) = read_grant(message) else { sys::exit_now(1) };
    let mut channel = Channel::new(socket);
    let epoch = grant.epoch;
    let entered = sys::set_name(c"bailiwick-lnch")
        .and_then(|()| channel.send(hello(), Vec::new()))
        .map_err(|errno| Failure { step: bailiwick_wire::Step::Fork, errno })
        .and_then(|()| boundary::enter_grant(&grant, &ruleset, GROUND));
    drop(ruleset);
    let event = match entered {
        Ok(()) => {
            let place = Place { outside, inside, abstract_socket };
            let mut stack = Stack::new();
            let findings = boundary::probe(&grant, &place, &mut stack);
            let limits = boundary::try_limits(&grant.limits, &mut stack);
            let unusable = boundary::try_roots(&std::fs::File::from(roots));
            Event::Granted { epoch, findings, unusable, limits }
        }
        Err(Failure { step, errno }) => Event::GrantFailed { epoch, step, errno: errno.0 },
    };
    if channel.send(event.encode(), Vec::new()).is_err() || entered.is_err() {
        sys::exit_now(1);
    }
    while let Ok(Some(message)) = channel.receive(true) {
        if message.bytes != [MAKE_REAPER] || message.descriptors.len() != 1 {
            sys::exit_now(1);
        }
        sys::may_fail(fork(true, message.descriptors, |mut kept| match kept.pop() {
            Some(socket) => reaper::serve(socket),
            None => sys::exit_now(1),
        }));
    }
    sys::exit_now(0)
}

/// Makes a copy of this process that keeps only the descriptors given (and 0, 1 and 2), runs `then`
/// and ends.
///
/// They are moved out of the way first, so that one `close_range` closes everything else: a channel of
/// another process must not live on in a copy, or its end would never be seen.
#[expect(unsafe_code, reason = "copies this process and drops the copy's other descriptors")]
fn fork(sibling: bool, keep: Vec<OwnedFd>, then: impl FnOnce(Vec<OwnedFd>)) -> sys::Result<i32> {
    // SAFETY: the worker and its copies are single-threaded; the child closes what it must not keep.
    match unsafe { sys::clone_child(sibling) }? {
        Some(pid) => Ok(pid),
        None => match isolate(keep) {
            Ok(kept) => {
                then(kept);
                sys::exit_now(1)
            }
            Err(_) => sys::exit_now(1),
        },
    }
}

/// Moves the descriptors given out of the way and closes everything else but 0, 1 and 2.
///
/// # Errors
/// The kernel's, half-way: the process must end then.
#[expect(unsafe_code, reason = "closes descriptors by number")]
pub(crate) fn isolate(keep: Vec<OwnedFd>) -> sys::Result<Vec<OwnedFd>> {
    const LOW: u32 = 3;
    // Above everything open, wherever that is.
    let mut high = keep.iter().map(|fd| fd.as_raw_fd()).max().unwrap_or(3);
    let mut kept = Vec::with_capacity(keep.len());
    for fd in &keep {
        let copy = sys::duplicate_above(fd.as_raw_fd(), usize::try_from(high + 1).unwrap_or(3))?;
        high = copy.as_raw_fd();
        kept.push(copy);
    }
    let mut next = LOW;
    // What is in between is closed below by number, so it must not be closed again by its owner.
    keep.into_iter().for_each(std::mem::forget);
    for fd in &kept {
        let number = u32::try_from(fd.as_raw_fd()).map_err(|_| Errno::BADF)?;
        if number > next {
            // SAFETY: of the descriptors in this range, this copy uses none: it never returns to the
            // code that owned them.
            unsafe { sys::close_range(next, number - 1) }?;
        }
        next = number + 1;
    }
    // SAFETY: as above.
    unsafe { sys::close_range(next, u32::MAX) }?;
    Ok(kept)
}
