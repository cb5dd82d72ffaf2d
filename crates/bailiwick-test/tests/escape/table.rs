//! The table as a whole, and as a document.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bailiwick::{Layer, Network};

use crate::row::{Actors, ComesAlong, Mode, Row};
use crate::{everybody, files, kernel, machine, metadata, objects, outlive, processes, sockets};

/// A part of the table. Each is a test of its own, so that they run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Files,
    Metadata,
    Processes,
    Sockets,
    Objects,
    Kernel,
    Machine,
    Everybody,
    Outlive,
}

const PARTS: [(Part, &str, &[Row]); 9] = [
    (Part::Files, "Content and names", files::ROWS),
    (Part::Metadata, "Metadata", metadata::ROWS),
    (Part::Processes, "Other processes", processes::ROWS),
    (Part::Everybody, "Every process at once", everybody::ROWS),
    (Part::Outlive, "Outliving the session", outlive::ROWS),
    (Part::Sockets, "Daemons and sockets", sockets::ROWS),
    (Part::Objects, "Shared objects, terminals and devices", objects::ROWS),
    (Part::Kernel, "The kernel and privileges", kernel::ROWS),
    (Part::Machine, "The machine", machine::ROWS),
];

pub(crate) fn rows(part: Part) -> Vec<&'static Row> {
    PARTS.iter().filter(|(known, ..)| *known == part).flat_map(|(_, _, rows)| rows.iter()).collect()
}

/// The rows that need no surroundings of their own.
pub(crate) fn ordinary_rows() -> Vec<&'static Row> {
    let apart = [Part::Machine, Part::Everybody, Part::Outlive];
    PARTS.iter().filter(|(part, ..)| !apart.contains(part)).flat_map(|(_, _, rows)| rows.iter()).collect()
}

fn all() -> impl Iterator<Item = &'static Row> {
    PARTS.iter().flat_map(|(_, _, rows)| rows.iter())
}

fn names(layers: impl IntoIterator<Item = Layer>) -> String {
    layers.into_iter().map(Layer::name).collect::<Vec<_>>().join(", ")
}

fn stopped_by(row: &Row, mode: Mode) -> String {
    let layers = if mode == Mode::Namespaces { Some(row.spaces) } else { row.plain };
    let Some(layers) = layers else { return format!("not kept: {}", row.breaks.name()) };
    let mut text = names(layers.iter().copied());
    if let Some((plain, spaces)) = row.root_instead {
        let root = if mode == Mode::Namespaces { spaces } else { plain };
        let _never_fails = write!(text, "; from root {}", names(root.iter().copied()));
    } else if !row.from_root.is_empty() {
        let _never_fails = write!(text, "; from root also {}", names(row.from_root.iter().copied()));
    }
    text
}

fn with_namespaces(row: &Row) -> String {
    match row.comes_along {
        None => with_layers(row),
        Some(ComesAlong::User) => format!("{}; from a plain user also the user namespace", with_layers(row)),
        Some(ComesAlong::Names) => format!("{}; the session's own names", with_layers(row)),
    }
}

fn with_layers(row: &Row) -> String {
    if row.is_given {
        "permitted: the caller gave the descriptor".to_owned()
    } else {
        stopped_by(row, Mode::Namespaces)
    }
}

fn without_namespaces(row: &Row) -> String {
    match row.network {
        Network::Loopback => "no such session".to_owned(),
        _ if row.is_given => "permitted".to_owned(),
        _ => stopped_by(row, Mode::LandlockOnly),
    }
}

fn user(row: &Row) -> &'static str {
    match (row.actors, row.everybody_if.is_some()) {
        (Actors::Root, _) => "the host itself",
        (Actors::All, true) => "or the host itself",
        (Actors::All, false) => "yes",
    }
}

const HEAD: &str = "\
# The escape suite

Attempts of a command to leave its write boundary, each made by `crates/bailiwick-test/tests/escape`: in the foreground and
in the background while another command runs, as root and as a plain user, with namespaces and without. Generated from the
table of that suite: run it with `BAILIWICK_TEST_BLESS=1`.

Every attempt is also made without confinement, where it must happen, or a refusal would prove nothing. Each layer that is
named stops it by itself: a session that lacks the others that are named still refuses it. Without all that are named it must
happen, so nothing else stops it. Without any layer every attempt must happen, or the suite would not notice an escape.

- *the user namespace* and *the session's own names* come with any namespace of a session, and no layer has their name: the
  attempt happens once all namespaces are left out besides.
- *keeper*, *hygiene* and *capabilities* cannot be left out where they stand for how the worker starts programs (closing
  descriptors more than once, `no_new_privs`): then the attempt is refused without any other layer too.
- *not kept*: nothing stops it there; `enforcement()` says so by that name, and the session is refused unless the policy
  accepts that.
- *plain user*: `yes` if a plain user could do it without confinement too. `the host itself` if the kernel refuses a plain
  user anyway, which is tried all the same.
";

fn document() -> String {
    let mut text = HEAD.to_owned();
    for (_, title, rows) in PARTS {
        let _never_fails = write!(
            text,
            "\n## {title}\n\n| id | tries | stopped, with namespaces, by | without namespaces, by | plain user |\n|---|---|---|---|---|\n"
        );
        for row in rows {
            let Row { id, tries, .. } = row;
            let (with, without, user) = (with_namespaces(row), without_namespaces(row), user(row));
            let _never_fails = writeln!(text, "| {id} | {tries} | {with} | {without} | {user} |");
        }
    }
    text
}

#[test]
fn the_table() {
    println!("{:34} {:60} stopped by", "id", "tries");
    for row in all() {
        println!("{:34} {:60} {}", row.id, row.tries, with_namespaces(row));
    }
    let ids: BTreeSet<&str> = all().map(|row| row.id).collect();
    assert_eq!(ids.len(), all().count(), "an id is given twice");
    assert!(ids.len() >= 90, "{}", ids.len());
    for row in all() {
        let is_kebab =
            row.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        assert!(is_kebab && !row.tries.contains('|'), "{}", row.id);
        // With namespaces nothing is left that no layer stops.
        assert!(row.is_given || !row.spaces.is_empty(), "{} is stopped by nothing", row.id);
    }
}

#[test]
fn the_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/escape-suite.md");
    let current = document();
    if std::env::var_os("BAILIWICK_TEST_BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == current, "docs/escape-suite.md differs: run this test with BAILIWICK_TEST_BLESS=1");
}
