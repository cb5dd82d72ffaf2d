//! What the caller asks for.
//!
//! This room is pure: it reads no file system, no clock and no environment. It can refuse a value for its
//! shape ([`Policy::check_shape`]) and nothing else; what a path really is belongs to `identity`, and whether
//! it may be granted to `guard`.

mod environment;
mod limit;
mod protection;
mod read;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

pub use environment::Environment;
pub use limit::{Limit, Resource, SessionLimit};
pub use protection::{Layer, Protection};
pub use read::{ReadPurpose, ReadScope, Readable};

pub(crate) use shape::{PathFault, check_environment, path_fault, protected_invalid, root_invalid};

/// Whether commands of a session may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// No socket but pairs and named sockets of the local machine.
    #[default]
    Deny,
    /// A network of the session's own: its commands reach each other on the loopback interface, and nobody else.
    /// Needs network namespaces.
    Loopback,
    /// The internet families too. What a command asks of a daemon that listens on the loopback interface is
    /// then beyond every write boundary.
    Allow,
}

/// What commands keep of root's powers, in a session whose host process is root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RootCapabilities {
    /// Nothing: commands of root write only what belongs to root, or what its mode opens to it.
    #[default]
    None,
    /// The powers over files (`CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_FOWNER`): commands write in the roots whoever owns what
    /// is there, and read every file of the host that they are shown. Needs the layer [`Layer::MountView`], without which
    /// they would change modes and owners everywhere.
    Files,
}

impl RootCapabilities {
    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Files => "files",
        }
    }
}

/// What the caller asks for. Nothing in it has been checked.
///
/// Two policies are equal when the caller wrote the same thing, not when they grant the same: spellings count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Directories below which commands may write, as the caller wrote them, in the caller's order. An empty list
    /// is a session that can only read.
    pub write_roots: Vec<PathBuf>,
    /// Directories and files that no write root may reach, beside what a session always protects.
    pub protect: Vec<PathBuf>,
    /// Databases that no write root may reach, each with the files that it keeps beside itself.
    pub databases: Vec<PathBuf>,
    /// What commands may read.
    pub read: ReadScope,
    /// Whether commands may use the network.
    pub network: Network,
    /// The whole environment of a command. Nothing is inherited.
    pub env: Environment,
    /// Protections that the session may open without.
    pub accept: BTreeSet<Protection>,
    /// Resource limits of each command, in the caller's order.
    pub limits: Vec<Limit>,
    /// Limits of the whole session, all its processes together.
    pub session_limits: BTreeMap<SessionLimit, u64>,
    /// Limits of the whole session without which it opens all the same where this host cannot keep them.
    pub accept_limits: BTreeSet<SessionLimit>,
    /// The control group below which the session's own is made, for its limits; the group of this process without it.
    pub group_parent: Option<PathBuf>,
    /// What commands keep of root's powers.
    pub root_capabilities: RootCapabilities,
}

impl Policy {
    /// Whether a session under this policy must refuse to open on a host that cannot keep `protection`.
    ///
    /// With [`Network::Allow`] the network is not something to keep, and neither are named sockets: what a daemon does on
    /// request it also does for who reaches it by another address.
    #[must_use]
    pub fn requires(&self, protection: Protection) -> bool {
        let is_of_the_network = matches!(protection, Protection::Network | Protection::NamedSockets);
        if is_of_the_network && self.network == Network::Allow {
            return false;
        }
        // Who limits what commands may read wants that to hold.
        let asked = protection == Protection::HiddenState && self.read.readable().is_some();
        (asked || protection.required_by_default()) && !self.accept.contains(&protection)
    }
}
