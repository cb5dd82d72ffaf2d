//! File handles: which file it is below all layers.

use std::os::fd::AsFd;
use std::path::Path;

use linux_raw_sys::general::AT_HANDLE_FID;
use rustix::io::Errno;

use super::Fault;
use crate::error::SystemCall;
use crate::sys;

/// What a file system calls a file, to be told apart from its other files for as long as it exists.
///
/// On overlayfs it is what a *layer's* file system calls the file that is shown, so that a file in an overlay and the
/// one in its layer can be seen to be one.
///
/// # Security
/// That two handles are equal proves that writing to one file may change the other. That they differ proves the
/// opposite only if neither is that of a lower layer: a file or directory that was copied to the upper layer keeps
/// the handle of the lower one that it came from, while the copy, which is what a write changes, has its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileHandle {
    /// Type of `bytes`; with another type the same bytes mean another file.
    kind: i32,
    bytes: Vec<u8>,
    layer: Option<Layer>,
}

/// The layer of an overlay in which a file is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Layer {
    /// It was made in the upper layer: written through the overlay, it is this very file that changes. Otherwise the
    /// handle is of a lower layer, whether or not the file was copied from there since.
    pub(crate) upper: bool,
    /// UUID of the layer's file system. Zeros where all layers are on one file system that has a UUID, or on one that
    /// has none: it proves nothing by itself.
    pub(crate) uuid: [u8; 16],
}

/// Type of a handle that overlayfs made: `OVL_FILEID_V1` of `fs/overlayfs/overlayfs.h`.
const OVERLAY: i32 = 0xf8;

/// Type of a handle of btrfs: `FILEID_BTRFS_WITHOUT_PARENT` of `linux/exportfs.h`.
const BTRFS: i32 = 0x4d;

impl FileHandle {
    /// The layer it is in, if it was asked of an overlay.
    pub(crate) fn layer(&self) -> Option<&Layer> {
        self.layer.as_ref()
    }

    /// The same handle as the layer's own file system gives it.
    pub(crate) fn into_real(self) -> Self {
        Self { layer: None, ..self }
    }

    /// The inode number that the handle holds, where its form is known to hold one.
    ///
    /// A form is not bound to one type of file system: believe it for a file system of which it has been seen, on
    /// another object, that it holds the inode number there.
    ///
    /// # Source
    /// `fs/libfs.c` (ext4, f2fs and others: number and generation), `mm/shmem.c`, `fs/xfs/xfs_export.c`,
    /// `fs/btrfs/export.c` of Linux 6.18.
    pub(crate) fn inode(&self) -> Option<u64> {
        let low = |at: usize| Some(u32::from_ne_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?));
        let whole = |at: usize| Some(u64::from_ne_bytes(self.bytes.get(at..at + 8)?.try_into().ok()?));
        match (self.kind, self.bytes.len()) {
            (1, 8) => low(0).map(u64::from),
            (1, 12) => Some(u64::from(low(4)?) | u64::from(low(8)?) << 32),
            (0x81, 12) | (BTRFS, 20) => whole(0),
            _ => None,
        }
    }

    /// Every number under which a directory may list the object: its inode number, and for the root of a subvolume of
    /// btrfs that of the subvolume.
    pub(crate) fn entry_numbers(&self) -> impl Iterator<Item = u64> {
        /// Inode number of every subvolume's root: `BTRFS_FIRST_FREE_OBJECTID`.
        const SUBVOLUME_ROOT: u64 = 256;
        let inode = self.inode();
        let subvolume = (self.kind == BTRFS && inode == Some(SUBVOLUME_ROOT))
            .then(|| self.bytes.get(8..16)?.try_into().ok().map(u64::from_ne_bytes));
        inode.into_iter().chain(subvolume.flatten())
    }

    /// Whether both have one form. A file system gives one form to all its directories, and one to all its files.
    pub(crate) fn has_form_of(&self, other: &Self) -> bool {
        self.kind == other.kind && self.bytes.len() == other.bytes.len()
    }

    /// Whether both are the same file, **given that both are on the same file system**, which a handle does not
    /// tell: the numbers in it are those of any other file system too.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        self.kind == other.kind && self.bytes == other.bytes
    }

    /// From what the kernel gave; `None` for an overlay's handle of an unknown form.
    fn understand(kind: i32, bytes: Vec<u8>) -> Option<Self> {
        if kind != OVERLAY {
            return Some(Self { kind, bytes, layer: None });
        }
        /// `OVL_FH_FLAG_PATH_UPPER`.
        const UPPER: u8 = 4;
        // Three bytes of padding, then version, magic, length from the version on, flags, type, UUID, the real one.
        let [0, 0, 0, 0, 0xfb, size, flags, kind, rest @ ..] = &bytes[..] else { return None };
        let (uuid, rest) = rest.split_first_chunk::<16>()?;
        let real = rest.get(..usize::from(*size).checked_sub(21)?)?;
        if real.is_empty() {
            return None;
        }
        let layer = Layer { upper: flags & UPPER != 0, uuid: *uuid };
        Some(Self { kind: i32::from(*kind), bytes: real.to_vec(), layer: Some(layer) })
    }
}

/// The handle of the descriptor's object; `None` where the file system, the kernel or this program does not know how
/// to make, or how to read, one, or where a filter of system calls refuses it. `name` serves the error only.
///
/// # Errors
/// Any other answer of the kernel.
///
/// # Kernel
/// Linux 6.5; before that only for file systems that can be exported, which an overlay usually cannot.
///
/// # Source
/// `name_to_handle_at(2)`; the form of an overlay's handle measured on Linux 6.18.
pub(crate) fn handle(fd: impl AsFd, name: &Path) -> Result<Option<FileHandle>, Fault> {
    let outcome = match sys::mount::handle(&fd, AT_HANDLE_FID) {
        // The flag is unknown. A handle that can also be opened is as good.
        Err(Errno::INVAL) => sys::mount::handle(&fd, 0),
        outcome => outcome,
    };
    match outcome {
        Ok((kind, bytes)) => Ok(FileHandle::understand(kind, bytes)),
        // No permission is needed for it, so that a lack of one is the answer of a filter: container runtimes have
        // refused the call.
        Err(
            Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::OVERFLOW | Errno::PERM | Errno::ACCESS,
        ) => Ok(None),
        Err(errno) => Err(Fault::from_call(SystemCall::new("name_to_handle_at", name, errno))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 gave it for a file of an overlay on tmpfs, and that file in its layer.
    const ON_OVERLAY: [u8; 36] = [
        0, 0, 0, 0, 0xfb, 0x21, 4, 1, 0xc8, 0x33, 0xf8, 0x38, 0xba, 0x99, 0x42, 0xba, 0xa5, 0x92, 0x62, 0x93,
        0xef, 0xdf, 0x4d, 0xb5, 0xaf, 0x5d, 0xf9, 0x56, 0x1f, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn an_overlay_shows_the_file_of_the_layer() {
        let shown = FileHandle::understand(OVERLAY, ON_OVERLAY.to_vec()).unwrap();
        let layer = FileHandle::understand(1, ON_OVERLAY[24..].to_vec()).unwrap();
        assert!(shown.is_same_file(&layer));
        assert!(shown.layer().unwrap().upper);
        assert_eq!(shown.layer().unwrap().uuid, ON_OVERLAY[8..24]);
        let mut lower = ON_OVERLAY;
        lower[6] = 0;
        assert!(!FileHandle::understand(OVERLAY, lower.to_vec()).unwrap().layer().unwrap().upper);
        let mut other = ON_OVERLAY;
        other[24] ^= 1;
        assert!(!FileHandle::understand(OVERLAY, other.to_vec()).unwrap().is_same_file(&layer));
        let other_kind = FileHandle::understand(2, ON_OVERLAY[24..].to_vec()).unwrap();
        assert!(!shown.is_same_file(&other_kind));
    }

    #[test]
    fn numbers_of_every_known_form() {
        let of = |kind, bytes: &[u8]| FileHandle { kind, bytes: bytes.to_vec(), layer: None };
        let numbers = |handle: &FileHandle| handle.entry_numbers().collect::<Vec<_>>();
        // As Linux 6.18 gave them for ext4 and tmpfs; btrfs and xfs by their source.
        let ext4 = of(1, &[0x02, 0x08, 0, 0, 0xe8, 0xcf, 0xd6, 0xea]);
        assert_eq!(numbers(&ext4), [2050]);
        let tmpfs = of(1, &[0xaf, 0x5d, 0xf9, 0x56, 0x1f, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(numbers(&tmpfs), [0x1_0000_001f]);
        let number_first = [&0x1_0000_0100_u64.to_ne_bytes()[..], &[7; 4]].concat();
        assert_eq!(numbers(&of(0x81, &number_first)), [0x1_0000_0100]);
        let btrfs = |inode: u64, subvolume: u64| {
            of(BTRFS, &[&inode.to_ne_bytes()[..], &subvolume.to_ne_bytes()[..], &[9; 4]].concat())
        };
        assert_eq!(numbers(&btrfs(300, 5)), [300]);
        // The root of a subvolume is listed in the directory above it by the number of the subvolume.
        assert_eq!(numbers(&btrfs(256, 258)), [256, 258]);
        for unknown in [of(0x71, &[1; 12]), of(1, &[1; 7]), of(OVERLAY, &[1; 33]), of(BTRFS, &[1; 40])] {
            assert_eq!((unknown.inode(), numbers(&unknown)), (None, vec![]), "{unknown:?}");
        }
        assert!(!ext4.has_form_of(&tmpfs));
    }

    #[test]
    fn another_form_is_not_understood() {
        for cut in 0..ON_OVERLAY.len() {
            assert_eq!(FileHandle::understand(OVERLAY, ON_OVERLAY[..cut].to_vec()), None, "{cut}");
        }
        for at in [3, 4] {
            let mut other = ON_OVERLAY;
            other[at] ^= 1;
            assert_eq!(FileHandle::understand(OVERLAY, other.to_vec()), None, "{at}");
        }
        for size in [0, 20, 21, 255] {
            let mut other = ON_OVERLAY;
            other[5] = size;
            assert_eq!(FileHandle::understand(OVERLAY, other.to_vec()), None, "{size}");
        }
    }
}
