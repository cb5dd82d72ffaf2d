//! What the worker found out: each protection, whether it is kept, and by what.

use std::fmt;

use bailiwick_wire::{Finding, Lacking, Outcome, Part, Probe, Step};
use serde::Serialize;

use super::cause::{Cause, Mechanism, Settings, cause_of};
use crate::error::{Error, ErrorKind, Field};
use crate::policy::{Layer, Network, Policy, Protection};

/// Whether a protection is kept on this host, in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
#[non_exhaustive]
pub enum Standing {
    /// It is kept, and trying to break it failed.
    Kept {
        /// By what.
        layers: Vec<Layer>,
    },
    /// It is not kept.
    NotKept {
        /// Why.
        cause: String,
        /// The policy accepts that, so the session opened.
        accepted: bool,
    },
    /// The policy asks for what it would forbid.
    Permitted,
}

/// A protection and its standing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The protection.
    pub protection: Protection,
    /// What is promised, in one sentence.
    pub promise: &'static str,
    /// Whether it is kept.
    #[serde(flatten)]
    pub standing: Standing,
}

/// Every protection and its standing, as the worker established it by trying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Enforcement {
    protections: Vec<Kept>,
}

/// One way in which a protection is kept: mechanisms, and the probes that must all have held.
struct Way {
    layers: &'static [Layer],
    probes: &'static [Probe],
}

const fn way(layers: &'static [Layer], probes: &'static [Probe]) -> Way {
    Way { layers, probes }
}

/// What keeps private state unreadable where the policy limits what commands may read: no namespace is needed then.
const READ_SCOPE: Way = way(&[Layer::Landlock], &[Probe::ReadOutside]);

/// The ways in which a protection is kept; each is enough by itself.
fn ways(protection: Protection) -> &'static [Way] {
    use Layer::{
        Capabilities, Hygiene, IpcNamespace, Keeper, Landlock, MountView, NetNamespace, PidNamespace, Scope,
        Seccomp, SocketBroker,
    };
    match protection {
        Protection::Content => {
            const {
                &[
                    way(
                        &[Landlock, Seccomp],
                        &[
                            Probe::WriteOutside,
                            Probe::TruncateOutside,
                            Probe::CreateOutside,
                            Probe::RemoveOutside,
                            Probe::LinkOutside,
                            Probe::WriteInside,
                            Probe::IoctlList,
                        ],
                    ),
                    // The mount does not govern what has no content of its own: pipes and devices. Landlock does, also
                    // where it is too old to govern `truncate`.
                    way(
                        &[Landlock, MountView, Seccomp],
                        &[
                            Probe::WriteOutside,
                            Probe::ViewWrite,
                            Probe::ViewTruncate,
                            Probe::ViewNames,
                            Probe::WriteInside,
                            Probe::IoctlList,
                        ],
                    ),
                ]
            }
        }
        Protection::Metadata => {
            const { &[way(&[MountView, Seccomp], &[Probe::Metadata, Probe::IoctlList, Probe::Mounts])] }
        }
        Protection::Devices => {
            const { &[way(&[Landlock, Seccomp], &[Probe::DeviceIoctl, Probe::DeviceNode])] }
        }
        Protection::Signals => {
            const {
                &[
                    way(&[Scope], &[Probe::SignalOutside, Probe::SignalInside]),
                    way(&[PidNamespace], &[Probe::HostProcess, Probe::SignalInside]),
                ]
            }
        }
        Protection::Tracing => {
            const {
                &[
                    way(&[Landlock], &[Probe::TraceOutside]),
                    way(&[PidNamespace], &[Probe::HostProcess, Probe::HostProcessList]),
                ]
            }
        }
        Protection::Processes => {
            const { &[way(&[PidNamespace], &[Probe::HostProcess, Probe::HostProcessList])] }
        }
        Protection::Limits => {
            const {
                &[
                    way(&[Seccomp], &[Probe::LimitsOutside, Probe::PriorityOutside]),
                    way(&[PidNamespace], &[Probe::HostProcess]),
                ]
            }
        }
        Protection::AbstractSockets => {
            const { &[way(&[Scope], &[Probe::AbstractSocket]), way(&[NetNamespace], &[Probe::HostNetwork])] }
        }
        Protection::Network => {
            const {
                &[
                    way(
                        &[Seccomp],
                        &[Probe::SocketFamilies, Probe::LocalSockets, Probe::IoUring, Probe::ForeignAbi],
                    ),
                    way(
                        &[NetNamespace, Seccomp],
                        &[
                            Probe::HostNetwork,
                            Probe::SocketFamilies,
                            Probe::LocalSockets,
                            Probe::IoUring,
                            Probe::ForeignAbi,
                        ],
                    ),
                ]
            }
        }
        Protection::SharedMemory => {
            const { &[way(&[Seccomp], &[Probe::SysvIpc]), way(&[IpcNamespace], &[Probe::HostIpc])] }
        }
        Protection::Privileges => {
            const {
                &[way(
                    &[Capabilities, Seccomp],
                    &[Probe::Capabilities, Probe::NoNewPrivs, Probe::SetIdModes, Probe::PlainModes],
                )]
            }
        }
        Protection::KernelInterfaces => {
            const {
                &[way(
                    &[Seccomp],
                    &[
                        Probe::Namespaces,
                        Probe::Mounts,
                        Probe::KernelInterfaces,
                        Probe::IoUring,
                        Probe::ForeignAbi,
                    ],
                )]
            }
        }
        Protection::HostControls => {
            const { &[way(&[Capabilities, Seccomp], &[Probe::HostControls, Probe::Capabilities])] }
        }
        Protection::Descriptors => const { &[way(&[Hygiene], &[Probe::Descriptors])] },
        Protection::Terminals => {
            const {
                &[
                    way(&[Landlock, Hygiene, Seccomp], &[Probe::Terminal, Probe::IoctlList]),
                    way(&[MountView, Hygiene, Seccomp], &[Probe::HostTerminals, Probe::IoctlList]),
                ]
            }
        }
        Protection::Settlement => {
            const { &[way(&[Keeper], &[Probe::Orphans]), way(&[PidNamespace], &[Probe::Init, Probe::HostProcess])] }
        }
        Protection::HiddenState => {
            const {
                &[
                    way(&[MountView], &[Probe::HiddenState]),
                    // Where the policy limits what commands may read.
                    way(&[Landlock], &[Probe::ReadOutside]),
                ]
            }
        }
        Protection::NamedSockets => {
            const {
                &[way(
                    &[SocketBroker, MountView],
                    &[Probe::NamedSocket, Probe::NamedSocketInside, Probe::Mounts],
                )]
            }
        }
    }
}

impl Enforcement {
    pub(crate) fn judge(policy: &Policy, findings: &[Finding], lacking: &[Lacking]) -> Self {
        let protections = Protection::ALL
            .iter()
            .map(|protection| Kept {
                protection: *protection,
                promise: protection.promise(),
                standing: standing(policy, *protection, findings, lacking),
            })
            .collect();
        Self { protections }
    }

    /// Every protection, in the order of [`Protection::ALL`].
    #[must_use]
    pub fn protections(&self) -> &[Kept] {
        &self.protections
    }

    /// The layers of this version that keep a protection where a host gives them; none where no host does.
    ///
    /// It tells a gap that another host would not have from one that they all have.
    #[must_use]
    pub fn possible_layers(protection: Protection) -> Vec<Layer> {
        union(ways(protection))
    }

    /// The standing of one protection.
    #[must_use]
    pub fn standing(&self, protection: Protection) -> Option<&Standing> {
        self.protections.iter().find(|kept| kept.protection == protection).map(|kept| &kept.standing)
    }

    /// Whether the session keeps it.
    #[must_use]
    pub fn keeps(&self, protection: Protection) -> bool {
        matches!(self.standing(protection), Some(Standing::Kept { .. }))
    }

    /// Refuses when something is not kept that the policy requires.
    pub(crate) fn require(&self, policy: &Policy) -> Result<(), Error> {
        let missing: Vec<(Protection, &str)> = self
            .protections
            .iter()
            .filter(|kept| policy.requires(kept.protection))
            .filter_map(|kept| match &kept.standing {
                Standing::NotKept { cause, .. } => Some((kept.protection, cause.as_str())),
                _ => None,
            })
            .collect();
        let Some((first, cause)) = missing.first() else { return Ok(()) };
        let names: Vec<&str> = missing.iter().map(|(protection, _)| protection.name()).collect();
        let message = format!("this host cannot keep `{}`: {cause}", names.join("`, `"));
        let list = |texts: Vec<String>| Field::List(texts.into_iter().map(Field::Text).collect());
        Err(Error::new(ErrorKind::ProtectionUnavailable, message)
            .text("protection", first.name())
            .with("protections", list(names.iter().map(ToString::to_string).collect()))
            .with("causes", list(missing.iter().map(|(_, cause)| (*cause).to_owned()).collect()))
            .hint(format!(
                "to open the session all the same, accept each gap by its name: `{}`",
                names.join("`, `")
            )))
    }
}

/// The layers of several ways, each once, in the order of [`Layer::ALL`].
fn union<'a>(ways: impl IntoIterator<Item = &'a Way>) -> Vec<Layer> {
    let mut layers: Vec<Layer> = ways.into_iter().flat_map(|way| way.layers).copied().collect();
    layers.sort_unstable();
    layers.dedup();
    layers
}

fn standing(policy: &Policy, protection: Protection, findings: &[Finding], lacking: &[Lacking]) -> Standing {
    if protection == Protection::Network && policy.network == Network::Allow {
        return Standing::Permitted;
    }
    if protection == Protection::NamedSockets && policy.network == Network::Allow {
        let cause =
            "the policy allows the network, and with it the daemons of this machine, by whatever address";
        return Standing::NotKept { cause: cause.to_owned(), accepted: true };
    }
    let accepted = policy.accept.contains(&protection);
    let mut causes = Vec::new();
    let mut held = Vec::new();
    let limited = protection == Protection::HiddenState && policy.read.readable().is_some();
    for way in ways(protection).iter().chain(limited.then_some(&READ_SCOPE)) {
        // Nothing but its own namespace separates a loopback interface from the host's.
        if policy.network == Network::Loopback
            && protection == Protection::Network
            && !way.layers.contains(&Layer::NetNamespace)
        {
            continue;
        }
        match follow(way, findings) {
            Followed::Held => held.push(way),
            Followed::Permitted => {}
            Followed::Not(cause) => causes.push(cause),
        }
    }
    let layers = union(held.iter().copied());
    // Accepting the gap opens what would otherwise be closed for its sake, unless it is closed in another way.
    let opened = match protection {
        Protection::Terminals if !layers.contains(&Layer::MountView) => {
            Some("commands may open terminals, which reach those of the same user")
        }
        Protection::SharedMemory if !layers.contains(&Layer::IpcNamespace) => {
            Some("commands may use System V shared memory, semaphores and queues of the host")
        }
        _ => None,
    };
    if let Some(cause) = opened.filter(|_| accepted) {
        return Standing::NotKept { cause: cause.to_owned(), accepted };
    }
    if !layers.is_empty() {
        return Standing::Kept { layers };
    }
    let mut cause =
        causes.into_iter().next().unwrap_or_else(|| "nothing keeps it in this version".to_owned());
    let of_namespaces = union(ways(protection)).into_iter().any(Layer::needs_namespaces);
    if let Some(lacking) = lacking.iter().find(|lacking| explains(lacking.part, protection))
        && of_namespaces
    {
        cause = format!("{cause}; {}", lack(lacking));
    }
    Standing::NotKept { cause, accepted }
}

enum Followed {
    Held,
    /// The policy permits the act.
    Permitted,
    Not(String),
}

fn follow(way: &Way, findings: &[Finding]) -> Followed {
    for probe in way.probes {
        let finding = findings.iter().find(|finding| finding.probe == *probe);
        match finding.map(|finding| finding.outcome) {
            Some(Outcome::Held) => {}
            Some(Outcome::Permitted) => return Followed::Permitted,
            Some(Outcome::Broken) => {
                return Followed::Not(broken(*probe, finding.map_or(0, |finding| finding.errno)));
            }
            Some(Outcome::Untried) | None => {
                return Followed::Not(format!("it could not be tried: {}", probe.text()));
            }
        }
    }
    Followed::Held
}

/// Whether the lack of a part explains why a protection is not kept.
fn explains(part: Part, protection: Protection) -> bool {
    match part {
        Part::Namespaces | Part::View => true,
        Part::OwnProc => protection == Protection::Processes,
        Part::OwnTerminals => protection == Protection::Terminals,
        Part::OwnSharedMemory => false,
    }
}

/// What this host does not give, and how that showed.
fn lack(lacking: &Lacking) -> String {
    let part = match lacking.part {
        Part::Namespaces => "this host gives no namespaces",
        Part::View => "this host gives no mount view",
        Part::OwnProc => "this host permits no `/proc` of the session's own",
        Part::OwnTerminals => "this host permits no terminals of the session's own",
        Part::OwnSharedMemory => "this host permits no shared memory of the grant's own",
    };
    let answer = match lacking.errno {
        0 => return format!("{part} ({:?})", lacking.step),
        errno => format!("{part} ({:?}: {})", lacking.step, std::io::Error::from_raw_os_error(errno)),
    };
    match mechanism(lacking).map(|mechanism| cause_of(mechanism, lacking.errno, &Settings::read())) {
        None => answer,
        Some(Cause { word, setting: None }) => format!("{answer}, {}", word.name()),
        Some(Cause { word, setting: Some((name, value)) }) => {
            format!("{answer}, {} by `{name}` = {value}", word.name())
        }
    }
}

/// What failed where namespaces or the view did. None for parts of a view, which do without.
fn mechanism(lacking: &Lacking) -> Option<Mechanism> {
    match (lacking.part, lacking.step) {
        // Whoever may make the others without it makes none of users.
        (Part::Namespaces, Step::Namespaces) if is_administrator() => Some(Mechanism::Namespace),
        (Part::Namespaces, Step::Namespaces | Step::UserMap) => Some(Mechanism::UserNamespace),
        (Part::View, Step::Namespaces) => Some(Mechanism::Namespace),
        (Part::View, Step::MountPrivate | Step::MountHidden) => Some(Mechanism::Mount),
        (Part::View, Step::MountRoot | Step::MountReadOnly) => Some(Mechanism::MountAttributes),
        _ => None,
    }
}

/// Whether this process has CAP_SYS_ADMIN, by which the worker decides whether it needs a user namespace.
fn is_administrator() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN))
}

fn broken(probe: Probe, errno: i32) -> String {
    let answer = match errno {
        0 => String::new(),
        errno => format!(" ({})", std::io::Error::from_raw_os_error(errno)),
    };
    if probe.must_work() {
        format!("this must work and did not: {}{answer}", probe.text())
    } else {
        format!("it was possible to {}{answer}", probe.text())
    }
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kept in &self.protections {
            let name = kept.protection.name();
            match &kept.standing {
                Standing::Kept { layers } => {
                    let layers: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
                    writeln!(f, "{name}: kept by {}", layers.join(", "))?;
                }
                Standing::NotKept { cause, accepted } => {
                    writeln!(f, "{name}: not kept{}: {cause}", if *accepted { " (accepted)" } else { "" })?;
                }
                Standing::Permitted => writeln!(f, "{name}: permitted by the policy")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What holds everywhere and what nowhere: the two answers of `possible_layers` that its readers tell apart.
    #[test]
    fn a_protection_that_no_layer_keeps_is_never_kept_and_the_others_can_be() {
        let held: Vec<Finding> = Probe::ALL
            .iter()
            .map(|probe| Finding { probe: *probe, outcome: Outcome::Held, errno: 0 })
            .collect();
        let enforcement = Enforcement::judge(&Policy::default(), &held, &[]);
        for protection in Protection::ALL {
            let possible = Enforcement::possible_layers(*protection);
            match enforcement.standing(*protection) {
                Some(Standing::Kept { layers }) => assert_eq!(*layers, possible, "{protection:?}"),
                standing => assert!(possible.is_empty(), "{protection:?}: {standing:?}"),
            }
        }
        assert!(enforcement.keeps(Protection::Content) && enforcement.keeps(Protection::Metadata));
    }

    /// Each probe is evidence of something, and each way falls with each of its probes.
    #[test]
    fn every_probe_decides_something() {
        let limited = Policy { read: crate::policy::ReadScope::base_only(), ..Policy::default() };
        let judge = |broken: &[Probe]| {
            let outcome = |probe| if broken.contains(&probe) { Outcome::Broken } else { Outcome::Held };
            let findings: Vec<Finding> = Probe::ALL
                .iter()
                .map(|probe| Finding { probe: *probe, outcome: outcome(*probe), errno: 0 })
                .collect();
            [&Policy::default(), &limited].map(|policy| Enforcement::judge(policy, &findings, &[]))
        };
        for probe in Probe::ALL {
            // Where two ways have the same layers, one probe decides when the other way has fallen.
            let decides = judge(&[*probe]) != judge(&[])
                || judge(&[*probe, Probe::ViewWrite]) != judge(&[Probe::ViewWrite])
                || judge(&[*probe, Probe::LinkOutside]) != judge(&[Probe::LinkOutside]);
            assert!(decides, "{probe:?} is tried and decides nothing");
        }
    }

    /// A loopback interface is the session's own only in a network namespace.
    #[test]
    fn loopback_needs_a_namespace() {
        let findings = |outcome| -> Vec<Finding> {
            let outcome_of = |probe| if probe == Probe::HostNetwork { outcome } else { Outcome::Held };
            Probe::ALL
                .iter()
                .map(|probe| Finding { probe: *probe, outcome: outcome_of(*probe), errno: 0 })
                .collect()
        };
        let policy = Policy { network: Network::Loopback, ..Policy::default() };
        assert!(Enforcement::judge(&policy, &findings(Outcome::Held), &[]).keeps(Protection::Network));
        assert!(!Enforcement::judge(&policy, &findings(Outcome::Untried), &[]).keeps(Protection::Network));
        // Neither daemons behind an address nor those behind a name are out of reach of a network.
        let allowed = Policy { network: Network::Allow, ..Policy::default() };
        let allowed = Enforcement::judge(&allowed, &findings(Outcome::Held), &[]);
        assert!(
            !allowed.keeps(Protection::NamedSockets)
                && allowed.require(&Policy { network: Network::Allow, ..Policy::default() }).is_ok()
        );
        let denied = Policy::default();
        assert!(Enforcement::judge(&denied, &findings(Outcome::Held), &[]).keeps(Protection::NamedSockets));
        assert!(Enforcement::judge(&denied, &findings(Outcome::Untried), &[]).keeps(Protection::Network));
    }

    #[test]
    fn a_limit_on_reading_hides_state_if_reading_outside_failed() {
        let mut policy = Policy::default();
        let judged = |policy: &Policy, outcome| {
            let finding = Finding { probe: Probe::ReadOutside, outcome, errno: 0 };
            Enforcement::judge(policy, &[finding], &[]).keeps(Protection::HiddenState)
        };
        policy.read.limit();
        assert!(judged(&policy, Outcome::Held));
        assert!(!judged(&policy, Outcome::Broken) && !judged(&policy, Outcome::Untried));
    }
}
