//! The guard's yes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::examine::{Basis, Examined, Meet, meet};
use super::forbidden::Places;
use super::layers;
use super::links::{Aim, Holdings, OtherName, SearchOutcome, Searched, search};
use super::outlook::Outlook;
use super::protected::ProtectedSet;
use super::read::{ReadPin, Reads, Sight};
use super::refusal::{self, Overlap};
use super::verdict::Relation;
use crate::error::{Error, ErrorKind};
use crate::identity::{Fault, Key, MountTable, MountWatch, PinnedDir, Role, Walk};
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
    reads: Reads,
    protected: ProtectedSet,
    /// Position in `roots` of each root.
    by_key: HashMap<Key, usize>,
    watch: MountWatch,
    /// Commands have mounts of their own, which are those that were compared: what is mounted later does not reach them.
    has_view: AtomicBool,
    state: Mutex<State>,
}

/// What the last full check rests on.
#[derive(Debug)]
pub(super) struct State {
    pub(super) basis: Basis,
    /// Something has changed since, and no full check has passed after it.
    is_stale: bool,
}

impl Grant {
    pub(super) fn new(
        policy: Policy,
        roots: Vec<(usize, PinnedDir)>,
        reads: Option<Vec<ReadPin>>,
        protected: ProtectedSet,
        watch: MountWatch,
        basis: Basis,
    ) -> Self {
        let (indices, roots): (Vec<_>, Vec<_>) = roots.into_iter().unzip();
        let by_key = roots.iter().enumerate().map(|(position, root)| (root.id().key(), position)).collect();
        let state = Mutex::new(State { basis, is_stale: false });
        let (reads, has_view) = (Reads::new(reads), AtomicBool::new(false));
        Self { policy, roots, indices, reads, protected, by_key, watch, has_view, state }
    }

    /// Notes that a copy of the mounts has been made for the commands of this grant. `false` when the mounts have changed
    /// since they were compared, so that what was copied is not what was compared.
    ///
    /// # Errors
    /// The mounts cannot be asked.
    pub(crate) fn take_view(&self) -> Result<bool, Error> {
        let mut state = self.state();
        if state.is_stale || self.watch.changed().map_err(watch_failed)? {
            state.basis.known.forget();
            state.is_stale = true;
            return Ok(false);
        }
        self.has_view.store(true, Ordering::Relaxed);
        Ok(true)
    }

    fn has_view(&self) -> bool {
        self.has_view.load(Ordering::Relaxed)
    }

    /// Whether the mounts that commands see may have changed.
    fn mounts_changed(&self) -> Result<bool, Fault> {
        if self.has_view() { Ok(false) } else { self.watch.changed() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been searched for other names of protected files, for the next grant of the same session.
    pub(crate) fn searched(&self) -> Searched {
        self.state().basis.searched.clone()
    }

    /// The write roots, outermost only, in the order of the policy.
    #[must_use]
    pub fn roots(&self) -> &[PinnedDir] {
        &self.roots
    }

    /// What commands may read beside the roots, as canonical paths; `None` where that is everything.
    pub fn readable(&self) -> Option<impl Iterator<Item = &Path>> {
        self.reads().map(|pins| pins.iter().map(|pin| pin.pin().canonical()))
    }

    pub(crate) fn reads(&self) -> Option<&[ReadPin]> {
        self.reads.pins()
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

    /// Whether what was granted still holds: each canonical path names the root that was pinned, no root and no
    /// protected object has been moved into the other, and no mount and no hard link has given a protected object a
    /// name in a root since.
    ///
    /// The chains above roots, protected objects and every place where those are seen are walked again, because a
    /// move changes neither device nor inode nor, for what was moved, its own link count, nor the mount table: only
    /// the chain shows it. Where the mount table or a file with several names has changed, everything is compared
    /// again, which may take as long as issuing the grant did.
    ///
    /// # Errors
    /// `RootMissing` or `RootIdentityChanged` for a root that was removed or replaced, `ReadChanged` for a directory to
    /// read; `RootOverlap`, `ReadOverlap` for a move, a mount or a link; `RootUnprovable`, `LinkSearchStopped`, `RootForbidden` as for [`issue`](super::issue);
    /// `ProtectedNotAccessible` when it cannot be told where a protected object lies now. The grant itself stays
    /// what it was, and passes again once what stood in the way is gone.
    ///
    /// # Security
    /// True at one instant: what somebody outside the session does between this check and a write is not seen
    /// before the next check. A directory that somebody outside moves into a root, and that holds another name of a
    /// protected file which had several names all along, is not seen before the next grant.
    pub fn recheck(&self) -> Result<(), Error> {
        self.check_fully()
    }

    /// The part of [`recheck`](Self::recheck) that takes microseconds. `false` when the rest is needed, or is being
    /// done for somebody else.
    pub(crate) fn check_quickly(&self) -> Result<bool, Error> {
        match self.state.try_lock() {
            Ok(mut state) => self.is_fresh(&mut state),
            Err(TryLockError::Poisoned(poisoned)) => self.is_fresh(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(false),
        }
    }

    /// Whether nothing has happened since the last check that could have given a protected object another name: half of
    /// what [`check_quickly`](Self::check_quickly) costs. `false` where that has to tell.
    ///
    /// A path without a link that leads to the same object, with the same mounts, leads there through the same
    /// directories: each is in one other only.
    pub(crate) fn is_untouched(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        if state.is_stale || !matches!(self.mounts_changed(), Ok(false)) {
            // Remembered, because asking clears it.
            state.basis.known.forget();
            state.is_stale = true;
            return false;
        }
        if !matches!(state.basis.holdings.refresh(&self.protected), Ok(false)) {
            state.basis.searched.forget();
            state.is_stale = true;
            return false;
        }
        // A mount can be moved with a directory above it, which shows in none of these.
        let has_views = !self.has_view()
            && (0..state.basis.outlook.views.len())
                .any(|number| state.basis.outlook.views_of(number).next().is_some());
        !has_views
            && self.reads.is_untouched(&state.basis.outlook, &self.protected, !self.has_view())
            && self.roots.iter().all(|root| root.check_name().is_ok())
            && self.protected.objects().iter().all(|object| object.pin().is_at_its_name())
    }

    fn is_fresh(&self, state: &mut State) -> Result<bool, Error> {
        let mut walk = Walk::default();
        self.check_chains(&state.basis.outlook, &mut walk)?;
        let roots: Vec<_> = self.numbered().map(|(root, index)| (index, root)).collect();
        let outlook = (&state.basis.outlook, !self.has_view());
        let reads = self.reads.check_quickly(&roots, &self.protected, outlook, &mut walk)?;
        // Remembered, because asking clears it.
        if self.mounts_changed().map_err(watch_failed)? {
            state.basis.known.forget();
            state.is_stale = true;
        }
        if state.basis.holdings.refresh(&self.protected)? {
            state.basis.searched.forget();
            state.is_stale = true;
        }
        if !state.is_stale
            && !(reads && (self.has_view() || self.check_views(&state.basis.outlook, &mut walk)?))
        {
            state.basis.known.forget();
            state.is_stale = true;
        }
        Ok(!state.is_stale)
    }

    /// All of [`recheck`](Self::recheck): compares everything again where something has changed.
    pub(crate) fn check_fully(&self) -> Result<(), Error> {
        let mut state = self.state();
        if self.is_fresh(&mut state)? {
            return Ok(());
        }
        let state = &mut *state;
        if self.has_view() {
            // The mounts are what they were. Only files may have other names.
            let Basis { outlook, holdings, searched, .. } = &mut state.basis;
            self.check_links(outlook, holdings, searched)?;
            state.is_stale = false;
            return Ok(());
        }
        settled(&self.watch, || {
            let mut walk = Walk::default();
            let outlook = Outlook::look(&self.protected, &mut walk)?;
            let places = Places::find();
            for (root, index) in self.numbered() {
                let chain =
                    root.chain(&mut walk).map_err(|fault| Role::Root(index).fault(fault, root.given()))?;
                let mut examined = Examined::new(index, root.given());
                examined.judge(root, &chain, &places, &self.protected, Some(&outlook));
                if let Some(refusal) = examined.into_refusal() {
                    return Err(refusal);
                }
            }
            let Basis { holdings, searched, known, .. } = &mut state.basis;
            self.check_links(&outlook, holdings, searched)?;
            let roots: Vec<(usize, &PinnedDir)> =
                self.numbered().map(|(root, index)| (index, root)).collect();
            let found = layers::compare(&roots, &outlook, &self.protected, holdings, known)
                .map_err(|(_, refusal)| refusal)?;
            if let Some(refusal) = layers::first_refusal(&found, &roots, &self.protected) {
                return Err(refusal);
            }
            let sight = Sight { protected: &self.protected, outlook: &outlook, places: &places };
            self.reads.check_fully(&roots, &sight, &mut walk)?;
            state.basis.outlook = outlook;
            Ok(())
        })?;
        state.is_stale = false;
        tracing::debug!("the grant was compared again and holds");
        Ok(())
    }

    /// Refuses when a protected file has another name in a root.
    fn check_links(
        &self,
        outlook: &Outlook,
        holdings: &mut Holdings,
        searched: &mut Searched,
    ) -> Result<(), Error> {
        let roots: Vec<(usize, &PinnedDir)> = self.numbered().map(|(root, index)| (index, root)).collect();
        let SearchOutcome { names, stopped } =
            search(&roots, outlook, &self.protected, holdings, searched, Aim::Write);
        if let Some((_, refusal)) = stopped.into_iter().next() {
            return Err(refusal);
        }
        if let Some((index, first)) = names.first()
            && let Some((root, _)) = self.numbered().find(|(_, number)| number == index)
            && let Some(object) = self.protected.objects().get(first.target.object)
        {
            let same: Vec<OtherName> = names
                .iter()
                .filter(|(number, name)| number == index && name.target.path == first.target.path)
                .map(|(_, name)| name.clone())
                .collect();
            return Err(refusal::linked(*index, root, object, &same));
        }
        self.reads.check_links(outlook, &self.protected, holdings, searched)
    }

    /// Each root with its index in the policy.
    fn numbered(&self) -> impl Iterator<Item = (&PinnedDir, usize)> {
        self.roots.iter().zip(self.indices.iter().copied())
    }

    fn check_chains(&self, outlook: &Outlook, walk: &mut Walk) -> Result<(), Error> {
        for (root, index) in self.numbered() {
            root.check_name().map_err(|fault| no_longer(index, root, fault))?;
            let chain = root.chain(walk).map_err(|fault| Role::Root(index).fault(fault, root.given()))?;
            // The other direction is asked below, of the chains as they are now.
            for (number, object) in self.protected.objects().iter().enumerate() {
                if let Some(found) = meet(&chain, object.id().map(|id| id.key()), &[]) {
                    let (relation, met, levels) = (found.relation, found.key, found.levels);
                    return Err(Overlap { index, root, object, relation, met, levels }.error());
                }
                for view in outlook.views_of(number) {
                    if let Some(found) = meet(&chain, view.key, &[]) {
                        return Err(refusal::alias(index, root, object, &outlook.named(view, found)));
                    }
                }
            }
        }
        for object in self.protected.objects() {
            if let Some((root, index, met)) = self.root_among(&object.above_now(walk)?) {
                let Meet { relation, key: met, levels } = met;
                return Err(Overlap { index, root, object, relation, met, levels }.error());
            }
        }
        Ok(())
    }

    /// Walks the chains of all views again, by the points that their mounts have now. `false` where nothing is
    /// seen at one any more: what was may be anywhere, and only a full check looks for it.
    fn check_views(&self, outlook: &Outlook, walk: &mut Walk) -> Result<bool, Error> {
        let mut is_complete = true;
        if (0..outlook.views.len()).all(|number| outlook.views_of(number).next().is_none()) {
            return Ok(is_complete);
        }
        let table = MountTable::read().map_err(watch_failed)?;
        for (number, object) in self.protected.objects().iter().enumerate() {
            for view in outlook.views_of(number) {
                let above =
                    view.above_now(&table, walk).map_err(|fault| object.role().fault(fault, &view.name))?;
                is_complete &= above.is_some();
                let above = above.unwrap_or_default();
                let above: Vec<Key> = above.iter().map(|node| node.key).collect();
                if let Some((root, index, met)) = self.root_among(&above) {
                    return Err(refusal::alias(index, root, object, &outlook.named(view, met)));
                }
            }
        }
        Ok(is_complete)
    }

    /// The root that is one of these directories, with its index and how it lies to what they are above.
    fn root_among(&self, above: &[Key]) -> Option<(&PinnedDir, usize, Meet)> {
        above.iter().enumerate().find_map(|(level, key)| {
            let position = *self.by_key.get(key)?;
            let met = Meet { relation: Relation::Around, key: *key, levels: level + 1 };
            Some((self.roots.get(position)?, *self.indices.get(position)?, met))
        })
    }

    /// Compares one more directory with the protected objects, as a write root is compared: for a directory that
    /// the session itself adds to what commands may write.
    ///
    /// # Errors
    /// As [`issue`](super::issue) for a root, with the number of write roots as index.
    pub fn check_addition(&self, dir: &PinnedDir) -> Result<(), Error> {
        let index = self.policy.write_roots.len();
        let chain =
            dir.chain(&mut Walk::default()).map_err(|fault| Role::Root(index).fault(fault, dir.given()))?;
        let mut examined = Examined::new(index, dir.given());
        let mut state = self.state();
        let Basis { outlook, holdings, known, .. } = &mut state.basis;
        examined.judge(dir, &chain, &Places::find(), &self.protected, Some(outlook));
        if let Some(refusal) = examined.into_refusal() {
            return Err(refusal);
        }
        let found = layers::compare(&[(index, dir)], outlook, &self.protected, holdings, known)
            .map_err(|(_, refusal)| refusal)?;
        layers::first_refusal(&found, &[(index, dir)], &self.protected).map_or(Ok(()), Err)
    }
}

/// Tries again while the mount table changes under an act, a few times.
pub(super) fn settled<T>(watch: &MountWatch, mut act: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        let done = act();
        if !watch.changed().map_err(watch_failed)? {
            return done;
        }
    }
    Err(Error::new(ErrorKind::RootUnprovable, "the mount table changes faster than it can be compared")
        .hint("try again when nothing is being mounted")
        .retry(true))
}

pub(super) fn watch_failed(fault: Fault) -> Error {
    Role::Store.fault(fault, Path::new("/proc/thread-self/mountinfo"))
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
