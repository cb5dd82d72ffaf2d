//! Trees deeper than any path, with more directories than descriptors.

use std::fs::File;
use std::os::fd::OwnedFd;

use bailiwick_test::cases;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat};

use super::super::{Inventory, InventoryFault, WalkLimits};
use super::*;

fn open(dir: &OwnedFd, name: &str) -> OwnedFd {
    openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Makes directories inside one another; `at` is called in each, with its depth from 1.
fn deepen(path: &Path, depth: usize, at: impl Fn(&OwnedFd, usize)) {
    let mut dir: OwnedFd = File::open(path).unwrap().into();
    for depth in 1..=depth {
        mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = open(&dir, "d");
        at(&dir, depth);
    }
}

fn link_at(file: &Path, dir: &OwnedFd, name: &str) {
    linkat(CWD, file, dir, name, AtFlags::empty()).unwrap();
}

/// Removes what [`deepen`] made, level by level from above: nothing that goes down by itself could.
fn flatten(path: &Path) {
    let (first, second) = (path.join("d"), path.join("next"));
    while first.exists() {
        let below = first.join("d");
        let has_more = below.exists();
        if has_more {
            std::fs::rename(below, &second).unwrap();
        }
        std::fs::remove_dir_all(&first).unwrap();
        if has_more {
            std::fs::rename(&second, &first).unwrap();
        }
    }
}

cases! {
    /// Names below and beside a deep path, so that the way back counts too.
    fn five_thousand_deep(world: &World, seconds = 300) {
        let (root, secret) = (world.write_root(), world.secret());
        deepen(&root, 5000, |dir, depth| {
            if depth % 500 == 0 {
                for side in ["a", "z"] {
                    mkdirat(dir, side, Mode::RWXU).unwrap();
                    link_at(&secret, &open(dir, side), "x");
                }
            }
        });
        let report = scan(&root, &[target(&secret)]);
        assert_eq!(report.names.len(), 20);
        assert_eq!((report.entries, report.directories), (5040, 5021));
        let longest = report.names.iter().map(|(_, name)| name.as_os_str().len()).max().unwrap();
        assert_eq!(longest, root.as_os_str().len() + 2 * 5000 + "/a/x".len());
        flatten(&root);
    }

    /// So many long names at each level that not all can be kept, and the directories must be left in the middle.
    fn deep_and_wide(world: &World, seconds = 300) {
        let (root, secret) = (world.write_root(), world.secret());
        deepen(&root, 14, |dir, _| {
            for number in 0..700 {
                mkdirat(dir, format!("{number:0>250}"), Mode::RWXU).unwrap();
            }
            link_at(&secret, &open(dir, &format!("{:0>250}", 699)), "x");
            link_at(&secret, &open(dir, &format!("{:0>250}", 0)), "x");
        });
        let report = scan(&root, &[target(&secret)]);
        assert_eq!(report.names.len(), 28);
        assert_eq!((report.entries, report.directories), (14 + 14 * 700 + 28, 1 + 14 + 14 * 700));
    }

    /// The inventory of a tree deeper than its own limit, and than any path.
    fn inventory_of_a_deep_tree(world: &World, seconds = 300) {
        let (protected, file) = (dir(world.private().join("deep")), world.outside_file());
        deepen(&protected, 5000, |dir, depth| {
            if depth == 5000 {
                link_at(&file, dir, "x");
            }
        });
        let pinned = PinnedDir::open(&protected).unwrap();
        let limited = |depth| Inventory::take(&pinned, &WalkLimits { depth, ..WalkLimits::default() });
        let mut inventory = limited(5000).unwrap();
        let linked: Vec<_> = inventory.linked().cloned().collect();
        assert_eq!(linked.len(), 1);
        assert_eq!((linked[0].key, linked[0].links, linked[0].inside), (key(&file), 2, 1));
        assert!(linked[0].has_name_outside());
        std::thread::sleep(std::time::Duration::from_millis(100));
        inventory.refresh().unwrap();
        assert!(inventory.refresh().unwrap().is_same());
        link(&file, world.outside().join("again"));
        assert!(inventory.refresh().unwrap().links);
        let fault = limited(4999).unwrap_err();
        assert!(matches!(fault, InventoryFault::TooDeep { limit: 4999, .. }), "{fault:?}");
        flatten(&protected);
    }
}
