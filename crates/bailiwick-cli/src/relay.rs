//! Passing on what the command writes: pipes on its side, this program's own streams on ours.
//!
//! The command never gets a descriptor of this program, so it cannot control a terminal, truncate a file or write
//! where the caller's file begins. And since `/dev/stdout` is a pipe for it, opening that works even where the file
//! behind our standard output could not be opened anew.
//!
//! One thread for each pipe: a reader that is slow holds up the command, as it would without us, but neither
//! signals nor the time limit.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread;

use bailiwick::{Ran, Stdio};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::oneshot;

use crate::failure::{Code, Failure};
use crate::render::write_all;

/// What a pipe of Linux holds unless told otherwise, in bytes.
const CHUNK: usize = 64 * 1024;

/// A stream of this program.
#[derive(Debug, Clone, Copy)]
enum Ours {
    Stdout,
    Stderr,
}

impl Ours {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    fn write(self, bytes: &[u8]) -> Result<(), Errno> {
        // Not through the buffers of std, which would keep what comes after the last newline.
        match self {
            Self::Stdout => write_all(io::stdout(), bytes),
            Self::Stderr => write_all(io::stderr(), bytes),
        }
    }
}

/// The threads that pass on.
#[derive(Debug)]
pub(crate) struct Relays {
    running: Vec<(Ours, oneshot::Receiver<Result<(), Errno>>)>,
    /// Closing it tells the threads that nobody writes any more.
    stop: OwnedFd,
}

impl Relays {
    /// Starts them. The two streams for the command come with it.
    ///
    /// Where our own two lead to the same place, one pipe carries both: so what the command writes to either keeps
    /// its order.
    ///
    /// # Errors
    /// No pipe or no thread can be had.
    pub(crate) fn start() -> Result<(Self, Stdio, Stdio), Failure> {
        let failed = |errno: Errno| {
            Failure::new(Code::Host, "cannot make a pipe for the output of the command")
                .cause(io::Error::from(errno))
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed);
        let (stopped, stop) = pipe()?;
        let mut running = Vec::new();
        let mut relay = |from: OwnedFd, to: Ours| {
            let stopped = stopped.try_clone()?;
            let (sender, done) = oneshot::channel();
            thread::Builder::new().name(to.name().to_owned()).spawn(move || {
                // Whoever waits may have gone: then the program is about to end.
                sender.send(pass_on(&from, &stopped, to)).ok();
            })?;
            running.push((to, done));
            Ok::<(), io::Error>(())
        };
        let no_thread = |error: io::Error| {
            Failure::new(Code::Host, "cannot start a thread for the output of the command").cause(error)
        };
        let (read, stdout) = pipe()?;
        relay(read, Ours::Stdout).map_err(no_thread)?;
        let stderr = if same_place() {
            stdout.try_clone().map_err(no_thread)?
        } else {
            let (read, stderr) = pipe()?;
            relay(read, Ours::Stderr).map_err(no_thread)?;
            stderr
        };
        Ok((Self { running, stop }, Stdio::from(stdout), Stdio::from(stderr)))
    }

    /// Waits until everything that was written has been passed on. To be called when the session has ended, so that
    /// no writer is left.
    ///
    /// # Errors
    /// A stream could not be written, so that output was lost. That its reader had gone away is no error: the
    /// command was told in the usual way, by SIGPIPE.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        drop(self.stop);
        let mut first = Ok(());
        for (stream, done) in self.running {
            match done.await {
                Ok(Ok(()) | Err(Errno::PIPE)) => {}
                Ok(Err(errno)) => {
                    first = first.and(Err(lost(stream).cause(io::Error::from(errno))));
                }
                Err(_) => {
                    first = first.and(Err(lost(stream).cause("the thread that passed it on has ended")))
                }
            }
        }
        first
    }
}

fn lost(stream: Ours) -> Failure {
    let name = stream.name();
    Failure::new(Code::Relay, format!("what the command wrote to its {name} could not be passed on in full"))
        .text("stream", name)
        .ran(Ran::Something)
        .hint("see where bailiwick's own output goes; what the command did otherwise is not undone")
}

/// Reads until nobody writes any more, or nobody reads what is passed on. Dropping `from` on return tells the command.
fn pass_on(from: &OwnedFd, stopped: &OwnedFd, to: Ours) -> Result<(), Errno> {
    let mut room = vec![0; CHUNK];
    loop {
        let mut ready = [PollFd::new(from, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut ready, None))?;
        let [pipe, stop] = &ready;
        if pipe.revents().is_empty() {
            if stop.revents().is_empty() {
                continue;
            }
            // The session has ended and the pipe is empty. Should some process that never belonged to the session
            // have been given its end, then that is nothing to wait for.
            return Ok(());
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(from, &mut room))? {
            0 => return Ok(()),
            length => to.write(room.get(..length).unwrap_or_default())?,
        }
    }
}

/// Whether our standard output and error are one object. A terminal that was opened twice counts, and so does a
/// file: written through two pipes, its lines could change places.
fn same_place() -> bool {
    let place = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream).ok().map(|found| (found.st_dev, found.st_ino, found.st_rdev))
    };
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let (one, other) = (place(stdout.as_fd()), place(stderr.as_fd()));
    one.is_some() && one == other
}
