//! The paths of a world, for another thread or process, and the session that stands on them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bailiwick::{Error, ErrorKind, Output, Protection, Ran, Session, SessionBuilder};

use crate::process::{self, Process};
use crate::{World, wait_until};

/// The paths of a [`World`], and one more: `T`, the parent of the temporary directories of its sessions.
///
/// With a parent of their own, the temporary directories and the processes of one world are told from those
/// of every other test that runs at the same time: the keeper and all that descends from it carry the path
/// in their arguments.
///
/// A world stays on its own thread; this can be sent and copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(PathBuf);

impl Places {
    /// The paths of `world`. Makes `T` where it is absent.
    ///
    /// # Panics
    ///
    /// If `T` cannot be made.
    #[must_use]
    pub fn of(world: &World) -> Self {
        let places = Self(world.path().to_owned());
        fs::create_dir_all(places.temporary())
            .unwrap_or_else(|error| panic!("make {}: {error}", places.temporary().display()));
        places
    }

    /// The paths of the world at `path`, made by another process.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Makes what a world has, and `T`, in a directory of another file system. Nobody removes them.
    ///
    /// # Panics
    ///
    /// If they cannot be made.
    #[must_use]
    pub fn make_at(path: impl Into<PathBuf>) -> Self {
        let places = Self::at(path);
        let make = || {
            for part in [places.private(), places.write_root(), places.outside(), places.temporary()] {
                fs::create_dir_all(part)?;
            }
            fs::set_permissions(places.private(), fs::Permissions::from_mode(0o700))?;
            fs::write(places.secret(), "s")?;
            fs::write(places.outside_file(), "x")
        };
        make().unwrap_or_else(|error| panic!("make a world at {}: {error}", places.path().display()));
        places
    }

    /// The directory that holds the others.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path below it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// `P`: the session's private storage.
    #[must_use]
    pub fn private(&self) -> PathBuf {
        self.join("P")
    }

    /// `P/db`.
    #[must_use]
    pub fn secret(&self) -> PathBuf {
        self.join("P/db")
    }

    /// `W`: the write root.
    #[must_use]
    pub fn write_root(&self) -> PathBuf {
        self.join("W")
    }

    /// `X`: a directory in no root.
    #[must_use]
    pub fn outside(&self) -> PathBuf {
        self.join("X")
    }

    /// `X/f`.
    #[must_use]
    pub fn outside_file(&self) -> PathBuf {
        self.join("X/f")
    }

    /// `T`: where sessions make their temporary directories.
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.join("T")
    }

    /// A session with its store in `P`, its temporary directory in `T` and no root. Accepted is what no
    /// layer without namespaces keeps: metadata, and named sockets.
    pub fn bare_session(&self) -> SessionBuilder {
        Session::builder(self.private())
            .temporary_parent(self.temporary())
            .accept(Protection::Metadata)
            .accept(Protection::NamedSockets)
    }

    /// The same with the root `W`.
    pub fn session(&self) -> SessionBuilder {
        self.bare_session().write_root(self.write_root())
    }

    /// Opens [`session`](Self::session).
    ///
    /// # Panics
    ///
    /// If it is refused.
    pub async fn open(&self) -> Session {
        open(self.session()).await
    }

    /// The session's own processes that run on this world: keeper, worker, launchers and idle reapers.
    #[must_use]
    pub fn machinery(&self) -> Vec<Process> {
        let parent = self.temporary();
        let names_it = |process: &Process| {
            process.arguments().get(1).is_some_and(|argument| Path::new(argument).starts_with(&parent))
        };
        process::all().into_iter().filter(|process| !process.is_zombie() && names_it(process)).collect()
    }

    /// Asserts that sessions of this world have left neither a process of their own nor a temporary
    /// directory, now.
    ///
    /// # Panics
    ///
    /// With what is left.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let left = self.machinery();
        assert!(left.is_empty(), "processes are left: {left:?}");
        let left = entries(&self.temporary());
        assert!(left.is_empty(), "temporary directories are left: {left:?}");
    }

    /// Waits until nothing of the sessions is left, for ends that nobody waits for.
    ///
    /// # Panics
    ///
    /// If something stays.
    #[track_caller]
    pub fn assert_nothing_left_soon(&self) {
        let gone = wait_until(process::GENEROUS, || {
            self.machinery().is_empty() && entries(&self.temporary()).is_empty()
        });
        if !gone {
            self.assert_nothing_left();
        }
    }
}

/// The paths in a directory, sorted.
///
/// # Panics
///
/// If it cannot be listed.
#[must_use]
#[track_caller]
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let list =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("list {}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Opens a session.
///
/// # Panics
///
/// If it is refused, with the whole report.
pub async fn open(builder: SessionBuilder) -> Session {
    builder.open().await.unwrap_or_else(|error| panic!("open: {}", error.report()))
}

/// Closes a session.
///
/// # Panics
///
/// If it cannot be settled.
pub async fn close(session: &Session) -> bailiwick::CloseReport {
    session.close().await.unwrap_or_else(|error| panic!("close: {}", error.report()))
}

/// Runs `/bin/sh -c SCRIPT` in a session.
///
/// # Panics
///
/// If it could not be run. That the script failed is the caller's to judge.
pub async fn sh(session: &Session, script: &str) -> Output {
    let output = session.command("/bin/sh").args(["-c", script]).output().await;
    output.unwrap_or_else(|error| panic!("run `{script}`: {}", error.report()))
}

/// Asserts that a script ended with status 0, and returns what it wrote to standard output.
///
/// # Panics
///
/// If not, with all that it wrote.
#[track_caller]
pub fn done(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}; standard output: {}; standard error: {}",
        output.status,
        output.stdout.text(),
        output.stderr.text()
    );
    output.stdout.text().into_owned()
}

/// Asserts that a call was refused with this kind, that nothing ran, and that the refusal can be acted on.
///
/// # Panics
///
/// If not.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = match result {
        Err(error) => error,
        Ok(value) => panic!("not refused: {value:?}"),
    };
    assert_eq!(error.kind(), kind, "{}", error.report());
    assert_eq!(error.ran(), Ran::Nothing, "{}", error.report());
    assert!(!error.hints().is_empty(), "no way out is named: {}", error.report());
    error
}
