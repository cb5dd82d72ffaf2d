//! Content and names outside the roots: every way to write, make, remove, rename, link or truncate,
//! against a directory in no root and against private storage, each with its twin inside the root.

#![cfg(test)]

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use bailiwick::Layer;
use bailiwick_test::act::{Scopes, naively};
use bailiwick_test::boundary::{Arena, Denial, run, session};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::places::{close, entries, open, sh};
use bailiwick_test::{Places, Snapshot, World, cases};

const HERE: i32 = libc::AT_FDCWD;
const LANDLOCK: &[Layer] = &[Layer::Landlock];
/// `EXDEV` is Landlock's answer to links and renames across the border.
const ANSWERS: &[&str] = &["EACCES", "EXDEV"];

/// What an act is tried on: a directory with one entry of each kind, and helpers in the root.
struct Scene {
    directory: PathBuf,
    root: PathBuf,
    before: RefCell<Vec<Snapshot>>,
}

impl Scene {
    fn new(parent: &Path, world: &World) -> Self {
        Scene { directory: parent.join("scene"), root: world.write_root(), before: RefCell::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn ours(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes everything anew and remembers what it looks like.
    fn set(&self) {
        for left in entries(&self.root) {
            let removed = if left.is_symlink() || !left.is_dir() {
                fs::remove_file(&left)
            } else {
                fs::remove_dir_all(&left)
            };
            removed.unwrap();
        }
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory).unwrap();
        }
        fs::create_dir(&self.directory).unwrap();
        fs::create_dir(self.at("empty")).unwrap();
        for (name, content) in [("f", "x"), ("g", "y")] {
            fs::write(self.at(name), content).unwrap();
        }
        symlink(self.at("f"), self.at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            self.at("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from(0o644),
            0,
        )
        .unwrap();
        fs::write(self.ours("own"), "own").unwrap();
        fs::create_dir(self.ours("dir")).unwrap();
        symlink(self.at("f"), self.ours("to-file")).unwrap();
        symlink(self.at("new"), self.ours("to-new")).unwrap();
        symlink(&self.directory, self.ours("to-dir")).unwrap();
        let names = ["f", "g", "link", "fifo", "empty", "new"].map(|name| self.at(name));
        let all = names.iter().map(PathBuf::as_path).chain([self.directory.as_path()]);
        self.before.replace(all.map(Snapshot::of).collect());
    }

    fn changed(&self) -> bool {
        self.before.borrow().iter().any(|before| !before.differences().is_empty())
    }
}

/// An act on the scene, and whether the scene shows that it happened.
type Row = (&'static str, fn(&Scene) -> Vec<OsString>, bool);

fn act<const N: usize>(words: [&dyn AsRef<std::ffi::OsStr>; N]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

fn calls(calls: Calls) -> Vec<OsString> {
    calls.arguments().to_vec()
}

fn open_with(path: &PathBuf, flags: i32) -> Calls {
    Calls::of(libc::SYS_open, [path.into(), flags.into(), 0o644.into()])
}

const ROWS: &[Row] = &[
    ("open for writing", |s| act([&"open-write", &s.at("f")]), true),
    ("open for appending", |s| act([&"open-append", &s.at("f")]), true),
    ("open to truncate", |s| calls(open_with(&s.at("f"), libc::O_WRONLY | libc::O_TRUNC)), true),
    ("open read-only to truncate", |s| calls(open_with(&s.at("f"), libc::O_RDONLY | libc::O_TRUNC)), true),
    ("truncate by path", |s| act([&"truncate", &s.at("f")]), true),
    ("creat", |s| calls(Calls::of(libc::SYS_creat, [(&s.at("f")).into(), 0o644.into()])), true),
    ("create", |s| act([&"create", &s.at("new")]), true),
    ("create or open", |s| calls(open_with(&s.at("new"), libc::O_WRONLY | libc::O_CREAT)), true),
    ("create read-only", |s| calls(open_with(&s.at("new"), libc::O_RDONLY | libc::O_CREAT)), true),
    ("unnamed file", |s| calls(open_with(&s.directory, libc::O_TMPFILE | libc::O_RDWR)), false),
    (
        "unnamed file of the root, linked out",
        |s| {
            let linked = [HERE.into(), "/proc/self/fd/{0}".into(), HERE.into(), (&s.at("new")).into()];
            let [a, b, c, d] = linked;
            let flags = libc::O_TMPFILE | libc::O_RDWR;
            calls(
                open_with(&s.root, flags)
                    .then(libc::SYS_linkat, [a, b, c, d, libc::AT_SYMLINK_FOLLOW.into()]),
            )
        },
        true,
    ),
    ("make a directory", |s| act([&"mkdir", &s.at("new")]), true),
    ("remove a directory", |s| act([&"rmdir", &s.at("empty")]), true),
    ("remove a file", |s| act([&"unlink", &s.at("f")]), true),
    (
        "remove a directory with unlinkat",
        |s| {
            let flags = libc::AT_REMOVEDIR.into();
            calls(Calls::of(libc::SYS_unlinkat, [HERE.into(), (&s.at("empty")).into(), flags]))
        },
        true,
    ),
    ("make a link", |s| act([&"symlink", &"anywhere", &s.at("new")]), true),
    ("make a FIFO", |s| act([&"mkfifo", &s.at("new")]), true),
    (
        "make a file with mknod",
        |s| calls(Calls::of(libc::SYS_mknod, [(&s.at("new")).into(), 0o100_644.into(), 0.into()])),
        true,
    ),
    (
        "make a socket with mknod",
        |s| calls(Calls::of(libc::SYS_mknod, [(&s.at("new")).into(), 0o140_644.into(), 0.into()])),
        true,
    ),
    ("bind a socket", |s| act([&"unix-listen", &s.at("new")]), true),
    ("rename within", |s| act([&"rename", &s.at("f"), &s.at("new")]), true),
    ("rename over another", |s| act([&"rename", &s.at("f"), &s.at("g")]), true),
    ("rename into the root", |s| act([&"rename", &s.at("f"), &s.ours("new")]), true),
    ("rename a file out of the root", |s| act([&"rename", &s.ours("own"), &s.at("new")]), true),
    ("rename a file of the root over one", |s| act([&"rename", &s.ours("own"), &s.at("f")]), true),
    ("rename a directory out of the root", |s| act([&"rename", &s.ours("dir"), &s.at("new")]), true),
    ("rename a directory into the root", |s| act([&"rename", &s.at("empty"), &s.ours("new")]), true),
    ("exchange within", |s| act([&"rename-exchange", &s.at("f"), &s.at("g")]), true),
    ("exchange with the root", |s| act([&"rename-exchange", &s.at("f"), &s.ours("own")]), true),
    ("exchange from the root", |s| act([&"rename-exchange", &s.ours("own"), &s.at("f")]), true),
    ("exchange directories", |s| act([&"rename-exchange", &s.ours("dir"), &s.at("empty")]), true),
    ("link within", |s| act([&"link", &s.at("f"), &s.at("new")]), true),
    ("link a file of the root out", |s| act([&"link", &s.ours("own"), &s.at("new")]), true),
    ("link into the root", |s| act([&"link", &s.at("f"), &s.ours("new")]), true),
    (
        "link a descriptor into the root",
        |s| {
            let linked = [HERE.into(), "/proc/self/fd/{0}".into(), HERE.into(), (&s.ours("new")).into()];
            let [a, b, c, d] = linked;
            let opened = open_with(&s.at("f"), libc::O_RDONLY);
            calls(opened.then(libc::SYS_linkat, [a, b, c, d, libc::AT_SYMLINK_FOLLOW.into()]))
        },
        true,
    ),
    ("write through a link of the root", |s| act([&"open-append", &s.ours("to-file")]), true),
    ("truncate through a link of the root", |s| act([&"truncate", &s.ours("to-file")]), true),
    (
        "create through a dangling link of the root",
        |s| calls(open_with(&s.ours("to-new"), libc::O_WRONLY | libc::O_CREAT)),
        true,
    ),
    ("write through a link to the directory", |s| act([&"open-append", &s.ours("to-dir/f")]), true),
    ("create through a link to the directory", |s| act([&"create", &s.ours("to-dir/new")]), true),
    ("remove through a link to the directory", |s| act([&"unlink", &s.ours("to-dir/f")]), true),
    (
        "write by way of the root's parent",
        |s| {
            let around = s.root.join("..").join(s.directory.strip_prefix(s.root.parent().unwrap()).unwrap());
            act([&"open-append", &around.join("f")])
        },
        true,
    ),
    (
        "write by way of /proc/self/root",
        |s| act([&"open-append", &Path::new("/proc/self/root").join(s.at("f").strip_prefix("/").unwrap())]),
        true,
    ),
    (
        "open a read-only descriptor again",
        |s| {
            let again = Word::from("/proc/self/fd/{0}");
            calls(open_with(&s.at("f"), libc::O_RDONLY).then(libc::SYS_open, [again, libc::O_WRONLY.into()]))
        },
        false,
    ),
    (
        "open a bare descriptor again",
        |s| {
            let again = Word::from("/proc/self/fd/{0}");
            calls(open_with(&s.at("f"), libc::O_PATH).then(libc::SYS_open, [again, libc::O_RDWR.into()]))
        },
        false,
    ),
    (
        "open beneath a descriptor of the directory",
        |s| {
            let opened = open_with(&s.directory, libc::O_RDONLY | libc::O_DIRECTORY);
            calls(opened.then(libc::SYS_openat, [Word::Result(0), "f".into(), libc::O_WRONLY.into()]))
        },
        false,
    ),
    (
        "create beneath a descriptor of the directory",
        |s| {
            let opened = open_with(&s.directory, libc::O_PATH | libc::O_DIRECTORY);
            let how = (libc::O_WRONLY | libc::O_CREAT).into();
            calls(opened.then(libc::SYS_openat, [Word::Result(0), "new".into(), how, 0o644.into()]))
        },
        true,
    ),
    (
        "create in the working directory",
        |s| {
            let entered = Calls::of(libc::SYS_chdir, [(&s.directory).into()]);
            calls(
                entered.then(
                    libc::SYS_open,
                    ["new".into(), (libc::O_WRONLY | libc::O_CREAT).into(), 0o644.into()],
                ),
            )
        },
        true,
    ),
    ("open a FIFO for writing", |s| calls(open_with(&s.at("fifo"), libc::O_RDWR)), false),
];

async fn try_all(world: &World, parent: &Path) {
    let scene = Scene::new(parent, world);
    scene.set(); // the session takes its root as it is
    let arena = Arena::open(world, LANDLOCK).await;
    for (name, row, shows) in ROWS {
        println!("{name}");
        scene.set();
        let mut denial = Denial::of(LANDLOCK, &row(&scene)).answers(ANSWERS).scene(|| scene.set());
        if *shows {
            denial = denial.harm(|| scene.changed());
        }
        arena.denies(&denial).await;
        // Refused, and not even the helpers in the root changed hands.
        scene.set();
        run(arena.whole(), &row(&scene)).await.assert_refused(ANSWERS);
        assert!(!scene.changed(), "{name}");
        assert_eq!(fs::read_to_string(scene.ours("own")).unwrap(), "own", "{name}");
        assert_eq!(fs::metadata(scene.at("f")).unwrap().nlink(), 1, "{name}");
    }
    arena.close().await;
}

cases! {
    /// A directory that lies in no root.
    async fn outside_every_root(world: &World) {
        try_all(world, &world.outside()).await;
        assert_eq!(fs::read_to_string(world.outside_file()).unwrap(), "x");
    }

    /// Private storage.
    async fn private_storage(world: &World) {
        try_all(world, &world.private()).await;
        assert_eq!(fs::read_to_string(world.secret()).unwrap(), "s");
    }

    /// The twins: the same acts on the same scene, which lies in the root.
    async fn inside_the_root(world: &World) {
        let scene = Scene::new(&world.write_root(), world);
        scene.set();
        let session = open(session(world)).await;
        for (name, row, shows) in ROWS {
            println!("{name}");
            scene.set();
            run(&session, &row(&scene)).await.assert_done();
            assert_eq!(scene.changed(), *shows, "{name}");
        }
        close(&session).await;
    }

    /// The naive wrapper has no hole here: these rows prove Landlock and nothing else.
    fn naively_refused(world: &World) {
        let scene = Scene::new(&world.outside(), world);
        for (name, row, _) in ROWS {
            println!("{name}");
            scene.set();
            naively(&[world.write_root()], Scopes::None, &row(&scene)).assert_refused(ANSWERS);
            assert!(!scene.changed(), "{name}");
        }
    }

    /// The session's own files in the store: nothing of them changes, and the session goes on.
    async fn the_store_of_the_session_itself(world: &World) {
        let session = open(session(world)).await;
        let store = world.private();
        let own: Vec<PathBuf> = entries(&store).into_iter().chain(entries(&store.join("run"))).collect();
        assert!(own.contains(&store.join("run/sentinel")), "{own:?}");
        let before: Vec<Snapshot> = own.iter().chain([&store]).map(Snapshot::of).collect();
        for path in &own {
            let path = path.to_str().unwrap();
            let moved = format!("{path}.moved");
            for act in [
                vec!["open-append", path],
                vec!["truncate", path],
                vec!["unlink", path],
                vec!["rmdir", path],
                vec!["rename", path, &moved],
                vec!["create", &moved],
            ] {
                let report = run(&session, &act).await;
                assert!(!report.ok, "{report:?}");
            }
        }
        before.iter().for_each(Snapshot::assert_unchanged);
        run(&session, &["create", world.write_root().join("new").to_str().unwrap()]).await.assert_done();
        close(&session).await;
    }

    /// The root itself cannot be removed, moved away or put elsewhere: its name lies outside.
    async fn the_name_of_the_root(world: &World) {
        let root = world.write_root();
        let beside = world.path().join("beside");
        let arena = Arena::open(world, LANDLOCK).await;
        let set = || {
            if beside.exists() {
                fs::rename(&beside, &root).unwrap();
            }
            if !root.exists() {
                fs::create_dir(&root).unwrap();
            }
        };
        let there = || !root.exists() || beside.exists();
        let (from, to) = (root.to_str().unwrap(), beside.to_str().unwrap());
        for act in [&["rename", from, to][..], &["rmdir", from]] {
            run(arena.whole(), act).await.assert_refused(ANSWERS);
            assert!(!there());
            run(arena.without(Layer::Landlock), act).await.assert_done();
            assert!(there());
            set();
        }
        // The twin: a directory in the root.
        fs::create_dir(root.join("d")).unwrap();
        let inner = root.join("d");
        arena.close().await;
        let session = open(session(world)).await;
        run(&session, &["rename", inner.to_str().unwrap(), root.join("e").to_str().unwrap()])
            .await
            .assert_done();
        run(&session, &["rmdir", root.join("e").to_str().unwrap()]).await.assert_done();
        close(&session).await;
    }

    /// C26: a working directory outside permits nothing, however it is spelled; the roots stay as they are.
    async fn c26_the_working_directory_widens_nothing(world: &World) {
        let (root, outside) = (world.write_root(), world.outside());
        let held = fs::File::open(&outside).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&held);
        rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty()).unwrap(); // inherited by whoever lets it
        symlink(&outside, root.join("link")).unwrap();
        let session = open(session(world)).await;
        let without = open(
            bailiwick_test::boundary::accepting_all(&Places::of(world), "landlock")
                ._worker_image(bailiwick_test::plain_image(Layer::Landlock)),
        )
        .await;
        let before = Snapshot::of(&outside);
        let spellings = [
            outside.clone(),
            root.join("../X"),
            format!("/proc/self/fd/{number}").into(),
            root.join("link"),
            world.private(),
        ];
        for directory in &spellings {
            let tried = session
                .command("/bin/sh")
                .args(["-c", "echo x > here"])
                .current_dir(directory)
                .output()
                .await;
            match tried {
                Ok(output) => {
                    assert!(!output.status.success(), "{}", directory.display());
                    assert!(output.stderr.text().contains("Permission denied"), "{}", output.stderr.text());
                    assert_eq!(output.write_roots, std::slice::from_ref(&root));
                }
                // A link of the kernel stands for another directory in every process.
                Err(error) => assert_eq!(error.code(), "ERR_BAILIWICK_CWD_INVALID", "{}", error.report()),
            }
            before.assert_unchanged();
            assert!(!world.private().join("here").exists());
            assert_eq!(session.write_roots().await, std::slice::from_ref(&root));
        }
        // The twins: the root as working directory; and the same directory once nobody refuses.
        assert!(sh(&session, "echo x > here").await.status.success());
        assert!(root.join("here").is_file());
        let wrote =
            without.command("/bin/sh").args(["-c", "echo x > here"]).current_dir(&outside).output().await;
        assert!(wrote.unwrap().status.success() && outside.join("here").is_file());
        close(&session).await;
        close(&without).await;
    }

    /// Not even what a command may execute or read is a way to write: files of the kernel and of its own.
    async fn files_of_the_kernel(world: &World) {
        let session = open(session(world)).await;
        for path in [
            "/proc/self/mem",
            "/proc/self/comm",
            "/proc/self/oom_score_adj",
            "/proc/self/coredump_filter",
            "/proc/sys/kernel/core_pattern",
            "/proc/sysrq-trigger",
            "/sys/power/state",
            "/dev/kmsg",
            "/dev/mem",
            "/dev/shm",
            "/etc/passwd",
            "/tmp",
        ] {
            if !Path::new(path).exists() {
                continue;
            }
            let flags =
                if Path::new(path).is_dir() { libc::O_TMPFILE | libc::O_RDWR } else { libc::O_WRONLY };
            let report = run(
                &session,
                Calls::of(libc::SYS_open, [path.into(), flags.into(), 0o600.into()]).arguments(),
            )
            .await;
            report.assert_refused(&["EACCES", "EPERM"]);
        }
        // The twins: what every command may write.
        for path in ["/dev/null", "/dev/zero", "/dev/full"] {
            run(&session, Calls::of(libc::SYS_open, [path.into(), libc::O_WRONLY.into()]).arguments())
                .await
                .assert_done();
        }
        let temporary = session.temporary_dir().join("f");
        run(&session, &["create", temporary.to_str().unwrap()]).await.assert_done();
        close(&session).await;
        assert!(!temporary.exists());
    }
}
