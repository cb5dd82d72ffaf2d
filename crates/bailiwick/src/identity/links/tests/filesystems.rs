//! File systems that number their entries in their own ways, and mounts between them.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirEntryExt as _;
use std::process::Command;

use bailiwick_test::{Need, fixture, requires, root_cases};

use super::sys::{bind, in_private_mounts, overlay, tmpfs};
use super::*;

/// The inode number that a directory lists for a name.
fn listed(path: &Path) -> u64 {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    entries.map(Result::unwrap).find(|entry| entry.path() == path).unwrap().ino()
}

fn ran(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

root_cases! {
    /// A mount is a start of its own; another mount of the same directory is not entered by the way.
    fn mounts_are_not_crossed(world: &World) {
        let (root, outside, path) = (world.write_root(), world.outside(), world.path().to_owned());
        let secret = world.secret();
        in_private_mounts(|| {
            let (point, hidden) = (dir(root.join("point")), dir(root.join("hidden")));
            let expected = link(&secret, outside.join("x"));
            link(&secret, hidden.join("under-a-mount"));
            let targets = [target(&secret)];
            assert_eq!(names(&scan(&root, &targets)), [hidden.join("under-a-mount")]);
            bind(&outside, &point);
            fixture::assert_bind_mount(&point, &outside);
            tmpfs(&hidden);
            assert_eq!(names(&scan(&root, &targets)), Vec::<PathBuf>::new());
            assert_eq!(names(&scan(&point, &targets)), [point.join("x")]);
            let both = scan_within(&[&root, &point], &targets, &ScanLimits::default()).unwrap();
            assert_eq!(names(&both), [point.join("x")]);
            assert!(expected.starts_with(path));
        });
    }

    /// A file that is mounted over a name hides the name's own object, and is for the comparison of mounts.
    fn mounted_files(world: &World) {
        let (root, secret, file) = (world.write_root(), world.secret(), world.outside_file());
        in_private_mounts(|| {
            let covered = link(&secret, root.join("covered"));
            let targets = [target(&secret)];
            assert_eq!(names(&scan(&root, &targets)), std::slice::from_ref(&covered));
            bind(&file, &covered);
            assert_eq!(listed(&covered), key(&secret).inode());
            assert_eq!(key(&covered), key(&file));
            assert_eq!(names(&scan(&root, &targets)), Vec::<PathBuf>::new());
        });
    }

    /// Only targets on its own device make a file system worth looking at.
    fn foreign_devices_are_pruned(world: &World) {
        let (root, secret) = (world.write_root(), world.secret());
        in_private_mounts(|| {
            tmpfs(&root);
            File::create(dir(root.join("a")).join("f")).unwrap();
            let expected = link(root.join("a/f"), root.join("g"));
            let report = scan(&root, &[target(&secret)]);
            assert_eq!((report.entries, report.directories), (0, 0));
            let report = scan(&root, &[target(&secret), target(&expected)]);
            assert_eq!(names(&report), [root.join("a/f"), expected]);
            assert_eq!(report.entries, 3);
        });
    }

    /// Layers on one file system: the numbers of entries are right, and are not relied on.
    fn overlay_on_one_file_system(world: &World) {
        let path = world.path().to_owned();
        in_private_mounts(|| overlay_finds_names(&path, "off", true));
    }

    /// Layers on two file systems without composed numbers: a directory lists another number for a file that was
    /// copied up than the file has.
    fn overlay_on_two_file_systems(world: &World) {
        requires!(Need::Btrfs, "makes a file system with extended attributes");
        let path = world.path().to_owned();
        in_private_mounts(|| {
            let (image, point) = (path.join("image"), dir(path.join("upper")));
            File::create(&image).unwrap().set_len(256 << 20).unwrap();
            ran("mkfs.btrfs", &[Path::new("-q"), &image]);
            ran("mount", &[Path::new("-o"), Path::new("loop"), &image, &point]);
            overlay_finds_names(&path, "off", false);
            ran("umount", &[&path.join("merged")]);
            ran("umount", &[&point]);
        });
    }

    /// The same with another upper layer. With both, one file has different numbers under two names.
    fn overlay_on_tmpfs_and_another(world: &World) {
        let path = world.path().to_owned();
        in_private_mounts(|| {
            tmpfs(&dir(path.join("upper")));
            overlay_finds_names(&path, "off", false);
            assert_ne!(key(path.join("merged/low")), key(path.join("merged/new/x")));
        });
    }

    /// The same with composed numbers.
    fn overlay_with_composed_numbers(world: &World) {
        let path = world.path().to_owned();
        in_private_mounts(|| {
            tmpfs(&dir(path.join("upper")));
            overlay_finds_names(&path, "on", true);
        });
    }

    /// Two subvolumes number their files alike. Neither is a mount, and a link never leads from one to another.
    fn btrfs_subvolumes(world: &World) {
        requires!(Need::Btrfs, "makes subvolumes");
        let path = world.path().to_owned();
        in_private_mounts(|| {
            let (image, point) = (path.join("image"), dir(path.join("point")));
            File::create(&image).unwrap().set_len(256 << 20).unwrap();
            ran("mkfs.btrfs", &[Path::new("-q"), &image]);
            ran("mount", &[Path::new("-o"), Path::new("loop"), &image, &point]);
            let volumes = ["one", "two", "two/inner"].map(|name| point.join(name));
            for volume in &volumes {
                ran("btrfs", &[Path::new("subvolume"), Path::new("create"), volume]);
                File::create(volume.join("f")).unwrap();
                link(volume.join("f"), dir(volume.join("d")).join("x"));
            }
            let keys: Vec<Key> = volumes.iter().map(|volume| key(volume.join("f"))).collect();
            let targets: Vec<Target> = volumes.iter().map(|volume| target(volume.join("f"))).collect();
            assert_eq!(keys[0].inode(), keys[1].inode());
            assert_eq!(keys[1].inode(), keys[2].inode());
            assert_ne!(keys[0], keys[1]);
            for (volume, target) in volumes.iter().zip(&targets) {
                let expected = [volume.join("d/x"), volume.join("f")];
                assert_eq!(names(&scan(&point, &[*target])), expected);
                assert_eq!(names(&scan(&path, &[*target])), Vec::<PathBuf>::new(), "a mount was crossed");
            }
            assert_eq!(scan(&point, &targets).names.len(), 6);
            assert_eq!(scan(&point, &[target(path.join("P/db"))]).entries, 0);
            ran("umount", &[&point]);
        });
    }
}

/// A file in the upper layer with two names, one in the lower that is copied up and then given another, and one in
/// the lower that stays.
fn overlay_finds_names(path: &Path, xino: &str, numbers_agree: bool) {
    let (lower, upper) = (dir(path.join("lower/d")), dir(path.join("upper/u")));
    let (work, merged) = (dir(path.join("upper/w")), dir(path.join("merged")));
    let lower = lower.parent().unwrap();
    for name in ["low", "stays", "d/deep"] {
        fs::write(lower.join(name), name).unwrap();
    }
    overlay(lower, &upper, &work, xino, &merged);
    let copied = merged.join("low");
    OpenOptions::new().append(true).open(&copied).unwrap().write_all(b"more").unwrap();
    let copied_link = link(&copied, dir(merged.join("new")).join("x"));
    fs::write(merged.join("fresh"), "").unwrap();
    let fresh_link = link(merged.join("fresh"), merged.join("d/y"));
    // Not by the numbers, which are what may be wrong: by the link count, and by a write.
    assert_eq!(fs::symlink_metadata(&copied_link).unwrap().nlink(), 2);
    OpenOptions::new().append(true).open(&copied_link).unwrap().write_all(b"and more").unwrap();
    assert_eq!(fs::read_to_string(&copied).unwrap(), "lowmoreand more");
    assert_eq!(
        listed(&copied) == key(&copied).inode(),
        numbers_agree,
        "the fixture is not what it should be"
    );

    assert_eq!(names(&scan(&merged, &[target(&copied)])), [copied, copied_link]);
    let fresh = merged.join("fresh");
    assert_eq!(names(&scan(&merged, &[target(&fresh)])), [fresh_link, fresh]);
    assert_eq!(names(&scan(&merged, &[target(merged.join("stays"))])), [merged.join("stays")]);
    assert_eq!(names(&scan(&merged, &[target(path.join("P/db"))])), Vec::<PathBuf>::new());
}
