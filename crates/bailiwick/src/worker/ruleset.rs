//! Landlock rulesets, built here and entered by the worker: a ruleset restricts nobody until a process
//! enters it, and its descriptor can be passed.
//!
//! So the descriptor that the guard judged is the very one that goes into the rule, and no path is
//! opened by name again.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use super::cause::landlock_missing;
use crate::error::{Error, ErrorKind, SystemCall};
use crate::guard::ReadPin;

/// The ruleset that all commands of a session share: signals and abstract sockets stop at it (Landlock
/// ABI 6, Linux 6.12). Where the kernel has no scopes the ruleset restricts nothing, and the probes find
/// signals and abstract sockets open.
///
/// Every Landlock layer denies to move files between directories unless it grants `refer` there, also one
/// that handles no right of files at all. So this one grants it everywhere, and leaves the decision to
/// the layer of the grant.
///
/// # Errors
/// The kernel takes no ruleset at all.
///
/// # Source
/// `landlock(7)` on `LANDLOCK_ACCESS_FS_REFER`; that it holds for a layer of scopes was measured (Linux 6.18).
pub(crate) fn scope() -> Result<OwnedFd, Error> {
    let refer =
        || Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer);
    let ruleset = refer()
        .and_then(|ruleset| ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .and_then(Ruleset::create)
        .or_else(|_| refer().and_then(Ruleset::create))
        .map_err(landlock_missing)?;
    let ruleset = match open("/")? {
        Some(root) => {
            ruleset.add_rule(PathBeneath::new(root.as_fd(), AccessFs::Refer)).map_err(rule_failed)?
        }
        None => ruleset,
    };
    descriptor(ruleset)
}

fn rule_failed(error: landlock::RulesetError) -> Error {
    Error::new(ErrorKind::GrantFailed, "the kernel did not take a rule of the grant").source(error)
}

fn descriptor(ruleset: RulesetCreated) -> Result<OwnedFd, Error> {
    Option::<OwnedFd>::from(ruleset).ok_or_else(|| landlock_missing("the ruleset has no descriptor"))
}

/// A ruleset that handles the rights of ABI 5 (Linux 6.10), else those of ABI 3 (6.2), else of ABI 2 (5.19). The last does
/// not govern `truncate` of a file outside the roots: a mount view does, and where there is none, the probes find that
/// content is not kept. Below it files cannot be moved between directories of a root.
///
/// Each set is tried by making a ruleset, since a kernel may claim a version whose rights it refuses.
fn create() -> Result<(BitFlags<AccessFs>, RulesetCreated), Error> {
    let with = |rights: BitFlags<AccessFs>| {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(rights)
            .and_then(Ruleset::create)
    };
    for abi in [ABI::V5, ABI::V3] {
        let rights = AccessFs::from_all(abi);
        if let Ok(ruleset) = with(rights) {
            return Ok((rights, ruleset));
        }
    }
    let oldest = AccessFs::from_all(ABI::V2);
    with(oldest).map(|ruleset| (oldest, ruleset)).map_err(landlock_missing)
}

/// Devices that every command may use, though they lie outside its roots: they hold no state.
const PLAIN_DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Devices for terminals of a command's own. They reach every terminal of the same user.
const TERMINAL_DEVICES: &[&str] = &["/dev/ptmx", "/dev/tty", "/dev/pts"];

/// The ruleset of a grant: write below `roots`, and read there, and what `reads` names: everything but devices where it
/// names nothing. With the rights that it handles.
///
/// # Errors
/// [`ErrorKind::PlatformUnsupported`] where Landlock lacks a right that every session needs, and
/// [`ErrorKind::GrantFailed`] where a rule is not taken.
///
/// # Kernel
/// Landlock ABI 2 (Linux 5.19); `truncate` from ABI 3 (6.2), device ioctls from ABI 5 (6.10).
pub(crate) fn grant(
    roots: &[BorrowedFd<'_>],
    reads: Option<&[ReadPin]>,
    terminals: bool,
) -> Result<(OwnedFd, u64), Error> {
    let (handled, mut ruleset) = create()?;
    // Requests to devices are refused below the roots too: none can be made there, so whatever lies there
    // was not made by a command.
    let look = AccessFs::Execute | AccessFs::ReadDir;
    let below_root = handled & !(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::IoctlDev);
    // `/dev/zero` is a plain device without requests of its own; that a request to it is refused is
    // what the probe of this right looks for.
    let plain = handled & (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate);
    let terminal = handled
        & (AccessFs::ReadFile
            | AccessFs::WriteFile
            | AccessFs::ReadDir
            | AccessFs::Truncate
            | AccessFs::IoctlDev);

    match (reads, open("/")?) {
        (Some(reads), _) => {
            for read in reads {
                let Some(object) = read.pin().fd() else { continue };
                let file = AccessFs::Execute | AccessFs::ReadFile;
                let rights = if read.directory().is_some() { file | AccessFs::ReadDir } else { file };
                ruleset = ruleset.add_rule(PathBeneath::new(object, rights)).map_err(rule_failed)?;
            }
            // Shells list `/dev/fd`. What is in a file of `/proc`, of whatever process, is not for commands.
            if let Some(proc) = open("/proc")? {
                ruleset = ruleset.add_rule(PathBeneath::new(proc, AccessFs::ReadDir)).map_err(rule_failed)?;
            }
        }
        (None, Some(root)) => {
            ruleset = ruleset.add_rule(PathBeneath::new(root.as_fd(), look)).map_err(rule_failed)?;
            for object in readable(&root)? {
                let read = PathBeneath::new(object, AccessFs::ReadFile);
                ruleset = ruleset.add_rule(read).map_err(rule_failed)?;
            }
        }
        (None, None) => {}
    }
    for directory in roots {
        ruleset = ruleset.add_rule(PathBeneath::new(directory, below_root)).map_err(rule_failed)?;
    }
    let devices = PLAIN_DEVICES.iter().map(|path| (path, plain));
    let terminals = TERMINAL_DEVICES.iter().filter(|_| terminals).map(|path| (path, terminal));
    for (path, rights) in devices.chain(terminals) {
        // A host without the device has nothing to grant.
        let Some(device) = open(path)? else { continue };
        let directory =
            rustix::fs::fstat(&device).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        let rights = if directory { rights } else { rights & !BitFlags::from(AccessFs::ReadDir) };
        ruleset = ruleset.add_rule(PathBeneath::new(device.as_fd(), rights)).map_err(rule_failed)?;
    }
    Ok((descriptor(ruleset)?, handled.bits()))
}

/// What may be read: everything below `/` but devices, of which only the plain ones.
///
/// Whoever can open a terminal of the same user can take away what is typed there, and whoever can open a
/// disk reads past every mode. Landlock cannot refuse beneath a directory what a rule on it grants, so the
/// rules lie on the entries of `/`. An entry that is made later has none.
fn readable(root: &OwnedFd) -> Result<Vec<OwnedFd>, Error> {
    let failed = |call, errno| {
        Error::new(ErrorKind::GrantFailed, "cannot list `/` for a rule of the grant")
            .source(SystemCall::new(call, "/", errno))
    };
    let listing = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = match openat(root, ".", listing, Mode::empty()).and_then(rustix::fs::Dir::new) {
        Ok(list) => list,
        // Not even listing is permitted here. Then everything can be read, and the worker's probe of
        // terminals says so.
        Err(Errno::ACCESS) => {
            return Ok(vec![root.try_clone().map_err(|error| {
                Error::new(ErrorKind::GrantFailed, "cannot duplicate a descriptor").source(error)
            })?]);
        }
        Err(errno) => return Err(failed("openat", errno)),
    };
    let mut found = Vec::new();
    for entry in list {
        let entry = entry.map_err(|errno| failed("getdents64", errno))?;
        let name = entry.file_name();
        // What a link leads to has a rule of its own, or none.
        if [c".", c"..", c"dev"].contains(&name) || entry.file_type() == FileType::Symlink {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // It may have gone away, or be a mount that does not answer: there is nothing to read then.
        found.extend(openat(root, name, flags, Mode::empty()));
    }
    // Shared memory lies there, and is no device.
    found.extend(open("/dev/shm")?);
    Ok(found)
}

fn open(path: &str) -> Result<Option<OwnedFd>, Error> {
    match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => {
            Err(Error::new(ErrorKind::GrantFailed, format!("cannot open `{path}` for a rule of the grant"))
                .source(SystemCall::new("openat", path, errno)))
        }
    }
}
