//! The files that this very code was loaded from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, readlinkat};

use super::fault::Fault;
use super::pinned::{Pin, PinnedFile};
use crate::error::SystemCall;

/// The library that holds this code, where it is not the executable itself: an addon of Node, a plug-in.
#[derive(Debug)]
pub(crate) enum Library {
    /// The executable holds it.
    None,
    Pinned(Box<Pin>),
    /// The file that was loaded has no name any more, or another file has it.
    Nameless(PathBuf),
}

/// Finds the library that holds this code, by the mapping in which this function lies.
///
/// # Source
/// `proc_pid_maps(5)`.
pub(crate) fn loaded_library() -> Result<Library, Fault> {
    const MAPS: &str = "/proc/self/maps";
    let maps = std::fs::read(MAPS).map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        Fault::from_call(SystemCall::new("read", MAPS, errno))
    })?;
    let here = (loaded_library as fn() -> Result<Library, Fault>) as usize;
    let Some((inode, name)) = mapping(&maps, here) else { return Ok(Library::None) };
    let running = readlinkat(CWD, "/proc/self/exe", Vec::new())
        .map_err(|errno| Fault::from_call(SystemCall::new("readlink", "/proc/self/exe", errno)))?;
    if name.as_os_str().as_bytes() == running.as_bytes() {
        return Ok(Library::None);
    }
    match PinnedFile::open(&name) {
        Ok(file) if file.inode() == inode => Ok(Library::Pinned(Box::new(Pin::File(file)))),
        // A file system may show another number in the mapping than by name. The name is protected all the same.
        Ok(file) if file.is_overlaid()? => Ok(Library::Pinned(Box::new(Pin::File(file)))),
        Ok(_) | Err(Fault::NotFound { .. } | Fault::Gone) => Ok(Library::Nameless(name)),
        Err(fault) => Err(fault),
    }
}

/// Inode and name of the file that is mapped at an address.
fn mapping(maps: &[u8], address: usize) -> Option<(u64, PathBuf)> {
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        // start-end, permissions, offset, device, inode, name
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        if !(start..end).contains(&address) {
            return None;
        }
        let inode = std::str::from_utf8(fields.nth(3)?).ok()?.parse().ok()?;
        let name = fields.next()?.trim_ascii_start();
        name.starts_with(b"/").then(|| (inode, unescape(name)))
    })
}

/// The kernel writes a newline in such a name as `\012`, and nothing else in another way than it is.
fn unescape(name: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(tail) => {
                bytes.push(b'\n');
                rest = tail;
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Path::new(OsStr::from_bytes(&bytes)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_its_own_executable() {
        assert!(matches!(loaded_library().unwrap(), Library::None));
    }

    #[test]
    fn finds_the_mapping_of_an_address() {
        let maps = b"1000-2000 r-xp 00000000 fe:00 7 /lib/a b\\012c.so\n2000-3000 rw-p 00000000 00:00 0 \n\
                     3000-4000 r-xp 00000000 fe:00 9                  /lib/d.so\n";
        assert_eq!(mapping(maps, 0x1000), Some((7, PathBuf::from("/lib/a b\nc.so"))));
        assert_eq!(mapping(maps, 0x1fff), Some((7, PathBuf::from("/lib/a b\nc.so"))));
        assert_eq!(mapping(maps, 0x2000), None);
        assert_eq!(mapping(maps, 0x3800), Some((9, PathBuf::from("/lib/d.so"))));
        assert_eq!(mapping(maps, 0x4000), None);
    }
}
