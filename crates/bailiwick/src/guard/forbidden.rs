//! Directories that are never a write root, whatever the policy says.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::error::{Quoted, SystemCall};
use crate::identity::{
    Beneath, Fault, Key, Location, MountTable, Node, Overlap, PinnedDir, Spelling, is_kernel_interface,
    kernel_interface,
};

/// Why a directory is never a write root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Forbidden {
    /// `/`, under whatever name.
    Everything,
    /// A file system through which the kernel is controlled; its name.
    KernelInterface(&'static str),
    /// `/proc` or `/sys`, or a directory in it: ordinary file systems are mounted there too, to hold mount points of
    /// others (`/sys/fs/cgroup`).
    Below(&'static str),
    /// `/dev` or a directory in it, except in `/dev/shm`.
    Devices,
    /// A file system through which the kernel is controlled is mounted beneath it; its name and where.
    KernelInterfaceBeneath(&'static str, PathBuf),
    /// `/dev`, or something in it, is mounted beneath it; where.
    DevicesBeneath(PathBuf),
}

impl Forbidden {
    /// The reason, to follow the name of the root.
    pub(super) fn predicate(&self) -> String {
        match self {
            Self::Everything => "is the root of the file system".into(),
            Self::KernelInterface(name) => {
                format!("lies on a file system of type {name}, through which the kernel is controlled")
            }
            Self::Below(place) => format!("lies in `{place}`, through which the kernel is controlled"),
            Self::Devices => "lies in `/dev`, among devices".into(),
            Self::KernelInterfaceBeneath(name, point) => format!(
                "has a file system of type {name}, through which the kernel is controlled, mounted beneath it at {}",
                Quoted::new(point)
            ),
            Self::DevicesBeneath(point) => {
                format!("has devices of this host mounted beneath it at {}", Quoted::new(point))
            }
        }
    }

    /// What to grant instead.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Everything => "grant the directories below `/` that commands need to write",
            Self::KernelInterface(_) | Self::Below(_) => {
                "leave it out: reading needs no grant, and writing there changes the host, not files"
            }
            Self::Devices => {
                "leave it out: the standard devices work without a grant, and `/dev/shm` may be granted by itself"
            }
            Self::KernelInterfaceBeneath(..) | Self::DevicesBeneath(_) => {
                "unmount it, or grant directories that do not hold it"
            }
        }
    }
}

/// Places of this host, found once for each examination.
pub(super) struct Places {
    top: Key,
    controls: Vec<(Key, &'static str)>,
    dev: Option<Key>,
    dev_mount: Option<u64>,
    shm: Option<Key>,
}

impl Places {
    pub(super) fn find() -> Result<Self, Fault> {
        let control = |path| Ok(existing(path)?.map(|key| (key, path)));
        let controls = [control("/proc")?, control("/sys")?];
        Ok(Self {
            top: PinnedDir::open(Path::new("/"))?.id().key(),
            controls: controls.into_iter().flatten().collect(),
            dev: existing("/dev")?,
            dev_mount: pinned("/dev")?.map(|dir| dir.id().mount),
            shm: existing("/dev/shm")?,
        })
    }

    /// Judges a directory by identity: bind mounts of `/` or `/dev` under other names are the same objects.
    fn judge(&self, dir: &PinnedDir, chain: &[Node]) -> Result<Option<Forbidden>, Fault> {
        let within = |place: Option<Key>| place.is_some_and(|key| chain.iter().any(|node| node.key == key));
        if dir.id().key() == self.top {
            return Ok(Some(Forbidden::Everything));
        }
        if let Some(name) = kernel_interface(dir, dir.canonical())? {
            return Ok(Some(Forbidden::KernelInterface(name)));
        }
        if let Some((_, place)) = self.controls.iter().find(|(key, _)| within(Some(*key))) {
            return Ok(Some(Forbidden::Below(place)));
        }
        Ok((within(self.dev) && !within(self.shm)).then_some(Forbidden::Devices))
    }
}

impl Places {
    /// Judges a directory by identity, and then by the mount table where there is one.
    pub(super) fn judge_all(
        &self,
        dir: &PinnedDir,
        chain: &[Node],
        table: Option<&MountTable>,
        beneath: &[Beneath<'_>],
    ) -> Result<Option<Forbidden>, Fault> {
        match (self.judge(dir, chain)?, table) {
            (None, Some(table)) => self.judge_mounts(table, dir, beneath),
            (reason, _) => Ok(reason),
        }
    }

    /// Judges what the mount table says of a directory, and of everything mounted beneath it.
    fn judge_mounts(
        &self,
        table: &MountTable,
        dir: &PinnedDir,
        beneath: &[Beneath<'_>],
    ) -> Result<Option<Forbidden>, Fault> {
        let devices = self.dev_mount.and_then(|mount| table.locate(mount, Path::new("/dev")));
        let among_devices = |location: &Location| {
            devices.as_ref().is_some_and(|devices| {
                matches!(location.overlap(devices, Spelling::Exact), Some(Overlap::Same | Overlap::Inside))
            })
        };
        let shm = Path::new("/dev/shm");
        if let Some(location) = table.locate(dir.id().mount, dir.canonical())
            && among_devices(&location)
            && !dir.canonical().starts_with(shm)
        {
            return Ok(Some(Forbidden::Devices));
        }
        for Beneath { mount, fd } in beneath {
            if let Some(name) = is_kernel_interface(&mount.fs_type) {
                return Ok(Some(Forbidden::KernelInterfaceBeneath(name, mount.point.clone())));
            }
            let location = Location { device: mount.device, path: mount.root.clone() };
            if among_devices(&location) {
                let harmless = match fd {
                    Some(fd) => is_plain_device(fd, &mount.point)?,
                    None => false,
                };
                if !harmless {
                    return Ok(Some(Forbidden::DevicesBeneath(mount.point.clone())));
                }
            }
        }
        Ok(None)
    }
}

/// Whether it is one of the devices that every session grants: `null`, `zero`, `full`, `random`, `urandom`.
///
/// # Source
/// The kernel's list of allocated devices: memory devices have major number 1.
fn is_plain_device(fd: &OwnedFd, name: &Path) -> Result<bool, Fault> {
    let stat =
        rustix::fs::fstat(fd).map_err(|errno| Fault::from_call(SystemCall::new("fstat", name, errno)))?;
    let is_character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Ok(is_character && matches!(number, (1, 3 | 5 | 7 | 8 | 9)))
}

fn pinned(path: &str) -> Result<Option<PinnedDir>, Fault> {
    match PinnedDir::open(Path::new(path)) {
        Ok(dir) => Ok(Some(dir)),
        Err(Fault::NotFound { .. } | Fault::NotDirectory { .. } | Fault::Denied(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A minimal root file system may lack `/dev`; then nothing lies in it. Nor can this process open a root in a
/// directory that it cannot reach.
fn existing(path: &str) -> Result<Option<Key>, Fault> {
    Ok(pinned(path)?.map(|dir| dir.id().key()))
}
