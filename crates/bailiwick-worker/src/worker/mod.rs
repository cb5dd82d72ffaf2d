//! The worker: one poll loop between the host and the processes of the session.
//!
//! It lies outside every domain, so that no command can signal it. End of file on its control socket
//! means that the host is gone, and ends everything.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::time::Instant;

use bailiwick_wire::{Event, Finding, Grant, Lacking, Request, Spawn, Step};

use crate::boundary::View;
use crate::namespaces::Isolation;
use crate::sys::{self, Channel, Errno, Received, SignalFd, UnixAddress};
use crate::tree::Ending;
use crate::{keeper, tree};

mod broker;
mod close;
mod follow;
mod launch;
mod socket;

use close::Closing;
use follow::resume_children;

/// Poll interval, in milliseconds, while something is being ended.
const SWEEP_MS: i32 = 1;

/// How long a start may take before the worker looks whether it was stopped on the way, in milliseconds.
const START_MS: i32 = 20;

/// A process by its two numbers: in a pid namespace they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pid {
    /// As system calls of the worker give and take it; `0` until it is known.
    own: i32,
    /// As `/proc` of the host shows it, and as the host is told.
    shown: i32,
}

/// A launcher's end of its channel, at the worker.
struct Launcher {
    pid: Pid,
    channel: Channel,
    ready: bool,
}

struct Epoch {
    grant: Grant,
    ruleset: OwnedFd,
    outside: OwnedFd,
    inside: OwnedFd,
    /// What the view is built from.
    plan: OwnedFd,
    host_process: OwnedFd,
    view: Option<View>,
    /// The process that builds the view, until it has.
    builder: Option<Launcher>,
    lacking: Vec<Lacking>,
    launcher: Option<Launcher>,
    /// What a launcher tries to reach.
    socket: Option<socket::NamedSocket>,
    /// What the first launcher found; a later one must find the same.
    findings: Option<Vec<Finding>>,
    attempts: u32,
    retired: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// It has not said its process id yet.
    Starting,
    Nothing,
    Command(u64),
}

struct Reaper {
    pid: Pid,
    epoch: u32,
    channel: Channel,
    holds: Holds,
}

/// A command that was started and has not settled.
struct Command {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    exited: bool,
    /// Its reaper was killed: the worker watches its tree, together with all that were lost.
    lost: bool,
    /// Its tree is being ended.
    ending: bool,
    /// What its reaper was sent, until it is heard that it was read.
    request: Option<Received>,
}

struct Worker {
    isolation: Isolation,
    control: Channel,
    signals: SignalFd,
    scope: Option<OwnedFd>,
    session: Option<Launcher>,
    abstract_socket: Option<(OwnedFd, UnixAddress)>,
    epochs: BTreeMap<u32, Epoch>,
    reapers: Vec<Reaper>,
    brokers: Vec<broker::Broker>,
    commands: HashMap<u64, Command>,
    waiting: VecDeque<(u64, u32, Received)>,
    /// Killed reapers whose end has not been seen, so whose children are not all here yet.
    dying: HashSet<i32>,
    closing: Option<Closing>,
    /// What is being ended, of single commands and of the session.
    ending: Ending,
    /// The host was told that the session is ready.
    opened: bool,
    /// Since when something has been starting, or when it was last looked after.
    starting_since: Option<Instant>,
    /// Closing has begun once: nothing starts any more.
    closed: bool,
}

/// Why the loop ends.
enum Stop {
    /// The host is gone, or speaks another protocol.
    HostGone,
    /// Everything has ended and the host was told.
    Closed,
}

impl From<Errno> for Stop {
    fn from(_: Errno) -> Self {
        Self::HostGone
    }
}

/// Serves the host until it is gone or the session is closed.
pub(crate) fn run(control: OwnedFd, isolation: Isolation) -> ! {
    let stop = match Worker::new(control, isolation) {
        Ok(mut worker) => {
            let stop = worker.serve();
            worker.freeze();
            stop
        }
        Err(_) => Stop::HostGone,
    };
    match stop {
        Stop::Closed => sys::exit_now(0),
        Stop::HostGone => {
            keeper::end_everything();
            sys::exit_now(2)
        }
    }
}

impl Worker {
    fn new(control: OwnedFd, isolation: Isolation) -> sys::Result<Self> {
        sys::set_subreaper()?;
        sys::set_name(c"bailiwick-work")?;
        // Each command costs descriptors here; the limit of the commands themselves is put back there.
        let mut files = sys::limit(0, sys::OPEN_FILES)?;
        files.soft = files.hard;
        sys::set_limit(sys::OPEN_FILES, files)?;
        Ok(Self {
            isolation,
            control: Channel::new(control),
            signals: SignalFd::for_children()?,
            scope: None,
            session: None,
            abstract_socket: None,
            epochs: BTreeMap::new(),
            reapers: Vec::new(),
            brokers: Vec::new(),
            commands: HashMap::new(),
            waiting: VecDeque::new(),
            dying: HashSet::new(),
            closing: None,
            ending: Ending::default(),
            starting_since: None,
            opened: false,
            closed: false,
        })
    }

    fn serve(&mut self) -> Stop {
        loop {
            if let Err(stop) = self.turn() {
                return stop;
            }
        }
    }

    /// One turn of the loop.
    fn turn(&mut self) -> Result<(), Stop> {
        let mut wanted: Vec<(RawFd, bool)> =
            vec![(self.control.as_raw_fd(), self.control.wants_write()), (self.signals.as_raw_fd(), false)];
        let channels = |launcher: &Launcher| (launcher.channel.as_raw_fd(), launcher.channel.wants_write());
        wanted.extend(self.session.iter().map(channels));
        let of_epochs = self.epochs.values().flat_map(|epoch| epoch.launcher.iter().chain(&epoch.builder));
        wanted.extend(of_epochs.map(channels));
        wanted.extend(self.reapers.iter().map(|r| (r.channel.as_raw_fd(), r.channel.wants_write())));
        wanted.extend(self.brokers.iter().filter_map(|b| b.channel()).map(|c| (c.as_raw_fd(), false)));
        let sweeping = self.closing.is_some() || self.commands.values().any(|command| command.ending);
        if !sweeping {
            self.ending = Ending::default();
        }
        let starting = self.starting();
        let patience = match (sweeping, starting.is_empty()) {
            (true, _) => SWEEP_MS,
            (false, false) => START_MS,
            (false, true) if self.brokers.iter().any(broker::Broker::is_missing) => START_MS,
            (false, true) => -1,
        };
        let ready: HashSet<RawFd> = sys::poll(&wanted, patience)?
            .into_iter()
            .zip(&wanted)
            .filter_map(|(happened, (fd, _))| happened.then_some(*fd))
            .collect();

        self.look_after(&starting);
        // Reapers first: an event of a command must reach the host before what is asked about it now.
        self.read_reapers(Some(&ready))?;
        self.read_launchers(&ready)?;
        self.read_brokers(&ready)?;
        if ready.contains(&self.signals.as_raw_fd()) {
            self.signals.drain();
        }
        self.reap()?;
        if ready.contains(&self.control.as_raw_fd()) {
            self.read_control()?;
        }
        self.dispatch()?;
        if sweeping || self.closing.is_some() {
            self.sweep()?;
        }
        self.control.flush()?;
        Ok(())
    }

    /// Sees from time to time that nothing that starts was stopped on the way.
    fn look_after(&mut self, starting: &[i32]) {
        let now = Instant::now();
        let since = match self.starting_since {
            _ if starting.is_empty() => None,
            Some(since) if now.duration_since(since).as_millis() >= START_MS.unsigned_abs().into() => {
                resume_children(starting);
                Some(now)
            }
            Some(since) => Some(since),
            None => Some(now),
        };
        self.starting_since = since;
    }

    fn tell(&mut self, event: &Event) -> Result<(), Stop> {
        Ok(self.control.send(event.encode(), Vec::new())?)
    }

    fn read_control(&mut self) -> Result<(), Stop> {
        loop {
            let message = match self.control.receive(false) {
                Ok(Some(message)) => message,
                Ok(None) => return Err(Stop::HostGone),
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            };
            // A spawn is passed on unread: only its reaper needs all of it.
            match Spawn::head(&message.bytes) {
                Ok((command, epoch)) => self.waiting.push_back((command, epoch, message)),
                Err(_) => self.answer(message)?,
            }
        }
    }

    fn answer(&mut self, message: Received) -> Result<(), Stop> {
        let request = Request::decode(&message.bytes).map_err(|_| Stop::HostGone)?;
        let mut descriptors = message.descriptors.into_iter();
        match request {
            Request::Open { version } => {
                self.scope = descriptors.next();
                if version != bailiwick_wire::VERSION || !tree::readable() {
                    let event = Event::OpenFailed { step: Step::Message, errno: Errno::NOSYS.0 };
                    return self.tell(&event);
                }
                self.abstract_socket = Some(sys::bind_abstract()?);
                self.start_session()
            }
            Request::Grant(grant) => {
                let mut next = || descriptors.next().ok_or(Stop::HostGone);
                let (ruleset, outside, inside, plan) = (next()?, next()?, next()?, next()?);
                let host_process = next()?;
                let epoch = Epoch {
                    grant: grant.clone(),
                    ruleset,
                    outside,
                    inside,
                    plan,
                    host_process,
                    view: None,
                    builder: None,
                    lacking: self.isolation.lacking.into_iter().collect(),
                    launcher: None,
                    socket: None,
                    findings: None,
                    attempts: 0,
                    retired: false,
                };
                self.epochs.insert(grant.epoch, epoch);
                if self.isolation.permits_views() {
                    self.start_builder(grant.epoch)
                } else {
                    self.start_launcher(grant.epoch)
                }
            }
            Request::Retire { epoch } => {
                // With its descriptors: a session may replace its grant any number of times.
                self.epochs.remove(&epoch);
                // Those that are starting too: they find their channel closed.
                self.reapers
                    .retain(|reaper| reaper.epoch != epoch || matches!(reaper.holds, Holds::Command(_)));
                Ok(())
            }
            // Its tag was looked for before.
            Request::Spawn(_) => Err(Stop::HostGone),
            Request::Signal { request, command, signal, tree } => {
                let event = self.signal(request, command, signal, tree);
                self.tell(&event)
            }
            Request::List { request, command } => {
                let mut processes = self.processes();
                if command != 0 {
                    processes.retain(|process| process.command == command);
                }
                self.tell(&Event::Processes { request, processes })
            }
            Request::Close { deadline_ms } => {
                self.closed = true;
                self.freeze();
                let alive = self.processes();
                self.closing = Some(Closing::begin(self.closing.take(), alive, deadline_ms));
                for (command, _, _) in std::mem::take(&mut self.waiting) {
                    self.tell(&Event::NotStarted { command, step: Step::Epoch, errno: 0 })?;
                }
                Ok(())
            }
        }
    }
}
