//! A store that is open.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmod, fchmod, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::lock::{self, Lock};
use super::place::{Found, StorePlace};
use crate::error::{Error, ErrorKind, Quoted, SystemCall};
use crate::identity::{Fault, Look, PinnedDir, PinnedName, Role, user};

/// Name of the file in the runtime home that no command may change. The worker's probes try to.
pub const SENTINEL: &str = "sentinel";

const SENTINEL_TEXT: &[u8] = b"No command of a bailiwick session can change this file.\n";
const RUN: &str = "run";

/// A store that is open and locked.
///
/// Dropping it releases the lock and leaves the directory as it is.
#[derive(Debug)]
pub struct StoreDir {
    dir: PinnedDir,
    run: PinnedDir,
    /// Held until it is released.
    lock: Mutex<Option<Lock>>,
    /// The name under which this opening made the directory.
    made: Option<PinnedName>,
}

impl StoreDir {
    /// Opens a store, or makes it where nothing is; the directory above it must exist.
    ///
    /// # Errors
    /// `StoreInvalid` when the path is not absolute, when the directory or something of ours in it belongs to
    /// another user, is open to others or is of another type: nothing is tightened in silence, because others may
    /// have been there already. `StoreLocked` with the holder's process id when another session has it.
    /// `StoreNotAccessible` when it cannot be reached, made or written.
    ///
    /// # Security
    /// The directory is held by its descriptor; whoever renames it later does not change which one is used.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self, Error> {
        StorePlace::find(path)?.open()
    }

    pub(super) fn at(given: PathBuf, found: Found) -> Result<Self, Error> {
        let (dir, made) = match found {
            Found::Existing(dir) => (dir, None),
            Found::Absent(name) => (make_directory(name.dir(), name.entry(), &given)?, Some(name)),
        };
        check_private(&dir, &given)?;
        let lock = Lock::take(&dir)?;
        let run = match PinnedDir::open_beneath(&dir, Path::new(RUN)) {
            Ok(run) => run,
            Err(Fault::NotFound { .. }) => make_directory(&dir, Path::new(RUN), &dir.canonical().join(RUN))?,
            Err(fault) => return Err(Role::Store.fault(fault, &dir.canonical().join(RUN))),
        };
        check_private(&run, run.canonical())?;
        lay_sentinel(&run)?;
        Ok(Self { dir, run, lock: Mutex::new(Some(lock)), made })
    }

    /// The directory of the store.
    #[must_use]
    pub fn dir(&self) -> &PinnedDir {
        &self.dir
    }

    /// Releases the lock, so that another session may open the store: this one has ended.
    pub(crate) fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Takes back what this opening made, when the session does not come about: a refused one leaves no store.
    ///
    /// Only what is empty but for our own files goes. A store that was there before stays as it is.
    pub(crate) fn unmake(&self) {
        let Some(name) = &self.made else { return };
        // Where one step fails there is something else in it, and the next ones fail too: it stays.
        let none = AtFlags::empty();
        let _stays = unlinkat(&self.run, SENTINEL, none)
            .and_then(|()| unlinkat(&self.dir, RUN, AtFlags::REMOVEDIR))
            .and_then(|()| unlinkat(&self.dir, lock::NAME, none))
            .and_then(|()| unlinkat(name.dir(), name.entry(), AtFlags::REMOVEDIR));
    }

    /// The runtime home: the directory that holds [`SENTINEL`].
    #[must_use]
    pub fn run_dir(&self) -> &PinnedDir {
        &self.run
    }
}

fn make_directory(parent: &PinnedDir, entry: &Path, given: &Path) -> Result<PinnedDir, Error> {
    let mode = Mode::RWXU;
    match mkdirat(parent, entry, mode) {
        // Somebody may have made it in between: what is there is checked like any other.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("cannot be made", "mkdirat", given, errno)),
    }
    let dir = PinnedDir::open_beneath(parent, entry).map_err(|fault| Role::Store.fault(fault, given))?;
    let look = Look::at(&dir, given).map_err(|fault| Role::Store.fault(fault, given))?;
    if look.owner == user() && look.mode & 0o700 != 0o700 {
        // The file mode mask of this process took away more than it should have. `fchmod` takes no `O_PATH`
        // descriptor; its link in `/proc` leads to this very directory.
        use std::os::fd::{AsFd as _, AsRawFd as _};
        let link = format!("/proc/thread-self/fd/{}", dir.as_fd().as_raw_fd());
        chmod(link, mode).map_err(|errno| failed("cannot be given its mode", "chmod", given, errno))?;
    }
    Ok(dir)
}

/// Refuses a directory that is not this user's alone.
fn check_private(dir: &PinnedDir, given: &Path) -> Result<(), Error> {
    let look = Look::at(dir, given).map_err(|fault| Role::Store.fault(fault, given))?;
    let (owner, user) = (look.owner, user());
    let refused = |predicate: &str| {
        Role::Store
            .error(ErrorKind::StoreInvalid, predicate, given)
            .number("owner", owner)
            .number("user", user)
            .text("mode", format!("{:04o}", look.mode))
    };
    if owner != user {
        return Err(refused("belongs to another user")
            .hint("choose a directory of this user, or one that does not exist yet"));
    }
    if look.mode & 0o077 != 0 {
        return Err(refused("is open to other users").hint(format!(
            "run `chmod 700` on {} once you know that nobody else has put anything there",
            Quoted::new(dir.canonical())
        )));
    }
    Ok(())
}

/// Opens a file of ours in a private directory, made where it is absent, and refuses anything but a plain file of
/// this user with a single name.
pub(super) fn open_private_file(dir: &PinnedDir, entry: &str) -> Result<OwnedFd, Error> {
    let path = dir.canonical().join(entry);
    // O_NONBLOCK: a FIFO of that name must not hold this up.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR;
    let refused = |what: &str| {
        Role::Store
            .error(ErrorKind::StoreInvalid, what, &path)
            .hint("remove it if you know where it came from, or choose another store")
    };
    let file = match openat(dir, entry, flags, mode) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(refused("holds a symbolic link where its own file belongs")),
        Err(errno @ (Errno::ISDIR | Errno::NXIO)) => {
            return Err(refused("holds something else where its own file belongs")
                .source(SystemCall::new("openat", &path, errno)));
        }
        Err(errno) => return Err(failed("cannot be written", "openat", &path, errno)),
    };
    let look = Look::at(&file, &path).map_err(|fault| Role::Store.fault(fault, &path))?;
    if look.file_type != FileType::RegularFile {
        return Err(refused("holds something else where its own file belongs"));
    }
    if look.owner != user() {
        return Err(refused("holds a file of another user where its own belongs").number("owner", look.owner));
    }
    if look.links != 1 {
        return Err(refused("holds a file of its own that has other names too").number("links", look.links));
    }
    if look.mode != 0o600 {
        fchmod(&file, mode).map_err(|errno| failed("cannot be given its mode", "fchmod", &path, errno))?;
    }
    Ok(file)
}

/// Makes sure that the sentinel is there and reads as it should.
fn lay_sentinel(run: &PinnedDir) -> Result<(), Error> {
    let mut file = std::fs::File::from(open_private_file(run, SENTINEL)?);
    let path = run.canonical().join(SENTINEL);
    let lay = |file: &mut std::fs::File| {
        let mut text = Vec::new();
        file.take(SENTINEL_TEXT.len() as u64 + 1).read_to_end(&mut text)?;
        if text != SENTINEL_TEXT {
            file.set_len(0)?;
            std::io::Seek::rewind(file)?;
            file.write_all(SENTINEL_TEXT)?;
        }
        Ok(())
    };
    lay(&mut file).map_err(|error: std::io::Error| {
        Role::Store.error(ErrorKind::StoreNotAccessible, "cannot be written", &path).source(error)
    })
}

pub(super) fn failed(predicate: &str, call: &'static str, path: &Path, errno: Errno) -> Error {
    Role::Store
        .error(ErrorKind::StoreNotAccessible, predicate, path)
        .hint("choose a place where this user may make files, or change owner or mode of the directory")
        .source(SystemCall::new(call, path, errno))
}
