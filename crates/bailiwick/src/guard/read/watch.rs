//! Whether what commands may read is still apart from everything private, before each command.

use std::path::PathBuf;

use super::{ReadPin, Sight, compare, linked, overlap, private, seen};
use crate::error::{Error, ErrorKind};
use crate::guard::grant::watch_failed;
use crate::guard::links::{Aim, Holdings, OtherName, SearchOutcome, Searched, search};
use crate::guard::outlook::Outlook;
use crate::guard::protected::ProtectedSet;
use crate::guard::verdict::Relation;
use crate::identity::{Fault, Key, MountTable, Pin, PinnedDir, Role, Walk};
use crate::policy::ReadPurpose;

/// What a grant lets commands read beside the write roots, held open; `None` where that is everything.
#[derive(Debug, Default)]
pub(crate) struct Reads(Option<Vec<ReadPin>>);

/// A write root as it is compared here, with its index in the policy.
pub(in crate::guard) type Root<'a> = (usize, &'a PinnedDir);

impl Reads {
    pub(in crate::guard) fn new(pins: Option<Vec<ReadPin>>) -> Self {
        Self(pins)
    }

    /// What may be read; `None` where that is everything.
    pub(crate) fn pins(&self) -> Option<&[ReadPin]> {
        self.0.as_deref()
    }

    fn directories(&self) -> impl Iterator<Item = (&ReadPin, &PinnedDir)> {
        self.0.iter().flatten().filter_map(|pin| Some((pin, pin.directory()?)))
    }

    /// Whether nothing has happened to it that could have given a private object a name in it, as far as one look at
    /// each directory tells. The rest is the grant's to know.
    pub(in crate::guard) fn is_untouched(
        &self,
        outlook: &Outlook,
        protected: &ProtectedSet,
        mounts_move: bool,
    ) -> bool {
        self.0.is_none()
            || (!(mounts_move && has_views(protected, outlook))
                && self.directories().all(|(_, dir)| dir.check_name().is_ok()))
    }

    /// Walks the chains of private objects and of their views again, and looks whether each directory is at its path.
    /// `false` where nothing is seen at a view any more, and only a full comparison tells where it went.
    ///
    /// A directory that is at its path, on the mounts that were there, has the chain that it had. Whether mounts can be
    /// moved under commands comes with the outlook.
    pub(in crate::guard) fn check_quickly(
        &self,
        roots: &[Root<'_>],
        protected: &ProtectedSet,
        (outlook, mounts_move): (&Outlook, bool),
        walk: &mut Walk,
    ) -> Result<bool, Error> {
        if self.0.is_none() {
            return Ok(true);
        }
        for (pin, dir) in self.directories() {
            let Err(fault) = dir.check_name() else { continue };
            if pin.purpose != ReadPurpose::Base {
                return Err(no_longer(pin.role(), dir, fault));
            }
            // An upgrade may replace a directory of the base set; what was granted can be read where it is now.
            self.check_moved(pin, dir, protected, outlook, walk)?;
        }
        for (_, object) in private(protected) {
            if let Some((pin, _)) = self.among(&object.above_now(walk)?) {
                return Err(overlap(pin.role(), &pin.pin, object, Relation::Around, object.canonical()));
            }
        }
        if mounts_move { self.check_views(roots, protected, outlook, walk) } else { Ok(true) }
    }

    fn check_moved(
        &self,
        pin: &ReadPin,
        dir: &PinnedDir,
        protected: &ProtectedSet,
        outlook: &Outlook,
        walk: &mut Walk,
    ) -> Result<(), Error> {
        let chain = match dir.chain(walk) {
            Ok(chain) => chain,
            // Nothing is in a directory that has been removed.
            Err(Fault::Gone | Fault::NotFound { .. }) => return Ok(()),
            Err(fault) => return Err(pin.role().fault(fault, dir.given())),
        };
        let lies_in = |key: Option<Key>| key.is_some_and(|key| chain.iter().any(|node| node.key == key));
        for (number, object) in private(protected) {
            if lies_in(object.id().map(|id| id.key())) {
                return Err(overlap(pin.role(), &pin.pin, object, Relation::Inside, object.canonical()));
            }
            if let Some(view) = outlook.all_views_of(number).find(|view| lies_in(view.key)) {
                return Err(seen(pin.role(), &pin.pin, object, Relation::Inside, view.kind, &view.name));
            }
        }
        Ok(())
    }

    fn check_views(
        &self,
        roots: &[Root<'_>],
        protected: &ProtectedSet,
        outlook: &Outlook,
        walk: &mut Walk,
    ) -> Result<bool, Error> {
        let mut is_complete = true;
        if !has_views(protected, outlook) {
            return Ok(is_complete);
        }
        let table = MountTable::read().map_err(watch_failed)?;
        for (number, object) in private(protected) {
            for view in outlook.all_views_of(number) {
                let above =
                    view.above_now(&table, walk).map_err(|fault| object.role().fault(fault, &view.name))?;
                is_complete &= above.is_some();
                let above: Vec<Key> = above.unwrap_or_default().iter().map(|node| node.key).collect();
                if let Some((pin, _)) = self.among(&above) {
                    return Err(seen(pin.role(), &pin.pin, object, Relation::Around, view.kind, &view.name));
                }
                // Through a mount that takes no write nothing is written, but read.
                if let Some((index, root)) = roots.iter().find(|(_, root)| above.contains(&root.id().key())) {
                    let (role, pin) = as_readable(*index, root)?;
                    return Err(seen(role, &pin, object, Relation::Around, view.kind, &view.name));
                }
            }
        }
        Ok(is_complete)
    }

    /// The directory that is one of these.
    fn among(&self, above: &[Key]) -> Option<(&ReadPin, &PinnedDir)> {
        self.directories().find(|(_, dir)| above.contains(&dir.id().key()))
    }

    /// Compares everything again, but for other names of files.
    pub(in crate::guard) fn check_fully(
        &self,
        roots: &[Root<'_>],
        sight: &Sight<'_>,
        walk: &mut Walk,
    ) -> Result<(), Error> {
        let Some(pins) = &self.0 else { return Ok(()) };
        for pin in pins {
            compare(pin.role(), &pin.pin, sight, walk)?;
        }
        first(check_roots(roots, sight, walk))
    }

    /// Refuses when a private file has another name in it.
    pub(in crate::guard) fn check_links(
        &self,
        outlook: &Outlook,
        protected: &ProtectedSet,
        holdings: &mut Holdings,
        searched: &mut Searched,
    ) -> Result<(), Error> {
        self.0
            .as_ref()
            .map_or(Ok(()), |pins| first(check_links(pins, outlook, protected, holdings, searched)))
    }
}

fn has_views(protected: &ProtectedSet, outlook: &Outlook) -> bool {
    private(protected).any(|(number, _)| outlook.all_views_of(number).next().is_some())
}

fn first(refusals: Vec<(usize, Error)>) -> Result<(), Error> {
    refusals.into_iter().next().map_or(Ok(()), |(_, refusal)| Err(refusal))
}

/// A write root as something to read.
fn as_readable(index: usize, root: &PinnedDir) -> Result<(Role, Pin), Error> {
    let role = Role::Read(ReadPurpose::WriteRoot, index);
    match root.duplicate() {
        Ok(root) => Ok((role, Pin::Directory(root))),
        Err(fault) => Err(role.fault(fault, root.given())),
    }
}

/// Compares write roots as what commands read: through mounts that take no write, too.
pub(in crate::guard) fn check_roots(
    roots: &[Root<'_>],
    sight: &Sight<'_>,
    walk: &mut Walk,
) -> Vec<(usize, Error)> {
    let check = |index: usize, root: &PinnedDir, walk: &mut Walk| {
        let (role, pin) = as_readable(index, root)?;
        compare(role, &pin, sight, walk)
    };
    roots
        .iter()
        .filter_map(|(index, root)| check(*index, root, walk).err().map(|error| (*index, error)))
        .collect()
}

/// Searches what may be read for other names of private files: each refusal with the position of what it is about.
pub(super) fn check_links(
    pins: &[ReadPin],
    outlook: &Outlook,
    protected: &ProtectedSet,
    holdings: &mut Holdings,
    searched: &mut Searched,
) -> Vec<(usize, Error)> {
    let dirs: Vec<(usize, &PinnedDir)> =
        pins.iter().enumerate().filter_map(|(position, pin)| Some((position, pin.directory()?))).collect();
    let roles: Vec<Role> = pins.iter().map(ReadPin::role).collect();
    let SearchOutcome { names, stopped: mut refusals } =
        search(&dirs, outlook, protected, holdings, searched, Aim::Read(&roles));
    let mut files: Vec<(usize, PathBuf, Vec<OtherName>)> = Vec::new();
    for (position, name) in names {
        let same = files.iter_mut().find(|(at, file, _)| *at == position && *file == name.target.path);
        match same {
            Some((_, _, names)) => names.push(name),
            None => files.push((position, name.target.path.clone(), vec![name])),
        }
    }
    refusals.extend(files.iter().filter_map(|(position, _, names)| {
        let pin = pins.get(*position)?;
        let object = protected.objects().get(names.first()?.target.object)?;
        Some((*position, linked(pin.role(), &pin.pin, object, names)))
    }));
    refusals
}

fn no_longer(role: Role, dir: &PinnedDir, fault: Fault) -> Error {
    let hint =
        "put the directory back at its path, or replace the write roots, which grants what may be read again";
    match fault {
        Fault::Gone => role
            .error(ErrorKind::ReadChanged, "is no longer at its path", dir.given())
            .text("expected", dir.id().to_string())
            .hint(hint),
        Fault::Changed { found, .. } => role
            .error(ErrorKind::ReadChanged, "names another object than the one that was granted", dir.given())
            .text("expected", dir.id().to_string())
            .text("found", found.map_or_else(|| "nothing".into(), |id| id.to_string()))
            .hint(hint),
        fault => role.fault(fault, dir.given()),
    }
}
