//! What is mounted beneath a directory.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::find::{failed, join};
use crate::identity::ancestors::Walk;
use crate::identity::fault::Fault;
use crate::identity::filesystem::promises;
use crate::identity::mount::{Mount, MountTable};
use crate::identity::object::{Key, mount_of};
use crate::identity::pinned::PinnedDir;
use crate::identity::resolve::open_exact;

/// A mount beneath a directory that nothing else covers.
#[derive(Debug)]
pub(crate) struct Beneath<'t> {
    pub(crate) mount: &'t Mount,
    /// Its root; `None` where this user cannot open it, or where a server that is down could hold that up. A command
    /// may be able to open it: who owns a directory above it may change its mode.
    pub(crate) fd: Option<OwnedFd>,
}

/// Which mounts can be reached, each with what its point lies in.
///
/// By identity, not by path: a rule of the kernel for a directory holds wherever that is seen, and what is mounted in
/// it at one place need not be at another.
#[derive(Debug, Default)]
pub(crate) struct Points(Vec<Point>);

#[derive(Debug)]
struct Point {
    mount: u64,
    /// The directories above the point, nearest first; `None` where this user cannot look.
    above: Option<Vec<Key>>,
}

impl Points {
    /// Finds what the point of every mount lies in.
    ///
    /// Nothing is asked of what is mounted there: a server that is down must not hold up a session that has nothing
    /// to do with it.
    pub(crate) fn find(table: &MountTable, walk: &mut Walk) -> Result<Self, Fault> {
        let mut points = Vec::new();
        for mount in table.iter() {
            let Some(holder) = mount.point.parent() else { continue };
            let above = match open_exact(holder) {
                Ok(fd) => match walk.chain(&fd, holder) {
                    Ok(chain) => Some(chain.into_iter().map(|node| node.key).collect()),
                    Err(fault @ (Fault::NoDescriptors(_) | Fault::Unsupported { .. })) => return Err(fault),
                    Err(_) => None,
                },
                // Covered by another mount, which is in the table too.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(failed(holder, errno)),
                // Not permitted, or on a file system whose server is gone: nobody's session fails for that.
                Err(_) => None,
            };
            points.push(Point { mount: mount.id, above });
        }
        Ok(Self(points))
    }

    /// Every mount that can be reached through a directory, wherever that is seen.
    pub(crate) fn beneath<'t>(
        &self,
        table: &'t MountTable,
        dir: &PinnedDir,
    ) -> Result<Vec<Beneath<'t>>, Fault> {
        let mut beneath = Vec::new();
        for point in &self.0 {
            let Some(mount) = table.get(point.mount) else { continue };
            let by_name = || mount.point != dir.canonical() && mount.point.starts_with(dir.canonical());
            let fd = match &point.above {
                Some(above) if !above.contains(&dir.id().key()) => continue,
                // Its root may be asked of a server when it is opened. That it is covered is not looked for then.
                Some(_) if promises(&mount.fs_type).is_elsewhere => None,
                Some(_) => match open_exact(&mount.point) {
                    Ok(fd) if mount_of(&fd, &mount.point)? == mount.id => Some(fd),
                    Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                    Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(failed(&mount.point, errno)),
                    Err(_) => None,
                },
                None if by_name() => None,
                None => continue,
            };
            beneath.push(Beneath { mount, fd });
        }
        Ok(beneath)
    }
}

impl Beneath<'_> {
    /// Its root, opened now where that was put off; `None` where another mount covers it.
    ///
    /// # Errors
    /// `Denied` where this user cannot.
    pub(crate) fn open(&self) -> Result<Option<OwnedFd>, Fault> {
        let Some(fd) = &self.fd else {
            return match open_exact(&self.mount.point) {
                Ok(fd) if mount_of(&fd, &self.mount.point)? == self.mount.id => Ok(Some(fd)),
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                Err(errno) => Err(failed(&self.mount.point, errno)),
            };
        };
        fd.try_clone()
            .map(Some)
            .map_err(|error| failed(&self.mount.point, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// A directory, opened once more at every other place where the whole of it is seen: what a mount covers at one place
/// may come to light at another.
pub(crate) fn elsewhere(table: &MountTable, dir: &PinnedDir) -> Result<Vec<PinnedDir>, Fault> {
    let Some(here) = table.locate(dir.id().mount, dir.canonical()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for mount in table.iter().filter(|mount| mount.device == here.device && mount.id != dir.id().mount) {
        let Ok(rest) = here.path.strip_prefix(&mount.root) else { continue };
        match PinnedDir::open(&join(&mount.point, rest)) {
            Ok(again) if again.id().key() == dir.id().key() && again.id().mount == mount.id => {
                found.push(again);
            }
            Ok(_) | Err(Fault::NotFound { .. } | Fault::NotDirectory { .. } | Fault::Denied(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}
