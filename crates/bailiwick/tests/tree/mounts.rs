//! Mounts inside a tree: not crossed, not removed, named. C97, C103.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::mpsc;

use bailiwick::tree::Remover;
use bailiwick::{Error, ErrorKind, Field};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::{Listing, fixture, root_cases};

use super::sys::{bind, in_private_mounts, mount_new};
use super::{assert_told, dir, file, pin, reader};

const REFUSED: ErrorKind = ErrorKind::TreeRefused;

#[track_caller]
fn left(error: &Error) -> Vec<&Path> {
    assert_eq!(error.kind(), ErrorKind::TreeNotRemoved, "{}", error.report());
    let left = error.field("left").and_then(Field::as_list).unwrap();
    assert_eq!(error.field("left_count").and_then(Field::as_number), i64::try_from(left.len()).ok());
    let mut paths: Vec<_> = left.iter().filter_map(Field::as_path).collect();
    paths.sort();
    paths
}

root_cases! {
    /// A bind mount of the same file system, which no device number tells, of a directory and of a file; a tmpfs; and
    /// a file of `/proc`, which has no size and gives data.
    fn mounts_are_not_crossed(world: &World) {
        in_private_mounts(world.path(), |base| {
            let (root, outside) = (base.join("W"), base.join("X"));
            for name in ["bound", "tmpfs", "plain", "d/bound"] {
                dir(root.join(name));
            }
            for name in ["file", "stat"] {
                file(root.join(name), "covered");
            }
            let pinned = pin(&root);
            let mut reader = reader(&pinned);
            assert_eq!(reader.read("file").unwrap().bytes, b"covered");
            bind(&outside, root.join("bound"));
            bind(&outside, root.join("d/bound"));
            bind(outside.join("f"), root.join("file"));
            bind("/proc/self/stat", root.join("stat"));
            mount_new("tmpfs", &root.join("tmpfs"), "");
            file(root.join("tmpfs/f"), "t");
            fixture::assert_bind_mount(root.join("bound"), &outside);
            fixture::assert_bind_mount(root.join("file"), outside.join("f"));
            for (path, component) in [
                ("bound/f", "bound"), ("tmpfs/f", "tmpfs"), ("d/bound/f", "d/bound"), ("file", "file"), ("stat", "stat"),
            ] {
                assert_told(reader.read(path), REFUSED, component, "mount_point");
                assert_told(reader.look(path), REFUSED, component, "mount_point");
            }
            let listed = reader.list("").unwrap();
            let crossed: Vec<_> = listed.iter().filter(|entry| entry.found.is_err()).map(|entry| &*entry.name).collect();
            assert_eq!(crossed, ["bound", "file", "stat", "tmpfs"]);
            // The twins: pinned by itself, each is read.
            let bound = pin(root.join("bound"));
            assert_eq!(super::reader(&bound).read("f").unwrap().bytes, b"x");
            assert_eq!(super::reader(&pin(root.join("tmpfs"))).read("f").unwrap().bytes, b"t");

            // What is mounted over the tree itself is not taken for it.
            mount_new("tmpfs", &root, "");
            assert_told(
                bailiwick::tree::Reader::new(&pinned, bailiwick::tree::Limits::default()),
                ErrorKind::TreeChanged, "", "moved",
            );
        });
    }

    /// Everything but the mounts goes, and what is mounted there keeps its content.
    fn mounts_are_not_removed(world: &World) {
        in_private_mounts(world.path(), |base| {
            let (root, outside) = (base.join("W"), base.join("X"));
            for name in ["bound", "a/b/c/bound", "a/b/d/e"] {
                dir(root.join(name));
            }
            for name in ["file", "z", "a/b/f", "a/b/d/e/f"] {
                file(root.join(name), name);
            }
            let before = Listing::of(&outside);
            bind(&outside, root.join("bound"));
            bind(&outside, root.join("a/b/c/bound"));
            bind(outside.join("f"), root.join("file"));
            let pinned = pin(&root);
            let error = Remover::default().empty(&pinned).unwrap_err();
            assert_eq!(left(&error), ["a/b/c/bound", "bound", "file"].map(Path::new));
            assert!(error.field("reasons").and_then(Field::as_list).unwrap().iter()
                .all(|why| why.as_text().unwrap().contains("mount point")), "{error:?}");
            assert_eq!(error.field("removed").and_then(Field::as_number), Some(5));
            before.assert_unchanged();
            assert!(!root.join("a/b/d").exists() && !root.join("z").exists() && root.join("a/b/c").exists());
            for name in ["bound", "a/b/c/bound", "file"] {
                rustix::mount::unmount(root.join(name), rustix::mount::UnmountFlags::DETACH).unwrap();
            }
            assert_eq!(Remover::default().empty(&pinned).unwrap(), 6);
            assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
            before.assert_unchanged();
        });
    }

    /// What the host mounts in the temporary directory of a session keeps its content when the session closes; all
    /// else there goes.
    fn mounts_in_a_temporary_directory(world: &World) {
        use bailiwick_test::places::{self, Places};
        dir(world.outside().join("d/e"));
        file(world.outside().join("d/g"), "kept");
        in_private_mounts(world.path(), |base| {
            let (places, outside) = (Places::at(base), base.join("X"));
            dir(places.temporary());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let session = places.open().await;
                let script = "cd $TMPDIR && mkdir -p a/b/bound bound z/y && touch file z/f z/y/f a/b/f && chmod 0 z/y";
                places::done(&places::sh(&session, script).await);
                let temporary = session.temporary_dir().to_owned();
                let before = Listing::of(&outside);
                for name in ["bound", "a/b/bound"] {
                    bind(&outside, temporary.join(name));
                    fixture::assert_bind_mount(temporary.join(name), &outside);
                }
                bind(outside.join("f"), temporary.join("file"));
                places::close(&session).await;
                before.assert_unchanged();
                assert!(fixture::is_mount_point(temporary.join("bound")));
                assert!(!temporary.join("z").exists());
                // The directories above the other mount may have been moved, but nothing else is left in them.
                let mut left = places::entries(&temporary);
                left.retain(|path| !path.ends_with("bound") && !path.ends_with("file"));
                while let Some(path) = left.pop() {
                    assert!(path.is_dir(), "{} is left", path.display());
                    if !path.ends_with("bound") {
                        left.extend(places::entries(&path));
                    }
                }
            });
        });
    }

    /// C97: a FUSE mount whose server is dead holds up whoever asks it anything. It is refused without being asked.
    fn c97_dead_fuse_mount(world: &World) {
        in_private_mounts(world.path(), |base| {
            let root = base.join("W");
            dir(root.join("dead"));
            file(root.join("f"), "f");
            let server = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
            mount_new("fuse", &root.join("dead"), &options);
            let (answer, answers) = mpsc::channel();
            std::thread::scope(|scope| {
                let work = scope.spawn({
                    let root = root.clone();
                    move || {
                        let pinned = pin(&root);
                        let mut reader = reader(&pinned);
                        assert_told(reader.read("dead/f"), REFUSED, "dead", "mount_point");
                        let listed = reader.list("").unwrap();
                        assert_eq!(listed.iter().map(|entry| entry.found.is_ok()).collect::<Vec<_>>(), [false, true]);
                        assert_eq!(reader.read("f").unwrap().bytes, b"f");
                        assert_eq!(left(&Remover::default().empty(&pinned).unwrap_err()), [Path::new("dead")]);
                        answer.send(()).unwrap();
                    }
                });
                // Whether it came through or hangs, the control begins when this is over.
                let came_through = answers.recv_timeout(GENEROUS).is_ok() || work.is_finished();
                // The control: by path it is held up until the connection is gone, and then gets no answer either.
                let control = scope.spawn({
                    let path = root.join("dead/f");
                    move || fs::symlink_metadata(path).map(drop).map_err(|error| error.raw_os_error())
                });
                std::thread::sleep(std::time::Duration::from_millis(200));
                assert!(!control.is_finished(), "the mount answers");
                drop(server);
                let by_path = control.join().unwrap();
                assert!(matches!(by_path, Err(Some(libc::ENOTCONN | libc::ECONNABORTED))), "{by_path:?}");
                assert!(came_through);
            });
        });
    }

    /// Files and directories of one overlay may have several device numbers: all of them are of its mount.
    fn overlay_with_several_devices(world: &World) {
        in_private_mounts(world.path(), |base| {
            let (root, lower) = (base.join("W"), dir(base.join("lower")));
            mount_new("tmpfs", &lower, "");
            dir(lower.join("d"));
            file(lower.join("d/f"), "lower");
            let (upper, work) = (dir(base.join("up/upper")), dir(base.join("up/work")));
            let options = format!(
                "lowerdir={},upperdir={},workdir={},xino=off", lower.display(), upper.display(), work.display()
            );
            mount_new("overlay", &root, &options);
            file(root.join("g"), "upper");
            let pinned = pin(&root);
            let mut reader = reader(&pinned);
            let (below, own) = (reader.read("d/f").unwrap(), reader.read("g").unwrap());
            assert_eq!((below.bytes.as_slice(), own.bytes.as_slice()), (b"lower".as_slice(), b"upper".as_slice()));
            assert_ne!(below.facts.id.device_minor, own.facts.id.device_minor);
            assert_eq!(Remover::default().empty(&pinned).unwrap(), 3);
            assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
            assert_eq!(fs::read(lower.join("d/f")).unwrap(), b"lower");
        });
    }
}
