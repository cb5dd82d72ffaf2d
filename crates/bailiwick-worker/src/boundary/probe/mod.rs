//! What a launcher tries once it has confined itself: each forbidden act must fail, and each permitted
//! one must work. The outcome, not a version number, says which layers this host gives.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use bailiwick_wire::{Finding, Grant, Outcome, Plan, Probe};

use super::View;
use crate::boundary::capabilities::FILES;
use crate::child::{Stack, tidies_descriptors, try_in_child};
use crate::launcher::Surroundings;
use crate::sys::{self, Errno, Result};

mod acts;
mod isolation;
mod roots;

pub(crate) use roots::try_roots;

/// Where a launcher tries things.
#[derive(Debug)]
pub(crate) struct Place {
    /// Directory of the sentinel: outside every root. On the host's mount, so that Landlock alone answers.
    pub(crate) outside: OwnedFd,
    /// The temporary directory: inside the grant, on the host's mount.
    pub(crate) inside: OwnedFd,
    /// The same on the mounts that commands have, where these are not the host's.
    pub(crate) view: Option<View>,
    /// The host process.
    pub(crate) host_process: OwnedFd,
    pub(crate) plan: Plan,
    pub(crate) surroundings: Surroundings,
}

/// Runs every probe.
pub(crate) fn run(grant: &Grant, place: &Place, stack: &mut Stack) -> Vec<Finding> {
    let Ok(sentinel) = CString::new(grant.sentinel.clone()) else { return Vec::new() };
    let scene = Scene { grant, place, sentinel: &sentinel };
    Probe::ALL
        .iter()
        .filter(|probe| !matches!(probe, Probe::Orphans | Probe::Init))
        .map(|probe| {
            let (outcome, errno) = scene.judge(*probe, stack);
            Finding { probe: *probe, outcome, errno: errno.map_or(0, |errno| errno.0) }
        })
        .collect()
}

/// Name of the socket on which the worker listens beside the sentinel while an epoch's launcher tries things.
pub(crate) fn named_socket(epoch: u32) -> CString {
    CString::new(format!("socket-{epoch}")).unwrap_or_default()
}

type Judgement = (Outcome, Option<Errno>);

struct Scene<'a> {
    grant: &'a Grant,
    place: &'a Place,
    sentinel: &'a CStr,
}

/// A forbidden act: it held when it failed with one of these errors.
fn refused(result: Result<()>, expected: &[Errno]) -> Judgement {
    match result {
        Err(errno) if expected.contains(&errno) => (Outcome::Held, Some(errno)),
        Err(errno) => (Outcome::Broken, Some(errno)),
        Ok(()) => (Outcome::Broken, None),
    }
}

/// A forbidden act that is undone where it happened. Otherwise the next try would meet what it left, and a
/// store that was once opened without a layer would look broken when it is opened with it.
fn undone(result: Result<()>, expected: &[Errno], undo: impl FnOnce() -> Result<()>) -> Judgement {
    match result {
        Ok(()) => (Outcome::Broken, undo().err()),
        refused_or_not => refused(refused_or_not, expected),
    }
}

/// Several forbidden acts: the first that was not refused decides.
fn all_refused(results: impl IntoIterator<Item = Result<()>>, expected: &[Errno]) -> Judgement {
    let mut last = (Outcome::Untried, None);
    for result in results {
        last = refused(result, expected);
        if last.0 != Outcome::Held {
            return last;
        }
    }
    last
}

/// A permitted act: it held when it worked.
fn works(result: Result<()>) -> Judgement {
    match result {
        Ok(()) => (Outcome::Held, None),
        Err(errno) => (Outcome::Broken, Some(errno)),
    }
}

impl Scene<'_> {
    /// Where commands have a view, on its mount: that is where they would find a socket.
    fn named_socket(&self) -> Judgement {
        let outside = self.place.view.as_ref().map_or(&self.place.outside, |view| &view.outside);
        let name = named_socket(self.grant.epoch);
        match acts::from_within(outside.as_raw_fd(), || sys::connect_here(&name)) {
            // The worker could not make it there.
            Err(errno @ (Errno::NOENT | Errno::CONNREFUSED)) => (Outcome::Untried, Some(errno)),
            tried => refused(tried, &[Errno::ACCES]),
        }
    }

    fn judge(&self, probe: Probe, stack: &mut Stack) -> Judgement {
        const EACCES: &[Errno] = &[Errno::ACCES];
        const EPERM: &[Errno] = &[Errno::PERM];
        const EXDEV: Errno = Errno(18);
        const ENXIO: Errno = Errno(6);
        const ESRCH: Errno = Errno(3);
        let outside = self.place.outside.as_raw_fd();
        let inside = self.place.inside.as_raw_fd();
        // In a pid namespace the host has no number. The worker stands for it: it lies outside of all confinement.
        let host = if self.is_isolated() {
            i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0)
        } else {
            i32::try_from(self.grant.host_pid).unwrap_or(0)
        };
        match probe {
            Probe::WriteOutside => {
                refused(sys::open_at(outside, self.sentinel, sys::O_WRONLY, 0).map(drop), EACCES)
            }
            Probe::TruncateOutside => {
                // By name, which is the only form of the call that opens nothing first.
                let tried = sys::fchdir(outside).and_then(|()| sys::truncate(self.sentinel, 0));
                let back = sys::open_at(sys::AT_FDCWD, c"/", sys::O_PATH | sys::O_DIRECTORY, 0)
                    .and_then(|root| sys::fchdir(root.as_raw_fd()));
                if back.is_err() { (Outcome::Untried, back.err()) } else { refused(tried, EACCES) }
            }
            Probe::CreateOutside => {
                let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_EXCL;
                let made = sys::open_at(outside, c"probe", flags, 0o600).map(drop);
                undone(made, EACCES, || sys::unlink_at(outside, c"probe", 0))
            }
            Probe::RemoveOutside => {
                let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_EXCL;
                undone(sys::unlink_at(outside, self.sentinel, 0), EACCES, || {
                    sys::open_at(outside, self.sentinel, flags, 0o600).map(drop)
                })
            }
            Probe::LinkOutside => acts::with_file(inside, c".probe-link", |_| {
                let linked = sys::link_at(inside, c".probe-link", outside, c"probe");
                undone(linked, &[EXDEV, Errno::ACCES], || sys::unlink_at(outside, c"probe", 0))
            }),
            Probe::WriteInside => works(acts::rearrange(inside)),
            Probe::DeviceIoctl => match sys::open_at(sys::AT_FDCWD, c"/dev/zero", 0, 0) {
                Ok(zero) => refused(sys::terminal_settings(zero.as_raw_fd()), EACCES),
                Err(errno) => (Outcome::Untried, Some(errno)),
            },
            Probe::DeviceNode => {
                const CHARACTER: u32 = 0o020_600;
                refused(
                    sys::mknod_at(inside, c".probe-node", CHARACTER)
                        .and_then(|()| sys::unlink_at(inside, c".probe-node", 0)),
                    &[Errno::PERM, Errno::ACCES],
                )
            }
            Probe::SignalOutside => refused(sys::kill(host, 0), &[Errno::PERM, ESRCH]),
            Probe::SignalInside => works(sys::kill(sys::process_id(), 0)),
            Probe::AbstractSocket => refused(self.place.surroundings.abstract_socket.connect(), EPERM),
            Probe::NamedSocket => self.named_socket(),
            Probe::NamedSocketInside => {
                let inside = self.place.view.as_ref().map_or(inside, |view| view.inside.as_raw_fd());
                works(acts::from_within(inside, acts::listen_and_connect))
            }
            Probe::TraceOutside => refused(acts::read_memory(host), &[Errno::PERM, ESRCH]),
            Probe::LimitsOutside => refused(sys::limit(host, sys::OPEN_FILES).map(drop), EPERM),
            Probe::PriorityOutside => refused(acts::keep_priority(host), EPERM),
            Probe::SocketFamilies => acts::socket_families(self.grant.network),
            Probe::LocalSockets => works(sys::socket_pair().map(drop)),
            Probe::IoUring => refused(acts::io_uring(), &[Errno::PERM, Errno::NOSYS]),
            Probe::ForeignAbi => refused(acts::x32(), &[Errno::NOSYS]),
            Probe::IoctlList => acts::with_file(inside, c".probe-ioctl", |file| {
                let listed = sys::terminal_settings(file.as_raw_fd());
                if listed != Err(Errno::NOTTY) {
                    return (Outcome::Broken, listed.err());
                }
                // FS_IOC_FSSETXATTR, FS_IOC_SETFLAGS, BTRFS_IOC_SNAP_CREATE_V2, TIOCSTI
                let requests = [0x401c_5820, 0x4008_6602, 0x5000_9417, 0x5412];
                all_refused(requests.map(|request| sys::ioctl_null(file.as_raw_fd(), request)), EPERM)
            }),
            // In a child: where it works, this launcher must stay as it is, for a session may accept that.
            Probe::Namespaces => {
                let mut judged = (Outcome::Untried, None);
                match try_in_child(&mut || judged = all_refused(acts::namespaces(), EPERM), stack) {
                    Ok(()) => judged,
                    Err(errno) => (Outcome::Untried, Some(errno)),
                }
            }
            Probe::Mounts => all_refused(acts::mounts(), EPERM),
            Probe::KernelInterfaces => all_refused(acts::kernel_interfaces(), &[Errno::PERM, Errno::NOSYS]),
            Probe::HostControls => all_refused(acts::host_controls(), EPERM),
            Probe::SetIdModes => acts::with_file(inside, c".probe-mode", |file| {
                refused(sys::fchmod(file.as_raw_fd(), 0o4700), EPERM)
            }),
            Probe::PlainModes => {
                acts::with_file(inside, c".probe-mode", |file| works(sys::fchmod(file.as_raw_fd(), 0o700)))
            }
            Probe::SysvIpc if self.grant.sysv_ipc => (Outcome::Permitted, None),
            Probe::SysvIpc => refused(acts::shared_memory(), &[Errno::PERM, Errno::NOSYS]),
            Probe::Capabilities => {
                acts::capabilities(if self.grant.keep_files_capabilities { FILES } else { 0 })
            }
            Probe::NoNewPrivs => (if sys::no_new_privs() { Outcome::Held } else { Outcome::Broken }, None),
            Probe::Descriptors => match tidies_descriptors(&self.place.inside, stack) {
                Ok(true) => (Outcome::Held, None),
                Ok(false) => (Outcome::Broken, None),
                Err(errno) => (Outcome::Untried, Some(errno)),
            },
            Probe::Terminal => {
                let flags = sys::O_RDWR | sys::O_NONBLOCK | sys::O_NOCTTY;
                let own = sys::open_at(sys::AT_FDCWD, c"/dev/tty", flags, 0).map(drop);
                // For reading, which would take away what is typed. This device stands for all terminals,
                // of which there may be none now.
                let any = sys::open_at(sys::AT_FDCWD, c"/dev/ptmx", sys::O_NOCTTY, 0).map(drop);
                match refused(any, &[Errno::ACCES, Errno::NOENT]) {
                    (Outcome::Held, _) => refused(own, &[ENXIO, Errno::ACCES, Errno::NOENT]),
                    broken => broken,
                }
            }
            Probe::ReadOutside => refused(sys::open_at(outside, self.sentinel, 0, 0).map(drop), EACCES),
            Probe::ViewWrite
            | Probe::ViewTruncate
            | Probe::ViewNames
            | Probe::Metadata
            | Probe::HiddenState
            | Probe::HostTerminals => match &self.place.view {
                Some(view) => self.judge_view(probe, view),
                None => (Outcome::Untried, None),
            },
            Probe::HostProcess | Probe::HostProcessList | Probe::HostIpc | Probe::HostNetwork => {
                self.judge_isolation(probe)
            }
            // The worker answers for itself.
            Probe::Orphans | Probe::Init => (Outcome::Untried, None),
        }
    }
}
