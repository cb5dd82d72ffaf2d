//! What a grant costs to issue, and to check again before a command.
//!
//! `cargo bench -p bailiwick --bench guard`
//!
//! Medians of wall time in microseconds, and beside them the time of one bare `statx` in the same run: only the ratio
//! means something on another machine. Roots lie six directories deep; "side by side" are siblings. The protected set
//! is the store, its runtime home and this executable. Run as root it has a mount table of its own, of 50 mounts.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and fails where it cannot run"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailiwick::Policy;
use bailiwick::guard::{self, Grant, ProtectedSet};
use bailiwick::store::StoreDir;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const MOUNTS: usize = 50;
const SIDE_BY_SIDE: [usize; 4] = [1, 5, 20, 500];
const FILES_IN_STORE: [usize; 4] = [0, 100, 1_000, 10_000];
const FILES_IN_ROOT: [usize; 3] = [0, 1_000, 100_000];

fn main() {
    let place = tempfile::tempdir().unwrap();
    println!("{} mounts, one bare statx {:.2} us", mounts(place.path()), us(statx_of(place.path())));
    let store = StoreDir::open_or_create(place.path().join("store")).unwrap();
    println!("\n{:>14} {:>12} {:>12}", "roots", "issue us", "recheck us");
    for count in SIDE_BY_SIDE {
        let write_roots: Vec<PathBuf> = (0..count).map(|n| place.path().join(format!("a/b/c/{n}"))).collect();
        show(count, &store, write_roots);
    }
    println!("\n{:>14} {:>12} {:>12}", "files in root", "issue us", "recheck us");
    for count in FILES_IN_ROOT {
        let root = place.path().join(format!("root-{count}"));
        fs::create_dir(&root).unwrap();
        fill(&root, count);
        show(count, &store, vec![root]);
    }
    println!("\n{:>14} {:>12} {:>12}", "files in store", "issue us", "recheck us");
    for count in FILES_IN_STORE {
        fill(store.dir().canonical(), count);
        show(count, &store, vec![place.path().join("a/b/c/0")]);
    }
    drop(store);
    if rustix::process::geteuid().is_root() {
        // The temporary directory is removed with its mounts gone.
        for number in 0..MOUNTS {
            let point = place.path().join(format!("m{number}"));
            let _absent = rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn fill(directory: &Path, count: usize) {
    for number in 0..count {
        fs::write(directory.join(format!("f{number}")), "").unwrap();
    }
}

fn show(count: usize, store: &StoreDir, write_roots: Vec<PathBuf>) {
    for root in &write_roots {
        fs::create_dir_all(root).unwrap();
    }
    let policy = Policy { write_roots, ..Policy::default() };
    let protected = ProtectedSet::for_session(store, &policy).unwrap();
    let issue = || -> Grant { guard::issue(&policy, protected.clone()).unwrap() };
    let grant = issue();
    grant.recheck().unwrap();
    let issued = median(|| drop(issue()));
    let rechecked = median(|| grant.recheck().unwrap());
    println!("{count:>14} {:>12.1} {:>12.1}", us(issued), us(rechecked));
}

/// A mount table of its own, where that is permitted. How many mounts there are.
fn mounts(place: &Path) -> usize {
    if rustix::process::geteuid().is_root() {
        // SAFETY: nothing else runs in this process yet.
        #[expect(unsafe_code, reason = "a namespace of its own")]
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        for number in fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()..MOUNTS {
            let point = place.join(format!("m{number}"));
            fs::create_dir(&point).unwrap();
            mount("tmpfs", &point, "tmpfs", MountFlags::empty(), None).unwrap();
        }
    }
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}

fn statx_of(place: &Path) -> Duration {
    median(|| {
        statx(CWD, place, AtFlags::empty(), StatxFlags::BASIC_STATS).unwrap();
    })
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(mut act: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..300)
        .map(|_| {
            let begin = Instant::now();
            act();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
