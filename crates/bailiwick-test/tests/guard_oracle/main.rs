//! Generated layouts: the guard against a process that really tries to write.
//!
//! A layout is a random tree of directories, files, links and mounts, with a store, a few protected objects and a few
//! write roots somewhere in it. The guard says whether the roots may be granted. The oracle says what is true: under
//! the naive Landlock wrapper, with the same roots, a process marks everything that it can, and the host looks whether
//! something protected has changed. Nothing that is reached may be granted; what is refused must be reached, or
//! stand on a short list of reasons, each with a fact that the host can see; at least half of the layouts are granted.
//!
//! `BAILIWICK_TEST_LAYOUTS` runs so many fresh seeds in each case instead of a few. A failure prints its seed and a layout
//! that was shortened as far as it still fails; `BAILIWICK_TEST_SEED` runs one seed alone.

#![cfg(test)]

mod generate;
mod judge;
mod layout;
mod oracle;
mod sys;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bailiwick_test::host::{self, Host};
use bailiwick_test::{Need, Places, World, process, requires, root_cases, user_cases, wait_until};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};

use generate::{Means, generate};
use judge::{Tally, judge};
use layout::{Layout, Place};

/// Where the layouts of a case are made.
struct Ground {
    /// The directory that becomes the base of each layout.
    base: PathBuf,
    all: PathBuf,
    /// A fresh directory in it is mounted on the base; without one, a fresh tmpfs, or nothing at all.
    disk: Option<PathBuf>,
    /// Where layouts get directories of other file systems from.
    foreign: Vec<PathBuf>,
    mounts: bool,
    userxattr: bool,
    made: std::cell::Cell<u64>,
}

impl Ground {
    /// Runs `body` at an empty place.
    fn with_place<T>(&self, body: impl FnOnce(&Place) -> T) -> T {
        let number = self.made.get();
        self.made.set(number + 1);
        let fresh = |disk: &PathBuf| {
            let directory = disk.join(format!("n{number}"));
            fs::create_dir(&directory).unwrap();
            directory
        };
        let foreign: Vec<PathBuf> = self.foreign.iter().map(fresh).collect();
        let own = self.disk.as_ref().map(fresh);
        match &own {
            Some(own) if self.mounts => mount_bind(own, &self.base).unwrap(),
            None if self.mounts => {
                mount("tmpfs", &self.base, "tmpfs", MountFlags::empty(), c"size=64m").unwrap()
            }
            _ => {}
        }
        let base = if self.mounts { self.base.clone() } else { own.clone().unwrap() };
        let all = if self.mounts { self.all.clone() } else { base.clone() };
        let place = Place { base, all, foreign: foreign.clone(), userxattr: self.userxattr };
        let result = body(&place);
        // As often as something was mounted on it; at last it is no mount point.
        while self.mounts && unmount(&self.base, UnmountFlags::DETACH).is_ok() {}
        for directory in foreign.iter().chain(&own) {
            oracle::open_up(directory);
            fs::remove_dir_all(directory)
                .unwrap_or_else(|error| panic!("remove {}: {error}", directory.display()));
        }
        result
    }
}

/// Seeds of mounts on tmpfs that have shown a fault of the guard once.
const KNOWN: [u64; 10] = [
    998242714065426,
    998242714066473,
    998502841213667,
    998502841214235,
    998502841214564,
    998593831103488,
    998593831103818,
    998593831104027,
    998593831104704,
    999302619716432,
];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The seeds of a run: those that are known, what is fixed, and some that nobody has tried.
fn seeds(known: &[u64], fixed: u64, fresh: u64) -> Vec<u64> {
    if let Some(seed) = variable("BAILIWICK_TEST_SEED") {
        return vec![seed];
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let first = u64::try_from(now % 1_000_000_000_000_000).unwrap();
    let fresh = variable("BAILIWICK_TEST_LAYOUTS").unwrap_or(fresh);
    known.iter().copied().chain(1..=fixed).chain((0..fresh).map(|number| first + number)).collect()
}

/// Judges every seed, and says what came of them all.
fn run(ground: &Ground, means: Means, seeds: &[u64]) -> Tally {
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for seed in seeds {
        let layout = ground.with_place(|place| generate(*seed, means, place));
        match ground.with_place(|place| judge(&layout, place)) {
            Ok(one) => tally.merge(one),
            Err(why) => {
                let (short, why) = shorten(ground, layout, why);
                failures.push(format!("{why}\n{short}"));
                if failures.len() == 5 {
                    break;
                }
            }
        }
    }
    let counts: Vec<String> = tally.0.iter().map(|(what, count)| format!("  {count:6} {what}")).collect();
    let counts = counts.join("\n");
    eprintln!("{means:?}, {} seeds up to {:?}:\n{counts}", seeds.len(), seeds.last());
    assert!(failures.is_empty(), "{} layouts failed:\n{}", failures.len(), failures.join("\n"));
    tally
}

/// Leaves steps out as long as it still fails.
fn shorten(ground: &Ground, mut layout: Layout, mut why: String) -> (Layout, String) {
    let mut at = layout.steps.len() + layout.later.len();
    while at > 0 {
        at -= 1;
        let mut shorter = layout.clone();
        if at < shorter.steps.len() {
            shorter.steps.remove(at);
        } else {
            shorter.later.remove(at - shorter.steps.len());
        }
        let kind = |why: &str| why.split(':').next().map(str::to_owned);
        if let Err(still) = ground.with_place(|place| judge(&shorter, place))
            && kind(&still) == kind(&why)
        {
            (layout, why) = (shorter, still);
        }
    }
    (layout, why)
}

/// Holds the counts to what was promised. Too few layouts prove nothing.
#[track_caller]
fn assert_shares(tally: &Tally) {
    if variable("BAILIWICK_TEST_SEED").is_some() {
        return;
    }
    let (layouts, granted) = (tally.count("layouts"), tally.count("granted"));
    assert!(granted * 2 >= layouts, "{granted} of {layouts} layouts are granted");
    assert!(tally.count("refused") * 10 >= layouts, "hardly anything is refused");
    assert!(tally.count("reached, and granted by names alone") > 0, "no layout needs more than names");
}

fn directory(path: PathBuf) -> PathBuf {
    fs::create_dir(&path).unwrap_or_else(|error| panic!("make {}: {error}", path.display()));
    path
}

/// Runs a program that must succeed.
fn ran(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A file system in a file, mounted.
fn disk(places: &Places, kind: &str) -> PathBuf {
    let (image, at) = (places.join(format!("{kind}.image")), directory(places.join(kind)));
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    ran(&format!("mkfs.{kind}"), &[Path::new("-q"), &image]);
    ran("mount", &[Path::new("-o"), Path::new("loop"), &image, &at]);
    at
}

fn memory(places: &Places, name: &str) -> PathBuf {
    let at = directory(places.join(name));
    mount("tmpfs", &at, "tmpfs", MountFlags::empty(), None).unwrap();
    at
}

fn ground(places: &Places, disk: Option<PathBuf>, foreign: Vec<PathBuf>) -> Ground {
    let base = directory(places.join("L"));
    let all = places.path().to_owned();
    Ground { base, all, disk, foreign, mounts: true, userxattr: false, made: std::cell::Cell::new(0) }
}

fn names_only(world: &World) {
    requires!(Need::Landlock, "the oracle is confined by it");
    let places = Places::of(world);
    let disk = Some(directory(places.join("D")));
    let ground = Ground { mounts: false, ..ground(&places, disk, Vec::new()) };
    assert_shares(&run(&ground, Means::Names, &seeds(&[], 80, 10)));
}

user_cases! {
    /// What a plain user can make without mounts.
    fn oracle_names(world: &World, seconds = 3600) {
        names_only(world);
    }

    /// A plain user with mounts of their own, in a user namespace.
    fn oracle_mounts_of_a_user(world: &World, seconds = 3600) {
        requires!(Need::Landlock, "the oracle is confined by it");
        let places = Places::of(world);
        let mut command = Host::command(&places, "host", "in-user-namespace");
        sys::with_user_namespace(&mut command);
        for name in ["BAILIWICK_TEST_TOOLS", "BAILIWICK_TEST_LAYOUTS", "BAILIWICK_TEST_SEED"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let host = Host::start(&places, command);
        let start = process::start_time(host.pid()).unwrap_or_default();
        // As long as it takes: how many layouts there are is the caller's to say.
        let _ended = wait_until(Duration::from_secs(3600), || process::pid_ended(host.pid(), start));
        host.finish();
    }
}

root_cases! {
    /// Mounts of every kind, on tmpfs, with ext4 beside it.
    fn oracle_mounts_on_tmpfs(world: &World) {
        requires!(Need::Landlock, "the oracle is confined by it");
        let places = Places::of(world);
        let tally = sys::with_private_mounts(|| {
            let foreign = vec![disk(&places, "ext4"), memory(&places, "M")];
            run(&ground(&places, None, foreign), Means::Mounts, &seeds(&KNOWN, 190, 20))
        });
        assert_shares(&tally);
    }

    /// The same on ext4.
    fn oracle_mounts_on_ext4(world: &World) {
        requires!(Need::Landlock, "the oracle is confined by it");
        let places = Places::of(world);
        let tally = sys::with_private_mounts(|| {
            let foreign = vec![memory(&places, "M"), memory(&places, "N")];
            let ext4 = disk(&places, "ext4");
            run(&ground(&places, Some(ext4), foreign), Means::Mounts, &seeds(&[], 80, 10))
        });
        assert_shares(&tally);
    }

    /// The same on btrfs, with subvolumes and snapshots.
    fn oracle_mounts_on_btrfs(world: &World) {
        requires!(Need::Landlock, "the oracle is confined by it");
        requires!(Need::Btrfs, "subvolumes and snapshots");
        let places = Places::of(world);
        let tally = sys::with_private_mounts(|| {
            let foreign = vec![memory(&places, "M"), disk(&places, "ext4")];
            let btrfs = disk(&places, "btrfs");
            run(&ground(&places, Some(btrfs), foreign), Means::Subvolumes, &seeds(&[], 60, 10))
        });
        assert_shares(&tally);
    }
}

#[test]
#[ignore = "run by a case of this file in a process of its own"]
fn host() {
    host::play(&[("in-user-namespace", in_user_namespace)]);
}

/// The mounts are this process's own.
fn in_user_namespace(places: &Places) {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    let foreign = vec![memory(places, "M"), memory(places, "N")];
    let ground = Ground { userxattr: true, ..ground(places, None, foreign) };
    assert_shares(&run(&ground, Means::Mounts, &seeds(&[], 80, 10)));
}
