//! Positive controls: every act succeeds without confinement, and the world shows it. An act that fails
//! bare would make each refusal inside a session look like a success of the session.

#![cfg(test)]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bailiwick_test::act::{Report, bare, report_of};
use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{
    Need, Snapshot, World, case, cases, requires, root_cases, tool, user_cases, wait_until,
};

/// Runs an act with file names of the write root in the place of `@name`.
fn inside(world: &World, act: &str) -> Report {
    let expanded: Vec<String> = act
        .split(' ')
        .map(|word| match word.strip_prefix('@') {
            Some(name) => world.write_root().join(name).to_str().unwrap().to_owned(),
            None => word.to_owned(),
        })
        .collect();
    bare(&expanded)
}

fn file(world: &World, name: &str) -> PathBuf {
    let path = world.write_root().join(name);
    fs::write(&path, "content").unwrap();
    path
}

/// Runs an act in mount, host name and IPC namespaces of its own, as root.
fn apart(act: &[&str]) -> Report {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--uts", "--ipc", "--propagation", "private", "--"]).arg(tool("act")).args(act);
    report_of(&mut command)
}

struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Sleeper(Command::new(tool("act")).args(["pause", "60"]).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        process::kill_tree(self.0.id());
        self.0.wait().unwrap();
    }
}

struct Bomb {
    child: Child,
    uid: u32,
}

impl Bomb {
    fn new(uid: u32, count: u64, kind: &str) -> Self {
        // Room for the threads of this test, and for zombies that init has not reaped yet.
        case::limit_processes(if kind == "refill" { count } else { count + 20 });
        let child = Command::new(tool("act")).args(["fork-bomb", &count.to_string(), kind]).spawn().unwrap();
        Bomb { child, uid }
    }

    fn alive(&self) -> Vec<process::Process> {
        let all = process::of_uid(self.uid).into_iter();
        all.filter(|one| one.name == "act" && !one.is_zombie()).collect()
    }

    /// Waits until it has grown to `least`, checks its bound, and ends it.
    fn reaches(mut self, least: usize, most: usize) {
        assert!(wait_until(GENEROUS, || self.alive().len() >= least), "{:?}", self.alive());
        assert!(self.alive().len() <= most, "{:?}", self.alive());
        let ended = wait_until(GENEROUS, || {
            self.alive().iter().for_each(|one| process::kill(one.pid));
            std::thread::sleep(Duration::from_millis(20));
            self.alive().is_empty()
        });
        assert!(ended, "{:?}", self.alive());
        self.child.wait().unwrap();
    }
}

cases! {
    /// Content and names.
    fn files(world: &World) {
        for name in ["a", "b", "c", "d", "e", "g"] {
            file(world, name);
        }
        let root = world.write_root();
        assert_eq!(inside(world, "read @a").value, "content");
        inside(world, "open-write @a").assert_done();
        assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "acttent");
        inside(world, "open-append @b").assert_done();
        assert_eq!(fs::read_to_string(root.join("b")).unwrap(), "contentact");
        inside(world, "truncate @c").assert_done();
        assert_eq!(fs::metadata(root.join("c")).unwrap().len(), 0);
        inside(world, "unlink @d").assert_done();
        assert!(!root.join("d").exists());
        inside(world, "create @new").assert_done();
        inside(world, "create @new").assert_refused(&["EEXIST"]);
        inside(world, "mkdir @dir").assert_done();
        assert!(root.join("dir").is_dir());
        inside(world, "rmdir @dir").assert_done();
        assert!(!root.join("dir").exists());
        inside(world, "rename @e @dir").assert_done();
        assert!(root.join("dir").is_file());
        inside(world, "rename-exchange @a @b").assert_done();
        assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "contentact");
        inside(world, "link @g @h").assert_done();
        bailiwick_test::fixture::assert_hard_links(root.join("g"), root.join("h"));
        inside(world, "symlink @g @s").assert_done();
        bailiwick_test::fixture::assert_link(root.join("s"), root.join("g"));
        inside(world, "mkfifo @fifo").assert_done();
        bailiwick_test::fixture::assert_fifo(root.join("fifo"));
    }

    /// Mode, times, attributes, flags.
    fn metadata(world: &World) {
        let path = file(world, "m");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        inside(world, "chmod @m 600").assert_done();
        assert_eq!(mode(), 0o600);
        inside(world, "setid-mode @m").assert_done();
        assert_eq!(mode(), 0o4755);
        inside(world, "openat2-setid @n").assert_done();
        assert_eq!(fs::metadata(world.write_root().join("n")).unwrap().mode() & 0o4000, 0o4000);
        inside(world, "utimes @m").assert_done();
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 1);
        let us = fs::metadata(&path).unwrap();
        inside(world, &format!("chown @m {} {}", us.uid(), us.gid())).assert_done();
        for act in ["setxattr @m", "fs-setflags @m", "fsxattr @m"] {
            let before = Snapshot::of(&path);
            inside(world, act).assert_done();
            before.assert_changed();
        }
    }

    /// Descriptors that the program was given, and nothing else is open.
    fn descriptors(world: &World) {
        let path = file(world, "d");
        let given = |act: &[&str]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", r#"exec "$@" 7>>"$0""#]).arg(&path).arg(tool("act")).args(act);
            report_of(&mut shell)
        };
        given(&["write-fd", "7", "+"]).assert_done();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content+");
        given(&["fchmod", "7", "601"]).assert_done();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o601);
        assert!(given(&["list-fds"]).value.as_array().unwrap().contains(&7.into()));
        bare(&["write-fd", "9999", "x"]).assert_refused(&["EBADF"]);
        // FIOCLEX sets close-on-exec, on any descriptor.
        bare(&["ioctl", "1", "0x5451"]).assert_done();
        bare(&["ioctl", "1", "0x5401"]).assert_refused(&["ENOTTY"]); // TCGETS on a pipe
    }

    /// Terminals: a pair of its own, and the controlling one that `script` gives.
    fn terminals(world: &World) {
        bare(&["openpty"]).assert_done();
        requires!(Need::Script, "gives the act a controlling terminal");
        let typed = world.write_root().join("typed");
        for act in ["tty-open", "tiocsti 0"] {
            let command = format!("{} {act} > {}", tool("act").display(), typed.display());
            let status = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null())
                .stdout(Stdio::null()).status().unwrap();
            assert!(status.success(), "{act}: {status}");
            let report = Report::parse(fs::read(&typed).unwrap());
            // A kernel without dev.tty.legacy_tiocsti refuses everybody but root.
            let legacy = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|value| value.trim() == "0");
            if act.starts_with("tiocsti") && legacy && !case::is_root() {
                report.assert_refused(&["EIO"]);
            } else {
                report.assert_done();
            }
        }
    }

    /// Other processes of the same user.
    fn other_processes(_world: &World) {
        let sleeper = Sleeper::new();
        let pid = sleeper.pid();
        for act in ["ptrace-attach", "vm-read", "sched", "affinity"] {
            bare(&[act, &pid]).assert_done();
        }
        bare(&["pidfd-getfd", &pid, "0"]).assert_done();
        bare(&["kill", &pid, "0"]).assert_done();
        bare(&["kill-all"]).assert_done();
        bare(&["prlimit", &pid, "23"]).assert_done();
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        assert!(limits.lines().any(|line| line.starts_with("Max open files") && line.contains(" 23 ")), "{limits}");
        bare(&["setpriority", &pid, "7"]).assert_done();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert_eq!(stat.rsplit(')').next().unwrap().split_whitespace().nth(16), Some("7"));

        for act in ["kill", "pidfd-kill"] {
            let mut victim = Sleeper::new();
            bare(&[act, &victim.pid(), "9"]).assert_done();
            assert!(wait_until(GENEROUS, || victim.0.try_wait().unwrap().is_some()), "{act}");
        }
        bare(&["kill", "4194304", "0"]).assert_refused(&["ESRCH"]); // PID_MAX_LIMIT: no process has it
    }

    /// Sockets of every family that a session may and may not have.
    fn sockets(world: &World) {
        for kind in ["unix stream", "unix dgram", "unix seqpacket", "inet stream", "inet dgram", "inet6 stream", "netlink raw"] {
            inside(world, &format!("socket {kind} 0")).assert_done();
        }
        inside(world, "socketpair unix stream").assert_done();
        inside(world, "unix-listen @own.sock").assert_done();
        inside(world, "abstract-listen bw-act-own").assert_done();
        let listening = inside(world, "tcp-listen-without-bind");
        listening.assert_done();
        assert!(listening.value.as_u64().unwrap() > 0, "the kernel picked a port");

        let listener = UnixListener::bind(world.write_root().join("l.sock")).unwrap();
        inside(world, "unix-connect @l.sock").assert_done();
        assert_eq!(text(&mut listener.accept().unwrap().0), "act");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        inside(world, &format!("tcp-connect 127.0.0.1 {port}")).assert_done();
        assert_eq!(text(&mut listener.accept().unwrap().0), "act");
        inside(world, &format!("tcp-fastopen 127.0.0.1 {port}")).assert_done();
        assert_eq!(text(&mut listener.accept().unwrap().0), "act");

        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(GENEROUS)).unwrap();
        inside(world, &format!("udp-send 127.0.0.1 {}", receiver.local_addr().unwrap().port())).assert_done();
        let mut received = [0; 8];
        assert_eq!(receiver.recv(&mut received).unwrap(), 3);
    }

    /// The other ways into the kernel.
    fn unusual_entries(_world: &World) {
        requires!(Need::IoUring);
        bare(&["io-uring-setup"]).assert_done();
        bare(&["io-uring-socket"]).assert_done();
        requires!(Need::Ia32);
        bare(&["int80"]).assert_done();
        bare(&["int80-socket"]).assert_done();
    }

    /// Where the kernel has no x32, it says so; where it has, the call works.
    fn x32(_world: &World) {
        let report = bare(&["x32-getpid"]);
        assert!(report.ok || report.name == "ENOSYS", "{report:?}");
    }

    /// Parts of the kernel that every user may use.
    fn kernel_for_everybody(world: &World) {
        for act in ["clone3", "keyctl", "add-key", "memfd-exec", "userfaultfd", "msgget", "fanotify @"] {
            inside(world, act).assert_done();
        }
        requires!(Need::Vsock);
        inside(world, "socket vsock stream 0").assert_done();
    }

    /// Shared memory: one process makes it, another overwrites it.
    fn shared_memory(_world: &World) {
        let made = bare(&["shmget"]);
        made.assert_done();
        let id = made.value.to_string();
        bare(&["shmat", &id]).assert_done();
        bare(&["shmrm", &id]).assert_done();
        bare(&["shmat", &id]).assert_refused(&["EINVAL", "EIDRM"]);
    }

    /// A process that cut every tie is still found by its name, as nobody's child.
    fn daemon(world: &World) {
        let name = world.path().file_name().unwrap().to_str().unwrap().to_owned();
        let status = Command::new(tool("act")).args(["daemonize", "60", &name]).status().unwrap();
        assert!(status.success());
        assert!(wait_until(GENEROUS, || process::named(&name).len() == 1));
        let daemon = process::named(&name).remove(0);
        let start = daemon.start_time;
        assert_ne!(daemon.parent, std::process::id());
        assert!(wait_until(GENEROUS, || fs::read(format!("/proc/{}/environ", daemon.pid)).unwrap().is_empty()));
        assert_eq!(fs::read_link(format!("/proc/{}/cwd", daemon.pid)).unwrap(), PathBuf::from("/"));
        assert_eq!(daemon.arguments()[0], name);
        process::kill(daemon.pid);
        assert!(wait_until(GENEROUS, || process::pid_ended(daemon.pid, start)));
    }

    /// What the program reports of itself is what `/proc` says.
    fn status(_world: &World) {
        let report = bare(&["capset-status"]);
        let us = fs::read_to_string("/proc/self/status").unwrap();
        for field in ["CapEff", "CapBnd", "NoNewPrivs", "Seccomp"] {
            let line = us.lines().find_map(|line| line.strip_prefix(&format!("{field}:"))).unwrap();
            assert_eq!(report.value[field], line.trim(), "{field}");
        }
    }

    /// What cannot be tried is neither done nor refused.
    fn what_cannot_be_tried(_world: &World) {
        for act in [&["no-such-act"][..], &["mkdir"], &["kill", "x", "9"], &["fork-bomb", "5000", "both"]] {
            let output = Command::new(tool("act")).args(act).output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{act:?}");
            assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{act:?}");
        }
    }
}

root_cases! {
    /// What only root may do to a file system.
    fn files_of_root(world: &World) {
        let path = file(world, "r");
        inside(world, "chown @r 61234 61234").assert_done();
        assert_eq!(fs::metadata(&path).unwrap().uid(), 61234);
        inside(world, "open-by-handle @r").assert_done();
        inside(world, "mknod-chr @chr").assert_done();
        inside(world, "mknod-blk @blk").assert_done();
        assert!(fs::metadata(world.write_root().join("chr")).unwrap().file_type().is_char_device());
        assert!(fs::metadata(world.write_root().join("blk")).unwrap().file_type().is_block_device());
    }

    /// What only root may do to the machine; in namespaces of its own, or harmless.
    fn machine(world: &World) {
        let root = world.write_root();
        let root = root.to_str().unwrap();
        apart(&["mount", root]).assert_done();
        apart(&["mount-setattr", "/"]).assert_done();
        apart(&["chroot", root]).assert_done();
        apart(&["sethostname", "act"]).assert_done();
        apart(&["unshare", "0x20000"]).assert_done();
        let sleeper = Sleeper::new();
        for namespace in ["mnt", "net", "ipc", "uts"] {
            bare(&["setns", &sleeper.pid(), namespace]).assert_done();
        }
        bare(&["settimeofday"]).assert_done();
        bare(&["bpf"]).assert_done();
        bare(&["perf-event"]).assert_done();
        bare(&["socket", "packet", "raw", "0"]).assert_done();
    }

    /// A mount of its own can be taken away, and the root be exchanged.
    fn mounts(world: &World) {
        let root = world.write_root();
        let script = r#"mount -t tmpfs t "$1" && mkdir "$1/old" && "$0" pivot-root "$1" "$1/old""#;
        let run = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(tool("act")).arg(&root);
            report_of(&mut command)
        };
        run(script).assert_done();
        run(r#"mount -t tmpfs t "$1" && "$0" umount "$1""#).assert_done();
    }
}

user_cases! {
    /// What the kernel keeps from a plain user without any confinement: such acts need root for a control.
    fn refused_to_everybody(world: &World) {
        file(world, "u");
        for act in ["mount @", "umount @", "chroot @", "mknod-blk @blk", "open-by-handle @u", "sethostname", "settimeofday", "setns 1 mnt"] {
            inside(world, act).assert_refused(&["EPERM", "EACCES"]);
        }
    }

    /// The bombs go off, within their bound, and can be ended.
    fn fork_bomb_both(_world: &World, uid = 61297, seconds = 120) {
        Bomb::new(61297, 40, "both").reaches(30, 41);
    }

    /// The same, each process in a session of its own.
    fn fork_bomb_setsid(_world: &World, uid = 61296, seconds = 120) {
        Bomb::new(61296, 40, "setsid").reaches(30, 41);
    }

    /// The same, without an end of its own.
    fn fork_bomb_refill(_world: &World, uid = 61295, seconds = 120) {
        Bomb::new(61295, 60, "refill").reaches(40, 60);
    }

    /// One process at a time, and in the end nobody's child.
    fn fork_bomb_hop(_world: &World, uid = 61294, seconds = 120) {
        let mut bomb = Bomb::new(61294, 40, "hop");
        bomb.child.wait().unwrap();
        // The last one rests. Until then a reading may catch one, two, or none of them.
        let us = std::process::id();
        let mut last = None;
        let rests = wait_until(GENEROUS, || {
            let before = last.replace(bomb.alive());
            matches!(&last, Some(now) if now.len() == 1 && now[0].parent != us) && before == last
        });
        assert!(rests, "{last:?}");
        bomb.reaches(1, 1);
    }

    /// A memory image is written where the kernel writes one into the working directory.
    fn core_dump(world: &World) {
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        let report = inside(world, "core-dump @");
        if !pattern.contains(['|', '/']) {
            report.assert_done();
            let image = fs::read_dir(world.write_root()).unwrap().next().unwrap().unwrap();
            assert_eq!(image.metadata().unwrap().permissions().mode() & 0o077, 0);
        }
    }
}

fn text(stream: &mut impl std::io::Read) -> String {
    let mut text = String::new();
    stream.by_ref().read_to_string(&mut text).unwrap();
    text
}
