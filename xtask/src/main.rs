//! The tasks of this repository. `cargo xtask test` is the test command: what passes it may land.

#![expect(clippy::print_stdout, reason = "a program for people at a terminal")]

mod licences;
mod readme;
mod skips;
mod test;
mod tracked;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test        everything: formatting, lints, build, tests, documentation, licences, tracked files, skips
  licences    only the licences of all dependencies
  tracked     only what tracked files say about machines and registries
  skips       only the skip ledger of the last test run
";

fn main() -> ExitCode {
    let Some(root) = root() else {
        println!("xtask: run it through cargo, as `cargo xtask test`");
        return ExitCode::FAILURE;
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task: fn(&Path) -> test::Outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        ["test"] => return test::run(&root),
        ["licences"] => licences::check,
        ["tracked"] => tracked::check,
        ["skips"] => skips::check,
        _ => {
            print!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match task(&root) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace, as cargo says it at run time: a path baked in at compile time would outlive a
/// move of the checkout.
fn root() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).parent()?.to_owned())
}
