//! The same comparisons on real file systems: ext4, xfs, tmpfs and btrfs, each with its subvolumes, second mounts and
//! links.

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::guard::{self, Grant};
use bailiwick::{Error, ErrorKind};
use bailiwick_test::{Need, fixture, requires, root_cases};

use super::aliases::{assert_alias, reaches};
use super::disks::{mount_with, mounted, ran, unmount};
use super::{assert_overlap, dir, protected_at, roots};
use crate::sys::{bind, in_private_mounts, make_read_only, tmpfs};

/// A store and a root anywhere.
fn issue(store: &Path, root: impl AsRef<Path>) -> Result<Grant, Error> {
    guard::issue(&roots(&[root]), protected_at(store))
}

/// A layout below `base`: `P` with a file `db` and a directory `sub`, `W` with a directory `in`, and `X`.
fn lay_out(base: &Path) -> (PathBuf, PathBuf) {
    let (store, root) = (dir(base.join("P")), dir(base.join("W")));
    dir(store.join("sub"));
    fs::write(store.join("db"), "s").unwrap();
    fs::write(store.join("sub/db"), "s").unwrap();
    dir(root.join("in"));
    fs::write(root.join("f"), "f").unwrap();
    fs::write(dir(base.join("X")).join("f"), "x").unwrap();
    (store, root)
}

/// Mounts of directories and files, in both directions, and hard links, all on one file system.
fn aliases_within(base: &Path) {
    let (store, root) = lay_out(base);
    let (db, point) = (store.join("db"), root.join("in"));
    let grant = issue(&store, &root).unwrap();
    let granted_again = || {
        grant.recheck().unwrap();
        issue(&store, &root).unwrap();
    };

    // C08: the store and a directory in it, below the root.
    for (source, protected) in [(store.clone(), db.clone()), (store.join("sub"), store.join("sub/db"))] {
        bind(&source, &point);
        fixture::assert_bind_mount(&point, &source);
        assert!(reaches(&point.join("db"), &protected));
        assert_alias(&issue(&store, &root).unwrap_err(), "mount", &point);
        assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
        unmount(&point);
        granted_again();
    }
    // C10: one file.
    bind(&db, root.join("f"));
    assert!(reaches(&root.join("f"), &db));
    assert_alias(&issue(&store, &root).unwrap_err(), "mount", root.join("f"));
    unmount(&root.join("f"));
    granted_again();
    // The reverse: what is stored in `sub` is written in the root.
    bind(&point, store.join("sub"));
    fs::write(point.join("db"), "").unwrap();
    assert!(reaches(&point.join("db"), &store.join("sub/db")));
    assert_alias(&issue(&store, &root).unwrap_err(), "mount", &point);
    unmount(&store.join("sub"));
    granted_again();
    // C16.
    fs::hard_link(&db, root.join("link")).unwrap();
    fixture::assert_hard_links(root.join("link"), &db);
    assert!(reaches(&root.join("link"), &db));
    assert_alias(&issue(&store, &root).unwrap_err(), "hard-link", root.join("link"));
    assert_alias(&grant.recheck().unwrap_err(), "hard-link", root.join("link"));
    fs::remove_file(root.join("link")).unwrap();
    granted_again();
    // A link in a directory that is mounted into the root from elsewhere on the file system.
    fs::hard_link(&db, base.join("X/link")).unwrap();
    granted_again();
    bind(base.join("X"), &point);
    assert_alias(&issue(&store, &root).unwrap_err(), "hard-link", point.join("link"));
    unmount(&point);
    // And the same link where only a directory beside it is mounted.
    dir(base.join("X/beside"));
    bind(base.join("X/beside"), &point);
    granted_again();
    unmount(&point);
    fs::remove_file(base.join("X/link")).unwrap();
    // The twin of everything above: something else at the same place.
    bind(base.join("X"), &point);
    granted_again();
    unmount(&point);
}

/// The file system mounted a second time, whole.
fn mounted_twice(again: &Path, base: &Path) {
    let store = base.join("P");
    fixture::assert_bind_mount(again, base);
    assert!(reaches(&again.join("P/db"), &store.join("db")));
    assert_overlap(&issue(&store, again).unwrap_err(), again, &store, "around");
    assert_overlap(&issue(&store, again.join("P")).unwrap_err(), again.join("P"), &store, "same");
    assert_overlap(&issue(&store, again.join("P/sub")).unwrap_err(), again.join("P/sub"), &store, "inside");
    let grant = issue(&store, again.join("W")).unwrap();
    assert_eq!(super::granted(&grant), [again.join("W")]);
    // Below a root that lies on another file system.
    let other = dir(again.parent().unwrap().join("other"));
    tmpfs(&other);
    let point = dir(other.join("in"));
    issue(&store, &other).unwrap();
    bind(base, &point);
    assert_alias(&issue(&store, &other).unwrap_err(), "mount", point.join("P"));
    unmount(&point);
    bind(base.join("W"), &point);
    issue(&store, &other).unwrap();
    unmount(&point);
    unmount(&other);
}

root_cases! {
    /// C08, C09, C10, C16 on ext4.
    fn ext4_mount(world: &World) {
        in_private_mounts(world, |world| {
            let base = mounted("ext4", world.path());
            aliases_within(&base);
            let again = dir(world.path().join("again"));
            mount_with("ext4", "loop", world.path().join("ext4.image"), &again);
            mounted_twice(&again, &base);
        });
    }

    /// The same on tmpfs, where a second mount is another file system.
    fn tmpfs_mount(world: &World) {
        in_private_mounts(world, |world| {
            let base = dir(world.path().join("tmpfs"));
            tmpfs(&base);
            aliases_within(&base);
            let again = dir(world.path().join("again"));
            bind(&base, &again);
            mounted_twice(&again, &base);
            // Another tmpfs has the same names and inode numbers, and nothing else in common.
            let twin = dir(world.path().join("twin"));
            tmpfs(&twin);
            let (other_store, _root) = lay_out(&twin);
            assert_eq!(inode(&other_store).1, inode(&base.join("P")).1);
            assert_ne!(inode(&other_store).0, inode(&base.join("P")).0);
            issue(&base.join("P"), &twin).unwrap();
        });
    }

    /// The same on btrfs.
    fn btrfs_mount(world: &World) {
        requires!(Need::Btrfs, "mounts a btrfs");
        in_private_mounts(world, |world| {
            let base = mounted("btrfs", world.path());
            aliases_within(&base);
            let again = dir(world.path().join("again"));
            bind(&base, &again);
            mounted_twice(&again, &base);
        });
    }

    /// C14: subvolumes have device numbers that the mount table does not show, and all begin with one inode number.
    fn c14_subvolume_mounts(world: &World) {
        requires!(Need::Btrfs, "makes subvolumes and snapshots");
        in_private_mounts(world, |world| {
            let base = mounted("btrfs", world.path());
            let image = mount_source(&base);
            let subvolume = |at: &Path| {
                ran("btrfs", &["-q".as_ref(), "subvolume".as_ref(), "create".as_ref(), at.as_os_str()]);
                at.to_owned()
            };
            let (a, b) = (subvolume(&base.join("a")), subvolume(&base.join("b")));
            assert_eq!((inode(&a).1, inode(&b).1), (256, 256));
            assert_ne!(inode(&a).0, inode(&b).0);
            // (1) Neighbours.
            issue(&a, &b).unwrap();
            // (3) The volume around both.
            assert_overlap(&issue(&a, &base).unwrap_err(), &base, &a, "around");
            // (2) A store in `a`, and `a` seen elsewhere: by a bind mount and by a mount of its own.
            let (store, _root) = lay_out(&a);
            let alias = dir(world.path().join("alias"));
            for mount in [|_: &Path, a: &Path, alias: &Path| bind(a, alias), |image: &Path, _: &Path, alias: &Path| mount_with("btrfs", "subvol=a", image, alias)] {
                mount(&image, &a, &alias);
                assert!(reaches(&alias.join("P/db"), &store.join("db")));
                assert_overlap(&issue(&store, &alias).unwrap_err(), &alias, &store, "around");
                assert_overlap(&issue(&store, alias.join("P/sub")).unwrap_err(), alias.join("P/sub"), &store, "inside");
                issue(&store, alias.join("W")).unwrap();
                unmount(&alias);
            }
            mount_with("btrfs", "subvol=b", &image, &alias);
            issue(&store, &alias).unwrap();
            unmount(&alias);
            // The subvolume below a root on another subvolume.
            let point = dir(b.join("in"));
            let grant = issue(&store, &b).unwrap();
            mount_with("btrfs", "subvol=a", &image, &alias);
            grant.recheck().unwrap();
            bind(alias.join("P"), &point);
            assert!(reaches(&point.join("db"), &store.join("db")));
            assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
            unmount(&point);
            bind(alias.join("X"), &point);
            grant.recheck().unwrap();
            unmount(&point);
            // A subvolume inside the store is private like the store.
            let inner = subvolume(&store.join("inner"));
            fs::write(inner.join("db"), "s").unwrap();
            mount_with("btrfs", "subvol=a/P/inner", &image, &point);
            assert!(reaches(&point.join("db"), &inner.join("db")));
            assert_alias(&issue(&store, &b).unwrap_err(), "mount", &point);
            unmount(&point);
            grant.recheck().unwrap();
            // And so is what it holds under another name.
            fs::hard_link(inner.join("db"), inner.join("second")).unwrap();
            issue(&store, &b).unwrap();
            // The store itself a subvolume, and another name of a file in it outside: not possible between two.
            assert!(fs::hard_link(inner.join("db"), b.join("link")).is_err());
        });
    }

    /// A snapshot and a copy that shares its blocks are objects of their own.
    fn btrfs_copies_mount(world: &World) {
        requires!(Need::Btrfs, "makes snapshots");
        in_private_mounts(world, |world| {
            let base = mounted("btrfs", world.path());
            let volume = base.join("a");
            ran("btrfs", &["-q".as_ref(), "subvolume".as_ref(), "create".as_ref(), volume.as_os_str()]);
            let (store, root) = lay_out(&volume);
            let copy = base.join("copy");
            ran("btrfs", &["-q".as_ref(), "subvolume".as_ref(), "snapshot".as_ref(), volume.as_os_str(), copy.as_os_str()]);
            assert_eq!(inode(&copy.join("P/db")).1, inode(&store.join("db")).1);
            assert!(!reaches(&copy.join("P/db"), &store.join("db")));
            issue(&store, &copy).unwrap();
            issue(&store, copy.join("P")).unwrap();
            ran("cp", &["--reflink=always".as_ref(), store.join("db").as_os_str(), root.join("db").as_os_str()]);
            assert!(!reaches(&root.join("db"), &store.join("db")));
            issue(&store, &root).unwrap();
            // A file of the snapshot has names there alone: with several in the store, the snapshot holds none of it.
            fs::hard_link(store.join("db"), volume.join("X/link")).unwrap();
            issue(&store, &copy).unwrap();
            assert_alias(&issue(&store, volume.join("X")).unwrap_err(), "hard-link", volume.join("X/link"));
            // A read-only snapshot can be no root.
            let frozen = base.join("frozen");
            ran("btrfs", &["-q".as_ref(), "subvolume".as_ref(), "snapshot".as_ref(), "-r".as_ref(), volume.as_os_str(), frozen.as_os_str()]);
            assert_eq!(issue(&store, &frozen).unwrap_err().kind(), ErrorKind::RootNotAccessible);
        });
    }

    /// Two mounts on one point: the upper one counts, and the lower one again when the upper one has gone.
    fn stacked_mounts(world: &World) {
        in_private_mounts(world, |world| {
            let store = world.private();
            fs::write(store.join("db"), "s").unwrap();
            let point = dir(world.write_root().join("in"));
            bind(&store, &point);
            tmpfs(&point);
            let grant = issue(&store, world.write_root()).unwrap();
            bind(world.outside(), &point);
            grant.recheck().unwrap();
            unmount(&point);
            grant.recheck().unwrap();
            unmount(&point);
            assert!(reaches(&point.join("db"), &store.join("db")));
            assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
            unmount(&point);
            grant.recheck().unwrap();
            // The store is what covers.
            tmpfs(&point);
            grant.recheck().unwrap();
            bind(&store, &point);
            assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
            unmount(&point);
            grant.recheck().unwrap();
            // A covered directory above the point hides both.
            bind(&store, dir(point.join("deep")));
            assert_alias(&grant.recheck().unwrap_err(), "mount", point.join("deep"));
            let above = world.write_root().join("in");
            tmpfs(&above);
            grant.recheck().unwrap();
        });
    }

    /// What is mounted read-only in a root reaches nothing: a write through it fails whatever else is granted. It is
    /// an alias as soon as it is mounted for writing.
    fn read_only_mounts(world: &World) {
        in_private_mounts(world, |world| {
            let store = world.private();
            let (db, point, file) = (store.join("db"), dir(world.write_root().join("in")), world.write_root().join("f"));
            fs::write(&db, "s").unwrap();
            fs::write(&file, "").unwrap();
            for (source, at, name) in [(&store, &point, point.join("db")), (&db, &file, file.clone())] {
                bind(source, at);
                assert_alias(&issue(&store, world.write_root()).unwrap_err(), "mount", at);
                make_read_only(at);
                assert_eq!(fs::write(&name, "w").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
                let grant = issue(&store, world.write_root()).unwrap();
                grant.recheck().unwrap();
                crate::disks::make_writable(at);
                assert!(reaches(&name, &db));
                assert_alias(&grant.recheck().unwrap_err(), "mount", at);
                make_read_only(at);
                grant.recheck().unwrap();
                unmount(at);
                grant.recheck().unwrap();
            }
            // The other direction: the store is a read-only view of a directory in the root, which can be written.
            let inner = dir(world.write_root().join("x"));
            let seen = dir(store.join("seen"));
            bind(&inner, &seen);
            make_read_only(&seen);
            assert_alias(&issue(&store, world.write_root()).unwrap_err(), "mount", &inner);
        });
    }
}

fn inode(path: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path).unwrap();
    (found.dev(), found.ino())
}

/// The device that is mounted.
fn mount_source(at: &Path) -> PathBuf {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == at.to_str()).unwrap();
    line.split(" - ").nth(1).unwrap().split(' ').nth(1).unwrap().into()
}
