//! Acts on descriptors and terminals.

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use serde_json::Value;

use crate::Act;
use crate::answer::{Answer, done};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("write-fd", "FD TEXT", write),
    ("list-fds", "", list),
    ("ioctl", "FD REQUEST", ioctl),
    ("tiocsti", "FD", |a| {
        Ok(sys::descriptors::type_character(sys::descriptors::borrow(a.number()?)?)?).and_then(done)
    }),
    ("tty-open", "", |_| {
        Ok(rustix::fs::open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?).and_then(done)
    }),
    ("openpty", "", open_pty),
];

fn write(arguments: &mut Arguments) -> Answer {
    let file = sys::descriptors::borrow(arguments.number()?)?;
    let text = arguments.text()?;
    rustix::io::write(file, text.as_bytes())?;
    done(())
}

/// Asks for each number instead of reading `/proc`, which a session may hide.
fn list(_: &mut Arguments) -> Answer {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(65_536).min(65_536);
    let open = (0..limit).filter(|number| {
        sys::descriptors::borrow(*number).is_ok_and(|file| rustix::io::fcntl_getfd(file).is_ok())
    });
    Ok(open.collect::<Vec<i32>>().into())
}

fn ioctl(arguments: &mut Arguments) -> Answer {
    let file = sys::descriptors::borrow(arguments.number()?)?;
    sys::descriptors::any_ioctl(file, arguments.mask()?)?;
    done(())
}

/// Opens a pair and asks the new terminal for its settings, as a program that uses one does.
fn open_pty(_: &mut Arguments) -> Answer {
    let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&controller)?;
    rustix::pty::unlockpt(&controller)?;
    let name = rustix::pty::ptsname(&controller, Vec::new())?;
    let terminal = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::termios::tcgetattr(&terminal)?;
    rustix::termios::tcgetwinsize(&terminal)?;
    Ok(Value::from(name.to_string_lossy().into_owned()))
}
