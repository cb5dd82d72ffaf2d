//! What went wrong, whether the library says so or this program.
//!
//! Both have the same parts, the same text and the same JSON, so that a reader need not know whose it is.

use std::error::Error as StdError;
use std::fmt;

use bailiwick::{Field, Ran};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use crate::hint;

macro_rules! codes {
    ($($name:ident $code:literal $meaning:literal;)+) => {
        /// What this program finds wrong by itself. The library's codes are beside these, not among them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = $meaning] $name,)+
        }

        impl Code {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The stable code, `ERR_BAILIWICK_CLI_*`.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// What it means, as `docs/cli.md` says it.
            #[cfg(test)]
            pub(crate) fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }
        }
    };
}

codes! {
    Usage "ERR_BAILIWICK_CLI_USAGE"
        "The arguments do not follow the grammar.";
    StatusFd "ERR_BAILIWICK_CLI_STATUS_FD"
        "The value of `--json-status` is not the number of an open, writable descriptor above 2.";
    EnvUnset "ERR_BAILIWICK_CLI_ENV_UNSET"
        "`--env NAME` names a variable that is not set where bailiwick was started.";
    ProtectionUnknown "ERR_BAILIWICK_CLI_PROTECTION_UNKNOWN"
        "The value of `--accept` is not the name of a protection or of a limit of the whole run.";
    LimitInvalid "ERR_BAILIWICK_CLI_LIMIT_INVALID"
        "The value of `--limit` is not the name of a resource, `=`, and a whole number or `unlimited`, or that of `--memory-max` or `--processes-max` not a whole number.";
    TimeoutInvalid "ERR_BAILIWICK_CLI_TIMEOUT_INVALID"
        "The value of `--timeout` is not a number of seconds above 0.";
    CurrentDir "ERR_BAILIWICK_CLI_CURRENT_DIR"
        "The directory in which bailiwick was started has no path any more.";
    StateDir "ERR_BAILIWICK_CLI_STATE_DIR"
        "No private directory can be made for the session, and `--store` was not given.";
    Relay "ERR_BAILIWICK_CLI_RELAY"
        "What the command wrote could not be passed on in full.";
    Host "ERR_BAILIWICK_CLI_HOST"
        "The kernel refused this program something of its own: a thread, a pipe, a signal handler.";
}

/// A refusal or failure, ready to be told.
#[derive(Debug)]
pub(crate) struct Failure {
    code: &'static str,
    message: String,
    ran: Ran,
    can_retry: bool,
    hints: Vec<String>,
    fields: Vec<(&'static str, Field)>,
    causes: Vec<String>,
}

impl Failure {
    /// A failure of this program, before anything ran. `message` is one sentence in lower case, the value last.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.code(),
            message: message.into(),
            ran: Ran::Nothing,
            can_retry: false,
            hints: Vec::new(),
            fields: Vec::new(),
            causes: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &'static str, field: Field) -> Self {
        self.fields.push((name, field));
        self
    }

    pub(crate) fn text(self, name: &'static str, text: impl Into<String>) -> Self {
        self.with(name, Field::Text(text.into()))
    }

    /// A value as the caller wrote it: bytes and all.
    pub(crate) fn value(self, name: &'static str, value: impl Into<std::path::PathBuf>) -> Self {
        self.with(name, Field::Path(value.into()))
    }

    /// Several words to choose from.
    pub(crate) fn names<'a>(self, name: &'static str, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(name, Field::List(names.into_iter().map(|name| Field::Text(name.to_owned())).collect()))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    pub(crate) fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    pub(crate) fn ran(mut self, ran: Ran) -> Self {
        self.ran = ran;
        self
    }

    /// Whether it is certain that no command was started.
    pub(crate) fn is_refusal(&self) -> bool {
        self.ran == Ran::Nothing
    }
}

/// Takes over all that the library says, and adds the options of this program that help.
impl From<&bailiwick::Error> for Failure {
    fn from(error: &bailiwick::Error) -> Self {
        let causes = std::iter::successors(StdError::source(error), |cause| (*cause).source());
        Self {
            code: error.code(),
            message: error.to_string(),
            ran: error.ran(),
            can_retry: error.can_retry(),
            hints: error.hints().iter().cloned().chain(hint::options(error)).collect(),
            fields: error.fields().to_vec(),
            causes: causes.map(ToString::to_string).collect(),
        }
    }
}

impl From<bailiwick::Error> for Failure {
    fn from(error: bailiwick::Error) -> Self {
        Self::from(&error)
    }
}

/// The lines of [`bailiwick::error::Report`], with this program's hints among the others.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        for cause in &self.causes {
            writeln!(f, "caused by: {cause}")?;
        }
        for hint in &self.hints {
            writeln!(f, "hint: {hint}")?;
        }
        let retry = if self.can_retry { " (can retry)" } else { "" };
        write!(f, "code: {}{retry}; {}", self.code, self.ran)
    }
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Fields<'a>(&'a [(&'static str, Field)]);
        impl Serialize for Fields<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
            }
        }
        let mut map = serializer.serialize_map(Some(7))?;
        map.serialize_entry("code", self.code)?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("ran", self.ran.name())?;
        map.serialize_entry("can_retry", &self.can_retry)?;
        map.serialize_entry("hints", &self.hints)?;
        map.serialize_entry("fields", &Fields(&self.fields))?;
        map.serialize_entry("causes", &self.causes)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_by_the_library() -> bailiwick::Error {
        bailiwick::Session::builder("/proc/self/fd/0/store").explain().unwrap_err()
    }

    /// One look for errors of both: a program that reads either must not care.
    #[test]
    fn text_and_json_are_the_librarys_but_for_added_hints() {
        let error = refused_by_the_library();
        let (failure, report) = (Failure::from(&error).to_string(), error.report().to_string());
        let left: Vec<&str> = failure.lines().filter(|line| !line.contains("`--")).collect();
        assert_eq!(left, report.lines().collect::<Vec<_>>());
        assert!(failure.contains("`--store"), "{failure}");

        let ours = serde_json::to_value(Failure::from(&error)).unwrap();
        let theirs = serde_json::to_value(&error).unwrap();
        for key in ["code", "message", "ran", "can_retry", "fields", "causes"] {
            assert_eq!(ours[key], theirs[key], "{key}");
        }
        assert_eq!(ours.as_object().unwrap().len(), theirs.as_object().unwrap().len());
    }

    #[test]
    fn codes_are_the_names_and_stand_in_the_document() {
        let document =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
        for code in Code::ALL {
            let mut expected = String::from("ERR_BAILIWICK_CLI");
            for character in format!("{code:?}").chars() {
                if character.is_ascii_uppercase() {
                    expected.push('_');
                }
                expected.push(character.to_ascii_uppercase());
            }
            assert_eq!(code.code(), expected);
            let row = format!("| `{}` | {} |", code.code(), code.meaning());
            assert!(document.contains(&row), "docs/cli.md lacks this row: {row}");
        }
    }
}
