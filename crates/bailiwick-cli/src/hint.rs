//! Which option of this program helps with which error. The library never names one.

use std::path::{Component, Path, PathBuf};

use bailiwick::{Error, ErrorKind, Field};

use crate::render::quoted;

/// Hints that name options of this program. Every one holds its option between backticks.
pub(crate) fn options(error: &Error) -> Vec<String> {
    one(error).into_iter().collect()
}

fn one(error: &Error) -> Option<String> {
    let text = |name: &str| error.field(name).and_then(Field::as_text).unwrap_or_default();
    let path = |name: &str| error.field(name).and_then(Field::as_path).unwrap_or(Path::new(""));
    let from_here = |option: &str, field: &str| {
        absolute(path(field)).map(|absolute| format!("from here that is `{option}` {}", quoted(absolute)))
    };
    let plain = match error.kind() {
        ErrorKind::ProtectionUnavailable => return Some(accepting(error)),
        ErrorKind::RootInvalid => return from_here("--write-root", "root"),
        ErrorKind::ReadInvalid
        | ErrorKind::ReadOverlap
        | ErrorKind::ReadForbidden
        | ErrorKind::ReadChanged => {
            return reading(text("purpose"), text("protected_kind"), path("directory"), path("canonical"));
        }
        ErrorKind::CommandNotExecutable if text("because") == "read-scope" => {
            return Some(format!(
                "let the command read it: `--program-dir` {}, or `--read-root` and the directory of the whole installation",
                quoted(path("outside").parent().unwrap_or(Path::new("/")))
            ));
        }
        ErrorKind::ProtectedInvalid => return from_here("--protect", "protected"),
        ErrorKind::CwdInvalid => return from_here("--current-dir", "cwd"),
        ErrorKind::RootOverlap => match text("protected_kind") {
            "store" | "runtime-home" => "put the store outside of every write root with `--store D`",
            "caller" => {
                return Some(format!("or leave out `--protect` {}", quoted(path("protected_given"))));
            }
            "host-executable" => {
                "what confines the command must not be among what it may change: \
                 install bailiwick elsewhere, or give a narrower `--write-root`"
            }
            _ => return None,
        },
        ErrorKind::ProtectedNotFound | ErrorKind::ProtectedNotAccessible => {
            "leave that `--protect` out, or make the object first"
        }
        ErrorKind::CwdNotFound | ErrorKind::CwdNotDirectory | ErrorKind::CwdNotAccessible => {
            "choose a directory with `--current-dir D`; without it the command starts where bailiwick did"
        }
        ErrorKind::StoreInvalid | ErrorKind::StoreLocked | ErrorKind::StoreNotAccessible => {
            "name another one with `--store D`, an absolute path whose parent exists; \
             without `--store` each run gets a fresh one"
        }
        ErrorKind::EnvInvalid => "`--env NAME=VALUE` sets a variable, `--env NAME` hands one on",
        ErrorKind::SessionLimitUnavailable => {
            return Some(format!("to run without the limit, say so: `--accept {}`", text("limit")));
        }
        ErrorKind::RootCapabilitiesUnavailable => "leave out `--root-capabilities files`",
        ErrorKind::LimitNotKept => "leave out that `--limit`, or give a lower value",
        ErrorKind::LimitInvalid if error.field("limit").is_some() => {
            "`--memory-max BYTES` and `--processes-max N` take the whole run, bailiwick's own processes among it"
        }
        ErrorKind::LimitInvalid => "give each resource in one `--limit NAME=N`",
        ErrorKind::CommandNotFound if !path("program").as_os_str().as_encoded_bytes().contains(&b'/') => {
            "the command is looked up in the `PATH` that it gets: yours, unless `--env PATH=...` sets another"
        }
        _ => return None,
    };
    Some(plain.to_owned())
}

/// Which option named what cannot be read.
fn reading(purpose: &str, protected_kind: &str, given: &Path, canonical: &Path) -> Option<String> {
    let is_ours = matches!(protected_kind, "store" | "runtime-home");
    let option = match purpose {
        "root" => "--read-root",
        "programs" => "--program-dir",
        "base" => {
            return Some(
                "name what to read in place of the base set, each with `--read-base P`; \
                 `bailiwick explain --read-base default` lists the set"
                    .to_owned(),
            );
        }
        _ if is_ours => "--write-root",
        _ => return None,
    };
    if is_ours {
        return Some(format!("give a narrower `{option}`, or put the store outside of it with `--store D`"));
    }
    if let Some(absolute) = absolute(given) {
        return Some(format!("from here that is `{option}` {}", quoted(absolute)));
    }
    if canonical.as_os_str().is_empty() {
        return Some(format!("`{option}` takes the canonical path of an existing directory"));
    }
    Some(format!("that is `{option}` {}", quoted(canonical)))
}

/// The very options that accept what is missing.
fn accepting(error: &Error) -> String {
    let names = error.field("protections").and_then(Field::as_list).unwrap_or_default();
    let options: Vec<String> =
        names.iter().filter_map(Field::as_text).map(|name| format!("--accept {name}")).collect();
    format!(
        "to run without them, say so: `{}`; `bailiwick doctor` shows what this host keeps",
        options.join(" ")
    )
}

/// What a relative path means from here. Never put in its place: a root must be what the caller wrote.
fn absolute(path: &Path) -> Option<PathBuf> {
    let first = path.as_os_str().as_encoded_bytes().first()?;
    if path.is_absolute() || matches!(first, b'~' | b'$') {
        return None;
    }
    // `..` stays: what it leads to depends on links.
    let given = path.components().filter(|part| *part != Component::CurDir);
    Some(std::env::current_dir().ok()?.components().chain(given).collect())
}
