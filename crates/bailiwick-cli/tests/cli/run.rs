//! What a command's end becomes, and what it can do meanwhile.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use bailiwick_test::act::Report;
use bailiwick_test::{Need, Snapshot, cases, requires, tool};

use crate::invoke::{Alive, Call, GAPS, bailiwick, line_in, outcome};

cases! {
    /// Every status is handed on, also those that shells and bailiwick use; the status line tells whose it is.
    fn the_status_of_the_command_is_ours(world: &World) {
        requires!(Need::LandlockAbi6);
        for code in [0, 1, 2, 7, 101, 124, 125, 126, 127, 128, 255] {
            let ended = Call::new(world, &[]).script(&format!("exit {code}"));
            ended.assert_exited(code);
            assert!(ended.json["pid"].is_u64() && ended.json.get("code").is_none(), "{ended:?}");
        }
    }

    fn a_signal_becomes_128_and_its_number(world: &World) {
        requires!(Need::LandlockAbi6);
        for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
            let ended = Call::new(world, &[]).script(&format!("kill -{name} $$; sleep 60"));
            assert_eq!(ended.code(), 128 + number, "{ended:?}");
            assert_eq!(ended.json["outcome"], "signalled");
            assert_eq!(ended.json["signal"], number);
            assert!(ended.json.get("exit_code").is_none() && ended.json["timed_out"] == false, "{ended:?}");
        }
    }

    /// Not 126 or 127: those may be the command's own.
    fn a_command_that_cannot_start_is_a_refusal(world: &World) {
        requires!(Need::LandlockAbi6);
        let plain_file = world.outside_file();
        for (command, code) in [
            ("", "ERR_BAILIWICK_COMMAND_INVALID"),
            ("no-such-program-anywhere", "ERR_BAILIWICK_COMMAND_NOT_FOUND"),
            ("/no/such/program", "ERR_BAILIWICK_COMMAND_NOT_FOUND"),
            (plain_file.to_str().unwrap(), "ERR_BAILIWICK_COMMAND_NOT_EXECUTABLE"),
        ] {
            let ended = Call::new(world, &[]).end(&[command]);
            ended.assert_refused(code);
            assert!(ended.json["hints"].is_array() && ended.json["fields"].is_object(), "{ended:?}");
            // The session was there, and has been closed again.
            assert!(ended.json["enforcement"].is_array() && ended.json["closed"].is_object(), "{ended:?}");
        }
    }

    fn it_writes_in_the_roots_and_nowhere_else(world: &World) {
        requires!(Need::LandlockAbi6);
        let outside = Snapshot::of(world.outside_file());
        let ended = Call::new(world, &[]).script("echo in > inside; echo out > ../X/f");
        assert_ne!(ended.code(), 0);
        outside.assert_unchanged();
        assert_eq!(fs::read_to_string(world.write_root().join("inside")).unwrap(), "in\n");
        assert_eq!(ended.json["write_roots"], serde_json::json!([world.write_root()]));
        // Twin: with the other directory granted too.
        let other = world.outside();
        Call::new(world, &["--write-root", other.to_str().unwrap()])
            .script("echo out > ../X/f")
            .assert_exited(0);
        outside.assert_changed();
    }

    /// Gaps are never accepted in silence, nor without a name.
    fn gaps_refuse_until_they_are_accepted_and_are_told_then(world: &World) {
        requires!(Need::LandlockAbi6);
        let root = world.write_root();
        let usual = ["--write-root", root.to_str().unwrap()];
        let refused = Call::plain(world, &usual).without_namespaces().script("touch ran");
        refused.assert_refused("ERR_BAILIWICK_PROTECTION_UNAVAILABLE");
        assert!(!root.join("ran").exists());
        assert!(refused.stderr.contains("`--accept metadata --accept named-sockets`"), "{refused:?}");
        assert_eq!(refused.json["fields"]["protections"], serde_json::json!(["metadata", "named-sockets"]));

        let half = Call::plain(world, &[&usual[..], &GAPS[..2]].concat()).without_namespaces().script("touch ran");
        half.assert_refused("ERR_BAILIWICK_PROTECTION_UNAVAILABLE");
        assert_eq!(half.json["fields"]["protections"], serde_json::json!(["named-sockets"]));

        let told = Call::new(world, &[]).without_namespaces().script("echo from the command >&2");
        let lines: Vec<&str> = told.stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{told:?}");
        assert!(lines[0].starts_with("bailiwick: not kept (accepted): metadata: "), "{told:?}");
        assert!(lines[1].starts_with("bailiwick: not kept (accepted): named-sockets: "), "{told:?}");
        let quiet = Call::new(world, &["--quiet"]).without_namespaces().script("echo from the command >&2");
        assert_eq!(quiet.stderr, "from the command\n");
        let standing = |name: &str| {
            let found = quiet.json["enforcement"].as_array().unwrap();
            found.iter().find(|kept| kept["protection"] == name).unwrap().clone()
        };
        assert_eq!(standing("content")["state"], "kept");
        assert_eq!(
            (&standing("metadata")["state"], &standing("metadata")["accepted"]),
            (&"not-kept".into(), &true.into())
        );
    }

    /// However it detached itself, what is left is ended and named. The uid is this test's alone, so nothing of it
    /// can have been left anywhere.
    fn what_is_left_running_is_ended_and_told(world: &World, uid = 61237) {
        requires!(Need::LandlockAbi6);
        let script = "setsid sh -c 'echo $$ > left; exec sleep 1000' >/dev/null 2>&1 & \
                      while ! test -s left; do sleep 0.01; done; ls -d /proc/$(cat left) > seen; echo $TMPDIR > tmp";
        let ended = Call::new(world, &[]).script(script);
        ended.assert_exited(0);
        // By its number inside, which need not be the host's.
        let inside = line_in(world.write_root().join("left"));
        assert_eq!(line_in(world.write_root().join("seen")), format!("/proc/{inside}"));
        let closed = ended.json["closed"]["processes"].as_array().unwrap();
        let [left] = closed.as_slice() else { panic!("{ended:?}") };
        let pid = u32::try_from(left["pid"].as_u64().unwrap()).unwrap();
        assert_eq!((&left["ending"], &left["name"]), (&"killed".into(), &"sleep".into()));
        assert!(bailiwick_test::process::start_time(pid).is_none_or(|now| left["start_time"] != now));
        let told = format!("bailiwick: ended 1 process left running: {pid} `sleep`");
        assert_eq!(ended.stderr.lines().filter(|line| **line == told).count(), 1, "{ended:?}");
        assert!(!fs::exists(line_in(world.write_root().join("tmp"))).unwrap());
        // Twin: nothing left, nothing said.
        let clean = Call::new(world, &[]).script("sleep 0.01");
        assert!(!clean.stderr.contains("left running"), "{clean:?}");
        assert_eq!(clean.json["closed"]["processes"], serde_json::json!([]));
        let quiet = Call::new(world, &["-q"]).script("sleep 1000 & exit 0");
        assert_eq!((quiet.code(), quiet.stderr.as_str()), (0, ""));
        assert_eq!(quiet.json["closed"]["processes"].as_array().unwrap().len(), 1);
    }

    fn a_time_limit_ends_the_whole_tree(world: &World) {
        requires!(Need::LandlockAbi6);
        let began = Instant::now();
        let running = Call::new(world, &["--timeout", "0.5"])
            .start("setsid sh -c 'echo $$ > left; exec sleep 1000' & trap '' TERM; echo $$ > own; while :; do sleep 1; done");
        let (left, own) = (world.write_root().join("left"), world.write_root().join("own"));
        let (left, own) = (Alive::in_file(left), Alive::in_file(own));
        let ended = running.end();
        assert_eq!(ended.code(), 128 + 9, "{ended:?}");
        assert!(left.gone() && own.gone());
        assert_eq!((&ended.json["timed_out"], &ended.json["signal"]), (&true.into(), &9.into()));
        assert!(ended.stderr.contains("ended after 0.5 s"), "{ended:?}");
        assert!(began.elapsed() >= Duration::from_millis(500));
        // Twin: it ends in time.
        Call::new(world, &["--timeout", "600"]).script("exit 3").assert_exited(3);
        for bad in ["0", "-1", "soon", ""] {
            let refused = Call::new(world, &["--timeout", bad]).script("touch ran");
            refused.assert_refused("ERR_BAILIWICK_CLI_TIMEOUT_INVALID");
            assert_eq!(refused.json["fields"]["value"], bad);
        }
        assert!(!world.write_root().join("ran").exists());
    }

    fn it_starts_where_we_did_or_where_it_is_told(world: &World) {
        requires!(Need::LandlockAbi6);
        fs::write(world.write_root().join("tool.sh"), "#!/bin/sh\npwd\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(world.write_root().join("tool.sh"), executable).unwrap();
        let here = Call::new(world, &[]).end(&["./tool.sh"]);
        assert_eq!(here.text(), format!("{}\n", world.write_root().display()), "{here:?}");
        let outside = world.outside();
        let there = Call::new(world, &["--current-dir", outside.to_str().unwrap()]).script("pwd; echo > new");
        assert_eq!(there.text(), format!("{}\n", outside.display()));
        assert_ne!(there.code(), 0);
        assert!(!outside.join("new").exists(), "a working directory must permit nothing");
        for (bad, code) in [
            ("X", "ERR_BAILIWICK_CWD_INVALID"),
            ("", "ERR_BAILIWICK_CWD_INVALID"),
            ("/no/such/directory", "ERR_BAILIWICK_CWD_NOT_FOUND"),
            ("/proc/self/cwd", "ERR_BAILIWICK_CWD_INVALID"),
            ("/etc/passwd", "ERR_BAILIWICK_CWD_NOT_DIRECTORY"),
        ] {
            let refused = Call::new(world, &["--current-dir", bad]).script("touch ran");
            refused.assert_refused(code);
            assert!(!world.write_root().join("ran").exists());
        }
    }

    fn limits_hold(world: &World) {
        requires!(Need::LandlockAbi6);
        let limited = Call::new(world, &["--limit", "open-files=77", "--limit", "core=0"])
            .script("ulimit -n; ulimit -c");
        assert_eq!(limited.text(), "77\n0\n", "{limited:?}");
        let unlimited = Call::new(world, &["--limit", "cpu=unlimited"]).script("ulimit -t");
        assert_eq!(unlimited.text(), "unlimited\n");
        for bad in ["", "core", "core=many", "files=3", "core=-1"] {
            let refused = Call::new(world, &["--limit", bad]).script("touch ran");
            refused.assert_refused("ERR_BAILIWICK_CLI_LIMIT_INVALID");
            assert_eq!(refused.json["fields"]["value"], bad);
            assert!(refused.json["fields"]["known"].as_array().unwrap().contains(&"open-files".into()));
        }
        Call::new(world, &["--limit", "core=0", "--limit", "core=1"])
            .script("touch ran")
            .assert_refused("ERR_BAILIWICK_LIMIT_INVALID");
        assert!(!world.write_root().join("ran").exists());
    }

    /// Kept, or refused with the cause and with the option that accepts it.
    fn limits_of_the_whole_run(world: &World) {
        requires!(Need::LandlockAbi6);
        for (option, name, value) in
            [("--memory-max", "memory-max", "67108864"), ("--processes-max", "processes-max", "64")]
        {
            let limited = Call::new(world, &[option, value]).script("echo ran");
            if limited.code() != 0 {
                limited.assert_refused("ERR_BAILIWICK_SESSION_LIMIT_UNAVAILABLE");
                assert_eq!(limited.json["fields"]["limit"], name);
                assert!(limited.json["fields"]["cause"].is_string(), "{limited:?}");
                assert!(limited.stderr.contains(&format!("`--accept {name}`")), "{limited:?}");
            }
            let accepted = Call::new(world, &[option, value, "--accept", name]).script("echo ran");
            assert_eq!(accepted.text(), "ran\n", "{accepted:?}");
            for bad in ["", "many", "-1", "1k"] {
                let option = format!("{option}={bad}");
                let refused = Call::new(world, &[&option]).script("touch ran");
                refused.assert_refused("ERR_BAILIWICK_CLI_LIMIT_INVALID");
                assert_eq!(refused.json["fields"]["value"], bad);
            }
            Call::new(world, &[option, "3"]).script("touch ran").assert_refused("ERR_BAILIWICK_LIMIT_INVALID");
        }
        assert!(!world.write_root().join("ran").exists());
    }

    fn powers_of_root_are_named(world: &World) {
        requires!(Need::LandlockAbi6);
        let none = Call::new(world, &["--root-capabilities", "none"]).script("grep CapEff /proc/self/status");
        assert_eq!(none.text().split_whitespace().last(), Some("0000000000000000"), "{none:?}");
        let files = Call::new(world, &["--root-capabilities", "files"]).script("grep CapEff /proc/self/status");
        if files.code() == 0 {
            assert_eq!(files.text().split_whitespace().last(), Some("000000000000000b"), "{files:?}");
        } else {
            files.assert_refused("ERR_BAILIWICK_ROOT_CAPABILITIES_UNAVAILABLE");
            assert!(["mount-view", "root"].contains(&files.json["fields"]["needs"].as_str().unwrap()));
        }
    }

    fn the_network_is_closed_unless_it_is_opened(world: &World) {
        requires!(Need::LandlockAbi6);
        let act = tool("act");
        let socket = [act.to_str().unwrap(), "socket", "inet", "stream", "0"];
        let denied = Call::new(world, &[]).end(&socket);
        assert!(!Report::parse(&denied.stdout).ok, "{denied:?}");
        let denied = Call::new(world, &["--network", "deny"]).end(&socket);
        assert!(!Report::parse(&denied.stdout).ok, "{denied:?}");
        let allowed = Call::new(world, &["--network", "allow"]).end(&socket);
        Report::parse(&allowed.stdout).assert_done();
        let network = |outcome: &crate::invoke::Outcome| {
            let found = outcome.json["enforcement"].as_array().unwrap();
            found.iter().find(|kept| kept["protection"] == "network").unwrap()["state"].clone()
        };
        assert_eq!((network(&denied), network(&allowed)), ("kept".into(), "permitted".into()));
    }

    /// Neither the status descriptor nor anything that we were started with.
    fn only_three_descriptors_reach_the_command(world: &World) {
        requires!(Need::LandlockAbi6);
        let act = tool("act");
        let bare = bailiwick_test::act::report_of(
            std::process::Command::new("/bin/sh").args(["-c", "exec \"$0\" list-fds 7</dev/null"]).arg(&act),
        );
        assert!(bare.value.as_array().unwrap().contains(&7.into()), "the fixture must show a leak: {bare:?}");
        let mut call = Call::new(world, &[]);
        // Around the shell that opens descriptor 3.
        let mut inner: Vec<_> = call.shell.get_args().map(ToOwned::to_owned).collect();
        inner[1] = "exec \"$@\" 3>\"$0\" 7<>/dev/null 9</".into();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(inner).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", crate::invoke::home(world));
        shell.current_dir(world.write_root());
        call.shell = shell;
        let ended = call.end(&[act.to_str().unwrap(), "list-fds"]);
        assert_eq!(Report::parse(&ended.stdout).value, serde_json::json!([0, 1, 2]), "{ended:?}");
        ended.assert_exited(0);
    }

    /// The words that a person meets first.
    fn options_and_the_command_are_told_apart_by_two_dashes(world: &World) {
        requires!(Need::LandlockAbi6);
        let ended = Call::new(world, &["--quiet"]).end(&["echo", "--store", "--", "-x"]);
        assert_eq!(ended.text(), "--store -- -x\n");
        let mut without = bailiwick(world);
        let refused = outcome(without.args(["run"]).args(GAPS).args(["touch", "ran"]));
        refused.assert_refused("ERR_BAILIWICK_CLI_USAGE");
        assert!(!world.write_root().join("ran").exists());
    }

    /// Names are bytes.
    fn names_that_are_not_utf_8_work_and_are_told_exactly(world: &World) {
        requires!(Need::LandlockAbi6);
        let name = std::ffi::OsStr::from_bytes(b"r\xff\n");
        let root = world.path().join(name);
        fs::create_dir(&root).unwrap();
        let mut call = Call::new(world, &["--quiet"]);
        // Before the dashes that the call ends with.
        let mut words: Vec<_> = call.shell.get_args().map(ToOwned::to_owned).collect();
        let dashes = words.len() - 1;
        words.splice(
            dashes..dashes,
            ["--write-root".into(), root.clone().into_os_string(), "--env".into(), "BYTES".into()],
        );
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(&words).env("HOME", crate::invoke::home(world)).current_dir(&root).env("BYTES", name);
        call.shell = shell;
        call.shell.arg("sh").arg("-c").arg("cp \"$1\" ./copy; env -0").arg(name).arg(world.secret());
        let ended = call.end(&[]);
        ended.assert_exited(0);
        assert_eq!(fs::read(root.join("copy")).unwrap(), b"s");
        let hex: String = root.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ended.json["write_roots"][1]["hex"], hex, "{ended:?}");
        let variable = [b"BYTES=", name.as_bytes()].concat();
        assert!(ended.stdout.split(|byte| *byte == 0).any(|entry| entry == variable), "{ended:?}");
    }
}
