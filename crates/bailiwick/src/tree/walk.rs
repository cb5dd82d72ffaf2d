//! Visiting everything below a directory.

use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use super::chain::Held;
use super::facts::{Facts, Kind};
use super::fault::At;
use super::list;
use super::reader::{Content, Reader};
use crate::error::Error;

/// What to do after a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Go on; into the entry, if it is a directory.
    Enter,
    /// Go on, and leave out what is in this directory.
    Skip,
    /// End the walk.
    Stop,
}

/// One entry of a walk.
#[derive(Debug)]
pub struct Visit<'v, 'a> {
    reader: &'v mut Reader<'a>,
    path: &'v Path,
    found: Result<&'v Held, &'v Error>,
}

impl Visit<'_, '_> {
    /// The path of the entry, relative to the pinned directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.path
    }

    /// What the entry is, if it may be read or entered.
    ///
    /// # Errors
    /// Why not. `TreeRefused` for what is neither file nor directory, for mount points and protected objects.
    pub fn found(&self) -> Result<&Facts, &Error> {
        self.found.map(|held| &held.facts)
    }

    /// Reads the file: the very one that was looked at, whatever its name leads to by now.
    ///
    /// # Errors
    /// As [`Reader::read`]; `TreeRefused` also when [`found`](Self::found) is an error.
    pub fn read(&mut self) -> Result<Content, Error> {
        let mut bytes = Vec::new();
        let facts = self.copy(&mut bytes)?;
        Ok(Content { bytes, facts })
    }

    /// Reads the file into a writer, a piece at a time.
    ///
    /// # Errors
    /// As [`Reader::copy`].
    pub fn copy(&mut self, to: &mut impl Write) -> Result<Facts, Error> {
        match self.found {
            Ok(held) => self.reader.copy_held(held, self.path, to),
            Err(error) => Err(At::entry(self.reader.dir.canonical(), self.path).refused_before(error)),
        }
    }
}

/// A directory that is being walked.
struct Level {
    /// `None`: the pinned directory itself.
    held: Option<Held>,
    names: IntoIter<CString>,
    listed: Facts,
    path: PathBuf,
}

pub(super) fn walk<'a, E: From<Error>>(
    reader: &mut Reader<'a>,
    path: &Path,
    mut visit: impl FnMut(&mut Visit<'_, 'a>) -> Result<Step, E>,
) -> Result<(), E> {
    let held = reader.reach(path)?;
    reader.directory(held.as_ref(), path)?;
    let top = path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).count();
    let mut levels = vec![list(reader, held, path.components().collect())?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            let changed = still(reader, level).err();
            let path = std::mem::take(&mut level.path);
            levels.pop();
            if let Some(error) = changed
                && tell(reader, &path, Err(&error), &mut visit)? == Step::Stop
            {
                return Ok(());
            }
            continue;
        };
        let path = level.path.join(OsString::from_vec(name.clone().into_bytes()));
        let tree = reader.dir.canonical();
        let at = At::entry(tree, &path);
        if top + levels.len() > reader.limits.depth {
            return Err(at.limit("depth", reader.limits.depth).into());
        }
        reader.budget.time(at)?;
        let level = levels.last();
        let dir = match level.and_then(|level| level.held.as_ref()) {
            Some(held) => std::os::fd::AsFd::as_fd(held),
            None => std::os::fd::AsFd::as_fd(reader.dir),
        };
        let found = reader.enter(dir, &OsString::from_vec(name.into_bytes()), &path).and_then(|held| {
            match held.facts.kind {
                Kind::File | Kind::Directory => Ok(held),
                other => Err(at.refused(other)),
            }
        });
        let step = tell(reader, &path, found.as_ref(), &mut visit)?;
        match (step, found) {
            (Step::Stop, _) => return Ok(()),
            (Step::Enter, Ok(held)) if held.facts.kind == Kind::Directory => {
                match list(reader, Some(held), path.clone()) {
                    Ok(level) => levels.push(level),
                    Err(error) if error.kind() == crate::ErrorKind::TreeLimit => return Err(error.into()),
                    Err(error) => {
                        if tell(reader, &path, Err(&error), &mut visit)? == Step::Stop {
                            return Ok(());
                        }
                    }
                }
            }
            (Step::Enter | Step::Skip, _) => {}
        }
    }
    Ok(())
}

fn tell<'a, E: From<Error>>(
    reader: &mut Reader<'a>,
    path: &Path,
    found: Result<&Held, &Error>,
    visit: &mut impl FnMut(&mut Visit<'_, 'a>) -> Result<Step, E>,
) -> Result<Step, E> {
    visit(&mut Visit { reader, path, found })
}

fn list(reader: &mut Reader<'_>, held: Option<Held>, path: PathBuf) -> Result<Level, Error> {
    let at = At::entry(reader.dir.canonical(), &path);
    let (names, listed) = match &held {
        Some(held) => list::names(held, &mut reader.budget, at)?,
        None => list::names(reader.dir, &mut reader.budget, at)?,
    };
    Ok(Level { held, names: names.into_iter(), listed, path })
}

/// Whether the names of a directory are those that were listed.
fn still(reader: &Reader<'_>, level: &Level) -> Result<(), Error> {
    let at = reader.at(&level.path);
    match &level.held {
        Some(held) => list::unchanged(held, &level.listed, at),
        None => list::unchanged(reader.dir, &level.listed, at),
    }
}
