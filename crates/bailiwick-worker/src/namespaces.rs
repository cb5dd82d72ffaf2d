//! The namespaces of a session, made together with its worker.
//!
//! The worker stays in the mount namespace of the host: from there each grant takes a copy of the mounts that the host
//! has at that moment. All else is the session's own from the start.

use std::fs;

use bailiwick_wire::{Lacking, Part, Step};

use crate::child::Failure;
use crate::switches::{Switch, without};
use crate::sys::{self, Errno, UnixAddress};

/// The network that the session is to have, as the keeper's argument says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// The host's.
    Host,
    /// One with a loopback interface.
    Loopback,
    /// One with nothing.
    Nothing,
}

impl Network {
    pub(crate) fn from_argument(argument: &[u8]) -> Option<Self> {
        match argument {
            b"host" => Some(Self::Host),
            b"loopback" => Some(Self::Loopback),
            b"none" => Some(Self::Nothing),
            _ => None,
        }
    }
}

/// What the host gave, and what stands for the host in the probes.
#[derive(Debug, Clone)]
pub(crate) struct Isolation {
    /// `CLONE_NEW*`, of what the worker was made with.
    pub(crate) kinds: usize,
    pub(crate) lacking: Option<Lacking>,
    pub(crate) host: HostObjects,
}

/// Objects of the host that must be out of reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostObjects {
    /// An abstract socket that the keeper listens on.
    pub(crate) socket: Option<UnixAddress>,
    /// Number of a shared memory segment that goes when the keeper does, or why there is none.
    pub(crate) segment: sys::Result<i32>,
    /// Device number of the host's terminals.
    pub(crate) terminals: Option<(u32, u32)>,
}

impl Isolation {
    /// As on a host that gives nothing.
    pub(crate) fn none(host: HostObjects, lacking: Option<Failure>) -> Self {
        let lacking =
            lacking.map(|Failure { step, errno }| Lacking { part: Part::Namespaces, step, errno: errno.0 });
        Self { kinds: 0, lacking, host }
    }

    pub(crate) fn has(&self, kind: usize) -> bool {
        self.kinds & kind != 0
    }

    /// Whether a grant can have a mount view.
    pub(crate) fn permits_views(&self) -> bool {
        self.kinds != 0 && !without(Switch::MountView)
    }
}

/// The namespaces to ask for.
pub(crate) fn wanted(network: Network) -> usize {
    const SYS_ADMIN: u32 = 21;
    let mut kinds = 0;
    if !without(Switch::PidNamespace) {
        kinds |= sys::CLONE_NEWPID;
    }
    if !without(Switch::IpcNamespace) {
        kinds |= sys::CLONE_NEWIPC;
    }
    if !without(Switch::NetNamespace) && network != Network::Host {
        kinds |= sys::CLONE_NEWNET;
    }
    if kinds == 0 && without(Switch::MountView) {
        return 0;
    }
    kinds |= sys::CLONE_NEWUTS;
    let is_administrator = sys::capabilities().is_ok_and(|held| held.effective & (1 << SYS_ADMIN) != 0);
    if is_administrator { kinds } else { kinds | sys::CLONE_NEWUSER }
}

/// Completes the namespaces, from inside.
pub(crate) fn complete(kinds: usize, network: Network, user: (u32, u32)) -> Result<(), Failure> {
    if kinds & sys::CLONE_NEWUSER != 0 {
        map_user(user).map_err(|errno| Failure { step: Step::UserMap, errno })?;
    }
    if kinds & sys::CLONE_NEWNET != 0 && network == Network::Loopback {
        sys::bring_up_loopback().map_err(|errno| Failure { step: Step::Loopback, errno })?;
    }
    Ok(())
}

/// Maps the user and the group to themselves, which needs no privilege. All others show as the overflow user.
fn map_user((user, group): (u32, u32)) -> sys::Result<()> {
    let write = |file: &str, text: String| {
        let done = fs::write(format!("/proc/self/{file}"), text);
        done.map_err(|error| Errno(error.raw_os_error().unwrap_or(Errno::PERM.0)))
    };
    // The files belong to whom the process may be traced by.
    sys::set_dumpable(true)?;
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))?;
    sys::set_dumpable(false)
}
