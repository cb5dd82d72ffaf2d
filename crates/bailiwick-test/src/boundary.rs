//! Proves denials: an act is refused by a session, the world shows no harm, and both change when the layer
//! that is said to stop it is missing.
//!
//! A denial that no missing layer lifts is no proof of a layer. So every [`Denial`] names the layers that
//! stop it, and [`Arena::denies`] tries it in sessions whose worker was built without them, with every
//! protection accepted. Where one layer is named, the act must happen without it. Where several are, each
//! is enough by itself: without any one of them it must still be refused, and without all it must happen.

use std::ffi::{OsStr, OsString};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bailiwick::{Layer, Output, Protection, Session, SessionBuilder};

use crate::act::Report;
use crate::places::{close, open};
use crate::process::{self, GENEROUS};
use crate::{
    Places, World, calls, image_without_layers, image_without_namespaces, plain_image, tool, wait_until,
};

/// A session with its store in `P`, its temporary directory in `T` and the root `W`, under the default policy, as on a
/// host without namespaces. Accepted is what no layer keeps there: metadata, and named sockets.
pub fn session(world: &World) -> SessionBuilder {
    Places::of(world).session()._worker_image(image_without_namespaces())
}

/// Runs an act in a session and reads its report.
///
/// # Panics
///
/// If the act could not be tried.
pub async fn run<S: AsRef<OsStr>>(session: &Session, act: &[S]) -> Report {
    let arguments = act.iter().map(|argument| argument.as_ref().to_owned());
    let output = session.command(tool("act")).args(arguments).output().await;
    let output = output.unwrap_or_else(|error| panic!("run an act: {}", error.report()));
    report(&output)
}

/// The report of an act that a command ended in.
///
/// # Panics
///
/// If the act could not be tried.
#[must_use]
#[track_caller]
pub fn report(output: &Output) -> Report {
    assert!(
        output.status.success(),
        "the act could not be tried ({}): {}{}",
        output.status,
        output.stdout.text(),
        output.stderr.text()
    );
    Report::parse(&*output.stdout)
}

/// An act that a session must refuse, and what shows that it did.
pub struct Denial<'a> {
    act: Vec<OsString>,
    layers: &'a [Layer],
    errors: &'a [&'a str],
    is_silent: bool,
    scene: Box<dyn Fn() + 'a>,
    harm: Option<Box<dyn Fn() -> bool + 'a>>,
}

impl std::fmt::Debug for Denial<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Denial").field("act", &self.act).field("layers", &self.layers).finish_non_exhaustive()
    }
}

impl<'a> Denial<'a> {
    /// An act of the program `act`, and the layers of which each stops it.
    pub fn of<S: AsRef<OsStr>>(layers: &'a [Layer], act: &[S]) -> Self {
        Denial {
            act: act.iter().map(|argument| argument.as_ref().to_owned()).collect(),
            layers,
            errors: &["EPERM", "EACCES"],
            is_silent: false,
            scene: Box::new(|| {}),
            harm: None,
        }
    }

    /// System calls, of which the last is refused.
    pub fn of_calls(layers: &'a [Layer], calls: &calls::Calls) -> Self {
        Self::of(layers, calls.arguments())
    }

    /// The errors of which one is the answer; `EPERM` and `EACCES` unless said otherwise.
    #[must_use]
    pub fn answers(mut self, errors: &'a [&'a str]) -> Self {
        self.errors = errors;
        self
    }

    /// The act reports success whether or not it reaches its aim: only the harm tells.
    #[must_use]
    pub fn silently(mut self) -> Self {
        self.is_silent = true;
        self
    }

    /// Puts the world in order before each try.
    #[must_use]
    pub fn scene(mut self, scene: impl Fn() + 'a) -> Self {
        self.scene = Box::new(scene);
        self
    }

    /// Whether the world shows that the act happened. Without it, the act's own report tells: for acts that
    /// give their process something and change nothing else.
    #[must_use]
    pub fn harm(mut self, harm: impl Fn() -> bool + 'a) -> Self {
        self.harm = Some(Box::new(harm));
        self
    }
}

/// Sessions on one world, as on a host without namespaces: one with every layer, one without each layer in question, and
/// one without any.
#[derive(Debug)]
pub struct Arena {
    places: Places,
    whole: Session,
    without: Vec<(Layer, Session)>,
    bare: Option<Session>,
}

impl Arena {
    /// Opens the sessions.
    ///
    /// # Panics
    ///
    /// If one is refused.
    pub async fn open(world: &World, layers: &[Layer]) -> Self {
        Self::open_with(world, layers, |builder| builder).await
    }

    /// Opens the sessions, each changed by `change`.
    ///
    /// # Panics
    ///
    /// If one is refused.
    pub async fn open_with(
        world: &World,
        layers: &[Layer],
        change: impl Fn(SessionBuilder) -> SessionBuilder,
    ) -> Self {
        let places = Places::of(world);
        let whole = open(change(places.session()._worker_image(image_without_namespaces()))).await;
        let mut without = Vec::new();
        for layer in layers {
            let builder = accepting_all(&places, layer.name())._worker_image(plain_image(*layer));
            without.push((*layer, open(change(builder)).await));
        }
        let bare = if layers.len() > 1 {
            let builder = accepting_all(&places, "none")._worker_image(image_without_layers());
            Some(open(change(builder)).await)
        } else {
            None
        };
        Arena { places, whole, without, bare }
    }

    /// The session with every layer.
    #[must_use]
    pub fn whole(&self) -> &Session {
        &self.whole
    }

    /// The session without this layer.
    ///
    /// # Panics
    ///
    /// If the arena was opened without it.
    #[must_use]
    #[track_caller]
    pub fn without(&self, layer: Layer) -> &Session {
        let found = self.without.iter().find(|(known, _)| *known == layer);
        found.map_or_else(
            || panic!("this arena has no session without {}", layer.name()),
            |(_, session)| session,
        )
    }

    /// Proves a denial.
    ///
    /// # Panics
    ///
    /// If the act happens where it must not, or does not where it must.
    pub async fn denies(&self, denial: &Denial<'_>) {
        self.expect(&self.whole, denial, false, "with every layer").await;
        if let [layer] = denial.layers {
            let place = format!("without {}", layer.name());
            return self.expect(self.without(*layer), denial, true, &place).await;
        }
        for layer in denial.layers {
            let place = format!("without {} alone", layer.name());
            self.expect(self.without(*layer), denial, false, &place).await;
        }
        if let Some(bare) = &self.bare {
            self.expect(bare, denial, true, "without any layer").await;
        }
    }

    async fn expect(&self, session: &Session, denial: &Denial<'_>, happens: bool, place: &str) {
        (denial.scene)();
        let report = run(session, &denial.act).await;
        let is_refused = !report.ok && denial.errors.contains(&report.name.as_str());
        let fits = if happens || denial.is_silent { report.ok } else { is_refused };
        assert!(fits, "{place}: {:?} answered {report:?}", denial.act);
        if let Some(harm) = &denial.harm {
            // What happens may take a moment to show. What is refused never shows; where the act does not
            // say that it was refused, it is given that moment too.
            let patience = if happens { GENEROUS } else { Duration::from_millis(100) };
            let harmed = if happens || denial.is_silent { wait_until(patience, harm) } else { harm() };
            assert_eq!(
                harmed, happens,
                "{place}: {:?} answered {report:?}, but the world differs",
                denial.act
            );
        }
    }

    /// Proves the twin of a denial: with every layer, the act happens.
    ///
    /// # Panics
    ///
    /// If it is refused.
    pub async fn permits<S: AsRef<OsStr>>(&self, act: &[S]) -> Report {
        let report = run(&self.whole, act).await;
        report.assert_done();
        report
    }

    /// Closes every session and proves that nothing is left.
    ///
    /// # Panics
    ///
    /// If something is.
    pub async fn close(self) {
        let crippled = self.without.iter().map(|(_, session)| session).chain(&self.bare);
        for session in std::iter::once(&self.whole).chain(crippled) {
            close(session).await;
        }
        self.places.assert_nothing_left();
    }
}

/// A session with a store of its own that opens whatever is missing.
pub fn accepting_all(places: &Places, name: &str) -> SessionBuilder {
    let builder = Session::builder(places.join(format!("store-{name}")))
        .temporary_parent(places.temporary())
        .write_root(places.write_root());
    Protection::ALL.iter().fold(builder, |builder, protection| builder.accept(*protection))
}

/// A process of the host that is no business of any session: asleep, or busy.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    start_time: u64,
}

impl Victim {
    /// One that sleeps for a minute.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn asleep() -> Self {
        Self::start(Command::new(tool("act")).args(["pause", "60"]))
    }

    /// One that uses a processor, for a minute of its time at most.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn busy() -> Self {
        let busy = Self::start(Command::new("/bin/sh").args(["-c", "ulimit -t 60; while :; do :; done"]));
        let limits = format!("/proc/{}/limits", busy.pid());
        let is_bound = || {
            let limits = std::fs::read_to_string(&limits).unwrap_or_default();
            limits.lines().any(|line| line.starts_with("Max cpu time") && line.contains(" 60 "))
        };
        assert!(wait_until(GENEROUS, is_bound), "the busy victim does not begin");
        busy
    }

    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("start a victim: {error}"));
        let start_time = process::start_time(child.id()).unwrap_or_else(|| panic!("the victim is gone"));
        Victim { child, start_time }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The same, as an argument.
    #[must_use]
    pub fn argument(&self) -> String {
        self.pid().to_string()
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !process::pid_ended(self.pid(), self.start_time)
    }

    /// Whether it is stopped by a signal.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        process::Process::of(self.pid()).is_some_and(|process| process.state == 'T')
    }

    /// Waits until it has ended. Whether it has.
    #[must_use]
    pub fn ends(&self) -> bool {
        wait_until(GENEROUS, || !self.is_alive())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        process::kill_tree(self.pid());
        let _reaped = self.child.wait();
    }
}
