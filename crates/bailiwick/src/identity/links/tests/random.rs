//! Random trees, against a walk that shares no code with the scan.

use std::fs::{self, File};

use proptest::prelude::*;

use super::super::{Inventory, WalkLimits};
use super::*;

/// One thing to make, in a directory chosen among those made before.
#[derive(Debug, Clone)]
enum Make {
    Directory(prop::sample::Index),
    File(prop::sample::Index),
    Link(prop::sample::Index, prop::sample::Index),
    Symlink(prop::sample::Index, prop::sample::Index),
}

fn make() -> impl Strategy<Value = Make> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        3 => place().prop_map(Make::Directory),
        3 => place().prop_map(Make::File),
        3 => (place(), place()).prop_map(|(at, of)| Make::Link(at, of)),
        1 => (place(), place()).prop_map(|(at, of)| Make::Symlink(at, of)),
    ]
}

/// Makes a tree, and returns its files.
fn build(root: &Path, make: &[Make]) -> Vec<PathBuf> {
    let (mut directories, mut files) = (vec![root.to_owned()], Vec::<PathBuf>::new());
    for (number, make) in make.iter().enumerate() {
        let name = number.to_string();
        match make {
            Make::Directory(at) => directories.push(dir(at.get(&directories).join(name))),
            Make::File(at) => {
                files.push(at.get(&directories).join(name));
                File::create(&files[files.len() - 1]).unwrap();
            }
            Make::Link(at, of) if !files.is_empty() => {
                files.push(link(of.get(&files), at.get(&directories).join(name)));
            }
            Make::Symlink(at, of) => {
                std::os::unix::fs::symlink(of.get(&directories), at.get(&directories).join(name)).unwrap();
            }
            Make::Link(..) => {}
        }
    }
    files
}

/// Every name below a directory that is no directory, with what it names.
fn naive(dir: &Path, found: &mut Vec<(Key, PathBuf)>) -> u64 {
    let mut entries = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        entries += 1;
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            entries += naive(&path, found);
        } else {
            found.push((key(&path), path));
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The scan finds what a plain walk finds, for any choice of targets and number of threads.
    #[test]
    fn agrees_with_a_plain_walk(
        tree in prop::collection::vec(make(), 0..60),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        threads in 1_usize..=4,
    ) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let files = build(&root, &tree);
        let targets: Vec<Target> =
            chosen.iter().filter(|_| !files.is_empty()).map(|index| target(index.get(&files))).collect();
        let mut expected = Vec::new();
        let entries = naive(&root, &mut expected);
        expected.retain(|(key, _)| targets.iter().any(|target| target.key == *key));
        expected.sort();
        let limits = ScanLimits { threads, ..ScanLimits::default() };
        let report = scan_within(&[&root], &targets, &limits).unwrap();
        prop_assert_eq!(report.names, expected);
        prop_assert_eq!(report.entries, if targets.is_empty() { 0 } else { entries });
    }

    /// The inventory counts the names that a plain walk counts, and keeps up with a second tree made in the first.
    #[test]
    fn inventory_counts_every_name(
        first in prop::collection::vec(make(), 0..40),
        second in prop::collection::vec(make(), 0..40),
    ) {
        let place = tempfile::tempdir().unwrap();
        let (root, outside) = (dir(place.path().join("root")), dir(place.path().join("outside")));
        let root = root.canonicalize().unwrap();
        let pinned = PinnedDir::open(&root).unwrap();
        build(&root, &first);
        let mut inventory = Inventory::take(&pinned, &WalkLimits::default()).unwrap();
        check(&inventory, &root)?;
        let files = build(&dir(root.join("second")), &second);
        if let Some(file) = files.first() {
            link(file, outside.join("x"));
        }
        inventory.refresh().unwrap();
        check(&inventory, &root)?;
        fs::remove_dir_all(root.join("second")).unwrap();
        inventory.refresh().unwrap();
        check(&inventory, &root)?;
    }
}

fn check(inventory: &Inventory, root: &Path) -> Result<(), TestCaseError> {
    let mut found = Vec::new();
    let entries = naive(root, &mut found);
    prop_assert_eq!(inventory.entries(), entries);
    let symlinks = found.iter().filter(|(_, path)| path.is_symlink()).count();
    prop_assert_eq!(inventory.symlinks().count(), symlinks);
    let mut seen = 0;
    for file in inventory.linked() {
        let links = fs::symlink_metadata(&file.path).unwrap().nlink();
        let inside = found.iter().filter(|(key, _)| *key == file.key).count();
        prop_assert_eq!((u64::from(file.links), file.inside as usize), (links, inside));
        prop_assert_eq!(file.has_name_outside(), links > inside as u64);
        seen += inside;
    }
    let linked = found.iter().filter(|(_, path)| {
        let found = fs::symlink_metadata(path).unwrap();
        !found.is_symlink() && found.nlink() > 1
    });
    prop_assert_eq!(linked.count(), seen);
    Ok(())
}
