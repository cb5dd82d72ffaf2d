//! Directories that commands may read, or take programs from, against everything private.

use std::path::{Path, PathBuf};

use bailiwick::guard::{ProtectedSet, ReadPurpose, check_readable};
use bailiwick::store::StorePlace;
use bailiwick::{Error, ErrorKind};
use bailiwick_test::{cases, root_cases};

use super::{dir, link, number, path, protected_at, text};
use crate::sys::{bind, in_private_mounts, make_read_only};

fn check(store: impl AsRef<Path>, directory: impl AsRef<Path>) -> Result<(), Error> {
    let apart = PathBuf::from("/usr");
    let paths = [apart, directory.as_ref().to_owned()];
    let answer = check_readable(&paths, ReadPurpose::Root, &protected_at(store.as_ref()));
    let programs = check_readable(&paths, ReadPurpose::Programs, &protected_at(store.as_ref()));
    let kind = |answer: &Result<(), Error>| answer.as_ref().err().map(Error::kind);
    assert_eq!(kind(&answer), kind(&programs));
    answer
}

#[track_caller]
fn assert_overlap(answer: Result<(), Error>, directory: &Path, relation: &str) -> Error {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOverlap, "{error:?}");
    assert_eq!((path(&error, "directory"), number(&error, "index")), (directory, 1));
    assert_eq!(text(&error, "relation"), relation);
    error
}

cases! {
    /// In both directions, and `/` with them.
    fn private_state_is_not_readable(world: &World) {
        let below = dir(world.private().join("below"));
        assert_overlap(check(world.private(), world.private()), &world.private(), "same");
        assert_overlap(check(world.private(), &below), &below, "inside");
        assert_overlap(check(world.private(), world.path()), world.path(), "around");
        assert_overlap(check(world.private(), "/"), Path::new("/"), "around");
        check(world.private(), world.write_root()).unwrap();
        // What the caller protects, and not this program: that may be read.
        let set = ProtectedSet::around_place(&StorePlace::find(world.private()).unwrap())
            .protect(&[world.outside().join("f")])
            .build()
            .unwrap();
        let program = std::env::current_exe().unwrap();
        // A plain user runs this from a directory that it cannot reach.
        if let Some(Ok(programs)) = program.parent().map(std::fs::canonicalize) {
            check_readable(&[programs], ReadPurpose::Programs, &set).unwrap();
        }
        let error = check_readable(&[world.outside().to_owned()], ReadPurpose::Root, &set).unwrap_err();
        assert_eq!((error.kind(), text(&error, "protected_kind")), (ErrorKind::ReadOverlap, "caller"));
    }

    /// A link leads elsewhere tomorrow.
    fn only_canonical_paths(world: &World) {
        let other = link(world.write_root(), world.path().join("link"));
        let slashes = PathBuf::from(format!("{}//.", world.write_root().display()));
        for spelled in [&other, &slashes, &other.join("missing"), &PathBuf::from("relative"), &PathBuf::new()] {
            let error = check(world.private(), spelled).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadInvalid, "{spelled:?}");
        }
        assert_eq!(path(&check(world.private(), &other).unwrap_err(), "canonical"), world.write_root());
        check(world.private(), world.write_root()).unwrap();
    }
}

root_cases! {
    /// A read-only mount keeps writes out, and lets reads in.
    fn a_read_only_mount_is_readable(world: &World) {
        in_private_mounts(world, |world| {
            let point = dir(world.write_root().join("in"));
            check(world.private(), world.write_root()).unwrap();
            bind(world.private(), &point);
            make_read_only(&point);
            let error = assert_overlap(check(world.private(), world.write_root()), &world.write_root(), "around");
            assert_eq!((text(&error, "alias"), path(&error, "other_name")), ("mount", point.as_path()));
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
            bind(world.outside(), &point);
            check(world.private(), world.write_root()).unwrap();
        });
    }
}
