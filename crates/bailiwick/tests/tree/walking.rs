//! Walks: nothing left out, nothing followed, and what changes meanwhile is told. C96, C97, C101, C103.

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::Error;
use bailiwick::ErrorKind::{self, TreeChanged, TreeLimit, TreeNotAccessible, TreeRefused};
use bailiwick::identity::PinnedDir;
use bailiwick::tree::{Reader, Step};
use bailiwick_test::{cases, user_cases};

use super::{assert_told, dir, fifo, file, limited, link, pin, reader};

type Seen = Vec<(PathBuf, Result<Vec<u8>, ErrorKind>)>;

/// Everything that a walk visits: the bytes of files, nothing for directories, kinds of errors. `meanwhile` is told each path.
fn walk(reader: &mut Reader<'_>, path: &str, mut meanwhile: impl FnMut(&Path)) -> Result<Seen, Error> {
    let mut seen = Vec::new();
    reader.walk(path, |visit| {
        let path = visit.path().to_owned();
        let found = visit.found().map(|facts| facts.kind).map_err(Error::kind);
        meanwhile(&path);
        let content = match found {
            Ok(bailiwick::tree::Kind::File) => {
                visit.read().map(|content| content.bytes).map_err(|error| error.kind())
            }
            Ok(_) => Ok(Vec::new()),
            Err(kind) => Err(kind),
        };
        seen.push((path, content));
        Ok::<_, Error>(Step::Enter)
    })?;
    Ok(seen)
}

fn quiet(pinned: &PinnedDir, path: &str) -> Seen {
    walk(&mut reader(pinned), path, |_| ()).unwrap()
}

fn ok(path: &str, bytes: &str) -> (PathBuf, Result<Vec<u8>, ErrorKind>) {
    (path.into(), Ok(bytes.as_bytes().to_vec()))
}

fn err(path: &str, kind: ErrorKind) -> (PathBuf, Result<Vec<u8>, ErrorKind>) {
    (path.into(), Err(kind))
}

cases! {
    /// C101: every regular file is there, and every entry that is refused, in order.
    fn everything_is_visited(world: &World) {
        let root = world.write_root();
        dir(root.join("out/sub/empty"));
        file(root.join("out/a"), "1");
        file(root.join("out/sub/b"), "2");
        fs::hard_link(root.join("out/a"), root.join("out/sub/c")).unwrap();
        link(world.outside_file(), root.join("out/l"));
        link(world.outside(), root.join("out/sub/l"));
        fifo(root.join("out/pipe"));
        file(root.join("out/z"), "3");
        let pinned = pin(&root);
        let expected = |at: &str| {
            let join = |path: &str| Path::new(at).join(path).to_str().unwrap().to_owned();
            vec![
                ok(&join("a"), "1"),
                err(&join("l"), TreeRefused),
                err(&join("pipe"), TreeRefused),
                ok(&join("sub"), ""),
                ok(&join("sub/b"), "2"),
                ok(&join("sub/c"), "1"),
                ok(&join("sub/empty"), ""),
                err(&join("sub/l"), TreeRefused),
                ok(&join("z"), "3"),
            ]
        };
        assert_eq!(quiet(&pinned, "out"), expected("out"));
        assert_eq!(quiet(&pin(root.join("out")), ""), expected(""));
        // What is refused cannot be read from the visit either, and what is skipped is not entered.
        let mut paths = Vec::new();
        reader(&pinned).walk("out", |visit| {
            paths.push(visit.path().to_owned());
            let kind = visit.found().err().map(Error::kind);
            if let Some(kind) = kind {
                assert_eq!(visit.read().unwrap_err().kind(), kind);
            }
            Ok::<_, Error>(if visit.path() == Path::new("out/sub") { Step::Skip } else { Step::Enter })
        }).unwrap();
        assert_eq!(paths, ["out/a", "out/l", "out/pipe", "out/sub", "out/z"].map(PathBuf::from));
        let mut count = 0;
        reader(&pinned).walk("out", |_| { count += 1; Ok::<_, Error>(if count == 2 { Step::Stop } else { Step::Enter }) }).unwrap();
        assert_eq!(count, 2);
        assert_told(reader(&pinned).walk("out/l", |_| Ok::<_, Error>(Step::Enter)), TreeRefused, "out/l", "symbolic_link");
        assert_told(reader(&pinned).walk("out/a", |_| Ok::<_, Error>(Step::Enter)), TreeRefused, "out/a", "not_a_directory");
    }

    /// C97: a file is exchanged for a FIFO, and another for a link, after the listing and before its turn.
    fn c97_exchanged_after_the_listing(world: &World) {
        let root = world.write_root();
        for name in ["1", "2", "3", "4", "5"] {
            file(root.join(name), name);
        }
        dir(root.join("6"));
        file(root.join("6/f"), "6");
        let pinned = pin(&root);
        let seen = walk(&mut reader(&pinned), "", |path| {
            if path == Path::new("1") {
                fs::remove_file(root.join("2")).unwrap();
                fifo(root.join("2"));
                fs::remove_file(root.join("3")).unwrap();
                link(world.outside_file(), root.join("3"));
                fs::remove_file(root.join("4")).unwrap();
            } else if path == Path::new("5") {
                // After it was looked at: what is read is what was looked at.
                fs::rename(root.join("5"), world.path().join("5")).unwrap();
                link(world.outside_file(), root.join("5"));
                // The directory too.
                fs::rename(root.join("6"), world.path().join("6")).unwrap();
                link(world.outside(), root.join("6"));
            }
        }).unwrap();
        assert_eq!(seen, [
            ok("1", "1"), err("2", TreeRefused), err("3", TreeRefused), err("4", TreeChanged), ok("5", "5"),
            err("6", TreeRefused), err("", TreeChanged),
        ]);
    }

    /// Names that are made or removed in a directory that was listed already: it is visited again, with that error.
    fn changed_after_the_listing(world: &World) {
        let root = world.write_root();
        dir(root.join("d"));
        file(root.join("d/f"), "f");
        file(root.join("e"), "e");
        // Older than a tick of the clock.
        std::thread::sleep(std::time::Duration::from_millis(25));
        let pinned = pin(&root);
        let seen = walk(&mut reader(&pinned), "", |path| {
            if path == Path::new("d/f") {
                file(root.join("d/late"), "late");
            }
        }).unwrap();
        assert_eq!(seen, [ok("d", ""), ok("d/f", "f"), err("d", TreeChanged), ok("e", "e")]);
        let late = quiet(&pinned, "");
        assert_eq!(late, [ok("d", ""), ok("d/f", "f"), ok("d/late", "late"), ok("e", "e")]);
    }

    /// C103: depth, entries and bytes end a walk.
    fn c103_limits(world: &World) {
        let root = world.write_root();
        dir(root.join("d/d/d"));
        file(root.join("d/d/d/f"), "123");
        let pinned = pin(&root);
        let whole = [ok("d", ""), ok("d/d", ""), ok("d/d/d", ""), ok("d/d/d/f", "123")];
        let with = |change: fn(&mut bailiwick::tree::Limits)| walk(&mut limited(&pinned, change), "", |_| ());
        assert_eq!(with(|limits| { limits.depth = 4; limits.entries = 4; limits.bytes = 3 }).unwrap(), whole);
        assert_told(with(|limits| limits.depth = 3), TreeLimit, "d/d/d/f", "depth");
        assert_told(with(|limits| limits.entries = 3), TreeLimit, "d/d/d", "entries");
        assert_told(with(|limits| limits.time = std::time::Duration::ZERO), TreeLimit, "", "time_ms");
        // A file's own limit is the reading's error; the walk goes on.
        assert_eq!(with(|limits| limits.bytes = 2).unwrap()[3], err("d/d/d/f", TreeLimit));
        assert_told(walk(&mut limited(&pinned, |limits| limits.depth = 3), "d", |_| ()), TreeLimit, "d/d/d/f", "depth");
    }

    /// C103: more empty files than the limit on entries, listed and walked, end early; one fewer does not.
    fn c103_many_empty_files(world: &World) {
        const MANY: u64 = 1000;
        let root = dir(world.write_root().join("many"));
        for number in 0..MANY {
            file(root.join(number.to_string()), "");
        }
        let pinned = pin(&root);
        assert_eq!(walk(&mut limited(&pinned, |limits| limits.entries = MANY), "", |_| ()).unwrap().len() as u64, MANY);
        let mut visited = 0;
        let over = walk(&mut limited(&pinned, |limits| limits.entries = MANY - 1), "", |_| visited += 1);
        assert_told(over, TreeLimit, "", "entries");
        assert_eq!(visited, 0);
    }
}

user_cases! {
    /// A directory that cannot be listed is visited with the reason, and the rest is walked.
    fn unreadable_directory(world: &World) {
        use std::os::unix::fs::PermissionsExt as _;
        let root = world.write_root();
        dir(root.join("a"));
        file(root.join("a/f"), "f");
        file(root.join("b"), "b");
        let set = |mode| fs::set_permissions(root.join("a"), fs::Permissions::from_mode(mode)).unwrap();
        let pinned = pin(&root);
        set(0o300);
        assert_eq!(quiet(&pinned, ""), [ok("a", ""), err("a", TreeNotAccessible), ok("b", "b")]);
        set(0o700);
        assert_eq!(quiet(&pinned, ""), [ok("a", ""), ok("a/f", "f"), ok("b", "b")]);
    }
}
