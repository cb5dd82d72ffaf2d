//! A Rust dependent gets the worker with no step of its own.
//!
//! The packaged crates are laid beside the third-party crates that they need, the copy of the workspace
//! from which they were packaged is deleted, and a crate outside of it is built offline with a fresh cargo
//! home and an empty environment. Then it runs a confined command.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bailiwick_test::{Need, Toolchain, requires};

const CRATES: [&str; 3] = ["bailiwick-wire", "bailiwick-worker", "bailiwick"];

/// All crates of the project share one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const CONSUMER: &str = r#"
use bailiwick::{Protection, Session};

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    runtime.block_on(async {
        let session = Session::builder(place.join("store"))
            .write_root(place.join("root"))
            .accept(Protection::Metadata)
            .accept(Protection::NamedSockets)
            .open()
            .await
            .unwrap();
        let script = "echo inside > inside; echo outside > ../outside; exit 7";
        let output = session.command("sh").args(["-c", script]).output().await.unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", output.stderr.text());
        session.close().await.unwrap();
    });
}
"#;

fn successful(what: &str, command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        output.status.success(),
        "{what}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Copies what git would put into a clone, and what is new beside it.
fn copy_workspace(to: &Path) {
    let from = workspace();
    let listing = successful(
        "git ls-files",
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&from),
    );
    for name in listing.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = Path::new(std::str::from_utf8(name).unwrap());
        if from.join(name).is_file() {
            fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_dependent_outside_of_the_workspace_runs_a_confined_command() {
    requires!(Need::CargoForThisUser, "packages the crates and builds a dependent");
    requires!(Need::Git, "lists the files of the workspace");
    let place = tempfile::Builder::new().prefix("bw-embed-").tempdir().unwrap();
    let place = place.path();
    let toolchain = Toolchain::find().unwrap().programs();
    let cargo = toolchain.join("cargo");

    // Package from a copy, and collect the third-party crates. This part may use this user's cargo home.
    let copy = place.join("copy");
    copy_workspace(&copy);
    let packages = place.join("packages");
    let mut package = Command::new(&cargo);
    package.args([
        "package",
        "--offline",
        "--no-verify",
        "--allow-dirty",
        "--exclude-lockfile",
        "--target-dir",
    ]);
    package.arg(&packages).current_dir(&copy);
    for name in CRATES {
        package.args(["-p", name]);
    }
    successful("cargo package", &mut package);
    let dependent = place.join("dependent");
    let vendor = dependent.join("vendor");
    fs::create_dir_all(dependent.join("src")).unwrap();
    successful(
        "cargo vendor",
        Command::new(&cargo).args(["vendor", "--locked", "--quiet"]).arg(&vendor).current_dir(&copy),
    );
    for name in CRATES {
        let archive = fs::read_dir(packages.join("package"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.file_name().unwrap().to_str().unwrap() == format!("{name}-{VERSION}.crate"))
            .unwrap_or_else(|| panic!("no package of {name}"));
        successful("tar", Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&vendor));
        fs::write(vendor.join(format!("{name}-{VERSION}/.cargo-checksum.json")), r#"{"files":{}}"#).unwrap();
    }
    fs::remove_dir_all(&copy).unwrap();
    fs::remove_dir_all(&packages).unwrap();

    // The dependent knows the vendored sources and nothing else.
    fs::write(dependent.join("src/main.rs"), CONSUMER).unwrap();
    fs::write(
        dependent.join("Cargo.toml"),
        format!(
            "[package]\nname = \"dependent\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             bailiwick = \"={VERSION}\"\ntokio = {{ version = \"1\", features = [\"rt\", \"net\", \"time\"] }}\n\n\
             [workspace]\n"
        ),
    )
    .unwrap();
    fs::create_dir(dependent.join(".cargo")).unwrap();
    fs::write(
        dependent.join(".cargo/config.toml"),
        "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n",
    )
    .unwrap();
    let mut build = Command::new(&cargo);
    build.args(["build", "--offline", "--quiet"]).current_dir(&dependent).env_clear();
    // A compiler must be found somehow; cargo wants a home of its own.
    build
        .env("PATH", format!("{}:/usr/bin:/bin", toolchain.display()))
        .env("CARGO_HOME", place.join("fresh"));
    successful("cargo build", &mut build);

    // Moved to a place of its own: what it needs must be in it.
    let program = place.join("program");
    fs::rename(dependent.join("target/debug/dependent"), &program).unwrap();
    fs::remove_dir_all(&dependent).unwrap();
    fs::create_dir(place.join("root")).unwrap();
    successful("the dependent", Command::new(&program).arg(place).env_clear().current_dir("/"));
    assert_eq!(fs::read_to_string(place.join("root/inside")).unwrap(), "inside\n");
    assert!(!place.join("outside").exists(), "the command wrote outside of its root");
}
