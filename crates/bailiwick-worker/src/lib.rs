//! Builds the image of the worker, for whoever embeds it.
//!
//! Cargo has no stable way to embed one package's program in another, and a nested cargo in a build
//! script would need the registry, the lock file and the settings of whoever depends on us. So a build
//! script calls [`compile`], which calls the compiler itself: the worker needs `std` and the protocol
//! crate and nothing else.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to build an image.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The compiler: `RUSTC` of a build script.
    pub rustc: OsString,
    /// The linker, where cargo was told of one: `RUSTC_LINKER` of a build script.
    pub linker: Option<OsString>,
    /// Target triple: `TARGET` of a build script.
    pub target: String,
    /// Folder for the outcome: `OUT_DIR` of a build script.
    pub out_dir: PathBuf,
    /// Builds the image whose layers can be left out. **For tests only**: it finds a layer missing that it was started
    /// without, and a session that requires what that keeps is refused.
    pub has_switches: bool,
}

impl Recipe {
    /// The recipe that a build script is told by its environment.
    ///
    /// # Errors
    /// A variable that cargo sets is missing, so this is no build script.
    pub fn from_build_script() -> Result<Self, BuildError> {
        let variable = |name: &'static str| {
            std::env::var_os(name)
                .ok_or(BuildError { what: format!("{name} is not set; call this from a build script") })
        };
        Ok(Self {
            rustc: variable("RUSTC")?,
            linker: std::env::var_os("RUSTC_LINKER"),
            target: variable("TARGET")?
                .into_string()
                .map_err(|target| BuildError { what: format!("target {} is not text", target.display()) })?,
            out_dir: variable("OUT_DIR")?.into(),
            has_switches: false,
        })
    }

    /// Whether an image can be built for the target. Elsewhere a session is refused when it is opened.
    #[must_use]
    pub fn supported(&self) -> bool {
        self.target.starts_with("x86_64-") && self.target.contains("-linux-")
    }
}

/// The image could not be built.
pub struct BuildError {
    what: String,
}

/// What a build script prints when it returns one.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for BuildError {}

/// Folders whose change makes an image stale.
#[must_use]
pub fn sources() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let wire = bailiwick_wire::SOURCE_DIR.map(|directory| Path::new(directory).join("src"));
    std::iter::once(own).chain(wire).collect()
}

/// Builds the worker and returns the path of the image: a static executable of about one MiB.
///
/// # Errors
/// The compiler could not be run, or failed; what it printed is in the message.
pub fn compile(recipe: &Recipe) -> Result<PathBuf, BuildError> {
    let wire = bailiwick_wire::SOURCE_DIR
        .ok_or(BuildError { what: "the protocol crate was not built by cargo".to_owned() })?;
    let wire = Path::new(wire).join("src/lib.rs");
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
    std::fs::create_dir_all(&recipe.out_dir)
        .map_err(|error| BuildError { what: format!("make {}: {error}", recipe.out_dir.display()) })?;

    rustc(recipe, &wire, "bailiwick_wire", &["--crate-type", "rlib", "--emit", "link"], &[])?;
    let mut more = Vec::new();
    if recipe.has_switches {
        more.extend(["--cfg".into(), OsString::from("test_switches")]);
    }
    let mut library = OsString::from("bailiwick_wire=");
    library.push(recipe.out_dir.join("libbailiwick_wire.rlib"));
    more.extend(["--extern".into(), library]);
    let mut kind = vec!["--crate-type", "bin", "--emit", "link"];
    // An image for tests is built often and measured never.
    if !recipe.has_switches {
        kind.extend(["-C", "lto=fat"]);
    }
    rustc(recipe, &worker, "bailiwick_worker", &kind, &more)?;
    Ok(recipe.out_dir.join("bailiwick_worker"))
}

fn rustc(
    recipe: &Recipe,
    source: &Path,
    name: &str,
    kind: &[&str],
    more: &[OsString],
) -> Result<(), BuildError> {
    let mut command = Command::new(&recipe.rustc);
    command
        .args(["--edition", "2024", "--crate-name", name, "--target", &recipe.target])
        .args(kind)
        // Static: it must run before, beside and without any library of the host. A panic must not
        // unwind through a copy of the worker, but end it, which its parent sees.
        .args(["-C", "target-feature=+crt-static", "-C", "panic=abort"])
        .args(["-C", if recipe.has_switches { "opt-level=0" } else { "opt-level=s" }])
        .args(["-C", "codegen-units=1", "-C", "strip=symbols", "-C", "debuginfo=0"])
        .args(["-C", "embed-bitcode=yes", "--cap-lints", "allow"])
        .arg("--out-dir")
        .arg(&recipe.out_dir)
        .args(more)
        .arg(source);
    if let Some(linker) = &recipe.linker {
        let mut option = OsString::from("linker=");
        option.push(linker);
        command.arg("-C").arg(option);
    }
    // Flags meant for the crates of whoever depends on us are not meant for the worker.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let output = command.output().map_err(|error| BuildError {
        what: format!("run the compiler {}: {error}", recipe.rustc.display()),
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(BuildError {
        what: format!(
            "compile {} for {} ({}); if it is linking that fails, a static C library is missing (package libc6-dev or glibc-static):\n{}",
            source.display(),
            recipe.target,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ),
    })
}
