//! What the worker tells the session.

use crate::codec::{Malformed, Reader, Writer};
use crate::probe::{Finding, Unusable};
use crate::request::LimitFound;

/// The step at which something could not be done. Decides which error the session raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The message could not be read.
    Message = 1,
    /// A process could not be made.
    Fork = 2,
    /// A descriptor could not be moved into place, or the others could not be closed.
    Descriptors = 3,
    /// No session of its own (`setsid`).
    Session = 4,
    /// Signal mask or dispositions.
    Signals = 5,
    /// A resource limit.
    Limits = 6,
    /// The working directory could not be entered.
    WorkingDirectory = 7,
    /// The program could not be executed.
    Exec = 8,
    /// `no_new_privs`.
    NoNewPrivs = 9,
    /// A Landlock layer could not be entered.
    Landlock = 10,
    /// Capabilities could not be dropped.
    Capabilities = 11,
    /// The seccomp filter could not be installed.
    Seccomp = 12,
    /// The process that should have done it ended first.
    Launcher = 13,
    /// The epoch named does not exist, or takes no more commands.
    Epoch = 14,
    /// Namespaces could not be made or entered.
    Namespaces = 15,
    /// The user could not be mapped into a user namespace.
    UserMap = 16,
    /// Mounts could not be made private.
    MountPrivate = 17,
    /// A root could not be bound on itself.
    MountRoot = 18,
    /// A root is another object in the view than the one that was granted.
    MountIdentity = 19,
    /// Mounts could not be made read-only, or writable again.
    MountReadOnly = 20,
    /// A file system of the session's own could not be mounted: `/proc`, terminals, shared memory.
    MountOwn = 21,
    /// A protected object could not be covered.
    MountHidden = 22,
    /// The loopback interface could not be brought up.
    Loopback = 23,
    /// Capabilities that are to be kept would reach outside of the roots: there is no view of mounts that stops them.
    NeedsMountView = 40,
    /// Capabilities that are to be kept are not held, or would not last: this is not root of the files.
    NeedsRoot = 41,
}

impl Step {
    const ALL: [Self; 25] = [
        Self::Message,
        Self::Fork,
        Self::Descriptors,
        Self::Session,
        Self::Signals,
        Self::Limits,
        Self::WorkingDirectory,
        Self::Exec,
        Self::NoNewPrivs,
        Self::Landlock,
        Self::Capabilities,
        Self::Seccomp,
        Self::Launcher,
        Self::Epoch,
        Self::Namespaces,
        Self::UserMap,
        Self::MountPrivate,
        Self::MountRoot,
        Self::MountIdentity,
        Self::MountReadOnly,
        Self::MountOwn,
        Self::MountHidden,
        Self::Loopback,
        Self::NeedsMountView,
        Self::NeedsRoot,
    ];

    /// The step with this number.
    ///
    /// # Errors
    /// [`Malformed`] when there is none.
    pub fn from_number(number: u8) -> Result<Self, Malformed> {
        Self::ALL.into_iter().find(|step| *step as u8 == number).ok_or(Malformed("step"))
    }
}

/// A part of the confinement that a host may not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The namespaces of the session.
    Namespaces = 1,
    /// The mount view of the grant.
    View = 2,
    /// `/proc` of the session's own.
    OwnProc = 3,
    /// Terminals of the session's own.
    OwnTerminals = 4,
    /// Shared memory of the grant's own.
    OwnSharedMemory = 5,
}

/// A part of the confinement that this host does not give, and where that showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking {
    /// The part.
    pub part: Part,
    /// Where.
    pub step: Step,
    /// Error number, or `0`.
    pub errno: i32,
}

impl Lacking {
    /// Appends it to a message.
    pub fn write(&self, writer: &mut Writer) {
        writer.u8(self.part as u8).u8(self.step as u8).i32(self.errno);
    }

    /// Takes it off a message.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let part = match reader.u8("part")? {
            1 => Part::Namespaces,
            2 => Part::View,
            3 => Part::OwnProc,
            4 => Part::OwnTerminals,
            5 => Part::OwnSharedMemory,
            _ => return Err(Malformed("part")),
        };
        Ok(Self { part, step: Step::from_number(reader.u8("step")?)?, errno: reader.i32("errno")? })
    }
}

/// A live process of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id as the host sees it.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22); with the pid it names a process.
    pub start_time: u64,
    /// State letter of `/proc/PID/stat`.
    pub state: u8,
    /// The command it belongs to; `0` when that is not known.
    pub command: u64,
    /// Name of the program as the kernel keeps it (`comm`, at most 15 bytes).
    pub name: Vec<u8>,
}

/// How a process ended while the session closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum HowEnded {
    /// It was gone when the worker came to it.
    Itself = 1,
    /// The worker killed it, and saw it gone.
    Killed = 2,
    /// It could not be confirmed: still there at the deadline.
    NotConfirmed = 3,
}

/// A process that was alive when the session began to close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The process, as last seen.
    pub process: Process,
    /// What became of it.
    pub how: HowEnded,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Answers `Open`.
    Ready {
        /// [`VERSION`](crate::VERSION) of the worker.
        version: u32,
        /// Process id of the worker.
        worker_pid: u32,
    },
    /// `Open` failed; the worker ends.
    OpenFailed {
        /// Where.
        step: Step,
        /// Error number, or `0`.
        errno: i32,
    },
    /// Answers `Grant`: the launcher is confined, and this is what it found when it tried.
    Granted {
        /// The epoch.
        epoch: u32,
        /// Outcome of each probe.
        findings: Vec<Finding>,
        /// Roots in which nothing could be written from inside.
        unusable: Vec<Unusable>,
        /// What this host does not give.
        lacking: Vec<Lacking>,
        /// Commands have a mount view: mounts that the host makes from here on do not reach them.
        has_view: bool,
        /// What the kernel made of each limit, in the order in which they were asked for.
        limits: Vec<LimitFound>,
    },
    /// `Grant` failed; earlier epochs are as they were.
    GrantFailed {
        /// The epoch.
        epoch: u32,
        /// Where.
        step: Step,
        /// Error number, or `0`.
        errno: i32,
        /// Position of the root that it is about.
        root: Option<u32>,
    },
    /// The program of a command is running.
    Started {
        /// The command.
        command: u64,
        /// Its process id, as the host sees it.
        pid: u32,
        /// Start time in clock ticks since boot.
        start_time: u64,
    },
    /// A command did not start; nothing ran.
    NotStarted {
        /// The command.
        command: u64,
        /// Where.
        step: Step,
        /// Error number, or `0`.
        errno: i32,
    },
    /// The process that was started has ended.
    Exited {
        /// The command.
        command: u64,
        /// Wait status (`waitpid(2)`); `None` when it was lost with the command's reaper.
        status: Option<i32>,
        /// Nothing of its tree is left: no `Settled` follows.
        settled: bool,
    },
    /// The whole tree of a command has ended.
    Settled {
        /// The command.
        command: u64,
        /// Processes that ended after the one that was started.
        descendants: u32,
    },
    /// The reaper of a command was killed: its tree is watched by the worker from here on, together
    /// with every other tree that was lost.
    SupervisionLost {
        /// The command.
        command: u64,
    },
    /// A launcher was killed by a command and replaced.
    LauncherReplaced {
        /// The epoch; `0` for the session's own, after which older commands and newer ones can no
        /// longer signal each other.
        epoch: u32,
    },
    /// Answers `Signal`.
    Signalled {
        /// Number of the request.
        request: u64,
        /// Processes that were signalled.
        delivered: u32,
        /// Error number of the last failure, or `0`.
        errno: i32,
    },
    /// Answers `List`.
    Processes {
        /// Number of the request.
        request: u64,
        /// The processes.
        processes: Vec<Process>,
    },
    /// Answers `Close` when nothing is left; the worker ends after it.
    Closed {
        /// What was alive when closing began.
        ended: Vec<Ended>,
    },
    /// Answers `Close` at its deadline; the worker stays and `Close` may be asked again.
    CloseIncomplete {
        /// What was alive when closing began.
        ended: Vec<Ended>,
    },
}

fn write_process(writer: &mut Writer, process: &Process) {
    writer
        .u32(process.pid)
        .u64(process.start_time)
        .u8(process.state)
        .u64(process.command)
        .bytes(&process.name);
}

fn read_process(reader: &mut Reader<'_>) -> Result<Process, Malformed> {
    Ok(Process {
        pid: reader.u32("pid")?,
        start_time: reader.u64("start_time")?,
        state: reader.u8("state")?,
        command: reader.u64("command")?,
        name: reader.bytes("name")?.to_vec(),
    })
}

fn write_ended(writer: &mut Writer, ended: &[Ended]) {
    writer.list(ended, |w, item| {
        write_process(w, &item.process);
        w.u8(item.how as u8);
    });
}

fn read_ended(reader: &mut Reader<'_>) -> Result<Vec<Ended>, Malformed> {
    reader.list("ended", |r| {
        let process = read_process(r)?;
        let how = match r.u8("how")? {
            1 => HowEnded::Itself,
            2 => HowEnded::Killed,
            3 => HowEnded::NotConfirmed,
            _ => return Err(Malformed("how")),
        };
        Ok(Ended { process, how })
    })
}

impl Event {
    /// The bytes of the event.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w;
        match self {
            Self::Ready { version, worker_pid } => {
                w = Writer::new(101);
                w.u32(*version).u32(*worker_pid);
            }
            Self::OpenFailed { step, errno } => {
                w = Writer::new(102);
                w.u8(*step as u8).i32(*errno);
            }
            Self::Granted { epoch, findings, unusable, limits, lacking, has_view } => {
                w = Writer::new(103);
                w.u32(*epoch);
                w.list(findings, |w, finding| finding.write(w));
                w.list(unusable, |w, root| root.write(w));
                w.list(limits, |w, limit| limit.write(w));
                w.list(lacking, |w, lacking| lacking.write(w));
                w.u8((*has_view).into());
            }
            Self::GrantFailed { epoch, step, errno, root } => {
                w = Writer::new(104);
                w.u32(*epoch).u8(*step as u8).i32(*errno);
                w.u8(root.is_some().into()).u32(root.unwrap_or(0));
            }
            Self::Started { command, pid, start_time } => {
                w = Writer::new(105);
                w.u64(*command).u32(*pid).u64(*start_time);
            }
            Self::NotStarted { command, step, errno } => {
                w = Writer::new(106);
                w.u64(*command).u8(*step as u8).i32(*errno);
            }
            Self::Exited { command, status, settled } => {
                w = Writer::new(107);
                w.u64(*command).u8(status.is_some().into()).i32(status.unwrap_or(0)).u8((*settled).into());
            }
            Self::Settled { command, descendants } => {
                w = Writer::new(108);
                w.u64(*command).u32(*descendants);
            }
            Self::SupervisionLost { command } => {
                w = Writer::new(109);
                w.u64(*command);
            }
            Self::LauncherReplaced { epoch } => {
                w = Writer::new(110);
                w.u32(*epoch);
            }
            Self::Signalled { request, delivered, errno } => {
                w = Writer::new(111);
                w.u64(*request).u32(*delivered).i32(*errno);
            }
            Self::Processes { request, processes } => {
                w = Writer::new(112);
                w.u64(*request);
                w.list(processes, write_process);
            }
            Self::Closed { ended } => {
                w = Writer::new(113);
                write_ended(&mut w, ended);
            }
            Self::CloseIncomplete { ended } => {
                w = Writer::new(114);
                write_ended(&mut w, ended);
            }
        }
        w.finish()
    }

    /// Reads an event.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let event = match r.u8("tag")? {
            101 => Self::Ready { version: r.u32("version")?, worker_pid: r.u32("worker_pid")? },
            102 => Self::OpenFailed { step: Step::from_number(r.u8("step")?)?, errno: r.i32("errno")? },
            103 => Self::Granted {
                epoch: r.u32("epoch")?,
                findings: r.list("findings", Finding::read)?,
                unusable: r.list("unusable", Unusable::read)?,
                limits: r.list("limits", LimitFound::read)?,
                lacking: r.list("lacking", Lacking::read)?,
                has_view: r.flag("has view")?,
            },
            104 => {
                let (epoch, step) = (r.u32("epoch")?, Step::from_number(r.u8("step")?)?);
                let (errno, names_root, root) = (r.i32("errno")?, r.flag("names root")?, r.u32("root")?);
                Self::GrantFailed { epoch, step, errno, root: names_root.then_some(root) }
            }
            105 => Self::Started {
                command: r.u64("command")?,
                pid: r.u32("pid")?,
                start_time: r.u64("start_time")?,
            },
            106 => Self::NotStarted {
                command: r.u64("command")?,
                step: Step::from_number(r.u8("step")?)?,
                errno: r.i32("errno")?,
            },
            107 => {
                let command = r.u64("command")?;
                let known = r.flag("status known")?;
                let status = r.i32("status")?;
                Self::Exited { command, status: known.then_some(status), settled: r.flag("settled")? }
            }
            108 => Self::Settled { command: r.u64("command")?, descendants: r.u32("descendants")? },
            109 => Self::SupervisionLost { command: r.u64("command")? },
            110 => Self::LauncherReplaced { epoch: r.u32("epoch")? },
            111 => Self::Signalled {
                request: r.u64("request")?,
                delivered: r.u32("delivered")?,
                errno: r.i32("errno")?,
            },
            112 => {
                Self::Processes { request: r.u64("request")?, processes: r.list("processes", read_process)? }
            }
            113 => Self::Closed { ended: read_ended(&mut r)? },
            114 => Self::CloseIncomplete { ended: read_ended(&mut r)? },
            _ => return Err(Malformed("event tag")),
        };
        r.end()?;
        Ok(event)
    }
}
