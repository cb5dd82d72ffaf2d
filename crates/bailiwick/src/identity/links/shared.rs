//! What the threads of one scan share: the work that is left, the limits, and what has been found.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::object::Key;
use super::fault::ScanStop;
use super::scan::{Progress, ScanLimits, ScanProgress};
use super::targets::{Device, Numbers, Targets};

/// A report is due when so much time has passed, or so many entries.
const REPORT_EVERY: Duration = Duration::from_millis(100);
const REPORT_ENTRIES: u64 = 65_536;

/// Bytes of found names at most; what is beyond is counted only. A name of 100,000 directories has 200 kB.
const NAME_BYTES: usize = 4 << 20;

/// A directory, or a part of its subdirectories, for a thread to go through.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) dir: OwnedFd,
    pub(super) path: PathBuf,
    /// Subdirectories still to visit, each name with its final NUL.
    pub(super) names: Vec<u8>,
    /// Whether nobody has to read the directory itself.
    pub(super) ended: bool,
    pub(super) numbers: Numbers,
    pub(super) device: Device,
    pub(super) depth: usize,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that go through something, and may yet hand over a part of it.
    working: usize,
    waiting: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) names: Vec<(Key, PathBuf)>,
    bytes: usize,
    /// Names that were found and not kept.
    pub(super) omitted: u64,
    /// Directories that no command of this user can enter, and the first of them.
    pub(super) closed: u64,
    pub(super) first_closed: Option<PathBuf>,
}

/// State of one scan.
pub(super) struct Shared<'a> {
    pub(super) targets: Targets,
    limits: &'a ScanLimits,
    progress: Option<Progress<'a>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Threads that wait and for which no job lies ready: read without the lock by those who could give some.
    hungry: AtomicUsize,
    stopped: AtomicBool,
    stop: Mutex<Option<ScanStop>>,
    pub(super) found: Mutex<Found>,
    pub(super) entries: AtomicU64,
    pub(super) directories: AtomicU64,
    /// When the last report was made, and at how many entries.
    reported: Mutex<(Instant, u64)>,
}

/// A panic of another thread ends the scan anyway; what it left is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        targets: Targets,
        jobs: VecDeque<Job>,
        limits: &'a ScanLimits,
        progress: Option<Progress<'a>>,
    ) -> Self {
        Self {
            targets,
            limits,
            progress,
            queue: Mutex::new(Queue { jobs, ..Queue::default() }),
            wake: Condvar::new(),
            hungry: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            stop: Mutex::new(None),
            found: Mutex::default(),
            entries: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            reported: Mutex::new((Instant::now(), 0)),
        }
    }

    /// Takes the next job, or waits for one; `None` when all is done or the scan is stopped.
    ///
    /// Whoever took one before calls [`finish`](Self::finish) first.
    pub(super) fn take(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                queue.working += 1;
                self.count_hungry(&queue);
                return Some(job);
            }
            if queue.working == 0 {
                self.wake.notify_all();
                return None;
            }
            queue.waiting += 1;
            self.count_hungry(&queue);
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
            self.count_hungry(&queue);
        }
    }

    /// Says that a job has been gone through.
    pub(super) fn finish(&self) {
        let mut queue = lock(&self.queue);
        queue.working -= 1;
        if queue.working == 0 {
            self.wake.notify_all();
        }
    }

    /// Hands a job to whoever waits.
    pub(super) fn give(&self, job: Job) {
        let mut queue = lock(&self.queue);
        queue.jobs.push_back(job);
        self.count_hungry(&queue);
        drop(queue);
        self.wake.notify_one();
    }

    fn count_hungry(&self, queue: &Queue) {
        self.hungry.store(queue.waiting.saturating_sub(queue.jobs.len()), Ordering::Relaxed);
    }

    /// Whether somebody waits for work.
    #[inline]
    pub(super) fn is_somebody_hungry(&self) -> bool {
        self.hungry.load(Ordering::Relaxed) > 0
    }

    /// Ends the scan. The first reason is the one that counts; none stands for a panic.
    pub(super) fn stop(&self, reason: Option<ScanStop>) {
        if let Some(reason) = reason {
            lock(&self.stop).get_or_insert(reason);
        }
        // Under the lock: a thread that has just looked and is about to wait must not miss it.
        let _queue = lock(&self.queue);
        self.stopped.store(true, Ordering::Relaxed);
        self.wake.notify_all();
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn reason(&self) -> Option<ScanStop> {
        lock(&self.stop).take()
    }

    /// Counts entries, and refuses to go beyond the limits.
    pub(super) fn count(&self, entries: u64) -> Result<(), ScanStop> {
        let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        if entries > self.limits.entries {
            return Err(ScanStop::Entries { limit: self.limits.entries });
        }
        let now = Instant::now();
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(ScanStop::Deadline { entries });
        }
        // Whoever finds the lock held leaves the report to its holder.
        if let Ok(mut reported) = self.reported.try_lock()
            && (now.duration_since(reported.0) >= REPORT_EVERY || entries >= reported.1 + REPORT_ENTRIES)
        {
            *reported = (now, entries);
            let progress = ScanProgress { entries, directories: self.directories.load(Ordering::Relaxed) };
            tracing::debug!(
                entries,
                directories = progress.directories,
                "looking for other names of protected files"
            );
            if let Some(report) = self.progress {
                report(progress);
            }
        }
        Ok(())
    }

    pub(super) fn add_name(&self, key: Key, path: PathBuf) {
        let mut found = lock(&self.found);
        let bytes = path.as_os_str().len();
        // The first one always: it is what a refusal shows.
        if found.names.is_empty() || found.bytes + bytes <= NAME_BYTES {
            found.bytes += bytes;
            found.names.push((key, path));
        } else {
            found.omitted += 1;
        }
    }

    pub(super) fn add_closed(&self, path: PathBuf) {
        let mut found = lock(&self.found);
        found.closed += 1;
        found.first_closed.get_or_insert(path);
    }
}
