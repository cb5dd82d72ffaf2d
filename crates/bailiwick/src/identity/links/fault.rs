//! Why an inventory or a scan could not be made whole. Neither guesses, so each of these refuses what it was for.

use std::path::PathBuf;

use crate::error::{Quoted, SystemCall};

/// Why a scan of write roots was stopped. What it had found until then proves nothing, so it is not returned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanStop {
    /// More entries than the limit.
    #[error("the scan for other names was stopped at its limit of {limit} entries")]
    Entries { limit: u64 },
    /// The deadline has passed.
    #[error("the scan for other names was stopped at its deadline, after {entries} entries")]
    Deadline { entries: u64 },
    /// This user cannot list or enter a directory that a command may be able to enter.
    #[error("the scan for other names cannot list {}", Quoted::new(.path))]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: SystemCall,
    },
    /// Something was moved, removed or replaced where the scan was at work.
    #[error("{} was changed while it was scanned for other names", Quoted::new(.path))]
    Changed { path: PathBuf },
    /// Directories inside one another, more than [`DEPTH_LIMIT`](super::walker::DEPTH_LIMIT).
    #[error("more than {limit} directories lie inside one another below {}", Quoted::new(.path))]
    TooDeep { path: PathBuf, limit: usize },
    /// This process, or the machine, has no descriptors left.
    #[error("the scan for other names has no descriptors left at {}", Quoted::new(.path))]
    NoDescriptors {
        path: PathBuf,
        #[source]
        cause: SystemCall,
    },
    /// Any other answer of the kernel.
    #[error("the scan for other names failed at {}", Quoted::new(.path))]
    Failed {
        path: PathBuf,
        #[source]
        cause: SystemCall,
    },
}

impl ScanStop {
    /// What can be done about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Entries { .. } => {
                "name smaller write roots, raise the limit of entries, or leave protected files one name each"
            }
            Self::Deadline { .. } => {
                "name smaller write roots, give more time, or leave protected files one name each"
            }
            Self::Unreadable { .. } => {
                "let this user list and enter the directory, remove it, or leave protected files one name each"
            }
            Self::Changed { .. } => "try again once nothing is moved or removed there",
            Self::TooDeep { .. } => "remove the deep tree, or leave protected files one name each",
            Self::NoDescriptors { .. } => "raise the limit on open files (`RLIMIT_NOFILE`) of this process",
            Self::Failed { .. } => "see the kernel's answer, or name another write root",
        }
    }

    /// Whether the same scan may succeed without anybody doing something about it.
    pub(crate) fn can_retry(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}

/// Why a protected directory could not be listed whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InventoryFault {
    /// More entries than the limit.
    #[error("{} holds more than {limit} entries", Quoted::new(.path))]
    Entries { path: PathBuf, limit: u64 },
    /// Directories inside one another, more than the limit.
    #[error("more than {limit} directories lie inside one another below {}", Quoted::new(.path))]
    TooDeep { path: PathBuf, limit: usize },
    /// The deadline has passed.
    #[error("{} could not be listed before the deadline", Quoted::new(.path))]
    Deadline { path: PathBuf },
    /// Something was moved, removed or replaced faster than it could be listed.
    #[error("{} changes faster than it can be listed", Quoted::new(.path))]
    Changed { path: PathBuf },
    /// A directory is where a file was to be protected.
    #[error("{} is a directory, not a file", Quoted::new(.path))]
    Directory { path: PathBuf },
    /// This process, or the machine, has no descriptors left.
    #[error("no descriptors are left to list {}", Quoted::new(.path))]
    NoDescriptors {
        path: PathBuf,
        #[source]
        cause: SystemCall,
    },
    /// Any other answer of the kernel.
    #[error("cannot look at {}", Quoted::new(.path))]
    Failed {
        path: PathBuf,
        #[source]
        cause: SystemCall,
    },
}

impl InventoryFault {
    /// What can be done about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Entries { .. } => "protect a smaller directory, or raise the limit of entries",
            Self::TooDeep { .. } => "remove the deep tree, or protect a smaller directory",
            Self::Deadline { .. } => "protect a smaller directory, or give more time",
            Self::Changed { .. } => "try again once nothing is moved or removed there",
            Self::Directory { .. } => "protect it as a directory",
            Self::NoDescriptors { .. } => "raise the limit on open files (`RLIMIT_NOFILE`) of this process",
            Self::Failed { .. } => "see the kernel's answer, or protect another directory",
        }
    }

    /// Whether the same call may succeed without anybody doing something about it.
    pub(crate) fn can_retry(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}
