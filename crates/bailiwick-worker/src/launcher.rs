//! Launchers: processes that confine themselves once and are then copied.
//!
//! The session's launcher is in the scope domain only, and makes the launchers of the grants. A grant's
//! launcher is in the whole confinement, and makes reapers. Both make them as siblings (`CLONE_PARENT`),
//! so that all are children of the worker and none of a process that a command can kill.

use std::os::fd::{AsRawFd as _, OwnedFd};

use bailiwick_wire::{Event, Grant, Lacking, Plan, Reader, Request, Step, Writer};

use crate::boundary::{self, Place, Rules, View};
use crate::child::{Failure, Stack};
use crate::namespaces::HostObjects;
use crate::sys::{self, Channel, Errno, UnixAddress};
use crate::{broker, reaper};

/// Asks a grant's launcher for a reaper on the attached socket.
pub(crate) const MAKE_REAPER: u8 = 201;
/// Tells a reaper that the numbers of its command are known to the host.
pub(crate) const NUMBERED: u8 = 204;
/// Asks the session's launcher to stop every process of its domain.
pub(crate) const FREEZE: u8 = 203;
/// Asks the session's launcher for a broker. Descriptors as [`broker::run`] has them.
pub(crate) const MAKE_BROKER: u8 = 207;
/// What a grant's launcher says with the listener of its filter, before it tries anything.
pub(crate) const LISTENER: u8 = 206;

/// What a launcher is told beside its grant.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// An abstract socket of the worker.
    pub(crate) abstract_socket: UnixAddress,
    pub(crate) host: HostObjects,
    /// The namespaces of the session (`CLONE_NEW*`).
    pub(crate) kinds: usize,
    /// Descriptors of a view are attached.
    pub(crate) has_view: bool,
    pub(crate) lacking: Vec<Lacking>,
}

impl Surroundings {
    fn write(&self) -> Vec<u8> {
        let mut writer = Writer::new(0);
        writer.bytes(&self.abstract_socket.to_bytes());
        writer.bytes(&self.host.socket.map_or_else(Vec::new, UnixAddress::to_bytes));
        let (segment, errno) = match self.host.segment {
            Ok(segment) => (segment, 0),
            Err(errno) => (0, errno.0),
        };
        let (major, minor) = self.host.terminals.unwrap_or_default();
        writer.i32(segment).i32(errno).u32(major).u32(minor).u64(self.kinds as u64).u8(self.has_view.into());
        writer.list(&self.lacking, |w, lacking| lacking.write(w));
        writer.finish()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        reader.u8("tag").ok()?;
        let abstract_socket = UnixAddress::from_bytes(reader.bytes("socket").ok()?)?;
        let socket = reader.bytes("host socket").ok()?;
        let (segment, errno) = (reader.i32("segment").ok()?, reader.i32("errno").ok()?);
        let terminals = (reader.u32("major").ok()?, reader.u32("minor").ok()?);
        let host = HostObjects {
            socket: if socket.is_empty() { None } else { UnixAddress::from_bytes(socket) },
            segment: if errno == 0 { Ok(segment) } else { Err(Errno(errno)) },
            terminals: (terminals != (0, 0)).then_some(terminals),
        };
        let kinds = usize::try_from(reader.u64("kinds").ok()?).ok()?;
        let has_view = reader.flag("has view").ok()?;
        let lacking = reader.list("lacking", Lacking::read).ok()?;
        reader.end().ok()?;
        Some(Self { abstract_socket, host, kinds, has_view, lacking })
    }
}

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
    fork(0, vec![socket, scope], |mut kept| {
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
        if message.bytes == [MAKE_BROKER] && descriptors.len() == broker::DESCRIPTORS {
            // As below.
            sys::may_fail(fork(sys::CLONE_PARENT, descriptors, |kept| broker::run(kept)));
            continue;
        }
        let Some((_, surroundings)) = read_grant(&message.bytes) else { sys::exit_now(1) };
        if descriptors.len() != DESCRIPTORS + if surroundings.has_view { VIEW_DESCRIPTORS } else { 0 } {
            sys::exit_now(1);
        }
        // Whether the copy was made shows on its own channel: it closes with the descriptors here.
        sys::may_fail(fork(sys::CLONE_PARENT, descriptors, |kept| grant(&message.bytes, kept)));
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

/// Descriptors of a message that asks for a grant's launcher: channel, ruleset, directory of the sentinel, temporary
/// directory, plan, the host process.
const DESCRIPTORS: usize = 6;
/// Descriptors of a view, after those: namespace, root, and the two directories again.
const VIEW_DESCRIPTORS: usize = 4;

/// The message that asks the session's launcher for a grant's launcher.
pub(crate) fn grant_message(grant: &Grant, surroundings: &Surroundings) -> Vec<u8> {
    let mut writer = Writer::new(0);
    writer.bytes(&surroundings.write()).bytes(&Request::Grant(grant.clone()).encode());
    writer.finish()
}

fn read_grant(bytes: &[u8]) -> Option<(Grant, Surroundings)> {
    let mut reader = Reader::new(bytes);
    reader.u8("tag").ok()?;
    let surroundings = Surroundings::read(reader.bytes("surroundings").ok()?)?;
    match Request::decode(reader.bytes("grant").ok()?) {
        Ok(Request::Grant(grant)) => Some((grant, surroundings)),
        _ => None,
    }
}

/// Makes the process that builds the view of a grant, as a child of the worker. Returns its process id.
///
/// # Errors
/// The process could not be made.
pub(crate) fn start_builder(
    socket: OwnedFd,
    plan: OwnedFd,
    ruleset: OwnedFd,
    grant: &Grant,
) -> sys::Result<i32> {
    fork(0, vec![socket, plan, ruleset], |mut kept| {
        let (Some(ruleset), Some(plan), Some(socket)) = (kept.pop(), kept.pop(), kept.pop()) else {
            sys::exit_now(1)
        };
        sys::may_fail(sys::set_name(c"bailiwick-view"));
        let rules = Rules { ruleset: &ruleset, handled: grant.handled, proc_is_list_only: grant.read_scope };
        let built = match read_plan(plan) {
            Some(plan) => boundary::build_view(&plan, &rules),
            None => Err(boundary::ViewFailure { step: Step::Message, errno: Errno::PROTO, root: None }),
        };
        let (built, descriptors) = match built {
            Ok((View { namespace, root, outside, inside }, lacking)) => {
                (Ok(lacking), vec![namespace, root, outside, inside])
            }
            Err(failure) => (Err(failure), Vec::new()),
        };
        // Its end tells the worker enough if this does not.
        sys::may_fail(Channel::new(socket).send(boundary::encode_view(&built), descriptors));
        sys::exit_now(0)
    })
}

/// Reads a plan, by position: other processes read the same open file.
fn read_plan(file: OwnedFd) -> Option<Plan> {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::from(file);
    let mut bytes = vec![0; usize::try_from(file.metadata().ok()?.len()).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Plan::decode(&bytes).ok()
}

/// Enters a view, if there is one.
fn enter_view(view: Option<&View>) -> Result<(), Failure> {
    let Some(view) = view else { return Ok(()) };
    sys::enter_mounts(&view.namespace)
        .and_then(|()| sys::enter_root(&view.root))
        .map_err(|errno| Failure { step: Step::Namespaces, errno })
}

/// The launcher of a grant, from its first moment.
fn grant(message: &[u8], kept: Vec<OwnedFd>) -> ! {
    let Some((grant, surroundings)) = read_grant(message) else { sys::exit_now(1) };
    let mut kept = kept.into_iter();
    let mut next = || kept.next().unwrap_or_else(|| sys::exit_now(1));
    let (socket, ruleset, outside, inside) = (next(), next(), next(), next());
    let (plan, host_process) = (next(), next());
    let view = surroundings.has_view.then(|| View {
        namespace: next(),
        root: next(),
        outside: next(),
        inside: next(),
    });
    let mut channel = Channel::new(socket);
    let epoch = grant.epoch;
    let is_isolated = surroundings.kinds & sys::CLONE_NEWPID != 0;
    let circumstances = reaper::Circumstances { is_isolated, has_view: view.is_some() };
    let has_own_ipc = surroundings.kinds & sys::CLONE_NEWIPC != 0;
    let has_user_namespace = surroundings.kinds & sys::CLONE_NEWUSER != 0;
    let policy = boundary::Circumstances { has_own_ipc, has_view: view.is_some(), has_user_namespace };
    let entered = sys::set_name(c"bailiwick-lnch")
        .and_then(|()| channel.send(hello(), Vec::new()))
        .map_err(|errno| Failure { step: Step::Fork, errno })
        .and_then(|()| enter_view(view.as_ref()))
        .and_then(|()| boundary::enter_grant(&grant, policy, &ruleset));
    drop(ruleset);
    let entered = entered.and_then(|listener| match listener {
        None => Ok(()),
        Some(listener) => {
            offer(&mut channel, listener).map_err(|errno| Failure { step: Step::Seccomp, errno })
        }
    });
    let event = match entered {
        Ok(()) => {
            let Some(plan) = read_plan(plan) else { sys::exit_now(1) };
            let lacking = surroundings.lacking.clone();
            let has_view = view.is_some();
            let place = Place { outside, inside, view, host_process, plan, surroundings };
            let mut stack = Stack::new();
            let findings = boundary::probe(&grant, &place, &mut stack);
            let limits = boundary::try_limits(&grant.limits, &mut stack);
            let unusable = boundary::try_roots(&place.plan);
            if sys::set_dumpable(false).is_err() {
                sys::exit_now(1);
            }
            Event::Granted { epoch, findings, unusable, limits, lacking, has_view }
        }
        Err(Failure { step, errno }) => Event::GrantFailed { epoch, step, errno: errno.0, root: None },
    };
    if channel.send(event.encode(), Vec::new()).is_err() || entered.is_err() {
        sys::exit_now(1);
    }
    while let Ok(Some(message)) = channel.receive(true) {
        if message.bytes != [MAKE_REAPER] || message.descriptors.len() != 1 {
            sys::exit_now(1);
        }
        sys::may_fail(fork(sys::CLONE_PARENT, message.descriptors, |mut kept| match kept.pop() {
            Some(socket) => reaper::serve(socket, circumstances),
            None => sys::exit_now(1),
        }));
    }
    sys::exit_now(0)
}

/// Hands the listener of the filter to the worker, and makes this process one that a broker may look into, for as
/// long as it tries things: it runs nothing of a command's yet, and its domain of files is nobody else's.
fn offer(channel: &mut Channel, listener: OwnedFd) -> sys::Result<()> {
    channel.send(vec![LISTENER], vec![listener])?;
    // The first connection would wait for ever.
    if channel.wants_write() { Err(Errno::AGAIN) } else { sys::set_dumpable(true) }
}

/// Makes a copy of this process that keeps only the descriptors given (and 0, 1 and 2), runs `then`
/// and ends.
///
/// They are moved out of the way first, so that one `close_range` closes everything else: a channel of
/// another process must not live on in a copy, or its end would never be seen.
#[expect(unsafe_code, reason = "copies this process and drops the copy's other descriptors")]
fn fork(flags: usize, keep: Vec<OwnedFd>, then: impl FnOnce(Vec<OwnedFd>)) -> sys::Result<i32> {
    // SAFETY: the worker and its copies are single-threaded; the child closes what it must not keep.
    match unsafe { sys::clone_child(flags) }? {
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
