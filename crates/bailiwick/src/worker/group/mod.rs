//! The control group of a session: all its processes together, with limits of their own (cgroup v2).
//!
//! The group is made below the one of this process, or below one that the caller names, and the worker enters it before
//! it starts anything. That it did, and that the kernel took the limits, is read back. Nothing is done behind the back
//! of whoever set this process a limit: no group beside or above its own is used unless the caller names it.

mod place;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use crate::error::{Error, ErrorKind, Quoted, SystemCall};
use crate::policy::{Policy, SessionLimit};
use place::{Place, read, write};

/// Why a limit of a whole session is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GroupCause {
    /// No cgroup v2 file system is mounted here that shows the group of this process.
    NoCgroupV2,
    /// The group that was named is no directory of a cgroup v2 file system.
    NotAGroup,
    /// The group does not have the controller: the kernel has none, an older hierarchy uses it, or a group above does
    /// not hand it on.
    ControllerMissing,
    /// The user of this process may not make groups there.
    NotDelegated,
    /// The group holds processes itself, and the kernel then gives none below it a controller of this kind.
    InternalProcesses,
    /// The group is part of a threaded subtree, whose groups cannot have a controller of this kind.
    Threaded,
    /// The kernel took the value, and shows another one.
    NotTaken,
    /// The worker could not enter the group.
    NotEntered,
    /// Another answer of the kernel, which the error carries.
    Refused,
}

impl GroupCause {
    /// One word for programs, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCgroupV2 => "no-cgroup-v2",
            Self::NotAGroup => "not-a-group",
            Self::ControllerMissing => "controller-missing",
            Self::NotDelegated => "not-delegated",
            Self::InternalProcesses => "internal-processes",
            Self::Threaded => "threaded",
            Self::NotTaken => "not-taken",
            Self::NotEntered => "not-entered",
            Self::Refused => "refused",
        }
    }

    /// The same for a person.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NoCgroupV2 => "no cgroup v2 file system here shows the group of this process",
            Self::NotAGroup => "the group that was named is no directory of a cgroup v2 file system",
            Self::ControllerMissing => "the group does not have the controller",
            Self::NotDelegated => "this user may not make groups there",
            Self::InternalProcesses => {
                "the group holds processes itself, and so cannot hand the controller on"
            }
            Self::Threaded => "the group is threaded, and so cannot have the controller",
            Self::NotTaken => "the kernel took the value and shows another one",
            Self::NotEntered => "the worker could not enter the group that was made for it",
            Self::Refused => "the kernel refused",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::NoCgroupV2 => "mount cgroup v2 where this process sees it, usually at `/sys/fs/cgroup`",
            Self::NotAGroup => "name a directory of the cgroup v2 file system by its absolute path",
            Self::ControllerMissing => {
                "name the controller in `cgroup.subtree_control` of each group above; where cgroup v1 is mounted for it, the \
                 machine must be booted without that"
            }
            Self::NotDelegated => {
                "have the group delegated to this user (systemd: `Delegate=yes`), or name one that is"
            }
            Self::InternalProcesses => {
                "move this process to a group of its own below one that is delegated (systemd: `DelegateSubgroup=`), and \
                 name that one as the parent"
            }
            Self::Threaded => "name a group that is not threaded as the parent",
            Self::NotTaken => "whatever stands in for the kernel here cannot keep the limit",
            Self::NotEntered => {
                "let this user write `cgroup.procs` of the nearest group above both its own and the session's"
            }
            Self::Refused => "see the kernel's answer",
        }
    }
}

/// Whether a limit of a whole session is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
#[non_exhaustive]
pub enum SessionLimitStanding {
    /// The kernel keeps it.
    Kept {
        /// What was read back; memory is kept in whole pages.
        read_back: u64,
        /// The group, where this process sees it. It is gone once the session has ended.
        group: PathBuf,
    },
    /// It is not kept, which the policy accepts.
    NotKept {
        /// Why.
        cause: GroupCause,
    },
}

/// A limit of a whole session that the policy asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionLimitInForce {
    /// What is limited.
    pub limit: SessionLimit,
    /// What was asked for.
    pub value: u64,
    /// What became of it.
    #[serde(flatten)]
    pub standing: SessionLimitStanding,
}

impl fmt::Display for SessionLimitInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.limit.name();
        match &self.standing {
            SessionLimitStanding::Kept { read_back, .. } => {
                write!(f, "{name}: {read_back} for the whole session")
            }
            SessionLimitStanding::NotKept { cause } => {
                write!(f, "{name}: not kept (accepted): {}", cause.text())
            }
        }
    }
}

/// Why there is no group, or no limit on it.
#[derive(Debug, Clone)]
struct Failure {
    cause: GroupCause,
    /// The group in question.
    group: Option<PathBuf>,
    /// The call that said so, and its answer. Its object is the group, or a file in it.
    call: Option<(&'static str, Errno)>,
}

impl Failure {
    fn of(cause: GroupCause, group: &Path) -> Self {
        Self { cause, group: Some(group.to_owned()), call: None }
    }

    /// A call that failed, with the cause that its answer tells.
    fn call(call: &'static str, path: &Path, errno: Errno) -> Self {
        let cause = match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => GroupCause::NotDelegated,
            Errno::BUSY => GroupCause::InternalProcesses,
            Errno::OPNOTSUPP => GroupCause::Threaded,
            _ => GroupCause::Refused,
        };
        Self { call: Some((call, errno)), ..Self::of(cause, path) }
    }
}

fn controller(limit: SessionLimit) -> &'static str {
    match limit {
        SessionLimit::MemoryMax => "memory",
        SessionLimit::ProcessesMax => "pids",
    }
}

/// What is written, file by file, so that the kernel keeps a limit. The first file must be there.
fn files(limit: SessionLimit, value: u64) -> Vec<(&'static str, u64)> {
    match limit {
        // In swap, what the limit keeps out of memory would only be elsewhere.
        SessionLimit::MemoryMax => vec![("memory.max", value), ("memory.swap.max", 0)],
        SessionLimit::ProcessesMax => vec![("pids.max", value)],
    }
}

/// What the kernel must show for a value.
fn rounded(limit: SessionLimit, value: u64) -> u64 {
    match limit {
        SessionLimit::MemoryMax => {
            let page = rustix::param::page_size() as u64;
            value / page * page
        }
        SessionLimit::ProcessesMax => value,
    }
}

/// A group that was made, and is removed again unless the worker is in it; then its keeper removes it.
#[derive(Debug)]
pub(crate) struct Made {
    parent: OwnedFd,
    name: String,
    directory: OwnedFd,
    path: PathBuf,
}

impl Made {
    /// Makes a group with a name that nobody can have taken before.
    fn below(place: &Place) -> Result<Self, Failure> {
        let mut random = [0_u8; 8];
        let path = place.path();
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|errno| Failure::call("getrandom", path, errno))?;
        let name = format!("bailiwick-{:016x}", u64::from_ne_bytes(random));
        let path = path.join(&name);
        mkdirat(place.directory(), &name, Mode::from_raw_mode(0o755))
            .map_err(|errno| Failure::call("mkdir", &path, errno))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(place.directory(), &name, flags, Mode::empty());
        let parent = place.directory().try_clone_to_owned();
        match (opened, parent) {
            (Ok(directory), Ok(parent)) => Ok(Self { parent, name, directory, path }),
            (opened, _) => {
                // Nobody is in it yet.
                unlinkat(place.directory(), &name, AtFlags::REMOVEDIR).ok();
                Err(Failure::call("openat", &path, opened.err().unwrap_or(Errno::MFILE)))
            }
        }
    }

    /// Has the kernel keep a limit, and reads it back.
    fn limit(&self, limit: SessionLimit, value: u64) -> Result<SessionLimitStanding, Failure> {
        for (index, (file, value)) in files(limit, value).into_iter().enumerate() {
            let path = self.path.join(file);
            match write(&self.directory, file, &value.to_string()) {
                // A kernel that does not count swap has no file for it.
                Err(Errno::NOENT) if index > 0 => continue,
                written => written.map_err(|errno| Failure::call("write", &path, errno))?,
            }
            let expected = if index == 0 { rounded(limit, value) } else { value };
            let shown = read(&self.directory, file).map_err(|errno| Failure::call("read", &path, errno))?;
            if shown.trim_end().parse() != Ok(expected) {
                return Err(Failure::of(GroupCause::NotTaken, &path));
            }
        }
        Ok(SessionLimitStanding::Kept { read_back: rounded(limit, value), group: self.path.clone() })
    }

    /// Whether processes are in it, and this one is not.
    fn is_entered(&self) -> Result<(), Failure> {
        const FILE: &str = "cgroup.procs";
        let path = self.path.join(FILE);
        let inside = read(&self.directory, FILE).map_err(|errno| Failure::call("read", &path, errno))?;
        let own = std::process::id().to_string();
        if inside.is_empty() || inside.lines().any(|pid| pid == own) {
            return Err(Failure::of(GroupCause::NotEntered, &self.path));
        }
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Refused while the worker is in it, and nothing is left to remove once its keeper was here.
        unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR).ok();
    }
}

/// The group of a session, and what became of the limits that it is for.
#[derive(Debug, Default)]
pub(crate) struct SessionGroup {
    made: Option<Made>,
    limits: Vec<SessionLimitInForce>,
}

impl SessionGroup {
    /// Makes the group that the limits of the policy need; none where there are none.
    ///
    /// # Errors
    /// `SessionLimitUnavailable` with the cause, for the first limit that cannot be kept and was not accepted.
    pub(crate) fn for_session(policy: &Policy) -> Result<Self, Error> {
        let mut group = Self::default();
        if policy.session_limits.is_empty() {
            return Ok(group);
        }
        let place = Place::find(policy.group_parent.as_deref());
        let mut possible = BTreeMap::new();
        for (limit, value) in &policy.session_limits {
            let enabled = match &place {
                Ok(place) => place.enable(controller(*limit)),
                Err(failure) => Err(failure.clone()),
            };
            match enabled {
                Ok(()) => drop(possible.insert(*limit, *value)),
                Err(failure) => group.give_up(policy, *limit, *value, failure)?,
            }
        }
        let Some(made) = place.ok().filter(|_| !possible.is_empty()).map(|place| Made::below(&place)) else {
            return Ok(group);
        };
        for (limit, value) in possible {
            let standing = match &made {
                Ok(made) => made.limit(limit, value),
                Err(failure) => Err(failure.clone()),
            };
            match standing {
                Ok(standing) => group.limits.push(SessionLimitInForce { limit, value, standing }),
                Err(failure) => group.give_up(policy, limit, value, failure)?,
            }
        }
        let is_needed =
            group.limits.iter().any(|limit| matches!(limit.standing, SessionLimitStanding::Kept { .. }));
        group.made = made.ok().filter(|_| is_needed);
        Ok(group)
    }

    /// The group, for the worker to enter.
    pub(crate) fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }

    /// Sees that the worker is in it.
    ///
    /// # Errors
    /// As [`for_session`](Self::for_session).
    pub(crate) fn confirm(&mut self, policy: &Policy) -> Result<(), Error> {
        let Some(Err(failure)) = self.made.as_ref().map(Made::is_entered) else {
            return Ok(());
        };
        self.made = None;
        for limit in std::mem::take(&mut self.limits) {
            if matches!(limit.standing, SessionLimitStanding::Kept { .. }) {
                self.give_up(policy, limit.limit, limit.value, failure.clone())?;
            } else {
                self.limits.push(limit);
            }
        }
        Ok(())
    }

    pub(crate) fn into_limits(mut self) -> Vec<SessionLimitInForce> {
        self.limits.sort_by_key(|limit| limit.limit);
        self.limits
    }

    /// Notes that a limit is not kept, where that was accepted.
    fn give_up(
        &mut self,
        policy: &Policy,
        limit: SessionLimit,
        value: u64,
        failure: Failure,
    ) -> Result<(), Error> {
        if !policy.accept_limits.contains(&limit) {
            return Err(unavailable(limit, value, failure));
        }
        tracing::warn!(
            limit = limit.name(),
            cause = failure.cause.name(),
            "a limit of the session is not kept"
        );
        let standing = SessionLimitStanding::NotKept { cause: failure.cause };
        self.limits.push(SessionLimitInForce { limit, value, standing });
        Ok(())
    }
}

impl Made {
    pub(crate) fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn unavailable(limit: SessionLimit, value: u64, failure: Failure) -> Error {
    let name = limit.name();
    let cause = failure.cause;
    let at = failure.group.as_deref().map(|group| format!(" ({})", Quoted::new(group))).unwrap_or_default();
    let mut error = Error::new(
        ErrorKind::SessionLimitUnavailable,
        format!("this host cannot keep the limit `{name}` of a session: {}{at}", cause.text()),
    )
    .text("limit", name)
    .number("value", value)
    .text("cause", cause.name())
    .text("controller", controller(limit));
    if let Some(group) = failure.group {
        if let Some((call, errno)) = failure.call {
            error = error.number("errno", errno.raw_os_error()).source(SystemCall::new(call, &group, errno));
        }
        error = error.path("group", group);
    }
    error.hint(cause.hint()).hint(format!("or accept by name that it is not kept: `{name}`"))
}
