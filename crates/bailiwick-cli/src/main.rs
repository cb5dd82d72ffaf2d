//! The `bailiwick` command: `run`, `explain` and `doctor`.
//!
//! The library decides, this program words it: it reads arguments and the environment, names its own options in
//! hints, relays streams, and turns outcomes into exit statuses and JSON. `docs/cli.md` is the contract.

mod args;
mod doctor;
mod environment;
mod explain;
mod failure;
mod help;
mod hint;
mod host;
mod policy;
mod relay;
mod render;
mod run;
mod signals;
mod state_dir;
mod status;
mod stdin;
mod sys;

use std::process::ExitCode;

use args::Action;
use clap::Parser as _;

/// Exit status of everything that bailiwick refused or could not do.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    // A panic ends with 101 by itself, which may also be the command's own status.
    std::panic::catch_unwind(answer).unwrap_or(ExitCode::from(FAILED))
}

fn answer() -> ExitCode {
    let status = match args::Line::try_parse() {
        Ok(line) => match line.action {
            Action::Run(args) => run::run(*args),
            Action::Explain(args) => explain::explain(&args),
            Action::Doctor(args) => doctor::doctor(&args),
        },
        Err(error) => help::show(&error),
    };
    ExitCode::from(status)
}
