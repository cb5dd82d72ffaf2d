//! Whether a program could not start because commands may not read it. For a hint: the kernel has decided already.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Session;
use crate::guard::Grant;
use crate::policy::Environment;

/// The program of a command, or the interpreter that its first line names, by its canonical path, if that lies outside of
/// what commands may read.
pub(super) fn outside_of_scope(
    session: &Session,
    grant: &Grant,
    program: &OsStr,
    environment: &Environment,
) -> Option<PathBuf> {
    let readable: Vec<&Path> = grant
        .readable()?
        .chain(grant.roots().iter().map(|root| root.canonical()))
        .chain([session.temporary.path()])
        .collect();
    let outside = |path: &Path| {
        let canonical = path.canonicalize().ok()?;
        (!readable.iter().any(|place| canonical.starts_with(place))).then_some(canonical)
    };
    let program = find(program, environment)?;
    outside(&program).or_else(|| outside(&interpreter(&program)?))
}

/// The file that would be executed; a relative path is not looked for.
fn find(program: &OsStr, environment: &Environment) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).is_absolute().then(|| program.into());
    }
    let directories = std::env::split_paths(environment.get("PATH")?).filter(|entry| entry.is_absolute());
    directories.map(|directory| directory.join(program)).find(|candidate| {
        std::fs::metadata(candidate)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// What the first line of a script names.
fn interpreter(program: &Path) -> Option<PathBuf> {
    /// Bytes of that line which the kernel reads (`BINPRM_BUF_SIZE`, linux/binfmts.h).
    const LINE: u64 = 256;
    if !std::fs::metadata(program).ok()?.is_file() {
        return None;
    }
    let mut line = Vec::new();
    std::fs::File::open(program).ok()?.take(LINE).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let name = line.split(|byte| byte.is_ascii_whitespace()).next()?;
    let path = Path::new(OsStr::from_bytes(name));
    path.is_absolute().then(|| path.into())
}
