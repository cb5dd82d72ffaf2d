//! The acts that a launcher tries after it has confined itself.

use crate::codec::{Malformed, Reader, Writer};

macro_rules! probes {
    ($($(#[$doc:meta])+ $name:ident = $number:literal, $text:literal;)+) => {
        /// One act that must fail inside the confinement, or, where [`must_work`](Self::must_work) says so,
        /// one that must succeed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Probe {
            $($(#[$doc])+ $name = $number,)+
        }

        impl Probe {
            /// Every probe, in the order in which a launcher runs them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The act, in words.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

probes! {
    /// Opening the sentinel for writing.
    WriteOutside = 1, "open a file outside the roots for writing";
    /// `truncate(2)` of the sentinel.
    TruncateOutside = 2, "truncate a file outside the roots";
    /// Making a file beside the sentinel.
    CreateOutside = 3, "make a file outside the roots";
    /// Removing the sentinel.
    RemoveOutside = 4, "remove a file outside the roots";
    /// Linking a file of the temporary directory to a name beside the sentinel.
    LinkOutside = 5, "link a file to a name outside the roots";
    /// Making, writing, renaming across directories and removing in the temporary directory.
    WriteInside = 6, "make, rename and remove files inside a root";
    /// An ioctl on a device that was opened inside.
    DeviceIoctl = 7, "send an ioctl to a device";
    /// A device node in the temporary directory.
    DeviceNode = 8, "make a device node inside a root";
    /// A signal to the host process.
    SignalOutside = 9, "signal a process outside the session";
    /// A signal to itself.
    SignalInside = 10, "signal a process of the session";
    /// An abstract socket of the worker.
    AbstractSocket = 11, "connect to an abstract socket outside the session";
    /// The memory of the host process.
    TraceOutside = 12, "read the memory of a process outside the session";
    /// Resource limits of the host process.
    LimitsOutside = 13, "read or change resource limits of another process";
    /// Priority of the host process, and of all processes of the user.
    PriorityOutside = 14, "change the priority of another process";
    /// A socket of each family that the policy leaves out.
    SocketFamilies = 15, "make a socket of a family that the policy leaves out";
    /// A pair of local sockets.
    LocalSockets = 16, "make a pair of local sockets";
    /// `io_uring_setup(2)`.
    IoUring = 17, "set up io_uring";
    /// A call with an x32 number.
    ForeignAbi = 18, "make a call of a foreign ABI";
    /// An ioctl that is not on the list, on a file inside.
    IoctlList = 19, "send an ioctl that is not on the list (file flags, btrfs snapshots, terminal input)";
    /// A new user, mount, pid, network, ipc, uts, cgroup or time namespace.
    Namespaces = 20, "make or enter a namespace";
    /// mount, the new mount API, pivot_root, chroot.
    Mounts = 21, "change mounts";
    /// keyctl, bpf, perf_event_open, userfaultfd, open_by_handle_at, fanotify.
    KernelInterfaces = 22, "use keyrings, bpf, perf events, userfaultfd, file handles or fanotify";
    /// Host name, clock, modules, reboot, swap, quotas.
    HostControls = 23, "change host name, clock, modules, swap or quotas";
    /// Set-id bits on a file inside.
    SetIdModes = 24, "set a set-id bit";
    /// An ordinary mode on a file inside.
    PlainModes = 25, "set an ordinary mode";
    /// System V shared memory.
    SysvIpc = 26, "reach System V shared memory, semaphores or message queues";
    /// All capability sets are empty, and exec cannot fill them.
    Capabilities = 27, "hold or regain a capability";
    /// `no_new_privs` is set.
    NoNewPrivs = 28, "gain privileges from a set-id program";
    /// A descriptor that was left open before tidying.
    Descriptors = 29, "use a descriptor other than 0, 1 and 2";
    /// A controlling terminal, and the device that makes terminals.
    Terminal = 30, "open a terminal";
    /// The worker inherits orphans.
    Orphans = 31, "leave the tree that the worker watches";
    /// Opening the sentinel for writing on the mount that commands have, where the mount answers before Landlock is
    /// asked.
    ViewWrite = 32, "open a file outside the roots for writing on its mount";
    /// `truncate(2)` of the sentinel on that mount.
    ViewTruncate = 33, "truncate a file outside the roots on its mount";
    /// Making, linking and removing names beside the sentinel on that mount.
    ViewNames = 34, "make or remove a name outside the roots on its mount";
    /// Mode, owner, times and an extended attribute of the sentinel and of its directory.
    Metadata = 35, "change mode, owner, times or attributes of a file outside the roots";
    /// A signal to the host process by a descriptor of it, which needs no number.
    HostProcess = 36, "signal a process of the host by a descriptor";
    /// A process of another session or of the host in `/proc`.
    HostProcessList = 37, "see a process of the host in /proc";
    /// A shared memory segment that the keeper made.
    HostIpc = 38, "reach a System V object of the host";
    /// An abstract socket of the keeper, which lies in the host's network.
    HostNetwork = 39, "reach a socket in the network of the host";
    /// A named socket of the worker, beside the sentinel.
    NamedSocket = 41, "connect to a named socket outside the roots";
    /// A named socket of the launcher, in the temporary directory.
    NamedSocketInside = 42, "connect to a named socket inside a root";
    /// What is covered in the view.
    HiddenState = 43, "read what the session protects";
    /// A terminal, which must not be among the host's.
    HostTerminals = 44, "open a terminal of the host";
    /// The worker is the first process of a pid namespace, whose end ends all others.
    Init = 45, "outlive the first process of the session";
    /// Opening the sentinel for reading, which must fail only where the policy limits what commands may read.
    ReadOutside = 40, "read a file of the session's own state";
}

impl Probe {
    /// Whether the act is one that must succeed; all others must fail.
    #[must_use]
    pub fn must_work(self) -> bool {
        matches!(
            self,
            Self::WriteInside
                | Self::SignalInside
                | Self::LocalSockets
                | Self::PlainModes
                | Self::NamedSocketInside
        )
    }

    /// The probe with this number.
    ///
    /// # Errors
    /// [`Malformed`] when there is none.
    pub fn from_number(number: u8) -> Result<Self, Malformed> {
        Self::ALL.iter().copied().find(|probe| *probe as u8 == number).ok_or(Malformed("probe"))
    }
}

/// What came of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// As it must be: the forbidden act failed, or the permitted one worked.
    Held = 1,
    /// The forbidden act worked, or the permitted one failed.
    Broken = 2,
    /// It could not be tried, so it counts as broken.
    Untried = 3,
    /// The policy permits the act, so it was not tried.
    Permitted = 4,
}

/// A probe and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The act.
    pub probe: Probe,
    /// What came of it.
    pub outcome: Outcome,
    /// Error number of the act, or `0` when it worked.
    pub errno: i32,
}

impl Finding {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u8(self.probe as u8).u8(self.outcome as u8).i32(self.errno);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let probe = Probe::from_number(reader.u8("probe")?)?;
        let outcome = match reader.u8("outcome")? {
            1 => Outcome::Held,
            2 => Outcome::Broken,
            3 => Outcome::Untried,
            4 => Outcome::Permitted,
            _ => return Err(Malformed("outcome")),
        };
        Ok(Self { probe, outcome, errno: reader.i32("errno")? })
    }
}

/// A root in which a launcher could write nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unusable {
    /// Its position in the list of roots.
    pub root: u32,
    /// What the kernel answered.
    pub errno: i32,
    /// The mode and the owner of the directory stand in the way, not the confinement.
    pub by_mode: bool,
}

impl Unusable {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u32(self.root).i32(self.errno).u8(self.by_mode.into());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { root: reader.u32("root")?, errno: reader.i32("errno")?, by_mode: reader.flag("by mode")? })
    }
}
