//! Daemons of the host that do what they are asked for, over every kind of socket.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use bailiwick::{Layer, Network, Protection};
use bailiwick_test::Need;
use bailiwick_test::calls::{Calls, Word};

use crate::ground::Ground;
use crate::row::{Actors, Attempt, Row, act, row};

const BROKER: &[Layer] = &[Layer::SocketBroker];
const FILTER: &[Layer] = &[Layer::Seccomp];
const FILTER_AND_NET: &[Layer] = &[Layer::Seccomp, Layer::NetNamespace];
const UNREACHABLE: &[&str] =
    &["EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENETUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"];
const ABSENT: &[&str] = &["EPERM", "EACCES", "ENOENT", "ECONNREFUSED"];

const fn named(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::NamedSockets, tries, attempt).by_namespaces(BROKER).answers(ABSENT)
}

const fn packet(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Network, tries, attempt).by(FILTER, FILTER_AND_NET).answers(UNREACHABLE)
}

/// With a network of its own, there is nobody of the host in it.
const fn loopback(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Network, tries, attempt)
        .by(FILTER, &[Layer::NetNamespace])
        .answers(UNREACHABLE)
        .network(Network::Loopback)
}

const fn family(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Network, tries, attempt).by(FILTER, FILTER).answers(UNREACHABLE)
}

/// A `sockaddr_un`, and its length. An abstract name begins with NUL.
fn address(name: &str) -> (Word, i32) {
    let mut bytes = vec![1, 0]; // AF_UNIX
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    let length = i32::try_from(bytes.len() - usize::from(name.starts_with('\0'))).unwrap();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let words = bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
    (Word::Words(words.collect()), length)
}

fn socket(kind: i32) -> Calls {
    Calls::of(libc::SYS_socket, [libc::AF_UNIX.into(), kind.into(), 0.into()])
}

/// Connects to a socket of that name and says something.
fn says(socket: Calls, index: usize, name: &str, text: &str) -> Calls {
    let (address, length) = address(name);
    let length_of_text = i32::try_from(text.len()).unwrap();
    socket
        .then(libc::SYS_connect, [Word::Result(index), address, length.into()])
        .then(libc::SYS_write, [Word::Result(index), text.into(), length_of_text.into()])
        .course()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn abstract_address(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(name).unwrap()
}

fn tcp(s: &Ground, act: &str, address: &str) -> Attempt {
    act![act, address, s.tcp_daemon(address).unwrap().to_string()]
}

fn udp(s: &Ground) -> Attempt {
    act!["udp-send", "127.0.0.1", s.udp_daemon("127.0.0.1").to_string()]
}

/// A terminal multiplexer of the host that runs already, and waits for clients at a socket of the scene.
fn multiplexer(s: &Ground) -> Attempt {
    let socket = s.at("mux");
    let started = Command::new("tmux")
        .args(["-f", "/dev/null", "-S", text(&socket), "new-session", "-d", "sleep 60"])
        .env("TMUX_TMPDIR", s.scene())
        .status();
    assert!(started.is_ok_and(|status| status.success()), "tmux does not start");
    s.later(move || {
        let ended = Command::new("tmux").args(["-S", text(&socket), "kill-server"]).output();
        drop(ended);
    });
    let (socket, new) = (s.at("mux"), s.at("new"));
    Attempt::script(format!("tmux -S '{}' run-shell \"touch '{}'\"", socket.display(), new.display()))
}

pub(crate) const ROWS: &[Row] = &[
    named("named-stream", "asks a daemon at a stream socket", |s| act!["unix-connect", s.stream_daemon("s")]),
    named("named-packet", "asks a daemon at a packet socket", |s| {
        act!["unix-connect-packet", s.packet_daemon("s")]
    }),
    named("named-datagram", "connects to a datagram socket and sends", |s| {
        act!["unix-connect-datagram", s.datagram_daemon("s")]
    }),
    named("named-sendto", "sends a datagram without connecting", |s| {
        act!["unix-sendto", s.datagram_daemon("s")]
    }),
    named("named-sendmsg", "sends a datagram as a message", |s| act!["unix-sendmsg", s.datagram_daemon("s")]),
    named("named-sendmmsg", "sends several datagrams by one call", |s| {
        act!["unix-sendmmsg", s.datagram_daemon("s")]
    }),
    named("named-by-link", "asks a daemon through a link in the root", |s| {
        symlink(s.stream_daemon("s"), s.ours("to-socket")).unwrap();
        act!["unix-connect", s.ours("to-socket")]
    }),
    named("named-by-proc-fd", "asks a daemon by the link of a descriptor in `/proc/self/fd`", |s| {
        let socket = s.stream_daemon("s");
        // The first descriptor that is opened is 3.
        let opened = Calls::of(libc::SYS_open, [(&socket).into(), libc::O_PATH.into()]);
        let connecting =
            opened.then(libc::SYS_socket, [libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0.into()]);
        Attempt::calls(&says(connecting, 1, "/proc/self/fd/3", "act"))
    }),
    named("named-from-directory", "asks a daemon by a name relative to its directory", |s| {
        s.stream_daemon("s");
        act!["unix-connect", "s"].within(s.scene())
    }),
    named("descriptor-gift", "asks a daemon for a descriptor, and writes to what it is given", |s| {
        act!["unix-gift", s.generous_daemon("s")]
    }),
    named("service-manager", "has a manager of services, like `systemd-run --user`, start a program", |s| {
        let socket = s.manager_daemon("private");
        let order = format!("touch '{}'\n", s.at("new").display());
        Attempt::calls(&says(self::socket(libc::SOCK_STREAM), 0, text(&socket), &order))
    }),
    named(
        "message-bus",
        "has a message bus, like D-Bus, start a program after it has made itself known",
        |s| {
            let socket = s.manager_daemon("bus");
            let order = format!("\0AUTH EXTERNAL\r\nBEGIN\r\ntouch '{}'\n", s.at("new").display());
            let order = order.replace('\0', ""); // a text of this act ends at NUL
            Attempt::calls(&says(self::socket(libc::SOCK_STREAM), 0, text(&socket), &order))
        },
    ),
    named("multiplexer", "has a `tmux` that runs already start a program", multiplexer)
        .answers(&["FAILED"])
        .needs(&[Need::Tmux]),
    row("abstract-stream", Protection::AbstractSockets, "asks a daemon at an abstract stream socket", |s| {
        let name = s.name();
        s.answer_streams(UnixListener::bind_addr(&abstract_address(&name)).unwrap());
        act!["abstract-connect", name]
    })
    .by(&[Layer::Scope], &[Layer::Scope, Layer::NetNamespace])
    .answers(ABSENT),
    row(
        "abstract-datagram",
        Protection::AbstractSockets,
        "sends to a daemon at an abstract datagram socket",
        |s| {
            let name = s.name();
            s.answer_datagrams(UnixDatagram::bind_addr(&abstract_address(&name)).unwrap());
            let (address, length) = address(&format!("\0{name}"));
            let sent = [Word::Result(0), "act".into(), 3.into(), 0.into(), address, length.into()];
            Attempt::calls(&socket(libc::SOCK_DGRAM).then(libc::SYS_sendto, sent).course())
        },
    )
    // Where named sockets are connected by the broker, there are no datagrams.
    .by(&[Layer::Scope], &[Layer::Scope, Layer::NetNamespace, Layer::SocketBroker])
    .answers(ABSENT),
    packet("tcp", "asks a service of the loopback interface that writes for it", |s| {
        tcp(s, "tcp-connect", "127.0.0.1")
    }),
    packet("tcp-fast-open", "the same with the first packet", |s| tcp(s, "tcp-fastopen", "127.0.0.1")),
    packet("udp", "sends a datagram to a service of the loopback interface", udp),
    row("tcp-listen", Protection::Network, "listens on a port", |_| {
        act!["tcp-listen-without-bind"].reported()
    })
    .by(FILTER, FILTER),
    loopback("tcp-own-network", "asks a service of the host from a network of its own", |s| {
        tcp(s, "tcp-connect", "127.0.0.1")
    }),
    loopback("udp-own-network", "sends to a service of the host from a network of its own", udp)
        // A datagram to nobody is sent all the same.
        .silent(),
    row("ring-socket", Protection::Network, "makes a socket by a ring of asynchronous calls", |_| {
        act!["io-uring-socket"].reported()
    })
    .by(FILTER, FILTER)
    .needs(&[Need::IoUring]),
    family("netlink-socket", "makes a socket to the kernel's network configuration", |_| {
        act!["socket", "netlink", "raw", "0"].reported()
    }),
    family("machine-socket", "makes a socket to the machine that runs this one", |_| {
        act!["socket", "vsock", "stream", "0"].reported()
    })
    .needs(&[Need::Vsock]),
    family("raw-socket", "makes a socket for raw packets", |_| act!["socket", "inet", "raw", "1"].reported())
        .and_from_root(&[Layer::Capabilities])
        .only(Actors::Root),
    family("packet-socket", "makes a socket beneath the network protocols", |_| {
        act!["socket", "packet", "raw", "0"].reported()
    })
    .and_from_root(&[Layer::Capabilities])
    .only(Actors::Root),
];
