//! A database that keeps files of its own beside itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, readlinkat};

use super::access::user;
use super::fault::{Fault, Missing};
use super::object::{Look, type_name};
use super::pinned::{Pin, PinnedDir, PinnedFile, PinnedName};

/// What is appended to a database's name for the files beside it.
///
/// # Source
/// SQLite's documentation of its temporary files: rollback journal, write-ahead log and its shared-memory index.
const SIDES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Symbolic links that the kernel follows at most (`path_resolution(7)`).
const LINKS: usize = 40;

/// What stands in the way of protecting a database.
#[derive(Debug)]
pub(crate) enum DatabaseFault {
    Fault(Fault),
    /// Something else than a file of the database's owner lies at the name of one of its files.
    Foreign {
        path: PathBuf,
        found: &'static str,
    },
}

impl From<Fault> for DatabaseFault {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Pins a database and the files beside it, those that are not there yet by their names.
///
/// Links are resolved: the database puts its files beside the target, and the links are names that must not be
/// turned to another target either.
pub(crate) fn pin_database(path: &Path) -> Result<Vec<Pin>, DatabaseFault> {
    let mut pins = Vec::new();
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = readlinkat(CWD, &at, Vec::new()) else { break };
        let name = name(&at, path)?;
        let holder = name.dir().canonical().to_owned();
        // Some programs put their files beside the link.
        for side in SIDES {
            pins.push(Pin::Unseen(beside(&name, side)?));
        }
        pins.push(Pin::Unseen(name));
        at = holder.join(OsStr::from_bytes(target.as_bytes()));
    }
    let (database, owner) = match Pin::open(path) {
        Ok(Pin::Directory(_)) => {
            return Err(DatabaseFault::Foreign { path: path.into(), found: "a directory" });
        }
        Ok(Pin::File(file)) => {
            let look = file.look()?;
            if look.file_type != FileType::RegularFile {
                return Err(DatabaseFault::Foreign { path: path.into(), found: type_name(look.file_type) });
            }
            (Pin::File(file), look.owner)
        }
        Ok(unseen) => (unseen, user()),
        Err(Fault::NotFound { missing: Missing::Part, .. }) => (Pin::Unseen(name(path, path)?), user()),
        Err(fault) => return Err(fault.into()),
    };
    for side in SIDES {
        let name = match &database {
            Pin::File(file) => beside(file.name(), side)?,
            Pin::Unseen(name) => beside(name, side)?,
            Pin::Directory(_) => continue,
        };
        let canonical = name.canonical().to_owned();
        let look = match Look::entry(name.dir(), name.entry(), &canonical) {
            Ok(look) => look,
            Err(Fault::NotFound { .. }) => {
                pins.push(Pin::Unseen(name));
                continue;
            }
            Err(fault) => return Err(fault.into()),
        };
        if look.file_type != FileType::RegularFile {
            return Err(DatabaseFault::Foreign { path: canonical, found: type_name(look.file_type) });
        }
        if look.owner != owner {
            return Err(DatabaseFault::Foreign { path: canonical, found: "a file of another user" });
        }
        pins.push(Pin::File(PinnedFile::at(name)?));
    }
    pins.push(database);
    Ok(pins)
}

/// The name that a path ends in, in the directory that really holds it.
fn name(path: &Path, given: &Path) -> Result<PinnedName, DatabaseFault> {
    let (Some(parent), Some(entry)) = (path.parent(), path.file_name()) else {
        return Err(DatabaseFault::Foreign { path: path.into(), found: "no name of a file" });
    };
    Ok(PinnedName::new(PinnedDir::open(parent)?, entry, given))
}

fn beside(name: &PinnedName, side: &str) -> Result<PinnedName, Fault> {
    let mut entry = name.entry().as_os_str().to_owned();
    entry.push(side);
    let given = name.canonical().with_file_name(&entry);
    Ok(PinnedName::new(name.dir().duplicate()?, entry, given))
}
