//! The foundation tests itself: a foundation that lets a failure pass would let every test pass.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bailiwick_test::case::{self, PLAIN_UID, Rerun};
use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{Listing, Snapshot, World, cases, fixture, root_cases, user_cases, wait_until};

/// Tests that other tests of this file run again and look at.
#[cfg(test)]
mod inner {
    use bailiwick_test::case::Case;
    use bailiwick_test::{Need, requires};

    const PREFIX: &str = "foundation::inner::";

    fn case(test: &'static str, body: fn(&bailiwick_test::World)) -> Case {
        assert!(test.starts_with(PREFIX));
        Case::new(test, body)
    }

    #[test]
    #[ignore = "run again by `runs::passing`"]
    fn passes() {
        case("foundation::inner::passes", |world| assert!(world.secret().is_file())).as_user();
    }

    #[test]
    #[ignore = "fails on purpose: run again by `runs::failing`"]
    fn fails() {
        case("foundation::inner::fails", |_| panic!("on purpose")).as_user();
    }

    #[test]
    #[ignore = "outlives its limit on purpose: run again by `runs::too_slow`"]
    fn sleeps() {
        let sleep = |world: &bailiwick_test::World| {
            std::fs::write(world.private().join("slow"), "").unwrap();
            std::process::Command::new("sleep").arg("617.25").status().unwrap();
        };
        case("foundation::inner::sleeps", sleep).as_user();
    }

    #[test]
    #[ignore = "leaves a process behind on purpose: run again by `leftovers`"]
    fn leaves() {
        let leave = |_: &bailiwick_test::World| {
            let left = std::process::Command::new("sleep").arg("617.75").spawn().unwrap();
            std::mem::forget(left);
        };
        case("foundation::inner::leaves", leave).as_user();
    }

    #[test]
    #[ignore = "a plain user's run of root's half: run again by `skips`"]
    fn wants_root() {
        case("foundation::inner::wants_root", |_| panic!("ran without root")).as_root();
    }

    #[test]
    #[ignore = "a skip in the middle of a body: run again by `skips`"]
    fn skips_halfway() {
        let body = |_: &bailiwick_test::World| {
            requires!(Need::Root, "renames the machine");
            panic!("ran without root");
        };
        case("foundation::inner::skips_halfway", body).as_user();
    }
}

/// A run of an inner test as a plain user, whoever runs this.
fn rerun(test: &str) -> Rerun<'_> {
    Rerun { uid: case::is_root().then_some(PLAIN_UID), ..Rerun::new(test, GENEROUS) }
}

mod runs {
    use super::*;

    #[test]
    fn passing() {
        rerun("inner::passes").run().unwrap();
    }

    #[test]
    fn failing() {
        let failure = rerun("inner::fails").run().unwrap_err();
        assert!(failure.output().contains("on purpose"), "the output is missing: {failure}");
        assert!(!failure.is_late() && !failure.is_not_run());
    }

    #[test]
    fn unknown() {
        let failure = rerun("inner::no_such_test").run().unwrap_err();
        assert!(failure.is_not_run(), "{failure}");
    }

    #[test]
    fn too_slow() {
        let failure = Rerun { limit: Duration::from_secs(3), ..rerun("inner::sleeps") }.run().unwrap_err();
        assert!(failure.is_late(), "{failure}");
        let is_gone = || !process::all().iter().any(|one| one.arguments().iter().any(|a| a == "617.25"));
        assert!(wait_until(GENEROUS, is_gone), "a descendant outlived the time limit");
        let worlds =
            fs::read_dir("/tmp").unwrap().flatten().filter(|entry| entry.path().join("P/slow").exists());
        assert_eq!(worlds.count(), 0, "the world of a killed run stays");
    }
}

mod skips {
    use super::*;

    fn recorded(world: &World, test: &str) -> serde_json::Value {
        let ledger = world.path().join("ledger.jsonl");
        Rerun { ledger: Some(&ledger), require: Some(""), ..rerun(test) }.run().unwrap();
        let lines = fs::read_to_string(&ledger).unwrap();
        assert_eq!(lines.lines().count(), 1, "{lines}");
        serde_json::from_str(&lines).unwrap()
    }

    #[test]
    fn are_recorded() {
        let world = World::new();
        let skip = recorded(&world, "inner::skips_halfway");
        assert_eq!(skip["test"], "foundation::inner::skips_halfway");
        assert_eq!(skip["user"], "user");
        assert_eq!(skip["need"], "root");
        let reason = skip["reason"].as_str().unwrap();
        assert!(reason.starts_with("renames the machine: the effective uid is "), "{reason}");
    }

    #[test]
    fn as_root_without_root_is_one() {
        let skip = recorded(&World::new(), "inner::wants_root");
        assert_eq!(skip["test"], "foundation::inner::wants_root");
        assert_eq!(skip["need"], "root");
    }

    #[test]
    fn accumulate() {
        let world = World::new();
        let ledger = world.path().join("ledger.jsonl");
        for test in ["inner::skips_halfway", "inner::wants_root"] {
            Rerun { ledger: Some(&ledger), require: Some(""), ..rerun(test) }.run().unwrap();
        }
        assert_eq!(fs::read_to_string(&ledger).unwrap().lines().count(), 2);
    }

    #[test]
    fn fail_where_the_need_is_required() {
        for needs in ["root", "git, root", "all"] {
            let world = World::new();
            let ledger = world.path().join("ledger.jsonl");
            let run = Rerun { ledger: Some(&ledger), require: Some(needs), ..rerun("inner::skips_halfway") };
            let failure = run.run().unwrap_err();
            assert!(failure.output().contains("asks for root, which is absent"), "{failure}");
            assert!(!ledger.exists(), "a failure is no skip");
        }
    }
}

root_cases! {
    /// A uid of its own shows what a case left behind; the shared uid cannot.
    fn leftovers(_world: &World) {
        let run = Rerun { uid: Some(61299), ..rerun("inner::leaves") };
        let failure = run.run().unwrap_err();
        assert_eq!(failure.left_behind(), 1, "{failure}");
        assert!(process::of_uid(61299).iter().all(process::Process::is_zombie), "they were ended");
    }

    /// Whatever root did to its world, it can be removed, and nothing beyond it is.
    fn removal_of_what_root_made(world: &World) {
        let other = World::new();
        let kept = Snapshot::of(other.outside_file());
        let mounted = world.write_root().join("in");
        fs::create_dir(&mounted).unwrap();
        run("mount", &["--bind", &shown(&other.outside()), &shown(&mounted)]);
        fixture::assert_bind_mount(&mounted, other.outside());
        assert!(mounted.join("f").is_file());
        run("chattr", &["+i", &shown(&world.outside_file()), &shown(&world.outside())]);

        let inner = World::new();
        let path = inner.path().to_owned();
        run("mount", &["--bind", &shown(&other.outside()), &shown(&inner.write_root())]);
        run("mount", &["-t", "tmpfs", "over", &shown(&inner.write_root())]);
        drop(inner);
        assert!(!path.exists());
        kept.assert_unchanged();
        // `world` itself is removed after this body, and a failure of that fails the case.
    }
}

cases! {
    /// The table in the documentation of `World`.
    fn world_is_as_documented(world: &World) {
        for (path, mode, content) in [
            (world.path().to_owned(), 0o755, None),
            (world.private(), 0o700, None),
            (world.secret(), 0o600, Some("s")),
            (world.write_root(), 0o755, None),
            (world.outside(), 0o755, None),
            (world.outside_file(), 0o644, Some("x")),
        ] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode, "{}", path.display());
            if let Some(content) = content {
                assert_eq!(fs::read_to_string(&path).unwrap(), content);
            }
        }
        assert!(world.path().as_os_str().len() <= 20, "{} is not short", world.path().display());
    }

    /// Directories of mode 000, links and special files do not keep a world from being removed.
    fn removal_of_what_a_command_made(world: &World) {
        let inner = World::new();
        let path = inner.path().to_owned();
        let deep = inner.write_root().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), "f").unwrap();
        std::os::unix::fs::symlink(world.outside(), deep.join("link")).unwrap();
        run("mkfifo", &[&shown(&deep.join("fifo"))]);
        fixture::assert_fifo(deep.join("fifo"));
        for closed in [&deep, &inner.write_root().join("a")] {
            fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
        }
        let kept = Listing::of(world.outside());
        drop(inner);
        assert!(!path.exists());
        kept.assert_unchanged();
    }

    /// Each fact of a snapshot is noticed. The twin: nothing happened, nothing is noticed.
    fn snapshot_notices(world: &World) {
        let file = shown(&world.outside_file());
        Snapshot::of(&file).assert_unchanged();
        fs::read(&file).unwrap();
        let changes: [(&str, &[&str]); 6] = [
            ("mode", &["chmod", "600", &file]),
            ("modified", &["touch", "-d", "2001-01-01", &file]),
            ("content", &["sh", "-c", "printf y > \"$0\"", &file]),
            ("size", &["truncate", "-s", "9", &file]),
            ("inode", &["sh", "-c", "cp \"$0\" \"$0.new\" && mv \"$0.new\" \"$0\"", &file]),
            ("type", &["rm", &file]),
        ];
        for (fact, command) in changes {
            let before = Snapshot::of(&file);
            before.assert_unchanged();
            run(command[0], &command[1..]);
            let differences = before.differences();
            assert!(differences.iter().any(|line| line.starts_with(fact)), "{fact}: {differences:?}");
        }
        let absent = Snapshot::of(&file);
        assert!(absent.is_absent());
        absent.assert_unchanged();
        fs::write(&file, "again").unwrap();
        absent.assert_changed();
    }

    /// A tree's listing tells what is new, gone and different.
    fn listing_notices(world: &World) {
        let before = Listing::of(world.path());
        before.assert_unchanged();
        assert_eq!(before.checksum(), Listing::of(world.path()).checksum());
        fs::write(world.outside().join("new"), "").unwrap();
        fs::write(world.outside_file(), "y").unwrap();
        fs::remove_file(world.secret()).unwrap();
        let after = Listing::of(world.path());
        assert_ne!(before.checksum(), after.checksum());
        let differences = before.differences(&after);
        assert_eq!(differences.len(), 3, "{differences:?}");
        for (path, word) in [("P/db", "is gone"), ("X/f", "->"), ("X/new", "is new")] {
            assert!(differences.iter().any(|line| line.contains(path) && line.contains(word)), "{differences:?}");
        }
    }

    /// A process is its pid with its start time.
    fn process_identity(_world: &World) {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let start = process::start_time(pid).unwrap();
        assert!(!process::pid_gone(pid, start) && !process::pid_ended(pid, start));
        assert!(process::pid_gone(pid, start + 1), "another start time is another process");
        assert!(process::descendants(std::process::id()).iter().any(|one| one.pid == pid));
        child.kill().unwrap();
        assert!(wait_until(GENEROUS, || process::pid_ended(pid, start)));
        assert!(!process::pid_gone(pid, start), "nobody has waited for it yet");
        child.wait().unwrap();
        assert!(process::pid_gone(pid, start));
    }

    /// An `async` body runs on the runtime, timers included.
    async fn asynchronous_body(world: &World) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(world.write_root().is_dir());
    }

    /// Proofs of fixtures hold for the real thing and fail for its look-alike.
    fn proofs_of_fixtures(world: &World) {
        let (file, other) = (world.outside_file(), world.outside().join("g"));
        fixture::assert_file(&file);
        fixture::assert_directory(world.outside());
        assert!(!fixture::is_mount_point(world.outside()));
        fails(|| fixture::assert_fifo(&file));
        fails(|| fixture::assert_device(&file));
        fails(|| fixture::assert_socket(&file));
        fails(|| fixture::assert_bind_mount(world.outside(), world.outside()));
        fails(|| fixture::assert_unreadable(&file));
        fixture::assert_device("/dev/null");

        fs::copy(&file, &other).unwrap();
        fails(|| fixture::assert_hard_links(&file, &other));
        fs::remove_file(&other).unwrap();
        fs::hard_link(&file, &other).unwrap();
        fixture::assert_hard_links(&file, &other);

        let link = world.outside().join("link");
        std::os::unix::fs::symlink("f", &link).unwrap();
        fixture::assert_link(&link, "f");
        fails(|| fixture::assert_link(&link, "g"));
        let _listener = std::os::unix::net::UnixListener::bind(world.outside().join("s")).unwrap();
        fixture::assert_socket(world.outside().join("s"));
    }
}

user_cases! {
    /// What a plain run is made of. Where nobody was root, the run is the developer's own.
    fn plain_run(world: &World) {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(field("CapEff:"), "0000000000000000");
        assert!(!case::is_root());
        if std::env::var_os("BAILIWICK_TEST_ROLE").is_none() {
            return;
        }
        assert_eq!(field("Uid:"), [PLAIN_UID.to_string().as_str(); 4].join("\t"));
        assert_eq!(field("Gid:"), [PLAIN_UID.to_string().as_str(); 4].join("\t"));
        assert_eq!(field("Groups:"), "");
        assert_eq!(std::env::current_dir().unwrap(), Path::new("/"));
        let foreign: Vec<_> = std::env::vars()
            .map(|(name, _)| name)
            .filter(|name| !name.starts_with("BAILIWICK_TEST_"))
            .filter(|name| !matches!(name.as_str(), "PATH" | "HOME" | "LANG" | "RUST_BACKTRACE"))
            .collect();
        assert!(foreign.is_empty(), "handed on: {foreign:?}");
        let home = std::env::var("HOME").unwrap();
        fs::write(Path::new(&home).join("file"), "home is writable").unwrap();
        assert!(world.path().is_dir());
        assert!(bailiwick_test::tool("act").is_file() && bailiwick_test::tool("naive").is_file());
    }

    /// Mode 000 hides a directory and a file from a plain user.
    fn unreadable(world: &World) {
        fs::set_permissions(world.outside_file(), fs::Permissions::from_mode(0o000)).unwrap();
        fixture::assert_unreadable(world.outside_file());
        fs::set_permissions(world.outside(), fs::Permissions::from_mode(0o000)).unwrap();
        fixture::assert_unreadable(world.outside());
    }

    /// A case that forks takes a uid of its own and binds it.
    fn own_uid(_world: &World, uid = 61298, seconds = 60) {
        case::limit_processes(40);
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max processes")).unwrap();
        assert_eq!(line.split_whitespace().nth(2), Some("40"));
    }
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn fails(assertion: impl Fn()) {
    let assertion = std::panic::AssertUnwindSafe(assertion);
    assert!(std::panic::catch_unwind(assertion).is_err(), "the assertion held");
}
