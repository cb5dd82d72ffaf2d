//! The host's own executable, and hosts that lack what the guard needs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bailiwick::guard::{self, ProtectedKind, ProtectedSet};
use bailiwick::store::{StoreDir, StorePlace};
use bailiwick::{ErrorKind, Ran};
use bailiwick_test::{World, cases};

use super::{assert_overlap, dir, protected_at, roots, text};

/// Tells `inner` where its world is, when it runs in a process of its own.
const INNER: &str = "BAILIWICK_TEST_GUARD_INNER";

/// A copy of this test program at `at`, run so that only `inner` of it runs.
fn run_copy(at: &Path, world: &World, mode: &str) -> std::process::Output {
    // By a program of its own: while another thread of this one starts something, the copy would be open for writing
    // in that child, and the kernel runs no such file.
    assert!(
        Command::new("cp")
            .arg(format!("/proc/{}/exe", std::process::id()))
            .arg(at)
            .status()
            .unwrap()
            .success()
    );
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(at)
        .args(["--exact", "host::inner", "--nocapture", "--include-ignored"])
        .env_clear()
        .env(INNER, format!("{mode}:{}", world.path().display()))
        .output()
        .unwrap()
}

/// Not a test by itself: the part of the cases below that runs as an executable at a chosen place.
#[test]
#[ignore = "run by the cases of this file in a copy of the program"]
fn inner() {
    let Ok(setting) = std::env::var(INNER) else { return };
    let (mode, base) = setting.split_once(':').unwrap();
    let base = PathBuf::from(base);
    let exe = std::env::current_exe().unwrap();
    if mode == "removed" {
        fs::remove_file(&exe).unwrap();
    }
    let set = protected_at(base.join("P"));
    let of_executable = set.objects().iter().find(|object| object.kind() == ProtectedKind::HostExecutable);
    if mode == "removed" {
        assert!(of_executable.is_none());
        assert_eq!(set.notes().len(), 1);
        assert_eq!(guard::explain(&roots(&[base.join("W")]), &set).notes, set.notes());
        guard::issue(&roots(&[base.join("W")]), set).unwrap().recheck().unwrap();
    } else {
        assert_eq!(of_executable.unwrap().canonical(), exe);
        assert!(set.notes().is_empty());
        for around in [base.join("W"), base.join("W/node_modules/.bin")] {
            let error = guard::issue(&roots(&[&around]), set.clone()).unwrap_err();
            assert_overlap(&error, &around, &exe, "around");
            assert_eq!(text(&error, "protected_kind"), "host-executable");
        }
        // The ways out that the refusal names: a directory beside it; and the outer case runs the twin, the same
        // program from outside of the root.
        let beside = dir(base.join("W/src"));
        let grant = guard::issue(&roots(&[beside]), set).unwrap();
        grant.recheck().unwrap();
        // Removed while the session is open (an upgrade): nothing of it is left to protect.
        fs::remove_file(&exe).unwrap();
        grant.recheck().unwrap();
    }
    print!("INNER DONE");
}

fn assert_done(output: &std::process::Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("INNER DONE"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

cases! {
    /// C19, the part that identity shows: the executable lies in a root.
    fn executable_inside_a_root(world: &World) {
        let bin = dir(world.write_root().join("node_modules/.bin"));
        assert_done(&run_copy(&bin.join("agent"), world, "inside"));
        // The twin: this very program, which lies elsewhere.
        guard::issue(&roots(&[world.write_root()]), protected_at(world.private())).unwrap();
    }

    /// An executable that no name leads to is recorded, and refuses nothing.
    fn executable_without_a_name(world: &World) {
        assert_done(&run_copy(&world.write_root().join("agent"), world, "removed"));
    }

    /// The set always names the executable that really runs, even where its name cannot be reached by this user.
    fn executable_is_protected(world: &World) {
        let set = protected_at(world.private());
        let name = fs::read_link("/proc/self/exe").unwrap();
        let found = set.objects().iter().find(|object| object.kind() == ProtectedKind::HostExecutable).unwrap();
        assert_eq!(found.canonical(), name);
    }

    /// A runtime home outside of the store is protected by itself.
    fn runtime_home_elsewhere(world: &World) {
        let home = dir(world.outside().join("home"));
        let place = StorePlace::find(world.private()).unwrap();
        let set = ProtectedSet::around_place(&place).runtime_home(&home).build().unwrap();
        let error = guard::issue(&roots(&[world.outside()]), set.clone()).unwrap_err();
        assert_overlap(&error, world.outside(), &home, "around");
        assert_eq!(text(&error, "protected_kind"), "runtime-home");
        guard::issue(&roots(&[world.write_root()]), set).unwrap();
        let error = ProtectedSet::around_place(&place).runtime_home(Path::new("home")).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProtectedInvalid);
    }

    /// A kernel or a container without `openat2` is refused by name: there is no weaker check to fall back to.
    fn no_openat2(world: &World) {
        let (protected, private) = (protected_at(world.private()), world.private());
        let policy = roots(&[world.write_root()]);
        for errno in [libc::ENOSYS, libc::EPERM] {
            let (error, store, verdict) = std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        crate::sys::refuse_openat2(errno);
                        let error = guard::issue(&policy, protected.clone()).unwrap_err();
                        (error, StoreDir::open_or_create(&private).unwrap_err(), guard::explain(&policy, &protected))
                    })
                    .join()
                    .unwrap()
            });
            assert_eq!((error.kind(), error.ran()), (ErrorKind::PlatformUnsupported, Ran::Nothing), "{error:?}");
            assert_eq!((text(&error, "needs"), text(&error, "since")), ("openat2", "Linux 5.6"));
            assert_eq!(store.kind(), ErrorKind::PlatformUnsupported);
            assert!(!verdict.granted);
            assert!(!world.private().join("lock").exists());
        }
        // The twin: the same calls on a thread without the filter.
        guard::issue(&policy, protected).unwrap();
    }
}
