//! The comparison itself, of which [`issue`](super::issue) and [`explain`](super::explain) are two readings.

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::Access;

use super::forbidden::Places;
use super::layers::{self, Finding, Found, Known};
use super::links::{Aim, Holdings, OtherName, Searched, search};
use super::outlook::{Alias, Outlook};
use super::protected::{ProtectedObject, ProtectedSet};
use super::read::{self, ReadPin, Sight};
use super::refusal::{self, Overlap};
use super::verdict::{Comparison, Decision, Fact, Meeting, ReadVerdict, Relation, RootVerdict, Verdict};
use crate::error::Error;
use crate::identity::{Beneath, Fault, Key, Node, PinnedDir, Role, Walk, check_access};
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

/// What an examination found.
pub(super) struct Examination {
    pub(super) verdict: Verdict,
    /// The roots to grant, each with its index; complete only when nothing was refused.
    pub(super) roots: Vec<(usize, PinnedDir)>,
    /// What commands may read; complete only when nothing was refused, `None` where that is everything.
    pub(super) reads: Option<Vec<ReadPin>>,
    /// What the verdict rests on, to be checked again before each command; `None` when it could not be looked at.
    pub(super) basis: Option<Basis>,
}

/// What a verdict rests on.
#[derive(Debug)]
pub(super) struct Basis {
    pub(super) outlook: Outlook,
    pub(super) holdings: Holdings,
    pub(super) searched: Searched,
    pub(super) known: Known,
}

/// Examines every root.
pub(super) fn examine(policy: &Policy, protected: &ProtectedSet, mut searched: Searched) -> Examination {
    let mut refusals = Vec::new();
    if let Err(refusal) = policy.check_rest() {
        refusals.push(refusal);
    }
    let places = Places::find();
    let mut walk = Walk::default();
    // Each by itself: where a protected object is seen is told of every root, even when what is in it is not known.
    let mut refuse_all = |refusal| refusals.push(refusal);
    let outlook = Outlook::look(protected, &mut walk).map_err(&mut refuse_all).ok();
    let mut holdings = Holdings::take(protected).map_err(&mut refuse_all).ok();
    let mut outermost = Outermost::default();
    let mut known = Known::default();
    let mut roots: Vec<RootVerdict> = Vec::with_capacity(policy.write_roots.len());
    for (index, given) in policy.write_roots.iter().enumerate() {
        let mut root = Examined::new(index, given);
        if let Some((pin, chain)) = root.look(&mut walk, &places, protected, outlook.as_ref())
            && root.refusals.is_empty()
        {
            outermost.add(index, pin, &chain);
        }
        roots.push(root.verdict());
    }
    if let (Some(outlook), Some(holdings)) = (&outlook, &mut holdings) {
        let mut kept: Vec<(usize, &PinnedDir)> =
            outermost.kept.iter().map(|(index, root)| (*index, root)).collect();
        kept.sort_by_key(|(index, _)| *index);
        let found = search(&kept, outlook, protected, holdings, &mut searched, Aim::Write);
        add_links(&mut roots, &outermost, protected, found.names);
        for (index, refusal) in found.stopped {
            refuse(&mut roots, index, refusal);
        }
        match layers::compare(&kept, outlook, protected, holdings, &mut known) {
            Ok(found) => add_layers(&mut roots, &outermost, protected, found),
            Err((index, refusal)) => refuse(&mut roots, index, refusal),
        }
    }
    let mut reads = None;
    if let (Some(readable), Some(outlook)) = (policy.read.readable(), &outlook) {
        let sight = Sight { protected, outlook, places: &places };
        reads = Some(read::examine(readable, &sight, holdings.as_mut(), &mut searched, &mut walk));
        let kept: Vec<(usize, &PinnedDir)> =
            outermost.kept.iter().map(|(index, root)| (*index, root)).collect();
        for (index, refusal) in read::check_roots(&kept, &sight, &mut walk) {
            refuse(&mut roots, index, refusal);
        }
    }
    let (read_verdicts, reads) = reads.unzip();
    for root in &mut roots {
        let cover = outermost.cover(root.index);
        if root.decision == Decision::Granted && cover != root.index {
            root.decision = Decision::Covered(cover);
        }
    }
    let granted = refusals.is_empty()
        && roots.iter().all(|root| root.refusals.is_empty())
        && read_verdicts.iter().flatten().all(|read: &ReadVerdict| read.refusals.is_empty());
    let mut notes = protected.notes().to_vec();
    if known.is_relied_on {
        notes.push(
            "layers of an overlay cannot be found by their names here: that no write root reaches what is protected \
             on it is proved for its upper directory, and for lower ones as far as file handles and birth times tell; a lower layer that \
             they do not tell of, mounted here as a write root by itself, would be missed"
                .into(),
        );
    }
    if let Some(holdings) = &holdings {
        notes.extend(holdings.unlisted().map(|path| {
            format!(
                "this user cannot list {}, so nothing in it can be looked for under other names",
                crate::error::Quoted::new(&path)
            )
        }));
    }
    let mut pins: Vec<(usize, PinnedDir)> = outermost.kept.into_iter().collect();
    pins.sort_by_key(|(index, _)| *index);
    Examination {
        verdict: Verdict { granted, roots, reads: read_verdicts, refusals, notes },
        roots: pins,
        reads,
        basis: outlook.zip(holdings).map(|(outlook, holdings)| Basis { outlook, holdings, searched, known }),
    }
}

fn refuse(roots: &mut [RootVerdict], index: usize, refusal: Error) {
    if let Some(root) = roots.get_mut(index) {
        root.decision = Decision::Refused;
        root.refusals.push(refusal);
    }
}

/// Enters the other names of protected files that a search found.
fn add_links(
    roots: &mut [RootVerdict],
    outermost: &Outermost,
    protected: &ProtectedSet,
    names: Vec<(usize, OtherName)>,
) {
    let mut by_file: Vec<(usize, Vec<OtherName>)> = Vec::new();
    for (index, name) in names {
        let same = by_file.iter_mut().find(|(root, names)| {
            *root == index && names.first().is_some_and(|first| first.target.path == name.target.path)
        });
        match same {
            Some((_, names)) => names.push(name),
            None => by_file.push((index, vec![name])),
        }
    }
    for (index, names) in by_file {
        let (Some(first), Some(pin)) = (names.first(), outermost.kept.get(&index)) else { continue };
        let Some(object) = protected.objects().get(first.target.object) else { continue };
        if let Some(comparison) =
            roots.get_mut(index).and_then(|root| root.comparisons.get_mut(first.target.object))
        {
            comparison.relation = Some(Relation::Alias);
            comparison.fact = Fact::Linked {
                file: first.target.path.clone(),
                links: first.target.links,
                device: first.key.device(),
                inode: first.key.inode().to_string(),
            };
            comparison.other_names.extend(names.iter().map(|name| name.name.clone()));
        }
        refuse(roots, index, refusal::linked(index, pin, object, &names));
    }
}

/// Enters what was found of layers.
fn add_layers(roots: &mut [RootVerdict], outermost: &Outermost, protected: &ProtectedSet, found: Vec<Found>) {
    for (index, number, finding) in found {
        let (Some(pin), Some(object)) = (outermost.kept.get(&index), protected.objects().get(number)) else {
            continue;
        };
        let refusal = refusal::layer(index, pin, object, &finding);
        if let Some(comparison) = roots.get_mut(index).and_then(|root| root.comparisons.get_mut(number))
            && comparison.relation.is_none()
        {
            match finding {
                Finding::Alias(alias) => {
                    comparison.relation = Some(Relation::Alias);
                    comparison.other_names.push(alias.name.clone());
                    comparison.fact = seen(alias);
                }
                Finding::Doubt(doubt) => comparison.fact = Fact::Unproven { why: doubt.why() },
            }
        }
        refuse(roots, index, refusal);
    }
}

/// One root while it is examined.
pub(super) struct Examined<'a> {
    index: usize,
    given: &'a Path,
    canonical: Option<std::path::PathBuf>,
    object: Option<crate::identity::ObjectId>,
    comparisons: Vec<Comparison>,
    refusals: Vec<Error>,
}

impl<'a> Examined<'a> {
    pub(super) fn new(index: usize, given: &'a Path) -> Self {
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
        outlook: Option<&Outlook>,
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
        let chain = match pin.chain(walk) {
            Ok(chain) => chain,
            Err(fault) => {
                self.refuse(fault);
                return None;
            }
        };
        self.judge(&pin, &chain, places, protected, outlook);
        match check_access(&pin, Access::WRITE_OK, pin.canonical()) {
            Ok(()) => {}
            Err(Fault::Denied(cause)) => self.refusals.push(refusal::not_accessible(self.index, &pin, cause)),
            Err(fault) => self.refuse(fault),
        }
        Some((pin, chain))
    }

    /// Compares a root that is open with everything.
    pub(super) fn judge(
        &mut self,
        pin: &PinnedDir,
        chain: &[Node],
        places: &Result<Places, Fault>,
        protected: &ProtectedSet,
        outlook: Option<&Outlook>,
    ) {
        self.canonical = Some(pin.canonical().into());
        self.object = Some(*pin.id());
        let beneath = match outlook.map(|outlook| outlook.points.beneath(&outlook.table, pin)).transpose() {
            Ok(beneath) => beneath.unwrap_or_default(),
            Err(fault) => {
                self.refuse(fault);
                return;
            }
        };
        match places {
            Err(fault) => self.refusals.push(refusal::unjudged(self.index, pin, fault)),
            Ok(places) => match places.judge_all(pin, chain, outlook.map(|o| &o.table), &beneath) {
                Ok(None) => {}
                Ok(Some(reason)) => {
                    self.refusals.push(refusal::forbidden(self.index, pin, &reason, protected));
                }
                Err(fault) => self.refuse(fault),
            },
        }
        for (number, object) in protected.objects().iter().enumerate() {
            self.compare(pin, chain, number, object, outlook, &beneath);
        }
    }

    /// The first reason to refuse.
    pub(super) fn into_refusal(self) -> Option<Error> {
        self.refusals.into_iter().next()
    }

    fn compare(
        &mut self,
        root: &PinnedDir,
        chain: &[Node],
        number: usize,
        object: &ProtectedObject,
        outlook: Option<&Outlook>,
        beneath: &[Beneath<'_>],
    ) {
        let mut other_names = Vec::new();
        // Without a look nothing is granted, and what was seen at first still serves to tell why.
        let above = outlook.map_or(object.above(), |outlook| outlook.above(number));
        let (relation, fact) = if let Some(met) = meet(chain, object.id().map(|id| id.key()), above) {
            let Meet { relation, key, levels } = met;
            self.refusals
                .push(Overlap { index: self.index, root, object, relation, met: key, levels }.error());
            (Some(relation), Fact::Meet(meeting(key, levels)))
        } else if let Some(outlook) = outlook {
            let aliases: Vec<_> = outlook.aliases(number, chain).collect();
            other_names.extend(aliases.iter().map(|alias| alias.name.clone()));
            if let Some(alias) = aliases.into_iter().next() {
                self.refusals.push(refusal::alias(self.index, root, object, &alias));
                (Some(Relation::Alias), seen(alias))
            } else {
                match outlook.doubt(number, object, root, beneath) {
                    Ok(None) => (None, apart(chain, above)),
                    Ok(Some(doubt)) => {
                        self.refusals.push(refusal::doubt(self.index, root, object, &doubt));
                        (None, Fact::Unproven { why: doubt.why() })
                    }
                    Err(fault) => {
                        self.refuse(fault);
                        (None, Fact::Unproven { why: "the kernel did not answer".into() })
                    }
                }
            }
        } else {
            (None, apart(chain, above))
        };
        self.comparisons.push(Comparison {
            protected: object.canonical().into(),
            protected_kind: object.kind(),
            relation,
            fact,
            other_names,
        });
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

fn seen(alias: Alias) -> Fact {
    let meeting = meeting(alias.met, alias.levels);
    let Alias { kind, name, mount_point, lies, .. } = alias;
    Fact::Seen { alias: kind, name, mount_point, lies, meeting }
}

fn meeting(key: Key, levels: usize) -> Meeting {
    Meeting { device: key.device(), inode: key.inode().to_string(), levels }
}

fn apart(chain: &[Node], above: &[Key]) -> Fact {
    Fact::Apart { above_root: chain.len() - 1, above_protected: above.len() }
}
