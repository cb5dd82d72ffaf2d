//! Resource limits, tried and read back inside the confinement.
//!
//! Each command sets them for itself, since a launcher must not be bound by what binds its commands. So a child
//! of the launcher sets them here the same way, and what it reads afterwards is what every command will have.

use bailiwick_wire::{Limit, LimitFound};

use crate::child::{Stack, try_in_child};
use crate::sys::{self, Errno, ResourceLimit};

/// Sets every limit in a child, and says what the kernel made of each.
pub(crate) fn try_all(limits: &[Limit], stack: &mut Stack) -> Vec<LimitFound> {
    let untried = |limit: &Limit| LimitFound {
        limit: *limit,
        set_errno: 0,
        // Stays where the child is ended half-way: a limit on processor time may do that.
        read_errno: Errno::PROTO.0,
        binds: None,
    };
    let mut found: Vec<LimitFound> = limits.iter().map(untried).collect();
    let tried = try_in_child(
        &mut || {
            for (limit, found) in limits.iter().zip(&mut found) {
                let value = ResourceLimit { soft: limit.soft, hard: limit.hard };
                found.set_errno = sys::set_limit(limit.resource, value).err().map_or(0, |errno| errno.0);
            }
            // Only now: one limit may have been changed by setting another.
            for (limit, found) in limits.iter().zip(&mut found) {
                match sys::limit(0, limit.resource) {
                    Ok(value) => {
                        found.limit.soft = value.soft;
                        found.limit.hard = value.hard;
                        found.read_errno = 0;
                    }
                    Err(errno) => found.read_errno = errno.0,
                }
            }
        },
        stack,
    );
    if let Err(errno) = tried {
        found.iter_mut().filter(|found| found.read_errno == 0).for_each(|found| found.read_errno = errno.0);
    }
    if let Some(processes) = found.iter_mut().find(|found| found.limit.resource == sys::PROCESSES) {
        processes.binds = binds(stack);
    }
    found
}

/// Whether a process that may have none more is refused one. Root is not, whatever its capabilities.
#[expect(unsafe_code, reason = "copies a process that ends at once")]
fn binds(stack: &mut Stack) -> Option<bool> {
    const NONE: ResourceLimit = ResourceLimit { soft: 0, hard: 0 };
    let mut binds = None;
    let tried = try_in_child(
        &mut || {
            if sys::set_limit(sys::PROCESSES, NONE).is_err() {
                return;
            }
            // SAFETY: the child has a single thread, and its copy does nothing but end.
            match unsafe { sys::clone_child(0) } {
                Ok(None) => sys::exit_now(0),
                Ok(Some(_)) => {
                    sys::may_fail(sys::wait(true, false));
                    binds = Some(false);
                }
                Err(Errno::AGAIN) => binds = Some(true),
                Err(_) => {}
            }
        },
        stack,
    );
    // What a child wrote that did not end by itself is no finding.
    tried.ok().and(binds)
}
