//! The fixture of a case.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::future::Future;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::runtime::{Builder, Runtime};

use crate::remove::remove_tree;

/// Directories that one case may spoil. Made as the current user, removed on drop.
///
/// | path | what | mode |
/// |---|---|---|
/// | `private()` | the session's private storage, `P` in the cases | 0700 |
/// | `secret()` | a file in it, `P/db`, holding `s` | 0600 |
/// | `write_root()` | the directory that commands may write, `W` | 0755 |
/// | `outside()` | a directory in no root, `X` | 0755 |
/// | `outside_file()` | a file in it, `X/f`, holding `x` | 0644 |
///
/// All lie below one directory of `/tmp`, of mode 0755 and with a short name, so that a Unix socket path
/// (107 bytes) fits and every user can reach it.
#[derive(Debug)]
pub struct World {
    root: PathBuf,
    runtime: OnceCell<Runtime>,
}

impl World {
    /// Makes the directories and files.
    ///
    /// # Panics
    ///
    /// If `/tmp` does not allow it.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "making a world has an effect; a default should not")]
    pub fn new() -> Self {
        let world = World { root: fresh_directory("bw"), runtime: OnceCell::new() };
        for (directory, mode) in
            [(world.private(), 0o700), (world.write_root(), 0o755), (world.outside(), 0o755)]
        {
            world.make(&directory, fs::create_dir(&directory), mode);
        }
        for (file, content, mode) in [(world.secret(), "s", 0o600), (world.outside_file(), "x", 0o644)] {
            world.make(&file, fs::write(&file, content), mode);
        }
        world
    }

    // The umask of the run must not decide what a case looks at.
    fn make(&self, path: &Path, made: std::io::Result<()>, mode: u32) {
        made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
            .unwrap_or_else(|error| panic!("make the fixture {}: {error}", path.display()));
    }

    /// The directory that holds the others.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// `P`: the session's private storage.
    #[must_use]
    pub fn private(&self) -> PathBuf {
        self.root.join("P")
    }

    /// `P/db`: a private file, holding `s`.
    #[must_use]
    pub fn secret(&self) -> PathBuf {
        self.root.join("P/db")
    }

    /// `W`: the write root.
    #[must_use]
    pub fn write_root(&self) -> PathBuf {
        self.root.join("W")
    }

    /// `X`: a directory in no root.
    #[must_use]
    pub fn outside(&self) -> PathBuf {
        self.root.join("X")
    }

    /// `X/f`: a file outside every root, holding `x`.
    #[must_use]
    pub fn outside_file(&self) -> PathBuf {
        self.root.join("X/f")
    }

    /// Runs a future to its end on the current-thread runtime of this world, made on first use.
    ///
    /// # Panics
    ///
    /// If the runtime cannot be made, or from within another runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let runtime = self.runtime.get_or_init(|| {
            Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap_or_else(|error| panic!("make a runtime: {error}"))
        });
        runtime.block_on(future)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        remove_tree(&self.root);
    }
}

/// Makes a directory of mode 0755 in `/tmp` whose name nothing had before.
pub(crate) fn fresh_directory(prefix: &str) -> PathBuf {
    let mut random = [0_u8; 5];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .unwrap_or_else(|error| panic!("ask for randomness: {error}"));
    let name = random.iter().fold(format!("{prefix}-"), |mut name, byte| {
        let _never_fails = write!(name, "{byte:02x}");
        name
    });
    let path = Path::new("/tmp").join(name);
    crate::case::note_world(&path);
    // Fails when the name exists, which also refuses a link that somebody planted.
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .unwrap_or_else(|error| panic!("make {}: {error}", path.display()));
    path
}
