//! Ending: the trees of single commands, and everything when the session closes.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use bailiwick_wire::{Ended, Event, HowEnded, Process};

use super::{Stop, Worker};
use crate::sys::{self, Errno};
use crate::{keeper, launcher};

/// How many sweeps in a row may find no process while a reaper has not reported its command: far above
/// what a reaper needs, and only reports are lost after it.
const PATIENCE: u32 = 200;

/// A session that is being closed.
pub(super) struct Closing {
    deadline: Option<Instant>,
    /// What was alive when closing began or was met later; whether a kill reached it.
    met: Vec<(Process, bool)>,
    quiet: u32,
    /// The host was told that it is incomplete, and has not asked again.
    reported: bool,
}

impl Closing {
    /// Begins, or begins again after an incomplete close.
    pub(super) fn begin(before: Option<Self>, alive: Vec<Process>, deadline_ms: u64) -> Self {
        let mut closing =
            before.unwrap_or(Self { deadline: None, met: Vec::new(), quiet: 0, reported: false });
        closing.deadline = Instant::now().checked_add(Duration::from_millis(deadline_ms));
        closing.reported = false;
        for process in alive {
            closing.note(process, false);
        }
        closing
    }

    fn note(&mut self, process: Process, killed: bool) {
        let same = |known: &Process| known.pid == process.pid && known.start_time == process.start_time;
        match self.met.iter_mut().find(|(known, _)| same(known)) {
            Some((_, before)) => *before |= killed,
            None => self.met.push((process, killed)),
        }
    }

    /// What became of each process, given those that are still there.
    fn outcome(&self, alive: &[Process]) -> Vec<Ended> {
        self.met
            .iter()
            .map(|(process, killed)| {
                let there = alive
                    .iter()
                    .find(|other| other.pid == process.pid && other.start_time == process.start_time);
                let how = match (there, killed) {
                    (Some(_), _) => HowEnded::NotConfirmed,
                    (None, true) => HowEnded::Killed,
                    (None, false) => HowEnded::Itself,
                };
                Ended { process: there.unwrap_or(process).clone(), how }
            })
            .collect()
    }
}

impl Worker {
    /// Stops all commands at one stroke, before they are ended one by one: from inside the domain that they
    /// share. Where that does not come about, they are stopped one by one as well.
    pub(super) fn freeze(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| session.ready) {
            sys::may_fail(session.channel.send(vec![launcher::FREEZE], Vec::new()));
        }
    }

    /// Goes on with what is being ended.
    pub(super) fn sweep(&mut self) -> Result<(), Stop> {
        let alive = self.processes();
        let Some(closing) = &mut self.closing else {
            let is_lost = |command: &super::Command| command.ending && command.lost;
            let is_ending = |process: &Process| match process.command {
                0 => self.commands.values().any(is_lost),
                number => self.commands.get(&number).is_some_and(|command| command.ending),
            };
            let ending: Vec<Process> = alive.into_iter().filter(is_ending).collect();
            self.ending.go_on(&ending);
            return Ok(());
        };
        for (process, killed) in alive.iter().zip(self.ending.go_on(&alive)) {
            closing.note(process.clone(), killed);
        }
        if closing.reported {
            return Ok(());
        }
        if alive.is_empty() {
            closing.quiet += 1;
            if self.commands.is_empty() || closing.quiet > PATIENCE {
                return self.finish();
            }
        } else {
            closing.quiet = 0;
        }
        if closing.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            closing.reported = true;
            let ended = closing.outcome(&alive);
            return self.tell(&Event::CloseIncomplete { ended });
        }
        Ok(())
    }

    /// Ends the session's own processes, says so, and stops.
    fn finish(&mut self) -> Result<(), Stop> {
        let Some(closing) = self.closing.take() else { return Ok(()) };
        self.reapers.clear();
        self.epochs.clear();
        self.brokers.clear();
        self.session = None;
        // Whatever a walk did not show is below this process all the same, and is waited for here.
        keeper::end_everything();
        self.tell(&Event::Closed { ended: closing.outcome(&[]) })?;
        while self.control.wants_write() {
            sys::poll(&[(self.control.as_raw_fd(), true)], -1)?;
            match self.control.flush() {
                Ok(()) => {}
                Err(Errno::PIPE) => return Err(Stop::HostGone),
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Stop::Closed)
    }
}
