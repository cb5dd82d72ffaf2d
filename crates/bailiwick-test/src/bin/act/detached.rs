//! Acts that leave processes behind. All are bounded: in number, and in time by an alarm.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Resource;

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, cannot_try};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("daemonize", "SECONDS NAME", daemonize),
    ("pause", "SECONDS [NAME]", pause),
    ("fork-bomb", "COUNT hop|both|setsid|refill", fork_bomb),
];

/// Longest life, in seconds, of anything that this program leaves behind.
const LIFE: u32 = 120;

/// Leaves a process that has cut every tie: session, parent, descriptors, directory, name, environment.
/// Prints nothing. The process is found by its name (15 bytes at most).
fn daemonize(arguments: &mut Arguments) -> Answer {
    let (seconds, name): (u32, String) = (arguments.number()?, arguments.text()?);
    if sys::processes::fork().prepare("fork")?.is_some() {
        return Err(Failed::Silent);
    }
    rustix::process::setsid().prepare("setsid")?;
    if sys::processes::fork().prepare("fork again")?.is_some() {
        return Err(Failed::Silent);
    }
    rustix::process::chdir("/").prepare("chdir")?;
    sys::descriptors::close_all();
    // Executed anew for an empty environment. Where the session hides the program, this process goes on.
    let _refused = sys::processes::execute_self(&["pause", &seconds.to_string(), &name]);
    rest(seconds, &name)
}

fn pause(arguments: &mut Arguments) -> Answer {
    let seconds = arguments.number()?;
    let name = if arguments.is_empty() { String::new() } else { arguments.text()? };
    rest(seconds, &name)
}

/// Sleeps under another name.
pub(crate) fn rest(seconds: u32, name: &str) -> Answer {
    if !name.is_empty() {
        let name = std::ffi::CString::new(name).prepare("name")?;
        rustix::thread::set_name(&name).prepare("set the name")?;
    }
    std::thread::sleep(Duration::from_secs(seconds.min(LIFE).into()));
    Err(Failed::Silent)
}

/// Forks until `COUNT` processes have been made in all, then all sleep; `refill` instead goes on forking
/// for as long as it lives, and takes its bound from `RLIMIT_NPROC`.
///
/// - `hop`: each process forks one child and exits: one alive at a time, none a child of the one before.
/// - `both`: each process forks as long as there is number left; the children stay in the group.
/// - `setsid`: the same, each in a session of its own.
fn fork_bomb(arguments: &mut Arguments) -> Answer {
    let (count, kind): (u32, String) = (arguments.number()?, arguments.text()?);
    if count > 1000 {
        return cannot_try("at most 1000 processes");
    }
    if !matches!(kind.as_str(), "hop" | "both" | "setsid" | "refill") {
        return cannot_try(format!("no bomb is called `{kind}`"));
    }
    let limit = rustix::process::getrlimit(Resource::Nproc).current;
    let is_bound =
        rustix::process::geteuid().as_raw() > 61000 && limit.is_some_and(|limit| limit <= u64::from(count));
    if kind == "refill" && !is_bound {
        return cannot_try("`refill` needs a uid above 61000 and RLIMIT_NPROC at or below its count");
    }
    sys::processes::ignore_children();
    sys::processes::alarm(LIFE);
    let made = sys::memory::shared_counter().prepare("share a counter")?;
    loop {
        if made.fetch_add(1, Ordering::Relaxed) >= count && kind != "refill" {
            return rest(LIFE, "");
        }
        match sys::processes::fork() {
            // A child inherits no alarm.
            Ok(None) => sys::processes::alarm(LIFE),
            Ok(Some(_)) if kind == "hop" => return Err(Failed::Silent),
            // Refused for now: the limit is reached, zombies included. Not made, so not counted.
            Err(_) => {
                made.fetch_sub(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(Some(_)) => {}
        }
        if matches!(kind.as_str(), "setsid" | "refill") {
            let _leads_a_group_already = rustix::process::setsid();
        }
    }
}
