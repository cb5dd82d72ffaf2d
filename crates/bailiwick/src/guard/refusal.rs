//! The words of a refusal.

use std::path::Path;

use super::forbidden::Forbidden;
use super::layers::Finding;
use super::links::{OtherName, Stopped};
use super::outlook::{Alias, Doubt};
use super::protected::{ProtectedKind, ProtectedObject, ProtectedSet};
use super::verdict::Relation;
use crate::error::{Error, ErrorKind, Field, Quoted};
use crate::identity::{AliasKind, Fault, InventoryFault, Key, Look, PinnedDir, Role, ScanStop, user};

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
            // Told by `alias` and `linked`, which know the other name.
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
            (ProtectedKind::Addon, _) => format!(
                "grant directories below {root} that do not hold {protected}, or install the package outside of {root}"
            ),
            (ProtectedKind::Caller | ProtectedKind::Database, Relation::Around) => {
                format!(
                    "grant directories below {root} that do not hold {protected}, or no longer protect {protected}"
                )
            }
            (ProtectedKind::Caller | ProtectedKind::Database, _) => {
                format!("grant a directory outside of {protected}, or no longer protect {protected}")
            }
            _ => format!("grant a directory outside of {protected}"),
        }
    }
}

/// What every refusal says that is about a root and a protected object.
fn both(kind: ErrorKind, message: String, index: usize, root: &PinnedDir, object: &ProtectedObject) -> Error {
    Error::new(kind, message)
        .path("root", root.given())
        .number("root_index", index)
        .path("canonical", root.canonical())
        .path("protected", object.canonical())
        .path("protected_given", object.given())
        .text("protected_kind", object.kind().name())
}

/// A root that reaches a protected object, or a part of it, where it is seen a second time.
pub(super) fn alias(index: usize, root: &PinnedDir, object: &ProtectedObject, alias: &Alias) -> Error {
    let (given, protected) = (Quoted::new(root.given()), Quoted::new(object.given()));
    let (words, name) = (object.kind().words(), Quoted::new(&alias.name));
    let how = match (alias.kind, alias.lies) {
        (AliasKind::Mount, _) => format!("{words} is mounted at {name} too"),
        (AliasKind::OverlayLayer, _) => format!("the overlay that holds {words} is made of {name}"),
        (AliasKind::OverlayMerged, _) => format!("what is written at {name} is written where {words} lies"),
        (AliasKind::HardLink, _) => format!("{name} is another name of a file in it"),
    };
    let lies = match alias.lies {
        Relation::Same => "the root is that directory",
        Relation::Inside => "the root lies inside it",
        Relation::Around | Relation::Alias => "the root holds it",
    };
    let error = both(
        ErrorKind::RootOverlap,
        format!("write root {index} {given} overlaps {protected}: {how}, and {lies}"),
        index,
        root,
        object,
    )
    .text("relation", Relation::Alias.name())
    .text("alias", alias.kind.name())
    .text("lies", alias.lies.name())
    .path("other_name", &alias.name)
    .number("mount", i64::try_from(alias.mount).unwrap_or(i64::MAX))
    .text("device", alias.met.device())
    .text("inode", alias.met.inode().to_string())
    .text(
        "fact",
        format!(
            "through mount {}, {} and {name} meet in inode {} on device {}",
            alias.mount,
            Quoted::new(root.canonical()),
            alias.met.inode(),
            alias.met.device()
        ),
    );
    let error = match &alias.mount_point {
        Some(point) => error.path("mount_point", point),
        None => error,
    };
    error.hint(alias_remedy(root, object, alias))
}

fn alias_remedy(root: &PinnedDir, object: &ProtectedObject, alias: &Alias) -> String {
    let (given, name) = (Quoted::new(root.given()), Quoted::new(&alias.name));
    let words = object.kind().words();
    let elsewhere = match alias.lies {
        Relation::Around => format!("grant directories below {given} that do not hold {name}"),
        _ => format!("grant a directory outside of {name}"),
    };
    match (alias.kind, &alias.mount_point) {
        (AliasKind::Mount, Some(point))
            if point != Path::new("/") && !object.canonical().starts_with(point) =>
        {
            format!("{elsewhere}, or unmount {}", Quoted::new(point))
        }
        (AliasKind::OverlayLayer, _) => {
            format!("{elsewhere}, or keep {words} on a file system that is no overlay")
        }
        _ => elsewhere,
    }
}

/// A root that holds other names of protected files.
pub(super) fn linked(index: usize, root: &PinnedDir, object: &ProtectedObject, names: &[OtherName]) -> Error {
    const SHOWN: usize = 3;
    let Some(first) = names.first() else {
        return both(ErrorKind::Internal, String::new(), index, root, object);
    };
    let mut listed: Vec<String> =
        names.iter().take(SHOWN).map(|name| Quoted::new(&name.name).to_string()).collect();
    if names.len() > SHOWN {
        listed.push(format!("{} more", names.len() - SHOWN));
    }
    let (listed, file) = (listed.join(", "), Quoted::new(&first.target.path));
    both(
        ErrorKind::RootOverlap,
        format!(
            "write root {index} {} overlaps {}: it holds another name of {file}, which is {}: {listed}",
            Quoted::new(root.given()),
            Quoted::new(object.given()),
            if first.target.path == object.canonical() {
                object.kind().words().to_owned()
            } else {
                format!("in {}", object.kind().words())
            }
        ),
        index,
        root,
        object,
    )
    .text("relation", Relation::Alias.name())
    .text("alias", AliasKind::HardLink.name())
    .path("other_name", &first.name)
    .with("other_names", Field::List(names.iter().map(|name| Field::Path(name.name.clone())).collect()))
    .path("file", &first.target.path)
    .number("links", first.target.links)
    .text("device", first.key.device())
    .text("inode", first.key.inode().to_string())
    .text(
        "fact",
        format!("{file} and {} are both inode {} on device {}", Quoted::new(&first.name), first.key.inode(), first.key.device()),
    )
    .hint(format!(
        "remove the other names in the root, or give {file} an inode of its own (copy it, and move the copy to its name)"
    ))
}

impl Doubt {
    /// Why, in plain words.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Blind { name, kind } => format!(
                "by the mount table it is seen at {} too ({}), where this user cannot look",
                Quoted::new(name),
                kind.name()
            ),
            Self::Layer { layer, why, device, undecided, .. } => format!(
                "the overlay file system {device} is made of {}, and {why}; {undecided}",
                if layer.as_os_str().is_empty() { "unknown directories".into() } else { Quoted::new(layer).to_string() }
            ),
            Self::Unreliable { fs_type } => format!(
                "both lie on one file system of type {fs_type}, where one file may have several names and numbers"
            ),
            Self::Passing { fs_type, holds_root } => format!(
                "{} on a file system of type {fs_type}, which may show directories of this machine under another name",
                if *holds_root { "the root, or something mounted in it, lies" } else { "it lies" }
            ),
            Self::Elsewhere { root, protected } => format!(
                "both lie on file systems whose contents are kept elsewhere ({root} and {protected}), perhaps at the same place"
            ),
            Self::Unlisted => "this process lives below a `chroot` whose mount is not in the mount table, and other                                mounts may show the same file system"
                .into(),
        }
    }

    fn hint(&self, root: &PinnedDir, words: &str) -> String {
        let given = Quoted::new(root.given());
        match self {
            Self::Blind { name, .. } => {
                format!(
                    "unmount {}, or grant directories below {given} that do not hold it",
                    Quoted::new(name)
                )
            }
            Self::Layer { holds_root: true, .. } => {
                "grant a directory that does not lie on that overlay, or mount the overlay with absolute paths".into()
            }
            Self::Layer { .. } => {
                format!("keep {words} on a file system that is no overlay, or mount the overlay with absolute paths")
            }
            Self::Passing { holds_root: true, .. } => {
                "grant a directory on a local file system such as ext4, xfs or btrfs, with nothing else mounted in it"
                    .into()
            }
            Self::Passing { .. } => {
                format!("keep {words} on a local file system such as ext4, xfs or btrfs")
            }
            Self::Unreliable { .. } | Self::Elsewhere { .. } => {
                format!("keep {words}, or the root, on a local file system such as ext4, xfs or btrfs")
            }
            Self::Unlisted => "mount the new root directory on itself before changing into it".into(),
        }
    }
}

/// A root of which it cannot be told whether it reaches a protected object.
pub(super) fn doubt(index: usize, root: &PinnedDir, object: &ProtectedObject, doubt: &Doubt) -> Error {
    let why = doubt.why();
    both(
        ErrorKind::RootUnprovable,
        format!(
            "it cannot be proved that write root {index} {} does not reach {} {}: {why}",
            Quoted::new(root.given()),
            object.kind().words(),
            Quoted::new(object.given()),
        ),
        index,
        root,
        object,
    )
    .text("fact", why)
    .hint(doubt.hint(root, object.kind().words()))
}

/// A root and a protected object that meet, or may meet, in a layer of an overlay that cannot be found by its name.
pub(super) fn layer(index: usize, root: &PinnedDir, object: &ProtectedObject, finding: &Finding) -> Error {
    match finding {
        Finding::Alias(found) => alias(index, root, object, found),
        Finding::Doubt(found) => doubt(index, root, object, found),
    }
}

/// A search for other names that was stopped.
pub(super) fn search_stopped(role: Role, root: &PinnedDir, stop: Stopped) -> Error {
    match stop {
        Stopped::Fault(fault) => role.fault(fault, root.given()),
        Stopped::Scan(stop) => role
            .error(
                ErrorKind::LinkSearchStopped,
                "could not be searched to its end for other names of protected files",
                root.given(),
            )
            .path("canonical", root.canonical())
            .text("reason", stop.to_string())
            .retry(stop.can_retry())
            .hint(stop.hint())
            .source(stop),
        Stopped::Layers(stop) => role
            .error(
                ErrorKind::LinkSearchStopped,
                "could not be compared to the end with the layers of an overlay",
                root.given(),
            )
            .path("canonical", root.canonical())
            .text("reason", stop.to_string())
            .retry(stop.can_retry())
            .hint(layer_hint(&stop))
            .source(stop),
    }
}

fn layer_hint(stop: &ScanStop) -> &'static str {
    match stop {
        ScanStop::Entries { .. } | ScanStop::Deadline { .. } => {
            "name smaller write roots, raise the bounds of the search, or keep the root on another file system than the layers"
        }
        ScanStop::Unreadable { .. } | ScanStop::TooDeep { .. } => {
            "remove the directory, let this user list and enter it, or keep the root on another file system than the layers"
        }
        ScanStop::Changed { .. } | ScanStop::NoDescriptors { .. } | ScanStop::Failed { .. } => stop.hint(),
    }
}

/// A search during which protected files were linked or moved, again and again.
pub(super) fn search_unsettled(role: Role, root: &Path) -> Error {
    role.error(
        ErrorKind::LinkSearchStopped,
        "could not be searched for other names of protected files, which are being linked or moved",
        root,
    )
    .retry(true)
    .hint("try again once they are left alone")
}

/// A protected object of which it cannot be told what is in it.
pub(super) fn holdings(object: &ProtectedObject, fault: InventoryFault) -> Error {
    object
        .role()
        .error(ErrorKind::ProtectedNotAccessible, "cannot be looked through", object.given())
        .text("reason", fault.to_string())
        .retry(fault.can_retry())
        .hint(fault.hint())
        .source(fault)
}

/// A directory in a protected one of which nobody can tell what is in it, until its owner opens it.
pub(super) fn unlisted(object: &ProtectedObject, path: &Path) -> Error {
    object
        .role()
        .error(
            ErrorKind::ProtectedNotAccessible,
            &format!(
                "holds a directory that this user owns and cannot list ({}), so other names of its files cannot be looked for",
                Quoted::new(path)
            ),
            object.given(),
        )
        .path("path", path)
        .hint("let its owner list and enter it (`chmod u+rx`), or move it elsewhere")
}

/// A symbolic link where none belongs.
pub(super) fn link_inside(object: &ProtectedObject, link: &Path) -> Error {
    object
        .role()
        .error(
            ErrorKind::ProtectedInvalid,
            &format!("holds a symbolic link ({}), which nothing of ours puts there", Quoted::new(link)),
            object.given(),
        )
        .path("path", link)
        .hint("remove it if you know where it came from, or choose another directory")
}

/// A directory that is never a write root.
pub(super) fn forbidden(
    index: usize,
    root: &PinnedDir,
    reason: &Forbidden,
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
        Some(object) if *reason == Forbidden::Everything => error
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
