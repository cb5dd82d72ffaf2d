//! What a session does not keep, it says: the report of enforcement is compared with what really happens.

#![cfg(test)]

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use bailiwick::{ErrorKind, Layer, Network, Protection, Session, Standing};
use bailiwick_test::act::{Scopes, naively};
use bailiwick_test::boundary::{Arena, Denial, run, session};
use bailiwick_test::calls::Calls;
use bailiwick_test::places::{close, open, refused};
use bailiwick_test::pty::Pty;
use bailiwick_test::{Places, Snapshot, cases, fixture};

async fn standing(session: &Session, protection: Protection) -> Standing {
    session.enforcement().await.standing(protection).unwrap().clone()
}

#[track_caller]
fn assert_not_kept(standing: &Standing, was_accepted: bool) {
    let Standing::NotKept { cause, accepted } = standing else { panic!("said to be kept: {standing:?}") };
    assert_eq!(*accepted, was_accepted);
    assert!(!cause.is_empty());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

cases! {
    /// C35: the mode of a file outside changes, and the report says that it may.
    async fn c35_metadata_is_said_not_to_be_kept(world: &World) {
        let file = world.outside_file();
        let session = open(session(world)).await;
        assert_not_kept(&standing(&session, Protection::Metadata).await, true);
        for act in [vec!["chmod", file.to_str().unwrap(), "0666"], vec!["utimes", file.to_str().unwrap()]] {
            let before = Snapshot::of(&file);
            run(&session, &act).await.assert_done();
            before.assert_changed();
        }
        assert_eq!(mode(&file), 0o666);
        assert_eq!(fs::read_to_string(&file).unwrap(), "x");
        close(&session).await;
        naively(&[world.write_root()], Scopes::All, &["chmod", file.to_str().unwrap(), "0600"]).assert_done();
        assert_eq!(mode(&file), 0o600);
    }

    /// C27: a daemon of the host is reached by its named socket, and the report says so. The twin is a
    /// socket inside the root.
    async fn c27_named_sockets_are_said_not_to_be_kept(world: &World) {
        let session = open(session(world)).await;
        assert_not_kept(&standing(&session, Protection::NamedSockets).await, true);
        for directory in [world.outside(), world.write_root()] {
            let path = directory.join("s.sock");
            let listener = UnixListener::bind(&path).unwrap();
            fixture::assert_socket(&path);
            run(&session, &["unix-connect", path.to_str().unwrap()]).await.assert_done();
            let mut received = String::new();
            listener.accept().unwrap().0.read_to_string(&mut received).unwrap();
            assert_eq!(received, "act");
        }
        close(&session).await;
    }

    /// The twin of both: a gap that is not accepted refuses, and only that one is named.
    async fn a_gap_that_is_not_accepted_refuses(world: &World) {
        let places = Places::of(world);
        let bare = || {
            Session::builder(places.private())
                .temporary_parent(places.temporary())
                .write_root(places.write_root())
                ._worker_image(bailiwick_test::image_without_namespaces())
        };
        let gaps = [Protection::Metadata, Protection::NamedSockets];
        let builders = [
            (bare(), vec!["metadata", "named-sockets"]),
            (bare().accept(gaps[0]), vec!["named-sockets"]),
            (bare().accept(gaps[1]), vec!["metadata"]),
        ];
        for (builder, expected) in builders {
            let error = refused(builder.open().await, ErrorKind::ProtectionUnavailable);
            let named = error.field("protections").and_then(|field| field.as_list()).unwrap();
            let named: Vec<_> = named.iter().filter_map(|name| name.as_text()).collect();
            assert_eq!(named, expected);
            places.assert_nothing_left();
        }
        close(&open(bare().accept(gaps[0]).accept(gaps[1])).await).await;
    }

    /// Private storage can be read, and the report says so without being asked.
    async fn hidden_state_is_said_not_to_be_kept(world: &World) {
        let session = open(session(world)).await;
        assert_not_kept(&standing(&session, Protection::HiddenState).await, false);
        let report = run(&session, &["read", world.secret().to_str().unwrap()]).await;
        report.assert_done();
        assert_eq!(report.value, "s");
        close(&session).await;
    }

    /// With the network allowed, the report calls it permitted and a listener on the loopback is reached.
    async fn the_network_is_said_to_be_permitted(world: &World) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let session = open(session(world).network(Network::Allow)).await;
        assert_eq!(standing(&session, Protection::Network).await, Standing::Permitted);
        run(&session, &["tcp-connect", "127.0.0.1", &port]).await.assert_done();
        let mut received = String::new();
        listener.accept().unwrap().0.read_to_string(&mut received).unwrap();
        assert_eq!(received, "act");
        close(&session).await;
    }

    /// A terminal of the same user can neither be read nor written. What was typed stays for its reader.
    async fn terminals_of_the_host_are_out_of_reach(world: &World) {
        let mut pty = Pty::new();
        let held = pty.subordinate();
        pty.type_in("secret\n");
        let read = ["read-some", pty.name()];
        let arena = Arena::open(world, &[Layer::Landlock]).await;
        assert!(arena.whole().enforcement().await.keeps(Protection::Terminals));
        run(arena.whole(), &read).await.assert_refused(&["EACCES"]);
        for flags in [libc::O_RDONLY, libc::O_RDWR, libc::O_WRONLY] {
            let flags = flags | libc::O_NOCTTY | libc::O_NONBLOCK;
            for path in [pty.name(), "/dev/ptmx", "/dev/pts/ptmx", "/dev/console", "/dev/tty0"] {
                let calls = Calls::of(libc::SYS_open, [path.into(), flags.into()]);
                let report = run(arena.whole(), calls.arguments()).await;
                report.assert_refused(&["EACCES", "ENOENT", "EPERM", "ENXIO"]);
            }
        }
        let write =
            Denial::of(&[Layer::Landlock], &["open-append", pty.name()]).harm(|| pty.text().contains("act"));
        arena.denies(&write).await;
        // Nothing was taken away so far; without the layer, the first bytes are.
        let taken = run(arena.without(Layer::Landlock), &read).await;
        taken.assert_done();
        assert_eq!(taken.value, "sec");
        drop(held);
        arena.close().await;
    }

    /// Accepting terminals opens them: a pair of its own, and with it those of the same user, which the
    /// report says.
    async fn accepted_terminals_are_said_not_to_be_kept(world: &World) {
        let denied = open(session(world)).await;
        run(&denied, &["openpty"]).await.assert_refused(&["EACCES"]);
        close(&denied).await;
        let mut pty = Pty::new();
        let _held = pty.subordinate();
        pty.type_in("secret\n");
        let session = open(session(world).accept(Protection::Terminals)).await;
        assert_not_kept(&standing(&session, Protection::Terminals).await, true);
        run(&session, &["openpty"]).await.assert_done();
        assert_eq!(run(&session, &["read-some", pty.name()]).await.value, "sec");
        close(&session).await;
    }

    /// Reading all else goes on: what the rules on single entries of `/` and `/dev` must not take away.
    async fn everything_else_can_be_read(world: &World) {
        let session = open(session(world)).await;
        let script = "cat /etc/passwd /proc/self/comm /proc/meminfo > /dev/null \
            && ls / /dev /dev/pts /sys > /dev/null \
            && head -c 3 /dev/zero | wc -c && head -c 3 < /dev/urandom | wc -c \
            && echo fine | cat /dev/stdin && cat <(echo fine) /dev/fd/3 3<<<fine";
        let output = session
            .command("/bin/bash")
            .args(["-c", script])
            .timeout(Duration::from_secs(20))
            .output()
            .await
            .unwrap();
        assert_eq!(output.stdout.text(), "3\n3\nfine\nfine\nfine\n", "{}", output.stderr.text());
        close(&session).await;
    }
}
