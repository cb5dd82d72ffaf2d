//! Launchers and reapers: making them, replacing those that a command killed, and giving them commands.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use bailiwick_wire::{Event, Finding, Lacking, Outcome, Part, Probe, Step};

use super::socket::NamedSocket;
use super::{Command, Holds, Launcher, Pid, Reaper, Stop, Worker};
use crate::boundary::{View, ViewFailure, decode_view};
use crate::launcher::{self, Surroundings};
use crate::namespaces::Isolation;
use crate::sys::{self, Channel, Errno, Received};
use crate::tree;

/// Reapers kept idle for an epoch; those above are ended. Two cores rarely run more at once, and a
/// reaper costs about 150 us and 100 KiB when it is needed again.
const SPARE_REAPERS: usize = 8;
/// How often a launcher is made again for a waiting command before the command fails: a command of the
/// same session that keeps killing launchers must not keep another one waiting for ever.
pub(super) const LAUNCH_ATTEMPTS: u32 = 16;

/// Both numbers of a child that has not been waited for.
pub(super) fn pid_of(isolation: &Isolation, own: i32) -> Pid {
    let shown = if isolation.has(sys::CLONE_NEWPID) { tree::number_of_child(own).unwrap_or(0) } else { own };
    Pid { own, shown }
}

impl Worker {
    /// Makes the session's launcher.
    pub(super) fn start_session(&mut self) -> Result<(), Stop> {
        let Some(scope) = &self.scope else { return Err(Stop::HostGone) };
        let scope = sys::duplicate_above(scope.as_raw_fd(), 3)?;
        let (ours, theirs) = sys::socket_pair()?;
        let pid = launcher::start_session(theirs, scope)?;
        let pid = self.pid_of(pid);
        self.session = Some(Launcher { pid, channel: Channel::new(ours), ready: false });
        Ok(())
    }

    /// Both numbers of a child that has not been waited for.
    pub(super) fn pid_of(&self, own: i32) -> Pid {
        pid_of(&self.isolation, own)
    }

    /// Makes the process that builds the view of an epoch.
    pub(super) fn start_builder(&mut self, number: u32) -> Result<(), Stop> {
        let Some(epoch) = self.epochs.get_mut(&number) else { return Ok(()) };
        let (ours, theirs) = sys::socket_pair()?;
        let copy = |fd: &OwnedFd| sys::duplicate_above(fd.as_raw_fd(), 3);
        let pid = launcher::start_builder(theirs, copy(&epoch.plan)?, copy(&epoch.ruleset)?, &epoch.grant)?;
        let pid = self.pid_of(pid);
        if let Some(epoch) = self.epochs.get_mut(&number) {
            epoch.builder = Some(Launcher { pid, channel: Channel::new(ours), ready: false });
        }
        Ok(())
    }

    /// Takes what a builder says. Without a view the grant goes on, and says what it lacks; but a root that is another
    /// object there than the one that was granted ends it.
    fn builder_said(&mut self, number: u32, message: Option<Received>) -> Result<(), Stop> {
        let Some(epoch) = self.epochs.get_mut(&number) else { return Ok(()) };
        epoch.builder = None;
        let gone = || Err(ViewFailure { step: Step::Launcher, errno: Errno(0), root: None });
        let built = message.as_ref().and_then(|message| decode_view(&message.bytes)).unwrap_or_else(gone);
        match built {
            Ok(lacking) => {
                let mut descriptors = message.into_iter().flat_map(|message| message.descriptors);
                let mut next = || descriptors.next().ok_or(Stop::HostGone);
                epoch.view =
                    Some(View { namespace: next()?, root: next()?, outside: next()?, inside: next()? });
                epoch.lacking.extend(lacking);
            }
            Err(ViewFailure { step: step @ Step::MountIdentity, errno, root }) => {
                self.epochs.remove(&number);
                return self.tell(&Event::GrantFailed { epoch: number, step, errno: errno.0, root });
            }
            Err(ViewFailure { step, errno, .. }) => {
                epoch.lacking.push(Lacking { part: Part::View, step, errno: errno.0 });
            }
        }
        self.start_launcher(number)
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
        let given = [&epoch.ruleset, &epoch.outside, &epoch.inside, &epoch.plan, &epoch.host_process];
        let of_view =
            epoch.view.iter().flat_map(|view| [&view.namespace, &view.root, &view.outside, &view.inside]);
        for given in given.into_iter().chain(of_view) {
            descriptors.push(copy(given)?);
        }
        let surroundings = Surroundings {
            abstract_socket: *address,
            host: self.isolation.host,
            kinds: self.isolation.kinds,
            has_view: epoch.view.is_some(),
            lacking: epoch.lacking.clone(),
        };
        epoch.attempts += 1;
        epoch.socket = NamedSocket::listen(&epoch.outside, number);
        epoch.launcher = Some(Launcher { pid: Pid::default(), channel: Channel::new(ours), ready: false });
        // A session launcher that is gone shows by its end of file, and is made again there.
        let message = launcher::grant_message(&epoch.grant, &surroundings);
        sys::may_fail(session.channel.send(message, descriptors));
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
            if let Some(builder) = self.epochs.get(&number).and_then(|epoch| epoch.builder.as_ref())
                && ready.contains(&builder.channel.as_raw_fd())
            {
                match builder.channel.receive(false) {
                    Err(Errno::AGAIN) => {}
                    received => self.builder_said(number, received.ok().flatten())?,
                }
            }
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
                Ok(Some(message)) => self.launcher_said(number, message)?,
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
                    let worker_pid = tree::own().ok().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
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

    fn launcher_said(&mut self, number: u32, mut message: Received) -> Result<(), Stop> {
        let Some(epoch) = self.epochs.get_mut(&number) else { return Ok(()) };
        if message.bytes == [launcher::LISTENER] {
            let (Some(listener), Some(view)) = (message.descriptors.pop(), &epoch.view) else {
                return Ok(());
            };
            let copy = |fd: &OwnedFd| sys::duplicate_above(fd.as_raw_fd(), 3);
            let view = [copy(&view.namespace)?, copy(&view.root)?];
            return self.add_broker(listener, view);
        }
        if let Some(pid) = launcher::read_hello(&message.bytes) {
            let pid = self.pid_of(pid);
            let epoch = self.epochs.get_mut(&number);
            epoch.into_iter().flat_map(|epoch| &mut epoch.launcher).for_each(|launcher| launcher.pid = pid);
            return Ok(());
        }
        let event = Event::decode(&message.bytes).map_err(|_| Stop::HostGone)?;
        epoch.socket = None;
        match event {
            Event::Granted { epoch: named, mut findings, unusable, limits, lacking, has_view } => {
                let held = |is_so| if is_so { Outcome::Held } else { Outcome::Broken };
                let orphans = held(sys::subreaper() == Ok(true));
                findings.push(Finding { probe: Probe::Orphans, outcome: orphans, errno: 0 });
                let init = held(sys::process_id() == 1);
                findings.push(Finding { probe: Probe::Init, outcome: init, errno: 0 });
                match &epoch.findings {
                    None => {
                        epoch.findings = Some(findings.clone());
                        epoch.launcher.iter_mut().for_each(|launcher| launcher.ready = true);
                        let granted =
                            Event::Granted { epoch: named, findings, unusable, limits, lacking, has_view };
                        self.tell(&granted)?;
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
        epoch.socket = None;
        if epoch.findings.is_none() {
            self.epochs.remove(&number);
            return self.tell(&Event::GrantFailed {
                epoch: number,
                step: Step::Launcher,
                errno: 0,
                root: None,
            });
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
                    pid: Pid::default(),
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
                pid: Pid::default(),
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
