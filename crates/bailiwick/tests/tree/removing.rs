//! Removing what commands left behind, whatever it is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bailiwick::ErrorKind::{
    TreeChanged, TreeLimit, TreeNotFound, TreeNotRemoved, TreePathInvalid, TreeRefused,
};
use bailiwick::tree::{RemoveLimits, Remover};
use bailiwick::{Error, Field};
use bailiwick_test::{Listing, cases, user_cases};
use rustix::fs::{Mode, OFlags, mkdirat, openat};

use super::{assert_told, dir, fifo, file, link, pin, reader};

/// Makes a chain of directories far beyond what a path can name.
fn chain(top: &Path, name: &str, depth: usize) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut fd = rustix::fs::open(top, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&fd, name, Mode::RWXU).unwrap();
        fd = openat(&fd, name, flags, Mode::empty()).unwrap();
    }
    openat(&fd, "f", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR).unwrap();
}

fn number(error: &Error, field: &str) -> i64 {
    error.field(field).and_then(Field::as_number).unwrap_or_else(|| panic!("no {field}: {error:?}"))
}

cases! {
    /// Everything goes, and nothing that links lead to.
    fn whatever_is_in_it(world: &World) {
        let root = world.write_root();
        chain(&root, &"deep".repeat(20), 1500);
        dir(root.join("d/e"));
        link(world.outside(), root.join("d/e/link"));
        link("/", root.join("slash"));
        link("..", root.join("d/up"));
        fifo(root.join("d/fifo"));
        drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
        file(root.join(OsStr::from_bytes(b"a\xff\n")), "f");
        file(root.join("-rf"), "f");
        let other_name = file(world.path().join("g"), "g");
        fs::hard_link(&other_name, root.join("hard")).unwrap();
        let before = Listing::of(world.outside());
        let pinned = pin(&root);
        // 1500 directories and the file at their end, d, e, five links and names in them, and three more.
        assert_eq!(Remover::default().empty(&pinned).unwrap(), 1501 + 2 + 3 + 2 + 3);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        before.assert_unchanged();
        assert_eq!(fs::read(other_name).unwrap(), b"g");
        assert_eq!(Remover::default().empty(&pinned).unwrap(), 0);
    }

    /// With a name, the directory itself goes, if it is the one that was meant.
    fn by_name_and_identity(world: &World) {
        let root = world.write_root();
        dir(root.join("d/e"));
        file(root.join("d/e/f"), "f");
        let parent = pin(&root);
        let id = reader(&parent).look("d").unwrap().id;
        let remover = Remover::default();
        fs::rename(root.join("d"), root.join("aside")).unwrap();
        let gone = remover.remove(&parent, "d", &id).unwrap_err();
        assert_eq!(gone.kind(), TreeNotFound);
        let outside = Listing::of(world.outside());
        link(world.outside(), root.join("d"));
        assert_told(remover.remove(&parent, "d", &id), TreeRefused, "d", "symbolic_link");
        fs::remove_file(root.join("d")).unwrap();
        dir(root.join("d"));
        file(root.join("d/other"), "other");
        assert_told(remover.remove(&parent, "d", &id), TreeChanged, "d", "replaced");
        assert_eq!(fs::read(root.join("d/other")).unwrap(), b"other");
        for (name, fact) in [("aside/e", "no_single_name"), ("", "no_single_name"), ("..", "parent"), ("/", "absolute")] {
            assert_told(remover.remove(&parent, name, &id), TreePathInvalid, name, fact);
        }
        outside.assert_unchanged();
        // The twin.
        assert_eq!(remover.remove(&parent, "aside", &id).unwrap(), 3);
        assert!(!root.join("aside").exists() && root.join("d/other").exists());
    }

    /// Protected objects stay, under whatever name, and so do the directories above them; the rest goes.
    fn protected_objects_stay(world: &World) {
        let root = world.write_root();
        dir(root.join("a/kept/inner"));
        file(root.join("a/kept/inner/f"), "kept");
        file(root.join("a/gone"), "");
        fs::hard_link(world.secret(), root.join("a/hard")).unwrap();
        dir(root.join("b/c"));
        let pinned = pin(&root);
        let mut reader = reader(&pinned);
        let protected = [reader.look("a/kept").unwrap().id, reader.look("a/hard").unwrap().id];
        let error = Remover::default().refuse(&protected).empty(&pinned).unwrap_err();
        assert_eq!((error.kind(), number(&error, "left_count"), number(&error, "removed")), (TreeNotRemoved, 2, 3));
        assert_eq!(fs::read(root.join("a/kept/inner/f")).unwrap(), b"kept");
        assert!(root.join("a/hard").exists() && !root.join("a/gone").exists() && !root.join("b").exists());
        assert_eq!(Remover::default().empty(&pinned).unwrap(), 5);
        assert_eq!(fs::read(world.secret()).unwrap(), b"s");
    }

    /// A limit ends it and says how far it came; calling again goes on from there.
    fn limits(world: &World) {
        let root = world.write_root();
        for number in 0..100 {
            file(root.join(number.to_string()), "");
        }
        let pinned = pin(&root);
        let some = Remover::new(RemoveLimits { entries: 60, ..RemoveLimits::default() });
        let error = some.empty(&pinned).unwrap_err();
        assert_eq!((error.kind(), number(&error, "removed")), (TreeLimit, 60));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 40);
        assert_eq!(some.empty(&pinned).unwrap(), 40);

        chain(&root, "d", 20);
        let shallow = Remover::new(RemoveLimits { depth: 20, ..RemoveLimits::default() });
        assert_eq!(shallow.empty(&pinned).unwrap_err().kind(), TreeLimit);
        assert!(root.join("d/d/d").exists());
        let time = Remover::new(RemoveLimits { time: std::time::Duration::ZERO, ..RemoveLimits::default() });
        assert_eq!(time.empty(&pinned).unwrap_err().kind(), TreeLimit);
        let enough = Remover::new(RemoveLimits { depth: 21, ..RemoveLimits::default() });
        assert_eq!(enough.empty(&pinned).unwrap(), 21);
    }
}

user_cases! {
    /// Modes that a command took away are no obstacle to their owner.
    fn closed_directories(world: &World) {
        let root = world.write_root();
        let modes = [0o000, 0o100, 0o200, 0o300, 0o400, 0o500, 0o600];
        for mode in modes {
            let closed = dir(root.join(format!("{mode:o}")));
            dir(closed.join("inner"));
            file(closed.join("inner/f"), "f");
            link(world.outside(), closed.join("link"));
            for path in [closed.join("inner"), closed] {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let before = Listing::of(world.outside());
        let control = fs::remove_dir_all(root.join("0"));
        assert!(control.is_err(), "the mode is an obstacle to an ordinary removal");
        let pinned = pin(&root);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(Remover::default().empty(&pinned).unwrap(), 7 * 4);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        before.assert_unchanged();
    }
}
