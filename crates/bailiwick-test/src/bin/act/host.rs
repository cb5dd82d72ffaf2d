//! Acts on the machine and on parts of the kernel that no path names. Each is harmless where it succeeds.

use crate::Act;
use crate::answer::{Answer, Prepare as _, done};
use crate::arguments::Arguments;
use crate::files::open_read_only;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("sethostname", "[NAME]", set_hostname),
    ("settimeofday", "", |_| Ok(sys::kernel::set_same_time_zone()?).and_then(done)),
    ("keyctl", "", |_| Ok(sys::kernel::user_keyring()?).and_then(done)),
    ("add-key", "", |_| Ok(sys::kernel::add_key()?).and_then(done)),
    ("bpf", "", |_| Ok(sys::kernel::bpf_map()?).and_then(done)),
    ("perf-event", "", |_| Ok(sys::kernel::perf_event()?).and_then(done)),
    ("userfaultfd", "", |_| Ok(sys::kernel::user_fault_descriptor()?).and_then(done)),
    ("open-by-handle", "PATH", open_by_handle),
    ("fanotify", "PATH", |a| Ok(sys::kernel::watch(&a.path()?)?).and_then(done)),
];

/// Without a name, sets the one that the machine has.
fn set_hostname(arguments: &mut Arguments) -> Answer {
    let name = if arguments.is_empty() {
        rustix::system::uname().nodename().to_bytes().to_vec()
    } else {
        arguments.text()?.into_bytes()
    };
    rustix::system::sethostname(&name)?;
    done(())
}

fn open_by_handle(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    let mut handle = sys::kernel::FileHandle::of(&path).prepare("ask for the handle")?;
    let mount = open_read_only(path.parent().unwrap_or(&path)).prepare("open the directory")?;
    handle.open_for_writing(&mount)?;
    done(())
}
