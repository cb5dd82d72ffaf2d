//! The skip ledger against `tests/skips.toml`: an unexpected skip fails, and so does an expected skip that
//! ran. Otherwise tests that never run look like tests that pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::test::{Outcome, ledger};

/// One line of the ledger.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Skip {
    test: String,
    user: String,
    need: String,
    reason: String,
}

/// `[[absent]]`: a need that machines lack by nature. Any test may be skipped for it.
#[derive(Debug)]
struct Absent {
    need: String,
    user: Option<String>,
    without_root: bool,
}

/// `[[skip]]`: one test that is skipped in every run on the machines of this project.
#[derive(Debug)]
struct Expected {
    test: String,
    need: String,
}

/// Compares the last run with what is expected.
pub(crate) fn check(root: &Path) -> Outcome {
    let path = ledger(root)?;
    let skips = match fs::read_to_string(&path) {
        Ok(text) => read_ledger(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeSet::new(),
        Err(error) => return Err(format!("read {}: {error}", path.display())),
    };
    let expectations = root.join("tests/skips.toml");
    let text =
        fs::read_to_string(&expectations).map_err(|error| format!("read tests/skips.toml: {error}"))?;
    let (absent, expected) = read_expectations(&text)?;
    let faults = compare(&skips, &absent, &expected, rustix::process::geteuid().is_root());
    let totals = totals(&skips);
    if faults.is_empty() {
        return Ok(format!("skips: {}, all expected{totals}", skips.len()));
    }
    Err(format!("skips: {1}, of which wrong: {0}\n{2}{totals}", faults.len(), skips.len(), faults.join("\n")))
}

fn compare(skips: &BTreeSet<Skip>, absent: &[Absent], expected: &[Expected], is_root: bool) -> Vec<String> {
    let is_absent = |skip: &Skip| {
        absent.iter().any(|one| {
            one.need == skip.need
                && one.user.as_ref().is_none_or(|user| *user == skip.user)
                && !(one.without_root && is_root)
        })
    };
    let matches = |one: &Expected, skip: &Skip| one.test == skip.test && one.need == skip.need;
    let unexpected = skips
        .iter()
        .filter(|skip| !is_absent(skip) && !expected.iter().any(|one| matches(one, skip)))
        .map(|skip| {
            format!("  unexpected: {} as {} needs {} ({})", skip.test, skip.user, skip.need, skip.reason)
        });
    let ran = expected.iter().filter(|one| !skips.iter().any(|skip| matches(one, skip))).map(|one| {
        format!("  expected, but it ran (or is gone): {} needs {}; remove the entry", one.test, one.need)
    });
    unexpected.chain(ran).collect()
}

fn totals(skips: &BTreeSet<Skip>) -> String {
    let mut count: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for skip in skips {
        *count.entry((&skip.need, &skip.user)).or_default() += 1;
    }
    count.iter().map(|((need, user), count)| format!("\n  {count:4}  {need}, as {user}")).collect()
}

fn read_ledger(text: &str) -> Result<BTreeSet<Skip>, String> {
    let read = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        let field = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        Some(Skip {
            test: field("test")?,
            user: field("user")?,
            need: field("need")?,
            reason: field("reason")?,
        })
    };
    text.lines()
        .map(|line| read(line).ok_or_else(|| format!("the ledger holds a broken line: {line}")))
        .collect()
}

fn read_expectations(text: &str) -> Result<(Vec<Absent>, Vec<Expected>), String> {
    let table: toml::Table = text.parse().map_err(|error| format!("tests/skips.toml: {error}"))?;
    let (mut absent, mut expected) = (Vec::new(), Vec::new());
    for (section, entries) in &table {
        for entry in entries.as_array().into_iter().flatten() {
            let field = |name: &str| entry.get(name).and_then(|value| value.as_str()).map(str::to_owned);
            let must = |name: &str| {
                field(name)
                    .ok_or_else(|| format!("tests/skips.toml: an entry of [[{section}]] lacks `{name}`"))
            };
            must("reason")?;
            match section.as_str() {
                "absent" => absent.push(Absent {
                    need: must("need")?,
                    user: field("user"),
                    without_root: match field("where").as_deref() {
                        None => false,
                        Some("without-root") => true,
                        Some(other) => return Err(format!("tests/skips.toml: unknown `where`: {other}")),
                    },
                }),
                "skip" => expected.push(Expected { test: must("test")?, need: must("need")? }),
                other => return Err(format!("tests/skips.toml: unknown section [[{other}]]")),
            }
        }
    }
    Ok((absent, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTATIONS: &str = r#"
        [[absent]]
        need = "cargo-for-this-user"
        user = "user"
        reason = "a toolchain in a closed home"

        [[absent]]
        need = "root"
        where = "without-root"
        reason = "nobody is root"

        [[skip]]
        test = "a::b"
        need = "x32"
        reason = "compiled out"
    "#;

    fn faults(lines: &[&str], is_root: bool) -> Vec<String> {
        let (absent, expected) = read_expectations(EXPECTATIONS).unwrap();
        compare(&read_ledger(&lines.join("\n")).unwrap(), &absent, &expected, is_root)
    }

    const EXPECTED: &str = r#"{"test":"a::b","user":"root","need":"x32","reason":"r"}"#;

    #[test]
    fn an_expected_skip_is_no_fault() {
        assert_eq!(faults(&[EXPECTED], true), Vec::<String>::new());
    }

    #[test]
    fn an_expected_skip_that_ran_is_one() {
        let found = faults(&[], true);
        assert!(found.len() == 1 && found[0].contains("it ran"), "{found:?}");
    }

    #[test]
    fn an_unexpected_skip_is_one() {
        let line = r#"{"test":"c::d","user":"root","need":"landlock","reason":"r"}"#;
        let found = faults(&[EXPECTED, line], true);
        assert!(found.len() == 1 && found[0].contains("unexpected: c::d"), "{found:?}");
        // The same need for another test is not expected either.
        let line = r#"{"test":"c::d","user":"root","need":"x32","reason":"r"}"#;
        assert_eq!(faults(&[EXPECTED, line], true).len(), 1);
    }

    #[test]
    fn a_need_may_be_absent_for_one_user() {
        let line =
            |user| format!(r#"{{"test":"c::d","user":"{user}","need":"cargo-for-this-user","reason":"r"}}"#);
        assert_eq!(faults(&[EXPECTED, &line("user")], true).len(), 0);
        assert_eq!(faults(&[EXPECTED, &line("root")], true).len(), 1);
    }

    #[test]
    fn root_may_be_absent_only_where_nobody_is_root() {
        let line = r#"{"test":"c::d","user":"user","need":"root","reason":"r"}"#;
        assert_eq!(faults(&[EXPECTED, line], false).len(), 0);
        assert_eq!(faults(&[EXPECTED, line], true).len(), 1);
    }

    #[test]
    fn broken_lines_and_entries_are_refused() {
        assert!(read_ledger("{").is_err());
        assert!(read_ledger(r#"{"test":"a"}"#).is_err());
        for text in [
            "[[skip]]\ntest = \"a\"\nneed = \"b\"",
            "[[other]]\nreason = \"r\"",
            "[[absent]]\nneed = \"n\"\nwhere = \"x\"\nreason = \"r\"",
        ] {
            assert!(read_expectations(text).is_err(), "{text}");
        }
    }
}
