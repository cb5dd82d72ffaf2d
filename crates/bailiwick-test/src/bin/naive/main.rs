//! A deliberately naive Landlock wrapper: `naive [-w DIR]... [-S] -- PROGRAM [ARGUMENT]...`
//!
//! It handles every right that changes a tree, grants them beneath each `DIR`, leaves reading open, and
//! executes the program. `-S` adds the scopes for signals and abstract sockets. On purpose it does nothing
//! else: no filter of system calls, no closing of descriptors, no resetting of signals, no capabilities
//! dropped, no environment cleared. A test of one of those must fail when the session is replaced by this.
//!
//! Exit status: that of the program; 90 if the confinement failed, 91 for bad arguments, 94 if the program
//! could not be executed.

mod sys;

use std::ffi::OsString;
use std::process::ExitCode;

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope,
};

fn main() -> ExitCode {
    let Some((roots, scoped, command)) = read_arguments(std::env::args_os().skip(1)) else {
        return fail(91, "usage: naive [-w DIR]... [-S] -- PROGRAM [ARGUMENT]...");
    };
    if let Err(error) = confine(&roots, scoped) {
        return fail(90, &error.to_string());
    }
    let error = sys::execute(&command);
    fail(94, &error.to_string())
}

fn read_arguments(
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<(Vec<OsString>, bool, Vec<OsString>)> {
    let (mut roots, mut scoped) = (Vec::new(), false);
    loop {
        let argument = arguments.next()?;
        match argument.to_str() {
            Some("-w") => roots.push(arguments.next()?),
            Some("-S") => scoped = true,
            Some("--") => break,
            _ => return None,
        }
    }
    let command: Vec<OsString> = arguments.collect();
    (!command.is_empty()).then_some((roots, scoped, command))
}

fn confine(roots: &[OsString], scoped: bool) -> Result<(), Box<dyn std::error::Error>> {
    // ABI 3 and not later: device ioctl (5) is left open, as a wrapper of the first hour would.
    let rights = AccessFs::from_write(ABI::V3);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(rights)?;
    if scoped {
        ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    for root in roots {
        created = created.add_rule(PathBeneath::new(PathFd::new(root)?, rights))?;
    }
    created.restrict_self()?;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a program for tests; whoever reads its failure reads this")]
fn fail(status: u8, why: &str) -> ExitCode {
    eprintln!("naive: {why}");
    ExitCode::from(status)
}
