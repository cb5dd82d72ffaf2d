//! The mount view of a grant: everything read-only, the roots writable, and what is the session's own in place of
//! what is the host's.
//!
//! It begins as a copy of the mounts that the host has at that moment, and no later mount of the host reaches it. It is
//! built by a process of its own, outside of every Landlock domain, since mounting is refused inside one; launchers
//! enter it by its descriptor. Nobody who enters it for a command keeps a capability, so nobody can change it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use bailiwick_wire::{Hidden, Lacking, Part, Place, Plan, Reader, Step, Writer};

use super::mounts::{self, Mount};
use crate::switches::{Switch, without};
use crate::sys::{self, Errno, Seen};

/// What a launcher needs to enter the view, and to look at it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) namespace: OwnedFd,
    /// The root directory, on the view's mount.
    pub(crate) root: OwnedFd,
    /// The directory of the sentinel, on the view's mount.
    pub(crate) outside: OwnedFd,
    /// The temporary directory, on the view's mount.
    pub(crate) inside: OwnedFd,
}

/// Why there is no view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewFailure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
    /// Position of the root that it is about.
    pub(crate) root: Option<u32>,
}

/// What the builder says to the worker.
pub(crate) type Built = Result<Vec<Lacking>, ViewFailure>;

fn at(step: Step) -> impl Fn(Errno) -> ViewFailure {
    move |errno| ViewFailure { step, errno, root: None }
}

/// Rights of Landlock that rules for the view's own file systems give, where the ruleset handles them.
mod right {
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const MAKE_CHAR: u64 = 1 << 6;
    pub(super) const MAKE_BLOCK: u64 = 1 << 11;
    pub(super) const TRUNCATE: u64 = 1 << 14;
    pub(super) const IOCTL_DEV: u64 = 1 << 15;
    pub(super) const TERMINAL: u64 = READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV;
    pub(super) const FILE: u64 = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV;
    pub(super) const NEVER: u64 = MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV;
}

/// The ruleset of the grant, which gets rules for what only the view has.
pub(crate) struct Rules<'a> {
    pub(crate) ruleset: &'a OwnedFd,
    /// The rights that it handles.
    pub(crate) handled: u64,
    /// `/proc` may be listed, not read.
    pub(crate) proc_is_list_only: bool,
}

impl Rules<'_> {
    fn add(&self, beneath: &OwnedFd, rights: u64) -> sys::Result<()> {
        sys::add_rule(self.ruleset, beneath, rights & self.handled)
    }
}

/// Builds the view. This process lives in it from then on.
///
/// # Errors
/// Which step failed; the process is of no use then.
pub(crate) fn build(plan: &Plan, rules: &Rules<'_>) -> Result<(View, Vec<Lacking>), ViewFailure> {
    sys::unshare(sys::CLONE_NEWNS).map_err(at(Step::Namespaces))?;
    sys::make_private().map_err(at(Step::MountPrivate))?;
    let namespace = sys::open_at(sys::AT_FDCWD, c"/proc/self/ns/mnt", 0, 0).map_err(at(Step::Namespaces))?;
    let places = plan.roots.iter().chain([&plan.temporary]);
    let mut writable = Vec::new();
    for (number, place) in (0_u32..).zip(places) {
        let root = (usize::try_from(number) != Ok(plan.roots.len())).then_some(number);
        let failed = |step| move |errno| ViewFailure { step, errno, root };
        let (path, found) = open(place).map_err(failed(Step::MountIdentity))?;
        let tree = sys::clone_tree(&found).map_err(failed(Step::MountRoot))?;
        if !is_at(place, sys::look(tree.as_raw_fd()).map_err(failed(Step::MountRoot))?) {
            return Err(failed(Step::MountIdentity)(Errno::STALE));
        }
        sys::attach(&tree, &found).map_err(failed(Step::MountRoot))?;
        writable.push(path);
    }
    let table = mounts::read().map_err(at(Step::MountReadOnly))?;
    let top = sys::open_place(c"/", sys::O_DIRECTORY).map_err(at(Step::MountReadOnly))?;
    sys::set_attributes(&top, sys::ATTR_RDONLY, 0, true).map_err(at(Step::MountReadOnly))?;
    for path in &writable {
        unlock(path, &table).map_err(at(Step::MountReadOnly))?;
    }
    let mut lacking = Vec::new();
    let mut own = |part, made: sys::Result<()>| {
        if let Err(errno) = made {
            lacking.push(Lacking { part, step: Step::MountOwn, errno: errno.0 });
        }
    };
    own(Part::OwnProc, own_proc(rules));
    own(Part::OwnTerminals, own_terminals(rules));
    own(Part::OwnSharedMemory, own_shared_memory(rules));
    let (_, outside) = open(&plan.outside).map_err(at(Step::MountIdentity))?;
    let (_, inside) = open(&plan.temporary).map_err(at(Step::MountIdentity))?;
    for hidden in &plan.hidden {
        hide(hidden).map_err(at(Step::MountHidden))?;
    }
    let root = sys::open_place(c"/", sys::O_DIRECTORY).map_err(at(Step::MountReadOnly))?;
    Ok((View { namespace, root, outside, inside }, lacking))
}

/// Opens a place and proves that it is what was judged.
fn open(place: &Place) -> sys::Result<(CString, OwnedFd)> {
    let path = sys::c_path(&place.path)?;
    let found = sys::open_place(&path, 0)?;
    if is_at(place, sys::look(found.as_raw_fd())?) { Ok((path, found)) } else { Err(Errno::STALE) }
}

fn is_at(place: &Place, seen: Seen) -> bool {
    (seen.device, seen.inode) == (place.device, place.inode)
}

/// Makes the mount at a path writable again, and each below it that was.
///
/// One by one: in a user namespace, mounts that were read-only when it was made are locked, and a change of the whole tree
/// would fail on the first of these. One that is covered by another cannot be reached by its path, and stays read-only.
fn unlock(path: &CStr, table: &[Mount]) -> sys::Result<()> {
    let root = sys::open_place(path, sys::O_DIRECTORY)?;
    sys::set_attributes(&root, 0, sys::ATTR_RDONLY, false)?;
    let mount = sys::look(root.as_raw_fd())?.mount;
    for below in mounts::below(table, mount).into_iter().filter(|mount| !mount.is_read_only) {
        let Ok(place) = sys::open_place(&sys::c_path(&below.point)?, 0) else { continue };
        if sys::look(place.as_raw_fd())?.mount == below.id {
            sys::set_attributes(&place, 0, sys::ATTR_RDONLY, false)?;
        }
    }
    Ok(())
}

const PLAIN: u64 = sys::ATTR_NOSUID | sys::ATTR_NODEV | sys::ATTR_NOEXEC;

/// `/proc` of the session's pid namespace. A container that masks parts of its own `/proc` forbids another one.
fn own_proc(rules: &Rules<'_>) -> sys::Result<()> {
    if without(Switch::PidNamespace) {
        return Err(Errno::OPNOTSUPP);
    }
    let onto = sys::open_place(c"/proc", sys::O_DIRECTORY)?;
    let tree = sys::new_file_system(c"proc", &[], PLAIN | sys::ATTR_RDONLY)?;
    let rights = if rules.proc_is_list_only { right::READ_DIR } else { right::READ_FILE | right::READ_DIR };
    rules.add(&tree, rights)?;
    sys::attach(&tree, &onto)
}

/// Terminals of the session's own, so that a command can open one and reaches none of the host's.
fn own_terminals(rules: &Rules<'_>) -> sys::Result<()> {
    let onto = sys::open_place(c"/dev/pts", sys::O_DIRECTORY)?;
    let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
    let tree = sys::new_file_system(c"devpts", &options, sys::ATTR_NOSUID | sys::ATTR_NOEXEC)?;
    sys::attach(&tree, &onto)?;
    let maker = sys::open_place(c"/dev/pts/ptmx", 0)?;
    if let Ok(old) = sys::open_place(c"/dev/ptmx", 0) {
        // A link there leads to the one in the directory already, and cannot be opened so.
        sys::attach(&sys::clone_tree(&maker)?, &old)?;
    }
    rules.add(&maker, right::FILE)?;
    rules.add(&sys::open_place(c"/dev/pts", sys::O_DIRECTORY)?, right::TERMINAL)?;
    // It stands for the terminal that the process itself has, which can only be one of these.
    match sys::open_place(c"/dev/tty", 0) {
        Ok(tty) => rules.add(&tty, right::FILE),
        Err(_) => Ok(()),
    }
}

/// Shared memory of the grant's own.
fn own_shared_memory(rules: &Rules<'_>) -> sys::Result<()> {
    // Where there is none, nothing uses it.
    let Ok(onto) = sys::open_place(c"/dev/shm", sys::O_DIRECTORY) else { return Ok(()) };
    let tree = sys::new_file_system(c"tmpfs", &[(c"mode", c"1777")], PLAIN)?;
    rules.add(&tree, !right::NEVER)?;
    sys::attach(&tree, &onto)
}

/// Covers a protected object, if it is there: by an empty directory that nobody may enter, or by a device that cannot be
/// opened on its mount.
fn hide(hidden: &Hidden) -> sys::Result<()> {
    let path = sys::c_path(&hidden.place.path)?;
    let found = match sys::open_place(&path, 0) {
        // It has gone, or is where this user cannot look, and no command can.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCES) => return Ok(()),
        found => found?,
    };
    if !is_at(&hidden.place, sys::look(found.as_raw_fd())?) {
        return Ok(());
    }
    let cover = if hidden.is_directory {
        sys::new_file_system(c"tmpfs", &[(c"mode", c"0"), (c"size", c"4096")], PLAIN | sys::ATTR_RDONLY)?
    } else {
        let null = sys::open_place(c"/dev/null", 0)?;
        let cover = sys::clone_tree(&null)?;
        sys::set_attributes(&cover, PLAIN | sys::ATTR_RDONLY, 0, false)?;
        cover
    };
    sys::attach(&cover, &found)
}

/// What the builder sends; the descriptors of a view travel beside it.
pub(crate) fn encode(built: &Built) -> Vec<u8> {
    let mut writer = Writer::new(built.is_ok().into());
    match built {
        Ok(lacking) => {
            writer.list(lacking, |w, lacking| lacking.write(w));
        }
        Err(ViewFailure { step, errno, root }) => {
            writer.u8(*step as u8).i32(errno.0).u8(root.is_some().into()).u32(root.unwrap_or(0));
        }
    }
    writer.finish()
}

/// Reads [`encode`].
pub(crate) fn decode(bytes: &[u8]) -> Option<Built> {
    let mut reader = Reader::new(bytes);
    if reader.flag("built").ok()? {
        return reader.list("lacking", Lacking::read).ok().map(Ok);
    }
    let step = Step::from_number(reader.u8("step").ok()?).ok()?;
    let errno = Errno(reader.i32("errno").ok()?);
    let (names_root, root) = (reader.flag("names root").ok()?, reader.u32("root").ok()?);
    Some(Err(ViewFailure { step, errno, root: names_root.then_some(root) }))
}
