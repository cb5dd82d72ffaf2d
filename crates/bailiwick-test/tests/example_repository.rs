//! The repository that the example agent works on is what its script makes, and its tests pass.

#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::Command;

use bailiwick_test::{Need, Toolchain, World, node, requires};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agent").join(name)
}

#[track_caller]
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn references(bundle: &Path) -> String {
    output_of(Command::new("git").arg("ls-remote").arg(bundle))
}

#[test]
fn is_what_the_script_makes() {
    requires!(Need::Git);
    let world = World::new();
    let made = world.write_root().join("made.bundle");
    output_of(Command::new(example("make-bundle.sh")).arg(&made));
    let references_made = references(&made);
    assert!(
        references_made.contains("refs/heads/main") && references_made.contains("refs/heads/feature/top")
    );
    assert_eq!(references_made, references(&example("tally.bundle")), "run examples/agent/make-bundle.sh");
}

#[test]
fn its_tests_pass_on_both_branches() {
    requires!(Need::Git);
    requires!(Need::CargoForThisUser);
    requires!(Need::Node);
    let world = World::new();
    let clone = world.write_root().join("tally");
    output_of(Command::new("git").args(["clone", "--quiet"]).arg(example("tally.bundle")).arg(&clone));
    let history = output_of(Command::new("git").args(["log", "--oneline"]).current_dir(&clone));
    assert_eq!(history.lines().count(), 6, "{history}");

    let cargo = Toolchain::find().unwrap().programs().join("cargo");
    for branch in ["main", "feature/top"] {
        output_of(Command::new("git").args(["checkout", "--quiet", branch]).current_dir(&clone));
        let mut tests = Command::new(&cargo);
        tests.args(["test", "--offline"]).current_dir(&clone);
        // Not the target directory or the flags of the run that this test belongs to.
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("CARGO_") || name == "RUSTFLAGS")
        {
            if name != "CARGO_HOME" {
                tests.env_remove(name);
            }
        }
        let said = output_of(&mut tests);
        assert!(said.contains("test result: ok. 2 passed"), "{said}");
        let said = output_of(Command::new(node().unwrap()).arg("--test").current_dir(&clone));
        assert!(said.contains("pass 3"), "{said}");
    }
    let status = output_of(Command::new("git").args(["status", "--porcelain"]).current_dir(&clone));
    assert_eq!(status, "", "its tests leave nothing behind");
}
