//! Acts on what a file system keeps beside content: mode, owner, times, attributes, flags, subvolumes.

use rustix::fs::{CWD, IFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};

use crate::Act;
use crate::answer::{Answer, Prepare as _, done};
use crate::arguments::Arguments;
use crate::files::{FOLLOW, open_read_only};
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("chmod", "PATH MODE", chmod),
    ("fchmod", "FD MODE", fchmod),
    ("chown", "PATH UID GID", chown),
    ("utimes", "PATH", utimes),
    ("setxattr", "PATH", setxattr),
    ("fs-setflags", "PATH", set_flags),
    ("fsxattr", "PATH", set_extended_flags),
    ("btrfs-snap", "SOURCE DESTINATION-DIRECTORY NAME", snapshot),
    ("btrfs-create", "DIRECTORY NAME", |a| subvolume(a, sys::files::btrfs_create)),
    ("btrfs-destroy", "DIRECTORY NAME", |a| subvolume(a, sys::files::btrfs_destroy)),
    ("setid-mode", "PATH", |a| Ok(rustix::fs::chmod(a.path()?, Mode::from(0o4755))?).and_then(done)),
    ("openat2-setid", "NEW-PATH", openat2_set_id),
];

fn chmod(arguments: &mut Arguments) -> Answer {
    rustix::fs::chmod(arguments.path()?, Mode::from(arguments.octal()?))?;
    done(())
}

fn fchmod(arguments: &mut Arguments) -> Answer {
    let file = sys::descriptors::borrow(arguments.number()?)?;
    rustix::fs::fchmod(file, Mode::from(arguments.octal()?))?;
    done(())
}

fn chown(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    std::os::unix::fs::chown(path, Some(arguments.number()?), Some(arguments.number()?))?;
    done(())
}

/// Sets both times to one second after the epoch.
fn utimes(arguments: &mut Arguments) -> Answer {
    let then = Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Timestamps { last_access: then, last_modification: then };
    rustix::fs::utimensat(CWD, arguments.path()?, &times, FOLLOW)?;
    done(())
}

fn setxattr(arguments: &mut Arguments) -> Answer {
    rustix::fs::setxattr(arguments.path()?, "user.act", b"act", XattrFlags::empty())?;
    done(())
}

/// Toggles "no dump", a flag that an owner may change and that hinders nobody.
fn set_flags(arguments: &mut Arguments) -> Answer {
    let file = open_read_only(&arguments.path()?).prepare("open")?;
    let flags = rustix::fs::ioctl_getflags(&file).prepare("read the flags")?;
    rustix::fs::ioctl_setflags(&file, flags ^ IFlags::NODUMP)?;
    done(())
}

/// The same flag by the other interface.
fn set_extended_flags(arguments: &mut Arguments) -> Answer {
    let file = open_read_only(&arguments.path()?).prepare("open")?;
    let attributes = sys::files::extended_flags(&file).prepare("read the extended flags")?;
    sys::files::set_extended_flags(&file, attributes.toggle_no_dump())?;
    done(())
}

fn snapshot(arguments: &mut Arguments) -> Answer {
    let source = open_read_only(&arguments.path()?).prepare("open the source")?;
    let destination = open_read_only(&arguments.path()?).prepare("open the destination")?;
    sys::files::btrfs_snapshot(&source, &destination, &arguments.text()?)?;
    done(())
}

/// Makes or removes a subvolume by a descriptor of the directory that can only be read.
fn subvolume(
    arguments: &mut Arguments,
    request: fn(&std::os::fd::OwnedFd, &str) -> Result<(), rustix::io::Errno>,
) -> Answer {
    let directory = open_read_only(&arguments.path()?).prepare("open the directory")?;
    request(&directory, &arguments.text()?)?;
    done(())
}

/// The mode travels in a structure that a filter of system calls cannot look into.
fn openat2_set_id(arguments: &mut Arguments) -> Answer {
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, arguments.path()?, how, Mode::from(0o4755), ResolveFlags::empty())?;
    done(())
}
