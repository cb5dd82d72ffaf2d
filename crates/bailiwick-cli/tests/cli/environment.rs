//! Which variables a command gets.

use std::collections::BTreeMap;

use bailiwick_test::{Need, cases, requires};

use crate::invoke::{Call, home};

/// The environment of a command, and its session's temporary directory in place of the real path.
fn variables(call: Call) -> BTreeMap<String, String> {
    let ended = call.end(&["env", "-0"]);
    ended.assert_exited(0);
    ended
        .text()
        .split_terminator('\0')
        .map(|entry| entry.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

cases! {
    fn a_short_list_is_handed_on_and_nothing_else(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &["--quiet"]);
        let listed = [
            ("LANG", "de_DE.UTF-8"),
            ("LC_TIME", "C"),
            ("LC_ALL", "C.UTF-8"),
            ("TERM", "vt100"),
            ("TZ", "UTC"),
            ("USER", "u"),
            ("LOGNAME", "l"),
            ("SHELL", "/bin/sh"),
            ("COLORTERM", "truecolor"),
            ("NO_COLOR", ""),
        ];
        let not_listed = [
            ("SECRET_TOKEN", "hunter2"),
            ("LD_PRELOAD", "/nothing.so"),
            ("SSH_AUTH_SOCK", "/x"),
            ("TMPDIR", "/host-tmp"),
            ("TMP", "/host-tmp"),
            ("TEMP", "/host-tmp"),
            ("XDG_RUNTIME_DIR", "/run/x"),
            ("LCX", "x"),
            ("PWD", "/elsewhere"),
        ];
        call.shell.envs(listed).envs(not_listed.iter().filter(|(name, _)| *name != "LD_PRELOAD").copied());
        let found = variables(call);
        for (name, value) in listed {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(found["HOME"], home(world).to_str().unwrap());
        assert_eq!(found["PATH"], "/usr/local/bin:/usr/bin:/bin");
        assert_eq!(found["PWD"], world.write_root().to_str().unwrap());
        for name in ["TMPDIR", "TMP", "TEMP"] {
            assert!(found[name].starts_with("/tmp/bw-"), "{found:?}");
        }
        assert_eq!(found.len(), listed.len() + 6, "{found:?}");
    }

    fn env_sets_and_hands_on(world: &World) {
        requires!(Need::LandlockAbi6);
        let options = [
            "-q",
            "--env",
            "GIVEN",
            "--env",
            "SET=a=b c",
            "--env",
            "EMPTY=",
            "--env",
            "LANG=C",
            "--env",
            "SET=last",
        ];
        let mut call = Call::new(world, &options);
        call.shell.env("GIVEN", "from here").env("LANG", "de_DE.UTF-8");
        let found = variables(call);
        let expected = [("GIVEN", "from here"), ("SET", "last"), ("EMPTY", ""), ("LANG", "C")];
        for (name, value) in expected {
            assert_eq!(found[name], value);
        }
    }

    /// The value of a variable is never told, only its name.
    fn a_variable_that_is_not_set_is_named(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &["--env", "TOKEN=hunter2", "--env", "ABSENT"]);
        call.shell.env("OTHER", "x");
        let refused = call.script("touch ran");
        refused.assert_refused("ERR_BAILIWICK_CLI_ENV_UNSET");
        assert_eq!(
            (&refused.json["fields"]["name"], &refused.json["fields"]["index"]),
            (&"ABSENT".into(), &1.into())
        );
        assert!(!world.write_root().join("ran").exists());
        assert!(!refused.stderr.contains("hunter2") && !refused.json.to_string().contains("hunter2"));
        // Twin.
        let mut call = Call::new(world, &["--env", "TOKEN=hunter2", "--env", "ABSENT"]);
        call.shell.env("ABSENT", "");
        call.script("touch ran").assert_exited(0);

        let refused = Call::new(world, &["--env", "TMPDIR=/hunter2"]).script("true");
        refused.assert_refused("ERR_BAILIWICK_ENV_INVALID");
        assert!(!refused.stderr.contains("hunter2") && !refused.json.to_string().contains("hunter2"));
    }

    /// The command is found by the path that it gets itself.
    fn the_search_path_is_the_commands(world: &World) {
        requires!(Need::LandlockAbi6);
        let directory = world.write_root().join("bin");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("only-here"), "#!/bin/sh\necho found\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.join("only-here"), mode).unwrap();
        let refused = Call::new(world, &[]).end(&["only-here"]);
        refused.assert_refused("ERR_BAILIWICK_COMMAND_NOT_FOUND");
        assert!(refused.stderr.contains("--env PATH="), "{refused:?}");
        let path = format!("PATH={}:/usr/bin:/bin", directory.display());
        let found = Call::new(world, &["--env", &path]).end(&["only-here"]);
        assert_eq!(found.text(), "found\n", "{found:?}");
    }
}
