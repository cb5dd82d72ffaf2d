//! Where else an object is seen: through other mounts, and through the layers of overlay file systems.
//!
//! The kernel decides a write by the directories above the name that was used, one mount after another. So what
//! another name makes reachable is told by *its* chain, and a view is exactly that: the object, or a part of it,
//! with the chain above the other name. Text from the mount table only says where to look; whether the object is
//! really seen there is asked of the file system. A mount that something else covers shows nothing, so it is no view;
//! nor is a mount that takes no writes.

mod beneath;
mod find;
mod hidden;
mod overlay;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;
use serde::Serialize;

use super::ancestors::Walk;
use super::fault::Fault;
use super::mount::{Device, Location, Mount, MountTable};
use super::object::{Key, Look, Node};
use super::resolve::open_exact;

pub(crate) use beneath::{Beneath, Points, elsewhere};
pub(crate) use find::find_views;
pub(crate) use hidden::{Inside, RealPlace, Sharing, Stack, Step, born_at, open_location};
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
///
/// It holds no descriptor, which would keep the mount busy for its owner.
#[derive(Debug)]
pub(crate) struct View {
    /// The name of the place when it was found.
    pub(crate) name: PathBuf,
    pub(crate) kind: AliasKind,
    /// The mount through which it is seen, as in the first column of mountinfo.
    pub(crate) mount: u64,
    /// What is seen there; `None` where the object has not been made yet.
    pub(crate) key: Option<Key>,
    /// The directories above it, nearest first.
    pub(crate) above: Vec<Node>,
    /// Nothing can be written through the mount; when that changes, the table does.
    pub(crate) is_read_only: bool,
    /// The place below the point of the mount.
    rest: PathBuf,
    /// What was opened to find it: the place itself, or the directory that holds it.
    opened: Key,
    by_holder: bool,
}

impl View {
    /// The directories above it, walked again; `None` where nothing is seen there any more.
    ///
    /// When a directory above a mount point is moved, the mount goes with it, and nothing tells: the table is the
    /// same but for the point.
    pub(crate) fn above_now(&self, table: &MountTable, walk: &mut Walk) -> Result<Option<Vec<Node>>, Fault> {
        let Some(mount) = table.get(self.mount) else { return Ok(None) };
        match Place::open(mount, &self.rest, self.by_holder) {
            Ok(Some(place)) if place.look.id.key() == self.opened => place.above(walk).map(Some),
            Ok(_) => Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(find::failed(&self.name, errno)),
        }
    }
}

/// A place below the point of a mount, opened.
struct Place {
    fd: OwnedFd,
    look: Look,
    /// What was opened.
    path: PathBuf,
    by_holder: bool,
}

impl Place {
    /// Opens it; `None` where nothing is there, or where another mount covers it.
    fn open(mount: &Mount, rest: &Path, by_holder: bool) -> Result<Option<Self>, Errno> {
        let path = match rest.parent() {
            Some(above) if by_holder => find::join(&mount.point, above),
            _ => find::join(&mount.point, rest),
        };
        let fd = match open_exact(&path) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let look = match Look::at(&fd, &path) {
            Ok(look) => look,
            Err(fault) => return Err(fault.cause().map_or(Errno::IO, |cause| cause.errno())),
        };
        Ok((look.id.mount == mount.id).then_some(Self { fd, look, path, by_holder }))
    }

    fn above(&self, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
        if self.look.file_type != FileType::Directory {
            return walk.chain_of_place(&self.fd);
        }
        let mut chain = walk.chain(&self.fd, &self.path)?;
        if !self.by_holder {
            chain.remove(0);
        }
        Ok(chain)
    }
}

/// A place at which the object would be seen, and which this user cannot open to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blind {
    pub(crate) name: PathBuf,
    pub(crate) kind: AliasKind,
    pub(crate) mount: u64,
    /// As for [`View`].
    pub(crate) is_read_only: bool,
}

/// A layer of an overlay file system of which it cannot be told where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unresolved {
    /// The overlay.
    pub(crate) device: Device,
    /// The layer, as whoever mounted it wrote it.
    pub(crate) layer: PathBuf,
    pub(crate) why: &'static str,
    /// It is, or may be, one that the overlay only reads.
    pub(crate) is_lower: bool,
}

impl Unresolved {
    fn into_lower(mut self) -> Self {
        self.is_lower = true;
        self
    }
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
