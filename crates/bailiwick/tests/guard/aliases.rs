//! Other names of protected objects: mounts in both directions, single files, overlays, hard links. Every refusal has
//! a twin that differs in one fact and is granted.

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::guard::{self, Fact, Grant, ProtectedSet, Relation};
use bailiwick::store::StorePlace;
use bailiwick::{Error, ErrorKind, Policy};
use bailiwick_test::{cases, fixture, root_cases};

use super::{Places, dir, path, protected_at, roots, text};
use crate::sys::{bind, in_private_mounts, tmpfs};

fn issue(world: &Places, root: impl AsRef<Path>) -> Result<Grant, Error> {
    guard::issue(&roots(&[root]), protected_at(world.private()))
}

#[track_caller]
pub(crate) fn assert_alias(error: &Error, kind: &str, other_name: impl AsRef<Path>) {
    assert_eq!(error.kind(), ErrorKind::RootOverlap, "{error:?}");
    assert_eq!(text(error, "relation"), "alias");
    assert_eq!(text(error, "alias"), kind, "{error:?}");
    assert_eq!(path(error, "other_name"), other_name.as_ref());
    assert_eq!(error.hints().len(), 1, "{error:?}");
}

/// Writes through a name, and says whether the protected file changed: the harm that a refusal is to prevent.
pub(crate) fn reaches(name: &Path, protected: &Path) -> bool {
    let before = fs::read(protected).unwrap();
    fs::write(name, b"through another name").unwrap();
    let changed = fs::read(protected).unwrap() != before;
    // By the name that can be written: an overlay may be read-only.
    if changed {
        fs::write(name, before).unwrap()
    } else {
        fs::write(protected, before).unwrap()
    }
    changed
}

root_cases! {
    /// C08: the protected directory, a directory in it, and the one above it, mounted below a root.
    fn c08_mounted_below_a_root(world: &World) {
        in_private_mounts(world, |world| {
            let sub = dir(world.private().join("sub"));
            fs::write(world.private().join("db"), "s").unwrap();
            fs::write(sub.join("db"), "s").unwrap();
            let point = dir(world.write_root().join("in"));
            issue(world, world.write_root()).unwrap();
            for (source, name, file) in [
                (world.private(), point.clone(), "db"),
                (sub.clone(), point.clone(), "db"),
                (world.path().to_owned(), point.join("P"), "db"),
            ] {
                bind(&source, &point);
                let protected = if source == sub { sub.join(file) } else { world.private().join(file) };
                assert!(reaches(&name.join(file), &protected));
                assert_alias(&issue(world, world.write_root()).unwrap_err(), "mount", &name);
                rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
                issue(world, world.write_root()).unwrap();
            }
            // The twin: something else, mounted at the same place.
            bind(world.outside(), &point);
            issue(world, world.write_root()).unwrap();
        });
    }

    /// C09: the root lies in an alias of a directory in the store.
    fn c09_alias_of_a_descendant(world: &World) {
        in_private_mounts(world, |world| {
            let sub = dir(world.private().join("sub/deeper"));
            let alias = dir(world.path().join("alias"));
            bind(world.private().join("sub"), &alias);
            assert_alias(&issue(world, &alias).unwrap_err(), "mount", &alias);
            assert_alias(&issue(world, alias.join("deeper")).unwrap_err(), "mount", &alias);
            assert!(sub.exists());
            let twin = dir(world.path().join("twin"));
            bind(world.outside(), &twin);
            issue(world, &twin).unwrap();
        });
    }

    /// A directory of the root is where the store lies: the chain above the store never meets the root.
    fn the_store_is_mounted_from_a_root(world: &World) {
        in_private_mounts(world, |world| {
            let source = dir(world.write_root().join("x"));
            let twin = dir(world.path().join("Y/x"));
            bind(&source, world.private());
            assert_alias(&issue(world, world.write_root()).unwrap_err(), "mount", &source);
            assert_eq!(text(&issue(world, &source).unwrap_err(), "relation"), "same");
            issue(world, twin.parent().unwrap()).unwrap();
        });
    }

    /// C10: one protected file, mounted onto a file in a root; and the same the other way round.
    fn c10_single_files(world: &World) {
        in_private_mounts(world, |world| {
            let db = world.private().join("db");
            let file = world.write_root().join("f");
            fs::write(&db, "s").unwrap();
            fs::write(&file, "").unwrap();
            issue(world, world.write_root()).unwrap();
            bind(&db, &file);
            assert!(reaches(&file, &db));
            assert_alias(&issue(world, world.write_root()).unwrap_err(), "mount", &file);
            rustix::mount::unmount(&file, rustix::mount::UnmountFlags::empty()).unwrap();
            bind(&file, &db);
            assert!(reaches(&file, &db));
            assert_alias(&issue(world, world.write_root()).unwrap_err(), "mount", &file);
            rustix::mount::unmount(&db, rustix::mount::UnmountFlags::empty()).unwrap();
            bind(world.outside().join("f"), &file);
            issue(world, world.write_root()).unwrap();
        });
    }

    /// C13: what another mount covers is no alias, and becomes one when it is uncovered.
    fn c13_covered(world: &World) {
        in_private_mounts(world, |world| {
            let (below, point) = (dir(world.write_root().join("in")), dir(world.write_root().join("in/deeper")));
            bind(world.private(), &point);
            tmpfs(&below);
            let grant = issue(world, world.write_root()).unwrap();
            grant.recheck().unwrap();
            rustix::mount::unmount(&below, rustix::mount::UnmountFlags::empty()).unwrap();
            assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
            tmpfs(&below);
            grant.recheck().unwrap();
        });
    }

    /// A protected file that is a mount point: it lies where its source lies, not only where it is seen.
    fn protected_file_is_a_mount_point(world: &World) {
        in_private_mounts(world, |world| {
            let (file, source) = (world.outside().join("f"), world.write_root().join("f"));
            let beside = dir(world.path().join("Y"));
            fs::write(&source, "w").unwrap();
            let set = || {
                let place = StorePlace::find(world.private()).unwrap();
                ProtectedSet::around_place(&place).protect(std::slice::from_ref(&file)).build().unwrap()
            };
            guard::issue(&roots(&[world.write_root()]), set()).unwrap();
            bind(&source, &file);
            assert!(reaches(&source, &file));
            assert_alias(&guard::issue(&roots(&[world.write_root()]), set()).unwrap_err(), "mount", &source);
            guard::issue(&roots(&[beside]), set()).unwrap();
        });
    }

    /// A root seen at two places, where something is mounted in it at one of them only: a rule for a directory holds
    /// wherever that is seen.
    fn mounted_in_another_view_of_the_root(world: &World) {
        in_private_mounts(world, |world| {
            let (db, linked) = (world.private().join("db"), world.outside().join("linked"));
            let (alias, point) = (dir(world.path().join("alias")), world.write_root().join("f"));
            fs::write(&db, "s").unwrap();
            fs::write(&point, "").unwrap();
            fs::hard_link(&db, &linked).unwrap();
            bind(world.write_root(), &alias);
            issue(world, &alias).unwrap();
            bind(&linked, &point);
            assert!(reaches(&point, &db));
            assert!(!reaches(&alias.join("f"), &db));
            assert_alias(&issue(world, &alias).unwrap_err(), "hard-link", &point);
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
            // The other way round: what a mount covers at one place comes to light at the other.
            let sub = dir(world.write_root().join("sub"));
            fs::hard_link(&db, sub.join("l")).unwrap();
            tmpfs(&sub);
            assert!(reaches(&alias.join("sub/l"), &db));
            assert_eq!(text(&issue(world, world.write_root()).unwrap_err(), "alias"), "hard-link");
            rustix::mount::unmount(&alias, rustix::mount::UnmountFlags::empty()).unwrap();
            issue(world, world.write_root()).unwrap();
        });
    }

    /// An overlay mounted over one of the directories that it is made of: the path in its options leads to itself.
    fn overlay_over_its_own_layer(world: &World) {
        in_private_mounts(world, |world| {
            let (lower, other) = (dir(world.path().join("lower")), dir(world.path().join("other")));
            let alias = dir(world.path().join("alias"));
            fs::write(dir(lower.join("P")).join("db"), "s").unwrap();
            bind(world.path(), &alias);
            let options = format!("lowerdir={}:{}", lower.display(), other.display());
            let options = std::ffi::CString::new(options).unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("overlay", &lower, "overlay", flags, options.as_c_str()).unwrap();
            let store = lower.join("P");
            fs::write(alias.join("lower/P/db"), "through the layer").unwrap();
            assert_eq!(fs::read_to_string(store.join("db")).unwrap(), "through the layer");
            for root in ["lower", "lower/P", "other"] {
                let error = guard::issue(&roots(&[alias.join(root)]), protected_at(&store)).unwrap_err();
                assert_eq!((error.kind(), text(&error, "alias")), (ErrorKind::RootOverlap, "overlay-layer"), "{root}");
            }
            guard::issue(&roots(&[alias.join("W")]), protected_at(&store)).unwrap();
        });
    }

    /// A mount over a directory above the store: `..` leads to what covers it, so the chain above the store is not
    /// known any more. A directory that is mounted on itself covers nothing.
    fn covered_above_the_store(world: &World) {
        in_private_mounts(world, |world| {
            let above = dir(world.path().join("above"));
            let store = dir(above.join("P"));
            let grant = guard::issue(&roots(&[world.write_root()]), protected_at(&store)).unwrap();
            bind(&above, &above);
            grant.recheck().unwrap();
            bind(world.write_root(), &above);
            assert_eq!(grant.recheck().unwrap_err().kind(), ErrorKind::StoreNotAccessible);
            for _ in 0..2 {
                rustix::mount::unmount(&above, rustix::mount::UnmountFlags::empty()).unwrap();
                grant.recheck().unwrap();
            }
        });
    }

    /// The mount that holds the store is detached, and the store is seen in a root all the same.
    fn store_on_a_detached_mount(world: &World) {
        in_private_mounts(world, |world| {
            let (point, inside) = (dir(world.path().join("M")), dir(world.write_root().join("in")));
            tmpfs(&point);
            let store = dir(point.join("P"));
            let grant = guard::issue(&roots(&[world.write_root()]), protected_at(&store)).unwrap();
            grant.recheck().unwrap();
            bind(&store, &inside);
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
            grant.recheck().unwrap_err();
        });
    }

    /// What is mounted inside the store is private too.
    fn mounted_inside_the_store(world: &World) {
        in_private_mounts(world, |world| {
            let (inside, other) = (dir(world.private().join("volume")), dir(world.path().join("volume")));
            tmpfs(&other);
            dir(other.join("W"));
            issue(world, other.join("W")).unwrap();
            bind(&other, &inside);
            assert_alias(&issue(world, other.join("W")).unwrap_err(), "mount", &other);
        });
    }

    /// An alias that appears between two commands refuses, in each of its forms, and passes again once it is gone.
    fn alias_between_commands(world: &World) {
        in_private_mounts(world, |world| {
            let point = dir(world.write_root().join("in"));
            let grant = issue(world, world.write_root()).unwrap();
            grant.recheck().unwrap();
            bind(world.private(), &point);
            for _ in 0..2 {
                assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
            }
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
            grant.recheck().unwrap();
            // An unrelated mount is compared and passes.
            tmpfs(&point);
            grant.recheck().unwrap();
        });
    }

    /// A mount of the store moves into a root with a directory above it: the mount table tells nobody.
    fn mount_moved_into_a_root(world: &World) {
        in_private_mounts(world, |world| {
            let (carrier, innocent) = (dir(world.path().join("X2")), dir(world.path().join("X3/in")));
            let point = dir(carrier.join("in"));
            bind(world.private(), &point);
            bind(world.outside(), &innocent);
            let grant = issue(world, world.write_root()).unwrap();
            fs::rename(world.path().join("X3"), world.write_root().join("X3")).unwrap();
            grant.recheck().unwrap();
            fs::rename(&carrier, world.write_root().join("X2")).unwrap();
            let error = grant.recheck().unwrap_err();
            assert_eq!((error.kind(), text(&error, "alias")), (ErrorKind::RootOverlap, "mount"));
            fs::rename(world.write_root().join("X2"), &carrier).unwrap();
            grant.recheck().unwrap();
        });
    }

    /// Nothing can be written through a read-only mount; once it is writable it is an alias.
    fn read_only_mount_of_the_store(world: &World) {
        in_private_mounts(world, |world| {
            let point = dir(world.write_root().join("in"));
            fs::write(world.private().join("db"), "s").unwrap();
            bind(world.private(), &point);
            crate::sys::make_read_only(&point);
            fs::write(point.join("db"), "x").unwrap_err();
            let grant = issue(world, world.write_root()).unwrap();
            grant.recheck().unwrap();
            rustix::mount::mount_remount(&point, rustix::mount::MountFlags::BIND, "").unwrap();
            assert!(reaches(&point.join("db"), &world.private().join("db")));
            assert_alias(&grant.recheck().unwrap_err(), "mount", &point);
        });
    }

    /// A grant keeps nobody from unmounting another view of the store.
    fn views_keep_no_mount_busy(world: &World) {
        in_private_mounts(world, |world| {
            let point = dir(world.path().join("elsewhere"));
            bind(world.private(), &point);
            let grant = issue(world, world.write_root()).unwrap();
            grant.recheck().unwrap();
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
            grant.recheck().unwrap();
        });
    }

    /// C21: kernel file systems and devices below a root.
    fn c21_mounted_beneath(world: &World) {
        in_private_mounts(world, |world| {
            let point = dir(world.write_root().join("in"));
            let file = world.write_root().join("null");
            fs::write(&file, "").unwrap();
            for source in ["/proc", "/sys", "/dev", "/proc/sys"] {
                bind(source, &point);
                fixture::assert_bind_mount(&point, source);
                assert_eq!(issue(world, world.write_root()).unwrap_err().kind(), ErrorKind::RootForbidden, "{source}");
                rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
            }
            bind("/dev/null", &file);
            issue(world, world.write_root()).unwrap();
            tmpfs(&point);
            issue(world, world.write_root()).unwrap();
        });
    }
}

cases! {
    /// C16: another name of a file in the store; and the same found between two commands.
    fn c16_hard_links(world: &World) {
        let db = world.private().join("db");
        fs::write(&db, "s").unwrap();
        let deep = dir(world.write_root().join("deep/er"));
        let name = deep.join("b");
        let set = protected_at(world.private());
        let grant = guard::issue(&roots(&[world.write_root()]), set.clone()).unwrap();
        fs::hard_link(&db, &name).unwrap();
        assert!(reaches(&name, &db));
        for error in [
            guard::issue(&roots(&[world.write_root()]), set.clone()).unwrap_err(),
            grant.recheck().unwrap_err(),
        ] {
            assert_alias(&error, "hard-link", &name);
            assert_eq!(path(&error, "file"), db);
        }
        let verdict = guard::explain(&roots(&[world.write_root()]), &set);
        let comparison = &verdict.roots[0].comparisons[0];
        assert_eq!(comparison.relation, Some(Relation::Alias));
        assert_eq!(comparison.other_names, std::slice::from_ref(&name));
        assert!(matches!(&comparison.fact, Fact::Linked { links: 2, .. }), "{comparison:?}");
        fs::remove_file(&name).unwrap();
        grant.recheck().unwrap();
        // The twins: two names outside of the root, and two names of another file inside it.
        fs::hard_link(&db, world.outside().join("b")).unwrap();
        fs::write(world.write_root().join("one"), "x").unwrap();
        fs::hard_link(world.write_root().join("one"), world.write_root().join("two")).unwrap();
        grant.recheck().unwrap();
        guard::issue(&roots(&[world.write_root()]), set.clone()).unwrap();
        // Moved in: the time of its inode tells.
        fs::rename(world.outside().join("b"), world.write_root().join("c")).unwrap();
        assert_alias(&grant.recheck().unwrap_err(), "hard-link", world.write_root().join("c"));
    }

    /// C20: a database is protected with the files beside it, by its link and by its target.
    fn c20_databases(world: &World) {
        let (store, links, data) =
            (world.private(), dir(world.path().join("L")), dir(world.path().join("S")));
        fs::write(data.join("r.db"), "").unwrap();
        std::os::unix::fs::symlink(data.join("r.db"), links.join("r.db")).unwrap();
        let set = |database: PathBuf| {
            ProtectedSet::around_place(&StorePlace::find(&store).unwrap()).databases(&[database]).build()
        };
        let linked = set(links.join("r.db")).unwrap();
        for root in [&data, &links] {
            let error = guard::issue(&roots(&[root]), linked.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RootOverlap);
            assert_eq!(text(&error, "protected_kind"), "database");
        }
        guard::issue(&roots(&[world.write_root()]), linked.clone()).unwrap();
        // A side file that comes later is protected by its name already, and so is another name of it.
        let grant = guard::issue(&roots(&[world.write_root()]), linked).unwrap();
        fs::write(data.join("r.db-wal"), "").unwrap();
        grant.recheck().unwrap();
        let name = world.write_root().join("wal");
        fs::hard_link(data.join("r.db-wal"), &name).unwrap();
        assert_alias(&grant.recheck().unwrap_err(), "hard-link", &name);
        fs::remove_file(&name).unwrap();
        grant.recheck().unwrap();
        // Something else at the name of a side file.
        std::os::unix::fs::symlink("/etc/passwd", data.join("r.db-journal")).unwrap();
        assert_eq!(set(data.join("r.db")).unwrap_err().kind(), ErrorKind::ProtectedInvalid);
        fs::remove_file(data.join("r.db-journal")).unwrap();
        set(data.join("r.db")).unwrap();
        // One that is not there yet.
        set(data.join("later.db")).unwrap();
        assert_eq!(set(data.join("nowhere/later.db")).unwrap_err().kind(), ErrorKind::ProtectedNotFound);
        assert_eq!(set(data).unwrap_err().kind(), ErrorKind::ProtectedInvalid);
    }

    /// A search that reaches its bound refuses, and only where there is something to search for.
    fn bounded_search(world: &World) {
        let db = world.private().join("db");
        fs::write(&db, "s").unwrap();
        for n in 0..200 {
            fs::write(world.write_root().join(n.to_string()), "").unwrap();
        }
        let issue = |entries: u64| {
            let set = ProtectedSet::around_place(&StorePlace::find(world.private()).unwrap())
                .link_search(guard::LinkSearch::default().entries(entries))
                .build()
                .unwrap();
            guard::issue(&Policy { write_roots: vec![world.write_root().to_owned()], ..Policy::default() }, set)
        };
        issue(100).unwrap();
        fs::hard_link(&db, world.outside().join("other")).unwrap();
        let error = issue(100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LinkSearchStopped, "{error:?}");
        issue(1000).unwrap();
    }
}
