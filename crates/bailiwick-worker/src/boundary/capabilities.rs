//! Capabilities: none, or those without which root cannot work in a tree that belongs to somebody else.

use bailiwick_wire::{Grant, Step};

use crate::child::Failure;
use crate::sys::{self, Capabilities, Errno};

/// CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER.
pub(crate) const FILES: u64 = 1 | 1 << 1 | 1 << 3;

/// What a launcher stands on, as far as capabilities depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ground {
    /// It has a view of mounts in which nothing but the roots can be written: without it, these capabilities change modes,
    /// owners and times of every file outside.
    pub(crate) has_mount_view: bool,
    /// It is in a user namespace of the session's own, whose root is not root of the files.
    pub(crate) has_user_namespace: bool,
}

/// The capabilities that commands of a grant keep.
///
/// # Errors
/// They would reach further than they may (`NeedsMountView`), or be of no use (`NeedsRoot`).
pub(crate) fn kept(grant: &Grant, ground: Ground) -> Result<u64, Failure> {
    if !grant.keep_files_capabilities {
        return Ok(0);
    }
    let failed = |step| Failure { step, errno: Errno(0) };
    if !ground.has_mount_view {
        return Err(failed(Step::NeedsMountView));
    }
    let held = sys::capabilities().map_err(|errno| Failure { step: Step::Capabilities, errno })?;
    // exec gives them to root again only where root is special.
    if ground.has_user_namespace || !sys::exec_favours_root() || held.permitted & FILES != FILES {
        return Err(failed(Step::NeedsRoot));
    }
    Ok(FILES)
}

/// Drops every capability but `kept`, also from the bounding set where that is permitted.
///
/// A plain user may not touch the bounding set. It need not: what exec could add to the permitted set is cut down to what
/// it held before once `no_new_privs` is set (capabilities(7)). So a program that root executes gets the bounding set, cut
/// down to `kept`, and the same again in every program after it.
pub(crate) fn drop_all_but(kept: u64) -> sys::Result<()> {
    for capability in 0.. {
        match sys::has_bounding(capability) {
            // Past the last capability of this kernel.
            Err(_) => break,
            Ok(false) => {}
            Ok(true) if is_in(kept, capability) => {}
            Ok(true) => match sys::drop_bounding(capability) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno),
            },
        }
    }
    sys::set_capabilities(Capabilities { effective: kept, permitted: kept, inheritable: kept })
}

/// Whether this process holds exactly `kept`, and exec can give no other.
pub(crate) fn holds_exactly(kept: u64) -> sys::Result<bool> {
    let expected = Capabilities { effective: kept, permitted: kept, inheritable: kept };
    let is_bounded = || (0..64).all(|number| is_in(kept, number) || sys::has_bounding(number) != Ok(true));
    Ok(sys::capabilities()? == expected && (is_bounded() || sys::no_new_privs()))
}

fn is_in(set: u64, capability: usize) -> bool {
    u32::try_from(capability)
        .ok()
        .and_then(|number| set.checked_shr(number))
        .is_some_and(|bits| bits & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(keep_files_capabilities: bool) -> Grant {
        let (sentinel, limits) = (Vec::new(), Vec::new());
        Grant {
            epoch: 1,
            network: false,
            sysv_ipc: false,
            read_scope: false,
            broker: false,
            handled: 0,
            host_pid: 0,
            sentinel,
            limits,
            keep_files_capabilities,
        }
    }

    const GOOD: Ground = Ground { has_mount_view: true, has_user_namespace: false };

    #[test]
    fn the_set_is_the_three_of_the_kernels_header() {
        use linux_raw_sys::general::{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER};
        let all = [CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER];
        assert_eq!(FILES, all.into_iter().fold(0, |all, number| all | 1 << number));
        assert!(is_in(FILES, 3) && !is_in(FILES, 2) && !is_in(u64::MAX, 64) && is_in(u64::MAX, 63));
    }

    #[test]
    fn they_are_kept_only_where_they_reach_nothing_outside() {
        let step = |asked, ground| kept(&grant(asked), ground).map_err(|failure| failure.step);
        for has_mount_view in [false, true] {
            for has_user_namespace in [false, true] {
                assert_eq!(step(false, Ground { has_mount_view, has_user_namespace }), Ok(0));
            }
        }
        assert_eq!(step(true, Ground { has_mount_view: false, ..GOOD }), Err(Step::NeedsMountView));
        assert_eq!(step(true, Ground { has_user_namespace: true, ..GOOD }), Err(Step::NeedsRoot));
        // Root of this test has them, or the container took them away; nobody else has.
        let has_them = sys::capabilities().unwrap().permitted & FILES == FILES;
        let is_root = sys::exec_favours_root();
        assert_eq!(step(true, GOOD), if has_them && is_root { Ok(FILES) } else { Err(Step::NeedsRoot) });
    }

    /// Capabilities belong to a thread, so a thread stands for a launcher, and what it starts for a command.
    #[test]
    fn what_is_kept_lasts_through_exec_and_nothing_else_does() {
        let status = |kept: u64| {
            let launcher = std::thread::spawn(move || {
                sys::set_no_new_privs().unwrap();
                drop_all_but(kept).unwrap();
                assert!(holds_exactly(kept).unwrap());
                assert!(!holds_exactly(kept ^ FILES).unwrap());
                // Twice executed: the shell, and what it runs.
                let script = "cat /proc/self/status; true";
                let shell = std::process::Command::new("/bin/sh").args(["-c", script]).output().unwrap();
                String::from_utf8(shell.stdout).unwrap()
            });
            let status = launcher.join().unwrap();
            let set = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].map(set)
        };
        let [permitted, effective, _, ambient] = status(0);
        assert_eq!((permitted, effective, ambient), (0, 0, 0));
        // A user without them cannot keep them; that is refused, and nothing is lost by it.
        match kept(&grant(true), GOOD) {
            Ok(files) => assert_eq!(status(files), [FILES, FILES, FILES, 0]),
            Err(failure) => assert_eq!(failure.step, Step::NeedsRoot),
        }
    }
}
