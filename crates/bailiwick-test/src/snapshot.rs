//! What one file looked like, to prove later that nothing touched it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// All that a command could change about one file, directory, link or special file, or its absence.
///
/// A directory's content is the names in it; see [`Listing`](crate::Listing) for whole trees. The change
/// time is part of it, so even a change that was undone shows. Links are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    path: PathBuf,
    facts: BTreeMap<&'static str, String>,
}

impl Snapshot {
    /// Looks at `path`. That nothing is there is a snapshot too.
    ///
    /// # Panics
    ///
    /// If the path can be looked at neither way, for example beneath a directory without search permission.
    #[must_use]
    pub fn of(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let facts = match fs::symlink_metadata(&path) {
            Ok(metadata) => facts(&path, &metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                BTreeMap::from([("type", "absent".to_owned())])
            }
            Err(error) => panic!("look at {}: {error}", path.display()),
        };
        Snapshot { path, facts }
    }

    /// Whether nothing was there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.facts.get("type").is_some_and(|kind| kind == "absent")
    }

    /// One line per fact that is different now. Empty if nothing changed.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let now = Snapshot::of(&self.path);
        let names: std::collections::BTreeSet<_> = self.facts.keys().chain(now.facts.keys()).collect();
        let shown =
            |facts: &BTreeMap<_, String>, name| facts.get(name).map_or("none", String::as_str).to_owned();
        names
            .into_iter()
            .map(|name| (name, shown(&self.facts, name), shown(&now.facts, name)))
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| format!("{name}: {before} -> {after}"))
            .collect()
    }

    /// Asserts that nothing changed since.
    ///
    /// # Panics
    ///
    /// With every fact that did.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        let differences = self.differences();
        assert!(differences.is_empty(), "{} changed:\n  {}", self.path.display(), differences.join("\n  "));
    }

    /// Asserts that something changed since: what a positive control must show.
    ///
    /// # Panics
    ///
    /// If nothing did.
    #[track_caller]
    pub fn assert_changed(&self) {
        assert!(!self.differences().is_empty(), "{} did not change", self.path.display());
    }
}

fn facts(path: &Path, metadata: &fs::Metadata) -> BTreeMap<&'static str, String> {
    let mut facts = BTreeMap::from([
        ("type", kind(metadata).to_owned()),
        ("device", metadata.dev().to_string()),
        ("inode", metadata.ino().to_string()),
        ("mode", format!("{:04o}", metadata.mode() & 0o7777)),
        ("owner", format!("{}:{}", metadata.uid(), metadata.gid())),
        ("links", metadata.nlink().to_string()),
        ("size", metadata.size().to_string()),
        ("special device", metadata.rdev().to_string()),
        ("modified", format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec())),
        ("changed", format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec())),
    ]);
    facts.insert("content", content(path, metadata));
    facts.insert("attributes", attributes(path));
    facts
}

pub(crate) fn kind(metadata: &fs::Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "link",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_block_device() => "block device",
        () if kind.is_char_device() => "character device",
        () => "file",
    }
}

/// What a reader gets: bytes of a file, target of a link, names in a directory. Opens nothing else, since
/// opening a FIFO or a device may wait or act.
pub(crate) fn content(path: &Path, metadata: &fs::Metadata) -> String {
    let read = match kind(metadata) {
        "file" => fs::read(path).map(|bytes| describe(&bytes)),
        "link" => fs::read_link(path).map(|target| describe(target.as_os_str().as_bytes())),
        "directory" => names(path).map(|names| format!("{names:?}")),
        _ => return String::new(),
    };
    read.unwrap_or_else(|error| format!("unreadable ({})", error.kind()))
}

fn names(path: &Path) -> io::Result<Vec<OsString>> {
    let mut names =
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Short content is shown, long content is summed up.
fn describe(bytes: &[u8]) -> String {
    if bytes.len() <= 80 {
        return format!("{:?}", String::from_utf8_lossy(bytes));
    }
    format!("{} bytes, sum {:016x}", bytes.len(), sum(bytes))
}

/// A sum to notice changes with, not to defend against anybody. 64-bit FNV-1a (Fowler, Noll, Vo).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn attributes(path: &Path) -> String {
    let mut list = vec![0_u8; 65_536]; // XATTR_LIST_MAX
    let Ok(length) = rustix::fs::llistxattr(path, &mut list[..]) else { return String::new() };
    let mut names: Vec<&[u8]> =
        list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut value = vec![0_u8; 65_536]; // XATTR_SIZE_MAX
    let shown = names.into_iter().map(|name| {
        let text = String::from_utf8_lossy(name).into_owned();
        match rustix::fs::lgetxattr(path, name, &mut value[..]) {
            Ok(length) => format!("{text}={}", describe(&value[..length])),
            Err(error) => format!("{text} unreadable ({error})"),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}
