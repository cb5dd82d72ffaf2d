//! Directories that widen what commands may read.

use std::path::PathBuf;

use super::examine::meet;
use super::outlook::Outlook;
use super::protected::{ProtectedKind, ProtectedObject, ProtectedSet};
use super::verdict::Relation;
use crate::error::{Error, ErrorKind, Quoted};
use crate::identity::{Key, PinnedDir, ReadPurpose, Role, Walk};
use crate::policy::path_fault;

/// Compares directories that commands may read, or take programs from, with everything private: the store, the runtime
/// home, and what the caller protects. The program itself may be read.
///
/// Each must be canonical: whoever derives such a directory from something else must not be led elsewhere by a link.
/// A mount that is read-only is a way in here, too.
///
/// # Errors
/// `ReadInvalid` for a path that is not the canonical path of a directory that this user can reach; `ReadOverlap` for
/// one that holds something private or lies in it, under whatever name. Both name index and value.
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
    for (index, given) in paths.iter().enumerate() {
        let role = Role::Read(purpose, index);
        if let Some(fault) = path_fault(given) {
            return Err(role.error(ErrorKind::ReadInvalid, fault.text(), given).hint(fault.hint()));
        }
        let dir = PinnedDir::open(given).map_err(|fault| role.fault(fault, given))?;
        // By their bytes: paths are equal to others with another number of slashes.
        if dir.canonical().as_os_str() != given.as_os_str() {
            return Err(role
                .error(ErrorKind::ReadInvalid, "is not canonical", given)
                .path("canonical", dir.canonical())
                .hint(format!("name {} itself, if it is what is meant", Quoted::new(dir.canonical()))));
        }
        let chain = dir.chain(&mut walk).map_err(|fault| role.fault(fault, given))?;
        for (number, object) in protected.objects().iter().enumerate() {
            if matches!(object.kind(), ProtectedKind::HostExecutable | ProtectedKind::Addon) {
                continue;
            }
            let itself = meet(&chain, object.id().map(|id| id.key()), outlook.above(number));
            if let Some(met) = itself {
                return Err(overlap(role, &dir, object, met.relation, object.canonical()));
            }
            for view in outlook.all_views_of(number) {
                let above: Vec<Key> = view.above.iter().map(|node| node.key).collect();
                if let Some(met) = meet(&chain, view.key, &above) {
                    return Err(overlap(role, &dir, object, met.relation, &view.name)
                        .text("alias", view.kind.name())
                        .path("other_name", &view.name));
                }
            }
        }
    }
    Ok(())
}

fn overlap(
    role: Role,
    dir: &PinnedDir,
    object: &ProtectedObject,
    relation: Relation,
    place: &std::path::Path,
) -> Error {
    let words = object.kind().words();
    let place = Quoted::new(place);
    let how = match relation {
        Relation::Same => format!("is {words} ({place})"),
        Relation::Inside => format!("lies inside {words} ({place})"),
        Relation::Around | Relation::Alias => format!("holds {words} ({place})"),
    };
    role.error(ErrorKind::ReadOverlap, &how, dir.given())
        .path("protected", object.canonical())
        .text("protected_kind", object.kind().name())
        .text("relation", relation.name())
        .hint(format!("name directories that neither hold {place} nor lie in it, or keep {words} elsewhere"))
}
