//! Names of sockets: what an address says, and where a caller's path begins.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::sys::{self, Errno, Result};

/// Largest address of a local socket (`sizeof(struct sockaddr_un)`).
const LIMIT: usize = 110;
const FAMILY: [u8; 2] = 1_u16.to_ne_bytes();

/// What an address names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// No path: an abstract name, or an address that the kernel will refuse.
    None,
    Path(CString),
}

/// Reads the address of a local socket as `unix_validate_addr` and `unix_mkname_bsd` of the kernel do.
///
/// # Errors
/// `EINVAL`: it is too long.
pub(super) fn of(address: &[u8]) -> Result<Name> {
    if address.len() > LIMIT {
        return Err(Errno::INVAL);
    }
    let Some((family, path)) = address.split_first_chunk() else { return Ok(Name::None) };
    if *family != FAMILY || path.first().is_none_or(|byte| *byte == 0) {
        return Ok(Name::None);
    }
    // It ends at a NUL, or with the address.
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(path).map(Name::Path).map_err(|_| Errno::INVAL)
}

/// A path, and the directory that it is relative to.
#[derive(Debug)]
pub(super) struct Start {
    directory: Option<OwnedFd>,
    path: CString,
}

impl Start {
    /// A caller's path. What the caller calls itself in `/proc` is written out; a symbolic link that leads there
    /// would lead to the broker's own entry, in which there is nothing to be had.
    ///
    /// # Errors
    /// `ESRCH`: the caller is gone. `EACCES`: it may not be looked into.
    pub(super) fn of(caller: &OwnedFd, path: CString) -> Result<Self> {
        let shown = || shown(caller).ok_or(Errno::SRCH);
        if path.as_bytes().first() != Some(&b'/') {
            let directory = CString::new(format!("/proc/{}/cwd", shown()?)).map_err(|_| Errno::INVAL)?;
            let directory = sys::open_at(sys::AT_FDCWD, &directory, sys::O_PATH | sys::O_DIRECTORY, 0)?;
            return Ok(Self { directory: Some(directory), path });
        }
        let path = match its_own(path.as_bytes()) {
            None => path,
            Some((own, rest)) => {
                let thread = shown()?;
                let process = process_of(thread).ok_or(Errno::SRCH)?;
                let mut written = match own {
                    Own::Process => format!("/proc/{process}"),
                    Own::Thread => format!("/proc/{process}/task/{thread}"),
                    Own::Descriptors => format!("/proc/{process}/fd"),
                }
                .into_bytes();
                written.extend_from_slice(rest);
                CString::new(written).map_err(|_| Errno::INVAL)?
            }
        };
        Ok(Self { directory: None, path })
    }

    /// Opens what the path leads to, as `connect` would find it.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        let directory = self.directory.as_ref().map_or(sys::AT_FDCWD, std::os::fd::AsRawFd::as_raw_fd);
        sys::open_at(directory, &self.path, sys::O_PATH, 0)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Own {
    Process,
    Thread,
    Descriptors,
}

/// The part of an absolute path after the caller's own entry, if it begins with that.
fn its_own(path: &[u8]) -> Option<(Own, &[u8])> {
    let mut rest = path;
    let mut next = || {
        // Any number of slashes, and steps to where it is.
        loop {
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            rest = rest.get(slashes..)?;
            match rest {
                [b'.', b'/', ..] => rest = rest.get(1..)?,
                _ => break,
            }
        }
        let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (name, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(name)
    };
    let own = match (next()?, next()?) {
        (b"proc", b"self") => Own::Process,
        (b"proc", b"thread-self") => Own::Thread,
        (b"dev", b"fd") => Own::Descriptors,
        _ => return None,
    };
    Some((own, rest))
}

/// The number of a process or thread in this `/proc`, which may be that of another pid namespace: where a container
/// masks parts of its own, the session can have none.
fn shown(caller: &OwnedFd) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", caller.as_raw_fd())).ok()?;
    field(&text, "Pid")?.parse().ok().filter(|number| *number > 0)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn status(number: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{number}/status")).ok()
}

/// The process of a thread, by its number in `/proc`.
pub(super) fn process_of(thread: i32) -> Option<i32> {
    field(&status(thread)?, "Tgid")?.parse().ok()
}

/// Whether a signal has come that would interrupt the caller. Ignored ones are never kept.
pub(super) fn has_signal(caller: &OwnedFd) -> bool {
    let pending = || {
        let text = status(shown(caller)?)?;
        let mask = |name| u64::from_str_radix(field(&text, name)?, 16).ok();
        Some((mask("SigPnd")? | mask("ShdPnd")?) & !mask("SigBlk")?)
    };
    pending().is_some_and(|pending| pending != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(path: &[u8]) -> Vec<u8> {
        [&FAMILY, path].concat()
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let path = |bytes: &[u8]| Ok(Name::Path(CString::new(bytes).unwrap()));
        assert_eq!(of(&address(b"/a\0")), path(b"/a"));
        assert_eq!(of(&address(b"a/b\0rest")), path(b"a/b"));
        assert_eq!(of(&address(b"s")), path(b"s"));
        assert_eq!(of(&address(&[b'x'; 108])), path(&[b'x'; 108]));
        assert_eq!(of(&address(&[b'x'; 109])), Err(Errno::INVAL));
        for none in [&b""[..], &[1], &FAMILY, &address(b"\0abstract"), b"\x02\0/a\0", b"\0\0/a"] {
            assert_eq!(of(none), Ok(Name::None), "{none:?}");
        }
    }

    #[test]
    fn what_a_caller_calls_itself_is_found_at_the_beginning_only() {
        let own = |path: &'static str| its_own(path.as_bytes());
        assert_eq!(own("/proc/self/fd/3/s"), Some((Own::Process, &b"/fd/3/s"[..])));
        assert_eq!(own("//proc/./self"), Some((Own::Process, &b""[..])));
        assert_eq!(own("/proc/thread-self/cwd/s"), Some((Own::Thread, &b"/cwd/s"[..])));
        assert_eq!(own("/dev/fd/3/s"), Some((Own::Descriptors, &b"/3/s"[..])));
        for other in ["/proc/selfish/s", "/proc/1/fd/3", "/a/proc/self/s", "/proc", "/", "/dev/fdx"] {
            assert_eq!(own(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_is_found_and_has_no_signal() {
        let own = sys::pidfd_open(sys::process_id()).unwrap();
        assert_eq!(shown(&own), Some(sys::process_id()));
        assert_eq!(process_of(sys::process_id()), Some(sys::process_id()));
        assert!(!has_signal(&own));
        assert_eq!(process_of(-1), None);
    }
}
