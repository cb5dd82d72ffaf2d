//! Content and names: every way to write, make, remove, rename, link or truncate, and every way around.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bailiwick::{Layer, Protection};
use bailiwick_test::Need;
use bailiwick_test::calls::{Calls, Word};

use crate::ground::Ground;
use crate::row::{Actors, Attempt, Row, act, row};

const HERE: i32 = libc::AT_FDCWD;
const CONTENT: Protection = Protection::Content;
const LANDLOCK: &[Layer] = &[Layer::Landlock];
const VIEW: &[Layer] = &[Layer::MountView];
const BOTH: &[Layer] = &[Layer::Landlock, Layer::MountView];
/// Landlock's answer to a link or a move across the border, and that of a mount point.
const ACROSS: &[&str] = &["EACCES", "EROFS", "EXDEV"];

const fn content(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, CONTENT, tries, attempt).by(LANDLOCK, BOTH)
}

fn open(path: &PathBuf, flags: i32) -> Calls {
    Calls::of(libc::SYS_open, [path.into(), flags.into(), 0o644.into()])
}

fn opened(path: &PathBuf, flags: i32) -> Attempt {
    Attempt::calls(&open(path, flags))
}

/// Opens a file of the root for reading and one outside for writing, so that a call can move bytes.
fn from_own(s: &Ground) -> Calls {
    open(&s.ours("own"), libc::O_RDONLY).then(libc::SYS_open, [(&s.at("f")).into(), libc::O_WRONLY.into()])
}

pub(crate) const ROWS: &[Row] = &[
    content("open-write", "opens a file for writing and writes", |s| act!["open-write", s.at("f")]),
    content("open-append", "opens a file for appending and appends", |s| act!["open-append", s.at("f")]),
    content("open-truncate", "opens a file for writing, to empty it", |s| {
        opened(&s.at("f"), libc::O_WRONLY | libc::O_TRUNC)
    }),
    content("open-read-truncate", "opens a file for reading only, to empty it", |s| {
        opened(&s.at("f"), libc::O_RDONLY | libc::O_TRUNC)
    }),
    content("truncate", "empties a file by its path", |s| act!["truncate", s.at("f")]),
    content("creat", "empties a file with `creat`", |s| {
        Attempt::calls(&Calls::of(libc::SYS_creat, [(&s.at("f")).into(), 0o644.into()]))
    }),
    content("create", "makes a file", |s| act!["create", s.at("new")]),
    content("create-read-only", "makes a file by opening it for reading", |s| {
        opened(&s.at("new"), libc::O_RDONLY | libc::O_CREAT)
    }),
    content("unnamed-file", "makes a file without a name in a directory", |s| {
        opened(&s.scene(), libc::O_TMPFILE | libc::O_RDWR).reported()
    }),
    content("unnamed-file-linked-out", "links an unnamed file of the root to a name outside", |s| {
        let linked = [HERE.into(), "/proc/self/fd/{0}".into(), HERE.into(), (&s.at("new")).into()];
        let [a, b, c, d] = linked;
        let unnamed = open(&s.ours(""), libc::O_TMPFILE | libc::O_RDWR);
        Attempt::calls(&unnamed.then(libc::SYS_linkat, [a, b, c, d, libc::AT_SYMLINK_FOLLOW.into()]))
    })
    .answers(ACROSS),
    content("make-directory", "makes a directory", |s| act!["mkdir", s.at("new")]),
    content("remove-directory", "removes a directory", |s| act!["rmdir", s.at("empty")]),
    content("remove-file", "removes a file", |s| act!["unlink", s.at("f")]),
    content("make-link", "makes a symbolic link", |s| act!["symlink", "anywhere", s.at("new")]),
    content("make-fifo", "makes a FIFO", |s| act!["mkfifo", s.at("new")]),
    content("make-node", "makes a file with `mknod`", |s| {
        Attempt::calls(&Calls::of(libc::SYS_mknod, [(&s.at("new")).into(), 0o100_644.into(), 0.into()]))
    }),
    content("bind-socket", "binds a socket to a name", |s| act!["unix-listen", s.at("new")]),
    content("rename-within", "renames a file", |s| act!["rename", s.at("f"), s.at("new")]),
    content("rename-over", "renames a file over another", |s| act!["rename", s.at("f"), s.at("g")]),
    content("rename-in", "moves a file into the root", |s| act!["rename", s.at("f"), s.ours("new")])
        .answers(ACROSS),
    content("rename-out", "moves a file of the root out", |s| act!["rename", s.ours("own"), s.at("new")])
        .answers(ACROSS),
    content("rename-over-out", "moves a file of the root over one outside", |s| {
        act!["rename", s.ours("own"), s.at("f")]
    })
    .answers(ACROSS),
    content("rename-directory-out", "moves a directory of the root out", |s| {
        act!["rename", s.ours("dir"), s.at("new")]
    })
    .answers(ACROSS),
    content("rename-directory-in", "moves a directory into the root", |s| {
        act!["rename", s.at("empty"), s.ours("new")]
    })
    .answers(ACROSS),
    content("exchange-within", "lets two names change places", |s| {
        act!["rename-exchange", s.at("f"), s.at("g")]
    }),
    content("exchange-across", "lets a name of the root and one outside change places", |s| {
        act!["rename-exchange", s.ours("own"), s.at("f")]
    })
    .answers(ACROSS),
    content("exchange-directories", "lets a directory of the root and one outside change places", |s| {
        act!["rename-exchange", s.ours("dir"), s.at("empty")]
    })
    .answers(ACROSS),
    content("link-within", "gives a file another name", |s| act!["link", s.at("f"), s.at("new")])
        .answers(ACROSS),
    content("link-out", "gives a file of the root a name outside", |s| {
        act!["link", s.ours("own"), s.at("new")]
    })
    .answers(ACROSS),
    content("link-in", "gives a file a name in the root, to write it there", |s| {
        act!["link", s.at("f"), s.ours("new")]
    })
    .answers(ACROSS),
    content("link-descriptor-in", "gives an open file a name in the root", |s| {
        let linked = [HERE.into(), "/proc/self/fd/{0}".into(), HERE.into(), (&s.ours("new")).into()];
        let [a, b, c, d] = linked;
        let file = open(&s.at("f"), libc::O_RDONLY);
        Attempt::calls(&file.then(libc::SYS_linkat, [a, b, c, d, libc::AT_SYMLINK_FOLLOW.into()]))
    })
    .answers(ACROSS),
    content("move-the-root", "moves the root itself away", |s| {
        act!["rename", s.places().write_root(), s.places().join("aside")].shown_by({
            let aside = s.places().join("aside");
            move || aside.exists()
        })
    })
    .answers(&["EACCES", "EROFS", "EXDEV", "EBUSY"]),
    content("through-link", "writes through a link in the root", |s| act!["open-append", s.ours("to-file")]),
    content("truncate-through-link", "empties a file through a link in the root", |s| {
        act!["truncate", s.ours("to-file")]
    }),
    content("create-through-dangling-link", "makes a file through a link that leads to nothing yet", |s| {
        opened(&s.ours("to-new"), libc::O_WRONLY | libc::O_CREAT)
    }),
    content("through-directory-link", "makes a file through a link to the directory", |s| {
        act!["create", s.ours("to-dir/new")]
    }),
    content("by-dots", "writes by `..` from the root", |s| {
        act!["open-append", s.ours("dir").join("../../X/e/f")]
    }),
    content("by-proc-root", "writes by way of `/proc/self/root`", |s| {
        let file = s.at("f");
        act!["open-append", PathBuf::from("/proc/self/root").join(file.strip_prefix("/").unwrap())]
    }),
    content("by-proc-cwd", "writes by way of `/proc/self/cwd`", |s| {
        act!["open-append", "/proc/self/cwd/f"].within(s.scene())
    }),
    content("in-working-directory", "starts in a directory outside and makes a file there", |s| {
        act!["create", "new"].within(s.scene())
    }),
    content("out-of-working-directory", "starts in the root and writes by `..`", |s| {
        act!["open-append", "../../X/e/f"].within(s.ours("dir"))
    }),
    content("enters-directory", "goes to a directory outside and makes a file there", |s| {
        let entered = Calls::of(libc::SYS_chdir, [(&s.scene()).into()]);
        Attempt::calls(&entered.then(libc::SYS_creat, ["new".into(), 0o644.into()]))
    }),
    content("reopens-read-only", "opens a descriptor for reading again, for writing", |s| {
        let again = ["/proc/self/fd/{0}".into(), (libc::O_WRONLY | libc::O_TRUNC).into()];
        Attempt::calls(&open(&s.at("f"), libc::O_RDONLY).then(libc::SYS_open, again))
    }),
    content("reopens-path", "opens a bare descriptor again, for writing", |s| {
        let again = ["/proc/self/fd/{0}".into(), (libc::O_RDWR | libc::O_TRUNC).into()];
        Attempt::calls(&open(&s.at("f"), libc::O_PATH).then(libc::SYS_open, again))
    }),
    content("beneath-descriptor", "makes a file beneath a descriptor of the directory", |s| {
        let directory = open(&s.scene(), libc::O_PATH | libc::O_DIRECTORY);
        let made = [Word::Result(0), "new".into(), (libc::O_WRONLY | libc::O_CREAT).into(), 0o644.into()];
        Attempt::calls(&directory.then(libc::SYS_openat, made))
    }),
    row(
        "beneath-given-directory",
        Protection::Descriptors,
        "makes a file beneath a directory that is given as its input",
        |s| {
            let made = [0.into(), "new".into(), (libc::O_WRONLY | libc::O_CREAT).into(), 0o644.into()];
            Attempt::calls(&Calls::of(libc::SYS_openat, made)).input(directory(s))
        },
    )
    .by(&[Layer::Hygiene], &[Layer::Hygiene])
    .answers(&["ERR_BAILIWICK_COMMAND_INVALID"])
    .built_in(),
    content("map-shared", "writes through shared memory of a file", |s| {
        let mapped = [0.into(), 4096.into(), 3.into(), libc::MAP_SHARED.into(), Word::Result(0), 0.into()];
        let file = open(&s.at("f"), libc::O_RDWR);
        Attempt::calls(
            &file
                .then(libc::SYS_mmap, mapped)
                // The kernel writes into the mapping: the name of the machine.
                .then(libc::SYS_getrandom, [Word::Result(1), 1.into(), 0.into()])
                .then(libc::SYS_msync, [Word::Result(1), 4096.into(), libc::MS_SYNC.into()])
                .course(),
        )
    }),
    content("sendfile", "copies into a file with `sendfile`", |s| {
        let sent = [Word::Result(1), Word::Result(0), 0.into(), 3.into()];
        Attempt::calls(&from_own(s).then(libc::SYS_sendfile, sent).course())
    }),
    content("copy-file-range", "copies into a file with `copy_file_range`", |s| {
        let copied = [Word::Result(0), 0.into(), Word::Result(1), 0.into(), 3.into(), 0.into()];
        Attempt::calls(&from_own(s).then(libc::SYS_copy_file_range, copied).course())
    }),
    content("splice", "moves bytes of a pipe into a file with `splice`", |s| act!["splice", s.at("f")]),
    content("fallocate", "makes a file longer with `fallocate`", |s| {
        let file = open(&s.at("f"), libc::O_WRONLY);
        let made = [Word::Result(0), 0.into(), 0.into(), 4096.into()];
        Attempt::calls(&file.then(libc::SYS_fallocate, made).course())
    }),
    row("write-fifo", CONTENT, "writes into a FIFO of the host, whose reader acts on it", |s| {
        s.fifo_daemon();
        act!["open-write", s.at("fifo")]
    })
    .by(LANDLOCK, LANDLOCK),
    content("spool", "leaves a job where a daemon of the host looks for jobs, as for `at` or `cron`", |s| {
        act!["create", s.spool_daemon().join("job")]
    }),
    content("protected-storage", "writes to a file that the session protects", |s| {
        let file = s.places().secret();
        act!["open-append", &file].shown_by({
            let before = std::fs::read(&file).unwrap();
            move || std::fs::read(&file).unwrap() != before
        })
    })
    .answers(&["EACCES", "EROFS", "ENOENT"]),
    row("read-protected-storage", Protection::HiddenState, "reads a file that the session protects", |s| {
        act!["read", s.places().secret()].reported()
    })
    .by_namespaces(VIEW)
    .answers(&["EACCES", "ENOENT"]),
    content("from-memory", "writes from a program that lies in memory alone", |s| {
        act!["from-memory", "open-append", s.at("f")]
    }),
    content("detached", "writes from a session and process group of its own", |s| {
        act!["in-session", "open-append", s.at("f")]
    }),
    row("ring-open", CONTENT, "opens a file by a ring of asynchronous calls", |s| {
        act!["io-uring-open", s.at("f")]
    })
    .by(&[Layer::Landlock, Layer::Seccomp], &[Layer::Landlock, Layer::Seccomp, Layer::MountView])
    .needs(&[Need::IoUring]),
    row("handle-open", CONTENT, "opens a file by its handle, past every path", |s| {
        act!["open-by-handle", s.at("f")].reported()
    })
    .by(&[Layer::Landlock, Layer::Seccomp], &[Layer::Landlock, Layer::Seccomp, Layer::MountView])
    .and_from_root(&[Layer::Capabilities])
    .only(Actors::Root),
    row("core-image", CONTENT, "dies in a directory outside, for the kernel to leave an image there", |s| {
        act!["crash", s.scene()]
    })
    .by(&[Layer::Landlock, Layer::Hygiene], &[Layer::Landlock, Layer::Hygiene, Layer::MountView])
    .answers(&["NOCORE"])
    .needs(&[Need::CoreFiles]),
    content(
        "race-exchange-link",
        "opens a file by a name that changes between a directory and a link out of the root",
        |s| {
            let (one, other) = (s.ours("dir"), s.ours("to-dir"));
            act!["race-write", "8000", &one, other, one.join("f")]
        },
    )
    .answers(&["LOST"]),
    content("race-exchange-dots", "opens `..` of a directory that moves up and down meanwhile", |s| {
        let deep = s.ours("deep/deeper");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir_all(s.ours("X/e")).unwrap();
        std::fs::write(s.ours("X/e/f"), "ours").unwrap();
        let up = s.ours("up");
        std::fs::create_dir(&up).unwrap();
        act!["race-write", "8000", &up, &deep, "../../X/e/f"].within(&deep)
    })
    .answers(&["LOST"]),
    content(
        "race-rename-link",
        "moves a file to a name that changes between a directory and a link out of the root",
        |s| {
            let (one, other) = (s.ours("dir"), s.ours("to-dir"));
            act!["race-rename", "8000", &one, other, s.ours("own"), one.join("new"), s.at("new")]
        },
    )
    .answers(&["LOST"]),
];

fn directory(s: &Ground) -> OwnedFd {
    std::fs::File::open(s.scene()).unwrap().into()
}
