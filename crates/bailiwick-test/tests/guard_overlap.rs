//! What a session may not be granted: C01 to C06, C21, C22, C58, each refused by `open` and by `replace`
//! alike, with nothing run and nothing left, and each with a twin that opens and writes.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use bailiwick::guard::Decision;
use bailiwick::{Error, ErrorKind, Field, Session};
use bailiwick_test::places::{close, done, entries, open, refused, sh};
use bailiwick_test::{Listing, Places, Snapshot, cases, fixture, user_cases};

fn text<'a>(error: &'a Error, field: &str) -> &'a str {
    error.field(field).and_then(Field::as_text).unwrap_or_else(|| panic!("no text `{field}`: {error:?}"))
}

fn path<'a>(error: &'a Error, field: &str) -> &'a Path {
    error.field(field).and_then(Field::as_path).unwrap_or_else(|| panic!("no path `{field}`: {error:?}"))
}

fn number(error: &Error, field: &str) -> i64 {
    error.field(field).and_then(Field::as_number).unwrap_or_else(|| panic!("no number `{field}`: {error:?}"))
}

/// Opens with these roots and asserts the refusal: nothing was made, nothing runs, and `explain` says the
/// same. Then an open session is asked to take them over: refused alike, with its grant still in force.
async fn refuse<P: AsRef<Path>>(places: &Places, roots: &[P], kind: ErrorKind) -> Error {
    let roots: Vec<PathBuf> = roots.iter().map(|root| root.as_ref().to_owned()).collect();
    let before = Listing::of(places.path());
    let verdict = places.bare_session().write_roots(&roots).explain().unwrap();
    assert!(!verdict.granted);
    let explained = verdict.roots.iter().flat_map(|root| &root.refusals).next().unwrap();
    let error = refused(places.bare_session().write_roots(&roots).open().await, kind);
    assert_eq!((explained.kind(), explained.to_string()), (kind, error.to_string()));
    before.assert_unchanged();
    places.assert_nothing_left();

    let other = places.join("other");
    if !other.exists() {
        fs::create_dir(&other).unwrap();
    }
    let session = open(places.bare_session().write_root(&other)).await;
    let replaced = refused(session.replace_write_roots(&roots).await, kind);
    assert_eq!(path(&replaced, "root"), path(&error, "root"));
    assert_eq!(session.write_roots().await, std::slice::from_ref(&other));
    let wrote = sh(&session, &format!("echo ok > {0}/ok && cat {0}/ok", other.display())).await;
    assert_eq!(done(&wrote), "ok\n");
    close(&session).await;
    fs::remove_dir_all(&other).unwrap();
    // What the open session has made in its store stays there.
    error
}

#[track_caller]
fn assert_overlap(error: &Error, root: impl AsRef<Path>, protected: impl AsRef<Path>, relation: &str) {
    assert_eq!(error.kind(), ErrorKind::RootOverlap, "{error:?}");
    assert_eq!(path(error, "root"), root.as_ref());
    assert_eq!(path(error, "protected"), protected.as_ref());
    assert_eq!(text(error, "relation"), relation);
}

/// The twin: the roots open, a file can be written in each by its own spelling, and `P/db` cannot.
async fn works<P: AsRef<Path>>(places: &Places, roots: &[P]) -> Session {
    let secret = Snapshot::of(places.secret());
    let verdict = places.bare_session().write_roots(roots.iter().map(AsRef::as_ref)).explain().unwrap();
    assert!(verdict.granted, "{verdict:?}");
    let session = open(places.bare_session().write_roots(roots.iter().map(AsRef::as_ref))).await;
    for root in roots {
        let file = root.as_ref().join("written");
        done(&sh(&session, &format!("echo w > '{}'", file.display())).await);
        assert_eq!(fs::read_to_string(&file).unwrap(), "w\n");
        fs::remove_file(file).unwrap();
    }
    let denied = sh(&session, &format!("echo evil > {}", places.secret().display())).await;
    assert!(!denied.status.success());
    secret.assert_unchanged();
    session
}

fn directory(path: PathBuf) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    path
}

cases! {
    /// C01: a root around the store, `/`, and a home with the store below it.
    async fn c01_root_around_the_store(world: &World) {
        let places = Places::of(world);
        let error = refuse(&places, &[places.path()], ErrorKind::RootOverlap).await;
        assert_overlap(&error, places.path(), places.private(), "around");
        assert_eq!(number(&error, "root_index"), 0);

        let error = refuse(&places, &["/"], ErrorKind::RootForbidden).await;
        assert_eq!(path(&error, "root"), Path::new("/"));
        assert_eq!((path(&error, "protected"), text(&error, "relation")), (&*places.private(), "around"));

        // As the second root, with a good one before it: the index tells.
        let good = places.write_root();
        let error = refuse(&places, &[good.as_path(), places.path()], ErrorKind::RootOverlap).await;
        assert_eq!(number(&error, "root_index"), 1);

        // The twin: the store's neighbour, which is the way out that the hint names.
        close(&works(&places, &[places.write_root()]).await).await;
    }

    /// C01: refused before the store is made, so none is found below the root afterwards.
    async fn c01_no_store_is_made_below_a_refused_root(world: &World) {
        let places = Places::of(world);
        let store = places.outside().join("new-store");
        let builder = || Session::builder(&store).temporary_parent(places.temporary());
        let before = Snapshot::of(places.outside());
        let error = refused(builder().write_root(places.outside()).open().await, ErrorKind::RootOverlap);
        assert_overlap(&error, places.outside(), &store, "around");
        before.assert_unchanged();
        places.assert_nothing_left();
        // The twin: the same store beside another root is made.
        let twin = builder()
            .write_root(places.write_root())
            .accept(bailiwick::Protection::Metadata)
            .accept(bailiwick::Protection::NamedSockets);
        close(&open(twin).await).await;
        assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    /// C02: a root inside the store, made before and after the opening; the remedy names nothing in the store.
    async fn c02_root_inside_the_store(world: &World) {
        let places = Places::of(world);
        let inside = directory(places.private().join("sub/deeper"));
        for root in [places.private().join("sub"), inside] {
            let error = refuse(&places, &[&root], ErrorKind::RootOverlap).await;
            assert_overlap(&error, &root, places.private(), "inside");
            let store = format!("{}/", places.private().display());
            assert!(error.hints().iter().all(|hint| !hint.contains(&store)), "{:?}", error.hints());
        }
        let error = refuse(&places, &[places.private()], ErrorKind::RootOverlap).await;
        assert_overlap(&error, places.private(), places.private(), "same");

        let session = works(&places, &[places.write_root()]).await;
        let later = directory(places.private().join("later"));
        let error = refused(session.replace_write_roots([&later]).await, ErrorKind::RootOverlap);
        assert_overlap(&error, &later, places.private(), "inside");
        // The runtime home of the session itself.
        let run = entries(&places.private()).into_iter().find(|entry| entry.join("sentinel").exists()).unwrap();
        let error = refused(session.replace_write_roots([&run]).await, ErrorKind::RootOverlap);
        assert_eq!(path(&error, "root"), run);
        close(&session).await;
    }

    /// C03: names that begin alike are no relation, in either direction.
    async fn c03_neighbours_by_prefix(world: &World) {
        let places = Places::of(world);
        let (extra, longer) = (directory(places.join("P-extra")), directory(places.join("Pq")));
        close(&works(&places, &[&extra, &longer]).await).await;

        fs::set_permissions(&extra, fs::Permissions::from_mode(0o700)).unwrap();
        let inverse = Session::builder(&extra)
            .write_root(places.private())
            .temporary_parent(places.temporary())
            .accept(bailiwick::Protection::Metadata)
            .accept(bailiwick::Protection::NamedSockets);
        let session = open(inverse).await;
        done(&sh(&session, &format!("echo new > {}", places.secret().display())).await);
        assert_eq!(fs::read_to_string(places.secret()).unwrap(), "new\n");
        assert!(!sh(&session, &format!("echo x > {}/x", extra.display())).await.status.success());
        assert!(!extra.join("x").exists());
        // The twin: the very name.
        let error = refused(session.replace_write_roots([&extra]).await, ErrorKind::RootOverlap);
        assert_overlap(&error, &extra, &extra, "same");
        close(&session).await;
    }

    /// C04: every spelling of the store is refused with one code; every spelling of `W` is one root.
    async fn c04_spellings(world: &World) {
        let places = Places::of(world);
        let base = places.path().display().to_string();
        let name = places.path().file_name().unwrap().to_str().unwrap();
        let spellings = |name_of: &str| {
            vec![
                format!("{base}/{name_of}/"),
                format!("{base}/{name_of}//"),
                format!("/{base}/{name_of}"),
                format!("{base}/./{name_of}"),
                format!("{base}/X/../{name_of}"),
                format!("{base}/{name_of}/."),
                format!("{base}/X/../../{name}//{name_of}//."),
            ]
        };
        for spelling in spellings("P") {
            let error = refuse(&places, &[&spelling], ErrorKind::RootOverlap).await;
            assert_overlap(&error, &spelling, places.private(), "same");
        }
        let session = works(&places, &spellings("W")).await;
        assert_eq!(session.write_roots().await, [places.write_root()]);
        close(&session).await;
        for spelling in spellings("W") {
            let session = works(&places, &[&spelling]).await;
            assert_eq!(session.write_roots().await, [places.write_root()]);
            close(&session).await;
        }
    }

    /// C05: a home reached by a link and by its target: all four ways open and write through both spellings;
    /// the home itself is refused in both. `PWD` keeps the caller's spelling, and so does `HOME` where it is given.
    async fn c05_home_behind_a_link(world: &World) {
        let places = Places::of(world);
        let home = directory(places.join("var/home/u"));
        let (store, root) = (directory(home.join("P")), directory(home.join("W")));
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(places.join("var/home"), places.join("home")).unwrap();
        let spellings = [home.clone(), places.join("home/u")];
        for store in &spellings {
            for given in &spellings {
                let builder = || {
                    Session::builder(store.join("P"))
                        .temporary_parent(places.temporary())
                        .accept(bailiwick::Protection::Metadata)
                        .accept(bailiwick::Protection::NamedSockets)
                        .env("HOME", given)
                };
                let session = open(builder().write_root(given.join("W"))).await;
                assert_eq!(session.write_roots().await, std::slice::from_ref(&root));
                for through in &spellings {
                    let file = through.join("W/f");
                    done(&sh(&session, &format!("echo x > {}", file.display())).await);
                    fs::remove_file(root.join("f")).unwrap();
                }
                let shown = session.command("/bin/sh").args(["-c", r#"printf '%s\n' "$HOME" "$PWD""#]).output();
                let shown = done(&shown.await.unwrap());
                assert_eq!(shown, format!("{}\n{}\n", given.display(), given.join("W").display()));
                assert_eq!(done(&sh(&session, "pwd").await), format!("{}\n", given.join("W").display()));
                close(&session).await;

                let error = refused(builder().write_root(given).open().await, ErrorKind::RootOverlap);
                assert_overlap(&error, given, store_of(&home), "around");
            }
        }
    }

    /// C06: what is missing is never replaced by its parent, skipped, or judged by its text.
    async fn c06_missing_roots(world: &World) {
        let places = Places::of(world);
        symlink(places.private(), places.join("W2")).unwrap();
        let below = places.join("W2/new/dir");
        let error = refuse(&places, &[&below], ErrorKind::RootNotFound).await;
        assert_eq!(path(&error, "root"), below);
        assert!(!places.private().join("new").exists());

        let nope = places.join("nope");
        let error = refuse(&places, &[&places.write_root(), &nope], ErrorKind::RootNotFound).await;
        assert_eq!((path(&error, "root"), number(&error, "root_index")), (nope.as_path(), 1));

        let dangling = places.join("dangling");
        symlink("nowhere", &dangling).unwrap();
        refuse(&places, &[&dangling], ErrorKind::RootNotFound).await;
        refuse(&places, &[places.outside_file().join("x")], ErrorKind::RootNotFound).await;

        // The twins: the same names once they lead to directories; and the link to the store itself.
        directory(nope.clone());
        directory(places.join("nowhere"));
        close(&works(&places, &[places.write_root(), nope, dangling]).await).await;
        let error = refuse(&places, &[places.join("W2")], ErrorKind::RootOverlap).await;
        assert_overlap(&error, places.join("W2"), places.private(), "same");
    }

    /// C21: directories of the system. `/tmp` is refused when the store lies in it, and works when it does not.
    async fn c21_system_directories(world: &World) {
        let places = Places::of(world);
        for root in ["/dev", "/proc", "/sys", "/proc/self", "/dev/pts"] {
            let error = refuse(&places, &[root], ErrorKind::RootForbidden).await;
            assert_eq!(path(&error, "root"), Path::new(root));
        }
        if Path::new("/sys/fs/cgroup").is_dir() {
            // A cgroup file system or a tmpfs that holds some: what lies on the latter is no control file.
            let verdict = places.bare_session().write_root("/sys/fs/cgroup").explain().unwrap();
            let plain = verdict.roots[0].decision == Decision::Granted;
            let kind = rustix::fs::statfs("/sys/fs/cgroup").unwrap().f_type;
            assert!(!plain || kind == 0x0102_1994, "/sys/fs/cgroup of type {kind:#x} would be granted");
        }
        let error = refuse(&places, &["/tmp"], ErrorKind::RootOverlap).await;
        assert_overlap(&error, "/tmp", places.private(), "around");
        // The twins: the default temporary directory lies in `/tmp` and is usable, and the devices work
        // without being granted.
        let session = open(Session::builder(places.private())
            .write_root(places.write_root())
            .accept(bailiwick::Protection::Metadata)
            .accept(bailiwick::Protection::NamedSockets)).await;
        assert!(session.temporary_dir().starts_with("/tmp"));
        done(&sh(&session, "echo x > /dev/null && echo y > $TMPDIR/y && cat $TMPDIR/y && test -r /proc/self/stat").await);
        close(&session).await;
        assert!(!session.temporary_dir().exists());
    }

    /// C22: what is no absolute path is refused with index and value; nothing is expanded by us.
    async fn c22_empty_and_relative_roots(world: &World) {
        let places = Places::of(world);
        let good = places.write_root();
        for bad in ["", ".", "W", "~", "~root", "$HOME", "${HOME}/x", "./W", &format!("{}\0x", good.display())] {
            let error = refuse(&places, &[good.as_path(), Path::new(bad)], ErrorKind::RootInvalid).await;
            assert_eq!((path(&error, "root"), number(&error, "root_index")), (Path::new(bad), 1));
            assert!(error.to_string().contains('`'), "the value is quoted: {error}");
        }
        // The twin: such names as parts of an absolute path are names like others.
        let odd: Vec<PathBuf> =
            ["~", "$HOME", ".x", "a b", "\u{e4}\u{20ac}"].iter().map(|name| directory(good.join(name))).collect();
        close(&works(&places, &odd).await).await;
    }

    /// C58: a file, a FIFO, a socket, a device. None hangs.
    async fn c58_roots_that_are_no_directories(world: &World) {
        let places = Places::of(world);
        let (file, fifo, socket) = (places.join("file.txt"), places.join("fifo"), places.join("socket"));
        fs::write(&file, "content").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        fixture::assert_file(&file);
        fixture::assert_fifo(&fifo);
        fixture::assert_socket(&socket);
        fixture::assert_device("/dev/null");
        for (root, found) in [(&*file, "file"), (&fifo, "FIFO"), (&socket, "socket"), (Path::new("/dev/null"), "device")] {
            let error = refuse(&places, &[root], ErrorKind::RootNotDirectory).await;
            assert!(text(&error, "found").contains(found), "{error:?}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"content");
        // The twin: the directory that holds the file, as the refusal says.
        let holder = directory(places.join("holder"));
        fs::rename(&file, holder.join("file.txt")).unwrap();
        let session = works(&places, &[&holder]).await;
        done(&sh(&session, &format!("echo more >> {}/file.txt", holder.display())).await);
        assert_eq!(fs::read(holder.join("file.txt")).unwrap(), b"contentmore\n");
        close(&session).await;
    }

    /// `explain` makes nothing, not even a store, and agrees with `open` root by root.
    async fn explain_makes_nothing(world: &World) {
        let places = Places::of(world);
        let builder = || {
            Session::builder(places.join("store"))
                .write_root(places.write_root())
                .write_root(places.join("W/."))
                .protect(places.outside())
                .accept(bailiwick::Protection::Metadata)
                .accept(bailiwick::Protection::NamedSockets)
                .temporary_parent(places.temporary())
        };
        let before = Listing::of(places.path());
        let verdict = builder().explain().unwrap();
        assert!(verdict.granted);
        let decisions: Vec<_> = verdict.roots.iter().map(|root| root.decision).collect();
        assert_eq!(decisions, [Decision::Granted, Decision::Covered(0)]);
        let mixed = builder().write_root(places.outside()).write_root(places.join("nope")).explain().unwrap();
        let decisions: Vec<_> = mixed.roots.iter().map(|root| root.decision).collect();
        assert_eq!(decisions, [Decision::Granted, Decision::Covered(0), Decision::Refused, Decision::Refused]);
        before.assert_unchanged();
        places.assert_nothing_left();

        let session = open(builder()).await;
        assert_eq!(session.write_roots().await, [places.write_root()]);
        close(&session).await;
        let error = refused(builder().write_root(places.outside()).open().await, ErrorKind::RootOverlap);
        assert_eq!(error.to_string(), mixed.roots[2].refusals[0].to_string());
        assert_overlap(&error, places.outside(), places.outside(), "same");
    }
}

user_cases! {
    /// C58: a directory that this user cannot enter, and one that it cannot write.
    async fn c58_closed_directories(world: &World) {
        let places = Places::of(world);
        let closed = directory(places.join("closed"));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        fixture::assert_unreadable(&closed);
        let error = refuse(&places, &[&closed], ErrorKind::RootNotAccessible).await;
        assert_eq!(path(&error, "root"), closed);
        refuse(&places, &["/etc"], ErrorKind::RootNotAccessible).await;
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        close(&works(&places, &[closed]).await).await;
    }
}

/// The canonical path of the store of case C05.
fn store_of(home: &Path) -> PathBuf {
    home.join("P")
}
