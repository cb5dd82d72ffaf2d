//! Other names of the store that appear while a session is open, by mounts and moves: C08 to C10, C13, C95. The next
//! command is refused, what runs is marked, the session can be closed, and works again once the name is gone.
//!
//! Each runs in a process with mounts of its own, as root and as a plain user in a user namespace. Where commands have a
//! mount view, what the host mounts later does not reach them and refuses nothing; moves and links do.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bailiwick::{Error, ErrorKind, Field, Mark, Protection, Session, SessionBuilder};
use bailiwick_test::act::{Scopes, naively};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{
    Need, Places, Snapshot, World, cases, fixture, image_without_namespaces, requires, root_cases,
};
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount,
};

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

/// One way in which the store gets another name in the root.
struct Way {
    name: &'static str,
    /// Once, before the session opens.
    prepare: fn(&Places),
    make: fn(&Places),
    undo: fn(&Places),
    /// The name of `P/db` then, below the root.
    reaches: &'static str,
    /// What the refusal names; `None` where the store itself lies in the root.
    alias: Option<(&'static str, &'static str)>,
}

fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>) {
    // What a user namespace has inherited cannot be shown without what is mounted on it.
    mount_bind(source.as_ref(), target.as_ref())
        .or_else(|_| mount_bind_recursive(source.as_ref(), target.as_ref()))
        .unwrap();
    fixture::assert_bind_mount(target, source);
}

fn gone(at: impl AsRef<Path>) {
    unmount(at.as_ref(), UnmountFlags::DETACH).unwrap();
}

const WAYS: &[Way] = &[
    Way {
        name: "the store is mounted in the root",
        prepare: |places| drop(directory(places.join("W/in"))),
        make: |places| bind(places.private(), places.join("W/in")),
        undo: |places| gone(places.join("W/in")),
        reaches: "in/db",
        alias: Some(("mount", "in")),
    },
    Way {
        name: "the directory above is mounted in the root",
        prepare: |places| drop(directory(places.join("W/in"))),
        make: |places| bind(places.path(), places.join("W/in")),
        undo: |places| gone(places.join("W/in")),
        reaches: "in/P/db",
        alias: Some(("mount", "in/P")),
    },
    Way {
        name: "a file of the store is mounted on a file in the root",
        prepare: |places| fs::write(places.join("W/f"), "").unwrap(),
        make: |places| bind(places.secret(), places.join("W/f")),
        undo: |places| gone(places.join("W/f")),
        reaches: "f",
        alias: Some(("mount", "f")),
    },
    Way {
        name: "what covered a mount of the store has gone",
        prepare: |places| {
            directory(places.join("W/in/deep"));
            bind(places.private(), places.join("W/in/deep"));
            mount("tmpfs", places.join("W/in"), "tmpfs", MountFlags::empty(), None).unwrap();
        },
        make: |places| gone(places.join("W/in")),
        undo: |places| mount("tmpfs", places.join("W/in"), "tmpfs", MountFlags::empty(), None).unwrap(),
        reaches: "in/deep/db",
        alias: Some(("mount", "in/deep")),
    },
    Way {
        name: "a read-only mount of the store becomes writable",
        prepare: |places| {
            directory(places.join("W/in"));
            bind(places.private(), places.join("W/in"));
            mount_remount(places.join("W/in"), MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        },
        make: |places| mount_remount(places.join("W/in"), MountFlags::BIND, "").unwrap(),
        undo: |places| mount_remount(places.join("W/in"), MountFlags::BIND | MountFlags::RDONLY, "").unwrap(),
        reaches: "in/db",
        alias: Some(("mount", "in")),
    },
    Way {
        name: "a directory that carries a mount of the store moves into the root",
        prepare: |places| {
            directory(places.join("carrier/in"));
            bind(places.private(), places.join("carrier/in"));
        },
        make: |places| fs::rename(places.join("carrier"), places.join("W/carrier")).unwrap(),
        undo: |places| fs::rename(places.join("W/carrier"), places.join("carrier")).unwrap(),
        reaches: "carrier/in/db",
        alias: Some(("mount", "carrier/in")),
    },
    Way {
        name: "the store moves into the root",
        prepare: |_| {},
        make: |places| fs::rename(places.private(), places.join("W/P")).unwrap(),
        undo: |places| fs::rename(places.join("W/P"), places.private()).unwrap(),
        reaches: "P/db",
        alias: None,
    },
    Way {
        name: "a file of the store gets a name in the root",
        prepare: |_| {},
        make: |places| fs::hard_link(places.secret(), places.join("W/link")).unwrap(),
        undo: |places| fs::remove_file(places.join("W/link")).unwrap(),
        reaches: "link",
        alias: Some(("hard-link", "link")),
    },
];

async fn works(session: &Session, places: &Places) {
    let output = sh(session, "echo w > works && cat works").await;
    assert_eq!(done(&output), "w\n");
    assert!(output.marks.is_empty(), "{:?}", output.marks);
    fs::remove_file(places.join("W/works")).unwrap();
}

fn assert_says(error: &Error, places: &Places, way: &Way) {
    assert_eq!(error.kind(), ErrorKind::RootOverlap, "{}: {}", way.name, error.report());
    assert_eq!(path(error, "root"), places.write_root());
    match way.alias {
        Some((kind, name)) => {
            assert_eq!(
                (text(error, "relation"), text(error, "alias")),
                ("alias", kind),
                "{}: {error:?}",
                way.name
            );
            assert!(path(error, "other_name").ends_with(name), "{}: {error:?}", way.name);
        }
        None => assert_eq!(text(error, "relation"), "around", "{error:?}"),
    }
}

fn assert_mark(marks: &[Mark], error: &Error) {
    let [Mark::AliasFound { code, message, .. }] = marks else { panic!("not one mark: {marks:?}") };
    assert_eq!((*code, message), (error.code(), &error.to_string()));
}

/// As on a host without namespaces, where commands see the host's mounts as they are.
fn plain(places: &Places) -> SessionBuilder {
    places.session()._worker_image(image_without_namespaces())
}

/// One way where commands have a mount view: the mounts are those of the moment of the grant.
async fn stays_away(places: &Places, way: &Way) {
    (way.prepare)(places);
    let session = places.open().await;
    assert!(session.enforcement().await.keeps(Protection::Metadata), "there is no mount view");
    works(&session, places).await;
    (way.make)(places);
    let name = places.write_root().join(way.reaches);
    let secret = Snapshot::of(&name);
    for _ in 0..2 {
        // What lies there below the mount is the root's own, and may be changed.
        let script = format!("cat '{0}'; chmod 600 '{0}'; echo evil >> '{0}'; echo done", name.display());
        let output = sh(&session, &script).await;
        let text = output.stdout.text();
        assert!(text.ends_with("done\n") && text.lines().all(|line| line != "s"), "{}: {output:?}", way.name);
        assert!(output.marks.is_empty(), "{}: {:?}", way.name, output.marks);
    }
    secret.assert_unchanged();
    assert_eq!(fs::read(&name).unwrap(), b"s", "{}", way.name);
    // A new grant is made of the mounts that are there now.
    let error = refused(session.replace_write_roots([places.write_root()]).await, ErrorKind::RootOverlap);
    assert_says(&error, places, way);
    works(&session, places).await;
    (way.undo)(places);
    session.replace_write_roots([places.write_root()]).await.unwrap();
    works(&session, places).await;
    assert!(close(&session).await.marks.is_empty());
    assert_eq!(fs::read(places.secret()).unwrap(), b"s");
}

/// One way, from its beginning to its end.
async fn appears(places: &Places, way: &Way, builder: fn(&Places) -> SessionBuilder) {
    (way.prepare)(places);
    let session = open(builder(places)).await;
    works(&session, places).await;
    let before = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
    assert!(before.marks().is_empty());

    (way.make)(places);
    let name = places.write_root().join(way.reaches);
    assert_eq!(fs::read(&name).unwrap(), b"s", "{}", way.name);
    // The harm: a wrapper without a guard lets the command through.
    let append = ["open-append", name.to_str().unwrap()];
    naively(&[places.write_root()], Scopes::None, &append).assert_done();
    assert_ne!(fs::read(&name).unwrap(), b"s", "{}", way.name);
    fs::write(&name, "s").unwrap();

    let secret = Snapshot::of(&name);
    let evil = format!("echo evil > '{}'; echo evil > new", name.display());
    let mut messages = Vec::new();
    for _ in 0..2 {
        let error =
            refused(session.command("/bin/sh").args(["-c", &evil]).output().await, ErrorKind::RootOverlap);
        assert_says(&error, places, way);
        messages.push(error.to_string());
        assert_mark(&before.marks(), &error);
    }
    assert_eq!(messages[0], messages[1]);
    // C95: a replacement by the same roots is refused alike, and the old grant stays.
    let error = refused(session.replace_write_roots([places.write_root()]).await, ErrorKind::RootOverlap);
    assert_says(&error, places, way);
    assert_eq!(session.write_roots().await, [places.write_root()]);
    secret.assert_unchanged();
    assert!(!places.join("W/new").exists());

    (way.undo)(places);
    works(&session, places).await;
    // What had been running keeps its mark, and what started afterwards has none.
    assert_eq!(before.marks().len(), 1, "{}", way.name);
    let after = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
    assert!(after.marks().is_empty());

    // It appears while a command runs, which is told by the command's own outcome.
    let ready = places.join("W/ready");
    let script = "echo > ready; while [ -e ready ]; do sleep 0.01; done";
    let command = session.command("/bin/sh").args(["-c", script]);
    let appear = async {
        while !ready.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        (way.make)(places);
        fs::remove_file(&ready).unwrap();
    };
    let (output, ()) = tokio::join!(command.output(), appear);
    let output = output.unwrap();
    assert!(output.status.success(), "{}: {output:?}", way.name);
    let error = session.command("/bin/true").output().await.unwrap_err();
    assert_mark(&output.marks, &error);
    assert_mark(&after.marks(), &error);

    // The session can be closed all the same, and says why its commands are in doubt.
    let report = close(&session).await;
    assert_eq!(report.killed(), 2, "{}", way.name);
    assert_mark(&report.marks, &error);
    // A new one is refused, and opens again once the name is gone; its report has no mark.
    // (Where the store itself was moved, a new session would begin a new one at its path.)
    if way.alias.is_some() {
        let error = refused(builder(places).open().await, ErrorKind::RootOverlap);
        assert_says(&error, places, way);
    }
    (way.undo)(places);
    let session = open(builder(places)).await;
    works(&session, places).await;
    assert!(close(&session).await.marks.is_empty());
    assert_eq!(fs::read(places.secret()).unwrap(), b"s");
}

cases! {
    /// C08, C09, C10, C13, C16, C95: every way, between two commands and while one runs.
    fn names_that_appear_mount(world: &World, seconds = 240) {
        requires!(Need::Landlock);
        assert_part(world, "appear");
    }
}

/// Every way, each in a world of its own below a directory, because a prepared mount stays.
fn appear_below(above: &Path) -> Vec<&'static str> {
    let every = WAYS.iter().enumerate().map(|(number, way)| {
        let places = Places::make_at(above.join(format!("way-{number}")));
        // For whoever reads why it failed.
        eprintln!("{}: {}", places.path().display(), way.name);
        host::block_on(appears(&places, way, plain));
        places.assert_nothing_left();
        let viewed = Places::make_at(above.join(format!("v-{number}")));
        eprintln!("{}: {}, with a view", viewed.path().display(), way.name);
        if way.alias.is_some_and(|(kind, _)| kind == "mount") {
            host::block_on(stays_away(&viewed, way));
        } else {
            host::block_on(appears(&viewed, way, Places::session));
        }
        viewed.assert_nothing_left();
        way.name
    });
    every.collect()
}

fn appear(places: &Places) {
    say(places, "ways", appear_below(places.path()));
}

/// Runs a program that must succeed.
#[track_caller]
fn ran(program: &str, arguments: &[&str]) {
    // Programs that make file systems are on nobody's search path but root's.
    let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new("env").args([path, program]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A file system in a file, mounted.
fn disk(places: &Places, fs_type: &str) -> PathBuf {
    let (image, at) = (places.join(format!("{fs_type}.image")), directory(places.join(fs_type)));
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let (image, point) = (image.to_str().unwrap(), at.to_str().unwrap());
    ran(&format!("mkfs.{fs_type}"), &["-q", image]);
    ran("mount", &["-t", fs_type, "-o", "loop", image, point]);
    assert!(fixture::is_mount_point(&at));
    at
}

fn on_ext4(places: &Places) {
    say(places, "ways", appear_below(&disk(places, "ext4")));
}

fn on_btrfs(places: &Places) {
    let subvolume = disk(places, "btrfs").join("v");
    ran("btrfs", &["-q", "subvolume", "create", subvolume.to_str().unwrap()]);
    say(places, "ways", appear_below(&subvolume));
}

fn on_tmpfs(places: &Places) {
    let at = directory(places.join("tmpfs"));
    mount("tmpfs", &at, "tmpfs", MountFlags::empty(), None).unwrap();
    say(places, "ways", appear_below(&at));
}

/// Layers on one file system, or on two with numbers of their own.
fn on_overlay(places: &Places) {
    let mut ways = Vec::new();
    for two in [false, true] {
        let base = directory(places.join(if two { "o2" } else { "o1" }));
        if two {
            let upper = directory(base.join("upper"));
            mount("tmpfs", &upper, "tmpfs", MountFlags::empty(), None).unwrap();
        }
        let [lower, upper, work, merged] =
            ["lower", "upper/layer", "upper/work", "m"].map(|name| directory(base.join(name)));
        // What the cases change lies in the lower layer at first.
        for way in 0..WAYS.len() {
            let _below = Places::make_at(lower.join(format!("way-{way}")));
            let _below = Places::make_at(lower.join(format!("v-{way}")));
        }
        let layers = [lower, upper, work].map(|layer| layer.to_str().unwrap().to_owned());
        let options = format!(
            "lowerdir={},upperdir={},workdir={},xino=off,redirect_dir=on",
            layers[0], layers[1], layers[2]
        );
        let options = std::ffi::CString::new(options).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        ways = appear_below(&merged);
    }
    say(places, "ways", ways);
}

fn assert_part(world: &World, part: &str) {
    let places = Places::of(world);
    let mut host = Host::start(&places, Host::with_own_mounts(&places, "host", part));
    let ways: Vec<_> = WAYS.iter().map(|way| serde_json::Value::from(way.name)).collect();
    assert_eq!(host.hear("ways"), serde_json::Value::from(ways));
    host.finish();
    places.assert_nothing_left();
}

root_cases! {
    /// The same on other file systems.
    fn names_that_appear_on_ext4_mount(world: &World) {
        assert_part(world, "on_ext4");
    }

    fn names_that_appear_on_btrfs_mount(world: &World) {
        requires!(Need::Btrfs, "runs sessions on a subvolume");
        assert_part(world, "on_btrfs");
    }

    fn names_that_appear_on_tmpfs_mount(world: &World) {
        assert_part(world, "on_tmpfs");
    }

    fn names_that_appear_on_overlay_mount(world: &World) {
        assert_part(world, "on_overlay");
    }
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[
        ("appear", appear),
        ("on_ext4", on_ext4),
        ("on_btrfs", on_btrfs),
        ("on_tmpfs", on_tmpfs),
        ("on_overlay", on_overlay),
    ]);
}
