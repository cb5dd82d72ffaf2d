//! Test programs where every user can run them.
//!
//! The target directory may lie where a plain user cannot go. So the programs are copied into a directory
//! of `/tmp`, one for each target directory and user, and copied again when cargo has built them anew.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::snapshot::sum;
use crate::world::fresh_directory;

/// Tells a re-run where the copies lie.
pub(crate) const TOOLS: &str = "BAILIWICK_TEST_TOOLS";

/// What is copied before a re-run as another user, which could not copy it.
const KNOWN: [&str; 3] = ["act", "naive", "bailiwick"];

static SOURCES: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());

/// Path of a test program, or of the `bailiwick` command, that every user can read and execute.
///
/// ```no_run
/// let status = std::process::Command::new(bailiwick_test::tool("act")).arg("list-fds").status();
/// ```
///
/// # Panics
///
/// If no binary of that name has been built, or if it cannot be copied.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    if let Some(shared) = std::env::var_os(TOOLS) {
        let path = Path::new(&shared).join(name);
        assert!(path.is_file(), "{} was not built before the run as a plain user", path.display());
        return path;
    }
    let Some(source) = source(name) else {
        panic!("the program `{name}` is not built; `cargo build --workspace` builds it")
    };
    share(name, &source)
}

/// Remembers where cargo says that binaries lie.
pub(crate) fn register(binaries: &[(&'static str, PathBuf)]) {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.extend(binaries.iter().map(|(name, path)| ((*name).to_owned(), path.clone())));
}

/// Copies what is built and says where to; `None` if nothing is.
pub(crate) fn share_all() -> Option<PathBuf> {
    if let Some(shared) = std::env::var_os(TOOLS) {
        return Some(shared.into());
    }
    let mut directories = KNOWN.iter().filter_map(|name| {
        let shared = share(name, &source(name)?);
        shared.parent().map(Path::to_owned)
    });
    let first = directories.next();
    assert!(
        directories.all(|other| Some(&other) == first.as_ref()),
        "test programs of two target directories"
    );
    first
}

/// Where the binary was built: as cargo said, else beside the directory of this test binary.
fn source(name: &str) -> Option<PathBuf> {
    let registered = SOURCES.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    // target/PROFILE/deps/TEST-HASH lies beside target/PROFILE/NAME. A documentation test lies elsewhere.
    let beside = || Some(std::env::current_exe().ok()?.ancestors().nth(2)?.join(name));
    let is_file = |path: &PathBuf| path.is_file();
    registered.filter(is_file).or_else(beside).filter(is_file)
}

fn share(name: &str, source: &Path) -> PathBuf {
    let directory = directory_for(source);
    let copy = directory.join(name);
    let looks =
        |path: &Path| fs::metadata(path).map(|found| (found.len(), found.mtime(), found.mtime_nsec())).ok();
    if looks(&copy).is_some() && looks(&copy) == looks(source) {
        return copy;
    }
    // Prepared apart and renamed: another test may be running the old copy, or copying as well.
    let prepared = fresh_directory("bw-copy");
    let new = prepared.join(name);
    // By another process: a descriptor for writing in this one could be inherited by a child that another
    // thread starts just now, and executing the copy would then fail with ETXTBSY.
    let copied = Command::new("cp").arg("--preserve=timestamps").args([source, &new]).status();
    assert!(
        copied.as_ref().is_ok_and(std::process::ExitStatus::success),
        "copy {}: {copied:?}",
        source.display()
    );
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))
        .and_then(|()| fs::rename(&new, &copy))
        .and_then(|()| fs::remove_dir(&prepared))
        .unwrap_or_else(|error| panic!("put {} in place: {error}", copy.display()));
    copy
}

/// The directory for the binaries beside `source`. Refuses one that somebody else put there.
fn directory_for(source: &Path) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let beside = source.parent().unwrap_or(source);
    let path =
        PathBuf::from(format!("/tmp/bw-tools-{user}-{:08x}", sum(beside.as_os_str().as_bytes()) >> 32));
    if !path.is_dir() {
        let fresh = fresh_directory("bw-copy");
        // Another test may have been faster; its directory is as good.
        if fs::rename(&fresh, &path).is_err() {
            let _kept_if_it_is_ours = fs::remove_dir(&fresh);
        }
    }
    let found =
        fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("look at {}: {error}", path.display()));
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    assert!(is_ours, "{} belongs to somebody else; remove it", path.display());
    path
}
