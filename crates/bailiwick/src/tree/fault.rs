//! The errors of this room. Each names the tree, the path in it, the component, and the fact that decided.

use std::fmt;
use std::path::Path;

use rustix::io::Errno;

use super::facts::{Facts, Kind};
use crate::error::{Error, ErrorKind, Quoted, SystemCall};

/// What an error is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    /// The pinned directory, by its name when it was opened.
    pub(super) tree: &'a Path,
    /// What was asked for, relative to the tree.
    pub(super) path: &'a Path,
    /// How far it was followed: a beginning of `path`, and the whole of it in the end.
    pub(super) component: &'a Path,
}

impl<'a> At<'a> {
    /// An entry as a whole.
    pub(super) fn entry(tree: &'a Path, path: &'a Path) -> Self {
        Self { tree, path, component: path }
    }

    fn error(self, kind: ErrorKind, what: impl fmt::Display) -> Error {
        let tree = Quoted::new(self.tree);
        let message = if self.component.as_os_str().is_empty() {
            format!("{what}: {tree}")
        } else {
            format!("{what}: {} in {tree}", Quoted::new(self.component))
        };
        Error::new(kind, message)
            .path("tree", self.tree)
            .path("path", self.path)
            .path("component", self.component)
    }

    /// A path that means nothing below a directory.
    pub(super) fn invalid(self, fact: &'static str, what: &str) -> Error {
        self.error(ErrorKind::TreePathInvalid, what)
            .text("fact", fact)
            .hint("give the path of the entry relative to the tree, without `..` in it")
    }

    /// Something is there that is never read or entered.
    pub(super) fn refused(self, found: Kind) -> Error {
        let (fact, hint) = match found {
            Kind::SymbolicLink => (
                "symbolic_link",
                "no link is followed: name the file itself if it lies in the tree, or leave the entry out",
            ),
            Kind::File => ("not_a_directory", "correct the path: a file has nothing below it"),
            Kind::Directory => ("not_a_file", "list the directory, or name a file in it"),
            Kind::Fifo | Kind::Socket | Kind::CharacterDevice | Kind::BlockDevice | Kind::Unknown => {
                ("special_file", "leave the entry out: only regular files have content to read")
            }
        };
        let what = match found {
            Kind::SymbolicLink => "a symbolic link is not followed".to_owned(),
            Kind::File => "a file is not entered".to_owned(),
            Kind::Unknown => "what is of an unknown type is not opened".to_owned(),
            kind => format!("{kind} is not opened as a file"),
        };
        self.error(ErrorKind::TreeRefused, what)
            .text("fact", fact)
            .text("found", found.to_string())
            .hint(hint)
    }

    /// Another mount begins there.
    pub(super) fn mount_point(self) -> Error {
        self.error(ErrorKind::TreeRefused, "a mount point is not crossed")
            .text("fact", "mount_point")
            .hint("unmount it, or pin the directory that is mounted there and read it by itself")
    }

    /// One of the objects that the caller protects.
    pub(super) fn protected(self, facts: &Facts) -> Error {
        self.error(ErrorKind::TreeRefused, "a protected object is not touched under another name")
            .text("fact", "protected")
            .text("found", facts.id.to_string())
            .number("links", facts.links)
            .hint("remove this name of it, and find out who made it: no command of a session can")
    }

    /// Something was changed by somebody else meanwhile.
    pub(super) fn changed(self, fact: &'static str) -> Error {
        let what = match fact {
            "replaced" => "another object took its place while it was looked at",
            "removed" => "it was removed while it was looked at",
            "grew" => "it grew while it was read",
            "shrank" => "it gave fewer bytes than its size, or shrank while it was read",
            "moved" => "the tree is no longer at its path, or something else is",
            _ => "it was changed while it was read",
        };
        self.error(ErrorKind::TreeChanged, what).text("fact", fact).hint(
            "wait until nothing writes there, such as after the session has been closed, and begin again",
        )
    }

    /// A limit of the call.
    pub(super) fn limit<N>(self, limit: &'static str, value: N) -> Error
    where
        N: TryInto<i64> + fmt::Display + Copy,
    {
        self.error(ErrorKind::TreeLimit, format!("the limit on {limit} is reached ({value})"))
            .text("limit", limit)
            .number("limit_value", value)
            .hint(format!("raise `{limit}` in the limits of the call, or leave the entry out"))
    }

    /// Nothing is there.
    pub(super) fn not_found(self, cause: SystemCall) -> Error {
        self.error(ErrorKind::TreeNotFound, "nothing is there")
            .hint("correct the path, or see whether the command that was to make it has run")
            .source(cause)
    }

    /// A call failed for a reason that says nothing about what is there.
    pub(super) fn call(self, call: &'static str, errno: Errno) -> Error {
        let cause = SystemCall::new(call, self.tree.join(self.component), errno);
        match errno {
            Errno::NAMETOOLONG => self
                .error(ErrorKind::TreePathInvalid, "a name is longer than the file system takes")
                .text("fact", "too_long")
                .hint("correct the path")
                .source(cause),
            Errno::NOSYS => self.unsupported("openat2 and statx", "Linux 5.8").source(cause),
            Errno::MFILE | Errno::NFILE => self
                .error(ErrorKind::TreeNotAccessible, "this process has no descriptors left")
                .hint("raise the limit on open files (`RLIMIT_NOFILE`), or lower `depth` in the limits of the call")
                .source(cause),
            Errno::AGAIN => self
                .error(ErrorKind::TreeNotAccessible, "a process holds it by a lease, or renames it")
                .retry(true)
                .hint("try again once the commands that use it have ended")
                .source(cause),
            _ => self
                .error(ErrorKind::TreeNotAccessible, "the kernel does not let this user use it")
                .hint("let this user read it, and enter the directories above it")
                .source(cause),
        }
    }

    /// What was refused when it was visited is asked for all the same.
    pub(super) fn refused_before(self, error: &Error) -> Error {
        let fact = error.field("fact").cloned();
        let again = self
            .error(error.kind(), "what was refused when it was visited is not read")
            .hint("see what `found` of the visit says");
        match fact {
            Some(fact) => again.with("fact", fact),
            None => again,
        }
    }

    /// Entries are left in a tree that was to be removed.
    pub(super) fn not_removed(self, count: u64, first: Error) -> Error {
        let what =
            if count == 1 { "one entry is left".to_owned() } else { format!("{count} entries are left") };
        self.error(ErrorKind::TreeNotRemoved, what)
            .hint("see `left` and `reasons`: unmount what is mounted there, let this user write there, and remove again")
            .source(first)
    }

    /// The writer that the caller gave did not take the bytes.
    pub(super) fn write(self, error: std::io::Error) -> Error {
        self.error(ErrorKind::Io, "what was read cannot be written to where the caller wants it")
            .hint("throw away what was written, and see the cause")
            .source(error)
    }

    /// This host lacks what nothing can be read without.
    pub(super) fn unsupported(self, what: &'static str, since: &'static str) -> Error {
        self.error(ErrorKind::PlatformUnsupported, format!("nothing can be read where {what} is missing ({since})"))
            .text("needs", what)
            .text("since", since)
            .hint("run on that release or a newer one; in a container, let its filter of system calls permit the call")
    }
}
