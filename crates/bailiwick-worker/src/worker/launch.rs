//! Launchers and reapers: making them, replacing those that a command killed, and giving them commands.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use bailiwick_wire::{Event, Finding, Outcome, Probe, Step};

use super::{Command, Holds, Launcher, Reaper, Stop, Worker};
use crate::launcher;
use crate::sys::{self, Channel, Errno, Received};

/// Reapers kept idle for an epoch; those above are ended. Two cores rarely run more at once, and a
/// reaper costs about 150 us and 100 KiB when it is needed again.
const SPARE_REAPERS: usize = 8;
/// How often a launcher is made again for a waiting command before the command fails: a command of the
/// same session that keeps killing launchers must not keep another one waiting for ever.
const LAUNCH_ATTEMPTS: u32 = 16;

impl Worker {
    /// Makes the session's launcher.
    pub(super) fn start_session(&mut self) -> Result<(), Stop> {
        let Some(scope) = &self.scope else { return Err(Stop::HostGone) };
        let scope = sys::duplicate_above(scope.as_raw_fd(), 3)?;
        let (ours, theirs) = sys::socket_pair()?;
        let pid = launcher::start_session(theirs, scope)?;
        self.session = Some(Launcher { pid, channel: Channel::new(ours), ready: false });
        Ok(())
    }

    /// Asks the session's launcher for the launcher of an epoch.
    pub(super) fn start_launcher(&mut self, number: u32) -> Result<(), Stop> {
        let Some((_, address)) = &self.abstract_socket else { return Err(Stop::HostGone) };
        let (Some(session), Some(epoch)) = (&mut self.session, self.epochs.get_mut(&number)) else {
            return Ok(());
        };
        let (ours, theirs) = sys::socket_pair()?;
        let copy = |fd: &OwnedFd| sys::duplicate_above(fd.as_raw_fd(), 3);
        let mut descriptors = vec![theirs];
        for given in [&epoch.ruleset, &epoch.outside, &epoch.inside, &epoch.roots] {
            descriptors.push(copy(given)?);
        }
        epoch.attempts += 1;
        epoch.launcher = Some(Launcher { pid: 0, channel: Channel::new(ours), ready: false });
        // A session launcher that is gone shows by its end of file, and is made again there.
        sys::may_fail(session.channel.send(launcher::grant_message(&epoch.grant, address), descriptors));
        Ok(())
    }

    pub(super) fn read_launchers(&mut self, ready: &HashSet<RawFd>) -> Result<(), Stop> {
        if let Some(session) = &mut self.session
            && ready.contains(&session.channel.as_raw_fd())
        {
            sys::may_fail(session.channel.flush());
            match session.channel.receive(false) {
                Err(Errno::AGAIN) => {}
                Ok(Some(message)) => self.session_said(&message)?,
                Ok(None) | Err(_) => self.session_lost()?,
            }
        }
        let numbers: Vec<u32> = self.epochs.keys().copied().collect();
        for number in numbers {
            let Some(launcher) = self.epochs.get_mut(&number).and_then(|epoch| epoch.launcher.as_mut())
            else {
                continue;
            };
            if !ready.contains(&launcher.channel.as_raw_fd()) {
                continue;
            }
            sys::may_fail(launcher.channel.flush());
            match launcher.channel.receive(false) {
                Err(Errno::AGAIN) => {}
                Ok(Some(message)) => self.launcher_said(number, &message)?,
                Ok(None) | Err(_) => self.launcher_lost(number)?,
            }
        }
        Ok(())
    }

    fn session_said(&mut self, message: &Received) -> Result<(), Stop> {
        let event = Event::decode(&message.bytes).map_err(|_| Stop::HostGone)?;
        let Some(session) = &mut self.session else { return Ok(()) };
        match event {
            Event::Ready { version, .. } => {
                session.ready = true;
                // Only the first one answers the host's request; a later one was announced as replaced.
                if !std::mem::replace(&mut self.opened, true) {
                    let worker_pid = u32::try_from(sys::process_id()).unwrap_or(0);
                    self.tell(&Event::Ready { version, worker_pid })?;
                }
                Ok(())
            }
            failed => self.tell(&failed),
        }
    }

    fn session_lost(&mut self) -> Result<(), Stop> {
        self.session = None;
        if !self.opened {
            return self.tell(&Event::OpenFailed { step: Step::Launcher, errno: 0 });
        }
        if !self.closed {
            self.tell(&Event::LauncherReplaced { epoch: 0 })?;
            self.start_session()?;
            // Those that were asked of the lost one may never come.
            for epoch in self.epochs.values_mut() {
                if epoch.launcher.as_ref().is_some_and(|launcher| !launcher.ready) {
                    epoch.launcher = None;
                }
            }
        }
        Ok(())
    }

    fn launcher_said(&mut self, number: u32, message: &Received) -> Result<(), Stop> {
        let Some(epoch) = self.epochs.get_mut(&number) else { return Ok(()) };
        if let Some(pid) = launcher::read_hello(&message.bytes) {
            epoch.launcher.iter_mut().for_each(|launcher| launcher.pid = pid);
            return Ok(());
        }
        let event = Event::decode(&message.bytes).map_err(|_| Stop::HostGone)?;
        match event {
            Event::Granted { epoch: named, mut findings, unusable, limits } => {
                let orphans = if sys::subreaper() == Ok(true) { Outcome::Held } else { Outcome::Broken };
                findings.push(Finding { probe: Probe::Orphans, outcome: orphans, errno: 0 });
                match &epoch.findings {
                    None => {
                        epoch.findings = Some(findings.clone());
                        epoch.launcher.iter_mut().for_each(|launcher| launcher.ready = true);
                        self.tell(&Event::Granted { epoch: named, findings, unusable, limits })?;
                        self.provide(number, 0)
                    }
                    Some(before) if *before == findings => {
                        epoch.launcher.iter_mut().for_each(|launcher| launcher.ready = true);
                        Ok(())
                    }
                    // The host decided on other findings than these, so nothing may run under them. A command
                    // may have killed what the launcher tried things with; the next one is asked again.
                    Some(_) => {
                        epoch.launcher = None;
                        Ok(())
                    }
                }
            }
            failed => {
                epoch.launcher = None;
                if epoch.findings.is_none() {
                    self.epochs.remove(&number);
                    self.tell(&failed)?;
                }
                Ok(())
            }
        }
    }

    fn launcher_lost(&mut self, number: u32) -> Result<(), Stop> {
        let Some(epoch) = self.epochs.get_mut(&number) else { return Ok(()) };
        epoch.launcher = None;
        if epoch.findings.is_none() {
            self.epochs.remove(&number);
            return self.tell(&Event::GrantFailed { epoch: number, step: Step::Launcher, errno: 0 });
        }
        if epoch.retired || self.closed {
            Ok(())
        } else {
            self.tell(&Event::LauncherReplaced { epoch: number })
        }
    }

    /// Gives waiting commands to idle reapers, and sees that there will be one for the next.
    pub(super) fn dispatch(&mut self) -> Result<(), Stop> {
        let mut later = VecDeque::new();
        let mut used = HashSet::new();
        while let Some((command, number, message)) = self.waiting.pop_front() {
            let epoch = self.epochs.get_mut(&number);
            let epoch = epoch.filter(|epoch| !epoch.retired && epoch.findings.is_some() && !self.closed);
            let Some(epoch) = epoch else {
                self.tell(&Event::NotStarted { command, step: Step::Epoch, errno: 0 })?;
                continue;
            };
            if epoch.attempts > LAUNCH_ATTEMPTS {
                // The next command may have more luck.
                epoch.attempts = 0;
                self.tell(&Event::NotStarted { command, step: Step::Launcher, errno: 0 })?;
                continue;
            }
            used.insert(number);
            let is_idle = |reaper: &Reaper| reaper.epoch == number && reaper.holds == Holds::Nothing;
            let Some(index) = self.reapers.iter().position(is_idle) else {
                later.push_back((command, number, message));
                continue;
            };
            let Some(reaper) = self.reapers.get_mut(index) else { continue };
            match reaper.channel.send_now(&message) {
                Ok(()) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    // It was killed, idle. Another one takes it.
                    self.reapers.remove(index);
                    self.waiting.push_front((command, number, message));
                    continue;
                }
                Err(errno) => {
                    self.tell(&Event::NotStarted { command, step: Step::Message, errno: errno.0 })?;
                    continue;
                }
            }
            reaper.holds = Holds::Command(command);
            self.commands.insert(
                command,
                Command {
                    pid: 0,
                    pidfd: None,
                    exited: false,
                    lost: false,
                    ending: false,
                    request: Some(message),
                },
            );
        }
        self.waiting = later;
        for number in used {
            let waiting = self.waiting.iter().filter(|(_, epoch, _)| *epoch == number).count();
            self.provide(number, waiting)?;
        }
        Ok(())
    }

    /// Sees that one reaper more is idle or starting than commands wait, and that not too many are idle.
    fn provide(&mut self, number: u32, waiting: usize) -> Result<(), Stop> {
        let count = |reapers: &[Reaper], holds| {
            reapers.iter().filter(|reaper| reaper.epoch == number && reaper.holds == holds).count()
        };
        let starting = count(&self.reapers, Holds::Starting);
        let idle = count(&self.reapers, Holds::Nothing);
        let Some(epoch) = self.epochs.get_mut(&number) else { return Ok(()) };
        let Some(launcher) = &mut epoch.launcher else {
            return if self.session.as_ref().is_some_and(|session| session.ready) {
                self.start_launcher(number)
            } else {
                Ok(())
            };
        };
        if !launcher.ready {
            return Ok(());
        }
        for _ in (starting + idle)..=waiting {
            let (ours, theirs) = sys::socket_pair()?;
            sys::may_fail(launcher.channel.send(vec![launcher::MAKE_REAPER], vec![theirs]));
            self.reapers.push(Reaper {
                pid: 0,
                epoch: number,
                channel: Channel::new(ours),
                holds: Holds::Starting,
            });
        }
        for _ in SPARE_REAPERS..idle {
            if let Some(spare) =
                self.reapers.iter().position(|r| r.epoch == number && r.holds == Holds::Nothing)
            {
                self.reapers.remove(spare);
            }
        }
        Ok(())
    }
}
