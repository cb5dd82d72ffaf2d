//! Links, and files that somebody else put in the way: C16, C18, C19, C20, C39, C60, C62 in real sessions.

#![cfg(test)]

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use bailiwick::{Error, ErrorKind, Field, Session};
use bailiwick_test::act::{Scopes, naively};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Need, Places, Snapshot, case, cases, fixture, process, requires};
use rustix::fs::inotify;

fn text<'a>(error: &'a Error, field: &str) -> &'a str {
    error.field(field).and_then(Field::as_text).unwrap_or_else(|| panic!("no text `{field}`: {error:?}"))
}

fn path<'a>(error: &'a Error, field: &str) -> &'a Path {
    error.field(field).and_then(Field::as_path).unwrap_or_else(|| panic!("no path `{field}`: {error:?}"))
}

fn directory(path: PathBuf) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    path
}

fn program(at: &Path, script: &str) {
    fs::write(at, script).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What tells whether a directory was read: the kernel's own notice of it, for each directory that is watched and
/// for everything directly in it.
struct Reads(rustix::fd::OwnedFd);

impl Reads {
    fn of<'a>(watched: impl IntoIterator<Item = &'a Path>) -> Self {
        let queue = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        for dir in watched {
            inotify::add_watch(&queue, dir, inotify::WatchFlags::ACCESS | inotify::WatchFlags::OPEN).unwrap();
        }
        Self(queue)
    }

    /// How many directories have been opened or read since the last call.
    fn count(&self) -> usize {
        let mut room = [std::mem::MaybeUninit::uninit(); 1 << 16];
        let mut reader = inotify::Reader::new(self.0.as_fd(), &mut room);
        let mut seen = 0;
        while let Ok(event) = reader.next() {
            let flags = event.events();
            assert!(!flags.contains(inotify::ReadFlags::QUEUE_OVERFLOW) || seen > 0);
            seen += usize::from(flags.contains(inotify::ReadFlags::ISDIR));
        }
        seen
    }
}

async fn runs(session: &Session) {
    done(&session.command("/bin/true").output().await.unwrap());
}

cases! {
    /// C16: two files of the store have names in the root before a session opens, one of them deep; and no command can
    /// make one.
    async fn c16_hard_links(world: &World) {
        requires!(Need::Landlock);
        let places = Places::of(world);
        let deep = directory(places.join("W/deep/er"));
        let receipts = places.private().join("receipts.db");
        fs::write(&receipts, "r").unwrap();
        let names = [(places.secret(), places.join("W/a")), (receipts, deep.join("b"))];
        for (file, name) in &names {
            fs::hard_link(file, name).unwrap();
            fixture::assert_hard_links(file, name);
            let before = fs::read(file).unwrap();
            naively(&[places.write_root()], Scopes::None, &["open-append", name.to_str().unwrap()]).assert_done();
            assert_ne!(fs::read(file).unwrap(), before);
            fs::write(file, before).unwrap();
        }
        let verdict = places.session().explain().unwrap();
        let told: Vec<_> = verdict.roots[0].refusals.iter().map(|error| (path(error, "other_name"), path(error, "file"))).collect();
        assert_eq!(told.len(), 2, "{verdict:?}");
        for (file, name) in &names {
            assert!(told.contains(&(name, file)), "{told:?}");
        }
        let error = refused(places.session().open().await, ErrorKind::RootOverlap);
        assert_eq!((text(&error, "relation"), text(&error, "alias")), ("alias", "hard-link"));
        // One of two is not enough; both are.
        fs::remove_file(&names[0].1).unwrap();
        refused(places.session().open().await, ErrorKind::RootOverlap);
        fs::remove_file(&names[1].1).unwrap();
        let session = places.open().await;
        let links = fs::metadata(places.secret()).unwrap().nlink();
        assert!(!sh(&session, &format!("ln {} own", places.secret().display())).await.status.success());
        done(&sh(&session, "echo x > one && ln one two && ln -s one three").await);
        assert_eq!(fs::metadata(places.secret()).unwrap().nlink(), links);
        runs(&session).await;
        close(&session).await;
    }

    /// C18: what confines commands is no file of this host: it runs from sealed memory, so no name of it can be in a
    /// root and no write changes it.
    async fn c18_the_worker_is_no_file(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let machinery = places.machinery();
        assert!(machinery.len() >= 2, "{machinery:?}");
        for process in &machinery {
            let exe = format!("/proc/{}/exe", process.pid);
            // Who may not look (the launchers are not dumpable) cannot write either.
            let Ok(name) = fs::read_link(&exe) else { continue };
            assert!(name.to_str().unwrap().starts_with("/memfd:"), "{}", name.display());
            let image = fs::File::open(&exe).unwrap();
            assert_eq!(image.metadata().unwrap().nlink(), 0);
            let seals = rustix::fs::fcntl_get_seals(&image).unwrap();
            use rustix::fs::SealFlags;
            assert!(seals.contains(SealFlags::SEAL | SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK), "{seals:?}");
        }
        // A plain user may look at none of them.
        let looked_at = machinery.iter().filter(|process| fs::read_link(format!("/proc/{}/exe", process.pid)).is_ok());
        assert!(!case::is_root() || looked_at.count() >= 2);
        // Nor does any command write to what it can name.
        let evil = "for exe in /proc/[0-9]*/exe; do printf x >> $exe; done 2>/dev/null; true";
        let before = Snapshot::of("/proc/self/exe");
        done(&sh(&session, evil).await);
        before.assert_unchanged();
        runs(&session).await;
        close(&session).await;
    }

    /// C19: programs that bear the names of our helpers stand first on the search path, in a directory that commands
    /// can write: none of them runs.
    fn c19_helpers_on_the_path(world: &World) {
        let places = Places::of(world);
        let bin = directory(places.join("W/bin"));
        let marker = places.join("W/ran");
        let names = ["bailiwick", "bailiwick-worker", "bailiwick-run", "worker", "keeper", "sh", "mount", "newuidmap", "newgidmap", "nsenter", "unshare"];
        for name in names {
            program(&bin.join(name), &format!("#!/bin/sh\necho {name} >> {}\n", marker.display()));
        }
        let search = format!("{}:/usr/bin:/bin", bin.display());
        let mut command = Host::command(&places, "host", "opens");
        command.env("PATH", &search).current_dir(&bin);
        let host = Host::start(&places, command);
        host.finish();
        assert!(!marker.exists(), "{}", fs::read_to_string(&marker).unwrap());
        places.assert_nothing_left();
        // The twin: who asks for one by name gets it.
        assert!(Command::new("env").arg("bailiwick-worker").env("PATH", &search).status().unwrap().success());
        assert_eq!(fs::read_to_string(&marker).unwrap(), "bailiwick-worker\n");
    }

    /// C20: a database named by a link is protected where it lies, with the files beside it, present or not.
    async fn c20_databases(world: &World) {
        let places = Places::of(world);
        let data = directory(places.join("S"));
        fs::write(data.join("r.db"), "d").unwrap();
        symlink(data.join("r.db"), places.outside().join("r.db")).unwrap();
        let builder = || places.bare_session().protect_database(places.outside().join("r.db"));
        for root in [&data, &places.outside()] {
            let error = refused(builder().write_root(root).open().await, ErrorKind::RootOverlap);
            assert_eq!(text(&error, "protected_kind"), "database");
        }
        let session = open(builder().write_root(places.write_root())).await;
        runs(&session).await;
        // A side file that comes while the session is open, and gets a name in the root.
        fs::write(data.join("r.db-wal"), "w").unwrap();
        runs(&session).await;
        let name = places.join("W/wal");
        fs::hard_link(data.join("r.db-wal"), &name).unwrap();
        let error = refused(session.command("/bin/true").output().await, ErrorKind::RootOverlap);
        assert_eq!((path(&error, "other_name"), path(&error, "file")), (&*name, &*data.join("r.db-wal")));
        fs::remove_file(&name).unwrap();
        runs(&session).await;
        close(&session).await;
        // What stands at a side file's name and is no file of its own stops the next session.
        symlink(places.outside_file(), data.join("r.db-journal")).unwrap();
        refused(builder().write_root(places.write_root()).open().await, ErrorKind::ProtectedInvalid);
        fs::remove_file(data.join("r.db-journal")).unwrap();
        close(&open(builder().write_root(places.write_root())).await).await;
    }

    /// C39: what a command writes into a pointer file never becomes a root.
    async fn c39_pointer_file(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let secret = Snapshot::of(places.private());
        for target in [places.private(), places.outside()] {
            let outside = Snapshot::of(places.outside());
            done(&sh(&session, &format!("rm -rf .git; echo 'gitdir: {}' > .git", target.display())).await);
            let error_or_done = sh(&session, &format!("echo x > {}/db", target.display())).await;
            assert!(!error_or_done.status.success());
            assert_eq!(error_or_done.write_roots, [places.write_root()]);
            session.replace_write_roots([places.write_root()]).await.unwrap();
            assert_eq!(session.write_roots().await, [places.write_root()]);
            assert!(!sh(&session, &format!("echo x > {}/db", target.display())).await.status.success());
            outside.assert_unchanged();
        }
        secret.assert_unchanged();
        // The twin: whoever wants that directory writable says so.
        session.replace_write_roots([places.write_root(), places.outside()]).await.unwrap();
        done(&sh(&session, &format!("echo x > {}/db", places.outside().display())).await);
        refused(session.replace_write_roots([places.private()]).await, ErrorKind::RootOverlap);
        close(&session).await;
    }

    /// C62: links in the root, out of it, to the store, dangling, in a circle and in a long chain, stop nothing and
    /// open nothing.
    async fn c62_links_in_the_root(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        for (target, name) in [
            (places.outside(), ".git"),
            ("nowhere".into(), "a"),
            (".".into(), "b"),
            (places.private(), "c"),
            (places.secret(), "d"),
            ("e".into(), "e"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        symlink("link59", root.join("link60")).unwrap();
        for n in 1..60 {
            symlink(format!("link{}", n - 1), root.join(format!("link{n}"))).unwrap();
        }
        fs::write(root.join("link0"), "end").unwrap();
        let before = [Snapshot::of(places.outside_file()), Snapshot::of(places.secret())];
        let session = places.open().await;
        runs(&session).await;
        for name in [".git/f", ".git/new", "c/db", "c/new", "d", "b/c/db"] {
            assert!(!sh(&session, &format!("echo x >> {name}")).await.status.success(), "{name}");
        }
        done(&sh(&session, "echo x > b/b/own && echo x > a && cat own nowhere").await);
        before.iter().for_each(Snapshot::assert_unchanged);
        assert!(!places.outside().join("new").exists());
        session.replace_write_roots([&root]).await.unwrap();
        runs(&session).await;
        close(&session).await;
        // As roots, links are what they lead to.
        refused(places.bare_session().write_root(root.join("c")).open().await, ErrorKind::RootOverlap);
        close(&open(places.bare_session().write_root(root.join("b"))).await).await;
    }

    /// C60: 30,000 directories and links in circles below the root: none of them is read by opening or by 20 commands.
    fn c60_large_tree_mount(world: &World) {
        let places = Places::of(world);
        Host::start(&places, Host::with_own_mounts(&places, "host", "large")).finish();
    }
}

/// On a file system in memory, where so many directories are made in no time.
fn large(places: &Places) {
    const ABOVE: usize = 200;
    const BELOW: usize = 150;
    let memory = directory(places.join("m"));
    rustix::mount::mount("tmpfs", &memory, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let places = Places::make_at(memory);
    let root = places.write_root();
    symlink(".", root.join("self")).unwrap();
    let above: Vec<PathBuf> = (0..ABOVE).map(|n| directory(root.join(n.to_string()))).collect();
    for dir in &above {
        for n in 0..BELOW {
            fs::create_dir(dir.join(n.to_string())).unwrap();
        }
        symlink("..", dir.join("up")).unwrap();
    }
    // A watch tells of a directory and of those directly in it.
    let reads = Reads::of(above.iter().map(PathBuf::as_path).chain([&*root]));
    assert_eq!(fs::read_dir(above[7].join("3")).unwrap().count(), 0);
    assert!(reads.count() > 0, "the kernel does not tell when a directory is read");
    host::block_on(commands_in_a_large_tree(&places, &reads));
    places.assert_nothing_left();
}

async fn commands_in_a_large_tree(places: &Places, reads: &Reads) {
    let run = async |session: &Session| {
        for _ in 0..20 {
            done(&session.command("/bin/true").current_dir("/").output().await.unwrap());
        }
    };
    let session = places.open().await;
    run(&session).await;
    session.replace_write_roots([places.write_root()]).await.unwrap();
    run(&session).await;
    close(&session).await;
    assert_eq!(reads.count(), 0);

    // The twin: one file of the store has a second name somewhere, so a grant searches the tree, and commands do not.
    fs::hard_link(places.secret(), places.outside().join("second")).unwrap();
    let session = places.open().await;
    assert!(reads.count() > 0);
    // A link that is this new is looked for again by the next command; soon it is not.
    let deadline = Instant::now() + process::GENEROUS;
    while {
        done(&session.command("/bin/true").current_dir("/").output().await.unwrap());
        reads.count() > 0
    } {
        assert!(Instant::now() < deadline, "every command searches the tree");
    }
    run(&session).await;
    assert_eq!(reads.count(), 0);
    close(&session).await;
}

fn opens(places: &Places) {
    assert!(std::env::var("PATH").unwrap().starts_with(places.write_root().to_str().unwrap()));
    host::block_on(async {
        let session = places.session().close_deadline(process::GENEROUS).open().await.unwrap();
        done(&session.command("/bin/true").current_dir("/").output().await.unwrap());
        session.replace_write_roots([places.outside()]).await.unwrap();
        done(&session.command("/bin/true").current_dir("/").output().await.unwrap());
        close(&session).await;
        say(places, "done", true);
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("opens", opens), ("large", large)]);
}
