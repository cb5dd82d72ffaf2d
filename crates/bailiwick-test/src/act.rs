//! Runs the program `act`, which tries one act and says what the kernel answered.
//!
//! The same act runs in three places: inside a session, where it must be refused; bare, where it must
//! succeed, or the refusal proves nothing; and under `naive`, where an act that only Landlock's absence
//! from a row explains must succeed, or the test would not notice the hole.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::tool;

/// What `act` reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Name of the act.
    pub act: String,
    /// Whether the kernel let it happen.
    pub ok: bool,
    /// The error number; 0 if it happened, or if the act's process was killed for trying.
    pub errno: i32,
    /// Name of the error, such as `EPERM`, or of the killing signal, such as `SIGSYS`; empty if it happened.
    pub name: String,
    /// What else the act has to tell: a pid, a list of descriptors, `null` if nothing.
    pub value: serde_json::Value,
}

impl Report {
    /// Reads what an act printed on its standard output: one line of JSON.
    ///
    /// # Panics
    ///
    /// If that is not what `output` holds.
    #[must_use]
    #[track_caller]
    pub fn parse(output: impl AsRef<[u8]>) -> Self {
        let output = output.as_ref();
        Self::read(output)
            .unwrap_or_else(|| panic!("not the report of an act: {:?}", String::from_utf8_lossy(output)))
    }

    fn read(output: &[u8]) -> Option<Self> {
        let report: serde_json::Value = serde_json::from_slice(output).ok()?;
        Some(Report {
            act: report.get("act")?.as_str()?.to_owned(),
            ok: report.get("ok")?.as_bool()?,
            errno: report.get("errno")?.as_i64()?.try_into().ok()?,
            name: report.get("name")?.as_str()?.to_owned(),
            value: report.get("value").cloned().unwrap_or_default(),
        })
    }

    /// Asserts that the kernel let the act happen.
    ///
    /// # Panics
    ///
    /// With the report, if not.
    #[track_caller]
    pub fn assert_done(&self) {
        assert!(self.ok, "{} should have been possible: {self:?}", self.act);
    }

    /// Asserts that the act was refused with one of the named errors, such as `EACCES`.
    ///
    /// # Panics
    ///
    /// With the report, if not.
    #[track_caller]
    pub fn assert_refused(&self, names: &[&str]) {
        assert!(!self.ok, "{} was not refused: {self:?}", self.act);
        assert!(names.contains(&self.name.as_str()), "{}: expected one of {names:?}: {self:?}", self.act);
    }
}

/// Which scopes `naive` enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scopes {
    /// None: signals and abstract sockets reach everybody.
    None,
    /// Signals and abstract sockets (Landlock ABI 6).
    All,
}

/// Runs an act without any confinement.
///
/// # Panics
///
/// If the act could not be tried.
#[must_use]
#[track_caller]
pub fn bare<S: AsRef<OsStr>>(act: &[S]) -> Report {
    report_of(Command::new(tool("act")).args(act))
}

/// Runs an act under the naive wrapper, with `write_roots` granted.
///
/// # Panics
///
/// If the act could not be tried.
#[must_use]
#[track_caller]
pub fn naively<P: AsRef<Path>, S: AsRef<OsStr>>(write_roots: &[P], scopes: Scopes, act: &[S]) -> Report {
    report_of(naive(write_roots, scopes).arg(tool("act")).args(act))
}

/// The naive wrapper, ready to be given a program and its arguments.
#[must_use]
pub fn naive<P: AsRef<Path>>(write_roots: &[P], scopes: Scopes) -> Command {
    let mut command = Command::new(tool("naive"));
    for root in write_roots {
        command.arg("-w").arg(root.as_ref());
    }
    if scopes == Scopes::All {
        command.arg("-S");
    }
    command.arg("--");
    command
}

/// Runs a command that ends in an act and reads its report.
///
/// # Panics
///
/// If the command does not end with status 0 and a report.
#[must_use]
#[track_caller]
pub fn report_of(command: &mut Command) -> Report {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("run {}: {error}", command.get_program().display()));
    assert!(
        output.status.success(),
        "{command:?} could not try ({}): {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Report::parse(&output.stdout)
}
