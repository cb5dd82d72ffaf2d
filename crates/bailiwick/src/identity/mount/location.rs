//! Where an object lies in its file system, and how two such places relate.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::Device;

/// A file system and a path within it: the same for every mount through which the object is reached.
///
/// # Security
/// One object with several hard links has several. Objects of a file system that exists elsewhere too (network,
/// or a layer of an overlay) may have others that no table shows: see `identity::promises`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    /// The file system, by the mount table's own number.
    pub(crate) device: Device,
    /// The path within it.
    pub(crate) path: PathBuf,
}

/// How one place relates to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// It is the other one.
    Same,
    /// It lies in the other one.
    Inside,
    /// The other one lies in it.
    Around,
}

/// When two names of a directory's entries may mean one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// If their bytes are equal.
    Exact,
    /// If they may be equal in some folding of case and some normal form of Unicode. Wide on purpose: names of ASCII
    /// letters are compared without case, and any other name may be any name, for foldings cross that border (the
    /// Kelvin sign folds to `k`) and differ between file systems.
    Folded,
}

impl Location {
    /// How this place relates to `other`, component by component; `None` if neither holds the other.
    pub(crate) fn overlap(&self, other: &Self, spelling: Spelling) -> Option<Overlap> {
        if self.device != other.device {
            return None;
        }
        let (mut own, mut others) = (self.path.components(), other.path.components());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return Some(Overlap::Same),
                (Some(_), None) => return Some(Overlap::Inside),
                (None, Some(_)) => return Some(Overlap::Around),
                (Some(one), Some(other)) => {
                    if !spelling.may_be_equal(one.as_os_str(), other.as_os_str()) {
                        return None;
                    }
                }
            }
        }
    }
}

impl Spelling {
    fn may_be_equal(self, one: &OsStr, other: &OsStr) -> bool {
        match self {
            Self::Exact => one == other,
            Self::Folded => {
                let (one, other) = (one.as_bytes(), other.as_bytes());
                !one.is_ascii() || !other.is_ascii() || one.eq_ignore_ascii_case(other)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: impl Into<PathBuf>) -> Location {
        Location { device: Device { major: 8, minor: 1 }, path: path.into() }
    }

    #[track_caller]
    fn assert_relation(one: &str, other: &str, spelling: Spelling, expected: Option<Overlap>) {
        let reverse = match expected {
            Some(Overlap::Inside) => Some(Overlap::Around),
            Some(Overlap::Around) => Some(Overlap::Inside),
            same_or_none => same_or_none,
        };
        assert_eq!(place(one).overlap(&place(other), spelling), expected, "{one} {other}");
        assert_eq!(place(other).overlap(&place(one), spelling), reverse, "{other} {one}");
    }

    #[test]
    fn compares_components() {
        use Overlap::{Inside, Same};
        use Spelling::Exact;
        assert_relation("/a/b", "/a/b", Exact, Some(Same));
        assert_relation("/a/b", "/a", Exact, Some(Inside));
        assert_relation("/a", "/", Exact, Some(Inside));
        assert_relation("/", "/", Exact, Some(Same));
        // Text would find each of these inside.
        assert_relation("/ab", "/a", Exact, None);
        assert_relation("/a/bc/d", "/a/b", Exact, None);
        assert_relation("/A", "/a", Exact, None);
        assert_relation("net:[1]", "net:[1]", Exact, Some(Same));
        assert_relation("net:[1]", "/", Exact, None);
    }

    #[test]
    fn one_path_on_two_file_systems_is_two_places() {
        let elsewhere = Location { device: Device { major: 8, minor: 2 }, path: "/a".into() };
        assert_eq!(place("/a").overlap(&elsewhere, Spelling::Folded), None);
    }

    #[test]
    fn folded_names() {
        use Overlap::{Inside, Same};
        use Spelling::Folded;
        assert_relation("/Work/Sub", "/wORK", Folded, Some(Inside));
        assert_relation("/work", "/word", Folded, None);
        // The Kelvin sign, sharp s, a decomposed letter, bytes that are no UTF-8.
        assert_relation("/\u{212a}", "/k", Folded, Some(Same));
        assert_relation("/stra\u{df}e", "/STRASSE", Folded, Some(Same));
        assert_relation("/e\u{301}", "/\u{e9}/x", Folded, Some(Overlap::Around));
        let raw = place(OsStr::from_bytes(b"/\xff"));
        assert_eq!(raw.overlap(&place("/y"), Folded), Some(Same));
        assert_eq!(raw.overlap(&place("/y"), Spelling::Exact), None);
    }
}
