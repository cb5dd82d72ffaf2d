//! Acts that go on until they are killed: what a command does to whoever reads its files meanwhile.

use std::io::Write as _;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

use crate::Act;
use crate::answer::{Answer, Failed};
use crate::arguments::Arguments;

pub(crate) const ACTS: &[Act] = &[
    ("exchange-forever", "ONE OTHER", exchange_forever),
    ("append-forever", "PATH LINE LIMIT", append_forever),
    ("fill-forever", "DIRECTORY", fill_forever),
];

/// Lets two names change places, as fast as the kernel does it.
fn exchange_forever(arguments: &mut Arguments) -> Answer {
    let (one, other) = (arguments.path()?, arguments.path()?);
    loop {
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
    }
}

/// Appends one line after the other. A file of more than `LIMIT` bytes is left as it is, and the act waits.
fn append_forever(arguments: &mut Arguments) -> Answer {
    let (path, line, limit) = (arguments.path()?, arguments.text()?, arguments.number::<u64>()?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(openat(CWD, &path, flags, Mode::from(0o644))?);
    while file.metadata()?.len() < limit {
        file.write_all(line.as_bytes())?;
    }
    loop {
        std::thread::park();
    }
}

/// Makes empty files with new names.
fn fill_forever(arguments: &mut Arguments) -> Result<serde_json::Value, Failed> {
    let directory = arguments.path()?;
    let mut number: u64 = 0;
    loop {
        number += 1;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        // The directory may be gone for a moment.
        drop(openat(CWD, directory.join(number.to_string()), flags, Mode::from(0o644)));
    }
}
