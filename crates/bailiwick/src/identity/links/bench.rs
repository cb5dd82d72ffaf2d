//! A door for the benchmark `links`, which cannot reach into the crate otherwise. Not part of the API.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use super::super::pinned::PinnedDir;
use super::glance::Glance;
use super::{Inventory, ScanLimits, Start, Target, WalkLimits, scan};

/// Scans a directory for other names of files: the names, and how many entries and directories were looked at.
///
/// # Errors
/// What stopped it, in words.
pub fn scan_for(
    dir: &PinnedDir,
    files: &[&File],
    threads: usize,
) -> Result<(Vec<PathBuf>, u64, u64), String> {
    let target = |file: &&File| Glance::at(file).map(|glance| glance.target());
    let targets: Vec<Target> =
        files.iter().map(target).collect::<Result<_, _>>().map_err(|errno| errno.to_string())?;
    let start = Start { dir: dir.as_fd(), path: dir.canonical() };
    let limits = ScanLimits { threads, ..ScanLimits::default() };
    let report = scan(&[start], &targets, &limits, None).map_err(|stop| stop.to_string())?;
    let names = report.names.into_iter().map(|(_, name)| name).collect();
    Ok((names, report.entries, report.directories))
}

/// An inventory of a directory.
#[derive(Debug)]
pub struct Kept(Inventory);

impl Kept {
    /// Takes it.
    ///
    /// # Errors
    /// What is in the way, in words.
    pub fn take(dir: &PinnedDir) -> Result<Self, String> {
        let limits = WalkLimits { entries: u64::MAX, ..WalkLimits::default() };
        Inventory::take(dir, &limits).map(Self).map_err(|fault| fault.to_string())
    }

    /// Looks again; true if all is as it was.
    ///
    /// # Errors
    /// What is in the way, in words.
    pub fn is_fresh(&mut self) -> Result<bool, String> {
        self.0.refresh().map(super::linked::Freshness::is_same).map_err(|fault| fault.to_string())
    }
}
