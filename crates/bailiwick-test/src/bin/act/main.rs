//! `act NAME [ARGUMENT]...` tries one act and says what the kernel answered.
//!
//! It prints one line of JSON: `{"act":"mkdir","ok":false,"errno":13,"name":"EACCES","value":null}`. An act
//! that the kernel killed for trying has errno 0 and the name of the signal. Exit status: 0 if the act could
//! be tried, whatever came of it; 3 if not, with the reason on standard error.
//!
//! A probe must change nothing before it looks. So this program has no Rust runtime: signals and
//! descriptors are those that it was given.

#![no_main]

mod answer;
mod arguments;
mod calls;
mod connections;
mod descriptors;
mod detached;
mod files;
mod host;
mod local;
mod mark;
mod memory;
mod metadata;
mod namespaces;
mod processes;
mod races;
mod siblings;
mod sockets;
mod status;
mod storms;
mod sys;
mod wrappers;

use std::ffi::OsString;
use std::io::Write as _;

use answer::{Answer, cannot_try};
use arguments::Arguments;

/// Name, arguments, and the function that tries it.
type Act = (&'static str, &'static str, fn(&mut Arguments) -> Answer);

const ROOMS: [&[Act]; 19] = [
    files::ACTS,
    metadata::ACTS,
    descriptors::ACTS,
    processes::ACTS,
    sockets::ACTS,
    connections::ACTS,
    sys::ACTS,
    namespaces::ACTS,
    host::ACTS,
    memory::ACTS,
    status::ACTS,
    detached::ACTS,
    storms::ACTS,
    calls::ACTS,
    siblings::ACTS,
    mark::ACTS,
    races::ACTS,
    local::ACTS,
    wrappers::ACTS,
];

/// Runs the act that the command line names. Returns the exit status.
fn run(arguments: Vec<OsString>) -> i32 {
    let mut arguments = Arguments::new(arguments);
    let name = arguments.text().unwrap_or_default();
    let answer = find(&name).map_or_else(usage, |act| (act.2)(&mut arguments));
    let (line, status) = match answer::line(&name, answer) {
        Ok(line) => (line, 0),
        Err(Some(reason)) => (format!("act {name}: {reason}\n"), 3),
        Err(None) => return 0,
    };
    let written = if status == 0 {
        std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush())
    } else {
        std::io::stderr().write_all(line.as_bytes())
    };
    if written.is_err() { 3 } else { status }
}

fn find(name: &str) -> Option<&'static Act> {
    ROOMS.into_iter().flatten().find(|act| act.0 == name)
}

fn usage() -> Answer {
    let acts = ROOMS.into_iter().flatten().map(|act| format!("\n  {} {}", act.0, act.1));
    cannot_try(format!("no such act; there are:{}", acts.collect::<String>()))
}
