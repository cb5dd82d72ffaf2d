//! The scan: other names of given objects in write roots.

use std::collections::{HashSet, VecDeque};
use std::num::NonZero;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::super::mount::FileHandle;
use super::super::object::{Birth, Key};
use super::fault::ScanStop;
use super::glance::{Glance, Target};
use super::shared::{Job, Shared};
use super::targets::{Numbers, Targets};
use super::walker::{Walker, sort};

/// Threads at most. More than this only queue for the locks of one file system.
const THREADS_MAX: usize = 4;

/// What a scan may use. Beyond it the scan stops with an error.
#[derive(Debug, Clone)]
pub(crate) struct ScanLimits {
    /// Entries of directories, `.` and `..` not counted.
    pub(crate) entries: u64,
    /// Looked at after each batch of at most 128 KiB of entries.
    pub(crate) deadline: Option<Instant>,
    /// Threads at most, from 1 to 4. The calling one is one of them; others are started only when there is enough
    /// to do.
    pub(crate) threads: usize,
}

impl Default for ScanLimits {
    /// No limit but the threads: two, or one where the host has one processor.
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self { entries: u64::MAX, deadline: None, threads: processors.min(2) }
    }
}

/// Where to look: a write root, or what is mounted below one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    /// The directory. `O_PATH` is enough.
    pub(crate) dir: BorrowedFd<'a>,
    /// What it is called in the report.
    pub(crate) path: &'a Path,
}

/// How far a scan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanProgress {
    /// Entries looked at.
    pub(crate) entries: u64,
    /// Directories opened.
    pub(crate) directories: u64,
}

/// Is told how far a scan has come: every 100 ms or 65,536 entries, on whichever thread notices.
pub(crate) type Progress<'a> = &'a (dyn Fn(ScanProgress) + Sync);

/// What a scan found, everything reachable having been looked at.
#[derive(Debug)]
pub(crate) struct ScanReport {
    /// Each name found, with the object it names, in order.
    pub(crate) names: Vec<(Key, PathBuf)>,
    /// Names found beyond those that are listed: of names, at most 4 MiB are kept.
    pub(crate) omitted: u64,
    /// Entries looked at.
    pub(crate) entries: u64,
    /// Directories listed.
    pub(crate) directories: u64,
    /// Directories left out because a command cannot enter them either: owned by another user, and closed to this
    /// one.
    pub(crate) closed: u64,
    /// One of them.
    pub(crate) first_closed: Option<PathBuf>,
}

/// Looks below each start for names of the targets.
///
/// Never follows a link and never crosses a mount: what is mounted below a root is a start of its own. What a mount
/// hides is not looked at, and neither is the object of a file on which something is mounted. Memory depends on
/// neither the number of files nor that of directories, but grows with the depth (about 150 bytes each, and the
/// names of the subdirectories that are not visited yet, 1 MiB of them in all).
///
/// On overlayfs, a file that differs from a target in its numbers only, and in neither link count, size nor any of its
/// times, counts as a name of it.
///
/// # Errors
/// [`ScanStop`]: whatever keeps the scan from seeing all.
///
/// # Security
/// The answer is about names that stay where they are. A name that is moved while the scan runs, from where it has
/// not been to where it has, is missed; moving the file itself changes its ctime, so look at the ctime and link count
/// of all targets before the scan and again afterwards ([`Inventory::refresh`](super::Inventory::refresh)), and scan
/// again if they differ. Moving a directory above the name changes neither: that only somebody outside of every
/// session can do to a root that is not granted yet.
///
/// # Kernel
/// `openat2` needs Linux 5.6, mount ids in `statx` 5.8. Without them the scan fails; there is no fallback.
///
/// # Source
/// `getdents64(2)`, `openat2(2)`; which `d_ino` to believe: `targets.rs`.
pub(crate) fn scan(
    starts: &[Start<'_>],
    targets: &[Target],
    limits: &ScanLimits,
    progress: Option<Progress<'_>>,
) -> Result<ScanReport, ScanStop> {
    run(starts, Targets::new(targets), limits, progress)
}

/// Looks below each start for objects, of any type, that are known by their file handles alone. The starts
/// themselves are not compared. Directories that have the form of an overlay's work directory are reported too.
///
/// As [`scan`] in everything else: entries are sorted out by their numbers and proved by their handles.
///
/// # Errors
/// As [`scan`], and where a file system gives no handle for an object whose number is looked for.
///
/// # Kernel
/// As for [`handle`](super::super::mount::handle).
pub(crate) fn scan_for_handles(
    starts: &[Start<'_>],
    handles: &[FileHandle],
    limits: &ScanLimits,
    progress: Option<Progress<'_>>,
) -> Result<ScanReport, ScanStop> {
    run(starts, Targets::by_handle(handles), limits, progress)
}

/// Looks below each start for directories that were born at one of these times, as
/// [`scan_for_handles`] otherwise: for file systems that tell no handles.
///
/// # Errors
/// As [`scan`], and where a directory has no birth time.
pub(crate) fn scan_for_births(
    starts: &[Start<'_>],
    births: &HashSet<Birth>,
    limits: &ScanLimits,
    progress: Option<Progress<'_>>,
) -> Result<ScanReport, ScanStop> {
    run(starts, Targets::by_birth(births), limits, progress)
}

fn run(
    starts: &[Start<'_>],
    targets: Targets,
    limits: &ScanLimits,
    progress: Option<Progress<'_>>,
) -> Result<ScanReport, ScanStop> {
    let begin = Instant::now();
    let mut jobs = VecDeque::new();
    for start in starts {
        jobs.extend(open_start(start, &targets)?);
    }
    let shared = Shared::new(targets, jobs, limits, progress);
    thread::scope(|scope| {
        let start_helpers = || {
            for _ in 1..limits.threads.clamp(1, THREADS_MAX) {
                let helper = thread::Builder::new().name("bailiwick-scan".into());
                if let Err(error) = helper.spawn_scoped(scope, || Walker::new(&shared, None).run()) {
                    // Slower, and as thorough.
                    tracing::debug!(%error, "a scan goes on with fewer threads");
                }
            }
        };
        Walker::new(&shared, Some(&start_helpers)).run();
    });
    if let Some(stop) = shared.reason() {
        return Err(stop);
    }
    let entries = shared.entries.load(Ordering::Relaxed);
    let directories = shared.directories.load(Ordering::Relaxed);
    let mut found = shared.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.names.sort();
    let milliseconds = begin.elapsed().as_millis();
    tracing::debug!(entries, directories, names = found.names.len(), milliseconds, "scanned for other names");
    Ok(ScanReport {
        names: found.names,
        omitted: found.omitted,
        entries,
        directories,
        closed: found.closed,
        first_closed: found.first_closed,
    })
}

/// Opens a start for reading, unless nothing that is looked for can be there.
fn open_start(start: &Start<'_>, targets: &Targets) -> Result<Option<Job>, ScanStop> {
    let failed = |call, errno| sort(call, errno, start.path.to_owned());
    let numbers = Numbers::of(start.dir).map_err(|errno| failed("fstatfs", errno))?;
    let glance = Glance::at(start.dir).map_err(|errno| failed("statx", errno))?;
    let device = glance.key.device;
    if !targets.may_lie_on(numbers, device) {
        tracing::debug!(root = %start.path.display(), "no protected file with another name is on this device");
        return Ok(None);
    }
    let dir = open_list(start.dir).map_err(|errno| failed("openat2", errno))?;
    let path = start.path.to_owned();
    Ok(Some(Job { dir, path, names: Vec::new(), ended: false, numbers, device, depth: 0 }))
}

/// Opens a directory that is held already, for reading.
pub(in super::super) fn open_list(dir: BorrowedFd<'_>) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    rustix::io::retry_on_intr(|| openat2(dir, c".", flags, Mode::empty(), resolve))
}
