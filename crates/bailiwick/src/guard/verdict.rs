//! What the guard found, for people and programs.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::protected::ProtectedKind;
use crate::error::{Error, optional_path_json, path_json};
use crate::identity::{AliasKind, ObjectId};

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
    /// The root reaches the protected object, or a part of it, under another name: through a mount, a layer of an
    /// overlay, a hard link.
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
    /// The protected object is seen under another name, and that name and the root meet.
    Seen {
        /// How it comes to have the other name.
        alias: AliasKind,
        /// The other name.
        #[serde(serialize_with = "path_json")]
        name: PathBuf,
        /// Where the mount is through which it is seen.
        #[serde(serialize_with = "optional_path_json")]
        mount_point: Option<PathBuf>,
        /// How the root lies to the other name.
        lies: Relation,
        /// Where the two meet.
        meeting: Meeting,
    },
    /// A file in the protected object, or the object itself, has other names in the root.
    Linked {
        /// The file.
        #[serde(serialize_with = "path_json")]
        file: PathBuf,
        /// How many names it has in all.
        links: u32,
        /// Device, `major:minor`.
        device: String,
        /// Inode number, in decimal.
        inode: String,
    },
    /// It cannot be told whether the root reaches the protected object.
    Unproven {
        /// Why, in plain words.
        why: String,
    },
    /// Neither is in the other's chain, and no other name of the protected object is in the root.
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
    #[serde(serialize_with = "path_json")]
    pub protected: PathBuf,
    /// Why it is protected.
    pub protected_kind: ProtectedKind,
    /// How the root lies to it; `None` when they have nothing to do with each other.
    pub relation: Option<Relation>,
    /// What decided.
    pub fact: Fact,
    /// Every other name of the protected object that was found in the root.
    #[serde(serialize_with = "paths")]
    pub other_names: Vec<PathBuf>,
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
    #[serde(serialize_with = "path_json")]
    pub given: PathBuf,
    /// The canonical path; `None` when nothing could be opened.
    #[serde(serialize_with = "optional_path_json")]
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

/// What became of a directory or file that commands may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadDecision {
    /// Commands could read it.
    Readable,
    /// A part of the base set that this host lacks, or that this user cannot reach.
    Absent,
    /// It cannot be granted.
    Refused,
}

/// What the guard found about one directory or file that commands may read.
#[derive(Debug, Serialize)]
pub struct ReadVerdict {
    /// What it is for: `root`, `programs` or `base`.
    pub purpose: &'static str,
    /// Index in its list of the policy.
    pub index: usize,
    /// The path as the caller wrote it.
    #[serde(serialize_with = "path_json")]
    pub given: PathBuf,
    /// The canonical path, where it can be granted.
    #[serde(serialize_with = "optional_path_json")]
    pub canonical: Option<PathBuf>,
    /// What became of it.
    pub decision: ReadDecision,
    /// Why it cannot be granted.
    pub refusals: Vec<Error>,
}

/// What the guard found about a policy.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Whether the policy would be granted.
    pub granted: bool,
    /// One for each root of the policy, in its order.
    pub roots: Vec<RootVerdict>,
    /// What commands could read beside the write roots: roots, programs, base set. `None` where that is everything.
    pub reads: Option<Vec<ReadVerdict>>,
    /// Faults of the policy that belong to no root.
    pub refusals: Vec<Error>,
    /// What could have been protected and is not, with the reason, in plain words.
    pub notes: Vec<String>,
}

impl Verdict {
    /// The first refusal, in the order of the policy.
    pub(super) fn into_refusal(self) -> Option<Error> {
        self.into_refusals().next()
    }

    /// Every refusal, in the order of the policy: the first is the one that [`issue`](super::issue) would give.
    pub fn into_refusals(self) -> impl Iterator<Item = Error> {
        let reads = self.reads.into_iter().flatten().flat_map(|read| read.refusals);
        self.roots.into_iter().flat_map(|root| root.refusals).chain(reads).chain(self.refusals)
    }
}

fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    struct One<'a>(&'a Path);

    impl Serialize for One<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            path_json(self.0, serializer)
        }
    }

    serializer.collect_seq(paths.iter().map(|path| One(path)))
}
