//! Standard streams of a command.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{FileType, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::{Error, ErrorKind, SystemCall};

/// What a standard stream of a command is connected to.
///
/// Nothing is inherited from this process, whose terminal and files are not the command's.
#[derive(Debug)]
pub struct Stdio(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Piped,
    Descriptor(OwnedFd),
}

impl Stdio {
    /// `/dev/null`: end of file at once when read, and swallows what is written.
    #[must_use]
    pub fn null() -> Self {
        Self(Kind::Null)
    }

    /// A pipe to this process.
    #[must_use]
    pub fn piped() -> Self {
        Self(Kind::Piped)
    }
}

/// # Security
/// A command can do with the descriptor all that its open mode permits, whatever the write roots say: a
/// file that is open for writing is written, a terminal can be controlled, and the mode, owner and times of a file change
/// through a descriptor for reading too. A directory, and a descriptor that only names a path (`O_PATH`), are refused when
/// the command starts: they would lead out of the confinement.
impl From<OwnedFd> for Stdio {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Kind::Descriptor(descriptor))
    }
}

/// As for a descriptor.
impl From<File> for Stdio {
    fn from(file: File) -> Self {
        Self(Kind::Descriptor(file.into()))
    }
}

/// The command's end of a stream, and ours where it is a pipe.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) theirs: OwnedFd,
    pub(super) ours: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// Refuses what is no stream: everything beside a directory could be reached from its descriptor.
fn check(given: &OwnedFd, direction: Direction) -> Result<(), Error> {
    let failed = |call, errno| {
        Error::new(ErrorKind::Io, "cannot look at a descriptor that is to be a standard stream")
            .source(SystemCall::new(call, "", errno))
    };
    let flags = rustix::fs::fcntl_getfl(given).map_err(|errno| failed("fcntl", errno))?;
    let mode = rustix::fs::fstat(given).map_err(|errno| failed("fstat", errno))?.st_mode;
    let found = if FileType::from_raw_mode(mode).is_dir() {
        "directory"
    } else if flags.contains(OFlags::PATH) {
        "path"
    } else {
        return Ok(());
    };
    let stream = if direction == Direction::In { "input" } else { "output" };
    Err(Error::new(
        ErrorKind::CommandInvalid,
        format!(
            "a {found} cannot be the standard {stream} of a command: it would lead out of its confinement"
        ),
    )
    .text("found", found)
    .hint("open a file for reading or writing, or use a pipe"))
}

impl Stream {
    pub(super) fn new(kind: Kind, direction: Direction, null: &OwnedFd) -> Result<Self, Error> {
        match kind {
            Kind::Descriptor(theirs) => {
                check(&theirs, direction)?;
                Ok(Self { theirs, ours: None })
            }
            Kind::Null => {
                let theirs = null.as_fd().try_clone_to_owned().map_err(|error| {
                    Error::new(ErrorKind::Io, "cannot duplicate a descriptor").source(error)
                })?;
                Ok(Self { theirs, ours: None })
            }
            Kind::Piped => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| {
                    Error::new(ErrorKind::Io, "cannot make a pipe for a command")
                        .source(SystemCall::new("pipe2", "", errno))
                })?;
                Ok(match direction {
                    Direction::In => Self { theirs: read, ours: Some(write) },
                    Direction::Out => Self { theirs: write, ours: Some(read) },
                })
            }
        }
    }
}
