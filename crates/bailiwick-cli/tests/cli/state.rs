//! Where the store of a run lies that was given none, and that nothing of it stays.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use bailiwick_test::{Need, cases, fixture, process::GENEROUS, requires, user_cases, wait_until};

use crate::invoke::{Call, GAPS, bailiwick, below, home, outcome, without_namespaces};

cases! {
    fn nothing_stays_however_the_run_ends(world: &World) {
        requires!(Need::LandlockAbi6);
        let home = home(world);
        for (options, command) in [
            (&[][..], &["true"][..]),
            (&[], &["sh", "-c", "exit 3"]),
            (&[], &["sh", "-c", "kill -KILL $$"]),
            (&[], &["no-such-program"]),
            (&["--timeout", "0.05"], &["sleep", "1000"]),
            (&["--current-dir", "/no/such"], &["true"]),
        ] {
            Call::new(world, options).end(command);
            assert_eq!(below(&home), Vec::<PathBuf>::new(), "{options:?} {command:?}");
        }
        // Refused by what the host cannot keep, which is found out by starting a worker.
        let refused = outcome(&mut without_namespaces(bailiwick(world).args(["run", "--", "true"])));
        refused.assert_refused("ERR_BAILIWICK_PROTECTION_UNAVAILABLE");
        assert_eq!(below(&home), Vec::<PathBuf>::new());
        // What was there before stays.
        fs::create_dir_all(home.join(".local/state/bailiwick")).unwrap();
        Call::new(world, &[]).end(&["true"]).assert_exited(0);
        assert_eq!(below(&home), [".local", ".local/state", ".local/state/bailiwick"].map(PathBuf::from));
    }

    fn while_it_runs_the_store_is_private_and_out_of_reach(world: &World) {
        requires!(Need::LandlockAbi6);
        let state = world.path().join("state");
        let mut call = Call::new(world, &[]);
        call.shell.env("XDG_STATE_HOME", &state);
        let running =
            call.start("touch started; while ! test -e go; do sleep 0.01; done; touch \"$(cat go)\"/forged");
        assert!(wait_until(GENEROUS, || world.write_root().join("started").exists()));
        let entries = below(&state);
        let run =
            entries.iter().find(|path| path.ends_with("store")).unwrap_or_else(|| panic!("{entries:?}"));
        let name = run.parent().unwrap().to_str().unwrap();
        assert!(name.starts_with("bailiwick/sessions/run-"), "{name}");
        for directory in ["", "bailiwick", "bailiwick/sessions", name, run.to_str().unwrap()] {
            let mode = fs::metadata(state.join(directory)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o700, "{directory}");
        }
        fs::write(world.write_root().join("go.new"), state.join(run).to_str().unwrap()).unwrap();
        fs::rename(world.write_root().join("go.new"), world.write_root().join("go")).unwrap();
        let ended = running.end();
        assert_ne!(ended.code(), 0, "the command wrote to the store: {ended:?}");
        assert!(!state.exists() && below(&home(world)).is_empty());
    }

    fn a_named_store_stays(world: &World) {
        requires!(Need::LandlockAbi6);
        let store = world.path().join("store");
        Call::new(world, &["--store", store.to_str().unwrap()]).end(&["true"]).assert_exited(0);
        assert!(store.is_dir() && !below(&store).is_empty());
        assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(below(&home(world)), Vec::<PathBuf>::new());
    }

    /// A relative `XDG_STATE_HOME` is to be ignored, and there may be no home at all.
    fn without_a_home_a_store_must_be_named(world: &World) {
        requires!(Need::LandlockAbi6);
        for variables in [&[][..], &[("HOME", "")], &[("HOME", "relative"), ("XDG_STATE_HOME", "relative")]] {
            let run = |options: &[&str]| {
                let mut call = Call::new(world, options);
                call.shell.env_remove("HOME").envs(variables.iter().copied());
                call.script("touch ran")
            };
            let refused = run(&[]);
            refused.assert_refused("ERR_BAILIWICK_CLI_STATE_DIR");
            assert!(refused.stderr.contains("`--store D`"), "{refused:?}");
            assert!(!world.write_root().join("ran").exists());
            let store = world.path().join("store");
            run(&["--store", store.to_str().unwrap()]).assert_exited(0);
            fs::remove_file(world.write_root().join("ran")).unwrap();
        }
        assert!(below(&world.write_root()).is_empty(), "a relative value was used");
        // And one that is no directory.
        let mut call = Call::new(world, &[]);
        call.shell.env("XDG_STATE_HOME", world.outside_file());
        call.script("touch ran").assert_refused("ERR_BAILIWICK_CLI_STATE_DIR");
    }

    /// What others may rename or replace is no place for a store.
    fn a_place_that_others_may_write_is_refused(world: &World) {
        requires!(Need::LandlockAbi6);
        let sessions = home(world).join(".local/state/bailiwick/sessions");
        fs::create_dir_all(&sessions).unwrap();
        fs::set_permissions(&sessions, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Call::new(world, &[]).script("touch ran");
        refused.assert_refused("ERR_BAILIWICK_CLI_STATE_DIR");
        assert_eq!(refused.json["fields"]["mode"], "0777");
        assert!(below(&sessions).is_empty() && !world.write_root().join("ran").exists());
        fs::set_permissions(&sessions, fs::Permissions::from_mode(0o700)).unwrap();
        Call::new(world, &[]).script("touch ran").assert_exited(0);
    }

    fn runs_at_the_same_time_do_not_disturb_each_other(world: &World) {
        requires!(Need::LandlockAbi6);
        let running: Vec<_> = (0..6)
            .map(|number| {
                (number, Call::new(world, &["-q"]).start(&format!("sleep 0.{number}; exit {number}")))
            })
            .collect();
        for (number, run) in running {
            run.end().assert_exited(number);
        }
        let sessions = home(world).join(".local/state/bailiwick/sessions");
        assert!(!sessions.exists() || below(&sessions).is_empty());
    }
}

user_cases! {
    fn a_home_that_cannot_be_written_is_named(world: &World) {
        requires!(Need::LandlockAbi6);
        let home = home(world);
        fs::set_permissions(&home, fs::Permissions::from_mode(0o500)).unwrap();
        assert!(fs::create_dir(home.join("probe")).is_err(), "the fixture must refuse");
        let refused = Call::new(world, &[]).script("touch ran");
        refused.assert_refused("ERR_BAILIWICK_CLI_STATE_DIR");
        assert!(refused.json["causes"][0].as_str().unwrap().contains("Permission denied"), "{refused:?}");
        assert!(refused.stderr.contains("`--store D`"), "{refused:?}");
        assert!(!world.write_root().join("ran").exists());
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        Call::new(world, &[]).script("touch ran").assert_exited(0);
    }

    fn a_working_directory_that_cannot_be_entered_is_named(world: &World) {
        requires!(Need::LandlockAbi6);
        let closed = world.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        fixture::assert_unreadable(&closed);
        let options = ["--current-dir", closed.to_str().unwrap()];
        let refused = Call::new(world, &options).end(&["true"]);
        refused.assert_refused("ERR_BAILIWICK_CWD_NOT_ACCESSIBLE");
        assert!(refused.stderr.contains("`--current-dir D`"), "{refused:?}");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        Call::new(world, &options).end(&["true"]).assert_exited(0);
        // Not of this test, but of every one as a plain user: gaps must be accepted by name here too.
        outcome(&mut without_namespaces(bailiwick(world).arg("run").args(&GAPS[..2]).args(["--", "true"])))
            .assert_refused("ERR_BAILIWICK_PROTECTION_UNAVAILABLE");
    }
}
