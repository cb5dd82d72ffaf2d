//! Temporary directories: C41, C42, C43.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use bailiwick::Session;
use bailiwick_test::act::Report;
use bailiwick_test::case::PLAIN_UID;
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::{Listing, Need, Places, cases, process, requires, root_cases, tool};

/// Runs a script in a session of a host whose own `TMPDIR` is unset, `/tmp`, missing, and in the store; then
/// without `TMPDIR` in `/tmp` granted, which is what a plain wrapper would need.
fn in_every_host(places: &Places, script: &str, expected: &str) {
    fs::create_dir_all(places.private().join("tmp")).unwrap();
    let [missing, in_store] = [places.join("missing"), places.private().join("tmp")];
    for host_has in [None, Some(Path::new("/tmp")), Some(&missing), Some(&in_store), Some(Path::new(""))] {
        let mut command = Host::command(places, "host", "script");
        command.env("SCRIPT", script);
        if let Some(value) = host_has {
            command.env("TMPDIR", value).env("TMP", value).env("TEMP", value);
        }
        let mut host = Host::start(places, command);
        assert_eq!(host.hear("output"), expected, "the host's TMPDIR is {host_has:?}");
        host.finish();
        fs::remove_file(places.join("said")).unwrap();
        places.assert_nothing_left();
        assert_eq!(fs::read_dir(&in_store).unwrap().count(), 0);
        assert!(!missing.exists());
    }
}

cases! {
    /// C41: `TMPDIR`, `TMP` and `TEMP` name one existing directory of mode 0700, which is gone after close;
    /// mktemp and a here-document of 70 kB work, whatever the host's own variables say.
    fn c41_mktemp_and_here_documents(world: &World) {
        let places = Places::of(world);
        let script = r#"
            set -e
            [ "$TMPDIR" = "$TMP" ] && [ "$TMPDIR" = "$TEMP" ] && [ "$HOME" = "$TMPDIR" ]
            stat -c '%a %F' "$TMPDIR"
            d=$(mktemp -d); f=$(mktemp); case $d$f in "$TMPDIR"/*"$TMPDIR"/*) echo inside;; esac
            echo x > $d/x; cat $d/x
            text=$(head -c 70000 /dev/zero | tr '\0' x)
            bash -c "cat <<E | wc -c
$text
E"
        "#;
        in_every_host(&places, script, "700 directory\ninside\nx\n70001\n");
    }

    /// C41: the compiler writes its intermediate files there.
    fn c41_gcc(world: &World) {
        requires!(Need::Gcc, "compiles");
        let places = Places::of(world);
        let script = "printf '#include <stdio.h>\\nint main(void) { puts(\"built\"); }\\n' > m.c && gcc -O1 m.c -o m && ./m";
        in_every_host(&places, script, "built\n");
    }

    /// C41: node's own idea of the temporary directory.
    fn c41_node(world: &World) {
        requires!(Need::Node, "runs a script");
        let places = Places::of(world);
        let script = r#"node -e "
            const fs = require('fs'), os = require('os'), path = require('path');
            const made = fs.mkdtempSync(path.join(os.tmpdir(), 'x'));
            fs.writeFileSync(path.join(made, 'f'), 'y');
            console.log(path.dirname(made) === process.env.TMPDIR, fs.readFileSync(path.join(made, 'f'), 'utf8'));
        ""#;
        in_every_host(&places, script, "true y\n");
    }

    /// C41: python's.
    fn c41_python(world: &World) {
        requires!(Need::Python3, "runs a script");
        let places = Places::of(world);
        let script = r#"/usr/bin/env python3 -c "
import os, tempfile
with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile() as none:
    file.write(b'x'); none.write(b'y')
    print(os.path.dirname(file.name) == tempfile.gettempdir() == os.environ['TMPDIR'], os.path.isdir(made))
""#;
        in_every_host(&places, script, "True True\n");
    }

    /// The directory is one for each session, and a command finds it as it was left by the one before.
    async fn one_for_each_session(world: &World) {
        let places = Places::of(world);
        let first = places.open().await;
        let second = open(
            Session::builder(places.join("store2"))
                .write_root(places.write_root())
                .temporary_parent(places.temporary())
                .accept(bailiwick::Protection::Metadata)
                .accept(bailiwick::Protection::NamedSockets),
        ).await;
        assert_ne!(first.temporary_dir(), second.temporary_dir());
        done(&sh(&first, "echo first > $TMPDIR/f").await);
        assert_eq!(done(&sh(&first, "cat $TMPDIR/f").await), "first\n");
        let foreign = first.temporary_dir().join("f");
        let denied = sh(&second, &format!("echo second > {}", foreign.display())).await;
        assert!(!denied.status.success());
        assert_eq!(fs::read(&foreign).unwrap(), b"first\n");
        // Not the directory itself, nor its neighbours.
        let renamed = sh(&first, "mv $TMPDIR $TMPDIR.old || rmdir $TMPDIR || echo x > $TMPDIR/../x").await;
        assert!(!renamed.status.success());
        first.replace_write_roots([places.outside()]).await.unwrap();
        assert_eq!(done(&sh(&first, "cat $TMPDIR/f && rm $TMPDIR/f && ls -A $TMPDIR").await), "first\n");
        for session in [first, second] {
            close(&session).await;
            assert!(!session.temporary_dir().exists());
        }
        places.assert_nothing_left();
    }

    /// C42: somebody puts a link in its place while the session is open. Removing it touches nothing else.
    async fn c42_replaced_by_a_link(world: &World) {
        let places = Places::of(world);
        fs::create_dir(places.outside().join("dir")).unwrap();
        let before = Listing::of(places.outside());
        let session = places.open().await;
        let temporary = session.temporary_dir().to_owned();
        done(&sh(&session, "mkdir -p $TMPDIR/a/b && echo x > $TMPDIR/a/b/x && ln -s / $TMPDIR/root && ln -s .. $TMPDIR/up").await);
        let aside = places.join("aside");
        fs::rename(&temporary, &aside).unwrap();
        symlink(places.outside(), &temporary).unwrap();
        let output = sh(&session, "echo planted > $TMPDIR/planted").await;
        assert!(!output.status.success());
        close(&session).await;
        before.assert_unchanged();
        // The directory was emptied where it is now; the name that leads elsewhere is not ours to remove.
        assert_eq!(fs::read_dir(&aside).unwrap().count(), 0);
        fs::remove_file(&temporary).unwrap();
        places.assert_nothing_left();
    }

    /// What commands leave there goes, however it is protected: closed directories, deep ones, links, sockets,
    /// names that are no UTF-8.
    async fn removed_whatever_is_in_it(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let script = r"cd $TMPDIR
            mkdir -p closed/inner && echo x > closed/inner/x && ln -s / closed/link && chmod 0 closed/inner closed
            i=0; d=.; while [ $i -lt 200 ]; do d=$d/deep-directory-name; i=$((i+1)); done; mkdir -p $d && echo x > $d/x
            mkfifo fifo && touch -- $(printf 'a\377b') '-rf' '...' && mkdir .hidden && chmod 1777 .hidden";
        done(&sh(&session, script).await);
        done(&session.command(tool("act")).args(["unix-listen", "socket"]).current_dir(session.temporary_dir())
            .output().await.unwrap());
        assert!(session.temporary_dir().join("socket").exists());
        close(&session).await;
        places.assert_nothing_left();
    }

    /// C43: with store and root of 180 bytes, sockets deep below `TMPDIR` can be bound and connected to.
    async fn c43_socket_paths(world: &World) {
        let places = Places::of(world);
        let long = |name: &str| {
            let mut path = places.join(name);
            while path.as_os_str().len() < 140 {
                path.push("a".repeat(30));
            }
            path.push("b".repeat(180 - path.as_os_str().len() - 1));
            assert_eq!(path.as_os_str().len(), 180);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            path
        };
        let (store, root) = (long("store"), long("root"));
        for parent in [places.temporary(), PathBuf::from("/tmp")] {
            let session = open(Session::builder(&store)
                .write_root(&root)
                .temporary_parent(parent)
                .accept(bailiwick::Protection::Metadata)
                .accept(bailiwick::Protection::NamedSockets)).await;
            assert!(session.temporary_dir().as_os_str().len() <= 48);
            let directory = session.temporary_dir().join("a".repeat(16));
            let socket = directory.join(format!("{}.sock", "b".repeat(16)));
            assert!(socket.as_os_str().len() <= 107);
            done(&sh(&session, &format!("mkdir {}", directory.display())).await);
            let act = |words: &[&str]| session.command(tool("act")).args(words.iter().copied()).arg(&socket);
            let mut listening = act(&["unix-listen"]).arg("600").spawn().await.unwrap();
            while !process::listens(listening.id(), &socket) {
                assert!(listening.try_wait().unwrap().is_none());
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            Report::parse(&*act(&["unix-connect"]).output().await.unwrap().stdout).assert_done();
            listening.kill().await.unwrap();
            // The control: a path of the root's own length is what cannot be bound, with or without a session.
            let too_long = root.join("s");
            let output = session.command(tool("act")).arg("unix-listen").arg(&too_long).output().await.unwrap();
            assert!(!output.status.success() || !Report::parse(&*output.stdout).ok);
            close(&session).await;
        }
    }
}

root_cases! {
    /// C42: root and a plain user open sessions at the same time, in both orders, in one and the same parent.
    fn c42_two_users(world: &World) {
        let places = Places::of(world);
        let user = Places::at(places.join("u"));
        for directory in ["u", "u/P", "u/W", "u/X", "u/T"] {
            fs::create_dir(places.join(directory)).unwrap();
            chown(places.join(directory), Some(PLAIN_UID), Some(PLAIN_UID)).unwrap();
        }
        fs::set_permissions(user.private(), fs::Permissions::from_mode(0o700)).unwrap();
        for root_first in [true, false] {
            let start = |is_root: bool| {
                let places = if is_root { &places } else { &user };
                let mut command = Host::command(places, "host", "in_tmp");
                if !is_root {
                    command.uid(PLAIN_UID).gid(PLAIN_UID);
                }
                let mut host = Host::start(places, command);
                let directory = host.hear("temporary");
                (host, PathBuf::from(directory.as_str().unwrap()))
            };
            let (mut one, first) = start(root_first);
            let (mut other, second) = start(!root_first);
            assert_ne!(first, second);
            for (directory, is_root) in [(&first, root_first), (&second, !root_first)] {
                let found = fs::metadata(directory).unwrap();
                assert_eq!((found.mode() & 0o7777, found.uid() == 0), (0o700, is_root));
            }
            for host in [&mut one, &mut other] {
                assert_eq!(host.hear("output"), "mine\n");
            }
            for places in [&places, &user] {
                fs::write(places.join("go"), "").unwrap();
            }
            one.finish();
            other.finish();
            assert!(!first.exists() && !second.exists());
            for places in [&places, &user] {
                fs::remove_file(places.join("said")).unwrap();
                fs::remove_file(places.join("go")).unwrap();
            }
        }
    }
}

/// Runs the script that the environment holds.
fn script(places: &Places) {
    let script = std::env::var("SCRIPT").unwrap();
    host::block_on(async {
        let session = places.open().await;
        let output = sh(&session, &script).await;
        let errors = output.stderr.text();
        assert!(output.status.success(), "{}: {errors}", output.status);
        say(places, "output", output.stdout.text().into_owned());
        close(&session).await;
    });
}

/// Opens with the default parent, and closes when told.
fn in_tmp(places: &Places) {
    host::block_on(async {
        let session = open(
            Session::builder(places.private())
                .write_root(places.write_root())
                .accept(bailiwick::Protection::Metadata)
                .accept(bailiwick::Protection::NamedSockets),
        )
        .await;
        assert_eq!(session.temporary_dir().parent(), Some(Path::new("/tmp")));
        say(places, "temporary", session.temporary_dir().to_str().unwrap());
        say(places, "output", done(&sh(&session, "echo mine > $TMPDIR/x && cat $TMPDIR/x").await));
        while !places.join("go").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        close(&session).await;
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("script", script), ("in_tmp", in_tmp)]);
}
