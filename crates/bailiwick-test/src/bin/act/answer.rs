//! What came of an act, and its line of JSON.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use serde_json::Value;

/// The value that an act has to tell, or why there is none.
pub(crate) type Answer = Result<Value, Failed>;

pub(crate) enum Failed {
    /// The kernel said no.
    Refused(i32),
    /// The kernel killed the process that tried.
    Killed(i32),
    /// It came to nothing, without an error: the reason as a word in the place of the errno's name.
    Nothing(&'static str),
    /// The act itself was not reached.
    CannotTry(String),
    /// There is nothing to print: the act is of the silent kind.
    Silent,
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Failed::Refused(errno.raw_os_error())
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Failed::CannotTry(error.to_string()), Failed::Refused)
    }
}

/// The answer of an act that was done and has nothing to tell.
pub(crate) fn done<T>(_result: T) -> Answer {
    Ok(Value::Null)
}

pub(crate) fn cannot_try(reason: impl Into<String>) -> Answer {
    Err(Failed::CannotTry(reason.into()))
}

/// Marks a step that leads to the act: its failure says nothing about the act.
pub(crate) trait Prepare<T> {
    fn prepare(self, step: &str) -> Result<T, Failed>;
}

impl<T, E: Display> Prepare<T> for Result<T, E> {
    fn prepare(self, step: &str) -> Result<T, Failed> {
        self.map_err(|error| Failed::CannotTry(format!("{step}: {error}")))
    }
}

/// The line to print, or the reason why there is none; no reason if silence is meant.
pub(crate) fn line(act: &str, answer: Answer) -> Result<String, Option<String>> {
    let (ok, errno, name, value) = match answer {
        Ok(value) => (true, 0, String::new(), value),
        Err(Failed::Refused(errno)) => (false, errno, error_name(errno), Value::Null),
        Err(Failed::Killed(signal)) => (false, 0, signal_name(signal), Value::Null),
        Err(Failed::Nothing(word)) => (false, 0, word.to_owned(), Value::Null),
        Err(Failed::CannotTry(reason)) => return Err(Some(reason)),
        Err(Failed::Silent) => return Err(None),
    };
    let report = serde_json::json!({"act": act, "ok": ok, "errno": errno, "name": name, "value": value});
    Ok(format!("{report}\n"))
}

macro_rules! names {
    ($number:expr, $($name:ident)+) => {
        match $number {
            $(libc::$name => stringify!($name).to_owned(),)+
            other => other.to_string(),
        }
    };
}

pub(crate) fn error_name(errno: i32) -> String {
    names!(errno,
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK
        EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE
        EROFS EMLINK EPIPE ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO
        EOVERFLOW EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
        ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH
        ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTUNREACH EALREADY
        EINPROGRESS ESTALE EDQUOT ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED
    )
}

fn signal_name(signal: i32) -> String {
    names!(signal, SIGABRT SIGALRM SIGBUS SIGFPE SIGHUP SIGILL SIGINT SIGKILL SIGPIPE SIGQUIT SIGSEGV SIGSYS SIGTERM SIGTRAP SIGXCPU)
}
