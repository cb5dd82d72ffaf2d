//! Bad input to `open`: every refusal has a code, names the value, says that nothing ran, and leaves no
//! process, no temporary directory and no store. Roots of the wrong kind are in `guard_overlap.rs`.

#![cfg(test)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bailiwick::{Error, ErrorKind, Field, Limit, Protection, Resource, Session, SessionBuilder};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, entries, open, refused, sh};
use bailiwick_test::{Listing, Places, cases, fixture, user_cases};

/// A session whose store does not exist yet.
fn fresh(places: &Places) -> SessionBuilder {
    Session::builder(places.join("store"))
        .temporary_parent(places.temporary())
        .accept(Protection::Metadata)
        .accept(Protection::NamedSockets)
}

async fn refuse(places: &Places, builder: SessionBuilder, kind: ErrorKind) -> Error {
    let before = Listing::of(places.path());
    let error = refused(builder.open().await, kind);
    before.assert_unchanged();
    places.assert_nothing_left();
    let code = serde_json::to_value(&error).unwrap();
    assert_eq!(code["code"], kind.code());
    assert_eq!(code["ran"], "nothing");
    error
}

fn number(error: &Error, field: &str) -> i64 {
    error.field(field).and_then(Field::as_number).unwrap_or_else(|| panic!("no number `{field}`: {error:?}"))
}

cases! {
    /// A name that is no UTF-8 works, byte for byte, and one that is refused is told byte for byte.
    async fn roots_that_are_no_utf8(world: &World) {
        let places = Places::of(world);
        let odd = places.join(OsStr::from_bytes(b"od\xffd\xfe"));
        let error = refuse(&places, fresh(&places).write_root(&odd), ErrorKind::RootNotFound).await;
        assert_eq!(error.field("root").and_then(Field::as_path), Some(odd.as_path()));

        fs::create_dir(&odd).unwrap();
        let session = open(fresh(&places).write_root(&odd)).await;
        assert_eq!(session.write_roots().await, std::slice::from_ref(&odd));
        done(&sh(&session, "echo x > written && pwd > where").await);
        assert_eq!(fs::read(odd.join("written")).unwrap(), b"x\n");
        assert_eq!(fs::read(odd.join("where")).unwrap().strip_suffix(b"\n"), Some(odd.as_os_str().as_bytes()));
        let output = session.command("cat").arg(odd.join("written")).current_dir(&odd).output().await.unwrap();
        assert_eq!(done(&output), "x\n");
        close(&session).await;
    }

    /// A root given twice, in two spellings, through a link, and one inside another, is one root.
    async fn duplicate_roots(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        fs::create_dir(root.join("inner")).unwrap();
        symlink(&root, places.join("link")).unwrap();
        let given = [root.join("inner"), root.clone(), root.clone(), root.join("."), places.join("link/inner")];
        let session = open(fresh(&places).write_roots(given)).await;
        assert_eq!(session.write_roots().await, std::slice::from_ref(&root));
        done(&sh(&session, &format!("echo x > {}/inner/x", root.display())).await);
        close(&session).await;
        // No root at all: everything but the temporary directory is read-only.
        let session = open(fresh(&places)).await;
        assert!(session.write_roots().await.is_empty());
        done(&sh(&session, "test $(pwd) = / && echo x > $TMPDIR/x").await);
        assert!(!sh(&session, &format!("echo x > {}/y", root.display())).await.status.success());
        assert!(!root.join("y").exists());
        close(&session).await;
    }

    /// The environment of the session: names and values that no process can be given.
    async fn environment(world: &World) {
        let places = Places::of(world);
        let with = |name: &str, value: &str| {
            fresh(&places).write_root(places.write_root()).env("FIRST", "1").env(name, value)
        };
        for (name, value) in [("", "secret"), ("A=B", "secret"), ("A\0B", "secret"), ("A", "secret\0")] {
            let error = refuse(&places, with(name, value), ErrorKind::EnvInvalid).await;
            assert_eq!(number(&error, "index"), 1);
            assert_eq!(error.field("name").and_then(Field::as_text), Some(name));
            assert!(!format!("{error:?}{}", error.report()).contains("secret"));
        }
        for name in ["TMPDIR", "TMP", "TEMP"] {
            let error = refuse(&places, with(name, "/var/tmp"), ErrorKind::EnvInvalid).await;
            assert_eq!(error.field("name").and_then(Field::as_text), Some(name));
        }
        // The twin: odd, but possible.
        let session = open(with("a.b-c d", "x=y\n\u{20ac}").env("EMPTY", "").env("FIRST", "2")).await;
        let shown = session.command("env").arg("-0").output().await.unwrap();
        let mut shown: Vec<String> = done(&shown).split_terminator('\0').map(str::to_owned).collect();
        shown.sort();
        let temporary = session.temporary_dir().display().to_string();
        let root = places.write_root().display().to_string();
        let mut expected = vec![
            "EMPTY=".to_owned(), "FIRST=2".to_owned(), "a.b-c d=x=y\n\u{20ac}".to_owned(),
            format!("HOME={temporary}"), format!("TMPDIR={temporary}"), format!("TMP={temporary}"),
            format!("TEMP={temporary}"), format!("PWD={root}"), "LANG=C.UTF-8".to_owned(),
            "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
        ];
        expected.sort();
        assert_eq!(shown, expected);
        close(&session).await;
    }

    /// Paths to protect that do not exist or are none, and limits that contradict each other.
    async fn protected_paths_and_limits(world: &World) {
        let places = Places::of(world);
        let builder = || fresh(&places).write_root(places.write_root());
        let good = places.outside_file();
        for (bad, kind) in [
            (places.join("nope"), ErrorKind::ProtectedNotFound),
            ("relative".into(), ErrorKind::ProtectedInvalid),
            ("".into(), ErrorKind::ProtectedInvalid),
            ("~/.ssh".into(), ErrorKind::ProtectedInvalid),
        ] {
            let error = refuse(&places, builder().protect(&good).protect(&bad), kind).await;
            assert_eq!(error.field("protected").and_then(Field::as_path), Some(bad.as_path()));
            assert_eq!(number(&error, "protected_index"), 1);
        }
        let twice = [Limit::of(Resource::Core, 0), Limit::of(Resource::Core, 1)];
        let above = [Limit::of(Resource::Core, 0), Limit { resource: Resource::Cpu, soft: 2, hard: 1 }];
        for (limits, name) in [(twice, "core"), (above, "cpu")] {
            let limited = limits.into_iter().fold(builder(), SessionBuilder::limit);
            let error = refuse(&places, limited, ErrorKind::LimitInvalid).await;
            assert_eq!((number(&error, "index"), error.field("resource").and_then(Field::as_text)), (1, Some(name)));
        }
        let session = open(builder().protect(&good).limit(Limit::of(Resource::FileSize, 4096))).await;
        let output = sh(&session, "head -c 10000 /dev/zero > big; wc -c < big").await;
        assert_eq!(done(&output).trim(), "4096");
        close(&session).await;
    }

    /// What this host cannot keep refuses by name, with nothing left, until each gap is accepted by its name.
    async fn protections_that_this_host_cannot_keep(world: &World) {
        let places = Places::of(world);
        let builder = || {
            Session::builder(places.join("store"))
                .temporary_parent(places.temporary())
                .write_root(places.write_root())
                ._worker_image(bailiwick_test::image_without_namespaces())
        };
        let error = refuse(&places, builder(), ErrorKind::ProtectionUnavailable).await;
        let names: Vec<&str> =
            error.field("protections").and_then(Field::as_list).unwrap().iter().filter_map(Field::as_text).collect();
        assert_eq!(error.field("protection").and_then(Field::as_text), names.first().copied());
        // A store that was there before stays as it is.
        fs::create_dir(places.join("store")).unwrap();
        fs::set_permissions(places.join("store"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(places.join("store/history"), "kept").unwrap();
        refused(builder().open().await, ErrorKind::ProtectionUnavailable);
        assert_eq!(fs::read(places.join("store/history")).unwrap(), b"kept");
        places.assert_nothing_left();
        // All but one: that one still refuses.
        for missing in &names {
            let some = names.iter().filter(|name| *name != missing);
            let accepted = some.map(|name| Protection::from_name(name).unwrap());
            let error = refused(accepted.fold(builder(), SessionBuilder::accept).open().await, ErrorKind::ProtectionUnavailable);
            assert_eq!(error.field("protection").and_then(Field::as_text), Some(*missing));
        }
        let accepted = names.iter().map(|name| Protection::from_name(name).unwrap());
        let session = open(accepted.fold(builder(), SessionBuilder::accept)).await;
        done(&sh(&session, "true").await);
        close(&session).await;
    }

    /// The parent of the temporary directory.
    async fn temporary_parents(world: &World) {
        let places = Places::of(world);
        let builder = || fresh(&places).write_root(places.write_root());
        let long = places.join("a".repeat(40));
        fs::create_dir(&long).unwrap();
        let inside_store = places.private();
        for bad in [places.join("nope"), places.outside_file(), long.clone(), "".into(), "T".into(), "~".into()] {
            // The session is refused whether or not the store exists, and none is made.
            let before = Listing::of(places.path());
            let error = refused(builder().temporary_parent(&bad).open().await, ErrorKind::TempDir);
            assert_eq!(error.field("parent").and_then(Field::as_path), Some(bad.as_path()), "{error:?}");
            before.assert_unchanged();
            places.assert_nothing_left();
        }
        // Beside what is protected, where commands would write.
        let session = Session::builder(&inside_store).write_root(places.write_root()).temporary_parent(&inside_store);
        let before = Listing::of(&inside_store);
        let error = refused(session.open().await, ErrorKind::RootOverlap);
        assert_eq!(error.field("relation").and_then(Field::as_text), Some("inside"));
        before.assert_unchanged();

        // The twins: the longest that fits, and a link.
        let longest = places.join("b".repeat(36 - places.path().as_os_str().len() - 1));
        assert_eq!(longest.as_os_str().len(), 36);
        fs::create_dir(&longest).unwrap();
        symlink(&longest, places.join("link")).unwrap();
        for parent in [longest.clone(), places.join("link")] {
            let session = open(builder().temporary_parent(&parent)).await;
            assert!(session.temporary_dir().as_os_str().len() <= 48);
            done(&sh(&session, "cd $TMPDIR && echo x > x").await);
            assert_eq!(entries(&longest).len(), 1);
            close(&session).await;
            assert_eq!(entries(&longest), [] as [PathBuf; 0]);
        }
    }

    /// C59: two thousand roots work where the process may hold that many descriptors, in one grant and in
    /// its replacement; where it may not, the refusal says what to do.
    fn c59_two_thousand_roots(world: &World, seconds = 240) {
        let places = Places::of(world);
        let roots = places.join("roots");
        for index in 0..2000 {
            fs::create_dir_all(roots.join(format!("{index:04}"))).unwrap();
        }
        fs::create_dir_all(places.join("nested/roots")).unwrap();
        for index in 0..2000 {
            fs::create_dir(places.join(format!("nested/roots/{index:04}"))).unwrap();
        }
        let limited = |files: &str| {
            let wrapper = ["sh", "-c", "ulimit -n $0; exec \"$@\"", files];
            Host::start(&places, Host::wrapped(&places, &wrapper, "host", "roots"))
        };
        let mut few = limited("1024");
        let refused = few.hear("refused");
        assert_eq!(refused["code"], ErrorKind::TooManyRoots.code());
        assert_eq!(refused["ran"], "nothing");
        let index = refused["fields"]["root_index"].as_u64().unwrap();
        assert!((900..1024).contains(&index), "{refused}");
        assert!(refused["hints"][0].as_str().unwrap().contains("RLIMIT_NOFILE"), "{refused}");
        few.finish();
        places.assert_nothing_left();

        fs::remove_file(places.join("said")).unwrap();
        let mut many = limited("8192");
        assert_eq!(many.hear("roots"), 2000);
        assert_eq!(many.hear("outermost"), 1);
        // Each of its roots can be written, and nothing beside them.
        assert_eq!(many.hear("written"), 2000);
        assert_eq!(many.hear("denied"), true);
        many.finish();
        places.assert_nothing_left();
        assert!(fs::read_dir(&roots).unwrap().flatten().all(|root| root.path().join("w").exists()));
        assert!(!roots.join("w").exists());
    }
}

user_cases! {
    /// A parent in which this user may make nothing.
    async fn temporary_parent_of_another_user(world: &World) {
        let places = Places::of(world);
        let closed = places.join("c");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        for bad in [closed.as_path(), Path::new("/usr/bin")] {
            let builder = fresh(&places).write_root(places.write_root()).temporary_parent(bad);
            let error = refuse(&places, builder, ErrorKind::TempDir).await;
            assert_eq!(error.field("parent").and_then(Field::as_path), Some(bad));
            assert!(std::error::Error::source(&error).unwrap().to_string().contains("Permission denied"));
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        close(&open(fresh(&places).write_root(places.write_root()).temporary_parent(&closed)).await).await;
        fixture::assert_directory(&closed);
    }
}

/// Opens on two thousand roots, runs in all of them, and replaces them by as many and by their parent.
fn roots(places: &Places) {
    host::block_on(async {
        let roots = entries(&places.join("roots"));
        let session = match fresh(places).write_roots(&roots).open().await {
            Ok(session) => session,
            Err(error) => return say(places, "refused", serde_json::to_value(&error).unwrap()),
        };
        say(places, "roots", session.write_roots().await.len());
        let script =
            format!("cd {}; for d in *; do echo x > $d/w && echo $d; done", places.join("roots").display());
        let written = done(&sh(&session, &script).await).lines().count();
        say(places, "written", written);
        let denied = sh(&session, &format!("echo x > {}/w", places.join("roots").display())).await;
        say(places, "denied", !denied.status.success());
        session.replace_write_roots(entries(&places.join("nested/roots"))).await.unwrap();
        assert_eq!(session.write_roots().await.len(), 2000);
        // Nested in one that is granted too, they need a single descriptor.
        let all = [places.join("roots")].into_iter().chain(roots);
        session.replace_write_roots(all).await.unwrap();
        say(places, "outermost", session.write_roots().await.len());
        close(&session).await;
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("roots", roots)]);
}
