//! Looking for the views of an object.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::overlay::{Layer, Overlays};
use super::{AliasKind, Blind, Place, View, Views};
use crate::error::SystemCall;
use crate::identity::ancestors::Walk;
use crate::identity::fault::Fault;
use crate::identity::mount::{Device, Location, Mount, MountTable, Overlap, Spelling, folds_case};
use crate::identity::object::{Key, Look};
use crate::identity::pinned::{Here, Pin};
use crate::identity::resolve::open_exact;

/// Finds every other place at which an object is seen.
///
/// # Errors
/// The kernel's answer where something cannot be told; `Changed` where the object is being moved meanwhile.
///
/// # Security
/// True for the mount table given: whoever keeps the answer watches the table and walks the chains again.
pub(crate) fn find_views(
    table: &MountTable,
    overlays: &Overlays<'_>,
    pin: &Pin,
    walk: &mut Walk,
) -> Result<Views, Fault> {
    let mut search = Search { table, overlays, walk, found: Views::default(), seen: HashSet::new(), pin };
    let Some(here) = pin.here()? else { return Ok(search.found) };
    let Some(location) = table.locate(here.mount, &here.path) else {
        search.found.unlisted = true;
        return Ok(search.found);
    };
    search.found.locations.push(location.clone());
    let mut sought = vec![Sought {
        location,
        key: here.key,
        entry: here.entry.clone(),
        kind: AliasKind::Mount,
        through: Vec::new(),
    }];
    if let Pin::Directory(_) = pin {
        search.submounts(&here, &mut sought)?;
    }
    while let Some(next) = sought.pop() {
        // What is looked for from a place depends on the way there, too.
        if search.seen.insert((next.location.clone(), next.key, next.through.clone())) {
            search.mounts(&next, &here)?;
            search.overlays(&next, &mut sought)?;
        }
    }
    Ok(search.found)
}

/// A place within a file system of which the other names are looked for.
#[derive(Debug, Clone)]
struct Sought {
    location: Location,
    /// What is there, where it is known.
    key: Option<Key>,
    /// The object's name in the directory that holds it: what is held on to then is the directory, because names
    /// of files are given to other files.
    entry: Option<OsString>,
    kind: AliasKind,
    /// Overlays on the way here: what lies on one is not an alias of its own layers' overlay again.
    through: Vec<Device>,
}

struct Search<'a, 't> {
    table: &'t MountTable,
    overlays: &'a Overlays<'t>,
    walk: &'a mut Walk,
    found: Views,
    seen: HashSet<(Location, Option<Key>, Vec<Device>)>,
    pin: &'a Pin,
}

impl Search<'_, '_> {
    /// What is mounted inside a protected directory is protected too.
    fn submounts(&mut self, here: &Here, sought: &mut Vec<Sought>) -> Result<(), Fault> {
        for mount in self.table.iter() {
            let beneath = mount.point != here.path && mount.point.starts_with(&here.path);
            if !beneath || mount.root_removed {
                continue;
            }
            let key = match open_exact(&mount.point) {
                Ok(fd) => {
                    let look = Look::at(&fd, &mount.point)?;
                    if look.id.mount != mount.id {
                        continue;
                    }
                    Some(look.id.key())
                }
                Err(Errno::ACCESS) => None,
                Err(errno) if is_not_there(errno) => continue,
                Err(errno) => return Err(failed(&mount.point, errno)),
            };
            let location = Location { device: mount.device, path: mount.root.clone() };
            self.found.locations.push(location.clone());
            sought.push(Sought { location, key, entry: None, kind: AliasKind::Mount, through: Vec::new() });
        }
        Ok(())
    }

    /// Looks through every mount of the file system that can be written.
    ///
    /// A read-only mount takes no write, whatever else a command may do: commands hold no capability to change that,
    /// and whoever does so outside changes the mount table. What is mounted for writing beneath it is a mount of its
    /// own.
    fn mounts(&mut self, sought: &Sought, here: &Here) -> Result<(), Fault> {
        let shows = |mount: &&Mount| mount.device == sought.location.device && !mount.read_only;
        for mount in self.table.iter().filter(shows) {
            let shown = Location { device: mount.device, path: mount.root.clone() };
            // Names that may be equal on a file system that folds case are looked at; what is opened decides.
            let Some(overlap) = shown.overlap(&sought.location, Spelling::Folded) else { continue };
            match overlap {
                Overlap::Around | Overlap::Same => {
                    let rest = beneath(&sought.location.path, &mount.root);
                    self.whole(mount, sought, here, rest)?;
                }
                Overlap::Inside => self.part(mount, sought, here)?,
            }
        }
        Ok(())
    }

    /// The mount shows the whole of what is sought, at `rest` below its root.
    fn whole(&mut self, mount: &Mount, sought: &Sought, here: &Here, rest: PathBuf) -> Result<(), Fault> {
        let name = join(&mount.point, &rest);
        if name == here.path && mount.id == here.mount {
            return Ok(());
        }
        // A file that is a mount point by itself has no directory in this mount.
        let by_holder = sought.entry.is_some() && rest != Path::new("");
        let Some(place) = self.open(mount, &name, &rest, by_holder, sought.kind)? else { return Ok(()) };
        let opened = place.look.id.key();
        // The name from the mount table must lead to the object, or to the directory that holds it. On an overlay, what
        // is shown has a number of its own.
        let expected = match (by_holder, sought.kind) {
            (true, AliasKind::Mount) => self.pin.holder_key(),
            (true, _) => None,
            (false, _) => sought.key,
        };
        if expected.is_some_and(|key| key != opened) {
            return Ok(());
        }
        let key = if by_holder { sought.key } else { Some(opened) };
        self.add(mount, sought.kind, rest, key, &place)
    }

    /// The mount shows a part of what is sought.
    fn part(&mut self, mount: &Mount, sought: &Sought, here: &Here) -> Result<(), Fault> {
        let shown = Location { device: mount.device, path: mount.root.clone() };
        if shown.overlap(&sought.location, Spelling::Exact) != Some(Overlap::Inside) && !self.folds(here)? {
            return Ok(());
        }
        let rest = PathBuf::new();
        let Some(place) = self.open(mount, &mount.point, &rest, false, sought.kind)? else { return Ok(()) };
        let key = Some(place.look.id.key());
        self.add(mount, sought.kind, rest, key, &place)
    }

    fn add(
        &mut self,
        mount: &Mount,
        kind: AliasKind,
        rest: PathBuf,
        key: Option<Key>,
        place: &Place,
    ) -> Result<(), Fault> {
        let above = place.above(self.walk)?;
        let (opened, by_holder) = (place.look.id.key(), place.by_holder);
        let name = join(&mount.point, &rest);
        self.found.views.push(View { name, kind, mount: mount.id, key, above, rest, opened, by_holder });
        Ok(())
    }

    /// Opens a place; `None` where nothing is seen, or where it is only known that something may be.
    fn open(
        &mut self,
        mount: &Mount,
        name: &Path,
        rest: &Path,
        by_holder: bool,
        kind: AliasKind,
    ) -> Result<Option<Place>, Fault> {
        match Place::open(mount, rest, by_holder) {
            Ok(place) => Ok(place),
            Err(Errno::ACCESS | Errno::PERM) => {
                self.found.blind.push(Blind { name: name.into(), kind, mount: mount.id });
                Ok(None)
            }
            Err(errno) => Err(failed(name, errno)),
        }
    }

    /// Follows the layers of overlays, both ways.
    fn overlays(&mut self, sought: &Sought, more: &mut Vec<Sought>) -> Result<(), Fault> {
        let device = sought.location.device;
        if !sought.through.contains(&device)
            && let Some(layers) = self.overlays.layers(device)?
        {
            // As a whole: after renames, a directory has another name in a lower layer than in the overlay.
            let through = [sought.through.as_slice(), &[device]].concat();
            more.extend(layers.found.into_iter().map(|Layer { location, key, .. }| Sought {
                location,
                key,
                entry: None,
                kind: AliasKind::OverlayLayer,
                through: through.clone(),
            }));
            self.found.layers_unresolved.extend(layers.unresolved);
        }
        for (merged, written) in self.overlays.iter() {
            if merged == device || sought.through.contains(&merged) {
                continue;
            }
            self.found.uppers_unresolved.extend(written.unresolved.iter().cloned());
            for layer in written.all() {
                let is_upper = written.upper.as_ref().is_some_and(|upper| upper.location == layer.location);
                let (path, entry) = match layer.location.overlap(&sought.location, Spelling::Exact) {
                    Some(Overlap::Around | Overlap::Same) if is_upper => {
                        let rest = beneath(&sought.location.path, &layer.location.path);
                        (join(Path::new("/"), &rest), sought.entry.clone())
                    }
                    Some(_) => (PathBuf::from("/"), None),
                    None => continue,
                };
                more.push(Sought {
                    location: Location { device: merged, path },
                    key: None,
                    entry,
                    kind: AliasKind::OverlayMerged,
                    through: [sought.through.as_slice(), &[merged]].concat(),
                });
            }
        }
        Ok(())
    }

    /// Whether a directory above the object, in its own mount, folds case.
    fn folds(&self, here: &Here) -> Result<bool, Fault> {
        for path in here.path.ancestors() {
            let fd = match open_exact(path) {
                Ok(fd) => fd,
                Err(errno) if is_not_there(errno) => continue,
                Err(errno) => return Err(failed(path, errno)),
            };
            let look = Look::at(&fd, path)?;
            if look.id.mount != here.mount {
                break;
            }
            if look.file_type == FileType::Directory {
                match folds_case(&fd, path) {
                    Ok(false) => {}
                    // What cannot be asked may fold.
                    Ok(true) | Err(Fault::Denied(_)) => return Ok(true),
                    Err(fault) => return Err(fault),
                }
            }
        }
        Ok(false)
    }
}

/// Errors that say that nothing is at a name, or something else than the mount table says.
fn is_not_there(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

pub(super) fn failed(path: &Path, errno: Errno) -> Fault {
    Fault::from_call(SystemCall::new("openat2", path, errno))
}

/// What is left of `path` after as many components as `above` has.
fn beneath(path: &Path, above: &Path) -> PathBuf {
    path.components().skip(above.components().count()).collect()
}

/// As [`Path::join`], without a slash at the end where nothing is joined.
pub(super) fn join(path: &Path, rest: &Path) -> PathBuf {
    if rest == Path::new("") { path.into() } else { path.join(rest) }
}
