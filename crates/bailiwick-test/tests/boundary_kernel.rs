//! What no path names: keys, programs in the kernel, namespaces, shared memory and queues, leases, requests
//! on descriptors, and modes that carry a user's rights.

#![cfg(test)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use bailiwick::{Layer, Protection, Stdio};
use bailiwick_test::act::{self, Scopes, naively};
use bailiwick_test::boundary::{Arena, Denial, accepting_all, report, run, session};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::places::{close, open};
use bailiwick_test::pty::Pty;
use bailiwick_test::{
    Need, Places, Snapshot, World, case, cases, fixture, plain_image, requires, root_cases, tool,
};

const SECCOMP: &[Layer] = &[Layer::Seccomp];
const BOTH: &[Layer] = &[Layer::Seccomp, Layer::Capabilities];

/// An act that root may do by a capability where the host does not let everybody: `setting` says which.
fn layers_by(setting: &str, everybody: &[&str]) -> &'static [Layer] {
    let value = fs::read_to_string(setting).unwrap_or_default();
    if everybody.contains(&value.trim()) { SECCOMP } else { BOTH }
}

fn word<const N: usize>(path: &Path, words: [&str; N]) -> Vec<String> {
    words
        .iter()
        .map(|word| if *word == "@" { path.to_str().unwrap().to_owned() } else { (*word).to_owned() })
        .collect()
}

fn queue(world: &World) -> String {
    world.path().file_name().unwrap().to_str().unwrap().to_owned()
}

fn open_queue(name: &str, flags: i32) -> Calls {
    Calls::of(libc::SYS_mq_open, [name.into(), flags.into(), 0o600.into(), 0.into()])
}

/// A line of a table of System V objects of the host, found by its id.
fn segment(id: &str) -> Option<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    table.lines().find(|line| line.split_whitespace().nth(1) == Some(id)).map(str::to_owned)
}

cases! {
    /// Keys, programs in the kernel, counters, fault handlers, watches.
    async fn kernel_interfaces(world: &World) {
        let arena = Arena::open(world, BOTH).await;
        let keys = Calls::of(libc::SYS_request_key, ["user".into(), "act".into(), 0.into(), 0.into()]);
        run(arena.whole(), keys.arguments()).await.assert_refused(&["EPERM"]);
        let outside = world.outside_file();
        let acts: [(&[Layer], Vec<String>); 6] = [
            (SECCOMP, word(&outside, ["keyctl"])),
            (SECCOMP, word(&outside, ["add-key"])),
            (SECCOMP, word(&outside, ["userfaultfd"])),
            (SECCOMP, word(&outside, ["fanotify", "@"])),
            (layers_by("/proc/sys/kernel/unprivileged_bpf_disabled", &["0"]), word(&outside, ["bpf"])),
            (
                layers_by("/proc/sys/kernel/perf_event_paranoid", &["-1", "0", "1", "2"]),
                word(&outside, ["perf-event"]),
            ),
        ];
        for (layers, act) in acts {
            if act::bare(&act).ok {
                arena.denies(&Denial::of(layers, &act)).await;
                if layers == SECCOMP {
                    naively(&[world.write_root()], Scopes::All, &act).assert_done();
                }
            } else {
                assert!(!case::is_root() || layers == SECCOMP, "root cannot do {act:?}");
                run(arena.whole(), &act).await.assert_refused(&["EPERM"]);
            }
        }
        arena.close().await;
    }

    /// A file by its handle, past every path: root's alone.
    async fn files_by_handle(world: &World) {
        let layers = [Layer::Landlock, Layer::Seccomp, Layer::Capabilities];
        let act = word(&world.outside_file(), ["open-by-handle", "@"]);
        let arena = Arena::open(world, &layers).await;
        if case::is_root() {
            arena.denies(&Denial::of(&layers, &act)).await;
        } else {
            run(arena.whole(), &act).await.assert_refused(&["EPERM"]);
        }
        arena.close().await;
    }

    /// Namespaces: by each flag, with the user namespace that gives a plain user the right to the others.
    async fn namespaces(world: &World) {
        let arena = Arena::open(world, SECCOMP).await;
        const USER: u64 = 0x1000_0000;
        let kinds: [u64; 8] =
            [0, 0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x2000_0000, 0x4000_0000, 0x80];
        let can = act::bare(&["clone-newuser"]).ok;
        for kind in kinds {
            let act = ["unshare".to_owned(), format!("{:#x}", USER | kind)];
            if can && act::bare(&act).ok {
                arena.denies(&Denial::of(SECCOMP, &act)).await;
                naively(&[world.write_root()], Scopes::All, &act).assert_done();
            } else {
                run(arena.whole(), &act).await.assert_refused(&["EPERM"]);
            }
            if kind != 0 {
                run(arena.whole(), &["unshare".to_owned(), format!("{kind:#x}")])
                    .await
                    .assert_refused(&["EPERM"]);
            }
        }
        if can {
            arena.denies(&Denial::of(SECCOMP, &["clone-newuser"])).await;
        }
        // The newer call carries its flags by pointer: it is absent, and everybody falls back.
        arena.denies(&Denial::of(SECCOMP, &["clone3"]).answers(&["ENOSYS"])).await;
        for kind in ["mnt", "user", "pid", "net", "ipc", "uts"] {
            run(arena.whole(), &["setns", "self", kind]).await.assert_refused(&["EPERM"]);
        }
        // The twin: what `unshare` does without a namespace.
        arena.permits(&["unshare", "0x400"]).await;
        arena.close().await;
    }

    /// A namespace of its own process, entered again: refused by the filter, and by the missing capability.
    async fn entering_a_namespace(world: &World) {
        let arena = Arena::open(world, BOTH).await;
        if case::is_root() {
            arena.denies(&Denial::of(BOTH, &["setns", "self", "uts"])).await;
        }
        let victim = bailiwick_test::boundary::Victim::asleep();
        for kind in ["mnt", "user", "net"] {
            run(arena.whole(), &["setns", &victim.argument(), kind])
                .await
                .assert_refused(&["EACCES", "EPERM"]);
        }
        arena.close().await;
    }

    /// M4: a segment of shared memory that the host made is not reached, whatever its mode.
    async fn shared_memory_of_the_host(world: &World) {
        let id = act::bare(&["shmget"]).value.to_string();
        let before = segment(&id).unwrap();
        let arena = Arena::open(world, SECCOMP).await;
        assert!(arena.whole().enforcement().await.keeps(Protection::SharedMemory));
        let attach = Denial::of(SECCOMP, &["shmat", &id]).harm(|| segment(&id).unwrap() != before);
        arena.denies(&attach).await;
        arena.denies(&Denial::of(SECCOMP, &["shmrm", &id]).harm(|| segment(&id).is_none())).await;
        let id = act::bare(&["shmget"]).value.to_string();
        naively(&[world.write_root()], Scopes::All, &["shmat", &id]).assert_done();
        for act in [&["shmget"][..], &["msgget"]] {
            run(arena.whole(), act).await.assert_refused(&["EPERM"]);
        }
        let calls = [
            Calls::of(libc::SYS_semget, [0.into(), 1.into(), 0o600.into()]),
            Calls::of(libc::SYS_shmctl, [0.into(), 0.into(), 0.into()]),
        ];
        for calls in calls {
            run(arena.whole(), calls.arguments()).await.assert_refused(&["EPERM"]);
        }
        arena.close().await;
        // The twin: a session that accepts it, and says so, has its own and the host's.
        let session = open(session(world).accept(Protection::SharedMemory)).await;
        assert!(!session.enforcement().await.keeps(Protection::SharedMemory));
        let own = run(&session, &["shmget"]).await;
        own.assert_done();
        for id in [id, own.value.to_string()] {
            run(&session, &["shmat", &id]).await.assert_done();
            run(&session, &["shmrm", &id]).await.assert_done();
            assert!(segment(&id).is_none());
        }
        close(&session).await;
    }

    /// A POSIX queue of the host is neither opened nor removed, and none is made.
    async fn message_queues_of_the_host(world: &World) {
        let name = queue(world);
        let exists = || act::bare(open_queue(&name, libc::O_RDONLY).arguments()).ok;
        let make = || act::bare(open_queue(&name, libc::O_CREAT | libc::O_RDWR).arguments()).assert_done();
        make();
        let arena = Arena::open(world, SECCOMP).await;
        let unlink = Calls::of(libc::SYS_mq_unlink, [name.as_str().into()]);
        arena.denies(&Denial::of_calls(SECCOMP, &unlink).scene(make).harm(|| !exists())).await;
        make();
        naively(&[world.write_root()], Scopes::All, unlink.arguments()).assert_done();
        assert!(!exists());
        make();
        for flags in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
            run(arena.whole(), open_queue(&name, flags).arguments()).await.assert_refused(&["EPERM"]);
        }
        let new = format!("{name}-new");
        let made = || act::bare(Calls::of(libc::SYS_mq_unlink, [new.as_str().into()]).arguments()).ok;
        run(arena.whole(), open_queue(&new, libc::O_CREAT | libc::O_RDWR).arguments())
            .await
            .assert_refused(&["EPERM"]);
        assert!(!made(), "the queue stays behind although the call was refused");
        act::bare(unlink.arguments()).assert_done();
        arena.close().await;
    }

    /// A lease on a file that can only be read holds up whoever opens it for writing.
    async fn leases_on_files_outside(world: &World) {
        let file = world.outside_file();
        let arena = Arena::open(world, SECCOMP).await;
        let opened = Calls::of(libc::SYS_open, [(&file).into(), libc::O_RDONLY.into()]);
        for command in [libc::F_SETLEASE, 1040] {
            let lease =
                opened.clone().then(libc::SYS_fcntl, [Word::Result(0), command.into(), libc::F_RDLCK.into()]);
            if command == libc::F_SETLEASE {
                arena.denies(&Denial::of_calls(SECCOMP, &lease)).await;
            } else {
                run(arena.whole(), lease.arguments()).await.assert_refused(&["EPERM"]);
            }
        }
        // It is held for as long as the process lives: asleep, it would hold up the host.
        let held = opened
            .then(libc::SYS_fcntl, [Word::Result(0), libc::F_SETLEASE.into(), libc::F_RDLCK.into()])
            .then(libc::SYS_nanosleep, [Word::Words(vec![30, 0]), 0.into()]);
        for (session, is_held) in [(arena.whole(), false), (arena.without(Layer::Seccomp), true)] {
            let mut child =
                session.command(tool("act")).args(held.arguments().to_vec()).spawn().await.unwrap();
            let holds_up = || {
                let opened = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&file);
                opened.err().and_then(|error| error.raw_os_error()) == Some(libc::EWOULDBLOCK)
            };
            if is_held {
                assert!(bailiwick_test::wait_until(bailiwick_test::process::GENEROUS, holds_up));
            } else {
                child.wait().await.unwrap();
                assert!(!holds_up());
            }
            child.kill().await.unwrap();
        }
        arena.close().await;
    }

    /// Flags of a file outside, by requests on a descriptor that can only be read, and by path.
    async fn flags_of_files_outside(world: &World) {
        let file = world.outside_file();
        let arena = Arena::open(world, SECCOMP).await;
        let before = std::cell::RefCell::new(Snapshot::of(&file));
        let changed = || !before.borrow().differences().is_empty();
        let by_path =
            Calls::of(469, [libc::AT_FDCWD.into(), (&file).into(), Word::Zeros(24), 24.into(), 0.into()]);
        for act in [word(&file, ["fs-setflags", "@"]), word(&file, ["fsxattr", "@"])] {
            let denial =
                Denial::of(SECCOMP, &act).scene(|| drop(before.replace(Snapshot::of(&file)))).harm(changed);
            arena.denies(&denial).await;
            naively(&[world.write_root()], Scopes::All, &act).assert_done();
        }
        run(arena.whole(), by_path.arguments()).await.assert_refused(&["EPERM", "ENOSYS"]);
        if act::bare(by_path.arguments()).ok {
            arena.denies(&Denial::of_calls(SECCOMP, &by_path)).await;
        }
        // Inside the root as well, for a request has no path. The twin reads them.
        let ours = world.write_root().join("ours");
        fs::write(&ours, "").unwrap();
        run(arena.whole(), &word(&ours, ["fs-setflags", "@"])).await.assert_refused(&["EPERM"]);
        let read = Calls::of(libc::SYS_open, [(&ours).into(), 0.into()])
            .then(libc::SYS_ioctl, [Word::Result(0), 0x8008_6601_u32.into(), Word::Zeros(8)]);
        arena.permits(read.arguments()).await;
        arena.close().await;
    }

    /// A character put into the input of a terminal that was given to the command.
    async fn typing_into_a_terminal(world: &World) {
        let act = Calls::of(libc::SYS_ioctl, [0.into(), 0x540e.into(), 0.into()]) // TIOCSCTTY
            .then(libc::SYS_ioctl, [0.into(), 0x5412.into(), "#".into()]); // TIOCSTI
        let is_legacy =
            fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|value| value.trim() == "0");
        let arena = Arena::open(world, SECCOMP).await;
        for (session, happens) in [(arena.whole(), false), (arena.without(Layer::Seccomp), !is_legacy)] {
            let pty = Pty::new();
            let kept = pty.subordinate();
            let command = session
                .command(tool("act"))
                .args(act.arguments().to_vec())
                .stdin(Stdio::from(pty.subordinate()));
            let report = report(&command.output().await.unwrap());
            assert_eq!(report.ok, happens, "{report:?}");
            // The terminal echoes what it takes for typed.
            let echoed = bailiwick_test::wait_until(
                std::time::Duration::from_millis(if happens { 10_000 } else { 100 }),
                || pty.text().contains('#'),
            );
            assert_eq!(echoed, happens);
            drop(kept);
        }
        // The twin: its own terminal is controlled, as a shell does.
        let pty = Pty::new();
        let size = Calls::of(libc::SYS_ioctl, [0.into(), 0x540e.into(), 0.into()])
            .then(libc::SYS_ioctl, [0.into(), 0x5413.into(), Word::Zeros(8)]); // TIOCGWINSZ
        let command = arena
            .whole()
            .command(tool("act"))
            .args(size.arguments().to_vec())
            .stdin(Stdio::from(pty.subordinate()));
        report(&command.output().await.unwrap()).assert_done();
        arena.close().await;
    }

    /// Set-id bits, by every call that takes a mode. What lies on the disk afterwards has none.
    async fn set_id_modes(world: &World) {
        let root = world.write_root();
        let file = root.join("s");
        let unnamed = |mode: u32| {
            let opened = Calls::of(
                libc::SYS_openat,
                [libc::AT_FDCWD.into(), (&root).into(), (libc::O_TMPFILE | libc::O_RDWR).into(), mode.into()],
            );
            let [a, b, c, d, e] = [
                libc::AT_FDCWD.into(),
                "/proc/self/fd/{0}".into(),
                libc::AT_FDCWD.into(),
                (&file).into(),
                Word::from(libc::AT_SYMLINK_FOLLOW),
            ];
            opened.then(libc::SYS_linkat, [a, b, c, d, e])
        };
        let here = || Word::from(libc::AT_FDCWD);
        let path = || Word::from(&file);
        let create = libc::O_CREAT | libc::O_WRONLY;
        let opened = || Calls::of(libc::SYS_open, [path(), libc::O_RDONLY.into()]);
        // Name, whether the file is there before, and the calls.
        type Ways<'a> = Vec<(&'a str, bool, Box<dyn Fn(u32) -> Calls + 'a>)>;
        let ways: Ways<'_> = vec![
            ("chmod", true, Box::new(|mode| Calls::of(libc::SYS_chmod, [path(), mode.into()]))),
            (
                "fchmod",
                true,
                Box::new(|mode| opened().then(libc::SYS_fchmod, [Word::Result(0), mode.into()])),
            ),
            ("fchmodat", true, Box::new(|mode| Calls::of(libc::SYS_fchmodat, [here(), path(), mode.into()]))),
            ("fchmodat2", true, Box::new(|mode| Calls::of(452, [here(), path(), mode.into(), 0.into()]))),
            ("open", false, Box::new(|mode| Calls::of(libc::SYS_open, [path(), create.into(), mode.into()]))),
            ("creat", false, Box::new(|mode| Calls::of(libc::SYS_creat, [path(), mode.into()]))),
            (
                "openat",
                false,
                Box::new(|mode| Calls::of(libc::SYS_openat, [here(), path(), create.into(), mode.into()])),
            ),
            (
                "mknod",
                false,
                Box::new(|mode| Calls::of(libc::SYS_mknod, [path(), (0o100_000 | mode).into(), 0.into()])),
            ),
            (
                "mknodat",
                false,
                Box::new(|mode| {
                    Calls::of(libc::SYS_mknodat, [here(), path(), (0o100_000 | mode).into(), 0.into()])
                }),
            ),
            (
                "openat2",
                false,
                Box::new(|mode| {
                    let how = Word::Words(vec![create.into(), mode.into(), 0]);
                    Calls::of(libc::SYS_openat2, [here(), path(), how, 24.into()])
                }),
            ),
            ("mkdir", false, Box::new(|mode| Calls::of(libc::SYS_mkdir, [path(), mode.into()]))),
            ("mkdirat", false, Box::new(|mode| Calls::of(libc::SYS_mkdirat, [here(), path(), mode.into()]))),
            ("an unnamed file", false, Box::new(unnamed)),
        ];
        let bits = || fs::metadata(&file).map_or(0, |found| found.permissions().mode() & 0o6000);
        let whole = open(session(world)).await;
        let crippled =
            open(accepting_all(&Places::of(world), "seccomp")._worker_image(plain_image(Layer::Seccomp))).await;
        for (name, is_there, calls) in &ways {
            let clear = || {
                let _gone = fs::remove_file(&file).or_else(|_| fs::remove_dir(&file));
                if *is_there {
                    fs::write(&file, "").unwrap();
                }
            };
            for mode in [0o4755, 0o2755, 0o6755, 0o4000] {
                clear();
                if *name == "an unnamed file" {
                    // Refused where it is opened: there is nothing to link.
                    let flags = (libc::O_TMPFILE | libc::O_RDWR).into();
                    let opened = Calls::of(libc::SYS_openat, [here(), (&root).into(), flags, mode.into()]);
                    run(&whole, opened.arguments()).await.assert_refused(&["EPERM"]);
                } else {
                    run(&whole, calls(mode).arguments()).await.assert_refused(&["EPERM", "ENOSYS"]);
                }
                assert_eq!(bits(), 0, "{name} {mode:o}");
                clear();
                run(&crippled, calls(mode).arguments()).await.assert_done();
                // The kernel itself drops them from directories that are made.
                assert_eq!(bits() == 0, name.starts_with("mkdir"), "{name} {mode:o}");
            }
            // The twin: an ordinary mode, and the sticky bit.
            for mode in [0o755, 0o1755] {
                clear();
                let report = run(&whole, calls(mode).arguments()).await;
                if *name == "openat2" { report.assert_refused(&["ENOSYS"]) } else { report.assert_done() }
            }
        }
        naively(&[&root], Scopes::All, &word(&root.join("naive"), ["openat2-setid", "@"])).assert_done();
        close(&whole).await;
        close(&crippled).await;
    }
}

root_cases! {
    /// File capabilities, which an attribute would give: root's alone, and a capability's.
    async fn file_capabilities(world: &World) {
        let program = world.write_root().join("program");
        let arena = Arena::open(world, &[Layer::Capabilities]).await;
        fs::copy(tool("act"), &program).unwrap();
        // VFS_CAP_REVISION_2 with the effective bit, and CAP_CHOWN permitted.
        let value = Word::HalfWords(vec![0x0200_0001, 1, 0, 0, 0]);
        let set = Calls::of(
            libc::SYS_setxattr,
            [(&program).into(), "security.capability".into(), value, 20.into(), 0.into()],
        );
        let before = Snapshot::of(&program);
        arena
            .denies(&Denial::of_calls(&[Layer::Capabilities], &set).harm(|| !before.differences().is_empty()))
            .await;
        arena.close().await;
    }

    /// M3: a snapshot is planted outside through a descriptor that can only be read.
    async fn snapshots_outside_mount(world: &World) {
        requires!(Need::Btrfs, "plants a snapshot");
        let (image_file, mounted) = (world.path().join("btrfs"), world.path().join("B"));
        fs::create_dir(&mounted).unwrap();
        fs::File::create(&image_file).unwrap().set_len(256 << 20).unwrap();
        let ran = |program: &str, arguments: &[&Path]| {
            assert!(
                std::process::Command::new(program)
                    .args(arguments)
                    .stdout(std::process::Stdio::null())
                    .status()
                    .unwrap()
                    .success(),
                "{program}"
            );
        };
        ran("mkfs.btrfs", &[Path::new("-q"), &image_file]);
        ran("mount", &[Path::new("-o"), Path::new("loop"), &image_file, &mounted]);
        let unmount = Unmount(&mounted);
        assert!(fixture::is_mount_point(&mounted));
        let (root, outside) = (mounted.join("root"), mounted.join("outside"));
        fs::create_dir(&outside).unwrap();
        ran("btrfs", &[Path::new("-q"), Path::new("subvolume"), Path::new("create"), &root]);
        let planted = outside.join("planted");
        let snap = |name: &str| {
            [
                "btrfs-snap".to_owned(),
                root.to_str().unwrap().to_owned(),
                outside.to_str().unwrap().to_owned(),
                name.to_owned(),
            ]
        };
        let whole = open(session(world).write_root(&root)).await;
        run(&whole, &snap("planted")).await.assert_refused(&["EPERM"]);
        assert!(!planted.exists());
        run(&whole, &["create", root.join("f").to_str().unwrap()]).await.assert_done();
        close(&whole).await;
        let crippled = accepting_all(&Places::of(world), "seccomp")
            .write_root(&root)
            ._worker_image(plain_image(Layer::Seccomp));
        let crippled = open(crippled).await;
        run(&crippled, &snap("planted")).await.assert_done();
        assert!(planted.join("f").exists());
        close(&crippled).await;
        naively(&[&root], Scopes::All, &snap("naively")).assert_done();
        assert!(outside.join("naively/f").exists());
        drop(unmount);
    }
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
