//! The test command, step by step.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::{licences, readme, skips, tracked};

/// What a step has to say: a short word of success, or what is wrong.
pub(crate) type Outcome = Result<String, String>;

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Path) -> Outcome,
    /// Without it the later steps have nothing to look at.
    is_base: bool,
}

const STEPS: [Step; 10] = [
    Step {
        name: "formatting",
        what: "is every file as rustfmt would write it?",
        run: formatting,
        is_base: false,
    },
    Step { name: "lints", what: "does clippy have nothing to say?", run: lints, is_base: false },
    Step { name: "build", what: "everything, examples and benchmarks included", run: build, is_base: true },
    Step { name: "tests", what: "every test, as root and as a plain user", run: tests, is_base: false },
    Step {
        name: "examples in documentation",
        what: "does what the documentation shows work?",
        run: doctests,
        is_base: false,
    },
    Step {
        name: "documentation",
        what: "does every link in it lead somewhere?",
        run: documentation,
        is_base: false,
    },
    Step {
        name: "README",
        what: "does every command in it work, the main job first?",
        run: readme::check,
        is_base: false,
    },
    Step { name: "licences", what: "may every dependency be used?", run: licences::check, is_base: false },
    Step {
        name: "tracked files",
        what: "do they name no registry and no machine?",
        run: tracked::check,
        is_base: false,
    },
    Step {
        name: "skips",
        what: "was every skip expected, and every expected skip one?",
        run: skips::check,
        is_base: false,
    },
];

/// Runs all steps, also after one that failed, and sums up.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut lines = Vec::new();
    let (mut failed, mut is_based) = (0_u32, true);
    for step in &STEPS {
        if !is_based {
            lines.push(format!("  not run  {}", step.name));
            continue;
        }
        println!("\n== {}: {}", step.name, step.what);
        let start = Instant::now();
        let outcome = (step.run)(root);
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(said) => {
                println!("{said}");
                let first = said.lines().next().unwrap_or_default();
                lines.push(format!("  ok       {} ({seconds} s): {first}", step.name));
            }
            Err(why) => {
                println!("FAILED: {why}");
                let first = why.lines().next().unwrap_or_default();
                lines.push(format!("  FAILED   {} ({seconds} s): {first}", step.name));
                failed += 1;
                is_based = !step.is_base;
            }
        }
    }
    println!("\n== summary\n{}", lines.join("\n"));
    match failed {
        0 => {
            println!("\nAll steps passed.");
            ExitCode::SUCCESS
        }
        1 => {
            println!("\nOne step failed.");
            ExitCode::FAILURE
        }
        _ => {
            println!("\n{failed} steps failed.");
            ExitCode::FAILURE
        }
    }
}

fn formatting(root: &Path) -> Outcome {
    cargo(root, &["fmt", "--all", "--check"], &[])
        .map(|()| "as it should be".to_owned())
        .map_err(|why| format!("{why}; `cargo fmt --all` mends it"))
}

fn lints(root: &Path) -> Outcome {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    Ok("nothing to say".to_owned())
}

fn build(root: &Path) -> Outcome {
    cargo(root, &["build", "--workspace", "--all-targets"], &[])?;
    Ok("built".to_owned())
}

fn tests(root: &Path) -> Outcome {
    let nextest = Command::new(cargo_program()).args(["nextest", "--version"]).output();
    if !nextest.is_ok_and(|output| output.status.success()) {
        return Err("cargo-nextest is missing: `cargo install --locked cargo-nextest`".to_owned());
    }
    // A ledger of this run alone.
    let ledger = ledger(root)?;
    if let Err(error) = fs::remove_file(&ledger)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(format!("remove {}: {error}", ledger.display()));
    }
    cargo(root, &["nextest", "run", "--workspace"], &[("BAILIWICK_TEST_LEDGER", ledger.into())])?;
    Ok("all passed".to_owned())
}

fn doctests(root: &Path) -> Outcome {
    cargo(root, &["test", "--doc", "--workspace", "--quiet"], &[])?;
    Ok("all passed".to_owned())
}

fn documentation(root: &Path) -> Outcome {
    cargo(root, &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings".into())])?;
    Ok("all links hold".to_owned())
}

/// The ledger of `cargo xtask test`.
pub(crate) fn ledger(root: &Path) -> Result<PathBuf, String> {
    let target = metadata(root, &["--no-deps"])?;
    let target = target.get("target_directory").and_then(|target| target.as_str());
    Ok(Path::new(target.ok_or("cargo does not say where the target directory is")?).join("test-ledger.jsonl"))
}

/// What `cargo metadata` says.
pub(crate) fn metadata(root: &Path, arguments: &[&str]) -> Result<serde_json::Value, String> {
    let output = Command::new(cargo_program())
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, OsString)]) -> Result<(), String> {
    let shown = arguments.join(" ");
    println!("$ cargo {shown}");
    let status = Command::new(cargo_program())
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(root)
        .status()
        .map_err(|error| format!("run cargo {shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`cargo {shown}` failed ({status})")) }
}

/// The cargo that started this program.
fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
