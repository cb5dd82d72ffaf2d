//! Why a path could not be pinned, and what that means for what the path was for.

use std::path::Path;

use rustix::io::Errno;

use super::object::ObjectId;
use crate::error::{Error, ErrorKind, Quoted, Ran, SystemCall};
use crate::policy::ReadPurpose;

/// Why nothing is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Some part of it does not exist.
    Part,
    /// Its last part is a symbolic link to nothing.
    LinkTarget,
    /// Some part before the last is no directory.
    Parent,
}

/// Why a path could not be pinned.
#[derive(Debug)]
pub(crate) enum Fault {
    NotFound {
        missing: Missing,
        cause: SystemCall,
    },
    NotDirectory {
        found: &'static str,
    },
    /// Permission, or anything else that the kernel answers for a path that may well exist.
    Denied(SystemCall),
    /// A link of `/proc` that jumps to an object rather than to a name.
    MagicLink(SystemCall),
    TooLong(SystemCall),
    NoDescriptors(SystemCall),
    /// What was found first and what the name led to a moment later, or to nothing that a path without links names.
    Changed {
        expected: ObjectId,
        found: Option<ObjectId>,
    },
    /// Was there, and is no longer at its name.
    Gone,
    /// A mount covers a directory above it, so that nothing leads to that directory any more.
    Covered,
    /// More directories above it than any path has.
    TooDeep,
    Unsupported {
        what: &'static str,
        since: &'static str,
        cause: Option<SystemCall>,
    },
}

impl Fault {
    /// Sorts the answer of a call whose path has been resolved already, or needs no closer look.
    pub(crate) fn from_call(cause: SystemCall) -> Self {
        match cause.errno() {
            Errno::NOENT => Self::NotFound { missing: Missing::Part, cause },
            Errno::NOTDIR => Self::NotFound { missing: Missing::Parent, cause },
            Errno::NAMETOOLONG => Self::TooLong(cause),
            Errno::MFILE | Errno::NFILE => Self::NoDescriptors(cause),
            Errno::NOSYS => {
                Self::Unsupported { what: "openat2 and statx", since: "Linux 5.8", cause: Some(cause) }
            }
            _ => Self::Denied(cause),
        }
    }
}

impl Fault {
    /// The system call behind it, if there is one.
    pub(crate) fn cause(&self) -> Option<&SystemCall> {
        match self {
            Self::NotFound { cause, .. }
            | Self::Denied(cause)
            | Self::MagicLink(cause)
            | Self::TooLong(cause)
            | Self::NoDescriptors(cause) => Some(cause),
            Self::Unsupported { cause, .. } => cause.as_ref(),
            Self::NotDirectory { .. } | Self::Changed { .. } | Self::Gone | Self::Covered | Self::TooDeep => {
                None
            }
        }
    }
}

/// Which kind of error each fault is.
#[derive(Debug)]
struct Kinds {
    invalid: ErrorKind,
    not_found: ErrorKind,
    not_directory: ErrorKind,
    not_accessible: ErrorKind,
    magic_link: ErrorKind,
    changed: ErrorKind,
    missing: ErrorKind,
    no_descriptors: ErrorKind,
}

/// What a path was for. Decides kind, words and field names of the error.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// Write root with its index in the policy.
    Root(usize),
    /// Path to protect with its index in the policy.
    Protected(usize),
    /// Database to protect with its index in the policy.
    Database(usize),
    /// The executable of the host process.
    HostExecutable,
    /// The library that this code was loaded from.
    Addon,
    /// A runtime home outside of the store.
    RuntimeHome,
    /// The store, or something in it.
    Store,
    /// Working directory of a command.
    WorkingDirectory,
    /// Directory or file that commands may read, with its index in its list.
    Read(ReadPurpose, usize),
    /// A directory below which something is to be read or removed.
    Tree,
}

impl Role {
    fn kinds(self) -> &'static Kinds {
        match self {
            Self::Root(_) => &Kinds {
                invalid: ErrorKind::RootInvalid,
                not_found: ErrorKind::RootNotFound,
                not_directory: ErrorKind::RootNotDirectory,
                not_accessible: ErrorKind::RootNotAccessible,
                magic_link: ErrorKind::RootThroughMagicLink,
                changed: ErrorKind::RootIdentityChanged,
                missing: ErrorKind::RootMissing,
                no_descriptors: ErrorKind::TooManyRoots,
            },
            Self::Protected(_)
            | Self::Database(_)
            | Self::HostExecutable
            | Self::Addon
            | Self::RuntimeHome => &Kinds {
                invalid: ErrorKind::ProtectedInvalid,
                not_found: ErrorKind::ProtectedNotFound,
                not_directory: ErrorKind::ProtectedInvalid,
                not_accessible: ErrorKind::ProtectedNotAccessible,
                magic_link: ErrorKind::ProtectedInvalid,
                changed: ErrorKind::ProtectedNotAccessible,
                missing: ErrorKind::ProtectedNotFound,
                no_descriptors: ErrorKind::Io,
            },
            Self::Store => &Kinds {
                invalid: ErrorKind::StoreInvalid,
                not_found: ErrorKind::StoreNotAccessible,
                not_directory: ErrorKind::StoreInvalid,
                not_accessible: ErrorKind::StoreNotAccessible,
                magic_link: ErrorKind::StoreInvalid,
                changed: ErrorKind::StoreNotAccessible,
                missing: ErrorKind::StoreNotAccessible,
                no_descriptors: ErrorKind::Io,
            },
            Self::Read(..) => &Kinds {
                invalid: ErrorKind::ReadInvalid,
                not_found: ErrorKind::ReadInvalid,
                not_directory: ErrorKind::ReadInvalid,
                not_accessible: ErrorKind::ReadInvalid,
                magic_link: ErrorKind::ReadInvalid,
                changed: ErrorKind::ReadChanged,
                missing: ErrorKind::ReadChanged,
                no_descriptors: ErrorKind::Io,
            },
            Self::WorkingDirectory => &Kinds {
                invalid: ErrorKind::CwdInvalid,
                not_found: ErrorKind::CwdNotFound,
                not_directory: ErrorKind::CwdNotDirectory,
                not_accessible: ErrorKind::CwdNotAccessible,
                magic_link: ErrorKind::CwdInvalid,
                changed: ErrorKind::CwdNotAccessible,
                missing: ErrorKind::CwdNotFound,
                no_descriptors: ErrorKind::Io,
            },
            Self::Tree => &Kinds {
                invalid: ErrorKind::TreePathInvalid,
                not_found: ErrorKind::TreeNotFound,
                not_directory: ErrorKind::TreeRefused,
                not_accessible: ErrorKind::TreeNotAccessible,
                magic_link: ErrorKind::TreeRefused,
                changed: ErrorKind::TreeChanged,
                missing: ErrorKind::TreeNotFound,
                no_descriptors: ErrorKind::TreeNotAccessible,
            },
        }
    }

    /// The path's purpose, to begin a sentence with.
    pub(crate) fn subject(self) -> String {
        match self {
            Self::Root(index) => format!("write root {index}"),
            Self::Protected(index) => format!("path {index} to protect"),
            Self::Database(index) => format!("database {index} to protect"),
            Self::HostExecutable => "the executable of this process".into(),
            Self::Addon => "the library that this code was loaded from".into(),
            Self::RuntimeHome => "the runtime home".into(),
            Self::Store => "the store".into(),
            Self::WorkingDirectory => "the working directory".into(),
            Self::Read(ReadPurpose::Root, index) => format!("directory {index} to read"),
            Self::Read(ReadPurpose::Programs, index) => format!("directory {index} of programs"),
            Self::Read(ReadPurpose::Base, index) => format!("entry {index} of what every tool may read"),
            Self::Read(ReadPurpose::WriteRoot, index) => format!("write root {index}"),
            Self::Tree => "the tree".into(),
        }
    }

    /// An error about this path: the path as the caller wrote it, and its index where it has one.
    pub(crate) fn error(self, kind: ErrorKind, predicate: &str, given: &Path) -> Error {
        let error = Error::new(kind, format!("{} {predicate}: {}", self.subject(), Quoted::new(given)))
            .with_ran(Ran::Nothing);
        match self {
            Self::Root(index) => error.path("root", given).number("root_index", index),
            Self::Protected(index) => error.path("protected", given).number("protected_index", index),
            Self::Database(index) => error.path("protected", given).number("database_index", index),
            Self::HostExecutable | Self::Addon | Self::RuntimeHome => error.path("protected", given),
            Self::Store => error.path("store", given),
            Self::WorkingDirectory => error.path("cwd", given),
            Self::Read(purpose, index) => {
                error.path("directory", given).number("index", index).text("purpose", purpose.name())
            }
            Self::Tree => error.path("tree", given),
        }
    }

    /// Turns a fault into an error about this path.
    pub(crate) fn fault(self, fault: Fault, given: &Path) -> Error {
        let kinds = self.kinds();
        match fault {
            Fault::NotFound { missing, cause } => {
                let (predicate, hint) = match missing {
                    Missing::Part => (
                        "does not exist",
                        "make it first, or correct the path; nothing is made or granted in its place",
                    ),
                    Missing::LinkTarget => (
                        "is a symbolic link to nothing",
                        "make the target of the link, or name the target itself",
                    ),
                    Missing::Parent => (
                        "does not exist, and one of the directories above it is no directory",
                        "correct the path",
                    ),
                };
                self.error(kinds.not_found, predicate, given).hint(hint).source(cause)
            }
            Fault::NotDirectory { found } => self
                .error(kinds.not_directory, &format!("is {found}, not a directory"), given)
                .text("found", found)
                .hint("name the directory that holds it"),
            Fault::Denied(cause) => {
                let (predicate, hint) = match cause.errno() {
                    Errno::ACCESS | Errno::PERM => (
                        "cannot be reached by this user",
                        "let this user enter it and the directories above it, or name another one",
                    ),
                    Errno::LOOP => (
                        "leads round in a circle of symbolic links",
                        "take one of the links away, or name what is meant by its own path",
                    ),
                    _ => ("cannot be reached", "see the kernel's answer, or name another one"),
                };
                self.error(kinds.not_accessible, predicate, given).hint(hint).source(cause)
            }
            Fault::MagicLink(cause) => self
                .error(
                    kinds.magic_link,
                    "passes through a link of the kernel that means something else in every process",
                    given,
                )
                .hint("name the directory by its own path, not through `/proc` or `/dev/fd`")
                .source(cause),
            Fault::TooLong(cause) => self
                .error(
                    kinds.invalid,
                    "has a part, or is as a whole, longer than the file system takes",
                    given,
                )
                .source(cause),
            Fault::NoDescriptors(cause) => self
                .error(
                    kinds.no_descriptors,
                    "cannot be held open: this process has no descriptors left",
                    given,
                )
                .hint("raise the limit on open files (`RLIMIT_NOFILE`) of this process")
                .source(cause),
            Fault::Changed { expected, found } => {
                let error = self
                    .error(
                        kinds.changed,
                        "names another object than a moment ago, or one behind a symbolic link",
                        given,
                    )
                    .text("expected", expected.to_string())
                    .retry(true);
                match found {
                    Some(found) => error.text("found", found.to_string()),
                    None => error.text("found", "nothing that a path without links names"),
                }
                .hint("another process is renaming there; try again once it has stopped")
            }
            Fault::Gone => self.error(kinds.missing, "is no longer there", given),
            Fault::Covered => self
                .error(
                    kinds.not_accessible,
                    "lies below a directory that a mount covers, so what is above it cannot be told",
                    given,
                )
                .hint("unmount what covers it, or use the directory by another path"),
            Fault::TooDeep => self.error(
                kinds.not_accessible,
                "lies more than 4096 directories deep, so what is above it cannot be compared",
                given,
            ),
            Fault::Unsupported { what, since, cause } => {
                let message =
                    format!("cannot check {}: this host lacks {what} ({since})", Quoted::new(given));
                let error = Error::new(ErrorKind::PlatformUnsupported, message)
                    .text("needs", what)
                    .text("since", since)
                    .hint("run on that release or a newer one; in a container, let its filter of system calls permit the call");
                match cause {
                    Some(cause) => error.source(cause),
                    None => error,
                }
            }
        }
    }
}
