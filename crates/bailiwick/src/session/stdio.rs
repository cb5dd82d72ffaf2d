//! Standard streams of a command.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

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
/// file that is open for writing is written, and a terminal can be controlled.
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

impl Stream {
    pub(super) fn new(kind: Kind, direction: Direction, null: &OwnedFd) -> Result<Self, Error> {
        match kind {
            Kind::Descriptor(theirs) => Ok(Self { theirs, ours: None }),
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
