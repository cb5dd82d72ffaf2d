//! Host programs: a test binary that runs a part of itself in a process of its own, which may then be killed,
//! started with signals ignored, or measured.
//!
//! A file of cases lists its parts in one `host` test, which is ignored by default, and starts them by name.
//! A part talks to its case by [`say`]; standard input, output and error stay free.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::{Map, Value};

use crate::process::{self, GENEROUS};
use crate::{Places, case, tool, wait_until};

/// Names the part to run, and the world to run it on.
const PART: &str = "BAILIWICK_TEST_HOST";
const WORLD: &str = "BAILIWICK_TEST_HOST_WORLD";

/// A part of a test binary that runs as a host program.
pub type Part = fn(&Places);

/// Runs the part that this process was started for; returns at once in a process that was not.
///
/// # Panics
///
/// If there is no such part.
pub fn play(parts: &[(&str, Part)]) {
    let (Ok(wanted), Some(world)) = (std::env::var(PART), std::env::var_os(WORLD)) else { return };
    let Some((_, part)) = parts.iter().find(|(name, _)| *name == wanted) else {
        panic!("no part is called `{wanted}`");
    };
    let places = Places::at(world);
    part(&places);
    say(&places, &proof(std::process::id()), true);
}

/// What a host says last. A test program that runs no test ends well too, so its status proves nothing; and
/// other hosts of the same case may have said theirs.
fn proof(pid: u32) -> String {
    format!("part ended in {pid}")
}

/// Runs a future of a part on a current-thread runtime.
///
/// # Panics
///
/// If the runtime cannot be made.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|error| panic!("make a runtime: {error}")).block_on(future)
}

/// Tells the case something. A later word replaces an earlier one of the same key.
///
/// # Panics
///
/// If it cannot be written.
pub fn say(places: &Places, key: &str, value: impl Into<Value>) {
    let line = format!("{}\n", Value::from(Map::from_iter([(key.to_owned(), value.into())])));
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(said(places))
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("say {line}: {error}"));
}

/// Descriptors, threads, resident memory and zombie children of a process. Descriptors are `null` where this
/// user may not list them: those of a process that is not dumpable, unless root asks.
///
/// # Panics
///
/// If the process cannot be looked at.
#[must_use]
pub fn usage(pid: u32) -> Value {
    let look = |error| panic!("look at process {pid}: {error}");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_else(look);
    let number = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    let zombies =
        process::all().iter().filter(|process| process.parent == pid && process.is_zombie()).count();
    serde_json::json!({
        "descriptors": descriptors,
        "threads": number("Threads"),
        "resident_kib": number("VmRSS"),
        "zombies": zombies,
    })
}

fn said(places: &Places) -> PathBuf {
    places.join("said")
}

/// A host program that was started. Dropping it kills it with all that descends from it.
#[derive(Debug)]
pub struct Host {
    child: Child,
    places: Places,
}

const IN_USER_NAMESPACE: [&str; 3] = ["--user", "--map-current-user", "--keep-caps"];

impl Host {
    /// Describes the run of a part. `test` is the name of the file's `host` test.
    ///
    /// The environment holds `PATH` and `LANG`; the working directory is `/`; standard input is empty;
    /// standard output and error go to `W/../host-output`.
    #[must_use]
    pub fn command(places: &Places, test: &str, part: &str) -> Command {
        Self::wrapped(places, &[], test, part)
    }

    /// The same, started by another program that executes its arguments, such as `env`.
    ///
    /// # Panics
    ///
    /// If its output cannot be prepared.
    #[must_use]
    pub fn wrapped(places: &Places, wrapper: &[&str], test: &str, part: &str) -> Command {
        // By a magic link: the file may lie where this user cannot walk. A wrapper is another program, so it
        // is given the link of this process; without one it is the starting child itself that follows the
        // link, and may be another user by then.
        let program = match wrapper {
            [] => OsString::from("/proc/self/exe"),
            _ => OsString::from(format!("/proc/{}/exe", std::process::id())),
        };
        let mut words = wrapper.iter().map(OsString::from).chain([program]);
        let mut command = Command::new(words.next().unwrap_or_default());
        let output = |()| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(places.join("host-output"))
                .unwrap_or_else(|error| panic!("open the output of a host: {error}"))
        };
        command
            .args(words)
            .args(["--exact", test, "--nocapture", "--include-ignored", "--test-threads=1"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env(PART, part)
            .env(WORLD, places.path())
            // A plain user cannot look for the programs where they were built.
            .envs(std::env::var_os(tool::TOOLS).map(|tools| (tool::TOOLS, tools)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output(()))
            .stderr(output(()));
        command
    }

    /// Describes a run in a mount namespace of its own: what the part mounts is seen by nobody else and ends with
    /// it. A plain user gets a user namespace too, with every capability in that.
    ///
    /// Standard input is the program itself, which a process in another user namespace may not open by the link of
    /// its parent; it finds the programs of [`tool`](crate::tool()) though it has an environment of its own.
    ///
    /// # Panics
    ///
    /// If the program cannot be opened.
    #[must_use]
    pub fn with_own_mounts(places: &Places, test: &str, part: &str) -> Command {
        let mut wrapper = vec!["unshare", "--mount", "--propagation", "private"];
        if !case::is_root() {
            wrapper.extend(IN_USER_NAMESPACE);
        }
        Self::unshared(places, &wrapper, test, part)
    }

    /// Describes a run in a user namespace of its own, with every capability in that; root is root there too.
    ///
    /// # Panics
    ///
    /// If the program cannot be opened.
    #[must_use]
    pub fn in_user_namespace(places: &Places, test: &str, part: &str) -> Command {
        let mut wrapper = vec!["unshare", "--mount", "--propagation", "private"];
        wrapper.extend(IN_USER_NAMESPACE);
        Self::unshared(places, &wrapper, test, part)
    }

    fn unshared(places: &Places, wrapper: &[&str], test: &str, part: &str) -> Command {
        let program =
            File::open("/proc/self/exe").unwrap_or_else(|error| panic!("open this program: {error}"));
        let mut command = Command::new(wrapper[0]);
        let described = Self::command(places, test, part);
        command.args(&wrapper[1..]).arg("/proc/self/fd/0").args(described.get_args()).env_clear();
        command.envs(described.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(tools) = tool::share_all() {
            command.env(tool::TOOLS, tools);
        }
        let output = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(places.join("host-output"))
                .unwrap_or_else(|error| panic!("open the output of a host: {error}"))
        };
        command.current_dir("/").stdin(program).stdout(output()).stderr(output());
        command
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start(places: &Places, mut command: Command) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("start a host: {error}"));
        Self { child, places: places.clone() }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a word.
    ///
    /// # Panics
    ///
    /// If the host ends without it, or does not say it in a generous time.
    #[must_use]
    #[track_caller]
    pub fn hear(&mut self, key: &str) -> Value {
        let mut heard = None;
        let mut ended = None;
        let _never = wait_until(GENEROUS * 4, || {
            // In this order: what it said before it ended is heard.
            ended = self.child.try_wait().ok().flatten();
            heard = self.heard(key);
            heard.is_some() || ended.is_some()
        });
        heard.unwrap_or_else(|| {
            panic!("the host did not say `{key}` (ended: {ended:?}); its output:\n{}", self.output())
        })
    }

    /// Waits for a process id.
    ///
    /// # Panics
    ///
    /// As [`hear`](Self::hear), and if it is no process id.
    #[must_use]
    #[track_caller]
    pub fn hear_pid(&mut self, key: &str) -> u32 {
        let value = self.hear(key);
        let pid = value.as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.unwrap_or_else(|| panic!("`{key}` is no process id: {value}"))
    }

    /// What it said last under a key.
    #[must_use]
    pub fn heard(&self, key: &str) -> Option<Value> {
        let text = std::fs::read_to_string(said(&self.places)).ok()?;
        // A line that is still being written has no end yet.
        let whole = text.get(..text.rfind('\n')? + 1)?;
        let lines = whole.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find_map(|line| line.get(key).cloned())
    }

    /// Kills the host alone, as a crash would.
    ///
    /// # Panics
    ///
    /// If it cannot be waited for.
    pub fn kill(&mut self) {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.unwrap_or_else(|error| panic!("kill a host: {error}"));
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// If it does not end in a generous time.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = wait_until(GENEROUS * 4, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        assert!(ended, "the host does not end; its output:\n{}", self.output());
        status.unwrap_or_default()
    }

    /// Waits for its end and asserts that it ended well.
    ///
    /// # Panics
    ///
    /// If not, with its output.
    #[track_caller]
    pub fn finish(mut self) {
        let status = self.wait();
        assert!(status.success(), "the host failed ({status}); its output:\n{}", self.output());
        let proved = self.heard(&proof(self.pid())).is_some();
        assert!(proved, "the host ran no part to its end; its output:\n{}", self.output());
    }

    /// What it printed.
    #[must_use]
    pub fn output(&self) -> String {
        let mut text = Vec::new();
        let read =
            File::open(self.places.join("host-output")).and_then(|mut file| file.read_to_end(&mut text));
        match read {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("(cannot be read: {error})"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            process::kill_tree(self.child.id());
            let _gone = self.child.wait();
        }
    }
}
