//! An agent's day in a session, on a small repository with history.
//!
//! `cargo run --release --bin agent` needs `git`, `cargo` and `node`. Every step says what it shows, and the
//! program fails if one turns out otherwise.
#![expect(clippy::print_stdout, reason = "an example talks to a person")]

mod stage;

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::{Session, Stdio};
use stage::{Stage, check, host};
use tokio::io::AsyncWriteExt as _;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// What the agent adds to the library of the repository.
const EDIT: &str = "
impl Tally {
    /// How many lines were added in all.
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }
}

#[test]
fn the_total_counts_every_line() {
    let mut tally = Tally::default();
    [\"pear\", \"apple\", \"pear\"].iter().for_each(|line| tally.add(line));
    assert_eq!(tally.total(), 3);
}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let stage = Stage::new();
    let place = tempfile::Builder::new().prefix("agent-").tempdir()?;
    let (work, store) = (place.path().join("tally"), place.path().join("session"));
    let outside = place.path().join("notes.txt");
    std::fs::write(&outside, "the host's own\n")?;

    stage.title("A repository with history");
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("tally.bundle");
    host("git", ["clone", "--quiet"], [&bundle, &work])?;
    stage.say(&format!("cloned into {}", work.display()));

    stage.title("Open a session that may write there, and nowhere else");
    let session = open(&store, &work).await?;
    for line in session.enforcement().await.to_string().lines() {
        stage.detail(line);
    }

    stage.title("Turn 1: edit, build, test, commit");
    append(&session, "src/lib.rs", EDIT).await?;
    stage.ran("appended a method and its test to src/lib.rs");
    for command in [
        &["cargo", "test", "--offline", "--quiet"][..],
        &["node", "--test"],
        &["git", "checkout", "--quiet", "-b", "total"],
        &["git", "commit", "--quiet", "--all", "--message", "Count all lines"],
        &["git", "merge", "--quiet", "--no-edit", "origin/feature/top"],
        &["git", "log", "--oneline", "-3"],
    ] {
        let output = run(&session, command).await?;
        check(output.status.success(), &format!("`{}` failed: {}", command.join(" "), output.stderr.text()))?;
        stage.ran(&command.join(" "));
        if command[1] == "log" {
            output.stdout.text().lines().for_each(|line| stage.detail(line));
        }
    }

    stage.title("What it may not do");
    leave(&stage, &session, &outside, &store).await?;

    stage.title("Turn 2: the roots are narrowed to the report");
    session.replace_write_roots([work.join("report")]).await?;
    append(&session, "report/NOTES.md", "Reviewed.\n").await?;
    stage.ran("wrote report/NOTES.md");
    refused(&stage, &session, "echo // >> src/lib.rs", "write to src/lib.rs, which turn 1 could").await?;

    stage.title("A process is left behind, detached");
    let script = "(setsid sh -c 'trap \"\" TERM HUP; sleep 600 & exec sleep 600' > /dev/null 2>&1 &)";
    let output = run(&session, &["sh", "-c", script]).await?;
    check(output.status.success(), "the detaching command failed")?;
    // Until both have become what they are to be.
    let mut left = session.processes().await?;
    while left.iter().filter(|process| process.name == "sleep").count() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        left = session.processes().await?;
    }
    for process in &left {
        stage.detail(&format!("still running: {} `{}`", process.pid, process.name));
    }

    stage.title("Close");
    let report = session.close().await?;
    for closed in &report.processes {
        stage.ran(&format!("{:?}: {} `{}`", closed.ending, closed.process.pid, closed.process.name));
        let proc = format!("/proc/{}", closed.process.pid);
        check(!Path::new(&proc).exists(), &format!("process {} is still there", closed.process.pid))?;
    }
    check(report.killed() >= 2, "the detached processes were not among those that close ended")?;
    check(std::fs::read(&outside)? == b"the host's own\n", "a file outside of the roots was changed")?;
    stage.title("Nothing is left, and nothing outside was changed");
    Ok(())
}

async fn open(store: &Path, work: &Path) -> Outcome<Session> {
    Ok(Session::builder(store)
        .write_root(work)
        .env("PATH", path()?)
        .envs([("GIT_AUTHOR_NAME", "Agent"), ("GIT_AUTHOR_EMAIL", "agent@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Agent"), ("GIT_COMMITTER_EMAIL", "agent@example.org")])
        .open()
        .await?)
}

/// The real toolchain before its proxies, which look for their settings in a home that is not the session's.
fn path() -> Outcome<OsString> {
    let sysroot = host("rustc", ["--print", "sysroot"], [])?;
    let programs = PathBuf::from(sysroot.trim_end()).join("bin");
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&inherited)))?)
}

/// The working directory is that of the first turn throughout, as an agent's is.
async fn run(session: &Session, command: &[&str]) -> Outcome<bailiwick::Output> {
    let (program, args) = command.split_first().ok_or("no program")?;
    let mut command = session.command(*program).args(args).timeout(Duration::from_secs(120));
    let roots = session.write_roots().await;
    if let Some(work) = roots.first().and_then(|root| root.ancestors().find(|dir| dir.join(".git").exists()))
    {
        command = command.current_dir(work);
    }
    Ok(command.output().await?)
}

/// Writes through the standard input of a confined command.
async fn append(session: &Session, file: &str, text: &str) -> Outcome {
    let roots = session.write_roots().await;
    let root = roots.first().ok_or("no write root")?;
    let work = root.ancestors().find(|dir| dir.join(".git").exists()).ok_or("no repository")?;
    let mut child = session
        .command("tee")
        .args(["--append", file])
        .current_dir(work)
        .stdin(Stdio::piped())
        .spawn()
        .await?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    stdin.write_all(text.as_bytes()).await?;
    drop(stdin);
    check(child.wait().await?.success(), &format!("cannot write {file}"))
}

/// Tries to get out, in several ways.
async fn leave(stage: &Stage, session: &Session, outside: &Path, store: &Path) -> Outcome {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let host = std::process::id();
    let (outside, store) = (outside.display(), store.display());
    for (script, what) in [
        (format!("echo mine > {outside}"), "overwrite a file beside the repository"),
        (
            format!("ln -s {outside} link && echo mine > link"),
            "overwrite it through a link in the repository",
        ),
        (format!("echo forged >> {store}/lock"), "write into the session's own store"),
        (format!("kill -KILL {host}"), "kill the host"),
        (format!("node -e 'require(\"net\").connect({port}, \"127.0.0.1\")'"), "connect to this machine"),
        ("unshare --user true".to_owned(), "make a namespace"),
    ] {
        refused(stage, session, &script, what).await?;
    }
    listener.set_nonblocking(true)?;
    check(listener.accept().is_err(), "a connection arrived")
}

async fn refused(stage: &Stage, session: &Session, script: &str, what: &str) -> Outcome {
    let output = run(session, &["sh", "-c", script]).await?;
    check(!output.status.success(), &format!("it could {what}"))?;
    let errors = output.stderr.text();
    // By what refuses it here: a read-only mount, Landlock or the filter, or a process that is not there.
    let known = ["ermi", "EPERM", "Read-only", "No such process"];
    let reason =
        errors.lines().find(|line| known.iter().any(|words| line.contains(words))).unwrap_or_default();
    check(!reason.is_empty(), &format!("trying to {what} failed for another reason: {errors}"))?;
    stage.refused(what, reason.trim());
    Ok(())
}
