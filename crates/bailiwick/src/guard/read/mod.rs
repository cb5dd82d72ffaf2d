//! What commands may read, compared with everything private.
//!
//! A rule of the kernel cannot leave anything out beneath a directory. So what commands may read must neither hold
//! anything private nor lie in it, under whatever name, mounts among them that take no write.

mod watch;

use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::examine::meet;
use super::forbidden::{Forbidden, Places};
use super::links::{Holdings, OtherName, Searched};
use super::outlook::Outlook;
use super::protected::{ProtectedKind, ProtectedObject, ProtectedSet};
use super::verdict::{ReadDecision, ReadVerdict, Relation};
use crate::error::{Error, ErrorKind, Field, Quoted};
use crate::identity::{AliasKind, Fault, Key, Node, Pin, PinnedDir, Role, Walk};
use crate::policy::{ReadPurpose, Readable, path_fault};

use watch::check_links;
pub(super) use watch::{Reads, check_roots};

/// Compares directories that commands may read, or take programs from, with everything private: the store, the runtime
/// home, and what the caller protects. The program itself may be read.
///
/// Each must be canonical: whoever derives such a directory from something else must not be led elsewhere by a link.
/// Only what is for [`ReadPurpose::Base`] may be spelled with links, be absent, or be a file. A mount that is
/// read-only is a way in here, too.
///
/// # Errors
/// `ReadInvalid` for a path that is not the canonical path of a directory that this user can reach; `ReadOverlap` for
/// one that holds something private or lies in it, under whatever name; `ReadForbidden` for `/`, and for one that holds
/// or lies in `/proc`, `/sys` or `/dev`. All name index and value.
///
/// # Security
/// True at one instant, as [`issue`](super::issue) is.
pub fn check_readable(
    paths: &[PathBuf],
    purpose: ReadPurpose,
    protected: &ProtectedSet,
) -> Result<(), Error> {
    let mut walk = Walk::default();
    let outlook = Outlook::look(protected, &mut walk)?;
    let places = Places::find();
    let sight = Sight { protected, outlook: &outlook, places: &places };
    for (index, given) in paths.iter().enumerate() {
        admit(purpose, index, given, &sight, &mut walk)?;
    }
    Ok(())
}

/// What is compared with.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) protected: &'a ProtectedSet,
    pub(super) outlook: &'a Outlook,
    pub(super) places: &'a Result<Places, Fault>,
}

/// A directory or file that commands may read, held open.
#[derive(Debug)]
pub(crate) struct ReadPin {
    purpose: ReadPurpose,
    index: usize,
    pin: Pin,
}

impl ReadPin {
    fn role(&self) -> Role {
        Role::Read(self.purpose, self.index)
    }

    /// The object.
    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    /// The directory, where it is one.
    pub(crate) fn directory(&self) -> Option<&PinnedDir> {
        match &self.pin {
            Pin::Directory(dir) => Some(dir),
            Pin::File(_) | Pin::Unseen(_) => None,
        }
    }
}

/// Examines everything that a policy names: a verdict for each, and what is to be granted.
pub(super) fn examine(
    readable: &Readable,
    sight: &Sight<'_>,
    holdings: Option<&mut Holdings>,
    searched: &mut Searched,
    walk: &mut Walk,
) -> (Vec<ReadVerdict>, Vec<ReadPin>) {
    let mut pins = Vec::new();
    // For each pin, the position of its verdict.
    let mut positions = Vec::new();
    let mut verdicts: Vec<ReadVerdict> = readable
        .named()
        .enumerate()
        .map(|(position, (purpose, index, given))| {
            let mut verdict = ReadVerdict {
                purpose: purpose.name(),
                index,
                given: given.clone(),
                canonical: None,
                decision: ReadDecision::Absent,
                refusals: Vec::new(),
            };
            match admit(purpose, index, given, sight, walk) {
                Ok(None) => {}
                Ok(Some(pin)) => {
                    verdict.canonical = Some(pin.pin.canonical().into());
                    verdict.decision = ReadDecision::Readable;
                    positions.push(position);
                    pins.push(pin);
                }
                Err(refusal) => {
                    verdict.decision = ReadDecision::Refused;
                    verdict.refusals.push(refusal);
                }
            }
            verdict
        })
        .collect();
    let found = holdings.map_or_else(Vec::new, |holdings| {
        check_links(&pins, sight.outlook, sight.protected, holdings, searched)
    });
    for (pin, refusal) in found {
        if let Some(verdict) = positions.get(pin).and_then(|position| verdicts.get_mut(*position)) {
            verdict.decision = ReadDecision::Refused;
            verdict.refusals.push(refusal);
        }
    }
    (verdicts, pins)
}

/// Opens and compares one path; `None` for a part of the base set that this host lacks, or this user cannot reach.
fn admit(
    purpose: ReadPurpose,
    index: usize,
    given: &Path,
    sight: &Sight<'_>,
    walk: &mut Walk,
) -> Result<Option<ReadPin>, Error> {
    let role = Role::Read(purpose, index);
    if let Some(fault) = path_fault(given) {
        return Err(role.error(ErrorKind::ReadInvalid, fault.text(), given).hint(fault.hint()));
    }
    let pin = if purpose == ReadPurpose::Base {
        match Pin::open(given) {
            Ok(pin) => pin,
            Err(Fault::NotFound { .. }) => return Ok(None),
            Err(Fault::Denied(cause)) if cause.errno() == Errno::ACCESS => return Ok(None),
            Err(fault) => return Err(role.fault(fault, given)),
        }
    } else {
        let dir = PinnedDir::open(given).map_err(|fault| role.fault(fault, given))?;
        // By their bytes: paths are equal to others with another number of slashes.
        if dir.canonical().as_os_str() != given.as_os_str() {
            return Err(role
                .error(ErrorKind::ReadInvalid, "is not canonical", given)
                .path("canonical", dir.canonical())
                .hint(format!("name {} itself, if it is what is meant", Quoted::new(dir.canonical()))));
        }
        Pin::Directory(dir)
    };
    compare(role, &pin, sight, walk)?;
    Ok(Some(ReadPin { purpose, index, pin }))
}

/// Compares what is open with everything private, and with the places through which the kernel is controlled.
pub(super) fn compare(role: Role, pin: &Pin, sight: &Sight<'_>, walk: &mut Walk) -> Result<(), Error> {
    let chain = chain(pin, walk).map_err(|fault| role.fault(fault, pin.given()))?;
    for (number, object) in private(sight.protected) {
        let itself = meet(&chain, object.id().map(|id| id.key()), sight.outlook.above(number));
        if let Some(met) = itself {
            return Err(overlap(role, pin, object, met.relation, object.canonical()));
        }
        for view in sight.outlook.all_views_of(number) {
            let above: Vec<Key> = view.above.iter().map(|node| node.key).collect();
            if let Some(met) = meet(&chain, view.key, &above) {
                return Err(seen(role, pin, object, met.relation, view.kind, &view.name));
            }
        }
    }
    judge(role, pin, &chain, sight)
}

/// The protected objects that are not to be read, each with its number.
pub(super) fn private(protected: &ProtectedSet) -> impl Iterator<Item = (usize, &ProtectedObject)> {
    protected.objects().iter().enumerate().filter(|(_, object)| is_private(object.kind()))
}

/// Everything but the program, which is no secret and lies among the programs of its host.
pub(super) fn is_private(kind: ProtectedKind) -> bool {
    !matches!(kind, ProtectedKind::HostExecutable | ProtectedKind::Addon)
}

/// The object, and the directories above it.
fn chain(pin: &Pin, walk: &mut Walk) -> Result<Vec<Node>, Fault> {
    let above = match pin {
        Pin::Directory(dir) => return dir.chain(walk),
        Pin::File(_) | Pin::Unseen(_) => pin.above(walk)?,
    };
    Ok(pin.id().map(|id| id.node()).into_iter().chain(above).collect())
}

fn judge(role: Role, pin: &Pin, chain: &[Node], sight: &Sight<'_>) -> Result<(), Error> {
    let failed = |fault| role.fault(fault, pin.given());
    let forbidden = |predicate: &str, hint: &str| {
        Err(role
            .error(ErrorKind::ReadForbidden, predicate, pin.given())
            .path("canonical", pin.canonical())
            .hint(hint))
    };
    let places = match sight.places {
        Ok(places) => places,
        Err(fault) => {
            let error = role
                .error(
                    ErrorKind::ReadInvalid,
                    "cannot be compared with `/`, `/proc`, `/sys` and `/dev`",
                    pin.given(),
                )
                .path("canonical", pin.canonical())
                .hint("let this user reach these places");
            return Err(match fault.cause() {
                Some(cause) => error.text("because", cause.to_string()),
                None => error,
            });
        }
    };
    let table = Some(&sight.outlook.table);
    let reason = match pin {
        Pin::Directory(dir) => {
            let beneath = sight.outlook.points.beneath(&sight.outlook.table, dir).map_err(failed)?;
            places.judge_all(dir, chain, table, &beneath).map_err(failed)?
        }
        Pin::File(file) => {
            if file.look().map_err(failed)?.file_type != FileType::RegularFile {
                return forbidden("is no regular file", "leave it out, or name the directory that holds it");
            }
            let above = chain.get(1..).unwrap_or_default();
            let reason = places.judge_all(file.name().dir(), above, table, &[]).map_err(failed)?;
            reason.filter(|reason| *reason != Forbidden::Everything)
        }
        Pin::Unseen(_) => None,
    };
    match reason {
        None => Ok(()),
        Some(reason) => forbidden(
            &reason.predicate(),
            match reason {
                Forbidden::Everything => "name the directories below `/` that commands need to read",
                Forbidden::KernelInterfaceBeneath(..) | Forbidden::DevicesBeneath(_) => {
                    "unmount it, or name directories that do not hold it"
                }
                Forbidden::KernelInterface(_) | Forbidden::Below(_) | Forbidden::Devices => {
                    "leave it out: the plain devices can be used without, and of `/proc` the names can be listed"
                }
            },
        ),
    }
}

pub(super) fn overlap(
    role: Role,
    pin: &Pin,
    object: &ProtectedObject,
    relation: Relation,
    place: &Path,
) -> Error {
    let words = object.kind().words();
    let place = Quoted::new(place);
    let how = match relation {
        Relation::Same => format!("is {words} ({place})"),
        Relation::Inside => format!("lies inside {words} ({place})"),
        Relation::Around | Relation::Alias => format!("holds {words} ({place})"),
    };
    let hint = match role {
        Role::Read(ReadPurpose::Base, _) => {
            format!("keep {words} elsewhere, or give a base set without {}", Quoted::new(pin.given()))
        }
        _ => format!("name directories that neither hold {place} nor lie in it, or keep {words} elsewhere"),
    };
    role.error(ErrorKind::ReadOverlap, &how, pin.given())
        .path("protected", object.canonical())
        .text("protected_kind", object.kind().name())
        .text("relation", relation.name())
        .hint(hint)
}

/// The same, for an object that is seen under another name.
pub(super) fn seen(
    role: Role,
    pin: &Pin,
    object: &ProtectedObject,
    relation: Relation,
    kind: AliasKind,
    name: &Path,
) -> Error {
    overlap(role, pin, object, relation, name).text("alias", kind.name()).path("other_name", name)
}

/// The refusal of a directory that holds other names of private files.
pub(super) fn linked(role: Role, pin: &Pin, object: &ProtectedObject, names: &[OtherName]) -> Error {
    let file = names.first().map(|name| name.target.path.as_path()).unwrap_or(object.canonical());
    let first = names.first().map(|name| name.name.as_path()).unwrap_or(object.canonical());
    let how = format!("holds another name of {} ({})", Quoted::new(file), Quoted::new(first));
    role.error(ErrorKind::ReadOverlap, &how, pin.given())
        .path("protected", object.canonical())
        .text("protected_kind", object.kind().name())
        .text("relation", Relation::Alias.name())
        .text("alias", AliasKind::HardLink.name())
        .path("file", file)
        .path("other_name", first)
        .with("other_names", Field::List(names.iter().map(|name| Field::Path(name.name.clone())).collect()))
        .hint(format!(
            "remove the other names, or give {} an inode of its own (copy it, and move the copy to its name)",
            Quoted::new(file)
        ))
}
