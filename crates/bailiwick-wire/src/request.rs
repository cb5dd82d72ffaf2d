//! What the session asks of the worker.

use crate::codec::{Malformed, Reader, Writer};

/// A request. Descriptors are attached in the order given with each variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Starts the session's own process. Descriptors: the Landlock ruleset that holds only scopes.
    Open {
        /// [`VERSION`](crate::VERSION) of the sender.
        version: u32,
    },
    /// Makes a launcher for one epoch. Descriptors: the Landlock file-system ruleset, the directory of
    /// the sentinel (outside every root), the temporary directory (inside the grant), and a file that holds the
    /// [`Plan`](crate::Plan).
    Grant(Grant),
    /// Ends the launcher and the idle reapers of an epoch that takes no more commands.
    Retire {
        /// The epoch.
        epoch: u32,
    },
    /// Starts a command. Descriptors: stdin, stdout, stderr, working directory.
    Spawn(Spawn),
    /// Signals a command.
    Signal {
        /// Number that the answer repeats.
        request: u64,
        /// The command.
        command: u64,
        /// Signal number.
        signal: i32,
        /// The whole tree of the command, not only the process that was started.
        tree: bool,
    },
    /// Lists live processes.
    List {
        /// Number that the answer repeats.
        request: u64,
        /// Only the tree of this command; `0` lists the whole session.
        command: u64,
    },
    /// Ends every process of the session, and the worker.
    Close {
        /// Milliseconds until processes that cannot be ended are reported instead.
        deadline_ms: u64,
    },
}

/// What a launcher is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Number of the grant; never reused in a session.
    pub epoch: u32,
    /// Sockets of the internet families are permitted.
    pub network: bool,
    /// System V shared memory, semaphores and message queues are permitted.
    pub sysv_ipc: bool,
    /// Commands read only what the ruleset names; of `/proc` they list the names and read no file.
    pub read_scope: bool,
    /// Connections are made by a broker, which judges the names of sockets.
    pub broker: bool,
    /// The rights that the ruleset handles, as `landlock_create_ruleset(2)` takes them: the worker adds rules for
    /// what only the view has.
    pub handled: u64,
    /// The host process, which stands for "a process outside" in the probes.
    pub host_pid: u32,
    /// Name of the sentinel file in its directory.
    pub sentinel: Vec<u8>,
    /// Limits that each command of the grant gets: a launcher tries them, and says what the kernel made of them.
    pub limits: Vec<Limit>,
    /// Commands of root keep its powers over files: to change owners, and to ignore modes and owners.
    pub keep_files_capabilities: bool,
}

/// One resource limit of a command (`setrlimit(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// `RLIMIT_*` number.
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

impl Limit {
    fn write(&self, writer: &mut Writer) {
        writer.u32(self.resource).u64(self.soft).u64(self.hard);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { resource: reader.u32("resource")?, soft: reader.u64("soft")?, hard: reader.u64("hard")? })
    }
}

/// What the kernel made of a limit, in a process inside the confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitFound {
    /// The limit as it was read back after all of them had been set.
    pub limit: Limit,
    /// Error number of setting it, or `0`.
    pub set_errno: i32,
    /// Error number of reading it, or `0`; with another one the values in `limit` mean nothing.
    pub read_errno: i32,
    /// Whether the kernel refuses what is above the limit, where that was tried: it is for processes, whose limit
    /// does not bind root.
    pub binds: Option<bool>,
}

impl LimitFound {
    pub(crate) fn write(&self, writer: &mut Writer) {
        self.limit.write(writer);
        writer.i32(self.set_errno).i32(self.read_errno).u8(match self.binds {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        });
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            limit: Limit::read(reader)?,
            set_errno: reader.i32("set_errno")?,
            read_errno: reader.i32("read_errno")?,
            binds: match reader.u8("binds")? {
                0 => None,
                1 => Some(false),
                2 => Some(true),
                _ => return Err(Malformed("binds")),
            },
        })
    }
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawn {
    /// Number of the command; never reused in a session, never `0`.
    pub command: u64,
    /// The grant under which it runs.
    pub epoch: u32,
    /// Program: a path, or a name that is looked up in the `PATH` of `env`.
    pub program: Vec<u8>,
    /// Arguments, the program's own name first.
    pub args: Vec<Vec<u8>>,
    /// The whole environment, `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// Canonical path of the working directory: in a mount view it is opened again, and must be the same.
    pub directory: Vec<u8>,
    /// Limits set before the program starts.
    pub limits: Vec<Limit>,
}

impl Spawn {
    /// Tag of a spawn request, which the worker forwards unread.
    pub const TAG: u8 = 4;
    /// Bytes from the start of a spawn request that name command and epoch.
    pub const HEAD: usize = 1 + 8 + 4;

    /// Reads command and epoch off the head of an encoded spawn request.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn head(bytes: &[u8]) -> Result<(u64, u32), Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8("tag")? != Self::TAG {
            return Err(Malformed("tag"));
        }
        Ok((reader.u64("command")?, reader.u32("epoch")?))
    }

    fn write(&self) -> Vec<u8> {
        let mut writer = Writer::new(Self::TAG);
        writer.u64(self.command).u32(self.epoch).bytes(&self.program);
        writer.list(&self.args, |w, arg| {
            w.bytes(arg);
        });
        writer.list(&self.env, |w, entry| {
            w.bytes(entry);
        });
        writer.bytes(&self.directory);
        writer.list(&self.limits, |w, limit| limit.write(w));
        writer.finish()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            command: reader.u64("command")?,
            epoch: reader.u32("epoch")?,
            program: reader.bytes("program")?.to_vec(),
            args: reader.list("args", |r| Ok(r.bytes("arg")?.to_vec()))?,
            env: reader.list("env", |r| Ok(r.bytes("env entry")?.to_vec()))?,
            directory: reader.bytes("directory")?.to_vec(),
            limits: reader.list("limits", Limit::read)?,
        })
    }
}

impl Request {
    /// The bytes of the request.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer;
        match self {
            Self::Open { version } => {
                writer = Writer::new(1);
                writer.u32(*version);
            }
            Self::Grant(grant) => {
                writer = Writer::new(2);
                writer
                    .u32(grant.epoch)
                    .u8(grant.network.into())
                    .u8(grant.sysv_ipc.into())
                    .u8(grant.read_scope.into())
                    .u8(grant.broker.into())
                    .u64(grant.handled)
                    .u32(grant.host_pid)
                    .bytes(&grant.sentinel);
                writer.list(&grant.limits, |w, limit| limit.write(w));
                writer.u8(grant.keep_files_capabilities.into());
            }
            Self::Retire { epoch } => {
                writer = Writer::new(3);
                writer.u32(*epoch);
            }
            Self::Spawn(spawn) => return spawn.write(),
            Self::Signal { request, command, signal, tree } => {
                writer = Writer::new(5);
                writer.u64(*request).u64(*command).i32(*signal).u8((*tree).into());
            }
            Self::List { request, command } => {
                writer = Writer::new(6);
                writer.u64(*request).u64(*command);
            }
            Self::Close { deadline_ms } => {
                writer = Writer::new(7);
                writer.u64(*deadline_ms);
            }
        }
        writer.finish()
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let request = match reader.u8("tag")? {
            1 => Self::Open { version: reader.u32("version")? },
            2 => Self::Grant(Grant {
                epoch: reader.u32("epoch")?,
                network: reader.flag("network")?,
                sysv_ipc: reader.flag("sysv_ipc")?,
                read_scope: reader.flag("read_scope")?,
                broker: reader.flag("broker")?,
                handled: reader.u64("handled")?,
                host_pid: reader.u32("host_pid")?,
                sentinel: reader.bytes("sentinel")?.to_vec(),
                limits: reader.list("limits", Limit::read)?,
                keep_files_capabilities: reader.flag("keep_files_capabilities")?,
            }),
            3 => Self::Retire { epoch: reader.u32("epoch")? },
            Spawn::TAG => Self::Spawn(Spawn::read(&mut reader)?),
            5 => Self::Signal {
                request: reader.u64("request")?,
                command: reader.u64("command")?,
                signal: reader.i32("signal")?,
                tree: reader.flag("tree")?,
            },
            6 => Self::List { request: reader.u64("request")?, command: reader.u64("command")? },
            7 => Self::Close { deadline_ms: reader.u64("deadline_ms")? },
            _ => return Err(Malformed("request tag")),
        };
        reader.end()?;
        Ok(request)
    }
}
