//! Removing the temporary directory of a session, after every process of the session has gone.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::sys::{self, Errno};

/// Empties a directory that commands could write.
///
/// No name is followed: every step is relative to a descriptor. Depth is no limit, since directories
/// found below are moved up into `top` before they are emptied, so two descriptors are open at a time.
/// Modes are no obstacle to their owner: a directory without write permission gets it first.
///
/// # Errors
/// The first error after which something was left over.
pub(crate) fn empty(top: &OwnedFd) -> sys::Result<()> {
    let mut moved: u64 = 0;
    loop {
        let names = sys::names(top)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            match sys::unlink_at(top.as_raw_fd(), &name, 0) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
            flatten(top, &name, &mut moved)?;
            sys::unlink_at(top.as_raw_fd(), &name, sys::AT_REMOVEDIR)?;
        }
    }
}

/// Unlinks the files of `top/name`, and moves its directories into `top`.
fn flatten(top: &OwnedFd, name: &CStr, moved: &mut u64) -> sys::Result<()> {
    let directory = open(top, name)?;
    for entry in sys::names(&directory)? {
        match sys::unlink_at(directory.as_raw_fd(), &entry, 0) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        // Moving a directory rewrites its `..`, for which it must be writable.
        drop(open(&directory, &entry)?);
        loop {
            *moved += 1;
            let target = CString::new(format!(".bw-{moved}")).map_err(|_| Errno::PROTO)?;
            match sys::rename_at(directory.as_raw_fd(), &entry, top.as_raw_fd(), &target) {
                Ok(()) => break,
                // An entry of that name, which a command made: take the next number.
                Err(Errno::EXIST | Errno::NOTDIR | Errno(39)) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

/// Opens a directory for listing, and makes sure that it can be changed.
fn open(parent: &OwnedFd, name: &CStr) -> sys::Result<OwnedFd> {
    const FLAGS: i32 = sys::O_DIRECTORY | sys::O_NOFOLLOW;
    let opened = match sys::open_at(parent.as_raw_fd(), name, FLAGS, 0) {
        Err(Errno::ACCES) => {
            // It is a directory (`unlink` said so) and nobody of the session is left to swap it.
            sys::chmod_at(parent.as_raw_fd(), name, 0o700)?;
            sys::open_at(parent.as_raw_fd(), name, FLAGS, 0)
        }
        opened => opened,
    }?;
    sys::fchmod(opened.as_raw_fd(), 0o700)?;
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
