//! The reaper: holds one command at a time, and knows when its whole tree has gone.
//!
//! It inherits the orphans of its command (subreaper), so `wait` without a child left proves that the
//! tree is empty; then it is clean and takes the next command. It lies inside the confinement, like what
//! it starts.

use std::os::fd::OwnedFd;

use bailiwick_wire::{Event, Request, Spawn, Step};

use crate::child::{self, Failure, Prepared, Stack};
use crate::launcher;
use crate::sys::{self, Channel, Errno};
use crate::tree;

/// What differs between sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// It lies in a pid namespace, where numbers are not those of the host. The worker finds these, and says when it has,
    /// for after a wait nobody can.
    pub(crate) is_isolated: bool,
    /// It lies in a mount view, where directories that were opened by the host are reached on the host's mounts.
    pub(crate) has_view: bool,
}

/// Serves commands until the worker closes the channel.
pub(crate) fn serve(socket: OwnedFd, circumstances: Circumstances) -> ! {
    let mut channel = Channel::new(socket);
    let done = sys::set_subreaper()
        .and_then(|()| sys::set_name(c"bailiwick-reap"))
        .and_then(|()| channel.send(launcher::hello(), Vec::new()));
    if done.is_err() {
        sys::exit_now(1);
    }
    let mut stack = Stack::new();
    while let Ok(Some(message)) = channel.receive(true) {
        let served = match Request::decode(&message.bytes) {
            Ok(Request::Spawn(spawn)) => {
                run(&mut channel, circumstances, spawn, message.descriptors, &mut stack)
            }
            _ => Err(Errno::PROTO),
        };
        // Without a worker there is nobody to tell; the keeper ends what is left.
        if served.is_err() {
            sys::exit_now(1);
        }
    }
    sys::exit_now(0)
}

fn run(
    channel: &mut Channel,
    circumstances: Circumstances,
    spawn: Spawn,
    descriptors: Vec<OwnedFd>,
    stack: &mut Stack,
) -> sys::Result<()> {
    let command = spawn.command;
    let started = <[OwnedFd; 4]>::try_from(descriptors)
        .map_err(|_| Failure { step: Step::Message, errno: Errno::PROTO })
        .and_then(|mut descriptors| {
            if circumstances.has_view {
                let [streams @ .., directory] = &mut descriptors;
                *directory = reopen(directory, &spawn.directory)
                    .map_err(|errno| Failure { step: Step::WorkingDirectory, errno })?;
                for stream in streams {
                    reopen_null(stream).map_err(|errno| Failure { step: Step::Descriptors, errno })?;
                }
            }
            let prepared = Prepared::new(spawn).map_err(|errno| Failure { step: Step::Message, errno })?;
            child::start(&prepared, &descriptors, stack)
        });
    let (pid, pidfd) = match started {
        Ok(started) => started,
        Err(Failure { step, errno }) => {
            return say(channel, &Event::NotStarted { command, step, errno: errno.0 }, Vec::new());
        }
    };
    // Not reaped yet, so the number is still this process's, even if it has ended.
    let start_time = tree::stat(pid).map_or(0, |stat| stat.start_time);
    let event = Event::Started { command, pid: u32::try_from(pid).unwrap_or(0), start_time };
    say(channel, &event, vec![pidfd])?;
    // In a read scope `/proc` cannot be read from here, either.
    let is_unseen = start_time == 0;
    if (circumstances.is_isolated || is_unseen) && channel.receive(true)?.is_none() {
        return Err(Errno::PIPE);
    }

    let mut descendants: u32 = 0;
    let mut exited = false;
    loop {
        match sys::wait(true, false) {
            // It stopped because it made this process its tracer, which has no use for that.
            Ok(Some(child)) if child.stopped() => sys::may_fail(sys::detach(child.pid)),
            Ok(Some(child)) if child.pid == pid && !exited => {
                exited = true;
                // The commonest case by far is a command that leaves nothing: say both at once.
                let rest = loop {
                    match sys::wait(false, false) {
                        Ok(Some(child)) if child.stopped() => sys::may_fail(sys::detach(child.pid)),
                        Ok(Some(_)) => descendants = descendants.saturating_add(1),
                        rest => break rest,
                    }
                };
                let settled = rest == Err(Errno::CHILD) && descendants == 0;
                let event = Event::Exited { command, status: Some(child.status), settled };
                say(channel, &event, Vec::new())?;
                if settled {
                    return Ok(());
                }
            }
            Ok(_) => descendants = descendants.saturating_add(1),
            Err(Errno::CHILD) if exited => {
                return say(channel, &Event::Settled { command, descendants }, Vec::new());
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Opens a directory again on the mounts of the view. From one on the host's mounts a command would reach all that lies
/// beside it there.
///
/// # Errors
/// `ESTALE` where the path names something else in the view.
fn reopen(directory: &OwnedFd, path: &[u8]) -> sys::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    // The filter leaves no call that refuses links on the way; that it is the same directory is compared.
    let flags = sys::O_PATH | sys::O_DIRECTORY | sys::O_NOFOLLOW;
    let found = sys::open_at(sys::AT_FDCWD, &sys::c_path(path)?, flags, 0)?;
    let [given, seen] = [sys::look(directory.as_raw_fd())?, sys::look(found.as_raw_fd())?];
    if (given.device, given.inode) == (seen.device, seen.inode) { Ok(found) } else { Err(Errno::STALE) }
}

/// Replaces the null device by the same one on the mounts of the view: on the host's, its mode and owner could be changed
/// through the descriptor.
fn reopen_null(stream: &mut OwnedFd) -> sys::Result<()> {
    use std::os::fd::AsRawFd as _;
    const CHARACTER_DEVICE: u16 = 0o020_000;
    const TYPE: u16 = 0o170_000;
    const NULL: (u32, u32) = (1, 3);
    let seen = sys::look(stream.as_raw_fd())?;
    if seen.mode & TYPE == CHARACTER_DEVICE && seen.stands_for == NULL {
        *stream = sys::open_at(sys::AT_FDCWD, c"/dev/null", sys::O_RDWR, 0)?;
    }
    Ok(())
}

/// Sends an event and waits until it is sent: a reaper has nothing else to do.
fn say(channel: &mut Channel, event: &Event, descriptors: Vec<OwnedFd>) -> sys::Result<()> {
    use std::os::fd::AsRawFd as _;
    channel.send(event.encode(), descriptors)?;
    while channel.wants_write() {
        sys::poll(&[(channel.as_raw_fd(), true)], -1)?;
        channel.flush()?;
    }
    Ok(())
}
