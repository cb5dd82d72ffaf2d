//! `bailiwick doctor`.

use std::path::PathBuf;

use bailiwick_test::pty::Pty;
use bailiwick_test::{Need, cases, requires};

use crate::invoke::{Call, bailiwick, below, home, outcome, without_namespaces};

cases! {
    fn it_tells_each_protection_and_what_keeps_it(world: &World) {
        requires!(Need::LandlockAbi6);
        let answer = outcome(bailiwick(world).args(["doctor", "--json"]));
        let document = answer.document();
        assert_eq!(answer.stderr, "");
        let found = document["protections"].as_array().unwrap();
        let names: Vec<_> = found.iter().map(|one| one["protection"].as_str().unwrap()).collect();
        assert_eq!(names, bailiwick::Protection::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
        for one in found {
            let kept = one["kept"].as_bool().unwrap();
            assert_eq!(kept, one["cause"].is_null(), "{one}");
            assert_eq!(kept, one["remedies"].as_array().unwrap().is_empty(), "{one}");
            assert!(!kept || !one["layers"].as_array().unwrap().is_empty(), "{one}");
        }
        // Landlock ABI 6 gives all that this version can keep.
        assert_eq!((answer.code(), &document["complete"]), (0, &true.into()), "{document}");
        assert_eq!(document["accept"], serde_json::json!([]));
        let missing: Vec<_> =
            found.iter().filter(|one| one["kept"] == false).map(|one| &one["protection"]).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(document["landlock"]["state"], "available");
        assert!(document["landlock"]["abi"].as_i64().unwrap() >= 6);
        assert_eq!(document["release"], rustix::system::uname().release().to_str().unwrap());
        let limits = document["limits"]["processes"].as_array().unwrap();
        let core = limits.iter().find(|limit| limit["resource"] == "core").unwrap();
        assert_eq!((&core["source"], &core["read_back"]["hard"]), (&"default".into(), &0.into()));
        let session = document["limits"]["session"].as_array().unwrap();
        let states: Vec<_> = session.iter().map(|limit| limit["state"].as_str().unwrap()).collect();
        assert!(states.len() == 2 && states.iter().all(|state| ["kept", "not-kept"].contains(state)), "{document}");
        assert!(document.get("no_session").is_none() && document.get("no_default_store").is_none());
        assert_eq!(below(&home(world)), Vec::<PathBuf>::new());
    }

    /// What it says to accept is what a run needs, no less and no more.
    fn its_advice_works(world: &World) {
        requires!(Need::LandlockAbi6);
        let advice = |doctor: &mut std::process::Command| {
            let text = outcome(doctor).text();
            let line = text.lines().find_map(|line| line.strip_prefix("To run here: bailiwick run ")).unwrap();
            let options = line.split("--write-root ").next().unwrap();
            options.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        // With namespaces nothing need be accepted.
        assert_eq!(advice(bailiwick(world).arg("doctor")), Vec::<String>::new());
        Call::plain(world, &[]).end(&["true"]).assert_exited(0);
        let options = advice(&mut without_namespaces(bailiwick(world).arg("doctor")));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        assert_eq!(options, crate::invoke::GAPS);
        Call::plain(world, &options).without_namespaces().end(&["true"]).assert_exited(0);
        Call::plain(world, &options[2..])
            .without_namespaces()
            .end(&["true"])
            .assert_refused("ERR_BAILIWICK_PROTECTION_UNAVAILABLE");
    }

    fn colour_is_for_terminals_alone(world: &World) {
        requires!(Need::LandlockAbi6);
        let piped = outcome(bailiwick(world).arg("doctor").env("TERM", "xterm"));
        assert!(!piped.text().contains('\u{1b}') && piped.text().contains("Kept here"), "{piped:?}");
        let on_terminal = |variables: &[(&str, &str)]| {
            let pty = Pty::new();
            let mut doctor = bailiwick(world);
            let status = doctor
                .arg("doctor")
                .envs(variables.iter().copied())
                .stdout(pty.subordinate())
                .status()
                .unwrap();
            assert_eq!(status.code(), Some(0));
            pty.expect("Everything that this version can keep is kept here.");
            pty.text().contains('\u{1b}')
        };
        assert!(on_terminal(&[("TERM", "xterm")]));
        assert!(!on_terminal(&[("TERM", "xterm"), ("NO_COLOR", "1")]));
        assert!(!on_terminal(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        assert!(!on_terminal(&[("TERM", "dumb")]));
        assert!(!on_terminal(&[]));
    }

    /// It tells what is missing for a run, and examines the host all the same.
    fn it_needs_no_home(world: &World) {
        requires!(Need::LandlockAbi6);
        let answer = outcome(bailiwick(world).args(["doctor", "--json"]).env_remove("HOME"));
        let document = answer.document();
        assert_eq!((answer.code(), &document["complete"]), (0, &true.into()), "{document}");
        assert_eq!(document["no_default_store"]["code"], "ERR_BAILIWICK_CLI_STATE_DIR");
        let text = outcome(bailiwick(world).arg("doctor").env_remove("HOME")).text();
        assert!(text.contains("`--store D`"), "{text}");
    }

    /// A reader that has seen enough is no failure.
    fn a_reader_that_goes_away_is_no_failure(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut child = bailiwick(world).arg("doctor").stdout(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    /// That nothing can be kept is an answer too. The kernel is made to lack what every session needs.
    fn a_host_without_landlock_is_told_as_such(world: &World) {
        requires!(Need::Strace);
        let without = |args: &[&str]| {
            let doctor = bailiwick(world);
            let mut strace = std::process::Command::new("strace");
            strace.args(["-qq", "-o", "/dev/null", "-e", "trace=landlock_create_ruleset"]);
            strace.args(["-e", "inject=landlock_create_ruleset:error=ENOSYS"]);
            strace.arg(doctor.get_program()).arg("doctor").args(args).env("HOME", home(world));
            outcome(&mut strace)
        };
        let answer = without(&["--json"]);
        let document = answer.document();
        assert_eq!((answer.code(), &document["complete"]), (1, &false.into()), "{document}");
        assert_eq!(document["no_session"]["code"], "ERR_BAILIWICK_PLATFORM_UNSUPPORTED");
        assert_eq!(document["landlock"]["state"], "not-built");
        let text = without(&[]).text();
        assert!(text.contains("no session can be opened here") && text.contains("hint: "), "{text}");
        assert_eq!(below(&home(world)), Vec::<PathBuf>::new());
    }
}
