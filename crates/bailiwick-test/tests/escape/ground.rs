//! Where attempts are made: a scene outside every root, helpers in the root, daemons and victims of the host.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{self, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bailiwick_test::{Places, Snapshot};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

/// The scene and its surroundings.
pub(crate) struct Ground {
    places: Places,
    before: RefCell<Vec<Snapshot>>,
    count: Cell<u32>,
    later: RefCell<Vec<Box<dyn FnOnce()>>>,
    daemons: RefCell<Vec<Daemon>>,
    inheritable: OwnedFd,
}

impl Ground {
    pub(crate) fn new(places: &Places) -> Self {
        let ground = Ground {
            places: places.clone(),
            before: RefCell::default(),
            count: Cell::new(0),
            later: RefCell::default(),
            daemons: RefCell::default(),
            inheritable: inheritable(places),
        };
        ground.clear();
        ground
    }

    /// The scene, `X/e`: `f`, `g`, `link` to `f`, `fifo` and the directory `empty`. Nothing is called `new`.
    pub(crate) fn scene(&self) -> PathBuf {
        self.places.outside().join("e")
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scene().join(name)
    }

    /// In the root: `own`, the directory `dir` and in it `f`, and the links `to-file`, `to-new` and `to-dir` out of it.
    pub(crate) fn ours(&self, name: impl AsRef<Path>) -> PathBuf {
        self.places.write_root().join(name)
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The number of a descriptor of this process, open for appending to `X/f`, that whoever is started may inherit.
    pub(crate) fn inheritable(&self) -> i32 {
        self.inheritable.as_raw_fd()
    }

    /// A name that no attempt had before.
    pub(crate) fn name(&self) -> String {
        self.count.set(self.count.get() + 1);
        let world = self.places.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{world}-{}", self.count.get())
    }

    /// Makes everything anew.
    pub(crate) fn clear(&self) {
        let root = self.places.write_root();
        let aside = self.places.join("aside");
        if aside.exists() {
            fs::rename(&aside, &root).unwrap();
        }
        for left in bailiwick_test::places::entries(&root) {
            remove(&left);
        }
        remove(&self.scene());
        fs::create_dir(self.scene()).unwrap();
        fs::create_dir(self.at("empty")).unwrap();
        for (name, content) in [("f", "x"), ("g", "y")] {
            fs::write(self.at(name), content).unwrap();
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        rustix::fs::setxattr(self.at("f"), "user.here", b"here", XattrFlags::empty()).unwrap();
        symlink(self.at("f"), self.at("link")).unwrap();
        rustix::fs::mknodat(CWD, self.at("fifo"), FileType::Fifo, Mode::from(0o644), 0).unwrap();
        fs::write(self.ours("own"), "own").unwrap();
        fs::create_dir(self.ours("dir")).unwrap();
        fs::write(self.ours("dir/f"), "ours").unwrap();
        symlink(self.at("f"), self.ours("to-file")).unwrap();
        symlink(self.at("new"), self.ours("to-new")).unwrap();
        symlink(self.scene(), self.ours("to-dir")).unwrap();
    }

    /// Remembers what the scene looks like.
    pub(crate) fn remember(&self) {
        let names = ["f", "g", "link", "fifo", "empty", "new"].map(|name| self.at(name));
        let all = names.iter().map(PathBuf::as_path);
        let scene = self.scene();
        self.before.replace(all.chain([scene.as_path(), &self.places.outside()]).map(Snapshot::of).collect());
    }

    /// What differs from what was remembered.
    pub(crate) fn differences(&self) -> Vec<String> {
        self.before.borrow().iter().flat_map(Snapshot::differences).collect()
    }

    /// A daemon of the host on a named stream socket of the scene, which does what it is asked for: it writes.
    pub(crate) fn stream_daemon(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        self.answer_streams(UnixListener::bind(&path).unwrap());
        path
    }

    /// The same on any listener.
    pub(crate) fn answer_streams(&self, listener: UnixListener) {
        listener.set_nonblocking(true).unwrap();
        self.daemon(move || listener.accept().is_ok_and(|(stream, _)| asked(&stream)));
    }

    pub(crate) fn datagram_daemon(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        self.answer_datagrams(UnixDatagram::bind(&path).unwrap());
        path
    }

    pub(crate) fn answer_datagrams(&self, socket: UnixDatagram) {
        socket.set_nonblocking(true).unwrap();
        self.daemon(move || socket.recv(&mut [0; 8]).is_ok());
    }

    /// A daemon that hands a descriptor for writing to whoever connects.
    pub(crate) fn generous_daemon(&self, name: &str) -> PathBuf {
        let (path, gift) = (self.at(name), self.at("f"));
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.serve(move || {
            let Ok((stream, _)) = listener.accept() else { return };
            let file = fs::OpenOptions::new().append(true).open(&gift).unwrap();
            let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = rustix::net::SendAncillaryBuffer::new(&mut room);
            let gifts = [std::os::fd::AsFd::as_fd(&file)];
            assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&gifts)));
            let parts = [io::IoSlice::new(b"!")];
            // Who connected may be gone already.
            let _sent = rustix::net::sendmsg(&stream, &parts, &mut control, rustix::net::SendFlags::NOSIGNAL);
        });
        path
    }

    /// A daemon on a port of the loopback interface. Returns the port.
    pub(crate) fn tcp_daemon(&self, address: &str) -> Option<u16> {
        let listener = TcpListener::bind((address, 0)).ok()?;
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        self.daemon(move || listener.accept().is_ok());
        Some(port)
    }

    pub(crate) fn udp_daemon(&self, address: &str) -> u16 {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        self.daemon(move || socket.recv(&mut [0; 8]).is_ok());
        port
    }

    /// A daemon that does what is put into its spool directory, as `at` and `cron` do. Returns the directory.
    pub(crate) fn spool_daemon(&self) -> PathBuf {
        let spool = self.at("spool");
        fs::create_dir(&spool).unwrap();
        let watched = spool.clone();
        self.daemon(move || fs::read_dir(&watched).is_ok_and(|mut jobs| jobs.next().is_some()));
        spool
    }

    /// Reads from the FIFO of the scene, and writes once something came.
    pub(crate) fn fifo_daemon(&self) {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        let fifo = rustix::fs::open(self.at("fifo"), flags, Mode::empty()).unwrap();
        self.daemon(move || rustix::io::read(&fifo, &mut [0_u8; 8]).is_ok_and(|length| length > 0));
    }

    /// A daemon that starts the program that it is told.
    pub(crate) fn manager_daemon(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.serve(move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut order = vec![0; 1024];
            let length = stream.read(&mut order).unwrap_or(0);
            let order = String::from_utf8_lossy(&order[..length]).into_owned();
            if let Some(program) = order.lines().last().filter(|program| program.starts_with("touch ")) {
                let started = std::process::Command::new("/bin/sh").args(["-c", program]).status();
                assert!(started.unwrap().success(), "{program}");
            }
        });
        path
    }

    pub(crate) fn packet_daemon(&self, name: &str) -> PathBuf {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let path = self.at(name);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        self.daemon(move || rustix::net::accept(&listener).is_ok());
        path
    }

    fn daemon(&self, mut is_asked: impl FnMut() -> bool + Send + 'static) {
        let written = self.at("written");
        self.serve(move || {
            if is_asked() {
                // The scene may be gone: then nobody waits for it.
                let _written = fs::write(&written, "by a daemon of the host");
            }
        });
    }

    fn serve(&self, work: impl FnMut() + Send + 'static) {
        self.daemons.borrow_mut().push(Daemon::start(work));
    }

    /// Does something once the attempt has been judged.
    pub(crate) fn later(&self, what: impl FnOnce() + 'static) {
        self.later.borrow_mut().push(Box::new(what));
    }

    /// Ends the daemons of an attempt, and removes what else it was given.
    pub(crate) fn dismiss(&self) {
        self.daemons.borrow_mut().clear();
        for what in self.later.take() {
            what();
        }
    }
}

fn inheritable(places: &Places) -> OwnedFd {
    let file: OwnedFd = fs::OpenOptions::new().append(true).open(places.outside_file()).unwrap().into();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    file
}

/// Whether something came on a stream. It may take whoever connected a moment.
fn asked(mut stream: &std::os::unix::net::UnixStream) -> bool {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.read(&mut [0; 8]).is_ok_and(|length| length > 0)
}

struct Daemon {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start(mut work: impl FnMut() + Send + 'static) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Acquire) {
                work();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Daemon { stops, thread: Some(thread) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Removes whatever has the name, with whatever modes an attempt left.
fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => panic!("look at {}: {error}", path.display()),
        Ok(found) if found.is_dir() => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            for entry in fs::read_dir(path).unwrap() {
                remove(&entry.unwrap().path());
            }
            fs::remove_dir(path).unwrap();
        }
        Ok(_) => fs::remove_file(path).unwrap(),
    }
}
