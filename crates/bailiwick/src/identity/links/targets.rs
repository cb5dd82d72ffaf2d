//! The objects that a scan looks for, and which numbers of a directory entry may be believed.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

use super::super::mount::FileHandle;
use super::super::object::{Birth, Key};
use super::glance::{Glance, State, Target};

/// Device numbers, major and minor, as `statx` gives them.
pub(super) type Device = (u32, u32);

/// Which numbers tell whether an entry names an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// `d_ino` with the device of the mount.
    Entry,
    /// `d_ino` with the device of the directory that holds the entry: a subvolume of btrfs has a device of its own
    /// and is no mount.
    EntryPerDirectory,
    /// Only `st_dev` and `st_ino` of each entry.
    Status,
    /// Not even those, where they differ: overlayfs may give one file different numbers under different names.
    Overlay,
}

/// File system types that are known, most of them for a `d_ino` that is the `st_ino` of every entry that is no directory and no mount point.
///
/// Everything else is looked at entry by entry. On overlayfs with layers on several file systems, `d_ino` of a file
/// that was copied up is another number than its `st_ino`, and on FUSE it is what the server likes. Worse, with
/// such layers the name of a file that was copied up shows device and inode of the lower file, and a link made to it
/// those of the upper one (seen with ext4 below btrfs and tmpfs).
///
/// # Source
/// `linux/magic.h`; measured for hard links, FIFOs, sockets and copied-up files with Linux 6.18.
const BELIEVED: [(u64, Numbers); 5] = [
    (0xef53, Numbers::Entry),                  // EXT4_SUPER_MAGIC, also ext2 and ext3
    (0x5846_5342, Numbers::Entry),             // XFS_SUPER_MAGIC
    (0x0102_1994, Numbers::Entry),             // TMPFS_MAGIC
    (0x9123_683e, Numbers::EntryPerDirectory), // BTRFS_SUPER_MAGIC
    (0x794c_7630, Numbers::Overlay),           // OVERLAYFS_SUPER_MAGIC
];

impl Numbers {
    /// What to believe in the mount that holds a descriptor's object.
    pub(super) fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let magic = u64::from_ne_bytes(fstatfs(fd)?.f_type.to_ne_bytes());
        let known = BELIEVED.iter().find(|(known, _)| *known == magic);
        Ok(known.map_or(Self::Status, |(_, numbers)| *numbers))
    }
}

/// The inode numbers looked for on one device.
#[derive(Debug)]
pub(super) struct Inodes {
    sorted: Vec<u64>,
    /// One bit per hash. Nearly all entries are no target, and one load says so.
    bits: Vec<u64>,
    /// Leaves as many bits of a hash as `bits` has.
    shift: u32,
}

impl Inodes {
    fn new(mut sorted: Vec<u64>) -> Self {
        sorted.sort_unstable();
        // At least 32 bits per number, 4096 in all: then a stranger passes once in 32 times at most.
        let words = (sorted.len() / 2).next_power_of_two().max(64);
        let mut inodes = Self { sorted, bits: vec![0; words], shift: 58 - words.trailing_zeros() };
        for place in 0..inodes.sorted.len() {
            let (word, bit) = inodes.place(inodes.sorted[place]);
            inodes.bits[word] |= bit;
        }
        inodes
    }

    #[inline]
    fn place(&self, inode: u64) -> (usize, u64) {
        // Fibonacci hashing: the upper bits depend on all lower ones.
        let hash = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (usize::try_from(hash >> 6).unwrap_or(usize::MAX), 1 << (hash & 63))
    }

    /// Whether an inode number is one of those looked for.
    #[inline]
    pub(super) fn has(&self, inode: u64) -> bool {
        let (word, bit) = self.place(inode);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0) && self.sorted.binary_search(&inode).is_ok()
    }
}

/// All objects that a scan looks for.
#[derive(Debug)]
pub(super) struct Targets {
    devices: Vec<(Device, Inodes)>,
    states: HashMap<State, Key>,
    handles: Option<Handles>,
    /// Directories that are known by their birth times alone.
    births: Option<HashSet<Birth>>,
}

/// Objects, of any type, that are known by their file handles alone, and the numbers that entries of theirs may have.
#[derive(Debug)]
struct Handles {
    numbers: Inodes,
    handles: Vec<FileHandle>,
}

impl Targets {
    pub(super) fn new(targets: &[Target]) -> Self {
        let mut devices: HashMap<Device, Vec<u64>> = HashMap::new();
        let mut states = HashMap::new();
        for target in targets {
            devices.entry(target.key.device).or_default().push(target.key.inode);
            states.insert(target.state, target.key);
        }
        let devices = devices.into_iter().map(|(device, list)| (device, Inodes::new(list))).collect();
        Self { devices, states, handles: None, births: None }
    }

    /// Which target a name on overlayfs leads to: by its numbers, or because nothing tells it from the target.
    pub(super) fn find_on_overlay(&self, found: &Glance) -> Option<Key> {
        if self.has(found.key) {
            return Some(found.key);
        }
        // A file with one name is no other name of anything.
        if found.links < 2 { None } else { self.states.get(&found.state()).copied() }
    }

    /// Objects by their file handles, on whichever device the starts are.
    pub(super) fn by_handle(handles: &[FileHandle]) -> Self {
        let numbers = Inodes::new(handles.iter().flat_map(FileHandle::entry_numbers).collect());
        Self {
            devices: Vec::new(),
            states: HashMap::new(),
            handles: Some(Handles { numbers, handles: handles.to_vec() }),
            births: None,
        }
    }

    /// Directories by their birth times, on whichever device the starts are.
    pub(super) fn by_birth(births: &HashSet<Birth>) -> Self {
        Self { devices: Vec::new(), states: HashMap::new(), handles: None, births: Some(births.clone()) }
    }

    /// The birth times of directories that are looked for, if they are known by nothing else.
    pub(super) fn births(&self) -> Option<&HashSet<Birth>> {
        self.births.as_ref()
    }

    /// Whether what is looked for may be a directory.
    pub(super) fn has_directories(&self) -> bool {
        self.handles.is_some() || self.births.is_some()
    }

    /// Whether objects are known by their handles.
    pub(super) fn are_handles(&self) -> bool {
        self.handles.is_some()
    }

    /// Whether an entry with this number may name an object that is known by its handle.
    pub(super) fn may_have_handle(&self, inode: u64) -> bool {
        self.handles.as_ref().is_some_and(|known| known.numbers.has(inode))
    }

    /// Whether an object with this handle is looked for.
    pub(super) fn has_handle(&self, handle: &FileHandle) -> bool {
        self.handles.iter().flat_map(|known| &known.handles).any(|known| known.is_same_file(handle))
    }

    /// The numbers looked for on one device.
    pub(super) fn on(&self, device: Device) -> Option<&Inodes> {
        if let Some(handles) = &self.handles {
            return Some(&handles.numbers);
        }
        self.devices.iter().find(|(known, _)| *known == device).map(|(_, inodes)| inodes)
    }

    /// Whether an object is looked for.
    pub(super) fn has(&self, key: Key) -> bool {
        self.on(key.device).is_some_and(|inodes| inodes.has(key.inode))
    }

    /// Whether a mount can hold a target, by the device of its root.
    ///
    /// btrfs numbers its subvolumes at will, but always without a major number. Of a file system whose numbers are
    /// not known to be its own nothing can be said.
    pub(super) fn may_lie_on(&self, numbers: Numbers, device: Device) -> bool {
        if self.has_directories() {
            return true;
        }
        match numbers {
            Numbers::Entry => self.on(device).is_some(),
            Numbers::EntryPerDirectory => self.devices.iter().any(|((major, _), _)| *major == 0),
            Numbers::Status | Numbers::Overlay => !self.devices.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_number_and_no_other() {
        for count in [1_u64, 2, 63, 64, 1000, 50_000] {
            let inodes = Inodes::new((0..count).map(|n| n * 3 + 1).collect());
            assert!((0..count).all(|n| inodes.has(n * 3 + 1)));
            assert!(!(0..count).any(|n| inodes.has(n * 3) || inodes.has(n * 3 + 2)));
            let passed = (0..100_000_u64).filter(|n| {
                let (word, bit) = inodes.place(n * 3 + 2 + (1 << 40));
                inodes.bits[word] & bit != 0
            });
            assert!(passed.count() < 6_000, "the filter of {count} numbers lets strangers pass");
        }
    }

    #[test]
    fn a_device_without_targets_is_pruned() {
        let key = |major, inode| Key { device: (major, 5), inode };
        let glance = Glance::at(std::fs::File::open("/").unwrap()).unwrap();
        let only = |key| Targets::new(&[Target { key, state: glance.state() }]);
        let targets = only(key(254, 7));
        assert!(targets.has(key(254, 7)) && !targets.has(key(254, 8)) && !targets.has(key(253, 7)));
        assert!(targets.may_lie_on(Numbers::Entry, (254, 5)));
        assert!(!targets.may_lie_on(Numbers::Entry, (254, 6)));
        assert!(!targets.may_lie_on(Numbers::EntryPerDirectory, (0, 40)));
        assert!(targets.may_lie_on(Numbers::Status, (0, 40)));
        let anonymous = only(key(0, 7));
        assert!(anonymous.may_lie_on(Numbers::EntryPerDirectory, (0, 40)));
    }
}
