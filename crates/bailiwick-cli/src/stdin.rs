//! What the command reads: our own standard input, if that can be shared without giving more than bytes.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;

use bailiwick::Stdio;
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::failure::{Code, Failure};
use crate::render::{Notes, wait_for, write_all};

/// A copy of our input that is to run once the command has started: before that, nothing may be taken from it.
#[derive(Debug)]
pub(crate) struct Copy(Option<OwnedFd>);

impl Copy {
    /// Standard input for the command, by what our own is:
    ///
    /// - a terminal: nothing. It could be controlled through any descriptor.
    /// - a pipe or regular file that is open for reading only: handed on, so that the command reads exactly what it
    ///   wants, and leaves the rest to whoever shares the descriptor with us.
    /// - anything else (a socket, a device, a file that is open for writing too): copied through a pipe, since such
    ///   a descriptor does more than give bytes. What was copied and not read is lost then.
    ///
    /// # Errors
    /// No pipe or no duplicate can be had.
    pub(crate) fn prepare() -> Result<(Stdio, Self), Failure> {
        let failed = |error: io::Error| {
            Failure::new(Code::Host, "cannot prepare the standard input of the command").cause(error)
        };
        let ours = io::stdin();
        if ours.is_terminal() {
            return Ok((Stdio::null(), Self(None)));
        }
        if gives_bytes_only(&ours).map_err(|errno| failed(errno.into()))? {
            let same = ours.as_fd().try_clone_to_owned().map_err(failed)?;
            return Ok((Stdio::from(same), Self(None)));
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        Ok((Stdio::from(read), Self(Some(write))))
    }

    /// Begins to copy, on a thread that ends with the program.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(self, notes: Notes) -> io::Result<()> {
        let Some(to) = self.0 else { return Ok(()) };
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            if let Err(errno) = copy(&to) {
                let error = io::Error::from(errno);
                notes.say(format_args!("standard input cannot be read, so it ends here: {error}"));
            }
        })?;
        Ok(())
    }
}

fn gives_bytes_only(stream: &io::Stdin) -> Result<bool, Errno> {
    let kind = FileType::from_raw_mode(fstat(stream)?.st_mode);
    let reads_only = fcntl_getfl(stream)? & (OFlags::RWMODE | OFlags::PATH) == OFlags::RDONLY;
    Ok(reads_only && matches!(kind, FileType::RegularFile | FileType::Fifo))
}

/// Copies until the end of input, or until nobody reads the copy.
fn copy(to: &OwnedFd) -> Result<(), Errno> {
    let ours = io::stdin();
    let mut room = vec![0; 16 * 1024];
    loop {
        match rustix::io::read(&ours, &mut room) {
            Ok(0) => return Ok(()),
            Ok(length) => match write_all(to, room.get(..length).unwrap_or_default()) {
                Err(Errno::PIPE) => return Ok(()),
                written => written?,
            },
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(&ours, PollFlags::IN)?,
            Err(errno) => return Err(errno),
        }
    }
}
