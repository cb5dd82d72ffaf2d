//! Files that are written, cut or replaced in the middle of a read, at a known moment: by the writer that takes the
//! bytes. C99, C103.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use bailiwick::ErrorKind::{Io, TreeChanged};
use bailiwick_test::cases;

use super::{assert_told, file, link, pin, reader};

/// Larger than what is read at a time.
const SIZE: usize = 1 << 20;

/// Takes bytes, and does something once it has the first of them.
struct Meanwhile<F> {
    act: Option<F>,
    taken: Vec<u8>,
}

impl<F: FnOnce() -> io::Result<()>> Meanwhile<F> {
    fn new(act: F) -> Self {
        Self { act: Some(act), taken: Vec::new() }
    }
}

impl<F: FnOnce() -> io::Result<()>> Write for Meanwhile<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(act) = self.act.take() {
            act()?;
        }
        self.taken.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn fresh(path: &Path) {
    fs::remove_file(path).ok();
    file(path, vec![b'a'; SIZE]);
    // On kernels before 6.13 the stamps of two changes within one tick are equal; a tick is 10 ms at most.
    std::thread::sleep(Duration::from_millis(25));
}

cases! {
    /// Each kind of change is seen, and the same read without one is not refused.
    fn seen_whatever_it_is(world: &World) {
        let (root, path) = (world.write_root(), world.write_root().join("f"));
        let pinned = pin(&root);
        let with = |act: &dyn Fn() -> io::Result<()>| {
            fresh(&path);
            let mut to = Meanwhile::new(act);
            reader(&pinned).copy("f", &mut to).map(|facts| (facts.size, to.taken.len()))
        };
        let write = || OpenOptions::new().write(true).open(&path);
        assert_told(with(&|| OpenOptions::new().append(true).open(&path)?.write_all(b"more")), TreeChanged, "f", "grew");
        assert_told(with(&|| write()?.set_len(0)), TreeChanged, "f", "shrank");
        // The same size, in what has been read already and in what has not.
        assert_told(with(&|| write()?.write_all_at(b"b", 0)), TreeChanged, "f", "modified");
        assert_told(with(&|| write()?.write_all_at(b"b", SIZE as u64 - 1)), TreeChanged, "f", "modified");
        // With the time of modification set back.
        let set_back = || {
            let modified = fs::metadata(&path)?.modified()?;
            let file = write()?;
            file.write_all_at(b"b", 0)?;
            file.set_modified(modified)
        };
        assert_told(with(&set_back), TreeChanged, "f", "modified");
        assert_told(with(&|| fs::remove_file(&path)), TreeChanged, "f", "modified");
        let replaced = || {
            file(root.join("new"), vec![b'b'; SIZE]);
            fs::rename(root.join("new"), &path)
        };
        assert_told(with(&replaced), TreeChanged, "f", "modified");
        assert_told(with(&|| fs::hard_link(&path, root.join("other"))), TreeChanged, "f", "modified");
        let failed = with(&|| Err(io::Error::other("full"))).unwrap_err();
        assert_eq!((failed.kind(), failed.ran()), (Io, bailiwick::Ran::Unknown));
        // The twins: nothing happens, or something that concerns another file.
        assert_eq!(with(&|| Ok(())).unwrap(), (SIZE as u64, SIZE));
        assert_eq!(with(&|| fs::write(root.join("new"), "x")).unwrap(), (SIZE as u64, SIZE));
    }

    /// The name is given to a link while the file is read: what was opened is what is read, or the read is refused.
    fn name_given_to_a_link(world: &World) {
        let (root, path) = (world.write_root(), world.write_root().join("f"));
        fresh(&path);
        let pinned = pin(&root);
        let outside = world.outside_file();
        let mut to = Meanwhile::new(|| {
            fs::rename(&path, root.join("aside"))?;
            link(&outside, &path);
            Ok(())
        });
        assert_told(reader(&pinned).copy("f", &mut to), TreeChanged, "f", "modified");
        assert!(to.taken.iter().all(|byte| *byte == b'a'));
    }
}
