//! The mounts of this process, as mountinfo lists them.

use crate::sys::{Errno, Result};

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) point: Vec<u8>,
    /// The mount, or the file system, is read-only.
    pub(super) is_read_only: bool,
}

/// Reads the table of this process.
pub(super) fn read() -> Result<Vec<Mount>> {
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Errno(error.raw_os_error().unwrap_or(Errno::NOENT.0)))?;
    table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse).collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/x rw`
fn parse(line: &[u8]) -> Result<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || {
        let field = fields.next().and_then(|field| std::str::from_utf8(field).ok());
        field.and_then(|field| field.parse().ok()).ok_or(Errno::PROTO)
    };
    let (id, parent) = (number()?, number()?);
    let [_device, _root, point, options] = [fields.next(), fields.next(), fields.next(), fields.next()];
    let (Some(point), Some(options)) = (point, options) else { return Err(Errno::PROTO) };
    let of_file_system = fields.skip_while(|field| *field != b"-").nth(3).unwrap_or_default();
    Ok(Mount {
        id,
        parent,
        point: unescape(point),
        is_read_only: is_read_only(options) || is_read_only(of_file_system),
    })
}

fn is_read_only(options: &[u8]) -> bool {
    options.split(|byte| *byte == b',').any(|option| option == b"ro")
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *byte == b'\\').and_then(|digits| {
            digits.iter().try_fold(0_u8, |value, digit| {
                matches!(digit, b'0'..=b'7')
                    .then(|| value.checked_mul(8)?.checked_add(digit - b'0'))
                    .flatten()
            })
        });
        match octal {
            Some(value) => {
                plain.push(value);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*byte);
                rest = tail;
            }
        }
    }
    plain
}

/// The mounts below one, itself not among them.
pub(super) fn below(table: &[Mount], top: u64) -> Vec<&Mount> {
    let mut found: Vec<&Mount> = Vec::new();
    let mut above = vec![top];
    while let Some(parent) = above.pop() {
        for mount in table.iter().filter(|mount| mount.parent == parent && mount.id != parent) {
            above.push(mount.id);
            found.push(mount);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_escapes_and_options() {
        let line = br"36 35 98:0 /a\040b /mnt/a\040b\134c rw,noatime shared:1 master:2 - ext4 /dev/x\040y ro,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.parent, mount.point.as_slice()), (36, 35, br"/mnt/a b\c".as_slice()));
        assert!(mount.is_read_only, "by its file system");
        let line = b"36 35 98:0 / / ro,relatime - ext4 /dev/x rw";
        assert!(parse(line).unwrap().is_read_only, "by itself");
        let line = b"36 35 98:0 / /rom rw,relatime - ext4 /dev/ro rw,rom";
        assert!(!parse(line).unwrap().is_read_only);
        assert!(parse(b"36 35").is_err() && parse(b"x 35 98:0 / / rw - e e rw").is_err());
        assert_eq!(unescape(br"\0400\9\12"), br" 0\9\12");
    }

    #[test]
    fn mounts_below_are_found_at_every_depth_and_nothing_else() {
        let mount = |id, parent| Mount { id, parent, point: Vec::new(), is_read_only: false };
        // A root that is its own parent, as in an initial namespace.
        let table = [mount(1, 1), mount(2, 1), mount(3, 2), mount(4, 3), mount(5, 1), mount(6, 3)];
        let mut found: Vec<u64> = below(&table, 2).iter().map(|mount| mount.id).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4, 6]);
        assert_eq!(below(&table, 1).len(), 5);
    }
}
