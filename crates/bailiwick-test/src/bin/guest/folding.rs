//! Directories that fold case.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{IFlags, ioctl_setflags};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::{Value, json};

use crate::attempt::{Kernel, Layout, explanation, granted, issue, refusal, session};

/// Store and root by one name that two spellings have, in a directory that folds case.
const SPELLINGS: [(&str, &str, &str); 6] = [
    ("ascii", "P", "p"),
    ("accent", "\u{c9}", "\u{e9}"),
    ("decomposed", "\u{ea}", "E\u{302}"),
    ("kelvin", "\u{212a}", "k"),
    ("sharp-s", "Stra\u{df}e", "STRASSE"),
    ("ignorable", "I", "i\u{ad}"),
];

pub(crate) fn run(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    fs::create_dir("/m/fold").unwrap();
    // `FS_CASEFOLD_FL` of `linux/fs.h`.
    ioctl_setflags(File::open("/m/fold").unwrap(), IFlags::from_bits_retain(0x4000_0000)).unwrap();
    for (spelling, store, other) in SPELLINGS {
        let (store, other) = (format!("/m/fold/{store}"), format!("/m/fold/{other}"));
        make(&store);
        say(json!({ "scene": format!("fixture {spelling}"), "same": inode(&store) == inode(&other) }));
        let (root, kept, reach) =
            (format!("{other}/sub"), format!("{store}/sub/f"), format!("{other}/sub/f"));
        let attempt = |how: &str, root, reach| {
            let name = format!("{how} {spelling}");
            let layout = Layout { name: &name, store: &store, root, kept: &kept, reach };
            if spelling == "ascii" { kernel.attempt(&layout) } else { kernel.judge(&layout) }
        };
        say(attempt("inside", &root, &reach));
        // The mount shows the spelling that was looked up last, not the one on the disk.
        forget_names();
        mount_bind(&root, "/bind").unwrap();
        let part = shown();
        say(attempt("part", "/bind", "/bind/f"));
        unmount("/bind", UnmountFlags::empty()).unwrap();
        forget_names();
        mount_bind(&other, "/bind").unwrap();
        let whole = shown();
        say(attempt("whole", "/bind/SUB", "/bind/SUB/F"));
        unmount("/bind", UnmountFlags::empty()).unwrap();
        say(json!({ "scene": format!("shown {spelling}"), "store": store, "part": part, "whole": whole }));
    }
    let (store, kept, reach) = ("/m/fold/P", "/m/fold/P/sub/f", "/m/fold/p/sub/f");
    say(kernel.attempt(&Layout { name: "same", store, root: "/m/fold/p", kept, reach }));
    let (store, kept, reach) =
        ("/m/fold/Q/deep/store", "/m/fold/Q/deep/store/sub/f", "/m/fold/q/DEEP/store/sub/f");
    fs::create_dir_all("/m/fold/Q/deep").unwrap();
    make(store);
    say(kernel.attempt(&Layout { name: "around", store, root: "/m/fold/q/DEEP", kept, reach }));
    mount_bind("/m/fold", "/bind").unwrap();
    let (root, reach) = ("/bind/q/DEEP", "/bind/q/DEEP/store/sub/f");
    say(kernel.attempt(&Layout { name: "around, above", store, root, kept, reach }));
    unmount("/bind", UnmountFlags::empty()).unwrap();
    twins(kernel, say);
    hard_link(kernel, say);
    files(kernel, say);
    later(say);
}

/// Each differs from a refused one in one fact.
fn twins(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    let (store, kept) = ("/m/fold/P", "/m/fold/P/sub/f");
    make("/m/fold/r");
    say(kernel.attempt(&Layout {
        name: "twin name",
        store,
        root: "/m/fold/R/sub",
        kept,
        reach: "/m/fold/p/sub/f",
    }));
    mount_bind("/m/fold/R/sub", "/bind").unwrap();
    say(kernel.attempt(&Layout { name: "twin bind", store, root: "/bind", kept, reach: "/m/fold/p/sub/f" }));
    unmount("/bind", UnmountFlags::empty()).unwrap();
    // On the same file system, in a directory that does not fold.
    fs::create_dir("/m/n").unwrap();
    make("/m/n/P");
    make("/m/n/p");
    say(json!({ "scene": "fixture plain", "same": inode("/m/n/P") == inode("/m/n/p") }));
    let (store, root, kept, reach) = ("/m/n/P", "/m/n/p/sub", "/m/n/P/sub/f", "/m/n/P/sub/f");
    say(kernel.attempt(&Layout { name: "twin plain", store, root, kept, reach }));
    forget_names();
    mount_bind(root, "/bind").unwrap();
    say(kernel.attempt(&Layout { name: "twin plain bind", store, root: "/bind", kept, reach }));
    unmount("/bind", UnmountFlags::empty()).unwrap();
}

fn hard_link(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    let (store, kept) = ("/m/fold/P", "/m/fold/P/sub/f");
    let (root, reach) = ("/m/fold/W", "/m/fold/W/LINK");
    fs::create_dir("/m/fold/w").unwrap();
    fs::hard_link("/m/fold/p/SUB/f", "/m/fold/w/link").unwrap();
    say(kernel.attempt(&Layout { name: "link", store, root, kept, reach }));
    fs::remove_file(reach).unwrap();
    say(kernel.attempt(&Layout { name: "twin link", store, root, kept, reach: kept }));
}

/// A protected file, a database and one of the files beside it, each by another spelling than the one on the disk, and
/// mounted in the root by that. The twin is a file beside them.
fn files(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    fs::create_dir_all("/m/files").unwrap();
    fs::write("/m/files/at", "").unwrap();
    let store = "/m/fold/P";
    for (name, file) in [("secret", "secret"), ("database", "db"), ("beside", "db-wal"), ("twin", "other")] {
        let kept = format!("/m/fold/{file}");
        fs::write(&kept, "kept").unwrap();
        forget_names();
        mount_bind(&kept, "/m/files/at").unwrap();
        let layout = Layout { name, store, root: "/m/files", kept: &kept, reach: "/m/files/at" };
        let (naive, asked) = (kernel.naive(&layout), session(store).protect("/m/fold/SECRET"));
        let asked = explanation(asked.protect_database("/m/fold/DB").write_root("/m/files"));
        say(json!({ "scene": format!("file {name}"), "naive": naive, "explain": asked }));
        unmount("/m/files/at", UnmountFlags::empty()).unwrap();
    }
}

/// An alias that appears under a grant is found before the next command, and its end too.
fn later(say: &mut impl FnMut(Value)) {
    let name = "later";
    fs::create_dir("/m/fold/r/sub/at").unwrap();
    let layout = Layout { name, store: "/m/fold/P", root: "/m/fold/R/sub", kept: "", reach: "" };
    let grant = issue(&layout).unwrap();
    let check = || grant.recheck().map_or_else(|error| refusal(&error), |()| granted());
    let before = check();
    forget_names();
    mount_bind("/m/fold/p/SUB", "/m/fold/r/sub/at").unwrap();
    let during = check();
    unmount("/m/fold/r/sub/at", UnmountFlags::empty()).unwrap();
    say(json!({ "scene": name, "before": before, "during": during, "after": check() }));
}

/// `NAME/sub/f`.
fn make(directory: &str) {
    fs::create_dir_all(format!("{directory}/sub")).unwrap();
    rustix::fs::chmod(directory, rustix::fs::Mode::from(0o700)).unwrap();
    fs::write(format!("{directory}/sub/f"), "kept").unwrap();
}

/// Whatever spelling names had until now is not remembered. A name that was used is spared once.
fn forget_names() {
    rustix::fs::sync();
    for _ in 0..3 {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }
}

/// What the mount table says that the mount at `/bind` shows.
fn shown() -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some("/bind")).unwrap();
    line.split(' ').nth(3).unwrap().to_owned()
}

fn inode(path: &str) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
