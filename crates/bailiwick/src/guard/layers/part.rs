//! A part of a root: itself, or what is mounted beneath it.

use std::cell::OnceCell;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use super::super::outlook::Alias;
use super::super::verdict::Relation;
use crate::identity::{AliasKind, Birth, Device, Fault, FileHandle, Key, Location, Mount, RealPlace};

/// A root, or what is mounted beneath it.
pub(super) struct Part<'a> {
    pub(super) mount: &'a Mount,
    pub(super) fd: Option<BorrowedFd<'a>>,
    pub(super) name: &'a Path,
    pub(super) location: Location,
    /// What is to be looked for in it, with the object that it belongs to.
    pub(super) handles: Vec<(FileHandle, usize)>,
    pub(super) births: Vec<WantedBirth>,
    /// Whether it is the root itself.
    pub(super) is_root: bool,
    place: OnceCell<Option<RealPlace<'a>>>,
}

/// A directory that is looked for by its birth time.
pub(super) struct WantedBirth {
    pub(super) born: Birth,
    /// The overlay that shows it, and the path there.
    pub(super) overlay: Device,
    pub(super) path: PathBuf,
    pub(super) object: usize,
}

impl<'a> Part<'a> {
    pub(super) fn new(
        mount: &'a Mount,
        fd: Option<BorrowedFd<'a>>,
        name: &'a Path,
        location: Location,
    ) -> Self {
        let place = OnceCell::new();
        Self { mount, fd, name, location, handles: Vec::new(), births: Vec::new(), is_root: false, place }
    }

    /// What can be compared of it; `None` where it cannot be opened, or lies on an overlay.
    pub(super) fn place(&self) -> Result<Option<&RealPlace<'a>>, Fault> {
        if self.place.get().is_none() {
            let place = match self.fd {
                Some(fd) => RealPlace::look(fd, self.name, self.location.clone())?,
                None => None,
            };
            let _same = self.place.set(place);
        }
        Ok(self.place.get().and_then(Option::as_ref))
    }

    /// An alias that is this part.
    pub(super) fn as_alias(&self, kind: AliasKind, met: Key) -> Alias {
        let lies = if self.is_root { Relation::Same } else { Relation::Around };
        Alias { lies, ..self.with_alias(kind, self.name.into(), met) }
    }

    /// An alias that lies in this part.
    pub(super) fn with_alias(&self, kind: AliasKind, name: PathBuf, met: Key) -> Alias {
        let levels = name.strip_prefix(self.name).map_or(0, |rest| rest.components().count());
        let (mount, mount_point) = (self.mount.id, Some(self.mount.point.clone()));
        Alias { kind, name, mount_point, mount, lies: Relation::Around, met, levels }
    }
}
