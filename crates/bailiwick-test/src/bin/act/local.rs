//! Acts on local sockets with a name: every way to make somebody listen.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("unix-connect-packet", "PATH", |a| connect(a, SocketType::SEQPACKET)),
    ("unix-connect-datagram", "PATH", |a| connect(a, SocketType::DGRAM)),
    ("unix-sendto", "PATH", send_to),
    ("unix-sendmsg", "PATH", send_message),
    ("unix-sendmmsg", "PATH", |a| {
        let socket = socket(SocketType::DGRAM)?;
        Ok(sys::descriptors::send_messages(&socket, &a.path()?, b"act")?).and_then(done)
    }),
    ("unix-gift", "PATH", take_gift),
];

fn socket(kind: SocketType) -> Result<OwnedFd, Failed> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

fn connect(arguments: &mut Arguments, kind: SocketType) -> Answer {
    let socket = socket(kind)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(arguments.path()?)?)?;
    rustix::net::send(&socket, b"act", SendFlags::NOSIGNAL)?;
    done(())
}

fn send_to(arguments: &mut Arguments) -> Answer {
    let address = SocketAddrUnix::new(arguments.path()?)?;
    rustix::net::sendto(socket(SocketType::DGRAM)?, b"act", SendFlags::NOSIGNAL, &address)?;
    done(())
}

fn send_message(arguments: &mut Arguments) -> Answer {
    let address = SocketAddrUnix::new(arguments.path()?)?;
    let mut control = SendAncillaryBuffer::default();
    let parts = [IoSlice::new(b"act")];
    let socket = socket(SocketType::DGRAM)?;
    rustix::net::sendmsg_addr(&socket, &address, &parts, &mut control, SendFlags::NOSIGNAL)?;
    done(())
}

/// Asks somebody for a descriptor and writes to what comes.
fn take_gift(arguments: &mut Arguments) -> Answer {
    let socket = socket(SocketType::STREAM)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(arguments.path()?)?)?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0_u8];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).prepare("receive")?;
    let gift = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let Some(gift) = gift else { return Err(Failed::Nothing("NOGIFT")) };
    rustix::io::write(&gift, b"act")?;
    done(())
}
