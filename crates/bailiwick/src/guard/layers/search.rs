//! Searches of roots and protected objects for layers.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::super::links::{Stopped, run_bounded};
use super::Finding;
use super::compare::{Comparison, perhaps, work_directory};
use super::part::{Part, WantedBirth};
use crate::identity::{
    AliasKind, Birth, Fault, FileHandle, Key, Look, Node, Start, born_at, scan_for_births, scan_for_handles,
};

const SEARCHED: &str = "searched for layers of overlays";

impl Comparison<'_> {
    /// Looks for everything wanted of one part of the root by its handle.
    pub(super) fn search_for_handles(&mut self, part: &Part<'_>) -> Result<(), Stopped> {
        let Some((fd, node)) = directory(part)?.filter(|_| !part.handles.is_empty()) else { return Ok(()) };
        let mut seen = HashSet::new();
        let handles: Vec<FileHandle> = part
            .handles
            .iter()
            .map(|(handle, _)| handle)
            .filter(|handle| seen.insert(*handle))
            .cloned()
            .collect();
        let found = self.handles_in(node, fd, part.name, &handles)?;
        // The upper directory first, then what is next to the overlay's root: handles come in that order.
        let rank = |key: Key| handles.iter().position(|handle| handle.inode() == Some(key.inode()));
        let mut ranked: Vec<_> = found.into_iter().map(|(key, name)| (rank(key), key, name)).collect();
        ranked.sort_by_key(|(rank, ..)| rank.unwrap_or(usize::MAX));
        let mut told = HashSet::new();
        for (rank, key, name) in ranked {
            for (handle, object) in &part.handles {
                let is_it = rank.is_none() || handle.inode() == Some(key.inode());
                if !is_it || !told.insert(*object) {
                    continue;
                }
                if rank.is_some() {
                    let alias = part.with_alias(AliasKind::OverlayLayer, name.clone(), key);
                    self.found.push((*object, Finding::Alias(alias)));
                } else {
                    self.doubt_any(*object, work_directory(&name));
                }
            }
        }
        Ok(())
    }

    /// Looks for everything wanted of one part of the root by its birth time.
    pub(super) fn search_for_births(&mut self, part: &Part<'_>) -> Result<(), Stopped> {
        let Some((fd, node)) = directory(part)?.filter(|_| !part.births.is_empty()) else { return Ok(()) };
        let mut found = self.births_in(node, fd, part.name, &part.births)?;
        // The upper directory first, as above; work directories last.
        found.sort_by_key(|(born, _)| {
            let at = part.births.iter().position(|wanted| Some(wanted.born) == *born);
            at.unwrap_or(usize::MAX)
        });
        let mut told = HashSet::new();
        for (born, name) in found {
            let is_it = |wanted: &&WantedBirth| born.is_none_or(|born| wanted.born == born);
            for wanted in part.births.iter().filter(is_it) {
                if told.insert(wanted.object) {
                    let undecided = match born {
                        Some(_) => perhaps(&name, &Path::new("/").join(&wanted.path)),
                        None => work_directory(&name),
                    };
                    self.doubt_any(wanted.object, undecided);
                }
            }
        }
        Ok(())
    }

    /// Searches a directory for objects, but for those of which it is known that it does not hold them.
    pub(super) fn handles_in(
        &mut self,
        node: Node,
        dir: BorrowedFd<'_>,
        name: &Path,
        handles: &[FileHandle],
    ) -> Result<Vec<(Key, PathBuf)>, Stopped> {
        let known = &self.known.handles;
        let handles: Vec<FileHandle> =
            handles.iter().filter(|handle| !known.contains(&(node, (*handle).clone()))).cloned().collect();
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        let start = Start { dir, path: name };
        let report = run_bounded(self.protected, SEARCHED, |limits, progress| {
            scan_for_handles(&[start], &handles, limits, progress)
        });
        let report = report.map_err(Stopped::Layers)?;
        if report.names.is_empty() {
            self.known.handles.extend(handles.into_iter().map(|handle| (node, handle)));
        }
        Ok(report.names)
    }

    /// The same for directories by their birth times. What may be one comes with its birth time, and what has the form
    /// of a work directory without.
    pub(super) fn births_in(
        &mut self,
        node: Node,
        dir: BorrowedFd<'_>,
        name: &Path,
        wanted: &[WantedBirth],
    ) -> Result<Vec<(Option<Birth>, PathBuf)>, Stopped> {
        let births: HashSet<Birth> = wanted
            .iter()
            .map(|wanted| wanted.born)
            .filter(|born| !self.known.births.contains(&(node, *born)))
            .collect();
        if births.is_empty() {
            return Ok(Vec::new());
        }
        let start = Start { dir, path: name };
        let report = run_bounded(self.protected, SEARCHED, |limits, progress| {
            scan_for_births(&[start], &births, limits, progress)
        });
        let report = report.map_err(Stopped::Layers)?;
        let mut found = Vec::new();
        for (_, name) in report.names {
            let born = born_at(&name)?.filter(|born| births.contains(born));
            let mut is_apart = born.is_some();
            for wanted in wanted.iter().filter(|wanted| Some(wanted.born) == born) {
                let stack = self.stack(wanted.overlay)?;
                is_apart &= match stack {
                    Some(stack) => stack.is_other(&wanted.path, &name)?,
                    None => false,
                };
            }
            if !is_apart {
                found.push((born, name));
            }
        }
        if report.omitted > 0 {
            found.push((births.iter().next().copied(), name.into()));
        }
        if found.is_empty() {
            self.known.births.extend(births.into_iter().map(|born| (node, born)));
        }
        Ok(found)
    }
}

/// A part that is a directory; a file has been compared itself.
fn directory<'a>(part: &Part<'a>) -> Result<Option<(BorrowedFd<'a>, Node)>, Fault> {
    let Some(fd) = part.fd else { return Ok(None) };
    let look = Look::at(fd, part.name)?;
    Ok((look.file_type == FileType::Directory).then(|| (fd, look.id.node())))
}
