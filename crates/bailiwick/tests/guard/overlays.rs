//! Overlays on real file systems: what is written through a layer changes the merged tree, and the other way round.
//! The mount table says nothing of it but in the mounter's own words.

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::guard::{self, Grant};
use bailiwick::{Error, ErrorKind};
use bailiwick_test::root_cases;

use super::aliases::{assert_alias, reaches};
use super::disks::{layers, mounted, overlay, ran, unmount};
use super::{dir, path, protected_at, roots, text};
use crate::sys::{bind, in_private_mounts, make_read_only, tmpfs};

fn issue(store: &Path, root: impl AsRef<Path>) -> Result<Grant, Error> {
    guard::issue(&roots(&[root]), protected_at(store))
}

/// The directories of an overlay below one directory, with files in the lower one: `P/db`, `Q/f` and `W/f`.
struct Layers {
    lower: PathBuf,
    upper: PathBuf,
    work: PathBuf,
    merged: PathBuf,
}

impl Layers {
    fn at(base: &Path) -> Self {
        let [lower, upper, work, merged] =
            ["lower", "upper", "work", "merged"].map(|name| dir(base.join(name)));
        for name in ["P", "Q", "W"] {
            dir(lower.join(name));
            fs::write(lower.join(name).join(if name == "P" { "db" } else { "f" }), "s").unwrap();
        }
        Self { lower, upper, work, merged }
    }

    fn mount(self) -> Self {
        self.mount_with("xino=auto")
    }

    /// With the directory `P` in the upper layer before anybody has looked: afterwards the kernel may not notice one.
    fn mount_with(self, option: &str) -> Self {
        dir(self.upper.join("P"));
        overlay(&self.merged, &format!("{},{option}", layers(&self.lower, &self.upper, &self.work)));
        self
    }

    fn store(&self) -> PathBuf {
        self.merged.join("P")
    }
}

/// The store is in the merged tree: a root in, at or around a layer is refused, and one beside the layers is not.
fn layers_reach_the_merged_tree(layers: &Layers, beside: &Path, around: &[&Path]) {
    let store = layers.store();
    let db = store.join("db");
    let twin = layers.merged.join("W");
    let grant = issue(&store, beside).unwrap();
    issue(&store, &twin).unwrap();
    // Not copied up yet: the lower layer is what is seen.
    assert!(reaches_unless_copied(&layers.lower.join("P/db"), &db));
    let upper = layers.upper.join("P");
    assert!(shadows(&upper.join("new"), &store.join("new")));
    let inside = [layers.lower.join("P"), upper];
    let whole = [&layers.lower, &layers.upper, &layers.work].map(PathBuf::as_path);
    for root in inside.iter().map(PathBuf::as_path).chain(whole).chain(around.iter().copied()) {
        let error = issue(&store, root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RootOverlap, "{error:?}");
        assert_eq!(text(&error, "alias"), "overlay-layer", "{error:?}");
        assert_eq!(path(&error, "root"), root);
    }
    // Copied up: the upper layer alone.
    fs::write(&db, "copied").unwrap();
    assert!(reaches(&layers.upper.join("P/db"), &db));
    assert_eq!(text(&issue(&store, &layers.upper).unwrap_err(), "alias"), "overlay-layer");
    grant.recheck().unwrap();
    issue(&store, &twin).unwrap();
}

/// Writes through a layer before anything was copied up, and says whether the merged tree shows it.
fn reaches_unless_copied(name: &Path, merged: &Path) -> bool {
    let before = fs::read(name).unwrap();
    fs::write(name, "through the layer").unwrap();
    let changed = fs::read(merged).unwrap() == b"through the layer";
    fs::write(name, before).unwrap();
    changed
}

/// A new file in a layer appears in the merged tree.
fn shadows(name: &Path, merged: &Path) -> bool {
    fs::write(name, "new").unwrap();
    let appeared = fs::read(merged).is_ok_and(|content| content == b"new");
    fs::remove_file(name).unwrap();
    appeared
}

root_cases! {
    /// All layers on one file system.
    fn overlay_mount(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O"))).mount();
            layers_reach_the_merged_tree(&layers, &world.write_root(), &[&world.path().join("O/lower"), &world.path().join("O/upper")]);
            // A directory that holds a layer and not the merged tree.
            let store = layers.store();
            assert_eq!(issue(&store, world.path().join("O")).unwrap_err().kind(), ErrorKind::RootOverlap);
        });
    }

    /// Lower and upper on different file systems, inode numbers of their own (`xino=off`), or combined ones.
    fn overlay_mount_of_two_file_systems(world: &World) {
        in_private_mounts(world, |world| {
            for xino in ["off", "on"] {
                let base = dir(world.path().join(format!("O-{xino}")));
                let other = dir(base.join("other"));
                tmpfs(&other);
                let layers =
                    Layers { upper: dir(other.join("upper")), work: dir(other.join("work")), ..Layers::at(&base) }
                        .mount_with(&format!("xino={xino}"));
                layers_reach_the_merged_tree(&layers, &world.write_root(), &[&other]);
            }
        });
    }

    /// Layers of an ext4 of its own, and a root that is a mount of that file system elsewhere.
    fn overlay_mount_on_ext4(world: &World) {
        in_private_mounts(world, |world| {
            let disk = mounted("ext4", world.path());
            let layers = Layers::at(&disk).mount();
            let again = dir(world.path().join("again"));
            bind(&disk, &again);
            layers_reach_the_merged_tree(&layers, &world.write_root(), &[&again.join("lower"), &again.join("upper")]);
            let point = dir(world.write_root().join("in"));
            let grant = issue(&layers.store(), world.write_root()).unwrap();
            bind(&layers.upper, &point);
            assert!(reaches(&point.join("P/db"), &layers.store().join("db")));
            assert_eq!(text(&grant.recheck().unwrap_err(), "alias"), "overlay-layer");
            unmount(&point);
            bind(dir(disk.join("beside")), &point);
            grant.recheck().unwrap();
        });
    }

    /// The store is in the upper directory, or in what the overlay only reads; the root is the merged tree.
    fn overlay_mount_over_the_store(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O")));
            let store = dir(layers.upper.join("P"));
            fs::write(store.join("db"), "s").unwrap();
            let layers = layers.mount();
            assert!(reaches(&layers.merged.join("P/db"), &store.join("db")));
            for root in [layers.merged.clone(), layers.merged.join("P")] {
                assert_alias(&issue(&store, &root).unwrap_err(), "overlay-merged", layers.merged.join("P"));
            }
            issue(&store, layers.merged.join("W")).unwrap();
            // The twin: a store in the lower directory, which the overlay never writes.
            let below = layers.lower.join("Q");
            assert!(!reaches(&layers.merged.join("Q/f"), &below.join("f")));
            issue(&below, &layers.merged).unwrap();
            assert_eq!(issue(&below, &layers.lower).unwrap_err().kind(), ErrorKind::RootOverlap);
        });
    }

    /// An overlay of lower directories alone takes no write: as a root it is refused for that, and it is no alias of
    /// what it shows; but its layers are aliases of a store in it.
    fn overlay_mount_of_lower_directories(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O")));
            let second = dir(world.path().join("O/second"));
            dir(second.join("R"));
            overlay(&layers.merged, &format!("lowerdir={}:{}", layers.lower.display(), second.display()));
            assert_eq!(issue(&layers.lower.join("P"), &layers.merged).unwrap_err().kind(), ErrorKind::RootNotAccessible);
            let point = dir(world.write_root().join("in"));
            bind(&layers.merged, &point);
            issue(&layers.lower.join("P"), world.write_root()).unwrap();
            // A directory protected by the caller in the merged tree, and a root in a layer.
            let set = |dir: PathBuf| {
                bailiwick::guard::ProtectedSet::around_place(&bailiwick::store::StorePlace::find(world.private()).unwrap())
                    .protect(&[dir])
                    .build()
                    .unwrap()
            };
            for layer in [&layers.lower, &second] {
                let error = guard::issue(&roots(&[layer]), set(layers.merged.join("R"))).unwrap_err();
                assert_alias(&error, "overlay-layer", layer);
            }
            guard::issue(&roots(&[world.outside()]), set(layers.merged.join("R"))).unwrap();
        });
    }

    /// The mounter wrote relative paths, which say nothing here: what the kernel tells of the layers decides.
    fn overlay_mount_with_relative_options(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O")));
            let base = world.path().join("O");
            dir(layers.upper.join("P"));
            let script = "cd \"$0\" && mount -i -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged";
            ran("sh", &["-c".as_ref(), script.as_ref(), base.as_os_str()]);
            let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
            assert!(table.contains("upperdir=upper"), "{table}");
            let store = layers.store();
            assert!(shadows(&layers.upper.join("P/new"), &store.join("new")));
            let other = dir(world.path().join("other"));
            tmpfs(&other);
            // A lower layer tells nothing of itself, on whichever file system the root is.
            for root in [&layers.upper, &layers.lower, &base.join("work"), &world.write_root(), &other] {
                let error = issue(&store, root).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
                assert!(text(&error, "fact").contains("relative"), "{error:?}");
            }
            // What is written on the overlay itself is written to its upper directory, which does tell.
            issue(&store, layers.merged.join("W")).unwrap();
            // The ways out that the refusals name: the store and the root elsewhere, or absolute paths.
            issue(&world.private(), world.write_root()).unwrap();
            unmount(&layers.merged);
            let layers = layers.mount();
            issue(&store, world.write_root()).unwrap();
            issue(&store, layers.merged.join("W")).unwrap();
        });
    }

    /// The upper directory was renamed, and another one has its name by now.
    fn overlay_mount_with_renamed_layers(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O"))).mount();
            let store = layers.store();
            issue(&store, world.write_root()).unwrap();
            let moved = world.write_root().join("moved");
            fs::rename(&layers.upper, &moved).unwrap();
            assert!(shadows(&moved.join("P/new"), &store.join("new")));
            let refused = || {
                let error = issue(&store, world.write_root()).unwrap_err();
                assert_eq!((error.kind(), path(&error, "other_name")), (ErrorKind::RootOverlap, &*moved), "{error:?}");
            };
            refused();
            dir(&layers.upper);
            assert!(!shadows(&dir(layers.upper.join("P")).join("other"), &store.join("other")));
            refused();
            fs::remove_dir_all(&layers.upper).unwrap();
            fs::rename(&moved, &layers.upper).unwrap();
            issue(&store, world.write_root()).unwrap();
        });
    }

    /// A layer that is moved into a root between two commands.
    fn overlay_mount_with_a_layer_moved_between_commands(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O"))).mount();
            let store = layers.store();
            let grant = issue(&store, world.write_root()).unwrap();
            grant.recheck().unwrap();
            let (moved, elsewhere) = (world.write_root().join("moved"), world.outside().join("moved"));
            fs::rename(&layers.upper, &moved).unwrap();
            let error = grant.recheck().unwrap_err();
            assert_eq!(text(&error, "alias"), "overlay-layer", "{error:?}");
            fs::rename(&moved, &layers.upper).unwrap();
            grant.recheck().unwrap();
            // The twin: moved, and not into the root.
            fs::rename(&layers.upper, &elsewhere).unwrap();
            grant.recheck().unwrap();
            fs::rename(&elsewhere, &layers.upper).unwrap();
            // A lower layer cannot be told once it is no longer at its path.
            for place in [&moved, &elsewhere] {
                fs::rename(&layers.lower, place).unwrap();
                assert_eq!(grant.recheck().unwrap_err().kind(), ErrorKind::RootUnprovable);
                fs::rename(place, &layers.lower).unwrap();
                grant.recheck().unwrap();
            }
        });
    }

    /// Names with the characters that options escape: a comma, a colon, a backslash, a space, a line break.
    fn overlay_mount_with_escaped_options(world: &World) {
        in_private_mounts(world, |world| {
            for (number, name) in ["co,mma", "co:lon", "back\\slash", "sp ace", "li\nne", "octal\\040", "tail\\\\"].into_iter().enumerate() {
                let base = dir(world.path().join(format!("O{number}/{name}")));
                let layers = Layers::at(&base);
                let escaped = |path: &Path, colon: bool| {
                    let mut text = path.to_str().unwrap().replace('\\', "\\\\").replace(',', "\\,");
                    if colon {
                        text = text.replace(':', "\\:");
                    }
                    text
                };
                let options = format!(
                    "lowerdir={},upperdir={},workdir={}",
                    escaped(&layers.lower, true),
                    escaped(&layers.upper, false),
                    escaped(&layers.work, false)
                );
                dir(layers.upper.join("P"));
                overlay(&layers.merged, &options);
                let store = layers.store();
                assert!(shadows(&dir(layers.upper.join("P")).join("new"), &store.join("new")), "{name:?}");
                for root in [&layers.lower, &layers.upper, &layers.work, &base.join("lower/P")] {
                    let error = issue(&store, root).unwrap_err();
                    assert_eq!((error.kind(), text(&error, "alias")), (ErrorKind::RootOverlap, "overlay-layer"), "{error:?}");
                }
                issue(&store, world.write_root()).unwrap();
                unmount(&layers.merged);
            }
        });
    }

    /// A hard link to a file in the upper directory, where inode numbers are not those of the merged tree.
    fn overlay_mount_with_hard_links(world: &World) {
        in_private_mounts(world, |world| {
            let base = dir(world.path().join("O"));
            let layers = Layers::at(&base).mount();
            let (store, root) = (layers.store(), layers.merged.join("W"));
            let grant = issue(&store, &root).unwrap();
            // Through the overlay.
            fs::write(store.join("db"), "copied up").unwrap();
            fs::hard_link(store.join("db"), root.join("link")).unwrap();
            assert!(reaches(&root.join("link"), &store.join("db")));
            assert_alias(&grant.recheck().unwrap_err(), "hard-link", root.join("link"));
            fs::remove_file(root.join("link")).unwrap();
            grant.recheck().unwrap();
            // In the upper directory, to a place outside of every layer.
            let beside = issue(&store, world.write_root()).unwrap();
            fs::hard_link(layers.upper.join("P/db"), world.write_root().join("link")).unwrap();
            assert!(reaches(&world.write_root().join("link"), &store.join("db")));
            for error in [issue(&store, world.write_root()).unwrap_err(), beside.recheck().unwrap_err()] {
                assert_alias(&error, "hard-link", world.write_root().join("link"));
            }
            fs::remove_file(world.write_root().join("link")).unwrap();
            beside.recheck().unwrap();
            // The store outside, and another name of a file in it in the upper directory of the root's overlay.
            fs::write(world.private().join("db"), "s").unwrap();
            issue(&world.private(), &root).unwrap();
            fs::hard_link(world.private().join("db"), dir(layers.upper.join("W")).join("other")).unwrap();
            assert!(reaches(&root.join("other"), &world.private().join("db")));
            let error = issue(&world.private(), &root).unwrap_err();
            assert_eq!((error.kind(), text(&error, "alias")), (ErrorKind::RootOverlap, "hard-link"), "{error:?}");
            // The twin: in the lower directory it is copied before it is written.
            fs::remove_file(layers.upper.join("W/other")).unwrap();
            fs::hard_link(world.private().join("db"), layers.lower.join("W/below")).unwrap();
            assert!(!reaches(&root.join("below"), &world.private().join("db")));
            issue(&world.private(), &root).unwrap();
        });
    }

    /// The same where the layers lie on two file systems and entries show the numbers of a layer.
    fn overlay_mount_of_two_file_systems_with_hard_links(world: &World) {
        in_private_mounts(world, |world| {
            let base = dir(world.path().join("O"));
            let other = dir(base.join("other"));
            tmpfs(&other);
            let (upper, work) = (dir(other.join("upper")), dir(other.join("work")));
            let layers = Layers { upper: upper.clone(), work, ..Layers::at(&base) }.mount_with("xino=off");
            let (store, root) = (layers.store(), layers.merged.join("W"));
            let grant = issue(&store, &root).unwrap();
            fs::write(store.join("db"), "copied up").unwrap();
            fs::hard_link(store.join("db"), root.join("link")).unwrap();
            assert!(reaches(&root.join("link"), &store.join("db")));
            assert_alias(&issue(&store, &root).unwrap_err(), "hard-link", root.join("link"));
            assert_alias(&grant.recheck().unwrap_err(), "hard-link", root.join("link"));
            fs::remove_file(root.join("link")).unwrap();
            grant.recheck().unwrap();
            // In the upper directory's file system, beside the layers.
            let beside = dir(other.join("beside"));
            let grant = issue(&store, &beside).unwrap();
            fs::hard_link(upper.join("P/db"), beside.join("link")).unwrap();
            assert!(reaches(&beside.join("link"), &store.join("db")));
            assert_alias(&grant.recheck().unwrap_err(), "hard-link", beside.join("link"));
        });
    }

    /// An overlay of an overlay: the layers of both reach the store.
    fn overlay_mount_of_an_overlay(world: &World) {
        in_private_mounts(world, |world| {
            let first = Layers::at(&dir(world.path().join("O1"))).mount();
            let base = dir(world.path().join("O2"));
            let [upper, work, merged] = ["upper", "work", "merged"].map(|name| dir(base.join(name)));
            overlay(&merged, &layers(&first.merged, &upper, &work));
            let store = merged.join("P");
            for root in [&first.lower, &first.upper, &first.merged, &first.merged.join("P"), &upper, &work] {
                let error = issue(&store, root).unwrap_err();
                assert_eq!((error.kind(), text(&error, "alias")), (ErrorKind::RootOverlap, "overlay-layer"), "{error:?}");
            }
            issue(&store, merged.join("W")).unwrap();
            issue(&store, world.write_root()).unwrap();
            // A store in the upper directory of the first is not written through the second, which only reads it.
            let below = dir(first.upper.join("Q"));
            fs::write(below.join("f"), "s").unwrap();
            assert!(!reaches(&merged.join("Q/f"), &below.join("f")));
            issue(&below, &merged).unwrap();
        });
    }

    /// An overlay that is mounted read-only below a root, or covered, reaches nothing.
    fn overlay_mount_that_takes_no_writes(world: &World) {
        in_private_mounts(world, |world| {
            let layers = Layers::at(&dir(world.path().join("O")));
            let store = dir(layers.upper.join("P"));
            fs::write(store.join("db"), "s").unwrap();
            let layers = layers.mount();
            let point = dir(world.write_root().join("in"));
            let grant = issue(&store, world.write_root()).unwrap();
            bind(&layers.merged, &point);
            assert!(reaches(&point.join("P/db"), &store.join("db")));
            assert_alias(&grant.recheck().unwrap_err(), "overlay-merged", point.join("P"));
            make_read_only(&point);
            assert!(fs::write(point.join("P/db"), "w").is_err());
            grant.recheck().unwrap();
            unmount(&point);
            bind(&layers.merged, &point);
            tmpfs(&point);
            grant.recheck().unwrap();
            unmount(&point);
            assert_alias(&grant.recheck().unwrap_err(), "overlay-merged", point.join("P"));
        });
    }
}
