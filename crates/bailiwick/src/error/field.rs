//! The values an error carries for a program.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// One value of an [`Error`](crate::Error).
///
/// Device and inode numbers travel as [`Field::Text`] (`254:0`, `131842`): some file systems use all 64
/// bits of an inode number, which neither `i64` nor a JSON number holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// A path, byte for byte as the caller or the kernel gave it.
    Path(PathBuf),
    /// A word, a sentence, or a number too large for [`Field::Number`].
    Text(String),
    /// A number; its unit is part of the field's name where it has one.
    Number(i64),
    /// Several values.
    List(Vec<Field>),
}

impl Field {
    /// The path, if this is one.
    #[must_use]
    pub fn as_path(&self) -> Option<&Path> {
        if let Self::Path(path) = self { Some(path) } else { None }
    }

    /// The text, if this is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The number, if this is one.
    #[must_use]
    pub fn as_number(&self) -> Option<i64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// The values, if this is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Field]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Path(path) => super::path_json(path, serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::List(list) => list.serialize(serializer),
        }
    }
}
