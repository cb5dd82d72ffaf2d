//! The archive that a kernel unpacks as its first file system (`cpio`, format `newc`).
//!
//! Written here, because device nodes go into it, which a plain user cannot make on a disk.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// An archive in the making. All in it belongs to root.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<Vec<u8>>,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    /// Adds a directory and those above it.
    pub(super) fn directory(&mut self, path: &Path) {
        let above: Vec<&Path> = path.ancestors().filter(|path| path.file_name().is_some()).collect();
        for directory in above.into_iter().rev() {
            let name = name(directory);
            if self.directories.insert(name.clone()) {
                self.entry(&name, DIRECTORY, (0, 0), &[]);
            }
        }
    }

    /// Adds a file that may be executed, and the directories above it.
    pub(super) fn file(&mut self, path: &Path, content: &[u8]) {
        self.directory(path.parent().unwrap_or(path));
        self.entry(&name(path), PROGRAM, (0, 0), content);
    }

    /// Adds a character device and the directories above it.
    pub(super) fn device(&mut self, path: &Path, number: (u32, u32)) {
        self.directory(path.parent().unwrap_or(path));
        self.entry(&name(path), CHARACTER_DEVICE, number, &[]);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(b"TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// # Source
    /// `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel.
    fn entry(&mut self, name: &[u8], mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let length =
            |bytes: usize| u32::try_from(bytes).unwrap_or_else(|_| panic!("{bytes} bytes are too many"));
        let fields = [
            self.entries, // inode
            mode,
            0, // owner
            0, // group
            1, // links
            0, // time
            length(content.len()),
            0, // device of the archive
            0,
            major,
            minor,
            length(name.len() + 1),
            0, // checksum, which this format has none of
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn name(path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    path.strip_prefix(b"/").unwrap_or(path).to_vec()
}
