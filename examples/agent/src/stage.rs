//! What a person sees, and what the host does for itself.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;

/// Prints, in colour where a terminal shows it.
pub(crate) struct Stage {
    colour: bool,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn title(&self, text: &str) {
        println!("\n{}", self.paint("1", text));
    }

    pub(crate) fn say(&self, text: &str) {
        println!("  {text}");
    }

    pub(crate) fn detail(&self, text: &str) {
        println!("    {}", self.paint("2", text));
    }

    pub(crate) fn ran(&self, text: &str) {
        println!("  {} {text}", self.paint("32", "ran    "));
    }

    pub(crate) fn refused(&self, what: &str, reason: &str) {
        println!("  {} {what}", self.paint("33", "refused"));
        if !reason.is_empty() {
            self.detail(reason);
        }
    }
}

/// Fails with a sentence when something is not as it should be.
pub(crate) fn check(holds: bool, otherwise: &str) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// Runs a program of the host, unconfined, and returns what it prints.
pub(crate) fn host<const N: usize, const M: usize>(
    program: &str,
    args: [&str; N],
    paths: [&PathBuf; M],
) -> Outcome<String> {
    let args = args.iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str()));
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|error| format!("cannot run `{program}`, which this example needs: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), &format!("`{program}` failed: {errors}"))?;
    Ok(String::from_utf8(output.stdout)?)
}
