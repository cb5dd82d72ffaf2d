//! Says yes or no: policy and identity in, a [`Grant`] out, or a refusal that names both objects and how they lie.
//!
//! [`issue`] is the only place that makes a [`Grant`], and a grant is the only thing that a worker can be handed.
//! [`explain`] compares the same things in the same way and tells all of it instead of stopping at the first no.
//!
//! # What is compared
//!
//! 1. Shape: absolute, nothing to expand, no NUL (`policy`).
//! 2. What it is: an existing directory that this user can enter and write, not `/`, not in `/dev`, not on a file
//!    system through which the kernel is controlled.
//! 3. Identity, both ways: device and inode of each root in the chain of directories above each protected object,
//!    and of each protected directory in the chain above each root; every chain walked by descriptor.
//!
//! 4. Mounts, both ways: every place at which a protected object, a part of it, or a directory above it is seen
//!    through another mount is compared like the object itself. A mount that another one covers shows nothing, and one
//!    that is read-only takes no write.
//! 5. Overlays, both ways: the directories that the overlay of a protected object is made of, and the overlays that
//!    write to where one lies. Of layers that cannot be found by their names, as in a container, what the kernel tells
//!    of them is compared: file handles, places within file systems, birth times.
//! 6. Hard links: a protected file with more than one name has its other names searched for in the roots.
//! 7. What is mounted beneath a root: no device of this host, and no control of the kernel.
//! 8. Where the policy limits what commands may read: all of it, and the write roots again, under every name that can
//!    be read, in both directions, for other names of private files too.
//!
//! What cannot be proved refuses: layers that cannot be found, file systems on which neither names nor numbers tell
//! objects apart, or which a program serves that may show directories of this machine, searches that reach their bound.

mod examine;
mod forbidden;
mod grant;
mod layers;
mod links;
mod outlook;
mod protected;
mod read;
mod refusal;
mod search;
mod verdict;
mod view;

use crate::error::{Error, ErrorKind};
use crate::identity::MountWatch;
use crate::policy::Policy;
use grant::{settled, watch_failed};

use examine::Examination;

pub use crate::policy::ReadPurpose;
pub use grant::Grant;
pub(crate) use links::Searched;
pub use protected::{ProtectedKind, ProtectedObject, ProtectedSet, ProtectedSetBuilder};
pub(crate) use read::ReadPin;
pub use read::check_readable;
pub use search::{LinkSearch, SearchProgress};
pub use verdict::{
    Comparison, Decision, Fact, Meeting, ReadDecision, ReadVerdict, Relation, RootVerdict, Verdict,
};

/// Grants the write roots of a policy, or refuses the first that cannot be granted.
///
/// The roots stay open in the grant. Roots inside other roots, and roots given twice, collapse into the outermost.
///
/// # Errors
/// For a root: `RootInvalid`, `RootNotFound`, `RootNotDirectory`, `RootThroughMagicLink`, `RootForbidden`,
/// `RootOverlap`, `RootUnprovable`, `LinkSearchStopped`, `RootNotAccessible`, `RootIdentityChanged` (can retry),
/// `TooManyRoots`. For what commands may read: `ReadInvalid`, `ReadOverlap`, `ReadForbidden`, `ReadChanged`, `LinkSearchStopped`. Otherwise
/// `ProtectedInvalid`, `ProtectedNotAccessible`, `EnvInvalid`, `LimitInvalid`, `PlatformUnsupported`. Nothing has run.
///
/// # Security
/// True at one instant. [`Grant::recheck`] asks again, before every command.
///
/// The lower layers of an overlay are found by the paths that it was mounted with, and no call of the kernel tells which
/// directories they are. Where one was moved away or unmounted since, and another directory has its path now, that one
/// is compared in its place.
pub fn issue(policy: &Policy, protected: ProtectedSet) -> Result<Grant, Error> {
    issue_after(policy, protected, Searched::default())
}

/// As [`issue`], without searching again for what an earlier grant of the same session has searched for.
pub(crate) fn issue_after(
    policy: &Policy,
    protected: ProtectedSet,
    searched: Searched,
) -> Result<Grant, Error> {
    let watch = MountWatch::new().map_err(watch_failed)?;
    let (verdict, (roots, reads), basis) = settled(&watch, || {
        let Examination { verdict, roots, reads, basis } =
            examine::examine(policy, &protected, searched.clone());
        Ok((verdict, (roots, reads), basis))
    })?;
    match (verdict.into_refusal(), basis) {
        (Some(refusal), _) => {
            tracing::debug!(code = refusal.code(), "grant refused");
            Err(refusal)
        }
        (None, Some(basis)) => {
            tracing::debug!(given = policy.write_roots.len(), effective = roots.len(), "grant issued");
            Ok(Grant::new(policy.clone(), roots, reads, protected, watch, basis))
        }
        (None, None) => Err(Error::new(ErrorKind::Internal, "a policy was neither refused nor examined")),
    }
}

/// Tells for every write root what it was compared with and which fact decided.
///
/// Nothing is kept open, and nothing is granted: between this answer and a later [`issue`] things may change.
#[must_use]
pub fn explain(policy: &Policy, protected: &ProtectedSet) -> Verdict {
    examine::examine(policy, protected, Searched::default()).verdict
}
