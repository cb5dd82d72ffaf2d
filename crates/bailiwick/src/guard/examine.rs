//! The comparison itself, of which [`issue`](super::issue) and [`explain`](super::explain) are two readings.

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::Access;

use super::forbidden::Places;
use super::protected::{ProtectedObject, ProtectedSet};
use super::refusal::{self, Overlap};
use super::verdict::{Comparison, Decision, Fact, Meeting, Relation, RootVerdict, Verdict};
use crate::error::Error;
use crate::identity::{Fault, Key, Node, PinnedDir, Role, Walk, check_access};
use crate::policy::{Policy, path_fault, root_invalid};

/// Where a root and a protected object meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meet {
    pub(super) relation: Relation,
    pub(super) key: Key,
    pub(super) levels: usize,
}

/// Compares a root's chain, itself first, with a protected object and the chain above that.
///
/// Identities only: how either was spelled, and through which mount it was reached, makes no difference.
pub(super) fn meet(root: &[Node], object: Option<Key>, above_object: &[Key]) -> Option<Meet> {
    let itself = root.first()?.key;
    if let Some(object) = object
        && let Some(levels) = root.iter().position(|node| node.key == object)
    {
        let relation = if levels == 0 { Relation::Same } else { Relation::Inside };
        return Some(Meet { relation, key: object, levels });
    }
    let levels = above_object.iter().position(|key| *key == itself)?;
    Some(Meet { relation: Relation::Around, key: itself, levels: levels + 1 })
}

/// The roots that would be granted, outermost only.
///
/// A root that lies in one that is kept gives its descriptor back at once, so that thousands of nested roots need
/// few. Only the same mount counts as inside: through another mount the root stays one of its own.
#[derive(Default)]
struct Outermost {
    kept: HashMap<usize, PinnedDir>,
    by_node: HashMap<Node, usize>,
    /// For each directory above a kept root, the kept roots below it.
    below: HashMap<Node, Vec<usize>>,
    covered: HashMap<usize, usize>,
}

impl Outermost {
    fn add(&mut self, index: usize, root: PinnedDir, chain: &[Node]) {
        if let Some(by) = chain.iter().find_map(|node| self.by_node.get(node)) {
            self.covered.insert(index, *by);
            return;
        }
        let Some(node) = chain.first() else { return };
        for inner in self.below.remove(node).unwrap_or_default() {
            if let Some(dropped) = self.kept.remove(&inner) {
                self.by_node.remove(&dropped.id().node());
                self.covered.insert(inner, index);
            }
        }
        for above in &chain[1..] {
            self.below.entry(*above).or_default().push(index);
        }
        self.by_node.insert(*node, index);
        self.kept.insert(index, root);
    }

    /// The kept root that covers a root; itself when it is kept.
    fn cover(&self, mut index: usize) -> usize {
        while let Some(by) = self.covered.get(&index) {
            index = *by;
        }
        index
    }
}

/// Examines every root. The pinned roots, each with its index, are complete only when nothing was refused.
pub(super) fn examine(policy: &Policy, protected: &ProtectedSet) -> (Verdict, Vec<(usize, PinnedDir)>) {
    let mut refusals = Vec::new();
    if let Err(refusal) = policy.check_rest() {
        refusals.push(refusal);
    }
    let places = Places::find();
    let mut walk = Walk::default();
    let mut outermost = Outermost::default();
    let mut roots: Vec<RootVerdict> = Vec::with_capacity(policy.write_roots.len());
    for (index, given) in policy.write_roots.iter().enumerate() {
        let mut root = Examined::new(index, given);
        if let Some((pin, chain)) = root.look(&mut walk, &places, protected)
            && root.refusals.is_empty()
        {
            outermost.add(index, pin, &chain);
        }
        roots.push(root.verdict());
    }
    for root in &mut roots {
        let cover = outermost.cover(root.index);
        if root.decision == Decision::Granted && cover != root.index {
            root.decision = Decision::Covered(cover);
        }
    }
    let granted = refusals.is_empty() && roots.iter().all(|root| root.refusals.is_empty());
    let notes = protected.notes().to_vec();
    let mut pins: Vec<(usize, PinnedDir)> = outermost.kept.into_iter().collect();
    pins.sort_by_key(|(index, _)| *index);
    (Verdict { granted, roots, refusals, notes }, pins)
}

/// One root while it is examined.
struct Examined<'a> {
    index: usize,
    given: &'a Path,
    canonical: Option<std::path::PathBuf>,
    object: Option<crate::identity::ObjectId>,
    comparisons: Vec<Comparison>,
    refusals: Vec<Error>,
}

impl<'a> Examined<'a> {
    fn new(index: usize, given: &'a Path) -> Self {
        Self { index, given, canonical: None, object: None, comparisons: Vec::new(), refusals: Vec::new() }
    }

    fn refuse(&mut self, fault: Fault) {
        self.refusals.push(Role::Root(self.index).fault(fault, self.given));
    }

    /// Gathers every reason to refuse; `None` when there is nothing to compare.
    fn look(
        &mut self,
        walk: &mut Walk,
        places: &Result<Places, Fault>,
        protected: &ProtectedSet,
    ) -> Option<(PinnedDir, Vec<Node>)> {
        if let Some(fault) = path_fault(self.given) {
            self.refusals.push(root_invalid(self.index, self.given, fault));
            return None;
        }
        let pin = match PinnedDir::open(self.given) {
            Ok(pin) => pin,
            Err(fault) => {
                self.refuse(fault);
                return None;
            }
        };
        self.canonical = Some(pin.canonical().into());
        self.object = Some(*pin.id());
        let chain = match pin.chain(walk) {
            Ok(chain) => chain,
            Err(fault) => {
                self.refuse(fault);
                return None;
            }
        };
        match places.as_ref().map(|places| places.judge(&pin, &chain)) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(reason))) => {
                self.refusals.push(refusal::forbidden(self.index, &pin, reason, protected))
            }
            Ok(Err(fault)) => self.refuse(fault),
            Err(fault) => self.refusals.push(refusal::unjudged(self.index, &pin, fault)),
        }
        for object in protected.objects() {
            self.compare(&pin, &chain, object);
        }
        match check_access(&pin, Access::WRITE_OK, pin.canonical()) {
            Ok(()) => {}
            Err(Fault::Denied(cause)) => self.refusals.push(refusal::not_accessible(self.index, &pin, cause)),
            Err(fault) => self.refuse(fault),
        }
        Some((pin, chain))
    }

    fn compare(&mut self, root: &PinnedDir, chain: &[Node], object: &ProtectedObject) {
        let found = meet(chain, object.id().map(|id| id.key()), object.above());
        let fact = match found {
            Some(Meet { key, levels, .. }) => {
                Fact::Meet(Meeting { device: key.device(), inode: key.inode().to_string(), levels })
            }
            None => Fact::Apart { above_root: chain.len() - 1, above_protected: object.above().len() },
        };
        self.comparisons.push(Comparison {
            protected: object.canonical().into(),
            protected_kind: object.kind(),
            relation: found.map(|meet| meet.relation),
            fact,
        });
        if let Some(Meet { relation, key, levels }) = found {
            self.refusals
                .push(Overlap { index: self.index, root, object, relation, met: key, levels }.error());
        }
    }

    fn verdict(self) -> RootVerdict {
        RootVerdict {
            index: self.index,
            given: self.given.into(),
            canonical: self.canonical,
            object: self.object,
            decision: if self.refusals.is_empty() { Decision::Granted } else { Decision::Refused },
            comparisons: self.comparisons,
            refusals: self.refusals,
        }
    }
}
