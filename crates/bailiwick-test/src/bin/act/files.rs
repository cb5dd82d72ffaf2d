//! Acts on content and names.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;

pub(crate) const ACTS: &[Act] = &[
    ("read", "PATH", read),
    ("read-some", "PATH", read_some),
    ("open-write", "PATH", |a| write(a, OFlags::WRONLY)),
    ("open-append", "PATH", |a| write(a, OFlags::WRONLY | OFlags::APPEND)),
    ("create", "PATH", create),
    ("splice", "PATH", splice),
    ("truncate", "PATH", truncate),
    ("unlink", "PATH", |a| Ok(rustix::fs::unlink(a.path()?)?).and_then(done)),
    ("mkdir", "PATH", |a| Ok(rustix::fs::mkdir(a.path()?, Mode::from(0o755))?).and_then(done)),
    ("rmdir", "PATH", |a| Ok(rustix::fs::rmdir(a.path()?)?).and_then(done)),
    ("rename", "FROM TO", |a| Ok(rustix::fs::rename(a.path()?, a.path()?)?).and_then(done)),
    ("rename-exchange", "ONE OTHER", rename_exchange),
    ("link", "FROM TO", |a| Ok(rustix::fs::link(a.path()?, a.path()?)?).and_then(done)),
    ("symlink", "TARGET PATH", |a| Ok(rustix::fs::symlink(a.path()?, a.path()?)?).and_then(done)),
    ("mkfifo", "PATH", |a| make_node(a, FileType::Fifo, 0)),
    // 1:3 is /dev/null. 7:255 is a loop device that no machine has set up; making its node needs no device.
    ("mknod-chr", "PATH", |a| make_node(a, FileType::CharacterDevice, rustix::fs::makedev(1, 3))),
    ("mknod-blk", "PATH", |a| make_node(a, FileType::BlockDevice, rustix::fs::makedev(7, 255))),
];

fn read(arguments: &mut Arguments) -> Answer {
    let bytes = std::fs::read(arguments.path()?)?;
    Ok(String::from_utf8_lossy(&bytes).into())
}

/// Reads three bytes: enough to take something away from a terminal.
fn read_some(arguments: &mut Arguments) -> Answer {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(arguments.path()?, flags, Mode::empty())?;
    let mut bytes = [0_u8; 3];
    let count = rustix::io::read(file, &mut bytes)?;
    Ok(String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into())
}

/// Opens and writes, so that the file shows whether it happened.
fn write(arguments: &mut Arguments, how: OFlags) -> Answer {
    let file = rustix::fs::open(arguments.path()?, how | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, b"act")?;
    done(())
}

fn create(arguments: &mut Arguments) -> Answer {
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(arguments.path()?, how, Mode::from(0o644))?;
    done(())
}

/// Moves bytes of a pipe into a file.
fn splice(arguments: &mut Arguments) -> Answer {
    let (reader, writer) = rustix::pipe::pipe().prepare("make a pipe")?;
    rustix::io::write(&writer, b"act").prepare("fill the pipe")?;
    let file = rustix::fs::open(arguments.path()?, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::pipe::splice(&reader, None, &file, None, 3, rustix::pipe::SpliceFlags::empty())?;
    done(())
}

fn truncate(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    crate::sys::files::truncate(&path)?;
    done(())
}

fn rename_exchange(arguments: &mut Arguments) -> Answer {
    rustix::fs::renameat_with(CWD, arguments.path()?, CWD, arguments.path()?, RenameFlags::EXCHANGE)?;
    done(())
}

fn make_node(arguments: &mut Arguments, kind: FileType, device: u64) -> Result<serde_json::Value, Failed> {
    rustix::fs::mknodat(CWD, arguments.path()?, kind, Mode::from(0o644), device)?;
    done(())
}

/// Opens a file or directory read-only, as the step before an act on its descriptor.
pub(crate) fn open_read_only(path: &std::path::Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, how, Mode::empty())
}

/// Flags of the `*at` calls that act on the path as it is, following links.
pub(crate) const FOLLOW: AtFlags = AtFlags::empty();
