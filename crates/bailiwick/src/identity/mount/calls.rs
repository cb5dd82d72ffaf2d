//! The mount table by system calls.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use linux_raw_sys::general::{
    MOUNT_ATTR_RDONLY, STATMOUNT_FS_SUBTYPE, STATMOUNT_FS_TYPE, STATMOUNT_MNT_BASIC, STATMOUNT_MNT_OPTS,
    STATMOUNT_MNT_POINT, STATMOUNT_MNT_ROOT, STATMOUNT_SB_BASIC, STATMOUNT_SB_SOURCE,
    STATMOUNT_SUPPORTED_MASK,
};
use rustix::io::Errno;

use super::text::without_general;
use super::watch::failed;
use super::{Device, Fault, Mount, MountTable};
use crate::sys::mount::{Statmount, list};

/// What every listed mount has.
const ALWAYS: u64 =
    (STATMOUNT_SB_BASIC | STATMOUNT_MNT_BASIC | STATMOUNT_MNT_ROOT | STATMOUNT_FS_TYPE) as u64;

/// What is left out of an answer where it is empty.
const MAYBE: u64 =
    (STATMOUNT_MNT_POINT | STATMOUNT_MNT_OPTS | STATMOUNT_FS_SUBTYPE | STATMOUNT_SB_SOURCE) as u64;

const SUPPORTED: u64 = STATMOUNT_SUPPORTED_MASK as u64;

/// `SB_RDONLY`, which has the value of `MS_RDONLY`.
const SUPER_READ_ONLY: u32 = 1;

/// How many ids one call lists.
const PAGE: usize = 512;

/// Reads the table once. `None` where the calls are missing or do not answer every field.
///
/// Older kernels have the calls, but not every field, and leave out what they do not know just as what is empty.
/// Only one that names the fields it knows (`STATMOUNT_SUPPORTED_MASK`) is taken at its word.
pub(super) fn read() -> Result<Option<MountTable>, Fault> {
    let Some(ids) = ids()? else { return Ok(None) };
    let mut answer = Statmount::new();
    let mut mounts = Vec::with_capacity(ids.len());
    for id in ids {
        match answer.ask(id, ALWAYS | MAYBE | SUPPORTED) {
            Ok(()) => {}
            // Missing, or a security module keeps this very mount back, which `mountinfo` shows all the same. One that is
            // gone since it was listed (`ENOENT`) is an error: the table is read again then.
            Err(errno) if is_missing(errno) => return Ok(None),
            Err(errno) => return Err(failed("statmount", errno)),
        }
        let known = answer.supported() & (ALWAYS | MAYBE) == ALWAYS | MAYBE;
        if answer.mask() & SUPPORTED == 0 || !known || answer.mask() & ALWAYS != ALWAYS {
            return Ok(None);
        }
        // Without a point it cannot be reached from here, and `mountinfo` does not show it either.
        if answer.mask() & u64::from(STATMOUNT_MNT_POINT) != 0 {
            mounts.push(mount(&answer));
        }
    }
    Ok(Some(MountTable::of(mounts)))
}

fn ids() -> Result<Option<Vec<u64>>, Fault> {
    let mut ids = Vec::new();
    let mut page = [0; PAGE];
    loop {
        match list(ids.last().copied().unwrap_or(0), &mut page) {
            Ok(count) => {
                ids.extend_from_slice(&page[..count.min(PAGE)]);
                if count < PAGE {
                    return Ok(Some(ids));
                }
            }
            Err(errno) if is_missing(errno) => return Ok(None),
            Err(errno) => return Err(failed("listmount", errno)),
        }
    }
}

/// Whether this is the answer of a kernel, or a filter, without the call.
fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP)
}

fn mount(answer: &Statmount) -> Mount {
    let (root, root_removed) = super::text::removed(answer.root());
    let mut fs_type = answer.fs_type().to_vec();
    if !answer.fs_subtype().is_empty() {
        fs_type.push(b'.');
        fs_type.extend_from_slice(answer.fs_subtype());
    }
    Mount {
        id: u64::from(answer.id_old()),
        parent: u64::from(answer.parent_old()),
        device: Device { major: answer.device_major(), minor: answer.device_minor() },
        root: path(root),
        root_removed,
        point: path(answer.point()),
        fs_type: String::from_utf8_lossy(&fs_type).into_owned(),
        source: OsString::from_vec(answer.source().to_vec()),
        options: without_general(answer.options()).to_vec(),
        read_only: answer.attributes() & u64::from(MOUNT_ATTR_RDONLY) != 0
            || answer.super_flags() & SUPER_READ_ONLY != 0,
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}
