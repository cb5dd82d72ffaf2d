//! Whether a command can write in the roots that it was granted.
//!
//! A rule may not stick: file systems that make a new inode for each lookup show another one to the command than
//! the rule was made for. And a command has no capabilities, so that root's commands can do less than root.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use bailiwick_wire::Unusable;

use crate::sys::{self, Errno, Result};

/// Reads the paths of the roots and tries each. Those in which nothing can be written.
pub(crate) fn try_roots(list: &File) -> Vec<Unusable> {
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 4096];
    // By position: other launchers read the same open file.
    while let Ok(length @ 1..) = list.read_at(&mut chunk, bytes.len() as u64) {
        bytes.extend_from_slice(chunk.get(..length).unwrap_or_default());
    }
    let paths = bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let mut unusable = Vec::new();
    for (root, path) in (0..).zip(paths) {
        let Ok(path) = CString::new(path) else { continue };
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
