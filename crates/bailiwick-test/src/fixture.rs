//! Proofs that a fixture is what its test takes it for.
//!
//! Without them a broken set-up looks like a denial: a FIFO that is a file does not block, a directory of
//! mode 000 hides nothing from root, and a bind mount that failed protects by not being there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use crate::remove::open_path;
use crate::snapshot::kind;

/// Asserts that `path` is a FIFO.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_fifo(path: impl AsRef<Path>) {
    assert_kind(path.as_ref(), "fifo");
}

/// Asserts that `path` is a socket in the file system.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_socket(path: impl AsRef<Path>) {
    assert_kind(path.as_ref(), "socket");
}

/// Asserts that `path` is a regular file.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_file(path: impl AsRef<Path>) {
    assert_kind(path.as_ref(), "file");
}

/// Asserts that `path` is a directory, not a link to one.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_directory(path: impl AsRef<Path>) {
    assert_kind(path.as_ref(), "directory");
}

/// Asserts that `path` is a character or block device.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_device(path: impl AsRef<Path>) {
    let path = path.as_ref();
    let found = kind(&look(path));
    assert!(found.ends_with("device"), "{} is a {found}, not a device", path.display());
}

/// Asserts that `path` is a link with exactly this target.
///
/// # Panics
///
/// If it is not.
#[track_caller]
pub fn assert_link(path: impl AsRef<Path>, target: impl AsRef<Path>) {
    let path = path.as_ref();
    assert_kind(path, "link");
    let found = fs::read_link(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    assert_eq!(found, target.as_ref(), "target of {}", path.display());
}

/// Asserts that this user can neither read the file or directory nor list it.
///
/// # Panics
///
/// If it can, as root can whatever the mode says, or if reading fails for another reason.
#[track_caller]
pub fn assert_unreadable(path: impl AsRef<Path>) {
    let path = path.as_ref();
    let read =
        if look(path).is_dir() { fs::read_dir(path).map(drop) } else { fs::File::open(path).map(drop) };
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => panic!("{} is unreadable for another reason: {error}", path.display()),
        Ok(()) => panic!("{} is readable for this user", path.display()),
    }
}

/// Asserts that two names are hard links to one file.
///
/// # Panics
///
/// If they are not.
#[track_caller]
pub fn assert_hard_links(one: impl AsRef<Path>, other: impl AsRef<Path>) {
    let (one, other) = (one.as_ref(), other.as_ref());
    let (first, second) = (look(one), look(other));
    let is_linked = first.nlink() >= 2 && (first.dev(), first.ino()) == (second.dev(), second.ino());
    assert!(is_linked, "{} and {} are not names of one file", one.display(), other.display());
}

/// Asserts that something is mounted on `path` and that it shows `source`: a bind mount of it.
///
/// # Kernel
///
/// The mount attribute of statx(2) needs Linux 5.8; without it the assertion fails.
///
/// # Panics
///
/// If nothing is mounted there, or something else.
#[track_caller]
pub fn assert_bind_mount(path: impl AsRef<Path>, source: impl AsRef<Path>) {
    let (path, source) = (path.as_ref(), source.as_ref());
    assert!(is_mount_point(path), "nothing is mounted on {}", path.display());
    let (mounted, original) = (look(path), look(source));
    assert_eq!(
        (mounted.dev(), mounted.ino()),
        (original.dev(), original.ino()),
        "{} does not show {}",
        path.display(),
        source.display()
    );
}

/// Whether something is mounted on `path`, a bind mount of the same file system included.
///
/// # Panics
///
/// If the path cannot be opened, or if the kernel does not tell (before Linux 5.8).
#[must_use]
#[track_caller]
pub fn is_mount_point(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let found =
        open_path(path).and_then(|file| rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE));
    let found = found.unwrap_or_else(|error| panic!("look at {}: {error}", path.display()));
    assert!(
        found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT),
        "the kernel does not tell mount points"
    );
    found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

#[track_caller]
fn assert_kind(path: &Path, expected: &str) {
    let found = kind(&look(path));
    assert_eq!(found, expected, "type of {}", path.display());
}

#[track_caller]
fn look(path: &Path) -> fs::Metadata {
    fs::symlink_metadata(path).unwrap_or_else(|error| panic!("look at {}: {error}", path.display()))
}
