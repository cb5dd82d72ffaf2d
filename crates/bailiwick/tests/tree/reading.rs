//! Single files and listings: C33, C96, C97, C98, C102, C103.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use bailiwick::ErrorKind::{TreeChanged, TreeLimit, TreeNotAccessible, TreePathInvalid, TreeRefused};
use bailiwick::tree::{self, Kind, Reader};
use bailiwick_test::{cases, fixture, root_cases, user_cases};
use rustix::fs::inotify;

use super::{assert_absent, assert_told, dir, fifo, file, limited, link, pin, reader};

/// Collects the names that were opened in a directory, as the kernel reports them.
struct Opened(std::os::fd::OwnedFd);

impl Opened {
    fn watch(directory: &Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, directory, inotify::WatchFlags::OPEN).unwrap();
        Self(watch)
    }

    fn names(&self) -> BTreeSet<OsString> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut room);
        let mut names = BTreeSet::new();
        while let Ok(event) = events.next() {
            names.extend(event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_owned())));
        }
        names
    }
}

cases! {
    /// C33, C96: links at the end and in the middle, to outside, to inside, to nothing and to themselves.
    fn c96_links(world: &World) {
        let root = world.write_root();
        dir(root.join("real/sub"));
        file(root.join("real/sub/f"), "real");
        for (target, name) in [
            (world.outside_file().as_path(), "out"),
            (world.outside().as_path(), "hop"),
            (Path::new("/proc/self"), "p"),
            (Path::new("../../etc"), "up"),
            (Path::new("nowhere"), "dangling"),
            (Path::new("itself"), "itself"),
            (Path::new("real/sub/f"), "inside"),
            (Path::new("real"), "in"),
            (Path::new("/proc/self/fd/0"), "magic"),
        ] {
            fixture::assert_link(link(target, root.join(name)), target);
        }
        let pinned = pin(&root);
        let mut reader = reader(&pinned);
        for path in ["out", "dangling", "itself", "inside", "magic", "hop", "in"] {
            assert_told(reader.read(path), TreeRefused, path, "symbolic_link");
            assert_eq!(reader.look(path).unwrap().kind, Kind::SymbolicLink);
            assert_told(reader.list(path), TreeRefused, path, "symbolic_link");
        }
        for (path, component) in
            [("hop/f", "hop"), ("p/environ", "p"), ("up/hostname", "up"), ("in/sub/f", "in"), ("dangling/x", "dangling")]
        {
            assert_told(reader.read(path), TreeRefused, component, "symbolic_link");
            assert_told(reader.look(path), TreeRefused, component, "symbolic_link");
            assert_told(reader.list(path), TreeRefused, component, "symbolic_link");
        }
        // In the middle of the middle.
        link(world.outside(), root.join("real/hop"));
        assert_told(reader.read("real/hop/f"), TreeRefused, "real/hop", "symbolic_link");
        // The twins: the same names, without a link.
        fs::remove_file(root.join("hop")).unwrap();
        dir(root.join("hop"));
        file(root.join("hop/f"), "mine");
        assert_eq!(reader.read("hop/f").unwrap().bytes, b"mine");
        assert_eq!(reader.read("real/sub/f").unwrap().bytes, b"real");
        assert_eq!(reader.read("./real//sub/./f").unwrap().bytes, b"real");
        // Whatever leads there now, `X/f` was not opened.
        assert_eq!(fs::read(world.outside_file()).unwrap(), b"x");
    }

    /// C97: what is no regular file is refused without being opened.
    fn c97_special_files(world: &World) {
        let root = world.write_root();
        fixture::assert_fifo(fifo(root.join("fifo")));
        let _listener = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        fixture::assert_socket(root.join("socket"));
        file(root.join("plain"), "p");
        let opened = Opened::watch(&root);
        let pinned = pin(&root);
        let mut reader = reader(&pinned);
        for name in ["fifo", "socket"] {
            assert_told(reader.read(name), TreeRefused, name, "special_file");
            assert_told(reader.read(format!("{name}/below")), TreeRefused, name, "special_file");
            assert_told(reader.list(name), TreeRefused, name, "special_file");
        }
        let kinds: Vec<_> = reader.list("").unwrap().into_iter().map(|entry| entry.found.unwrap().kind).collect();
        assert_eq!(kinds, [Kind::Fifo, Kind::File, Kind::Socket]);
        assert_eq!(opened.names(), BTreeSet::new());
        // The twin, which also shows that an opening would have been seen.
        assert_eq!(reader.read("plain").unwrap().bytes, b"p");
        assert_eq!(opened.names(), BTreeSet::from(["plain".into()]));
    }

    /// C98: the directory is replaced by a link; then the tree itself is.
    fn c98_replaced_by_a_link(world: &World) {
        let root = world.write_root();
        dir(root.join("out"));
        file(root.join("out/f"), "mine");
        let pinned = pin(&root);
        let mut before = reader(&pinned);
        assert_eq!(before.read("out/f").unwrap().bytes, b"mine");
        fs::rename(root.join("out"), root.join("o2")).unwrap();
        link(world.outside(), root.join("out"));
        assert_told(before.read("out/f"), TreeRefused, "out", "symbolic_link");
        assert_told(before.list("out"), TreeRefused, "out", "symbolic_link");
        assert_eq!(before.read("o2/f").unwrap().bytes, b"mine");

        let old = world.path().join("W.old");
        fs::rename(&root, &old).unwrap();
        let moved = |result: Result<Reader<'_>, _>| assert_told(result, TreeChanged, "", "moved");
        moved(Reader::new(&pinned, tree::Limits::default()));
        link(world.outside(), &root);
        moved(Reader::new(&pinned, tree::Limits::default()));
        fs::remove_file(&root).unwrap();
        dir(&root);
        file(root.join("f"), "another");
        moved(Reader::new(&pinned, tree::Limits::default()));
        // One that began before goes on in the directory that was pinned.
        assert_absent(before.read("f"), "f");
        assert_eq!(before.read("o2/f").unwrap().bytes, b"mine");
        // The twin.
        fs::rename(&root, world.path().join("W.new")).unwrap();
        fs::rename(&old, &root).unwrap();
        assert_eq!(reader(&pinned).read("o2/f").unwrap().bytes, b"mine");
    }

    /// C102: other names of files of the host. A protected one is refused, any other says how many names it has.
    fn c102_hard_links(world: &World) {
        let root = world.write_root();
        dir(root.join("out"));
        fs::hard_link(world.secret(), root.join("out/x")).unwrap();
        fs::hard_link(world.outside_file(), root.join("out/y")).unwrap();
        file(root.join("out/z"), "z");
        fixture::assert_hard_links(world.secret(), root.join("out/x"));
        let store = pin(world.private());
        let secret = reader(&store).look("db").unwrap().id;
        let pinned = pin(&root);
        let mut careful = reader(&pinned).refuse([&secret]);
        assert_told(careful.read("out/x"), TreeRefused, "out/x", "protected");
        assert_told(careful.look("out/x"), TreeRefused, "out/x", "protected");
        assert_eq!(careful.read("out/y").unwrap().facts.links, 2);
        assert_eq!(careful.read("out/z").unwrap().facts.links, 1);
        let listed = careful.list("out").unwrap();
        assert_eq!(listed.iter().map(|entry| entry.found.is_ok()).collect::<Vec<_>>(), [false, true, true]);
        // A protected directory is not entered either.
        let above = reader(&pinned).look("out").unwrap().id;
        assert_told(reader(&pinned).refuse([&above]).read("out/z"), TreeRefused, "out", "protected");
        // The twin: nobody protects it.
        let content = reader(&pinned).read("out/x").unwrap();
        assert_eq!((content.bytes.as_slice(), content.facts.links), (b"s".as_slice(), 2));
    }

    /// C103: a sparse file of a terabyte is refused from its size, and every other limit from what is counted.
    fn c103_limits(world: &World) {
        let root = world.write_root();
        let sparse = fs::File::create(root.join("s")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert_eq!(sparse.metadata().unwrap().blocks(), 0);
        let pinned = pin(&root);
        assert_told(reader(&pinned).read("s"), TreeLimit, "s", "file_bytes");
        // The twins: a smaller one is read, holes and all; one byte below its size, it is not.
        sparse.set_len(3 << 20).unwrap();
        assert_eq!(limited(&pinned, |limits| limits.file_bytes = 3 << 20).read("s").unwrap().bytes, vec![0; 3 << 20]);
        assert_told(limited(&pinned, |limits| limits.file_bytes = (3 << 20) - 1).read("s"), TreeLimit, "s", "file_bytes");

        file(root.join("a"), "123456");
        file(root.join("b"), "7890");
        let mut ten = limited(&pinned, |limits| limits.bytes = 10);
        assert_eq!((ten.read("a").unwrap().bytes, ten.read("b").unwrap().bytes), (b"123456".to_vec(), b"7890".to_vec()));
        assert_told(ten.read("b"), TreeLimit, "b", "bytes");
        let mut nine = limited(&pinned, |limits| limits.bytes = 9);
        nine.read("a").unwrap();
        assert_told(nine.read("b"), TreeLimit, "b", "bytes");

        dir(root.join("d/e/f"));
        file(root.join("d/e/f/g"), "deep");
        assert_eq!(limited(&pinned, |limits| limits.depth = 4).read("d/e/f/g").unwrap().bytes, b"deep");
        assert_told(limited(&pinned, |limits| limits.depth = 3).read("d/e/f/g"), TreeLimit, "d/e/f/g", "depth");
        let mut four = limited(&pinned, |limits| limits.entries = 4);
        four.read("d/e/f/g").unwrap();
        assert_told(four.read("a"), TreeLimit, "a", "entries");
        assert_told(limited(&pinned, |limits| limits.time = Duration::ZERO).read("a"), TreeLimit, "a", "time_ms");

        dir(root.join("many"));
        for number in 0..50 {
            file(root.join(format!("many/{number}")), "");
        }
        // The directory's own name, and those in it.
        assert_eq!(limited(&pinned, |limits| limits.entries = 51).list("many").unwrap().len(), 50);
        assert_told(limited(&pinned, |limits| limits.entries = 50).list("many"), TreeLimit, "many", "entries");
    }

    /// C103: files that have no size and give data all the same, as those of `/proc`; and such as give less.
    fn c103_sizes_that_lie(world: &World) {
        let proc = pin("/proc/self");
        let status = reader(&proc).look("status").unwrap();
        assert_eq!((status.kind, status.size), (Kind::File, 0));
        let mut text = Vec::new();
        assert_told(reader(&proc).copy("status", &mut text), TreeChanged, "status", "grew");
        assert!(text.is_empty());
        // sysfs says 4096 for everything.
        let sys = pin("/sys/kernel");
        assert_eq!(reader(&sys).look("fscaps").unwrap().size, 4096);
        assert_told(reader(&sys).read("fscaps"), TreeChanged, "fscaps", "shrank");
        // The twin: an empty file that is empty.
        file(world.write_root().join("empty"), "");
        let pinned = pin(world.write_root());
        assert_eq!(reader(&pinned).read("empty").unwrap().bytes, b"");
    }

    /// Nothing there, something else there, and a path that means nothing are told apart.
    fn absence(world: &World) {
        let root = world.write_root();
        dir(root.join("d"));
        file(root.join("f"), "f");
        let pinned = pin(&root);
        let mut reader = reader(&pinned);
        assert_absent(reader.read("none"), "none");
        assert_absent(reader.read("d/none"), "d/none");
        assert_absent(reader.read("none/below"), "none");
        assert_absent(reader.list("none"), "none");
        assert_told(reader.read("f/below"), TreeRefused, "f", "not_a_directory");
        assert_told(reader.list("f"), TreeRefused, "f", "not_a_directory");
        assert_told(reader.read("d"), TreeRefused, "d", "not_a_file");
        assert_told(reader.read(""), TreeRefused, "", "not_a_file");
        for (path, fact) in [("/etc/hostname", "absolute"), ("../X/f", "parent"), ("d/../f", "parent"), ("f\0", "nul")] {
            assert_told(reader.read(path), TreePathInvalid, path, fact);
        }
        let long = "n".repeat(256);
        assert_told(reader.read(&long), TreePathInvalid, &long, "too_long");
        assert_absent(reader.read("n".repeat(255)), "n".repeat(255));
        // What is looked for in a directory that has been removed is not simply absent.
        fs::remove_dir_all(&root).unwrap();
        assert_told(reader.read("f"), TreeChanged, "f", "removed");
    }

    /// Pinning: what is there must be a directory, and the path absolute.
    fn pinning(world: &World) {
        let kind = |path: &Path| tree::pin(path).unwrap_err().kind();
        use bailiwick::ErrorKind::TreeNotFound;
        assert_eq!(kind(Path::new("W")), TreePathInvalid);
        assert_eq!(kind(&world.path().join("none")), TreeNotFound);
        assert_eq!(kind(&world.outside_file()), TreeRefused);
        assert_eq!(kind(Path::new("/proc/self/cwd")), TreeRefused);
        assert_eq!(pin(link(world.write_root(), world.path().join("l"))).canonical(), world.write_root());
    }

    /// Names and facts come back byte for byte.
    fn facts(world: &World) {
        let root = world.write_root();
        let name = OsStr::from_bytes(b"a\xff\n\x1b[2J");
        file(root.join(name), "12345");
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o640)).unwrap();
        let pinned = pin(&root);
        let listed = reader(&pinned).list("").unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name, name);
        let content = reader(&pinned).read(name).unwrap();
        let found = fs::metadata(root.join(name)).unwrap();
        assert_eq!(content.bytes, b"12345");
        let facts = content.facts;
        assert_eq!((facts.size, facts.mode, facts.links, facts.kind), (5, 0o640, 1, Kind::File));
        assert_eq!((facts.owner, facts.group, facts.id.inode), (found.uid(), found.gid(), found.ino()));
        assert_eq!((facts.modified.seconds, i64::from(facts.modified.nanoseconds)), (found.mtime(), found.mtime_nsec()));
        assert_eq!((facts.changed.seconds, i64::from(facts.changed.nanoseconds)), (found.ctime(), found.ctime_nsec()));
        assert_eq!(*pinned.id(), reader(&pinned).look("").unwrap().id);
    }

    /// A path longer than the kernel takes in one call.
    fn deeper_than_a_path(world: &World) {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut fd = rustix::fs::open(world.write_root(), flags, Mode::empty()).unwrap();
        let (mut path, name) = (std::path::PathBuf::new(), "n".repeat(200));
        for _ in 0..30 {
            mkdirat(&fd, &name, Mode::RWXU).unwrap();
            fd = openat(&fd, &name, flags, Mode::empty()).unwrap();
            path.push(&name);
        }
        let made = openat(&fd, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        rustix::io::write(made, b"deep").unwrap();
        let pinned = pin(world.write_root());
        assert_eq!(reader(&pinned).read(path.join("f")).unwrap().bytes, b"deep");
        // The control: by path it cannot be opened.
        let by_path = fs::read(world.write_root().join(path.join("f"))).unwrap_err();
        assert_eq!(by_path.raw_os_error(), Some(libc::ENAMETOOLONG));
    }
}

user_cases! {
    /// What this user may not read is neither absent nor tampered with.
    fn unreadable(world: &World) {
        let root = world.write_root();
        dir(root.join("closed"));
        file(root.join("closed/f"), "f");
        file(root.join("f"), "f");
        let set = |name: &str, mode| fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        set("f", 0o200);
        set("closed", 0o000);
        fixture::assert_unreadable(root.join("f"));
        let pinned = pin(&root);
        let mut reader = reader(&pinned);
        for path in ["f", "closed/f"] {
            assert_eq!(reader.read(path).unwrap_err().kind(), TreeNotAccessible);
        }
        assert_eq!(reader.list("closed").unwrap_err().kind(), TreeNotAccessible);
        set("f", 0o400);
        set("closed", 0o500);
        for path in ["f", "closed/f"] {
            assert_eq!(reader.read(path).unwrap().bytes, b"f");
        }
    }
}

root_cases! {
    /// C97: a device node is not opened.
    fn c97_device(world: &World) {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        let root = world.write_root();
        for (kind, name, device) in [
            (FileType::CharacterDevice, "chr", makedev(1, 5)),
            (FileType::BlockDevice, "blk", makedev(7, 255)),
        ] {
            mknodat(CWD, root.join(name), kind, Mode::from(0o644), device).unwrap();
            fixture::assert_device(root.join(name));
        }
        let opened = Opened::watch(&root);
        let pinned = pin(&root);
        for name in ["chr", "blk"] {
            assert_told(reader(&pinned).read(name), TreeRefused, name, "special_file");
        }
        assert_eq!(opened.names(), BTreeSet::new());
        // The control: it could have been read, for ever.
        let mut byte = [1_u8];
        fs::File::open(root.join("chr")).unwrap().read_exact(&mut byte).unwrap();
        assert_eq!((byte, opened.names()), ([0], BTreeSet::from(["chr".into()])));
    }
}
