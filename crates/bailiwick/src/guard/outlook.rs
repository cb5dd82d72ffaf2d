//! Where everything protected is seen, for one mount table.

use std::path::Path;

use super::examine::{Meet, meet};
use super::protected::{ProtectedObject, ProtectedSet};
use super::verdict::Relation;
use crate::error::Error;
use crate::identity::{
    AliasKind, Beneath, Device, Fault, Key, MountTable, Node, Overlays, PinnedDir, Points, Role, View, Views,
    Walk, find_views, promises,
};

/// Where every protected object is seen.
#[derive(Debug)]
pub(super) struct Outlook {
    pub(super) table: MountTable,
    pub(super) points: Points,
    /// For each protected object.
    pub(super) views: Vec<Views>,
    /// The directories above each protected object, nearest first: it may have been moved since it was opened.
    above: Vec<Vec<Key>>,
}

/// How a root reaches a protected object under another name.
#[derive(Debug, Clone)]
pub(super) struct Alias {
    pub(super) kind: AliasKind,
    /// The other name.
    pub(super) name: std::path::PathBuf,
    /// Where the mount through which it is seen is mounted.
    pub(super) mount_point: Option<std::path::PathBuf>,
    pub(super) mount: u64,
    /// How the root lies to the other name.
    pub(super) lies: Relation,
    pub(super) met: Key,
    pub(super) levels: usize,
}

/// Why it cannot be told whether a root reaches a protected object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It would be seen here, where this user cannot look.
    Blind { name: std::path::PathBuf, kind: AliasKind },
    /// A layer of an overlay cannot be found, and what can be told without it does not decide. The protected object
    /// lies on the overlay, or the root does.
    Layer {
        layer: std::path::PathBuf,
        why: &'static str,
        device: String,
        undecided: String,
        holds_root: bool,
    },
    /// The file system shows one object under several names or numbers.
    Unreliable { fs_type: String },
    /// Both lie on file systems whose contents are kept elsewhere, and may be kept at the same place.
    Elsewhere { root: String, protected: String },
    /// One lies on a file system of a type that may show the other under another name.
    Passing { fs_type: String, holds_root: bool },
    /// The mount of one of them is not in the mount table, and others of the same file system are.
    Unlisted,
}

impl Outlook {
    pub(super) fn look(protected: &ProtectedSet, walk: &mut Walk) -> Result<Self, Error> {
        let failed = |fault| Role::Store.fault(fault, Path::new("/proc/thread-self/mountinfo"));
        let table = MountTable::read().map_err(failed)?;
        let mut views = Vec::with_capacity(protected.objects().len());
        let mut above = Vec::with_capacity(protected.objects().len());
        {
            let overlays = Overlays::new(&table).map_err(failed)?;
            for object in protected.objects() {
                let found = find_views(&table, &overlays, object.pin(), walk)
                    .map_err(|fault| object.role().fault(fault, object.given()))?;
                views.push(found);
                above.push(object.above_now(walk)?);
            }
        }
        let points = Points::find(&table, walk).map_err(failed)?;
        Ok(Self { table, points, views, above })
    }

    /// The directories above an object.
    pub(super) fn above(&self, object: usize) -> &[Key] {
        self.above.get(object).map_or(&[], Vec::as_slice)
    }

    /// Every view of an object that a root, with its chain, reaches.
    pub(super) fn aliases<'a>(
        &'a self,
        object: usize,
        chain: &'a [Node],
    ) -> impl Iterator<Item = Alias> + 'a {
        self.views_of(object).iter().filter_map(move |view| {
            let above: Vec<Key> = view.above.iter().map(|node| node.key).collect();
            Some(self.named(view, meet(chain, view.key, &above)?))
        })
    }

    /// Where else an object is seen.
    pub(super) fn views_of(&self, object: usize) -> &[View] {
        self.views.get(object).map_or(&[], |views| &views.views)
    }

    /// A view that a root reaches, with all that there is to say about it.
    pub(super) fn named(&self, view: &View, met: Meet) -> Alias {
        Alias {
            kind: view.kind,
            name: view.name.clone(),
            mount_point: self.table.get(view.mount).map(|mount| mount.point.clone()),
            mount: view.mount,
            lies: met.relation,
            met: met.key,
            levels: met.levels,
        }
    }

    /// Why it cannot be told whether a root, with everything mounted beneath it, reaches an object. Layers that cannot
    /// be found are for [`layers`](super::layers).
    pub(super) fn doubt(
        &self,
        number: usize,
        object: &ProtectedObject,
        root: &PinnedDir,
        beneath: &[Beneath<'_>],
    ) -> Result<Option<Doubt>, Fault> {
        let Some(views) = self.views.get(number) else { return Ok(None) };
        let hidden = views.blind.iter().find(|blind| blind.name.starts_with(root.canonical()));
        if let Some(blind) = hidden {
            return Ok(Some(Doubt::Blind { name: blind.name.clone(), kind: blind.kind }));
        }
        let own = self.table.get(root.id().mount);
        if own.is_none() || views.unlisted {
            let shared = self.table.iter().any(|mount| {
                mount.device == Device::of(root.id()) || object.id().is_some_and(|id| mount.device == Device::of(id))
                    // Their numbers are not those of their objects.
                    || matches!(mount.fs_type.as_str(), "btrfs" | "overlay")
            });
            return Ok(shared.then_some(Doubt::Unlisted));
        }
        let mounts = || {
            let beneath = beneath.iter().map(|beneath| beneath.mount);
            own.into_iter().chain(beneath.filter(|mount| !mount.read_only))
        };
        for location in &views.locations {
            let Some(theirs) = self.table.iter().find(|mount| mount.device == location.device) else {
                continue;
            };
            for mount in mounts() {
                let same = mount.device == theirs.device;
                let (ours, their) = (promises(&mount.fs_type), promises(&theirs.fs_type));
                if same && !ours.is_exact {
                    return Ok(Some(Doubt::Unreliable { fs_type: mount.fs_type.clone() }));
                }
                if !same && (ours.may_be_here || their.may_be_here) {
                    let showing = if ours.may_be_here { mount } else { theirs };
                    return Ok(Some(Doubt::Passing {
                        fs_type: showing.fs_type.clone(),
                        holds_root: ours.may_be_here,
                    }));
                }
                if !same && ours.is_elsewhere && their.is_elsewhere {
                    return Ok(Some(Doubt::Elsewhere {
                        root: mount.fs_type.clone(),
                        protected: theirs.fs_type.clone(),
                    }));
                }
            }
        }
        Ok(None)
    }
}
