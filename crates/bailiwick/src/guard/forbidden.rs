//! Directories that are never a write root, whatever the policy says.

use std::path::Path;

use crate::identity::{Fault, Key, Node, PinnedDir, kernel_interface};

/// Why a directory is never a write root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl Forbidden {
    /// The reason, to follow the name of the root.
    pub(super) fn predicate(self) -> String {
        match self {
            Self::Everything => "is the root of the file system".into(),
            Self::KernelInterface(name) => {
                format!("lies on a file system of type {name}, through which the kernel is controlled")
            }
            Self::Below(place) => format!("lies in `{place}`, through which the kernel is controlled"),
            Self::Devices => "lies in `/dev`, among devices".into(),
        }
    }

    /// What to grant instead.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Everything => "grant the directories below `/` that commands need to write",
            Self::KernelInterface(_) | Self::Below(_) => {
                "leave it out: reading needs no grant, and writing there changes the host, not files"
            }
            Self::Devices => {
                "leave it out: the standard devices work without a grant, and `/dev/shm` may be granted by itself"
            }
        }
    }
}

/// Places of this host, found once for each examination.
pub(super) struct Places {
    top: Key,
    controls: Vec<(Key, &'static str)>,
    dev: Option<Key>,
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
            shm: existing("/dev/shm")?,
        })
    }

    /// Judges a directory by identity: bind mounts of `/` or `/dev` under other names are the same objects.
    ///
    /// A bind mount of a directory further below one of these is not recognised; that is for the comparison of mounts.
    pub(super) fn judge(&self, dir: &PinnedDir, chain: &[Node]) -> Result<Option<Forbidden>, Fault> {
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

/// A minimal root file system may lack `/dev`; then nothing lies in it. Nor can this process open a root in a
/// directory that it cannot reach.
fn existing(path: &str) -> Result<Option<Key>, Fault> {
    match PinnedDir::open(Path::new(path)) {
        Ok(dir) => Ok(Some(dir.id().key())),
        Err(Fault::NotFound { .. } | Fault::NotDirectory { .. } | Fault::Denied(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}
