//! Whether a command can write in the roots that it was granted.
//!
//! A rule may not stick: file systems that make a new inode for each lookup show another one to the command than
//! the rule was made for. And a command has no capabilities, so that root's commands can do less than root.

use std::ffi::CString;

use bailiwick_wire::{Plan, Unusable};

use crate::sys::{self, Errno, Result};

/// Tries each root. Those in which nothing can be written.
pub(crate) fn try_roots(plan: &Plan) -> Vec<Unusable> {
    let mut unusable = Vec::new();
    for (root, place) in (0..).zip(&plan.roots) {
        let Ok(path) = sys::c_path(&place.path) else { continue };
        if let Err(errno @ (Errno::ACCES | Errno::PERM | Errno::ROFS)) = write_nothing(&path) {
            let by_mode = sys::may_write(&path) == Err(Errno::ACCES);
            unusable.push(Unusable { root, errno: errno.0, by_mode });
        }
    }
    unusable
}

/// Makes a file that never has a name; where the file system has no such files, one that is removed at once.
fn write_nothing(root: &CString) -> Result<()> {
    match sys::open_at(sys::AT_FDCWD, root, sys::O_TMPFILE | sys::O_WRONLY, 0o600) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        made => return made.map(drop),
    }
    let mut name = root.as_bytes().to_vec();
    name.extend_from_slice(format!("/.bailiwick-probe-{}", sys::process_id()).as_bytes());
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_EXCL | sys::O_NOFOLLOW;
    drop(sys::open_at(sys::AT_FDCWD, &name, flags, 0o600)?);
    sys::unlink_at(sys::AT_FDCWD, &name, 0)
}
