//! The group below which a session's own is made.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

use super::{Failure, GroupCause};
use crate::identity::{MountTable, kernel_interface};

/// The type of the file system, as the mount table has it.
const FILE_SYSTEM: &str = "cgroup2";

/// A group, open.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    directory: OwnedFd,
}

impl Place {
    /// The group that was named, else the one of this process.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, Failure> {
        match named {
            Some(path) => Self::named(path),
            None => Self::own(),
        }
    }

    fn named(path: &Path) -> Result<Self, Failure> {
        let not_a_group = || Failure::of(GroupCause::NotAGroup, path);
        if !path.is_absolute() {
            return Err(not_a_group());
        }
        Self::open(path).map_err(|failure| match failure.call.map(|(_, errno)| errno) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => not_a_group(),
            _ => failure,
        })
    }

    /// The group of this process, where a mount shows it.
    fn own() -> Result<Self, Failure> {
        let nowhere = || Failure { cause: GroupCause::NoCgroupV2, group: None, call: None };
        let text = std::fs::read_to_string("/proc/self/cgroup").map_err(|_| nowhere())?;
        let own = Path::new(of_own(&text).ok_or_else(nowhere)?);
        let table = MountTable::read().map_err(|_| nowhere())?;
        table
            .iter()
            .filter(|mount| mount.fs_type == FILE_SYSTEM)
            // Both are told from the same place, that of this process's namespace of groups.
            .filter_map(|mount| Some(mount.point.join(own.strip_prefix(&mount.root).ok()?)))
            .filter_map(|path| Self::open(&path).ok())
            // A mount may be covered, or show the groups of somebody else: what counts is that this process is there.
            .find(Self::holds_this_process)
            .ok_or_else(nowhere)
    }

    fn open(path: &Path) -> Result<Self, Failure> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            open(path, flags, Mode::empty()).map_err(|errno| Failure::call("open", path, errno))?;
        match kernel_interface(&directory, path) {
            Ok(Some(FILE_SYSTEM)) => Ok(Self { path: path.to_owned(), directory }),
            _ => Err(Failure::of(GroupCause::NotAGroup, path)),
        }
    }

    fn holds_this_process(&self) -> bool {
        let own = std::process::id().to_string();
        match read(&self.directory, "cgroup.procs") {
            Ok(inside) => inside.lines().any(|pid| pid == own),
            // Of a threaded group only the threads are listed.
            Err(Errno::OPNOTSUPP) => read(&self.directory, "cgroup.threads")
                .is_ok_and(|inside| inside.lines().any(|thread| thread == own)),
            Err(_) => false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Has groups below this one given a controller. It stays so: another session may rely on it by then.
    pub(super) fn enable(&self, controller: &str) -> Result<(), Failure> {
        const HANDED_ON: &str = "cgroup.subtree_control";
        let has = |file: &str| -> Result<bool, Failure> {
            let listed = read(&self.directory, file)
                .map_err(|errno| Failure::call("read", &self.path.join(file), errno))?;
            Ok(listed.split_whitespace().any(|known| known == controller))
        };
        if !has("cgroup.controllers")? {
            return Err(Failure::of(GroupCause::ControllerMissing, &self.path));
        }
        if has(HANDED_ON)? {
            return Ok(());
        }
        // The kernel says so itself for memory. For processes it would permit it, and make the groups below useless.
        let is_topmost = read(&self.directory, "cgroup.type") == Err(Errno::NOENT);
        if !is_topmost && read(&self.directory, "cgroup.procs").is_ok_and(|inside| !inside.is_empty()) {
            return Err(Failure::of(GroupCause::InternalProcesses, &self.path));
        }
        write(&self.directory, HANDED_ON, &format!("+{controller}"))
            .map_err(|errno| Failure::call("write", &self.path.join(HANDED_ON), errno))?;
        if has(HANDED_ON)? { Ok(()) } else { Err(Failure::of(GroupCause::NotTaken, &self.path)) }
    }
}

/// The group of this process in the hierarchy of version 2, from `/proc/self/cgroup`.
fn of_own(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Reads a file of a group.
pub(super) fn read(group: impl AsFd, file: &str) -> Result<String, Errno> {
    let opened = openat(group, file, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    std::fs::File::from(opened).read_to_string(&mut text).map_err(|error| errno(&error))?;
    Ok(text)
}

/// Writes a file of a group, which the kernel takes or refuses as a whole.
pub(super) fn write(group: impl AsFd, file: &str, text: &str) -> Result<(), Errno> {
    let opened = openat(group, file, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::File::from(opened).write_all(text.as_bytes()).map_err(|error| errno(&error))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_version_2_is_told_from_the_others() {
        let both = "9:name=systemd:/\n4:memory:/a\n0::/user.slice/a b\n";
        assert_eq!(of_own(both), Some("/user.slice/a b"));
        assert_eq!(of_own("4:memory:/a\n10::/b\n"), None);
    }

    #[test]
    fn what_is_no_group_is_refused() {
        for path in ["/tmp", "/etc/passwd", "/tmp/no-such-directory", "relative", ""] {
            let failure = Place::find(Some(Path::new(path))).unwrap_err();
            assert_eq!(failure.cause, GroupCause::NotAGroup, "{path}");
        }
    }
}
