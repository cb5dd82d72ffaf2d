//! Are all dependencies under licences that `deny.toml` allows?

use std::fs;
use std::path::Path;

use crate::test::{Outcome, metadata};

/// Compares the licence expression of every package, whatever its platform, with the list.
pub(crate) fn check(root: &Path) -> Outcome {
    let allowed = allowed(root)?;
    let metadata = metadata(root, &[])?;
    let packages = metadata.get("packages").and_then(|packages| packages.as_array()).ok_or("no packages")?;
    let faults: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let name = package.get("name").and_then(|name| name.as_str()).unwrap_or("a package");
            match package.get("license").and_then(|licence| licence.as_str()) {
                None => Some(format!("  {name} names no licence")),
                Some(expression) => match permits(expression, &allowed) {
                    Some(true) => None,
                    Some(false) => Some(format!("  {name} is under {expression}")),
                    None => {
                        Some(format!("  {name} has a licence expression that cannot be read: {expression}"))
                    }
                },
            }
        })
        .collect();
    if faults.is_empty() {
        return Ok(format!("{} packages, all under {}", packages.len(), allowed.join(", ")));
    }
    Err(format!("not in the list of deny.toml:\n{}", faults.join("\n")))
}

fn allowed(root: &Path) -> Result<Vec<String>, String> {
    let text =
        fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("read deny.toml: {error}"))?;
    let table: toml::Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let list =
        table.get("licenses").and_then(|licenses| licenses.get("allow")).and_then(|allow| allow.as_array());
    let list = list.ok_or("deny.toml has no list `licenses.allow`")?;
    Ok(list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
}

/// Whether an SPDX expression can be met with the allowed licences. `None` if it cannot be read.
///
/// `AND` binds more tightly than `OR`; `WITH` belongs to its licence; old packages write `/` for `OR`.
fn permits(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let answer = any(&mut rest, allowed)?;
    rest.is_empty().then_some(answer)
}

fn any(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut answer = all(rest, allowed)?;
    while take(rest, "OR") {
        answer |= all(rest, allowed)?;
    }
    Some(answer)
}

fn all(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut answer = one(rest, allowed)?;
    while take(rest, "AND") {
        answer &= one(rest, allowed)?;
    }
    Some(answer)
}

fn one(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    if take(rest, "(") {
        let answer = any(rest, allowed)?;
        return take(rest, ")").then_some(answer);
    }
    let (first, after) = rest.split_first()?;
    *rest = after;
    if matches!(*first, "AND" | "OR" | "WITH" | ")") {
        return None;
    }
    let mut licence = (*first).to_owned();
    if take(rest, "WITH") {
        let (exception, after) = rest.split_first()?;
        *rest = after;
        licence = format!("{licence} WITH {exception}");
    }
    Some(allowed.contains(&licence))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if *first == word => {
            *rest = after;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::permits;

    #[test]
    fn expressions() {
        let allowed =
            ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, answer) in [
            ("MIT", Some(true)),
            ("MIT OR GPL-3.0", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", Some(true)),
            ("MIT OR GPL-3.0 AND MPL-2.0", Some(true)),
            ("GPL-3.0 AND (MIT OR Apache-2.0)", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("Apache-2.0 WITH Other-exception", Some(false)),
            ("GPL-3.0", Some(false)),
            ("", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT GPL-3.0", None),
            ("OR MIT", None),
        ] {
            assert_eq!(permits(expression, &allowed), answer, "{expression}");
        }
    }
}
