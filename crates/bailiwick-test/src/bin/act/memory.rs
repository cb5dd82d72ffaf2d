//! Acts on shared memory, on programs without a file, and on memory images.

use std::ffi::CString;
use std::io::Write as _;

use rustix::fs::MemfdFlags;
use rustix::process::{Resource, Rlimit};

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;
use crate::sys;
use crate::sys::processes::Ended;

pub(crate) const ACTS: &[Act] = &[
    ("shmget", "", |_| Ok(sys::memory::new_segment()?.into())),
    ("shmat", "ID", |a| Ok(sys::memory::overwrite_segment(a.number()?)?).and_then(done)),
    ("shmrm", "ID", |a| Ok(sys::memory::remove_segment(a.number()?)?).and_then(done)),
    ("msgget", "", |_| Ok(sys::memory::new_queue_and_gone()?).and_then(done)),
    ("memfd-exec", "", execute_memory),
    ("from-memory", "ACT...", from_memory),
    ("crash", "DIRECTORY", crash),
    ("core-dump", "DIRECTORY", dump_core),
    ("hold-memory", "BYTES", hold_memory),
];

/// Copies this program into memory and executes the copy.
fn execute_memory(_: &mut Arguments) -> Answer {
    let program = std::fs::read("/proc/self/exe").prepare("read this program")?;
    let memory = rustix::fs::memfd_create("act", MemfdFlags::CLOEXEC)?;
    std::fs::File::from(memory.try_clone().prepare("duplicate the memory file")?)
        .write_all(&program)
        .prepare("fill the memory file")?;
    match sys::processes::execute_descriptor(&memory, &[c"act", c"do-nothing"])? {
        Ended::Exited(0) => done(()),
        Ended::Exited(status) => Err(Failed::Refused(status)),
        Ended::Signalled { signal, .. } => Err(Failed::Killed(signal)),
    }
}

/// Becomes a copy of this program that lies in memory, to try another act: its report is the answer.
fn from_memory(arguments: &mut Arguments) -> Answer {
    let program = std::fs::read("/proc/self/exe").prepare("read this program")?;
    let memory = rustix::fs::memfd_create("act", MemfdFlags::CLOEXEC)?;
    std::fs::File::from(memory.try_clone().prepare("duplicate the memory file")?)
        .write_all(&program)
        .prepare("fill the memory file")?;
    let mut words = vec![c"act".to_owned()];
    while !arguments.is_empty() {
        words.push(CString::new(arguments.text()?).prepare("an argument")?);
    }
    Err(sys::processes::become_descriptor(&memory, &words).into())
}

/// Dies in `DIRECTORY` with the limit of memory images as high as it goes. Unlike `core-dump` it also tries where that
/// is nothing.
fn crash(arguments: &mut Arguments) -> Answer {
    rustix::process::chdir(arguments.path()?).prepare("enter the directory")?;
    let maximum = rustix::process::getrlimit(Resource::Core).maximum;
    rustix::process::setrlimit(Resource::Core, Rlimit { current: maximum, maximum })
        .prepare("raise the limit")?;
    match sys::processes::in_child(|| std::process::abort()).prepare("fork")? {
        Ended::Signalled { dumped: true, .. } => done(()),
        _ => Err(Failed::Nothing("NOCORE")),
    }
}

/// Has that much memory, each page of it written.
fn hold_memory(arguments: &mut Arguments) -> Answer {
    let size = usize::try_from(arguments.number::<u64>()?).prepare("count the bytes")?;
    std::hint::black_box(vec![1_u8; size]);
    done(())
}

/// Dies with a memory image asked for, in `DIRECTORY`; the kernel tells whether it wrote one.
fn dump_core(arguments: &mut Arguments) -> Answer {
    rustix::process::chdir(arguments.path()?).prepare("enter the directory")?;
    let maximum = rustix::process::getrlimit(Resource::Core).maximum;
    let limit = Rlimit { current: maximum, maximum };
    rustix::process::setrlimit(Resource::Core, limit).prepare("raise the limit")?;
    if maximum == Some(0) {
        return crate::answer::cannot_try("the limit of memory images is 0 and cannot be raised");
    }
    match sys::processes::in_child(|| std::process::abort()).prepare("fork")? {
        Ended::Signalled { dumped: true, .. } => done(()),
        Ended::Signalled { dumped: false, .. } => Err(Failed::Nothing("NOCORE")),
        Ended::Exited(status) => crate::answer::cannot_try(format!("the child exited with {status}")),
    }
}
