//! The mount table against the kernel's own answers, and its parsers against generated text.

mod cost;
mod layers;
mod parse;
mod real;
mod watch;

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};

use super::{MountTable, MountWatch};
use crate::sys::unshared::in_private_mounts;

/// A directory for mounts: a tmpfs of its own, in mounts that only the calling thread has.
struct Arena {
    at: PathBuf,
}

impl Arena {
    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at.join(name)
    }

    /// Makes a directory in it.
    fn dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.at.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// Runs `body` with a fresh arena, as root.
fn with_arena(body: impl FnOnce(&Arena) + Send) {
    bailiwick_test::requires!(bailiwick_test::Need::Root, "mounts");
    let place = tempfile::tempdir().unwrap();
    in_private_mounts(|| {
        let arena = Arena { at: place.path().canonicalize().unwrap() };
        tmpfs(&arena.at);
        body(&arena);
    });
}

fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>) {
    mount_bind(source.as_ref(), target.as_ref()).unwrap();
}

fn tmpfs(target: &Path) {
    mount("tmpfs", target, "tmpfs", MountFlags::empty(), None).unwrap();
}

fn overlay(target: &Path, options: &[u8]) {
    let options = std::ffi::CString::new(options).unwrap();
    mount("layers", target, "overlay", MountFlags::empty(), options.as_c_str()).unwrap();
}

fn make_read_only(target: &Path) {
    mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
}

fn make_shared(target: &Path) {
    mount_change(target, MountPropagationFlags::SHARED).unwrap();
}

/// What `read` gives while the mounts of this thread stand still; outside of an arena others may mount meanwhile.
fn at_rest<T>(mut read: impl FnMut() -> T) -> T {
    let watch = MountWatch::new().unwrap();
    loop {
        let found = read();
        if !watch.changed().unwrap() {
            return found;
        }
    }
}

/// The table, which both readers must agree on.
#[track_caller]
fn table() -> MountTable {
    let (text, calls, read) = at_rest(|| {
        (
            MountTable::read_by_text().unwrap(),
            MountTable::read_by_calls().unwrap(),
            MountTable::read().unwrap(),
        )
    });
    // A kernel without the calls has one reader.
    if let Some(calls) = &calls {
        for (one, other) in calls.iter().zip(text.iter()) {
            assert_eq!(one, other);
        }
        assert_eq!(calls, &text);
    }
    assert_eq!(read, text);
    text
}
