//! Opening what a path names, without reading or writing it.
//!
//! # Kernel
//! `openat2` needs Linux 5.6. There is no fallback to `open`: without its resolve flags a link of `/proc` cannot
//! be told from a name.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

use super::fault::{Fault, Missing};
use super::object::{Look, type_name};
use crate::error::SystemCall;

/// What the last part of a path must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Directory,
    Anything,
}

impl Want {
    /// `O_DIRECTORY` is asked of the kernel, not checked afterwards: it is also what makes an automount happen.
    fn flags(self) -> OFlags {
        match self {
            Self::Directory => OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY,
            Self::Anything => OFlags::PATH | OFlags::CLOEXEC,
        }
    }
}

fn open(
    dir: impl AsFd,
    path: impl AsRef<Path>,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = path.as_ref();
    rustix::io::retry_on_intr(|| openat2(dir.as_fd(), path, flags, Mode::empty(), resolve))
}

/// Opens what a caller's spelling names, symbolic links followed, links of the kernel refused.
///
/// `O_PATH` opens nothing for reading, so a FIFO or a device cannot hold this up.
pub(super) fn open_spelling(path: &Path, want: Want) -> Result<OwnedFd, Fault> {
    let errno = match open(CWD, path, want.flags(), ResolveFlags::NO_MAGICLINKS) {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    let cause = SystemCall::new("openat2", path, errno);
    Err(match errno {
        Errno::NOENT if readlinkat(CWD, path, Vec::new()).is_ok() => {
            Fault::NotFound { missing: Missing::LinkTarget, cause }
        }
        Errno::NOTDIR if want == Want::Directory => match open_spelling(path, Want::Anything) {
            Ok(fd) => Fault::NotDirectory { found: type_name(Look::at(&fd, path)?.file_type) },
            Err(fault) => fault,
        },
        Errno::LOOP => match open(CWD, path, OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::empty()) {
            Err(Errno::LOOP) => Fault::Denied(cause),
            _ => Fault::MagicLink(cause),
        },
        Errno::PERM
            if matches!(
                open(CWD, "/", Want::Anything.flags(), ResolveFlags::NO_MAGICLINKS),
                Err(Errno::PERM)
            ) =>
        {
            // Filters of older container runtimes answer EPERM to calls they do not know.
            Fault::Unsupported { what: "openat2", since: "Linux 5.6", cause: Some(cause) }
        }
        Errno::NOSYS => Fault::Unsupported { what: "openat2", since: "Linux 5.6", cause: Some(cause) },
        _ => Fault::from_call(cause),
    })
}

/// Opens a directory by a path that has no link in it.
///
/// The errno is returned bare: what `ELOOP` or `ENOENT` means depends on what was known before.
pub(super) fn open_canonical(path: &Path) -> Result<OwnedFd, Errno> {
    open(CWD, path, Want::Directory.flags(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// Opens whatever lies at a path that has no link in it; the last part may be anything.
///
/// The errno is returned bare, as for [`open_canonical`].
pub(super) fn open_exact(path: &Path) -> Result<OwnedFd, Errno> {
    open(CWD, path, Want::Anything.flags(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// Looks at whatever lies at a path that has no link in it; `None` where nothing does.
pub(crate) fn look_exact(path: &Path) -> Result<Option<Look>, Fault> {
    match open_exact(path) {
        Ok(fd) => Look::at(fd, path).map(Some),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(Fault::from_call(SystemCall::new("openat2", path, errno))),
    }
}

/// Opens one entry of a directory; a symbolic link is opened itself, not followed.
pub(super) fn open_entry(dir: impl AsFd, entry: &Path, want: Want) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    open(dir, entry, want.flags() | OFlags::NOFOLLOW, resolve)
}

/// Opens the directory above a directory. `EACCES` when this user may not search the lower one.
pub(super) fn open_parent(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    open(dir, "..", Want::Directory.flags(), ResolveFlags::NO_SYMLINKS)
}

/// Opens a directory above a directory, by nothing but `..`.
pub(super) fn open_upwards(dir: BorrowedFd<'_>, up: &Path) -> Result<OwnedFd, Errno> {
    open(dir, up, Want::Directory.flags(), ResolveFlags::NO_SYMLINKS)
}

/// The present name of the object that a descriptor holds, as the kernel writes it.
///
/// The name of a removed object ends in ` (deleted)`, which is also a name that a living one can have: nothing
/// may be concluded from the text alone.
///
/// # Source
/// `proc_pid_fd(5)`. `thread-self`, because a thread may have a table of descriptors of its own.
pub(super) fn name_of(fd: impl AsFd) -> Result<PathBuf, Fault> {
    use std::os::unix::ffi::OsStringExt as _;

    let link = format!("/proc/thread-self/fd/{}", fd.as_fd().as_raw_fd());
    match readlinkat(CWD, &link, Vec::new()) {
        Ok(name) => {
            let name = PathBuf::from(std::ffi::OsString::from_vec(name.into_bytes()));
            // `(unreachable)/...`: on a mount that has been detached, or outside of this process's root.
            if name.is_absolute() { Ok(name) } else { Err(Fault::Gone) }
        }
        Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => Err(Fault::Unsupported {
            what: "a mounted /proc",
            since: "every release",
            cause: Some(SystemCall::new("readlinkat", link, errno)),
        }),
        Err(errno) => Err(Fault::from_call(SystemCall::new("readlinkat", link, errno))),
    }
}

/// Where an object lies by its present name.
pub(super) enum Place {
    /// In this directory, under this name.
    In { dir: OwnedFd, dir_path: PathBuf, entry: PathBuf },
    /// The name that it was opened by has been removed or given to another object.
    Nameless,
}

/// Finds the directory that holds an object now, by the object's own name, and proves it by looking back.
pub(super) fn place_of(fd: impl AsFd) -> Result<Place, Fault> {
    let mut name = name_of(&fd)?;
    let expected = Look::at(&fd, &name)?.id;
    loop {
        let (Some(dir_path), Some(entry)) = (name.parent(), name.file_name()) else {
            return Err(Fault::Gone);
        };
        let entry = PathBuf::from(entry);
        let found = match open_canonical(dir_path) {
            Ok(dir) => match Look::entry(&dir, &entry, &name) {
                Ok(look) if look.id.node() == expected.node() => {
                    return Ok(Place::In { dir, dir_path: dir_path.into(), entry });
                }
                Ok(look) => Some(look.id),
                Err(Fault::NotFound { .. }) => None,
                Err(fault) => return Err(fault),
            },
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            Err(errno) => return Err(Fault::from_call(SystemCall::new("openat2", dir_path, errno))),
        };
        // The name was true when it was read. If it reads the same now, the object has none; if not, it is being
        // moved, and the new name is tried.
        let again = name_of(&fd)?;
        if again == name {
            return if name.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
                Ok(Place::Nameless)
            } else {
                Err(Fault::Changed { expected, found })
            };
        }
        name = again;
    }
}
