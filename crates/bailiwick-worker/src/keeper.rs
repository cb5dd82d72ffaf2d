//! The keeper: the process that the host starts, and whose end proves that nothing is left.
//!
//! It stands above the worker, inherits what the worker leaves behind, takes no requests and cannot be
//! signalled by a command. Without it a killed worker would leave every process of the session alive.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};

use bailiwick_wire::Step;

use crate::child::Failure;
use crate::group::Group;
use crate::namespaces::{self, HostObjects, Isolation, Network};
use crate::sys::{self, Errno};
use crate::tree::{self, Ending, Own};
use crate::{launcher, switches, temporary, worker};

/// Exit status: the worker ended in order, nothing is left.
const SETTLED: i32 = 0;
/// Exit status: the worker was lost; what it left has been ended.
const ENDED_BY_KEEPER: i32 = 3;
/// Exit status: the session could not be set up; nothing ran.
const NOT_SET_UP: i32 = 4;

/// Runs as keeper, and in a copy as worker.
///
/// Descriptor 0 is the control socket, descriptor 1 the temporary directory; the arguments are its path, the network
/// that commands are to have, and the name of the session's control group, or nothing. With a group, descriptor 2 is
/// the one above it.
pub(crate) fn run() -> ! {
    let Ok(Setup { control, temporary, path, network, group }) = set_up() else { sys::exit_now(NOT_SET_UP) };
    // Held to the end: they stand for the host in the probes.
    let socket = sys::bind_abstract().ok();
    let host = HostObjects {
        socket: socket.as_ref().map(|(_, address)| *address),
        segment: sys::make_segment(),
        terminals: sys::open_place(c"/dev/pts", sys::O_DIRECTORY)
            .and_then(|directory| sys::look(std::os::fd::AsRawFd::as_raw_fd(&directory)))
            .ok()
            .map(|seen| seen.device),
    };
    let worker = match fork_worker(control, network, host, group.as_ref()) {
        Ok(pid) => pid,
        Err(_) => sys::exit_now(NOT_SET_UP),
    };
    let status = wait_for(worker);
    end_everything();
    remove(&temporary, path.as_ref());
    group.iter().for_each(Group::remove);
    sys::exit_now(if status == Some(0) { SETTLED } else { ENDED_BY_KEEPER })
}

struct Setup {
    control: OwnedFd,
    temporary: OwnedFd,
    path: Option<CString>,
    network: Network,
    group: Option<Group>,
}

#[expect(unsafe_code, reason = "takes over the descriptors that the program was started with")]
fn set_up() -> sys::Result<Setup> {
    use std::os::unix::ffi::OsStringExt;
    sys::default_dispositions();
    sys::block_all_signals()?;
    sys::setsid()?;
    sys::set_subreaper()?;
    sys::set_dumpable(false)?;
    sys::set_name(c"bailiwick-keep")?;
    // Whatever else was inherited is the host's: kept open here, its pipes would never end.
    let kept = (0..3).map(|number| sys::duplicate_above(number, 3)).collect::<sys::Result<_>>()?;
    let kept = launcher::isolate(kept)?;
    let [control, temporary, above] = <[OwnedFd; 3]>::try_from(kept).map_err(|_| Errno::BADF)?;
    // 0, 1 and 2 stay occupied for good: nothing that a copy opens may land there, where the child side
    // puts the command's own.
    let null = sys::open_at(sys::AT_FDCWD, c"/dev/null", sys::O_RDWR, 0)?;
    for number in 0..3 {
        // SAFETY: the runtime keeps nothing in these three, and their contents were copied above.
        unsafe { sys::replace_descriptor(null.as_raw_fd(), number, true) }?;
    }
    let mut arguments = std::env::args_os().skip(1).map(OsStringExt::into_vec);
    let path = arguments.next().and_then(|path| CString::new(path).ok());
    let network = arguments.next().and_then(|word| Network::from_argument(&word)).ok_or(Errno::INVAL)?;
    let group = arguments.next().filter(|name| !name.is_empty());
    let group = group.map(CString::new).transpose().map_err(|_| Errno::INVAL)?;
    let group = group.map(|name| Group::new(above, name));
    switches::take(arguments.next());
    Ok(Setup { control, temporary, path, network, group })
}

/// Makes the worker in namespaces of its own, or, where the host does not give them, without; the worker says so.
///
/// The keeper must not hold the control socket: the host would not see the worker's end. So it goes with this.
#[expect(unsafe_code, reason = "copies this process")]
fn fork_worker(
    control: OwnedFd,
    network: Network,
    host: HostObjects,
    group: Option<&Group>,
) -> sys::Result<i32> {
    let kinds = namespaces::wanted(network);
    let mut lacking = None;
    if kinds != 0 {
        let user = sys::user_and_group();
        let (ours, theirs) = sys::socket_pair()?;
        // SAFETY: this process has a single thread. The copy keeps the temporary directory's descriptor too; its
        // launchers close what they do not need.
        match unsafe { sys::clone_child(kinds) } {
            Ok(None) => {
                // First: whatever it starts, for its namespaces too, is then in the group.
                group.into_iter().for_each(Group::enter);
                drop(ours);
                let completed = namespaces::complete(kinds, network, user);
                if sys::Channel::new(theirs).send(verdict(completed), Vec::new()).is_err()
                    || completed.is_err()
                {
                    sys::exit_now(NOT_SET_UP);
                }
                worker::run(control, Isolation { kinds, lacking: None, host })
            }
            Ok(Some(pid)) => {
                drop(theirs);
                match read_verdict(&sys::Channel::new(ours)) {
                    Ok(()) => return Ok(pid),
                    Err(failure) => lacking = Some(failure),
                }
            }
            Err(errno) => lacking = Some(Failure { step: Step::Namespaces, errno }),
        }
    }
    // SAFETY: as above.
    match unsafe { sys::clone_child(0) }? {
        None => {
            group.into_iter().for_each(Group::enter);
            worker::run(control, Isolation::none(host, lacking))
        }
        Some(pid) => Ok(pid),
    }
}

/// What the copy says of its namespaces.
fn verdict(completed: Result<(), Failure>) -> Vec<u8> {
    let (step, errno) = match completed {
        Ok(()) => (0, Errno(0)),
        Err(Failure { step, errno }) => (step as u8, errno),
    };
    std::iter::once(step).chain(errno.0.to_le_bytes()).collect()
}

/// Reads [`verdict`]. A copy that ended without a word could not be completed either.
fn read_verdict(channel: &sys::Channel) -> Result<(), Failure> {
    let unknown = Failure { step: Step::Namespaces, errno: Errno(0) };
    let message = channel.receive(true).map_err(|errno| Failure { errno, ..unknown })?.ok_or(unknown)?;
    let (step, errno) = message.bytes.split_first().ok_or(unknown)?;
    let errno = errno.try_into().map(i32::from_le_bytes).map_err(|_| unknown)?;
    match Step::from_number(*step) {
        Ok(step) => Err(Failure { step, errno: Errno(errno) }),
        Err(_) => Ok(()),
    }
}

/// Waits for the worker, and reaps whatever else comes here meanwhile.
fn wait_for(worker: i32) -> Option<i32> {
    loop {
        match sys::wait(true, false) {
            Ok(Some(child)) if child.pid == worker => return Some(child.status),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}

/// Kills and reaps until there is no child left. A process in uninterruptible sleep keeps it here, and
/// so keeps the host from believing that all is settled.
pub(crate) fn end_everything() {
    let mut walk = false;
    let mut ending = Ending::default();
    loop {
        loop {
            match sys::wait(false, false) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if walk {
            let own = tree::own().unwrap_or(0);
            ending.go_on(&tree::below(own, &Own::Nothing, |_| 0));
        } else {
            // Children that were not waited for keep their numbers. Mostly there is nothing below them.
            tree::own_children().into_iter().for_each(tree::kill);
        }
        walk = true;
        sys::wait_for_child_signal(1);
    }
}

/// Removes the temporary directory, if its name still stands for it.
fn remove(temporary: &OwnedFd, path: Option<&CString>) {
    if temporary::empty(temporary).is_err() {
        return;
    }
    if let Some(path) = path {
        // Only an empty directory can be removed so: should the name stand for another one by now, then
        // nothing is lost with it.
        sys::may_fail(sys::unlink_at(sys::AT_FDCWD, path, sys::AT_REMOVEDIR));
    }
}
