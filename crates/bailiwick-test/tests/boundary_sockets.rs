//! C27: named sockets. A command connects to those in its roots and in its temporary directory, and to no
//! other: neither by name nor by another way to write it, nor in the moment between check and use.

#![cfg(test)]

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailiwick::{Child, Layer, Network, Protection, Session, Standing, Stdio, WhenBusy};
use bailiwick_test::act::{self, Report};
use bailiwick_test::boundary::{accepting_all, report, run};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{Need, Places, World, cases, fixture, image, node, python3, requires, tool, wait_until};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

/// Time enough for anything that does not hang.
const LONG: Duration = Duration::from_secs(30);

/// A listener of the host, and whether it was reached.
struct Daemon {
    path: PathBuf,
    listener: UnixListener,
}

impl Daemon {
    fn at(path: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        fixture::assert_socket(&path);
        listener.set_nonblocking(true).unwrap();
        Self { path, listener }
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// What the next client sent.
    #[track_caller]
    fn received(&self) -> String {
        let (mut client, _) = self.listener.accept().expect("nobody has connected");
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[track_caller]
    fn assert_untouched(&self) {
        let error = self.listener.accept().expect_err("somebody has connected");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    /// Lets the queue fill up, so that the next client waits. The clients are the caller's to keep.
    fn fill(&self) -> Vec<UnixStream> {
        rustix::net::listen(&self.listener, 1).unwrap();
        let address = rustix::net::SocketAddrUnix::new(&self.path).unwrap();
        let mut clients = Vec::new();
        loop {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let family = rustix::net::AddressFamily::UNIX;
            let client =
                rustix::net::socket_with(family, rustix::net::SocketType::STREAM, flags, None).unwrap();
            match rustix::net::connect(&client, &address) {
                Ok(()) => clients.push(client.into()),
                Err(errno) => {
                    assert_eq!(errno, rustix::io::Errno::AGAIN);
                    return clients;
                }
            }
        }
    }
}

/// A daemon in the root and one outside.
fn daemons(world: &World) -> (Daemon, Daemon) {
    (Daemon::at(world.write_root().join("s")), Daemon::at(world.outside().join("s")))
}

/// Starts an act; its report is read by [`ended`].
async fn start(session: &Session, act: &[&str]) -> Child {
    session.command(tool("act")).args(act).stdout(Stdio::piped()).spawn().await.unwrap()
}

async fn ended(mut child: Child) -> Report {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert!(child.wait().await.unwrap().success());
    Report::parse(text)
}

/// Whether a process waits in `connect`, or its call is being served.
fn is_connecting(pid: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall"));
    // A plain user may not look; then it sleeps, and does nothing else before.
    call.map_or_else(
        |_| process::Process::of(pid).is_some_and(|process| process.state == 'S'),
        |call| call.starts_with("42 "),
    )
}

/// Kills this session's brokers from inside, as a command can.
async fn kill_brokers(session: &Session) {
    let script = "for c in /proc/[0-9]*/comm; do read -r name < $c 2>/dev/null || continue; \
        case $name in bailiwick-brok) p=${c#/proc/}; kill -9 ${p%/comm} && echo killed;; esac; done";
    let output = done(&sh(session, script).await);
    assert!(output.contains("killed"), "{output}");
}

cases! {
    /// A daemon outside is not reached, one in the root is.
    async fn c27_daemons_outside_are_out_of_reach(world: &World) {
        let (inside, outside) = daemons(world);
        let places = Places::of(world);
        let session = open(places.session()).await;
        let kept = session.enforcement().await.standing(Protection::NamedSockets).cloned();
        let layers = vec![Layer::MountView, Layer::SocketBroker];
        assert_eq!(kept, Some(Standing::Kept { layers: layers.clone() }));
        run(&session, &["unix-connect", outside.name()]).await.assert_refused(&["EACCES"]);
        outside.assert_untouched();
        run(&session, &["unix-connect", inside.name()]).await.assert_done();
        assert_eq!(inside.received(), "act");
        close(&session).await;
        // Without either layer, and without any confinement.
        for layer in layers {
            let without = open(accepting_all(&places, layer.name())._worker_image(image(layer))).await;
            assert!(!without.enforcement().await.keeps(Protection::NamedSockets));
            run(&without, &["unix-connect", outside.name()]).await.assert_done();
            assert_eq!(outside.received(), "act");
            run(&without, &["socketpair", "unix", "dgram"]).await.assert_done();
            close(&without).await;
        }
        act::bare(&["unix-connect", outside.name()]).assert_done();
        assert_eq!(outside.received(), "act");
        // Nor is one needed to open, where the network is allowed.
        let open_network = Session::builder(world.path().join("store-network"))
            .temporary_parent(places.temporary())
            .network(Network::Allow);
        let session = open(open_network).await;
        assert!(!session.enforcement().await.keeps(Protection::NamedSockets));
        run(&session, &["unix-connect", outside.name()]).await.assert_done();
        assert_eq!(outside.received(), "act");
        close(&session).await;
        places.assert_nothing_left();
    }

    /// However the name is written.
    async fn spellings(world: &World) {
        let places = Places::of(world);
        let (inside, outside) = daemons(world);
        let session = places.open().await;
        let root = world.write_root();
        fs::create_dir(root.join("d")).unwrap();
        for (link, target) in [("d/in", "../s"), ("d/out", "../../X/s"), ("d/dir", "/proc/self/cwd/../X")] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(world.outside(), root.join("X")).unwrap();
        symlink(&root, root.join("W")).unwrap();
        let x = world.outside();
        let (root, x) = (root.display(), x.display());
        let connect = format!("{} unix-connect", tool("act").display());
        let refused = [
            "../../X/s".to_owned(),
            "out".to_owned(),
            "../X/s".to_owned(),
            "dir/s".to_owned(),
            format!("{root}/X/s"),
            format!("{root}/d/../X/s"),
            format!("//{x}//./s"),
            "/proc/self/cwd/out".to_owned(),
            "/proc/self/fd/7/s".to_owned(),
            "/dev/fd/7/s".to_owned(),
            "/proc/self/root/proc/self/cwd/../../X/s".to_owned(),
        ];
        for name in refused {
            let output = sh(&session, &format!("cd d; exec 7<{x}; exec {connect} '{name}'")).await;
            report(&output).assert_refused(&["EACCES", "ENOENT"]);
            outside.assert_untouched();
        }
        let permitted = [
            "../s".to_owned(),
            "in".to_owned(),
            "../W/s".to_owned(),
            "../X/../W/s".to_owned(),
            format!("{root}/W/d/../s"),
            "/proc/self/cwd/../s".to_owned(),
            "/proc/thread-self/cwd/in".to_owned(),
            "/proc/self/fd/7/s".to_owned(),
            "/dev/fd/7/d/in".to_owned(),
        ];
        for name in permitted {
            let script = format!("cd d; exec 7<{root}; exec {connect} '{name}'");
            let report = report(&sh(&session, &script).await);
            assert!(report.ok, "{name}: {report:?}");
            assert_eq!(inside.received(), "act");
        }
        outside.assert_untouched();
        close(&session).await;
    }

    /// The answers to all ways of calling are those of the kernel.
    async fn answers_are_the_kernels(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let [bare, confined] = ["bare", "confined"].map(|name| world.write_root().join(name));
        for directory in [&bare, &confined] {
            fs::create_dir(directory).unwrap();
        }
        let expected = act::bare(&["connect-answers", bare.to_str().unwrap()]);
        let found = run(&session, &["connect-answers", confined.to_str().unwrap()]).await;
        let (mut expected, mut found) = (expected.value, found.value);
        // Without capabilities a mode counts for root as well.
        let permission = |value: &mut serde_json::Value| value.as_object_mut().unwrap().remove("not permitted");
        let (of_host, of_command) = (permission(&mut expected), permission(&mut found));
        assert_eq!(of_command, Some(json!(libc::EACCES)));
        assert_eq!(of_host, Some(json!(if rustix::process::geteuid().is_root() { 0 } else { libc::EACCES })));
        assert_eq!(found, expected);
        assert!(expected.as_object().unwrap().len() > 30);
        close(&session).await;
    }

    /// An address that changes between check and use leads nowhere else.
    async fn a_changing_address(world: &World) {
        let places = Places::of(world);
        let (inside, outside) = daemons(world);
        let session = places.open().await;
        rustix::net::listen(&inside.listener, 4096).unwrap();
        let report = run(&session, &["connect-race", inside.name(), outside.name(), "400"]).await;
        let count = |name: &str| report.value[name].as_u64().unwrap();
        assert!(count("connected") > 0 && count("refused") > 0, "{report:?}");
        outside.assert_untouched();
        let mut reached = 0;
        while inside.listener.accept().is_ok() {
            reached += 1;
        }
        assert!(reached >= count("connected"), "{reached}: {report:?}");
        close(&session).await;
    }

    /// Datagrams need no `connect`, so there are none; the types that need it take no address from a sender.
    async fn addresses_of_a_sender(world: &World) {
        let places = Places::of(world);
        let path = world.outside().join("datagrams");
        let daemon = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        daemon.set_nonblocking(true).unwrap();
        let name = path.to_str().unwrap();
        let nothing = || daemon.recv(&mut [0; 8]).is_err();
        let session = places.open().await;
        run(&session, &["send-to-named", "dgram", name]).await.assert_refused(&["EPERM"]);
        run(&session, &["send-to-named-connected", "dgram", name]).await.assert_refused(&["EPERM"]);
        run(&session, &["socket", "unix", "raw"]).await.assert_refused(&["EPERM"]);
        assert!(nothing());
        act::bare(&["send-to-named", "dgram", name]).assert_done();
        assert!(!nothing());
        assert_eq!(act::bare(&["send-to-named-connected", "dgram", name]).value, "named");
        assert!(!nothing());
        // What the filter lets pass: the kernel refuses the address, or sends to the peer.
        let streams = ["send-to-named", "stream", name];
        let packets = ["send-to-named", "seqpacket", name];
        for report in [act::bare(&streams), run(&session, &streams).await] {
            report.assert_refused(&["EOPNOTSUPP"]);
        }
        for report in [act::bare(&packets), run(&session, &packets).await] {
            report.assert_refused(&["ENOTCONN"]);
        }
        let streams = ["send-to-named-connected", "stream", name];
        let packets = ["send-to-named-connected", "seqpacket", name];
        for report in [act::bare(&streams), run(&session, &streams).await] {
            report.assert_refused(&["EISCONN"]);
        }
        for report in [act::bare(&packets), run(&session, &packets).await] {
            report.assert_done();
            assert_eq!(report.value, "peer");
        }
        assert!(nothing());
        close(&session).await;
    }

    /// A server of an earlier command, in the root and in the temporary directory, is reached by a later one.
    async fn servers_of_the_session(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        for name in [world.write_root().join("server"), session.temporary_dir().join("server")] {
            let name = name.to_str().unwrap();
            let mut server = start(&session, &["unix-listen", name, "60"]).await;
            assert!(wait_until(GENEROUS, || process::listens(server.id(), name.as_ref())));
            run(&session, &["unix-connect", name]).await.assert_done();
            server.kill().await.unwrap();
            run(&session, &["unix-connect", name]).await.assert_refused(&["ECONNREFUSED"]);
        }
        close(&session).await;
    }

    /// Whoever waits for room in a queue holds up nobody else, and goes on when there is some.
    async fn a_full_queue(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let report = run(&session, &["connect-full", world.write_root().to_str().unwrap()]).await;
        report.assert_done();
        assert_eq!(report.value, json!({"others": 50, "waiting": 3, "connected": 3}));
        close(&session).await;
    }

    /// Clients that are killed while they wait leave nothing behind: there is room for the next ones, far beyond what
    /// waits at one time.
    async fn killed_clients(world: &World) {
        let places = Places::of(world);
        let (inside, _) = daemons(world);
        let session = places.open().await;
        let queued = inside.fill();
        let script = "i=0; while [ $i -lt 160 ]; do $ACT unix-connect $NAME & p=\"$p $!\"; i=$((i+1)); \
            done; sleep 0.3; kill -9 $p; wait; echo over";
        for _ in 0..2 {
            let command = session.command("/bin/sh").args(["-c", script]);
            let command = command.env("ACT", tool("act")).env("NAME", inside.name());
            let output = command.timeout(LONG).output().await.unwrap();
            assert!(output.stdout.text().ends_with("over\n"), "{}", output.stderr.text());
            let free = inside.path.with_file_name("free");
            let daemon = Daemon::at(free.clone());
            // As soon as it was noticed that those are gone.
            let deadline = Instant::now() + GENEROUS;
            loop {
                let report = run(&session, &["unix-connect", daemon.name()]).await;
                if report.ok {
                    break;
                }
                report.assert_refused(&["EAGAIN"]);
                assert!(Instant::now() < deadline, "those that were killed are still waited for");
            }
            drop(daemon);
            fs::remove_file(free).unwrap();
        }
        // Nobody who was killed has connected after all, once each thread that waited has noticed.
        let brokers = || places.machinery().into_iter().filter(|process| process.name.starts_with("bailiwick-brok"));
        let threads = |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        assert!(brokers().count() > 0, "no process is called so");
        assert!(wait_until(GENEROUS * 2, || brokers().all(|broker| threads(broker.pid) <= 4)), "threads still wait");
        for _ in &queued {
            inside.listener.accept().unwrap();
        }
        inside.assert_untouched();
        close(&session).await;
    }

    /// A client that waits is one that a signal reaches.
    async fn signals_of_a_client(world: &World) {
        let places = Places::of(world);
        let (inside, _) = daemons(world);
        let session = places.open().await;
        let queued = inside.fill();
        run(&session, &["connect-alarmed", inside.name(), "0"]).await.assert_refused(&["EINTR"]);
        let restarted = start(&session, &["connect-alarmed", inside.name(), "1"]).await;
        let unconnected = start(&session, &["unix-connect", inside.name()]).await;
        assert!(wait_until(GENEROUS, || is_connecting(restarted.id()) && is_connecting(unconnected.id())));
        // It can be stopped and continued.
        rustix::process::kill_process(pid(&unconnected), rustix::process::Signal::STOP).unwrap();
        let state = |wanted| {
            let id = unconnected.id();
            wait_until(GENEROUS, || process::Process::of(id).is_some_and(|process| process.state == wanted))
        };
        assert!(state('T'), "it does not stop");
        rustix::process::kill_process(pid(&unconnected), rustix::process::Signal::CONT).unwrap();
        for _ in 0..queued.len() + 2 {
            let accepted = || inside.listener.accept().is_ok();
            assert!(wait_until(GENEROUS, accepted));
        }
        ended(restarted).await.assert_done();
        ended(unconnected).await.assert_done();
        close(&session).await;
    }

    /// A limit that the socket has of its own ends the wait.
    async fn a_limit_of_the_socket(world: &World) {
        let places = Places::of(world);
        let (inside, _) = daemons(world);
        let session = places.open().await;
        let _queued = inside.fill();
        let report = run(&session, &["connect-limited", inside.name(), "150"]).await;
        report.assert_done();
        let took = report.value.as_u64().unwrap();
        assert!((150..5000).contains(&took), "{took} ms");
        close(&session).await;
    }

    /// A killed broker is replaced, as often as it is killed. Whoever it served just then is told.
    async fn killed_brokers(world: &World) {
        let places = Places::of(world);
        let (inside, outside) = daemons(world);
        let session = places.open().await;
        for _ in 0..3 {
            kill_brokers(&session).await;
            run(&session, &["unix-connect", inside.name()]).await.assert_done();
            assert_eq!(inside.received(), "act");
            run(&session, &["unix-connect", outside.name()]).await.assert_refused(&["EACCES"]);
        }
        outside.assert_untouched();
        let _queued = inside.fill();
        let waiting = start(&session, &["unix-connect", inside.name()]).await;
        assert!(wait_until(GENEROUS, || is_connecting(waiting.id())));
        // Until it was taken up; before, the next broker takes it up.
        tokio::time::sleep(Duration::from_millis(100)).await;
        kill_brokers(&session).await;
        let output = tokio::time::timeout(LONG, ended(waiting)).await.expect("it waits for ever");
        output.assert_refused(&["ECONNABORTED"]);
        assert_eq!(session.processes().await.unwrap(), [], "the session's own are listed");
        close(&session).await;
        places.assert_nothing_left();
    }

    /// Killed all the time, and stopped: whoever connects meanwhile gets an answer, and afterwards all is as before.
    async fn brokers_under_attack(world: &World) {
        let places = Places::of(world);
        let (inside, outside) = daemons(world);
        rustix::net::listen(&inside.listener, 4096).unwrap();
        let session = places.open().await;
        for signal in ["KILL", "STOP"] {
            let script = format!(
                "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do for c in /proc/[0-9]*/comm; do \
                 read -r name < $c 2>/dev/null || continue; case $name in bailiwick-brok) p=${{c#/proc/}}; \
                 kill -{signal} ${{p%/comm}};; esac; done; done 2>/dev/null"
            );
            let attack = session.command("/bin/sh").args(["-c", &script]).spawn().await;
            let mut attack = attack.unwrap();
            let (mut connected, mut given_up) = (0, 0);
            while attack.try_wait().unwrap().is_none() {
                let act = ["unix-connect", inside.name()];
                let report = tokio::time::timeout(LONG, run(&session, &act)).await.expect("it waits for ever");
                match report.name.as_str() {
                    "" => connected += 1,
                    "ECONNABORTED" => given_up += 1,
                    other => panic!("{signal}: {other}"),
                }
                run(&session, &["unix-connect", outside.name()]).await.assert_refused(&["EACCES", "ECONNABORTED"]);
            }
            assert!(connected + given_up > 0);
            attack.wait().await.unwrap();
            run(&session, &["unix-connect", inside.name()]).await.assert_done();
        }
        outside.assert_untouched();
        close(&session).await;
        places.assert_nothing_left();
    }

    /// Programs that nobody may look into, and threads with descriptors of their own.
    async fn unusual_clients(world: &World) {
        let places = Places::of(world);
        let (inside, outside) = daemons(world);
        let session = places.open().await;
        for act in ["connect-undumpable", "connect-own-table"] {
            run(&session, &[act, inside.name()]).await.assert_done();
            assert_eq!(inside.received(), "act");
            run(&session, &[act, outside.name()]).await.assert_refused(&["EACCES"]);
            outside.assert_untouched();
        }
        close(&session).await;
    }

    /// The next grant has its own roots, and its own broker.
    async fn across_grants(world: &World) {
        let places = Places::of(world);
        let (one, other) = daemons(world);
        let session = places.open().await;
        run(&session, &["unix-connect", one.name()]).await.assert_done();
        assert_eq!(one.received(), "act");
        let wait = WhenBusy::Wait(GENEROUS);
        session.replace_write_roots([world.outside()]).when_busy(wait).await.unwrap();
        for _ in 0..2 {
            run(&session, &["unix-connect", one.name()]).await.assert_refused(&["EACCES"]);
            one.assert_untouched();
            run(&session, &["unix-connect", other.name()]).await.assert_done();
            assert_eq!(other.received(), "act");
            kill_brokers(&session).await;
        }
        // The broker of a grant that no process has any more is gone with it.
        let brokers = || {
            let own = process::descendants(session.own_processes().0);
            own.iter().filter(|process| process.name == "bailiwick-brok").count()
        };
        session.replace_write_roots([world.write_root()]).when_busy(wait).await.unwrap();
        assert!(wait_until(GENEROUS, || brokers() == 1), "{} brokers", brokers());
        close(&session).await;
    }

    /// The session's own loopback interface goes through the same hands.
    async fn the_loopback_interface(world: &World) {
        let places = Places::of(world);
        let (inside, outside) = daemons(world);
        let session = open(places.session().network(Network::Loopback)).await;
        requires!(Need::Python3, "a server and its clients");
        let script = "import socket, threading\n\
            s = socket.create_server(('127.0.0.1', 0))\n\
            def serve():\n\
            \x20   for _ in range(21): s.accept()[0].sendall(b'x')\n\
            threading.Thread(target=serve).start()\n\
            for i in range(20):\n\
            \x20   assert socket.create_connection(s.getsockname()).recv(1) == b'x'\n\
            c = socket.socket(); c.setblocking(False)\n\
            assert c.connect_ex(s.getsockname()) in (0, 115)\n\
            import select; select.select([], [c], [], 20); c.setblocking(True)\n\
            assert c.recv(1) == b'x'\n\
            d = socket.socket(); assert d.connect_ex(('127.0.0.1', 1)) == 111\n\
            print('fine')";
        let python = python3().unwrap();
        let output = session.command(python).args(["-c", script]).timeout(LONG).output().await.unwrap();
        assert_eq!(done(&output), "fine\n");
        run(&session, &["unix-connect", inside.name()]).await.assert_done();
        run(&session, &["unix-connect", outside.name()]).await.assert_refused(&["EACCES"]);
        outside.assert_untouched();
        close(&session).await;
    }

    /// What runtimes do with local sockets.
    async fn runtimes(world: &World) {
        requires!(Need::Node, "its servers and clients");
        requires!(Need::Python3, "its processes that talk to each other");
        let places = Places::of(world);
        let session = places.open().await;
        let script = "const net = require('net'), path = process.env.TMPDIR + '/n.sock'; \
            const server = net.createServer(c => c.end('hello')).listen(path, () => { let left = 50; \
            for (let i = 0; i < 50; i++) { let text = ''; net.connect(path).on('data', d => text += d) \
            .on('close', () => { if (text !== 'hello') process.exit(9); \
            if (--left === 0) { console.log('fine'); server.close(); } }); } });";
        let output = session.command(node().unwrap()).args(["-e", script]).timeout(LONG).output().await;
        assert_eq!(done(&output.unwrap()), "fine\n");
        let script = "import multiprocessing as m, multiprocessing.connection as c, os\n\
            def work(path):\n\
            \x20   with c.Client(path) as k: k.send(os.getpid())\n\
            if __name__ == '__main__':\n\
            \x20   m.set_start_method('forkserver')\n\
            \x20   with m.Manager() as g:\n\
            \x20       l = g.list(range(3)); l.append(4); assert list(l) == [0, 1, 2, 4]\n\
            \x20   path = os.environ['TMPDIR'] + '/p.sock'\n\
            \x20   with c.Listener(path, backlog=8) as s:\n\
            \x20       p = [m.Process(target=work, args=(path,)) for _ in range(4)]\n\
            \x20       [q.start() for q in p]\n\
            \x20       assert {s.accept().recv() for _ in p} == {q.pid for q in p}\n\
            \x20       [q.join() for q in p]\n\
            \x20   print('fine')";
        let file = world.write_root().join("several.py");
        fs::write(&file, script).unwrap();
        let output = session.command(python3().unwrap()).arg(&file).timeout(LONG).output().await;
        assert_eq!(done(&output.unwrap()), "fine\n");
        close(&session).await;
    }
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// What a connection costs. Run by hand: `cargo nextest run --release --run-ignored only -E 'test(speed_of)'`.
#[test]
#[ignore = "a measurement"]
fn speed_of_connections() {
    let world = World::new();
    let places = Places::of(&world);
    world.block_on(async {
        let session = places.open().await;
        let plain = open(accepting_all(&places, "plain")._worker_image(image(Layer::SocketBroker))).await;
        let directory = |name: &str| {
            let path = world.write_root().join(name);
            fs::create_dir_all(&path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        for _ in 0..5 {
            let (one, other, third) = (directory("a"), directory("b"), directory("c"));
            let brokered = run(&session, &["connect-speed", &one, "2000"]).await.value;
            let filtered = run(&plain, &["connect-speed", &other, "2000"]).await.value;
            let bare = act::bare(&["connect-speed", &third, "2000"]).value;
            eprintln!(
                "median of one connection: brokered {brokered} ns, filtered {filtered} ns, bare {bare} ns"
            );
        }
        // A command that does not connect, each after one of the other session.
        let mut taken = [Vec::new(), Vec::new()];
        for _ in 0..300 {
            for (session, taken) in [&session, &plain].into_iter().zip(&mut taken) {
                let began = Instant::now();
                session.command("/bin/true").output().await.unwrap();
                taken.push(began.elapsed());
            }
        }
        let [brokered, plain_command] = taken.map(|mut taken| {
            taken.sort_unstable();
            taken[taken.len() / 2]
        });
        eprintln!(
            "median of a command without connections: brokered {brokered:?}, filtered {plain_command:?}"
        );
        close(&session).await;
        close(&plain).await;
    });
}
