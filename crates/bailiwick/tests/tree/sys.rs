//! What the cases do to their own thread.

#![expect(unsafe_code, reason = "namespaces have no safe call")]

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

/// Runs `body` on a thread with mounts of its own: what it mounts is seen by nobody else and ends with it.
pub(crate) fn in_private_mounts(base: &Path, body: impl FnOnce(&Path) + Send) {
    let base: PathBuf = base.to_owned();
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: gives this thread copies of its own; nothing in memory changes.
                let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) };
                assert_eq!(unshared, 0, "{}", std::io::Error::last_os_error());
                mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
                body(&base);
            })
            .join()
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>) {
    mount_bind(source.as_ref(), target.as_ref()).unwrap();
}

pub(crate) fn mount_new(kind: &str, target: &Path, options: &str) {
    let options = std::ffi::CString::new(options).unwrap();
    mount(kind, target, kind, MountFlags::empty(), Some(options.as_c_str())).unwrap();
}
