//! C30, C31 and the network: no socket but local ones under `deny`, and no way around the call that makes
//! them. Under `allow`, TCP and UDP and nothing lower.

#![cfg(test)]

use std::io::Read as _;
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::time::Duration;

use bailiwick::{Layer, Network, Protection, SessionBuilder};
use bailiwick_test::act::{self, Scopes, naively};
use bailiwick_test::boundary::{Arena, Denial, run, session};
use bailiwick_test::calls::Calls;
use bailiwick_test::places::{close, open};
use bailiwick_test::{Need, case, cases, process, requires, tool};

const SECCOMP: &[Layer] = &[Layer::Seccomp];
const RAW: &[Layer] = &[Layer::Seccomp, Layer::Capabilities];
const ANSWERS: &[&str] = &["EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"];
const KINDS: [&str; 4] = ["stream", "dgram", "raw", "seqpacket"];

fn allow(builder: SessionBuilder) -> SessionBuilder {
    builder.network(Network::Allow)
}

/// Asserts that a socket cannot be made, and that it can be without the layers, where the host has it.
async fn no_socket(arena: &Arena, layers: &[Layer], act: &[&str]) -> bool {
    if act::bare(act).ok {
        arena.denies(&Denial::of(layers, act).answers(ANSWERS)).await;
        return true;
    }
    run(arena.whole(), act).await.assert_refused(ANSWERS);
    false
}

cases! {
    /// Every family that there is, and every type. Only local sockets are made.
    async fn every_family_is_denied(world: &World) {
        let arena = Arena::open(world, SECCOMP).await;
        assert!(arena.whole().enforcement().await.keeps(Protection::Network));
        for family in 0..=46 {
            let family = family.to_string();
            for kind in KINDS {
                let act = ["socket", &family, kind];
                let is_local = family == "1";
                let report = run(arena.whole(), &act).await;
                match kind {
                    "raw" if is_local => {} // the kernel makes a datagram socket of it
                    _ if is_local => report.assert_done(),
                    _ => report.assert_refused(ANSWERS),
                }
            }
        }
        // Those that the host gives to everybody are there once the layer is missing.
        let mut found = 0;
        for act in [
            ["socket", "inet", "stream", "0"],
            ["socket", "inet", "dgram", "0"],
            ["socket", "inet6", "stream", "0"],
            ["socket", "inet6", "dgram", "0"],
            ["socket", "netlink", "raw", "0"],
            ["socket", "vsock", "stream", "0"],
            ["socket", "alg", "seqpacket", "0"],
            ["socket", "bluetooth", "raw", "1"],
            ["socket", "can", "raw", "1"],
        ] {
            found += usize::from(no_socket(&arena, SECCOMP, &act).await);
        }
        assert!(found >= 3, "this host has no network to deny");
        naively(&[world.write_root()], Scopes::All, &["socket", "inet", "dgram", "0"]).assert_done();
        arena.close().await;
    }

    /// Raw sockets and packets, which want a capability besides: denied, and under `allow` as well.
    async fn raw_sockets_are_denied(world: &World) {
        for network in [Network::Deny, Network::Allow] {
            let arena = Arena::open_with(world, RAW, |builder| builder.network(network)).await;
            let mut found = 0;
            for act in [
                ["socket", "inet", "raw", "1"],
                ["socket", "packet", "raw", "0"],
                ["socket", "packet", "dgram", "0"],
            ] {
                found += usize::from(no_socket(&arena, RAW, &act).await);
            }
            assert_eq!(found > 0, case::is_root());
            arena.close().await;
        }
    }

    /// No packet leaves: not by a datagram, not by a connection, not by data sent with the first packet.
    async fn no_packet_leaves(world: &World) {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let (udp_port, tcp_port) =
            (udp.local_addr().unwrap().port().to_string(), tcp.local_addr().unwrap().port().to_string());
        let heard = || udp.recv(&mut [0; 8]).is_ok_and(|length| length == 3);
        let met = || tcp.accept().is_ok();
        let arena = Arena::open(world, SECCOMP).await;
        let attempts: [(&str, &str, &dyn Fn() -> bool); 3] = [
            ("udp-send", &udp_port, &heard),
            ("tcp-connect", &tcp_port, &met),
            ("tcp-fastopen", &tcp_port, &met),
        ];
        for (act, port, harm) in attempts {
            let act = [act, "127.0.0.1", port];
            arena.denies(&Denial::of(SECCOMP, &act).harm(harm)).await;
            naively(&[world.write_root()], Scopes::All, &act).assert_done();
            assert!(bailiwick_test::wait_until(bailiwick_test::process::GENEROUS, harm));
        }
        arena.denies(&Denial::of(SECCOMP, &["tcp-listen-without-bind"])).await;
        naively(&[world.write_root()], Scopes::All, &["tcp-listen-without-bind"]).assert_done();
        arena.close().await;
    }

    /// The twin: under `allow` TCP and UDP work, both ways, in both families.
    async fn allowed_network_works(world: &World) {
        let session = open(allow(session(world))).await;
        let hosts: Vec<&str> = if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            vec!["127.0.0.1", "::1"]
        } else {
            vec!["127.0.0.1"]
        };
        for host in hosts {
            let address: std::net::IpAddr = host.parse().unwrap();
            let tcp = TcpListener::bind((address, 0)).unwrap();
            let port = tcp.local_addr().unwrap().port().to_string();
            run(&session, &["tcp-connect", host, &port]).await.assert_done();
            let mut text = String::new();
            tcp.accept().unwrap().0.read_to_string(&mut text).unwrap();
            assert_eq!(text, "act");
            let udp = UdpSocket::bind((address, 0)).unwrap();
            udp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let port = udp.local_addr().unwrap().port().to_string();
            run(&session, &["udp-send", host, &port]).await.assert_done();
            assert_eq!(udp.recv(&mut [0; 8]).unwrap(), 3);
        }
        run(&session, &["tcp-listen-without-bind"]).await.assert_done();
        // Listing interfaces is what resolvers and runtimes do with the one netlink protocol that is left.
        run(&session, &["socket", "netlink", "raw", "0"]).await.assert_done();
        close(&session).await;
    }

    /// What stays denied under `allow`.
    async fn other_families_stay_denied(world: &World) {
        let arena = Arena::open_with(world, SECCOMP, allow).await;
        let mut found = 0;
        for act in [
            ["socket", "vsock", "stream", "0"],
            ["socket", "netlink", "raw", "9"],
            ["socket", "netlink", "raw", "15"],
            ["socket", "alg", "seqpacket", "0"],
        ] {
            found += usize::from(no_socket(&arena, SECCOMP, &act).await);
        }
        assert!(found >= 1);
        arena.close().await;
    }

    /// Local sockets work either way: pairs, and a listener in the root that another command reaches.
    async fn local_sockets_work(world: &World) {
        for network in [Network::Deny, Network::Allow] {
            let session = open(session(world).network(network)).await;
            for kind in ["stream", "dgram", "seqpacket"] {
                run(&session, &["socketpair", "unix", kind]).await.assert_done();
            }
            run(&session, &["socketpair", "inet", "stream"]).await.assert_refused(&["EPERM", "EOPNOTSUPP"]);
            let path = world.write_root().join(format!("s-{network:?}"));
            let path = path.to_str().unwrap();
            let mut server =
                session.command(tool("act")).args(["unix-listen", path, "30"]).spawn().await.unwrap();
            while !process::listens(server.id(), path.as_ref()) {
                assert!(server.try_wait().unwrap().is_none());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            run(&session, &["unix-connect", path]).await.assert_done();
            server.kill().await.unwrap();
            close(&session).await;
        }
    }

    /// C30: the ring makes sockets without the call `socket`, so there is no ring.
    async fn c30_no_ring(world: &World) {
        let session = open(session(world)).await;
        for act in ["io-uring-setup", "io-uring-socket"] {
            run(&session, &[act]).await.assert_refused(&["EPERM", "ENOSYS"]);
        }
        for calls in [
            Calls::of(libc::SYS_io_uring_enter, [0.into(), 0.into(), 0.into(), 0.into()]),
            Calls::of(libc::SYS_io_uring_register, [0.into(), 0.into(), 0.into(), 0.into()]),
        ] {
            run(&session, calls.arguments()).await.assert_refused(&["EPERM", "ENOSYS"]);
        }
        close(&session).await;
        requires!(Need::IoUring, "shows the hole that a missing filter leaves");
        let arena = Arena::open(world, SECCOMP).await;
        for act in ["io-uring-setup", "io-uring-socket"] {
            arena.denies(&Denial::of(SECCOMP, &[act])).await;
        }
        naively(&[world.write_root()], Scopes::All, &["io-uring-socket"]).assert_done();
        arena.close().await;
    }

    /// C30: under `allow` neither: what the ring does, no filter sees.
    async fn c30_no_ring_with_the_network_either(world: &World) {
        let session = open(allow(session(world))).await;
        run(&session, &["io-uring-socket"]).await.assert_refused(&["EPERM", "ENOSYS"]);
        run(&session, &["socket", "inet", "stream", "0"]).await.assert_done();
        close(&session).await;
    }

    /// C31: the entry for 32-bit programs, whose numbers mean something else.
    async fn c31_the_32_bit_entry(world: &World) {
        let session = open(session(world)).await;
        for act in ["int80", "int80-socket"] {
            // `int80` compares the answer with its pid: an error number is the wrong answer.
            run(&session, &[act]).await.assert_refused(&["ENOSYS", "WRONGANSWER", "SIGSYS", "SIGSEGV"]);
        }
        close(&session).await;
        requires!(Need::Ia32, "shows the hole that a missing filter leaves");
        let arena = Arena::open(world, SECCOMP).await;
        for act in ["int80", "int80-socket"] {
            arena.denies(&Denial::of(SECCOMP, &[act]).answers(&["ENOSYS", "WRONGANSWER"])).await;
        }
        naively(&[world.write_root()], Scopes::All, &["int80-socket"]).assert_done();
        arena.close().await;
    }

    /// C31: the convention with 32-bit pointers, which shares its architecture with ours.
    async fn c31_x32(world: &World) {
        let session = open(session(world)).await;
        run(&session, &["x32-getpid"]).await.assert_refused(&["ENOSYS"]);
        for number in [libc::SYS_socket, libc::SYS_open, libc::SYS_io_uring_setup] {
            let calls = Calls::of(number | 0x4000_0000, [2.into(), 1.into(), 0.into()]);
            run(&session, calls.arguments()).await.assert_refused(&["ENOSYS"]);
        }
        run(&session, Calls::of(libc::SYS_getpid, []).arguments()).await.assert_done();
        close(&session).await;
        requires!(Need::X32, "shows the hole that a missing filter leaves");
        let arena = Arena::open(world, SECCOMP).await;
        arena.denies(&Denial::of(SECCOMP, &["x32-getpid"]).answers(&["ENOSYS"])).await;
        arena.close().await;
    }

    /// A number beyond all that the filter has judged: a call of a later kernel.
    async fn c31_a_call_of_a_later_kernel(world: &World) {
        let session = open(session(world)).await;
        for number in [470, 600, 4000, 0x3fff_ffff, 0x7fff_ffff] {
            run(&session, Calls::of(number, []).arguments()).await.assert_refused(&["ENOSYS"]);
        }
        close(&session).await;
    }
}
