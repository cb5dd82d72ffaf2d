//! `bailiwick explain` where the store has another name: what it says, and that the ways out which it names work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick_test::{Need, World, cases, requires, root_cases, tool};
use serde_json::Value;

use crate::invoke::home;

/// A layout, made by a shell in the directory that holds `P`, `W` and `X`, and what is said of it.
struct Layout {
    setup: &'static str,
    store: &'static str,
    root: &'static str,
    /// Kind of the fact, as in the document.
    fact: &'static str,
    /// What the fact says of the alias; empty where nothing was proved.
    alias: &'static str,
    other_names: &'static [&'static str],
    code: &'static str,
    hint: &'static str,
    /// For each way out of the hint: what the user does, and which root and store are meant then.
    remedies: &'static [(&'static str, &'static str, &'static str)],
}

const UNDO_NOTHING: &str = "true";

/// Text and document of one `explain`, and those of the same after a remedy.
struct Answers {
    text: String,
    document: Value,
    code: i32,
    after: Value,
}

fn ask(world: &World, layout: &Layout, remedy: &(&str, &str, &str), private: bool) -> Answers {
    let (act, root, store) = remedy;
    let base = world.path();
    let explain = |store: &str, root: &str, options: &str| {
        let (store, root) = (base.join(store), base.join(root));
        format!(
            "\"$BAILIWICK\" explain {options} --store '{}' --write-root '{}'",
            store.display(),
            root.display()
        )
    };
    let script = format!(
        "set -e; {setup}; {words} > text || :; code=0; {document} > document || code=$?; echo $code > code; \
         {act}; {after} > after || :",
        setup = layout.setup,
        words = explain(layout.store, layout.root, ""),
        document = explain(layout.store, layout.root, "--json"),
        after = explain(store, root, "--json"),
    );
    let mut command = if private { Command::new("unshare") } else { Command::new("sh") };
    if private {
        command.args(["--mount", "--propagation", "private", "sh"]);
    }
    let output = command
        .args(["-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", home(world))
        .env("BAILIWICK", tool("bailiwick"))
        .current_dir(base)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| fs::read_to_string(base.join(name)).unwrap();
    Answers {
        text: read("text"),
        document: serde_json::from_str(&read("document")).unwrap(),
        code: read("code").trim().parse().unwrap(),
        after: serde_json::from_str(&read("after")).unwrap(),
    }
}

/// Asks, looks at both forms of the answer, and follows each way out.
fn assert_explained(world: &World, layout: &Layout, private: bool) {
    let at = |name: &str| -> PathBuf { world.path().join(name) };
    for remedy in layout.remedies {
        let Answers { text, document, code, after } = ask(world, layout, remedy, private);
        assert_eq!((code, &document["granted"]), (125, &false.into()), "{document}");
        let root = &document["roots"][0];
        assert_eq!((&root["given"], &root["decision"]), (&path(&at(layout.root)), &"refused".into()));
        let comparisons = root["comparisons"].as_array().unwrap();
        let store = comparisons.iter().find(|one| one["protected_kind"] == "store").unwrap();
        assert_eq!(store["protected"], path(&at(layout.store)));
        let fact = &store["fact"][layout.fact];
        assert!(fact.is_object(), "{store}");
        if layout.fact == "unproven" {
            assert!(
                store["relation"].is_null() && fact["why"].as_str().unwrap().contains(layout.alias),
                "{store}"
            );
        } else {
            assert_eq!(store["relation"], "alias", "{store}");
        }
        if layout.fact == "seen" {
            assert_eq!(fact["alias"], layout.alias, "{store}");
        }
        let names: Vec<Value> = layout.other_names.iter().map(|name| path(&at(name))).collect();
        assert_eq!(store["other_names"], Value::from(names), "{store}");
        let refusal = &root["refusals"][0];
        assert_eq!(refusal["code"], layout.code);
        let hint = refusal["hints"][0].as_str().unwrap();
        assert_eq!(hint.replace(world.path().to_str().unwrap(), ""), layout.hint);
        // The same in words.
        let mut words = vec![
            format!("write root 0 `{}`: refused", at(layout.root).display()),
            at(layout.store).display().to_string(),
            "(store)".to_owned(),
            format!("code: {}", layout.code),
            format!("hint: {hint}"),
        ];
        words.extend(layout.other_names.iter().map(|name| at(name).display().to_string()));
        for words in words {
            assert!(text.contains(&words), "{words}: {text}");
        }
        // The way out.
        assert_eq!(after["granted"], true, "{}: {after}", remedy.0);
    }
}

fn path(path: &Path) -> Value {
    path.to_str().unwrap().into()
}

root_cases! {
    /// The store is mounted in the root.
    fn a_mount(world: &World) {
        assert_explained(world, &Layout {
            setup: "mkdir -p W/in W/other; mount --bind P W/in",
            store: "P",
            root: "W",
            fact: "seen",
            alias: "mount",
            other_names: &["W/in"],
            code: "ERR_BAILIWICK_ROOT_OVERLAP",
            hint: "grant directories below `/W` that do not hold `/W/in`, or unmount `/W/in`",
            remedies: &[(UNDO_NOTHING, "W/other", "P"), ("umount W/in", "W", "P")],
        }, true);
    }

    /// A file of the store is mounted on a file in the root.
    fn a_mount_of_one_file(world: &World) {
        assert_explained(world, &Layout {
            setup: "mkdir -p W/other; touch W/f; mount --bind P/db W/f",
            store: "P",
            root: "W",
            fact: "seen",
            alias: "mount",
            other_names: &["W/f"],
            code: "ERR_BAILIWICK_ROOT_OVERLAP",
            hint: "grant directories below `/W` that do not hold `/W/f`, or unmount `/W/f`",
            remedies: &[(UNDO_NOTHING, "W/other", "P"), ("umount W/f", "W", "P")],
        }, true);
    }

    /// The root is what an overlay with the store in it is made of.
    fn a_layer_of_an_overlay(world: &World) {
        assert_explained(world, &Layout {
            setup: "mkdir -p O/l O/u/S O/w O/m; mount -t overlay o -o lowerdir=$PWD/O/l,upperdir=$PWD/O/u,workdir=$PWD/O/w O/m",
            store: "O/m/S",
            root: "O/u",
            fact: "seen",
            alias: "overlay-layer",
            other_names: &["O/u"],
            code: "ERR_BAILIWICK_ROOT_OVERLAP",
            hint: "grant a directory outside of `/O/u`, or keep the store on a file system that is no overlay",
            remedies: &[(UNDO_NOTHING, "W", "O/m/S"), (UNDO_NOTHING, "O/u", "P")],
        }, true);
    }

    /// The overlay's options do not say where its layers are, and the root is one.
    fn a_layer_of_an_overlay_with_relative_paths(world: &World) {
        assert_explained(
            world,
            &Layout {
                setup: "mkdir -p O/l O/u/S O/w O/m; (cd O; mount -i -t overlay o -o lowerdir=l,upperdir=u,workdir=w m)",
                store: "O/m/S",
                root: "O/u",
                fact: "unproven",
                alias: "relative path",
                other_names: &[],
                code: "ERR_BAILIWICK_ROOT_UNPROVABLE",
                hint: "keep the store on a file system that is no overlay, or mount the overlay with absolute paths",
                remedies: &[
                    (UNDO_NOTHING, "O/u", "P"),
                    (
                        "umount O/m; mount -t overlay o -o lowerdir=$PWD/O/l,upperdir=$PWD/O/u,workdir=$PWD/O/w O/m",
                        "W",
                        "O/m/S",
                    ),
                ],
            },
            true,
        );
    }

    /// A program serves the store in the root, or something else: nobody can tell.
    fn a_file_system_that_a_program_serves(world: &World) {
        requires!(Need::Fuse, "serves a directory by a program");
        assert_explained(
            world,
            &Layout {
                // The program lives as long as its file system is mounted.
                setup: "mkdir -p W/in W/other; bindfs -f P W/in & until mountpoint -q W/in; do sleep 0.05; done; \
                        trap 'if mountpoint -q W/in; then umount W/in; fi; wait' EXIT",
                store: "P",
                root: "W",
                fact: "unproven",
                alias: "fuse",
                other_names: &[],
                code: "ERR_BAILIWICK_ROOT_UNPROVABLE",
                hint: "grant a directory on a local file system such as ext4, xfs or btrfs, with nothing else mounted in it",
                remedies: &[(UNDO_NOTHING, "W/other", "P"), ("umount W/in", "W", "P")],
            },
            true,
        );
    }
}

cases! {
    /// A file of the store has another name in the root.
    fn a_hard_link(world: &World) {
        assert_explained(world, &Layout {
            setup: "mkdir -p W/deep; ln -f P/db W/deep/b",
            store: "P",
            root: "W",
            fact: "linked",
            alias: "hard-link",
            other_names: &["W/deep/b"],
            code: "ERR_BAILIWICK_ROOT_OVERLAP",
            hint: "remove the other names in the root, or give `/P/db` an inode of its own (copy it, and move the copy to its name)",
            remedies: &[("rm W/deep/b", "W", "P"), ("cp -p P/db P/db.copy; mv P/db.copy P/db", "W", "P")],
        }, false);
    }
}
