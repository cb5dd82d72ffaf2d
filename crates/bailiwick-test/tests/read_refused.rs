//! What commands may read is refused where it reaches anything private, under whatever name, where it is not what it is
//! called, and, before each command, where either has changed since.

#![cfg(test)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bailiwick::guard::ReadDecision;
use bailiwick::{Error, ErrorKind, Field, ReadScope, Readable, Session, SessionBuilder};
use bailiwick_test::boundary::run;
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Listing, Places, cases, image_without_namespaces, tool};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_remount, unmount};

/// A session with the root `W` that reads the base set and where its test program lies.
fn limited(places: &Places) -> SessionBuilder {
    places.session().read_root(programs())
}

/// The directory of the test programs, by its canonical path.
fn programs() -> PathBuf {
    tool("act").parent().unwrap().canonicalize().unwrap()
}

fn file(path: impl Into<PathBuf>, content: &str) -> PathBuf {
    let path = path.into();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

fn field<'a>(error: &'a Error, name: &str) -> &'a Path {
    error.field(name).and_then(Field::as_path).unwrap_or_else(|| panic!("no `{name}`: {}", error.report()))
}

async fn assert_read(session: &Session, path: &Path, content: &str) {
    let report = run(session, &[OsStr::new("read"), path.as_os_str()]).await;
    report.assert_done();
    assert_eq!(report.value, content, "{}", path.display());
}

async fn assert_unreadable(session: &Session, path: &Path) {
    run(session, &[OsStr::new("read"), path.as_os_str()]).await.assert_refused(&["EACCES"]);
}

/// What a refusal is about.
#[track_caller]
fn about(error: &Error, purpose: &str, index: i64) {
    assert_eq!(error.field("purpose").and_then(Field::as_text), Some(purpose), "{}", error.report());
    assert_eq!(error.field("index"), Some(&Field::Number(index)), "{}", error.report());
}

cases! {
    /// In both directions, for whatever it is named, at open and at replace.
    async fn what_is_private_is_not_named(world: &World) {
        let places = Places::of(world);
        let (inside, apart) = (places.private().join("below"), places.join("apart"));
        for directory in [&inside, &apart] {
            fs::create_dir(directory).unwrap();
        }
        let session = open(limited(&places)).await;
        let private = [places.private(), inside, world.path().to_owned(), PathBuf::from("/")];
        for directory in &private {
            let as_root = limited(&places).read_root(directory);
            let as_programs = limited(&places).program_directory(directory);
            let as_base = limited(&places).read_base([Path::new("/usr"), directory]);
            for (builder, purpose, index) in [(as_root, "root", 1), (as_programs, "programs", 0), (as_base, "base", 1)] {
                let error = refused(builder.open().await, ErrorKind::ReadOverlap);
                about(&error, purpose, index);
                assert_eq!(field(&error, "directory"), directory);
                let mut scope = limited(&places).policy().read.clone();
                match purpose {
                    "root" => scope.limit().roots.push(directory.clone()),
                    "programs" => scope.limit().programs.push(directory.clone()),
                    _ => scope.limit().base.push(directory.clone()),
                }
                let replaced = session.replace_write_roots([world.write_root()]).read_scope(scope).await;
                refused(replaced, ErrorKind::ReadOverlap);
            }
        }
        // What was granted before is in force, and no more.
        assert_read(&session, &file(world.write_root().join("f"), "x"), "x").await;
        assert_unreadable(&session, &world.secret()).await;
        let mut scope = limited(&places).policy().read.clone();
        scope.limit().roots.push(apart.clone());
        file(apart.join("f"), "apart");
        assert_unreadable(&session, &apart.join("f")).await;
        session.replace_write_roots([world.write_root()]).read_scope(scope).await.unwrap();
        assert_read(&session, &apart.join("f"), "apart").await;
        assert!(session.readable().await.unwrap().contains(&apart));
        close(&session).await;

        // What the caller protects in what every tool may read: nothing can be left out beneath a directory.
        let error = refused(limited(&places).protect("/usr/share").open().await, ErrorKind::ReadOverlap);
        about(&error, "base", 0);
        assert_eq!((field(&error, "directory"), field(&error, "protected")), (Path::new("/usr"), Path::new("/usr/share")));
        let parts = ["/usr/bin", "/usr/lib", "/usr/lib64", "/lib64", "/bin", "/lib", "/etc/ld.so.cache"];
        let session = open(limited(&places).protect("/usr/share").read_base(parts)).await;
        done(&sh(&session, "ls /usr/bin").await);
        assert!(!sh(&session, "ls /usr/share").await.status.success());
        close(&session).await;
    }

    async fn places_of_the_kernel_are_not_named(world: &World) {
        let places = Places::of(world);
        for (directory, kind) in [
            ("/proc", ErrorKind::ReadForbidden),
            ("/sys", ErrorKind::ReadForbidden),
            ("/dev", ErrorKind::ReadForbidden),
            ("/sys/kernel", ErrorKind::ReadForbidden),
            ("/", ErrorKind::ReadOverlap),
        ] {
            about(&refused(limited(&places).read_root(directory).open().await, kind), "root", 1);
            about(&refused(limited(&places).read_base([directory]).open().await, kind), "base", 0);
        }
        for file in ["/dev/kmsg", "/proc/version"] {
            refused(limited(&places).read_base([file]).open().await, ErrorKind::ReadForbidden);
        }
        let own = format!("/proc/{}", std::process::id());
        refused(limited(&places).program_directory(own).open().await, ErrorKind::ReadForbidden);
    }

    /// Refused, and nothing is made in its place.
    async fn a_missing_or_misspelled_directory(world: &World) {
        let places = Places::of(world);
        let (real, link, missing) = (places.join("real"), places.join("link"), places.join("missing/below"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        let listing = Listing::of(world.path());
        let roundabout = places.join("real/../real");
        let slashes = PathBuf::from(format!("{}//", real.display()));
        let file = world.outside_file();
        for spelled in [&missing, &link, &roundabout, &slashes, &file, &PathBuf::from("real"), &PathBuf::from("")] {
            for builder in [limited(&places).read_root(spelled), limited(&places).program_directory(spelled)] {
                let error = refused(builder.open().await, ErrorKind::ReadInvalid);
                assert_eq!(field(&error, "directory").as_os_str(), spelled.as_os_str());
            }
        }
        listing.assert_unchanged();
        let session = open(limited(&places).read_root(&real)).await;
        let narrower = session.replace_write_roots([world.write_root()]);
        let scope = ReadScope::Only(Readable { roots: vec![link], ..Readable::default() });
        refused(narrower.read_scope(scope).await, ErrorKind::ReadInvalid);
        done(&sh(&session, &format!("ls {}", real.display())).await);
        close(&session).await;
    }

    /// At the next launch; the twin is the directory back at its path.
    async fn a_root_that_is_replaced_refuses_commands(world: &World) {
        let places = Places::of(world);
        let (root, away) = (places.join("R"), places.join("away"));
        file(root.join("f"), "old");
        let session = open(limited(&places).read_root(&root)).await;
        assert_read(&session, &root.join("f"), "old").await;
        fs::rename(&root, &away).unwrap();
        let error = refused(session.command("/bin/true").output().await, ErrorKind::ReadChanged);
        about(&error, "root", 1);
        file(root.join("f"), "new");
        let error = refused(session.command("/bin/true").output().await, ErrorKind::ReadChanged);
        assert!(error.field("found").is_some());
        fs::remove_dir_all(&root).unwrap();
        symlink(&away, &root).unwrap();
        refused(session.command("/bin/true").output().await, ErrorKind::ReadChanged);
        fs::remove_file(&root).unwrap();
        fs::rename(&away, &root).unwrap();
        assert_read(&session, &root.join("f"), "old").await;
        // Granted again, the new one is meant.
        fs::rename(&root, &away).unwrap();
        file(root.join("f"), "new");
        session.replace_write_roots([world.write_root()]).await.unwrap();
        assert_read(&session, &root.join("f"), "new").await;
        assert_unreadable(&session, &away.join("f")).await;
        close(&session).await;
    }

    /// Neither its device, its inode nor its number of links tells of it.
    async fn what_is_private_and_moved_into_a_root_refuses_commands(world: &World) {
        let places = Places::of(world);
        let (root, kept, moved) = (places.join("R"), places.join("kept"), places.join("R/kept"));
        fs::create_dir(&root).unwrap();
        file(kept.join("f"), "kept");
        let session = open(limited(&places).read_root(&root).protect(&kept)).await;
        assert_unreadable(&session, &kept.join("f")).await;
        fs::rename(&kept, &moved).unwrap();
        let error = refused(session.command("/bin/true").output().await, ErrorKind::ReadOverlap);
        assert_eq!(error.field("relation").and_then(Field::as_text), Some("around"));
        fs::rename(&moved, &kept).unwrap();
        assert_unreadable(&session, &kept.join("f")).await;
        close(&session).await;
    }

    async fn other_names_of_private_files(world: &World) {
        let places = Places::of(world);
        let root = places.join("R");
        let kept = file(places.join("kept/f"), "kept");
        let name = file(root.join("deep/er/f"), "");
        fs::remove_file(&name).unwrap();
        fs::hard_link(&kept, &name).unwrap();
        let builder = || limited(&places).read_root(&root).protect(kept.parent().unwrap());
        let error = refused(builder().open().await, ErrorKind::ReadOverlap);
        about(&error, "root", 1);
        assert_eq!((field(&error, "file"), field(&error, "other_name")), (kept.as_path(), name.as_path()));
        let verdict = builder().explain().unwrap();
        let read = &verdict.reads.as_deref().unwrap()[1];
        assert!(!verdict.granted && read.decision == ReadDecision::Refused, "{read:?}");
        fs::remove_file(&name).unwrap();
        let session = open(builder()).await;
        assert_unreadable(&session, &kept).await;
        // Found before the next command.
        fs::hard_link(&kept, &name).unwrap();
        refused(session.command("/bin/true").output().await, ErrorKind::ReadOverlap);
        fs::remove_file(&name).unwrap();
        assert_unreadable(&session, &kept).await;
        close(&session).await;
        // Where everything can be read, there is nothing to refuse.
        fs::hard_link(&kept, &name).unwrap();
        close(&open(places.session().protect(kept.parent().unwrap())).await).await;
    }

    /// The base set can be looked at and changed; with less, the error says what is missing.
    async fn the_base_set_is_the_callers(world: &World) {
        let places = Places::of(world);
        let verdict = limited(&places).explain().unwrap();
        let reads = verdict.reads.unwrap();
        assert!(verdict.granted && reads.len() == Readable::BASE.len() + 1);
        let of = |path: &str| reads.iter().find(|read| read.given == Path::new(path)).unwrap();
        assert_eq!((of("/usr").decision, of("/usr").purpose), (ReadDecision::Readable, "base"));
        assert!(reads.iter().all(|read| (read.decision == ReadDecision::Readable) == read.canonical.is_some()));
        assert!(places.session().explain().unwrap().reads.is_none());

        let bare = open(limited(&places).read_base(Vec::<PathBuf>::new())).await;
        let error = refused(bare.command("sh").args(["-c", "true"]).output().await, ErrorKind::CommandNotExecutable);
        assert_eq!(error.field("because").and_then(Field::as_text), Some("read-scope"));
        assert_eq!(bare.readable().await.unwrap(), [programs()]);
        close(&bare).await;
        // A script that may be read, whose interpreter may not.
        let interpreter = places.join("tools/sh");
        fs::create_dir(interpreter.parent().unwrap()).unwrap();
        fs::copy("/bin/sh", &interpreter).unwrap();
        let script = file(world.write_root().join("script"), &format!("#! {} -e\necho hello\n", interpreter.display()));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let session = open(limited(&places)).await;
        let error = refused(session.command(&script).output().await, ErrorKind::CommandNotExecutable);
        assert_eq!(field(&error, "outside"), interpreter);
        close(&session).await;
        let session = open(limited(&places).program_directory(interpreter.parent().unwrap())).await;
        assert_eq!(done(&session.command(&script).output().await.unwrap()), "hello\n");
        // A program that is closed for another reason gets another hint.
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
        let error = refused(session.command(&script).output().await, ErrorKind::CommandNotExecutable);
        assert!(error.field("because").is_none(), "{}", error.report());
        close(&session).await;
    }
}

/// A read-only mount of one directory on another.
fn mount_read_only(from: &Path, to: &Path) {
    // What a user namespace has inherited cannot be shown without what is mounted on it.
    mount_bind(from, to).or_else(|_| mount_bind_recursive(from, to)).unwrap();
    mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
}

/// Through a mount that takes no write nothing is written, but read: also in a write root.
async fn read_only_mounts(places: &Places) {
    let kept = file(places.join("kept/f"), "kept");
    let kept = kept.parent().unwrap();
    let root = places.join("R");
    fs::create_dir(&root).unwrap();
    for point in [places.write_root().join("point"), root.join("point")] {
        fs::create_dir_all(&point).unwrap();
        let builder = || limited(places).read_root(&root).protect(kept);
        let purpose = if point.starts_with(&root) { ("root", 1) } else { ("write-root", 0) };
        mount_read_only(kept, &point);
        assert_eq!(fs::read(point.join("f")).unwrap(), b"kept");
        // The twin reads everything, and is not asked.
        close(&open(places.session().protect(kept)).await).await;
        let error = refused(builder().open().await, ErrorKind::ReadOverlap);
        about(&error, purpose.0, purpose.1);
        assert_eq!(error.field("alias").and_then(Field::as_text), Some("mount"));
        assert_eq!(field(&error, "other_name"), point);
        unmount(&point, UnmountFlags::empty()).unwrap();
        // Without mounts of its own a command would see it.
        let session = open(builder()._worker_image(image_without_namespaces())).await;
        done(&sh(&session, "true").await);
        mount_read_only(kept, &point);
        let error = refused(session.command("/bin/true").output().await, ErrorKind::ReadOverlap);
        about(&error, purpose.0, purpose.1);
        unmount(&point, UnmountFlags::empty()).unwrap();
        done(&sh(&session, "true").await);
        close(&session).await;
        // With them it does not, and where the host gives none, it is refused as before.
        let session = open(builder()).await;
        mount_read_only(kept, &point);
        let read = format!("cat {}", point.join("f").display());
        match session.command("/bin/sh").args(["-c", &read]).output().await {
            Ok(output) => assert!(!output.status.success() && output.stdout.text().is_empty()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ReadOverlap, "{}", error.report()),
        }
        unmount(&point, UnmountFlags::empty()).unwrap();
        close(&session).await;
    }
}

cases! {
    fn a_read_only_mount_of_what_is_private(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::with_own_mounts(&places, "host", "read_only_mounts"));
        assert_eq!(host.hear("done"), true);
        host.finish();
        places.assert_nothing_left();
    }
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("read_only_mounts", |places| {
        host::block_on(read_only_mounts(places));
        say(places, "done", true);
    })]);
}
