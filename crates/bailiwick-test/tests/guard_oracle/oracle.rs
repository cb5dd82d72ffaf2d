//! What is true: a process confined by Landlock tries to change whatever it sees, and the host looks what changed.
//!
//! Nothing here is shared with the guard, and nothing here compares paths, identities or mounts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bailiwick_test::act::{self, Scopes};
use bailiwick_test::tool;

/// More names than any layout shows.
const LIMIT: usize = 50_000;

/// A place that is held, whatever becomes of its name.
#[derive(Debug)]
pub(crate) struct Held(File);

impl Held {
    /// Follows links, as the kernel does for whoever names a write root.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mark_only = libc::O_PATH | libc::O_CLOEXEC;
        OpenOptions::new().read(true).custom_flags(mark_only).open(path).map(Self)
    }

    /// A name of it in this process, which its children can open too.
    pub(crate) fn name(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Whether the kernel's name for it leads to it: not where it was removed, lies on a detached mount, or is covered by
    /// another, even if that shows the same.
    pub(crate) fn is_at_its_name(&self) -> bool {
        let there = fs::read_link(self.name()).and_then(|name| Self::open(&name));
        there.is_ok_and(|there| there.identity().is_some() && there.identity() == self.identity())
    }

    /// Device, inode and mount.
    pub(crate) fn identity(&self) -> Option<(u64, u64, u64)> {
        use rustix::fs::{AtFlags, StatxFlags};
        let found = self.0.metadata().ok()?;
        let mount = rustix::fs::statx(&self.0, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?.stx_mnt_id;
        Some((found.dev(), found.ino(), mount))
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

/// Something that must not change: by its name, and by itself wherever it is.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) path: PathBuf,
    /// `None` for what does not exist yet; then the directory in which it will be.
    pub(crate) held: Option<Held>,
    pub(crate) holder: Option<Held>,
}

impl Object {
    /// Whether something in it cannot be read, even by who may read everything.
    pub(crate) fn is_partly_unreadable(&self) -> bool {
        State::of(&self.path).0.values().any(|content| matches!(content, Content::Failed(_)))
    }

    /// Whether something lies in it, or is it, when it is walked through every mount.
    pub(crate) fn shows(&self, sought: &Held) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let sought = sought.file().metadata().ok().map(identity);
        self.paths().any(|path| fs::symlink_metadata(path).ok().map(identity) == sought)
    }

    /// It, and everything in it, through every mount.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let join =
            |path: PathBuf| if path == Path::new("") { self.path.clone() } else { self.path.join(path) };
        State::of(&self.path).0.into_keys().map(join)
    }

    /// Opens what is at a path, or will be.
    pub(crate) fn at(path: &Path) -> Self {
        let held = Held::open(path).ok();
        let holder = path.parent().filter(|_| held.is_none()).and_then(|above| Held::open(above).ok());
        Self { path: path.to_owned(), held, holder }
    }

    /// Content and names by its path, and by itself, wherever it is.
    fn look(&self) -> [Option<State>; 3] {
        let names = |holder: &Held| {
            let entries = fs::read_dir(holder.name()).into_iter().flatten().flatten();
            State(entries.map(|entry| (entry.file_name().into(), Content::Other)).collect())
        };
        let itself = self.held.as_ref().map(|held| State::of(&held.name()));
        [Some(State::of(&self.path)), itself, self.holder.as_ref().map(names)]
    }
}

/// Content and names of a tree, as the host sees them, without the marks in it.
#[derive(Debug, PartialEq, Eq)]
struct State(BTreeMap<PathBuf, Content>);

#[derive(Debug, PartialEq, Eq)]
enum Content {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
    Other,
    Failed(Option<i32>),
}

impl State {
    fn of(top: &Path) -> Self {
        let mut state = BTreeMap::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(at) = pending.pop() {
            assert!(state.len() < LIMIT, "what is protected is too large: {}", top.display());
            // The top may be a link of the kernel to what it holds.
            let whole = if at == Path::new("") { top.to_owned() } else { top.join(&at) };
            let found = if at == Path::new("") { fs::metadata(&whole) } else { fs::symlink_metadata(&whole) };
            let content = match found {
                Err(error) => Content::Failed(error.raw_os_error()),
                Ok(found) if found.is_dir() => match fs::read_dir(&whole) {
                    Ok(entries) => {
                        let entries = entries.flatten().map(|entry| at.join(entry.file_name()));
                        pending.extend(entries);
                        Content::Directory
                    }
                    Err(error) => Content::Failed(error.raw_os_error()),
                },
                Ok(found) if found.is_symlink() => fs::read_link(&whole)
                    .map_or_else(|error| Content::Failed(error.raw_os_error()), Content::Link),
                Ok(found) if found.is_file() => {
                    fs::read(&whole).map_or_else(|error| Content::Failed(error.raw_os_error()), Content::File)
                }
                Ok(_) => Content::Other,
            };
            state.insert(at, content);
        }
        Self(state)
    }

    fn difference(&self, after: &Self) -> Option<String> {
        let changed = self.0.iter().find(|(path, content)| after.0.get(*path) != Some(content));
        let came = || after.0.keys().find(|path| !self.0.contains_key(*path));
        changed
            .map(|(path, content)| {
                format!("{} was {content:?} and is {:?}", path.display(), after.0.get(path))
            })
            .or_else(|| came().map(|path| format!("{} is new", path.display())))
    }
}

/// For each object, what a command reached in it.
#[derive(Debug)]
pub(crate) struct Reached(pub(crate) Vec<Option<String>>);

impl Reached {
    pub(crate) fn any(&self) -> Option<&String> {
        self.0.iter().flatten().next()
    }
}

/// Lets a process that may write these roots, and nothing else, change what it can below `base`.
pub(crate) fn attack(base: &Path, roots: &[&Held], objects: &[Object]) -> Reached {
    static TAGS: AtomicU64 = AtomicU64::new(0);
    if roots.is_empty() {
        return Reached(objects.iter().map(|_| None).collect());
    }
    let look = || -> Vec<[Option<State>; 3]> { objects.iter().map(Object::look).collect() };
    let before = look();
    let tag = format!("{}-{}", std::process::id(), TAGS.fetch_add(1, Ordering::Relaxed));
    let mut words: Vec<OsString> = vec!["mark".into(), base.into(), tag.into(), LIMIT.to_string().into()];
    words.extend(objects.iter().map(|object| object.path.clone().into_os_string()));
    let names: Vec<PathBuf> = roots.iter().map(|root| root.name()).collect();
    let report = act::report_of(act::naive(&names, Scopes::None).arg(tool("act")).args(words));
    report.assert_done();
    let after = look();
    let displaced = report.value["displaced"].as_array().cloned().unwrap_or_default();
    let pairs = before.iter().zip(&after).enumerate();
    let reached = pairs.map(|(number, (before, after))| {
        let mut pairs =
            before.iter().zip(after).filter_map(|(before, after)| before.as_ref().zip(after.as_ref()));
        let moved =
            || (displaced.get(number) == Some(&true.into())).then(|| "its name can be taken".to_owned());
        pairs.find_map(|(before, after)| before.difference(after)).or_else(moved)
    });
    Reached(reached.collect())
}

/// Gives this user every right on what is theirs below `base`: a command can do so too, by `chmod`, which no
/// Landlock refuses.
pub(crate) fn open_up(base: &Path) {
    let mut pending = vec![base.to_owned()];
    while let Some(at) = pending.pop() {
        let Ok(found) = fs::symlink_metadata(&at) else { continue };
        if found.is_symlink() || (!found.is_dir() && !found.is_file()) {
            continue;
        }
        if found.permissions().mode() & 0o700 != 0o700 {
            let _read_only = fs::set_permissions(&at, fs::Permissions::from_mode(0o700));
        }
        if found.is_dir()
            && let Ok(entries) = fs::read_dir(&at)
        {
            pending.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
}
