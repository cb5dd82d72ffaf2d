//! Where else an object is seen: through other mounts, and through the layers of overlay file systems.
//!
//! The kernel decides a write by the directories above the name that was used, one mount after another. So what
//! another name makes reachable is told by *its* chain, and a view is exactly that: the object, or a part of it,
//! with the chain above the other name. Text from the mount table only says where to look; whether the object is
//! really seen there is asked of the file system. A mount that something else covers shows nothing, so it is no view;
//! nor is a mount that takes no writes.

mod beneath;
mod find;
mod overlay;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::Serialize;

use super::ancestors::Walk;
use super::fault::Fault;
use super::mount::{Device, Location};
use super::object::{Key, Node};

pub(crate) use beneath::{Beneath, mounts_beneath};
pub(crate) use find::find_views;
pub(crate) use overlay::Overlays;

/// How an object comes to have another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AliasKind {
    /// The same file system, mounted at another place or in part: a bind mount, a subvolume.
    Mount,
    /// The object lies on an overlay file system, and this is one of the directories that it is made of.
    OverlayLayer,
    /// The object lies in a directory that an overlay file system writes to, and this is the overlay.
    OverlayMerged,
    /// Another name of the same file.
    HardLink,
}

impl AliasKind {
    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::OverlayLayer => "overlay-layer",
            Self::OverlayMerged => "overlay-merged",
            Self::HardLink => "hard-link",
        }
    }
}

/// Another place at which an object, or a part of it, is seen.
#[derive(Debug)]
pub(crate) struct View {
    /// The name of the place.
    pub(crate) name: PathBuf,
    pub(crate) kind: AliasKind,
    /// The mount through which it is seen, as in the first column of mountinfo.
    pub(crate) mount: u64,
    /// What is seen there; `None` where the object has not been made yet.
    pub(crate) key: Option<Key>,
    /// The directories above it, nearest first.
    pub(crate) above: Vec<Node>,
    /// Holds the place, so that its chain can be walked again after somebody moved it.
    held: Held,
}

#[derive(Debug)]
enum Held {
    Directory(OwnedFd),
    /// A file that is a mount point by itself.
    File(OwnedFd),
    /// The directory that holds the object.
    Holder(OwnedFd),
}

impl View {
    /// The directories above it, walked again. Neither a mount nor a directory above one shows in the mount table
    /// when it is moved.
    pub(crate) fn above_now(&self, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
        self.held.above(&self.name, walk)
    }
}

impl Held {
    fn above(&self, name: &std::path::Path, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
        match self {
            Self::Directory(fd) => {
                let mut chain = walk.chain(fd, name)?;
                chain.remove(0);
                Ok(chain)
            }
            Self::File(fd) => walk.chain_of_place(fd),
            Self::Holder(fd) => walk.chain(fd, name),
        }
    }
}

/// A place at which the object would be seen, and which this user cannot open to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blind {
    pub(crate) name: PathBuf,
    pub(crate) kind: AliasKind,
    pub(crate) mount: u64,
}

/// A layer of an overlay file system of which it cannot be told where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unresolved {
    /// The overlay.
    pub(crate) device: Device,
    /// The layer, as whoever mounted it wrote it.
    pub(crate) layer: PathBuf,
    pub(crate) why: &'static str,
}

/// Everything that is known about where one object is.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// The object's own places within file systems: its own, and those of what is mounted inside it.
    pub(crate) locations: Vec<Location>,
    pub(crate) views: Vec<View>,
    pub(crate) blind: Vec<Blind>,
    /// Layers of the overlay on which the object lies.
    pub(crate) layers_unresolved: Vec<Unresolved>,
    /// Overlays of which it is not known where they write to: it may be where the object lies.
    pub(crate) uppers_unresolved: Vec<Unresolved>,
    /// The mount that holds the object is not in the mount table: this process lives below a plain `chroot`.
    pub(crate) unlisted: bool,
}
