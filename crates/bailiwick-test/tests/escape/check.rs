//! The checker: makes an attempt in a session, in background or not, or without any, and judges the world.

use std::cell::{Cell, RefCell};
use std::fs;
use std::process::Stdio as HostStdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bailiwick::{
    Enforcement, Error, ErrorKind, Layer, Network, Output, Protection, Session, SessionBuilder, Standing,
    Stdio,
};
use bailiwick_test::act::Report;
use bailiwick_test::places::{close, open};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::{
    Places, case, image_without, image_without_layers, image_without_namespaces, ledger, tool, wait_until,
};

use crate::ground::Ground;
use crate::row::{Attempt, Harm, Mode, Row};

/// How a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To its end.
    Foreground,
    /// As a background command, while another command runs.
    Background,
}

/// The worker of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Worker {
    /// With every layer of the mode.
    Whole,
    /// Without these.
    Without(Vec<Layer>),
    /// Without any.
    Bare,
}

/// What came of an attempt.
pub(crate) enum Verdict {
    /// It was answered with one of the errors of its row, and the world is as it was.
    Refused(String),
    /// It says that it was done, and the world is as it was: what it reached was the session's own.
    Harmless,
    /// The world shows that it happened.
    Escaped,
    /// Neither: the answer and the world do not agree, or it could not be tried.
    Odd(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Refused(name) => write!(f, "refused ({name})"),
            Verdict::Harmless => f.write_str("it says that it happened, and the world does not show it"),
            Verdict::Escaped => f.write_str("it happened"),
            Verdict::Odd(why) => f.write_str(why),
        }
    }
}

/// The layers that only namespaces give.
const NAMESPACES: &[Layer] =
    &[Layer::MountView, Layer::PidNamespace, Layer::IpcNamespace, Layer::NetNamespace, Layer::SocketBroker];

/// How long what is refused without saying so is given to show after all.
const SILENCE: Duration = Duration::from_millis(150);

/// Sessions on one world, opened as they are needed, and the checker.
pub(crate) struct Checker {
    places: Places,
    ground: Ground,
    mode: Mode,
    sessions: RefCell<Vec<(Worker, Network, Rc<Session>)>>,
    faults: RefCell<Vec<String>>,
    outputs: Cell<u32>,
}

impl Checker {
    pub(crate) fn new(places: &Places, mode: Mode) -> Self {
        Checker {
            places: places.clone(),
            ground: Ground::new(places),
            mode,
            sessions: RefCell::default(),
            faults: RefCell::default(),
            outputs: Cell::new(0),
        }
    }

    /// Proves every row of a part of the table that this mode and this machine have.
    ///
    /// # Panics
    ///
    /// With all that is wrong.
    pub(crate) async fn prove(self, rows: &[&Row]) {
        for row in rows.iter().filter(|row| row.is_in(self.mode) && self.has_needs(row)) {
            let began = Instant::now();
            match self.prove_row(row).await {
                Ok(line) => println!("ok {:5} ms {:34} {line}", began.elapsed().as_millis(), row.id),
                Err(fault) => {
                    println!("FAILED      {:34} {fault}", row.id);
                    self.faults.borrow_mut().push(format!("{} ({}): {fault}", row.id, row.tries));
                }
            }
            self.ground.dismiss();
        }
        self.end().await;
    }

    /// Has the checker look at a session without any layer, and proves that it sees each row escape.
    ///
    /// # Panics
    ///
    /// With the rows that it does not see.
    pub(crate) async fn notices(self, rows: &[&Row]) {
        for row in rows.iter().filter(|row| row.is_possible() && !row.is_built_in && self.has_needs(row)) {
            let network = if row.network == Network::Loopback { Network::Deny } else { row.network };
            let session = self.session(Worker::Bare, network).await;
            match self.attempt(row, Some(&session), Way::Foreground, GENEROUS).await {
                Verdict::Escaped => println!("noticed {}", row.id),
                other => self.faults.borrow_mut().push(format!("{} is not noticed: {other}", row.id)),
            }
            self.ground.dismiss();
        }
        self.end().await;
    }

    fn has_needs(&self, row: &Row) -> bool {
        // Who cannot do it anyway needs nothing for it.
        !row.is_possible() || row.needs.iter().all(|need| ledger::met(*need, row.id))
    }

    async fn prove_row(&self, row: &Row) -> Result<String, String> {
        let layers = row.layers(self.mode).filter(|_| !is_impossible(row.breaks));
        let whole = self.session(Worker::Whole, row.network).await;
        if !row.is_possible() {
            return self.prove_host_refuses(row, &whole).await;
        }
        let happened = |place: &str, verdict: Verdict| match verdict {
            Verdict::Escaped => Ok(()),
            other => Err(format!("{place} it must happen: {other}")),
        };
        happened("without confinement", self.attempt(row, None, Way::Foreground, GENEROUS).await)?;

        let Some(layers) = layers else {
            for way in [Way::Foreground, Way::Background] {
                let verdict = self.attempt(row, Some(&whole), way, GENEROUS).await;
                happened("what is said not to be kept is possible:", verdict)?;
            }
            if row.is_given {
                return Ok("happens, with what the caller has handed over".to_owned());
            }
            if whole.enforcement().await.keeps(row.breaks) {
                return Err(format!("`{}` is said to be kept", row.breaks.name()));
            }
            return Ok("happens, as the session says".to_owned());
        };

        let mut answers = Vec::new();
        for way in [Way::Foreground, Way::Background] {
            let verdict = self.attempt(row, Some(&whole), way, SILENCE).await;
            answers.push(match verdict {
                Verdict::Harmless if row.answers.is_empty() => "done to what is its own".to_owned(),
                verdict => refused(&format!("{way:?}"), verdict)?,
            });
        }
        self.compare_with_report(row, &layers, &whole).await?;

        if row.is_built_in {
            let bare = self.session(Worker::Bare, row.network).await;
            let verdict = self.attempt(row, Some(&bare), Way::Foreground, SILENCE).await;
            refused("built in, so without any layer too", verdict)?;
        } else {
            // Each is enough by itself: the others that stop it are left out.
            for layer in layers.iter().filter(|_| layers.len() > 1) {
                let others = layers.iter().filter(|other| *other != layer).copied().collect();
                let session = self.session(Worker::Without(others), row.network).await;
                let verdict = self.attempt(row, Some(&session), Way::Foreground, SILENCE).await;
                stopped(&format!("with {} alone of those that stop it", layer.name()), verdict)?;
            }
            // And nothing else does, but what comes with any namespace and goes with all of them.
            let mut all = layers.clone();
            if row.is_stopped_by_what_comes_along(self.mode) {
                let session = self.session(Worker::Without(all.clone()), row.network).await;
                let verdict = self.attempt(row, Some(&session), Way::Foreground, SILENCE).await;
                stopped("with what comes along with namespaces", verdict)?;
                all.extend(NAMESPACES.iter().filter(|layer| !layers.contains(layer)));
            }
            let session = self.session(Worker::Without(all), row.network).await;
            let verdict = self.attempt(row, Some(&session), Way::Foreground, GENEROUS).await;
            happened("without what stops it", verdict)?;
        }
        let names: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
        answers.dedup();
        Ok(format!("refused ({}), by {}", answers.join(", "), names.join(", ")))
    }

    /// The user of this run cannot do it anyway, and a session does not help.
    async fn prove_host_refuses(&self, row: &Row, whole: &Session) -> Result<String, String> {
        let places = [
            ("without confinement", None, Way::Foreground),
            ("in a session", Some(whole), Way::Foreground),
            ("in a session", Some(whole), Way::Background),
        ];
        let mut answer = String::new();
        for (place, session, way) in places {
            match self.attempt(row, session, way, SILENCE).await {
                Verdict::Escaped => return Err(format!("{place} it is possible after all")),
                Verdict::Odd(_) | Verdict::Harmless if session.is_none() => {}
                verdict => answer = refused(place, verdict)?,
            }
        }
        Ok(format!("refused ({answer}), as by the host itself"))
    }

    /// The session must say that it keeps the promise, and by one of the layers that stop the row.
    pub(crate) async fn compare_with_report(
        &self,
        row: &Row,
        layers: &[Layer],
        whole: &Session,
    ) -> Result<(), String> {
        let enforcement = whole.enforcement().await;
        match enforcement.standing(row.breaks) {
            Some(Standing::Kept { layers: named }) if named.iter().any(|layer| layers.contains(layer)) => {
                Ok(())
            }
            // The report names what stops everybody.
            Some(Standing::Kept { .. }) if row.root_instead.is_some() && case::is_root() => Ok(()),
            other => Err(format!("the session says of `{}`: {other:?}", row.breaks.name())),
        }
    }

    /// Runs the act of a row as a child of this process, whatever comes of it. What it leaves holds none of its streams.
    pub(crate) fn start_directly(&self, row: &Row) {
        let attempt = (row.attempt)(&self.ground);
        let mut command = std::process::Command::new(&attempt.program);
        command.args(&attempt.arguments).stdin(HostStdio::null()).stdout(HostStdio::null());
        let status = command.status().unwrap();
        assert!(status.success(), "{}: {status}", row.id);
    }

    /// The same in a session.
    pub(crate) async fn start(&self, row: &Row, session: &Session, way: Way) {
        let attempt = (row.attempt)(&self.ground);
        let command = session.command(attempt.program).args(attempt.arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().await.unwrap();
        if way == Way::Background {
            let other = session.command(tool("act")).arg("do-nothing").output().await.unwrap();
            assert!(other.status.success(), "the other command: {}", other.status);
        }
        let status = child.wait().await.unwrap();
        assert!(status.success(), "{}: {status}", row.id);
    }

    /// Makes an attempt: in a session, or as a child of this process.
    async fn attempt(&self, row: &Row, session: Option<&Session>, way: Way, patience: Duration) -> Verdict {
        self.ground.dismiss();
        self.ground.clear();
        let mut attempt = (row.attempt)(&self.ground);
        let _kept = (attempt.keeps.take(), attempt.terminal.take());
        self.ground.remember();
        let (harm, report) = match session {
            None => self.run_directly(attempt),
            Some(session) if way == Way::Foreground => self.run(session, attempt).await,
            Some(session) => self.run_behind(session, attempt).await,
        };
        let report = match report {
            Ok(report) => report,
            Err(fault) => return Verdict::Odd(fault),
        };
        let is_harmed = || match &harm {
            Harm::Report => report.ok,
            Harm::Scene => !self.ground.differences().is_empty(),
            Harm::World(shows) => shows(),
        };
        let is_refused = !report.ok && row.answers.contains(&report.name.as_str());
        // What was refused is looked at once. What says that it happened, or says nothing, is given time to show.
        let is_harmed = wait_until(if is_refused { Duration::ZERO } else { patience }, is_harmed);
        let shown = format!("it answered `{}` ({})", report.name, report.value);
        if is_harmed {
            return if is_refused {
                Verdict::Odd(format!("{shown}, but the world shows that it happened"))
            } else {
                Verdict::Escaped
            };
        }
        let differences = self.ground.differences();
        match () {
            () if !differences.is_empty() => {
                Verdict::Odd(format!("{shown}, but the scene differs: {differences:?}"))
            }
            () if is_refused || (!report.ok && row.answers.is_empty()) => Verdict::Refused(report.name),
            () if report.ok => Verdict::Harmless,
            () => Verdict::Odd(format!("{shown}, which is not among its answers")),
        }
    }

    fn run_directly(&self, attempt: Attempt) -> (Harm, Result<Report, String>) {
        let mut command = std::process::Command::new(&attempt.program);
        command.args(&attempt.arguments).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.current_dir(attempt.directory.unwrap_or_else(|| self.places.write_root()));
        command.stdin(attempt.input.map_or_else(HostStdio::null, HostStdio::from));
        let output = command.output().unwrap();
        (attempt.harm, read(attempt.is_act, output.status, &output.stdout, &output.stderr))
    }

    async fn run(&self, session: &Session, attempt: Attempt) -> (Harm, Result<Report, String>) {
        let mut command = session.command(attempt.program).args(attempt.arguments);
        if let Some(directory) = attempt.directory {
            command = command.current_dir(directory);
        }
        if let Some(input) = attempt.input {
            command = command.stdin(Stdio::from(input));
        }
        let report = match command.output().await {
            Ok(Output { status, stdout, stderr, .. }) => read(attempt.is_act, status, &stdout, &stderr),
            Err(error) => not_started(&error),
        };
        (attempt.harm, report)
    }

    async fn run_behind(&self, session: &Session, attempt: Attempt) -> (Harm, Result<Report, String>) {
        self.outputs.set(self.outputs.get() + 1);
        let path = self.places.join(format!("output-{}", self.outputs.get()));
        let file = || fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        let mut command = session.command(attempt.program).args(attempt.arguments);
        command = command.stdout(Stdio::from(file())).stderr(Stdio::null());
        if let Some(directory) = attempt.directory {
            command = command.current_dir(directory);
        }
        if let Some(input) = attempt.input {
            command = command.stdin(Stdio::from(input));
        }
        let ended = async {
            let mut child = command.spawn().await?;
            let other = session.command(tool("act")).arg("do-nothing").output().await?;
            assert!(other.status.success(), "the other command: {}", other.status);
            let status = child.wait().await?;
            Ok::<_, bailiwick::Error>(status)
        };
        let report = match ended.await {
            Ok(status) => read(attempt.is_act, status, &fs::read(&path).unwrap(), b""),
            Err(error) => not_started(&error),
        };
        fs::remove_file(&path).unwrap();
        (attempt.harm, report)
    }

    /// The session of a worker, opened when it is asked for the first time.
    pub(crate) async fn session(&self, worker: Worker, network: Network) -> Rc<Session> {
        let known = self.sessions.borrow().iter().find_map(|(known, policy, session)| {
            (known == &worker && *policy == network).then(|| Rc::clone(session))
        });
        if let Some(session) = known {
            return session;
        }
        self.ground.dismiss();
        self.ground.clear();
        let session = Rc::new(self.open(&worker, network).await);
        self.sessions.borrow_mut().push((worker, network, Rc::clone(&session)));
        session
    }

    /// Accepts nothing that the mode keeps, and of a worker without a layer nothing but what it says is missing.
    async fn open(&self, worker: &Worker, network: Network) -> Session {
        let name = match worker {
            Worker::Whole => "whole".to_owned(),
            Worker::Without(layers) => layers.iter().map(|layer| layer.name()).collect::<Vec<_>>().join("-"),
            Worker::Bare => "bare".to_owned(),
        };
        let store = self.places.join(format!("store-{name}-{network:?}"));
        let builder = || -> SessionBuilder {
            let builder = Session::builder(&store)
                .protect(self.places.private())
                .temporary_parent(self.places.temporary())
                .write_root(self.places.write_root())
                .network(network);
            match (self.mode, worker) {
                (Mode::Namespaces, Worker::Whole) => accepting_impossible(builder),
                (Mode::Namespaces, Worker::Without(layers)) => builder._worker_image(image_without(layers)),
                (_, Worker::Bare) => builder._worker_image(image_without_layers()),
                (Mode::LandlockOnly, Worker::Whole) => {
                    let builder = builder._worker_image(image_without_namespaces());
                    builder.accept(Protection::Metadata).accept(Protection::NamedSockets)
                }
                (Mode::LandlockOnly, Worker::Without(layers)) => {
                    builder._worker_image(image_without(&[NAMESPACES, layers].concat()))
                }
            }
        };
        if *worker == Worker::Whole {
            return open(builder()).await;
        }
        match builder().open().await {
            Ok(session) => session,
            Err(error) if error.kind() == ErrorKind::ProtectionUnavailable => {
                let missing = error.field("protections").and_then(|field| field.as_list()).unwrap();
                let missing =
                    missing.iter().map(|name| Protection::from_name(name.as_text().unwrap()).unwrap());
                open(missing.fold(builder(), |builder, protection| builder.accept(protection))).await
            }
            Err(error) => panic!("open a session without {name}: {}", error.report()),
        }
    }

    pub(crate) async fn end(self) {
        self.ground.dismiss();
        for (_, _, session) in self.sessions.take() {
            close(&session).await;
        }
        self.places.assert_nothing_left();
        let faults = self.faults.borrow();
        let user = if case::is_root() { "root" } else { "a plain user" };
        assert!(
            faults.is_empty(),
            "{} attempts are not as the table says, for {user}, {:?}:\n{}",
            faults.len(),
            self.mode,
            faults.join("\n")
        );
    }
}

/// Accepts what no layer of this version keeps on any host.
fn accepting_impossible(builder: SessionBuilder) -> SessionBuilder {
    let impossible = Protection::ALL.iter().filter(|protection| is_impossible(**protection));
    impossible.fold(builder, |builder, protection| builder.accept(*protection))
}

fn is_impossible(protection: Protection) -> bool {
    Enforcement::possible_layers(protection).is_empty()
}

/// The world is as it was, whatever the act says.
fn stopped(place: &str, verdict: Verdict) -> Result<(), String> {
    match verdict {
        Verdict::Refused(_) | Verdict::Harmless => Ok(()),
        other => Err(format!("{place}: {other}")),
    }
}

fn refused(place: &str, verdict: Verdict) -> Result<String, String> {
    match verdict {
        Verdict::Refused(name) => Ok(name),
        other => Err(format!("{place}: {other}")),
    }
}

/// A command that the session does not even start is refused with the code of its error.
fn not_started(error: &Error) -> Result<Report, String> {
    match error.kind() {
        ErrorKind::CommandInvalid => {
            let name = error.code().to_owned();
            Ok(Report { act: String::new(), ok: false, errno: 0, name, value: serde_json::Value::Null })
        }
        _ => Err(error.report().to_string()),
    }
}

/// The report of an act, or one made of how a script ended.
fn read(
    is_act: bool,
    status: std::process::ExitStatus,
    stdout: &[u8],
    stderr: &[u8],
) -> Result<Report, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if is_act && status.success() && !stdout.is_empty() {
        return Ok(Report::parse(stdout));
    }
    if is_act {
        return Err(format!("it could not be tried ({status}): {}{}", text(stdout), text(stderr)));
    }
    let ok = status.success();
    let name = if ok { String::new() } else { "FAILED".to_owned() };
    Ok(Report { act: "script".to_owned(), ok, errno: 0, name, value: text(stderr).into() })
}
