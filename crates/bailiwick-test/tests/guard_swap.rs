//! Roots that are swapped, removed or replaced while a session is open: C07, C57, C95.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bailiwick::{Error, ErrorKind, Session};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::{Places, Snapshot, cases, wait_until};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Exchanges two names at full speed until it is dropped.
struct Exchange {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Exchange {
    fn start(one: &Path, other: &Path) -> Self {
        let (one, other) = (one.to_owned(), other.to_owned());
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            // An even number, so that the names are as before when it has stopped.
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..2 {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
                counted.fetch_add(2, Ordering::Relaxed);
            }
        });
        Self { stop, rounds, thread: Some(thread) }
    }

    fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Whether a refusal says that a root is not what it was, by index and path.
#[track_caller]
fn assert_root_moved(error: &Error, root: &Path) {
    let known = [ErrorKind::RootIdentityChanged, ErrorKind::RootMissing, ErrorKind::RootOverlap];
    assert!(known.contains(&error.kind()), "{}", error.report());
    assert_eq!(error.field("root").and_then(bailiwick::Field::as_path), Some(root));
    assert_eq!(error.field("root_index").and_then(bailiwick::Field::as_number), Some(0));
    assert_eq!(error.ran(), bailiwick::Ran::Nothing);
}

async fn runs(session: &Session) -> Result<(), Error> {
    session.command("/bin/true").output().await.map(|output| assert!(output.status.success()))
}

cases! {
    /// C07, first form: between two turns the root's name is given to a link to the store.
    async fn c07_root_swapped_for_a_link_to_the_store(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        done(&sh(&session, "echo first > db").await);
        let (root, old, secret) = (places.write_root(), places.join("W.old"), Snapshot::of(places.secret()));
        fs::rename(&root, &old).unwrap();
        symlink(places.private(), &root).unwrap();

        let evil = format!("echo evil > {0}/db; echo evil > {0}/new", root.display());
        let error = refused(
            session.command("/bin/sh").args(["-c", &evil]).output().await,
            ErrorKind::RootIdentityChanged,
        );
        assert_root_moved(&error, &root);
        secret.assert_unchanged();
        assert!(!places.private().join("new").exists());
        assert_eq!(fs::read(old.join("db")).unwrap(), b"first\n");
        // Granting the name anew finds the store behind it.
        refused(session.replace_write_roots([&root]).await, ErrorKind::RootOverlap);

        // The twin: the same command once the directory is back, and what it writes stays in the root.
        fs::remove_file(&root).unwrap();
        fs::rename(&old, &root).unwrap();
        done(&sh(&session, &evil).await);
        assert_eq!(fs::read(root.join("db")).unwrap(), b"evil\n");
        secret.assert_unchanged();
        close(&session).await;
    }

    /// C07: the root itself is moved away and an empty directory takes its name; the store is moved below it.
    async fn c07_root_moved_and_store_moved_below_it(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        runs(&session).await.unwrap();
        let (root, old) = (places.write_root(), places.join("W.old"));
        fs::rename(&root, &old).unwrap();
        fs::create_dir(&root).unwrap();
        let error = refused(runs(&session).await, ErrorKind::RootIdentityChanged);
        assert_root_moved(&error, &root);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        fs::remove_dir(&root).unwrap();
        fs::rename(&old, &root).unwrap();
        runs(&session).await.unwrap();

        // A move changes neither device nor inode nor link count of what was moved.
        let moved = root.join("P");
        fs::rename(places.private(), &moved).unwrap();
        let error = refused(runs(&session).await, ErrorKind::RootOverlap);
        assert_root_moved(&error, &root);
        assert_eq!(fs::read(moved.join("db")).unwrap(), b"s");
        fs::rename(&moved, places.private()).unwrap();
        runs(&session).await.unwrap();
        close(&session).await;
    }

    /// C07, second form: the root and a link to the store are exchanged at full speed while commands run.
    async fn c07_root_swapped_in_a_loop(world: &World, seconds = 240) {
        const RUNS: u32 = 300;
        let places = Places::of(world);
        let (root, link) = (places.write_root(), places.join("link"));
        symlink(places.private(), &link).unwrap();
        let before = Snapshot::of(places.secret());
        let identity = fs::metadata(&root).unwrap().ino();
        let session = places.open().await;
        let script = format!("echo evil > {0}/db; echo evil > {0}/new; echo here > ./own; true", root.display());

        let (mut ran, mut told) = (0, 0);
        let exchange = Exchange::start(&root, &link);
        let mut turn = 0;
        // As many runs as are asked for, and more until both outcomes have been seen.
        let enough = |turn, ran, told| turn >= RUNS && ran > 0 && told > 0;
        while !enough(turn, ran, told) && turn < RUNS * 20 {
            turn += 1;
            match session.command("/bin/sh").args(["-c", &script]).current_dir("/").output().await {
                Ok(output) => {
                    assert!(output.status.success());
                    ran += 1;
                }
                Err(error) => {
                    assert_root_moved(&error, &root);
                    told += 1;
                }
            }
        }
        let rounds = exchange.rounds();
        drop(exchange);
        before.assert_unchanged();
        assert!(!places.private().join("new").exists());
        assert!(ran > 0 && told > 0, "the race was not met: {ran} ran, {told} were refused, {rounds} exchanges");
        assert!(rounds > u64::from(RUNS), "{rounds} exchanges");
        assert_eq!(fs::metadata(&root).unwrap().ino(), identity);
        // After the storm the session works on.
        done(&sh(&session, "echo calm > calm").await);
        close(&session).await;

        // The control: without confinement the very script reaches the store.
        let _exchange = Exchange::start(&root, &link);
        let reached = wait_until(GENEROUS, || {
            Command::new("/bin/sh").args(["-c", &script]).current_dir(places.path()).status().unwrap();
            fs::read(places.secret()).unwrap() == b"evil\n"
        });
        assert!(reached);
    }

    /// C57: a root that was removed, and one that was made anew, are told by their own codes; the session
    /// recovers by granting the roots again.
    async fn c57_root_removed_and_made_again(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        let session = places.open().await;
        runs(&session).await.unwrap();

        fs::remove_dir_all(&root).unwrap();
        let error = refused(runs(&session).await, ErrorKind::RootMissing);
        assert_root_moved(&error, &root);
        // It stays so, and is no end of the session; a working directory elsewhere changes nothing.
        let elsewhere = session.command("/bin/true").current_dir("/").output().await;
        refused(elsewhere, ErrorKind::RootMissing);

        fs::create_dir(&root).unwrap();
        // The file system may give the same inode number again, so more than that is compared.
        let write = session.command("/bin/sh").args(["-c", "echo x > a"]).output().await;
        assert_root_moved(&refused(write, ErrorKind::RootIdentityChanged), &root);
        assert!(!root.join("a").exists());
        session.replace_write_roots([&root]).await.unwrap();
        done(&sh(&session, "echo back > a").await);
        assert_eq!(fs::read(root.join("a")).unwrap(), b"back\n");
        close(&session).await;
    }

    /// C57: the root goes while a background command has it as its working directory.
    async fn c57_root_removed_under_a_running_command(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        let session = places.open().await;
        let child = session.command("/bin/sleep").arg("300").spawn().await.unwrap();
        fs::remove_dir_all(&root).unwrap();
        let error = refused(runs(&session).await, ErrorKind::RootMissing);
        assert_root_moved(&error, &root);
        fs::create_dir(&root).unwrap();
        let error = session.replace_write_roots([&root]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionBusy);
        session.replace_write_roots([&root]).when_busy(bailiwick::WhenBusy::Kill).await.unwrap();
        assert!(bailiwick_test::process::pid_gone(child.id(), child.start_time()));
        done(&sh(&session, "echo again > a && cat a").await);
        close(&session).await;
    }

    /// C95: the roots are narrowed, a replacement fails, and the last good grant is in force throughout.
    async fn c95_failed_replacement_leaves_the_grant(world: &World) {
        let places = Places::of(world);
        let (root, narrow) = (places.write_root(), places.write_root().join("sub"));
        let session = places.open().await;
        done(&sh(&session, "mkdir sub && echo 1 > wide").await);
        let writes = async |file: &Path| {
            let output = sh(&session, &format!("echo x >> {}", file.display())).await;
            assert_eq!(output.write_roots, session.write_roots().await);
            output.status.success()
        };

        session.replace_write_roots([&narrow]).await.unwrap();
        assert_eq!(session.write_roots().await, std::slice::from_ref(&narrow));
        let wide = Snapshot::of(root.join("wide"));
        assert!(writes(&narrow.join("n")).await);
        assert!(!writes(&root.join("wide")).await);
        wide.assert_unchanged();

        let before = session.enforcement().await;
        let error = refused(
            session.replace_write_roots([root.clone(), places.join("missing")]).await,
            ErrorKind::RootNotFound,
        );
        assert_eq!(error.field("root_index").and_then(bailiwick::Field::as_number), Some(1));
        assert_eq!(session.write_roots().await, std::slice::from_ref(&narrow));
        assert_eq!(session.enforcement().await, before);
        assert!(writes(&narrow.join("n")).await);
        assert!(!writes(&root.join("wide")).await);
        wide.assert_unchanged();

        session.replace_write_roots([&root]).await.unwrap();
        assert_eq!(session.write_roots().await, std::slice::from_ref(&root));
        assert!(writes(&root.join("wide")).await);
        assert!(writes(&narrow.join("n")).await);
        wide.assert_changed();
        close(&session).await;
    }

    /// C55, second half: layers do not add up over turns; the kernel takes sixteen.
    async fn c55_many_replacements(world: &World) {
        let places = Places::of(world);
        let roots = [places.write_root(), places.outside()];
        let session = open(places.session()).await;
        for turn in 0..100 {
            let (granted, other) = (&roots[turn % 2], &roots[(turn + 1) % 2]);
            session.replace_write_roots([granted]).await.unwrap();
            let script = format!("echo {turn} > {}/turn; echo no > {}/turn", granted.display(), other.display());
            let before = Snapshot::of(other.join("turn"));
            assert!(!sh(&session, &script).await.status.success());
            assert_eq!(fs::read_to_string(granted.join("turn")).unwrap(), format!("{turn}\n"));
            before.assert_unchanged();
        }
        close(&session).await;
    }
}
