//! What a whole tree looked like.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::snapshot::{content, kind, sum};

/// The entries of a tree, each with type, mode, owner, size, link count and content. Times and inodes are
/// left out: a build that wrote the same file again left no debris.
///
/// Links are not followed and other devices not entered. What cannot be read is listed as unreadable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    root: PathBuf,
    entries: BTreeMap<PathBuf, String>,
}

impl Listing {
    /// Lists `root` and all beneath it.
    ///
    /// # Panics
    ///
    /// If `root` itself cannot be looked at.
    #[must_use]
    pub fn of(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref().to_owned();
        let device = fs::symlink_metadata(&root)
            .unwrap_or_else(|error| panic!("list {}: {error}", root.display()))
            .dev();
        let mut entries = BTreeMap::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(relative) = pending.pop() {
            let path = root.join(&relative);
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let is_directory = metadata.is_dir();
            if is_directory && metadata.dev() == device {
                let children = fs::read_dir(&path).into_iter().flatten().flatten();
                pending.extend(children.map(|child| relative.join(child.file_name())));
            }
            // The size of a directory depends on its history, and its names are entries of their own.
            let (size, content) = if is_directory {
                (0, fs::read_dir(&path).err().map(|error| error.kind().to_string()).unwrap_or_default())
            } else {
                (metadata.size(), content(&path, &metadata))
            };
            let line = format!(
                "{} {:04o} {}:{} size {size} links {} {content}",
                kind(&metadata),
                metadata.mode() & 0o7777,
                metadata.uid(),
                metadata.gid(),
                if is_directory { 1 } else { metadata.nlink() },
            );
            entries.insert(relative, line);
        }
        Listing { root, entries }
    }

    /// One line per entry that is missing, new or different in `later`.
    #[must_use]
    pub fn differences(&self, later: &Listing) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.entries.keys().chain(later.entries.keys()).collect();
        let different = names.into_iter().filter_map(|name| {
            let path = self.root.join(name);
            match (self.entries.get(name), later.entries.get(name)) {
                (before, after) if before == after => None,
                (Some(before), Some(after)) => Some(format!("{}: {before} -> {after}", path.display())),
                (Some(before), None) => Some(format!("{} is gone ({before})", path.display())),
                (None, after) => Some(format!("{} is new ({})", path.display(), after?)),
            }
        });
        different.collect()
    }

    /// A sum over all entries, equal for equal trees.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        sum(format!("{:?}", self.entries).as_bytes())
    }

    /// Number of entries, the root included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Asserts that the tree is as it was.
    ///
    /// # Panics
    ///
    /// With every entry that is not.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        let differences = self.differences(&Listing::of(&self.root));
        assert!(differences.is_empty(), "{} changed:\n  {}", self.root.display(), differences.join("\n  "));
    }
}
