//! A private directory for the store of a run that was given none, removed when the run ends.
//!
//! It lies in `bailiwick/sessions` below `$XDG_STATE_HOME`, or below `~/.local/state` where that is not set (XDG Base
//! Directory Specification). A run that is killed cannot remove its own, so the next run does: a directory whose lock
//! nobody holds belongs to nobody.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Code, Failure};

/// Directories below the state home.
const PLACE: [&str; 2] = ["bailiwick", "sessions"];
/// Prefix of the directories of runs; 16 hexadecimal digits follow.
const PREFIX: &str = "run-";
/// The store, in the directory of its run.
const STORE: &str = "store";
/// Where there is room for everybody. Nothing is swept there: names in it may be anybody's.
const APART: &str = "/tmp";
/// How long to wait while another run removes what was left behind, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to begin again when the directories above were removed by the run that had made them. Each time some
/// other run has come to its end, so many in a row are not chance.
const ATTEMPTS: usize = 100;

/// Where stores of runs lie: `sessions` below the state home.
///
/// # Errors
/// Neither variable names an absolute path.
fn sessions() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(".local/state"));
    // A relative value is to be ignored, says the specification.
    let state = absolute("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        let message = "there is no place for the session's store: \
                       neither `XDG_STATE_HOME` nor `HOME` holds an absolute path";
        Failure::new(Code::StateDir, message).hint("name a place with `--store D`, or set one of the two")
    })?;
    Ok(PLACE.iter().fold(state, |path, part| path.join(part)))
}

/// The path that the store of a run would have: it does not exist, but the directory above it does. For asking
/// without making anything.
///
/// # Errors
/// As [`RunDir::make`], as far as that can be told without making anything.
pub(crate) fn would_be() -> Result<PathBuf, Failure> {
    let mut path = sessions()?.join(format!("{PREFIX}{}", name()?));
    // Where directories above are missing too, the outermost of them stands for all that would be made below it.
    while let Some(parent) = path.parent() {
        match fs::metadata(parent) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path = parent.to_owned(),
            Err(error) => return Err(unusable(parent, &error)),
        }
    }
    Ok(path)
}

/// The directory of a run. Dropping it removes it, and the directories above it that were made for it.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// Locked: the directory is in use.
    _lock: File,
    /// Directories that were made for it, outermost first.
    made: Vec<PathBuf>,
}

impl RunDir {
    /// Makes one in the state home.
    ///
    /// # Errors
    /// There is no state home, or it cannot be written.
    pub(crate) fn make() -> Result<Self, Failure> {
        Self::make_in(&sessions()?)
    }

    /// Makes one apart from all others, for when there is no state home.
    ///
    /// # Errors
    /// `/tmp` cannot be written.
    pub(crate) fn make_apart() -> Result<Self, Failure> {
        Self::make_in(&Path::new(APART).join(format!("bailiwick-{}", name()?)))
    }

    /// Makes one in `parent`, which is made too where it is missing.
    fn make_in(parent: &Path) -> Result<Self, Failure> {
        let mut made = Vec::new();
        let result = Self::attempt(parent, &mut made);
        if result.is_err() {
            remove_empty(&made);
        }
        result
    }

    fn attempt(parent: &Path, made: &mut Vec<PathBuf>) -> Result<Self, Failure> {
        let failed = |error: &io::Error| unusable(parent, error);
        for _ in 0..ATTEMPTS {
            make_all(parent, made).map_err(|error| failed(&error))?;
            let place = match open(parent) {
                Ok(place) => File::from(place),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed(&errno.into())),
            };
            check_owner(parent, &place)?;
            sweep(parent, &place);
            // Shared with other runs, but not with one that sweeps or that removes the directory.
            lock(&place, FlockOperation::NonBlockingLockShared).map_err(|errno| busy(parent, errno))?;
            if !is_still(&place, parent) {
                continue;
            }
            let path = parent.join(format!("{PREFIX}{}", name()?));
            DirBuilder::new().mode(0o700).create(&path).map_err(|error| failed(&error))?;
            let run = open(&path).map(File::from);
            let locked =
                run.and_then(|run| flock(&run, FlockOperation::NonBlockingLockExclusive).map(|()| run));
            return match locked {
                Ok(lock) => Ok(Self { path, _lock: lock, made: std::mem::take(made) }),
                Err(errno) => {
                    remove_empty(&[path]);
                    Err(failed(&errno.into()))
                }
            };
        }
        Err(busy(parent, Errno::AGAIN))
    }

    /// The path for the store: absent, for the library to make.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// Removes it now.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub(crate) fn remove(self) -> io::Result<()> {
        let removed = fs::remove_dir_all(&self.path);
        drop(self);
        removed
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // Gone already when `remove` did its work. What stays is what the next run sweeps.
        fs::remove_dir_all(&self.path).ok();
        remove_empty(&self.made);
    }
}

/// Makes a directory and those above it, private, and notes which it made.
fn make_all(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => made.push(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().ok_or(error)?;
            make_all(parent, made)?;
            return make_all(path, made);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes directories from the innermost outwards, each only if nothing is in it and no run is about to put
/// something there.
fn remove_empty(directories: &[PathBuf]) {
    for directory in directories.iter().rev() {
        let Ok(held) = open(directory) else { return };
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err()
            || fs::remove_dir(directory).is_err()
        {
            return;
        }
    }
}

/// Whether the path still names the directory that was opened.
fn is_still(place: &File, path: &Path) -> bool {
    let identity = |found: io::Result<fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    let opened = identity(place.metadata());
    opened.is_some() && opened == identity(fs::symlink_metadata(path))
}

fn open(path: &Path) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// What somebody else may rename or replace is no place for a store.
fn check_owner(path: &Path, place: &File) -> Result<(), Failure> {
    let found = place.metadata().map_err(|error| unusable(path, &error))?;
    let user = rustix::process::geteuid().as_raw();
    if found.uid() == user && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Code::StateDir,
        format!("the directory for stores of runs is not this user's alone: {}", crate::render::quoted(path)),
    )
    .value("path", path)
    .with("owner", bailiwick::Field::Number(found.uid().into()))
    .with("user", bailiwick::Field::Number(user.into()))
    .text("mode", format!("{:04o}", found.mode() & 0o7777))
    .hint("name another place with `--store D`, or set `XDG_STATE_HOME` to a directory of this user"))
}

/// Removes what runs that were killed have left behind. Not while another run makes its directory.
fn sweep(parent: &Path, place: &File) {
    if flock(place, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours =
            entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_name);
        let Some(run) = is_ours.then(|| open(&entry.path()).ok()).flatten() else { continue };
        if flock(&run, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What cannot be removed now may be later.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    flock(place, FlockOperation::Unlock).ok();
}

fn lock(place: &File, operation: FlockOperation) -> Result<(), Errno> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(place, operation) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5))
            }
            answer => return answer,
        }
    }
}

fn name() -> Result<String, Failure> {
    let mut random = [0_u8; 8];
    getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| {
        Failure::new(Code::StateDir, "the kernel gives no randomness for a name")
            .cause(io::Error::from(errno))
            .hint("name a store with `--store D`")
    })?;
    Ok(format!("{:016x}", u64::from_be_bytes(random)))
}

fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Code::StateDir,
        format!(
            "no private directory can be made for the session's store in {}",
            crate::render::quoted(path)
        ),
    )
    .value("path", path)
    .cause(error)
    .hint("name a place with `--store D`, or set `XDG_STATE_HOME` to a directory that this user may write")
}

fn busy(path: &Path, errno: Errno) -> Failure {
    unusable(path, &errno.into())
        .hint("another bailiwick is removing what was left there, and does not come to an end: end it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    #[test]
    fn what_was_made_is_removed_and_what_was_there_stays() {
        let world = bailiwick_test::World::new();
        let base = world.write_root();
        let parent = base.join("state/bailiwick/sessions");
        let run = RunDir::make_in(&parent).unwrap();
        fs::create_dir(run.store()).unwrap();
        fs::write(run.store().join("lock"), "").unwrap();
        assert_eq!(listing(&parent).len(), 1);
        assert_eq!(fs::metadata(&parent).unwrap().mode() & 0o7777, 0o700);
        // Another one at the same time: neither removes the other's.
        let other = RunDir::make_in(&parent).unwrap();
        run.remove().unwrap();
        assert_eq!(listing(&parent).len(), 1);
        drop(other);
        assert_eq!(listing(&parent), Vec::<String>::new());
        fs::remove_dir_all(base.join("state")).unwrap();
        drop(RunDir::make_in(&parent).unwrap());
        assert_eq!(listing(&base), Vec::<String>::new());
    }

    #[test]
    fn the_next_run_removes_what_a_killed_one_left_and_nothing_else() {
        let world = bailiwick_test::World::new();
        let parent = world.write_root().join("sessions");
        let alive = RunDir::make_in(&parent).unwrap();
        for name in ["run-0123456789abcdef/store", "run-short", "run-0123456789ABCDEF", "mine"] {
            fs::create_dir_all(parent.join(name)).unwrap();
        }
        fs::write(parent.join("run-00000000000000ff"), "a file").unwrap();
        let own = alive.path.file_name().unwrap().to_str().unwrap().to_owned();
        let next = RunDir::make_in(&parent).unwrap();
        let left = listing(&parent);
        assert!(!left.contains(&"run-0123456789abcdef".to_owned()), "{left:?}");
        for name in ["run-short", "run-0123456789ABCDEF", "mine", "run-00000000000000ff", own.as_str()] {
            assert!(left.contains(&name.to_owned()), "{name}: {left:?}");
        }
        drop((alive, next));
    }

    #[test]
    fn runs_that_come_and_go_together_do_not_disturb_each_other() {
        let world = bailiwick_test::World::new();
        let base = world.write_root();
        let parent = base.join("state/bailiwick/sessions");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let run = RunDir::make_in(&parent).unwrap();
                        fs::create_dir(run.store()).unwrap();
                        fs::write(run.store().join("lock"), "x").unwrap();
                        std::thread::yield_now();
                        assert_eq!(fs::read(run.store().join("lock")).unwrap(), b"x");
                        run.remove().unwrap();
                    }
                });
            }
        });
        assert_eq!(listing(&parent), Vec::<String>::new());
    }
}
