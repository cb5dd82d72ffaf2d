//! What namespaces keep, tried.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, RawFd};

use bailiwick_wire::{Hidden, Outcome, Probe};

use super::{Judgement, Scene, all_refused, refused};
use crate::boundary::View;
use crate::sys::{self, Errno, Result};

const EROFS: &[Errno] = &[Errno::ROFS];

impl Scene<'_> {
    pub(super) fn is_isolated(&self) -> bool {
        self.place.surroundings.kinds & sys::CLONE_NEWPID != 0
    }

    /// The mount answers before Landlock is asked, so its own answer tells that it is what refused.
    pub(super) fn judge_view(&self, probe: Probe, view: &View) -> Judgement {
        let outside = view.outside.as_raw_fd();
        match probe {
            Probe::ViewWrite => {
                refused(sys::open_at(outside, self.sentinel, sys::O_WRONLY, 0).map(drop), EROFS)
            }
            Probe::ViewTruncate => refused(
                sys::fchdir(outside).and_then(|()| {
                    let tried = sys::truncate(self.sentinel, 0);
                    sys::fchdir(view.root.as_raw_fd())?;
                    tried
                }),
                EROFS,
            ),
            Probe::ViewNames => all_refused(names(outside, view.inside.as_raw_fd(), self.sentinel), EROFS),
            Probe::Metadata => all_refused(metadata(outside, self.sentinel), EROFS),
            Probe::HiddenState => hidden(&self.place.plan.hidden),
            _ => self.terminals(),
        }
    }

    pub(super) fn judge_isolation(&self, probe: Probe) -> Judgement {
        let surroundings = &self.place.surroundings;
        match probe {
            // Of a process that is not below its own pid namespace the kernel knows nothing.
            Probe::HostProcess if self.is_isolated() => {
                refused(sys::pidfd_signal(&self.place.host_process, 0), &[Errno::INVAL])
            }
            Probe::HostProcessList if self.is_isolated() && self.place.view.is_some() => process_list(),
            Probe::HostIpc if surroundings.kinds & sys::CLONE_NEWIPC != 0 => {
                match surroundings.host.segment {
                    // There is none to reach.
                    Err(Errno::NOSYS) => (Outcome::Held, Some(Errno::NOSYS)),
                    Err(errno) => (Outcome::Untried, Some(errno)),
                    Ok(segment) => match sys::reaches_segment(segment) {
                        // Another one with the same number, of the session's own.
                        Ok(false) => (Outcome::Held, None),
                        tried => refused(tried.map(drop), &[Errno::INVAL, Errno(43), Errno::PERM]),
                    },
                }
            }
            Probe::HostNetwork if surroundings.kinds & sys::CLONE_NEWNET != 0 => {
                match surroundings.host.socket {
                    Some(socket) => refused(socket.connect(), &[Errno::CONNREFUSED]),
                    None => (Outcome::Untried, None),
                }
            }
            _ => (Outcome::Untried, None),
        }
    }

    /// A terminal can be opened, and is none of the host's.
    fn terminals(&self) -> Judgement {
        const ENXIO: Errno = Errno(6);
        let flags = sys::O_RDWR | sys::O_NOCTTY | sys::O_NONBLOCK;
        let own = sys::open_at(sys::AT_FDCWD, c"/dev/tty", flags, 0).map(drop);
        match refused(own, &[ENXIO, Errno::ACCES, Errno::NOENT]) {
            (Outcome::Held, _) => {}
            broken => return broken,
        }
        let Some(theirs) = self.place.surroundings.host.terminals else {
            return (Outcome::Held, None);
        };
        let ours = sys::open_at(sys::AT_FDCWD, c"/dev/pts", sys::O_PATH, 0);
        match ours.and_then(|directory| sys::look(directory.as_raw_fd())) {
            Ok(seen) if seen.device != theirs => (Outcome::Held, None),
            Ok(_) => (Outcome::Broken, None),
            Err(errno) => (Outcome::Untried, Some(errno)),
        }
    }
}

fn names(outside: RawFd, inside: RawFd, sentinel: &CStr) -> [Result<()>; 4] {
    let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_EXCL;
    [
        sys::open_at(outside, c"probe", flags, 0o600).map(drop),
        sys::mkdir_at(outside, c"probe", 0o700),
        sys::unlink_at(outside, sentinel, 0),
        match sys::rename_at(outside, sentinel, inside, c".probe-name") {
            // Another mount lies there, which is asked first.
            Err(Errno(18)) => Err(Errno::ROFS),
            other => other,
        },
    ]
}

fn metadata(outside: RawFd, sentinel: &CStr) -> [Result<()>; 4] {
    [
        sys::chmod_at(outside, sentinel, 0o600),
        sys::set_times(outside, sentinel),
        sys::keep_owner(outside, sentinel),
        sys::set_attribute(outside, sentinel),
    ]
}

/// Nothing of a covered object can be read.
fn hidden(places: &[Hidden]) -> Judgement {
    for hidden in places {
        let Ok(path) = sys::c_path(&hidden.place.path) else { return (Outcome::Untried, None) };
        let flags = if hidden.is_directory { sys::O_DIRECTORY } else { 0 };
        if let Ok(opened) = sys::open_at(sys::AT_FDCWD, &path, flags | sys::O_NONBLOCK, 0) {
            // A process of root can list the empty cover. What is behind it would be another object.
            match sys::look(opened.as_raw_fd()) {
                Ok(seen) if (seen.device, seen.inode) != (hidden.place.device, hidden.place.inode) => {}
                Ok(_) => return (Outcome::Broken, None),
                Err(errno) => return (Outcome::Untried, Some(errno)),
            }
        }
    }
    (Outcome::Held, None)
}

/// The first process of this namespace is the worker, as only a `/proc` of this namespace says.
fn process_list() -> Judgement {
    let name = std::fs::read(format!("/proc/{}/comm", std::os::unix::process::parent_id()));
    let own = std::fs::read_link("/proc/self");
    let shows_own = own.is_ok_and(|link| link.as_os_str() == sys::process_id().to_string().as_str());
    match name {
        // Where only listing is permitted, nothing is read of any process.
        Err(error) if error.raw_os_error() == Some(Errno::ACCES.0) && shows_own => (Outcome::Held, None),
        Ok(name) if name == b"bailiwick-work\n" && shows_own => (Outcome::Held, None),
        _ => (Outcome::Broken, None),
    }
}
