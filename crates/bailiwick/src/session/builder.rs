//! Describing and opening a session.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_wire::{Event, Request, Step};
use rustix::fs::{Mode, OFlags};
use tokio::sync::oneshot;

use super::check::issue;
use super::refused::not_confined;
use super::state::{Shared, unexpected, worker_lost};
use super::{Active, Session, launch, limits, replace};
use crate::error::{Error, ErrorKind, SystemCall};
use crate::guard::{self, LinkSearch, ProtectedSet, ProtectedSetBuilder, Searched, Verdict};
use crate::identity::PinnedDir;
use crate::policy::{Limit, Network, Policy, Protection, ReadScope, RootCapabilities, SessionLimit};
use crate::store::{StoreDir, StorePlace};
use crate::worker::{self, Image, SessionGroup, TemporaryDir, scope_ruleset};

/// Time after which `close` reports what it could not end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// Describes a session. See [`Session::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is opened"]
pub struct SessionBuilder {
    store: PathBuf,
    policy: Policy,
    temporary_parent: PathBuf,
    close_deadline: Duration,
    link_search: LinkSearch,
    image: Image,
}

impl SessionBuilder {
    pub(super) fn new(store: PathBuf) -> Self {
        Self {
            store,
            policy: Policy::default(),
            temporary_parent: PathBuf::from("/tmp"),
            close_deadline: CLOSE_DEADLINE,
            link_search: LinkSearch::default(),
            image: Image::default(),
        }
    }

    /// Adds a directory below which commands may write: an absolute path of a directory that exists.
    ///
    /// Without any, commands can write in the session's temporary directory only.
    pub fn write_root(mut self, directory: impl Into<PathBuf>) -> Self {
        self.policy.write_roots.push(directory.into());
        self
    }

    /// Adds several write roots.
    pub fn write_roots<I>(mut self, directories: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<PathBuf>,
    {
        self.policy.write_roots.extend(directories.into_iter().map(Into::into));
        self
    }

    /// Adds a directory below which commands may read and execute: the canonical path of one that exists. From then on they
    /// read nothing but such directories, the write roots, their temporary directory and the
    /// [base set](crate::Readable::BASE); what is beside them can be neither read nor listed.
    ///
    /// # Security
    /// Nothing in the directory can be left out. It must neither hold anything private nor lie in it.
    pub fn read_root(mut self, directory: impl Into<PathBuf>) -> Self {
        self.policy.read.limit().roots.push(directory.into());
        self
    }

    /// Adds several directories to [read](Self::read_root). Commands are limited to them even when there are none.
    pub fn read_roots<I>(mut self, directories: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<PathBuf>,
    {
        self.policy.read.limit().roots.extend(directories.into_iter().map(Into::into));
        self
    }

    /// Adds a directory from which commands take programs, as [`read_root`](Self::read_root) adds one to read. What
    /// `PATH` names is not added by itself.
    pub fn program_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.policy.read.limit().programs.push(directory.into());
        self
    }

    /// Replaces the [base set](crate::Readable::BASE): what commands may read that no root names, because ordinary tools need
    /// it. Limits commands to that and to roots.
    pub fn read_base<I>(mut self, paths: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<PathBuf>,
    {
        self.policy.read.limit().base = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what commands may read, as a whole; by default everything that their user may.
    pub fn read_scope(mut self, scope: ReadScope) -> Self {
        self.policy.read = scope;
        self
    }

    /// Adds a directory or file that no write root may reach. The store and the program that runs this
    /// are protected always.
    pub fn protect(mut self, path: impl Into<PathBuf>) -> Self {
        self.policy.protect.push(path.into());
        self
    }

    /// Adds a database that no write root may reach, together with the files that SQLite keeps beside it (`-wal`,
    /// `-shm`, `-journal`), present or not, and with the links that lead to it. It need not exist yet; its directory
    /// must.
    pub fn protect_database(mut self, path: impl Into<PathBuf>) -> Self {
        self.policy.databases.push(path.into());
        self
    }

    /// Bounds the search for hard links to protected files, and says whom to tell how far it has come. There is a
    /// search only where a protected file has more than one name.
    pub fn link_search(mut self, search: LinkSearch) -> Self {
        self.link_search = search;
        self
    }

    /// Says whether commands may use the network. By default they may not.
    pub fn network(mut self, network: Network) -> Self {
        self.policy.network = network;
        self
    }

    /// Sets a variable for all commands. Nothing is taken over from this process: commands get `PATH`
    /// (`/usr/local/bin:/usr/bin:/bin`), `HOME` (the temporary directory), `LANG` (`C.UTF-8`), `PWD` and
    /// `TMPDIR`, `TMP`, `TEMP`, which cannot be set here, and what is set here.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.policy.env.set(name, value);
        self
    }

    /// Sets several variables.
    pub fn envs<I, N, V>(mut self, variables: I) -> Self
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<OsString>,
        V: Into<OsString>,
    {
        for (name, value) in variables {
            self.policy.env.set(name, value);
        }
        self
    }

    /// Says what commands keep of root's powers where this process is root. By default nothing, so that they cannot write
    /// in a tree that belongs to somebody else.
    ///
    /// Keeping the powers over files needs a view of mounts of the session's own, and refuses where there is none, or where
    /// this process is not root.
    pub fn root_capabilities(mut self, kept: RootCapabilities) -> Self {
        self.policy.root_capabilities = kept;
        self
    }

    /// Accepts that a protection is not kept, so that its absence does not refuse the session.
    ///
    /// Two of them close what some programs need, and accepting them opens it: `terminals` (a command may
    /// open terminals of its own) and `shared-memory` (System V IPC).
    pub fn accept(mut self, protection: Protection) -> Self {
        self.policy.accept.insert(protection);
        self
    }

    /// Sets a resource limit of each process of each command, at most the hard limit that this process has.
    ///
    /// Without one, commands have the limits of this process on the size of files, on processes and on open files.
    /// The limit on memory images (`core`) is 0 always, for good: the kernel writes them beside every confinement.
    /// [`Session::limits`] tells what the kernel made of it.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.policy.limits.push(limit);
        self
    }

    /// Limits the memory of the whole session, in bytes. What goes beyond it ends a process of the session.
    ///
    /// It is kept by a control group (cgroup v2) that is made for the session, below the one of this process, and
    /// removed when the session has ended. Where that cannot be had, the session is refused with the cause.
    pub fn memory_max(mut self, bytes: u64) -> Self {
        self.policy.session_limits.insert(SessionLimit::MemoryMax, bytes);
        self
    }

    /// Limits how many processes and threads the whole session has at a time, its own among them: about five, and one
    /// for each command that runs. It binds root too. Kept as [`memory_max`](Self::memory_max) is.
    pub fn processes_max(mut self, count: u64) -> Self {
        self.policy.session_limits.insert(SessionLimit::ProcessesMax, count);
        self
    }

    /// Accepts that a limit of the whole session is not kept, so that its absence does not refuse the session.
    /// [`Session::limits`] tells whether it is.
    pub fn accept_limit(mut self, limit: SessionLimit) -> Self {
        self.policy.accept_limits.insert(limit);
        self
    }

    /// Sets the control group below which the session's own is made: a directory of a cgroup v2 file system. Without it,
    /// it is made below the group of this process, which the kernel permits for memory only while that group holds no
    /// process of its own, or is the topmost.
    pub fn group_parent(mut self, directory: impl Into<PathBuf>) -> Self {
        self.policy.group_parent = Some(directory.into());
        self
    }

    /// Sets the directory in which the session makes its temporary directory; `/tmp` by default. At most
    /// 36 bytes long, so that sockets in it fit.
    pub fn temporary_parent(mut self, directory: impl Into<PathBuf>) -> Self {
        self.temporary_parent = directory.into();
        self
    }

    /// Sets the time after which [`Session::close`] reports what it could not end; 10 seconds by default.
    pub fn close_deadline(mut self, deadline: Duration) -> Self {
        self.close_deadline = deadline;
        self
    }

    /// Runs another worker image than the one built in. For tests of what happens without a layer.
    #[cfg(feature = "_test-image")]
    #[doc(hidden)]
    pub fn _worker_image(mut self, image: crate::worker::TestImage) -> Self {
        self.image = Image::Test(image);
        self
    }

    /// The policy described so far.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Tells whether the write roots would be granted, what each was compared with and which fact decided.
    /// Nothing is made, and nothing runs.
    ///
    /// # Errors
    /// What is to be protected cannot be looked at.
    pub fn explain(&self) -> Result<Verdict, Error> {
        let place = StorePlace::find(&self.store)?;
        let protected = self.protected(&place)?;
        let mut verdict = guard::explain(&self.policy, &protected);
        // Opening refuses it first, so it is told first.
        if let Err(refusal) = launch::check_environment(&self.policy.env) {
            verdict.granted = false;
            verdict.refusals.insert(0, refusal);
        }
        Ok(verdict)
    }

    /// What is protected before the store has been made.
    fn protected(&self, place: &StorePlace) -> Result<ProtectedSet, Error> {
        self.protected_with(ProtectedSet::around_place(place))
    }

    /// What is protected once the store is open.
    fn protected_in(&self, store: &StoreDir) -> Result<ProtectedSet, Error> {
        self.protected_with(ProtectedSet::around(store))
    }

    fn protected_with(&self, set: ProtectedSetBuilder) -> Result<ProtectedSet, Error> {
        set.protect(&self.policy.protect)
            .databases(&self.policy.databases)
            .link_search(self.link_search.clone())
            .build()
    }

    /// Opens the session.
    ///
    /// # Errors
    /// Nothing ran, and neither a worker nor a store that was not there before is left: what [`guard::issue`] says of roots and protected objects;
    /// `StoreInvalid`, `StoreLocked`, `StoreNotAccessible`; `TempDir`; `PlatformUnsupported`; `WorkerStart`;
    /// `GrantFailed`; `LimitNotKept`; `ProtectionUnavailable` with every protection that this host cannot keep.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn open(self) -> Result<Session, Error> {
        launch::check_environment(&self.policy.env)?;
        self.policy.check_shape()?;
        let place = StorePlace::find(&self.store)?;
        // All that can be refused is refused before the store is made, or a file in one that is there: it may lie
        // below the very root that is refused.
        let grant = issue(&self.policy, self.protected(&place)?, Searched::default()).await?;
        let temporary = TemporaryDir::make(&self.temporary_parent)?;
        let checked = PinnedDir::working_directory(temporary.path())
            .and_then(|directory| grant.check_addition(&directory))
            .and_then(|()| null())
            .and_then(|null| Ok((null, place.open()?)));
        let (null, store) = checked.inspect_err(|_| temporary.remove_empty())?;
        let (temporary, store) = (Arc::new(temporary), Arc::new(store));
        let made = Made(Some((Arc::clone(&temporary), Arc::clone(&store))));
        // Its descriptors first: with thousands of roots there may be none for a second grant beside it.
        let searched = grant.searched();
        drop(grant);
        let granted = match self.protected_in(&store) {
            Ok(protected) => issue(&self.policy, protected, searched).await,
            Err(error) => Err(error),
        };
        let grant = granted?;
        let grant = Arc::new(grant);
        let host_limits = limits::of_host();
        let mut group = SessionGroup::for_session(&self.policy)?;
        let (keeper, link) = worker::start(self.image, &temporary, self.policy.network, group.made())?;
        let (shared, ready) = Shared::new(link, keeper);
        tokio::spawn(Arc::clone(&shared).follow());

        // From here on the keeper removes the temporary directory.
        let undo = Undo(Some(Arc::clone(&shared)));
        let set_up = async {
            set_up(&shared, ready).await?;
            group.confirm(&self.policy)?;
            replace::establish(&shared, &grant, &store, &temporary, &host_limits).await
        };
        let (epoch, found) = match set_up.await {
            Ok(found) => found,
            Err(error) => {
                drop(undo);
                // So that nothing is left when the error is seen; the error is the same if it takes longer.
                let mut end = shared.keeper_end();
                drop(tokio::time::timeout(SET_UP_END, end.wait_for(Option::is_some)).await);
                return Err(error);
            }
        };
        undo.keep();
        made.keep();
        tracing::info!(store = %store.dir().canonical().display(), "session opened");
        Ok(Session {
            shared,
            active: tokio::sync::RwLock::new(Active {
                epoch,
                grant,
                enforcement: found.enforcement,
                limits: found.limits.with_session(group.into_limits()),
                asked: epoch,
                unanswered: None,
            }),
            closed: tokio::sync::Mutex::new(None),
            store,
            temporary,
            null,
            host_limits,
            close_deadline: self.close_deadline,
        })
    }
}

/// How long a failed opening waits for the worker's end. It has started nothing, so it ends at once.
const SET_UP_END: Duration = Duration::from_secs(5);

async fn set_up(shared: &Shared, ready: oneshot::Receiver<Event>) -> Result<(), Error> {
    let scope = scope_ruleset()?;
    let request = Request::Open { version: bailiwick_wire::VERSION };
    shared.link.send(&request, &[scope.as_fd()]).map_err(|error| worker_lost().source(error))?;
    match ready.await.map_err(|_| not_started())? {
        Event::Ready { version, .. } if version == bailiwick_wire::VERSION => Ok(()),
        Event::OpenFailed { step: Step::Landlock, errno } => Err(not_confined(Step::Landlock, errno)),
        Event::OpenFailed { step, errno } => Err(not_started()
            .text("step", format!("{step:?}"))
            .number("errno", errno)
            .source(std::io::Error::from_raw_os_error(errno))),
        _ => Err(unexpected()),
    }
}

/// Takes back what was made for a session that does not come about: refused, or not waited for.
struct Made(Option<(Arc<TemporaryDir>, Arc<StoreDir>)>);

impl Made {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some((temporary, store)) = &self.0 {
            temporary.remove_empty();
            store.unmake();
        }
    }
}

/// Ends the worker of a session that does not come about.
struct Undo(Option<Arc<Shared>>);

impl Undo {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.link.shut_down();
        }
    }
}

fn not_started() -> Error {
    Error::new(ErrorKind::WorkerStart, "the worker could not set itself up")
        .hint("limits on processes and memory, or a container profile, are the usual cause")
}

fn null() -> Result<std::os::fd::OwnedFd, Error> {
    const PATH: &str = "/dev/null";
    rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        Error::new(ErrorKind::PlatformUnsupported, "cannot open a session: there is no `/dev/null` here")
            .source(SystemCall::new("open", PATH, errno))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It used to grant what `open` refuses.
    #[test]
    fn explain_refuses_the_variables_that_open_refuses() {
        let explain = |name: &str| {
            Session::builder("/tmp/bailiwick-store-that-is-never-made").env(name, "/t").explain().unwrap()
        };
        for name in launch::OWN_VARIABLES {
            let verdict = explain(name);
            assert!(!verdict.granted);
            assert_eq!(verdict.refusals.first().map(Error::kind), Some(ErrorKind::EnvInvalid));
        }
        let twin = explain("TMPDIRECTORY");
        assert!(twin.granted && twin.refusals.is_empty());
    }
}
