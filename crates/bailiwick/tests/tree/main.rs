//! The reader and the remover of trees through the public API, as root and as a plain user.
//!
//! Every refusal has a twin that differs in one fact and is read or removed.

#![expect(clippy::unwrap_used, reason = "a helper that cannot do its part fails the case")]

mod changes;
mod mounts;
mod reading;
mod removing;
mod storms;
mod sys;
mod walking;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bailiwick::identity::PinnedDir;
use bailiwick::tree::{self, Limits, Reader};
use bailiwick::{Error, ErrorKind, Field, Ran};

fn reader(dir: &PinnedDir) -> Reader<'_> {
    Reader::new(dir, Limits::default()).unwrap()
}

fn limited(dir: &PinnedDir, change: impl FnOnce(&mut Limits)) -> Reader<'_> {
    let mut limits = Limits::default();
    change(&mut limits);
    Reader::new(dir, limits).unwrap()
}

fn pin(path: impl AsRef<Path>) -> PinnedDir {
    tree::pin(path).unwrap()
}

/// Asserts what a refusal says: kind, how far the path was followed, and the fact that decided.
#[track_caller]
fn assert_told<T: std::fmt::Debug>(
    result: Result<T, Error>,
    kind: ErrorKind,
    component: impl AsRef<Path>,
    fact: &str,
) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{}", error.report());
    assert_eq!(error.field("component").and_then(Field::as_path), Some(component.as_ref()), "{error:?}");
    let names_fact = if kind == ErrorKind::TreeLimit { "limit" } else { "fact" };
    assert_eq!(error.field(names_fact).and_then(Field::as_text), Some(fact), "{error:?}");
    assert_eq!(error.ran(), Ran::Nothing);
    assert!(!error.hints().is_empty(), "{}", error.report());
}

#[track_caller]
fn assert_absent<T: std::fmt::Debug>(result: Result<T, Error>, component: impl AsRef<Path>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TreeNotFound, "{}", error.report());
    assert_eq!(error.field("component").and_then(Field::as_path), Some(component.as_ref()), "{error:?}");
}

fn dir(path: impl AsRef<Path>) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    path.as_ref().to_owned()
}

fn file(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
    fs::write(&path, bytes).unwrap();
    path.as_ref().to_owned()
}

fn link(target: impl AsRef<Path>, at: impl AsRef<Path>) -> PathBuf {
    symlink(target, &at).unwrap();
    at.as_ref().to_owned()
}

fn fifo(path: impl AsRef<Path>) -> PathBuf {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path.as_ref(), FileType::Fifo, Mode::from(0o644), 0).unwrap();
    path.as_ref().to_owned()
}
