//! How much is read or removed at most.

use std::time::{Duration, Instant};

use super::fault::At;
use crate::error::Error;

/// What one [`Reader`](super::Reader) reads at most, over all its calls.
///
/// Each is checked before anything is read (a sparse file of a terabyte costs nothing) and while it is read (a file
/// that grows ends it). What reaches a limit is an error, never a part.
///
/// The defaults fit the artefacts of a run; they are a guess, not a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries looked at: components of paths, and names in listings. Default 100,000.
    pub entries: u64,
    /// Components below the pinned directory. A walk holds one descriptor for each. Default 64.
    pub depth: usize,
    /// Bytes of all files. Default 1 GiB.
    pub bytes: u64,
    /// Bytes of one file. Default 64 MiB.
    pub file_bytes: u64,
    /// Time since the reader was made. Default 60 s. It is looked at between system calls: one that a dead network
    /// file system holds up is not cut short.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 100_000,
            depth: 64,
            bytes: 1 << 30,
            file_bytes: 64 << 20,
            time: Duration::from_secs(60),
        }
    }
}

/// What one removal does at most.
///
/// Reaching a limit leaves the rest where it is; calling again goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveLimits {
    /// Entries looked at, each attempt counted. Default 10,000,000.
    pub entries: u64,
    /// Directories inside one another. Each costs about 200 bytes and its name, and no descriptor. Default 1,000,000.
    pub depth: usize,
    /// Time for the whole removal. Default 5 min.
    pub time: Duration,
}

impl Default for RemoveLimits {
    fn default() -> Self {
        Self { entries: 10_000_000, depth: 1_000_000, time: Duration::from_secs(300) }
    }
}

/// What has been used of the limits on entries and time.
#[derive(Debug)]
pub(super) struct Budget {
    entries: u64,
    entries_limit: u64,
    time_limit: Duration,
    started: Instant,
}

impl Budget {
    pub(super) fn new(entries_limit: u64, time_limit: Duration) -> Self {
        Self { entries: 0, entries_limit, time_limit, started: Instant::now() }
    }

    /// Counts one entry, and looks at the clock.
    pub(super) fn entry(&mut self, at: At<'_>) -> Result<(), Error> {
        self.entries += 1;
        if self.entries > self.entries_limit {
            return Err(at.limit("entries", self.entries_limit));
        }
        self.time(at)
    }

    /// Looks at the clock.
    pub(super) fn time(&self, at: At<'_>) -> Result<(), Error> {
        if self.started.elapsed() > self.time_limit {
            return Err(at.limit("time_ms", self.time_limit.as_millis()));
        }
        Ok(())
    }
}

/// What has been used of the limits on bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    used: u64,
    limit: u64,
    file_limit: u64,
}

impl Bytes {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { used: 0, limit: limits.bytes, file_limit: limits.file_bytes }
    }

    /// Whether a file of `size` bytes may be read.
    pub(super) fn check(&self, size: u64, at: At<'_>) -> Result<(), Error> {
        if size > self.file_limit {
            return Err(at.limit("file_bytes", self.file_limit).number("size", size));
        }
        if self.used.saturating_add(size) > self.limit {
            return Err(at.limit("bytes", self.limit).number("size", size).number("used", self.used));
        }
        Ok(())
    }

    /// Counts bytes that have been read, of a file that was found too large or not.
    pub(super) fn count(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }
}
