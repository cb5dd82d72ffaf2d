//! Writing for people: quoting, colour, and output that survives a reader that has gone.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::failure::Failure;

/// A value between backticks, with control characters, invisible characters and bytes that are not UTF-8 escaped: a
/// file or process name must not write to the terminal, nor forge a second line.
pub(crate) fn quoted(value: impl AsRef<OsStr>) -> String {
    let text = format!("{:?}", value.as_ref());
    // Debug puts it between double quotes.
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text);
    format!("`{}`", inner.replace("\\\"", "\"").replace('`', "\\`"))
}

/// Names between backticks, separated by commas.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Writes all of it, also to a descriptor that does not block.
///
/// # Errors
/// The kernel's answer; some of it may have been written.
pub(crate) fn write_all(descriptor: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&descriptor, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Somebody who shares it may have set it so; waiting is for whoever waits for us.
            Err(Errno::AGAIN) => wait_for(&descriptor, PollFlags::OUT)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Waits until a descriptor can be read or written, or its other end has gone.
pub(crate) fn wait_for(descriptor: impl AsFd, what: PollFlags) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&descriptor, what)], None)).map(drop)
}

/// Writes to standard output.
///
/// # Errors
/// A failure that says so, unless whoever read it has gone away: that is not ours to complain about.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    match write_all(io::stdout(), text.as_bytes()) {
        Ok(()) | Err(Errno::PIPE) => Ok(()),
        Err(errno) => Err(Failure::new(
            crate::failure::Code::Relay,
            "cannot write to standard output what was asked for",
        )
        .text("stream", "stdout")
        .cause(io::Error::from(errno))),
    }
}

/// Writes one JSON document in one line to standard output.
///
/// # Errors
/// As [`out`].
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    out(&format!("{}\n", json_line(value)))
}

/// One JSON document in one line.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    // Only a map with keys that are no strings cannot be written, and there is none.
    serde_json::to_string(value).unwrap_or_else(|error| {
        serde_json::json!({ "outcome": "failed", "message": error.to_string() }).to_string()
    })
}

/// Tells a failure on standard error. When that cannot be written either, nobody is left to tell.
pub(crate) fn failure(failure: &Failure) {
    write_all(io::stderr(), format!("{failure}\n").as_bytes()).ok();
}

/// Notes for the person who started the command, on standard error, beside what the command itself writes there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notes {
    pub(crate) quiet: bool,
}

impl Notes {
    /// One line. A note that cannot be written is lost, as is the error stream of the command itself then.
    pub(crate) fn say(self, text: impl Display) {
        if !self.quiet {
            write_all(io::stderr(), format!("bailiwick: {text}\n").as_bytes()).ok();
        }
    }
}

/// Whether text for people is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Off,
    On,
}

impl Colour {
    /// On when standard output is a terminal that can show it and nobody has set `NO_COLOR`, to whatever value.
    pub(crate) fn of_stdout() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let wanted = io::stdout().is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none();
        if wanted { Self::On } else { Self::Off }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Off => text.to_owned(),
            Self::On => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn doubtful(self, text: &str) -> String {
        self.paint("33", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn quoting_leaves_no_byte_that_acts() {
        assert_eq!(quoted("/t/a b"), "`/t/a b`");
        assert_eq!(quoted("/t/\x1b[2J\nhint: c`d\"e"), "`/t/\\u{1b}[2J\\nhint: c\\`d\"e`");
        assert_eq!(quoted(OsStr::from_bytes(b"/t/\xff\xfe")), "`/t/\\xFF\\xFE`");
        assert_eq!(quoted("\u{202e}gpj"), "`\\u{202e}gpj`");
    }
}
