//! Control groups: a session with limits for all its processes together, opened by hosts that may make a group for it
//! and by hosts that may not.
#![expect(clippy::print_stdout, reason = "a host says on its output what it found")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick::{ErrorKind, SessionBuilder, SessionLimit, SessionLimitStanding};
use serde_json::{Value, json};

use crate::attempt::{refusal, session};
use crate::boot::put;

/// First argument of a run that is a host of these scenes.
pub(crate) const CHILD: &str = "group-host";

const TOP: &str = "/sys/fs/cgroup";
const MEMORY: u64 = 32 << 20;
const PROCESSES: u64 = 20;
const PLAIN_UID: u32 = 61234;

pub(crate) fn run(say: &mut impl FnMut(Value)) {
    let mut scene = |name: &str, host: &Host<'_>| {
        let line = host.run();
        say(json!({ "scene": format!("groups {name}"), "host": line, "left": left(Path::new(TOP)) }));
    };
    let top = Host { group: TOP, parent: None, accepts: false, uid: 0, is_killed: false };
    scene("none mounted", &top);
    put("cgroup", TOP, "cgroup2", c"");
    scene("topmost", &top);
    // Handed on to all that follows.
    fs::write(format!("{TOP}/cgroup.subtree_control"), "+memory +pids").unwrap();
    let (busy, unit) = (format!("{TOP}/busy"), format!("{TOP}/unit"));
    let leaf = format!("{unit}/host");
    for group in [&busy, &unit, &leaf] {
        fs::create_dir(group).unwrap();
    }
    let in_busy = Host { group: &busy, ..top };
    scene("internal", &in_busy);
    scene("internal, accepted", &Host { accepts: true, ..in_busy });
    let in_unit = Host { group: &leaf, parent: Some(&unit), ..top };
    scene("named", &in_unit);
    scene("killed", &Host { is_killed: true, ..in_unit });
    let plain = Host { uid: PLAIN_UID, ..in_unit };
    scene("not delegated", &plain);
    for (group, files) in
        [(&unit, &["cgroup.procs", "cgroup.subtree_control"][..]), (&leaf, &["cgroup.procs"])]
    {
        for name in files.iter().copied().chain(["."]) {
            chown(Path::new(group).join(name), Some(PLAIN_UID), Some(PLAIN_UID)).unwrap();
        }
    }
    scene("delegated", &plain);
    scene("delegated, killed", &Host { is_killed: true, ..plain });
    // Delegated, and yet out of reach: the group above both belongs to somebody else.
    scene("not entered", &Host { group: &busy, ..plain });
}

/// A host, the group that it is in, and what it asks for.
#[derive(Clone, Copy)]
struct Host<'a> {
    group: &'a str,
    parent: Option<&'a str>,
    accepts: bool,
    uid: u32,
    /// It is killed while its session is open.
    is_killed: bool,
}

impl Host<'_> {
    fn run(&self) -> Value {
        let procs = |group: &str| format!("{group}/cgroup.procs");
        let is_mounted = Path::new(&procs(TOP)).exists();
        if is_mounted {
            fs::write(procs(self.group), "0").unwrap();
        }
        let words = [self.parent.unwrap_or_default(), if self.accepts { "accept" } else { "" }];
        let mut child = Command::new("/init")
            .arg(CHILD)
            .args(words)
            .arg(if self.is_killed { "wait" } else { "" })
            .uid(self.uid)
            .gid(self.uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if is_mounted {
            fs::write(procs(TOP), "0").unwrap();
        }
        let mut said = String::new();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        answers.read_line(&mut said).unwrap();
        let mut line: Value = serde_json::from_str(&said).unwrap();
        if self.is_killed && line["granted"] == true {
            let group = PathBuf::from(line["group"].as_str().unwrap());
            line["was_there"] = group.exists().into();
            child.kill().unwrap();
            child.wait().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while group.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            line["gone"] = (!group.exists()).into();
        } else {
            assert!(child.wait().unwrap().success(), "{line}");
        }
        line
    }
}

/// Groups of sessions below a group.
fn left(group: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(group).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            let name = entry.file_name().into_string().unwrap();
            found.extend(left(&entry.path()));
            found.extend(name.starts_with("bailiwick-").then_some(name));
        }
    }
    found
}

/// The host.
pub(crate) fn child() {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [parent, accepts, waits] = <[String; 3]>::try_from(words).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let place = PathBuf::from(format!("/tmp/groups-{uid}"));
    fs::create_dir_all(place.join("W")).unwrap();
    let builder = || {
        let mut builder = session(place.join("store").to_str().unwrap())
            .write_root(place.join("W"))
            .memory_max(MEMORY + 1)
            .processes_max(PROCESSES);
        if !parent.is_empty() {
            builder = builder.group_parent(&parent);
        }
        let accepted = SessionLimit::ALL.iter().filter(|_| !accepts.is_empty());
        accepted.fold(builder, |builder, limit| builder.accept_limit(*limit))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let said = runtime.block_on(try_limits(builder(), !waits.is_empty()));
    println!("{said}");
}

async fn try_limits(builder: SessionBuilder, waits: bool) -> Value {
    let session = match builder.open().await {
        Ok(session) => session,
        Err(error) => return refusal(&error),
    };
    let limits = session.limits().await.session;
    let group = limits.iter().find_map(|limit| match &limit.standing {
        SessionLimitStanding::Kept { group, .. } => Some(group.clone()),
        _ => None,
    });
    let mut line = json!({ "granted": true, "limits": limits, "group": group });
    if waits {
        let kept = session.command("/bin/act").args(["pause", "300"]).spawn().await.unwrap();
        println!("{line}");
        std::io::stdout().flush().unwrap();
        // For ever: nobody writes.
        std::io::stdin().read_exact(&mut [0]).unwrap();
        drop(kept);
    }
    let Some(group) = group else {
        session.close().await.unwrap();
        return line;
    };
    let file = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default().trim().to_owned();
    let files = ["memory.max", "memory.swap.max", "pids.max"].map(|name| (name, file(name)));
    line["files"] = files.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect();
    let mine = std::process::id().to_string();
    line["holds_host"] = file("cgroup.procs").lines().any(|pid| pid == mine).into();
    for (name, bytes) in [("fits", MEMORY / 4), ("beyond", MEMORY * 2)] {
        let held =
            session.command("/bin/act").args(["hold-memory", &bytes.to_string()]).output().await.unwrap();
        line[name] = held.status.success().into();
    }
    let mut running = Vec::new();
    let refused = loop {
        match session.command("/bin/act").args(["pause", "300"]).spawn().await {
            Ok(child) if running.len() < 40 => running.push(child),
            Ok(_) => break None,
            Err(error) => break Some(error.kind()),
        }
    };
    line["ran"] = running.len().into();
    line["refused"] = (refused == Some(ErrorKind::CommandStart)).into();
    line["count"] = file("pids.current").into();
    // One more can run once there is room: the worker may take the place of one that ended for the next command.
    for _ in 0..2 {
        running.pop().unwrap().kill().await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut again = false;
    while !again && Instant::now() < deadline {
        let tried = session.command("/bin/act").args(["pause", "0"]).output().await;
        again = tried.is_ok();
        line["again_said"] = tried.err().map(|error| error.report().to_string()).into();
    }
    line["again"] = again.into();
    session.close().await.unwrap();
    line["gone"] = (!group.exists()).into();
    line
}
