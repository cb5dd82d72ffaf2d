//! C28: signals and abstract sockets stop at the session. Inside it they reach every command.

#![cfg(test)]

use std::cell::RefCell;
use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::{ErrorKind, Layer, WhenBusy};
use bailiwick_test::act::{self, Scopes, naively};
use bailiwick_test::boundary::{Arena, Denial, Victim, run, session};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{Need, World, cases, requires, tool, wait_until};

const SCOPE: &[Layer] = &[Layer::Scope];

/// Has the kernel send a signal on the caller's behalf: input on a descriptor that another process "owns".
fn signal_by_input(world: &World, pid: u32, signal: i32) -> Calls {
    const F_SETSIG: i32 = 10;
    let root = world.write_root();
    let _removed = std::fs::remove_file(root.join("tick"));
    let command = |command: i32, argument: Word| [Word::Result(0), command.into(), argument];
    Calls::of(libc::SYS_inotify_init1, [0.into()])
        .then(libc::SYS_fcntl, command(libc::F_SETOWN, pid.into()))
        .then(libc::SYS_fcntl, command(F_SETSIG, signal.into()))
        .then(libc::SYS_fcntl, command(libc::F_SETFL, libc::O_ASYNC.into()))
        .then(libc::SYS_inotify_add_watch, [Word::Result(0), (&root).into(), libc::IN_CREATE.into()])
        .then(libc::SYS_mkdir, [(&root.join("tick")).into(), 0o755.into()])
}

/// A `sockaddr_un` of an abstract name, and its length.
fn abstract_address(name: &str) -> (Word, i32) {
    let mut bytes = vec![1, 0, 0]; // AF_UNIX; a name that begins with NUL
    bytes.extend_from_slice(name.as_bytes());
    let length = i32::try_from(bytes.len()).unwrap();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let words = bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
    (Word::Words(words.collect()), length)
}

fn name_for(world: &World) -> String {
    world.path().file_name().unwrap().to_str().unwrap().to_owned()
}

fn session_processes_named(name: &str) -> Vec<u32> {
    process::named(name).iter().map(|process| process.pid).collect()
}

cases! {
    /// C28: an unrelated process of the same user is neither killed nor stopped, by any way to signal.
    async fn c28_a_process_of_the_host(world: &World) {
        let victim = RefCell::new(Victim::asleep());
        let arena = Arena::open(world, SCOPE).await;
        let harmed = || !victim.borrow().is_alive() || victim.borrow().is_stopped();
        for (name, signal) in
            [("kill", "9"), ("kill", "15"), ("kill", "19"), ("pidfd-kill", "9"), ("pidfd-kill", "19")]
        {
            if harmed() {
                victim.replace(Victim::asleep());
            }
            let pid = victim.borrow().argument();
            arena.denies(&Denial::of(SCOPE, &[name, &pid, signal]).harm(harmed)).await;
        }
        arena.close().await;
    }

    /// C28: the kernel sends no signal on a command's behalf either.
    async fn c28_a_signal_by_way_of_input(world: &World) {
        let arena = Arena::open(world, SCOPE).await;
        let victim = Victim::asleep();
        let (pid, root) = (victim.pid(), world.write_root());
        let denial = Denial::of_calls(SCOPE, &signal_by_input(world, pid, libc::SIGTERM))
            .silently()
            .scene(|| drop(std::fs::remove_dir(root.join("tick"))))
            .harm(|| !victim.is_alive());
        arena.denies(&denial).await;
        // The naive wrapper without scopes lets it through; with them it does not.
        for (scopes, dies) in [(Scopes::All, false), (Scopes::None, true)] {
            let victim = Victim::asleep();
            let _removed = std::fs::remove_dir(root.join("tick"));
            naively(&[&root], scopes, signal_by_input(world, victim.pid(), libc::SIGTERM).arguments())
                .assert_done();
            assert_eq!(
                wait_until(if dies { GENEROUS } else { Duration::from_millis(100) }, || !victim.is_alive()),
                dies
            );
        }
        // The twin: a process of the session.
        let _removed = std::fs::remove_dir(root.join("tick"));
        let mut server = arena.whole().command("/bin/sleep").arg("60").spawn().await.unwrap();
        let calls = signal_by_input(world, server.id(), libc::SIGTERM);
        run(arena.whole(), calls.arguments()).await.assert_done();
        assert_eq!(server.wait().await.unwrap().signal(), Some(libc::SIGTERM));
        arena.close().await;
    }

    /// C28: the host itself, the session's keeper and its worker. The test goes on, so the host was not hit.
    async fn c28_host_keeper_and_worker(world: &World) {
        let arena = Arena::open(world, SCOPE).await;
        for session in [arena.whole(), arena.without(Layer::Scope)] {
            let (keeper, worker) = session.own_processes();
            for pid in [std::process::id(), keeper, worker].map(|pid| pid.to_string()) {
                if std::ptr::eq(session, arena.whole()) {
                    // Asked first, so that a hole does not end the test.
                    run(session, &["kill", &pid, "0"]).await.assert_refused(&["EPERM"]);
                    for signal in ["9", "15", "19", "2"] {
                        run(session, &["kill", &pid, signal]).await.assert_refused(&["EPERM"]);
                        run(session, &["pidfd-kill", &pid, signal]).await.assert_refused(&["EPERM"]);
                    }
                } else {
                    run(session, &["kill", &pid, "0"]).await.assert_done();
                }
            }
        }
        for pid in ["1", &std::os::unix::process::parent_id().to_string()] {
            run(arena.whole(), &["kill", pid, "0"]).await.assert_refused(&["EPERM"]);
        }
        // A whole group: the one of the host.
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let calls = Calls::of(libc::SYS_kill, [(-group).into(), 0.into()]);
        run(arena.whole(), calls.arguments()).await.assert_refused(&["EPERM"]);
        run(arena.without(Layer::Scope), calls.arguments()).await.assert_done();
        arena.close().await;
    }

    /// C28, the twin: commands of a session signal each other: in one tree, from one tree to the other, and
    /// what has detached itself.
    async fn c28_inside_the_session(world: &World) {
        let session = open(session(world)).await;
        done(&sh(&session, "sleep 60 & kill $! && ! wait $!").await);
        done(&sh(&session, "setsid sleep 60 & sleep 0.1; kill -9 $!; ! wait $!").await);
        let mut server = session.command("/bin/sleep").arg("60").spawn().await.unwrap();
        let pid = server.id().to_string();
        run(&session, &["kill", &pid, "19"]).await.assert_done();
        assert!(wait_until(GENEROUS, || process::Process::of(server.id()).is_some_and(|p| p.state == 'T')));
        run(&session, &["kill", &pid, "18"]).await.assert_done();
        run(&session, &["pidfd-kill", &pid, "15"]).await.assert_done();
        assert_eq!(server.wait().await.unwrap().signal(), Some(15));
        // One that has cut every tie is found by its name, and stopped like any other.
        let name = format!("bw{}", std::process::id());
        session.command(tool("act")).args(["daemonize", "60", &name]).output().await.unwrap();
        let daemon = || session_processes_named(&name);
        assert!(wait_until(GENEROUS, || daemon().len() == 1));
        run(&session, &["kill", &daemon()[0].to_string(), "15"]).await.assert_done();
        assert!(wait_until(GENEROUS, || daemon().is_empty()));
        close(&session).await;
    }

    /// C28 across grants: while a command runs, its grant stays; once it was replaced, nothing of it is left,
    /// and commands of the new grant signal each other as before.
    async fn c28_across_grants(world: &World) {
        let session = open(session(world)).await;
        let mut server =
            session.command("/bin/sh").args(["-c", "setsid sleep 60 & exec sleep 60"]).spawn().await.unwrap();
        assert!(wait_until(GENEROUS, || process::descendants(server.id()).len() == 1));
        let refusal = refused(session.replace_write_roots([world.outside()]).await, ErrorKind::SessionBusy);
        let pids = refusal.field("pids").and_then(|field| field.as_list()).unwrap();
        assert_eq!(
            pids.iter().map(|pid| pid.as_number().unwrap()).collect::<Vec<_>>(),
            [i64::from(server.id())]
        );
        assert_eq!(session.write_roots().await, [world.write_root()]);
        let before = session.processes().await.unwrap();
        assert_eq!(before.len(), 2, "{before:?}");
        session.replace_write_roots([world.outside()]).when_busy(WhenBusy::Kill).await.unwrap();
        assert_eq!(server.wait().await.unwrap().signal(), Some(9));
        for process in &before {
            assert!(process::pid_gone(process.pid, process.start_time), "{process:?}");
        }
        let mut later = session.command("/bin/sleep").arg("60").spawn().await.unwrap();
        run(&session, &["kill", &later.id().to_string(), "15"]).await.assert_done();
        assert_eq!(later.wait().await.unwrap().signal(), Some(15));
        close(&session).await;
    }

    /// C28: a listener of the host on an abstract name hears nothing; the twin is one of the session.
    async fn c28_abstract_sockets(world: &World) {
        requires!(Need::LandlockAbi6);
        let name = name_for(world);
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let heard = || {
            listener.accept().is_ok_and(|(mut stream, _)| {
                let mut text = String::new();
                stream.set_nonblocking(false).unwrap();
                stream.read_to_string(&mut text).unwrap();
                text == "act"
            })
        };
        let arena = Arena::open(world, SCOPE).await;
        let connect = ["abstract-connect", &name];
        arena.denies(&Denial::of(SCOPE, &connect).harm(heard)).await;
        naively(&[world.write_root()], Scopes::All, &connect).assert_refused(&["EPERM"]);
        naively(&[world.write_root()], Scopes::None, &connect).assert_done();
        // The twin, from one command to another.
        let twin = format!("{name}-twin");
        let mut server =
            arena.whole().command(tool("act")).args(["abstract-listen", &twin, "30"]).spawn().await.unwrap();
        let listening = PathBuf::from(format!("@{twin}"));
        while !process::listens(server.id(), &listening) {
            assert!(server.try_wait().unwrap().is_none());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run(arena.whole(), &["abstract-connect", &twin]).await.assert_done();
        // And the other way: the host reaches a listener of the session.
        act::bare(&["abstract-connect", &twin]).assert_done();
        server.kill().await.unwrap();
        arena.close().await;
    }

    /// C28: the same by a datagram, which connects to nobody.
    async fn c28_abstract_datagrams(world: &World) {
        let name = name_for(world);
        let receiver = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let (address, length) = abstract_address(&name);
        let send = Calls::of(libc::SYS_socket, [libc::AF_UNIX.into(), libc::SOCK_DGRAM.into(), 0.into()])
            .then(
                libc::SYS_sendto,
                [Word::Result(0), "act".into(), 3.into(), 0.into(), address, length.into()],
            );
        let arena = Arena::open(world, SCOPE).await;
        let mut buffer = [0_u8; 8];
        let heard = RefCell::new(&mut buffer);
        arena
            .denies(
                &Denial::of_calls(SCOPE, &send).harm(|| receiver.recv(&mut heard.borrow_mut()[..]).is_ok()),
            )
            .await;
        arena.close().await;
    }
}
