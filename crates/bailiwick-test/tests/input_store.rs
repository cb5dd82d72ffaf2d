//! Stores that cannot be one, and stores that another session holds.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use bailiwick::{Error, ErrorKind, Field, Protection, Session, SessionBuilder};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Listing, Places, cases, fixture, root_cases, user_cases};

fn on(places: &Places, store: &Path) -> SessionBuilder {
    Session::builder(store)
        .write_root(places.write_root())
        .temporary_parent(places.temporary())
        .accept(Protection::Metadata)
        .accept(Protection::NamedSockets)
}

async fn refuse(places: &Places, store: &Path, kind: ErrorKind) -> Error {
    let before = Listing::of(places.path());
    let error = refused(on(places, store).open().await, kind);
    before.assert_unchanged();
    places.assert_nothing_left();
    error
}

async fn works(places: &Places, store: &Path) {
    let session = open(on(places, store)).await;
    done(&sh(&session, "echo x > x").await);
    // Nothing in the store is open to others, while the session runs and after it.
    for _ in 0..2 {
        for entry in bailiwick_test::places::entries(session.store()) {
            let mode = fs::symlink_metadata(&entry).unwrap().mode();
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", entry.display());
        }
        close(&session).await;
    }
}

fn directory(path: PathBuf, mode: u32) -> PathBuf {
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

cases! {
    /// A store must be an absolute path of a directory that only this user can enter.
    async fn stores_that_are_none(world: &World) {
        let places = Places::of(world);
        for bad in ["", "store", "./store", "~/store", "$HOME/store", "/tmp/a\0b", "/proc/self/cwd/store"] {
            let error = refuse(&places, Path::new(bad), ErrorKind::StoreInvalid).await;
            assert_eq!(error.field("store").and_then(Field::as_path), Some(Path::new(bad)));
        }
        let fifo = places.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        fixture::assert_fifo(&fifo);
        for bad in [places.outside_file(), fifo, "/dev/null".into()] {
            let error = refuse(&places, &bad, ErrorKind::StoreInvalid).await;
            assert_eq!(error.field("store").and_then(Field::as_path), Some(bad.as_path()));
        }
        for bad in [places.join("nope/store"), places.outside_file().join("store")] {
            let error = refuse(&places, &bad, ErrorKind::StoreNotAccessible).await;
            assert_eq!(error.field("store").and_then(Field::as_path), Some(bad.as_path()));
        }
        directory(places.join("nope"), 0o755);
        works(&places, &places.join("nope/store")).await;
    }

    /// C85: a store that others may enter is refused, not tightened in silence: they may have been there.
    async fn c85_loose_store(world: &World) {
        let places = Places::of(world);
        let loose = directory(places.join("loose"), 0o777);
        for mode in [0o777, 0o770, 0o701, 0o1777] {
            fs::set_permissions(&loose, fs::Permissions::from_mode(mode)).unwrap();
            let error = refuse(&places, &loose, ErrorKind::StoreInvalid).await;
            assert_eq!(error.field("mode").and_then(Field::as_text), Some(&*format!("{mode:04o}")));
            assert!(error.hints()[0].contains("chmod 700"), "{}", error.report());
        }
        fs::set_permissions(&loose, fs::Permissions::from_mode(0o700)).unwrap();
        works(&places, &loose).await;
    }

    /// A store by way of a link is the directory that the link leads to; a link to nothing is refused, and
    /// nothing is made behind it.
    async fn store_behind_a_link(world: &World) {
        let places = Places::of(world);
        let real = directory(places.join("real"), 0o700);
        symlink(&real, places.join("link")).unwrap();
        works(&places, &places.join("link")).await;
        assert!(real.join("lock").exists());
        symlink(places.join("absent"), places.join("dangling")).unwrap();
        let error = refuse(&places, &places.join("dangling"), ErrorKind::StoreNotAccessible).await;
        assert_eq!(error.field("store").and_then(Field::as_path), Some(&*places.join("dangling")));
        assert!(!places.join("absent").exists());
        // The root around the target is refused whichever spelling the store has.
        let around = on(&places, &places.join("link")).write_root(&real);
        refused(around.open().await, ErrorKind::RootOverlap);
    }

    /// C20, C42: something planted where a file of the store belongs.
    async fn planted_in_the_store(world: &World) {
        let places = Places::of(world);
        let store = directory(places.join("store"), 0o700);
        let lock = store.join("lock");
        symlink(places.outside_file(), &lock).unwrap();
        refuse(&places, &store, ErrorKind::StoreInvalid).await;
        fs::remove_file(&lock).unwrap();
        fs::hard_link(places.outside_file(), &lock).unwrap();
        refuse(&places, &store, ErrorKind::StoreInvalid).await;
        assert_eq!(fs::read(places.outside_file()).unwrap(), b"x");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        refuse(&places, &store, ErrorKind::StoreInvalid).await;
        fs::remove_dir(&lock).unwrap();
        symlink(places.outside(), store.join("run")).unwrap();
        let error = refused(on(&places, &store).open().await, ErrorKind::StoreInvalid);
        assert!(error.to_string().contains("run"), "{error}");
        assert!(!places.outside().join("sentinel").exists());
        fs::remove_file(store.join("run")).unwrap();
        works(&places, &store).await;
    }

    /// C84, in one process: one session holds the store at a time.
    async fn c84_two_sessions_of_one_process(world: &World) {
        let places = Places::of(world);
        let store = places.join("store");
        let first = open(on(&places, &store)).await;
        let error = refused(on(&places, &store).open().await, ErrorKind::StoreLocked);
        assert!(error.can_retry());
        let holder = error.field("holder_pid").and_then(Field::as_number);
        assert_eq!(holder, Some(i64::from(std::process::id())));
        assert_eq!(places.machinery().iter().filter(|one| one.name == "bailiwick-keep").count(), 1);
        done(&sh(&first, "true").await);
        close(&first).await;
        // At once, and with the first session still in scope.
        let second = open(on(&places, &store)).await;
        // Dropped without close, it is as free.
        drop(second);
        close(&open(on(&places, &store)).await).await;
        drop(first);
        places.assert_nothing_left_soon();
    }

    /// C84, in two processes: the holder is named by pid and start time; killed, it holds nothing; stopped, it
    /// still holds.
    async fn c84_two_processes(world: &World) {
        let places = Places::of(world);
        let store = places.join("store");
        let mut holder = Host::start(&places, Host::command(&places, "host", "hold"));
        let _opened = holder.hear("opened");
        let is_refused = async || {
            let error = refused(on(&places, &store).open().await, ErrorKind::StoreLocked);
            let field = |name| error.field(name).and_then(Field::as_number);
            assert_eq!(field("holder_pid"), Some(i64::from(holder.pid())));
            let start = bailiwick_test::process::start_time(holder.pid()).unwrap();
            assert_eq!(field("holder_start_time"), i64::try_from(start).ok());
        };
        is_refused().await;
        let pid = rustix::process::Pid::from_raw(i32::try_from(holder.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        is_refused().await;
        holder.kill();
        // Not a moment later: neither keeper nor command of the killed host has the lock.
        let session = open(on(&places, &store)).await;
        done(&sh(&session, "true").await);
        close(&session).await;
        places.assert_nothing_left_soon();
    }
}

root_cases! {
    /// A store that belongs to another user.
    async fn store_of_another_user(world: &World) {
        let places = Places::of(world);
        let foreign = directory(places.join("foreign"), 0o700);
        chown(&foreign, Some(bailiwick_test::case::PLAIN_UID), None).unwrap();
        let error = refuse(&places, &foreign, ErrorKind::StoreInvalid).await;
        let owner = error.field("owner").and_then(Field::as_number);
        assert_eq!(owner, Some(i64::from(bailiwick_test::case::PLAIN_UID)));
        chown(&foreign, Some(0), None).unwrap();
        works(&places, &foreign).await;
    }
}

user_cases! {
    /// A store where this user can make none, or that it cannot write.
    async fn store_out_of_reach(world: &World) {
        let places = Places::of(world);
        let error = refuse(&places, Path::new("/usr/bin/store"), ErrorKind::StoreNotAccessible).await;
        assert_eq!(error.field("store").and_then(Field::as_path), Some(Path::new("/usr/bin/store")));
        let shut = directory(places.join("shut"), 0o000);
        refuse(&places, &shut.join("store"), ErrorKind::StoreNotAccessible).await;
        let closed = directory(places.join("closed"), 0o500);
        refuse(&places, &closed, ErrorKind::StoreNotAccessible).await;
        refuse(&places, &closed.join("store"), ErrorKind::StoreNotAccessible).await;
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        works(&places, &closed).await;
        works(&places, &closed.join("store")).await;
    }
}

/// Holds a store, with a command that would inherit whatever a command can inherit.
fn hold(places: &Places) {
    host::block_on(async {
        let session = open(on(places, &places.join("store"))).await;
        let _child = session.command("/bin/sleep").arg("300").spawn().await.unwrap();
        say(places, "opened", true);
        std::future::pending::<()>().await;
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("hold", hold)]);
}
