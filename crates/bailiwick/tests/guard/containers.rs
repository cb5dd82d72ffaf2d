//! Containers: `/` is an overlay whose layers are named by paths of the host, and a volume is mounted from the disk on
//! which those layers lie, or from another one. Real mounts, entered by `pivot_root`.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick::guard::{self, Grant, LinkSearch, ProtectedSet};
use bailiwick::store::StorePlace;
use bailiwick::{Error, ErrorKind, Protection, Session};
use bailiwick_test::host::{self, Host};
use bailiwick_test::{Need, requires, root_cases, user_cases};

use super::{Places, dir, path, roots, text};
use crate::sys::{bind, in_private_mounts, on_a_thread_with_its_own, tmpfs};

/// A disk of a host with the layers of a container, and the container's `/`, mounted and not entered yet.
///
/// | on the disk | what |
/// |---|---|
/// | `docker/l1` | lower layer with `usr/bin/agent` and `etc/agent/low` |
/// | `docker/l2` | layer above it with `etc/agent/high` |
/// | `docker/id/diff`, `docker/id/work` | upper layer, with `store` and `other`, and its work directory |
/// | `volumes/ws` | a volume |
///
/// `etc/agent` is made of all three layers.
struct Container {
    disk: PathBuf,
    /// The disk that holds the lower layers: the same one, or another.
    images: PathBuf,
    merged: PathBuf,
}

/// What is made after this has another birth time than what was made before: file systems stamp by the kernel's tick,
/// which takes 10 ms at most.
fn next_tick() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// Makes the disk of this type below `base` and mounts it.
fn disk(fs_type: &str, base: &Path) -> PathBuf {
    let at = dir(base.join("disk"));
    if fs_type == "tmpfs" {
        tmpfs(&at);
        return at;
    }
    let image = base.join("image");
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    for command in [
        Command::new(format!("mkfs.{fs_type}")).arg("-q").arg(&image),
        Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at),
    ] {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
    at
}

impl Container {
    fn make(world: &Places, fs_type: &str, options: &str) -> Self {
        let disk = disk(fs_type, world.path());
        Self::make_on(world, disk.clone(), disk, options)
    }

    fn make_on(world: &Places, disk: PathBuf, images: PathBuf, options: &str) -> Self {
        let (docker, image) = (dir(disk.join("docker")), dir(images.join("docker")));
        for (place, content) in [
            ("l1/usr/bin/agent", "agent"),
            ("l1/etc/agent/low", "low"),
            ("l2/etc/agent/high", "high"),
            ("id/diff/store/db", "s"),
            ("id/diff/other/file", "x"),
        ] {
            next_tick();
            let place = if place.starts_with('l') { &image } else { &docker }.join(place);
            dir(place.parent().unwrap());
            fs::write(place, content).unwrap();
        }
        next_tick();
        dir(docker.join("id/work"));
        next_tick();
        dir(disk.join("volumes/ws/sub"));
        dir(image.join("l"));
        super::link("../l1", image.join("l/AAAA"));
        super::link("../l2", image.join("l/BBBB"));
        let merged = dir(world.path().join("merged"));
        std::env::set_current_dir(&image).unwrap();
        let id = docker.join("id");
        let layers = format!(
            "lowerdir=l/BBBB:l/AAAA,upperdir={},workdir={}{options}",
            id.join("diff").display(),
            id.join("work").display()
        );
        use rustix::mount::{MountFlags, mount};
        let layers = CString::new(layers).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(layers.as_c_str())).unwrap();
        std::env::set_current_dir("/").unwrap();
        next_tick();
        // Made of all layers, by a copy up.
        fs::write(merged.join("etc/agent/new"), "new").unwrap();
        for point in ["proc", "ws", "data", "src", "old"] {
            dir(merged.join(point));
        }
        Self { disk, images, merged }
    }

    fn on_disk(&self, place: &str) -> PathBuf {
        let is_lower = place.starts_with("docker/l");
        if is_lower { &self.images } else { &self.disk }.join(place)
    }

    /// Runs `body` in the container, with these directories of the host mounted in it.
    fn enter<T: Send>(&self, volumes: &[(&Path, &str)], body: impl FnOnce() -> T + Send) -> T {
        let outcome = on_a_thread_with_its_own(libc::CLONE_NEWNS, || {
            rustix::mount::mount_bind_recursive("/proc", self.merged.join("proc")).unwrap();
            for (source, point) in volumes {
                bind(source, self.merged.join(point));
            }
            // `pivot_root` wants a mount that nothing has been mounted by at the same place.
            rustix::process::pivot_root(&self.merged, self.merged.join("old")).unwrap();
            std::env::set_current_dir("/").unwrap();
            rustix::mount::unmount("/old", rustix::mount::UnmountFlags::DETACH).unwrap();
            assert!(!self.disk.exists(), "the disk can be reached");
            body()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// What a grant says for the workspace `/ws`, this being mounted there, and the store on the overlay.
    fn workspace(&self, source: &Path) -> Result<(), Error> {
        self.enter(&[(source, "ws")], || {
            let grant = issue("/store", "/ws", LinkSearch::default())?;
            grant.recheck()
        })
    }
}

/// A grant for one root, the store being here, with the program and the configuration of the image protected.
fn issue(store: &str, root: &str, search: LinkSearch) -> Result<Grant, Error> {
    let set = ProtectedSet::around_place(&StorePlace::find(store).unwrap())
        .protect(&["/usr/bin/agent".into(), "/etc/agent".into()])
        .link_search(search)
        .build()
        .unwrap();
    guard::issue(&roots(&[root]), set)
}

/// A bound that any search exceeds.
fn no_search() -> LinkSearch {
    LinkSearch::default().entries(0)
}

#[track_caller]
fn assert_layer(outcome: Result<(), Error>, name: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RootOverlap, "{error:?}");
    assert_eq!((text(&error, "relation"), text(&error, "alias")), ("alias", "overlay-layer"), "{error:?}");
    assert_eq!(path(&error, "other_name"), Path::new(name), "{error:?}");
    assert_eq!(error.hints().len(), 1, "{error:?}");
}

#[track_caller]
fn assert_unprovable(outcome: Result<(), Error>, name: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
    assert!(text(&error, "fact").contains(&format!("`{name}`")), "{name}: {error:?}");
    assert_eq!(error.hints().len(), 1, "{error:?}");
}

/// The store on the overlay, the workspace a volume of the disk that holds the layers.
///
/// `by_handle`: the kernel tells file handles of the overlay. Without them only birth times tell, which prove that a
/// directory is not a layer, and never that it is one.
fn workspace_on_a_volume(world: &Places, fs_type: &str, options: &str, by_handle: bool) {
    workspace_on_a_volume_of(&Container::make(world, fs_type, options), by_handle);
}

fn workspace_on_a_volume_of(container: &Container, by_handle: bool) {
    let at = |place: &str| container.on_disk(place);
    let assert_refused = |place: &str, name: &str| {
        let outcome = container.workspace(&at(place));
        if by_handle {
            assert_layer(outcome, name);
        } else {
            assert_unprovable(outcome, name);
        }
    };
    container.workspace(&at("volumes/ws")).unwrap();
    // Around the upper directory, that directory, and what is private in it.
    assert_refused("docker", "/ws/id/diff");
    assert_refused("", "/ws/docker/id/diff");
    assert_refused("docker/id", "/ws/diff");
    assert_refused("docker/id/diff", "/ws");
    assert_refused("docker/id/diff/store", "/ws");
    // The same directory is in a lower layer too, and only its times tell.
    assert_unprovable(container.workspace(&at("docker/id/diff/etc")), "/ws");
    assert_unprovable(container.workspace(&at("docker/id/diff/etc/agent")), "/ws");
    // In the upper directory, and away from everything private.
    container.workspace(&at("docker/id/diff/other")).unwrap();
    // What is known of the lower layers.
    assert_refused("docker/l1", "/ws/usr");
    assert_refused("docker/l1/usr/bin", "/ws");
    if by_handle {
        assert_refused("docker/l2", "/ws/etc");
        assert_refused("docker/l2/etc/agent", "/ws");
    }
    // The work directory, by its form; the twin is a directory of that name which can be entered.
    assert_unprovable(container.workspace(&at("docker/id/work")), "/ws/work");
    assert_unprovable(container.workspace(&at("docker/id/work").join("work")), "/ws");
    dir(at("volumes/ws/work"));
    container.workspace(&at("volumes/ws")).unwrap();
    // What is written through such a mount is the harm that was refused.
    fs::write(at("docker/id/diff/store/db"), "written beside").unwrap();
    assert_eq!(fs::read(container.merged.join("store/db")).unwrap(), b"written beside");
}

/// The workspace on the overlay, the store on a volume.
fn store_on_a_volume(world: &Places, fs_type: &str, by_handle: bool) {
    let container = Container::make(world, fs_type, "");
    let try_with = |source: &str, store: &str, root: &str| {
        let source = container.on_disk(source);
        container.enter(&[(&source, "data")], || {
            let set = ProtectedSet::around_place(&StorePlace::find(store).unwrap()).build().unwrap();
            guard::issue(&roots(&[root]), set)?.recheck()
        })
    };
    dir(container.on_disk("volumes/ws/store"));
    dir(container.on_disk("docker/id/diff/src/store"));
    dir(container.on_disk("docker/id/diff/src/sub"));
    try_with("volumes/ws", "/data/store", "/src").unwrap();
    try_with("volumes/ws", "/data/later", "/src").unwrap();
    // The store lies in what the root is written to.
    let merged = |outcome: Result<(), Error>| {
        let error = outcome.unwrap_err();
        if by_handle {
            assert_eq!(error.kind(), ErrorKind::RootOverlap, "{error:?}");
            assert_eq!(text(&error, "alias"), "overlay-merged", "{error:?}");
        } else {
            assert_eq!(error.kind(), ErrorKind::RootUnprovable, "{error:?}");
        }
    };
    merged(try_with("docker/id/diff/src", "/data/store", "/src"));
    merged(try_with("docker/id/diff/src", "/data/later", "/src"));
    merged(try_with("docker/id/diff/src", "/data", "/src"));
    // What the root is written to lies in the store.
    merged(try_with("docker/id/diff/src", "/data", "/src/sub"));
    merged(try_with("docker", "/data", "/src"));
    merged(try_with("docker/id/diff", "/data", "/src"));
    // The twin: beside it.
    try_with("docker/id/diff/src", "/data/store", "/src/sub").unwrap();
    try_with("docker/id/diff/other", "/data", "/src").unwrap();
}

root_cases! {
    /// A workspace volume beside, around, in, and made of layers, on every file system whose handles are known.
    fn mounted_container_with_a_workspace_volume(world: &World) {
        in_private_mounts(world, |world| workspace_on_a_volume(world, "tmpfs", "", true));
    }

    /// The same on ext4, with the UUID in the handles and without.
    fn mounted_container_on_ext4(world: &World) {
        requires!(Need::Btrfs, "makes a file system in a file");
        for (place, options) in [("one", ""), ("two", ",uuid=off")] {
            in_private_mounts(world, |world| {
                let base = dir(world.path().join(place));
                workspace_on_a_volume(&Places(base), "ext4", options, true);
            });
        }
    }

    /// The lower layers lie on another disk than the upper one.
    fn mounted_container_on_two_disks(world: &World) {
        requires!(Need::Btrfs, "makes a file system in a file");
        for (place, fs_type) in [("one", "tmpfs"), ("two", "ext4")] {
            in_private_mounts(world, |world| {
                let base = Places(dir(world.path().join(place)));
                let images = disk(fs_type, &dir(base.path().join("images")));
                let container = Container::make_on(&base, disk("tmpfs", base.path()), images.clone(), "");
                workspace_on_a_volume_of(&container, true);
                // A volume beside the lower layers.
                let volume = dir(images.join("volume"));
                container.workspace(&volume).unwrap();
                assert_layer(container.workspace(&images), "/ws/docker/l1/usr");
            });
        }
    }

    /// The same on btrfs, where a layer may be a subvolume.
    fn mounted_container_on_btrfs(world: &World) {
        requires!(Need::Btrfs, "makes a btrfs");
        in_private_mounts(world, |world| workspace_on_a_volume(world, "btrfs", "", true));
    }

    /// The same where the runtime's filter of system calls refuses to tell file handles.
    fn mounted_container_without_file_handles(world: &World) {
        in_private_mounts(world, |world| {
            crate::sys::refuse(libc::SYS_name_to_handle_at, libc::EPERM);
            workspace_on_a_volume(world, "tmpfs", "", false);
        });
    }

    /// A store on a volume, and the workspace in the container.
    fn mounted_container_with_a_store_volume(world: &World) {
        in_private_mounts(world, |world| store_on_a_volume(world, "tmpfs", true));
    }

    /// The same without file handles.
    fn mounted_container_with_a_store_volume_without_file_handles(world: &World) {
        in_private_mounts(world, |world| {
            crate::sys::refuse(libc::SYS_name_to_handle_at, libc::EPERM);
            store_on_a_volume(world, "tmpfs", false);
        });
    }

    /// The same on ext4.
    fn mounted_container_with_a_store_volume_on_ext4(world: &World) {
        requires!(Need::Btrfs, "makes a file system in a file");
        in_private_mounts(world, |world| store_on_a_volume(world, "ext4", true));
    }

    /// On a file system that is provably another one nothing is searched; on the same one the search has bounds.
    fn mounted_container_and_the_bounds_of_a_search(world: &World) {
        in_private_mounts(world, |world| {
            let container = Container::make(world, "tmpfs", "");
            let other = dir(world.path().join("elsewhere"));
            tmpfs(&other);
            for volume in [&container.on_disk("volumes/ws"), &other] {
                (0..50).for_each(|n| fs::write(volume.join(n.to_string()), "").unwrap());
            }
            let with = |volume: &Path, search: LinkSearch| {
                container.enter(&[(volume, "ws")], || issue("/store", "/ws", search).map(drop))
            };
            with(&other, no_search()).unwrap();
            let error = with(&container.on_disk("volumes/ws"), no_search()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LinkSearchStopped, "{error:?}");
            with(&container.on_disk("volumes/ws"), LinkSearch::default().entries(100)).unwrap();
        });
    }

    /// The volume lies on a file system of another type than the layers.
    fn mounted_container_with_a_volume_of_another_type(world: &World) {
        requires!(Need::Btrfs, "makes a file system in a file");
        in_private_mounts(world, |world| {
            let container = Container::make(world, "ext4", ",uuid=off");
            let other = dir(world.path().join("elsewhere"));
            tmpfs(&other);
            fs::write(other.join("file"), "").unwrap();
            container.enter(&[(&other, "ws")], || issue("/store", "/ws", no_search()).map(drop)).unwrap();
        });
    }

    /// Another name of a private file of the overlay, given to it on the disk.
    fn mounted_container_with_a_hard_link(world: &World) {
        in_private_mounts(world, |world| {
            let container = Container::make(world, "tmpfs", "");
            let at = |place: &str| container.on_disk(place);
            for (file, name) in [("id/diff/store/db", "db"), ("l1/usr/bin/agent", "agent")] {
                let file = at("docker").join(file);
                fs::hard_link(&file, at("volumes").join(name)).unwrap();
                container.workspace(&at("volumes/ws")).unwrap();
                fs::rename(at("volumes").join(name), at("volumes/ws/sub").join(name)).unwrap();
                assert_layer(container.workspace(&at("volumes/ws")), &format!("/ws/sub/{name}"));
                fs::remove_file(at("volumes/ws/sub").join(name)).unwrap();
            }
            // Of a file that may have been copied up only the lower one can be told: its names are found all the same.
            fs::hard_link(at("docker/l2/etc/agent/high"), at("volumes/ws/high")).unwrap();
            assert_unprovable(container.workspace(&at("volumes/ws")), "/etc/agent/high");
            fs::remove_file(at("volumes/ws/high")).unwrap();
            container.workspace(&at("volumes/ws")).unwrap();
            fs::hard_link(container.merged.join("etc/agent/high"), container.merged.join("copied")).unwrap();
            assert_unprovable(container.workspace(&at("volumes/ws")), "/etc/agent/high");
            fs::remove_file(container.merged.join("copied")).unwrap();
            container.workspace(&at("volumes/ws")).unwrap();
        });
    }

    /// A whole session: the host program and its store on the overlay, the workspace on a volume.
    fn mounted_container_with_a_session(world: &World) {
        in_private_mounts(world, |world| {
            let container = Container::make(world, "tmpfs", "");
            copy_of_this_program(&container.on_disk("docker/l1/usr/bin/program"));
            for point in ["bin", "lib", "lib64", "dev", "tmp", "home"] {
                dir(container.merged.join(point));
            }
            let volume = container.on_disk("volumes/ws");
            let system = ["/usr/bin", "/usr/lib", "/usr/lib64", "/dev"].map(PathBuf::from);
            let mounts = [
                (&*volume, "ws"),
                (&*system[0], "bin"),
                (&*system[1], "lib"),
                (&*system[2], "lib64"),
                (&*system[3], "dev"),
            ];
            container.enter(&mounts, || {
                let places = bailiwick_test::Places::at("/ws");
                let command = by(Command::new("/usr/bin/program"), &places, "session");
                Host::start(&places, command).finish();
            });
        });
    }

    /// A layer that is mounted into a root, or moved into it, after the grant.
    fn mounted_container_that_changes(world: &World) {
        in_private_mounts(world, |world| {
            let container = Container::make(world, "tmpfs", "");
            let (volume, disk) = (container.on_disk("volumes/ws"), &container.disk);
            container.enter(&[(&volume, "ws"), (disk, "data")], || {
                let grant = issue("/store", "/ws", LinkSearch::default()).unwrap();
                grant.recheck().unwrap();
                // Searched once, as long as nothing is mounted.
                bind("/data/docker/id", "/ws/sub");
                assert_layer(grant.recheck(), "/ws/sub/diff");
                rustix::mount::unmount("/ws/sub", rustix::mount::UnmountFlags::empty()).unwrap();
                grant.recheck().unwrap();
                bind("/data/volumes", "/ws/sub");
                grant.recheck().unwrap();
                assert!(guard::explain(grant.policy(), grant.protected()).notes.iter().any(|note| note.contains("lower")));
            });
        });
    }
}

/// Parts of cases that run in a process of their own.
#[test]
#[ignore = "started by the cases of this file"]
fn host() {
    host::play(&[("rootless", rootless), ("session", session)]);
}

fn rootless(places: &bailiwick_test::Places) {
    let world = Places(places.path().to_owned());
    on_a_thread_with_its_own(libc::CLONE_NEWNS, || {
        workspace_on_a_volume(&world, "tmpfs", ",userxattr", false)
    })
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Copies this program, by a program of its own: a file that this process has open for writing cannot be run.
fn copy_of_this_program(at: &Path) {
    let own = format!("/proc/{}/exe", std::process::id());
    assert!(Command::new("cp").arg(own).arg(at).status().unwrap().success());
}

/// Has a command play a part of this file.
fn by(mut command: Command, places: &bailiwick_test::Places, part: &str) -> Command {
    let plain = Host::command(places, "containers::host", part);
    command.args(plain.get_args());
    command.env_clear();
    command.envs(plain.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = fs::OpenOptions::new().append(true).open(places.join("host-output")).unwrap();
    command.current_dir("/").stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    command
}

/// The host program of a session in a container: `/` and this executable lie on the overlay.
fn session(_: &bailiwick_test::Places) {
    assert_eq!(std::env::current_exe().unwrap(), Path::new("/usr/bin/program"));
    let run = async {
        let session = Session::builder("/home/session")
            .write_root("/ws")
            .accept(Protection::Metadata)
            .accept(Protection::NamedSockets)
            .open()
            .await
            .unwrap();
        let script = "echo made > /ws/made; echo bad > /usr/bin/agent; echo bad > /home/session/x";
        let output = session.command("/bin/sh").args(["-c", script]).output().await.unwrap();
        assert!(!output.status.success());
        session.replace_write_roots(["/ws/sub"]).await.unwrap();
        let script = "echo made > /ws/sub/made && echo bad > /ws/made";
        let output = session.command("/bin/sh").args(["-c", script]).output().await.unwrap();
        assert!(!output.status.success());
        // The program lies in the layers of the overlay, and a root there is refused as ever.
        assert_eq!(session.replace_write_roots(["/usr"]).await.unwrap_err().kind(), ErrorKind::RootOverlap);
        session.close().await.unwrap();
    };
    host::block_on(run);
    assert_eq!(fs::read("/ws/made").unwrap(), b"made\n");
    assert_eq!(fs::read("/ws/sub/made").unwrap(), b"made\n");
    assert_eq!(fs::read("/usr/bin/agent").unwrap(), b"agent");
    assert!(!Path::new("/home/session/x").exists());
}

user_cases! {
    /// A container of a plain user: the overlay is mounted in a user namespace.
    fn mounted_container_of_a_plain_user(world: &World) {
        let places = bailiwick_test::Places::at(world.path());
        // A copy: across user namespaces nobody may follow the link to the executable of another process.
        let program = world.path().join("program");
        copy_of_this_program(&program);
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).arg(&program);
        let command = by(command, &places, "rootless");
        Host::start(&places, command).finish();
    }
}

/// What a grant costs in a container, printed: run it alone, in release.
#[test]
#[ignore = "measures"]
fn cost_of_a_container() {
    requires!(Need::Root, "mounts");
    let world = bailiwick_test::World::new();
    for (fs_type, files) in [("tmpfs", 0), ("tmpfs", 10_000), ("ext4", 0), ("ext4", 10_000)] {
        let base = dir(world.path().join(format!("{fs_type}{files}")));
        in_private_mounts(&world, |_| {
            let container = Container::make(&Places(base.clone()), fs_type, "");
            let volume = container.on_disk("volumes/ws");
            for n in 0..files {
                let holder = dir(volume.join(format!("d{}", n % 500)));
                fs::write(holder.join(n.to_string()), "").unwrap();
            }
            let report = container.enter(&[(&volume, "ws")], || {
                let grant = issue("/store", "/ws", LinkSearch::default()).unwrap();
                let median = |act: &dyn Fn()| {
                    let mut times: Vec<_> = (0..51)
                        .map(|_| {
                            let begin = std::time::Instant::now();
                            act();
                            begin.elapsed()
                        })
                        .collect();
                    times.sort();
                    times[25]
                };
                let again = || drop(guard::issue(grant.policy(), grant.protected().clone()).unwrap());
                (median(&again), median(&|| grant.recheck().unwrap()))
            });
            eprintln!("{fs_type}, {files} files: issue {:?}, recheck {:?}", report.0, report.1);
        });
    }
}
