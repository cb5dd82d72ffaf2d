//! What commands of root keep of its powers: nothing, or, where a mount view keeps everything outside the roots as it is,
//! those over files.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use bailiwick::{ErrorKind, Field, Protection, RootCapabilities, Session, SessionBuilder};
use bailiwick_test::boundary::{run, session};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Places, Snapshot, World, case, cases};

/// Nobody's, and not the one that plain runs have.
const SOMEBODY: u32 = 61_240;
/// CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER.
const FILES: &str = "000000000000000b";

async fn sets(session: &Session) -> Vec<String> {
    let status = done(&sh(session, "cat /proc/self/status").await);
    let set = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].map(set).to_vec()
}

/// The root belongs to somebody else, as the workspace of a container mostly does.
async fn foreign_root(world: &World) {
    let root = world.write_root();
    let file = root.join("file");
    fs::write(&file, "theirs\n").unwrap();
    for path in [&file, &root] {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();

    // Without powers root is somebody else there. What would help is named.
    let places = Places::of(world);
    let error = refused(places.session().open().await, ErrorKind::RootNotAccessible);
    assert!(error.hints().iter().any(|hint| hint.contains("`files`")), "{}", error.report());

    let session = open(places.session().root_capabilities(RootCapabilities::Files)).await;
    assert_eq!(sets(&session).await, [FILES, FILES, FILES, "0000000000000000"]);
    let enforcement = session.enforcement().await;
    assert!(enforcement.keeps(Protection::Privileges) && enforcement.keeps(Protection::Metadata));
    let script = "cat file && echo more >> file && mkdir -m 700 d && echo new > d/n && chmod 640 file && chown 0:0 d/n";
    assert_eq!(done(&sh(&session, script).await), "theirs\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "theirs\nmore\n");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(root.join("d/n")).unwrap().uid(), 0);

    // Outside, nothing changes: not what belongs to root, and not what belongs to others.
    let (mine, theirs) = (world.outside_file(), world.outside().join("theirs"));
    fs::write(&theirs, "t").unwrap();
    chown(&theirs, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    for path in [mine, theirs] {
        let before = Snapshot::of(&path);
        for act in ["chmod 777", "chown 0:0", "chown 61240", "touch", "rm -f", "truncate -s 0"] {
            let tried = sh(&session, &format!("{act} {}", path.display())).await;
            assert!(!tried.status.success(), "{act}: {}", tried.stdout.text());
        }
        let path = path.to_str().unwrap();
        for act in
            [&["chmod", path, "0777"][..], &["chown", path, "0", "0"], &["truncate", path], &["utimes", path]]
        {
            run(&session, act).await.assert_refused(&["EROFS"]);
        }
        before.assert_unchanged();
    }
    // No other power is among them.
    for act in ["mknod node c 1 3", "chroot . /bin/true", "mount -t tmpfs t d", "chmod u+s file"] {
        assert!(!sh(&session, act).await.status.success(), "{act}");
    }
    close(&session).await;
}

async fn unavailable(world: &World, builder: impl Fn() -> SessionBuilder, needs: &str) {
    let asked = builder().root_capabilities(RootCapabilities::Files);
    let error = refused(asked.open().await, ErrorKind::RootCapabilitiesUnavailable);
    assert_eq!(error.field("needs").and_then(Field::as_text), Some(needs), "{}", error.report());
    Places::of(world).assert_nothing_left();
    // A grant that asks for no powers is not touched by it.
    close(&open(builder()).await).await;
}

cases! {
    /// By default, and by that name, commands hold nothing.
    async fn none_are_kept_unless_asked_for(world: &World) {
        let places = Places::of(world);
        let asked = places.session().root_capabilities(RootCapabilities::None);
        for builder in [session(world), places.session(), asked] {
            let session = open(builder).await;
            let sets = sets(&session).await;
            assert_eq!(sets[..2], ["0000000000000000"; 2], "{sets:?}");
            close(&session).await;
        }
    }

    /// Kept inside a mount view by root, and refused to everybody else.
    async fn files_need_root(world: &World) {
        if case::is_root() {
            foreign_root(world).await;
        } else {
            unavailable(world, || Places::of(world).session(), "root").await;
        }
    }

    /// Without a mount view they would reach every file.
    async fn files_need_a_mount_view(world: &World) {
        unavailable(world, || session(world), "mount-view").await;
    }
}
