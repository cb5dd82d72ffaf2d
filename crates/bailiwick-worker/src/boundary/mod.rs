//! The confinement that a launcher enters, once for each grant, and that its commands inherit.
//!
//! Order matters: `no_new_privs` comes first, since without it neither Landlock nor seccomp may be
//! entered by a plain user; the filter comes last, since it forbids calls that the steps before need.

mod capabilities;
mod limits;
mod mounts;
mod probe;
mod seccomp;
mod view;

use std::os::fd::OwnedFd;

use bailiwick_wire::{Grant, Step};

use crate::child::{Failure, Stack, try_in_child};
use crate::switches::{Switch, without};
use crate::sys::{self, Errno, ResourceLimit};

use capabilities::Ground;
pub(crate) use limits::try_all as try_limits;
pub(crate) use probe::{Place, named_socket, run as probe, try_roots};
pub(crate) use seccomp::Instruction;
pub(crate) use view::{
    Rules, View, ViewFailure, build as build_view, decode as decode_view, encode as encode_view,
};

/// What a launcher finds around it, which decides what the filter must refuse.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// System V objects and message queues are the session's own.
    pub(crate) has_own_ipc: bool,
    /// Outside the roots, mounts are read-only.
    pub(crate) has_view: bool,
    /// Root of the session is not root of the files.
    pub(crate) has_user_namespace: bool,
}

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
    if !without(Switch::Scope) {
        sys::restrict_self(ruleset).or_else(at(Step::Landlock))?;
    }
    Ok(())
}

/// Whether this host lets one process of a session take a descriptor of another, as a broker does for each connection.
/// Where it does not (`kernel.yama.ptrace_scope` 3, some containers), a broker would refuse every connection, those inside
/// the roots too.
fn permits_tracing() -> bool {
    let Ok(own) = sys::pidfd_open(sys::process_id()) else { return false };
    let mut is_permitted = false;
    // As commands are, while they connect; in a user namespace a process that is not could be traced by nobody.
    let tried = sys::set_dumpable(true).and_then(|()| {
        try_in_child(&mut || is_permitted = sys::take_descriptor(&own, 0).is_ok(), &mut Stack::new())
    });
    sys::set_dumpable(false).is_ok() && tried.is_ok() && is_permitted
}

/// Enters the confinement of a grant. Gives the listener of the filter, where it asks a broker.
///
/// # Errors
/// Which step failed; the caller must end.
pub(crate) fn enter_grant(
    grant: &Grant,
    circumstances: Circumstances,
    ruleset: &OwnedFd,
) -> Result<Option<OwnedFd>, Failure> {
    let ground = Ground {
        has_mount_view: circumstances.has_view,
        has_user_namespace: circumstances.has_user_namespace,
    };
    let kept = capabilities::kept(grant, ground)?;
    // A broker judges by mounts: without a view all of them are writable. Asked before anything is restricted, as the
    // broker is not.
    let has_broker =
        grant.broker && circumstances.has_view && !without(Switch::SocketBroker) && permits_tracing();
    // A dump would be written by the kernel, beside all confinement of the program that crashed.
    if !without(Switch::Hygiene) {
        sys::set_limit(sys::CORE, ResourceLimit { soft: 0, hard: 0 }).or_else(at(Step::Limits))?;
    }
    if !without(Switch::Landlock) {
        sys::restrict_self(ruleset).or_else(at(Step::Landlock))?;
    }
    if !without(Switch::Capabilities) {
        capabilities::drop_all_but(kept).or_else(at(Step::Capabilities))?;
    }
    if !without(Switch::Seccomp) {
        let sysv_ipc = grant.sysv_ipc || circumstances.has_own_ipc;
        let program =
            |broker| seccomp::program(seccomp::FilterPolicy { network: grant.network, sysv_ipc, broker });
        // A process has one listener at most, and the host may live under somebody's. What is lacking then is found
        // by trying.
        if has_broker && let Ok(listener) = sys::install_listening_filter(&program(true)) {
            return Ok(Some(listener));
        }
        sys::install_filter(&program(false)).or_else(at(Step::Seccomp))?;
    }
    Ok(None)
}
