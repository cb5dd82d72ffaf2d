//! The store: private, locked, and made of nothing but what bailiwick put there.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use bailiwick::ErrorKind;
use bailiwick::store::{SENTINEL, StoreDir, StorePlace};
use bailiwick_test::{Snapshot, cases, fixture, root_cases, user_cases};

use super::{dir, link, number, path};

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn kind(path: impl AsRef<Path>) -> ErrorKind {
    StoreDir::open_or_create(path).unwrap_err().kind()
}

cases! {
    /// A new store and an old one come out the same: private, with a sentinel, whatever the mask of the process.
    fn made_private(world: &World) {
        let at = world.outside().join("store");
        let place = StorePlace::find(&at).unwrap();
        assert!(!place.exists() && !at.exists());
        crate::sys::with_umask(0o000, || drop(place.open().unwrap()));
        let again = StoreDir::open_or_create(&at).unwrap();
        assert_eq!(again.dir().canonical(), at);
        assert_eq!(again.run_dir().canonical(), at.join("run"));
        assert_eq!((mode(&at), mode(at.join("run"))), (0o700, 0o700));
        assert_eq!((mode(at.join("lock")), mode(at.join("run").join(SENTINEL))), (0o600, 0o600));
        assert_eq!(fs::metadata(at.join("run").join(SENTINEL)).unwrap().ino(), {
            drop(again);
            StoreDir::open_or_create(&at).unwrap();
            fs::metadata(at.join("run").join(SENTINEL)).unwrap().ino()
        });

        let masked = world.outside().join("masked");
        crate::sys::with_umask(0o777, || StoreDir::open_or_create(&masked).map(drop)).unwrap();
        assert_eq!((mode(&masked), mode(masked.join("run")), mode(masked.join("lock"))), (0o700, 0o700, 0o600));
    }

    /// What lies in a directory that becomes a store stays as it is; a sentinel that was spoiled is laid again.
    fn adopts_a_directory(world: &World) {
        let before = Snapshot::of(world.secret());
        drop(StoreDir::open_or_create(world.private()).unwrap());
        before.assert_unchanged();
        let sentinel = world.private().join("run").join(SENTINEL);
        let whole = fs::read(&sentinel).unwrap();
        for spoil in [b"".as_slice(), b"x", &[b'x'; 5000]] {
            fs::write(&sentinel, spoil).unwrap();
            drop(StoreDir::open_or_create(world.private()).unwrap());
            assert_eq!(fs::read(&sentinel).unwrap(), whole);
        }
        fs::remove_file(&sentinel).unwrap();
        drop(StoreDir::open_or_create(world.private()).unwrap());
        assert_eq!(fs::read(&sentinel).unwrap(), whole);
    }

    /// Only a path that is absolute and leads to a directory; the one above it must exist.
    fn where_a_store_can_be(world: &World) {
        for (bad, expected) in [
            ("", ErrorKind::StoreInvalid),
            ("store", ErrorKind::StoreInvalid),
            ("~/store", ErrorKind::StoreInvalid),
            (world.outside_file().to_str().unwrap(), ErrorKind::StoreInvalid),
            (world.outside_file().join("x").to_str().unwrap(), ErrorKind::StoreNotAccessible),
            (world.path().join("no/where").to_str().unwrap(), ErrorKind::StoreNotAccessible),
            (link("nothing", world.outside().join("dangling")).to_str().unwrap(), ErrorKind::StoreNotAccessible),
        ] {
            let error = StoreDir::open_or_create(bad).unwrap_err();
            assert_eq!((error.kind(), path(&error, "store")), (expected, Path::new(bad)), "{error:?}");
        }
        assert!(!world.outside().join("nothing").exists());
        dir(world.path().join("no"));
        StoreDir::open_or_create(world.path().join("no/where")).unwrap();
        // A link to a store is a way to it.
        let to_store = link(world.private(), world.outside().join("link"));
        assert_eq!(StoreDir::open_or_create(to_store).unwrap().dir().canonical(), world.private());
    }

    /// C85: open to others is refused, and not tightened in silence.
    fn c85_open_to_others(world: &World) {
        for loose in [0o777, 0o750, 0o701, 0o710] {
            fs::set_permissions(world.private(), Permissions::from_mode(loose)).unwrap();
            let error = StoreDir::open_or_create(world.private()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreInvalid, "{loose:o}");
            assert_eq!(crate::text(&error, "mode"), format!("{loose:04o}"));
            assert!(error.hints()[0].contains("chmod 700"), "{:?}", error.hints());
            assert_eq!(mode(world.private()), loose);
            assert!(!world.private().join("lock").exists());
        }
        fs::set_permissions(world.private(), Permissions::from_mode(0o700)).unwrap();
        StoreDir::open_or_create(world.private()).unwrap();
    }

    /// A link, a directory, a FIFO or a file with a second name where a file of ours belongs.
    fn planted_entries(world: &World) {
        let lock = world.private().join("lock");
        let victim = Snapshot::of(world.outside_file());
        link(world.outside_file(), &lock);
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_file(&lock).unwrap();
        dir(&lock);
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_dir(&lock).unwrap();
        assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
        fixture::assert_fifo(&lock);
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_file(&lock).unwrap();
        fs::hard_link(world.secret(), &lock).unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_file(&lock).unwrap();

        let run = link(world.outside(), world.private().join("run"));
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_file(&run).unwrap();
        fs::write(&run, "").unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_file(&run).unwrap();
        dir(&run);
        fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
        link(world.outside_file(), run.join(SENTINEL));
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        fs::remove_file(run.join(SENTINEL)).unwrap();

        StoreDir::open_or_create(world.private()).unwrap();
        victim.assert_unchanged();
        assert!(!world.outside().join(SENTINEL).exists());
    }

    /// C84: one session at a time; the holder is named by pid and start time, and its death frees the store.
    fn c84_one_holder(world: &World) {
        let first = StoreDir::open_or_create(world.private()).unwrap();
        let error = StoreDir::open_or_create(world.private()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreLocked);
        assert!(error.can_retry());
        let me = bailiwick_test::process::Process::of(std::process::id()).unwrap();
        assert_eq!(number(&error, "holder_pid"), i64::from(me.pid));
        assert_eq!(u64::try_from(number(&error, "holder_start_time")).unwrap(), me.start_time);
        drop(first);
        drop(StoreDir::open_or_create(world.private()).unwrap());

        // Another process: its lock ends with it, however it dies.
        let mut holder = Command::new("flock").arg("--no-fork").arg(world.private().join("lock")).args(["sleep", "600"]).spawn().unwrap();
        assert!(bailiwick_test::wait_until(bailiwick_test::process::GENEROUS, || {
            StoreDir::open_or_create(world.private()).is_err()
        }));
        assert_eq!(kind(world.private()), ErrorKind::StoreLocked);
        bailiwick_test::process::kill_tree(holder.id());
        holder.wait().unwrap();
        assert!(bailiwick_test::wait_until(bailiwick_test::process::GENEROUS, || {
            StoreDir::open_or_create(world.private()).is_ok()
        }));
    }

    /// A store that was let go can be taken again at once, although another thread of the host starts programs all the
    /// while: between fork and exec their processes hold every open file of the host, the lock too.
    fn taken_again_while_the_host_starts_programs(world: &World) {
        let (private, done) = (world.private(), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    Command::new("/bin/true").status().unwrap();
                }
            });
            let outcome = (0..2000).try_for_each(|_| StoreDir::open_or_create(&private).map(drop));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome.unwrap();
        });
    }

    /// A lock whose file was removed and made again is not mistaken for the lock at the name.
    fn lock_file_replaced(world: &World) {
        let first = StoreDir::open_or_create(world.private()).unwrap();
        fs::remove_file(world.private().join("lock")).unwrap();
        // Whoever removes the lock takes it away from its holder; the new one is whole.
        let second = StoreDir::open_or_create(world.private()).unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreLocked);
        drop((first, second));
    }
}

root_cases! {
    /// A store of another user, and a file of another user in one.
    fn foreign_owner(world: &World) {
        let foreign = Some(bailiwick_test::case::PLAIN_UID);
        std::os::unix::fs::chown(world.private(), foreign, None).unwrap();
        let error = StoreDir::open_or_create(world.private()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreInvalid);
        assert_eq!(number(&error, "owner"), i64::from(bailiwick_test::case::PLAIN_UID));
        std::os::unix::fs::chown(world.private(), Some(0), None).unwrap();
        drop(StoreDir::open_or_create(world.private()).unwrap());
        std::os::unix::fs::chown(world.private().join("lock"), foreign, None).unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreInvalid);
        std::os::unix::fs::chown(world.private().join("lock"), Some(0), None).unwrap();
        StoreDir::open_or_create(world.private()).unwrap();
    }
}

user_cases! {
    /// Places that this user may not write, and a store whose mode keeps its owner out.
    fn no_access(world: &World) {
        assert_eq!(kind("/usr/bailiwick-store"), ErrorKind::StoreNotAccessible);
        assert_eq!(kind("/usr"), ErrorKind::StoreInvalid);
        fs::set_permissions(world.private(), Permissions::from_mode(0o500)).unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreNotAccessible);
        fs::set_permissions(world.private(), Permissions::from_mode(0o000)).unwrap();
        assert_eq!(kind(world.private()), ErrorKind::StoreNotAccessible);
        fs::set_permissions(world.private(), Permissions::from_mode(0o700)).unwrap();
        StoreDir::open_or_create(world.private()).unwrap();
    }
}
