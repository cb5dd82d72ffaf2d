//! Closing a session.

use std::time::Duration;

use bailiwick_wire::{HowEnded, Request};
use serde::Serialize;

use super::Session;
use super::check::check;
use super::child::Process;
use super::mark::Mark;
use super::state::{Closing, worker_lost};
use crate::error::{Error, ErrorKind, Field, Ran};

/// How long after its word that all has ended the worker and its keeper may take to end themselves, and how long
/// after the deadline an answer may take. They have nothing to wait for; this is for a loaded machine.
const GRACE: Duration = Duration::from_secs(5);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It was gone when its turn came.
    Itself,
    /// It was killed, and is gone.
    Killed,
}

/// A process that was alive when the session began to close.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClosedProcess {
    /// The process, as last seen.
    #[serde(flatten)]
    pub process: Process,
    /// What became of it.
    pub ending: Ending,
}

/// What closing a session ended. That there is a report means that nothing of the session is left.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct CloseReport {
    /// Every process that was alive when closing began, or appeared while it went on.
    pub processes: Vec<ClosedProcess>,
    /// What was found out when closing began: a protected object that could be reached by what still ran.
    pub marks: Vec<Mark>,
    /// The worker had been lost, and its keeper ended what was left: nothing is, but there is no list.
    pub by_keeper: bool,
}

impl CloseReport {
    /// How many processes were killed.
    #[must_use]
    pub fn killed(&self) -> usize {
        self.processes.iter().filter(|process| process.ending == Ending::Killed).count()
    }
}

impl Session {
    /// Ends every process of the session, however detached, and reports each.
    ///
    /// It is ready when the worker has said that nothing is left, *and* has ended itself. Calls that come
    /// meanwhile get the same report, and so do later ones. From its beginning nothing new starts, and at its
    /// end the store is free for another session.
    ///
    /// # Errors
    /// `NotSettled` at the deadline, with the processes that were still there (a process in
    /// uninterruptible sleep cannot be ended by anyone); calling again goes on. `SettlementUnknown` when
    /// worker and keeper were killed from outside, or do not answer.
    pub async fn close(&self) -> Result<CloseReport, Error> {
        self.close_within(self.close_deadline).await
    }

    /// As [`close`](Self::close), with another deadline.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub async fn close_within(&self, deadline: Duration) -> Result<CloseReport, Error> {
        // At once, not after a close that is under way.
        self.shared.begin_closing();
        let mut closed = self.closed.lock().await;
        if let Some(report) = &*closed {
            return Ok(report.clone());
        }
        // What was mounted, linked or moved while the last commands ran is found out here, or never.
        let mark = match self.active.try_read() {
            Ok(active) => check(&self.shared, &active.grant).await.err().and_then(|error| Mark::of(&error)),
            // A replacement is under way; it compares by itself.
            Err(_) => None,
        };
        let mut report = self.settle(deadline).await?;
        report.marks.extend(mark);
        // Nothing of the session is left, so its store may be opened again at once.
        self.store.release();
        *closed = Some(report.clone());
        Ok(report)
    }

    async fn settle(&self, deadline: Duration) -> Result<CloseReport, Error> {
        self.shared.reset_close();
        let mut answers = self.shared.close_answers();
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        // Where the worker is gone already, its last word may still be on the way: the answer to a call that was
        // dropped. If there is none, the keeper answers for it below.
        drop(self.shared.link.send(&Request::Close { deadline_ms }, &[]));
        let mut report = CloseReport::default();
        let answered = answers.wait_for(|answer| answer.is_some() || self.shared.over());
        match tokio::time::timeout(deadline.saturating_add(GRACE), answered).await {
            Err(_) => return Err(unknown("the worker did not answer")),
            Ok(Err(_)) => return Err(worker_lost()),
            Ok(Ok(answer)) => match &*answer {
                Some(Closing::Incomplete(ended)) => return Err(not_settled(ended)),
                Some(Closing::Complete(ended)) => {
                    report.processes = ended.iter().map(closed_process).collect();
                }
                None => report.by_keeper = true,
            },
        }
        let mut end = self.shared.keeper_end();
        let ended = tokio::time::timeout(GRACE.max(deadline), end.wait_for(Option::is_some)).await;
        match ended.ok().and_then(Result::ok).and_then(|status| *status) {
            None => Err(unknown("the keeper has not ended")),
            // It ends with a status of its own only when nothing is left. Without the worker's word, an
            // end that cannot be read may be a kill from outside.
            Some(Some(_)) => Ok(report),
            Some(None) if !report.by_keeper => Ok(report),
            Some(None) => Err(unknown("worker and keeper were killed from outside")),
        }
    }
}

fn closed_process(ended: &bailiwick_wire::Ended) -> ClosedProcess {
    ClosedProcess {
        process: Process::from(ended.process.clone()),
        ending: if ended.how == HowEnded::Killed { Ending::Killed } else { Ending::Itself },
    }
}

fn unknown(reason: &'static str) -> Error {
    Error::new(
        ErrorKind::SettlementUnknown,
        format!("it is not known whether every process has ended: {reason}"),
    )
    .text("reason", reason)
    .with_ran(Ran::Unknown)
    .hint("treat them as alive; close again")
}

fn not_settled(ended: &[bailiwick_wire::Ended]) -> Error {
    let left: Vec<Process> = ended
        .iter()
        .filter(|ended| ended.how == HowEnded::NotConfirmed)
        .map(|ended| Process::from(ended.process.clone()))
        .collect();
    let describe =
        |process: &Process| format!("{} `{}` (state {})", process.pid, process.name, process.state);
    let list: Vec<String> = left.iter().map(describe).collect();
    let pids = left.iter().map(|process| Field::Number(process.pid.into())).collect();
    Error::new(
        ErrorKind::NotSettled,
        format!("processes of the session were still there at the deadline: {}", list.join(", ")),
    )
    .with("pids", Field::List(pids))
    .with("processes", Field::List(list.into_iter().map(Field::Text).collect()))
    .hint("state D is a wait inside the kernel that nobody can end: see what it waits for, then close again")
}
