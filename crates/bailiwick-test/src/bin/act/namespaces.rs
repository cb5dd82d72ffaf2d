//! Acts on namespaces and mounts.

use std::path::Path;

use rustix::mount::MountFlags;
use rustix::thread::LinkNameSpaceType;

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;
use crate::files::open_read_only;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("unshare", "FLAGS", |a| Ok(sys::processes::unshare(a.mask()?)?).and_then(done)),
    ("clone-newuser", "", |_| Ok(sys::processes::clone_into_new_user_namespace()?).and_then(done)),
    ("clone3", "", |_| Ok(sys::processes::clone3()?).and_then(done)),
    ("setns", "PID mnt|user|pid|net|ipc|uts", set_namespace),
    ("mount", "DIRECTORY", mount),
    ("mount-setattr", "PATH", |a| Ok(sys::kernel::make_mount_read_only(&a.path()?)?).and_then(done)),
    ("umount", "PATH", umount),
    ("chroot", "DIRECTORY", |a| Ok(rustix::process::chroot(a.path()?)?).and_then(done)),
    ("pivot-root", "NEW OLD", |a| Ok(rustix::process::pivot_root(a.path()?, a.path()?)?).and_then(done)),
];

fn set_namespace(arguments: &mut Arguments) -> Answer {
    let (pid, kind) = (arguments.pid()?, arguments.text()?);
    let file = format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero());
    // Opening is where the kernel refuses first: it asks for the right to trace the other process.
    let namespace = open_read_only(Path::new(&file))?;
    let kind = match kind.as_str() {
        "mnt" => LinkNameSpaceType::Mount,
        "user" => LinkNameSpaceType::User,
        "pid" => LinkNameSpaceType::ProcessID,
        "net" => LinkNameSpaceType::Network,
        "ipc" => LinkNameSpaceType::InterProcessCommunication,
        "uts" => LinkNameSpaceType::HostNameAndNISDomainName,
        other => return Err(Failed::CannotTry(format!("no namespace is called `{other}`"))),
    };
    use std::os::fd::AsFd as _;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind))?;
    done(())
}

fn mount(arguments: &mut Arguments) -> Answer {
    rustix::mount::mount("act", arguments.path()?, "tmpfs", MountFlags::empty(), None)?;
    done(())
}

fn umount(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    std::fs::symlink_metadata(&path).prepare("look at the mount point")?;
    rustix::mount::unmount(path, rustix::mount::UnmountFlags::empty())?;
    done(())
}
