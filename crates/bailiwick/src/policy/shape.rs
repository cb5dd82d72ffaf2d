//! What can be refused from the value alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{Limit, Policy, ReadPurpose, Resource, SessionLimit};
use crate::error::{Error, ErrorKind, Quoted};

/// Bytes of the longest path that a system call takes: `PATH_MAX` is 4096 with the closing NUL.
///
/// # Source
/// `linux/limits.h`, `path_resolution(7)`.
const PATH_LIMIT: usize = 4095;

/// Why a path cannot name anything, whatever lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathFault {
    /// No bytes.
    Empty,
    /// A NUL byte, which ends a path for the kernel.
    Nul,
    /// `~`, `~name` or `$NAME` in front: what a shell would have replaced.
    Unexpanded,
    /// Does not begin with `/`.
    Relative,
    /// More bytes than a system call takes.
    TooLong,
}

impl PathFault {
    /// The fault, to follow the name of what the path was for.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Empty => "is empty",
            Self::Nul => "holds a NUL byte",
            Self::Unexpanded => "begins with what only a shell replaces",
            Self::Relative => "is relative",
            Self::TooLong => "is longer than 4095 bytes",
        }
    }

    /// What would be valid.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Empty => {
                "leave the entry out, or give an absolute path; an empty path never means the current directory"
            }
            Self::Nul => "give the path without the NUL byte; the kernel would stop reading there",
            Self::Unexpanded => {
                "replace `~` or `$NAME` by its value before the path is handed over; nothing is expanded here"
            }
            Self::Relative => "give the absolute path; a current directory is never added",
            Self::TooLong => "give a shorter path to the same directory",
        }
    }
}

/// The first fault of a path's shape.
pub(crate) fn path_fault(path: &Path) -> Option<PathFault> {
    let bytes = path.as_os_str().as_bytes();
    match bytes.first() {
        None => Some(PathFault::Empty),
        Some(_) if bytes.contains(&0) => Some(PathFault::Nul),
        Some(b'~' | b'$') => Some(PathFault::Unexpanded),
        Some(b'/') if bytes.len() > PATH_LIMIT => Some(PathFault::TooLong),
        Some(b'/') => None,
        Some(_) => Some(PathFault::Relative),
    }
}

/// The error for a write root with a fault of shape.
pub(crate) fn root_invalid(index: usize, path: &Path, fault: PathFault) -> Error {
    Error::new(ErrorKind::RootInvalid, format!("write root {index} {}: {}", fault.text(), Quoted::new(path)))
        .path("root", path)
        .number("root_index", index)
        .hint(fault.hint())
}

/// The error for a path to protect with a fault of shape.
pub(crate) fn protected_invalid(index: usize, path: &Path, fault: PathFault) -> Error {
    let message = format!("path {index} to protect {}: {}", fault.text(), Quoted::new(path));
    Error::new(ErrorKind::ProtectedInvalid, message)
        .path("protected", path)
        .number("protected_index", index)
        .hint(fault.hint())
}

/// The error for a path that commands may read with a fault of shape.
pub(crate) fn read_invalid(purpose: ReadPurpose, index: usize, path: &Path, fault: PathFault) -> Error {
    let what = match purpose {
        ReadPurpose::Programs => "directory of programs",
        ReadPurpose::Base => "entry of what every tool may read",
        _ => "directory to read",
    };
    let message = format!("{what} {index} {}: {}", fault.text(), Quoted::new(path));
    Error::new(ErrorKind::ReadInvalid, message)
        .path("directory", path)
        .number("index", index)
        .text("purpose", purpose.name())
        .hint(fault.hint())
}

/// Checks the variables of an environment. Errors name index and name, never a value.
pub(crate) fn check_environment<'a>(
    entries: impl IntoIterator<Item = (&'a OsStr, &'a OsStr)>,
) -> Result<(), Error> {
    for (index, (name, value)) in entries.into_iter().enumerate() {
        let bytes = name.as_bytes();
        let fault = if bytes.is_empty() {
            "has an empty name"
        } else if bytes.contains(&0) {
            "has a NUL byte in its name"
        } else if bytes.contains(&b'=') {
            "has `=` in its name"
        } else if value.as_bytes().contains(&0) {
            "has a NUL byte in its value"
        } else {
            continue;
        };
        let message = format!("variable {index} of the environment {fault}: {}", Quoted::new(name));
        return Err(Error::new(ErrorKind::EnvInvalid, message)
            .number("index", index)
            .text("name", name.to_string_lossy())
            .hint("leave the variable out, or change it to a name without `=` and a value without NUL"));
    }
    Ok(())
}

fn check_limits(limits: &[Limit]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for (index, limit) in limits.iter().enumerate() {
        let name = limit.resource.name();
        let refused = |message: String, hint: &str| {
            Err(Error::new(ErrorKind::LimitInvalid, message)
                .number("index", index)
                .text("resource", name)
                .number("soft", limit.soft)
                .number("hard", limit.hard)
                .hint(hint))
        };
        if !seen.insert(limit.resource) {
            return refused(
                format!("limit {index} names a resource a second time: {name}"),
                "give each resource once",
            );
        }
        if limit.resource == Resource::Core && limit.hard != 0 {
            return refused(
                format!("limit {index} permits memory images (`core`), which no command may leave"),
                "leave it out: the limit is 0 always, since the kernel writes an image beside every confinement",
            );
        }
        if limit.soft > limit.hard {
            return refused(
                format!("limit {index} has a soft value above its hard value: {name}"),
                "give a soft value that is at most the hard value",
            );
        }
    }
    Ok(())
}

fn check_session_limits(limits: &BTreeMap<SessionLimit, u64>) -> Result<(), Error> {
    for (limit, value) in limits {
        let (name, least) = (limit.name(), limit.least());
        if *value < least {
            return Err(Error::new(
                ErrorKind::LimitInvalid,
                format!(
                    "the limit `{name}` of the session leaves less than the session needs for itself: {value}"
                ),
            )
            .text("limit", name)
            .number("value", *value)
            .number("least", least)
            .hint(format!("give at least {least}")));
        }
    }
    Ok(())
}

impl Policy {
    /// Refuses values that are wrong whatever this host looks like.
    ///
    /// # Errors
    /// `RootInvalid`, `ProtectedInvalid` or `ReadInvalid` for a path that is empty, relative, begins with `~` or `$`,
    /// holds a NUL byte or is longer than the kernel takes; `EnvInvalid`; `LimitInvalid`. The first fault in that order, with
    /// its index and value.
    pub fn check_shape(&self) -> Result<(), Error> {
        for (index, root) in self.write_roots.iter().enumerate() {
            if let Some(fault) = path_fault(root) {
                return Err(root_invalid(index, root, fault));
            }
        }
        for (index, path) in self.protect.iter().enumerate() {
            if let Some(fault) = path_fault(path) {
                return Err(protected_invalid(index, path, fault));
            }
        }
        if let Some(readable) = self.read.readable() {
            for (purpose, index, path) in readable.named() {
                if let Some(fault) = path_fault(path) {
                    return Err(read_invalid(purpose, index, path, fault));
                }
            }
        }
        self.check_rest()
    }

    /// Checks what is no path, for the guard, which reports every faulty root by itself.
    pub(crate) fn check_rest(&self) -> Result<(), Error> {
        check_environment(self.env.iter())?;
        check_limits(&self.limits)?;
        check_session_limits(&self.session_limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Field;
    use crate::policy::{Environment, Resource};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::PathBuf;

    fn roots(values: &[&[u8]]) -> Policy {
        let write_roots =
            values.iter().map(|bytes| PathBuf::from(OsString::from_vec(bytes.to_vec()))).collect();
        Policy { write_roots, ..Policy::default() }
    }

    /// Case C22: each value is refused with its index and a quoted form; the twin is the list without it.
    #[test]
    fn roots_that_are_no_absolute_path() {
        let long = [b"/", [b'a'; 4095].as_slice()].concat();
        for bad in [b"".as_slice(), b".", b"W", b"~", b"~u/x", b"$HOME", b"./t", b"/t/W\0x", &long] {
            let refused = roots(&[b"/t/W", bad]).check_shape().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::RootInvalid);
            assert_eq!(refused.field("root_index"), Some(&Field::Number(1)));
            assert_eq!(refused.field("root").and_then(Field::as_path).unwrap().as_os_str().as_bytes(), bad);
            assert_eq!(refused.hints().len(), 1);
            assert!(refused.to_string().contains('`'), "{refused}");
        }
        roots(&[b"/t/W"]).check_shape().unwrap();
        roots(&[b"/t/~", b"/t/$HOME", b"/t/\xff\xfe", &long[..4095]]).check_shape().unwrap();
        roots(&[]).check_shape().unwrap();
    }

    #[test]
    fn protected_paths_are_held_to_the_same_shape() {
        let policy = Policy { protect: vec!["/a".into(), "b".into()], ..Policy::default() };
        let refused = policy.check_shape().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ProtectedInvalid);
        assert_eq!(refused.field("protected_index"), Some(&Field::Number(1)));
    }

    #[test]
    fn paths_to_read_are_held_to_the_same_shape() {
        let mut policy = Policy::default();
        policy.read.limit().programs.push("/opt/tool/bin".into());
        policy.check_shape().unwrap();
        policy.read.limit().programs.push("bin".into());
        let refused = policy.check_shape().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadInvalid);
        assert_eq!(refused.field("index"), Some(&Field::Number(1)));
        assert_eq!(refused.field("purpose"), Some(&Field::Text("programs".into())));
    }

    #[test]
    fn environment_faults_never_show_a_value() {
        for (name, value) in [("", "hunter2"), ("A=B", "hunter2"), ("A\0", "hunter2"), ("A", "hunter2\0")] {
            let env = Environment::from_iter([("OK", "1"), (name, value)]);
            let refused = Policy { env, ..Policy::default() }.check_shape().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::EnvInvalid);
            assert_eq!(refused.field("index"), Some(&Field::Number(1)));
            assert_eq!(refused.field("name"), Some(&Field::Text(name.into())));
            let everything = format!("{refused:?} {}", refused.report());
            assert!(!everything.contains("hunter2"), "{everything}");
        }
        let env = Environment::from_iter([("A", "x=y"), ("b.c-d", "")]);
        Policy { env, ..Policy::default() }.check_shape().unwrap();
    }

    #[test]
    fn limits_are_given_once_and_in_order() {
        let with = |limits: Vec<Limit>| Policy { limits, ..Policy::default() }.check_shape();
        with(vec![
            Limit::of(Resource::Core, 0),
            Limit { resource: Resource::Cpu, soft: 1, hard: Limit::UNLIMITED },
        ])
        .unwrap();
        let twice = with(vec![Limit::of(Resource::Core, 0), Limit::of(Resource::Core, 1)]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::LimitInvalid);
        let images = with(vec![Limit { resource: Resource::Core, soft: 0, hard: 1 }]).unwrap_err();
        assert_eq!(images.kind(), ErrorKind::LimitInvalid);
        assert_eq!(images.field("resource"), Some(&Field::Text("core".into())));
        let above = with(vec![Limit { resource: Resource::Cpu, soft: 2, hard: 1 }]).unwrap_err();
        assert_eq!(above.kind(), ErrorKind::LimitInvalid);
        assert_eq!(above.field("resource"), Some(&Field::Text("cpu".into())));
    }
}
