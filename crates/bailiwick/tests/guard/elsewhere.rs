//! What other processes see and serve: mounts of another namespace, roots named through another process, and file
//! systems that a program answers for.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bailiwick::guard::{self, Grant};
use bailiwick::{Error, ErrorKind};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::{Need, fixture, requires, root_cases, wait_until};

use super::aliases::reaches;

use super::{Places, dir, path, protected_at, roots, text};
use crate::disks::ran;
use crate::sys::{bind, in_private_mounts, tmpfs};

fn issue(store: &Path, root: impl AsRef<Path>) -> Result<Grant, Error> {
    guard::issue(&roots(&[root]), protected_at(store))
}

/// A shell in a mount namespace of its own. It ends when it is dropped.
struct Elsewhere(Child);

impl Elsewhere {
    /// Runs a script there with the world's directory as its working directory, and goes on when it has ended.
    fn start(world: &Places, script: &str) -> Self {
        let script = format!("set -e; {script}; echo ready; read -r end");
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .current_dir(world.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    /// A path as this process sees it, named through `/proc`.
    fn through(&self, path: &Path) -> PathBuf {
        format!("/proc/{}/root{}", self.0.id(), path.display()).into()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _gone_already = input.write_all(b"end\n");
        }
        let _status = self.0.wait();
    }
}

/// `bindfs` in the foreground. It ends when its file system is unmounted, or this is dropped.
struct Served(Child, PathBuf);

impl Served {
    fn start(source: &Path, at: &Path) -> Self {
        let child =
            Command::new("bindfs").arg("-f").arg(source).arg(at).stdin(Stdio::null()).spawn().unwrap();
        let served = Self(child, at.to_owned());
        assert!(wait_until(GENEROUS, || fixture::is_mount_point(at)));
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone_already = rustix::mount::unmount(&self.1, rustix::mount::UnmountFlags::DETACH);
        let _gone_already = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A loop device, which goes with its last user once this is dropped.
struct Attached(String);

impl Attached {
    fn to(image: &Path) -> Self {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _status = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

root_cases! {
    /// A mount that only another process sees gives commands of this one no way to the store: granted. The twin is
    /// the same mount in this namespace.
    fn mounts_of_another_namespace(world: &World) {
        in_private_mounts(world, |world| {
            let point = dir(world.write_root().join("in"));
            let grant = issue(&world.private(), world.write_root()).unwrap();
            let other = Elsewhere::start(world, "mount --bind P W/in");
            assert!(!fixture::is_mount_point(&point));
            assert!(other.through(&point.join("db")).is_file());
            grant.recheck().unwrap();
            issue(&world.private(), world.write_root()).unwrap();
            drop(other);
            bind(world.private(), &point);
            assert_eq!(grant.recheck().unwrap_err().kind(), ErrorKind::RootOverlap);
        });
    }

    /// C15b: a root named through another process, whose path leads to another directory there than here.
    fn c15_roots_of_another_namespace_mount(world: &World) {
        in_private_mounts(world, |world| {
            let (root, store) = (world.write_root(), world.private());
            fs::write(root.join("here"), "").unwrap();
            let other = Elsewhere::start(world, "mount -t tmpfs t W; touch W/there; mkdir W/sub; mount --bind P X");
            let there = other.through(&root);
            // The very trap: the canonical path is that of the directory here.
            assert!(there.join("there").exists() && !root.join("there").exists());
            assert_eq!(fs::canonicalize(&there).unwrap(), root);
            for name in [there.clone(), there.join("sub"), other.through(&world.outside()), other.through(Path::new("/"))] {
                let error = issue(&store, &name).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RootThroughMagicLink, "{error:?}");
                assert_eq!(path(&error, "root"), name);
            }
            let error = bailiwick::store::StorePlace::find(&there).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreInvalid);
            // A directory there that a mount of this namespace shows by its own name is granted by that.
            let point = dir(world.path().join("point"));
            tmpfs(&point);
            issue(&store, &point).unwrap();
        });
    }

    /// A file system that a program serves: its numbers and names prove nothing, and what it holds lies elsewhere.
    fn fuse_mounts(world: &World) {
        requires!(Need::Fuse, "serves a directory by a program");
        in_private_mounts(world, |world| {
            let source = dir(world.path().join("source"));
            let (served, second) = (dir(world.path().join("served")), dir(world.path().join("second")));
            let [store, root] = ["P", "W"].map(|name| dir(source.join(name)));
            fs::write(store.join("db"), "s").unwrap();
            issue(&store, &root).unwrap();
            let one = Served::start(&source, &served);
            assert!(reaches(&served.join("P/db"), &store.join("db")));
            // Both on it.
            let error = issue(&served.join("P"), served.join("W")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
            assert!(text(&error, "fact").contains("fuse"), "{error:?}");
            // On two of them, which are one directory in truth.
            let two = Served::start(&source, &second);
            assert!(reaches(&second.join("P/db"), &store.join("db")));
            let error = issue(&served.join("P"), second.join("W")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
            // Plain overlaps are told as such.
            assert_eq!(issue(&served.join("P"), served.join("P")).unwrap_err().kind(), ErrorKind::RootOverlap);
            // The way out: both on a file system of this machine, the served ones as they are.
            issue(&world.private(), world.write_root()).unwrap();
            let grant = issue(&store, &root).unwrap();
            drop((one, two));
            grant.recheck().unwrap();
            // A store on it, and the root beside: what is written in the root's directory may be the store's.
            let one = Served::start(&source, &served);
            let error = issue(&served.join("P"), world.write_root()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
            drop(one);
            // The store served below a root, between two commands; and as a root.
            let point = dir(world.write_root().join("in"));
            let grant = issue(&store, world.write_root()).unwrap();
            let one = Served::start(&store, &point);
            assert!(reaches(&point.join("db"), &store.join("db")));
            for error in [grant.recheck().unwrap_err(), issue(&store, &point).unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
                assert!(text(&error, "fact").contains("fuse"), "{error:?}");
            }
            // Served read-only, nothing can be written through it.
            rustix::mount::mount_remount(
                &point,
                rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY,
                "",
            )
            .unwrap();
            assert!(fs::write(point.join("db"), "w").is_err());
            grant.recheck().unwrap();
            drop(one);
            grant.recheck().unwrap();
        });
    }

    /// A file system that folds case and gives one directory another number under each spelling.
    fn exfat_mount(world: &World) {
        requires!(Need::ExfatFuse, "mounts a file system that folds case");
        in_private_mounts(world, |world| {
            let (image, at) = (world.path().join("exfat.image"), dir(world.path().join("exfat")));
            fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
            ran("mkfs.exfat", &[&image]);
            let device = Attached::to(&image);
            ran("mount.exfat-fuse", &[device.0.as_ref(), at.as_os_str()]);
            assert!(fixture::is_mount_point(&at));
            let store = dir(at.join("P"));
            fs::write(store.join("db"), "s").unwrap();
            dir(store.join("sub"));
            let spelled = at.join("p");
            assert!(reaches(&spelled.join("db"), &store.join("db")));
            for root in [spelled.clone(), spelled.join("sub"), dir(at.join("W"))] {
                let error = issue(&store, &root).unwrap_err();
                let kinds = [ErrorKind::RootOverlap, ErrorKind::RootUnprovable, ErrorKind::RootNotAccessible];
                assert!(kinds.contains(&error.kind()), "{error:?}");
            }
            assert_eq!(issue(&store, at.join("W")).unwrap_err().kind(), ErrorKind::RootUnprovable);
            // The twins: one of the two elsewhere, and the file system is that of a disk.
            issue(&store, world.write_root()).unwrap();
            issue(&world.private(), at.join("W")).unwrap();
        });
    }
}
