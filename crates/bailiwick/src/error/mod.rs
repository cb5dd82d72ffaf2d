//! The one error type of the crate.
//!
//! [`Error`] is opaque: a program decides by [`kind`](Error::kind), [`code`](Error::code) and
//! [`fields`](Error::fields), never by the text. The text is one sentence for a person. Kinds, codes and
//! their defaults stand in one table (`kind.rs`), from which `docs/error-codes.md` is made.
//!
//! This room imports no other room: every room may import it.

mod field;
mod kind;
mod quoted;
mod report;
mod system_call;

use std::error::Error as StdError;
use std::fmt;

pub use field::Field;
pub use kind::{ErrorKind, Ran, codes_document};
pub use report::Report;

pub(crate) use quoted::{Quoted, optional_path_json, path_json};
pub(crate) use system_call::SystemCall;

/// Why bailiwick refused, or could not do, what was asked.
///
/// One pointer wide, so that results stay cheap to return. A child that ran and failed is no error: its
/// exit status is data.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    ran: Ran,
    can_retry: bool,
    hints: Vec<String>,
    fields: Vec<(&'static str, Field)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Starts an error with the defaults that the table has for its kind.
    ///
    /// `message` is one sentence in lower case without a full stop; it names the value last, and holds
    /// neither the cause (that is the source) nor advice (that is a hint).
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            ran: kind.ran(),
            can_retry: kind.can_retry(),
            hints: Vec::new(),
            fields: Vec::new(),
            source: None,
        }))
    }

    /// Adds a path, with its exact bytes.
    pub(crate) fn path(self, name: &'static str, path: impl Into<std::path::PathBuf>) -> Self {
        self.with(name, Field::Path(path.into()))
    }

    /// Adds a word or a sentence.
    pub(crate) fn text(self, name: &'static str, text: impl Into<String>) -> Self {
        self.with(name, Field::Text(text.into()))
    }

    /// Adds a number. One that does not fit is added as decimal text, so that none is ever cut.
    pub(crate) fn number<N>(self, name: &'static str, number: N) -> Self
    where
        N: TryInto<i64> + fmt::Display + Copy,
    {
        match number.try_into() {
            Ok(fits) => self.with(name, Field::Number(fits)),
            Err(_) => self.with(name, Field::Text(number.to_string())),
        }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &'static str, field: Field) -> Self {
        self.0.fields.push((name, field));
        self
    }

    /// Adds one way out: what to change, in words that name it exactly.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Says whether to try again, where it differs from what the table has for the kind.
    pub(crate) fn retry(mut self, can_retry: bool) -> Self {
        self.0.can_retry = can_retry;
        self
    }

    /// Sets the cause.
    pub(crate) fn source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says what had run, where it differs from the table.
    pub(crate) fn with_ran(mut self, ran: Ran) -> Self {
        self.0.ran = ran;
        self
    }

    /// Says that a command had started.
    pub(crate) fn ran_something(self) -> Self {
        self.with_ran(Ran::Something)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The stable code of the kind, `ERR_BAILIWICK_*`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// Whether the same call may succeed later with nothing changed by the caller.
    #[must_use]
    pub fn can_retry(&self) -> bool {
        self.0.can_retry
    }

    /// Whether the call that returned this error had started a command.
    #[must_use]
    pub fn ran(&self) -> Ran {
        self.0.ran
    }

    /// Ways out, best first. Empty when there is none worth naming.
    #[must_use]
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// The values that the error is about, in the order in which they were found.
    #[must_use]
    pub fn fields(&self) -> &[(&'static str, Field)] {
        &self.0.fields
    }

    /// The first field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.0.fields.iter().find(|(known, _)| *known == name).map(|(_, field)| field)
    }

    /// The whole error for a person, in several lines: message, causes, hints, code, and whether anything ran.
    #[must_use]
    pub fn report(&self) -> Report<'_> {
        Report::new(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.code())
            .field("message", &self.0.message)
            .field("ran", &self.0.ran)
            .field("fields", &self.0.fields)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_pointer_wide_and_crosses_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }

    #[test]
    fn carries_what_it_was_built_with() {
        let cause = std::io::Error::from_raw_os_error(2);
        let error = Error::new(ErrorKind::RootNotFound, "write root 3 does not exist: `/t/nope`")
            .path("root", "/t/nope")
            .number("root_index", 3_usize)
            .hint("make the directory first")
            .source(cause);
        assert_eq!(error.kind(), ErrorKind::RootNotFound);
        assert_eq!(error.code(), "ERR_BAILIWICK_ROOT_NOT_FOUND");
        assert_eq!(error.ran(), Ran::Nothing);
        assert!(!error.can_retry());
        assert_eq!(error.field("root"), Some(&Field::Path("/t/nope".into())));
        assert_eq!(error.field("root_index"), Some(&Field::Number(3)));
        assert_eq!(error.field("absent"), None);
        assert_eq!(error.hints(), ["make the directory first"]);
        assert_eq!(
            StdError::source(&error).map(ToString::to_string).as_deref(),
            Some("No such file or directory (os error 2)")
        );
    }

    #[test]
    fn a_number_that_does_not_fit_is_kept_whole() {
        let error = Error::new(ErrorKind::Internal, "x").number("inode", u64::MAX);
        assert_eq!(error.field("inode"), Some(&Field::Text(u64::MAX.to_string())));
    }
}
