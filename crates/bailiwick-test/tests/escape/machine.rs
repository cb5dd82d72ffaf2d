//! The machine: mounts, names, clocks, modules, power, settings of the kernel. Root's alone; run apart, in mount, name and
//! network namespaces, where what happens without any layer happens to nobody.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick::{Layer, Protection};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::{Need, Places, act, case, fixture};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::ground::Ground;
use crate::row::{Actors, Attempt, ComesAlong, Row, act, row};

const LANDLOCK: &[Layer] = &[Layer::Landlock];
const LANDLOCK_AND_VIEW: &[Layer] = &[Layer::Landlock, Layer::MountView];
const LANDLOCK_AND_FILTER: &[Layer] = &[Layer::Landlock, Layer::Seccomp];
const LANDLOCK_FILTER_AND_VIEW: &[Layer] = &[Layer::Landlock, Layer::Seccomp, Layer::MountView];
const FILTER: &[Layer] = &[Layer::Seccomp];
const FILTER_AND_VIEW: &[Layer] = &[Layer::Seccomp, Layer::MountView];
const FILTER_AND_DOMAINS: &[Layer] = &[Layer::Seccomp, Layer::Landlock, Layer::Scope];
/// What is mounted in the view is mounted nowhere else.
const FILTER_DOMAINS_AND_VIEW: &[Layer] = &[Layer::Seccomp, Layer::Landlock, Layer::Scope, Layer::MountView];
const CAPABILITIES: &[Layer] = &[Layer::Capabilities];
const OPEN_TREE: i64 = 428;
const MOVE_MOUNT: i64 = 429;
const FSOPEN: i64 = 430;

const fn control(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::HostControls, tries, attempt)
        .by(FILTER, FILTER)
        .and_from_root(CAPABILITIES)
        .only(Actors::Root)
}

const fn mounting(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::KernelInterfaces, tries, attempt)
        .by(FILTER_AND_DOMAINS, FILTER_DOMAINS_AND_VIEW)
        .and_from_root(CAPABILITIES)
        .only(Actors::Root)
}

const fn setting(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Content, tries, attempt).by(LANDLOCK, LANDLOCK_AND_VIEW).only(Actors::Root)
}

const fn subvolume(id: &'static str, tries: &'static str, attempt: fn(&Ground) -> Attempt) -> Row {
    row(id, Protection::Content, tries, attempt)
        .by(FILTER, FILTER_AND_VIEW)
        .only(Actors::Root)
        .needs(&[Need::Btrfs])
}

/// An act whose arguments are only looked at once the permission was given.
fn reaches(errors: &str, calls: &Calls) -> Attempt {
    let words = ["reaches".into(), errors.into()].into_iter().chain(calls.arguments().to_vec());
    Attempt::act(words).reported()
}

fn opens(path: &Path) -> Attempt {
    Attempt::calls(&Calls::of(libc::SYS_open, [path.into(), libc::O_WRONLY.into()])).reported()
}

/// The first of these that the machine has.
fn first_of(paths: &[&str]) -> PathBuf {
    paths.iter().map(PathBuf::from).find(|path| path.exists()).unwrap()
}

/// Where a hierarchy of control groups is mounted; a directory that has none where no such thing is.
fn control_groups() -> PathBuf {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_one = |line: &&str| line.contains(" - cgroup");
    let points = table.lines().filter(is_one).filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.map(|point| point.join("cgroup.procs")).find(|file| file.exists()).unwrap_or_default()
}

fn name_of_machine() -> String {
    let names = rustix::system::uname();
    format!("{} {}", names.nodename().to_string_lossy(), names.domainname().to_string_lossy())
}

/// An attempt to call the machine otherwise, undone afterwards.
fn renames_machine(s: &Ground, attempt: Attempt) -> Attempt {
    let ours = name_of_machine();
    if case::is_root() {
        s.later(|| {
            let name = Calls::of(libc::SYS_setdomainname, ["bw".into(), 2.into()]);
            act::bare(name.arguments()).assert_done();
            rustix::system::sethostname(b"bw").unwrap();
        });
    }
    attempt.shown_by(move || name_of_machine() != ours)
}

/// A mount of the host on a directory of the scene, undone afterwards.
fn mounted(s: &Ground) -> PathBuf {
    let point = s.at("empty");
    if case::is_root() {
        rustix::mount::mount("host", &point, "tmpfs", MountFlags::empty(), None).unwrap();
    }
    unmounts_later(s, &point);
    point
}

fn unmounts_later(s: &Ground, point: &Path) {
    let point = point.to_owned();
    s.later(move || {
        while fixture::is_mount_point(&point) {
            rustix::mount::unmount(&point, UnmountFlags::empty()).unwrap();
        }
    });
}

/// The directory of a btrfs; for who cannot mount one, the scene.
fn btrfs(s: &Ground) -> PathBuf {
    let mounted = s.places().join("B");
    if mounted.join("source").exists() { mounted } else { s.scene() }
}

/// Makes a btrfs with a subvolume in it, seen in this mount namespace alone.
pub(crate) fn prepare(places: &Places) {
    if Need::Btrfs.probe().is_err() {
        return;
    }
    let (image, mounted) = (places.join("btrfs"), places.join("B"));
    fs::create_dir(&mounted).unwrap();
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let ran = |program: &str, arguments: &[&Path]| {
        let status = Command::new(program).args(arguments).stdout(Stdio::null()).status();
        assert!(status.unwrap().success(), "{program}");
    };
    ran("mkfs.btrfs", &[Path::new("-q"), &image]);
    ran("mount", &[Path::new("-o"), Path::new("loop"), &image, &mounted]);
    assert!(fixture::is_mount_point(&mounted));
    act::bare(&["btrfs-create".as_ref(), mounted.as_os_str(), "source".as_ref()]).assert_done();
}

pub(crate) const ROWS: &[Row] = &[
    mounting("mount", "mounts over a directory of the root", |s| {
        let point = s.ours("dir");
        unmounts_later(s, &point);
        act!["mount", &point].shown_by(move || fixture::is_mount_point(&point))
    }),
    mounting("unmount", "unmounts what the host has mounted", |s| {
        let point = mounted(s);
        act!["umount", &point].shown_by(move || case::is_root() && !fixture::is_mount_point(&point))
    })
    .answers(&["EPERM", "EINVAL"]),
    mounting("pivot-root", "makes another mount the root of all", |s| {
        let nowhere = [(&s.at("empty")).into(), (&s.at("empty")).into()];
        reaches("EINVAL,EBUSY", &Calls::of(libc::SYS_pivot_root, nowhere))
    })
    .by(FILTER_AND_DOMAINS, FILTER_AND_DOMAINS),
    mounting("move-mount", "copies a mount and puts it over a directory of the root", |s| {
        let (from, to) = (mounted(s), s.ours("dir"));
        unmounts_later(s, &to);
        let copied = Calls::of(OPEN_TREE, [libc::AT_FDCWD.into(), (&from).into(), 1.into()]);
        // MOVE_MOUNT_F_EMPTY_PATH.
        let moved = [Word::Result(0), "".into(), libc::AT_FDCWD.into(), (&to).into(), 4.into()];
        Attempt::calls(&copied.then(MOVE_MOUNT, moved).course())
            .shown_by(move || fixture::is_mount_point(&to))
    })
    .answers(&["EPERM", "EINVAL"]),
    mounting("bind-mount", "shows a directory outside within the root, to write there", |s| {
        let (from, to) = (s.scene(), s.ours("dir"));
        unmounts_later(s, &to);
        let bound = [(&from).into(), (&to).into(), 0.into(), 0x1000.into(), 0.into()]; // MS_BIND
        Attempt::calls(&Calls::of(libc::SYS_mount, bound)).shown_by(move || fixture::is_mount_point(&to))
    }),
    mounting("remount", "makes a mount of the host read-only", |s| {
        let point = mounted(s);
        let again = ["host".into(), (&point).into(), 0.into(), 0x1021.into(), 0.into()]; // MS_BIND, REMOUNT, RDONLY
        Attempt::calls(&Calls::of(libc::SYS_mount, again)).shown_by(move || is_read_only(&point))
    })
    .answers(&["EPERM", "EINVAL"]),
    control("mount-attributes", "makes a mount of the host read-only by its attributes", |s| {
        let point = mounted(s);
        act!["mount-setattr", &point].shown_by(move || is_read_only(&point))
    })
    .by(FILTER, FILTER_AND_VIEW)
    .answers(&["EPERM", "EINVAL"])
    .breaking(Protection::KernelInterfaces),
    control("open-tree", "takes a copy of the tree of mounts", |s| {
        Attempt::calls(&Calls::of(OPEN_TREE, [libc::AT_FDCWD.into(), (&s.scene()).into(), 1.into()]))
            .reported()
    })
    .breaking(Protection::KernelInterfaces),
    control("new-file-system", "opens a file system of its own", |_| {
        Attempt::calls(&Calls::of(FSOPEN, ["tmpfs".into(), 0.into()])).reported()
    })
    .breaking(Protection::KernelInterfaces),
    control("host-name", "gives the machine another name", |s| renames_machine(s, act!["sethostname", "zz"]))
        .along(ComesAlong::Names),
    control("domain-name", "gives the machine another domain", |s| {
        let calls = Calls::of(libc::SYS_setdomainname, ["zz".into(), 2.into()]);
        renames_machine(s, Attempt::calls(&calls))
    })
    .along(ComesAlong::Names),
    control("time-zone", "sets the time zone of the kernel, to what it is", |_| {
        act!["settimeofday"].reported()
    }),
    control("clock-rate", "changes the rate of the clock, by too much", |_| {
        let mut change = vec![0; 52]; // struct timex
        change[0] = 0x4000; // ADJ_TICK, and a tick of 0
        reaches("EINVAL", &Calls::of(libc::SYS_adjtimex, [Word::HalfWords(change)]))
    }),
    control("swap", "swaps to a file that is no swap space", |s| {
        reaches("EINVAL", &Calls::of(libc::SYS_swapon, [(&s.at("f")).into(), 0.into()]))
    })
    // The kernel opens the file for writing.
    .by(LANDLOCK_AND_FILTER, LANDLOCK_FILTER_AND_VIEW),
    control("power", "restarts the machine, without the numbers that this takes", |_| {
        reaches("EINVAL", &Calls::of(libc::SYS_reboot, [0.into(), 0.into(), 0.into(), 0.into()]))
    }),
    control("kernel-messages", "sets which messages of the kernel are shown, to no level", |_| {
        reaches("EINVAL", &Calls::of(libc::SYS_syslog, [8.into(), 0.into(), 0.into()]))
    }),
    setting("kernel-setting", "writes a setting of the kernel in `/proc/sys`", |s| {
        renames_machine(s, act!["open-write", "/proc/sys/kernel/hostname"])
    })
    .along(ComesAlong::Names),
    setting("drop-caches", "opens the file by which the kernel drops its caches for writing", |_| {
        opens(Path::new("/proc/sys/vm/drop_caches"))
    }),
    setting("kernel-object", "opens a setting in `/sys` for writing", |_| {
        opens(&first_of(&[
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/module/printk/parameters/time",
            "/sys/power/state",
            "/sys/kernel/uevent_helper",
        ]))
    }),
    setting("control-group", "opens the list of members of a control group for writing", |_| {
        opens(&control_groups())
    })
    .needs(&[Need::ControlGroups]),
    setting("login-records", "opens the record of who is logged in for writing", |_| {
        opens(&first_of(&["/run/utmp", "/var/log/wtmp", "/var/log/lastlog", "/etc/hostname"]))
    }),
    setting("accounts", "opens the list of users for writing", |_| opens(Path::new("/etc/passwd"))),
    subvolume("snapshot", "plants a snapshot outside, by a descriptor for reading", |s| {
        let (at, name) = (btrfs(s), s.name());
        let planted = at.join(&name);
        let source = if at.join("source").exists() { at.join("source") } else { at.clone() };
        act!["btrfs-snap", source, at, name].shown_by(move || planted.exists())
    }),
    subvolume("subvolume", "makes a subvolume outside, by a descriptor for reading", |s| {
        let (at, name) = (btrfs(s), s.name());
        let planted = at.join(&name);
        act!["btrfs-create", at, name].shown_by(move || planted.exists())
    }),
    subvolume("remove-subvolume", "removes a subvolume outside, by a descriptor for reading", |s| {
        let (at, name) = (btrfs(s), s.name());
        let there = at.join(&name);
        if case::is_root() {
            act::bare(&["btrfs-create".as_ref(), at.as_os_str(), name.as_ref()]).assert_done();
        }
        act!["btrfs-destroy", at, name].shown_by(move || case::is_root() && !there.exists())
    })
    .and_from_root(CAPABILITIES),
    subvolume("freeze", "freezes a whole file system, by a descriptor for reading", |s| {
        let opened = Calls::of(libc::SYS_open, [(&btrfs(s)).into(), libc::O_RDONLY.into()]);
        let freeze = |request: u32| [Word::Result(0), request.into(), 0.into()]; // FIFREEZE, FITHAW
        let calls = opened
            .then(libc::SYS_ioctl, freeze(0xc004_5877))
            .then(libc::SYS_ioctl, freeze(0xc004_5878))
            .course();
        Attempt::calls(&calls).reported()
    })
    .by(FILTER, FILTER)
    .and_from_root(CAPABILITIES),
];

fn is_read_only(point: &Path) -> bool {
    rustix::fs::statvfs(point).unwrap().f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
}
