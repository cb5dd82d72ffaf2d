//! Acts around other acts.

use crate::Act;
use crate::answer::{Answer, Failed, cannot_try, done};
use crate::arguments::Arguments;

pub(crate) const ACTS: &[Act] =
    &[("reaches", "ERRORS ACT...", reaches), ("in-session", "ACT...", in_session)];

/// Tries an act that cannot be let happen, with arguments that the kernel only looks at once it has given the permission:
/// one of `ERRORS`, names separated by commas, tells that it did.
fn reaches(arguments: &mut Arguments) -> Answer {
    let errors = arguments.text()?;
    match inner(arguments) {
        Err(Failed::Refused(errno))
            if errors.split(',').any(|name| name == crate::answer::error_name(errno)) =>
        {
            done(())
        }
        answer => answer,
    }
}

/// Tries an act as the leader of a session and process group of its own: nothing that a parent
/// has agreed to is left.
fn in_session(arguments: &mut Arguments) -> Answer {
    if let Err(error) = rustix::process::setsid() {
        // Who leads a group already cannot lead a session: its child can.
        if crate::sys::processes::fork()?.is_some() {
            return match rustix::process::wait(rustix::process::WaitOptions::empty())? {
                Some((_, status)) if status.exit_status() == Some(0) => Err(Failed::Silent),
                _ => cannot_try(format!("the child failed ({error})")),
            };
        }
        rustix::process::setsid()?;
    }
    inner(arguments)
}

fn inner(arguments: &mut Arguments) -> Answer {
    let name = arguments.text()?;
    match crate::find(&name) {
        Some(act) => (act.2)(arguments),
        None => cannot_try(format!("`{name}` is no act")),
    }
}
