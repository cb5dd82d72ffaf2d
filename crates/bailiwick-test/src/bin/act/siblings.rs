//! Acts on the process above: children that are not this process's own, and a tracer that did not ask.

use rustix::process::Signal;

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("clone-parent", "COUNT SECONDS NAME", clone_parent),
    ("trace-me", "stop|exec|exit|orphan", trace_me),
    ("stop-newborns", "SECONDS", stop_newborns),
];

/// Makes children of this process's parent (`CLONE_PARENT`), the last of them without a signal at its end.
fn clone_parent(arguments: &mut Arguments) -> Answer {
    let (count, seconds, name): (u32, u32, String) =
        (arguments.number()?, arguments.number()?, arguments.text()?);
    for index in 0..count.min(100) {
        let signal = if index + 1 == count { 0 } else { libc::SIGCHLD };
        if sys::processes::clone_sibling(signal)?.is_none() {
            return crate::detached::rest(seconds, &name);
        }
    }
    done(())
}

/// Makes its parent its tracer, and then does what a tracer is told of and the tracee waits for.
fn trace_me(arguments: &mut Arguments) -> Answer {
    let how = arguments.text()?;
    if how == "orphan" {
        // Its parent dies at once: whoever inherits it becomes the parent, and then the tracer.
        if sys::processes::fork().prepare("fork")?.is_some() {
            return Err(Failed::Silent);
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    sys::processes::trace_me()?;
    match how.as_str() {
        "exit" => {}
        // A traced process stops at every exec.
        "exec" => return Err(Failed::Refused(sys::processes::execute_self(&["do-nothing"]).raw_os_error())),
        _ => rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?,
    }
    done(())
}

/// Stops whatever gets one of the next process ids, as soon as it has it. Prints nothing.
fn stop_newborns(arguments: &mut Arguments) -> Answer {
    const AHEAD: i32 = 500;
    let seconds: u64 = arguments.number()?;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds.min(30));
    let ours = rustix::process::getpid().as_raw_nonzero().get();
    while std::time::Instant::now() < end {
        for pid in ours + 1..ours + AHEAD {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _nobody_yet = rustix::process::kill_process(pid, Signal::STOP);
            }
        }
    }
    Err(Failed::Silent)
}
