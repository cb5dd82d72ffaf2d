//! Which variables a command gets: a short list that programs expect, and what `--env` says.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::failure::{Code, Failure};
use crate::render::quoted;

/// Handed on when set. None of them carries a secret, and none makes a program load code.
pub(crate) const HANDED_ON: [&str; 10] =
    ["PATH", "HOME", "LANG", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "COLORTERM", "NO_COLOR"];

/// Variables with this prefix are handed on as well: the categories of the locale.
const LOCALE: &[u8] = b"LC_";

/// Names and values for the session, in the order in which they are to be set.
///
/// `keeps_home`: the caller's home is handed on. Where the command cannot read there, tools that find a home and not what
/// is in it give up, so it gets none then, and the session gives it the temporary directory.
///
/// # Errors
/// `--env NAME` names a variable that is not set. Values never appear in an error.
pub(crate) fn for_command(
    asked: &[OsString],
    keeps_home: bool,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut variables: Vec<(OsString, OsString)> = HANDED_ON
        .iter()
        .filter(|name| keeps_home || **name != "HOME")
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
        .chain(std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(LOCALE)))
        .collect();
    for (index, entry) in asked.iter().enumerate() {
        variables.push(one(index, entry)?);
    }
    Ok(variables)
}

fn one(index: usize, entry: &OsStr) -> Result<(OsString, OsString), Failure> {
    let bytes = entry.as_bytes();
    if let Some(end) = bytes.iter().position(|byte| *byte == b'=') {
        let (name, value) = bytes.split_at(end);
        let value = value.get(1..).unwrap_or_default();
        return Ok((OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into()));
    }
    // The names of the environment block are never empty, so an empty one is not looked up.
    match std::env::var_os(entry).filter(|_| !bytes.is_empty()) {
        Some(value) => Ok((entry.to_owned(), value)),
        None => Err(Failure::new(
            Code::EnvUnset,
            format!(
                "variable {index} of `--env` is not set here, so it cannot be handed on: {}",
                quoted(entry)
            ),
        )
        .with("index", bailiwick::Field::Number(i64::try_from(index).unwrap_or(i64::MAX)))
        .value("name", entry)
        .hint(if bytes.is_empty() {
            "name a variable: `--env NAME=VALUE`, or `--env NAME` to hand one on".to_owned()
        } else {
            format!(
                "set it before you start bailiwick, or give its value: `--env` {}",
                quoted(with_value(entry))
            )
        })),
    }
}

fn with_value(name: &OsStr) -> OsString {
    let mut text = name.to_owned();
    text.push("=VALUE");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_with_a_sign_sets_and_one_without_must_exist() {
        assert_eq!(one(0, OsStr::new("A=b=c")).unwrap(), ("A".into(), "b=c".into()));
        assert_eq!(one(0, OsStr::new("A=")).unwrap(), ("A".into(), "".into()));
        assert_eq!(one(0, OsStr::new("=x")).unwrap(), ("".into(), "x".into()));
        for absent in ["", "BAILIWICK_TEST_SURELY_UNSET"] {
            let failure = one(3, OsStr::new(absent)).unwrap_err();
            assert!(failure.to_string().contains("variable 3 of"), "{failure}");
        }
    }
}
