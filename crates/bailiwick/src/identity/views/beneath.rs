//! What is mounted beneath a directory.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::error::SystemCall;
use crate::identity::fault::Fault;
use crate::identity::mount::{Mount, MountTable};
use crate::identity::object::mount_of;
use crate::identity::pinned::PinnedDir;
use crate::identity::resolve::open_exact;

/// A mount beneath a directory that nothing else covers.
#[derive(Debug)]
pub(crate) struct Beneath<'t> {
    pub(crate) mount: &'t Mount,
    /// Its root; `None` where this user cannot open it. A command may be able to: who owns a directory above it may
    /// change its mode.
    pub(crate) fd: Option<OwnedFd>,
}

/// Every mount beneath a directory that can be reached through it.
pub(crate) fn mounts_beneath<'t>(table: &'t MountTable, dir: &PinnedDir) -> Result<Vec<Beneath<'t>>, Fault> {
    let mut beneath = Vec::new();
    for mount in table.iter() {
        if mount.point == dir.canonical() || !mount.point.starts_with(dir.canonical()) {
            continue;
        }
        let fd = match open_exact(&mount.point) {
            Ok(fd) if mount_of(&fd, &mount.point)? == mount.id => Some(fd),
            // Covered by another mount, which is in the table too.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(Errno::ACCESS | Errno::PERM) => None,
            Err(errno) => {
                return Err(Fault::from_call(SystemCall::new("openat2", &mount.point, errno)));
            }
        };
        beneath.push(Beneath { mount, fd });
    }
    Ok(beneath)
}
