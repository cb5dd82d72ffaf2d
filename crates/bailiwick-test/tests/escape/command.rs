//! What a command is born with equals what `docs/command.md` lists: environment, descriptors, namespaces, mounts, user map,
//! capabilities.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bailiwick::{Network, Session, Stdio};
use bailiwick_test::places::{done, sh};
use bailiwick_test::{Places, case};

use crate::check::{Checker, Worker};
use crate::row::{Mode, act};

const DOCUMENT: &str = include_str!("../../../../docs/command.md");

/// The mounts that can be written, as the document calls them. In it `WRITE ROOT` and `TMPDIR` stand for directories of the
/// session.
const WRITABLE_MOUNTS: &[&str] = &["WRITE ROOT", "TMPDIR", "/dev/ptmx", "/dev/pts", "/dev/shm"];

/// What the items of a section name.
fn listed(section: &str) -> BTreeSet<String> {
    let (_, text) = DOCUMENT.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let items = text.lines().filter_map(|line| line.strip_prefix("- `")?.split_once('`'));
    items.map(|(name, _)| name.to_owned()).collect()
}

/// What a script prints in a background command.
async fn behind(session: &Session, places: &Places, script: &str) -> String {
    let path = places.join("printed");
    let file = fs::File::create(&path).unwrap();
    let command = session.command("/bin/sh").args(["-c", script]).stdout(Stdio::from(file));
    let mut child = command.spawn().await.unwrap();
    assert!(child.wait().await.unwrap().success());
    fs::read_to_string(&path).unwrap()
}

fn host(script: &str) -> String {
    let output = std::process::Command::new("/bin/sh").args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

const NAMESPACES: &str = "cd /proc/self/ns; for name in cgroup ipc mnt net pid time user uts; do echo $name $(readlink $name); done";
const STATUS: &str = "while read -r name value; do case $name in Cap*|NoNewPrivs:|Seccomp:) echo $name $value;; esac; done < /proc/self/status";
const MAPS: &str = "cat /proc/self/uid_map; echo; cat /proc/self/gid_map";
const MOUNTS: &str = "cat /proc/self/mountinfo";

pub(crate) async fn is_as_documented(places: &Places, mode: Mode) {
    let checker = Checker::new(places, mode);
    let session = checker.session(Worker::Whole, Network::Deny).await;
    let is_user_namespace = mode == Mode::Namespaces && !case::is_root();
    for is_behind in [false, true] {
        let print = async |script: &str| {
            if is_behind { behind(&session, places, script).await } else { done(&sh(&session, script).await) }
        };

        let environment = print("env").await;
        let names = environment.lines().map(|line| line.split_once('=').unwrap().0.to_owned()).collect();
        assert_eq!(listed("Environment"), names, "{environment}");

        let act = act!["list-fds"];
        let descriptors = print(&format!("exec '{}' list-fds", act.program.display())).await;
        let report = bailiwick_test::act::Report::parse(&descriptors);
        let numbers = report.value.as_array().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(listed("Descriptors"), numbers);

        let (ours, theirs) = (host(NAMESPACES), print(NAMESPACES).await);
        let pairs = ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| ours != theirs);
        let others: BTreeSet<String> =
            pairs.map(|(ours, _)| ours.split(' ').next().unwrap().to_owned()).collect();
        let mut expected = if mode == Mode::Namespaces { listed("Namespaces") } else { BTreeSet::new() };
        if !is_user_namespace {
            expected.remove("user");
        }
        assert_eq!(expected, others, "{theirs}");

        compare_mounts(places, &session, &print(MOUNTS).await, mode);

        let maps = print(MAPS).await;
        if is_user_namespace {
            let us = rustix::process::getuid().as_raw().to_string();
            let expected: Vec<String> =
                listed("User and group map").iter().map(|line| line.replace("USER", &us)).collect();
            for map in maps.split("\n\n") {
                let lines: Vec<String> =
                    map.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
                assert_eq!(expected, lines);
            }
        } else {
            assert_eq!(maps, host(MAPS));
        }

        let status = print(STATUS).await;
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{name}: {status}")).to_owned()
        };
        let sets = status
            .lines()
            .filter_map(|line| line.split(':').next().filter(|name| name.starts_with("Cap")))
            .map(str::to_owned);
        assert_eq!(listed("Capabilities"), sets.collect());
        for set in listed("Capabilities") {
            // A plain user may not empty it, and has nothing of it.
            if set != "CapBnd" || case::is_root() || is_user_namespace {
                assert_eq!(u64::from_str_radix(&value(&set), 16), Ok(0), "{set}: {status}");
            }
        }
        assert_eq!((value("NoNewPrivs").as_str(), value("Seccomp").as_str()), ("1", "2"));
    }
    checker.end().await;
}

fn compare_mounts(places: &Places, session: &Session, table: &str, mode: Mode) {
    let seen = mounts(table);
    let ours = mounts(&host(MOUNTS));
    if mode == Mode::LandlockOnly {
        assert_eq!(ours, seen);
        return;
    }
    assert_eq!(listed("Mounts"), WRITABLE_MOUNTS.iter().map(ToString::to_string).collect());
    let spelled = |path: &Path| path.to_str().unwrap().to_owned();
    let name = |point: &str| match point {
        point if point == spelled(&places.write_root()) => "WRITE ROOT".to_owned(),
        point if point == spelled(session.temporary_dir()) => "TMPDIR".to_owned(),
        point => point.to_owned(),
    };
    let writable =
        seen.iter().filter(|(_, is_writable)| *is_writable).map(|(point, _)| name(point)).collect();
    assert_eq!(listed("Mounts"), writable, "{table}");
    // And no mount that the host has not, but these, its own `/proc`, and what covers protected objects.
    let known: BTreeSet<&str> = ours.iter().map(|(point, _)| point.as_str()).collect();
    let others = seen.iter().map(|(point, _)| name(point)).filter(|point| !known.contains(point.as_str()));
    for point in others {
        let is_cover =
            Path::new(&point).starts_with(places.path()) && !point.starts_with(&spelled(&places.outside()));
        assert!(WRITABLE_MOUNTS.contains(&point.as_str()) || is_cover, "{point}: {table}");
    }
}

/// Point and whether it can be written, of every mount that no other covers.
fn mounts(table: &str) -> BTreeSet<(String, bool)> {
    let mut points = std::collections::BTreeMap::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let is_writable = fields[5].split(',').any(|option| option == "rw");
        // What was mounted later covers what was there.
        points.insert(fields[4].to_owned(), is_writable);
    }
    points.into_iter().collect()
}
