//! What a root must be before it is compared with anything.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bailiwick::identity::PinnedDir;
use bailiwick::{ErrorKind, Limit, Resource};
use bailiwick_test::{cases, fixture, user_cases};

use super::{dir, granted, issue, link, number, path, protected_at, refusal, roots, text};

cases! {
    /// C22: nothing is expanded and no current directory added; index and value are told.
    fn c22_empty_or_relative(world: &World) {
        for bad in ["", ".", "W", "~", "$HOME", "./W"] {
            let error = refusal(world, &[world.write_root(), bad.into()]);
            assert_eq!(error.kind(), ErrorKind::RootInvalid, "{bad}");
            assert_eq!((path(&error, "root"), number(&error, "root_index")), (Path::new(bad), 1));
        }
        let nul = world.write_root().join(OsStr::from_bytes(b"x\0y"));
        assert_eq!(refusal(world, &[nul]).kind(), ErrorKind::RootInvalid);
        // The twins: the same characters in a path that is absolute.
        for odd in ["~", "$HOME", "W (deleted)", "a\nb"] {
            let odd = dir(world.write_root().join(odd));
            assert_eq!(granted(&issue(world, &[&odd]).unwrap()), [odd]);
        }
    }

    /// Faults of the policy that belong to no root refuse it too.
    fn faults_beside_the_roots(world: &World) {
        let mut policy = roots(&[world.write_root()]);
        policy.env.set("A=B", "secret");
        let refused = |policy: &bailiwick::Policy| bailiwick::guard::issue(policy, protected_at(world.private())).unwrap_err();
        assert_eq!(refused(&policy).kind(), ErrorKind::EnvInvalid);
        policy.env.remove("A=B").set("A", "B");
        policy.limits = vec![Limit { resource: Resource::Cpu, soft: 2, hard: 1 }];
        assert_eq!(refused(&policy).kind(), ErrorKind::LimitInvalid);
        policy.limits = vec![Limit { resource: Resource::Cpu, soft: 1, hard: 2 }];
        bailiwick::guard::issue(&policy, protected_at(world.private())).unwrap();
    }

    /// Names that are not UTF-8 are directories like any other.
    fn names_that_are_not_utf8(world: &World) {
        let odd = dir(world.write_root().join(OsStr::from_bytes(b"\xff\xfe")));
        assert_eq!(granted(&issue(world, &[&odd]).unwrap()), std::slice::from_ref(&odd));
        let missing = odd.join("nope");
        let error = refusal(world, &[&missing]);
        assert_eq!(path(&error, "root"), missing);
        assert!(error.to_string().contains("\\xff\\xfe"), "{error}");
        let json = serde_json::to_value(&error).unwrap();
        assert!(json["fields"]["root"]["hex"].as_str().unwrap().ends_with("2ffffe2f6e6f7065"), "{json}");
    }

    /// C58: a file, a FIFO, a socket, a device; nothing hangs. The twin is the directory that holds them.
    fn c58_no_directory(world: &World) {
        let (file, fifo, socket) = (world.write_root().join("f"), world.write_root().join("p"), world.write_root().join("s"));
        fs::write(&file, "").unwrap();
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fixture::assert_fifo(&fifo);
        let _listener = UnixListener::bind(&socket).unwrap();
        fixture::assert_socket(&socket);
        let to_file = link(&file, world.write_root().join("l"));
        let start = Instant::now();
        for (bad, found) in [
            (file, "a file"),
            (fifo, "a FIFO"),
            (socket, "a socket"),
            (to_file, "a file"),
            (PathBuf::from("/dev/null"), "a character device"),
        ] {
            let error = refusal(world, &[world.write_root(), bad.clone()]);
            assert_eq!(error.kind(), ErrorKind::RootNotDirectory, "{error:?}");
            assert_eq!((path(&error, "root"), number(&error, "root_index"), text(&error, "found")), (bad.as_path(), 1, found));
        }
        assert!(start.elapsed() < Duration::from_secs(10), "a FIFO held it up");
        issue(world, &[world.write_root()]).unwrap();
    }

    /// C58: a circle of links ends in a typed error.
    fn links_in_a_circle(world: &World) {
        let one = link("two", world.write_root().join("one"));
        link("one", world.write_root().join("two"));
        assert_eq!(refusal(world, &[&one]).kind(), ErrorKind::RootNotAccessible);
        fs::remove_file(world.write_root().join("two")).unwrap();
        dir(world.write_root().join("two"));
        issue(world, &[one]).unwrap();
    }

    /// C15a: links of the kernel name a directory that depends on who asks. Refused, as root, store and working
    /// directory; what they lead to is granted by its own name.
    fn c15_links_of_the_kernel(world: &World) {
        let held = File::open(world.write_root()).unwrap();
        let fd = held.as_raw_fd();
        let inside = |prefix: &str| PathBuf::from(format!("{prefix}{}", world.write_root().display()));
        let pid = std::process::id();
        for magic in [
            inside("/proc/self/root"),
            inside(&format!("/proc/{pid}/root")),
            inside("/proc/thread-self/root"),
            "/proc/self/cwd".into(),
            format!("/proc/self/fd/{fd}").into(),
            format!("/dev/fd/{fd}").into(),
            format!("/dev/fd/{fd}/.").into(),
            link(format!("/proc/self/fd/{fd}"), world.outside().join("indirect")),
        ] {
            assert!(magic.is_dir(), "{} leads nowhere", magic.display());
            let error = refusal(world, &[&magic]);
            assert_eq!(error.kind(), ErrorKind::RootThroughMagicLink, "{error:?}");
            assert_eq!(path(&error, "root"), magic);
            let error = PinnedDir::working_directory(&magic).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CwdInvalid, "{error:?}");
            let error = bailiwick::store::StorePlace::find(&magic).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreInvalid, "{error:?}");
        }
        // `/proc/self` is an ordinary link, and what it leads to is on a file system of the kernel.
        assert_eq!(refusal(world, &["/proc/self"]).kind(), ErrorKind::RootForbidden);
        let twin = link(world.write_root(), world.outside().join("direct"));
        issue(world, &[twin]).unwrap();
    }

    /// C21: where the kernel is controlled, and where devices are, is never a root. `/tmp` and `/dev/shm` are.
    fn c21_system_directories(world: &World) {
        for bad in ["/", "//", "/tmp/..", "/proc", "/proc/sys", "/sys", "/sys/kernel", "/dev", "/dev/pts", "/dev/fd/"] {
            assert!(Path::new(bad).is_dir(), "{bad} is missing here");
            let error = refusal(world, &[bad]);
            assert_eq!(error.kind(), ErrorKind::RootForbidden, "{error:?}");
            assert_eq!(path(&error, "root"), Path::new(bad));
            assert_eq!(error.hints().len(), 1);
        }
        if Path::new("/sys/fs/cgroup").is_dir() {
            assert_eq!(refusal(world, &["/sys/fs/cgroup"]).kind(), ErrorKind::RootForbidden);
        }
        // `/tmp` with the store elsewhere; with the store in it, refused for that reason. This program may lie in it
        // too, depending on where it was built.
        let elsewhere = protected_at("/var/tmp/bailiwick-store-that-is-not-made");
        match bailiwick::guard::issue(&roots(&["/tmp"]), elsewhere.clone()) {
            Ok(grant) => assert_eq!(granted(&grant), [Path::new("/tmp")]),
            Err(error) => {
                assert!(fs::read_link("/proc/self/exe").unwrap().starts_with("/tmp"), "{error:?}");
                assert_eq!(text(&error, "protected_kind"), "host-executable");
            }
        }
        assert_eq!(text(&refusal(world, &["/tmp"]), "protected_kind"), "store");
        bailiwick::guard::issue(&roots(&["/dev/shm"]), elsewhere).unwrap();
    }

    /// Working directories: anything that can be entered, by what it is.
    fn working_directories(world: &World) {
        assert_eq!(PinnedDir::working_directory(world.outside()).unwrap().canonical(), world.outside());
        assert_eq!(PinnedDir::working_directory("/proc").unwrap().canonical(), Path::new("/proc"));
        let to_outside = link(world.outside(), world.write_root().join("x"));
        assert_eq!(PinnedDir::working_directory(&to_outside).unwrap().canonical(), world.outside());
        for (bad, kind) in [
            (PathBuf::new(), ErrorKind::CwdInvalid),
            ("W".into(), ErrorKind::CwdInvalid),
            (world.path().join("nope"), ErrorKind::CwdNotFound),
            (world.outside_file(), ErrorKind::CwdNotDirectory),
        ] {
            let error = PinnedDir::working_directory(&bad).unwrap_err();
            assert_eq!((error.kind(), path(&error, "cwd")), (kind, bad.as_path()));
        }
    }
}

user_cases! {
    /// C58: a directory that this user cannot enter, one that it cannot write, and one that it cannot reach.
    fn c58_no_access(world: &World) {
        let closed = dir(world.write_root().join("closed"));
        let below = dir(closed.join("below"));
        for mode in [0o000, 0o444, 0o555, 0o666] {
            fs::set_permissions(&closed, Permissions::from_mode(mode)).unwrap();
            let error = refusal(world, &[world.write_root(), closed.clone()]);
            assert_eq!(error.kind(), ErrorKind::RootNotAccessible, "{mode:o}: {error:?}");
            assert_eq!((path(&error, "root"), number(&error, "root_index")), (closed.as_path(), 1));
            assert_eq!(text(&error, "mode"), format!("{mode:04o}"));
        }
        fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        assert_eq!(refusal(world, &[&below]).kind(), ErrorKind::RootNotAccessible);
        let error = PinnedDir::working_directory(&closed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CwdNotAccessible);
        // It can be protected: its name leads to what is above it. But nobody can tell what other names the files in it
        // have, while a command could open it as its owner.
        let set = bailiwick::guard::ProtectedSet::around_place(&bailiwick::store::StorePlace::find(world.private()).unwrap())
            .protect(std::slice::from_ref(&closed))
            .build()
            .unwrap();
        let error = bailiwick::guard::issue(&roots(&[world.write_root()]), set.clone()).unwrap_err();
        crate::assert_overlap(&error, world.write_root(), &closed, "around");
        let error = bailiwick::guard::issue(&roots(&[world.outside()]), set.clone()).unwrap_err();
        assert_eq!((error.kind(), path(&error, "path")), (ErrorKind::ProtectedNotAccessible, closed.as_path()));

        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        bailiwick::guard::issue(&roots(&[world.outside()]), set).unwrap().recheck().unwrap();
        issue(world, &[below, closed]).unwrap();
    }

    /// Directories of somebody else are refused before a command finds out write by write.
    fn directories_of_somebody_else(world: &World) {
        let error = refusal(world, &["/usr"]);
        assert_eq!(error.kind(), ErrorKind::RootNotAccessible);
        assert_eq!(number(&error, "owner"), 0);
    }
}
