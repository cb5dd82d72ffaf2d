//! Reading and removing what lies in a place that commands can write.
//!
//! A command may leave anything there: links to files of the host, FIFOs that hold up whoever opens them, files that
//! grow while they are read, directories deeper than any path. So nothing here takes a path from the root. A
//! directory is [pinned](pin), and from it one component is looked at after the other, each through a descriptor of
//! its own:
//!
//! 1. `openat2` with `O_PATH`, which opens nothing for reading; links and mount points end it,
//! 2. `statx` on that descriptor: type, mount, identity,
//! 3. only a regular file or a directory is opened, through the very descriptor that was looked at, and
//! 4. looked at again, before and after its bytes were read.
//!
//! [`Reader`] reads files and lists directories within [`Limits`]. [`Remover`] takes away what is there, entry by
//! entry, and says what is left.
//!
//! All of it blocks. In a program with an event loop, call it from a thread that may be held up.
//!
//! ```
//! use bailiwick::tree::{self, Limits, Reader, Remover, Step};
//!
//! # let scratch = tempfile::tempdir()?;
//! # std::fs::create_dir(scratch.path().join("out"))?;
//! # std::fs::write(scratch.path().join("out/report.txt"), "done\n")?;
//! # std::os::unix::fs::symlink("/etc/hostname", scratch.path().join("out/name"))?;
//! # let workspace = scratch.path();
//! // Before any command runs: later the path may lead elsewhere.
//! let workspace = tree::pin(workspace)?;
//!
//! // After they have ended:
//! let mut reader = Reader::new(&workspace, Limits::default())?;
//! assert_eq!(reader.read("out/report.txt")?.bytes, b"done\n");
//!
//! let mut refused = Vec::new();
//! reader.walk("out", |visit| {
//!     if let Err(error) = visit.found() {
//!         refused.push((visit.path().to_owned(), error.kind()));
//!     }
//!     Ok::<_, bailiwick::Error>(Step::Enter)
//! })?;
//! assert_eq!(refused, [("out/name".into(), bailiwick::ErrorKind::TreeRefused)]);
//!
//! Remover::default().empty(&workspace)?;
//! # assert_eq!(std::fs::read_dir(scratch.path())?.count(), 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # Security
//! - What is returned was in the tree, on the mount of the pinned directory, under names without a link in them, and
//!   was no special file. That holds while others rename and write there at full speed.
//! - That a file was *not written* during the read is proved by its size and time stamps. A writer that is alive can
//!   leave both as they were: by storing into a mapping it made before, and on kernels before 6.13 by writing twice
//!   within one tick of the clock (up to 10 ms). The bytes are then still bytes of that file, but of no single
//!   moment. So read after the session has settled where that matters.
//! - A hard link is an ordinary file to every check. Its link count is reported, and objects that must not be read
//!   under any name can be [refused](Reader::refuse).
//! - A directory is told apart by its mount, not by its device number: overlayfs and btrfs have several in one mount.
//!
//! # Kernel
//! `openat2` needs Linux 5.6, mount ids in `statx` 5.8, and files are opened through `/proc/thread-self/fd`. Where one
//! of them is missing, nothing is read; there is no weaker way.

mod chain;
mod facts;
mod fault;
mod limits;
mod list;
mod reader;
mod removal;
mod remover;
mod walk;

use std::path::Path;

pub use facts::{Facts, Kind, Stamp};
pub use limits::{Limits, RemoveLimits};
pub use list::Listed;
pub use reader::{Content, Reader};
pub use remover::Remover;
pub use walk::{Step, Visit};

use crate::error::{Error, ErrorKind};
use crate::identity::{PinnedDir, Role};
use crate::policy::path_fault;

/// Pins the directory that an absolute path names, links in the path followed.
///
/// # Errors
/// `TreePathInvalid` for a path that is not absolute, `TreeNotFound`, `TreeRefused` for what is no directory or lies
/// behind a link of the kernel, `TreeNotAccessible`, `TreeChanged` when somebody renames there meanwhile.
///
/// # Security
/// Do it before commands run, or on a directory that they cannot rename: it is the last time that a path decides.
pub fn pin(path: impl AsRef<Path>) -> Result<PinnedDir, Error> {
    let path = path.as_ref();
    if let Some(fault) = path_fault(path) {
        return Err(Role::Tree.error(ErrorKind::TreePathInvalid, fault.text(), path).hint(fault.hint()));
    }
    PinnedDir::open(path).map_err(|fault| Role::Tree.fault(fault, path))
}
