//! A session: opened once, runs commands, replaces its roots, closes.

mod builder;
mod capture;
mod check;
mod child;
mod close;
mod command;
mod launch;
mod limits;
mod mark;
mod outside;
mod refused;
mod replace;
mod state;
mod stdio;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use builder::SessionBuilder;
pub use capture::Captured;
pub use child::{Child, ChildStderr, ChildStdin, ChildStdout, CommandId, Output, Process};
pub use close::{CloseReport, ClosedProcess, Ending};
pub use command::Command;
pub use limits::{LimitInForce, LimitSource, ReadBack, ResourceLimits};
pub use mark::Mark;
pub use replace::{Replace, WhenBusy};
pub use stdio::Stdio;

use crate::error::Error;
use crate::guard::Grant;
use crate::policy::Limit;
use crate::store::StoreDir;
use crate::worker::{Enforcement, TemporaryDir};
use state::Shared;

/// The grant in force.
#[derive(Debug)]
struct Active {
    epoch: u32,
    grant: Arc<Grant>,
    enforcement: Enforcement,
    limits: ResourceLimits,
    /// The highest epoch that the worker was asked for.
    asked: u32,
    /// An epoch that it was asked for by a replacement that was dropped before the answer came.
    unanswered: Option<(u32, replace::Answer)>,
}

/// A worker process and the commands that it confines.
///
/// # Dropping
/// Dropping a session without [`close`](Self::close) ends all its processes too, but nobody is told what
/// was ended, and nothing is waited for.
///
/// # Security
/// What a command can do is decided by the kernel when the command starts, and stays so for its whole
/// tree: a later [`replace_write_roots`](Self::replace_write_roots) does not change what runs.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    /// Commands hold it for reading while they start, so a grant is never replaced under one of them.
    active: tokio::sync::RwLock<Active>,
    /// The report of the close that succeeded.
    closed: tokio::sync::Mutex<Option<CloseReport>>,
    store: Arc<StoreDir>,
    temporary: Arc<TemporaryDir>,
    /// Everything opened for reading and writing that commands without one get: `/dev/null`.
    null: std::os::fd::OwnedFd,
    /// The limits of this process that commands get where the policy sets none.
    host_limits: Vec<Limit>,
    close_deadline: Duration,
}

impl Session {
    /// Starts describing a session whose history lies in the directory `store`.
    ///
    /// The directory is made if it does not exist; its parent must. It is private to the user, and no
    /// write root may reach it.
    #[must_use = "a builder does nothing until it is opened"]
    pub fn builder(store: impl Into<PathBuf>) -> SessionBuilder {
        SessionBuilder::new(store.into())
    }

    /// Starts describing a command.
    ///
    /// A program without a slash is looked up in the `PATH` of the command's environment, inside the
    /// confinement, when it starts.
    #[must_use = "a command does nothing until it is spawned"]
    pub fn command(&self, program: impl Into<std::ffi::OsString>) -> Command<'_> {
        Command::new(self, program.into())
    }

    /// What the grant in force keeps, and what it does not.
    pub async fn enforcement(&self) -> Enforcement {
        self.active.read().await.enforcement.clone()
    }

    /// The resource limits that commands have under the grant in force, as they were read back from the kernel inside
    /// the confinement.
    ///
    /// Every command has a limit of 0 on memory images, for good, and the limits of this process, as they were when
    /// the session was opened, on the size of files, on processes and on open files, where the policy asks for no
    /// others.
    pub async fn limits(&self) -> ResourceLimits {
        self.active.read().await.limits.clone()
    }

    /// The write roots in force, as canonical paths; nested ones have collapsed into the outermost.
    ///
    /// Commands may also write in the session's [temporary directory](Self::temporary_dir) and to
    /// `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random` and `/dev/urandom`.
    pub async fn write_roots(&self) -> Vec<PathBuf> {
        self.active.read().await.grant.roots().iter().map(|root| root.canonical().to_owned()).collect()
    }

    /// What commands may read beside the write roots and the temporary directory, as canonical paths: read roots,
    /// programs, and what this host has of the base set. `None` where they may read everything.
    pub async fn readable(&self) -> Option<Vec<PathBuf>> {
        let active = self.active.read().await;
        active.grant.readable().map(|paths| paths.map(PathBuf::from).collect())
    }

    /// The session's private temporary directory, which is `TMPDIR`, `TMP` and `TEMP` of its commands. It
    /// is removed when the session has ended.
    #[must_use]
    pub fn temporary_dir(&self) -> &std::path::Path {
        self.temporary.path()
    }

    /// The session's store.
    #[must_use]
    pub fn store(&self) -> &std::path::Path {
        self.store.dir().canonical()
    }

    /// Process ids of the session's own processes that a host can see: keeper and worker.
    #[must_use]
    pub fn own_processes(&self) -> (u32, u32) {
        (self.shared.keeper.pid(), self.shared.worker_pid())
    }

    /// Live processes of the session, its own left out.
    ///
    /// # Errors
    /// The session is closed, or the worker is gone.
    pub async fn processes(&self) -> Result<Vec<Process>, Error> {
        self.shared.processes(0).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The worker sees end of file, as if this process had died, and ends everything.
        self.shared.link.shut_down();
    }
}
