//! What the worker found out: each protection, whether it is kept, and by what.

use std::fmt;

use bailiwick_wire::{Finding, Outcome, Probe};
use serde::Serialize;

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

/// What keeps a protection without namespaces, and the probes that must all have held.
fn evidence(protection: Protection) -> (&'static [Layer], &'static [Probe]) {
    use Layer::{Capabilities, Hygiene, Keeper, Landlock, Scope, Seccomp};
    match protection {
        Protection::Content => (
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
        Protection::Devices => (&[Landlock, Seccomp], &[Probe::DeviceIoctl, Probe::DeviceNode]),
        Protection::Signals => (&[Scope], &[Probe::SignalOutside, Probe::SignalInside]),
        Protection::Tracing => (&[Landlock], &[Probe::TraceOutside]),
        Protection::Limits => (&[Seccomp], &[Probe::LimitsOutside, Probe::PriorityOutside]),
        Protection::AbstractSockets => (&[Scope], &[Probe::AbstractSocket]),
        Protection::Network => {
            (&[Seccomp], &[Probe::SocketFamilies, Probe::LocalSockets, Probe::IoUring, Probe::ForeignAbi])
        }
        Protection::SharedMemory => (&[Seccomp], &[Probe::SysvIpc]),
        Protection::Privileges => (
            &[Capabilities, Seccomp],
            &[Probe::Capabilities, Probe::NoNewPrivs, Probe::SetIdModes, Probe::PlainModes],
        ),
        Protection::KernelInterfaces => (
            &[Seccomp],
            &[Probe::Namespaces, Probe::Mounts, Probe::KernelInterfaces, Probe::IoUring, Probe::ForeignAbi],
        ),
        Protection::HostControls => (&[Capabilities, Seccomp], &[Probe::HostControls, Probe::Capabilities]),
        Protection::Descriptors => (&[Hygiene], &[Probe::Descriptors]),
        Protection::Terminals => (&[Landlock, Hygiene, Seccomp], &[Probe::Terminal, Probe::IoctlList]),
        Protection::Settlement => (&[Keeper], &[Probe::Orphans]),
        // No layer of this list keeps them.
        Protection::Metadata | Protection::NamedSockets | Protection::HiddenState => (&[], &[]),
    }
}

/// What keeps private state unreadable where the policy limits what commands may read: no namespace is needed then.
const READ_SCOPE: (&[Layer], &[Probe]) = (&[Layer::Landlock], &[Probe::ReadOutside]);

fn no_layer(protection: Protection) -> &'static str {
    match protection {
        Protection::Metadata => {
            "Landlock does not govern modes, owners, times and attributes; a read-only mount view would"
        }
        Protection::NamedSockets => {
            "Landlock of this kernel does not govern connecting to a named socket; a private mount view would"
        }
        _ => {
            "commands may read everything; limiting what they may read, or a private mount view, would hide it"
        }
    }
}

impl Enforcement {
    pub(crate) fn judge(policy: &Policy, findings: &[Finding]) -> Self {
        let protections = Protection::ALL
            .iter()
            .map(|protection| Kept {
                protection: *protection,
                promise: protection.promise(),
                standing: standing(policy, *protection, findings),
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
    pub fn possible_layers(protection: Protection) -> &'static [Layer] {
        evidence(protection).0
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

fn standing(policy: &Policy, protection: Protection, findings: &[Finding]) -> Standing {
    if protection == Protection::Network && policy.network == Network::Allow {
        return Standing::Permitted;
    }
    let accepted = policy.accept.contains(&protection);
    let (layers, probes) = match protection {
        Protection::HiddenState if policy.read.readable().is_some() => READ_SCOPE,
        _ => evidence(protection),
    };
    if layers.is_empty() {
        return Standing::NotKept { cause: no_layer(protection).to_owned(), accepted };
    }
    // Accepting the gap opens what would otherwise be closed for its sake.
    if accepted && protection == Protection::Terminals {
        let cause = "commands may open terminals, which reach those of the same user".to_owned();
        return Standing::NotKept { cause, accepted };
    }
    if accepted && protection == Protection::SharedMemory {
        let cause = "commands may use System V shared memory, semaphores and queues of the host".to_owned();
        return Standing::NotKept { cause, accepted };
    }
    for probe in probes {
        let finding = findings.iter().find(|finding| finding.probe == *probe);
        match finding.map(|finding| finding.outcome) {
            Some(Outcome::Held) => {}
            Some(Outcome::Permitted) => return Standing::Permitted,
            Some(Outcome::Broken) => {
                let cause = broken(*probe, finding.map_or(0, |finding| finding.errno));
                return Standing::NotKept { cause, accepted };
            }
            Some(Outcome::Untried) | None => {
                let cause = format!("it could not be tried: {}", probe.text());
                return Standing::NotKept { cause, accepted };
            }
        }
    }
    Standing::Kept { layers: layers.to_vec() }
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
        let held: Vec<Finding> = Protection::ALL
            .iter()
            .flat_map(|protection| evidence(*protection).1)
            .map(|probe| Finding { probe: *probe, outcome: Outcome::Held, errno: 0 })
            .collect();
        let enforcement = Enforcement::judge(&Policy::default(), &held);
        for protection in Protection::ALL {
            let possible = Enforcement::possible_layers(*protection);
            match enforcement.standing(*protection) {
                Some(Standing::Kept { layers }) => assert_eq!(layers, possible, "{protection:?}"),
                standing => assert!(possible.is_empty(), "{protection:?}: {standing:?}"),
            }
        }
        assert!(enforcement.keeps(Protection::Content) && !enforcement.keeps(Protection::Metadata));
    }

    #[test]
    fn a_limit_on_reading_hides_state_if_reading_outside_failed() {
        let mut policy = Policy::default();
        let judged = |policy: &Policy, outcome| {
            let finding = Finding { probe: Probe::ReadOutside, outcome, errno: 0 };
            Enforcement::judge(policy, &[finding]).keeps(Protection::HiddenState)
        };
        assert!(!judged(&policy, Outcome::Held));
        policy.read.limit();
        assert!(judged(&policy, Outcome::Held));
        assert!(!judged(&policy, Outcome::Broken) && !judged(&policy, Outcome::Untried));
    }
}
