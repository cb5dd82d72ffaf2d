//! Layers of overlays that cannot be found by their names: does a root reach a protected object through one?
//!
//! Two questions. A protected object lies on such an overlay and a root on another file system: the root may hold, be,
//! or lie in a layer. Or the root lies on such an overlay, and what is written there lands in an upper directory that
//! may hold, be, or lie in a protected object elsewhere. How the kernel answers: [`Stack`](crate::identity::Stack).
//!
//! For the first, the root is searched for the upper directory and for what is known of the lower ones; for the second,
//! the protected object is searched for the upper directory. Both only where the file systems may be one, and within the
//! bounds of [`LinkSearch`](super::LinkSearch).

mod compare;
mod known;
mod part;
mod search;

use super::links::Holdings;
use super::outlook::{Alias, Doubt, Outlook};
use super::protected::ProtectedSet;
use super::refusal;
use crate::error::{Error, ErrorKind};
use crate::identity::{PinnedDir, Role, Views};
use compare::{Cache, Comparison};

pub(super) use known::Known;

/// What was found about a root and a protected object.
#[derive(Debug)]
pub(super) enum Finding {
    Alias(Alias),
    Doubt(Doubt),
}

/// A finding, with the root's index in the policy and the object's number.
pub(super) type Found = (usize, usize, Finding);

/// Compares roots with protected objects through layers that cannot be found. Each root comes with its index.
pub(super) fn compare(
    roots: &[(usize, &PinnedDir)],
    outlook: &Outlook,
    protected: &ProtectedSet,
    holdings: &Holdings,
    known: &mut Known,
) -> Result<Vec<Found>, (usize, Error)> {
    let is_asked = |views: &Views| !views.layers_unresolved.is_empty() || !views.uppers_unresolved.is_empty();
    if !outlook.views.iter().any(is_asked) {
        return Ok(Vec::new());
    }
    let mut cache = Cache::default();
    let mut all = Vec::new();
    for (index, root) in roots {
        let mut comparison =
            Comparison { outlook, protected, holdings, known, cache: &mut cache, found: Vec::new() };
        comparison
            .root(root)
            .map_err(|stopped| (*index, refusal::search_stopped(Role::Root(*index), root, stopped)))?;
        all.extend(comparison.found.into_iter().map(|(object, finding)| (*index, object, finding)));
    }
    Ok(all)
}

/// The first refusal.
pub(super) fn first_refusal(
    found: &[Found],
    roots: &[(usize, &PinnedDir)],
    protected: &ProtectedSet,
) -> Option<Error> {
    let (index, number, finding) = found.first()?;
    let root = roots.iter().find(|(own, _)| own == index).map(|(_, root)| root);
    match (root, protected.objects().get(*number)) {
        (Some(root), Some(object)) => Some(refusal::layer(*index, root, object, finding)),
        _ => Some(Error::new(ErrorKind::Internal, "a layer was found of a root that was not asked for")),
    }
}
