//! The inventory of one protected file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::Duration;

use bailiwick_test::{World, cases};

use super::super::{FileInventory, InventoryFault};
use super::*;

fn take(world: &World, name: &str) -> FileInventory {
    FileInventory::take(&PinnedDir::open(&world.private()).unwrap(), Path::new(name)).unwrap()
}

fn settle(inventory: &mut FileInventory) {
    std::thread::sleep(Duration::from_millis(100));
    inventory.refresh().unwrap();
    assert!(inventory.refresh().unwrap().is_same());
}

fn outside(inventory: &FileInventory) -> Vec<(Key, u32, u32)> {
    inventory.links_outside().map(|file| (file.key, file.links, file.inside)).collect()
}

cases! {
    /// A second name, made later and taken away again.
    fn a_second_name(world: &World) {
        let mut inventory = take(world, "db");
        assert_eq!(outside(&inventory), []);
        settle(&mut inventory);
        let name = link(world.secret(), world.outside().join("x"));
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(outside(&inventory), [(key(world.secret()), 2, 1)]);
        settle(&mut inventory);
        fs::remove_file(name).unwrap();
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(inventory.linked().count(), 0);
        // The twin: a write is no news.
        settle(&mut inventory);
        fs::write(world.secret(), "more").unwrap();
        assert!(inventory.refresh().unwrap().is_same());
    }

    /// An ordinary save: the new file has one name, and the old one is gone. Where the old one lives on, it counts.
    fn replaced(world: &World) {
        let secret = world.secret();
        let save = |number: u32| {
            let new = world.private().join(number.to_string());
            fs::write(&new, "new").unwrap();
            fs::rename(&new, &secret).unwrap();
        };
        let mut inventory = take(world, "db");
        settle(&mut inventory);
        save(1);
        inventory.refresh().unwrap();
        assert_eq!(inventory.linked().count(), 0);

        let mut inventory = take(world, "db");
        settle(&mut inventory);
        let old = link(&secret, world.outside().join("old"));
        save(2);
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(outside(&inventory), [(key(&old), 1, 0)]);
        settle(&mut inventory);
        let new = link(&secret, world.outside().join("new"));
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(outside(&inventory), [(key(&new), 2, 1), (key(&old), 1, 0)]);
    }

    /// Nothing need be there, until something is.
    fn absent(world: &World) {
        let mut inventory = take(world, "db-wal");
        assert!(inventory.refresh().unwrap().is_same());
        let path = world.private().join("db-wal");
        File::create(&path).unwrap();
        assert!(inventory.refresh().unwrap().is_same());
        link(&path, world.outside().join("x"));
        assert!(inventory.refresh().unwrap().links);
        assert_eq!(outside(&inventory), [(key(&path), 2, 1)]);
    }

    /// A symbolic link is told; a directory is refused.
    fn other_types(world: &World) {
        let path = world.private().join("db-wal");
        let mut inventory = take(world, "db-wal");
        symlink(world.outside_file(), &path).unwrap();
        assert!(inventory.refresh().unwrap().symlinks && inventory.is_symlink());
        fs::remove_file(&path).unwrap();
        assert!(inventory.refresh().unwrap().symlinks && !inventory.is_symlink());
        dir(&path);
        let fault = inventory.refresh().unwrap_err();
        assert!(matches!(&fault, InventoryFault::Directory { path: found } if *found == path), "{fault:?}");
    }
}
