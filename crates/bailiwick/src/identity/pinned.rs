//! Objects that were found by a path once and are held by a descriptor from then on.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, Mode, OFlags, readlinkat};
use rustix::io::Errno;

use super::access::check_access;
use super::ancestors::{Walk, node_at};
use super::fault::{Fault, Role};
use super::filesystem::is_overlay;
use super::mount::MountTable;
use super::object::{Key, Look, Node, ObjectId, type_name};
use super::resolve::{Place, Want, name_of, open_canonical, open_entry, open_spelling, place_of};
use crate::error::{Error, ErrorKind, SystemCall};
use crate::policy::path_fault;

/// A directory, opened once.
///
/// It keeps the path as the caller wrote it, for messages, and the canonical path: absolute, without a symbolic
/// link, a link of the kernel, `.` or `..` in it, and true at the moment of opening.
///
/// The descriptor is `O_PATH`: by itself it neither reads nor writes anything, and it is closed on exec.
///
/// # Security
/// What is compared, and what the kernel's rule is made from, is this descriptor. Never open the path again.
#[derive(Debug)]
pub struct PinnedDir {
    fd: OwnedFd,
    given: PathBuf,
    canonical: PathBuf,
    id: ObjectId,
}

impl PinnedDir {
    /// Opens the directory that a path names.
    ///
    /// First the caller's spelling, symbolic links followed; then the name that the kernel has for what was
    /// found, links refused. Both must be one object on one mount, or somebody is renaming in between.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let first = open_spelling(path, Want::Directory)?;
        let seen = Look::at(&first, path)?;
        let canonical = name_of(&first)?;
        let fd = match open_canonical(&canonical) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if seen.links == 0 => return Err(Fault::Gone),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(Fault::Changed { expected: seen.id, found: None });
            }
            Err(errno) => return Err(Fault::from_call(SystemCall::new("openat2", &canonical, errno))),
        };
        let id = Look::at(&fd, &canonical)?.id;
        if id.node() != seen.id.node() {
            return Err(Fault::Changed { expected: seen.id, found: Some(id) });
        }
        Ok(Self { fd, given: path.into(), canonical, id })
    }

    /// Opens a directory by its name in one that is pinned. A symbolic link there is refused.
    pub(crate) fn open_beneath(parent: &Self, entry: &Path) -> Result<Self, Fault> {
        let canonical = parent.canonical.join(entry);
        let fd = open_entry(parent, entry, Want::Directory).map_err(|errno| match errno {
            Errno::NOTDIR | Errno::LOOP => match Look::entry(parent, entry, &canonical) {
                Ok(look) => Fault::NotDirectory { found: type_name(look.file_type) },
                Err(fault) => fault,
            },
            errno => Fault::from_call(SystemCall::new("openat2", &canonical, errno)),
        })?;
        let id = Look::at(&fd, &canonical)?.id;
        Ok(Self { fd, given: canonical.clone(), canonical, id })
    }

    /// Opens the working directory of a command. It need not be writable, nor lie in a write root.
    ///
    /// # Errors
    /// `CwdInvalid` for a path that is not absolute or passes through a link of the kernel; `CwdNotFound`,
    /// `CwdNotDirectory`, `CwdNotAccessible`.
    ///
    /// # Security
    /// Hand the descriptor on; a later `chdir` to the path may lead elsewhere.
    pub fn working_directory(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (path, role) = (path.as_ref(), Role::WorkingDirectory);
        if let Some(fault) = path_fault(path) {
            return Err(role.error(ErrorKind::CwdInvalid, fault.text(), path).hint(fault.hint()));
        }
        let dir = Self::open(path).map_err(|fault| role.fault(fault, path))?;
        check_access(&dir, Access::empty(), path).map_err(|fault| role.fault(fault, path))?;
        Ok(dir)
    }

    /// The path as the caller wrote it.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// The canonical path, as it was when the directory was opened.
    #[must_use]
    pub fn canonical(&self) -> &Path {
        &self.canonical
    }

    /// Which object it is.
    #[must_use]
    pub fn id(&self) -> &ObjectId {
        &self.id
    }

    /// The type of its file system, by the mount table; `None` where that does not tell.
    pub(crate) fn fs_type(&self) -> Option<String> {
        MountTable::read().ok()?.get(self.id.mount).map(|mount| mount.fs_type.clone())
    }

    /// A second descriptor for the same object.
    pub(crate) fn duplicate(&self) -> Result<Self, Fault> {
        let fd = self.fd.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Fault::from_call(SystemCall::new("fcntl", &self.canonical, errno))
        })?;
        Ok(Self { fd, given: self.given.clone(), canonical: self.canonical.clone(), id: self.id })
    }

    /// Whether the canonical path, without a link in it, still names this object on this mount.
    pub(crate) fn check_name(&self) -> Result<(), Fault> {
        if node_at(&self.canonical)? == Some(self.id.node()) {
            return Ok(());
        }
        match open_spelling(&self.canonical, Want::Anything).and_then(|fd| Look::at(fd, &self.canonical)) {
            Ok(look) => Err(Fault::Changed { expected: self.id, found: Some(look.id) }),
            Err(Fault::NotFound { .. }) => Err(Fault::Gone),
            Err(fault) => Err(fault),
        }
    }

    /// The chain of directories from this one up to `/`, as it is now.
    pub(crate) fn chain(&self, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
        walk.chain(&self.fd, &self.canonical)
    }

    /// Its present path, and the mount through which that leads to it; `None` when it has been removed.
    fn place_now(&self) -> Result<Option<(u64, PathBuf)>, Fault> {
        match place_of(&self.fd) {
            Ok(Place::In { dir_path, entry, .. }) => Ok(Some((self.id.mount, dir_path.join(entry)))),
            // `/` lies in no directory.
            Err(Fault::Gone) if self.canonical == Path::new("/") => {
                Ok(Some((self.id.mount, self.canonical.clone())))
            }
            Ok(Place::Nameless) => Ok(None),
            // The name is stable and leads to it through another mount: somebody mounted a directory above it on itself.
            Err(Fault::Changed { found: Some(found), .. }) if found.key() == self.id.key() => {
                Ok(Some((found.mount, name_of(&self.fd)?)))
            }
            Err(Fault::Changed { .. }) => Err(Fault::Covered),
            Err(fault) => Err(fault),
        }
    }
}

impl AsFd for PinnedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A protected object that is no directory, opened once, together with the directory that holds it.
#[derive(Debug)]
pub(crate) struct PinnedFile {
    fd: OwnedFd,
    id: ObjectId,
    at: PinnedName,
}

/// A name in a pinned directory, whatever it names, if anything.
#[derive(Debug)]
pub(crate) struct PinnedName {
    dir: PinnedDir,
    entry: PathBuf,
    given: PathBuf,
    canonical: PathBuf,
}

impl PinnedName {
    pub(crate) fn new(dir: PinnedDir, entry: impl Into<PathBuf>, given: impl Into<PathBuf>) -> Self {
        let entry = entry.into();
        Self { canonical: dir.canonical.join(&entry), dir, entry, given: given.into() }
    }

    /// The directory in which the name is.
    pub(crate) fn dir(&self) -> &PinnedDir {
        &self.dir
    }

    /// The name in the directory.
    pub(crate) fn entry(&self) -> &Path {
        &self.entry
    }

    /// The path: that of the directory as it was when it was opened, and the name.
    pub(crate) fn canonical(&self) -> &Path {
        &self.canonical
    }

    pub(crate) fn duplicate(&self) -> Result<Self, Fault> {
        Ok(Self::new(self.dir.duplicate()?, self.entry.clone(), self.given.clone()))
    }
}

impl PinnedFile {
    /// Opens the object that a path names, symbolic links followed, and the directory that really holds it.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let first = open_spelling(path, Want::Anything)?;
        let seen = Look::at(&first, path)?;
        let canonical = name_of(&first)?;
        let (Some(dir), Some(entry)) = (canonical.parent(), canonical.file_name()) else {
            return Err(Fault::NotDirectory { found: type_name(seen.file_type) });
        };
        let dir = PinnedDir::open(dir)?;
        let fd = match open_entry(&dir, Path::new(entry), Want::Anything) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if seen.links == 0 => return Err(Fault::Gone),
            Err(_) => return Err(Fault::Changed { expected: seen.id, found: None }),
        };
        let id = Look::at(&fd, &canonical)?.id;
        if id.node() != seen.id.node() {
            return Err(Fault::Changed { expected: seen.id, found: Some(id) });
        }
        let at = PinnedName::new(dir, entry, path);
        Ok(Self { fd, id, at })
    }

    /// Opens what a name in a pinned directory names; a symbolic link itself, not its target.
    pub(crate) fn at(name: PinnedName) -> Result<Self, Fault> {
        let fd = open_entry(&name.dir, &name.entry, Want::Anything)
            .map_err(|errno| Fault::from_call(SystemCall::new("openat2", &name.canonical, errno)))?;
        let id = Look::at(&fd, &name.canonical)?.id;
        Ok(Self { fd, id, at: name })
    }

    /// The name by which it was opened.
    pub(crate) fn name(&self) -> &PinnedName {
        &self.at
    }

    /// Looks at it again.
    pub(crate) fn look(&self) -> Result<Look, Fault> {
        Look::at(&self.fd, &self.at.canonical)
    }

    /// Its inode number.
    pub(crate) fn inode(&self) -> u64 {
        self.id.inode
    }

    /// Whether it lies on an overlay file system, where numbers differ by how one asks.
    pub(crate) fn is_overlaid(&self) -> Result<bool, Fault> {
        is_overlay(&self.fd, &self.at.canonical)
    }

    /// The directories above it now: those above its name, and, where the file has been moved since, those above
    /// its new place too.
    ///
    /// A file whose name was given to another one (an ordinary atomic save) stays protected at that name. What
    /// other names the old file may still have is for the comparison of hard links to find.
    fn chain(&self, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
        let mut chain = self.at.dir.chain(walk)?;
        let at_name = match Look::entry(&self.at.dir, &self.at.entry, &self.at.canonical) {
            Ok(look) => Some(look.id.node()),
            Err(Fault::NotFound { .. }) => None,
            Err(fault) => return Err(fault),
        };
        if at_name != Some(self.id.node()) && Look::at(&self.fd, &self.at.canonical)?.links > 0 {
            chain.extend(walk.chain_of_place(&self.fd)?);
        }
        Ok(chain)
    }
}

/// A protected object.
#[derive(Debug)]
pub(crate) enum Pin {
    Directory(PinnedDir),
    File(PinnedFile),
    /// A name at which something protected will be made, or lies where this user cannot look.
    Unseen(PinnedName),
}

/// Where a protected object is now, by its present name.
#[derive(Debug)]
pub(crate) struct Here {
    /// The mount on which it is seen.
    pub(crate) mount: u64,
    /// Its canonical path.
    pub(crate) path: PathBuf,
    /// The object, if it exists.
    pub(crate) key: Option<Key>,
    /// The last part of the path, for everything but a directory that exists and a file that is a mount point.
    pub(crate) entry: Option<OsString>,
}

impl Pin {
    /// Where it is now; `None` when it, or the directory that holds it, has been removed: nothing is in it any more,
    /// under any name.
    ///
    /// # Errors
    /// `Gone` on a mount that was detached; `Covered` where another mount took its name.
    pub(crate) fn here(&self) -> Result<Option<Here>, Fault> {
        let name = match self {
            Self::Directory(dir) => {
                let here = dir.place_now()?;
                return Ok(here.map(|(mount, path)| Here {
                    mount,
                    path,
                    key: Some(dir.id.key()),
                    entry: None,
                }));
            }
            Self::File(file) => &file.at,
            Self::Unseen(name) => name,
        };
        let Some((mount, holder)) = name.dir.place_now()? else { return Ok(None) };
        let path = holder.join(&name.entry);
        let found = match Look::entry(&name.dir, &name.entry, &path) {
            Ok(look) => Some(look.id),
            Err(Fault::NotFound { .. }) => None,
            // A directory that may not be searched.
            Err(Fault::Denied(_)) => None,
            Err(fault) => return Err(fault),
        };
        // A file can be a mount point by itself: then no directory of that mount holds it.
        let own = found.map(|id| id.mount).filter(|own| *own != name.dir.id.mount);
        Ok(Some(Here {
            mount: own.unwrap_or(mount),
            path,
            key: found.map(|id| id.key()),
            entry: own.is_none().then(|| name.entry.clone().into_os_string()),
        }))
    }

    /// Whether its path, without a link in it, still leads to it: to the directory that would hold it, for what is not
    /// seen.
    pub(crate) fn is_at_its_name(&self) -> bool {
        match self {
            Self::Directory(dir) => dir.check_name().is_ok(),
            Self::File(file) => {
                let at = Look::entry(&file.at.dir, &file.at.entry, &file.at.canonical);
                at.is_ok_and(|look| look.id.node() == file.id.node()) && file.at.dir.check_name().is_ok()
            }
            Self::Unseen(name) => name.dir.check_name().is_ok(),
        }
    }

    /// The directory that holds it, where that is what is held on to.
    pub(crate) fn holder_key(&self) -> Option<Key> {
        match self {
            Self::Directory(_) => None,
            Self::File(file) => Some(file.at.dir.id.key()),
            Self::Unseen(name) => Some(name.dir.id.key()),
        }
    }

    /// Pins whatever a path names.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        match PinnedDir::open(path) {
            Ok(dir) => Ok(Self::Directory(dir)),
            Err(Fault::NotDirectory { .. }) => PinnedFile::open(path).map(Self::File),
            Err(fault) => Err(fault),
        }
    }

    /// The descriptor of the object, if it exists.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Directory(dir) => Some(dir.fd.as_fd()),
            Self::File(file) => Some(file.fd.as_fd()),
            Self::Unseen(_) => None,
        }
    }

    /// The object itself, if it exists.
    pub(crate) fn id(&self) -> Option<&ObjectId> {
        match self {
            Self::Directory(dir) => Some(&dir.id),
            Self::File(file) => Some(&file.id),
            Self::Unseen(_) => None,
        }
    }

    pub(crate) fn given(&self) -> &Path {
        match self {
            Self::Directory(dir) => &dir.given,
            Self::File(file) => &file.at.given,
            Self::Unseen(name) => &name.given,
        }
    }

    pub(crate) fn canonical(&self) -> &Path {
        match self {
            Self::Directory(dir) => &dir.canonical,
            Self::File(file) => &file.at.canonical,
            Self::Unseen(name) => &name.canonical,
        }
    }

    /// The directories above the object as they are now, the object itself left out.
    pub(crate) fn above(&self, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
        match self {
            Self::Directory(dir) => {
                let mut chain = dir.chain(walk)?;
                chain.remove(0);
                Ok(chain)
            }
            Self::File(file) => file.chain(walk),
            Self::Unseen(name) => name.dir.chain(walk),
        }
    }
}

/// Pins the executable of this process; `Ok(None)` when no name leads to it any more (an upgrade replaced it), or
/// ever did (a memfd).
///
/// A process that gave up its privileges may be unable to reach its own executable by name. Then the name is
/// pinned in the lowest directory that this user can open: a root around the executable is that one or one above.
pub(crate) fn host_executable() -> Result<Option<Pin>, Fault> {
    const LINK: &str = "/proc/self/exe";
    let failed = |call, errno| Fault::from_call(SystemCall::new(call, LINK, errno));
    // A link of the kernel on purpose: it leads to the file that runs, whatever its name leads to now.
    let running = rustix::fs::open(LINK, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed("open", errno))?;
    let running = Look::at(running, Path::new(LINK))?.id;
    let name = readlinkat(CWD, LINK, Vec::new()).map_err(|errno| failed("readlink", errno))?;
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    match PinnedFile::open(name) {
        // Not the mount: `/proc/self/exe` keeps the one through which the program was started.
        Ok(file) if file.id.key() == running.key() => Ok(Some(Pin::File(file))),
        Ok(_) | Err(Fault::NotFound { .. } | Fault::Gone | Fault::Changed { .. }) => Ok(None),
        Err(fault @ Fault::Denied(_)) => {
            for above in name.ancestors().skip(1) {
                if let (Ok(dir), Ok(entry)) = (PinnedDir::open(above), name.strip_prefix(above)) {
                    return Ok(Some(Pin::Unseen(PinnedName::new(dir, entry, name))));
                }
            }
            Err(fault)
        }
        Err(fault) => Err(fault),
    }
}
