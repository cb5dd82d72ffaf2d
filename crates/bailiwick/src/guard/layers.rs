//! Layers of overlays that cannot be found by their names: does a root reach a protected object through one?
//!
//! Two questions. A protected object lies on such an overlay and a root on another file system: the root may hold, be,
//! or lie in a layer. Or the root lies on such an overlay, and what is written there lands in an upper directory that
//! may hold, be, or lie in a protected object elsewhere. How the kernel answers: [`Stack`].
//!
//! For the first, the root is searched for the upper directory and for what is known of the lower ones; for the second,
//! the protected object is searched for the upper directory. Both only where the file systems may be one, and within the
//! bounds of [`LinkSearch`](super::LinkSearch).

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::FileType;

use super::links::{Holdings, Stopped, run_bounded};
use super::outlook::{Alias, Doubt, Outlook};
use super::protected::ProtectedSet;
use super::refusal;
use super::verdict::Relation;
use crate::error::{Error, ErrorKind, Quoted};
use crate::identity::{
    AliasKind, Beneath, Device, Fault, FileHandle, Inside, Key, Location, Look, Mount, Node, PinnedDir,
    RealPlace, Sharing, Stack, Start, Unresolved, mounts_beneath, open_location, scan_for_handles,
};

/// What was found about a root and a protected object.
#[derive(Debug)]
pub(super) enum Finding {
    Alias(Alias),
    Doubt(Doubt),
}

/// A finding, with the root's index in the policy and the object's number.
pub(super) type Found = (usize, usize, Finding);

/// Directories that were searched, each for objects that it does not hold.
///
/// A directory that is moved changes nothing of what is asked here, so this is kept for one grant, until the mount table
/// changes.
#[derive(Debug, Default)]
pub(super) struct Known {
    searched: HashSet<(Node, FileHandle)>,
    /// Whether anything was decided by what the kernel tells of layers that cannot be found.
    pub(super) is_relied_on: bool,
}

impl Known {
    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Compares roots with protected objects through layers that cannot be found. Each root comes with its index.
pub(super) fn compare(
    roots: &[(usize, &PinnedDir)],
    outlook: &Outlook,
    protected: &ProtectedSet,
    holdings: &Holdings,
    known: &mut Known,
) -> Result<Vec<Found>, (usize, Error)> {
    let is_asked = |views: &crate::identity::Views| {
        !views.layers_unresolved.is_empty() || !views.uppers_unresolved.is_empty()
    };
    if !outlook.views.iter().any(is_asked) {
        return Ok(Vec::new());
    }
    let mut cache = Cache::default();
    let mut all = Vec::new();
    for (index, root) in roots {
        let mut comparison = Comparison { outlook, protected, holdings, known, cache, found: Vec::new() };
        comparison.root(root).map_err(|stopped| (*index, refusal::search_stopped(*index, root, stopped)))?;
        let Comparison { found, cache: seen, .. } = comparison;
        cache = seen;
        all.extend(found.into_iter().map(|(object, finding)| (*index, object, finding)));
    }
    Ok(all)
}

/// The first refusal.
pub(super) fn first_refusal(
    found: &[Found],
    roots: &[(usize, &PinnedDir)],
    protected: &ProtectedSet,
) -> Option<Error> {
    let (index, number, finding) = found.first()?;
    let root = roots.iter().find(|(own, _)| own == index).map(|(_, root)| root);
    match (root, protected.objects().get(*number)) {
        (Some(root), Some(object)) => Some(refusal::layer(*index, root, object, finding)),
        _ => Some(Error::new(ErrorKind::Internal, "a layer was found of a root that was not asked for")),
    }
}

/// A root, or what is mounted beneath it.
struct Part<'a> {
    mount: &'a Mount,
    fd: Option<BorrowedFd<'a>>,
    name: &'a Path,
    location: Location,
    /// What is to be looked for in it, with the object that it belongs to and the layer it may show.
    wanted: Vec<(FileHandle, usize)>,
    /// Whether it is the root itself.
    is_root: bool,
    place: OnceCell<Option<RealPlace>>,
}

impl<'a> Part<'a> {
    fn new(mount: &'a Mount, fd: Option<BorrowedFd<'a>>, name: &'a Path, location: Location) -> Self {
        Self { mount, fd, name, location, wanted: Vec::new(), is_root: false, place: OnceCell::new() }
    }

    /// What can be compared of it.
    fn place(&self) -> Result<Option<&RealPlace>, Fault> {
        if self.place.get().is_none() {
            let place = match self.fd {
                Some(fd) => RealPlace::look(fd, self.name, self.location.clone())?,
                None => None,
            };
            let _same = self.place.set(place);
        }
        Ok(self.place.get().and_then(Option::as_ref))
    }

    /// How the root lies to it.
    fn lies(&self) -> Relation {
        if self.is_root { Relation::Same } else { Relation::Around }
    }
}

/// What does not depend on the root.
#[derive(Default)]
struct Cache {
    stacks: HashMap<Device, Option<Stack>>,
    layers: HashMap<(usize, Device), Rc<Option<Layers>>>,
}

/// What is known of the layers under a protected object.
struct Layers {
    /// Where it lies on the overlay.
    paths: Vec<PathBuf>,
    /// The upper directory, the object and the directories above it, and files in it that have names outside of it.
    handles: Vec<FileHandle>,
    /// A file with several names, of which it cannot be told which one a write changes.
    ambiguous: Option<PathBuf>,
    undecided: Option<&'static str>,
}

impl Layers {
    /// `linked`: places on the overlay of files with names outside of the object, and their names here.
    fn look(stack: &Stack, paths: Vec<PathBuf>, linked: Vec<(PathBuf, PathBuf)>) -> Result<Self, Fault> {
        let mut handles = vec![stack.top().clone()];
        let (mut ambiguous, mut undecided) = (None, None);
        for path in &paths {
            match stack.chain(path)? {
                Some(chain) => handles.extend(chain),
                None => undecided = Some(NO_CHAIN),
            }
        }
        for (place, name) in linked {
            match stack.exact_handle(&place)? {
                Some(handle) => handles.push(handle),
                None => ambiguous = Some(name),
            }
        }
        Ok(Self { paths, handles, ambiguous, undecided })
    }
}

struct Comparison<'a> {
    outlook: &'a Outlook,
    protected: &'a ProtectedSet,
    holdings: &'a Holdings,
    known: &'a mut Known,
    cache: Cache,
    found: Vec<(usize, Finding)>,
}

impl Comparison<'_> {
    fn root(&mut self, root: &PinnedDir) -> Result<(), Stopped> {
        let outlook = self.outlook;
        // Without its mount nothing is located; `Outlook::doubt` refuses that.
        let Some(own) = outlook.table.get(root.id().mount) else { return Ok(()) };
        let Some(location) = outlook.table.locate(own.id, root.canonical()) else { return Ok(()) };
        let beneath = mounts_beneath(&outlook.table, root)?;
        let whole = |mount: &Mount| Location { device: mount.device, path: mount.root.clone() };
        let mut itself = Part::new(own, Some(root.as_fd()), root.canonical(), location);
        itself.is_root = true;
        let mut parts = vec![itself];
        // Nothing is written through a read-only mount; when that changes, the table does.
        let writable = beneath.iter().filter(|beneath| !beneath.mount.read_only);
        parts.extend(writable.map(|Beneath { mount, fd }| {
            Part::new(mount, fd.as_ref().map(OwnedFd::as_fd), &mount.point, whole(mount))
        }));
        for (number, views) in outlook.views.iter().enumerate() {
            if views.unlisted {
                continue;
            }
            for unresolved in each_overlay(&views.layers_unresolved) {
                for part in parts.iter_mut().filter(|part| part.mount.device != unresolved.device) {
                    self.part_elsewhere(part, number, unresolved)?;
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
            self.search(&part)?;
        }
        Ok(())
    }

    fn stack(&mut self, device: Device) -> Result<Option<&Stack>, Fault> {
        if !self.cache.stacks.contains_key(&device) {
            let found = Stack::find(&self.outlook.table, device)?;
            self.cache.stacks.insert(device, found);
        }
        Ok(self.cache.stacks.get(&device).and_then(Option::as_ref))
    }

    fn doubt(&mut self, object: usize, unresolved: &Unresolved, undecided: impl Into<String>) {
        let doubt = Doubt::Layer {
            layer: unresolved.layer.clone(),
            why: unresolved.why,
            device: unresolved.device.to_string(),
            undecided: undecided.into(),
        };
        self.found.push((object, Finding::Doubt(doubt)));
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
        let Some(layers) = layers.as_ref() else {
            self.doubt(object, unresolved, NO_ROOT);
            return Ok(());
        };
        let Some(place) = part.place()? else {
            self.doubt(object, unresolved, NO_HANDLE);
            return Ok(());
        };
        let Some(stack) = self.stack(unresolved.device)? else {
            self.doubt(object, unresolved, NO_ROOT);
            return Ok(());
        };
        let mut undecided = layers.undecided.map(str::to_owned);
        // Where the upper directory is not, a copy in it has no other name.
        if let Some(file) = &layers.ambiguous
            && place.sharing(stack.top()) != Sharing::Apart
        {
            undecided = Some(several_names(file));
        }
        let mut possible = Vec::new();
        for layer in &layers.handles {
            match place.sharing(layer) {
                Sharing::Apart => {}
                Sharing::Possible => possible.push(layer.clone().into_real()),
                Sharing::Unknown => undecided = Some(NO_HANDLE.to_owned()),
            }
        }
        if !possible.is_empty() && place.is_work_directory() {
            undecided = Some(work_directory(part.name));
        }
        let mut inside = Inside::No;
        if possible.iter().any(|layer| place.is(layer)) {
            inside = Inside::Is(part.name.into());
        } else if !possible.is_empty() {
            for path in &layers.paths {
                match stack.inside(place, path)? {
                    Inside::No => {}
                    Inside::Is(name) => inside = Inside::Is(name),
                    Inside::Perhaps(name) => undecided = Some(perhaps(&name)),
                }
            }
        }
        if let Inside::Is(_) = inside {
            let met = place.object().id.key();
            let alias = alias(AliasKind::OverlayLayer, part, part.name.into(), part.lies(), met, 0);
            self.found.push((object, Finding::Alias(alias)));
        } else if let Some(undecided) = undecided {
            self.doubt(object, unresolved, undecided);
        } else {
            part.wanted.extend(possible.into_iter().map(|layer| (layer, object)));
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
            self.doubt(object, unresolved, NO_HANDLE);
            return Ok(());
        };
        let linked = self.holdings.linked_of(object).next().map(|file| file.path.clone());
        let Some(stack) = self.stack(unresolved.device)? else {
            self.doubt(object, unresolved, NO_ROOT);
            return Ok(());
        };
        let top = stack.top();
        match place.sharing(top) {
            Sharing::Apart => return Ok(()),
            Sharing::Possible => {}
            Sharing::Unknown => {
                self.doubt(object, unresolved, NO_HANDLE);
                return Ok(());
            }
        }
        let inside = if place.is(top) {
            Inside::Is(name.clone())
        } else {
            stack.inside(&place, &part.location.path)?
        };
        let top = top.clone().into_real();
        let met = place.object().id;
        match (inside, linked) {
            (Inside::Is(_), _) => {
                let alias =
                    alias(AliasKind::OverlayMerged, part, part.name.into(), part.lies(), met.key(), 0);
                self.found.push((object, Finding::Alias(alias)));
            }
            (Inside::Perhaps(name), _) => self.doubt(object, unresolved, perhaps(&name)),
            (Inside::No, Some(linked)) => self.doubt(object, unresolved, several_names(&linked)),
            (Inside::No, None) if is_whole && place.object().file_type == FileType::Directory => {
                let node = met.node();
                let found = self.search_one(node, fd.as_fd(), &name, std::slice::from_ref(&top))?;
                // A work directory in it takes nothing that the root is to keep.
                if let Some((met, _)) = found.into_iter().find(|(key, _)| Some(key.inode()) == top.inode()) {
                    let alias = alias(AliasKind::OverlayMerged, part, part.name.into(), part.lies(), met, 0);
                    self.found.push((object, Finding::Alias(alias)));
                }
            }
            (Inside::No, None) => {}
        }
        Ok(())
    }

    /// Looks for everything wanted of one part of the root.
    fn search(&mut self, part: &Part<'_>) -> Result<(), Stopped> {
        let Some(fd) = part.fd.filter(|_| !part.wanted.is_empty()) else { return Ok(()) };
        let look = Look::at(fd, part.name)?;
        if look.file_type != FileType::Directory {
            // It has been compared itself.
            return Ok(());
        }
        let mut handles: Vec<FileHandle> = part.wanted.iter().map(|(handle, _)| handle.clone()).collect();
        let mut seen = HashSet::new();
        handles.retain(|handle| seen.insert(handle.clone()));
        let found = self.search_one(look.id.node(), fd, part.name, &handles)?;
        // The upper directory first, then what is next to the overlay's root: handles come in that order.
        let rank = |key: Key| handles.iter().position(|handle| handle.inode() == Some(key.inode()));
        let mut ranked: Vec<_> = found.into_iter().map(|(key, name)| (rank(key), key, name)).collect();
        ranked.sort_by_key(|(rank, ..)| rank.unwrap_or(usize::MAX));
        let mut told = HashSet::new();
        for (rank, key, name) in ranked {
            if rank.is_none() {
                // Which overlay's work directory it is cannot be told.
                if let Some((_, object)) = part.wanted.first() {
                    let doubt = self.work_doubt(*object, &name);
                    self.found.push((*object, Finding::Doubt(doubt)));
                }
                continue;
            }
            let levels = name.strip_prefix(part.name).map_or(0, |rest| rest.components().count());
            for (handle, object) in &part.wanted {
                if handle.inode() == Some(key.inode()) && told.insert(*object) {
                    let (kind, name) = (AliasKind::OverlayLayer, name.clone());
                    let alias = alias(kind, part, name, Relation::Around, key, levels);
                    self.found.push((*object, Finding::Alias(alias)));
                }
            }
        }
        Ok(())
    }

    fn work_doubt(&self, object: usize, name: &Path) -> Doubt {
        let unresolved = self.outlook.views.get(object).and_then(|views| views.layers_unresolved.first());
        Doubt::Layer {
            layer: unresolved.map_or_else(PathBuf::new, |unresolved| unresolved.layer.clone()),
            why: unresolved.map_or("it cannot be found", |unresolved| unresolved.why),
            device: unresolved.map_or_else(String::new, |unresolved| unresolved.device.to_string()),
            undecided: work_directory(name),
        }
    }

    /// Searches a directory for objects, but for those of which it is known that it does not hold them.
    fn search_one(
        &mut self,
        node: Node,
        dir: BorrowedFd<'_>,
        name: &Path,
        handles: &[FileHandle],
    ) -> Result<Vec<(Key, PathBuf)>, Stopped> {
        let known = &self.known.searched;
        let handles: Vec<FileHandle> =
            handles.iter().filter(|handle| !known.contains(&(node, (*handle).clone()))).cloned().collect();
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        let start = Start { dir, path: name };
        let report = run_bounded(self.protected, "searched for layers of overlays", |limits, progress| {
            scan_for_handles(&[start], &handles, limits, progress)
        });
        let report = report.map_err(Stopped::Scan)?;
        if report.names.is_empty() {
            self.known.searched.extend(handles.into_iter().map(|handle| (node, handle)));
        }
        Ok(report.names)
    }
}

const NO_HANDLE: &str = "the file system of the other one tells no file handles that can be compared with it";
const NO_ROOT: &str = "no mount here shows the whole of that overlay";
const NO_CHAIN: &str = "a directory above what is protected cannot be looked at on that overlay";

fn perhaps(name: &Path) -> String {
    let name = Quoted::new(name).to_string();
    format!("by its place on its file system the other one may be what that overlay shows at {name}")
}

fn work_directory(name: &Path) -> String {
    let name = Quoted::new(name).to_string();
    format!("{name} has the form of the directory in which an overlay prepares what it writes")
}

fn several_names(file: &Path) -> String {
    let file = Quoted::new(file).to_string();
    format!("{file} has other names, which cannot be looked for there")
}

/// The first of each overlay.
fn each_overlay(unresolved: &[Unresolved]) -> impl Iterator<Item = &Unresolved> {
    let mut seen = HashSet::new();
    unresolved.iter().filter(move |unresolved| seen.insert(unresolved.device))
}

fn alias(kind: AliasKind, part: &Part<'_>, name: PathBuf, lies: Relation, met: Key, levels: usize) -> Alias {
    let (mount, mount_point) = (part.mount.id, Some(part.mount.point.clone()));
    Alias { kind, name, mount_point, mount, lies, met, levels }
}
