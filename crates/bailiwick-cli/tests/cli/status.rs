//! The descriptor for the status line.

use std::fs;
use std::process::{Command, Stdio};

use bailiwick_test::{Need, World, cases, requires, tool};

use crate::invoke::{Call, GAPS, Outcome, bailiwick, home, outcome};

/// `bailiwick run` with this value, and descriptors opened by the shell as `opened` says.
fn with_value(world: &World, value: &str, opened: &str) -> Outcome {
    let script = format!("exec \"$@\" {opened}");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script, "sh"]).arg(tool("bailiwick")).args(["run", "--json-status", value]);
    shell.args(GAPS).args(["--write-root"]).arg(world.write_root()).args(["--", "touch", "ran"]);
    shell.current_dir(world.write_root()).env("HOME", home(world)).stdin(Stdio::null());
    outcome(&mut shell)
}

cases! {
    fn a_descriptor_that_takes_no_line_refuses_the_run(world: &World) {
        requires!(Need::LandlockAbi6);
        for (value, opened, reason) in [
            ("", "", "is not a number"),
            ("three", "", "is not a number"),
            ("-1", "", "is not a number"),
            ("+3", "3>/dev/null", "is not a number"),
            ("4294967299", "3>/dev/null", "is not a number"),
            ("0", "", "is a standard stream"),
            ("1", "", "is a standard stream"),
            ("2", "", "is a standard stream"),
            ("3", "3>&-", "is not open"),
            ("77", "77>&-", "is not open"),
            ("3", "3</dev/null", "is not open for writing"),
        ] {
            let refused = with_value(world, value, opened);
            refused.assert_refused("ERR_BAILIWICK_CLI_STATUS_FD");
            assert!(
                refused.stderr.contains(reason) && refused.stderr.contains(&format!("`{value}`")),
                "{refused:?}"
            );
            assert!(!world.write_root().join("ran").exists(), "{value}");
        }
        for opened in ["3>/dev/null", "3<>/dev/null", "3>>/dev/null"] {
            with_value(world, "3", opened).assert_exited(0);
            fs::remove_file(world.write_root().join("ran")).unwrap();
        }
    }

    /// Programs wait for the line, whatever is wrong with the rest.
    fn arguments_outside_of_the_grammar_are_told_there_too(world: &World) {
        for options in [&["--no-such-option"][..], &["--network", "perhaps"], &["--store"]] {
            let refused = Call::new(world, options).script("touch ran");
            refused.assert_refused("ERR_BAILIWICK_CLI_USAGE");
            assert_eq!(refused.json["outcome"], "refused", "{refused:?}");
            assert!(!refused.json["message"].as_str().unwrap().is_empty());
        }
        assert!(!world.write_root().join("ran").exists());
    }

    /// A line that nobody got must not end as if somebody had.
    fn a_line_that_cannot_be_written_is_a_failure(world: &World) {
        requires!(Need::LandlockAbi6);
        let full = with_value(world, "3", "3>/dev/full");
        assert_eq!(full.code(), 125, "{full:?}");
        assert!(full.stderr.contains("cannot write the status line"), "{full:?}");
        assert!(world.write_root().join("ran").exists());
    }

    /// A pipe ends when we do: nothing that was started from us holds it.
    fn the_line_comes_through_a_pipe_and_the_pipe_ends(world: &World) {
        requires!(Need::LandlockAbi6);
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "exec \"$@\" 5>&1 >/dev/null", "sh"]).arg(tool("bailiwick"));
        shell.args(["run", "--json-status=5", "--quiet"]).args(GAPS).args([
            "--",
            "sh",
            "-c",
            "sleep 1000 & exit 9",
        ]);
        shell.env("HOME", home(world)).stdin(Stdio::null()).stdout(write);
        let mut child = shell.spawn().unwrap();
        drop(shell);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut fs::File::from(read), &mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(9));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["exit_code"], 9);
        for field in ["outcome", "timed_out", "pid", "start_time", "write_roots", "enforcement", "closed"] {
            assert!(line.get(field).is_some(), "{field}: {line}");
        }
        assert_eq!(line["closed"]["processes"].as_array().unwrap().len(), 1);
    }

    fn without_the_option_nothing_is_written_anywhere(world: &World) {
        requires!(Need::LandlockAbi6);
        let ended = outcome(bailiwick(world).arg("run").arg("--quiet").args(GAPS).args(["--", "true"]));
        assert_eq!((ended.code(), ended.stdout.len(), ended.stderr.as_str()), (0, 0, ""));
    }
}
