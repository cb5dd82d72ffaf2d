//! From a descriptor to the next: the one way in which anything in a tree is reached or opened.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, retry_on_intr};

use super::facts::{Facts, Kind};
use super::fault::At;
use crate::error::{Error, SystemCall};

/// `NO_XDEV` also refuses a bind mount of the same file system, which no device number tells.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// How often to ask again when the kernel saw renames while it resolved a single name.
const ATTEMPTS: usize = 16;

/// An entry that is held by an `O_PATH` descriptor, and what was seen through it.
#[derive(Debug)]
pub(super) struct Held {
    fd: OwnedFd,
    pub(super) facts: Facts,
}

impl Held {
    pub(super) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes hold of one entry of a directory, whatever it is. A link is held itself; a mount point is refused.
pub(super) fn hold(
    dir: impl AsFd,
    name: impl rustix::path::Arg + Copy,
    mount: u64,
    at: At<'_>,
) -> Result<Held, Error> {
    let dir = dir.as_fd();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut attempt = 0;
    let fd = loop {
        attempt += 1;
        match retry_on_intr(|| openat2(dir, name, flags, Mode::empty(), BENEATH)) {
            Ok(fd) => break fd,
            Err(Errno::AGAIN) if attempt < ATTEMPTS => {}
            Err(Errno::XDEV) => return Err(at.mount_point()),
            Err(Errno::LOOP) => return Err(at.refused(Kind::SymbolicLink)),
            Err(Errno::NOENT) => {
                // Nothing is found in a removed directory either, and that is another answer.
                if Facts::of(dir, at)?.links == 0 {
                    return Err(at.changed("removed"));
                }
                return Err(at.not_found(SystemCall::new(
                    "openat2",
                    at.tree.join(at.component),
                    Errno::NOENT,
                )));
            }
            Err(errno) => return Err(at.call("openat2", errno)),
        }
    };
    let facts = Facts::of(&fd, at)?;
    if facts.id.mount != mount {
        return Err(at.mount_point());
    }
    Ok(Held { fd, facts })
}

/// The path by which the kernel leads back to the very object of a descriptor.
///
/// `thread-self`, because a thread may have a table of descriptors of its own.
pub(super) fn link_of(fd: impl AsFd) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Opens a regular file for reading through the descriptor by which it was seen to be one.
///
/// By name, something else could be there by now, and opening a device or a FIFO has effects. Returns the file and
/// what it is now.
pub(super) fn open_file(held: &Held, at: At<'_>) -> Result<(OwnedFd, Facts), Error> {
    if held.facts.kind != Kind::File {
        return Err(at.refused(held.facts.kind));
    }
    // O_NONBLOCK: a lease on the file would hold this up for as long as its owner likes.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match retry_on_intr(|| openat(CWD, link_of(held), flags, Mode::empty())) {
        Ok(fd) => fd,
        Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => return Err(no_proc(at, errno)),
        Err(errno) => return Err(at.call("openat", errno)),
    };
    let facts = Facts::of(&fd, at)?;
    // Whatever is mounted on `/proc` answered; only the object itself will do.
    if !facts.is_same_object(&held.facts) {
        return Err(at.changed("replaced"));
    }
    Ok((fd, facts))
}

pub(super) fn no_proc(at: At<'_>, errno: Errno) -> Error {
    at.unsupported("a mounted /proc", "every release").source(SystemCall::new(
        "openat",
        "/proc/thread-self/fd",
        errno,
    ))
}

/// Opens a directory for listing. A mount that was made over it meanwhile is not entered: `.` is where we are.
pub(super) fn open_directory(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| openat2(dir.as_fd(), c".", flags, Mode::empty(), BENEATH))
}

/// The names in a path that leads down from a directory. Empty for the directory itself.
pub(super) fn components<'a>(tree: &'a Path, path: &'a Path) -> Result<Vec<&'a OsStr>, Error> {
    use std::os::unix::ffi::OsStrExt as _;
    let at = At::entry(tree, path);
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(at.invalid("nul", "a path holds a NUL byte"));
    }
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(Ok(name)),
            Component::CurDir => None,
            Component::ParentDir => Some(Err(at.invalid("parent", "a path climbs"))),
            Component::RootDir | Component::Prefix(_) => {
                Some(Err(at.invalid("absolute", "a path is not relative to the tree")))
            }
        })
        .collect()
}

/// The first `count` of the names, as a path.
pub(super) fn beginning(names: &[&OsStr], count: usize) -> PathBuf {
    names.iter().take(count).collect()
}
