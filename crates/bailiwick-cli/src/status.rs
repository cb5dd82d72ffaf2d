//! How a run ended: as an exit status, and as one line of JSON on a descriptor of the caller's choice.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bailiwick::{CloseReport, Enforcement, Field};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;

use crate::FAILED;
use crate::failure::{Code, Failure};
use crate::render::{self, json_line, quoted};
use crate::sys;

/// How the command itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this status.
    Exited(u8),
    /// It was ended by this signal.
    Signalled(u8),
}

impl Ended {
    /// The end of the process that was started.
    pub(crate) fn of(status: std::process::ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        // Of an exit status the kernel keeps eight bits, and signals go up to 64.
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(byte(code)),
            (None, signal) => Self::Signalled(byte(signal.unwrap_or_default())),
        }
    }
}

/// Everything that is known about a run when it is over.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Why bailiwick refused or failed.
    pub(crate) failure: Option<Failure>,
    /// The signal that asked bailiwick itself to end.
    pub(crate) interrupted: Option<u8>,
    /// How the command ended; `None` when it never started, or when that was lost.
    pub(crate) ended: Option<Ended>,
    pub(crate) timed_out: bool,
    pub(crate) pid: Option<u32>,
    pub(crate) start_time: Option<u64>,
    pub(crate) write_roots: Option<Vec<PathBuf>>,
    pub(crate) enforcement: Option<Enforcement>,
    pub(crate) closed: Option<CloseReport>,
}

impl Report {
    /// A run that did not come about.
    pub(crate) fn refused(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// Keeps the first failure: later ones follow from it.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// The word of the outcome. A failure weighs most, because then something that was promised is not certain.
    pub(crate) fn outcome(&self) -> &'static str {
        match (&self.failure, self.interrupted, self.ended) {
            (Some(failure), ..) if failure.is_refusal() && self.pid.is_none() => "refused",
            (Some(_), ..) => "failed",
            (None, Some(_), _) => "interrupted",
            (None, None, Some(Ended::Exited(_))) => "exited",
            (None, None, Some(Ended::Signalled(_))) => "signalled",
            (None, None, None) => "failed",
        }
    }

    /// The exit status of the program.
    pub(crate) fn exit_status(&self) -> u8 {
        match (&self.failure, self.interrupted, self.ended) {
            (Some(_), ..) | (None, None, None) => FAILED,
            (None, Some(signal), _) | (None, None, Some(Ended::Signalled(signal))) => {
                signal.saturating_add(128)
            }
            (None, None, Some(Ended::Exited(code))) => code,
        }
    }
}

/// The status line. Absent fields are left out, so that `exit_code` stands there only if the command ran.
#[derive(Serialize)]
struct Line<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupted_by: Option<u8>,
    timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<u64>,
    #[serde(flatten)]
    failure: Option<&'a Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_roots: Option<Vec<Field>>,
    #[serde(flatten)]
    enforcement: Option<Enforced<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<&'a CloseReport>,
}

#[derive(Serialize)]
struct Enforced<'a> {
    enforcement: &'a [bailiwick::Kept],
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (exit_code, signal) = match self.ended {
            Some(Ended::Exited(code)) => (Some(code), None),
            Some(Ended::Signalled(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let roots = self.write_roots.as_ref();
        Line {
            outcome: self.outcome(),
            exit_code,
            signal,
            interrupted_by: self.interrupted,
            timed_out: self.timed_out,
            pid: self.pid,
            start_time: self.start_time,
            failure: self.failure.as_ref(),
            // A field of the library writes a path that is not UTF-8 with its exact bytes.
            write_roots: roots.map(|roots| roots.iter().cloned().map(Field::Path).collect()),
            enforcement: self.enforcement.as_ref().map(|found| Enforced { enforcement: found.protections() }),
            closed: self.closed.as_ref(),
        }
        .serialize(serializer)
    }
}

/// The descriptor for the status line.
#[derive(Debug)]
pub(crate) struct Status(OwnedFd);

impl Status {
    /// Takes the descriptor with this number. To be called before anything else here opens one: a number that was
    /// not open at the start would later be one of this program's own.
    ///
    /// # Errors
    /// It is no number, a standard stream, not open, or not open for writing.
    pub(crate) fn take(value: &OsStr) -> Result<Self, Failure> {
        let refused = |reason: &'static str| {
            Failure::new(
                Code::StatusFd,
                format!("the descriptor for the status line {reason}: {}", quoted(value)),
            )
            .value("value", value)
            .text("reason", reason)
            .hint("open it for bailiwick, as in `--json-status 3 -- CMD 3>FILE`, or hand over a pipe")
        };
        let digits = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(number) = digits.and_then(|text| text.parse().ok()) else {
            return Err(refused("is not a number"));
        };
        if number <= 2 {
            return Err(refused("is a standard stream, which belongs to the command"));
        }
        let inherited = match sys::inherited(number) {
            Ok(inherited) => inherited,
            Err(Errno::BADF) => return Err(refused("is not open")),
            Err(errno) => return Err(refused("cannot be used").cause(std::io::Error::from(errno))),
        };
        let mode = inherited.flags & OFlags::RWMODE;
        if inherited.flags.contains(OFlags::PATH) || (mode != OFlags::WRONLY && mode != OFlags::RDWR) {
            return Err(refused("is not open for writing"));
        }
        Ok(Self(inherited.descriptor))
    }

    /// Writes the line. Whether all of it could be written.
    pub(crate) fn tell(&mut self, report: &Report) -> bool {
        let line = format!("{}\n", json_line(report));
        match render::write_all(&self.0, line.as_bytes()) {
            Ok(()) => true,
            Err(errno) => {
                let error = std::io::Error::from(errno);
                render::Notes { quiet: false }.say(format_args!("cannot write the status line: {error}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(report: &Report) -> serde_json::Value {
        serde_json::from_str(&json_line(report)).unwrap()
    }

    #[test]
    fn a_status_of_125_is_told_from_a_refusal() {
        let own = Report { ended: Some(Ended::Exited(125)), pid: Some(7), ..Report::default() };
        let refused = Report::refused(Failure::new(Code::EnvUnset, "x"));
        assert_eq!((own.exit_status(), refused.exit_status()), (125, 125));
        let (own, refused) = (json(&own), json(&refused));
        assert_eq!((&own["outcome"], &own["exit_code"]), (&"exited".into(), &125.into()));
        assert_eq!(refused["outcome"], "refused");
        assert_eq!(refused["code"], "ERR_BAILIWICK_CLI_ENV_UNSET");
        assert!(refused.get("exit_code").is_none() && own.get("code").is_none());
    }

    #[test]
    fn a_failure_outweighs_a_signal_and_a_signal_the_command() {
        let mut report = Report { ended: Some(Ended::Signalled(9)), pid: Some(7), ..Report::default() };
        assert_eq!((report.outcome(), report.exit_status()), ("signalled", 137));
        report.interrupted = Some(15);
        assert_eq!((report.outcome(), report.exit_status()), ("interrupted", 143));
        report.fail(Failure::new(Code::Relay, "x").ran(bailiwick::Ran::Something));
        assert_eq!((report.outcome(), report.exit_status()), ("failed", 125));
        let line = json(&report);
        assert_eq!((&line["signal"], &line["interrupted_by"]), (&9.into(), &15.into()));
        assert!(line.get("exit_code").is_none());
    }
}
