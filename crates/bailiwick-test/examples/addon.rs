//! A library that holds the SDK and is loaded by another program, as an addon of Node is: `tests/guard_addon.rs` loads
//! it. The library's own file is protected then, wherever it lies.

#![expect(unsafe_code, reason = "a name that another program can look up")]
#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::path::PathBuf;

/// Prints the verdict on a session, as JSON: the store is `BAILIWICK_TEST_STORE`, the root `BAILIWICK_TEST_ROOT`.
// SAFETY: no other object of the programs that load this has a symbol of this name.
#[unsafe(no_mangle)]
pub extern "C" fn bailiwick_test_explain() {
    let place = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let verdict = bailiwick::Session::builder(place("BAILIWICK_TEST_STORE"))
        .write_root(place("BAILIWICK_TEST_ROOT"))
        .explain()
        .map(|verdict| serde_json::to_value(verdict).unwrap_or_default());
    match verdict {
        Ok(verdict) => println!("{verdict}"),
        Err(error) => println!("{}", serde_json::json!({ "error": error.to_string() })),
    }
}
