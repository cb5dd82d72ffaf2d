//! What casts doubt on what a command could reach.

use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Field, optional_path_json, path_json};

/// Something that was found out while a command ran, and that its outcome has to be read with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "mark")]
#[non_exhaustive]
pub enum Mark {
    /// A protected object was found to be reachable through a write root, or through what commands may read, or it
    /// could no longer be proved that it was not: somebody outside of the session mounted, linked or moved something
    /// meanwhile. The command may have changed the object, or have read it.
    AliasFound {
        /// Code of the refusal that every later command got.
        code: &'static str,
        /// The refusal in words.
        message: String,
        /// The protected object.
        #[serde(serialize_with = "path_json")]
        protected: PathBuf,
        /// The name in the root, where there is one.
        #[serde(serialize_with = "optional_path_json")]
        other_name: Option<PathBuf>,
    },
}

impl Mark {
    /// The mark for a refusal, if it is one that casts doubt on what ran before it.
    pub(super) fn of(error: &Error) -> Option<Self> {
        let doubtful = matches!(
            error.kind(),
            ErrorKind::RootOverlap
                | ErrorKind::ReadOverlap
                | ErrorKind::RootUnprovable
                | ErrorKind::LinkSearchStopped
        );
        let path = |field| error.field(field).and_then(Field::as_path).map(PathBuf::from);
        doubtful.then(|| Self::AliasFound {
            code: error.code(),
            message: error.to_string(),
            protected: path("protected").unwrap_or_default(),
            other_name: path("other_name"),
        })
    }
}
