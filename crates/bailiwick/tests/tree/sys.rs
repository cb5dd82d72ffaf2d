//! What the cases do to their own thread.

#![expect(unsafe_code, reason = "namespaces have no safe call")]

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};

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

/// Runs `body` where nothing can be written but a small file system of its own, whose path it gets: a remover that
/// climbs too far fails its case and does no harm.
pub(crate) fn in_a_cage(base: &Path, body: impl FnOnce(&Path) + Send) {
    let cage = base.join("cage");
    std::fs::create_dir(&cage).unwrap();
    in_private_mounts(base, |_| {
        mount_new("tmpfs", &cage, "mode=0700");
        for name in ["W", "X"] {
            std::fs::create_dir(cage.join(name)).unwrap();
        }
        mount_remount("/", MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        let outside = std::fs::write(base.join("X/f"), "y").unwrap_err();
        assert_eq!(outside.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        body(&cage);
    });
}
