//! The mount table from `mountinfo`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::ffi::OsStringExt as _;

use rustix::io::Errno;

use super::watch::failed;
use super::{Device, Fault, Mount, MountTable};
use crate::error::Quoted;

/// A `mountinfo` that is not of the known form. Nothing is concluded from the rest of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the mount table is not of the known form, {what}: {}", Quoted::new(.line))]
pub(crate) struct MalformedMountinfo {
    what: &'static str,
    line: OsString,
}

impl MalformedMountinfo {
    fn at(line: &[u8], what: &'static str) -> Self {
        Self { what, line: OsString::from_vec(line.to_vec()) }
    }

    pub(super) fn twice(id: u64) -> Self {
        Self { what: "two mounts have one id", line: id.to_string().into() }
    }
}

/// Reads the table once from an open `mountinfo`.
pub(super) fn read(mut file: &File) -> Result<MountTable, Fault> {
    let mut text = Vec::with_capacity(32 << 10);
    file.rewind()
        .and_then(|()| file.read_to_end(&mut text))
        .map_err(|error| failed("read", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    MountTable::parse(&text).map_err(|malformed| {
        tracing::warn!(%malformed, "the mount table cannot be used");
        failed("read", Errno::BADMSG)
    })
}

/// The mounts of every line.
pub(super) fn lines(text: &[u8]) -> Result<Vec<Mount>, MalformedMountinfo> {
    match text.last() {
        None => Ok(Vec::new()),
        Some(b'\n') => text[..text.len() - 1].split(|byte| *byte == b'\n').map(line).collect(),
        // A line cut off in its last field would look whole.
        Some(_) => Err(MalformedMountinfo::at(
            text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default(),
            "a line has no end",
        )),
    }
}

/// One line: `id parent major:minor root point options tag... - type source options`.
///
/// Fields are separated by one space each, since the source may be empty. The kernel writes spaces, tabs, line ends
/// and backslashes of names as octal escapes.
fn line(line: &[u8]) -> Result<Mount, MalformedMountinfo> {
    let wrong = |what| MalformedMountinfo::at(line, what);
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |what| fields.next().ok_or(wrong(what));
    let id = number(next("it lacks the id")?).ok_or(wrong("the id is no number"))?;
    let parent = number(next("it lacks the parent")?).ok_or(wrong("the parent is no number"))?;
    let device = device(next("it lacks the device")?).ok_or(wrong("the device is no pair of numbers"))?;
    let root = unescape(next("it lacks the root")?).ok_or(wrong("the root is badly escaped"))?;
    let point = unescape(next("it lacks the point")?).ok_or(wrong("the point is badly escaped"))?;
    let flags = next("it lacks the options of the mount")?;
    if root.is_empty() {
        return Err(wrong("the root is empty"));
    }
    if point.first() != Some(&b'/') {
        return Err(wrong("the point is no absolute path"));
    }
    let mount_read_only = is_read_only(flags).ok_or(wrong("it says neither `ro` nor `rw` of the mount"))?;
    // Tags of propagation, of which there may be more in later kernels.
    loop {
        match next("it lacks the separator")? {
            b"-" => break,
            b"" => return Err(wrong("a tag is empty")),
            _tag => {}
        }
    }
    let fs_type = unescape(next("it lacks the type")?).ok_or(wrong("the type is badly escaped"))?;
    let source = unescape(next("it lacks the source")?).ok_or(wrong("the source is badly escaped"))?;
    // The rest: a file system that does not escape its options would else lose some.
    let mut options = next("it lacks the options of the file system")?.to_vec();
    for more in fields {
        options.push(b' ');
        options.extend_from_slice(more);
    }
    let super_read_only =
        is_read_only(&options).ok_or(wrong("it says neither `ro` nor `rw` of the file system"))?;
    let fs_type = String::from_utf8_lossy(&fs_type).trim_end_matches('.').to_owned();
    if fs_type.is_empty() {
        return Err(wrong("the type is empty"));
    }
    let (root, root_removed) = removed(&root);
    Ok(Mount {
        id,
        parent,
        device,
        root: OsString::from_vec(root.to_vec()).into(),
        root_removed,
        point: OsString::from_vec(point).into(),
        fs_type,
        source: OsString::from_vec(source),
        options: without_general(&options).to_vec(),
        read_only: mount_read_only || super_read_only,
    })
}

/// Splits off what the kernel appends to the name of a removed object. No name can hold two slashes in a row.
pub(super) fn removed(root: &[u8]) -> (&[u8], bool) {
    match root.strip_suffix(b"//deleted") {
        Some(root) => (root, true),
        None => (root, false),
    }
}

/// Options of a file system without those at their head that every file system has. The kernel's two ways to show
/// a mount differ in these alone.
pub(super) fn without_general(mut options: &[u8]) -> &[u8] {
    const GENERAL: [&[u8]; 6] = [b"rw", b"ro", b"sync", b"dirsync", b"mand", b"lazytime"];
    for general in GENERAL {
        match options.strip_prefix(general) {
            Some([]) => return &[],
            Some([b',', rest @ ..]) => options = rest,
            _ => {}
        }
    }
    options
}

/// Resolves the kernel's octal escapes (`\040`). `None` if a backslash begins none.
pub(super) fn unescape(field: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', tail @ ..] = tail else {
            return None;
        };
        plain.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
        rest = tail;
    }
    Some(plain)
}

fn is_read_only(options: &[u8]) -> Option<bool> {
    match options.split(|byte| *byte == b',').next() {
        Some(b"ro") => Some(true),
        Some(b"rw") => Some(false),
        _ => None,
    }
}

fn device(field: &[u8]) -> Option<Device> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let (major, minor) = (number(&field[..colon])?, number(&field[colon + 1..])?);
    Some(Device { major, minor })
}

/// Digits and nothing else: `parse` alone would take a sign.
fn number<N: std::str::FromStr>(field: &[u8]) -> Option<N> {
    if !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}
