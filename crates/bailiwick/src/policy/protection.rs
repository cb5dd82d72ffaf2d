//! Protections, in the user's words, and the mechanisms that may keep them.

use serde::Serialize;

macro_rules! protections {
    ($($protection:ident $name:literal required($required:literal) $promise:literal;)+) => {
        /// A promise about what commands of a session cannot do.
        ///
        /// Which mechanism keeps it on this host, if any, is found out by the worker.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Protection {
            $(
                #[doc = $promise]
                $protection,
            )+
        }

        impl Protection {
            /// Every protection.
            pub const ALL: &'static [Self] = &[$(Self::$protection),+];

            /// The name by which a policy accepts the gap, in kebab-case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$protection => $name,)+ }
            }

            /// What is promised, in one sentence.
            #[must_use]
            pub fn promise(self) -> &'static str {
                match self { $(Self::$protection => $promise,)+ }
            }

            /// Whether a session refuses to open where it cannot be kept, unless the policy accepts the gap.
            #[must_use]
            pub fn required_by_default(self) -> bool {
                match self { $(Self::$protection => $required,)+ }
            }

            /// The protection with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|protection| protection.name() == name)
            }
        }
    };
}

protections! {
    Content "content" required(true)
        "No file outside the write roots is written, made, removed, renamed, linked or truncated.";
    Metadata "metadata" required(true)
        "No mode, owner, time, extended attribute or flag of a file outside the write roots is changed.";
    Devices "devices" required(true)
        "No device is controlled and no device node is made, inside the write roots or outside.";
    Signals "signals" required(true)
        "No process outside the session is signalled.";
    Tracing "tracing" required(true)
        "No memory, descriptor or secret of a process outside the session is read or changed.";
    Limits "limits" required(true)
        "No resource limit and no priority of a process outside the session is changed.";
    AbstractSockets "abstract-sockets" required(true)
        "No abstract socket of a process outside the session is connected to.";
    NamedSockets "named-sockets" required(true)
        "No named socket outside the write roots is connected to, so no daemon writes on a command's behalf.";
    Network "network" required(true)
        "No packet leaves, not even to this machine, and no port is opened.";
    SharedMemory "shared-memory" required(true)
        "No System V shared memory, semaphore or message queue of the host is reached.";
    Privileges "privileges" required(true)
        "No command holds a capability that the policy does not name, or gains one from a set-id program, whatever user it runs as.";
    KernelInterfaces "kernel-interfaces" required(true)
        "No mount, namespace, keyring, program in the kernel, ring of asynchronous calls or foreign call number is used.";
    HostControls "host-controls" required(true)
        "Host name, clock, modules, swap, quotas and power of the machine stay as they are.";
    Descriptors "descriptors" required(true)
        "No descriptor of the host reaches a command but its standard input, output and error.";
    Terminals "terminals" required(true)
        "No terminal of the host that belongs to the same user is read or written; where this is kept without namespaces, a command cannot open a terminal of its own either.";
    Settlement "settlement" required(true)
        "No process outlives the session, however it detached itself, nor the death of the host or of the worker.";
    Processes "processes" required(false)
        "No process outside the session is seen: neither its command line nor that it exists.";
    HiddenState "hidden-state" required(false)
        "Nothing private that the session protects can be read: neither its store nor what the caller named.";
}

/// A mechanism that can keep protections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Layer {
    /// The Landlock ruleset for files.
    Landlock,
    /// The Landlock domain that holds only scopes: signals and abstract sockets.
    Scope,
    /// The filter of system calls.
    Seccomp,
    /// Capabilities dropped, and `no_new_privs`.
    Capabilities,
    /// Descriptors, signals, terminal and environment put in order before a program starts.
    Hygiene,
    /// The process that outlives the worker and ends what is left.
    Keeper,
    /// A mount namespace of the grant: everything read-only, the write roots bound back, protected objects covered.
    MountView,
    /// A pid namespace of the session, with its own `/proc`.
    PidNamespace,
    /// An IPC namespace of the session: System V objects and POSIX message queues.
    IpcNamespace,
    /// A network namespace of the session, with nothing but its own loopback interface.
    NetNamespace,
    /// The process that makes connections to named sockets on behalf of commands, and only to those in the roots.
    SocketBroker,
}

impl Layer {
    /// Every layer.
    pub const ALL: &'static [Self] = &[
        Self::Landlock,
        Self::Scope,
        Self::Seccomp,
        Self::Capabilities,
        Self::Hygiene,
        Self::Keeper,
        Self::MountView,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::NetNamespace,
        Self::SocketBroker,
    ];

    /// Whether only hosts give it that permit namespaces.
    #[must_use]
    pub fn needs_namespaces(self) -> bool {
        matches!(
            self,
            Self::MountView
                | Self::PidNamespace
                | Self::IpcNamespace
                | Self::NetNamespace
                | Self::SocketBroker
        )
    }

    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Scope => "scope",
            Self::Seccomp => "seccomp",
            Self::Capabilities => "capabilities",
            Self::Hygiene => "hygiene",
            Self::Keeper => "keeper",
            Self::MountView => "mount-view",
            Self::PidNamespace => "pid-namespace",
            Self::IpcNamespace => "ipc-namespace",
            Self::NetNamespace => "net-namespace",
            Self::SocketBroker => "socket-broker",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Network, Policy};

    #[test]
    fn names_lead_back() {
        for protection in Protection::ALL {
            assert_eq!(Protection::from_name(protection.name()), Some(*protection));
            assert_eq!(serde_json::to_value(protection).unwrap(), protection.name());
        }
        for layer in Layer::ALL {
            assert_eq!(serde_json::to_value(layer).unwrap(), layer.name());
        }
        assert_eq!(Protection::from_name("everything"), None);
    }

    #[test]
    fn all_that_keeps_the_host_as_it_is_is_required_until_accepted() {
        let mut policy = Policy::default();
        for protection in Protection::ALL {
            assert_eq!(
                policy.requires(*protection),
                !matches!(protection, Protection::HiddenState | Protection::Processes),
                "{protection:?}"
            );
        }
        policy.accept.insert(Protection::Metadata);
        assert!(!policy.requires(Protection::Metadata) && policy.requires(Protection::Content));
        policy.network = Network::Allow;
        assert!(!policy.requires(Protection::Network) && !policy.requires(Protection::NamedSockets));
        policy.read.limit();
        assert!(policy.requires(Protection::HiddenState));
        policy.accept.insert(Protection::HiddenState);
        assert!(!policy.requires(Protection::HiddenState));
    }
}
