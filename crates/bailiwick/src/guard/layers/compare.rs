//! The comparison of one root.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::FileType;

use super::super::links::{Holdings, Stopped};
use super::super::outlook::{Doubt, Outlook};
use super::super::protected::ProtectedSet;
use super::Finding;
use super::known::{Known, Layers, Means};
use super::part::{Part, WantedBirth};
use crate::error::Quoted;
use crate::identity::{
    AliasKind, Beneath, Device, Fault, Inside, Location, Mount, PinnedDir, RealPlace, Sharing, Stack,
    Unresolved, open_location,
};

/// What does not depend on the root.
#[derive(Default)]
pub(super) struct Cache {
    stacks: HashMap<Device, Option<Stack>>,
    layers: HashMap<(usize, Device), Rc<Option<Layers>>>,
}

pub(super) struct Comparison<'a> {
    pub(super) outlook: &'a Outlook,
    pub(super) protected: &'a ProtectedSet,
    pub(super) holdings: &'a Holdings,
    pub(super) known: &'a mut Known,
    pub(super) cache: &'a mut Cache,
    pub(super) found: Vec<(usize, Finding)>,
}

impl Comparison<'_> {
    pub(super) fn root(&mut self, root: &PinnedDir) -> Result<(), Stopped> {
        let outlook = self.outlook;
        // Without its mount nothing is located; `Outlook::doubt` refuses that.
        let Some(own) = outlook.table.get(root.id().mount) else { return Ok(()) };
        let Some(location) = outlook.table.locate(own.id, root.canonical()) else {
            for (number, views) in outlook.views.iter().enumerate() {
                if !views.layers_unresolved.is_empty() || !views.uppers_unresolved.is_empty() {
                    self.doubt_any(number, NO_LOCATION.into());
                }
            }
            return Ok(());
        };
        let beneath = outlook.points.beneath(&outlook.table, root)?;
        let whole = |mount: &Mount| Location { device: mount.device, path: mount.root.clone() };
        let mut itself = Part::new(own, Some(root.as_fd()), root.canonical(), location);
        itself.is_root = true;
        let mut parts = vec![itself];
        // Nothing is written through a read-only mount; when that changes, the table does.
        let writable = beneath.iter().filter(|beneath| !beneath.mount.read_only);
        parts.extend(writable.map(|Beneath { mount, fd }| {
            Part::new(mount, fd.as_ref().map(OwnedFd::as_fd), &mount.point, whole(mount))
        }));
        // What this process lives in was put together before it, out of its sight, as a container is. Any other overlay
        // was mounted where its layers can be, and a lower one that shows nothing of itself is told by nothing.
        let home = PinnedDir::open(Path::new("/"))?.id().mount;
        let home = outlook.table.get(home).map(|mount| mount.device);
        for (number, views) in outlook.views.iter().enumerate() {
            if views.unlisted {
                continue;
            }
            for unresolved in each_overlay(&views.layers_unresolved) {
                let mut all = views.layers_unresolved.iter();
                let lower = all.find(|other| other.is_lower && other.device == unresolved.device);
                for part in parts.iter_mut().filter(|part| part.mount.device != unresolved.device) {
                    match lower {
                        Some(lower) if home != Some(lower.device) => self.doubt(number, lower, LOST_LOWER),
                        _ => self.part_elsewhere(part, number, unresolved)?,
                    }
                }
            }
            for unresolved in each_overlay(&views.uppers_unresolved) {
                for part in parts.iter().filter(|part| part.mount.device == unresolved.device) {
                    for location in &views.locations {
                        if location.device != unresolved.device {
                            self.object_elsewhere(part, number, location, unresolved)?;
                        }
                    }
                }
            }
        }
        for part in parts {
            self.search_for_handles(&part)?;
            self.search_for_births(&part)?;
        }
        Ok(())
    }

    pub(super) fn stack(&mut self, device: Device) -> Result<Option<&Stack>, Fault> {
        if !self.cache.stacks.contains_key(&device) {
            let found = Stack::find(&self.outlook.table, device)?;
            self.cache.stacks.insert(device, found);
        }
        Ok(self.cache.stacks.get(&device).and_then(Option::as_ref))
    }

    /// The root lies on the overlay if the object does not.
    fn doubt(&mut self, object: usize, unresolved: &Unresolved, undecided: impl Into<String>) {
        let doubt = Doubt::Layer {
            layer: unresolved.layer.clone(),
            why: unresolved.why,
            device: unresolved.device.to_string(),
            undecided: undecided.into(),
            holds_root: !self.lies_on(object, unresolved.device),
        };
        self.found.push((object, Finding::Doubt(doubt)));
    }

    /// As [`doubt`](Self::doubt), where it cannot be told of which overlay.
    pub(super) fn doubt_any(&mut self, object: usize, undecided: String) {
        let views = self.outlook.views.get(object);
        let unresolved = views
            .and_then(|views| views.layers_unresolved.first().or_else(|| views.uppers_unresolved.first()));
        let doubt = Doubt::Layer {
            layer: unresolved.map_or_else(PathBuf::new, |unresolved| unresolved.layer.clone()),
            why: unresolved.map_or("they cannot be found", |unresolved| unresolved.why),
            device: unresolved.map_or_else(String::new, |unresolved| unresolved.device.to_string()),
            undecided,
            holds_root: unresolved.is_some_and(|unresolved| !self.lies_on(object, unresolved.device)),
        };
        self.found.push((object, Finding::Doubt(doubt)));
    }

    fn lies_on(&self, object: usize, device: Device) -> bool {
        let views = self.outlook.views.get(object);
        views.is_some_and(|views| views.locations.iter().any(|location| location.device == device))
    }

    /// The object lies on an overlay of unknown layers, and a part of the root elsewhere.
    fn part_elsewhere(
        &mut self,
        part: &mut Part<'_>,
        object: usize,
        unresolved: &Unresolved,
    ) -> Result<(), Stopped> {
        self.known.is_relied_on = true;
        let layers = self.layers(object, unresolved.device)?;
        let (Some(layers), Some(stack)) = (layers.as_ref(), self.stack(unresolved.device)?) else {
            self.doubt(object, unresolved, NO_ROOT);
            return Ok(());
        };
        let Some(place) = part.place()? else {
            self.doubt(object, unresolved, NO_PLACE);
            return Ok(());
        };
        let means = match layers.means(stack, place) {
            Ok(Means::Apart) => return Ok(()),
            Ok(means) => means,
            Err(undecided) => {
                self.doubt(object, unresolved, undecided);
                return Ok(());
            }
        };
        let by_handle = matches!(means, Means::Handles(_));
        let is_layer = matches!(&means, Means::Handles(handles) if handles.iter().any(|one| place.is(one)));
        let mut inside = if is_layer { Inside::Is(part.name.into()) } else { Inside::No };
        for path in &layers.paths {
            if inside == Inside::No {
                inside = stack.inside(place, path, by_handle)?;
            }
        }
        let met = place.object().id.key();
        match inside {
            Inside::Is(_) => {
                let alias = part.as_alias(AliasKind::OverlayLayer, met);
                self.found.push((object, Finding::Alias(alias)));
            }
            Inside::Perhaps(name) => self.doubt(object, unresolved, perhaps(part.name, &name)),
            Inside::No if place.is_work_directory() => {
                self.doubt(object, unresolved, work_directory(part.name));
            }
            Inside::No => match means {
                Means::Apart => {}
                Means::Handles(handles) => {
                    part.handles.extend(handles.into_iter().map(|handle| (handle, object)));
                }
                Means::Births(births) => {
                    part.births.extend(births.into_iter().map(|(born, path)| WantedBirth {
                        born,
                        overlay: unresolved.device,
                        path,
                        object,
                    }))
                }
            },
        }
        Ok(())
    }

    /// What is known of the layers under an object; `None` where the overlay's root is not seen, or where the object is
    /// on it as a layer of another overlay only.
    fn layers(&mut self, object: usize, device: Device) -> Result<Rc<Option<Layers>>, Stopped> {
        if let Some(known) = self.cache.layers.get(&(object, device)) {
            return Ok(Rc::clone(known));
        }
        let locations = self.outlook.views.get(object).into_iter().flat_map(|views| &views.locations);
        let paths: Vec<PathBuf> = locations
            .filter(|location| location.device == device)
            .map(|location| location.path.clone())
            .collect();
        let linked = self.linked_on(object, &paths);
        let layers = match self.stack(device)? {
            Some(stack) if !paths.is_empty() => Some(Layers::look(stack, paths, linked)?),
            _ => None,
        };
        let layers = Rc::new(layers);
        self.cache.layers.insert((object, device), Rc::clone(&layers));
        Ok(layers)
    }

    /// Files of an object at these paths of an overlay that have names outside of it: where they lie on the overlay, and
    /// what they are called.
    fn linked_on(&self, object: usize, paths: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
        let Some(canonical) = self.protected.objects().get(object).map(|object| object.canonical()) else {
            return Vec::new();
        };
        let files = self.holdings.linked_of(object).filter_map(|file| file.path.strip_prefix(canonical).ok());
        let places = files.flat_map(|rest| {
            paths.iter().map(move |path| {
                let below = |above: &Path| {
                    if rest == Path::new("") { above.to_owned() } else { above.join(rest) }
                };
                (below(path), below(canonical))
            })
        });
        places.collect()
    }

    /// A part of the root lies on an overlay of which the upper directory is unknown, and the object elsewhere.
    fn object_elsewhere(
        &mut self,
        part: &Part<'_>,
        object: usize,
        location: &Location,
        unresolved: &Unresolved,
    ) -> Result<(), Stopped> {
        let Some((fd, name, opened)) = open_location(&self.outlook.table, location)? else {
            self.doubt(object, unresolved, "what is protected cannot be opened");
            return Ok(());
        };
        let is_whole = opened.path == location.path;
        let Some(place) = RealPlace::look(fd.as_fd(), &name, opened)? else {
            self.doubt(object, unresolved, NO_PLACE);
            return Ok(());
        };
        let linked = self.holdings.linked_of(object).next().map(|file| file.path.clone());
        let Some(stack) = self.stack(unresolved.device)? else {
            self.doubt(object, unresolved, NO_ROOT);
            return Ok(());
        };
        let top = match stack.top().map(|top| (place.sharing(top), top)) {
            Some((Sharing::Apart, _)) => return Ok(()),
            Some((Sharing::Possible, top)) => Some(top.clone().into_real()),
            Some((Sharing::Unknown, _)) | None => None,
        };
        let root = stack.chain(Path::new(""))?.and_then(|chain| chain.into_iter().next());
        let root_born = root.and_then(|root| root.born);
        let inside = match &top {
            Some(top) if place.is(top) => Inside::Is(name.clone()),
            None if root_born.is_none() || place.object().id.born.is_none() => {
                self.doubt(object, unresolved, NO_MEANS);
                return Ok(());
            }
            _ => stack.inside(&place, &part.location.path, top.is_some())?,
        };
        let met = place.object().id;
        match (inside, linked) {
            (Inside::Is(_), _) => {
                let alias = part.as_alias(AliasKind::OverlayMerged, met.key());
                self.found.push((object, Finding::Alias(alias)));
            }
            (Inside::Perhaps(shown), _) => self.doubt(object, unresolved, perhaps(&name, &shown)),
            (Inside::No, Some(linked)) => self.doubt(object, unresolved, several_names(&linked)),
            (Inside::No, None) if !is_whole || place.object().file_type != FileType::Directory => {}
            // A work directory in it takes nothing that is to be kept from the root.
            (Inside::No, None) => match (top, root_born) {
                (Some(top), _) => {
                    let found = self.handles_in(met.node(), fd.as_fd(), &name, std::slice::from_ref(&top))?;
                    let met = found.into_iter().find(|(key, _)| Some(key.inode()) == top.inode());
                    if let Some((met, _)) = met {
                        let alias = part.as_alias(AliasKind::OverlayMerged, met);
                        self.found.push((object, Finding::Alias(alias)));
                    }
                }
                (None, Some(born)) => {
                    let path = PathBuf::new();
                    let wanted = WantedBirth { born, overlay: unresolved.device, path, object };
                    for (born, found) in self.births_in(met.node(), fd.as_fd(), &name, &[wanted])? {
                        if born.is_some() {
                            self.doubt(object, unresolved, perhaps(&found, Path::new("/")));
                        }
                    }
                }
                (None, None) => {}
            },
        }
        Ok(())
    }
}

const NO_ROOT: &str = "no mount here shows the whole of that overlay";
const NO_LOCATION: &str = "the mount table does not tell where the root lies on its file system";
const NO_PLACE: &str = "the other one lies on an overlay itself, or cannot be opened";
pub(super) const NO_MEANS: &str =
    "neither file handles nor birth times can be compared with those on the file system of the other one";

pub(super) fn perhaps(name: &Path, shown: &Path) -> String {
    let (name, shown) = (Quoted::new(name).to_string(), Quoted::new(shown).to_string());
    format!("{name} may be what that overlay shows at {shown}")
}

pub(super) fn work_directory(name: &Path) -> String {
    let name = Quoted::new(name).to_string();
    format!("{name} has the form of the directory in which an overlay prepares what it writes")
}

pub(super) fn several_names(file: &Path) -> String {
    let file = Quoted::new(file).to_string();
    format!("{file} has other names, which cannot be looked for there")
}

/// The first of each overlay.
/// What is told of a lower layer that may be the root.
const LOST_LOWER: &str =
    "a lower layer may show nothing of itself, so the root may be that layer, hold it or lie in it";

fn each_overlay(unresolved: &[Unresolved]) -> impl Iterator<Item = &Unresolved> {
    let mut seen = HashSet::new();
    unresolved.iter().filter(move |unresolved| seen.insert(unresolved.device))
}
