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
//! Not compared yet, and each has its place beside these: mounts at or below either side, layers of overlay file
//! systems, hard links to protected files, and file systems whose names or inodes cannot be trusted (FUSE, folded
//! case). [`Relation::Alias`] is theirs.

mod examine;
mod forbidden;
mod grant;
mod protected;
mod refusal;
mod verdict;

use crate::error::Error;
use crate::policy::Policy;

pub use grant::Grant;
pub use protected::{ProtectedKind, ProtectedObject, ProtectedSet, ProtectedSetBuilder};
pub use verdict::{Comparison, Decision, Fact, Meeting, Relation, RootVerdict, Verdict};

/// Grants the write roots of a policy, or refuses the first that cannot be granted.
///
/// The roots stay open in the grant. Roots inside other roots, and roots given twice, collapse into the outermost.
///
/// # Errors
/// For a root: `RootInvalid`, `RootNotFound`, `RootNotDirectory`, `RootThroughMagicLink`, `RootForbidden`,
/// `RootOverlap`, `RootNotAccessible`, `RootIdentityChanged` (can retry), `TooManyRoots`. Otherwise
/// `ProtectedInvalid`, `ProtectedNotAccessible`, `EnvInvalid`, `LimitInvalid`, `PlatformUnsupported`. Nothing has run.
///
/// # Security
/// True at one instant. [`Grant::recheck`] asks again, before every command.
pub fn issue(policy: &Policy, protected: ProtectedSet) -> Result<Grant, Error> {
    let (verdict, roots) = examine::examine(policy, &protected);
    match verdict.into_refusal() {
        Some(refusal) => {
            tracing::debug!(code = refusal.code(), "grant refused");
            Err(refusal)
        }
        None => {
            tracing::debug!(given = policy.write_roots.len(), effective = roots.len(), "grant issued");
            Ok(Grant::new(policy.clone(), roots, protected))
        }
    }
}

/// Tells for every write root what it was compared with and which fact decided.
///
/// Nothing is kept open, and nothing is granted: between this answer and a later [`issue`] things may change.
#[must_use]
pub fn explain(policy: &Policy, protected: &ProtectedSet) -> Verdict {
    examine::examine(policy, protected).0
}
