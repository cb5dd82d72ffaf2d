//! Which changes a watch sees.

use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount_move, mount_remount, unmount};

use super::super::{MountTable, MountWatch};
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

/// A table that is read while others mount is one that stood at one moment.
#[test]
fn a_table_is_of_one_moment_mount() {
    use std::sync::atomic::{AtomicBool, Ordering};
    with_arena(|arena| {
        // One mount that is moved between two points: at every moment it is at exactly one of them.
        let (here, there) = (arena.dir("a"), arena.dir("b"));
        tmpfs(&here);
        let id = id_at(&here);
        let done = AtomicBool::new(false);
        let mut moves = 0;
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut moves = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    mount_move(&here, &there).unwrap();
                    mount_move(&there, &here).unwrap();
                    moves += 2;
                    // Room for a whole reading.
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                moves
            });
            for _ in 0..300 {
                for table in [MountTable::read_by_text(), MountTable::read()] {
                    // Never a wrong table; a table that finds no rest is an error.
                    let Ok(table) = table else { continue };
                    let point = &table.get(id).unwrap().point;
                    assert!(*point == here || *point == there, "{point:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
            moves = mover.join().unwrap();
        });
        assert!(moves > 2, "{moves}");
    });
}

fn id_at(point: &Path) -> u64 {
    let table = MountTable::read().unwrap();
    table.iter().filter(|mount| mount.point == point).map(|mount| mount.id).max().unwrap()
}
