//! Mounts, as far as identity alone sees through them. What it does not see is for the comparison of mounts.

use std::path::Path;

use bailiwick::guard;
use bailiwick::{Error, ErrorKind};
use bailiwick_test::{fixture, root_cases};

use super::{Places, assert_overlap, dir, granted, protected_at, roots};
use crate::sys::{bind, in_private_mounts, tmpfs};

fn refused(world: &Places, root: impl AsRef<Path>) -> Error {
    guard::issue(&roots(&[root]), protected_at(world.private())).unwrap_err()
}

root_cases! {
    /// C01, C21: `/` and `/dev` under other names are what they are.
    fn aliases_of_slash_and_dev(world: &World) {
        in_private_mounts(world, |world| {
            let (slash, dev, twin) = (dir(world.path().join("slash")), dir(world.path().join("dev")), dir(world.path().join("twin")));
            bind("/", &slash);
            bind("/dev", &dev);
            bind(world.outside(), &twin);
            fixture::assert_bind_mount(&slash, "/");
            assert_eq!(refused(world, &slash).kind(), ErrorKind::RootForbidden);
            assert_eq!(refused(world, &dev).kind(), ErrorKind::RootForbidden);
            guard::issue(&roots(&[twin]), protected_at(world.private())).unwrap();
        });
    }

    /// C09: a root that is another name of the store, of a directory in it, or of one around it.
    fn root_is_an_alias(world: &World) {
        in_private_mounts(world, |world| {
            let (alias, whole) = (dir(world.path().join("alias")), dir(world.path().join("whole")));
            bind(world.private(), &alias);
            let canonical = |error: &Error| crate::path(error, "canonical").to_owned();
            let error = refused(world, &alias);
            assert_overlap(&error, &alias, world.private(), "same");
            assert_eq!(canonical(&error), alias);
            let below = dir(alias.join("sub"));
            assert_overlap(&refused(world, &below), &below, world.private(), "inside");
            bind(world.path(), &whole);
            assert_overlap(&refused(world, &whole), &whole, world.private(), "around");
            let again = whole.join("P");
            assert_overlap(&refused(world, &again), &again, world.private(), "same");
            // The twin, in the same bind mount.
            guard::issue(&roots(&[whole.join("W")]), protected_at(world.private())).unwrap();
        });
    }

    /// C13: a directory that another mount hides is not the one at its path.
    fn hidden_mount(world: &World) {
        in_private_mounts(world, |world| {
            let cover = dir(world.path().join("cover"));
            bind(world.private(), &cover);
            assert_overlap(&refused(world, &cover), &cover, world.private(), "same");
            tmpfs(&cover);
            let grant = guard::issue(&roots(&[&cover]), protected_at(world.private())).unwrap();
            assert_eq!(granted(&grant), [cover]);
            grant.recheck().unwrap();
        });
    }

    /// A mount made over a root after the grant: the path names another object.
    fn mounted_over_a_root(world: &World) {
        in_private_mounts(world, |world| {
            let grant = guard::issue(&roots(&[world.write_root()]), protected_at(world.private())).unwrap();
            grant.recheck().unwrap();
            // The same directory once more: device and inode stay, the mount differs.
            bind(world.write_root(), world.write_root());
            assert_eq!(grant.recheck().unwrap_err().kind(), ErrorKind::RootIdentityChanged);
            let grant = guard::issue(&roots(&[world.write_root()]), protected_at(world.private())).unwrap();
            grant.recheck().unwrap();
            tmpfs(&world.write_root());
            assert_eq!(grant.recheck().unwrap_err().kind(), ErrorKind::RootIdentityChanged);
        });
    }

    /// A root on a file system that is mounted read-only cannot be written.
    fn read_only_mount(world: &World) {
        in_private_mounts(world, |world| {
            bind(world.write_root(), world.write_root());
            guard::issue(&roots(&[world.write_root()]), protected_at(world.private())).unwrap();
            crate::sys::make_read_only(&world.write_root());
            assert_eq!(refused(world, world.write_root()).kind(), ErrorKind::RootNotAccessible);
        });
    }

    /// Roots inside one another through different mounts stay roots of their own.
    fn nested_through_another_mount(world: &World) {
        in_private_mounts(world, |world| {
            let (inner, alias) = (dir(world.write_root().join("inner")), dir(world.path().join("alias")));
            bind(world.write_root(), &alias);
            let set = protected_at(world.private());
            let through = alias.join("inner");
            assert_eq!(
                guard::issue(&roots(&[world.write_root(), through]), set.clone()).unwrap().roots().len(),
                2
            );
            assert_eq!(guard::issue(&roots(&[world.write_root(), inner]), set).unwrap().roots().len(), 1);
        });
    }
}
