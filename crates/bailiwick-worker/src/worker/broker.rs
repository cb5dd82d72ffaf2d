//! Brokers: one for each launcher whose filter asks, replaced when a command killed it.

use std::collections::HashSet;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::launch::LAUNCH_ATTEMPTS;
use super::{Launcher, Pid, Stop, Worker};
use crate::sys::{self, Channel, Errno, Questions, Received};
use crate::{broker, launcher};

/// A filter that asks, and who answers.
///
/// It outlives its epoch, as processes with the filter do.
pub(super) struct Broker {
    /// Held here too: were it closed with a broker, every connection would fail from then on.
    listener: OwnedFd,
    /// What a broker took up, for the one after it.
    questions: OwnedFd,
    /// Namespace and root of the mount view.
    view: [OwnedFd; 2],
    process: Option<Launcher>,
    /// How often one was asked for since one served.
    attempts: u32,
    asked: Instant,
    /// One has served: it can be done here.
    has_served: bool,
}

impl Broker {
    /// Nobody serves, and nobody is about to.
    pub(super) fn is_missing(&self) -> bool {
        self.process.is_none()
    }

    /// After many that were killed at once, or could not be made, another one is asked for now and then only.
    fn is_due(&self) -> bool {
        let pause = Duration::from_millis(super::START_MS.unsigned_abs().into());
        self.is_missing() && (self.attempts <= LAUNCH_ATTEMPTS || self.asked.elapsed() >= pause)
    }

    pub(super) fn channel(&self) -> Option<&Channel> {
        self.process.as_ref().map(|process| &process.channel)
    }

    /// Its process, as far as that is known.
    pub(super) fn pid(&self) -> Pid {
        self.process.as_ref().map_or_else(Pid::default, |process| process.pid)
    }
}

impl Worker {
    /// A launcher handed over the listener of its filter, and waits for somebody to serve it.
    pub(super) fn add_broker(&mut self, listener: OwnedFd, view: [OwnedFd; 2]) -> Result<(), Stop> {
        let questions = Questions::make()?;
        let asked = Instant::now();
        let (process, attempts, has_served) = (None, 0, false);
        self.brokers.push(Broker { listener, questions, view, process, attempts, asked, has_served });
        self.start_brokers()
    }

    /// Makes those that are missing, as soon as there is somebody to make them. Gives up where nobody needs one any
    /// more, and where none has ever come about.
    pub(super) fn start_brokers(&mut self) -> Result<(), Stop> {
        if self.closed {
            return Ok(());
        }
        // Without a listener the calls of whoever waits do not exist: nothing hangs, and a launcher that tries them
        // finds the layer missing.
        let can_be = |broker: &Broker| broker.has_served || broker.attempts <= LAUNCH_ATTEMPTS;
        let is_wanted = |broker: &Broker| can_be(broker) && !sys::is_unused(&broker.listener);
        self.brokers.retain(|broker| !broker.is_missing() || is_wanted(broker));
        let Some(session) = self.session.as_mut().filter(|session| session.ready) else { return Ok(()) };
        for broker in self.brokers.iter_mut().filter(|broker| broker.is_due()) {
            let (ours, theirs) = sys::socket_pair()?;
            let mut descriptors = vec![theirs];
            for given in [&broker.listener, &broker.questions].into_iter().chain(&broker.view) {
                descriptors.push(sys::duplicate_above(given.as_raw_fd(), 3)?);
            }
            broker.attempts += 1;
            broker.asked = Instant::now();
            broker.process =
                Some(Launcher { pid: Pid::default(), channel: Channel::new(ours), ready: false });
            // A session launcher that is gone drops it, and the end of the channel shows.
            sys::may_fail(session.channel.send(vec![launcher::MAKE_BROKER], descriptors));
        }
        Ok(())
    }

    /// Takes what brokers have said.
    pub(super) fn read_brokers(&mut self, ready: &HashSet<RawFd>) -> Result<(), Stop> {
        let isolation = &self.isolation;
        let said = |message: Received, process: &mut Launcher| {
            if let Some(pid) = launcher::read_hello(&message.bytes) {
                process.pid = super::launch::pid_of(isolation, pid);
            }
            process.ready |= message.bytes == [broker::SERVES];
        };
        for broker in &mut self.brokers {
            let Some(process) = &mut broker.process else { continue };
            if !ready.contains(&process.channel.as_raw_fd()) {
                continue;
            }
            match process.channel.receive(false) {
                Err(Errno::AGAIN) => {}
                Ok(Some(message)) => {
                    said(message, process);
                    if process.ready {
                        broker.attempts = 0;
                        broker.has_served = true;
                    }
                }
                Ok(None) | Err(_) => broker.process = None,
            }
        }
        self.start_brokers()
    }

    /// Children have ended: brokers among them are made again, and those are ended whose filter no process has any
    /// more. The last one that had it was a child, or below one. Older kernels do not tell a broker that.
    pub(super) fn children_ended(&mut self, children: &[i32]) -> Result<(), Stop> {
        const SIGKILL: i32 = 9;
        // Their numbers may be others' from now on.
        for broker in self.brokers.iter_mut().filter(|broker| children.contains(&broker.pid().own)) {
            broker.process = None;
        }
        self.brokers.retain(|broker| {
            let unused = sys::is_unused(&broker.listener);
            // It has not been waited for, so the number is still its own.
            if unused && broker.pid().own != 0 {
                sys::may_fail(sys::kill(broker.pid().own, SIGKILL));
            }
            !unused
        });
        self.start_brokers()
    }
}
