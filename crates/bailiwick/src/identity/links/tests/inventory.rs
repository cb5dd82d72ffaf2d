//! The inventory of a protected directory.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use bailiwick_test::{cases, fixture, root_cases, user_cases};

use super::super::linked::Freshness;
use super::super::{Inventory, InventoryFault, WalkLimits};
use super::sys::{bind, in_private_mounts};
use super::*;

fn take(path: &Path) -> Inventory {
    Inventory::take(&PinnedDir::open(path).unwrap(), &WalkLimits::default()).unwrap()
}

/// Waits until no time stamp is young, and for a look that finds nothing new.
fn settle(inventory: &mut Inventory) {
    std::thread::sleep(Duration::from_millis(100));
    inventory.refresh().unwrap();
    assert!(inventory.refresh().unwrap().is_same());
}

fn paths<'a>(files: impl Iterator<Item = &'a crate::identity::links::LinkedFile>) -> Vec<PathBuf> {
    files.map(|file| file.path.clone()).collect()
}

/// Descriptors of this process that lead into a directory.
fn held(below: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    descriptors.filter(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.starts_with(below))).count()
}

cases! {
    /// C16: a name made outside shows in the link count, wherever it is and however deep the file.
    fn a_name_made_later(world: &World) {
        let (private, outside) = (world.private(), world.outside());
        let deep = dir(private.join("a/b")).join("receipt");
        File::create(&deep).unwrap();
        let mut inventory = take(&private);
        assert_eq!(paths(inventory.linked()), Vec::<PathBuf>::new());
        settle(&mut inventory);
        let entries = inventory.entries();

        let name = link(&deep, outside.join("x"));
        assert_eq!(inventory.refresh().unwrap(), Freshness { links: true, ..Freshness::default() });
        assert_eq!(paths(inventory.links_outside()), std::slice::from_ref(&deep));
        settle(&mut inventory);

        fs::remove_file(&name).unwrap();
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(paths(inventory.linked()), Vec::<PathBuf>::new());
        // The twin: a write to a file with one name, and a new one, are no news.
        settle(&mut inventory);
        fs::write(&deep, "more").unwrap();
        File::create(private.join("a/new")).unwrap();
        assert!(inventory.refresh().unwrap().is_same());
        assert_eq!(inventory.entries(), entries + 1);
    }

    /// From the inventory to the scan: the other name, where there is one in the root.
    fn leads_to_the_other_name(world: &World) {
        let (private, root) = (world.private(), world.write_root());
        let elsewhere = link(world.secret(), world.outside().join("x"));
        let inventory = take(&private);
        let targets: Vec<Target> = inventory.links_outside().map(|file| file.target()).collect();
        let report = scan(&root, &targets);
        assert_eq!((names(&report), report.omitted), (Vec::new(), 0));
        let name = root.join("y");
        fs::rename(elsewhere, &name).unwrap();
        assert_eq!(names(&scan(&root, &targets)), [name]);
    }

    /// A second name inside is no name outside.
    fn names_inside(world: &World) {
        let (private, secret) = (world.private(), world.secret());
        link(&secret, dir(private.join("a")).join("x"));
        let mut inventory = take(&private);
        assert_eq!(inventory.linked().map(|file| (file.links, file.inside)).collect::<Vec<_>>(), [(2, 2)]);
        assert_eq!(paths(inventory.links_outside()), Vec::<PathBuf>::new());
        link(&secret, world.outside().join("y"));
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(inventory.links_outside().map(|file| (file.links, file.inside)).collect::<Vec<_>>(), [(3, 2)]);
    }

    /// A linked file that appears, in a directory that was there and in a new one, or goes with its directory.
    fn linked_files_come_and_go(world: &World) {
        let (private, file) = (world.private(), world.outside_file());
        dir(private.join("old"));
        let mut inventory = take(&private);
        for place in ["old", "new/one"] {
            settle(&mut inventory);
            let name = link(&file, dir(private.join(place)).join("x"));
            assert!(inventory.refresh().unwrap().links, "{place}");
            assert_eq!(paths(inventory.links_outside()), std::slice::from_ref(&name));
            settle(&mut inventory);
            fs::remove_dir_all(name.parent().unwrap()).unwrap();
            assert!(inventory.refresh().unwrap().links, "{place}");
            assert_eq!(paths(inventory.linked()), Vec::<PathBuf>::new());
            dir(private.join(place));
        }
    }

    /// A directory that takes another's place, whether a descriptor was kept for the old one or not.
    fn directories_change_places(world: &World) {
        let (private, outside) = (world.private(), world.outside());
        for number in 0..40 {
            dir(private.join(format!("{number:02}/below")));
        }
        let replacement = dir(outside.join("replacement"));
        let mut inventory = take(&private);
        for number in [0, 20, 39] {
            settle(&mut inventory);
            let place = private.join(format!("{number:02}"));
            let name = link(world.outside_file(), dir(replacement.join("below")).join("x"));
            fs::rename(&place, outside.join(format!("was-{number}"))).unwrap();
            fs::rename(&replacement, &place).unwrap();
            assert!(inventory.refresh().unwrap().links);
            assert_eq!(paths(inventory.linked()), [place.join("below/x")]);
            settle(&mut inventory);
            // And one whose parent does not change: the exchange is one level below.
            fs::remove_file(place.join("below/x")).unwrap();
            assert!(inventory.refresh().unwrap().links);
            dir(replacement.join("below"));
            assert!(!name.exists());
        }
    }

    /// A state that looks like the one before because both fell into one tick of the clock is not taken for it.
    fn changes_within_one_tick(world: &World) {
        let (private, secret, outside) = (world.private(), world.secret(), world.outside());
        link(&secret, outside.join("0"));
        for number in 0..200 {
            let mut inventory = take(&private);
            // Same link count, and, as a rule, the same ctime.
            fs::rename(outside.join(number.to_string()), outside.join((number + 1).to_string())).unwrap();
            assert!(inventory.refresh().unwrap().links);
            // A new linked file, and, as a rule, the same times of the directory.
            let mut inventory = take(&private);
            let new = link(world.outside_file(), private.join("new"));
            assert!(inventory.refresh().unwrap().links);
            assert!(paths(inventory.linked()).contains(&new));
            fs::remove_file(new).unwrap();
        }
    }

    /// Symbolic links are listed, and none is followed.
    fn symbolic_links(world: &World) {
        let (private, root) = (world.private(), world.write_root());
        link(world.outside_file(), root.join("x"));
        let mut inventory = take(&private);
        assert_eq!(inventory.symlinks().count(), 0);
        let place = dir(private.join("a")).join("symbolic");
        symlink(&root, &place).unwrap();
        assert!(inventory.refresh().unwrap().symlinks);
        assert_eq!(inventory.symlinks().collect::<Vec<_>>(), [place]);
        assert_eq!(paths(inventory.linked()), Vec::<PathBuf>::new());
    }

    /// Many directories and few descriptors.
    fn descriptors(world: &World) {
        let private = world.private();
        for number in 0..300 {
            File::create(dir(private.join(format!("{number}/below"))).join("f")).unwrap();
        }
        let mut inventory = take(&private);
        inventory.refresh().unwrap();
        let held_now = held(&private);
        assert!((1..=17).contains(&held_now), "{held_now} descriptors");
        drop(inventory);
        assert_eq!(held(&private), 0);
    }

    /// Each limit, at its edge.
    fn limits(world: &World) {
        let private = world.private();
        dir(private.join("a/b/c"));
        let pinned = PinnedDir::open(&private).unwrap();
        let entries = take(&private).entries();
        let within = |entries, depth| {
            Inventory::take(&pinned, &WalkLimits { entries, depth, ..WalkLimits::default() })
        };
        let mut inventory = within(entries, 3).unwrap();
        let fault = within(entries - 1, 3).unwrap_err();
        assert!(matches!(fault, InventoryFault::Entries { limit, .. } if limit == entries - 1), "{fault:?}");
        let fault = within(entries, 2).unwrap_err();
        assert!(matches!(fault, InventoryFault::TooDeep { limit: 2, .. }), "{fault:?}");
        assert!(!fault.can_retry() && !fault.hint().is_empty());
        assert!(InventoryFault::Changed { path: private.clone() }.can_retry());
        let past = WalkLimits { deadline: Some(std::time::Instant::now()), ..WalkLimits::default() };
        let fault = Inventory::take(&pinned, &past).unwrap_err();
        assert!(matches!(fault, InventoryFault::Deadline { .. }), "{fault:?}");

        // A fault at a second look is no end: the next one begins anew, and calls everything new.
        File::create(private.join("one-too-many")).unwrap();
        for _ in 0..2 {
            assert!(matches!(inventory.refresh(), Err(InventoryFault::Entries { .. })));
        }
        fs::remove_file(private.join("one-too-many")).unwrap();
        assert_eq!(inventory.refresh().unwrap(), Freshness::ALL);
        assert_eq!(inventory.entries(), entries);
    }

    /// A thread that makes, moves and removes directories: no look panics, and when it is quiet all is seen.
    fn while_directories_move(world: &World) {
        let private = world.private();
        for number in 0..20 {
            dir(private.join(format!("{number}/a/b")));
        }
        let mut inventory = take(&private);
        let looks = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut rounds = 0;
                while rounds < 20 || looks.load(std::sync::atomic::Ordering::Relaxed) < 20 {
                    for number in 0..20 {
                        let (one, other) = (private.join(number.to_string()), private.join(format!("m{number}")));
                        fs::rename(&one, &other).unwrap();
                        File::create(other.join("a/b/f")).unwrap();
                        fs::remove_dir_all(other.join("a")).unwrap();
                        fs::rename(&other, &one).unwrap();
                        dir(one.join("a/b"));
                    }
                    rounds += 1;
                }
            });
            while !mover.is_finished() {
                match inventory.refresh() {
                    Ok(_) | Err(InventoryFault::Changed { .. }) => {}
                    Err(fault) => panic!("{fault:?}"),
                }
                looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let name = link(world.outside_file(), private.join("7/a/b/x"));
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(paths(inventory.linked()), [name]);
        assert_eq!(inventory.entries(), take(&private).entries());
    }
}

user_cases! {
    /// What cannot be listed or searched is named, and tried again each time.
    fn unlisted_directories(world: &World) {
        let private = world.private();
        let closed = dir(private.join("a/closed"));
        let name = link(world.outside_file(), closed.join("x"));
        for mode in [0o000, 0o300, 0o600] {
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
            if mode != 0o600 {
                fixture::assert_unreadable(&closed);
            }
            let mut inventory = take(&private);
            assert_eq!(inventory.unlisted().collect::<Vec<_>>(), std::slice::from_ref(&closed));
            assert_eq!(paths(inventory.linked()), Vec::<PathBuf>::new());
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
            let fresh = inventory.refresh().unwrap();
            assert!(fresh.unlisted && fresh.links);
            assert_eq!(inventory.unlisted().count(), 0);
            assert_eq!(paths(inventory.linked()), std::slice::from_ref(&name));
        }
    }
}

root_cases! {
    /// What is mounted inside is protected too, but its names may lie elsewhere as well.
    fn mounts_inside(world: &World) {
        let (private, root, file) = (world.private(), world.write_root(), world.outside_file());
        in_private_mounts(|| {
            let point = dir(private.join("point"));
            link(&file, root.join("one"));
            let other = link(&file, root.join("two"));
            let mut inventory = take(&private);
            settle(&mut inventory);
            bind(&root, &point);
            fixture::assert_bind_mount(&point, &root);
            assert!(inventory.refresh().unwrap().links);
            let linked: Vec<_> = inventory.linked().map(|file| (file.path.clone(), file.links, file.inside)).collect();
            assert_eq!(linked, [(point.join("one"), 3, 0)]);
            // The twin: the same names in the directory itself count.
            fs::remove_file(&other).unwrap();
            link(&file, private.join("own"));
            assert!(inventory.refresh().unwrap().links);
            assert_eq!(inventory.linked().map(|file| (file.links, file.inside)).collect::<Vec<_>>(), [(3, 1)]);
        });
    }
}
