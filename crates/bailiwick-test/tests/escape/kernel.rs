//! Interfaces of the kernel that no path names, entries by other conventions, and rights that a program could gain.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bailiwick::{Layer, Protection};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::{Need, case, tool};

use crate::ground::Ground;
use crate::row::{Actors, Attempt, Row, act, row};

const HERE: i32 = libc::AT_FDCWD;
const FILTER: &[Layer] = &[Layer::Seccomp];
const CAPABILITIES: &[Layer] = &[Layer::Capabilities];
/// Mounting is the business of every domain.
const FILTER_AND_DOMAINS: &[Layer] = &[Layer::Seccomp, Layer::Landlock, Layer::Scope];

const fn interface(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::KernelInterfaces, tries, attempt).by(FILTER, FILTER)
}

const fn set_id(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Privileges, tries, attempt).by(FILTER, FILTER).answers(&["EPERM", "ENOSYS"])
}

const NEW_USER: i32 = 0x1000_0000;
const NEW_MOUNT: i32 = 0x0002_0000;
/// Mount, cgroup, UTS, IPC, user, pid and network namespaces.
const NEW_ALL: u32 = 0x7e02_0000;

fn unshare(flags: u32) -> Attempt {
    act!["unshare", format!("{flags:#x}")].reported()
}

/// Whether the file bears a bit that makes its programs run as its owner or group.
fn bears_set_id(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o6000 != 0)
}

fn marks(s: &Ground, calls: impl FnOnce(&PathBuf) -> Calls) -> Attempt {
    let path = s.ours("marked");
    Attempt::calls(&calls(&path)).shown_by(move || bears_set_id(&path))
}

/// The same of a file that is there.
fn marks_own(s: &Ground, calls: impl FnOnce(&PathBuf) -> Calls) -> Attempt {
    std::fs::write(s.ours("marked"), "").unwrap();
    marks(s, calls)
}

/// A program that runs as somebody else by a bit of its file.
fn program_of_another(s: &Ground) -> PathBuf {
    if !case::is_root() {
        let known = ["/usr/bin/su", "/bin/su", "/usr/bin/passwd"].map(PathBuf::from);
        return known.into_iter().find(|path| bears_set_id(path)).unwrap();
    }
    let program = s.places().join("another");
    std::fs::copy(tool("act"), &program).unwrap();
    std::os::unix::fs::chown(&program, Some(case::PLAIN_UID), None).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let removed = program.clone();
    s.later(move || std::fs::remove_file(removed).unwrap());
    program
}

pub(crate) const ROWS: &[Row] = &[
    interface("keyring", "uses the keyring of the user", |_| act!["keyctl"].reported()),
    interface("add-key", "adds a key", |_| act!["add-key"].reported()),
    interface("request-key", "asks for a key of the user", |_| {
        let asked = Calls::of(libc::SYS_request_key, ["user".into(), "bw-none".into(), 0.into(), 0.into()]);
        let words = ["reaches".into(), "ENOKEY".into()].into_iter().chain(asked.arguments().to_vec());
        Attempt::act(words).reported()
    }),
    interface("fault-handler", "handles page faults by a descriptor", |_| act!["userfaultfd"].reported()),
    interface("watch-by-handle", "watches a file with `fanotify`", |s| {
        act!["fanotify", s.at("f")].reported()
    }),
    interface("counters", "counts events with `perf_event_open`", |_| act!["perf-event"].reported())
        .and_from_root(CAPABILITIES)
        .everybody_if("/proc/sys/kernel/perf_event_paranoid", &["-1", "0", "1", "2"]),
    interface("program-in-kernel", "makes a map for programs in the kernel", |_| act!["bpf"].reported())
        .and_from_root(CAPABILITIES)
        .everybody_if("/proc/sys/kernel/unprivileged_bpf_disabled", &["0"]),
    interface("lease", "holds up whoever opens a file for writing, by a lease", |s| {
        let opened = Calls::of(libc::SYS_open, [(&s.at("f")).into(), libc::O_RDONLY.into()]);
        let lease = [Word::Result(0), libc::F_SETLEASE.into(), libc::F_RDLCK.into()];
        Attempt::calls(&opened.then(libc::SYS_fcntl, lease)).reported()
    }),
    interface("ring", "makes a ring of asynchronous calls", |_| act!["io-uring-setup"].reported())
        .needs(&[Need::IoUring]),
    interface("entry-32-bit", "enters the kernel as a 32-bit program does", |_| act!["int80"].reported())
        .answers(&["ENOSYS", "WRONGANSWER"])
        .needs(&[Need::Ia32]),
    interface("socket-32-bit", "makes a socket as a 32-bit program does", |_| {
        act!["int80-socket"].reported()
    })
    .answers(&["ENOSYS"])
    .needs(&[Need::Ia32]),
    interface("entry-x32", "enters the kernel with a call number of x32", |_| act!["x32-getpid"].reported())
        .answers(&["ENOSYS"])
        .needs(&[Need::X32]),
    interface("new-process-by-structure", "starts a process with flags that no filter sees", |_| {
        act!["clone3"].reported()
    })
    .answers(&["ENOSYS"]),
    interface("new-user-namespace", "starts a process in a user namespace of its own", |_| {
        act!["clone-newuser"].reported()
    })
    .needs(&[Need::UserNamespaces]),
    interface("new-namespaces", "moves into namespaces of every kind", |_| unshare(NEW_ALL))
        .needs(&[Need::UserNamespaces]),
    row(
        "mount-in-nested-namespace",
        Protection::KernelInterfaces,
        "mounts over a directory, in namespaces in which it has every right",
        |s| {
            let unshared = Calls::of(libc::SYS_unshare, [(NEW_USER | NEW_MOUNT).into()]);
            let mounted = ["act".into(), (&s.at("empty")).into(), "tmpfs".into(), 0.into(), 0.into()];
            Attempt::calls(&unshared.then(libc::SYS_mount, mounted).course()).reported()
        },
    )
    .by(FILTER_AND_DOMAINS, FILTER_AND_DOMAINS)
    .needs(&[Need::UserNamespaces]),
    interface("new-mount-namespace", "moves into a mount namespace", |_| unshare(0x0002_0000))
        .and_from_root(CAPABILITIES)
        .only(Actors::Root),
    interface("enter-namespace", "enters a namespace again", |_| act!["setns", "self", "uts"].reported())
        .and_from_root(CAPABILITIES)
        .only(Actors::Root),
    interface("change-root", "makes another directory its root", |s| {
        act!["chroot", s.ours("dir")].reported()
    })
    .and_from_root(CAPABILITIES)
    .only(Actors::Root),
    set_id("set-id-chmod", "marks a program of the root to run as its owner", |s| {
        marks_own(s, |path| Calls::of(libc::SYS_chmod, [path.into(), 0o4755.into()]))
    }),
    set_id("set-id-fchmod", "the same by a descriptor", |s| {
        marks_own(s, |path| {
            let opened = Calls::of(libc::SYS_open, [path.into(), libc::O_RDONLY.into()]);
            opened.then(libc::SYS_fchmod, [Word::Result(0), 0o6755.into()])
        })
    }),
    set_id("set-id-open", "makes a file that is marked from the start", |s| {
        let flags = libc::O_CREAT | libc::O_WRONLY;
        marks(s, |path| Calls::of(libc::SYS_openat, [HERE.into(), path.into(), flags.into(), 0o4755.into()]))
    }),
    set_id("set-id-open-by-structure", "the same with a mode that no filter sees", |s| {
        let how = Word::Words(vec![(libc::O_CREAT | libc::O_WRONLY).into(), 0o4755, 0]);
        marks(s, |path| Calls::of(libc::SYS_openat2, [HERE.into(), path.into(), how, 24.into()]))
    }),
    set_id("set-id-node", "the same with `mknod`", |s| {
        marks(s, |path| Calls::of(libc::SYS_mknod, [path.into(), 0o104_755.into(), 0.into()]))
    }),
    row("file-capability", Protection::Privileges, "gives a program of the root a capability", |s| {
        let path = s.ours("own");
        // VFS_CAP_REVISION_2 with the effective bit, and CAP_CHOWN permitted.
        let value = Word::HalfWords(vec![0x0200_0001, 1, 0, 0, 0]);
        let set = [(&path).into(), "security.capability".into(), value, 20.into(), 0.into()];
        Attempt::calls(&Calls::of(libc::SYS_setxattr, set))
            .shown_by(move || rustix::fs::getxattr(&path, "security.capability", &mut [0_u8; 64][..]).is_ok())
    })
    .by(CAPABILITIES, CAPABILITIES)
    .only(Actors::Root),
    row(
        "run-as-another",
        Protection::Privileges,
        "runs a program whose file says that it runs as another user",
        |s| {
            // What it is asked for makes it stay; the programs of a system ask for a password.
            let words = [program_of_another(s).into(), "pause".into(), "60".into()];
            let words = words.into_iter().take(if case::is_root() { 3 } else { 1 });
            Attempt::act(std::iter::once("gain-user".into()).chain(words)).reported()
        },
    )
    .by(CAPABILITIES, CAPABILITIES)
    .answers(&["SAMEUSER"])
    .built_in(),
    row(
        "inherited-descriptor",
        Protection::Descriptors,
        "writes to a descriptor that the host has open",
        |s| {
            let file = s.places().outside_file();
            let before = std::fs::read(&file).unwrap();
            act!["write-fd", s.inheritable().to_string(), "leak"]
                .shown_by(move || std::fs::read(&file).unwrap() != before)
        },
    )
    .by(&[Layer::Hygiene], &[Layer::Hygiene])
    .answers(&["EBADF"])
    .built_in(),
];
