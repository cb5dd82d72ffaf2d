//! What bailiwick refuses, and that nothing was made then.

use std::fs;

use bailiwick_test::{Listing, Need, cases, requires};

use crate::invoke::{Call, GAPS, below, home};

cases! {
    /// No store, no directory above it, no file in a store that is there: as if bailiwick had not been called.
    fn a_refused_root_leaves_nothing(world: &World) {
        requires!(Need::LandlockAbi6);
        let (root, file) = (world.write_root(), world.outside_file());
        let missing = world.path().join("missing");
        let protected = world.secret();
        let store = world.path().join("store");
        let empty_store = world.private();
        fs::write(root.join("kept"), "").unwrap();
        fs::remove_file(world.secret()).unwrap();
        fs::write(&protected, "s").unwrap();
        let home = home(world);
        let p = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let cases: Vec<(Vec<String>, &str)> = vec![
            (vec!["--write-root".into(), String::new()], "ERR_BAILIWICK_ROOT_INVALID"),
            (vec!["--write-root".into(), "W".into()], "ERR_BAILIWICK_ROOT_INVALID"),
            (vec!["--write-root".into(), ".".into()], "ERR_BAILIWICK_ROOT_INVALID"),
            (vec!["--write-root".into(), "~".into()], "ERR_BAILIWICK_ROOT_INVALID"),
            (vec!["--write-root".into(), p(&missing)], "ERR_BAILIWICK_ROOT_NOT_FOUND"),
            (vec!["--write-root".into(), p(&file)], "ERR_BAILIWICK_ROOT_NOT_DIRECTORY"),
            (vec!["--write-root".into(), "/".into()], "ERR_BAILIWICK_ROOT_FORBIDDEN"),
            (vec!["--write-root".into(), "/proc".into()], "ERR_BAILIWICK_ROOT_FORBIDDEN"),
            // The home holds the place of the store.
            (vec!["--write-root".into(), p(&home)], "ERR_BAILIWICK_ROOT_OVERLAP"),
            (
                vec!["--store".into(), p(&store), "--write-root".into(), p(world.path())],
                "ERR_BAILIWICK_ROOT_OVERLAP",
            ),
            (
                vec!["--store".into(), p(&empty_store), "--write-root".into(), p(world.path())],
                "ERR_BAILIWICK_ROOT_OVERLAP",
            ),
            (
                vec!["--protect".into(), p(&protected), "--write-root".into(), p(world.path())],
                "ERR_BAILIWICK_ROOT_OVERLAP",
            ),
            (vec!["--protect".into(), p(&missing)], "ERR_BAILIWICK_PROTECTED_NOT_FOUND"),
            (vec!["--protect".into(), "f".into()], "ERR_BAILIWICK_PROTECTED_INVALID"),
            (vec!["--store".into(), "store".into()], "ERR_BAILIWICK_STORE_INVALID"),
            (vec!["--store".into(), p(&missing.join("store"))], "ERR_BAILIWICK_STORE_NOT_ACCESSIBLE"),
            (vec!["--env".into(), "TMPDIR=/t".into()], "ERR_BAILIWICK_ENV_INVALID"),
            (vec!["--env".into(), "=x".into()], "ERR_BAILIWICK_ENV_INVALID"),
        ];
        for (options, code) in cases {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let before = (Listing::of(&home), Listing::of(&root), Listing::of(&empty_store));
            let refused = Call::new(world, &options).script("touch ran");
            refused.assert_refused(code);
            let after = (Listing::of(&home), Listing::of(&root), Listing::of(&empty_store));
            assert_eq!(after, before, "{options:?}");
            assert!(!store.exists(), "{options:?}");
        }
        // Twin: the same world, granted.
        Call::new(world, &["--store", &p(&store), "--protect", &p(&protected)])
            .script("touch ran")
            .assert_exited(0);
        assert!(root.join("ran").exists() && store.is_dir());
    }

    /// The library words the refusal, and the program adds the option that helps.
    fn hints_name_options(world: &World) {
        requires!(Need::LandlockAbi6);
        let here = world.path().to_str().unwrap().to_owned();
        let (private, secret) = (world.private(), world.secret());
        for (options, hint) in [
            (vec!["--write-root", "sub"], "--write-root` `"),
            (vec!["--write-root", &here, "--store", &format!("{here}/store")], "`--store D`"),
            (
                vec!["--write-root", private.to_str().unwrap(), "--protect", secret.to_str().unwrap()],
                "`--protect` `",
            ),
            (vec!["--current-dir", "/no/such"], "`--current-dir D`"),
            (vec!["--store", "/no/such/store"], "`--store D`"),
        ] {
            let refused = Call::new(world, &options).end(&["true"]);
            assert_eq!(refused.code(), 125);
            assert!(
                refused.stderr.lines().any(|line| line.starts_with("hint: ") && line.contains(hint)),
                "{refused:?}"
            );
            let hints = refused.json["hints"].as_array().unwrap();
            assert!(hints.iter().any(|told| told.as_str().unwrap().contains(hint)), "{refused:?}");
        }
    }

    fn an_unknown_gap_lists_every_name(world: &World) {
        requires!(Need::LandlockAbi6);
        for value in ["everything", "", "Metadata", "meta\u{1b}[2Jdata"] {
            let refused = Call::new(world, &["--accept", value]).script("touch ran");
            refused.assert_refused("ERR_BAILIWICK_CLI_PROTECTION_UNKNOWN");
            assert_eq!(refused.json["fields"]["value"], value);
            assert!(!refused.stderr.contains('\u{1b}'), "{refused:?}");
            let known = refused.json["fields"]["known"].as_array().unwrap();
            assert_eq!(known.len(), bailiwick::Protection::ALL.len() + bailiwick::SessionLimit::ALL.len());
            for protection in bailiwick::Protection::ALL {
                assert!(known.contains(&protection.name().into()));
                assert!(refused.stderr.contains(&format!("`{}`", protection.name())), "{refused:?}");
            }
        }
        assert!(!world.write_root().join("ran").exists());
        assert_eq!(below(&home(world)), Vec::<std::path::PathBuf>::new());
    }

    fn two_sessions_do_not_share_a_store(world: &World) {
        requires!(Need::LandlockAbi6);
        let store = world.path().join("store");
        let options = ["--store", store.to_str().unwrap()];
        let running =
            Call::new(world, &options).start("touch started; while ! test -e go; do sleep 0.01; done");
        assert!(bailiwick_test::wait_until(bailiwick_test::process::GENEROUS, || world
            .write_root()
            .join("started")
            .exists()));
        let refused = Call::new(world, &options).script("touch ran");
        refused.assert_refused("ERR_BAILIWICK_STORE_LOCKED");
        assert_eq!(refused.json["can_retry"], true);
        assert_eq!(refused.json["fields"]["holder_pid"], running.child.id());
        assert!(!world.write_root().join("ran").exists());
        fs::write(world.write_root().join("go"), "").unwrap();
        running.end().assert_exited(0);
        Call::new(world, &options).script("touch ran").assert_exited(0);
    }

    /// The executable that confines must not be among what the command may change.
    fn a_root_that_holds_the_program_itself(world: &World) {
        requires!(Need::LandlockAbi6);
        let copy = world.write_root().join("bailiwick");
        // By another process: a descriptor for writing in this one could be inherited by a child that another
        // test starts just now, and the copy could not be executed then.
        let copied = std::process::Command::new("cp").arg(bailiwick_test::tool("bailiwick")).arg(&copy).status();
        assert!(copied.unwrap().success());
        let mut own = std::process::Command::new(&copy);
        own.arg("run").args(GAPS).arg("--write-root").arg(world.write_root()).args(["--", "touch", "ran"]);
        own.current_dir(world.write_root()).env("HOME", home(world));
        let refused = crate::invoke::outcome(&mut own);
        refused.assert_refused("ERR_BAILIWICK_ROOT_OVERLAP");
        assert!(!world.write_root().join("ran").exists());
    }
}
