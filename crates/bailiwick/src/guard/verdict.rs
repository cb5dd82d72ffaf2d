//! What the guard found, for people and programs.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::protected::ProtectedKind;
use crate::error::{Error, path_json};
use crate::identity::ObjectId;

/// How a write root lies to a protected object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Relation {
    /// The root is the protected object.
    Same,
    /// The root lies inside the protected directory.
    Inside,
    /// The root contains the protected object.
    Around,
    /// The two meet under another name: a mount, an overlay layer, a hard link. Reserved: nothing finds these yet.
    Alias,
}

impl Relation {
    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Inside => "inside",
            Self::Around => "around",
            Self::Alias => "alias",
        }
    }
}

/// The object in which a root and a protected object meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Meeting {
    /// Device, `major:minor`.
    pub device: String,
    /// Inode number, in decimal: some file systems use all 64 bits.
    pub inode: String,
    /// How many directories one lies above the other; 0 for the same object.
    pub levels: usize,
}

/// What decided a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// One object is in the other's chain.
    Meet(Meeting),
    /// Neither is in the other's chain.
    Apart {
        /// Directories above the root, up to `/`, none of which is the protected object.
        above_root: usize,
        /// Directories above the protected object, up to `/`, none of which is the root.
        above_protected: usize,
    },
}

/// One root against one protected object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The protected object's canonical path.
    #[serde(serialize_with = "path")]
    pub protected: PathBuf,
    /// Why it is protected.
    pub protected_kind: ProtectedKind,
    /// How the root lies to it; `None` when they have nothing to do with each other.
    pub relation: Option<Relation>,
    /// What decided.
    pub fact: Fact,
}

/// What became of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// It would be granted.
    Granted,
    /// It would be granted, and lies in, or is, the root with this index.
    Covered(usize),
    /// It cannot be granted.
    Refused,
}

/// What the guard found about one root.
#[derive(Debug, Serialize)]
pub struct RootVerdict {
    /// Index in the policy.
    pub index: usize,
    /// The path as the caller wrote it.
    #[serde(serialize_with = "path")]
    pub given: PathBuf,
    /// The canonical path; `None` when nothing could be opened.
    #[serde(serialize_with = "optional_path")]
    pub canonical: Option<PathBuf>,
    /// Which object it is; `None` when nothing could be opened.
    pub object: Option<ObjectId>,
    /// What became of it.
    pub decision: Decision,
    /// Every protected object that it was compared with.
    pub comparisons: Vec<Comparison>,
    /// Every reason why it cannot be granted, the one that [`issue`](super::issue) would give first.
    pub refusals: Vec<Error>,
}

/// What the guard found about a policy.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Whether the policy would be granted.
    pub granted: bool,
    /// One for each root of the policy, in its order.
    pub roots: Vec<RootVerdict>,
    /// Faults of the policy that belong to no root.
    pub refusals: Vec<Error>,
    /// What could have been protected and is not, with the reason, in plain words.
    pub notes: Vec<String>,
}

impl Verdict {
    /// The first refusal, in the order of the policy.
    pub(super) fn into_refusal(self) -> Option<Error> {
        self.roots.into_iter().flat_map(|root| root.refusals).chain(self.refusals).next()
    }
}

fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path_json(path, serializer)
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn optional_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => path_json(path, serializer),
        None => serializer.serialize_none(),
    }
}
