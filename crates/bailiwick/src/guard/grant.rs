//! The guard's yes.

use std::collections::HashMap;

use super::examine::meet;
use super::protected::ProtectedSet;
use super::refusal::Overlap;
use super::verdict::Relation;
use crate::error::{Error, ErrorKind};
use crate::identity::{Fault, Key, PinnedDir, Role, Walk};
use crate::policy::{Network, Policy};

/// Write roots that the guard has passed, held open, with the policy they belong to.
///
/// Only [`issue`](super::issue) makes one, and it cannot be copied: whoever holds a grant holds a yes that was
/// given for exactly these objects.
///
/// ```compile_fail
/// fn twice(grant: bailiwick::guard::Grant) -> (bailiwick::guard::Grant, bailiwick::guard::Grant) {
///     (grant.clone(), grant)
/// }
/// ```
#[derive(Debug)]
pub struct Grant {
    policy: Policy,
    roots: Vec<PinnedDir>,
    /// For each of `roots`, its index in the policy.
    indices: Vec<usize>,
    protected: ProtectedSet,
    /// Position in `roots` of each root.
    by_key: HashMap<Key, usize>,
}

impl Grant {
    pub(super) fn new(policy: Policy, roots: Vec<(usize, PinnedDir)>, protected: ProtectedSet) -> Self {
        let (indices, roots): (Vec<_>, Vec<_>) = roots.into_iter().unzip();
        let by_key = roots.iter().enumerate().map(|(position, root)| (root.id().key(), position)).collect();
        Self { policy, roots, indices, protected, by_key }
    }

    /// The write roots, outermost only, in the order of the policy.
    #[must_use]
    pub fn roots(&self) -> &[PinnedDir] {
        &self.roots
    }

    /// The policy that was granted.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether commands may use the network.
    #[must_use]
    pub fn network(&self) -> Network {
        self.policy.network
    }

    /// What the roots were compared with; hand a clone to the next [`issue`](super::issue) of the same session.
    #[must_use]
    pub fn protected(&self) -> &ProtectedSet {
        &self.protected
    }

    /// Whether what was granted still holds: each canonical path names the root that was pinned, and no root and
    /// no protected object has been moved into the other.
    ///
    /// The chains above roots and protected objects are walked again, because a move changes neither device nor
    /// inode nor, for what was moved, its own link count: only the chain shows it.
    ///
    /// # Errors
    /// `RootMissing` or `RootIdentityChanged` for a root that was removed or replaced; `RootOverlap` for a move;
    /// `ProtectedNotAccessible` when it cannot be told where a protected object lies now. The grant itself stays
    /// what it was: the roots that it holds are the old ones.
    ///
    /// # Security
    /// True at one instant: a move by somebody outside the session between this check and a write is not seen
    /// before the next check.
    pub fn recheck(&self) -> Result<(), Error> {
        let mut walk = Walk::default();
        for (root, index) in self.roots.iter().zip(self.indices.iter().copied()) {
            root.check_name().map_err(|fault| no_longer(index, root, fault))?;
            let chain =
                root.chain(&mut walk).map_err(|fault| Role::Root(index).fault(fault, root.given()))?;
            for object in self.protected.objects() {
                // The other direction is asked below, of the chain as it is now.
                if let Some(found) = meet(&chain, object.id().map(|id| id.key()), &[]) {
                    let (relation, met, levels) = (found.relation, found.key, found.levels);
                    return Err(Overlap { index, root, object, relation, met, levels }.error());
                }
            }
        }
        for object in self.protected.objects() {
            let above = object.above_now(&mut walk)?;
            let met =
                above.iter().enumerate().find_map(|(level, key)| Some((level, key, self.by_key.get(key)?)));
            if let Some((level, key, position)) = met {
                let (root, index) = (&self.roots[*position], self.indices[*position]);
                let (relation, met, levels) = (Relation::Around, *key, level + 1);
                return Err(Overlap { index, root, object, relation, met, levels }.error());
            }
        }
        Ok(())
    }

    /// Compares one more directory with the protected objects, as a write root is compared: for a directory that
    /// the session itself adds to what commands may write.
    ///
    /// # Errors
    /// `RootOverlap`, with the number of write roots as index.
    pub fn check_addition(&self, dir: &PinnedDir) -> Result<(), Error> {
        let index = self.policy.write_roots.len();
        let chain =
            dir.chain(&mut Walk::default()).map_err(|fault| Role::Root(index).fault(fault, dir.given()))?;
        for object in self.protected.objects() {
            if let Some(found) = meet(&chain, object.id().map(|id| id.key()), object.above()) {
                let (relation, met, levels) = (found.relation, found.key, found.levels);
                return Err(Overlap { index, root: dir, object, relation, met, levels }.error());
            }
        }
        Ok(())
    }
}

fn no_longer(index: usize, root: &PinnedDir, fault: Fault) -> Error {
    let role = Role::Root(index);
    let hint = "put the directory back at its path, or replace the write roots by the ones that are meant";
    match fault {
        Fault::Gone => role
            .error(ErrorKind::RootMissing, "is no longer at its path", root.given())
            .path("canonical", root.canonical())
            .text("expected", root.id().to_string())
            .hint(hint),
        Fault::Changed { found, .. } => role
            .error(
                ErrorKind::RootIdentityChanged,
                "names another object than the one that was granted",
                root.given(),
            )
            .path("canonical", root.canonical())
            .text("expected", root.id().to_string())
            .text("found", found.map_or_else(|| "nothing".into(), |id| id.to_string()))
            .hint(hint),
        fault => role.fault(fault, root.given()),
    }
}
