//! One thread of a scan: depth first, with bounded memory and few descriptors, however deep the tree is.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, accessat, openat2, seek,
};
use rustix::io::Errno;

use super::fault::ScanStop;
use super::glance::Glance;
use super::level::{Level, Levels};
use super::shared::{Job, Shared};
use super::targets::Numbers;
use crate::error::SystemCall;

/// Bytes of entries that the kernel is asked for at once: as many as the walk that this one is measured against.
const BATCH: usize = 128 << 10;

/// Directories inside one another at most.
pub(super) const DEPTH_LIMIT: usize = 131_072;

/// Entries before other threads are started: they cost as much as a few hundred entries.
const ALONE: u64 = 4096;

/// Starts the other threads of a scan.
type StartHelpers<'a> = &'a dyn Fn();

/// Goes through jobs until there is none left.
pub(super) struct Walker<'a> {
    pub(super) shared: &'a Shared<'a>,
    helpers: Option<StartHelpers<'a>>,
    buffer: Vec<MaybeUninit<u8>>,
    levels: Levels,
    /// Path of the lowest level.
    path: PathBuf,
    /// Levels below the lowest one, in other threads' stacks.
    depth: usize,
    numbers: Numbers,
}

/// Ends the scan of all threads if this one panics: they would wait for it for ever.
struct Leave<'a>(&'a Shared<'a>);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(None);
        }
    }
}

/// Tells a refusal of the kernel from a lack of descriptors and the rest.
pub(super) fn sort(call: &'static str, errno: Errno, path: PathBuf) -> ScanStop {
    let cause = SystemCall::new(call, &path, errno);
    match errno {
        Errno::ACCESS | Errno::PERM => ScanStop::Unreadable { path, cause },
        Errno::MFILE | Errno::NFILE => ScanStop::NoDescriptors { path, cause },
        _ => ScanStop::Failed { path, cause },
    }
}

impl<'a> Walker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, helpers: Option<StartHelpers<'a>>) -> Self {
        Self {
            shared,
            helpers,
            buffer: vec![MaybeUninit::uninit(); BATCH],
            levels: Levels::default(),
            path: PathBuf::new(),
            depth: 0,
            numbers: Numbers::Status,
        }
    }

    pub(super) fn run(mut self) {
        let leave = Leave(self.shared);
        while let Some(job) = self.shared.take() {
            if let Err(stop) = self.go_through(job) {
                self.shared.stop(Some(stop));
            }
            self.shared.finish();
        }
        drop(leave);
    }

    fn go_through(&mut self, job: Job) -> Result<(), ScanStop> {
        self.path = job.path;
        self.depth = job.depth;
        self.numbers = job.numbers;
        if !job.ended {
            self.shared.directories.fetch_add(1, Ordering::Relaxed);
        }
        self.levels.begin(Level::new(job.dir, job.device, job.ended), &job.names);
        while !self.levels.is_empty() && !self.shared.is_stopped() {
            if self.shared.is_somebody_hungry() {
                self.share();
            }
            if self.levels.advance() {
                self.descend()?;
            } else if self.levels.top().ended {
                self.ascend()?;
            } else {
                self.read()?;
            }
        }
        Ok(())
    }

    /// The path of the subdirectory that the top level is at, or of the top level itself.
    pub(super) fn path_of(&self, entry: Option<&CStr>) -> PathBuf {
        let mut path = self.path.clone();
        self.levels.names_above_base().for_each(|name| path.push(OsStr::from_bytes(name)));
        path.extend(entry.map(|name| OsStr::from_bytes(name.to_bytes())));
        path
    }

    /// Opens the subdirectory that the top level is at.
    fn descend(&mut self) -> Result<(), ScanStop> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::BENEATH;
        let name = self.levels.current();
        let Some(parent) = &self.levels.top().dir else {
            return Err(ScanStop::Changed { path: self.path_of(None) });
        };
        let opened = rustix::io::retry_on_intr(|| openat2(parent, name, flags, Mode::empty(), resolve));
        let dir = match opened {
            Ok(dir) => dir,
            // A mount point. What is mounted there is a start of its own, what is below it cannot be reached.
            Err(Errno::XDEV) => return Ok(()),
            // Where it went, if it was not removed, nobody can tell.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(ScanStop::Changed { path: self.path_of(Some(name)) });
            }
            Err(Errno::ACCESS) if is_closed(parent, name) => {
                self.shared.add_closed(self.path_of(Some(name)));
                return Ok(());
            }
            Err(errno) => return Err(sort("openat2", errno, self.path_of(Some(name)))),
        };
        let device = match self.numbers {
            Numbers::Entry | Numbers::Status | Numbers::Overlay => self.levels.top().device,
            Numbers::EntryPerDirectory => match Glance::at(&dir) {
                Ok(glance) => glance.key.device,
                Err(errno) => return Err(sort("statx", errno, self.path_of(Some(name)))),
            },
        };
        if self.depth + self.levels.len() >= DEPTH_LIMIT {
            return Err(ScanStop::TooDeep { path: self.path.clone(), limit: DEPTH_LIMIT });
        }
        self.shared.directories.fetch_add(1, Ordering::Relaxed);
        self.levels
            .push(Level::new(dir, device, false))
            .map_err(|errno| sort("statx", errno, self.path_of(None)))
    }

    /// Leaves the top level, and opens the one below it again if it was closed in the meantime.
    fn ascend(&mut self) -> Result<(), ScanStop> {
        let Some(left) = self.levels.pop() else { return Ok(()) };
        if self.levels.is_empty() || self.levels.top().dir.is_some() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = match &left.dir {
            Some(dir) => rustix::io::retry_on_intr(|| openat2(dir, c"..", flags, Mode::empty(), resolve)),
            None => Err(Errno::BADF),
        };
        let dir = match opened {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::XDEV) => return Err(ScanStop::Changed { path: self.path_of(None) }),
            Err(errno) => return Err(sort("openat2", errno, self.path_of(None))),
        };
        let glance = Glance::at(&dir).map_err(|errno| sort("statx", errno, self.path_of(None)))?;
        if self.levels.restore(dir, &glance) {
            Ok(())
        } else {
            Err(ScanStop::Changed { path: self.path_of(None) })
        }
    }

    /// Reads entries of the top level until it ends or has enough subdirectories to go on with.
    fn read(&mut self) -> Result<(), ScanStop> {
        loop {
            self.prepare_read()?;
            let is_full = self.read_batch()?;
            let top = self.levels.top();
            if top.ended || is_full || self.levels.has_many_names() || self.shared.is_stopped() {
                break;
            }
        }
        if self.shared.entries.load(Ordering::Relaxed) > ALONE
            && let Some(start_helpers) = self.helpers.take()
        {
            start_helpers();
        }
        Ok(())
    }

    /// Sees to it that the descriptor of the top level stands where reading has to go on.
    fn prepare_read(&mut self) -> Result<(), ScanStop> {
        let top = self.levels.top();
        let Some(dir) = &top.dir else { return Err(ScanStop::Changed { path: self.path_of(None) }) };
        if top.cookie == 0 && !top.must_seek {
            return Ok(());
        }
        let failed = |call, errno| Err(sort(call, errno, self.path_of(None)));
        if top.must_seek {
            let now = match Glance::at(dir) {
                Ok(glance) => glance,
                Err(errno) => return failed("statx", errno),
            };
            // Some file systems count entries from the beginning, so a change in between could hide one.
            if !top.stamp.is_some_and(|then| now.is_same_listing(&then)) {
                return Err(ScanStop::Changed { path: self.path_of(None) });
            }
            if let Err(errno) = seek(dir, SeekFrom::Start(top.cookie)) {
                return failed("lseek", errno);
            }
            self.levels.top_mut().must_seek = false;
        } else if top.stamp.is_none() && self.levels.has_names() {
            // Before the second batch of a directory that may have to be left and found again.
            let now = match Glance::at(dir) {
                Ok(glance) => glance,
                Err(errno) => return failed("statx", errno),
            };
            self.levels.top_mut().stamp = Some(now);
        }
        Ok(())
    }

    /// Reads and inspects one batch; true when no more names could be kept.
    fn read_batch(&mut self) -> Result<bool, ScanStop> {
        // Taken out, so that the rest of `self` can be used while its entries are borrowed.
        let mut buffer = std::mem::take(&mut self.buffer);
        let dir = self.levels.top_mut().dir.take();
        let outcome = match &dir {
            Some(dir) => self.inspect(&mut buffer, dir),
            None => Err(ScanStop::Changed { path: self.path_of(None) }),
        };
        self.levels.top_mut().dir = dir;
        self.buffer = buffer;
        outcome
    }

    fn inspect(&mut self, buffer: &mut [MaybeUninit<u8>], dir: &OwnedFd) -> Result<bool, ScanStop> {
        let shared = self.shared;
        let inodes = shared.targets.on(self.levels.top().device);
        let by_number = matches!(self.numbers, Numbers::Entry | Numbers::EntryPerDirectory);
        let mut cookie = self.levels.top().cookie;
        let mut entries = 0;
        let mut is_full = false;
        let mut list = RawDir::new(dir, buffer);
        let ended = loop {
            let entry = match list.next() {
                None => break true,
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INTR)) => continue,
                // The directory has been removed, so it is empty.
                Some(Err(Errno::NOENT)) => break true,
                Some(Err(errno)) => return Err(sort("getdents64", errno, self.path_of(None))),
            };
            let (name, next) = (entry.file_name(), entry.next_entry_cookie());
            let is_directory = match entry.file_type() {
                FileType::Directory => {
                    if matches!(name.to_bytes(), b"." | b"..") {
                        cookie = next;
                        if list.is_buffer_empty() {
                            break false;
                        }
                        continue;
                    }
                    if shared.targets.are_handles() {
                        if !by_number {
                            self.look(dir, name)?;
                        } else if shared.targets.may_have_handle(entry.ino()) {
                            self.confirm_handle(dir, name)?;
                        }
                    }
                    if shared.targets.has_directories() {
                        self.check_directory(dir, name)?;
                    }
                    true
                }
                FileType::Unknown => self.look(dir, name)?,
                _ if by_number => {
                    if inodes.is_some_and(|inodes| inodes.has(entry.ino())) {
                        self.confirm(dir, name)?;
                    }
                    false
                }
                _ => self.look(dir, name)?,
            };
            if is_directory && !self.levels.add_name(name) {
                // This entry, and all after it, will be read again.
                is_full = true;
                break false;
            }
            entries += 1;
            cookie = next;
            if list.is_buffer_empty() {
                break false;
            }
        };
        let top = self.levels.top_mut();
        top.cookie = cookie;
        top.ended = ended;
        top.must_seek |= is_full;
        shared.count(entries)?;
        if is_full && self.levels.top().stamp.is_none() {
            let now = Glance::at(dir).map_err(|errno| sort("statx", errno, self.path_of(None)))?;
            self.levels.top_mut().stamp = Some(now);
        }
        Ok(is_full)
    }

    /// Looks at an entry whose numbers prove nothing, and says whether it is a directory.
    fn look(&self, dir: &OwnedFd, name: &CStr) -> Result<bool, ScanStop> {
        let glance = match Glance::entry(dir, name) {
            Ok(glance) => glance,
            // Gone: a target that is renamed or removed shows it by its ctime.
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(sort("statx", errno, self.path_of(Some(name)))),
        };
        let is_directory = glance.kind == FileType::Directory;
        if is_directory && matches!(name.to_bytes(), b"." | b"..") {
            return Ok(false);
        }
        if self.shared.targets.are_handles() {
            if self.shared.targets.may_have_handle(glance.key.inode) {
                self.confirm_handle(dir, name)?;
            }
            if is_directory {
                self.check_work_directory(dir, name)?;
            }
            return Ok(is_directory);
        }
        if is_directory {
            self.check_directory(dir, name)?;
            return Ok(true);
        }
        let target = match self.numbers {
            Numbers::Overlay => self.shared.targets.find_on_overlay(&glance),
            _ => self.shared.targets.has(glance.key).then_some(glance.key),
        };
        if let Some(target) = target {
            self.shared.add_name(target, self.path_of(Some(name)));
        }
        Ok(false)
    }

    /// Proves by `statx` what the number of an entry says.
    fn confirm(&self, dir: &OwnedFd, name: &CStr) -> Result<(), ScanStop> {
        if self.shared.targets.are_handles() {
            return self.confirm_handle(dir, name);
        }
        match Glance::entry(dir, name) {
            Ok(glance) if self.shared.targets.has(glance.key) => {
                self.shared.add_name(glance.key, self.path_of(Some(name)));
                Ok(())
            }
            // The target's name is there, under a mount that shows another file in its place.
            Ok(glance) if glance.is_mount_root => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(ScanStop::Changed { path: self.path_of(Some(name)) }),
            Err(errno) => Err(sort("statx", errno, self.path_of(Some(name)))),
        }
    }

    /// Hands half of the subdirectories of the lowest level that has some to a thread that waits.
    fn share(&mut self) {
        let Some((place, names)) = self.levels.split() else { return };
        let level = self.levels.at(place);
        let Some(Ok(dir)) = level.dir.as_ref().map(|dir| dir.try_clone()) else {
            // No descriptor to spare: they stay here.
            self.levels.take_back(place, &names);
            return;
        };
        let mut path = self.path.clone();
        self.levels.names_above_base().take(place).for_each(|name| path.push(OsStr::from_bytes(name)));
        let (numbers, device, depth) = (self.numbers, level.device, self.depth + place);
        self.shared.give(Job { dir, path, names, ended: true, numbers, device, depth });
    }
}

/// Whether no command of this user can enter a directory either: another user owns it, so no command can change its
/// mode, and the kernel would not let this user search it.
fn is_closed(parent: &OwnedFd, name: &CStr) -> bool {
    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
    let owner = rustix::fs::statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_uid);
    owner.is_ok_and(|owner| owner != super::super::user())
        && accessat(parent, name, Access::EXEC_OK, flags) == Err(Errno::ACCESS)
}
