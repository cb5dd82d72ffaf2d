//! A command that was started.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::{Context, Poll};

use bailiwick_wire::{Event, Request};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::capture::Captured;
use super::mark::Mark;
use super::state::{Progress, Shared, Started, unexpected, worker_lost};
use crate::error::{Error, ErrorKind, Ran};

/// Number of a command in its session; never reused there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct CommandId(pub(super) u64);

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A live process of a session.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Process {
    /// Process id, as this process sees it.
    pub pid: u32,
    /// Start time in clock ticks since boot; with the pid it names one process for good.
    pub start_time: u64,
    /// State letter, as `ps` shows it.
    pub state: char,
    /// The command whose tree it belongs to; `None` when its reaper was killed.
    pub command: Option<CommandId>,
    /// Name of the program, as the kernel keeps it (at most 15 bytes).
    pub name: String,
}

impl From<bailiwick_wire::Process> for Process {
    fn from(process: bailiwick_wire::Process) -> Self {
        Self {
            pid: process.pid,
            start_time: process.start_time,
            state: char::from(process.state),
            command: (process.command != 0).then_some(CommandId(process.command)),
            name: String::from_utf8_lossy(&process.name).into_owned(),
        }
    }
}

/// A command that was started.
///
/// # Dropping
/// The command runs on, until the session is closed. Standard streams that were not taken are closed.
#[derive(Debug)]
pub struct Child {
    pub(super) shared: Arc<Shared>,
    pub(super) command: u64,
    pub(super) started: Started,
    pub(super) progress: watch::Receiver<Progress>,
    /// Where the command reads from, if it was piped.
    pub stdin: Option<ChildStdin>,
    /// What the command writes to its standard output, if it was piped.
    pub stdout: Option<ChildStdout>,
    /// What the command writes to its standard error, if it was piped.
    pub stderr: Option<ChildStderr>,
}

impl Child {
    /// Process id, as this process sees it. It is the command's until [`wait`](Self::wait) is ready.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.started.pid
    }

    /// Start time in clock ticks since boot; with the id it names one process for good. `0` when it was
    /// over before it could be read.
    #[must_use]
    pub fn start_time(&self) -> u64 {
        self.started.start_time
    }

    /// Number of the command in its session.
    #[must_use]
    pub fn command_id(&self) -> CommandId {
        CommandId(self.command)
    }

    /// Waits until the process that was started has ended, and closes standard input first.
    ///
    /// What it started in turn may still run: see [`settled`](Self::settled).
    ///
    /// # Errors
    /// `OutcomeUnknown` when how it ended was lost, `WorkerLost` when the worker ended first.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.stdin = None;
        self.exited().await
    }

    pub(super) async fn exited(&mut self) -> Result<ExitStatus, Error> {
        let progress = self.progress.wait_for(Progress::over).await.map_err(|_| worker_lost())?;
        status(&progress)
    }

    /// The exit status, if it has ended.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        let progress = self.progress.borrow();
        if progress.over() { status(&progress).map(Some) } else { Ok(None) }
    }

    /// Waits until the command's whole tree has ended, however detached.
    ///
    /// # Errors
    /// `WorkerLost` when the worker ended first.
    pub async fn settled(&mut self) -> Result<(), Error> {
        let done = |progress: &Progress| progress.settled || progress.worker_lost;
        let progress = self.progress.wait_for(done).await.map_err(|_| worker_lost())?;
        if progress.settled { Ok(()) } else { Err(worker_lost().ran_something()) }
    }

    /// Whether a command of the session killed the process that watched this one. Its tree was still ended
    /// or waited for, but may have been taken for that of another command.
    #[must_use]
    pub fn supervision_lost(&self) -> bool {
        self.progress.borrow().supervision_lost
    }

    /// What was found out while it ran, and that its outcome has to be read with.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        self.progress.borrow().marks.clone()
    }

    /// Live processes of the command's tree.
    ///
    /// # Errors
    /// `WorkerLost`.
    pub async fn processes(&self) -> Result<Vec<Process>, Error> {
        if self.progress.borrow().settled {
            return Ok(Vec::new());
        }
        self.shared.processes(self.command).await
    }

    /// Sends a signal to the process that was started. It reaches that process or none: a number that was
    /// given to another process since is not signalled.
    ///
    /// # Errors
    /// `Io` with the kernel's answer, `ESRCH` when it has ended; `WorkerLost`.
    pub async fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.send(signal, false).await
    }

    /// Sends a signal to every process of the command's tree that is there at this moment.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub async fn signal_tree(&self, signal: Signal) -> Result<(), Error> {
        self.send(signal, true).await
    }

    async fn send(&self, signal: Signal, tree: bool) -> Result<(), Error> {
        let (command, signal) = (self.command, signal.as_raw());
        match self.shared.ask(|request| Request::Signal { request, command, signal, tree }).await? {
            Event::Signalled { delivered, errno, .. } if delivered > 0 || errno == 0 => Ok(()),
            Event::Signalled { errno, .. } => {
                Err(Error::new(ErrorKind::Io, format!("cannot signal process {}", self.started.pid))
                    .number("pid", self.started.pid)
                    .number("signal", signal)
                    .with_ran(Ran::Something)
                    .source(std::io::Error::from_raw_os_error(errno)))
            }
            _ => Err(unexpected()),
        }
    }

    /// Ends the command's whole tree with SIGKILL, and waits until nothing of it is left.
    ///
    /// # Errors
    /// `WorkerLost` when the worker ended first; its keeper has then ended the tree.
    pub async fn kill(&mut self) -> Result<(), Error> {
        if !self.progress.borrow().settled {
            self.shared.end_tree(self.command);
        }
        self.settled().await
    }
}

fn status(progress: &Progress) -> Result<ExitStatus, Error> {
    match progress.exited {
        Some(Some(status)) => Ok(ExitStatus::from_raw(status)),
        Some(None) => Err(Error::new(
            ErrorKind::OutcomeUnknown,
            "the command has ended, but its exit status was lost with the process that watched it",
        )
        .text("reason", "supervision lost")),
        None => Err(worker_lost().ran_something()),
    }
}

/// What a command did, as [`Command::output`](super::Command::output) collects it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Output {
    /// How the process that was started ended.
    pub status: ExitStatus,
    /// What was written to standard output until it ended; empty where it was not piped.
    pub stdout: Captured,
    /// What was written to standard error until it ended; empty where it was not piped.
    pub stderr: Captured,
    /// It was ended because its time was over.
    pub timed_out: bool,
    /// What it left behind and was still running when it had ended.
    pub still_running: Vec<Process>,
    /// The write roots in force for it, as canonical paths.
    pub write_roots: Vec<PathBuf>,
    /// What was found out while it ran, and that its outcome has to be read with.
    pub marks: Vec<Mark>,
}

/// Writes to the standard input of a command, with back-pressure. Dropping it is end of file.
#[derive(Debug)]
pub struct ChildStdin(pub(super) pipe::Sender);

/// Reads the standard output of a command.
#[derive(Debug)]
pub struct ChildStdout(pub(super) pipe::Receiver);

/// Reads the standard error of a command.
#[derive(Debug)]
pub struct ChildStderr(pub(super) pipe::Receiver);

impl AsyncWrite for ChildStdin {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl AsyncRead for ChildStdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, room)
    }
}

impl AsyncRead for ChildStderr {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, room)
    }
}
