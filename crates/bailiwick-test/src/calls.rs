//! Describes system calls for the act `calls`: one after another, of which the last is the act.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A sequence of system calls, to be run by [`act`](crate::act) as `calls`.
///
/// All but the last lead to the act and must succeed. Texts and paths are passed by address; `{0}` in a
/// text is the result of the first call. [`Word::Result`] passes such a result as a number.
///
/// ```
/// use bailiwick_test::calls::{Calls, Word};
///
/// // Opens for reading, and asks for a lease on what was opened.
/// let act = Calls::of(libc::SYS_open, [Word::from("/tmp/file"), 0.into()])
///     .then(libc::SYS_fcntl, [Word::Result(0), 1024.into(), 0.into()]);
/// assert_eq!(act.arguments()[0], "calls");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Calls(Vec<OsString>);

/// An argument of a call.
#[derive(Debug, Clone)]
pub enum Word {
    /// A number.
    Number(i64),
    /// Address of a text, NUL-terminated.
    Text(OsString),
    /// Address of as many zero bytes.
    Zeros(usize),
    /// Address of 64-bit words.
    Words(Vec<i64>),
    /// Address of 32-bit words.
    HalfWords(Vec<i32>),
    /// The result of an earlier call, counted from 0.
    Result(usize),
}

impl Calls {
    /// One call, by its number of x86-64 (`libc::SYS_*`).
    pub fn of<const N: usize>(number: i64, arguments: [Word; N]) -> Self {
        Calls(vec!["calls".into()]).push(number, &arguments)
    }

    /// Adds a call after those before.
    pub fn then<const N: usize>(mut self, number: i64, arguments: [Word; N]) -> Self {
        self.0.push("--".into());
        self.push(number, &arguments)
    }

    /// Makes the whole course the act: the first call that is refused is the answer.
    pub fn course(mut self) -> Self {
        if let Some(name) = self.0.first_mut() {
            *name = "course".into();
        }
        self
    }

    fn push(mut self, number: i64, arguments: &[Word]) -> Self {
        self.0.push(number.to_string().into());
        self.0.extend(arguments.iter().map(Word::spell));
        self
    }

    /// The command line of the act.
    #[must_use]
    pub fn arguments(&self) -> &[OsString] {
        &self.0
    }
}

impl Word {
    fn spell(&self) -> OsString {
        fn list<N: ToString>(kind: &str, items: &[N]) -> OsString {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            format!("{kind}:{}", items.join(",")).into()
        }
        match self {
            Word::Number(number) => number.to_string().into(),
            Word::Text(text) => {
                let mut spelled = OsString::from("s:");
                spelled.push(text);
                spelled
            }
            Word::Zeros(size) => format!("z:{size}").into(),
            Word::Words(words) => list("w", words),
            Word::HalfWords(words) => list("d", words),
            Word::Result(index) => format!("${index}").into(),
        }
    }
}

impl From<i32> for Word {
    fn from(number: i32) -> Self {
        Word::Number(number.into())
    }
}

impl From<u32> for Word {
    fn from(number: u32) -> Self {
        Word::Number(number.into())
    }
}

impl From<i64> for Word {
    fn from(number: i64) -> Self {
        Word::Number(number)
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Word::Text(text.into())
    }
}

impl From<&OsStr> for Word {
    fn from(text: &OsStr) -> Self {
        Word::Text(text.into())
    }
}

impl From<&Path> for Word {
    fn from(path: &Path) -> Self {
        Word::Text(path.into())
    }
}

impl From<&PathBuf> for Word {
    fn from(path: &PathBuf) -> Self {
        Word::Text(path.into())
    }
}
