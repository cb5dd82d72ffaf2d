//! Inventory and scan on real file systems. Each refusal has a twin that differs in one fact and succeeds.

mod deep;
mod filesystems;
mod inventory;
mod random;
mod scan;
mod single;
mod sys;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::super::object::Key;
use super::super::pinned::PinnedDir;
use super::glance::Glance;
use super::{ScanLimits, ScanReport, ScanStop, Start, Target};

/// Device and inode of what a path names, links not followed.
fn key(path: impl AsRef<Path>) -> Key {
    let found = fs::symlink_metadata(path).unwrap();
    Key { device: (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())), inode: found.ino() }
}

/// What a path names, as something to look for.
fn target(path: impl AsRef<Path>) -> Target {
    let path = path.as_ref();
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    Glance::entry(rustix::fs::CWD, &name).unwrap().target()
}

fn scan_within(starts: &[&Path], targets: &[Target], limits: &ScanLimits) -> Result<ScanReport, ScanStop> {
    let pinned: Vec<PinnedDir> = starts.iter().map(|start| PinnedDir::open(start).unwrap()).collect();
    let starts: Vec<Start<'_>> =
        pinned.iter().map(|dir| Start { dir: dir.as_fd(), path: dir.canonical() }).collect();
    super::scan(&starts, targets, limits, None)
}

/// Scans with one thread and with three, which must agree.
#[track_caller]
fn scan(start: impl AsRef<Path>, targets: &[Target]) -> ScanReport {
    let with = |threads| {
        let limits = ScanLimits { threads, ..ScanLimits::default() };
        scan_within(&[start.as_ref()], targets, &limits).unwrap()
    };
    let (alone, together) = (with(1), with(3));
    assert_eq!(alone.names, together.names);
    assert_eq!((alone.entries, alone.directories), (together.entries, together.directories));
    alone
}

/// By name: the report has them by number, which is the file system's to give.
fn names(report: &ScanReport) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = report.names.iter().map(|(_, name)| name.clone()).collect();
    names.sort();
    names
}

/// Makes a directory and those above it.
fn dir(path: impl AsRef<Path>) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    path.as_ref().to_owned()
}

/// Makes another name of a file.
fn link(file: impl AsRef<Path>, name: impl AsRef<Path>) -> PathBuf {
    fs::hard_link(file, &name).unwrap();
    name.as_ref().to_owned()
}
