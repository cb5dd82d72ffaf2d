//! One body, two users: what [`cases!`](crate::cases) expands to.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::remove::remove_tree;
use crate::world::fresh_directory;
use crate::{Need, Toolchain, World, ledger, process, tool};

/// The uid and gid of plain runs started by root. Above 61000, so that it names no account of a usual
/// machine (systemd's dynamic users begin at 61184 and are made only on demand).
pub const PLAIN_UID: u32 = 61234;

/// How long a plain run may take unless its case says otherwise.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Says to a re-run that it is one.
const ROLE: &str = "BAILIWICK_TEST_ROLE";

/// Names the file in which a re-run leaves the proof that its body ran to the end.
const PROOF: &str = "BAILIWICK_TEST_PROOF";

/// Beside the proof, the file in which a re-run lists the directories of `/tmp` that it makes.
const WORLDS: &str = "worlds";

/// One test of a case: a name, a body, and how its plain run is made.
#[derive(Debug)]
pub struct Case {
    test: &'static str,
    body: fn(&World),
    uid: u32,
    limit: Duration,
    binaries: Vec<(&'static str, PathBuf)>,
}

impl Case {
    /// A case as the macros make it. `test` is the path of the test function, crate name included.
    #[must_use]
    pub fn new(test: &'static str, body: fn(&World)) -> Self {
        // libtest names tests without the crate.
        let test = test.split_once("::").map_or(test, |(_crate, rest)| rest);
        Case { test, body, uid: PLAIN_UID, limit: TIME_LIMIT, binaries: Vec::new() }
    }

    /// Sets the uid and gid of the plain run.
    ///
    /// # Panics
    ///
    /// If `uid` is not above 61000: such a uid may belong to somebody.
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        assert!(uid > 61000, "the uid of a plain run must be above 61000, not {uid}");
        self.uid = uid;
        self
    }

    /// Sets the time limit of the plain run, in seconds.
    #[must_use]
    pub fn seconds(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Says where cargo put a binary of the tested package, if it said so at compile time.
    #[must_use]
    pub fn binary(mut self, name: &'static str, path: Option<&'static str>) -> Self {
        self.binaries.extend(path.map(|path| (name, PathBuf::from(path))));
        self
    }

    /// Runs the body as root, or records that this run is not root's.
    pub fn as_root(self) {
        ledger::name_test(self.test);
        if ledger::met(Need::Root, "runs the case as root") {
            self.run();
        }
        self.prove();
    }

    /// Runs the body as a plain user: here, or in a re-run when this process is root's. A case with a uid of
    /// its own needs root for that, and is a recorded skip without.
    ///
    /// # Panics
    ///
    /// If the body fails, does not end in time, or leaves processes under a uid of its own.
    pub fn as_user(self) {
        ledger::name_test(self.test);
        if !is_root() {
            // A case that asks for a uid of its own must not run under somebody's account.
            let is_its_own = self.uid == PLAIN_UID || rustix::process::geteuid().as_raw() == self.uid;
            if is_its_own || ledger::met(Need::Root, "runs the case under a uid of its own") {
                self.run();
            }
            return self.prove();
        }
        tool::register(&self.binaries);
        let rerun = Rerun { uid: Some(self.uid), ..Rerun::new(self.test, self.limit) };
        if let Err(failure) = rerun.run() {
            panic!("{failure}");
        }
    }

    fn run(&self) {
        tool::register(&self.binaries);
        let world = World::new();
        (self.body)(&world);
    }

    /// Leaves the proof that the test function came to its end, if this is a re-run.
    fn prove(&self) {
        if let Some(proof) = std::env::var_os(PROOF) {
            fs::write(&proof, proof_of(self.test))
                .unwrap_or_else(|error| panic!("write the proof {}: {error}", Path::new(&proof).display()));
        }
    }
}

/// Whether this process is effectively root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets this process and all that it starts hold at most `count` processes and threads of its uid.
///
/// # Panics
///
/// If this process is root, whom the limit does not bind, or if the kernel refuses the limit.
pub fn limit_processes(count: u64) {
    assert!(!is_root(), "RLIMIT_NPROC does not bind root");
    let limit = rustix::process::Rlimit { current: Some(count), maximum: Some(count) };
    rustix::process::setrlimit(rustix::process::Resource::Nproc, limit)
        .unwrap_or_else(|error| panic!("set RLIMIT_NPROC to {count}: {error}"));
}

/// A run of one test of this very binary in a process of its own.
///
/// The program is `/proc/self/exe`, which needs no path that the other user could walk. The working
/// directory is `/`; the environment holds `PATH`, `HOME` (a directory of the run), `LANG` and the variables
/// of this crate.
#[derive(Debug)]
pub struct Rerun<'a> {
    /// Name of the test as libtest knows it.
    pub test: &'a str,
    /// uid and gid of the run; `None` keeps those of this process.
    pub uid: Option<u32>,
    /// How long the run may take before it and its descendants are killed.
    pub limit: Duration,
    /// Value of `BAILIWICK_TEST_REQUIRE`; `None` hands on that of this process.
    pub require: Option<&'a str>,
    /// Where skips of the run are recorded; `None` is the ledger of this process.
    pub ledger: Option<&'a Path>,
}

impl<'a> Rerun<'a> {
    /// A run as the same user, with this process's ledger and requirements.
    #[must_use]
    pub fn new(test: &'a str, limit: Duration) -> Self {
        Rerun { test, uid: None, limit, require: None, ledger: None }
    }

    /// Runs the test to its end.
    ///
    /// # Errors
    ///
    /// A [`Failure`] with the run's output if the test failed, was not found, exceeded the time limit, or
    /// left processes alive under a uid that only it uses.
    ///
    /// # Panics
    ///
    /// If the run could not be prepared or started.
    pub fn run(&self) -> Result<(), Failure> {
        let scratch = Scratch::new(self.uid);
        let status = self.start_and_wait(&scratch);
        let left = self.end_leftovers();
        scratch.remove_worlds();

        // Skips are handed on even when the run failed: they may be the reason.
        if let Ok(skips) = fs::read(scratch.path("ledger")) {
            match self.ledger {
                Some(path) => ledger::append(path, &skips),
                None => ledger::append(&ledger::path(), &skips),
            }
        }
        let what = match status {
            None => What::Late(self.limit),
            Some(status) if !status.success() => What::Failed(status),
            // libtest also ends well when no test bears the name.
            Some(_) if fs::read(scratch.path("proof")).ok().as_deref() != Some(&proof_of(self.test)) => {
                What::NotRun
            }
            Some(_) if left > 0 => What::Left(left),
            Some(_) => return Ok(()),
        };
        let mut output = scratch.text("stdout");
        output.push_str(&scratch.text("stderr"));
        Err(Failure { test: self.test.to_owned(), uid: self.uid, what, output })
    }

    fn start_and_wait(&self, scratch: &Scratch) -> Option<ExitStatus> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["--exact", self.test, "--nocapture", "--include-ignored", "--test-threads=1"])
            .env_clear()
            .envs(self.environment(scratch))
            .current_dir("/")
            .stdin(std::process::Stdio::null())
            // Files and not pipes: a process that the test left behind could hold a pipe open for ever.
            .stdout(scratch.file("stdout"))
            .stderr(scratch.file("stderr"));
        if let Some(uid) = self.uid {
            // std also drops the supplementary groups when root sets a uid.
            command.gid(uid).uid(uid);
        }
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!(
                "run {} again as uid {:?}: {error}; its file must be executable by everyone (umask 022)",
                self.test, self.uid
            )
        });
        let deadline = Instant::now() + self.limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => break,
                Err(error) => panic!("wait for the run of {}: {error}", self.test),
            }
        }
        process::kill_tree(child.id());
        if let Err(error) = child.wait() {
            panic!("wait for the killed run of {}: {error}", self.test);
        }
        None
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, std::ffi::OsString)> {
        let mut variables = vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".into()),
            ("HOME", scratch.path("home").into()),
            ("LANG", "C.UTF-8".into()),
            (ROLE, "user".into()),
            (PROOF, scratch.path("proof").into()),
            (ledger::LEDGER, scratch.path("ledger").into()),
        ];
        let handed_on = |name| std::env::var_os(name).map(|value| (name, value));
        match self.require {
            Some(needs) => variables.push((ledger::REQUIRE, needs.into())),
            None => variables.extend(handed_on(ledger::REQUIRE)),
        }
        variables.extend(handed_on("RUST_BACKTRACE"));
        variables.extend(tool::share_all().map(|directory| (tool::TOOLS, directory.into())));
        variables.extend(Toolchain::find().map(|found| (Toolchain::VARIABLE, found.root().into())));
        variables
    }

    /// Kills what runs under a uid that no other test uses, and says how many that were.
    fn end_leftovers(&self) -> usize {
        let Some(uid) = self.uid.filter(|uid| *uid != PLAIN_UID) else { return 0 };
        let alive = || process::all().into_iter().filter(|one| one.uid == uid && !one.is_zombie());
        let left = alive().count();
        let settled = process::wait_until(Duration::from_secs(20), || {
            alive().for_each(|one| process::kill(one.pid));
            alive().next().is_none()
        });
        assert!(settled, "processes of uid {uid} do not die: {:?}", alive().collect::<Vec<_>>());
        left
    }
}

/// Why a re-run does not count as passed.
#[derive(Debug)]
pub struct Failure {
    test: String,
    uid: Option<u32>,
    what: What,
    output: String,
}

#[derive(Debug)]
enum What {
    Failed(ExitStatus),
    Late(Duration),
    NotRun,
    Left(usize),
}

impl Failure {
    /// Standard output and standard error of the run.
    #[must_use]
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Whether the run was killed at its time limit.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self.what, What::Late(_))
    }

    /// Whether the run ended well without having run the body to its end.
    #[must_use]
    pub fn is_not_run(&self) -> bool {
        matches!(self.what, What::NotRun)
    }

    /// How many processes the run left alive under its own uid.
    #[must_use]
    pub fn left_behind(&self) -> usize {
        if let What::Left(count) = self.what { count } else { 0 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "{} as uid {uid}: ", self.test)?,
            None => write!(f, "{}: ", self.test)?,
        }
        match &self.what {
            What::Failed(status) => write!(f, "failed ({status})")?,
            What::Late(limit) => write!(f, "killed after its time limit of {} s", limit.as_secs())?,
            What::NotRun => write!(f, "ended well, but its body did not run to the end")?,
            What::Left(count) => write!(f, "passed, but left {count} processes behind")?,
        }
        write!(f, "; its output:\n{}", self.output)
    }
}

impl std::error::Error for Failure {}

/// Notes a directory that this re-run has made, so that its starter can remove it should this run be killed.
pub(crate) fn note_world(path: &Path) {
    let Some(proof) = std::env::var_os(PROOF) else { return };
    let line = format!("{}\n", path.display());
    ledger::append(&Path::new(&proof).with_file_name(WORLDS), line.as_bytes());
}

fn proof_of(test: &str) -> Vec<u8> {
    format!("{test} ran to its end").into_bytes()
}

/// What a re-run needs on disk: a home, its output, its ledger, its proof. Owned by the user of the run.
struct Scratch {
    directory: PathBuf,
    uid: Option<u32>,
}

impl Scratch {
    fn new(uid: Option<u32>) -> Self {
        let scratch = Scratch { directory: fresh_directory("bw-run"), uid };
        let made = fs::create_dir(scratch.path("home"))
            .and_then(|()| fs::set_permissions(&scratch.directory, fs::Permissions::from_mode(0o700)))
            .and_then(|()| scratch.give(&scratch.path("home")))
            .and_then(|()| scratch.give(&scratch.directory));
        made.unwrap_or_else(|error| panic!("prepare {}: {error}", scratch.directory.display()));
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Removes what a killed run could not remove itself.
    fn remove_worlds(&self) {
        let listed = fs::read_to_string(self.path(WORLDS)).unwrap_or_default();
        let ours = |path: &&Path| {
            path.to_str().is_some_and(|path| path.starts_with("/tmp/bw-") && !path.contains(".."))
        };
        listed.lines().map(Path::new).filter(ours).for_each(remove_tree);
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        self.uid.map_or(Ok(()), |uid| chown(path, Some(uid), Some(uid)))
    }

    fn file(&self, name: &str) -> File {
        let path = self.path(name);
        File::create(&path)
            .and_then(|file| self.give(&path).map(|()| file))
            .unwrap_or_else(|error| panic!("create {}: {error}", path.display()))
    }

    fn text(&self, name: &str) -> String {
        fs::read(self.path(name)).map_or_else(
            |error| format!("({name} cannot be read: {error})\n"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_tree(&self.directory);
    }
}
