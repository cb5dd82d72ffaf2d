//! Removing the temporary directory of a session, after every process of the session has gone.
//!
//! The SDK has a remover of its own, with reports, for trees in general. This one is the keeper's: it works when
//! the host is dead, and keeps the same rules.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::sys::{self, Errno};

/// Longest time for all of it. What is left then is left: somebody outside of the session makes entries as
/// fast as they are removed, or the file system does not answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Names held in memory at a time, so that a directory of ten million does not cost the keeper a gigabyte.
const BATCH: usize = 4096;

/// Empties a directory that commands could write.
///
/// No name is followed and no mount crossed: every step is relative to a descriptor, and nothing but a
/// directory on the same mount is opened. Depth is no limit, since directories found below are moved up into
/// `top` before they are emptied, so three descriptors are open at a time. Modes are no obstacle to their
/// owner: a directory without the right to list and change it gets that first. What cannot be removed, such
/// as a mount point, does not keep the rest.
///
/// # Errors
/// The first error after which something was left over.
pub(crate) fn empty(top: &OwnedFd) -> sys::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut moved: u64 = 0;
    each_until_none(top, deadline, |name| {
        if unlink(top, name)? {
            return Ok(());
        }
        let directory = open(top, name)?;
        let flattened =
            each_until_none(&directory, deadline, |entry| lift(&directory, entry, top, &mut moved));
        // Where something is left in it, that error says more than the one of this call.
        flattened.and(sys::unlink_at(top.as_raw_fd(), name, sys::AT_REMOVEDIR))
    })
}

/// Calls back for every entry of a directory until none is there but those for which that failed. Returns the
/// first failure.
fn each_until_none(
    directory: &OwnedFd,
    deadline: Instant,
    mut remove: impl FnMut(&CStr) -> sys::Result<()>,
) -> sys::Result<()> {
    let mut stuck = BTreeSet::new();
    let mut outcome = Ok(());
    loop {
        let names = sys::names(directory, BATCH, &stuck)?;
        if names.is_empty() {
            return outcome;
        }
        for name in names {
            if Instant::now() > deadline {
                return Err(Errno::TIMEDOUT);
            }
            if let Err(errno) = remove(&name) {
                outcome = outcome.and(Err(errno));
                stuck.insert(name);
            }
        }
    }
}

/// Unlinks what is no directory. False: it is one, or something that cannot be unlinked.
fn unlink(directory: &OwnedFd, name: &CStr) -> sys::Result<bool> {
    match sys::unlink_at(directory.as_raw_fd(), name, 0) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes an entry out of a directory: unlinks it, or moves it up into `top`.
fn lift(directory: &OwnedFd, entry: &CStr, top: &OwnedFd, moved: &mut u64) -> sys::Result<()> {
    if unlink(directory, entry)? {
        return Ok(());
    }
    // Moving a directory rewrites its `..`, for which it must be writable.
    drop(open(directory, entry)?);
    loop {
        *moved += 1;
        let target = CString::new(format!(".bw-{moved}")).map_err(|_| Errno::PROTO)?;
        match sys::rename_at(directory.as_raw_fd(), entry, top.as_raw_fd(), &target) {
            // An entry of that name, which a command made: take the next number.
            Err(Errno::EXIST | Errno::NOTDIR | Errno::NOTEMPTY) => {}
            answer => return answer,
        }
    }
}

/// Opens a directory for listing, and makes sure that its owner can change it.
fn open(parent: &OwnedFd, name: &CStr) -> sys::Result<OwnedFd> {
    const FLAGS: i32 = sys::O_DIRECTORY | sys::O_NOFOLLOW;
    let opened = match sys::open_beneath(parent.as_raw_fd(), name, FLAGS) {
        Err(Errno::ACCES) => {
            // By its descriptor: whatever has the name by then, no other mode is changed.
            let held = sys::open_beneath(parent.as_raw_fd(), name, FLAGS | sys::O_PATH)?;
            let link =
                CString::new(format!("/proc/self/fd/{}", held.as_raw_fd())).map_err(|_| Errno::PROTO)?;
            sys::chmod_at(sys::AT_FDCWD, &link, 0o700)?;
            sys::open_beneath(held.as_raw_fd(), c".", FLAGS)
        }
        opened => opened,
    }?;
    // Only its owner can. For anybody else the removal of what is in it says whether that was needed.
    sys::may_fail(sys::fchmod(opened.as_raw_fd(), 0o700));
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("bw-temporary-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn deep_closed_and_linked_trees_go_and_nothing_outside_does() {
        let outside = scratch("outside");
        fs::write(outside.join("kept"), "kept").unwrap();
        let top = scratch("top");
        symlink(&outside, top.join("link")).unwrap();
        let mut path = top.clone();
        for level in 0..600 {
            path = path.join("d");
            fs::create_dir(&path).unwrap();
            if level % 50 == 0 {
                fs::write(path.join("f"), "f").unwrap();
                symlink(&outside, path.join("link")).unwrap();
            }
        }
        fs::create_dir_all(top.join("closed/inner")).unwrap();
        for number in 0..BATCH + 10 {
            fs::write(top.join(format!("closed/inner/{number}")), "").unwrap();
        }
        fs::create_dir(top.join(".bw-1")).unwrap();
        fs::write(top.join(".bw-2"), "in the way").unwrap();
        fs::set_permissions(top.join("closed/inner"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();

        let descriptor: OwnedFd = fs::File::open(&top).unwrap().into();
        empty(&descriptor).unwrap();
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
        fs::remove_dir(&top).unwrap();
        fs::remove_dir_all(&outside).unwrap();
    }
}
