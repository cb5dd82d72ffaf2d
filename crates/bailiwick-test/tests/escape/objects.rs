//! Objects of the host that several processes share: memory, semaphores, queues, keys, terminals, devices.

use std::fs;
use std::path::PathBuf;

use bailiwick::{Layer, Protection};
use bailiwick_test::Need;
use bailiwick_test::act;
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::pty::Pty;

use crate::ground::Ground;
use crate::row::{Actors, Attempt, Row, act, row};

const FILTER: &[Layer] = &[Layer::Seccomp];
/// Where the namespace is missing, the filter steps in.
const FILTER_AND_IPC: &[Layer] = &[Layer::Seccomp, Layer::IpcNamespace];
const LANDLOCK_AND_VIEW: &[Layer] = &[Layer::Landlock, Layer::MountView];
const LANDLOCK: &[Layer] = &[Layer::Landlock];
const LANDLOCK_AND_FILTER: &[Layer] = &[Layer::Landlock, Layer::Seccomp];
/// In a namespace of its own there is no such object.
const NO_OBJECT: &[&str] = &["EPERM", "EINVAL", "EIDRM", "ENOENT", "ENOSYS", "EACCES"];
const GETVAL: i32 = 12;
const SETVAL: i32 = 16;

const fn shared(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::SharedMemory, tries, attempt).by(FILTER, FILTER_AND_IPC).answers(NO_OBJECT)
}

const fn device(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Devices, tries, attempt).by(LANDLOCK_AND_FILTER, LANDLOCK_AND_FILTER)
}

fn number(calls: &Calls) -> i64 {
    let report = act::bare(calls.arguments());
    report.assert_done();
    report.value.as_i64().unwrap()
}

/// A line of a table of System V objects of the host, found by its id.
fn line(table: &str, id: i64) -> Option<String> {
    let table = fs::read_to_string(format!("/proc/sysvipc/{table}")).unwrap();
    table.lines().find(|line| line.split_whitespace().nth(1) == Some(&id.to_string())).map(str::to_owned)
}

/// A new segment of the host, removed afterwards.
fn segment(s: &Ground) -> i64 {
    let id = act::bare(&["shmget"]).value.as_i64().unwrap();
    s.later(move || drop(act::bare(&["shmrm", &id.to_string()])));
    id
}

fn semaphore(s: &Ground) -> i64 {
    let id = number(&Calls::of(libc::SYS_semget, [0.into(), 1.into(), (libc::IPC_CREAT | 0o600).into()]));
    s.later(move || {
        drop(act::bare(Calls::of(libc::SYS_semctl, [id.into(), 0.into(), 0.into()]).arguments()));
    });
    id
}

fn messages(s: &Ground) -> i64 {
    let id = number(&Calls::of(libc::SYS_msgget, [0.into(), (libc::IPC_CREAT | 0o600).into()]));
    s.later(move || {
        drop(act::bare(Calls::of(libc::SYS_msgctl, [id.into(), 0.into(), 0.into()]).arguments()));
    });
    id
}

/// A new POSIX queue of the host, removed afterwards.
fn queue(s: &Ground) -> String {
    let name = s.name();
    number(&open_queue(&name, libc::O_CREAT | libc::O_RDWR));
    remove_later(s, &name);
    name
}

fn remove_later(s: &Ground, name: &str) {
    let name = name.to_owned();
    s.later(move || {
        drop(act::bare(Calls::of(libc::SYS_mq_unlink, [name.as_str().into()]).arguments()));
    });
}

fn open_queue(name: &str, flags: i32) -> Calls {
    Calls::of(libc::SYS_mq_open, [name.into(), flags.into(), 0o600.into(), 0.into()])
}

fn queue_exists(name: &str) -> bool {
    act::bare(open_queue(name, libc::O_RDONLY).arguments()).ok
}

/// A file of the host in the file system for shared memory, removed afterwards.
fn shared_file(s: &Ground) -> PathBuf {
    let path = PathBuf::from("/dev/shm").join(s.name());
    fs::write(&path, "x").unwrap();
    let removed = path.clone();
    s.later(move || drop(fs::remove_file(removed)));
    path
}

/// A terminal of the host.
fn terminal(attempt: impl Fn(&str) -> Attempt, harm: impl Fn(&Pty) -> bool + 'static) -> Attempt {
    let pty = Pty::new();
    attempt(pty.name()).shown_by(move || harm(&pty))
}

/// An attempt whose input is a terminal that was given to it.
fn on_terminal(request: u32, argument: Word) -> (Pty, Attempt) {
    let pty = Pty::new();
    let controlled = Calls::of(libc::SYS_ioctl, [0.into(), 0x540e.into(), 0.into()]); // TIOCSCTTY
    let calls = controlled.then(libc::SYS_ioctl, [0.into(), request.into(), argument]);
    // Who has no session of its own cannot control a terminal: `in-session` gives it one.
    let words = std::iter::once("in-session".into()).chain(calls.course().arguments().to_vec());
    let attempt = Attempt::act(words).input(pty.subordinate());
    (pty, attempt)
}

pub(crate) const ROWS: &[Row] = &[
    shared("segment-write", "writes into shared memory of the host", |s| {
        let id = segment(s);
        let before = line("shm", id);
        act!["shmat", id.to_string()].shown_by(move || line("shm", id) != before)
    }),
    shared("segment-remove", "removes shared memory of the host", |s| {
        let id = segment(s);
        act!["shmrm", id.to_string()].shown_by(move || line("shm", id).is_none())
    }),
    shared("semaphore-set", "sets a semaphore of the host", |s| {
        let id = semaphore(s);
        let set = Calls::of(libc::SYS_semctl, [id.into(), 0.into(), SETVAL.into(), 7.into()]);
        Attempt::calls(&set)
            .shown_by(move || number(&Calls::of(libc::SYS_semctl, [id.into(), 0.into(), GETVAL.into()])) == 7)
    }),
    shared("semaphore-operation", "raises a semaphore of the host", |s| {
        let id = semaphore(s);
        // struct sembuf: semaphore 0, plus 3.
        let raise = [id.into(), Word::HalfWords(vec![3 << 16, 0]), 1.into()];
        Attempt::calls(&Calls::of(libc::SYS_semop, raise))
            .shown_by(move || number(&Calls::of(libc::SYS_semctl, [id.into(), 0.into(), GETVAL.into()])) == 3)
    }),
    shared("semaphore-remove", "removes a semaphore of the host", |s| {
        let id = semaphore(s);
        let removed = Calls::of(libc::SYS_semctl, [id.into(), 0.into(), libc::IPC_RMID.into()]);
        Attempt::calls(&removed).shown_by(move || line("sem", id).is_none())
    }),
    shared("message-send", "sends to a message queue of the host", |s| {
        let id = messages(s);
        let before = line("msg", id);
        let sent = [id.into(), Word::Words(vec![1, 0]), 8.into(), libc::IPC_NOWAIT.into()];
        Attempt::calls(&Calls::of(libc::SYS_msgsnd, sent)).shown_by(move || line("msg", id) != before)
    }),
    shared("message-queue-remove", "removes a message queue of the host", |s| {
        let id = messages(s);
        let removed = Calls::of(libc::SYS_msgctl, [id.into(), libc::IPC_RMID.into(), 0.into()]);
        Attempt::calls(&removed).shown_by(move || line("msg", id).is_none())
    }),
    shared("posix-queue-send", "sends to a POSIX queue of the host", |s| {
        let name = queue(s);
        let sent = [Word::Result(0), "act".into(), 3.into(), 0.into(), 0.into()];
        let calls = open_queue(&name, libc::O_WRONLY).then(libc::SYS_mq_timedsend, sent).course();
        Attempt::calls(&calls).shown_by(move || {
            let received = [Word::Result(0), Word::Zeros(8192), 8192.into(), 0.into(), 0.into()];
            let received = open_queue(&name, libc::O_RDONLY | libc::O_NONBLOCK)
                .then(libc::SYS_mq_timedreceive, received);
            act::bare(received.arguments()).ok
        })
    })
    .by(LANDLOCK_AND_FILTER, &[Layer::Landlock, Layer::Seccomp, Layer::IpcNamespace]),
    shared("posix-queue-remove", "removes a POSIX queue of the host", |s| {
        let name = queue(s);
        let removed = Calls::of(libc::SYS_mq_unlink, [name.as_str().into()]);
        Attempt::calls(&removed).shown_by(move || !queue_exists(&name))
    }),
    shared("posix-queue-make", "leaves a POSIX queue on the host", |s| {
        let name = s.name();
        remove_later(s, &name);
        let made = open_queue(&name, libc::O_CREAT | libc::O_RDWR);
        Attempt::calls(&made).shown_by(move || queue_exists(&name))
    })
    // In a namespace of its own it may make as many as it likes.
    .silent(),
    row("shared-file-write", Protection::Content, "writes to a file of the host in `/dev/shm`", |s| {
        let path = shared_file(s);
        act!["open-append", &path].shown_by(move || fs::read(&path).is_ok_and(|content| content != b"x"))
    })
    .by(LANDLOCK, LANDLOCK_AND_VIEW)
    .answers(&["EACCES", "EROFS", "ENOENT"]),
    row("shared-file-make", Protection::Content, "leaves a file in the `/dev/shm` of the host", |s| {
        let path = PathBuf::from("/dev/shm").join(s.name());
        let removed = path.clone();
        s.later(move || drop(fs::remove_file(removed)));
        act!["create", &path].shown_by(move || path.exists())
    })
    .by(LANDLOCK, LANDLOCK_AND_VIEW)
    .silent(),
    row("terminal-write", Protection::Terminals, "writes to a terminal of the host", |_| {
        terminal(|name| act!["open-append", name], |pty| pty.text().contains("act"))
    })
    .by(LANDLOCK, LANDLOCK_AND_VIEW)
    .answers(&["EACCES", "EROFS", "ENOENT"]),
    row(
        "terminal-read",
        Protection::Terminals,
        "takes away what is typed into a terminal of the host",
        |_| {
            let mut pty = Pty::new();
            pty.type_in("secret\n");
            let mut attempt = act!["read-some", pty.name()].reported();
            attempt.terminal = Some(pty);
            attempt
        },
    )
    .by(LANDLOCK, LANDLOCK_AND_VIEW)
    .answers(&["EACCES", "EROFS", "ENOENT"]),
    row(
        "terminal-type",
        Protection::Terminals,
        "types into the terminal that it was given (TIOCSTI)",
        |_| {
            let (pty, attempt) = on_terminal(0x5412, "#".into());
            attempt.shown_by(move || pty.text().contains('#'))
        },
    )
    .by(FILTER, FILTER)
    .needs(&[Need::Tiocsti]),
    row(
        "terminal-paste",
        Protection::Terminals,
        "pastes into the terminal that it was given (TIOCLINUX)",
        |_| {
            let (pty, mut attempt) = on_terminal(0x541c, Word::HalfWords(vec![3, 0]));
            // A pseudo-terminal has no selection: that it says so tells that it was asked.
            attempt.arguments.splice(0..0, ["reaches".into(), "ENOTTY,EINVAL".into()]);
            attempt.terminal = Some(pty);
            attempt.reported()
        },
    )
    .by(FILTER, FILTER),
    device("device-request", "makes a request to a device that it may read", |_| {
        let random = Calls::of(libc::SYS_open, ["/dev/urandom".into(), libc::O_RDONLY.into()]);
        // RNDGETENTCNT, which changes nothing.
        let asked = [Word::Result(0), 0x8004_5200_u32.into(), Word::Zeros(8)];
        Attempt::calls(&random.then(libc::SYS_ioctl, asked)).reported()
    }),
    device("whiteout", "makes a device node that needs no privilege", |s| {
        let node = s.ours("node");
        let calls = Calls::of(libc::SYS_mknod, [(&node).into(), 0o020_644.into(), 0.into()]);
        Attempt::calls(&calls).shown_by(move || node.exists())
    }),
    device("character-device", "makes a character device in the root", |s| {
        let node = s.ours("node");
        act!["mknod-chr", &node].shown_by(move || node.exists())
    })
    .and_from_root(&[Layer::Capabilities])
    .only(Actors::Root),
    device("block-device", "makes a block device in the root, to open the raw disk", |s| {
        let node = s.ours("node");
        act!["mknod-blk", &node].shown_by(move || node.exists())
    })
    .and_from_root(&[Layer::Capabilities])
    .only(Actors::Root),
    row("kernel-log", Protection::Content, "opens the log of the kernel for writing", |_| {
        opens("/dev/kmsg", libc::O_WRONLY)
    })
    .by(LANDLOCK, LANDLOCK)
    .only(Actors::Root),
    row("loop-control", Protection::Content, "opens the device that makes loop devices", |_| {
        opens("/dev/loop-control", libc::O_RDWR)
    })
    .by(LANDLOCK, LANDLOCK)
    .only(Actors::Root),
];

fn opens(path: &'static str, flags: i32) -> Attempt {
    Attempt::calls(&Calls::of(libc::SYS_open, [path.into(), flags.into()])).reported()
}
