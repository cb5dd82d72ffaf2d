//! Privileges of this process: prctl, capabilities, Landlock, seccomp.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::{Errno, Result, call, int, number};
use crate::boundary::Instruction;

const PR_SET_DUMPABLE: usize = 4;
const PR_SET_NAME: usize = 15;
const PR_CAPBSET_READ: usize = 23;
const PR_CAPBSET_DROP: usize = 24;
const PR_GET_SECUREBITS: usize = 27;
const PR_SET_CHILD_SUBREAPER: usize = 36;
const PR_GET_CHILD_SUBREAPER: usize = 37;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const PR_GET_NO_NEW_PRIVS: usize = 39;
const PR_CAP_AMBIENT: usize = 47;
const PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const SECCOMP_SET_MODE_FILTER: usize = 1;

fn prctl(option: usize, a: usize, b: usize) -> Result<usize> {
    // SAFETY: only options whose arguments are numbers, or a C string that the caller holds.
    unsafe { call(number::PRCTL, [option, a, b, 0, 0, 0]) }
}

/// Orphans of this process's tree become its children. Not inherited by children.
pub(crate) fn set_subreaper() -> Result<()> {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0).map(drop)
}

/// Whether [`set_subreaper`] is in force.
pub(crate) fn subreaper() -> Result<bool> {
    let mut answer: i32 = 0;
    prctl(PR_GET_CHILD_SUBREAPER, (&raw mut answer) as usize, 0)?;
    Ok(answer == 1)
}

/// Nobody without privileges over this process may trace it, read its memory or take its descriptors.
pub(crate) fn set_dumpable(dumpable: bool) -> Result<()> {
    prctl(PR_SET_DUMPABLE, dumpable.into(), 0).map(drop)
}

/// Name shown by `ps`; at most 15 bytes.
pub(crate) fn set_name(name: &CStr) -> Result<()> {
    prctl(PR_SET_NAME, name.as_ptr() as usize, 0).map(drop)
}

/// exec can no longer gain privileges; inherited for ever.
pub(crate) fn set_no_new_privs() -> Result<()> {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0).map(drop)
}

/// Whether [`set_no_new_privs`] is in force.
pub(crate) fn no_new_privs() -> bool {
    prctl(PR_GET_NO_NEW_PRIVS, 0, 0) == Ok(1)
}

/// Enters the domain of a Landlock ruleset. Linux 5.13.
pub(crate) fn restrict_self(ruleset: &OwnedFd) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { call(number::LANDLOCK_RESTRICT_SELF, [int(ruleset.as_raw_fd()), 0, 0, 0, 0, 0]) }.map(drop)
}

/// Effective, permitted and inheritable capabilities, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Capabilities {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `capget(2)` of this process.
pub(crate) fn capabilities() -> Result<Capabilities> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: version 3 writes two data structures.
    unsafe { call(number::CAPGET, [(&raw mut header) as usize, data.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    let [low, high] = data;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(Capabilities {
        effective: join(low.effective, high.effective),
        permitted: join(low.permitted, high.permitted),
        inheritable: join(low.inheritable, high.inheritable),
    })
}

/// Empties the inheritable and ambient sets, and the effective and permitted ones but for these bits, which must
/// be permitted.
pub(crate) fn keep_capabilities(kept: u64) -> Result<()> {
    set_capabilities(Capabilities { effective: kept, permitted: kept, inheritable: 0 })
}

/// Sets the effective, permitted and inheritable sets, and empties the ambient one.
pub(crate) fn set_capabilities(sets: Capabilities) -> Result<()> {
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0)?;
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let half = |shift: u32| {
        let part = |set: u64| u32::try_from(set >> shift & u64::from(u32::MAX)).unwrap_or(0);
        CapabilityData {
            effective: part(sets.effective),
            permitted: part(sets.permitted),
            inheritable: part(sets.inheritable),
        }
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads two data structures.
    unsafe { call(number::CAPSET, [(&raw mut header) as usize, data.as_ptr() as usize, 0, 0, 0, 0]) }
        .map(drop)
}

/// Whether this is root, and exec gives root its capabilities as usual.
pub(crate) fn exec_favours_root() -> bool {
    const NO_ROOT: usize = 1;
    // SAFETY: no pointers, and the call cannot fail.
    let user = unsafe { call(number::GETEUID, [0; 6]) };
    user == Ok(0) && prctl(PR_GET_SECUREBITS, 0, 0).is_ok_and(|bits| bits & NO_ROOT == 0)
}

/// Whether a capability is in the bounding set; `EINVAL` past the last one.
pub(crate) fn has_bounding(capability: usize) -> Result<bool> {
    prctl(PR_CAPBSET_READ, capability, 0).map(|answer| answer == 1)
}

/// Drops a capability from the bounding set; needs CAP_SETPCAP.
pub(crate) fn drop_bounding(capability: usize) -> Result<()> {
    prctl(PR_CAPBSET_DROP, capability, 0).map(drop)
}

/// Installs a seccomp filter on this thread; needs `no_new_privs`.
pub(crate) fn install_filter(program: &[Instruction]) -> Result<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(|_| Errno::PROTO)?;
    let program = Program { length, filter: program.as_ptr() };
    // SAFETY: `program` points to that many instructions, and lives through the call.
    unsafe { call(number::SECCOMP, [SECCOMP_SET_MODE_FILTER, 0, (&raw const program) as usize, 0, 0, 0]) }
        .map(drop)
}
