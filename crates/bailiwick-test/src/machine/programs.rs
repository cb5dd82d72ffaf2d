//! Programs of this machine in the other one: each with its interpreter and the libraries that this loads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::Archive;

/// Adds programs under their new names, and what they need under its own.
pub(super) fn add(archive: &mut Archive, programs: &[(&Path, PathBuf)]) {
    let mut needed = BTreeSet::new();
    for (name, program) in programs {
        let content = read(program);
        if let Some(interpreter) = interpreter(&content) {
            needed.extend(libraries(&interpreter, program));
            needed.insert(interpreter);
        }
        archive.file(name, &content);
    }
    for library in needed {
        archive.file(&library, &read(&library));
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

/// The program that loads this one (`PT_INTERP`); `None` for one that is linked statically.
///
/// # Source
/// `elf(5)`, 64 bits, little endian.
fn interpreter(program: &[u8]) -> Option<PathBuf> {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at + length)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let place = |at: usize, length: usize| usize::try_from(number(at, length)?).ok();
    assert!(program.starts_with(b"\x7fELF\x02\x01"), "not a program of 64 bits");
    let (table, size, count) = (place(32, 8)?, place(54, 2)?, place(56, 2)?);
    let header =
        (0..count).map(|index| table + index * size).find(|at| number(*at, 4) == Some(INTERPRETER))?;
    let (offset, length) = (place(header + 8, 8)?, place(header + 32, 8)?);
    let path = program.get(offset..offset + length)?.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(std::str::from_utf8(path).ok()?))
}

/// The libraries that the interpreter would load, by their paths.
fn libraries(interpreter: &Path, program: &Path) -> Vec<PathBuf> {
    let output = Command::new(interpreter)
        .arg("--list")
        .arg(program)
        .output()
        .unwrap_or_else(|error| panic!("run {}: {error}", interpreter.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{} --list {}: {text}", interpreter.display(), program.display());
    // `libc.so.6 => /lib/libc.so.6 (0x7f...)`; the kernel's own library has no path.
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}
