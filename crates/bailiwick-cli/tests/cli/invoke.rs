//! Calls of the program, in an environment that the test alone decides.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use bailiwick_test::{World, process, tool, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What a host without namespaces must accept, and no other.
pub(crate) const GAPS: [&str; 4] = ["--accept", "metadata", "--accept", "named-sockets"];

/// What there is to see of a call that has ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    /// The status line; null where none was asked for or written.
    pub(crate) json: Value,
}

impl Outcome {
    fn new(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { status: output.status, stdout: output.stdout, stderr, json: Value::Null }
    }

    /// The exit status.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("a signal ended the program: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as one JSON document in one line.
    #[track_caller]
    pub(crate) fn document(&self) -> Value {
        assert_eq!(self.text().matches('\n').count(), 1, "{self:?}");
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that bailiwick refused before anything ran, with this code, in text and status line alike.
    #[track_caller]
    pub(crate) fn assert_refused(&self, code: &str) {
        assert_eq!(self.code(), 125, "{self:?}");
        assert!(self.stderr.contains(&format!("code: {code}")), "{self:?}");
        assert!(self.stderr.contains("no command was run"), "{self:?}");
        if !self.json.is_null() {
            assert_eq!(self.json["outcome"], "refused", "{self:?}");
            assert_eq!(self.json["code"], code, "{self:?}");
            assert_eq!(self.json["ran"], "nothing", "{self:?}");
            assert!(self.json.get("exit_code").is_none() && self.json.get("pid").is_none(), "{self:?}");
        }
    }

    /// Asserts that the command ran and exited with this status.
    #[track_caller]
    pub(crate) fn assert_exited(&self, code: i32) {
        assert_eq!(self.code(), code, "{self:?}");
        if !self.json.is_null() {
            assert_eq!(self.json["outcome"], "exited", "{self:?}");
            assert_eq!(self.json["exit_code"], code, "{self:?}");
        }
    }
}

/// The home of a world, empty at first.
pub(crate) fn home(world: &World) -> PathBuf {
    let home = world.path().join("home");
    fs::create_dir_all(&home).unwrap();
    home
}

/// The program, with a home and a search path and nothing else of an environment, started in `W`.
pub(crate) fn bailiwick(world: &World) -> Command {
    let mut command = Command::new(tool("bailiwick"));
    prepare(&mut command, world);
    command
}

fn prepare(command: &mut Command, world: &World) {
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home(world))
        .current_dir(world.write_root())
        .stdin(Stdio::null());
}

/// The same command on a host without namespaces: in a user namespace that may make none.
pub(crate) fn without_namespaces(command: &Command) -> Command {
    const LIMIT: &str = "for kind in user mnt pid ipc uts net; do \
                         echo 0 > /proc/sys/user/max_${kind}_namespaces || exit 99; done; exec \"$@\"";
    let mut limited = Command::new("unshare");
    limited.args(["--user", "--map-current-user", "--keep-caps", "/bin/sh", "-c", LIMIT, "sh"]);
    limited.arg(command.get_program()).args(command.get_args()).env_clear().stdin(Stdio::null());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn outcome(command: &mut Command) -> Outcome {
    Outcome::new(command.output().unwrap_or_else(|error| panic!("run {command:?}: {error}")))
}

/// A call of `bailiwick run` with a status line, accepted gaps, and `W` as its write root.
pub(crate) struct Call {
    /// A shell that opens descriptor 3 and becomes the program.
    pub(crate) shell: Command,
    status: PathBuf,
}

impl Call {
    /// With these options beside the usual ones.
    pub(crate) fn new(world: &World, options: &[&str]) -> Self {
        let root = world.write_root();
        let mut usual = vec!["--write-root", root.to_str().unwrap()];
        usual.extend(GAPS);
        usual.extend(options);
        Self::plain(world, &usual)
    }

    /// With exactly these options.
    pub(crate) fn plain(world: &World, options: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let status = world.path().join(format!("status-{}-{number}", std::process::id()));
        let mut shell = Command::new("/bin/sh");
        prepare(&mut shell, world);
        shell.args(["-c", "exec \"$@\" 3>\"$0\""]).arg(&status).arg(tool("bailiwick"));
        shell.args(["run", "--json-status", "3"]).args(options).arg("--");
        Self { shell, status }
    }

    /// On a host without namespaces.
    pub(crate) fn without_namespaces(mut self) -> Self {
        self.shell = without_namespaces(&self.shell);
        self
    }

    /// Runs this command to its end.
    #[track_caller]
    pub(crate) fn end(mut self, command: &[&str]) -> Outcome {
        let output = self.shell.args(command).output().unwrap();
        self.with_status(Outcome::new(output))
    }

    /// Runs a shell script to its end.
    #[track_caller]
    pub(crate) fn script(self, script: &str) -> Outcome {
        self.end(&["sh", "-c", script])
    }

    /// Starts a shell script.
    #[track_caller]
    pub(crate) fn start(mut self, script: &str) -> Running {
        self.shell.args(["sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.shell.spawn().unwrap();
        Running { child, call: self }
    }

    #[track_caller]
    fn with_status(&self, outcome: Outcome) -> Outcome {
        let text = fs::read_to_string(&self.status).unwrap_or_default();
        if text.is_empty() {
            return outcome;
        }
        assert!(text.ends_with('\n') && text.matches('\n').count() == 1, "not one line: {text:?}");
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        Outcome { json, ..outcome }
    }
}

/// A call that goes on.
pub(crate) struct Running {
    pub(crate) child: Child,
    call: Call,
}

impl Running {
    /// Sends the program a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Outcome {
        let output = self.child.wait_with_output().unwrap();
        self.call.with_status(Outcome::new(output))
    }
}

/// Waits until a file holds a whole line, and reads it.
#[track_caller]
pub(crate) fn line_in(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let read = || fs::read_to_string(path).unwrap_or_default();
    assert!(wait_until(process::GENEROUS, || read().ends_with('\n')), "no line in {}", path.display());
    read().trim_end().to_owned()
}

/// A process that is alive now, and can be asked for later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alive {
    pub(crate) pid: u32,
    start_time: u64,
}

impl Alive {
    /// The process whose pid the file holds.
    #[track_caller]
    pub(crate) fn in_file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let inside = line_in(path).parse().unwrap();
        let world = path.parent().and_then(Path::parent).unwrap();
        let pid = process::number_of(world, inside).unwrap_or_else(|| panic!("{inside} is not alive"));
        let start_time = process::start_time(pid).unwrap_or_else(|| panic!("{pid} is not alive"));
        Self { pid, start_time }
    }

    pub(crate) fn gone(self) -> bool {
        process::pid_gone(self.pid, self.start_time)
    }
}

/// Everything below a directory, as paths relative to it.
pub(crate) fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                pending.push(path.clone());
            }
            found.push(path.strip_prefix(directory).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

/// A file for writing, made anew.
pub(crate) fn file(path: impl AsRef<Path>) -> File {
    File::create(path).unwrap()
}
