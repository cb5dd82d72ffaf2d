//! The skip ledger: a test that this machine cannot run says so in a file, because libtest hides what a
//! passing test prints.
//!
//! One JSON object per line: `test` (binary and test name), `user` (`root` or `user`), `need`, `reason`.
//! Lines are appended with one `write` on a descriptor opened with `O_APPEND`, so that tests of any process
//! may write at the same time.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{Need, case};

/// Names the ledger file.
pub const LEDGER: &str = "BAILIWICK_TEST_LEDGER";

/// Names the needs whose absence is a failure.
pub const REQUIRE: &str = "BAILIWICK_TEST_REQUIRE";

/// Whether this machine has `need`, for this user. Otherwise records the skip; use through
/// [`requires!`](crate::requires).
///
/// # Panics
///
/// If the need is absent although `BAILIWICK_TEST_REQUIRE` names it, or if the skip cannot be recorded.
#[must_use]
pub fn met(need: Need, reason: &str) -> bool {
    let Err(finding) = need.probe() else { return true };
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == need.name() || name.trim() == "all");
    assert!(!is_required, "{REQUIRE} asks for {}, which is absent: {finding}", need.name());

    let reason = if reason.is_empty() { finding } else { format!("{reason}: {finding}") };
    let line = serde_json::json!({
        "test": test_name(),
        "user": if case::is_root() { "root" } else { "user" },
        "need": need.name(),
        "reason": reason,
    });
    append(&path(), format!("{line}\n").as_bytes());
    false
}

/// The file that skips of this process are appended to.
///
/// # Panics
///
/// If neither the environment nor the place of the test binary tells.
#[must_use]
pub fn path() -> PathBuf {
    if let Some(path) = std::env::var_os(LEDGER) {
        return path.into();
    }
    // target/PROFILE/deps/TEST-HASH
    match std::env::current_exe().ok().as_deref().and_then(|exe| exe.ancestors().nth(3)) {
        Some(target) => target.join("test-ledger.jsonl"),
        None => panic!("set {LEDGER}: the test binary does not lie in a target directory"),
    }
}

/// Appends whole lines to a file that several processes write.
pub(crate) fn append(path: &Path, lines: &[u8]) {
    let written = OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| {
        file.write_all(lines) // one write(2) in practice: a line is far below any limit
    });
    // A skip that is not recorded would be a silent one.
    written.unwrap_or_else(|error| panic!("append to {}: {error}", path.display()));
}

thread_local! {
    static CURRENT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Says which test runs on this thread.
pub(crate) fn name_test(test: &'static str) {
    CURRENT.set(Some(test));
}

/// `BINARY::TEST`, the binary without the hash that cargo adds.
fn test_name() -> String {
    let binary = std::env::current_exe().ok();
    let binary =
        binary.as_deref().and_then(Path::file_stem).and_then(|stem| stem.to_str()).unwrap_or("unknown");
    let binary = match binary.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => binary,
    };
    format!("{binary}::{}", current_test())
}

fn current_test() -> String {
    if let Some(test) = CURRENT.get() {
        return test.to_owned();
    }
    match std::thread::current().name() {
        // libtest names the thread of a test after it, and uses the main thread for a single one.
        Some(name) if name != "main" => name.to_owned(),
        _ => exact_test().unwrap_or_else(|| "unknown".to_owned()),
    }
}

/// The test that the command line names, as nextest and re-runs do.
fn exact_test() -> Option<String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.iter().any(|argument| argument == "--exact").then_some(())?;
    arguments.into_iter().find(|argument| !argument.starts_with('-'))
}
