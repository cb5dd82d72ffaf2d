//! Which changes a watch sees.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount_move, mount_remount, unmount};

use super::super::{MountTable, MountWatch, calls, text};
use super::{bind, make_read_only, make_shared, tmpfs, with_arena};

#[track_caller]
fn assert_seen(watch: &MountWatch, act: impl FnOnce()) {
    act();
    assert!(watch.changed().unwrap());
    assert!(!watch.changed().unwrap(), "told once");
}

#[track_caller]
fn assert_silent(watch: &MountWatch, act: impl FnOnce()) {
    act();
    assert!(!watch.changed().unwrap());
}

#[test]
fn sees_what_changes_the_table_mount() {
    with_arena(|arena| {
        let (one, two, three) = (arena.dir("one"), arena.dir("two"), arena.dir("three"));
        let source = arena.dir("source");
        let watch = MountWatch::new().unwrap();
        assert_silent(&watch, || ());
        assert_seen(&watch, || bind(&source, &one));
        assert_seen(&watch, || make_read_only(&one));
        assert_seen(&watch, || mount_move(&one, &two).unwrap());
        assert_seen(&watch, || mount_remount(&arena.at, MountFlags::NOATIME, "").unwrap());
        assert_seen(&watch, || tmpfs(&two));
        assert_seen(&watch, || unmount(&two, UnmountFlags::empty()).unwrap());
        assert_seen(&watch, || unmount(&two, UnmountFlags::DETACH).unwrap());
        // Several changes are one answer.
        assert_seen(&watch, || {
            bind(&source, &one);
            bind(&source, &three);
        });
    });
}

#[test]
fn what_it_does_not_see_mount() {
    with_arena(|arena| {
        let (above, source) = (arena.dir("above"), arena.dir("source"));
        let point = arena.dir("above/point");
        bind(&source, &point);
        let watch = MountWatch::new().unwrap();
        assert_silent(&watch, || make_shared(&point));
        assert_silent(&watch, || std::fs::write(source.join("file"), "").unwrap());
        // Mounts of somebody else.
        assert_silent(&watch, || crate::sys::unshared::in_private_mounts(|| tmpfs(Path::new("/tmp"))));
        // The table names the new point, and nothing said so.
        let id = id_at(&point);
        assert_silent(&watch, || std::fs::rename(&above, arena.path("elsewhere")).unwrap());
        assert_eq!(MountTable::read().unwrap().get(id).unwrap().point, arena.path("elsewhere/point"));
        // The twin: the watch does work.
        assert_seen(&watch, || tmpfs(&arena.dir("twin")));
    });
}

/// A watch keeps to the mounts of the thread that made it.
#[test]
fn watches_the_thread_that_made_it_mount() {
    with_arena(|arena| {
        let point = arena.dir("point");
        let watch = MountWatch::new().unwrap();
        std::thread::scope(|scope| {
            let changed = scope.spawn(|| {
                tmpfs(&point);
                watch.changed().unwrap()
            });
            assert!(changed.join().unwrap(), "a thread that was started here has the same mounts");
        });
    });
}

/// A table that is read while others mount is one that stood at one moment; a single reading need not be.
#[test]
fn a_table_is_of_one_moment_mount() {
    with_arena(|arena| {
        // Two mounts that change places by way of a third one: at no moment are both at one point. Between them in the
        // order of reading lie others, so that a reading takes longer than a change of places.
        let points = ["a", "b", "c"].map(|name| arena.dir(name));
        tmpfs(&points[0]);
        let first = id_at(&points[0]);
        for number in 0..200 {
            bind(&points[2], arena.dir(format!("between/{number}")));
        }
        tmpfs(&points[1]);
        let last = id_at(&points[1]);
        let is_torn = |table: &MountTable| match (table.get(first), table.get(last)) {
            (Some(first), Some(last)) => first.point == last.point,
            _ => true,
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pauses = (0..40).cycle().map(Duration::from_millis);
                while !done.load(Ordering::Relaxed) {
                    for (from, to) in [(0, 2), (1, 0), (2, 1)] {
                        mount_move(&points[from], &points[to]).unwrap();
                    }
                    // Of many lengths: some fit a whole reading, however slow this machine is just now.
                    std::thread::sleep(pauses.next().unwrap_or_default());
                }
            });
            // Also when this thread panics, or the scope would never end.
            let _done = Done(&done);
            let watch = MountWatch::new().unwrap();
            // A kernel without the calls tears nothing by them.
            let without_calls = MountTable::read_by_calls().is_ok_and(|table| table.is_none());
            let (mut torn, mut whole) = ([u32::from(without_calls), 0], [0, 0]);
            let all_seen = bailiwick_test::process::wait_until(bailiwick_test::process::GENEROUS, || {
                let single = [calls::read().unwrap_or_default(), text::read(watch.file()).ok()];
                let read = [MountTable::read(), MountTable::read_by_text()];
                for (at, (single, read)) in single.iter().zip(read).enumerate() {
                    torn[at] += u32::from(single.as_ref().is_some_and(is_torn));
                    // A table that finds no rest is an error, never a wrong table.
                    if let Ok(table) = read {
                        assert!(!is_torn(&table));
                        whole[at] += 1;
                    }
                }
                torn.iter().chain(&whole).all(|count| *count > 0)
            });
            assert!(all_seen, "torn {torn:?}, whole {whole:?}");
        });
        assert!(!is_torn(&MountTable::read().unwrap()));
    });
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn id_at(point: &Path) -> u64 {
    let table = MountTable::read().unwrap();
    table.iter().filter(|mount| mount.point == point).map(|mount| mount.id).max().unwrap()
}
