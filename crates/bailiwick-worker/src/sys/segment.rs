//! A shared memory segment of the host, for the probe that must not reach it.

use super::{Result, call, int, number};

/// A size that nothing else is likely to have, so that a segment of the session's own that happens to have the same
/// number is not taken for it.
const SIZE: usize = 15_265;
const IPC_RMID: usize = 0;
const IPC_STAT: usize = 2;

/// Makes a segment that goes when this process ends, and gives its number.
pub(crate) fn make_segment() -> Result<i32> {
    const PRIVATE: usize = 0;
    // SAFETY: no pointers; the kernel chooses the address. It is attached for the life of this process and never used:
    // marked for removal, it lives as long as it is attached.
    unsafe {
        let number = call(number::SHMGET, [PRIVATE, SIZE, 0o1600, 0, 0, 0])?;
        let attached = call(number::SHMAT, [number, 0, 0, 0, 0, 0]);
        call(number::SHMCTL, [number, IPC_RMID, 0, 0, 0, 0])?;
        attached?;
        i32::try_from(number).map_err(|_| super::Errno::PROTO)
    }
}

/// Asks for the state of the segment with this number; whether it is the one of [`make_segment`].
pub(crate) fn reaches_segment(number: i32) -> Result<bool> {
    // struct shmid64_ds: ipc64_perm has 48 bytes, then comes the size.
    let mut state = [0_u64; 16];
    // SAFETY: `state` has more than the 112 bytes of the structure.
    unsafe { call(number::SHMCTL, [int(number), IPC_STAT, state.as_mut_ptr() as usize, 0, 0, 0]) }?;
    Ok(state.get(6).is_some_and(|size| usize::try_from(*size) == Ok(SIZE)))
}
