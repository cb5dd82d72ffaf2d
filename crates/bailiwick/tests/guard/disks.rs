//! File systems of their own for the cases: images on loop devices, and overlays.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick_test::fixture;

use super::dir;

/// Runs a program that must succeed.
#[track_caller]
pub(crate) fn ran<S: AsRef<OsStr>>(program: &str, arguments: &[S]) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a file system in a file, mounts it for the calling thread alone, and gives back where.
///
/// The loop device goes with the last mount, and that with the thread.
#[track_caller]
pub(crate) fn mounted(fs_type: &str, base: &Path) -> PathBuf {
    let (image, at) = (base.join(format!("{fs_type}.image")), dir(base.join(fs_type)));
    let size = if fs_type == "btrfs" { 256 << 20 } else { 16 << 20 };
    fs::File::create(&image).unwrap().set_len(size).unwrap();
    ran(&format!("mkfs.{fs_type}"), &[OsStr::new("-q"), image.as_ref()]);
    ran(
        "mount",
        &[OsStr::new("-t"), fs_type.as_ref(), "-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()],
    );
    assert!(fixture::is_mount_point(&at));
    at
}

/// Mounts with the options of the mount program.
#[track_caller]
pub(crate) fn mount_with(fs_type: &str, options: &str, source: impl AsRef<Path>, at: &Path) {
    ran(
        "mount",
        &[
            "-t".as_ref(),
            fs_type.as_ref(),
            "-o".as_ref(),
            options.as_ref(),
            source.as_ref().as_os_str(),
            at.as_os_str(),
        ],
    );
    assert!(fixture::is_mount_point(at));
}

/// Mounts an overlay. `options` are those of mount(2).
#[track_caller]
pub(crate) fn overlay(at: &Path, options: &str) {
    use rustix::mount::{MountFlags, mount};
    let options = std::ffi::CString::new(options).unwrap();
    mount("overlay", at, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
}

/// The options of an overlay with one layer of each kind.
pub(crate) fn layers(lower: &Path, upper: &Path, work: &Path) -> String {
    format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display())
}

/// Unmounts.
#[track_caller]
pub(crate) fn unmount(at: &Path) {
    rustix::mount::unmount(at, rustix::mount::UnmountFlags::empty()).unwrap();
}

/// Makes a read-only bind mount writable again.
pub(crate) fn make_writable(at: &Path) {
    use rustix::mount::{MountFlags, mount_remount};
    mount_remount(at, MountFlags::BIND, "").unwrap();
}
