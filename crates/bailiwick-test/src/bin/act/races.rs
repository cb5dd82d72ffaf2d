//! Acts that race with themselves: one process changes names as fast as the kernel does it, another one uses them.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::process::{Pid, Signal};

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("race-write", "TIMES ONE OTHER PATH", race_write),
    ("race-rename", "TIMES ONE OTHER FROM TO OUTSIDE", race_rename),
];

/// Exchanges two names so many times, while `PATH`, which leads through one of them, is opened for appending. Each time
/// that it opens it is written to, so that the file shows which one it was. Ends after that, or once a file was
/// written that does not lie below the directory of `ONE`.
fn race_write(arguments: &mut Arguments) -> Answer {
    let (times, one, other): (u32, _, _) = (arguments.number()?, arguments.path()?, arguments.path()?);
    let path = arguments.path()?;
    let ours = rustix::fs::stat(one.parent().unwrap_or(&one)).prepare("look at the directory")?;
    let mut tries = 0_u64;
    race(times, &one, &other, || {
        tries += 1;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let Ok(file) = openat(CWD, &path, flags, Mode::empty()) else { return Ok(false) };
        let name = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
        let is_outside = name.is_ok_and(|name| !lies_below(&name, ours.st_ino));
        if is_outside {
            rustix::io::write(&file, b"act")?;
        }
        Ok(is_outside)
    })
    .map(|()| tries.into())
}

fn lies_below(name: &Path, inode: u64) -> bool {
    name.ancestors().skip(1).any(|above| rustix::fs::stat(above).is_ok_and(|found| found.st_ino == inode))
}

/// The same, while `FROM` is renamed to `TO`. It is won once there is something at `OUTSIDE`.
fn race_rename(arguments: &mut Arguments) -> Answer {
    let (times, one, other): (u32, _, _) = (arguments.number()?, arguments.path()?, arguments.path()?);
    let (from, to) = (arguments.path()?, arguments.path()?);
    let outside = arguments.path()?;
    race(times, &one, &other, || {
        let _lost = rustix::fs::rename(&from, &to);
        let is_outside = rustix::fs::lstat(&outside).is_ok();
        if !is_outside {
            let _was_not_moved = rustix::fs::rename(&to, &from);
        }
        Ok(is_outside)
    })
    .map(|()| serde_json::Value::Null)
}

/// Lets two names change places in a child, until `win` says so or it was done so many times. Counted and not timed: on a
/// busy machine either of both may get no turn for long.
fn race(
    times: u32,
    one: &Path,
    other: &Path,
    mut win: impl FnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    let done = sys::memory::shared_counter().prepare("share a counter")?;
    let Some(child) = sys::processes::fork().prepare("fork")? else {
        sys::processes::alarm(60);
        loop {
            let _again = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let _racer = Racer(child);
    let end = Instant::now() + Duration::from_secs(60);
    while done.load(Ordering::Relaxed) < times && Instant::now() < end {
        if win()? {
            return Ok(());
        }
    }
    Err(Failed::Nothing("LOST"))
}

struct Racer(Pid);

impl Drop for Racer {
    fn drop(&mut self) {
        let _gone = rustix::process::kill_process(self.0, Signal::KILL);
        let _reaped = rustix::process::waitpid(Some(self.0), rustix::process::WaitOptions::empty());
    }
}
