//! C32: no way to start a command forgets the policy: the outcome depends on the policy and on nothing else.

#![cfg(test)]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::{Network, Session, Stdio};
use bailiwick_test::boundary::session;
use bailiwick_test::places::{close, open};
use bailiwick_test::pty::Pty;
use bailiwick_test::{Listing, Places, World, cases, tool};
use tokio::io::AsyncWriteExt as _;

#[derive(Debug, Clone, Copy)]
enum Mode {
    Foreground,
    Background,
    Terminal,
}

/// One way to run one command.
#[derive(Debug, Clone, Copy)]
struct Cell {
    mode: Mode,
    has_timeout: bool,
    has_stdin: bool,
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for mode in [Mode::Foreground, Mode::Background, Mode::Terminal] {
        for has_timeout in [false, true] {
            for has_stdin in [false, true] {
                cells.push(Cell { mode, has_timeout, has_stdin });
            }
        }
    }
    cells
}

/// Writes outside, into private storage and into the root, connects, and tells how each went. With input,
/// it waits for a line of it first.
fn script(world: &World, port: u16, has_stdin: bool) -> String {
    let attempt =
        |name: &str, act: String| format!("{act} 2>/dev/null && echo {name}=done || echo {name}=refused\n");
    let write = |path: PathBuf| format!("{{ echo w > {}; }}", path.display());
    let connect = format!("{} tcp-connect 127.0.0.1 {port} | grep -q '\"ok\":true'", tool("act").display());
    let mut script = if has_stdin { "read -r line && echo line=$line\n".to_owned() } else { String::new() };
    for (name, act) in [
        ("outside", write(world.outside().join("w"))),
        ("private", write(world.private().join("w"))),
        ("connect", connect),
        ("root", write(world.write_root().join("w"))),
        ("temporary", "echo w > $TMPDIR/w".to_owned()),
    ] {
        script.push_str(&attempt(name, act));
    }
    script.push_str("echo end\n");
    script
}

async fn play(session: &Session, script: &str, cell: Cell) -> String {
    let mut command = session.command("/bin/sh").args(["-c", script]);
    if cell.has_timeout {
        command = command.timeout(Duration::from_secs(30));
    }
    match cell.mode {
        Mode::Foreground if !cell.has_stdin => command.output().await.unwrap().stdout.text().into_owned(),
        Mode::Foreground => {
            let (ours, theirs) = std::io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
            let command = command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
            std::io::Write::write_all(&mut { ours }, b"given\n").unwrap();
            command.output().await.unwrap().stdout.text().into_owned()
        }
        Mode::Background => {
            if cell.has_stdin {
                command = command.stdin(Stdio::piped());
            }
            let mut child = command.stdout(Stdio::piped()).spawn().await.unwrap();
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(b"given\n").await.unwrap();
            }
            let mut text = String::new();
            let mut stdout = child.stdout.take().unwrap();
            tokio::io::AsyncReadExt::read_to_string(&mut stdout, &mut text).await.unwrap();
            assert!(child.wait().await.unwrap().success());
            child.settled().await.unwrap();
            text
        }
        Mode::Terminal => {
            let mut pty = Pty::new();
            let stream = || Stdio::from(pty.subordinate());
            command = command.stdout(stream()).stderr(stream());
            if cell.has_stdin {
                command = command.stdin(stream());
            }
            let mut child = command.spawn().await.unwrap();
            if cell.has_stdin {
                pty.type_in("given\n");
            }
            assert!(child.wait().await.unwrap().success());
            pty.expect("end\n");
            // The terminal shows what was typed, too.
            pty.text()
                .lines()
                .filter(|line| line.contains('=') || *line == "end")
                .map(|line| format!("{line}\n"))
                .collect()
        }
    }
}

async fn matrix(world: &World, network: Network) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let more: Vec<PathBuf> = (1..5).map(|number| world.path().join(format!("W{number}"))).collect();
    more.iter().for_each(|root| fs::create_dir(root).unwrap());
    let outside = Listing::of(world.outside());
    for roots in [0_usize, 1, 5] {
        let places = Places::of(world);
        let mut builder = if roots == 0 { places.bare_session() } else { session(world) };
        builder = builder.write_roots(more.iter().take(roots.saturating_sub(1))).network(network);
        let session = open(builder).await;
        assert_eq!(session.write_roots().await.len(), roots);
        let private = Listing::of(world.private());
        let root = if roots == 0 { "refused" } else { "done" };
        let connect = if network == Network::Allow { "done" } else { "refused" };
        for cell in cells() {
            let _absent = fs::remove_file(world.write_root().join("w"));
            let line = if cell.has_stdin { "line=given\n" } else { "" };
            let expected = format!(
                "{line}outside=refused\nprivate=refused\nconnect={connect}\n\
                 root={root}\ntemporary=done\nend\n"
            );
            let told = play(&session, &script(world, port, cell.has_stdin), cell).await;
            assert_eq!(told, expected, "{roots} roots, {network:?}, {cell:?}");
            // What the script tells is compared with the world.
            outside.assert_unchanged();
            private.assert_unchanged();
            assert_eq!(world.write_root().join("w").exists(), roots > 0, "{cell:?}");
            assert_eq!(listener.accept().is_ok(), network == Network::Allow, "{cell:?}");
            assert!(listener.accept().is_err());
        }
        close(&session).await;
    }
}

cases! {
    /// C32 under `deny`: 36 ways.
    async fn c32_network_denied(world: &World) {
        matrix(world, Network::Deny).await;
    }

    /// C32 under `allow`: 36 ways.
    async fn c32_network_allowed(world: &World) {
        matrix(world, Network::Allow).await;
    }
}
