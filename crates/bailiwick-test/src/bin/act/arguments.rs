//! The command line of an act, taken piece by piece.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;

use rustix::process::Pid;

use crate::answer::Failed;

pub(crate) struct Arguments(VecDeque<OsString>);

impl Arguments {
    pub(crate) fn new(arguments: Vec<OsString>) -> Self {
        Arguments(arguments.into())
    }

    fn next(&mut self) -> Result<OsString, Failed> {
        self.0
            .pop_front()
            .ok_or_else(|| Failed::CannotTry("an argument is missing; `act` alone lists them".into()))
    }

    pub(crate) fn path(&mut self) -> Result<PathBuf, Failed> {
        self.next().map(PathBuf::from)
    }

    pub(crate) fn text(&mut self) -> Result<String, Failed> {
        let text = self.next()?;
        text.into_string().map_err(|text| Failed::CannotTry(format!("{} is not text", text.display())))
    }

    /// A decimal number.
    pub(crate) fn number<N: std::str::FromStr>(&mut self) -> Result<N, Failed> {
        let text = self.text()?;
        text.parse().map_err(|_error| Failed::CannotTry(format!("`{text}` is not a fitting number")))
    }

    /// The same, or `default` if the command line ends here.
    pub(crate) fn number_or<N: std::str::FromStr>(&mut self, default: N) -> Result<N, Failed> {
        if self.0.is_empty() { Ok(default) } else { self.number() }
    }

    /// A number in octal, such as a file mode.
    pub(crate) fn octal(&mut self) -> Result<u32, Failed> {
        let text = self.text()?;
        u32::from_str_radix(&text, 8).map_err(|_error| Failed::CannotTry(format!("`{text}` is not octal")))
    }

    /// A number in hexadecimal with `0x`, or in decimal.
    pub(crate) fn mask(&mut self) -> Result<u64, Failed> {
        let text = self.text()?;
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_error| Failed::CannotTry(format!("`{text}` is not a mask")))
    }

    /// A pid; `self` is this process.
    pub(crate) fn pid(&mut self) -> Result<Pid, Failed> {
        let text = self.text()?;
        if text == "self" {
            return Ok(rustix::process::getpid());
        }
        let pid = text.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        pid.ok_or_else(|| Failed::CannotTry(format!("`{text}` is not a pid")))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
