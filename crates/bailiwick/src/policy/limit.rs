//! Resource limits of a command.

use serde::Serialize;

macro_rules! resources {
    ($($(#[doc = $doc:literal])+ $resource:ident $number:literal $name:literal;)+) => {
        /// A resource that the kernel can limit.
        ///
        /// # Source
        /// `setrlimit(2)`; the numbers are those of `asm-generic/resource.h`, which x86-64 uses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[repr(u8)]
        pub enum Resource {
            $($(#[doc = $doc])+ $resource = $number,)+
        }

        impl Resource {
            /// Every resource.
            pub const ALL: &'static [Self] = &[$(Self::$resource),+];

            /// The name, in kebab-case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$resource => $name,)+ }
            }

            /// The resource with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|resource| resource.name() == name)
            }

            /// The kernel's number (`RLIMIT_*`).
            #[must_use]
            pub fn number(self) -> u32 {
                match self { $(Self::$resource => $number,)+ }
            }
        }
    };
}

resources! {
    /// Processor time, in seconds.
    Cpu 0 "cpu";
    /// Size of a file that is written, in bytes.
    FileSize 1 "file-size";
    /// Data segment, in bytes.
    Data 2 "data";
    /// Stack of the main thread, in bytes.
    Stack 3 "stack";
    /// Core dump, in bytes.
    Core 4 "core";
    /// Processes and threads of the user: in the session where that has a user namespace, as for a plain user it has
    /// where the host permits one, and on the whole host elsewhere.
    Processes 6 "processes";
    /// One more than the highest descriptor.
    OpenFiles 7 "open-files";
    /// Locked memory, in bytes.
    LockedMemory 8 "locked-memory";
    /// Address space, in bytes.
    AddressSpace 9 "address-space";
    /// Pending signals of the user.
    PendingSignals 11 "pending-signals";
    /// POSIX message queues of the user, in bytes.
    MessageQueues 12 "message-queues";
    /// Lowest nice value, as 20 minus the value.
    Nice 13 "nice";
    /// Highest real-time priority.
    RealTimePriority 14 "real-time-priority";
    /// Processor time without a blocking call under real-time scheduling, in microseconds.
    RealTimeTime 15 "real-time-time";
}

/// Soft and hard limit of one resource, in the resource's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Limit {
    /// What is limited.
    pub resource: Resource,
    /// The limit in force; a command may raise it up to `hard`.
    pub soft: u64,
    /// The highest soft limit; a command may lower it for good.
    pub hard: u64,
}

impl Limit {
    /// No limit (`RLIM_INFINITY`).
    pub const UNLIMITED: u64 = u64::MAX;

    /// The same value for both.
    #[must_use]
    pub fn of(resource: Resource, value: u64) -> Self {
        Self { resource, soft: value, hard: value }
    }
}

/// A limit of all processes of a session together, kept by a control group (cgroup v2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionLimit {
    /// Memory, in bytes: of programs, of the kernel on their behalf, and of files in memory that they made. Swap is not
    /// used beside it, where the kernel counts that.
    MemoryMax,
    /// Processes and threads. The session's own count too: about five, and one for each command that runs.
    ProcessesMax,
}

impl SessionLimit {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::MemoryMax, Self::ProcessesMax];

    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryMax => "memory-max",
            Self::ProcessesMax => "processes-max",
        }
    }

    /// The limit with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|limit| limit.name() == name)
    }

    /// The least that a session needs for itself, generously: keeper, worker, launchers and idle reapers.
    #[must_use]
    pub fn least(self) -> u64 {
        match self {
            Self::MemoryMax => 16 << 20,
            Self::ProcessesMax => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_numbers_are_the_kernels() {
        for resource in Resource::ALL {
            assert_eq!(Resource::from_name(resource.name()), Some(*resource));
            assert_eq!(serde_json::to_value(resource).unwrap(), resource.name());
        }
        // Listed by hand from the header, so that a slip in the table is seen.
        assert_eq!(libc::RLIMIT_NOFILE, Resource::OpenFiles.number());
        assert_eq!(libc::RLIMIT_NPROC, Resource::Processes.number());
        assert_eq!(libc::RLIMIT_FSIZE, Resource::FileSize.number());
        assert_eq!(libc::RLIMIT_AS, Resource::AddressSpace.number());
        assert_eq!(libc::RLIMIT_CORE, Resource::Core.number());
        assert_eq!(libc::RLIMIT_RTTIME, Resource::RealTimeTime.number());
    }
}
