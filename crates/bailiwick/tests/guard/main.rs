//! The guard and the store through the public API, as root and as a plain user.
//!
//! Every refusal has a twin that differs in one fact and is granted: without it, a broken fixture would look like a
//! refusal.

#![expect(clippy::unwrap_used, reason = "a helper that cannot do its part fails the case")]

mod aliases;
mod containers;
mod disks;
mod elsewhere;
mod filesystems;
mod host;
mod mounts;
mod overlap;
mod overlays;
mod recheck;
mod shape;
mod spelling;
mod store;
mod sys;

use std::path::{Path, PathBuf};

use bailiwick::guard::{self, Grant, ProtectedSet};
use bailiwick::store::StorePlace;
use bailiwick::{Error, ErrorKind, Field, Policy, Ran};
use bailiwick_test::World;

/// A policy with these write roots and nothing else.
fn roots<P: AsRef<Path>>(roots: &[P]) -> Policy {
    Policy { write_roots: roots.iter().map(|root| root.as_ref().to_owned()).collect(), ..Policy::default() }
}

/// The protected set of a session with its store at `P`, nothing made.
fn protected_at(store: impl AsRef<Path>) -> ProtectedSet {
    ProtectedSet::around_place(&StorePlace::find(store).unwrap()).build().unwrap()
}

/// Issues a grant for these roots, the store being `P`.
fn issue<P: AsRef<Path>>(world: &World, given: &[P]) -> Result<Grant, Error> {
    guard::issue(&roots(given), protected_at(world.private()))
}

/// The kind of the refusal.
fn refusal<P: AsRef<Path>>(world: &World, given: &[P]) -> Error {
    let error = issue(world, given).unwrap_err();
    assert_eq!(error.ran(), Ran::Nothing);
    assert!(!error.report().to_string().contains("--"), "a library names no flag: {}", error.report());
    error
}

fn text<'a>(error: &'a Error, field: &str) -> &'a str {
    error.field(field).and_then(Field::as_text).unwrap_or_else(|| panic!("no text {field} in {error:?}"))
}

fn path<'a>(error: &'a Error, field: &str) -> &'a Path {
    error.field(field).and_then(Field::as_path).unwrap_or_else(|| panic!("no path {field} in {error:?}"))
}

fn number(error: &Error, field: &str) -> i64 {
    error.field(field).and_then(Field::as_number).unwrap_or_else(|| panic!("no number {field} in {error:?}"))
}

#[track_caller]
fn assert_overlap(error: &Error, root: impl AsRef<Path>, protected: impl AsRef<Path>, relation: &str) {
    assert_eq!(error.kind(), ErrorKind::RootOverlap, "{error:?}");
    assert_eq!(path(error, "root"), root.as_ref());
    assert_eq!(path(error, "protected"), protected.as_ref());
    assert_eq!(text(error, "relation"), relation);
    assert_eq!(error.hints().len(), 1, "{error:?}");
}

/// The canonical paths of a grant's roots.
fn granted(grant: &Grant) -> Vec<PathBuf> {
    grant.roots().iter().map(|root| root.canonical().to_owned()).collect()
}

/// Makes a directory.
fn dir(path: impl AsRef<Path>) -> PathBuf {
    std::fs::create_dir_all(&path).unwrap();
    path.as_ref().to_owned()
}

/// Makes a symbolic link.
fn link(target: impl AsRef<Path>, at: impl AsRef<Path>) -> PathBuf {
    std::os::unix::fs::symlink(target, &at).unwrap();
    at.as_ref().to_owned()
}

/// The places of a world, for another thread: a world itself stays on its own.
#[derive(Debug, Clone)]
struct Places(PathBuf);

impl Places {
    fn of(world: &World) -> Self {
        Self(world.path().to_owned())
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn private(&self) -> PathBuf {
        self.0.join("P")
    }

    fn write_root(&self) -> PathBuf {
        self.0.join("W")
    }

    fn outside(&self) -> PathBuf {
        self.0.join("X")
    }
}
