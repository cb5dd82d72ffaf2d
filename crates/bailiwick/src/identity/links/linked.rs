//! A file with more than one name, and what a second look at protected files says.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::object::Key;
use super::glance::{Glance, Target, Time};

/// A protected file, FIFO, socket or device that has more than one hard link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkedFile {
    /// One of its protected names.
    pub(crate) path: PathBuf,
    /// Which object it is.
    pub(crate) key: Key,
    /// How many names it has anywhere.
    pub(crate) links: u32,
    /// Its ctime, which every new name, lost name and change of name sets.
    pub(crate) changed: Time,
    /// How many of its names are protected ones: names that lie inside, seen without crossing a mount.
    pub(crate) inside: u32,
    pub(super) target: Target,
}

impl LinkedFile {
    /// It as something to look for.
    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Whether it has a name that was not found inside.
    pub(crate) fn has_name_outside(&self) -> bool {
        self.inside < self.links
    }

    /// Whether its ctime is too young to show a change that comes next.
    pub(crate) fn is_young(&self) -> bool {
        is_young(self.changed, SystemTime::now())
    }
}

/// What has changed since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Freshness {
    /// A file with more than one link appeared, went, or differs in object, link count or ctime; or its ctime was too
    /// young to be relied on at the last look. What a scan said about such files no longer holds.
    pub(crate) links: bool,
    /// A symbolic link appeared or went.
    pub(crate) symlinks: bool,
    /// A directory became, or is no longer, one that cannot be listed.
    pub(crate) unlisted: bool,
}

impl Freshness {
    /// Everything changed, or may have.
    pub(super) const ALL: Self = Self { links: true, symlinks: true, unlisted: true };

    /// Whether all is as it was.
    #[cfg(any(test, feature = "_bench"))]
    pub(crate) fn is_same(self) -> bool {
        self == Self::default()
    }
}

/// How long a time stamp cannot tell a change from another one right after it: the kernel stamps by its tick (10 ms
/// at most), some file systems by the second or two.
///
/// # Source
/// `CONFIG_HZ` is 100 at least; ext4 with inodes of 128 bytes keeps seconds, vfat two of them.
const TICK: Duration = Duration::from_millis(50);
const SECONDS: Duration = Duration::from_millis(2500);

/// Whether a change that comes next may leave this time as it is. `now` is taken after the look.
pub(super) fn is_young(time: Time, now: SystemTime) -> bool {
    let (seconds, nanoseconds) = time;
    let grain = if nanoseconds % 1_000_000 == 0 { SECONDS } else { TICK };
    let Ok(seconds) = u64::try_from(seconds) else { return false };
    let stamp = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    // A time in the future is no proof of anything.
    now.duration_since(stamp).is_ok_and(|age| age < grain) || stamp > now
}

/// Whether a file with more than one link is a different one, or another state of it.
pub(super) fn is_other_state(before: &Glance, now: &Glance) -> bool {
    (before.links > 1 || now.links > 1)
        && (before.key, before.links, before.changed) != (now.key, now.links, now.changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_young_until_its_grain_has_passed() {
        let at = |milliseconds: u64| UNIX_EPOCH + Duration::from_millis(milliseconds);
        assert!(is_young((10, 1), at(10_049)) && !is_young((10, 1), at(10_051)));
        assert!(is_young((10, 0), at(12_499)) && !is_young((10, 0), at(12_500)));
        assert!(is_young((20, 1), at(10_000)), "a time in the future");
    }
}
