//! The words of a refusal.

use super::forbidden::Forbidden;
use super::protected::{ProtectedKind, ProtectedObject, ProtectedSet};
use super::verdict::Relation;
use crate::error::{Error, ErrorKind, Quoted};
use crate::identity::{Fault, Key, Look, PinnedDir, Role, user};

/// A root and a protected object that are the same, or in one another.
pub(super) struct Overlap<'a> {
    pub(super) index: usize,
    pub(super) root: &'a PinnedDir,
    pub(super) object: &'a ProtectedObject,
    pub(super) relation: Relation,
    /// The object in which they meet.
    pub(super) met: Key,
    /// How many directories one lies above the other.
    pub(super) levels: usize,
}

impl Overlap<'_> {
    pub(super) fn error(&self) -> Error {
        let (root, object) = (self.root, self.object);
        let words = object.kind().words();
        let how = match self.relation {
            Relation::Same => format!("it is {words}"),
            Relation::Inside => format!("it lies inside {words}"),
            Relation::Around => format!("{words} lies inside it"),
            Relation::Alias => format!("{words} is reached through it under another name"),
        };
        let message = format!(
            "write root {} {} overlaps {}: {how}",
            self.index,
            Quoted::new(root.given()),
            Quoted::new(object.given()),
        );
        Error::new(ErrorKind::RootOverlap, message)
            .path("root", root.given())
            .number("root_index", self.index)
            .path("canonical", root.canonical())
            .path("protected", object.canonical())
            .path("protected_given", object.given())
            .text("protected_kind", object.kind().name())
            .text("relation", self.relation.name())
            .text("device", self.met.device())
            .text("inode", self.met.inode().to_string())
            .text("fact", self.fact())
            .hint(self.remedy())
    }

    fn fact(&self) -> String {
        let (device, inode) = (self.met.device(), self.met.inode());
        let (root, protected) = (Quoted::new(self.root.canonical()), Quoted::new(self.object.canonical()));
        match self.relation {
            Relation::Around => {
                format!(
                    "{root} is inode {inode} on device {device}, and so is the directory {} above {protected}",
                    self.levels
                )
            }
            _ if self.levels == 0 => {
                format!("{root} and {protected} are both inode {inode} on device {device}")
            }
            _ => format!(
                "{protected} is inode {inode} on device {device}, and so is the directory {} above {root}",
                self.levels
            ),
        }
    }

    /// A way out that works: never a directory inside the protected one.
    fn remedy(&self) -> String {
        let (root, protected) = (Quoted::new(self.root.given()), Quoted::new(self.object.given()));
        match (self.object.kind(), self.relation) {
            (ProtectedKind::Store | ProtectedKind::RuntimeHome, Relation::Around) => {
                format!(
                    "keep {} outside of {root}, or grant directories below {root} that do not hold {protected}",
                    self.object.kind().words()
                )
            }
            (ProtectedKind::HostExecutable, _) => format!(
                "grant directories below {root} that do not hold {protected}, or start this program from an executable outside of {root}"
            ),
            (ProtectedKind::Caller, Relation::Around) => {
                format!(
                    "grant directories below {root} that do not hold {protected}, or no longer protect {protected}"
                )
            }
            (ProtectedKind::Caller, _) => {
                format!("grant a directory outside of {protected}, or no longer protect {protected}")
            }
            _ => format!("grant a directory outside of {protected}"),
        }
    }
}

/// A directory that is never a write root.
pub(super) fn forbidden(
    index: usize,
    root: &PinnedDir,
    reason: Forbidden,
    protected: &ProtectedSet,
) -> Error {
    let error = Role::Root(index)
        .error(ErrorKind::RootForbidden, &reason.predicate(), root.given())
        .path("canonical", root.canonical())
        .text("device", root.id().key().device())
        .text("inode", root.id().inode.to_string())
        .hint(reason.hint());
    match protected.objects().first() {
        // `/` is around everything; that is worth saying beside the plainer reason.
        Some(object) if reason == Forbidden::Everything => error
            .path("protected", object.canonical())
            .text("protected_kind", object.kind().name())
            .text("relation", Relation::Around.name()),
        _ => error,
    }
}

/// A directory of which it cannot be told whether it is `/` or lies in `/dev`, because those could not be opened.
pub(super) fn unjudged(index: usize, root: &PinnedDir, fault: &Fault) -> Error {
    let error = Role::Root(index)
        .error(
            ErrorKind::RootNotAccessible,
            "cannot be compared with `/`, `/proc`, `/sys` and `/dev`",
            root.given(),
        )
        .path("canonical", root.canonical());
    match fault.cause() {
        Some(cause) => error.text("because", cause.to_string()),
        None => error,
    }
}

/// A directory in which this user can do nothing.
pub(super) fn not_accessible(index: usize, root: &PinnedDir, cause: crate::error::SystemCall) -> Error {
    let user = user();
    let (predicate, hint) = match cause.errno() {
        rustix::io::Errno::ROFS => {
            ("lies on a file system that is mounted read-only", "mount it for writing, or leave the root out")
        }
        _ => (
            "cannot be entered and written by this user",
            "grant directories below it that this user owns, or change owner or mode of this one",
        ),
    };
    let error = Role::Root(index)
        .error(ErrorKind::RootNotAccessible, predicate, root.given())
        .path("canonical", root.canonical())
        .number("user", user)
        .hint(hint)
        .source(cause);
    match Look::at(root, root.canonical()) {
        Ok(look) => error.number("owner", look.owner).text("mode", format!("{:04o}", look.mode)),
        Err(_) => error,
    }
}
