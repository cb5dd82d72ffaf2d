//! What commands may read, limited: nothing beside it is read, listed or executed, and ordinary tools work.

#![cfg(test)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bailiwick::guard::ReadDecision;
use bailiwick::{
    Enforcement, Error, ErrorKind, Field, Layer, Network, Protection, ReadScope, Readable, Session,
    SessionBuilder, Standing,
};
use bailiwick_test::boundary::{Victim, accepting_all, run};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Listing, Need, Places, World, cases, image, requires, root_cases, tool};

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

cases! {
    /// The twin differs in one root.
    async fn a_sibling_is_neither_read_nor_listed_nor_executed(world: &World) {
        let places = Places::of(world);
        let (sibling, program) = (file(world.outside().join("d/f"), "theirs"), world.outside().join("d/p"));
        fs::copy("/bin/true", &program).unwrap();
        let own = file(world.write_root().join("f"), "ours");
        let directory = sibling.parent().unwrap();
        let list = |directory: &Path| format!("ls {}", directory.display());

        let narrow = open(limited(&places)).await;
        assert_read(&narrow, &own, "ours").await;
        assert_unreadable(&narrow, &sibling).await;
        for unlisted in [directory, world.outside().as_path(), world.path(), Path::new("/tmp"), Path::new("/")] {
            let output = sh(&narrow, &list(unlisted)).await;
            assert!(!output.status.success() && output.stdout.text().is_empty(), "{}", unlisted.display());
        }
        let error = refused(narrow.command(&program).output().await, ErrorKind::CommandNotExecutable);
        assert_eq!(field(&error, "outside"), program);
        assert!(error.hints()[0].contains("read roots"), "{}", error.report());
        done(&sh(&narrow, "ls . && test -z \"$(ls -A $TMPDIR)\" && echo x > $TMPDIR/f && cat $TMPDIR/f").await);
        close(&narrow).await;

        let wide = open(limited(&places).read_root(directory)).await;
        assert_read(&wide, &sibling, "theirs").await;
        assert_eq!(done(&sh(&wide, &list(directory)).await), "f\np\n");
        assert!(wide.command(&program).output().await.unwrap().status.success());
        // What is beside the root, and above it, stays closed.
        assert_unreadable(&wide, &world.outside_file()).await;
        assert!(!sh(&wide, &list(&world.outside())).await.status.success());
        // Nothing became writable.
        let before = Listing::of(world.outside());
        assert!(!sh(&wide, &format!("echo x > {0}/new; echo x > {0}/f; rm {0}/f", directory.display())).await.status.success());
        before.assert_unchanged();
        close(&wide).await;
    }
}
