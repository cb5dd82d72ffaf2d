//! What the calls of a session and the task that reads the worker's events share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_wire::{Ended, Event, Request, Step};
use tokio::sync::{oneshot, watch};

use super::child::Process;
use super::mark::Mark;
use crate::error::{Error, ErrorKind, Ran};
use crate::worker::{Keeper, Link, Message};

/// How far a command has come. Fields are only ever filled in.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) started: Option<Started>,
    pub(super) not_started: Option<(Step, i32)>,
    /// Wait status; the inner `None` is a status that was lost.
    pub(super) exited: Option<Option<i32>>,
    pub(super) settled: bool,
    /// Its reaper was killed by a command of the session.
    pub(super) supervision_lost: bool,
    /// The worker is gone, so nothing more will be heard.
    pub(super) worker_lost: bool,
    /// What was found out while it ran.
    pub(super) marks: Vec<Mark>,
    /// Nobody will take the handle: it is to be ended as soon as it has started.
    abandoned: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) pid: u32,
    pub(super) start_time: u64,
}

impl Progress {
    /// Whether it is known if the command started.
    pub(super) fn decided(&self) -> bool {
        self.started.is_some() || self.not_started.is_some() || self.exited.is_some() || self.worker_lost
    }

    pub(super) fn over(&self) -> bool {
        self.exited.is_some() || self.worker_lost
    }
}

/// Answer to a close request.
#[derive(Debug, Clone)]
pub(super) enum Closing {
    Complete(Vec<Ended>),
    Incomplete(Vec<Ended>),
}

#[derive(Debug)]
struct State {
    /// Close began: nothing starts any more.
    closed: bool,
    /// The worker is gone.
    over: bool,
    commands: HashMap<u64, watch::Sender<Progress>>,
    answers: HashMap<u64, oneshot::Sender<Event>>,
    grants: HashMap<u32, oneshot::Sender<Event>>,
    ready: Option<oneshot::Sender<Event>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) keeper: Keeper,
    state: Mutex<State>,
    next: AtomicU64,
    worker_pid: AtomicU32,
    close: watch::Sender<Option<Closing>>,
    /// Set once the keeper has gone; the inner `None` is an exit status that somebody else took.
    keeper_end: watch::Sender<Option<Option<i32>>>,
}

impl Shared {
    pub(super) fn new(link: Link, keeper: Keeper) -> (Arc<Self>, oneshot::Receiver<Event>) {
        let (sender, ready) = oneshot::channel();
        let state = State {
            closed: false,
            over: false,
            commands: HashMap::new(),
            answers: HashMap::new(),
            grants: HashMap::new(),
            ready: Some(sender),
        };
        let shared = Self {
            link,
            keeper,
            state: Mutex::new(state),
            next: AtomicU64::new(1),
            worker_pid: AtomicU32::new(0),
            close: watch::Sender::new(None),
            keeper_end: watch::Sender::new(None),
        };
        (Arc::new(shared), ready)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn worker_pid(&self) -> u32 {
        self.worker_pid.load(Ordering::Relaxed)
    }

    /// Reads events until the worker is gone, then waits for the keeper's end. The session's one task.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            match self.link.receive().await {
                Ok(Message::Event(event)) => self.take(event),
                Ok(Message::End) => break,
                Err(error) => {
                    tracing::error!(%error, "the worker's messages cannot be read; the session is ended");
                    self.link.shut_down();
                    break;
                }
            }
        }
        self.worker_gone();
        let end = match self.keeper.ended().await {
            Ok(end) => end,
            Err(error) => {
                tracing::error!(%error, "the end of the keeper cannot be seen");
                return;
            }
        };
        tracing::debug!(status = ?end, "the keeper has ended");
        self.keeper_end.send_replace(Some(end));
    }

    fn take(&self, event: Event) {
        let mut state = self.state();
        let progress = |command: u64, change: &dyn Fn(&mut Progress)| {
            if let Some(watched) = state.commands.get(&command) {
                watched.send_modify(change);
                let now = watched.borrow();
                return now.settled || now.not_started.is_some();
            }
            false
        };
        let finished = match event {
            Event::Started { command, pid, start_time } => {
                progress(command, &|p| p.started = Some(Started { pid, start_time }));
                let abandoned =
                    state.commands.get(&command).is_some_and(|watched| watched.borrow().abandoned);
                drop(state);
                if abandoned {
                    self.end_tree(command);
                }
                return;
            }
            Event::NotStarted { command, step, errno } => {
                progress(command, &|p| p.not_started = Some((step, errno))).then_some(command)
            }
            Event::Exited { command, status, settled } => progress(command, &|p| {
                p.exited = Some(status);
                p.settled = settled;
            })
            .then_some(command),
            Event::Settled { command, .. } => progress(command, &|p| p.settled = true).then_some(command),
            Event::SupervisionLost { command } => {
                tracing::warn!(command, "a command killed the reaper of a command of its session");
                progress(command, &|p| p.supervision_lost = true).then_some(command)
            }
            Event::LauncherReplaced { epoch } => {
                tracing::warn!(epoch, "a command killed a launcher of its session; it was replaced");
                None
            }
            event @ (Event::Signalled { request, .. } | Event::Processes { request, .. }) => {
                if let Some(waiting) = state.answers.remove(&request) {
                    // Whoever asked may have gone away.
                    drop(waiting.send(event));
                }
                None
            }
            event @ (Event::Granted { epoch, .. } | Event::GrantFailed { epoch, .. }) => {
                if let Some(waiting) = state.grants.remove(&epoch) {
                    drop(waiting.send(event));
                }
                None
            }
            event @ (Event::Ready { .. } | Event::OpenFailed { .. }) => {
                if let Event::Ready { worker_pid, .. } = event {
                    self.worker_pid.store(worker_pid, Ordering::Relaxed);
                }
                if let Some(waiting) = state.ready.take() {
                    drop(waiting.send(event));
                }
                None
            }
            Event::Closed { ended } => {
                self.close.send_replace(Some(Closing::Complete(ended)));
                None
            }
            Event::CloseIncomplete { ended } => {
                self.close.send_replace(Some(Closing::Incomplete(ended)));
                None
            }
        };
        if let Some(command) = finished {
            state.commands.remove(&command);
        }
    }

    fn worker_gone(&self) {
        let mut state = self.state();
        state.over = true;
        // Dropping the senders wakes whoever waits for an answer.
        state.answers.clear();
        state.grants.clear();
        state.ready = None;
        for (_, watched) in state.commands.drain() {
            watched.send_modify(|progress| progress.worker_lost = true);
        }
        drop(state);
        // Wakes those who wait for a close that will not be answered.
        self.close.send_modify(|_| {});
    }

    /// Refuses unless the session is open. What is refused here has been sent nowhere.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        let state = self.state();
        // Closed, whatever became of the worker since.
        if state.closed {
            Err(Error::new(ErrorKind::SessionClosed, "the session is closed").hint("open a new session"))
        } else if state.over {
            Err(worker_lost().with_ran(Ran::Nothing))
        } else {
            Ok(())
        }
    }

    pub(super) fn over(&self) -> bool {
        self.state().over
    }

    pub(super) fn begin_closing(&self) {
        self.state().closed = true;
    }

    /// Registers a command before it can start.
    pub(super) fn register(&self) -> Result<(u64, watch::Receiver<Progress>), Error> {
        self.check_open()?;
        let command = self.next();
        let (sender, receiver) = watch::channel(Progress::default());
        self.state().commands.insert(command, sender);
        Ok((command, receiver))
    }

    /// Takes back a registration whose request was never sent.
    pub(super) fn unregister(&self, command: u64) {
        self.state().commands.remove(&command);
    }

    /// Commands that have started and whose trees have not settled.
    pub(super) fn running(&self) -> Vec<(u64, Progress)> {
        let state = self.state();
        let mut running: Vec<_> =
            state.commands.iter().map(|(command, watched)| (*command, watched.borrow().clone())).collect();
        running.sort_by_key(|(command, _)| *command);
        running
    }

    /// Marks every command that has not settled.
    pub(super) fn mark(&self, mark: &Mark) {
        for watched in self.state().commands.values() {
            watched.send_if_modified(|progress| {
                let is_new = !progress.marks.contains(mark);
                if is_new {
                    progress.marks.push(mark.clone());
                }
                is_new
            });
        }
    }

    /// Follows a command that is not settled.
    pub(super) fn watch(&self, command: u64) -> Option<watch::Receiver<Progress>> {
        self.state().commands.get(&command).map(watch::Sender::subscribe)
    }

    /// Ends a command that nobody holds: now, or as soon as it has started.
    pub(super) fn abandon(&self, command: u64) {
        let started = {
            let state = self.state();
            let Some(watched) = state.commands.get(&command) else { return };
            watched.send_modify(|progress| progress.abandoned = true);
            watched.borrow().started.is_some()
        };
        if started {
            self.end_tree(command);
        }
    }

    /// Asks for the end of a command's whole tree, without waiting for it.
    pub(super) fn end_tree(&self, command: u64) {
        const SIGKILL: i32 = 9;
        let request = Request::Signal { request: self.next(), command, signal: SIGKILL, tree: true };
        // Without a worker, its keeper has ended the tree.
        drop(self.link.send(&request, &[]));
    }

    /// Sends a request that is answered by its number.
    pub(super) async fn ask(&self, make: impl FnOnce(u64) -> Request) -> Result<Event, Error> {
        let number = self.next();
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.state();
            if state.over {
                drop(state);
                return Err(self.check_open().err().unwrap_or_else(worker_lost));
            }
            state.answers.insert(number, sender);
        }
        self.link.send(&make(number), &[]).map_err(|error| worker_lost().source(error))?;
        answer.await.map_err(|_| worker_lost())
    }

    /// Registers the wait for the outcome of a grant.
    pub(super) fn expect_grant(&self, epoch: u32) -> oneshot::Receiver<Event> {
        let (sender, answer) = oneshot::channel();
        self.state().grants.insert(epoch, sender);
        answer
    }

    pub(super) async fn processes(&self, command: u64) -> Result<Vec<Process>, Error> {
        match self.ask(|request| Request::List { request, command }).await? {
            Event::Processes { processes, .. } => Ok(processes.into_iter().map(Process::from).collect()),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn close_answers(&self) -> watch::Receiver<Option<Closing>> {
        self.close.subscribe()
    }

    /// Forgets an earlier answer that was not the last one, before asking again.
    pub(super) fn reset_close(&self) {
        self.close.send_if_modified(|answer| {
            answer.take_if(|answer| matches!(answer, Closing::Incomplete(_))).is_some()
        });
    }

    pub(super) fn keeper_end(&self) -> watch::Receiver<Option<Option<i32>>> {
        self.keeper_end.subscribe()
    }
}

pub(super) fn worker_lost() -> Error {
    Error::new(ErrorKind::WorkerLost, "the worker of the session has ended; its commands were ended with it")
        .hint("open a new session")
}

pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::WorkerProtocol, "the worker gave an answer that was not asked for")
}
