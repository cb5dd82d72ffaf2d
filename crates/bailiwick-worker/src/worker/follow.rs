//! Following commands: what their reapers say, what the worker inherits when a reaper was killed, and
//! signals.

use std::collections::HashSet;
use std::os::fd::{AsRawFd as _, RawFd};

use bailiwick_wire::{Event, Process};

use super::{Holds, Pid, Reaper, Stop, Worker};
use crate::launcher;
use crate::sys::{self, Errno, Received, Waited};
use crate::tree::{self, Own};

const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const ESRCH: Errno = Errno(3);

/// Continues children that a command of the session stopped: their parent, which shares its memory with
/// them meanwhile, waits for them and could not be told.
pub(super) fn resume_children(parents: &[i32]) {
    parents.iter().flat_map(|parent| tree::children_of(*parent)).for_each(tree::resume);
}

impl Worker {
    /// Takes what reapers have said: those whose channels are ready, or all.
    pub(super) fn read_reapers(&mut self, ready: Option<&HashSet<RawFd>>) -> Result<(), Stop> {
        let mut index = 0;
        while let Some(reaper) = self.reapers.get_mut(index) {
            if ready.is_some_and(|ready| !ready.contains(&reaper.channel.as_raw_fd())) {
                index += 1;
                continue;
            }
            sys::may_fail(reaper.channel.flush());
            match reaper.channel.receive(false) {
                Ok(Some(message)) => self.reaper_said(index, message)?,
                Err(Errno::AGAIN) => index += 1,
                // It died before it read what it was sent, so what it was given has not begun.
                Err(Errno::CONNRESET) => self.reaper_lost(index, true)?,
                Ok(None) | Err(_) => self.reaper_lost(index, false)?,
            }
        }
        Ok(())
    }

    fn reaper_said(&mut self, index: usize, message: Received) -> Result<(), Stop> {
        let Some(reaper) = self.reapers.get_mut(index) else { return Ok(()) };
        if let Some(pid) = launcher::read_hello(&message.bytes) {
            let pid = self.pid_of(pid);
            let Some(reaper) = self.reapers.get_mut(index) else { return Ok(()) };
            reaper.pid = pid;
            reaper.holds = Holds::Nothing;
            if let Some(epoch) = self.epochs.get_mut(&reaper.epoch) {
                epoch.attempts = 0;
            }
            return Ok(());
        }
        let Received { mut bytes, descriptors } = message;
        let mut event = Event::decode(&bytes).map_err(|_| Stop::HostGone)?;
        let Holds::Command(held) = reaper.holds else { return Ok(()) };
        if let Some(entry) = self.commands.get_mut(&held) {
            entry.request = None;
        }
        let mut is_changed = false;
        let done = match &mut event {
            Event::Started { command, pid, start_time } if *command == held => {
                let own = i32::try_from(*pid).unwrap_or(0);
                let mut numbers = Pid { own, shown: own };
                let pidfd = descriptors.into_iter().next();
                let is_isolated = self.isolation.has(sys::CLONE_NEWPID);
                if is_isolated {
                    numbers.shown = pidfd.as_ref().and_then(tree::number_of).unwrap_or(0);
                    *pid = u32::try_from(numbers.shown).unwrap_or(0);
                }
                // A reaper in a read scope cannot look into `/proc`.
                if is_isolated || *start_time == 0 {
                    *start_time = tree::stat(numbers.shown).map_or(0, |stat| stat.start_time);
                    // Only now may it wait for the command, after which nobody could tell these numbers. If it is gone,
                    // its end says so.
                    sys::may_fail(reaper.channel.send(vec![launcher::NUMBERED], Vec::new()));
                    is_changed = true;
                }
                if let Some(entry) = self.commands.get_mut(command) {
                    entry.pid = numbers;
                    entry.pidfd = pidfd;
                }
                false
            }
            Event::Exited { command, settled, .. } if *command == held => {
                if let Some(entry) = self.commands.get_mut(command) {
                    entry.exited = true;
                    entry.pidfd = None;
                }
                *settled
            }
            Event::NotStarted { command, .. } | Event::Settled { command, .. } => *command == held,
            // A reaper says nothing else.
            _ => return Ok(()),
        };
        if done {
            reaper.holds = Holds::Nothing;
            let retired = self.epochs.get(&reaper.epoch).is_none_or(|epoch| epoch.retired);
            if retired {
                self.reapers.remove(index);
            }
            self.commands.remove(&held);
        }
        if is_changed {
            bytes = event.encode();
        }
        Ok(self.control.send(bytes, Vec::new())?)
    }

    /// A reaper's channel closed. What it held becomes the worker's own, or waits again if it was `unread`.
    fn reaper_lost(&mut self, index: usize, unread: bool) -> Result<(), Stop> {
        let reaper = self.reapers.remove(index);
        if reaper.holds == Holds::Starting
            && let Some(epoch) = self.epochs.get_mut(&reaper.epoch)
        {
            // Perhaps no process can be made at all: a command that waits must hear of it some time.
            epoch.attempts += 1;
        }
        let Holds::Command(command) = reaper.holds else { return Ok(()) };
        let request = self.commands.get_mut(&command).and_then(|entry| entry.request.take());
        if let Some(request) = request.filter(|_| unread) {
            self.commands.remove(&command);
            self.waiting.push_front((command, reaper.epoch, request));
            return Ok(());
        }
        // Its descendants come here when the kernel has finished with it, which is after its
        // descriptors were closed; until then an empty list of children proves nothing.
        self.dying.insert(reaper.pid.own);
        let mut unknown = false;
        if let Some(entry) = self.commands.get_mut(&command) {
            entry.lost = true;
            // It never said whether the command started. Nobody will be given a handle, so should it run,
            // it is ended.
            unknown = entry.pid.own == 0;
            entry.ending |= unknown;
            entry.exited |= unknown;
        }
        self.tell(&Event::SupervisionLost { command })?;
        if unknown {
            self.tell(&Event::Exited { command, status: None, settled: false })?;
        }
        Ok(())
    }

    /// Takes off children that ended or stopped.
    pub(super) fn reap(&mut self) -> Result<(), Stop> {
        let mut ended = Vec::new();
        while let Ok(Some(child)) = sys::wait(false, true) {
            if child.stopped() {
                self.resume(child.pid);
                continue;
            }
            ended.push(child.pid);
            // What a killed reaper said, and the end of its channel, came before its own end and that of
            // anything that came here from it, but may not have been read yet.
            self.read_reapers(None)?;
            // Only a command that is about to start can hold the channel open for longer, as its copy.
            if let Some(index) = self.reapers.iter().position(|reaper| reaper.pid.own == child.pid) {
                self.reaper_lost(index, false)?;
            }
            self.dying.remove(&child.pid);
            self.adopted_ended(child)?;
        }
        if !ended.is_empty() {
            self.children_ended(&ended)?;
        }
        self.settle_lost()
    }

    /// A command stopped one of the session's own processes: the tree must not hang on it. Or an adopted
    /// process made the worker its tracer, and waits for it.
    fn resume(&self, pid: i32) {
        // Most are not traced.
        sys::may_fail(sys::detach(pid));
        if !self.adopts() || self.known().any(|known| known.own == pid) {
            // It may have been killed since.
            sys::may_fail(sys::kill(pid, SIGCONT));
        }
    }

    /// Reapers and launchers that wait for a child of their own, which is the session's until it executes a
    /// program or ends.
    pub(super) fn starting(&self) -> Vec<i32> {
        let is_starting = |reaper: &&Reaper| match reaper.holds {
            Holds::Command(command) => self.commands.get(&command).is_some_and(|entry| entry.pid.own == 0),
            Holds::Starting | Holds::Nothing => false,
        };
        let reapers = self.reapers.iter().filter(is_starting).map(|reaper| reaper.pid.shown);
        let launchers = self.epochs.values().filter_map(|epoch| epoch.launcher.as_ref());
        let launchers = launchers.filter(|launcher| !launcher.ready && launcher.pid.own != 0);
        reapers.chain(launchers.map(|launcher| launcher.pid.shown)).collect()
    }

    fn adopted_ended(&mut self, child: Waited) -> Result<(), Stop> {
        let found = self
            .commands
            .iter_mut()
            .find(|(_, command)| command.lost && !command.exited && command.pid.own == child.pid);
        let Some((number, command)) = found else { return Ok(()) };
        command.exited = true;
        command.pidfd = None;
        let event = Event::Exited { command: *number, status: Some(child.status), settled: false };
        self.tell(&event)
    }

    /// Whether children of the worker may be processes of commands.
    fn adopts(&self) -> bool {
        !self.dying.is_empty() || self.commands.values().any(|command| command.lost)
    }

    /// The session's own processes below the worker.
    fn own(&self) -> Own {
        if !self.adopts() {
            // Orphans go to their reaper, so all children of the worker are its own, also those whose
            // process id is not known yet, or that appear while they are looked for.
            return Own::Children;
        }
        Own::Listed(self.known().map(|pid| pid.shown).filter(|pid| *pid != 0).collect())
    }

    /// The session's own processes below the worker, as far as their numbers are known.
    fn known(&self) -> impl Iterator<Item = Pid> {
        let launchers = self.epochs.values().flat_map(|epoch| epoch.launcher.iter().chain(&epoch.builder));
        let launchers = launchers.chain(&self.session).map(|launcher| launcher.pid);
        let known = launchers.chain(self.reapers.iter().map(|reaper| reaper.pid));
        known.chain(self.brokers.iter().map(super::broker::Broker::pid))
    }

    /// Commands whose reaper was killed settle together: when the worker has no child left that is not
    /// its own.
    fn settle_lost(&mut self) -> Result<(), Stop> {
        let lost: Vec<u64> =
            self.commands.iter().filter(|(_, command)| command.lost).map(|(number, _)| *number).collect();
        if lost.is_empty() || !self.dying.is_empty() {
            return Ok(());
        }
        // A reaper that was killed just when it had taken off its command could not say so any more.
        let gone = |command: &super::Command| {
            let asked = command.pidfd.as_ref().map(|pidfd| sys::pidfd_signal(pidfd, 0));
            command.lost && !command.exited && asked == Some(Err(ESRCH))
        };
        let unheard: Vec<u64> =
            self.commands.iter().filter(|(_, command)| gone(command)).map(|(number, _)| *number).collect();
        for command in unheard {
            if let Some(entry) = self.commands.get_mut(&command) {
                entry.exited = true;
            }
            self.tell(&Event::Exited { command, status: None, settled: false })?;
        }
        if let Own::Listed(own) = self.own()
            && tree::own_children().iter().any(|pid| !own.contains(pid))
        {
            return Ok(());
        }
        for command in lost {
            if self.commands.remove(&command).is_some_and(|entry| !entry.exited) {
                self.tell(&Event::Exited { command, status: None, settled: false })?;
            }
            self.tell(&Event::Settled { command, descendants: 0 })?;
        }
        Ok(())
    }

    /// Live processes of the session that are not its own.
    pub(super) fn processes(&self) -> Vec<Process> {
        let held = |pid| {
            let by_reaper = self.reapers.iter().find_map(|reaper| match reaper.holds {
                Holds::Command(command) if reaper.pid.shown == pid => Some(command),
                _ => None,
            });
            // Of a command that was lost, what still descends from its first process can be told.
            let by_itself = || {
                let first = |entry: &super::Command| entry.lost && !entry.exited && entry.pid.shown == pid;
                self.commands.iter().find_map(|(command, entry)| first(entry).then_some(*command))
            };
            by_reaper.or_else(by_itself).unwrap_or(0)
        };
        tree::below(tree::own().unwrap_or(0), &self.own(), held)
    }

    pub(super) fn signal(&mut self, request: u64, command: u64, signal: i32, whole: bool) -> Event {
        let answer = |delivered, errno: Errno| Event::Signalled { request, delivered, errno: errno.0 };
        let Some(entry) = self.commands.get_mut(&command) else { return answer(0, ESRCH) };
        if !whole {
            return match &entry.pidfd {
                Some(pidfd) => match sys::pidfd_signal(pidfd, signal) {
                    Ok(()) => answer(1, Errno(0)),
                    Err(errno) => answer(0, errno),
                },
                None => answer(0, ESRCH),
            };
        }
        // What is forked meanwhile is met by the sweeps that follow, until the tree has settled.
        entry.ending |= signal == SIGKILL;
        // What a lost command has detached cannot be told from what others that were lost have.
        let lost = entry.lost;
        let mut tree = self.processes();
        tree.retain(|process| process.command == command || (lost && process.command == 0));
        if signal == SIGKILL {
            self.ending.go_on(&tree);
            return answer(u32::try_from(tree.len()).unwrap_or(u32::MAX), Errno(0));
        }
        let (mut delivered, mut last) = (0, Errno(0));
        for process in &tree {
            match tree::signal(process, signal) {
                Ok(()) => delivered += 1,
                Err(errno) => last = errno,
            }
        }
        answer(delivered, last)
    }
}
