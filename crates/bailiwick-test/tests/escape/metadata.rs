//! What a file system keeps beside content: modes, owners, times, attributes, access lists, flags, subvolumes; by path,
//! by descriptors that can only be read, and by the links of `/proc/self/fd`.

use std::path::PathBuf;

use bailiwick::{Layer, Protection};
use bailiwick_test::Need;
use bailiwick_test::calls::{Calls, Word};

use crate::ground::Ground;
use crate::row::{Actors, Attempt, Row, act, row};

const HERE: i32 = libc::AT_FDCWD;
const VIEW: &[Layer] = &[Layer::MountView];
/// Requests on a descriptor are told from one another by the filter.
const FILTER: &[Layer] = &[Layer::Seccomp];
const FILTER_AND_VIEW: &[Layer] = &[Layer::Seccomp, Layer::MountView];
const FCHMODAT2: i64 = 452;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;
const FS_IOC_SETVERSION: u32 = 0x4008_7602;

const fn metadata(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Metadata, tries, attempt).by_namespaces(VIEW)
}

const fn request(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Content, tries, attempt).by(FILTER, FILTER_AND_VIEW)
}

fn reading(path: &PathBuf) -> Calls {
    Calls::of(libc::SYS_open, [path.into(), libc::O_RDONLY.into()])
}

fn bare(path: &PathBuf) -> Calls {
    Calls::of(libc::SYS_open, [path.into(), libc::O_PATH.into()])
}

fn us() -> u32 {
    rustix::process::getuid().as_raw()
}

/// One second after the epoch, twice.
fn then() -> Word {
    Word::Words(vec![1, 0, 1, 0])
}

/// An access list that names a user: `struct posix_acl_xattr_header` and five entries.
fn access_list() -> Word {
    // One that a user namespace knows.
    let other = i32::try_from(us()).unwrap();
    let entry = |tag: i32, permissions: i32, id: i32| [tag | permissions << 16, id];
    let entries =
        [entry(1, 6, -1), entry(2, 6, other), entry(4, 4, -1), entry(0x10, 6, -1), entry(0x20, 4, -1)];
    Word::HalfWords(std::iter::once(2).chain(entries.into_iter().flatten()).collect())
}

const ACCESS_LIST_SIZE: i32 = 44;

pub(crate) const ROWS: &[Row] = &[
    metadata("chmod", "changes the mode of a file", |s| act!["chmod", s.at("f"), "0666"]),
    metadata("chmod-directory", "changes the mode of a directory", |s| act!["chmod", s.at("empty"), "0777"]),
    metadata("chmod-nothing", "takes every permission from a file", |s| act!["chmod", s.at("f"), "0"]),
    metadata("fchmod-read-only", "changes the mode by a descriptor for reading", |s| {
        Attempt::calls(&reading(&s.at("f")).then(libc::SYS_fchmod, [Word::Result(0), 0o666.into()]))
    }),
    metadata("fchmod-directory", "changes the mode of a directory by a descriptor for reading", |s| {
        Attempt::calls(&reading(&s.scene()).then(libc::SYS_fchmod, [Word::Result(0), 0o777.into()]))
    }),
    metadata("fchmodat2-path", "changes the mode by a bare descriptor", |s| {
        let change = [Word::Result(0), "".into(), 0o666.into(), libc::AT_EMPTY_PATH.into()];
        Attempt::calls(&bare(&s.at("f")).then(FCHMODAT2, change))
    }),
    metadata("chmod-proc-fd", "changes the mode by the link of a bare descriptor in `/proc/self/fd`", |s| {
        Attempt::calls(&bare(&s.at("f")).then(libc::SYS_chmod, ["/proc/self/fd/{0}".into(), 0o666.into()]))
    }),
    metadata("chmod-through-link", "changes the mode through a link in the root", |s| {
        act!["chmod", s.ours("to-file"), "0666"]
    }),
    metadata("chmod-from-memory", "changes the mode from a program that lies in memory alone", |s| {
        act!["from-memory", "chmod", s.at("f"), "0666"]
    }),
    metadata("chown-to-self", "gives a file to its owner", |s| {
        act!["chown", s.at("f"), us().to_string(), us().to_string()]
    }),
    metadata("fchown-read-only", "gives a file to its owner by a descriptor for reading", |s| {
        let given = [Word::Result(0), us().into(), (-1).into()];
        Attempt::calls(&reading(&s.at("f")).then(libc::SYS_fchown, given))
    }),
    metadata("fchownat-path", "gives a file to its owner by a bare descriptor", |s| {
        let given = [Word::Result(0), "".into(), us().into(), (-1).into(), libc::AT_EMPTY_PATH.into()];
        Attempt::calls(&bare(&s.at("f")).then(libc::SYS_fchownat, given))
    }),
    metadata("lchown-link", "gives a symbolic link to its owner", |s| {
        Attempt::calls(&Calls::of(libc::SYS_lchown, [(&s.at("link")).into(), us().into(), (-1).into()]))
    }),
    row("chown-to-other", Protection::Privileges, "gives a file to another user", |s| {
        act!["chown", s.at("f"), "61300", "61300"]
    })
    .by(&[Layer::Capabilities], &[Layer::Capabilities, Layer::MountView])
    .only(Actors::Root),
    metadata("utimensat", "changes the times of a file", |s| act!["utimes", s.at("f")]),
    metadata("utime", "changes the times with the old call", |s| {
        Attempt::calls(&Calls::of(libc::SYS_utime, [(&s.at("f")).into(), Word::Words(vec![1, 1])]))
    }),
    metadata("futimens-read-only", "changes the times by a descriptor for reading", |s| {
        let set = [Word::Result(0), 0.into(), then(), 0.into()];
        Attempt::calls(&reading(&s.at("f")).then(libc::SYS_utimensat, set))
    }),
    metadata("utimensat-directory", "changes the times of a directory by a descriptor for reading", |s| {
        let set = [Word::Result(0), 0.into(), then(), 0.into()];
        Attempt::calls(&reading(&s.scene()).then(libc::SYS_utimensat, set))
    }),
    metadata("utimensat-link", "changes the times of a symbolic link", |s| {
        let set = [HERE.into(), (&s.at("link")).into(), then(), libc::AT_SYMLINK_NOFOLLOW.into()];
        Attempt::calls(&Calls::of(libc::SYS_utimensat, set))
    }),
    metadata("setxattr", "sets an attribute of a file", |s| act!["setxattr", s.at("f")]),
    metadata("setxattr-directory", "sets an attribute of a directory", |s| act!["setxattr", s.at("empty")]),
    metadata("fsetxattr-read-only", "sets an attribute by a descriptor for reading", |s| {
        let set = [Word::Result(0), "user.act".into(), "act".into(), 3.into(), 0.into()];
        Attempt::calls(&reading(&s.at("f")).then(libc::SYS_fsetxattr, set))
    }),
    metadata("setxattr-proc-fd", "sets an attribute by the link of a descriptor in `/proc/self/fd`", |s| {
        let set = ["/proc/self/fd/{0}".into(), "user.act".into(), "act".into(), 3.into(), 0.into()];
        Attempt::calls(&bare(&s.at("f")).then(libc::SYS_setxattr, set))
    }),
    metadata("removexattr", "removes an attribute", |s| {
        Attempt::calls(&Calls::of(libc::SYS_removexattr, [(&s.at("f")).into(), "user.here".into()]))
    }),
    metadata("fremovexattr-read-only", "removes an attribute by a descriptor for reading", |s| {
        let removed = [Word::Result(0), "user.here".into()];
        Attempt::calls(&reading(&s.at("f")).then(libc::SYS_fremovexattr, removed))
    }),
    metadata("access-list", "adds a user to the access list of a file", |s| {
        let set = [(&s.at("f")).into(), "system.posix_acl_access".into(), access_list()];
        let [path, name, value] = set;
        let calls = Calls::of(libc::SYS_setxattr, [path, name, value, ACCESS_LIST_SIZE.into(), 0.into()]);
        Attempt::calls(&calls)
    }),
    metadata("access-list-directory", "sets the access list that new files of a directory get", |s| {
        let [path, name, value] = [(&s.at("empty")).into(), "system.posix_acl_default".into(), access_list()];
        let calls = Calls::of(libc::SYS_setxattr, [path, name, value, ACCESS_LIST_SIZE.into(), 0.into()]);
        Attempt::calls(&calls)
    }),
    metadata(
        "given-descriptor",
        "changes the mode of a file that it was given as its input, for reading",
        |s| {
            let change = Calls::of(libc::SYS_fchmod, [0.into(), 0o666.into()]);
            Attempt::calls(&change).input(std::fs::File::open(s.at("f")).unwrap())
        },
    )
    .given(),
    metadata("given-descriptor-by-link", "the same by the link in `/proc/self/fd`", |s| {
        let change = Calls::of(libc::SYS_chmod, ["/proc/self/fd/0".into(), 0o666.into()]);
        Attempt::calls(&change).input(std::fs::File::open(s.at("f")).unwrap())
    })
    .given(),
    row(
        "ring-setxattr",
        Protection::KernelInterfaces,
        "sets an attribute by a ring of asynchronous calls",
        |s| act!["io-uring-setxattr", s.at("f")],
    )
    .by(FILTER, FILTER_AND_VIEW)
    .needs(&[Need::IoUring]),
    request("set-flags", "changes inode flags by a descriptor for reading", |s| {
        act!["fs-setflags", s.at("f")]
    }),
    request("set-flags-directory", "changes inode flags of a directory", |s| act!["fs-setflags", s.scene()]),
    request("set-extended-flags", "changes extended inode flags", |s| act!["fsxattr", s.at("f")]),
    request("set-version", "changes the inode generation", |s| {
        let version = [Word::Result(0), FS_IOC_SETVERSION.into(), Word::HalfWords(vec![4711, 0])];
        Attempt::calls(&reading(&s.at("f")).then(libc::SYS_ioctl, version))
    }),
    request("file-setattr", "changes inode flags by path, with the call of Linux 6.17", |s| {
        let calls =
            Calls::of(FILE_SETATTR, [HERE.into(), (&s.at("f")).into(), Word::Zeros(24), 24.into(), 0.into()]);
        Attempt::calls(&calls)
    })
    .answers(&["EPERM", "EROFS", "ENOSYS"])
    .needs(&[Need::FileSetattr]),
    metadata("removexattrat", "removes an attribute with the call of Linux 6.13", |s| {
        Attempt::calls(&Calls::of(
            REMOVEXATTRAT,
            [HERE.into(), (&s.at("f")).into(), 0.into(), "user.here".into()],
        ))
    })
    .needs(&[Need::Removexattrat]),
];
