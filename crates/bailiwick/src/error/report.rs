//! An error for a person, and for JSON.

use std::error::Error as StdError;
use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use super::{Error, Field};

/// Displays an [`Error`] in several lines. The only place that joins the chain of causes.
#[derive(Debug)]
pub struct Report<'a>(&'a Error);

impl<'a> Report<'a> {
    pub(super) fn new(error: &'a Error) -> Self {
        Self(error)
    }
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(StdError::source(error), |cause| (*cause).source())
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        writeln!(f, "error: {error}")?;
        for cause in causes(error) {
            writeln!(f, "caused by: {cause}")?;
        }
        for hint in error.hints() {
            writeln!(f, "hint: {hint}")?;
        }
        write!(f, "code: {}", error.code())?;
        if error.can_retry() {
            f.write_str(" (can retry)")?;
        }
        write!(f, "; {}", error.ran())
    }
}

/// `{code, message, ran, can_retry, hints, fields, causes}`; the texts are for people and may change.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Fields<'a>(&'a [(&'static str, Field)]);
        impl Serialize for Fields<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(self.0.len()))?;
                for (name, field) in self.0 {
                    map.serialize_entry(name, field)?;
                }
                map.end()
            }
        }
        let mut out = serializer.serialize_struct("Error", 7)?;
        out.serialize_field("code", self.code())?;
        out.serialize_field("message", &self.to_string())?;
        out.serialize_field("ran", self.ran().name())?;
        out.serialize_field("can_retry", &self.can_retry())?;
        out.serialize_field("hints", self.hints())?;
        out.serialize_field("fields", &Fields(self.fields()))?;
        out.serialize_field("causes", &causes(self).map(ToString::to_string).collect::<Vec<_>>())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use crate::error::{Error, ErrorKind, Field, SystemCall};

    fn example() -> Error {
        Error::new(ErrorKind::RootIdentityChanged, "write root 0 names another directory now: `/t/W`")
            .path("root", "/t/W")
            .with("also", Field::List(vec![Field::Number(1), Field::Text("b".into())]))
            .hint("grant the roots again")
            .source(SystemCall::new("openat2", "/t/W", rustix::io::Errno::LOOP))
    }

    #[test]
    fn report_joins_message_cause_hint_code_and_what_ran() {
        assert_eq!(
            example().report().to_string(),
            "error: write root 0 names another directory now: `/t/W`\n\
             caused by: openat2(`/t/W`): Too many levels of symbolic links (os error 40)\n\
             hint: grant the roots again\n\
             code: ERR_BAILIWICK_ROOT_IDENTITY_CHANGED (can retry); no command was run"
        );
    }

    #[test]
    fn json_has_the_same_facts() {
        let json = serde_json::to_value(example()).unwrap();
        assert_eq!(json["code"], "ERR_BAILIWICK_ROOT_IDENTITY_CHANGED");
        assert_eq!(json["ran"], "nothing");
        assert_eq!(json["can_retry"], true);
        assert_eq!(json["fields"]["root"], "/t/W");
        assert_eq!(json["fields"]["also"], serde_json::json!([1, "b"]));
        assert_eq!(json["hints"][0], "grant the roots again");
        assert_eq!(json["causes"].as_array().map(Vec::len), Some(1));
    }
}
