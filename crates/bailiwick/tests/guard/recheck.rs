//! What a grant notices after it was given.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bailiwick::guard::{self, ProtectedSet};
use bailiwick::store::{StoreDir, StorePlace};
use bailiwick::{ErrorKind, Policy};
use bailiwick_test::cases;

use super::{assert_overlap, dir, granted, issue, link, path, protected_at, roots, text};

cases! {
    /// C07: the root is replaced by a link to the store, by another directory, by a file, or removed.
    fn c07_root_replaced(world: &World) {
        let (w, old) = (world.write_root(), world.path().join("W.old"));
        let grant = issue(world, &[&w]).unwrap();
        let inode = fs::metadata(&w).unwrap().ino();
        grant.recheck().unwrap();
        fs::rename(&w, &old).unwrap();

        let kind = || grant.recheck().map_err(|error| error.kind());
        assert_eq!(kind(), Err(ErrorKind::RootMissing));
        link(world.private(), &w);
        let error = grant.recheck().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RootIdentityChanged);
        assert!(error.can_retry());
        assert!(text(&error, "found").contains(&format!("inode {}", fs::metadata(world.private()).unwrap().ino())));
        fs::remove_file(&w).unwrap();
        // A link to the very same directory: the same object, but no longer a name without a link.
        link(&old, &w);
        assert_eq!(kind(), Err(ErrorKind::RootIdentityChanged));
        fs::remove_file(&w).unwrap();
        dir(&w);
        assert_eq!(kind(), Err(ErrorKind::RootIdentityChanged));
        fs::remove_dir(&w).unwrap();
        fs::write(&w, "").unwrap();
        assert_eq!(kind(), Err(ErrorKind::RootIdentityChanged));
        fs::remove_file(&w).unwrap();

        // The grant holds what it was given for, all along; the twin is the directory put back.
        assert_eq!(grant.roots()[0].id().inode, inode);
        fs::rename(&old, &w).unwrap();
        grant.recheck().unwrap();
    }

    /// C07: the root and a link to the store change places at full speed while grants are issued and checked.
    fn c07_root_swapped_in_a_loop(world: &World) {
        let (w, other) = (world.write_root(), link(world.private(), world.path().join("other")));
        let inode = fs::metadata(&w).unwrap().ino();
        let done = AtomicBool::new(false);
        let (mut issued, mut rechecked, mut refused) = (0, 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    crate::sys::exchange(&w, &other);
                }
            });
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(60) && (issued < 200 || refused < 200 || start.elapsed() < Duration::from_secs(2)) {
                match issue(world, &[&w]) {
                    Ok(grant) => {
                        assert_eq!(grant.roots()[0].id().inode, inode, "granted something else than the root");
                        issued += 1;
                        match grant.recheck() {
                            Ok(()) => rechecked += 1,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::RootIdentityChanged, "{error:?}"),
                        }
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::RootOverlap | ErrorKind::RootIdentityChanged), "{error:?}");
                        refused += 1;
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        // Both outcomes were seen, or the loop did not race.
        assert!(issued >= 200 && refused >= 200 && rechecked > 0, "{issued} issued, {refused} refused, {rechecked} rechecked");
    }

    /// The store moved into a root, or a root moved into the store: device, inode, links and mounts stay equal.
    fn moved_into_one_another(world: &World) {
        let store = StoreDir::open_or_create(world.private()).unwrap();
        let policy = roots(&[world.write_root(), world.outside()]);
        let grant = guard::issue(&policy, ProtectedSet::for_session(&store, &policy).unwrap()).unwrap();
        grant.recheck().unwrap();

        let inside = dir(world.write_root().join("deep")).join("P");
        fs::rename(world.private(), &inside).unwrap();
        assert_overlap(&grant.recheck().unwrap_err(), world.write_root(), world.private(), "around");
        fs::rename(&inside, world.private()).unwrap();
        grant.recheck().unwrap();

        // The root keeps its path, and the store takes the place of the directory above it.
        let above = dir(world.path().join("above"));
        let nested = dir(above.join("W"));
        let grant = issue(world, &[&nested]).unwrap();
        fs::rename(&nested, world.private().join("W")).unwrap();
        fs::rename(&above, world.path().join("above.old")).unwrap();
        fs::rename(world.private(), &above).unwrap();
        assert_eq!(fs::metadata(&nested).unwrap().ino(), grant.roots()[0].id().inode);
        assert_overlap(&grant.recheck().unwrap_err(), &nested, world.private(), "inside");
    }

    /// A protected file: moved into a root it is found, saved anew or removed it hinders nobody.
    fn protected_file_moves(world: &World) {
        let (file, inside) = (world.outside_file(), world.write_root().join("f"));
        let policy = Policy { protect: vec![file.clone()], ..roots(&[world.write_root()]) };
        let place = StorePlace::find(world.private()).unwrap();
        let set = ProtectedSet::around_place(&place).protect(&policy.protect).build().unwrap();
        let grant = guard::issue(&policy, set).unwrap();
        grant.recheck().unwrap();

        fs::rename(&file, &inside).unwrap();
        assert_overlap(&grant.recheck().unwrap_err(), world.write_root(), &file, "around");
        fs::rename(&inside, &file).unwrap();
        grant.recheck().unwrap();

        fs::write(world.outside().join("new"), "y").unwrap();
        fs::rename(world.outside().join("new"), &file).unwrap();
        grant.recheck().unwrap();
        // Its name is protected still: the directory around it moves into the root.
        fs::rename(world.outside(), world.write_root().join("X")).unwrap();
        assert_overlap(&grant.recheck().unwrap_err(), world.write_root(), &file, "around");
        fs::rename(world.write_root().join("X"), world.outside()).unwrap();
        fs::remove_file(&file).unwrap();
        grant.recheck().unwrap();
    }

    /// A failed replacement leaves the grant that was in force as it was.
    fn refused_replacement_leaves_the_grant(world: &World) {
        let grant = issue(world, &[world.write_root()]).unwrap();
        guard::issue(&roots(&[world.path()]), grant.protected().clone()).unwrap_err();
        grant.recheck().unwrap();
        assert_eq!(granted(&grant), [world.write_root()]);
        let next = guard::issue(&roots(&[world.outside()]), grant.protected().clone()).unwrap();
        assert_eq!(granted(&next), [world.outside()]);
    }

    /// A directory that the session adds is held to the same comparison.
    fn an_addition_is_compared_too(world: &World) {
        use bailiwick::identity::PinnedDir;
        let grant = guard::issue(&roots(&[world.write_root()]), protected_at(world.private())).unwrap();
        let inside = dir(world.private().join("tmp"));
        let error = grant.check_addition(&PinnedDir::working_directory(&inside).unwrap()).unwrap_err();
        assert_eq!((error.kind(), path(&error, "root")), (ErrorKind::RootOverlap, inside.as_path()));
        grant.check_addition(&PinnedDir::working_directory(world.outside()).unwrap()).unwrap();
    }

    /// The store moves into a root that is granted only afterwards, from the same protected set: what counts is where
    /// it lies now.
    fn store_moved_before_the_next_grant(world: &World) {
        let set = protected_at(world.private());
        let policy = roots(&[world.outside()]);
        let grant = guard::issue(&policy, set.clone()).unwrap();
        let moved = world.outside().join("P");
        fs::rename(world.private(), &moved).unwrap();
        for error in [guard::issue(&policy, set.clone()).unwrap_err(), grant.recheck().unwrap_err()] {
            assert_overlap(&error, world.outside(), world.private(), "around");
        }
        assert!(!guard::explain(&policy, &set).granted);
        // The twin: moved elsewhere.
        fs::rename(&moved, world.path().join("P2")).unwrap();
        guard::issue(&policy, set).unwrap();
        grant.recheck().unwrap();
    }
}
