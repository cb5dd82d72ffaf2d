//! Resource limits of a session's commands: which are in force, where each comes from, and what the kernel says of
//! them inside the confinement.

use std::fmt;

use bailiwick_wire::LimitFound;
use rustix::process::getrlimit;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Field, Ran};
use crate::policy::{Limit, Resource};
use crate::worker::SessionLimitInForce;

/// Where a limit comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LimitSource {
    /// The policy asks for it.
    Policy,
    /// Every session has it.
    Default,
    /// It is the one that the host process had when the session was opened.
    Host,
}

/// Soft and hard value of a limit, as the kernel told them to a process inside the confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReadBack {
    /// The limit in force.
    pub soft: u64,
    /// The highest soft limit.
    pub hard: u64,
}

/// A limit that each command of the session has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LimitInForce {
    /// What was set. [`Limit::UNLIMITED`] is no limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Why it is this one.
    pub source: LimitSource,
    /// What was read from the kernel inside the confinement. A session whose kernel shows anything else than what
    /// was set does not open.
    pub read_back: ReadBack,
    /// Whether the kernel refuses what is above the limit, where that was tried: for processes, whose limit does not
    /// bind root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds: Option<bool>,
}

/// The resource limits of a session's commands. See [`Session::limits`](super::Session::limits).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct ResourceLimits {
    /// The limits of each process, in the order of [`Resource::ALL`].
    pub processes: Vec<LimitInForce>,
    /// The limits of the whole session that the policy asks for.
    pub session: Vec<SessionLimitInForce>,
}

impl ResourceLimits {
    /// The limit on this resource that each process has; none where it is as the kernel has it.
    #[must_use]
    pub fn of(&self, resource: Resource) -> Option<&LimitInForce> {
        self.processes.iter().find(|found| found.limit.resource == resource)
    }

    pub(super) fn with_session(mut self, session: Vec<SessionLimitInForce>) -> Self {
        self.session = session;
        self
    }

    /// What each command is started with.
    pub(super) fn to_wire(&self) -> Vec<bailiwick_wire::Limit> {
        self.processes.iter().map(|found| wire(&found.limit)).collect()
    }
}

impl fmt::Display for LimitInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value =
            |value: u64| if value == Limit::UNLIMITED { "unlimited".to_owned() } else { value.to_string() };
        let Limit { resource, soft, hard } = self.limit;
        write!(f, "{}: {}", resource.name(), value(soft))?;
        if soft != hard {
            write!(f, ", at most {}", value(hard))?;
        }
        f.write_str(match self.source {
            LimitSource::Policy => " (asked for)",
            LimitSource::Default => " (always)",
            LimitSource::Host => " (as the host has it)",
        })?;
        if self.binds == Some(false) {
            f.write_str("; does not bind this user")?;
        }
        Ok(())
    }
}

impl fmt::Display for ResourceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.processes {
            writeln!(f, "{found}")?;
        }
        for found in &self.session {
            writeln!(f, "{found}")?;
        }
        Ok(())
    }
}

/// Limits that are set for each command whatever the policy says of them: what the worker changes for itself, what a
/// command could leave behind, and what it could use up for others.
const ALWAYS: [Resource; 4] = [Resource::FileSize, Resource::Core, Resource::Processes, Resource::OpenFiles];

/// The limits to set, with the source of each, in the order of [`Resource::ALL`].
///
/// Apart from memory images, a default of our own would stop somebody's build or not stop anybody's accident: how many
/// processes a user has on the whole host, and how large a disk is, only the host knows.
pub(super) fn asked(policy: &[Limit], host: &[Limit]) -> Vec<(Limit, LimitSource)> {
    let find = |limits: &[Limit], resource| limits.iter().copied().find(|limit| limit.resource == resource);
    let one = |resource: &Resource| match find(policy, *resource) {
        Some(limit) => Some((limit, LimitSource::Policy)),
        None if *resource == Resource::Core => Some((Limit::of(Resource::Core, 0), LimitSource::Default)),
        None => find(host, *resource).map(|limit| (limit, LimitSource::Host)),
    };
    Resource::ALL.iter().filter_map(one).collect()
}

/// The limits of this process that its commands get where the policy says nothing.
pub(super) fn of_host() -> Vec<Limit> {
    use rustix::process::Resource as Name;
    let read = |resource: &Resource| {
        let name = match resource {
            Resource::FileSize => Name::Fsize,
            Resource::Processes => Name::Nproc,
            Resource::OpenFiles => Name::Nofile,
            _ => return None,
        };
        let found = getrlimit(name);
        Some(Limit {
            resource: *resource,
            soft: found.current.unwrap_or(Limit::UNLIMITED),
            hard: found.maximum.unwrap_or(Limit::UNLIMITED),
        })
    };
    ALWAYS.iter().filter_map(read).collect()
}

/// The message form of a limit.
pub(super) fn wire(limit: &Limit) -> bailiwick_wire::Limit {
    bailiwick_wire::Limit { resource: limit.resource.number(), soft: limit.soft, hard: limit.hard }
}

/// Compares what was asked for with what the kernel made of it.
///
/// # Errors
/// `LimitNotKept`: a limit was refused, or reads otherwise than it was set, or could not be read.
pub(super) fn judge(asked: &[(Limit, LimitSource)], found: &[LimitFound]) -> Result<ResourceLimits, Error> {
    let mut limits = ResourceLimits::default();
    for (index, (limit, source)) in asked.iter().enumerate() {
        let found = found.get(index).filter(|found| found.limit.resource == limit.resource.number());
        let is_kept = found.is_some_and(|found| {
            let same = (found.limit.soft, found.limit.hard) == (limit.soft, limit.hard);
            same && found.set_errno == 0 && found.read_errno == 0
        });
        match found {
            Some(found) if is_kept => limits.processes.push(LimitInForce {
                limit: *limit,
                source: *source,
                read_back: ReadBack { soft: found.limit.soft, hard: found.limit.hard },
                binds: found.binds,
            }),
            _ => return Err(not_kept(*limit, *source, found)),
        }
    }
    Ok(limits)
}

fn not_kept(limit: Limit, source: LimitSource, found: Option<&LimitFound>) -> Error {
    let name = limit.resource.name();
    let errno =
        found.map_or(0, |found| if found.set_errno == 0 { found.read_errno } else { found.set_errno });
    let what = match found {
        Some(found) if found.set_errno != 0 => "the kernel does not let a command have it",
        Some(found) if found.read_errno == 0 => "the kernel took it, and shows another one",
        _ => "it could not be read back inside the confinement",
    };
    let mut error = Error::new(ErrorKind::LimitNotKept, format!("the limit `{name}` is not kept: {what}"))
        .with_ran(Ran::Nothing)
        .text("resource", name)
        .number("soft", limit.soft)
        .number("hard", limit.hard)
        .with(
            "source",
            Field::Text(
                match source {
                    LimitSource::Policy => "policy",
                    LimitSource::Default => "default",
                    LimitSource::Host => "host",
                }
                .to_owned(),
            ),
        );
    if let Some(found) = found.filter(|found| found.read_errno == 0) {
        error = error.number("found_soft", found.limit.soft).number("found_hard", found.limit.hard);
    }
    if errno != 0 {
        error = error.number("errno", errno).source(std::io::Error::from_raw_os_error(errno));
    }
    error.hint(if found.is_some_and(|found| found.set_errno != 0) {
        "ask for at most the hard limit of this process: commands have no capabilities, so none can raise it"
    } else {
        "whatever answers for the kernel here (a filter of a container, an emulated kernel) must let `prlimit` through"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limit: Limit) -> LimitFound {
        LimitFound { limit: wire(&limit), set_errno: 0, read_errno: 0, binds: None }
    }

    #[test]
    fn what_is_asked_is_the_policys_then_the_default_then_the_hosts() {
        let host = [Limit::of(Resource::OpenFiles, 1024), Limit::of(Resource::FileSize, Limit::UNLIMITED)];
        let policy = [Limit::of(Resource::OpenFiles, 64), Limit::of(Resource::Cpu, 5)];
        let sources = |asked: Vec<(Limit, LimitSource)>| -> Vec<(Resource, u64, LimitSource)> {
            asked.into_iter().map(|(limit, source)| (limit.resource, limit.soft, source)).collect()
        };
        use LimitSource::{Default, Host, Policy};
        assert_eq!(
            sources(asked(&policy, &host)),
            [
                (Resource::Cpu, 5, Policy),
                (Resource::FileSize, Limit::UNLIMITED, Host),
                (Resource::Core, 0, Default),
                (Resource::OpenFiles, 64, Policy),
            ]
        );
        assert_eq!(
            sources(asked(&[], &host)),
            [
                (Resource::FileSize, Limit::UNLIMITED, Host),
                (Resource::Core, 0, Default),
                (Resource::OpenFiles, 1024, Host),
            ]
        );
    }

    #[test]
    fn this_process_has_the_limits_that_commands_get() {
        let names: Vec<_> = of_host().iter().map(|limit| limit.resource).collect();
        assert_eq!(names, [Resource::FileSize, Resource::Processes, Resource::OpenFiles]);
        assert!(of_host().iter().all(|limit| limit.soft <= limit.hard));
    }

    #[test]
    fn only_what_reads_as_it_was_set_is_kept() {
        let limit = Limit { resource: Resource::OpenFiles, soft: 10, hard: 20 };
        let asked = [(limit, LimitSource::Policy)];
        let kept = judge(&asked, &[found(limit)]).unwrap();
        assert_eq!(
            kept.of(Resource::OpenFiles).map(|kept| kept.read_back),
            Some(ReadBack { soft: 10, hard: 20 })
        );
        let other = |change: &dyn Fn(&mut LimitFound)| {
            let mut found = found(limit);
            change(&mut found);
            vec![found]
        };
        for (answers, field) in [
            (other(&|found| found.limit.soft = 11), "found_soft"),
            (other(&|found| found.limit.hard = 19), "found_hard"),
            (other(&|found| found.set_errno = 1), "errno"),
            (other(&|found| found.read_errno = 38), "errno"),
            (other(&|found| found.limit.resource = 4), "resource"),
            (Vec::new(), "resource"),
        ] {
            let error = judge(&asked, &answers).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitNotKept);
            assert_eq!(error.field("resource").and_then(Field::as_text), Some("open-files"));
            assert!(error.field(field).is_some() && !error.hints().is_empty(), "{}", error.report());
        }
    }

    #[test]
    fn a_report_is_told_and_serialised() {
        let limit = Limit { resource: Resource::Processes, soft: 7, hard: Limit::UNLIMITED };
        let answer = LimitFound { binds: Some(false), ..found(limit) };
        let limits = judge(&[(limit, LimitSource::Host)], &[answer]).unwrap();
        assert_eq!(
            limits.to_string(),
            "processes: 7, at most unlimited (as the host has it); does not bind this user\n"
        );
        assert_eq!(
            serde_json::to_value(&limits).unwrap(),
            serde_json::json!({ "processes": [{
                "resource": "processes", "soft": 7, "hard": u64::MAX, "source": "host",
                "read_back": { "soft": 7, "hard": u64::MAX }, "binds": false,
            }], "session": [] })
        );
    }
}
