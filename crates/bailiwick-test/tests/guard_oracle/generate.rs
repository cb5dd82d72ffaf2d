//! Random layouts from a seed.

use std::path::{Path, PathBuf};

use crate::layout::{Layout, Overlay, Place, Sight, Step, Wish};

/// A stream of numbers that depends on its seed alone (SplitMix64).
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }
}

/// What a layout may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// What a plain user has: directories, files, links, renames, modes.
    Names,
    /// The same without modes, which bind no root; and every kind of mount.
    Mounts,
    /// The same on btrfs, with subvolumes and snapshots.
    Subvolumes,
}

/// So many names at most are seen in a layout while it is made.
const LIMIT: usize = 300;

/// The names of directories: few, so that one is given anew after a rename.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Maker<'a> {
    chance: Chance,
    place: &'a Place,
    means: Means,
    steps: Vec<Step>,
    sight: Sight,
    /// Directories that overlays are made of, as they were called then.
    layers: Vec<PathBuf>,
}

/// Makes a random layout at an empty place and returns what it did.
pub(crate) fn generate(seed: u64, means: Means, place: &Place) -> Layout {
    let chance = Chance::new(seed);
    let mut maker =
        Maker { chance, place, means, steps: Vec::new(), sight: Sight::default(), layers: Vec::new() };
    maker.look();
    maker.plant();
    for _ in 0..maker.chance.below(9) {
        maker.any_step();
    }
    let mut wish = maker.wish();
    let aimed = match maker.chance.below(100) {
        0..40 => 0,
        40..82 => 1,
        _ => 2,
    };
    for _ in 0..aimed {
        maker.aimed_step(&wish);
    }
    for _ in 0..2 {
        if maker.chance.percent(20) {
            maker.any_step();
        }
    }
    // What was wished for may have been moved or covered meanwhile.
    let there = |path: &PathBuf| place.at(path).exists();
    wish.protect.retain(there);
    wish.roots.retain(|root| place.at(root).is_dir());
    if maker.chance.percent(5) {
        wish.store.push("new");
    }
    let is_placed = |wish: &Wish| {
        let at = place.at(&wish.store);
        at.is_dir() || at.parent().is_some_and(Path::is_dir)
    };
    if !is_placed(&wish) || wish.roots.is_empty() {
        let again = maker.wish();
        wish.roots.extend(again.roots);
        if !is_placed(&wish) {
            wish.store = again.store;
        }
    }
    let steps = std::mem::take(&mut maker.steps);
    for _ in 0..1 + maker.chance.below(2) {
        if maker.chance.percent(50) {
            maker.aimed_step(&wish);
        } else {
            maker.any_step();
        }
    }
    Layout { seed, steps, wish, later: maker.steps }
}

impl Maker<'_> {
    fn look(&mut self) {
        self.sight = Sight::of(&self.place.base, LIMIT);
    }

    /// Does a step if the kernel lets it.
    fn try_step(&mut self, step: Step) -> bool {
        if let Step::Rename { from, .. } = &step
            && self.is_in_a_layer(from)
        {
            return false;
        }
        let is_made = self.place.make(&step).is_ok();
        if is_made {
            if let Step::Overlay(overlay) = &step {
                let written = overlay.written.iter().flat_map(|(upper, work)| [upper, work]);
                self.layers.extend(overlay.lowers.iter().chain(written).map(|layer| self.place.at(layer)));
            }
            self.steps.push(step);
            self.look();
        }
        is_made
    }

    /// Whether something lies inside a directory that an overlay is made of. The kernel does not say what the overlay
    /// shows after such a thing was moved ("undefined", by its documentation): it may go on writing to where it went.
    /// That a layer as a whole is moved is a case of its own, and belongs to the layouts.
    fn is_in_a_layer(&self, path: &Path) -> bool {
        let Some(holder) = path.parent().and_then(|above| identity(&self.place.at(above))) else {
            return false;
        };
        let inside = |layer: &PathBuf| {
            let below = Sight::of(layer, LIMIT).directories;
            below.iter().any(|directory| identity(&layer.join(directory)) == Some(holder))
        };
        self.layers.iter().any(inside)
    }

    fn directory(&mut self) -> PathBuf {
        self.chance.pick(&self.sight.directories).cloned().unwrap_or_default()
    }

    /// A directory that is not the base.
    fn inner(&mut self) -> PathBuf {
        match self.sight.directories.len() {
            0 | 1 => PathBuf::new(),
            many => {
                let at = 1 + self.chance.below(many - 1);
                self.sight.directories.get(at).cloned().unwrap_or_default()
            }
        }
    }

    fn name(&mut self) -> &'static str {
        self.chance.pick(&NAMES).copied().unwrap_or("a")
    }

    /// A name that nothing has, most of the time.
    fn fresh(&mut self) -> PathBuf {
        let above = self.directory();
        above.join(self.name())
    }

    /// The tree that everything begins with.
    fn plant(&mut self) {
        for _ in 0..6 + self.chance.below(6) {
            let above = match self.chance.percent(35) {
                true => PathBuf::new(),
                false => self.directory(),
            };
            if above.components().count() < 4 {
                let at = above.join(self.name());
                self.try_step(Step::Directory(at));
            }
        }
        for number in 0..3 + self.chance.below(4) {
            let at = self.directory().join(format!("f{number}"));
            self.try_step(Step::File(at));
        }
    }

    /// A directory on the way to what was wished for, in it, or itself.
    fn about(&mut self, path: &Path) -> PathBuf {
        let all: Vec<PathBuf> = match self.chance.below(5) {
            0 => path.ancestors().skip(1).map(Path::to_owned).collect(),
            1 | 2 => self.sight.directories.iter().filter(|at| at.starts_with(path)).cloned().collect(),
            _ => vec![path.to_owned()],
        };
        self.chance.pick(&all).cloned().unwrap_or_default()
    }

    /// A step that may lead from a write root to something protected.
    fn aimed_step(&mut self, wish: &Wish) -> bool {
        let objects: Vec<PathBuf> = wish.protect.iter().chain([&wish.store]).cloned().collect();
        let object = self.chance.pick(&objects).cloned().unwrap_or_default();
        let root = self.chance.pick(&wish.roots).cloned().unwrap_or_default();
        let root = std::fs::canonicalize(self.place.at(&root))
            .ok()
            .and_then(|path| path.strip_prefix(&self.place.base).ok().map(Path::to_owned))
            .unwrap_or(root);
        let (one, other) = match self.chance.percent(70) {
            true => (self.about(&object), self.about(&root)),
            false => (self.about(&root), self.about(&object)),
        };
        let files = |maker: &Self, below: &Path| -> Vec<PathBuf> {
            maker.sight.files.iter().filter(|file| file.starts_with(below)).cloned().collect()
        };
        let kinds = if self.means == Means::Names { 4 } else { 10 };
        let step = match self.chance.below(kinds) {
            0 | 1 => {
                let files = files(self, &object);
                let Some(of) = self.chance.pick(&files).cloned() else { return false };
                Step::HardLink { of, at: other.join("linked") }
            }
            2 => Step::Rename { from: one, to: other.join(self.name()) },
            3 => {
                let files = files(self, &one);
                let Some(from) = self.chance.pick(&files).cloned() else { return false };
                Step::Rename { from, to: other.join("moved") }
            }
            4 => {
                let (ones, others) = (files(self, &one), files(self, &other));
                let (Some(of), Some(at)) =
                    (self.chance.pick(&ones).cloned(), self.chance.pick(&others).cloned())
                else {
                    return false;
                };
                Step::Bind { of, at, recursive: false }
            }
            5 => {
                let at = self.inner();
                let (upper, lower) = (one, other);
                Step::Overlay(self.overlay(at, upper, lower))
            }
            6 => Step::Tmpfs(other),
            _ => Step::Bind { of: one, at: other, recursive: self.chance.percent(40) },
        };
        self.step_of_growth(step)
    }

    /// Any step at all.
    fn any_step(&mut self) -> bool {
        let kinds = match self.means {
            Means::Names => 10,
            Means::Mounts => 26,
            Means::Subvolumes => 30,
        };
        let step = match self.chance.below(kinds) {
            0 | 1 => Step::Directory(self.fresh()),
            2 => {
                let number = self.steps.len();
                Step::File(self.directory().join(format!("f{number}")))
            }
            3 => {
                let target = self.directory();
                Step::Symlink { target: Path::new("/").join(target), at: self.fresh() }
            }
            4 | 5 => {
                let Some(of) = self.chance.pick(&self.sight.files).cloned() else { return false };
                let number = self.steps.len();
                Step::HardLink { of, at: self.directory().join(format!("l{number}")) }
            }
            6 => {
                let Some(from) = self.chance.pick(&self.sight.files).cloned() else { return false };
                let number = self.steps.len();
                Step::Rename { from, to: self.directory().join(format!("r{number}")) }
            }
            7 | 8 => Step::Rename { from: self.inner(), to: self.fresh() },
            9 if self.means == Means::Names => {
                let mode = self.chance.pick(&[0o000, 0o300, 0o500, 0o700]).copied().unwrap_or(0o700);
                Step::Mode { of: self.inner(), mode }
            }
            9..=12 => {
                Step::Bind { of: self.directory(), at: self.inner(), recursive: self.chance.percent(40) }
            }
            13 => {
                let Some(of) = self.chance.pick(&self.sight.files).cloned() else { return false };
                let Some(at) = self.chance.pick(&self.sight.files).cloned() else { return false };
                Step::Bind { of, at, recursive: false }
            }
            14 | 15 => Step::Tmpfs(self.inner()),
            16 => Step::Foreign { which: self.chance.below(2), at: self.inner() },
            17..=19 => {
                let (at, upper, lower) = (self.inner(), self.inner(), self.directory());
                Step::Overlay(self.overlay(at, upper, lower))
            }
            20 => Step::ReadOnly(self.inner()),
            21 => Step::Writable(self.inner()),
            22 => Step::MoveMount { from: self.inner(), to: self.inner() },
            23..=25 => Step::Unmount { at: self.inner(), lazily: self.chance.percent(50) },
            26 | 27 => Step::Subvolume(self.fresh()),
            _ => Step::Snapshot { of: self.inner(), at: self.fresh() },
        };
        self.step_of_growth(step)
    }

    /// Does a step that may make a layout grow, if it has not grown much.
    fn step_of_growth(&mut self, step: Step) -> bool {
        let grows = matches!(step, Step::Bind { .. } | Step::Overlay(_) | Step::Snapshot { .. });
        let seen = self.sight.directories.len() + self.sight.files.len();
        if grows && (self.sight.is_cut || seen > LIMIT / 3) {
            return false;
        }
        self.try_step(step)
    }

    fn overlay(&mut self, at: PathBuf, upper: PathBuf, lower: PathBuf) -> Overlay {
        let mut lowers = vec![lower];
        if self.chance.percent(30) {
            lowers.push(self.directory());
        }
        let written = self.chance.percent(85).then(|| {
            // On the file system of the upper directory, and not in it.
            let work = upper.parent().map_or_else(PathBuf::new, Path::to_owned).join("work");
            if self.chance.percent(15) {
                return (upper, self.inner());
            }
            self.try_step(Step::Directory(work.clone()));
            (upper, work)
        });
        let options = self.chance.pick(&["", "", ",xino=off", ",redirect_dir=on", ",index=on"]).copied();
        Overlay {
            lowers,
            written,
            at,
            relative: self.chance.percent(15),
            options: if self.place.userxattr { "" } else { options.unwrap_or("") },
        }
    }

    fn wish(&mut self) -> Wish {
        let deep: Vec<PathBuf> = {
            let deep = |path: &&PathBuf| path.components().count() >= 2;
            self.sight.directories.iter().filter(deep).cloned().collect()
        };
        let store = match self.chance.percent(75) {
            true => self.chance.pick(&deep).cloned().unwrap_or_else(|| self.inner()),
            false => self.inner(),
        };
        self.try_step(Step::File(store.join("db")));
        if self.chance.percent(50) {
            self.try_step(Step::Directory(store.join("sub")));
            self.try_step(Step::File(store.join("sub/db")));
        }
        let mut protect = Vec::new();
        if self.chance.percent(20) {
            protect.extend(self.chance.pick(&self.sight.files).cloned());
        }
        if self.chance.percent(15) {
            protect.push(self.inner());
        }
        let mut roots = Vec::new();
        for _ in 0..1 + self.chance.below(6) / 3 + self.chance.below(6) / 5 {
            // Most of the time one that by its very place neither holds nor lies in what is protected.
            let mut root = self.inner();
            for _ in 0..8 {
                let is_apart = |object: &PathBuf| lie_apart(&self.place.at(&root), &self.place.at(object));
                if self.chance.percent(4) || protect.iter().chain([&store]).all(is_apart) {
                    break;
                }
                root = self.inner();
            }
            if self.chance.percent(10) {
                let at = self.directory().join("link");
                if self.try_step(Step::Symlink { target: Path::new("/").join(&root), at: at.clone() }) {
                    root = at;
                }
            }
            roots.push(root);
        }
        Wish { store, opened: self.chance.percent(30), protect, roots }
    }
}

/// Whether neither of two objects is met on the way up from the other.
fn lie_apart(one: &Path, other: &Path) -> bool {
    let is_above = |above: &Path, path: &Path| {
        let above = identity(above);
        path.ancestors().any(|path| identity(path) == above)
    };
    !is_above(one, other) && !is_above(other, one)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
