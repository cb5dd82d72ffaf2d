//! Describing a command.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::child::{Child, Output};
use super::stdio::{Kind, Stdio};
use super::{Session, launch};
use crate::error::Error;

/// Bytes of each stream that [`Command::output`] keeps unless told otherwise.
const OUTPUT_LIMIT: usize = 16 * 1024 * 1024;

/// A change to the session's environment, for one command.
#[derive(Debug)]
pub(super) enum Change {
    Clear,
    Set(OsString, OsString),
    Remove(OsString),
}

/// A command of a session, before it runs.
///
/// As with [`std::process::Command`], methods chain and the last one starts it.
#[derive(Debug)]
#[must_use = "a command does nothing until it is spawned"]
pub struct Command<'s> {
    pub(super) session: &'s Session,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) environment: Vec<Change>,
    pub(super) directory: Option<PathBuf>,
    pub(super) stdin: Option<Stdio>,
    pub(super) stdout: Option<Stdio>,
    pub(super) stderr: Option<Stdio>,
    pub(super) timeout: Option<Duration>,
    pub(super) output_limit: usize,
}

impl<'s> Command<'s> {
    pub(super) fn new(session: &'s Session, program: OsString) -> Self {
        Self {
            session,
            program,
            args: Vec::new(),
            environment: Vec::new(),
            directory: None,
            stdin: None,
            stdout: None,
            stderr: None,
            timeout: None,
            output_limit: OUTPUT_LIMIT,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable for this command, over the session's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push(Change::Set(name.into(), value.into()));
        self
    }

    /// Takes a variable out for this command.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.push(Change::Remove(name.as_ref().to_owned()));
        self
    }

    /// Starts from an empty environment: without the session's variables, without `PATH` and `TMPDIR`.
    pub fn env_clear(mut self) -> Self {
        self.environment.push(Change::Clear);
        self
    }

    /// Sets the working directory, an absolute path. It need not lie in a write root, and being in it
    /// permits nothing. By default it is the first write root, or `/` where there is none.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets standard input. By default it is [`Stdio::null`]: nothing is read from this process's own.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// Sets standard output. By default it is piped for [`output`](Self::output), else null.
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = Some(stdout.into());
        self
    }

    /// Sets standard error. By default it is piped for [`output`](Self::output), else null.
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// For [`output`](Self::output): ends the command's whole tree after this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// For [`output`](Self::output): how many bytes of each stream are kept; beyond it the beginning and
    /// the end are, and the total is exact. 16 MiB by default.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// Starts the command.
    ///
    /// Dropping the future before it is ready ends the command, should it have started. Dropping the
    /// [`Child`] does not.
    ///
    /// # Errors
    /// Nothing ran, unless the error says otherwise: `CommandInvalid`, `CommandNotFound`,
    /// `CommandNotExecutable`, `CommandTooLarge`, `CommandStart`, `CwdInvalid`, `CwdNotFound`,
    /// `CwdNotDirectory`, `CwdNotAccessible`, `EnvInvalid`, `RootIdentityChanged`, `RootMissing`,
    /// `RootOverlap`, `SessionClosed`, `WorkerLost`.
    pub async fn spawn(self) -> Result<Child, Error> {
        launch::spawn(self, &Kind::Null).await
    }

    /// Runs the command, and collects what it writes.
    ///
    /// It is over when the process that was started has ended, whoever else still holds its streams:
    /// what was written until then is there, and [`Output::still_running`] lists what it left behind.
    /// Dropping the future ends the command's whole tree.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn), and `OutcomeUnknown` when how it ended was lost.
    pub async fn output(self) -> Result<Output, Error> {
        launch::output(self).await
    }
}
