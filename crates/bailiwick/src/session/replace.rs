//! Replacing the write roots of a session.

use std::future::{Future, IntoFuture};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_wire::{Event, Request, Step, Unusable};
use tokio::sync::oneshot;

use super::Session;
use super::check::{check, issue};
use super::limits::{self, LimitSource, ResourceLimits};
use super::refused::not_confined;
use super::state::{Progress, Shared, unexpected, worker_lost};
use crate::error::{Error, ErrorKind, Field, Quoted, Ran, SystemCall};
use crate::guard::Grant;
use crate::identity::PinnedDir;
use crate::policy::{Limit, Protection, ReadScope, RootCapabilities};
use crate::store::StoreDir;
use crate::worker::{Enforcement, TemporaryDir, grant_ruleset, landlock_shortfall};

/// What the worker will say of a grant.
pub(super) type Answer = oneshot::Receiver<Event>;

/// What to do about commands that still run under the grant that is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenBusy {
    /// Refuse, and list them.
    #[default]
    Refuse,
    /// Wait for them to end, at most this long, then refuse.
    Wait(Duration),
    /// End their whole trees.
    Kill,
}

/// A replacement of write roots, before it is awaited.
#[derive(Debug)]
#[must_use = "nothing is replaced until this is awaited"]
pub struct Replace<'s> {
    session: &'s Session,
    roots: Vec<PathBuf>,
    read: Option<ReadScope>,
    when_busy: WhenBusy,
}

impl Session {
    /// Replaces the write roots, for commands that start from then on.
    ///
    /// What commands may read stays as the policy says, and is opened and compared again. Await it, or say first
    /// [what they may read](Replace::read_scope) instead, and what to do [when commands still run](Replace::when_busy).
    ///
    /// # Errors
    /// All that [`SessionBuilder::open`](super::SessionBuilder::open) says of roots and protections;
    /// `SessionBusy` with the commands that run; `GrantFailed`, `SessionClosed`, `WorkerLost`. After an error the grant before
    /// is in force.
    pub fn replace_write_roots<I>(&self, roots: I) -> Replace<'_>
    where
        I: IntoIterator,
        I::Item: Into<PathBuf>,
    {
        let roots = roots.into_iter().map(Into::into).collect();
        Replace { session: self, roots, read: None, when_busy: WhenBusy::default() }
    }
}

impl<'s> Replace<'s> {
    /// Says what to do about commands that still run. By default the replacement is refused.
    pub fn when_busy(mut self, when_busy: WhenBusy) -> Self {
        self.when_busy = when_busy;
        self
    }

    /// Says what commands may read from then on. By default what they may read now.
    pub fn read_scope(mut self, scope: ReadScope) -> Self {
        self.read = Some(scope);
        self
    }

    async fn run(self) -> Result<(), Error> {
        let session = self.session;
        // Waits for commands that are starting, and lets none start until this is over.
        let mut active = session.active.write().await;
        session.shared.check_open()?;
        let mut policy = active.grant.policy().clone();
        policy.write_roots = self.roots;
        if let Some(read) = self.read {
            policy.read = read;
        }
        let (protected, searched) = (active.grant.protected().clone(), active.grant.searched());
        let grant = match issue(&policy, protected, searched).await {
            Ok(grant) => grant,
            Err(error) => {
                // Where it is refused for an alias, the grant in force may have one too, and what runs is marked.
                let _marked = check(&session.shared, &active.grant).await;
                return Err(error);
            }
        };
        clear(&session.shared, self.when_busy).await?;
        // One that was dropped half-way must be over first: the worker may still be confining itself to it.
        if let Some((epoch, answer)) = &mut active.unanswered {
            drop(answer.await);
            retire(&session.shared, *epoch);
            active.unanswered = None;
        }
        let grant = Arc::new(grant);
        let asked = limits::asked(&policy.limits, &session.host_limits);
        let mut tries = TRIES;
        let (epoch, found) = loop {
            // Never a number that was used before, by whatever came to nothing: what the worker made for that
            // would be taken for this grant's.
            active.asked += 1;
            let epoch = active.asked;
            let answer = ask(&session.shared, epoch, &grant, &session.store, &session.temporary, &asked)?;
            let (_, answer) = active.unanswered.insert((epoch, answer));
            let answered = answer.await;
            active.unanswered = None;
            let concluded = conclude(&session.shared, epoch, &grant, &asked, answered, &mut tries).await?;
            if let Some(found) = concluded {
                break (epoch, found);
            }
        };
        retire(&session.shared, active.epoch);
        active.epoch = epoch;
        active.grant = grant;
        active.enforcement = found.enforcement;
        let of_session = std::mem::take(&mut active.limits.session);
        active.limits = found.limits.with_session(of_session);
        tracing::info!(epoch, roots = active.grant.roots().len(), "write roots replaced");
        Ok(())
    }
}

impl<'s> IntoFuture for Replace<'s> {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 's>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Deals with the commands that still run.
async fn clear(shared: &Shared, when_busy: WhenBusy) -> Result<(), Error> {
    let running = shared.running();
    match when_busy {
        _ if running.is_empty() => return Ok(()),
        WhenBusy::Refuse => return Err(busy(&running)),
        WhenBusy::Kill => running.iter().for_each(|(command, _)| shared.end_tree(*command)),
        WhenBusy::Wait(_) => {}
    }
    let all_settled = async {
        for (command, _) in &running {
            if let Some(mut progress) = shared.watch(*command) {
                // Its sender goes away when it has settled, which is as good.
                drop(progress.wait_for(|progress| progress.settled || progress.worker_lost).await);
            }
        }
    };
    match when_busy {
        WhenBusy::Wait(limit) => {
            tokio::time::timeout(limit, all_settled).await.map_err(|_| busy(&shared.running()))?;
        }
        _ => all_settled.await,
    }
    shared.check_open()
}

fn busy(running: &[(u64, Progress)]) -> Error {
    let commands = running.iter().map(|(command, _)| Field::Text(command.to_string())).collect();
    let pids: Vec<u32> =
        running.iter().filter_map(|(_, progress)| progress.started.map(|started| started.pid)).collect();
    let shown: Vec<String> = pids.iter().map(ToString::to_string).collect();
    Error::new(
        ErrorKind::SessionBusy,
        format!(
            "cannot replace the write roots: commands still run under the grant in force: {}",
            shown.join(", ")
        ),
    )
    .with("commands", Field::List(commands))
    .with("pids", Field::List(pids.into_iter().map(|pid| Field::Number(pid.into())).collect()))
    .hint("wait for them, end them, or say that replacing may wait for them or end them")
}

fn retire(shared: &Shared, epoch: u32) {
    // A worker that is gone has nothing to retire.
    drop(shared.link.send(&Request::Retire { epoch }, &[]));
}

/// What the worker found out about a grant.
pub(super) struct Established {
    pub(super) enforcement: Enforcement,
    pub(super) limits: ResourceLimits,
}

/// Has the worker confine itself to a grant, and judges what it found.
pub(super) async fn establish(
    shared: &Shared,
    grant: &Arc<Grant>,
    store: &StoreDir,
    temporary: &TemporaryDir,
    host_limits: &[Limit],
) -> Result<(u32, Established), Error> {
    let asked = limits::asked(&grant.policy().limits, host_limits);
    let mut tries = TRIES;
    for epoch in 1.. {
        let answer = ask(shared, epoch, grant, store, temporary, &asked)?.await;
        if let Some(found) = conclude(shared, epoch, grant, &asked, answer, &mut tries).await? {
            return Ok((epoch, found));
        }
    }
    Err(unexpected())
}

/// How often a view is made again because the mounts changed after they were compared.
const TRIES: usize = 8;

/// Decides whether a grant comes into force. `None` when the mounts changed before its view was made: what commands would
/// see is not what was compared. Then all is compared again, and another view must be made.
async fn conclude(
    shared: &Shared,
    epoch: u32,
    grant: &Arc<Grant>,
    asked: &[(Limit, LimitSource)],
    answer: Result<Event, oneshot::error::RecvError>,
    tries: &mut usize,
) -> Result<Option<Established>, Error> {
    let has_view = matches!(answer, Ok(Event::Granted { has_view: true, .. }));
    let found = judge(shared, epoch, grant, asked, answer)?;
    if !has_view || grant.take_view().inspect_err(|_| retire(shared, epoch))? {
        return Ok(Some(found));
    }
    retire(shared, epoch);
    *tries -= 1;
    if *tries == 0 {
        return Err(Error::new(
            ErrorKind::RootUnprovable,
            "the mount table changes faster than it can be compared",
        )
        .with_ran(Ran::Nothing)
        .hint("try again when nothing is being mounted")
        .retry(true));
    }
    check(shared, grant).await.map(|()| None)
}

/// Asks the worker to confine itself to a grant.
fn ask(
    shared: &Shared,
    epoch: u32,
    grant: &Grant,
    store: &StoreDir,
    temporary: &TemporaryDir,
    limits: &[(Limit, LimitSource)],
) -> Result<Answer, Error> {
    let policy = grant.policy();
    let mut directories: Vec<_> = grant.roots().iter().map(PinnedDir::as_fd).collect();
    directories.push(temporary.directory().as_fd());
    let terminals = policy.accept.contains(&Protection::Terminals);
    let (ruleset, handled) = grant_ruleset(&directories, grant.reads(), terminals)?;
    // A close that came meanwhile has removed it.
    let pinned = PinnedDir::working_directory(temporary.path())
        .map_err(|error| shared.check_open().err().unwrap_or(error))?;
    let plan = in_memory(&grant.plan(&pinned, store.run_dir()).encode())?;
    let host = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
        .map_err(|errno| {
        Error::new(ErrorKind::Io, "cannot name this process by a descriptor")
            .with_ran(Ran::Nothing)
            .source(SystemCall::new("pidfd_open", "itself", errno))
    })?;
    let answer = shared.expect_grant(epoch);
    let request = Request::Grant(bailiwick_wire::Grant {
        epoch,
        network: policy.network != crate::policy::Network::Deny,
        sysv_ipc: policy.accept.contains(&Protection::SharedMemory),
        read_scope: grant.reads().is_some(),
        broker: policy.network != crate::policy::Network::Allow,
        handled,
        host_pid: std::process::id(),
        sentinel: crate::store::SENTINEL.as_bytes().to_vec(),
        limits: limits.iter().map(|(limit, _)| limits::wire(limit)).collect(),
        keep_files_capabilities: policy.root_capabilities == RootCapabilities::Files,
    });
    let descriptors =
        [ruleset.as_fd(), store.run_dir().as_fd(), temporary.directory().as_fd(), plan.as_fd(), host.as_fd()];
    shared.link.send(&request, &descriptors).map_err(|error| worker_lost().source(error))?;
    Ok(answer)
}

/// A file in memory: a message would be too small for thousands of roots.
fn in_memory(bytes: &[u8]) -> Result<std::fs::File, Error> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Io, "cannot keep a list of the write roots in memory")
            .with_ran(Ran::Nothing)
            .source(error)
    };
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create(c"bailiwick-plan", flags).map_err(|errno| failed(errno.into()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).map_err(failed)?;
    Ok(file)
}

/// The refusal of a root in which nothing can be written from inside.
fn unusable(grant: &Grant, found: &Unusable) -> Error {
    let root = usize::try_from(found.root).ok().and_then(|position| grant.roots().get(position));
    let given = root.map(|root| root.given().to_owned()).unwrap_or_default();
    let answer = std::io::Error::from_raw_os_error(found.errno);
    let (kind, predicate, hint) = if found.by_mode {
        (
            ErrorKind::RootNotAccessible,
            "cannot be written by commands, which have no capabilities",
            "grant directories that this user owns, or change owner or mode of this one; a process of root keeps \
             none of root's powers inside",
        )
    } else {
        (
            ErrorKind::RootNotEnforceable,
            "refuses every write from inside the confinement, though it was granted",
            "the file system may show another object for each lookup (9p and shares of virtual machines do): keep \
             the root on a local file system, or mount it with caching",
        )
    };
    let error = Error::new(kind, format!("write root {predicate}: {}", Quoted::new(&given)))
        .with_ran(Ran::Nothing)
        .path("root", given)
        .number("errno", found.errno)
        .hint(hint)
        .source(answer);
    let keeps_none = grant.policy().root_capabilities == RootCapabilities::None;
    let error = if found.by_mode && keeps_none && rustix::process::geteuid().is_root() {
        error.hint("or let commands keep root's powers over files: root capabilities `files`, where there is a mount view")
    } else {
        error
    };
    match root.map(|root| root.fs_type()) {
        Some(Some(fs_type)) => error.text("fs_type", fs_type),
        _ => error,
    }
}

/// Decides by what the worker found whether the grant may come into force.
fn judge(
    shared: &Shared,
    epoch: u32,
    grant: &Grant,
    asked: &[(Limit, LimitSource)],
    answer: Result<Event, oneshot::error::RecvError>,
) -> Result<Established, Error> {
    let policy = grant.policy();
    match answer.map_err(|_| worker_lost())? {
        Event::Granted { findings, unusable: roots, limits: found, lacking, .. } => {
            let enforcement = Enforcement::judge(policy, &findings, &lacking);
            tracing::debug!(epoch, ?findings, "the worker is confined");
            if let Err(error) = enforcement.require(policy) {
                retire(shared, epoch);
                return Err(landlock_shortfall(error));
            }
            if let Some(first) = roots.first() {
                retire(shared, epoch);
                return Err(unusable(grant, first));
            }
            let limits = limits::judge(asked, &found).inspect_err(|_| retire(shared, epoch))?;
            Ok(Established { enforcement, limits })
        }
        Event::GrantFailed { step: Step::MountIdentity, root: Some(root), .. } => {
            let root = usize::try_from(root).ok().and_then(|position| grant.roots().get(position));
            let given = root.map(|root| root.given().to_owned()).unwrap_or_default();
            Err(Error::new(
                ErrorKind::RootIdentityChanged,
                format!(
                    "write root names another object than the one that was granted: {}",
                    Quoted::new(&given)
                ),
            )
            .with_ran(Ran::Nothing)
            .path("root", given)
            .hint("somebody renames or mounts there right now: try again when that is over")
            .retry(true))
        }
        Event::GrantFailed { step, errno, .. } => Err(not_confined(step, errno)),
        _ => Err(unexpected()),
    }
}
