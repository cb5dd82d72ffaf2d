//! Starting the keeper, and waiting for its end.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::group::Made as MadeGroup;
use super::{Image, Link, TemporaryDir};
use crate::error::{Error, ErrorKind};
use crate::policy::Network;

/// The keeper process. Its end proves that nothing of the session is left.
#[derive(Debug)]
pub(crate) struct Keeper {
    pid: u32,
    pidfd: AsyncFd<OwnedFd>,
}

/// Starts the keeper on a new control socket, and gives the host's end of it.
///
/// # Errors
/// [`ErrorKind::WorkerStart`], [`ErrorKind::PlatformUnsupported`].
pub(crate) fn start(
    image: Image,
    temporary: &TemporaryDir,
    network: Network,
    group: Option<&MadeGroup>,
) -> Result<(Keeper, Link), Error> {
    let failed = |what: &'static str| {
        move |error: std::io::Error| {
            Error::new(ErrorKind::WorkerStart, format!("cannot start the worker: {what}")).source(error)
        }
    };
    let left_out = image.without();
    let image = image.descriptor()?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed("socketpair")(errno.into()))?;
    let link = Link::new(ours).map_err(failed("watch a descriptor"))?;
    let directory = temporary.directory().try_clone().map_err(failed("duplicate a descriptor"))?;
    // std starts a program without a change of user or directory by posix_spawn, which shares memory
    // until exec: the size of this process does not matter. Descriptors travel as 0 and 1, so that
    // nothing is inheritable even for a moment.
    let mut command = Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()));
    command
        .arg0("bailiwick-worker")
        .arg(temporary.path())
        .arg(match network {
            Network::Deny => "none",
            Network::Loopback => "loopback",
            Network::Allow => "host",
        })
        .arg(group.map_or("", MadeGroup::name))
        .args(Some(left_out).filter(|left_out| !left_out.is_empty()))
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(directory))
        .stderr(Stdio::null());
    if let Some(group) = group {
        let above = group.parent().try_clone_to_owned().map_err(failed("duplicate a descriptor"))?;
        command.stderr(Stdio::from(above));
    }
    let child = command.spawn().map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NOENT.raw_os_error() => {
            Error::new(ErrorKind::PlatformUnsupported, "cannot start the worker: `/proc` is not mounted here")
                .text("needs", "/proc")
                .hint("mount procfs at `/proc`; the session needs it for itself, not for its commands")
                .source(error)
        }
        _ => failed("spawn")(error),
    })?;
    let pid = child.id();
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // The keeper waits for its socket, so the number is still its own.
    let pidfd = raw
        .ok_or(rustix::io::Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .map_err(|errno| failed("pidfd_open")(errno.into()))?;
    let pidfd = crate::sys::watch(pidfd, Interest::READABLE).map_err(failed("watch a descriptor"))?;
    // `child` is dropped without a wait: the pidfd waits for exactly this process, whatever else the
    // embedding program waits for.
    Ok((Keeper { pid, pidfd }, link))
}

impl Keeper {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the keeper has ended, and takes its exit status; `None` when the embedding program
    /// took it first (it waits for all children, or ignores SIGCHLD).
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub(crate) async fn ended(&self) -> std::io::Result<Option<i32>> {
        self.pidfd.readable().await?.retain_ready();
        let id = WaitId::PidFd(std::os::fd::AsFd::as_fd(self.pidfd.get_ref()));
        match rustix::io::retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED)) {
            Ok(status) => Ok(status.and_then(|status| status.exit_status())),
            Err(_) => Ok(None),
        }
    }
}
