//! The keeper: the process that the host starts, and whose end proves that nothing is left.
//!
//! It stands above the worker, inherits what the worker leaves behind, takes no requests and cannot be
//! signalled by a command. Without it a killed worker would leave every process of the session alive.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::group::Group;
use crate::sys::{self, Errno};
use crate::tree::{self, Ending, Own};
use crate::{launcher, temporary, worker};

/// Exit status: the worker ended in order, nothing is left.
const SETTLED: i32 = 0;
/// Exit status: the worker was lost; what it left has been ended.
const ENDED_BY_KEEPER: i32 = 3;
/// Exit status: the session could not be set up; nothing ran.
const NOT_SET_UP: i32 = 4;

const SIGKILL: i32 = 9;

/// Runs as keeper, and in a copy as worker.
///
/// Descriptor 0 is the control socket, descriptor 1 the temporary directory, and the argument its path. With a second
/// argument, the name of the session's control group, descriptor 2 is the group above that.
pub(crate) fn run() -> ! {
    let Ok(Setup { control, temporary, path, group }) = set_up() else { sys::exit_now(NOT_SET_UP) };
    let worker = match fork_worker(control, group.as_ref()) {
        Ok(pid) => pid,
        Err(_) => sys::exit_now(NOT_SET_UP),
    };
    let status = wait_for(worker);
    end_everything();
    remove(&temporary, path.as_ref());
    group.iter().for_each(Group::remove);
    sys::exit_now(if status == Some(0) { SETTLED } else { ENDED_BY_KEEPER })
}

struct Setup {
    control: OwnedFd,
    temporary: OwnedFd,
    path: Option<CString>,
    group: Option<Group>,
}

#[expect(unsafe_code, reason = "takes over the descriptors that the program was started with")]
fn set_up() -> sys::Result<Setup> {
    use std::os::unix::ffi::OsStringExt as _;
    sys::default_dispositions();
    sys::block_all_signals()?;
    sys::setsid()?;
    sys::set_subreaper()?;
    sys::set_dumpable(false)?;
    sys::set_name(c"bailiwick-keep")?;
    // Whatever else was inherited is the host's: kept open here, its pipes would never end.
    let kept = (0..3).map(|number| sys::duplicate_above(number, 3)).collect::<sys::Result<_>>()?;
    let kept = launcher::isolate(kept)?;
    let [control, temporary, above] = <[OwnedFd; 3]>::try_from(kept).map_err(|_| Errno::BADF)?;
    // 0, 1 and 2 stay occupied for good: nothing that a copy opens may land there, where the child side
    // puts the command's own.
    let null = sys::open_at(sys::AT_FDCWD, c"/dev/null", sys::O_RDWR, 0)?;
    for number in 0..3 {
        // SAFETY: the runtime keeps nothing in these three, and their contents were copied above.
        unsafe { sys::replace_descriptor(null.as_raw_fd(), number, true) }?;
    }
    let argument =
        |number| std::env::args_os().nth(number).and_then(|text| CString::new(text.into_vec()).ok());
    let group = argument(2).map(|name| Group::new(above, name));
    Ok(Setup { control, temporary, path: argument(1), group })
}

#[expect(unsafe_code, reason = "copies this process")]
fn fork_worker(control: OwnedFd, group: Option<&Group>) -> sys::Result<i32> {
    // SAFETY: this process has a single thread. The copy keeps the temporary directory's descriptor
    // too; its launchers close what they do not need.
    match unsafe { sys::clone_child(false) }? {
        None => {
            group.into_iter().for_each(Group::enter);
            worker::run(control)
        }
        Some(pid) => {
            // The keeper must not hold the control socket: the host would not see the worker's end.
            drop(control);
            Ok(pid)
        }
    }
}

/// Waits for the worker, and reaps whatever else comes here meanwhile.
fn wait_for(worker: i32) -> Option<i32> {
    loop {
        match sys::wait(true, false) {
            Ok(Some(child)) if child.pid == worker => return Some(child.status),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}

/// Kills and reaps until there is no child left. A process in uninterruptible sleep keeps it here, and
/// so keeps the host from believing that all is settled.
pub(crate) fn end_everything() {
    let mut walk = false;
    let mut ending = Ending::default();
    loop {
        loop {
            match sys::wait(false, false) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if walk {
            ending.go_on(&tree::below(sys::process_id(), &Own::Nothing, |_| 0));
        } else {
            // Children that were not waited for keep their numbers. Mostly there is nothing below them.
            for child in tree::own_children() {
                sys::may_fail(sys::kill(child, SIGKILL));
            }
        }
        walk = true;
        sys::wait_for_child_signal(1);
    }
}

/// Removes the temporary directory, if its name still stands for it.
fn remove(temporary: &OwnedFd, path: Option<&CString>) {
    if temporary::empty(temporary).is_err() {
        return;
    }
    if let Some(path) = path {
        // Only an empty directory can be removed so: should the name stand for another one by now, then
        // nothing is lost with it.
        sys::may_fail(sys::unlink_at(sys::AT_FDCWD, path, sys::AT_REMOVEDIR));
    }
}
