//! Acts on `connect(2)`: its answers, and what disturbs it.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::json;

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, done};
use crate::arguments::Arguments;
use crate::sys::connections::{Alarm, connect_raw, forbid_dumps, with_own_descriptors};

pub(crate) const ACTS: &[Act] = &[
    ("connect-answers", "DIRECTORY", answers),
    ("connect-race", "PATH OTHER TIMES", race),
    ("connect-full", "DIRECTORY", full),
    ("connect-undumpable", "PATH", |a| {
        forbid_dumps().prepare("prctl")?;
        connect(a)
    }),
    ("connect-alarmed", "PATH RESTART", alarmed),
    ("connect-limited", "PATH MILLISECONDS", limited),
    ("connect-own-table", "PATH", own_table),
    ("connect-speed", "DIRECTORY TIMES", speed),
    ("send-to-named", "TYPE PATH", |a| send_to_named(a, false)),
    ("send-to-named-connected", "TYPE PATH", |a| send_to_named(a, true)),
];

fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// `struct sockaddr_un` of a path, as long as needed.
fn address(path: &[u8]) -> Vec<u8> {
    let family = u16::try_from(libc::AF_UNIX).unwrap_or_default();
    [&family.to_ne_bytes()[..], path].concat()
}

fn connect(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    let stream = socket(SocketType::STREAM)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(path)?)?;
    rustix::net::send(&stream, b"act", SendFlags::NOSIGNAL)?;
    done(())
}

/// What the kernel answers to each way of calling, by a name for the way.
fn answers(arguments: &mut Arguments) -> Answer {
    let directory = arguments.path()?;
    let prepared = || -> std::io::Result<_> {
        std::env::set_current_dir(&directory)?;
        let listener = UnixListener::bind("listener")?;
        drop(UnixListener::bind("dead")?);
        std::fs::write("file", "")?;
        let closed = UnixListener::bind("closed")?;
        std::fs::set_permissions("closed", std::fs::Permissions::from_mode(0o0))?;
        symlink("loop", "loop")?;
        symlink("listener", "link")?;
        std::fs::create_dir("directory")?;
        let long = "n".repeat(108);
        Ok((listener, UnixListener::bind(long.get(..107).unwrap_or_default())?, closed))
    };
    let _listeners = prepared().prepare("the directory")?;
    let mut answers = BTreeMap::new();
    let mut tell = |name: &str, outcome: Result<(), Errno>| {
        answers.insert(name.to_owned(), outcome.err().map_or(0, Errno::raw_os_error));
    };
    let length = |bytes: &[u8]| i64::try_from(bytes.len()).unwrap_or(0);
    let absolute =
        |name: &str| [directory.as_os_str().as_encoded_bytes(), b"/", name.as_bytes(), b"\0"].concat();

    let names: [(&str, Vec<u8>); 16] = [
        ("listener", b"listener\0".to_vec()),
        ("without a NUL", b"listener".to_vec()),
        ("rubbish after the NUL", b"listener\0/x/y".to_vec()),
        ("absolute", absolute("listener")),
        ("link", b"link\0".to_vec()),
        ("nobody listens", b"dead\0".to_vec()),
        ("file", b"file\0".to_vec()),
        ("directory", b"directory\0".to_vec()),
        ("below a file", b"file/x\0".to_vec()),
        ("socket as a directory", b"listener/\0".to_vec()),
        ("absent", b"absent\0".to_vec()),
        ("loop", b"loop\0".to_vec()),
        ("not permitted", b"closed\0".to_vec()),
        ("107 bytes", "n".repeat(107).into_bytes()),
        ("108 bytes", "n".repeat(108).into_bytes()),
        ("109 bytes", "n".repeat(109).into_bytes()),
    ];
    for (name, path) in &names {
        let stream = socket(SocketType::STREAM)?;
        let address = address(path);
        tell(name, connect_raw(stream.as_raw_fd().into(), Some(&address), length(&address)));
    }
    let listener = address(b"listener\0");
    let stream = || socket(SocketType::STREAM);
    tell("no descriptor", connect_raw(999, Some(&listener), length(&listener)));
    tell("negative descriptor", connect_raw(-1, Some(&listener), length(&listener)));
    let file = std::fs::File::open("file").prepare("file")?;
    tell("no socket", connect_raw(file.as_raw_fd().into(), Some(&listener), length(&listener)));
    for (name, address, length) in [
        ("no memory", None, 12),
        ("too long", Some(&[0_u8; 200][..]), 129),
        ("negative length", Some(&listener[..]), -1),
        ("no length", Some(&listener[..]), 0),
        ("family alone", Some(&listener[..]), 2),
        ("half a family", Some(&listener[..]), 1),
        ("upper half of the length", Some(&listener[..]), length(&listener) | 1 << 32),
        ("another family", Some(&[2_u8, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..]), 16),
        ("no family", Some(&[0_u8; 16][..]), 16),
        ("an abstract name that nobody has", Some(b"\x01\0\0bailiwick-nobody"), 19),
    ] {
        tell(name, connect_raw(stream()?.as_raw_fd().into(), address, length));
    }
    let wide = i64::from(stream()?.as_raw_fd()) | 1 << 32;
    tell("upper half of the descriptor", connect_raw(wide, Some(&listener), length(&listener)));
    let packets = socket(SocketType::SEQPACKET)?;
    tell("another type", connect_raw(packets.as_raw_fd().into(), Some(&listener), length(&listener)));
    let once = stream()?;
    for name in ["the first time", "the second time"] {
        tell(name, connect_raw(once.as_raw_fd().into(), Some(&listener), length(&listener)));
    }
    Ok(json!(answers))
}

/// Connects to an address that another thread changes meanwhile. Counts what came of it.
fn race(arguments: &mut Arguments) -> Answer {
    let (one, other) = (arguments.text()?.into_bytes(), arguments.text()?.into_bytes());
    let times: u32 = arguments.number()?;
    if one.len() != other.len() {
        return crate::answer::cannot_try("the paths must have one length");
    }
    let memory: Vec<AtomicU8> = address(&one).into_iter().map(AtomicU8::new).collect();
    let is_over = AtomicBool::new(false);
    let (mut connected, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for path in [&other, &one] {
                    for (place, byte) in memory.iter().skip(2).zip(path) {
                        place.store(*byte, Ordering::Relaxed);
                    }
                }
            }
        });
        for _ in 0..times {
            let outcome = socket(SocketType::STREAM).and_then(|stream| {
                crate::sys::connections::connect_changing(stream.as_raw_fd(), &memory)?;
                rustix::net::send(&stream, b"act", SendFlags::NOSIGNAL)
            });
            match outcome {
                Ok(_) => connected += 1,
                Err(Errno::ACCESS) => refused += 1,
                Err(_) => {}
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(json!({"connected": connected, "refused": refused}))
}

/// A listener of its own that takes no more, blocking connections to it, and others beside them.
fn full(arguments: &mut Arguments) -> Answer {
    const BLOCKED: usize = 3;
    const OTHERS: usize = 50;
    let directory = arguments.path()?;
    let full = socket(SocketType::STREAM)?;
    let path = SocketAddrUnix::new(directory.join("full"))?;
    rustix::net::bind(&full, &path)?;
    rustix::net::listen(&full, 0)?;
    let mut filled = Vec::new();
    let last = loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&stream, &path) {
            Ok(()) => filled.push(stream),
            Err(errno) => break errno,
        }
    };
    if last != Errno::AGAIN {
        return Err(last.into());
    }
    let other = UnixListener::bind(directory.join("other"))?;
    let blocked: Vec<_> = (0..BLOCKED)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                let stream = socket(SocketType::STREAM)?;
                rustix::net::connect(&stream, &path).map(|()| stream)
            })
        })
        .collect();
    let mut others = 0;
    for _ in 0..OTHERS {
        let _client = UnixStream::connect(directory.join("other"))?;
        other.accept()?;
        others += 1;
    }
    let waiting = blocked.iter().filter(|thread| !thread.is_finished()).count();
    for _ in 0..filled.len() + BLOCKED {
        rustix::net::accept(&full)?;
    }
    let mut connected = 0;
    for thread in blocked {
        if matches!(thread.join(), Ok(Ok(_))) {
            connected += 1;
        }
    }
    Ok(json!({"others": others, "waiting": waiting, "connected": connected}))
}

/// With a signal every 50 ms, whose handler restarts the call or does not.
fn alarmed(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    let restart: u8 = arguments.number()?;
    let stream = socket(SocketType::STREAM)?;
    let _alarm = Alarm::every(Duration::from_millis(50), restart != 0).prepare("the timer")?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(path)?)?;
    done(())
}

/// With a limit of the socket's own (SO_SNDTIMEO). Tells how long it took, where it came to nothing in time.
fn limited(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?;
    let limit = Duration::from_millis(arguments.number()?);
    let stream = socket(SocketType::STREAM)?;
    rustix::net::sockopt::set_socket_timeout(&stream, rustix::net::sockopt::Timeout::Send, Some(limit))?;
    let began = Instant::now();
    match rustix::net::connect(&stream, &SocketAddrUnix::new(path)?) {
        Err(Errno::AGAIN) => Ok(json!(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))),
        Err(errno) => Err(errno.into()),
        Ok(()) => Err(Failed::Nothing("CONNECTED")),
    }
}

/// From a thread whose descriptors are its own: its socket has a number that is a file's for the others.
fn own_table(arguments: &mut Arguments) -> Answer {
    let path = SocketAddrUnix::new(arguments.path()?)?;
    let file = std::fs::File::open("/dev/null").prepare("/dev/null")?;
    with_own_descriptors(move || {
        let stream = socket(SocketType::STREAM)?;
        let number = file.as_raw_fd();
        let mut target = OwnedFd::from(file);
        rustix::io::dup2(&stream, &mut target)?;
        assert_eq!(target.as_raw_fd(), number);
        rustix::net::connect(&target, &path)?;
        rustix::net::send(&target, b"act", SendFlags::NOSIGNAL)
    })??;
    done(())
}

/// Median of the time of one connection, in nanoseconds.
fn speed(arguments: &mut Arguments) -> Answer {
    let path = arguments.path()?.join("speed");
    let times: usize = arguments.number()?;
    let listener = UnixListener::bind(&path)?;
    let address = SocketAddrUnix::new(&path)?;
    let mut taken = Vec::new();
    for _ in 0..times {
        let stream = socket(SocketType::STREAM)?;
        let began = Instant::now();
        rustix::net::connect(&stream, &address)?;
        taken.push(began.elapsed());
        listener.accept()?;
    }
    std::fs::remove_file(&path)?;
    taken.sort_unstable();
    let median = taken.get(times / 2).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    Ok(json!(median))
}

/// Sends to a name, without `connect`. A pair of sockets tells whether its other end got it instead.
fn send_to_named(arguments: &mut Arguments, is_connected: bool) -> Answer {
    let kind = match arguments.text()?.as_str() {
        "stream" => SocketType::STREAM,
        "seqpacket" => SocketType::SEQPACKET,
        _ => SocketType::DGRAM,
    };
    let path = SocketAddrUnix::new(arguments.path()?)?;
    if !is_connected {
        let socket = socket(kind)?;
        rustix::net::sendto(&socket, b"act", SendFlags::NOSIGNAL, &path)?;
        return done(());
    }
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::sendto(&one, b"act", SendFlags::NOSIGNAL, &path)?;
    let mut room = [0; 3];
    let received = rustix::net::recv(&other, &mut room[..], RecvFlags::DONTWAIT);
    Ok(json!(if received.is_ok() { "peer" } else { "named" }))
}
