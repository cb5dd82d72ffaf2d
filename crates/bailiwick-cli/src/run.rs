//! `bailiwick run`: one command in a session of its own.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::{Child, CloseReport, Ending, Session, Standing};

use crate::FAILED;
use crate::args::RunArgs;
use crate::explain;
use crate::failure::{Code, Failure};
use crate::policy::Asked;
use crate::relay::Relays;
use crate::render::{self, Notes, quoted};
use crate::signals::Signals;
use crate::state_dir::{self, RunDir};
use crate::status::{Ended, Report, Status};
use crate::stdin::Copy;

/// How long what the command had written may still be passed on after a signal. A reader that reads at all needs
/// less for what a pipe holds.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Runs the command. The exit status.
pub(crate) fn run(args: RunArgs) -> u8 {
    // First of all: descriptors of our own must not be there yet.
    let status = args.json_status.as_deref().map(Status::take).transpose();
    let mut status = match status {
        Ok(status) => status,
        Err(failure) => {
            render::failure(&failure);
            return FAILED;
        }
    };
    let mut report = Report::default();
    match runtime() {
        Ok(runtime) => runtime.block_on(Run::new(&args, &mut report).walk()),
        Err(failure) => report.fail(failure),
    }
    if let Some(failure) = &report.failure {
        render::failure(failure);
    }
    let told = status.as_mut().is_none_or(|status| status.tell(&report));
    if told { report.exit_status() } else { FAILED }
}

/// A runtime on this thread alone.
///
/// # Errors
/// The kernel refuses what it needs.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Host, "cannot set up the event loop").cause(error))
}

/// One run, on its way through.
struct Run<'a> {
    args: &'a RunArgs,
    report: &'a mut Report,
    notes: Notes,
}

/// What ended the wait for the command.
enum Wait {
    Over(Result<Ended, Failure>),
    TimeIsUp,
    Asked(u8),
}

impl<'a> Run<'a> {
    fn new(args: &'a RunArgs, report: &'a mut Report) -> Self {
        Self { args, report, notes: Notes { quiet: args.quiet } }
    }

    /// The whole run. Whatever happens is in the report afterwards.
    async fn walk(mut self) {
        if let Err(failure) = self.session().await {
            self.report.fail(failure);
        }
    }

    async fn session(&mut self) -> Result<(), Failure> {
        let mut signals = Signals::catch()
            .map_err(|error| Failure::new(Code::Host, "cannot catch signals").cause(error))?;
        let asked = Asked::read(&self.args.policy)?;
        let timeout = self.args.timeout.as_deref().map(seconds).transpose()?;
        let directory = match &self.args.current_dir {
            Some(directory) => PathBuf::from(directory),
            None => current_dir()?,
        };
        let store = Store::choose(self.args.policy.store.as_deref(), &asked)?;
        let opened = self.open(&asked, &store, &mut signals).await;
        let result = match opened {
            Ok(Some(session)) => self.command(session, &directory, timeout, &mut signals).await,
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        if let Err(error) = store.remove() {
            self.notes.say(format_args!("the session's private directory could not be removed: {error}"));
        }
        result
    }

    /// Opens the session. `None` when a signal came first; what had begun has ended then.
    async fn open(
        &mut self,
        asked: &Asked,
        store: &Store,
        signals: &mut Signals,
    ) -> Result<Option<Session>, Failure> {
        let mut opening = std::pin::pin!(asked.builder(&store.path()).open());
        let session = loop {
            let already = self.report.interrupted.is_some();
            match self.unless_asked(&mut opening, signals).await {
                Some(opened) => break opened?,
                None if already => return Ok(None),
                // The session is waited for, so that it can be closed in order.
                None => {}
            }
        };
        self.report.write_roots = Some(session.write_roots().await);
        let enforcement = session.enforcement().await;
        for kept in enforcement.protections() {
            if let Standing::NotKept { cause, accepted: true } = &kept.standing {
                self.notes.say(format_args!("not kept (accepted): {}: {cause}", kept.protection.name()));
            }
        }
        self.report.enforcement = Some(enforcement);
        Ok(Some(session))
    }

    /// Runs the command in an open session, and closes that in any case.
    async fn command(
        &mut self,
        session: Session,
        directory: &Path,
        timeout: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let mut relays = None;
        let mut child = None;
        let mut result = Ok(());
        if self.report.interrupted.is_none() {
            match self.start(&session, directory, signals).await {
                Ok(Some((started, relayed))) => {
                    result = self.follow(child.insert(started), timeout, signals).await;
                    relays = Some(relayed);
                }
                Ok(None) => {}
                Err(failure) => result = Err(failure),
            }
        }
        // The first failure tells most; one of the close would often be its consequence.
        let closed = self.close(&session, signals).await;
        if let (None, Some(child)) = (self.report.ended, child.as_mut()) {
            self.report.ended = child.try_wait().ok().flatten().map(Ended::of);
        }
        drop((child, session));
        let relayed = match relays {
            Some(relays) => self.relayed(relays, signals).await,
            None => Ok(()),
        };
        // After the command's own last words.
        if let Some(closed) = &self.report.closed {
            self.say_what_ended(closed);
        }
        result.and(closed).and(relayed)
    }

    /// Waits until all output has been passed on: as long as the reader likes, or for a moment once a signal came.
    async fn relayed(&mut self, relays: Relays, signals: &mut Signals) -> Result<(), Failure> {
        let mut finish = std::pin::pin!(relays.finish());
        if self.report.interrupted.is_none()
            && let Some(done) = self.unless_asked(&mut finish, signals).await
        {
            return done;
        }
        tokio::time::timeout(LAST_WORDS, finish).await.unwrap_or(Ok(()))
    }

    /// Starts the command. `None` when a signal came first: then it has not started, or is ended at once.
    async fn start(
        &mut self,
        session: &Session,
        directory: &Path,
        signals: &mut Signals,
    ) -> Result<Option<(Child, Relays)>, Failure> {
        // The grammar requires one word at least.
        let (program, args) = self
            .args
            .command
            .split_first()
            .ok_or_else(|| Failure::new(Code::Usage, "no command is given").hint("name it after `--`"))?;
        let (stdin, copy) = Copy::prepare()?;
        let (relays, stdout, stderr) = Relays::start()?;
        let command = session.command(program).args(args).current_dir(directory);
        let command = command.stdin(stdin).stdout(stdout).stderr(stderr);
        let Some(spawned) = self.unless_asked(command.spawn(), signals).await else { return Ok(None) };
        let child = spawned?;
        self.report.pid = Some(child.id());
        self.report.start_time = Some(child.start_time());
        copy.start(self.notes).map_err(|error| {
            Failure::new(Code::Host, "cannot start a thread for the input of the command")
                .cause(error)
                .ran(bailiwick::Ran::Something)
        })?;
        Ok(Some((child, relays)))
    }

    /// Waits until the command has ended, its time is up, or a signal asks us to end.
    async fn follow(
        &mut self,
        child: &mut Child,
        timeout: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let time_is_up = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let wait = tokio::select! {
            biased;
            status = child.wait() => Wait::Over(status.map(Ended::of).map_err(Failure::from)),
            signal = signals.next() => Wait::Asked(signal),
            () = time_is_up => Wait::TimeIsUp,
        };
        match wait {
            Wait::Over(ended) => self.report.ended = Some(ended?),
            Wait::Asked(signal) => self.report.interrupted = Some(signal),
            Wait::TimeIsUp => {
                self.report.timed_out = true;
                let limit = timeout.unwrap_or_default().as_secs_f64();
                self.notes
                    .say(format_args!("the command was ended after {limit} s, with all that it had started"));
                let end = async {
                    child.kill().await?;
                    child.wait().await
                };
                if let Some(status) = self.unless_asked(end, signals).await {
                    self.report.ended = Some(Ended::of(status?));
                }
            }
        }
        Ok(())
    }

    /// Closes the session. The first signal is what closing is for; the second ends the
    /// wait, and the worker goes on by itself.
    async fn close(&mut self, session: &Session, signals: &mut Signals) -> Result<(), Failure> {
        let mut closing = std::pin::pin!(session.close());
        let closed = loop {
            let already = self.report.interrupted.is_some();
            match self.unless_asked(&mut closing, signals).await {
                Some(closed) => break closed?,
                None if already => return Ok(()),
                None => {}
            }
        };
        self.report.closed = Some(closed);
        Ok(())
    }

    fn say_what_ended(&self, closed: &CloseReport) {
        if closed.by_keeper {
            self.notes
                .say("the session's worker was lost; everything that was left has been ended, unlisted");
        }
        // The command itself is no surprise.
        let killed: Vec<String> = closed
            .processes
            .iter()
            .filter(|closed| closed.ending == Ending::Killed && Some(closed.process.pid) != self.report.pid)
            .map(|closed| format!("{} {}", closed.process.pid, quoted(&closed.process.name)))
            .collect();
        let count = killed.len();
        if count > 0 {
            let processes = if count == 1 { "process" } else { "processes" };
            self.notes.say(format_args!("ended {count} {processes} left running: {}", killed.join(", ")));
        }
    }

    /// Waits for something, but no longer than until a signal comes.
    async fn unless_asked<T>(&mut self, what: impl Future<Output = T>, signals: &mut Signals) -> Option<T> {
        tokio::select! {
            biased;
            done = what => Some(done),
            signal = signals.next() => {
                self.report.interrupted.get_or_insert(signal);
                None
            }
        }
    }
}

/// Where the session's history lies.
enum Store {
    /// Where the caller wants it, to stay.
    Named(PathBuf),
    /// In a directory of this run alone.
    Own(RunDir),
}

impl Store {
    /// Chooses, and makes nothing unless the guard would grant the write roots: a refused run leaves no trace.
    fn choose(named: Option<&OsStr>, asked: &Asked) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => PathBuf::from(path),
            None => state_dir::would_be()?,
        };
        if let Some(refusal) = explain::first_refusal(asked.builder(&path).explain()?) {
            return Err(refusal.into());
        }
        match named {
            Some(_) => Ok(Self::Named(path)),
            None => RunDir::make().map(Self::Own),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Named(path) => path.clone(),
            Self::Own(run) => run.store(),
        }
    }

    fn remove(self) -> io::Result<()> {
        match self {
            Self::Named(_) => Ok(()),
            Self::Own(run) => run.remove(),
        }
    }
}

fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::new(Code::CurrentDir, "the directory in which bailiwick was started has no path any more")
            .cause(error)
            .hint("name another one with `--current-dir D`")
    })
}

fn seconds(value: &OsStr) -> Result<Duration, Failure> {
    // Digits and a point: `f64` also reads exponents, signs and names.
    let plain = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    let seconds = plain.and_then(|text| text.parse().ok());
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| {
        Failure::new(Code::TimeoutInvalid, format!("no time can be read from this: {}", quoted(value)))
            .value("value", value)
            .hint("`--timeout` takes seconds above 0, as in `--timeout 90` or `--timeout 0.5`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let read = |text: &str| seconds(OsStr::new(text)).ok();
        assert_eq!(read("90"), Some(Duration::from_secs(90)));
        assert_eq!(read("0.5"), Some(Duration::from_millis(500)));
        for bad in
            ["", "0", "0.0", "-1", "+1", "1s", "1e3", "nan", "inf", ".", "1.2.3", "99999999999999999999999"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
