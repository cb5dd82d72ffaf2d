//! The confinement that a launcher enters, once for each grant, and that its commands inherit.
//!
//! Order matters: `no_new_privs` comes first, since without it neither Landlock nor seccomp may be
//! entered by a plain user; the filter comes last, since it forbids calls that the steps before need.

mod capabilities;
mod limits;
mod probe;
mod seccomp;

use std::os::fd::OwnedFd;

use bailiwick_wire::{Grant, Step};

use crate::child::Failure;
use crate::sys::{self, Errno, ResourceLimit};

pub(crate) use capabilities::Ground;
pub(crate) use limits::try_all as try_limits;
pub(crate) use probe::{Place, run as probe, try_roots};
pub(crate) use seccomp::Instruction;

fn at<T>(step: Step) -> impl Fn(Errno) -> Result<T, Failure> {
    move |errno| Err(Failure { step, errno })
}

/// Enters the domain that all commands of a session share: signals and abstract sockets stop at it.
///
/// It is entered once for each session. Entered once for each command it would make siblings of the
/// commands, which then could not signal each other.
///
/// # Errors
/// Which step failed.
pub(crate) fn enter_scope(ruleset: &OwnedFd) -> Result<(), Failure> {
    sys::set_no_new_privs().or_else(at(Step::NoNewPrivs))?;
    if cfg!(not(without_scope)) {
        sys::restrict_self(ruleset).or_else(at(Step::Landlock))?;
    }
    Ok(())
}

/// Enters the confinement of a grant.
///
/// # Errors
/// Which step failed; the caller must end.
pub(crate) fn enter_grant(grant: &Grant, ruleset: &OwnedFd, ground: Ground) -> Result<(), Failure> {
    let kept = capabilities::kept(grant, ground)?;
    // A dump would be written by the kernel, beside all confinement of the program that crashed.
    if cfg!(not(without_hygiene)) {
        sys::set_limit(sys::CORE, ResourceLimit { soft: 0, hard: 0 }).or_else(at(Step::Limits))?;
    }
    if cfg!(not(without_landlock)) {
        sys::restrict_self(ruleset).or_else(at(Step::Landlock))?;
    }
    if cfg!(not(without_capabilities)) {
        capabilities::drop_all_but(kept).or_else(at(Step::Capabilities))?;
    }
    if cfg!(not(without_seccomp)) {
        let policy = seccomp::FilterPolicy { network: grant.network, sysv_ipc: grant.sysv_ipc };
        sys::install_filter(&seccomp::program(policy)).or_else(at(Step::Seccomp))?;
    }
    Ok(())
}
