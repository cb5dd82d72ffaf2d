//! Acts on sockets.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, ipproto,
};

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;

pub(crate) const ACTS: &[Act] = &[
    ("socket", "FAMILY TYPE PROTOCOL", socket),
    ("socketpair", "FAMILY TYPE", socketpair),
    ("unix-listen", "PATH [SECONDS]", |a| listen(&SocketAddrUnix::new(a.path()?)?, a)),
    ("unix-connect", "PATH", |a| connect(&SocketAddrUnix::new(a.path()?)?)),
    ("abstract-listen", "NAME [SECONDS]", |a| {
        listen(&SocketAddrUnix::new_abstract_name(a.text()?.as_bytes())?, a)
    }),
    ("abstract-connect", "NAME", |a| connect(&SocketAddrUnix::new_abstract_name(a.text()?.as_bytes())?)),
    ("tcp-connect", "ADDRESS PORT", tcp_connect),
    ("tcp-listen-without-bind", "", tcp_listen),
    ("tcp-fastopen", "ADDRESS PORT", |a| {
        send(a, SocketType::STREAM, SendFlags::from_bits_retain(MSG_FASTOPEN))
    }),
    ("udp-send", "ADDRESS PORT", |a| send(a, SocketType::DGRAM, SendFlags::empty())),
];

/// `MSG_FASTOPEN` of `linux/socket.h`: connect and send in one call.
const MSG_FASTOPEN: u32 = 0x2000_0000;

/// A number, or the name that `socket(2)` has for it, in small letters.
fn lookup(text: &str, names: &[(&str, i32)]) -> Result<u32, Failed> {
    let number = match names.iter().find(|(name, _)| *name == text) {
        Some((_, number)) => u32::try_from(*number).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| Failed::CannotTry(format!("`{text}` is neither a number nor one of {names:?}")))
}

fn family(arguments: &mut Arguments) -> Result<AddressFamily, Failed> {
    let number = lookup(
        &arguments.text()?,
        &[
            ("unix", libc::AF_UNIX),
            ("inet", libc::AF_INET),
            ("inet6", libc::AF_INET6),
            ("netlink", libc::AF_NETLINK),
            ("packet", libc::AF_PACKET),
            ("vsock", libc::AF_VSOCK),
            ("alg", libc::AF_ALG),
            ("bluetooth", libc::AF_BLUETOOTH),
            ("can", libc::AF_CAN),
            ("tipc", libc::AF_TIPC),
            ("xdp", libc::AF_XDP),
        ],
    )?;
    let number = u16::try_from(number).prepare("address family")?;
    Ok(AddressFamily::from_raw(number))
}

fn kind(arguments: &mut Arguments) -> Result<SocketType, Failed> {
    let names = [
        ("stream", libc::SOCK_STREAM),
        ("dgram", libc::SOCK_DGRAM),
        ("raw", libc::SOCK_RAW),
        ("seqpacket", libc::SOCK_SEQPACKET),
    ];
    lookup(&arguments.text()?, &names).map(SocketType::from_raw)
}

fn socket(arguments: &mut Arguments) -> Answer {
    let (family, kind) = (family(arguments)?, kind(arguments)?);
    let protocol: u32 = arguments.number_or(0)?;
    let protocol = std::num::NonZeroU32::new(protocol).map(Protocol::from_raw);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    done(())
}

fn socketpair(arguments: &mut Arguments) -> Answer {
    let (one, other) =
        rustix::net::socketpair(family(arguments)?, kind(arguments)?, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&one, b"act", SendFlags::empty())?;
    let mut received = [0_u8; 3];
    rustix::net::recv(&other, &mut received[..], RecvFlags::empty())?;
    if received == *b"act" { done(()) } else { Err(Failed::Nothing("OTHERDATA")) }
}

fn unix_stream() -> Result<OwnedFd, Failed> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Listens, and stays for as many seconds, so that somebody can connect.
fn listen(address: &SocketAddrUnix, arguments: &mut Arguments) -> Answer {
    let seconds = arguments.number_or(0)?;
    let listener = unix_stream()?;
    rustix::net::bind(&listener, address)?;
    rustix::net::listen(&listener, 1)?;
    std::thread::sleep(Duration::from_secs(seconds));
    done(())
}

fn connect(address: &SocketAddrUnix) -> Answer {
    let stream = unix_stream()?;
    rustix::net::connect(&stream, address)?;
    rustix::net::send(&stream, b"act", SendFlags::NOSIGNAL)?;
    done(())
}

fn peer(arguments: &mut Arguments) -> Result<SocketAddr, Failed> {
    let address: IpAddr = arguments.number()?;
    Ok(SocketAddr::new(address, arguments.number()?))
}

fn family_of(peer: SocketAddr) -> AddressFamily {
    if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn tcp_connect(arguments: &mut Arguments) -> Answer {
    let peer = peer(arguments)?;
    let stream = rustix::net::socket_with(family_of(peer), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&stream, &peer)?;
    rustix::net::send(&stream, b"act", SendFlags::NOSIGNAL)?;
    done(())
}

fn send(arguments: &mut Arguments, kind: SocketType, flags: SendFlags) -> Answer {
    let peer = peer(arguments)?;
    let socket = rustix::net::socket_with(family_of(peer), kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::sendto(&socket, b"act", flags | SendFlags::NOSIGNAL, &peer)?;
    done(())
}

/// The kernel picks a port: a filter that watches only `bind` does not see it.
fn tcp_listen(_: &mut Arguments) -> Answer {
    let protocol = Some(ipproto::TCP);
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::listen(&socket, 1)?;
    let name = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(name.port().into())
}
