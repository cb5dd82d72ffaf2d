//! The control socket of a session.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use bailiwick_wire::{BODY_LIMIT, DESCRIPTOR_LIMIT, Event, INLINE_LIMIT, Request};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, recvmsg, sendmsg, shutdown,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// First byte of a datagram: the body follows.
const INLINE: u8 = 0;
/// First byte of a datagram: the body lies in the memfd that is the first descriptor; its length follows.
const SPILLED: u8 = 1;

/// What [`Link::receive`] brings.
#[derive(Debug)]
pub(crate) enum Message {
    /// The worker said something.
    Event(Event),
    /// The worker is gone.
    End,
}

/// The host's end of the socket to the worker.
///
/// Sending neither blocks nor waits, so that it can be done from `Drop`: what the socket does not take at
/// once is kept in order, and sent by [`Link::receive`], which a task of the session runs all the time.
#[derive(Debug)]
pub(crate) struct Link {
    /// Watched for reading only: to hear each time that there is room again would cost a wake-up a message.
    socket: AsyncFd<OwnedFd>,
    /// A copy that is watched for writing, once that was needed.
    writing: OnceLock<AsyncFd<OwnedFd>>,
    backlog: Mutex<VecDeque<Parcel>>,
    kept: Notify,
}

#[derive(Debug)]
struct Parcel {
    frame: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Link {
    /// # Errors
    /// There is no runtime here, or the socket cannot be watched.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = crate::sys::watch(socket, Interest::READABLE)?;
        Ok(Self { socket, writing: OnceLock::new(), backlog: Mutex::default(), kept: Notify::new() })
    }

    /// Sends a request with descriptors, which stay the caller's.
    ///
    /// # Errors
    /// The worker is gone, or the message is over its limits. Nothing was sent.
    pub(crate) fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = request.encode();
        let mut backlog = self.backlog.lock().unwrap_or_else(PoisonError::into_inner);
        let spill;
        let mut all = Vec::with_capacity(DESCRIPTOR_LIMIT);
        let mut frame = Vec::with_capacity(body.len().min(INLINE_LIMIT) + 16);
        if body.len() <= INLINE_LIMIT {
            frame.push(INLINE);
            frame.extend_from_slice(&body);
        } else {
            spill = spill_body(&body)?;
            frame.push(SPILLED);
            frame.extend_from_slice(&(body.len() as u64).to_le_bytes());
            all.push(spill.as_fd());
        }
        all.extend_from_slice(descriptors);
        if backlog.is_empty() {
            match transmit(self.socket.get_ref(), &frame, &all) {
                Err(Errno::AGAIN) => {}
                done => return Ok(done?),
            }
        }
        let descriptors = all.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>()?;
        backlog.push_back(Parcel { frame, descriptors });
        self.kept.notify_one();
        Ok(())
    }

    fn flush(&self) -> io::Result<bool> {
        let mut backlog = self.backlog.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(parcel) = backlog.front() {
            let descriptors: Vec<_> = parcel.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match transmit(self.socket.get_ref(), &parcel.frame, &descriptors) {
                Ok(()) => {
                    backlog.pop_front();
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    /// Waits for the next event, and sends meanwhile what could not be sent at once.
    ///
    /// # Errors
    /// What came is no message of the protocol, or the socket failed.
    pub(crate) async fn receive(&self) -> io::Result<Message> {
        loop {
            // Read first: an event is there more often than not when this is called again.
            match take(self.socket.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                taken => return taken,
            }
            let room = async {
                match self.flush() {
                    Ok(true) => self.kept.notified().await,
                    Ok(false) => self.writing()?.writable().await?.clear_ready(),
                    Err(error) => return Err(error),
                }
                Ok(())
            };
            tokio::select! {
                ready = self.socket.readable() => {
                    let mut ready = ready?;
                    match take(self.socket.get_ref()) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                        taken => return taken,
                    }
                }
                sent = room => sent?,
            }
        }
    }

    fn writing(&self) -> io::Result<&AsyncFd<OwnedFd>> {
        if let Some(made) = self.writing.get() {
            return Ok(made);
        }
        let made = crate::sys::watch(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?;
        Ok(self.writing.get_or_init(|| made))
    }

    /// Ends the connection: the worker sees end of file, as if this process had died.
    pub(crate) fn shut_down(&self) {
        // It may be gone already, which is as good.
        shutdown(self.socket.get_ref(), Shutdown::Both).ok();
    }
}

fn spill_body(body: &[u8]) -> io::Result<OwnedFd> {
    if body.len() > BODY_LIMIT {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let memfd = rustix::fs::memfd_create("bailiwick-body", rustix::fs::MemfdFlags::CLOEXEC)?;
    let file = std::fs::File::from(memfd);
    std::os::unix::fs::FileExt::write_all_at(&file, body, 0)?;
    Ok(file.into())
}

fn transmit(socket: &OwnedFd, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(frame)], &mut control, flags)).map(drop)
}

fn take(socket: &OwnedFd) -> io::Result<Message> {
    let malformed = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut frame = [0_u8; INLINE_LIMIT + 16];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || {
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut frame)], &mut control, flags))
    };
    let received = match receive() {
        // The worker ended with something of ours unread. Being told takes the error off the socket, and what
        // the worker had said before is still in it.
        Err(Errno::CONNRESET) => receive()?,
        received => received?,
    };
    let mut descriptors = control.drain().filter_map(|message| match message {
        rustix::net::RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(malformed("a message was cut short"));
    }
    let body = match frame.get(..received.bytes).and_then(<[u8]>::split_first) {
        None => return Ok(Message::End),
        Some((&INLINE, body)) => Event::decode(body),
        Some((&SPILLED, length)) => {
            let length = length.try_into().map(u64::from_le_bytes).ok();
            let length = length.and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|length| *length <= BODY_LIMIT).ok_or_else(|| malformed("length"))?;
            let memfd = descriptors.next().and_then(|mut rights| rights.next());
            let memfd = std::fs::File::from(memfd.ok_or_else(|| malformed("no body"))?);
            let mut body = vec![0; length];
            std::os::unix::fs::FileExt::read_exact_at(&memfd, &mut body, 0)?;
            Event::decode(&body)
        }
        Some(_) => return Err(malformed("frame")),
    };
    body.map(Message::Event).map_err(|error| malformed(error.0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// What a worker does not read yet waits here in order, and blocks nobody.
    #[tokio::test]
    async fn a_full_socket_keeps_requests_in_order() {
        const COUNT: u64 = 5000;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let link = Arc::new(Link::new(ours).unwrap());
        for command in 0..COUNT {
            link.send(&Request::List { request: command, command }, &[]).unwrap();
        }
        assert!(!link.backlog.lock().unwrap().is_empty(), "the socket took all of it, so nothing was tested");
        let reading = tokio::spawn({
            let link = Arc::clone(&link);
            async move { link.receive().await }
        });
        let read = tokio::task::spawn_blocking(move || {
            let mut room = [0; 128];
            for command in 0..COUNT {
                let (length, _) = rustix::net::recv(&theirs, &mut room, RecvFlags::empty()).unwrap();
                let request = Request::decode(&room[1..length]).unwrap();
                assert_eq!(request, Request::List { request: command, command });
            }
            drop(theirs);
        });
        read.await.unwrap();
        assert!(matches!(reading.await.unwrap().unwrap(), Message::End));
    }
}
