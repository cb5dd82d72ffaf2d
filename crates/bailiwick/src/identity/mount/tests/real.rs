//! Both readers and `locate` on real mounts.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use linux_raw_sys::general::{__NR_listmount, __NR_statmount};
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::super::{Fault, Location, Mount, MountTable, Overlap, Spelling, folds_case};
use super::{at_rest, bind, make_read_only, make_shared, table, tmpfs, with_arena};
use crate::sys::unshared::without_call;

/// Mount and canonical path of what a path names now.
fn reached(path: &Path) -> (u64, PathBuf) {
    let stat = statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).unwrap();
    (stat.stx_mnt_id, path.canonicalize().unwrap())
}

fn mount_of<'a>(table: &'a MountTable, path: &Path) -> &'a Mount {
    table.get(reached(path).0).unwrap()
}

fn location(table: &MountTable, path: &Path) -> Location {
    let (mount, canonical) = reached(path);
    table.locate(mount, &canonical).unwrap()
}

fn inode(path: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path).unwrap();
    (found.dev(), found.ino())
}

bailiwick_test::cases! {
    /// Without mounts of its own: whatever this machine has.
    fn readers_agree_on_this_machine(_world: &World) {
        let table = table();
        let root = mount_of(&table, Path::new("/"));
        assert_eq!(root.point, Path::new("/"));
        assert_eq!(location(&table, Path::new("/proc/self")).path.parent(), Some(Path::new("/")));
        assert!(table.iter().any(|mount| mount.fs_type == "proc"));
        assert_eq!(table.get(u64::MAX), None);
        assert!(table.iter().all(|mount| table.get(mount.id) == Some(mount)));
    }

    /// Where a call is missing or a filter refuses it, the text is read instead.
    fn a_kernel_without_the_calls(_world: &World) {
        for call in [__NR_listmount, __NR_statmount] {
            for errno in [libc::ENOSYS, libc::EPERM] {
                without_call(call, errno, || {
                    assert_eq!(MountTable::read_by_calls().unwrap(), None);
                    let (read, text) = at_rest(|| (MountTable::read().unwrap(), MountTable::read_by_text().unwrap()));
                    assert_eq!(read, text);
                });
            }
        }
        // Any other answer is not taken for that, nor for a mount that is not there.
        for errno in [libc::EIO, libc::ENOENT] {
            without_call(__NR_statmount, errno, || {
                let fault = MountTable::read().unwrap_err();
                assert!(matches!(&fault, Fault::Denied(_)), "{fault:?}");
            });
        }
    }
}

/// Names with every character that either way to show them treats apart.
#[test]
fn names_that_are_escaped() {
    with_arena(|arena| {
        const NAME: &str = "a b\tc\nd\\e#f,g:h=i\\040j\u{e9}";
        let (source, other) = (arena.dir(NAME), arena.dir("other"));
        let point = arena.dir(Path::new("point").join(NAME));
        bind(&source, &point);
        let raw = arena.dir(std::ffi::OsStr::from_bytes(b"raw \xff\x01\x7f"));
        mount(NAME, &raw, "tmpfs", MountFlags::empty(), None).unwrap();
        mount("", &other, "tmpfs", MountFlags::empty(), None).unwrap();
        let table = table();
        let bound = mount_of(&table, &point);
        assert_eq!(
            (bound.root.as_path(), bound.point.as_path()),
            (Path::new("/").join(NAME).as_path(), point.as_path())
        );
        assert_eq!(
            (mount_of(&table, &raw).point.as_path(), &*mount_of(&table, &raw).source),
            (raw.as_path(), NAME.as_ref())
        );
        assert!(mount_of(&table, &other).source.is_empty());
        assert_eq!(location(&table, &point), location(&table, &source));
    });
}

/// Two names of one object have one location, and what lies in it relates as the directories do.
#[test]
fn locations_of_binds() {
    with_arena(|arena| {
        let (source, inner) = (arena.dir("source"), arena.dir("source/inner"));
        let (alias, deep) = (arena.dir("alias"), arena.dir("deep"));
        let (file, file_alias) = (arena.path("source/file"), arena.path("file"));
        fs::write(&file, "").unwrap();
        fs::write(&file_alias, "").unwrap();
        bind(&source, &alias);
        bind(&inner, &deep);
        bind(&file, &file_alias);
        let table = table();
        for (one, other) in
            [(&source, &alias), (&inner, &deep), (&inner, &alias.join("inner")), (&file, &file_alias)]
        {
            assert_eq!(inode(one), inode(other));
            assert_eq!(location(&table, one), location(&table, other), "{one:?} {other:?}");
        }
        let overlap = |one: &Path, other: &Path| {
            location(&table, one).overlap(&location(&table, other), Spelling::Exact)
        };
        assert_eq!(overlap(&deep, &source), Some(Overlap::Inside));
        assert_eq!(overlap(&alias, &deep), Some(Overlap::Around));
        assert_eq!(overlap(&file_alias, &alias), Some(Overlap::Inside));
        assert_eq!(overlap(&deep, &file_alias), None);
        // Bound twice over, and a part of a bind.
        let again = arena.dir("again");
        bind(alias.join("inner"), &again);
        let table = super::table();
        assert_eq!(location(&table, &again), location(&table, &inner));
    });
}

#[test]
fn other_file_systems_are_other_places() {
    with_arena(|arena| {
        let (one, two) = (arena.dir("one"), arena.dir("two"));
        tmpfs(&one);
        tmpfs(&two);
        let table = table();
        assert_eq!(location(&table, &one).path, location(&table, &two).path);
        assert_ne!(location(&table, &one).device, location(&table, &two).device);
        assert_eq!(location(&table, &one).overlap(&location(&table, &two), Spelling::Exact), None);
        assert_eq!(mount_of(&table, &one).parent, mount_of(&table, &two).parent);
    });
}

/// Of mounts stacked on one point each stands on the one below it; a path leads to the uppermost.
#[test]
fn stacked_and_hidden() {
    with_arena(|arena| {
        let (source, point, below) = (arena.dir("source"), arena.dir("point"), arena.dir("source/below"));
        bind(&source, &point);
        tmpfs(&point.join("below"));
        let hidden = reached(&point.join("below")).0;
        let lower = reached(&point).0;
        tmpfs(&point);
        let table = table();
        let upper = mount_of(&table, &point);
        assert_eq!((upper.parent, &upper.point), (lower, &point));
        assert_eq!(table.get(lower).unwrap().point, point);
        assert_eq!(
            (table.get(hidden).unwrap().parent, table.get(hidden).unwrap().point.as_path()),
            (lower, point.join("below").as_path())
        );
        assert_ne!(location(&table, &point).device, location(&table, &source).device);
        // What the lower mount holds is still located through it.
        assert_eq!(table.locate(lower, &point.join("below")).unwrap(), location(&table, &below));
        assert_eq!(table.locate(hidden, &point), None);
        assert_eq!(table.locate(lower, &arena.path("pointer")), None);
    });
}

#[test]
fn read_only_mounts_and_file_systems() {
    with_arena(|arena| {
        let (source, point, whole, writable) =
            (arena.dir("source"), arena.dir("point"), arena.dir("whole"), arena.dir("writable"));
        bind(&source, &point);
        make_read_only(&point);
        mount("none", &whole, "tmpfs", MountFlags::RDONLY, None).unwrap();
        bind(&source, &writable);
        make_shared(&writable);
        let table = table();
        for (path, expected) in [(&point, true), (&whole, true), (&writable, false), (&source, false)] {
            assert_eq!(mount_of(&table, path).read_only, expected, "{path:?}");
            assert_eq!(fs::write(path.join("file"), "").is_err(), expected, "{path:?}");
        }
        assert_eq!(location(&table, &point), location(&table, &source));
    });
}

/// General options of the file system are left out by both readers, its own stay.
#[test]
fn options_of_the_file_system() {
    with_arena(|arena| {
        let (plain, own) = (arena.dir("plain"), arena.dir("own"));
        let general = MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC | MountFlags::LAZYTIME;
        mount("none", &plain, "tmpfs", general, None).unwrap();
        mount("none", &own, "tmpfs", general | MountFlags::NOEXEC, c"size=8k,mode=711").unwrap();
        let table = table();
        assert!(!mount_of(&table, &plain).options.starts_with(b"sync"));
        let options = String::from_utf8(mount_of(&table, &own).options.clone()).unwrap();
        assert!(options.contains("size=8k") && options.contains("mode=711"), "{options}");
        assert!(!options.contains("noexec") && !options.contains("sync"), "{options}");
    });
}

/// The root of a mount follows a rename, and is marked when it is removed.
#[test]
fn renamed_and_removed_sources() {
    with_arena(|arena| {
        let (moved, removed) = (arena.dir("moved"), arena.dir("removed x"));
        let file = arena.path("file");
        fs::write(&file, "").unwrap();
        let (one, two, three) = (arena.dir("one"), arena.dir("two"), arena.path("three"));
        fs::write(&three, "").unwrap();
        bind(&moved, &one);
        bind(&removed, &two);
        bind(&file, &three);
        fs::rename(&moved, arena.path("new name")).unwrap();
        fs::remove_dir(&removed).unwrap();
        fs::remove_file(&file).unwrap();
        let table = table();
        let root = |path: &Path| (mount_of(&table, path).root.clone(), mount_of(&table, path).root_removed);
        assert_eq!(root(&one), ("/new name".into(), false));
        assert_eq!(root(&two), ("/removed x".into(), true));
        assert_eq!(root(&three), ("/file".into(), true));
        assert_eq!(location(&table, &one), location(&table, &arena.path("new name")));
    });
}

/// As many mounts as fill several pages, of all lengths of names.
#[test]
fn many_mounts() {
    with_arena(|arena| {
        let source = arena.dir("source");
        for n in 0..200_usize {
            let long = "x".repeat(n + 1);
            let point = arena.dir(format!("{long}/{long}/{n}"));
            bind(&source, &point);
        }
        let before = MountTable::read().unwrap().iter().count();
        for n in 0..1000 {
            bind(&source, arena.dir(format!("more/{n}")));
        }
        let table = table();
        assert_eq!(table.iter().count(), before + 1000);
        assert!(table.iter().filter(|mount| mount.root == Path::new("/source")).count() == 1200);
    });
}

/// Strings that do not fit the first buffer: a path of almost `PATH_MAX`, twice, and the options of an overlay.
#[test]
fn long_strings() {
    with_arena(|arena| {
        let name = "n\\".repeat(120);
        let deep = (0..12).fold(PathBuf::new(), |path, _| path.join(&name));
        let (source, point) = (arena.dir(Path::new("s").join(&deep)), arena.dir(Path::new("p").join(&deep)));
        bind(&source, &point);
        let table = table();
        assert_eq!(mount_of(&table, &point).root, Path::new("/s").join(&deep));
        assert_eq!(mount_of(&table, &point).point, point);
    });
}

/// Who lives in a plain `chroot` sees mounts below it, and not the one that it lies on.
#[test]
fn in_a_chroot() {
    with_arena(|arena| {
        let jail = arena.dir("jail");
        let (proc, inside, source) =
            (arena.dir("jail/proc"), arena.dir("jail/inside"), arena.dir("jail/source"));
        bind("/proc", &proc);
        bind(&source, &inside);
        let outside = table();
        let whole = reached(&jail).0;
        assert!(outside.get(whole).is_some());
        rustix::process::chroot(&jail).unwrap();
        rustix::process::chdir("/").unwrap();
        let table = table();
        assert!(table.iter().count() < outside.iter().count());
        assert_eq!(table.get(whole), None);
        assert_eq!(table.locate(reached(Path::new("/source")).0, Path::new("/source")), None);
        let inside = location(&table, Path::new("/inside"));
        assert_eq!(inside.path, Path::new("/jail/source"));
        assert_eq!(mount_of(&table, Path::new("/inside")).point, Path::new("/inside"));
    });
}

/// A root made by `pivot_root`, with the old one left over in it and then taken away.
#[test]
fn after_pivot_root() {
    with_arena(|arena| {
        let new = arena.dir("new");
        tmpfs(&new);
        for name in ["proc", "old", "source", "point"] {
            fs::create_dir(new.join(name)).unwrap();
        }
        bind("/proc", new.join("proc"));
        bind(new.join("source"), new.join("point"));
        rustix::process::chdir(&new).unwrap();
        rustix::process::pivot_root(".", "old").unwrap();
        rustix::process::chdir("/").unwrap();
        let with_old = table();
        assert_eq!(mount_of(&with_old, Path::new("/")).fs_type, "tmpfs");
        assert_eq!(location(&with_old, Path::new("/point")), location(&with_old, Path::new("/source")));
        assert!(with_old.iter().any(|mount| mount.point == Path::new("/old")));
        unmount("/old", UnmountFlags::DETACH).unwrap();
        let without = table();
        assert!(without.iter().count() < with_old.iter().count());
        assert!(without.iter().all(|mount| !mount.point.starts_with("/old")));
    });
}

/// A detached mount is in no table.
#[test]
fn detached_mounts_are_not_located() {
    with_arena(|arena| {
        let (source, point) = (arena.dir("source"), arena.dir("point"));
        bind(&source, &point);
        let held = File::open(&point).unwrap();
        let (id, canonical) = reached(&point);
        assert!(table().locate(id, &canonical).is_some());
        unmount(&point, UnmountFlags::DETACH).unwrap();
        assert_eq!(table().locate(id, &canonical), None);
        drop(held);
    });
}

/// Runs a program that must succeed.
fn ran(program: &str, arguments: &[&std::ffi::OsStr]) {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a file system in a file and mounts it at `at`.
fn mount_image(mkfs: &str, image: &Path, at: &Path) {
    File::create(image).unwrap().set_len(256 << 20).unwrap();
    ran(mkfs, &["-q".as_ref(), image.as_os_str()]);
    ran("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()]);
}

/// On btrfs every subvolume has a device of its own for `stat`, but one for all in the table.
#[test]
fn subvolumes() {
    bailiwick_test::requires!(bailiwick_test::Need::Btrfs, "mounts subvolumes");
    with_arena(|arena| {
        let (whole, part, alias) = (arena.dir("whole"), arena.dir("part"), arena.dir("alias"));
        mount_image("mkfs.btrfs", &arena.path("image"), &whole);
        let (subvolume, snapshot) = (whole.join("sub, volume"), whole.join("snapshot"));
        ran("btrfs", &["-q".as_ref(), "subvolume".as_ref(), "create".as_ref(), subvolume.as_os_str()]);
        fs::create_dir(subvolume.join("inner")).unwrap();
        ran(
            "btrfs",
            &[
                "-q".as_ref(),
                "subvolume".as_ref(),
                "snapshot".as_ref(),
                subvolume.as_os_str(),
                snapshot.as_os_str(),
            ],
        );
        let source = PathBuf::from(&mount_of(&table(), &whole).source);
        // By its id: the table names it by path all the same.
        mount(&source, &part, "btrfs", MountFlags::empty(), c"subvolid=256").unwrap();
        bind(subvolume.join("inner"), &alias);
        let table = table();
        assert_ne!(inode(&part).0, inode(&whole).0);
        assert_eq!(location(&table, &part), location(&table, &subvolume));
        assert_eq!(location(&table, &alias), location(&table, &part.join("inner")));
        assert_eq!(location(&table, &part).path, Path::new("/sub, volume"));
        let overlap = |one: &Path, other: &Path| {
            location(&table, one).overlap(&location(&table, other), Spelling::Exact)
        };
        assert_eq!(overlap(&alias, &whole), Some(Overlap::Inside));
        // A snapshot is another place with equal inodes.
        assert_eq!(inode(&snapshot.join("inner")).1, inode(&alias).1);
        assert_eq!(overlap(&snapshot, &part), None);
        assert!(!folds_case(File::open(&part).unwrap(), &part).unwrap());
    });
}

#[test]
fn folding_of_case_is_read_from_the_directory() {
    with_arena(|arena| {
        let path = OsPath(rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC);
        for place in [arena.at.as_path(), Path::new("/proc"), Path::new("/")] {
            assert!(!folds_case(path.open(place), place).unwrap());
        }
        let file = arena.path("file");
        fs::write(&file, "").unwrap();
        folds_case(path.open(&file), &file).unwrap_err();
        // Where the kernel can fold (tmpfs since Linux 6.13, with Unicode), a marked directory says so.
        let folding = arena.dir("folding");
        if mount("none", &folding, "tmpfs", MountFlags::empty(), c"casefold").is_ok() {
            let (marked, plain) = (arena.dir("folding/marked"), arena.dir("folding/plain"));
            let flags = rustix::fs::IFlags::from_bits_retain(0x4000_0000);
            rustix::fs::ioctl_setflags(File::open(&marked).unwrap(), flags).unwrap();
            assert!(folds_case(path.open(&marked), &marked).unwrap());
            assert!(!folds_case(path.open(&plain), &plain).unwrap());
        }
    });
}

bailiwick_test::user_cases! {
    /// The mark cannot be read of a directory that may not be listed, and that is no "no".
    fn folding_of_a_closed_directory(world: &World) {
        use std::os::unix::fs::PermissionsExt as _;
        let (open, closed) = (world.path().join("open"), world.path().join("closed"));
        for (dir, mode) in [(&open, 0o500), (&closed, 0o300)] {
            fs::create_dir(dir).unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = OsPath(rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC);
        assert!(!folds_case(path.open(&open), &open).unwrap());
        let fault = folds_case(path.open(&closed), &closed).unwrap_err();
        assert_eq!(fault.cause().unwrap().errno(), rustix::io::Errno::ACCESS);
    }
}

struct OsPath(rustix::fs::OFlags);

impl OsPath {
    fn open(&self, path: &Path) -> rustix::fd::OwnedFd {
        rustix::fs::open(path, self.0, rustix::fs::Mode::empty()).unwrap()
    }
}
