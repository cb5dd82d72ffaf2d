//! The temporary directory of a session.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdir, open, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, ErrorKind, Quoted, SystemCall};
use crate::policy::path_fault;

/// Longest path, in bytes, so that a socket below it with two more names of 32 bytes still fits the 107
/// bytes that `sockaddr_un` has.
const LONGEST: usize = 48;

/// A private directory that is made for one session and that the keeper removes when all has ended.
#[derive(Debug)]
pub(crate) struct TemporaryDir {
    path: PathBuf,
    directory: OwnedFd,
}

impl TemporaryDir {
    /// Makes a directory of mode 0700 with a name that nobody can have taken before.
    ///
    /// # Errors
    /// [`ErrorKind::TempDir`].
    pub(crate) fn make(parent: &Path) -> Result<Self, Error> {
        let failed = |call, path: &Path, errno| {
            Error::new(
                ErrorKind::TempDir,
                format!("cannot make the session's temporary directory in {}", Quoted::new(parent)),
            )
            .path("parent", parent)
            .hint("choose another parent for the temporary directory, one in which this user may make directories")
            .source(SystemCall::new(call, path, errno))
        };
        if let Some(fault) = path_fault(parent) {
            return Err(Error::new(
                ErrorKind::TempDir,
                format!("the parent of the temporary directory {}: {}", fault.text(), Quoted::new(parent)),
            )
            .path("parent", parent)
            .hint(fault.hint()));
        }
        for _ in 0..64 {
            let mut random = [0_u8; 8];
            getrandom(&mut random, GetRandomFlags::empty())
                .map_err(|errno| failed("getrandom", parent, errno))?;
            let name: String = random
                .iter()
                .map(|byte| char::from(b"abcdefghijklmnopqrstuvwxyz012345"[usize::from(byte % 32)]))
                .collect();
            let path = parent.join(format!("bw-{name}"));
            if path.as_os_str().as_bytes().len() > LONGEST {
                return Err(Error::new(
                    ErrorKind::TempDir,
                    format!("the parent of the temporary directory is too long: {}", Quoted::new(parent)),
                )
                .path("parent", parent)
                .number("limit", LONGEST)
                .hint(format!(
                    "choose a parent of at most {} bytes, so that sockets below it fit",
                    LONGEST - 12
                )));
            }
            // mkdir neither follows a link nor takes over what is there, so a squatter costs one more try.
            match mkdir(&path, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(failed("mkdir", &path, errno)),
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            return match open(&path, flags, Mode::empty()) {
                Ok(directory) => Ok(Self { path, directory }),
                Err(errno) => Err(failed("open", &path, errno)),
            };
        }
        Err(failed("mkdir", parent, Errno::EXIST))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Removes it while it is still empty: the worker never started.
    pub(crate) fn remove_empty(&self) {
        // What is not empty was used, and is the keeper's to remove.
        unlinkat(rustix::fs::CWD, &self.path, AtFlags::REMOVEDIR).ok();
    }
}
