//! Other names of protected files in the write roots.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::outlook::Outlook;
use super::protected::{ProtectedKind, ProtectedObject, ProtectedSet};
use super::read::is_private;
use super::refusal;
use super::search::SearchProgress;
use crate::error::Error;
use crate::identity::{
    Device, Fault, FileInventory, Inventory, InventoryFault, Key, LinkedFile, Look, Mount, Node, Overlays,
    Pin, PinnedDir, PinnedName, Role, ScanLimits, ScanProgress, ScanReport, ScanStop, Start, Target,
    WalkLimits, elsewhere, look_exact, scan, target_at, user,
};

/// What is in the protected objects: the files of which other names are looked for.
#[derive(Debug)]
pub(super) struct Holdings(Vec<Holding>);

/// What is in one protected object.
#[derive(Debug)]
enum Holding {
    Directory(Box<Inventory>),
    File(FileInventory),
    /// This user cannot look.
    Unseen,
}

/// A file that has, or may have, names outside of everything protected.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The protected object that it belongs to.
    pub(super) object: usize,
    pub(super) path: PathBuf,
    pub(super) links: u32,
}

/// Another name of a protected file, in a root.
#[derive(Debug, Clone)]
pub(super) struct OtherName {
    pub(super) target: Wanted,
    pub(super) key: Key,
    pub(super) name: PathBuf,
}

/// What was searched for and not found, so that it is not searched for again while nothing about it has changed.
///
/// Linking and moving a file change the time of its inode. Moving a directory that holds one of its names does not:
/// whoever moves such a directory into a root from outside is seen at the next grant only.
#[derive(Debug, Default, Clone)]
pub(crate) struct Searched {
    to_write: HashMap<Node, HashSet<Seen>>,
    to_read: HashMap<Node, HashSet<Seen>>,
}

/// What a search is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aim<'a> {
    /// Names by which commands could write.
    Write,
    /// Names by which commands could read what is private: mounts that take no write are ways too, and the program is no
    /// secret. What each directory is, by the number that comes with it.
    Read(&'a [Role]),
}

impl Aim<'_> {
    fn role(self, index: usize) -> Role {
        match self {
            Self::Write => Role::Root(index),
            Self::Read(roles) => roles.get(index).copied().unwrap_or(Role::Store),
        }
    }
}

type Seen = (Key, u32, (i64, u32));

impl Holding {
    fn take(object: &ProtectedObject) -> Result<Self, InventoryFault> {
        let file = |name: &PinnedName| match FileInventory::take(name.dir(), name.entry()) {
            Ok(file) => Ok(Self::File(file)),
            Err(InventoryFault::Failed { cause, .. }) if cause.errno() == Errno::ACCESS => Ok(Self::Unseen),
            Err(fault) => Err(fault),
        };
        match object.pin() {
            Pin::Directory(dir) => Inventory::take(dir, &WalkLimits::default())
                .map(|inventory| Self::Directory(Box::new(inventory))),
            Pin::File(pinned) => file(pinned.name()),
            // A store that has not been made yet, and may be made meanwhile: then the next grant looks into it.
            Pin::Unseen(_) if object.kind() == ProtectedKind::Store => Ok(Self::Unseen),
            Pin::Unseen(name) => file(name),
        }
    }

    /// Files with a name outside of the object.
    fn linked(&self) -> Box<dyn Iterator<Item = &LinkedFile> + '_> {
        match self {
            Self::Directory(inventory) => Box::new(inventory.links_outside()),
            Self::File(file) => Box::new(file.links_outside()),
            Self::Unseen => Box::new(std::iter::empty()),
        }
    }
}

impl Holdings {
    /// Looks into every protected object.
    ///
    /// # Errors
    /// `ProtectedNotAccessible` for what cannot be looked at, unless it belongs to another user, whose files commands
    /// cannot write under any name; `ProtectedInvalid` for a symbolic link in the runtime
    /// home: whoever put it there makes what is written to it land elsewhere.
    pub(super) fn take(protected: &ProtectedSet) -> Result<Self, Error> {
        let mut holdings = Vec::with_capacity(protected.objects().len());
        for object in protected.objects() {
            let holding = Holding::take(object).map_err(|fault| refusal::holdings(object, fault))?;
            check_links(object, &holding)?;
            check_listed(object, &holding)?;
            holdings.push(holding);
        }
        Ok(Self(holdings))
    }

    /// Looks again, cheaply. Whether a file with more than one name appeared, or changed.
    pub(super) fn refresh(&mut self, protected: &ProtectedSet) -> Result<bool, Error> {
        let mut is_stale = false;
        for (holding, object) in self.0.iter_mut().zip(protected.objects()) {
            let fresh = match holding {
                Holding::Directory(inventory) => inventory.refresh(),
                Holding::File(file) => file.refresh(),
                Holding::Unseen => continue,
            };
            let fresh = fresh.map_err(|fault| refusal::holdings(object, fault))?;
            is_stale |= fresh.links;
            if fresh.symlinks {
                check_links(object, holding)?;
            }
            if fresh.unlisted {
                check_listed(object, holding)?;
            }
        }
        Ok(is_stale)
    }

    /// Directories that this user cannot list: of what is in them, no other name can be looked for.
    pub(super) fn unlisted(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().flat_map(|holding| match holding {
            Holding::Directory(inventory) => inventory.unlisted().collect(),
            Holding::File(_) | Holding::Unseen => Vec::new(),
        })
    }

    /// The files with names outside, each with what changes when a name does.
    fn states(&self, protected: &ProtectedSet, aim: Aim<'_>) -> Vec<Seen> {
        self.aimed_at(protected, aim).map(|(_, file)| (file.key, file.links, file.changed)).collect()
    }

    /// Files of one object that have a name outside of it.
    pub(super) fn linked_of(&self, object: usize) -> impl Iterator<Item = &LinkedFile> {
        self.0.get(object).into_iter().flat_map(Holding::linked)
    }

    fn aimed_at<'a>(
        &'a self,
        protected: &'a ProtectedSet,
        aim: Aim<'a>,
    ) -> impl Iterator<Item = (usize, &'a LinkedFile)> {
        self.linked().filter(move |(number, _)| match aim {
            Aim::Write => true,
            Aim::Read(_) => protected.objects().get(*number).is_none_or(|object| is_private(object.kind())),
        })
    }

    fn linked(&self) -> impl Iterator<Item = (usize, &LinkedFile)> {
        let numbered = self.0.iter().enumerate();
        numbered.flat_map(|(object, holding)| holding.linked().map(move |file| (object, file)))
    }
}

fn check_links(object: &ProtectedObject, holding: &Holding) -> Result<(), Error> {
    let Holding::Directory(inventory) = holding else { return Ok(()) };
    match inventory.symlinks().next() {
        Some(link) if object.kind() == ProtectedKind::RuntimeHome => Err(refusal::link_inside(object, &link)),
        _ => Ok(()),
    }
}

/// A directory that this user owns is closed to commands as little as to this process: either may open it.
fn check_listed(object: &ProtectedObject, holding: &Holding) -> Result<(), Error> {
    let Holding::Directory(inventory) = holding else { return Ok(()) };
    for path in inventory.unlisted() {
        match look_exact(&path) {
            Ok(Some(look)) if look.owner == user() => return Err(refusal::unlisted(object, &path)),
            Ok(_) => {}
            Err(fault) => return Err(object.role().fault(fault, &path)),
        }
    }
    Ok(())
}

impl Searched {
    /// Forgets everything: a file with several names has changed, or may have.
    pub(super) fn forget(&mut self) {
        self.to_write.clear();
        self.to_read.clear();
    }
}

/// What a search found, and the roots that could not be searched to their end; each with its index in the policy.
#[derive(Debug, Default)]
pub(super) struct SearchOutcome {
    pub(super) names: Vec<(usize, OtherName)>,
    pub(super) stopped: Vec<(usize, Error)>,
}

/// Searches roots for other names of protected files. Each root comes with its index in the policy.
pub(super) fn search(
    roots: &[(usize, &PinnedDir)],
    outlook: &Outlook,
    protected: &ProtectedSet,
    holdings: &mut Holdings,
    searched: &mut Searched,
    aim: Aim<'_>,
) -> SearchOutcome {
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let before = holdings.states(protected, aim);
        let mut outcome = SearchOutcome::default();
        if before.is_empty() {
            return outcome;
        }
        for (index, root) in roots {
            match search_one(root, outlook, protected, holdings, searched, aim) {
                Ok(found) => outcome.names.extend(found.into_iter().map(|name| (*index, name))),
                Err(stop) => {
                    outcome.stopped.push((*index, refusal::search_stopped(aim.role(*index), root, stop)));
                }
            }
        }
        // A name that was moved from where the search had not been to where it had been is told by the file's time.
        if let Err(refusal) = holdings.refresh(protected) {
            outcome.stopped.push((0, refusal));
            return outcome;
        }
        if holdings.states(protected, aim) == before {
            return outcome;
        }
        searched.forget();
    }
    let (index, path) =
        roots.first().map_or((0, PathBuf::new()), |(index, root)| (*index, root.canonical().to_owned()));
    SearchOutcome {
        names: Vec::new(),
        stopped: vec![(index, refusal::search_unsettled(aim.role(index), &path))],
    }
}

/// Why a root could not be searched.
#[derive(Debug)]
pub(super) enum Stopped {
    Fault(Fault),
    Scan(ScanStop),
    /// A search for layers of overlays.
    Layers(ScanStop),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn search_one(
    root: &PinnedDir,
    outlook: &Outlook,
    protected: &ProtectedSet,
    holdings: &Holdings,
    searched: &mut Searched,
    aim: Aim<'_>,
) -> Result<Vec<OtherName>, Stopped> {
    let known = match aim {
        Aim::Write => &mut searched.to_write,
        Aim::Read(_) => &mut searched.to_read,
    };
    let known = known.entry(root.id().node()).or_default();
    let overlays = Overlays::new(&outlook.table)?;
    let mut targets: HashMap<Key, Wanted> = HashMap::new();
    let mut sought: Vec<Target> = Vec::new();
    let mut devices: HashSet<Device> = HashSet::new();
    let mut seen: Vec<Seen> = Vec::new();
    for (object, file) in holdings.aimed_at(protected, aim) {
        let this = (file.key, file.links, file.changed);
        if known.contains(&this) {
            continue;
        }
        if !file.is_young() {
            seen.push(this);
        }
        let target = Wanted { object, path: file.path.clone(), links: file.links };
        let Some(views) = outlook.views.get(object) else { continue };
        devices.extend(views.locations.iter().map(|location| location.device));
        // On an overlay, the name to look for elsewhere is that of the file in a layer.
        for location in &views.locations {
            let Some(layers) = overlays.layers(location.device)? else { continue };
            let canonical = protected.objects().get(object).map(|object| object.canonical().to_owned());
            let rest = canonical.and_then(|above| file.path.strip_prefix(above).ok().map(Path::to_owned));
            for layer in layers.found {
                devices.insert(layer.location.device);
                let inside = location.path.strip_prefix("/").unwrap_or(&location.path);
                let path = layer.path.join(inside).join(rest.as_deref().unwrap_or(Path::new("")));
                if let Some(real) = target_at(&path)? {
                    targets.insert(real.key(), target.clone());
                    sought.push(real);
                }
            }
        }
        targets.insert(file.key, target);
        sought.push(file.target());
    }
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let own = outlook.table.get(root.id().mount);
    let mut beneath = outlook.points.beneath(&outlook.table, root)?;
    // A name that cannot be written through reaches nothing.
    beneath.retain(|beneath| matches!(aim, Aim::Read(_)) || !beneath.mount.read_only);
    let mut opened: Vec<(PinnedDir, PathBuf)> = Vec::new();
    let mut starts: Vec<Start<'_>> = Vec::new();
    let views = if beneath.is_empty() { Vec::new() } else { elsewhere(&outlook.table, root)? };
    if own.is_none_or(|mount| devices.contains(&mount.device)) {
        starts.push(Start { dir: root.as_fd(), path: root.canonical() });
        starts.extend(views.iter().map(|view| Start { dir: view.as_fd(), path: view.canonical() }));
    }
    let mut mounted: Vec<(OwnedFd, &Mount)> = Vec::new();
    for beneath in beneath.iter().filter(|beneath| devices.contains(&beneath.mount.device)) {
        // One that cannot be opened stops the search: a command may be able to.
        mounted.extend(beneath.open()?.map(|fd| (fd, beneath.mount)));
    }
    for (fd, mount) in &mounted {
        let look = Look::at(fd, &mount.point)?;
        if look.file_type == FileType::Directory {
            starts.push(Start { dir: fd.as_fd(), path: &mount.point });
        } else if let Some(target) = targets.get(&look.id.key()) {
            found.push(OtherName { target: target.clone(), key: look.id.key(), name: mount.point.clone() });
        }
    }
    // What is written through an overlay is written in its upper directory, where a file has its own number.
    let mounts = own
        .into_iter()
        .map(|mount| (mount, root.canonical().to_owned()))
        .chain(beneath.iter().map(|beneath| (beneath.mount, beneath.mount.point.clone())));
    for (mount, path) in mounts {
        let upper = overlays.written(mount.device).and_then(|written| written.upper.as_ref());
        let (Some(upper), Some(location)) = (upper, outlook.table.locate(mount.id, &path)) else { continue };
        if !devices.contains(&upper.location.device) {
            continue;
        }
        let inside = location.path.strip_prefix("/").unwrap_or(&location.path);
        match PinnedDir::open(&upper.path.join(inside)) {
            Ok(dir) => opened.push((dir, path)),
            Err(Fault::NotFound { .. } | Fault::NotDirectory { .. }) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    starts.extend(opened.iter().map(|(dir, _)| Start { dir: dir.as_fd(), path: dir.canonical() }));
    let report = run(&starts, &sought, protected).map_err(Stopped::Scan)?;
    for (key, name) in report.names {
        if let Some(target) = targets.get(&key) {
            // Told by the name at which commands find it, and that may be found by both.
            let shown = opened
                .iter()
                .find_map(|(upper, shown)| Some(shown.join(name.strip_prefix(upper.canonical()).ok()?)));
            let name = shown.unwrap_or(name);
            if !found.iter().any(|other| other.name == name) {
                found.push(OtherName { target: target.clone(), key, name });
            }
        }
    }
    if found.is_empty() {
        known.extend(seen);
    }
    Ok(found)
}

fn run(starts: &[Start<'_>], targets: &[Target], protected: &ProtectedSet) -> Result<ScanReport, ScanStop> {
    run_bounded(protected, "searched for other names of protected files", |limits, progress| {
        scan(starts, targets, limits, progress)
    })
}

/// Runs a scan within the bounds that the protected set has for it.
pub(super) fn run_bounded(
    protected: &ProtectedSet,
    done: &'static str,
    scan: impl FnOnce(&ScanLimits, Option<&(dyn Fn(ScanProgress) + Sync)>) -> Result<ScanReport, ScanStop>,
) -> Result<ScanReport, ScanStop> {
    let search = protected.link_search();
    let (entries, time) = search.bounds();
    let limits = ScanLimits { entries, deadline: Instant::now().checked_add(time), ..ScanLimits::default() };
    let report = match search.report() {
        Some(tell) => {
            let progress = |progress: ScanProgress| {
                tell(SearchProgress { entries: progress.entries, directories: progress.directories });
            };
            scan(&limits, Some(&progress))
        }
        None => scan(&limits, None),
    }?;
    tracing::info!(
        entries = report.entries,
        directories = report.directories,
        closed = report.closed,
        closed_one = ?report.first_closed,
        found = report.names.len(),
        more = report.omitted,
        "{done}"
    );
    Ok(report)
}
