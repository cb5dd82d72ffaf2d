//! One layout: what the guard says, what is true, and whether the two agree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::guard::{self, Decision, Grant, ProtectedSet};
use bailiwick::store::{StoreDir, StorePlace};
use bailiwick::{Error, ErrorKind, Field, Policy};

use crate::layout::{Layout, Place, Step};
use crate::oracle::{Held, Object, Reached, attack, open_up};

/// What came of layouts, by name.
#[derive(Debug, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn add(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// Asks the guard and the oracle about a layout, made at an empty place.
///
/// # Errors
/// Where they disagree, in words.
pub(crate) fn judge(layout: &Layout, place: &Place) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut lowers = Vec::new();
    for step in &layout.steps {
        if let Step::Overlay(overlay) = step {
            let paths = overlay.lowers.iter().map(|lower| place.at(lower));
            lowers.extend(paths.filter_map(|path| Some((object_at(&path)?, path))));
        }
        // A shorter layout, while one is shortened, may lack what a step needs.
        let _refused = place.make(step);
    }
    let wish = &layout.wish;
    let at = |path: &PathBuf| place.at(path);
    let store_path = place.at(&wish.store);
    let protect: Vec<PathBuf> = wish.protect.iter().map(at).collect();
    let policy = Policy {
        write_roots: wish.roots.iter().map(at).collect(),
        protect: protect.clone(),
        ..Policy::default()
    };
    let opened = wish.opened.then(|| open_store(&store_path)).and_then(Result::ok);
    tally.add(if opened.is_some() { "store: opened" } else { "store: placed" });
    let set = match &opened {
        Some(store) => ProtectedSet::for_session(store, &policy),
        None => StorePlace::find(&store_path)
            .and_then(|place| ProtectedSet::around_place(&place).protect(&policy.protect).build()),
    };
    let set = match set {
        Ok(set) => set,
        Err(error) => {
            tally.add(format!("no set: {}", error.code()));
            return Ok(tally);
        }
    };
    tally.add("layouts");
    let verdict = guard::explain(&policy, &set);
    let issued = guard::issue(&policy, set);
    if verdict.granted != issued.is_ok() {
        return Err(format!("`explain` says {}, `issue` says {issued:?}", verdict.granted));
    }
    let closed = Closed::look(&policy, [&store_path].into_iter().chain(&protect));
    open_up(&place.base);
    let roots: Vec<Option<Held>> =
        policy.write_roots.iter().map(|root| Held::open(root).ok().filter(is_directory)).collect();
    let objects: Vec<Object> =
        [&store_path].into_iter().chain(&protect).map(|path| Object::at(path)).collect();
    let all: Vec<&Held> = roots.iter().flatten().collect();
    let reached = attack(&place.all, &all, &objects);
    if reached.any().is_some() && by_names_alone(&policy, &objects) {
        tally.add("reached, and granted by names alone");
        tally.add(format!("reached, and granted by names alone: {}", kind_of(&verdict)));
    }
    let mut facts = Facts { layout, place, roots: &roots, objects: &objects, closed };
    match issued {
        Ok(grant) => {
            tally.add("granted");
            match reached.any() {
                None => facts.later(&grant, &mut tally)?,
                Some(_) if has_lost_a_layer(layout, &lowers) => tally.add(LOST),
                Some(what) => return Err(format!("granted, and a command reached it: {what}")),
            }
        }
        Err(first) => {
            tally.add("refused");
            for refusal in &verdict.refusals {
                let kinds = [ErrorKind::ProtectedNotAccessible, ErrorKind::StoreNotAccessible];
                let is_unreadable = kinds.contains(&refusal.kind()) && facts.closed.objects;
                if !is_unreadable {
                    return Err(format!("refused for no root: {refusal:?}, first {first:?}"));
                }
                tally.add("refusal: what is protected cannot be read");
            }
            // What is in the protected objects is not known then, so nothing is said of the roots.
            let looked = verdict.refusals.is_empty();
            for root in verdict.roots.iter().filter(|_| looked) {
                let alone: Vec<&Held> = roots.get(root.index).into_iter().flatten().collect();
                let only_one = policy.write_roots.len() == 1;
                let again = (!only_one).then(|| attack(&place.all, &alone, &objects));
                let reached = again.as_ref().unwrap_or(&reached);
                match (root.decision, reached.any()) {
                    (Decision::Refused, _) => {}
                    (_, None) => continue,
                    (_, Some(_)) if has_lost_a_layer(layout, &lowers) => {
                        tally.add(LOST);
                        continue;
                    }
                    // A root that is not granted may cover it.
                    (Decision::Covered(by), Some(_))
                        if verdict.roots.get(by).is_some_and(|by| by.decision == Decision::Refused) => {}
                    (decision, Some(what)) => {
                        return Err(format!(
                            "root {} is {decision:?}, and a command reached: {what}\n{:#?}",
                            root.index, root.comparisons
                        ));
                    }
                }
                for refusal in &root.refusals {
                    let reason = facts.explain(root.index, refusal, reached)?;
                    tally.add(format!("refusal: {reason}"));
                }
            }
        }
    }
    Ok(tally)
}

/// The one thing that is granted although it is reached, a limit of the guard that is written down.
const LOST: &str =
    "granted: the lower layer of an overlay was moved away, and another directory has its path (a limit)";

/// Whether a lower layer was moved or unmounted after its overlay was mounted, and its path leads to something else
/// since: the kernel tells nobody which directory a lower layer is.
fn has_lost_a_layer(layout: &Layout, lowers: &[((u64, u64), PathBuf)]) -> bool {
    let overlay = layout.steps.iter().position(|step| matches!(step, Step::Overlay(_)));
    let moves =
        |step: &Step| matches!(step, Step::Rename { .. } | Step::Unmount { .. } | Step::MoveMount { .. });
    let is_moved = overlay.is_some_and(|at| layout.steps.iter().skip(at).any(moves));
    is_moved && lowers.iter().any(|(before, path)| object_at(path).is_some_and(|now| now != *before))
}

fn object_at(path: &Path) -> Option<(u64, u64)> {
    Held::open(path).ok()?.identity().map(|(device, inode, _)| (device, inode))
}

/// A store is private: the layout does not say so.
fn open_store(path: &Path) -> Result<StoreDir, Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let _read_only = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    StoreDir::open_or_create(path)
}

fn is_directory(held: &Held) -> bool {
    held.file().metadata().is_ok_and(|found| found.is_dir())
}

fn is_accessible(path: &Path) -> bool {
    use rustix::fs::Access;
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// What a guard would say that compares canonical paths and nothing else.
fn by_names_alone(policy: &Policy, objects: &[Object]) -> bool {
    let canonical = |path: &Path| fs::canonicalize(path).ok();
    let meet = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    let objects: Vec<PathBuf> = objects.iter().filter_map(|object| canonical(&object.path)).collect();
    let mut roots = policy.write_roots.iter().filter_map(|root| canonical(root));
    !roots.any(|root| objects.iter().any(|object| meet(&root, object)))
}

/// By which alias the guard saw it.
fn kind_of(verdict: &guard::Verdict) -> String {
    let refusals = verdict.roots.iter().flat_map(|root| &root.refusals);
    let mut kinds: Vec<String> =
        refusals.map(|refusal| text(refusal, "alias").unwrap_or(refusal.code()).to_owned()).collect();
    kinds.sort();
    kinds.dedup();
    kinds.join(" ")
}

fn text<'a>(error: &'a Error, field: &str) -> Option<&'a str> {
    error.field(field).and_then(Field::as_text)
}

fn path<'a>(error: &'a Error, field: &str) -> Option<&'a Path> {
    error.field(field).and_then(Field::as_path)
}

/// What the host knows about a layout.
struct Facts<'a> {
    layout: &'a Layout,
    place: &'a Place,
    roots: &'a [Option<Held>],
    objects: &'a [Object],
    closed: Closed,
}

/// What could not be looked into when the guard was asked, by who may not read everything.
#[derive(Debug)]
struct Closed {
    /// Something protected.
    objects: bool,
    /// Each root, or something in it.
    roots: Vec<bool>,
    /// Whether this user can enter and write each root.
    accessible: Vec<bool>,
}

impl Closed {
    fn look<'p>(policy: &Policy, mut objects: impl Iterator<Item = &'p PathBuf>) -> Self {
        let is_closed = |path: &PathBuf| Object::at(path).is_partly_unreadable();
        Self {
            objects: objects.any(is_closed),
            roots: policy.write_roots.iter().map(is_closed).collect(),
            accessible: policy.write_roots.iter().map(|root| is_accessible(root)).collect(),
        }
    }
}

impl Facts<'_> {
    /// Says why a refusal is right: it was shown by a write, or it is one of a few that need none, each with a fact
    /// that the host can see.
    fn explain(&self, index: usize, refusal: &Error, reached: &Reached) -> Result<String, String> {
        let unexplained = || Err(format!("a refusal that nothing shows or explains: {}", refusal.report()));
        let Some(held) = self.roots.get(index) else { return unexplained() };
        let Some(root) = held else {
            return match refusal.kind() {
                ErrorKind::RootNotFound | ErrorKind::RootNotDirectory | ErrorKind::RootMissing => {
                    Ok("no directory is there".into())
                }
                _ => unexplained(),
            };
        };
        match refusal.kind() {
            ErrorKind::RootOverlap => self.explain_overlap(root, refusal, reached),
            ErrorKind::LinkSearchStopped if self.closed.roots.get(index) == Some(&true) => {
                Ok("a root that cannot be searched".into())
            }
            ErrorKind::RootNotAccessible if self.closed.accessible.get(index) == Some(&false) => {
                Ok("not accessible".into())
            }
            ErrorKind::RootUnprovable => {
                let fact = text(refusal, "fact").unwrap_or_default();
                // Never for what has no overlay in it and is open to this user.
                let is_closed = |step: &Step| matches!(step, Step::Mode { .. });
                let steps = self.layout.steps.iter().chain(&self.layout.later);
                let has_reason =
                    steps.clone().any(|step| matches!(step, Step::Overlay(_)) || is_closed(step));
                let why = [
                    "nothing is at its path",
                    "another directory",
                    "relative path",
                    "cannot be opened",
                    "overlay itself",
                    "not in the mount table",
                    "cannot look",
                ];
                let why = why.into_iter().find(|why| fact.contains(why)).unwrap_or(fact);
                let shown = if reached.any().is_some() { "shown" } else { "not shown" };
                if has_reason { Ok(format!("unprovable ({shown}): {why}")) } else { unexplained() }
            }
            _ => unexplained(),
        }
    }

    fn explain_overlap(&self, root: &Held, refusal: &Error, reached: &Reached) -> Result<String, String> {
        let relation = text(refusal, "relation").unwrap_or_default();
        let kind = text(refusal, "alias").unwrap_or(relation);
        let protected = path(refusal, "protected").unwrap_or(Path::new(""));
        let same = |object: &&Object| {
            fs::canonicalize(&object.path).is_ok_and(|path| path == protected) || object.path == protected
        };
        // The runtime home is a part of the store.
        let inside = |object: &&Object| protected.starts_with(&object.path);
        let objects = || self.objects.iter().enumerate();
        let object = objects()
            .find(|(_, object)| same(object))
            .or_else(|| objects().find(|(_, object)| inside(object)));
        if let Some((number, _)) = object
            && reached.0.get(number).is_some_and(Option::is_some)
        {
            return Ok(format!("{kind}, shown"));
        }
        // By its name it lies in a protected directory, or in another place where that is seen; but a mount lies between,
        // and the protected directory does not show it. The guard asks for no proof of that.
        let lies = text(refusal, "lies").unwrap_or(relation);
        let shows = |held: &Held| object.is_some_and(|(_, object)| object.shows(held));
        if lies == "inside" && !shows(root) {
            return Ok(format!("{kind}, inside but for a mount"));
        }
        // A part of a protected directory that a mount covers there. It comes to light when that is unmounted.
        let other = path(refusal, "other_name").and_then(|name| Held::open(name).ok());
        if kind == "mount" && other.is_some_and(|other| !shows(&other)) {
            return Ok(format!("{kind}, covered where it is protected"));
        }
        if is_read_only(root.name())
            || path(refusal, "other_name").is_some_and(is_read_only)
            || is_read_only(protected)
        {
            return Ok(format!("{kind}, read-only"));
        }
        // Written directly into the directory that an overlay writes to: the overlay need not notice.
        if kind == "hard-link"
            && is_overlay(&root.name())
            && path(refusal, "other_name").is_some_and(|name| !is_overlay(name))
        {
            return Ok("hard-link, in the directory that the overlay writes to".into());
        }
        if !can_make(&root.name()) {
            return Ok(format!("{kind}, nobody can make anything in the root"));
        }
        match kind {
            // One root of a stack as a whole: what a name in a layer is called in the overlay is not known.
            "overlay-layer" if self.has_overlay(protected) => Ok("overlay-layer, as a whole".into()),
            "overlay-merged" if self.holds_work(protected) => {
                Ok("overlay-merged, by its work directory".into())
            }
            _ => Err(format!("nothing shows this refusal: {} (reached: {reached:?})", refusal.report())),
        }
    }

    /// Whether something in it, or it, lies on an overlay.
    fn has_overlay(&self, protected: &Path) -> bool {
        let steps = self.layout.steps.iter().chain(&self.layout.later);
        let points = steps.filter_map(|step| match step {
            Step::Overlay(overlay) => Some(self.place.at(&overlay.at)),
            _ => None,
        });
        let mut seen: Vec<PathBuf> = points.filter(|point| point.starts_with(protected)).collect();
        // What does not exist yet lies where its directory lies.
        seen.extend(protected.ancestors().find(|path| path.exists()).map(Path::to_owned));
        let inside = self.objects.iter().filter(|object| object.path == protected).flat_map(Object::paths);
        seen.into_iter().chain(inside).any(|path| is_overlay(&path))
    }

    /// Whether it lies in, or holds, a work directory of an overlay: the kernel makes one called `work` in it.
    fn holds_work(&self, protected: &Path) -> bool {
        let above = protected.ancestors().any(|path| path.join("work").is_dir());
        above
            || crate::layout::Sight::of(protected, 10_000)
                .directories
                .iter()
                .any(|path| path.ends_with("work"))
    }

    /// What somebody does between two commands is noticed when it matters, and hinders nobody when it does not.
    fn later(&mut self, grant: &Grant, tally: &mut Tally) -> Result<(), String> {
        if let Err(error) = grant.recheck() {
            return Err(format!("nothing changed, and the grant is refused: {}", error.report()));
        }
        let mut made = 0;
        for step in &self.layout.later {
            made += u32::from(self.place.make(step).is_ok());
        }
        let rechecked = grant.recheck();
        self.closed = Closed::look(grant.policy(), self.objects.iter().map(|object| &object.path));
        open_up(&self.place.base);
        // Roots in other roots were left out of the grant.
        let given = self.layout.wish.roots.iter().map(|root| self.place.at(root)).zip(self.roots);
        let is_granted = |path: &Path| grant.roots().iter().any(|root| root.given() == path);
        let kept: Vec<&Held> =
            given.filter(|(path, _)| is_granted(path)).filter_map(|(_, root)| root.as_ref()).collect();
        let reached = attack(&self.place.all, &kept, self.objects);
        match (rechecked, reached.any()) {
            (Ok(()), None) => tally.add(if made > 0 { "later: passes" } else { "later: nothing changed" }),
            (Ok(()), Some(what)) => {
                // Documented: a directory that is moved with a further name of a file that had it all along.
                let moves_directory =
                    self.layout.later.iter().any(|step| matches!(step, Step::Rename { .. }));
                let again = guard::issue(grant.policy(), grant.protected().clone());
                let is_link =
                    again.as_ref().err().and_then(|error| text(error, "alias")) == Some("hard-link");
                if moves_directory && is_link {
                    tally.add("later: a directory with a further name was moved in (documented)");
                    return Ok(());
                }
                return Err(format!(
                    "rechecked, and a command reached it: {what}; a new grant: {:?}",
                    again.err()
                ));
            }
            (Err(error), Some(_)) => tally.add(format!("later: refused, shown ({})", error.code())),
            (Err(error), None) => {
                let reason = self.explain_later(grant, &error, &reached)?;
                tally.add(format!("later: refused, {reason}"));
            }
        }
        Ok(())
    }

    fn explain_later(&self, grant: &Grant, error: &Error, reached: &Reached) -> Result<String, String> {
        let index = error
            .field("root_index")
            .and_then(Field::as_number)
            .and_then(|index| usize::try_from(index).ok());
        let Some(index) = index else {
            return match error.kind() {
                // Or a mount covers what is above it.
                ErrorKind::ProtectedNotAccessible
                | ErrorKind::StoreNotAccessible
                | ErrorKind::ProtectedNotFound
                    if self.closed.objects
                        || self.objects.iter().any(|object| {
                            object.held.as_ref().is_some_and(|held| !held.is_at_its_name())
                        }) =>
                {
                    Ok("what is protected is nowhere any more".into())
                }
                _ => Err(format!("refused without a root: {}", error.report())),
            };
        };
        match error.kind() {
            ErrorKind::RootMissing | ErrorKind::RootIdentityChanged => {
                let canonical =
                    grant.roots().iter().find(|root| Some(root.canonical()) == path(error, "canonical"));
                let now = canonical
                    .and_then(|root| Held::open(root.canonical()).ok())
                    .as_ref()
                    .and_then(Held::identity);
                let then = self.roots.get(index).and_then(Option::as_ref).and_then(Held::identity);
                if now != then || now.is_none() {
                    Ok("the root is another".into())
                } else {
                    Err(format!("the root is where it was: {}", error.report()))
                }
            }
            _ => self.explain(index, error, reached),
        }
    }
}

fn is_read_only(path: impl AsRef<Path>) -> bool {
    rustix::fs::statvfs(path.as_ref())
        .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Whether this process, which nothing confines, can make a file in a directory.
fn can_make(directory: &Path) -> bool {
    let path = directory.join("mark.host");
    let made = fs::File::create_new(&path);
    made.is_ok() && fs::remove_file(&path).is_ok()
}

fn is_overlay(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type == 0x794c_7630)
}
