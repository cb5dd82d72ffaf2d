//! Starting commands: from a description to a running process.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use bailiwick_wire::{Request, Spawn, Step};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::capture::Capture;
use super::check::check;
use super::child::{Child, ChildStderr, ChildStdin, ChildStdout, Output};
use super::command::{Change, Command};
use super::mark::Mark;
use super::outside::outside_of_scope;
use super::state::{Progress, Shared, worker_lost};
use super::stdio::{Direction, Kind, Stdio, Stream};
use super::{Active, Session};
use crate::error::{Error, ErrorKind, Quoted, Ran};
use crate::identity::PinnedDir;
use crate::policy::Environment;

/// Bytes read at once; what a pipe holds by default.
const CHUNK: usize = 64 * 1024;
/// Longest single argument or variable, in bytes with its NUL (`MAX_ARG_STRLEN`, execve(2)).
const STRING_LIMIT: usize = 128 * 1024;

pub(super) async fn spawn(command: Command<'_>, default: &Kind) -> Result<Child, Error> {
    let session = command.session;
    // For reading: the grant stays as it is until this command has started under it.
    let active = session.active.read().await;
    start(command, default, &active).await
}

async fn start(mut command: Command<'_>, default: &Kind, active: &Active) -> Result<Child, Error> {
    let session = command.session;
    let piped = matches!(default, Kind::Piped);
    let output = |given: Option<Stdio>| match given {
        Some(Stdio(kind)) => kind,
        None if piped => Kind::Piped,
        None => Kind::Null,
    };
    session.shared.check_open()?;
    check_shape(&command)?;
    check(&session.shared, &active.grant).await?;
    let stdin = command.stdin.take().map_or(Kind::Null, |Stdio(kind)| kind);
    let stdin = Stream::new(stdin, Direction::In, &session.null)?;
    let stdout = Stream::new(output(command.stdout.take()), Direction::Out, &session.null)?;
    let stderr = Stream::new(output(command.stderr.take()), Direction::Out, &session.null)?;
    let given = match &command.directory {
        Some(path) => Some(PinnedDir::working_directory(path)?),
        None => None,
    };
    let root;
    let directory = match (&given, active.grant.roots().first()) {
        (Some(directory), _) => directory,
        (None, Some(first)) => first,
        (None, None) => {
            root = PinnedDir::working_directory("/")?;
            &root
        }
    };
    let environment = environment(session, active, &command, directory.given());
    let (place, directory): (&Path, BorrowedFd<'_>) = (directory.canonical(), directory.as_fd());

    let (number, progress) = session.shared.register()?;
    let spawn = Spawn {
        command: number,
        epoch: active.epoch,
        program: command.program.as_bytes().to_vec(),
        args: std::iter::once(&command.program).chain(&command.args).map(|a| a.as_bytes().to_vec()).collect(),
        env: environment.iter().map(|(name, value)| variable(name, value)).collect(),
        limits: active.limits.to_wire(),
        directory: place.as_os_str().as_bytes().to_vec(),
    };
    let size = Size::of(&spawn);
    let descriptors = [stdin.theirs.as_fd(), stdout.theirs.as_fd(), stderr.theirs.as_fd(), directory];
    if let Err(error) = session.shared.link.send(&Request::Spawn(spawn), &descriptors) {
        session.shared.unregister(number);
        return Err(match error.kind() {
            std::io::ErrorKind::FileTooLarge => too_large(&command, &size),
            // The worker has ended, whether or not that has been noticed yet. It was never sent.
            std::io::ErrorKind::BrokenPipe => {
                session.shared.check_open().err().unwrap_or_else(|| worker_lost().with_ran(Ran::Nothing))
            }
            _ => Error::new(ErrorKind::CommandStart, "cannot hand a command to the worker").source(error),
        });
    }
    // The command's ends must not stay open here, or there would be no end of file.
    drop((stdin.theirs, stdout.theirs, stderr.theirs));
    let child = Handover { shared: &session.shared, command: number };
    let outside = || outside_of_scope(session, &active.grant, &command.program, &environment);
    let started = decided(progress.clone(), &command, &size, &outside).await?;
    let child = child.complete(started, progress);
    connect(child, stdin.ours, stdout.ours, stderr.ours)
}

/// Ends the command if its handle never reaches the caller.
struct Handover<'a> {
    shared: &'a std::sync::Arc<Shared>,
    command: u64,
}

impl Handover<'_> {
    fn complete(self, started: super::state::Started, progress: watch::Receiver<Progress>) -> Child {
        let child = Child {
            shared: std::sync::Arc::clone(self.shared),
            command: self.command,
            started,
            progress,
            stdin: None,
            stdout: None,
            stderr: None,
        };
        std::mem::forget(self);
        child
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        self.shared.abandon(self.command);
    }
}

async fn decided(
    mut progress: watch::Receiver<Progress>,
    command: &Command<'_>,
    size: &Size,
    outside: &(dyn Fn() -> Option<PathBuf> + Sync),
) -> Result<super::state::Started, Error> {
    let progress = progress.wait_for(Progress::decided).await.map_err(|_| worker_lost())?;
    if let Some(started) = progress.started {
        return Ok(started);
    }
    match progress.not_started {
        Some((step, errno)) => Err(not_started(command, step, errno, size, outside)),
        None if progress.exited.is_some() => Err(Error::new(
            ErrorKind::OutcomeUnknown,
            "it is not known whether the command ran: the process that was to start it was killed",
        )
        .text("reason", "supervision lost")),
        None => Err(worker_lost()),
    }
}

fn connect(
    mut child: Child,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
) -> Result<Child, Error> {
    let failed =
        |error: std::io::Error| Error::new(ErrorKind::Io, "cannot watch a pipe of a command").source(error);
    let connected = (|| {
        child.stdin = stdin.map(pipe::Sender::from_owned_fd).transpose()?.map(ChildStdin);
        child.stdout = stdout.map(pipe::Receiver::from_owned_fd).transpose()?.map(ChildStdout);
        child.stderr = stderr.map(pipe::Receiver::from_owned_fd).transpose()?.map(ChildStderr);
        Ok(())
    })();
    match connected {
        Ok(()) => Ok(child),
        Err(error) => {
            child.shared.abandon(child.command);
            Err(failed(error).ran_something())
        }
    }
}

fn variable(name: &OsStr, value: &OsStr) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_bytes()].concat()
}

/// What the kernel must copy for a command.
struct Size {
    /// Bytes: strings with their NULs, and pointers.
    total: usize,
    /// The first string that no command can be given.
    too_long: Option<TooLong>,
}

struct TooLong {
    length: usize,
    which: Which,
}

enum Which {
    Argument(usize),
    Variable(String),
}

impl Size {
    fn of(spawn: &Spawn) -> Self {
        let strings = || spawn.args.iter().chain(&spawn.env);
        let total = strings().map(|string| string.len() + 1 + size_of::<usize>()).sum();
        let found = strings().enumerate().find(|(_, string)| string.len() >= STRING_LIMIT);
        let too_long = found.map(|(position, string)| TooLong {
            length: string.len(),
            // The first string is the program, which the caller does not count as an argument.
            which: if position < spawn.args.len() {
                Which::Argument(position.saturating_sub(1))
            } else {
                let name = string.split(|byte| *byte == b'=').next().unwrap_or_default();
                Which::Variable(String::from_utf8_lossy(name).into_owned())
            },
        });
        Self { total, too_long }
    }
}

fn environment(session: &Session, active: &Active, command: &Command<'_>, directory: &Path) -> Environment {
    let temporary = session.temporary.path();
    let mut environment = Environment::new();
    environment.set("PATH", "/usr/local/bin:/usr/bin:/bin").set("HOME", temporary).set("LANG", "C.UTF-8");
    for (name, value) in active.grant.policy().env.iter() {
        environment.set(name, value);
    }
    // Always the session's own, or tools would write where they cannot.
    environment.set("TMPDIR", temporary).set("TMP", temporary).set("TEMP", temporary);
    // As the caller wrote it: a logical path, which `pwd` prefers to the canonical one.
    environment.set("PWD", directory);
    for change in &command.environment {
        match change {
            Change::Clear => environment = Environment::new(),
            Change::Set(name, value) => {
                environment.set(name, value);
            }
            Change::Remove(name) => {
                environment.remove(name);
            }
        }
    }
    environment
}

/// Refuses what no process can be given.
fn check_shape(command: &Command<'_>) -> Result<(), Error> {
    let nul = |text: &OsStr| text.as_bytes().contains(&0);
    let invalid = |message: String| Error::new(ErrorKind::CommandInvalid, message);
    if command.program.is_empty() {
        return Err(invalid("the program of a command is empty".to_owned()).hint("name a program"));
    }
    if nul(&command.program) {
        return Err(invalid(format!(
            "the program of a command holds a NUL byte: {}",
            Quoted::new(&command.program)
        ))
        .path("program", &command.program)
        .hint("no path holds a NUL byte; take it out"));
    }
    for (index, arg) in command.args.iter().enumerate() {
        if nul(arg) {
            return Err(invalid(format!(
                "argument {index} of a command holds a NUL byte: {}",
                Quoted::new(arg)
            ))
            .number("index", index)
            .path("argument", arg)
            .hint("pass such data through standard input or a file"));
        }
    }
    let set = command.environment.iter().filter_map(|change| match change {
        Change::Set(name, value) => Some((name.as_os_str(), value.as_os_str())),
        Change::Clear | Change::Remove(_) => None,
    });
    crate::policy::check_environment(set)
}

fn too_large(command: &Command<'_>, size: &Size) -> Error {
    // The kernel's limit on the sum is a quarter of the stack limit, at most 6 MiB (execve(2)).
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    let limit = stack.map_or(6 << 20, |stack| (stack / 4).clamp(128 << 10, 6 << 20));
    let message = match &size.too_long {
        Some(TooLong { length, which: Which::Argument(index) }) => {
            format!("argument {index} of a command is too long: {length} bytes")
        }
        Some(TooLong { length, which: Which::Variable(name) }) => {
            format!("variable `{name}` of the environment of a command is too long: {length} bytes")
        }
        None => format!("arguments and environment of a command are too large: {} bytes", size.total),
    };
    let error = Error::new(ErrorKind::CommandTooLarge, message)
        .path("program", &command.program)
        .number("size", size.total)
        .number("limit", limit)
        .hint(format!(
            "pass the data through standard input or a file: all together at most {limit} bytes, each string less than {STRING_LIMIT}"
        ));
    let Some(TooLong { length, which }) = &size.too_long else { return error };
    let error = error.number("length", *length).number("length_limit", STRING_LIMIT - 1);
    match which {
        Which::Argument(index) => error.number("index", *index),
        Which::Variable(name) => error.text("name", name),
    }
}

fn not_readable(program: &OsStr, outside: PathBuf) -> Error {
    Error::new(
        ErrorKind::CommandNotExecutable,
        format!(
            "the program of a command cannot be executed: {}: {} lies outside of what commands may read",
            Quoted::new(program),
            Quoted::new(&outside)
        ),
    )
    .text("because", "read-scope")
    .hint(format!(
        "add {} to the directories of programs, or the whole installation to the read roots",
        Quoted::new(outside.parent().unwrap_or(&outside))
    ))
    .path("outside", outside)
}

fn not_started(
    command: &Command<'_>,
    step: Step,
    errno: i32,
    size: &Size,
    outside: &dyn Fn() -> Option<PathBuf>,
) -> Error {
    use rustix::io::Errno;
    let program = Quoted::new(&command.program);
    // 0 where no system call decided, which is no `Errno`.
    let answer = Errno::from_io_error(&std::io::Error::from_raw_os_error(errno));
    let outside = match (step, answer) {
        (Step::Exec, Some(Errno::ACCESS)) => outside(),
        _ => None,
    };
    let error = match (step, answer) {
        (Step::Exec, _) if outside.is_some() => not_readable(&command.program, outside.unwrap_or_default()),
        (Step::Exec, Some(answer @ (Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP))) => {
            let error = Error::new(
                ErrorKind::CommandNotFound,
                format!("the program of a command does not exist: {program}"),
            );
            let named = command.program.as_bytes().contains(&b'/');
            if answer == Errno::LOOP {
                error.hint(
                    "its path leads round in a circle of symbolic links: give the path of the file itself",
                )
            } else if answer == Errno::NAMETOOLONG {
                error.hint("its name is longer than the kernel takes: give the path of an existing program")
            } else if named && Path::new(&command.program).exists() {
                error.hint(
                    "the file is there, but its interpreter is not: see its first line, or `readelf -l`",
                )
            } else if named {
                error.hint("give the absolute path of an existing program")
            } else {
                error.hint("give the absolute path, or set `PATH` in the environment of the session")
            }
        }
        (Step::Exec, Some(Errno::TOOBIG)) => return too_large(command, size),
        (Step::Exec, Some(answer @ (Errno::ACCESS | Errno::NOEXEC | Errno::ISDIR | Errno::TXTBSY))) => {
            let hint = match answer {
                Errno::NOEXEC => {
                    "its format is unknown to the kernel: a script needs a first line that names its interpreter"
                }
                Errno::TXTBSY => "something has it open for writing: run it once it has been written",
                _ => "set its execute bit, and see that this user may reach it",
            };
            Error::new(
                ErrorKind::CommandNotExecutable,
                format!("the program of a command cannot be executed: {program}"),
            )
            .hint(hint)
        }
        (Step::WorkingDirectory, _) => Error::new(
            ErrorKind::CwdNotAccessible,
            format!("the working directory of a command cannot be entered: {program}"),
        ),
        (Step::Epoch, _) => Error::new(
            ErrorKind::SessionClosed,
            "the grant of the command takes no more commands: the session is closing, or its launchers were killed",
        ),
        (Step::Launcher | Step::Fork, _) => Error::new(
            ErrorKind::CommandStart,
            format!("cannot start {program}: no process could be made for it"),
        )
        .hint("a limit on processes may be reached, the session's or the host's: end some of what runs"),
        (step, _) => Error::new(ErrorKind::CommandStart, format!("cannot start {program}: {step:?}")),
    };
    let error = error.path("program", &command.program).text("step", format!("{step:?}"));
    if errno == 0 {
        error
    } else {
        error.number("errno", errno).source(std::io::Error::from_raw_os_error(errno))
    }
}

/// Ends a command whose output nobody waits for any more.
struct Foreground(Child, bool);

impl Drop for Foreground {
    fn drop(&mut self) {
        if self.1 {
            self.0.shared.abandon(self.0.command);
        }
    }
}

pub(super) async fn output(command: Command<'_>) -> Result<Output, Error> {
    let (timeout, limit) = (command.timeout, command.output_limit);
    let session = command.session;
    let (child, grant) = {
        let active = session.active.read().await;
        (start(command, &Kind::Piped, &active).await?, Arc::clone(&active.grant))
    };
    let mut foreground = Foreground(child, true);
    let child = &mut foreground.0;
    child.stdin = None;
    let (stdout, stderr) = (child.stdout.take().map(|out| out.0), child.stderr.take().map(|err| err.0));
    let (mut out, mut err) = (Reading::new(stdout, limit), Reading::new(stderr, limit));

    let mut timed_out = false;
    let mut deadline = pin!(async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    });
    let status = loop {
        tokio::select! {
            // In this order: what was written before the end is read before the end is noticed.
            biased;
            read = out.more() => read?,
            read = err.more() => read?,
            status = child.exited() => break status?,
            () = &mut deadline, if !timed_out => {
                timed_out = true;
                child.shared.end_tree(child.command);
            }
        }
    };
    // What it wrote itself is all in the pipes by now.
    out.take_held()?;
    err.take_held()?;
    let still_running = if child.progress.borrow().settled { Vec::new() } else { child.processes().await? };
    let mut marks = child.marks();
    // Once more, for what happened while it ran. What it did is done, so this refuses nothing.
    if !grant.is_untouched()
        && let Err(error) = check(&session.shared, &grant).await
        && let Some(mark) = Mark::of(&error)
        && !marks.contains(&mark)
    {
        marks.push(mark);
    }
    foreground.1 = false;
    Ok(Output {
        status,
        stdout: out.capture.finish(),
        stderr: err.capture.finish(),
        timed_out,
        still_running,
        write_roots: grant.roots().iter().map(|root| root.canonical().to_owned()).collect(),
        marks,
    })
}

/// A stream that is being read.
struct Reading {
    pipe: Option<pipe::Receiver>,
    capture: Capture,
    room: Vec<u8>,
}

impl Reading {
    fn new(pipe: Option<pipe::Receiver>, limit: usize) -> Self {
        Self { pipe, capture: Capture::new(limit), room: Vec::new() }
    }

    /// Reads what is there; never ready once the stream has ended.
    async fn more(&mut self) -> Result<(), Error> {
        let Some(pipe) = &self.pipe else { return std::future::pending().await };
        pipe.readable().await.map_err(read_failed)?;
        self.room.resize(CHUNK, 0);
        // Through the runtime, so that it knows when there is nothing more.
        match pipe.try_read(&mut self.room) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            read => self.took(read).map(drop),
        }
    }

    /// Takes what the pipe holds at this moment, and no more: whoever still has it may write for ever.
    ///
    /// The pipe itself is asked. The runtime may not have looked at it since it was made, and would then say
    /// that there is nothing.
    fn take_held(&mut self) -> Result<(), Error> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        let mut held = rustix::io::ioctl_fionread(pipe).map_err(|errno| read_failed(errno.into()))?;
        self.room.resize(CHUNK, 0);
        while held > 0 {
            let Some(pipe) = &self.pipe else { return Ok(()) };
            let read = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut self.room));
            held = held.saturating_sub(self.took(read.map_err(Into::into))? as u64);
        }
        Ok(())
    }

    fn took(&mut self, read: std::io::Result<usize>) -> Result<usize, Error> {
        let length = read.map_err(read_failed)?;
        if length == 0 {
            self.pipe = None;
        }
        self.capture.push(self.room.get(..length).unwrap_or_default());
        Ok(length)
    }
}

fn read_failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot read the output of a command").ran_something().source(error)
}

/// Names of variables that a session sets itself.
pub(super) const OWN_VARIABLES: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];

/// Refuses a session environment that sets them: it would be without effect.
pub(super) fn check_environment(environment: &Environment) -> Result<(), Error> {
    for name in OWN_VARIABLES {
        if environment.get(name).is_some() {
            return Err(Error::new(
                ErrorKind::EnvInvalid,
                format!("the session sets `{name}` itself, to its temporary directory"),
            )
            .text("name", name)
            .hint("leave it out; set it on a single command where another directory is meant"));
        }
    }
    Ok(())
}
