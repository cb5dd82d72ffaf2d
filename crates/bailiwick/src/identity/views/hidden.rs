//! Overlays of which layers cannot be found: what can be told without their names.
//!
//! In a container the layers of `/` are named by paths of the host, and lie where this mount namespace does not reach.
//! A directory of the same disk may be mounted here all the same (a volume), and may be a layer, lie in one, or hold
//! one. Three things that the kernel tells decide it:
//!
//! - **File handles.** The handle of an overlay's root is that of its upper directory; that of any other object on it is
//!   the handle of the upper object where no lower one is below, else that of the uppermost lower one.
//! - **Paths within a file system.** The mount table tells them from the file system's own root on, beyond the mount
//!   and beyond the container. What lies in the upper directory lies there under the path at which the overlay shows
//!   it: renames and redirects change where a *lower* object is looked for, never an upper one. So a directory at
//!   `/a/b/c` of its file system can be in an upper directory of that file system only as `/c`, `/b/c` or `/a/b/c` of the
//!   overlay. (That upper directory is never the root of its file system: the work directory lies beside it.)
//! - **Birth times.** `statx` through an overlay answers with the times of the upper object where there is one, else with
//!   those of the uppermost lower one. Directories born at different times are different ones; that they were born at
//!   one time proves nothing. This is all there is where no handles are told: of an overlay that was mounted without
//!   privileges, and before Linux 6.5.
//!
//! The work directory of an overlay is known by its form: the kernel makes a directory in it that nobody may enter.
//!
//! # Security
//! Of lower layers only as much is known as handles tell: the uppermost lower directory at each step of a path; and as
//! birth times tell, only where there is no upper one. Others, and layers that hold data alone, are not found by this.
//! Whoever relies on it says so.
//!
//! # Source
//! `ovl_dentry_to_fid`, `ovl_getattr` and `ovl_make_workdir` of Linux 6.18, and own measurements on it (2026-11-30).

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::find::{failed, join};
use crate::identity::fault::Fault;
use crate::identity::filesystem::is_overlay;
use crate::identity::links::{WORK_NAMES, open_list};
use crate::identity::mount::{Device, FileHandle, Location, MountTable, Overlap, Spelling, handle};
use crate::identity::object::{Birth, Look, mount_of};
use crate::identity::resolve::open_exact;

/// An overlay, by the mount that shows all of it.
#[derive(Debug)]
pub(crate) struct Stack {
    device: Device,
    mount: u64,
    point: PathBuf,
    top: Option<FileHandle>,
}

/// What an overlay shows at a path within it.
enum Shown {
    Nothing,
    /// Something that another mount covers, or that this user cannot look at.
    Hidden,
    Object(OwnedFd, PathBuf),
}

/// An object on a file system that may hold layers, at its place there.
#[derive(Debug)]
pub(crate) struct RealPlace<'a> {
    fd: BorrowedFd<'a>,
    name: &'a Path,
    location: Location,
    look: Look,
    handle: Option<FileHandle>,
    uuid: Option<[u8; 16]>,
}

/// Whether an object of a layer may lie on the file system of a [`RealPlace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// They are on different file systems.
    Apart,
    /// They may be on one, and numbers and handles tell its objects apart.
    Possible,
    /// It cannot be told.
    Unknown,
}

/// Whether a [`RealPlace`] lies in a layer, at a path at which it meets something on the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inside {
    No,
    /// It is what the overlay shows here.
    Is(PathBuf),
    /// It may be what the overlay shows here, or would show if nothing covered it.
    Perhaps(PathBuf),
}

impl Stack {
    /// Finds the root of an overlay; `None` where no mount that can be opened shows it.
    pub(crate) fn find(table: &MountTable, device: Device) -> Result<Option<Self>, Fault> {
        let whole = |root: &Path| root == Path::new("/");
        for mount in table.iter().filter(|mount| mount.device == device && whole(&mount.root)) {
            let fd = match open_exact(&mount.point) {
                Ok(fd) => fd,
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(failed(&mount.point, errno)),
                Err(_) => continue,
            };
            if mount.root_removed || mount_of(&fd, &mount.point)? != mount.id {
                continue;
            }
            let top = handle(&fd, &mount.point)?.filter(|top| top.layer().is_some());
            return Ok(Some(Self { device, mount: mount.id, point: mount.point.clone(), top }));
        }
        Ok(None)
    }

    /// The handle of its upper directory, or of its uppermost lower one where it has no upper; `None` where the kernel
    /// tells none: it does not of an overlay that a user without privileges mounted.
    pub(crate) fn top(&self) -> Option<&FileHandle> {
        self.top.as_ref()
    }

    fn show(&self, path: &Path) -> Result<Shown, Fault> {
        let mut name = self.point.clone();
        let mut shown = None;
        // Step by step: where another mount covers a step, what is not there proves nothing.
        for part in path.components().skip_while(|part| *part == std::path::Component::RootDir) {
            name.push(part);
            match open_exact(&name) {
                Ok(fd) if mount_of(&fd, &name)? == self.mount => shown = Some(fd),
                Ok(_) | Err(Errno::ACCESS | Errno::PERM) => return Ok(Shown::Hidden),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Shown::Nothing),
                Err(errno) => return Err(failed(&name, errno)),
            }
        }
        match shown {
            Some(fd) => Ok(Shown::Object(fd, name)),
            None => match open_exact(&name) {
                Ok(fd) if mount_of(&fd, &name)? == self.mount => Ok(Shown::Object(fd, name)),
                Ok(_) => Ok(Shown::Hidden),
                Err(errno) => Err(failed(&name, errno)),
            },
        }
    }

    /// The overlay's root, the directories above an object on it and the object, as far as they exist; `None` where one
    /// of them cannot be looked at.
    pub(crate) fn chain(&self, path: &Path) -> Result<Option<Vec<Step>>, Fault> {
        let mut chain = Vec::new();
        let steps: Vec<&Path> = path.ancestors().filter(|above| above.file_name().is_some()).collect();
        for step in std::iter::once(Path::new("")).chain(steps.into_iter().rev()) {
            match self.show(step)? {
                Shown::Nothing => break,
                Shown::Hidden => return Ok(None),
                Shown::Object(fd, name) => chain.push(Step {
                    path: step.into(),
                    handle: handle(&fd, &name)?.filter(|handle| handle.layer().is_some()),
                    born: Look::at(&fd, &name)?.id.born,
                }),
            }
        }
        Ok(Some(chain))
    }

    /// Whether an object is certainly not the one of which the overlay shows the times at `path`.
    ///
    /// Birth times never change. The time of a change never goes back, so that what is the same before and after a
    /// look at the other object was the same meanwhile.
    fn is_apart(&self, path: &Path, object: BorrowedFd<'_>, object_name: &Path) -> Result<bool, Fault> {
        let Shown::Object(fd, name) = self.show(path)? else { return Ok(false) };
        let before = Look::at(&fd, &name)?;
        let other = Look::at(object, object_name)?;
        let after = Look::at(&fd, &name)?;
        Ok(match (before.id.born, other.id.born) {
            (Some(shown), Some(other)) if shown != other => true,
            (Some(_), Some(_)) => before.changed == after.changed && before.changed != other.changed,
            _ => false,
        })
    }

    /// As [`is_apart`](Self::is_apart), of a directory that a search has found at this name.
    pub(crate) fn is_other(&self, path: &Path, found: &Path) -> Result<bool, Fault> {
        match open_exact(found) {
            Ok(fd) => self.is_apart(path, fd.as_fd(), found),
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => Err(failed(found, errno)),
            Err(_) => Ok(false),
        }
    }

    /// The handle of a file, and whether it is that of the very file that a write through the overlay changes as long as
    /// nothing is copied up: one of the upper layer, or one in a directory that a single lower layer makes alone. Of
    /// another nobody can tell whether it was copied up and keeps the handle of the lower one.
    pub(crate) fn file(&self, path: &Path) -> Result<Option<(FileHandle, bool)>, Fault> {
        let Shown::Object(fd, name) = self.show(path)? else { return Ok(None) };
        let Some(found) = handle(&fd, &name)? else { return Ok(None) };
        if found.layer().is_some_and(|layer| layer.upper) {
            return Ok(Some((found, true)));
        }
        for above in path.ancestors().skip(1).filter(|above| above.file_name().is_some()) {
            let Shown::Object(fd, name) = self.show(above)? else { return Ok(None) };
            let layer = handle(&fd, &name)?.and_then(|handle| handle.layer().copied());
            // A directory that several layers make has one link, whatever the layers have.
            if layer.is_some_and(|layer| !layer.upper) && Look::at(&fd, &name)?.links > 1 {
                return Ok(Some((found, true)));
            }
        }
        Ok(Some((found, false)))
    }

    /// Whether a place is the upper directory, or lies in a layer so that it meets what the overlay shows at `path`: is
    /// that, lies in it, or holds it.
    ///
    /// With `by_handle`, handles of both are believed: whoever asks knows that both may be on one file system, and that
    /// it is none of the roots of the layers.
    pub(crate) fn inside(
        &self,
        place: &RealPlace<'_>,
        path: &Path,
        by_handle: bool,
    ) -> Result<Inside, Fault> {
        let own: PathBuf = path.components().filter(is_name).collect();
        let names: Vec<_> = place.location.path.components().filter(is_name).collect();
        let mut perhaps = None;
        if !by_handle && !self.is_apart(Path::new(""), place.fd, place.name)? {
            perhaps = Some(self.point.clone());
        }
        for first in 0..names.len() {
            let rest: PathBuf = names[first..].iter().collect();
            let (rest, own) = (self.location(rest), self.location(own.clone()));
            // In the overlay's spelling as far as it has one.
            let at = match rest.overlap(&own, Spelling::Folded) {
                None => continue,
                Some(Overlap::Inside) => rest.path,
                Some(Overlap::Same | Overlap::Around) => {
                    own.path.components().take(rest.path.components().count()).collect()
                }
            };
            match self.show(&at)? {
                Shown::Nothing => {}
                Shown::Hidden => perhaps = Some(at),
                Shown::Object(fd, name) => {
                    if let Some(shown) = handle(&fd, &name)?.filter(|_| by_handle)
                        && let Some(own) = &place.handle
                    {
                        if shown.is_same_file(own) {
                            return Ok(Inside::Is(name));
                        }
                        // Its own handle, and not that of something below it.
                        if shown.layer().is_some_and(|layer| layer.upper) {
                            continue;
                        }
                    }
                    if !self.is_apart(&at, place.fd, place.name)? {
                        perhaps = Some(name);
                    }
                }
            }
        }
        Ok(perhaps.map_or(Inside::No, Inside::Perhaps))
    }

    fn location(&self, path: PathBuf) -> Location {
        Location { device: self.device, path }
    }
}

fn is_name(part: &std::path::Component<'_>) -> bool {
    matches!(part, std::path::Component::Normal(_))
}

/// One step of a path on an overlay.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The path on the overlay; empty for its root.
    pub(crate) path: PathBuf,
    pub(crate) handle: Option<FileHandle>,
    pub(crate) born: Option<Birth>,
}

impl<'a> RealPlace<'a> {
    /// Looks at a place; `None` where it lies on an overlay itself.
    pub(crate) fn look(
        fd: BorrowedFd<'a>,
        name: &'a Path,
        location: Location,
    ) -> Result<Option<Self>, Fault> {
        let look = Look::at(fd, name)?;
        if is_overlay(fd, name)? {
            return Ok(None);
        }
        let handle = handle(fd, name)?;
        // Nothing but a directory is opened for reading: it might be a device.
        let readable = (look.file_type == FileType::Directory).then(|| open_list(fd)).and_then(Result::ok);
        let uuid = readable.and_then(|fd| crate::sys::mount::uuid(fd).ok().flatten());
        Ok(Some(Self { fd, name, location, look, handle, uuid }))
    }

    /// The object.
    pub(crate) fn object(&self) -> &Look {
        &self.look
    }

    /// Whether it has the form of a directory that the kernel makes in the work directory of an overlay.
    pub(crate) fn is_work_directory(&self) -> bool {
        let name = self.location.path.file_name().map(OsStrExt::as_bytes);
        self.look.file_type == FileType::Directory
            && self.look.mode == 0
            && name.is_some_and(|name| WORK_NAMES.contains(&name))
    }

    /// Whether it is an object of a layer that may lie on its file system.
    pub(crate) fn is(&self, object: &FileHandle) -> bool {
        self.handle.as_ref().is_some_and(|own| own.is_same_file(object))
    }

    /// Whether an object of a layer, by the handle that the overlay tells, may lie on the same file system.
    pub(crate) fn sharing(&self, object: &FileHandle) -> Sharing {
        if object.inode().is_none() {
            // A file system that is made of others may be made of this one.
            return Sharing::Unknown;
        }
        let Some(handle) = &self.handle else { return Sharing::Unknown };
        if !object.has_form_of(handle) {
            return Sharing::Apart;
        }
        let theirs = object.layer().map(|layer| layer.uuid).filter(|uuid| *uuid != [0; 16]);
        if let (Some(own), Some(theirs)) = (self.uuid, theirs)
            && own != [0; 16]
            && own != theirs
        {
            return Sharing::Apart;
        }
        if handle.inode() == Some(self.look.id.inode) { Sharing::Possible } else { Sharing::Unknown }
    }
}

/// When what lies at a path without links was born; `None` where nothing lies there or nothing tells.
pub(crate) fn born_at(path: &Path) -> Result<Option<Birth>, Fault> {
    match open_exact(path) {
        Ok(fd) => Ok(Look::at(fd, path)?.id.born),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(failed(path, errno)),
    }
}

/// Opens what lies at a place within a file system, through any mount that shows it, or the lowest directory above it
/// that exists: the descriptor, its name, and its own place. `None` where no mount shows it.
pub(crate) fn open_location(
    table: &MountTable,
    sought: &Location,
) -> Result<Option<(OwnedFd, PathBuf, Location)>, Fault> {
    for path in sought.path.ancestors() {
        let mut is_covered = false;
        for mount in table.iter().filter(|mount| mount.device == sought.device && !mount.root_removed) {
            let Ok(rest) = path.strip_prefix(&mount.root) else { continue };
            let name = join(&mount.point, rest);
            match open_exact(&name) {
                Ok(fd) if mount_of(&fd, &name)? == mount.id => {
                    let location = Location { device: sought.device, path: path.into() };
                    return Ok(Some((fd, name, location)));
                }
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(failed(&name, errno)),
                // A directory above it instead would not be what is there.
                Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
                Ok(_) => is_covered = true,
                Err(_) => {}
            }
        }
        if is_covered {
            return Ok(None);
        }
    }
    Ok(None)
}
