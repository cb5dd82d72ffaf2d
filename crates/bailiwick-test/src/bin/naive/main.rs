//! A deliberately naive Landlock wrapper: `naive [-w DIR]... [-S] [-2] -- PROGRAM [ARGUMENT]...`
//!
//! It handles every right that changes a tree, grants them beneath each `DIR`, leaves reading open, and
//! executes the program. `-S` adds the scopes for signals and abstract sockets; `-2` does without the right to
//! truncate, for kernels that have none. On purpose it does nothing else: no filter of system calls, no closing
//! of descriptors, no resetting of signals, no capabilities dropped, no environment cleared. A test of one of
//! those must fail when the session is replaced by this.
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
    let Some(wish) = read_arguments(std::env::args_os().skip(1)) else {
        return fail(91, "usage: naive [-w DIR]... [-S] [-2] -- PROGRAM [ARGUMENT]...");
    };
    if let Err(error) = confine(&wish) {
        return fail(90, &error.to_string());
    }
    let error = sys::execute(&wish.command);
    fail(94, &error.to_string())
}

struct Wish {
    roots: Vec<OsString>,
    scoped: bool,
    // ABI 3 and not later: device ioctl (5) is left open, as a wrapper of the first hour would.
    abi: ABI,
    command: Vec<OsString>,
}

fn read_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Wish> {
    let mut wish = Wish { roots: Vec::new(), scoped: false, abi: ABI::V3, command: Vec::new() };
    loop {
        let argument = arguments.next()?;
        match argument.to_str() {
            Some("-w") => wish.roots.push(arguments.next()?),
            Some("-S") => wish.scoped = true,
            Some("-2") => wish.abi = ABI::V2,
            Some("--") => break,
            _ => return None,
        }
    }
    wish.command = arguments.collect();
    (!wish.command.is_empty()).then_some(wish)
}

fn confine(wish: &Wish) -> Result<(), Box<dyn std::error::Error>> {
    let rights = AccessFs::from_write(wish.abi);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(rights)?;
    if wish.scoped {
        ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    for root in &wish.roots {
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
