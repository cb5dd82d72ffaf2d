//! The scan on whatever file system `/tmp` is.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailiwick_test::case::PLAIN_UID;
use bailiwick_test::{cases, fixture, root_cases, user_cases};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

cases! {
    /// C16: every name in every depth, and nothing else.
    fn finds_every_name(world: &World) {
        let root = world.write_root();
        let deep = dir(root.join("a/b/c"));
        File::create(root.join("a/other")).unwrap();
        symlink(world.secret(), root.join("symbolic")).unwrap();
        let targets = [target(world.secret())];
        // The twin: the same tree without the names.
        assert_eq!(names(&scan(&root, &targets)), Vec::<PathBuf>::new());
        let links = [
            link(world.secret(), root.join("a/b/c/odd\nname")),
            link(world.secret(), root.join("a/second")),
            link(world.secret(), root.join("z")),
        ];
        fixture::assert_hard_links(world.secret(), &links[0]);
        let report = scan(&root, &targets);
        assert_eq!(names(&report), links);
        assert!(report.names.iter().all(|(found, _)| *found == targets[0].key));
        assert_eq!(names(&scan(&deep, &targets)), links[..1]);
        assert_eq!(names(&scan(&root, &[target(root.join("a/other"))])), [root.join("a/other")]);
        assert_eq!(names(&scan(&root, &[])), Vec::<PathBuf>::new());
    }

    /// Everything that can have two names and be written through one of them.
    fn finds_what_is_no_file(world: &World) {
        let (private, root) = (world.private(), world.write_root());
        mknodat(CWD, private.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(private.join("socket")).unwrap();
        let links = [
            link(private.join("fifo"), root.join("fifo")),
            link(private.join("socket"), root.join("socket")),
        ];
        let targets = [target(private.join("fifo")), target(private.join("socket"))];
        assert_eq!(names(&scan(&root, &targets)), links);
        assert_eq!(names(&scan(&root, &targets[..1])), links[..1]);
    }

    /// Entries are counted exactly, and the limit holds to the entry.
    fn limit_of_entries(world: &World) {
        let root = world.write_root();
        for name in ["a", "b", "c"] {
            File::create(dir(root.join(name)).join("f")).unwrap();
        }
        let targets = [target(world.secret())];
        let report = scan(&root, &targets);
        let entries = report.entries;
        assert_eq!((entries, report.directories), (6, 4));
        let within = |entries| {
            let limits = ScanLimits { entries, ..ScanLimits::default() };
            scan_within(&[&root], &targets, &limits)
        };
        assert_eq!(within(entries).unwrap().entries, entries);
        let stop = within(entries - 1).unwrap_err();
        assert!(matches!(stop, ScanStop::Entries { limit } if limit == entries - 1), "{stop:?}");
    }

    /// A deadline that has passed stops; one to come does not.
    fn deadline(world: &World) {
        let root = world.write_root();
        dir(root.join("a/b"));
        let targets = [target(world.secret())];
        let until = |deadline| {
            let limits = ScanLimits { deadline: Some(deadline), ..ScanLimits::default() };
            scan_within(&[&root], &targets, &limits)
        };
        let stop = until(Instant::now()).unwrap_err();
        assert!(matches!(stop, ScanStop::Deadline { .. }), "{stop:?}");
        until(Instant::now() + Duration::from_secs(3600)).unwrap();
    }

    /// Many files in one directory and many directories in another: more than one batch of entries, and more names
    /// than are kept at once. Progress is told on the way.
    fn wide_directories(world: &World, seconds = 300) {
        let root = world.write_root();
        let (files, directories) = (dir(root.join("files")), dir(root.join("directories")));
        for number in 0..12_000 {
            File::create(files.join(number.to_string())).unwrap();
        }
        let mut expected = Vec::new();
        for number in 0..1500 {
            let below = dir(directories.join(format!("{number:0>250}")));
            if number % 100 == 0 {
                expected.push(link(world.secret(), below.join("x")));
            }
        }
        expected.push(link(world.secret(), files.join("x")));
        let targets = [target(world.secret())];
        let report = scan(&root, &targets);
        assert_eq!(names(&report), expected);
        assert_eq!((report.entries, report.directories), (13_518, 1503) );

        let told = Mutex::new(Vec::new());
        let pinned = PinnedDir::open(&root).unwrap();
        let starts = [Start { dir: pinned.as_fd(), path: &root }; 6];
        let tell = |progress| told.lock().unwrap().push(progress);
        let report =
            crate::identity::links::scan(&starts, &targets, &ScanLimits::default(), Some(&tell)).unwrap();
        let told = told.into_inner().unwrap();
        assert!(!told.is_empty());
        assert!(told.iter().all(|progress| progress.entries <= report.entries));
        assert!(told.iter().all(|progress| progress.directories <= report.directories));
    }

    /// A thread that moves directories about: the scan ends, with all names or none.
    fn while_directories_move(world: &World) {
        let root = world.write_root();
        let targets = [target(world.secret())];
        let expected: Vec<PathBuf> =
            (0..50).map(|number| link(world.secret(), dir(root.join(format!("{number:02}"))).join("x"))).collect();
        let restless = dir(root.join("restless"));
        for number in 0..40 {
            dir(restless.join(format!("{number}/a/b")));
        }
        let (done, moved) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (mut whole, mut stopped) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for number in 0..40 {
                        let (one, other) = (restless.join(number.to_string()), restless.join(format!("moved-{number}")));
                        fs::rename(&one, &other).unwrap();
                        fs::rename(&other, &one).unwrap();
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let begin = Instant::now();
            // Until both outcomes were seen, or long enough; at least while something was moved a thousand times.
            while (moved.load(Ordering::Relaxed) < 1000 || whole == 0 || stopped == 0)
                && begin.elapsed() < Duration::from_secs(60)
            {
                match scan_within(&[&root], &targets, &ScanLimits::default()) {
                    Ok(report) => {
                        assert_eq!(names(&report), expected);
                        whole += 1;
                    }
                    Err(ScanStop::Changed { path }) => {
                        assert!(path.starts_with(&restless), "{}", path.display());
                        stopped += 1;
                    }
                    Err(stop) => panic!("{stop:?}"),
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(moved.into_inner() > 0 && whole + stopped > 0);
        assert_eq!(names(&scan(&root, &targets)), expected);
    }

    /// A panic in the callback comes through; the other threads do not wait for ever.
    fn a_panic_ends_the_scan(world: &World) {
        let root = world.write_root();
        for number in 0..17_000 {
            File::create(root.join(number.to_string())).unwrap();
        }
        let pinned = PinnedDir::open(&root).unwrap();
        let targets = [target(world.secret())];
        let run = |report: &(dyn Fn(crate::identity::links::ScanProgress) + Sync)| {
            let starts = [Start { dir: pinned.as_fd(), path: &root }; 4];
            crate::identity::links::scan(&starts, &targets, &ScanLimits { threads: 4, ..ScanLimits::default() }, Some(report))
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&|_| panic!("in a report"))));
        assert!(outcome.is_err());
        assert_eq!(run(&|_| {}).unwrap().entries, 68_000);
    }
}

user_cases! {
    /// A directory that its owner has closed is not skipped: a command could open it again.
    fn an_unreadable_directory_stops(world: &World) {
        let root = world.write_root();
        let closed = dir(root.join("a/closed"));
        let expected = link(world.secret(), closed.join("x"));
        let targets = [target(world.secret())];
        for mode in [0o000, 0o300] {
            set_mode(&closed, mode);
            fixture::assert_unreadable(&closed);
            let stop = scan_within(&[&root], &targets, &ScanLimits::default()).unwrap_err();
            assert!(matches!(&stop, ScanStop::Unreadable { path, .. } if *path == closed), "{stop:?}");
            assert!(!stop.can_retry() && !stop.hint().is_empty());
        }
        set_mode(&closed, 0o700);
        assert_eq!(names(&scan(&root, &targets)), [expected]);
    }

    /// Names can be read and nothing entered: that is enough for files, and not for directories.
    fn a_directory_that_cannot_be_searched(world: &World) {
        let root = world.write_root();
        let closed = dir(root.join("closed"));
        let below = dir(closed.join("below"));
        set_mode(&closed, 0o600);
        let stop = scan_within(&[&root], &[target(world.secret())], &ScanLimits::default()).unwrap_err();
        assert!(matches!(&stop, ScanStop::Unreadable { path, .. } if *path == below), "{stop:?}");
        set_mode(&closed, 0o700);
        scan(&root, &[target(world.secret())]);
    }
}

root_cases! {
    /// A directory that belongs to somebody else is left out only if it cannot even be entered.
    fn what_is_closed_to_commands_too(world: &World) {
        let root = world.write_root();
        let closed = dir(root.join("closed"));
        link(world.secret(), closed.join("x"));
        let targets = [target(world.secret())];
        set_mode(world.path(), 0o755);
        set_mode(&root, 0o755);
        for (mode, is_left_out) in [(0o700, true), (0o711, false)] {
            set_mode(&closed, mode);
            super::sys::as_user(PLAIN_UID, || {
                fixture::assert_unreadable(&closed);
                match scan_within(&[&root], &targets, &ScanLimits::default()) {
                    Ok(report) => {
                        assert!(is_left_out);
                        assert_eq!((report.closed, report.first_closed.as_ref()), (1, Some(&closed)));
                        assert_eq!(names(&report), Vec::<PathBuf>::new());
                    }
                    Err(ScanStop::Unreadable { path, .. }) => assert!(!is_left_out && path == closed),
                    Err(stop) => panic!("{stop:?}"),
                }
            });
        }
    }
}
