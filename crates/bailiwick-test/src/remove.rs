//! Removes a fixture whatever the test did to it, and nothing else.
//!
//! A case may leave directories of mode 000, immutable files, and bind mounts of directories that are not
//! its own. So mounts at or below the fixture are detached first, and the walk refuses to cross a mount
//! that is left: removing through a bind mount would empty somebody else's directory.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, IFlags, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

/// How long processes that are being killed may go on making files in the tree.
const STILL_BUSY: Duration = Duration::from_secs(10);

/// Removes `directory` and all beneath it.
///
/// # Panics
///
/// If something stays, unless the thread is panicking already; then it is only printed.
pub(crate) fn remove_tree(directory: &Path) {
    let Err(error) = try_remove(directory) else { return };
    let message = format!("the fixture {} cannot be removed: {error}", directory.display());
    assert!(std::thread::panicking(), "{message}");
    // Not a second panic: it would abort the process and hide the first.
    #[expect(clippy::print_stderr, reason = "the only channel that is left while panicking")]
    {
        eprintln!("{message}");
    }
}

fn try_remove(directory: &Path) -> Result<()> {
    detach_mounts(directory)?;
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let name = std::ffi::CString::new(name.as_bytes()).map_err(|_nul| Errno::INVAL)?;
    let deadline = Instant::now() + STILL_BUSY;
    loop {
        match remove_directory(parent.as_fd(), &name) {
            Err(Errno::NOTEMPTY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(Errno::NOENT) => return Ok(()),
            other => return other,
        }
    }
}

/// Detaches mounts at or below `directory`, the last mounted first.
fn detach_mounts(directory: &Path) -> Result<()> {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return Ok(()) };
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(unescape(point)))
    });
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(directory)).collect();
    below.reverse();
    for point in below {
        rustix::mount::unmount(
            &point,
            rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW,
        )?;
    }
    Ok(())
}

/// Undoes the octal escapes of the mount table (proc(5): space, tab, newline and backslash).
pub(crate) fn unescape(field: &[u8]) -> std::ffi::OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(plain)
}

fn remove_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let directory = open_writable(parent, name)?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            entries.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    for (entry, kind) in entries {
        let kind = match kind {
            FileType::Unknown => {
                let stat = rustix::fs::statat(&directory, &entry, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        let removed = if kind == FileType::Directory {
            remove_directory(directory.as_fd(), &entry)
        } else {
            unlink(directory.as_fd(), &entry, AtFlags::empty())
        };
        // Gone meanwhile is gone.
        if let Err(error) = removed
            && error != Errno::NOENT
        {
            return Err(error);
        }
    }
    unlink(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory for reading after giving its owner all access. Crosses neither a link nor a mount.
fn open_writable(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::BENEATH;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pinned = rustix::fs::openat2(parent, name, flags | OFlags::PATH, Mode::empty(), resolve)?;
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pinned));
    match rustix::fs::chmod(&itself, Mode::RWXU) {
        // Immutable or append-only, which root's cases set.
        Err(Errno::PERM) => {
            clear_flags(parent, name)?;
            rustix::fs::chmod(&itself, Mode::RWXU)?;
        }
        other => other?,
    }
    rustix::fs::openat2(parent, name, flags | OFlags::RDONLY, Mode::empty(), resolve)
}

fn unlink(parent: BorrowedFd<'_>, name: &CStr, how: AtFlags) -> Result<()> {
    match rustix::fs::unlinkat(parent, name, how) {
        Err(Errno::PERM) => {
            clear_flags(parent, name)?;
            rustix::fs::unlinkat(parent, name, how)
        }
        other => other,
    }
}

/// Clears the flags that forbid removal, on the entry and on its directory.
fn clear_flags(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let opened = |directory: BorrowedFd<'_>, name: &CStr| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(directory, name, flags, Mode::empty())
    };
    for file in [opened(parent, c"."), opened(parent, name)].into_iter().flatten() {
        let flags = rustix::fs::ioctl_getflags(&file)?;
        let cleared = flags - (IFlags::IMMUTABLE | IFlags::APPEND);
        if cleared != flags {
            rustix::fs::ioctl_setflags(&file, cleared)?;
        }
    }
    Ok(())
}

/// Opens `path` only to look at it. Does not follow a final link.
pub(crate) fn open_path(path: impl AsRef<OsStr>) -> Result<OwnedFd> {
    let path: &Path = path.as_ref().as_ref();
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
