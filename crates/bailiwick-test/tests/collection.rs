//! What is read back from a place that commands of a session write, while they are at it: C33, C96, C97, C98, C99,
//! C102, C103.
//!
//! The attacker is a confined command of a real session; the reader is the host's. What the host itself may do to a
//! tree (mounts, devices, files of other users) is tested beside the reader.

#![cfg(test)]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailiwick::identity::PinnedDir;
use bailiwick::tree::{self, Kind, Limits, Reader, RemoveLimits, Remover, Step};
use bailiwick::{Child, Error, ErrorKind, Field, Session, Stdio};
use bailiwick_test::act::Report;
use bailiwick_test::places::{close, done, refused, sh};
use bailiwick_test::process::GENEROUS;
use bailiwick_test::{Listing, Places, cases, fixture, tool, wait_until};

/// What no read may ever return.
const SECRET: &[u8] = b"of the host, outside of every root";
/// What the command's own files hold.
const GOOD: &[u8] = b"of the command";

fn unlimited() -> Limits {
    Limits { entries: u64::MAX, bytes: u64::MAX, time: Duration::MAX, ..Limits::default() }
}

fn reader(dir: &PinnedDir) -> Reader<'_> {
    Reader::new(dir, Limits::default()).unwrap_or_else(|error| panic!("{}", error.report()))
}

/// The component at which a path was refused, and why.
fn told(error: &Error) -> (PathBuf, String) {
    let component = error.field("component").and_then(Field::as_path);
    let fact = error.field("fact").or_else(|| error.field("limit")).and_then(Field::as_text);
    (component.unwrap().to_owned(), fact.unwrap_or_default().to_owned())
}

#[track_caller]
fn assert_told<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, component: &str, fact: &str) {
    assert_eq!(told(&refused(result, kind)), (component.into(), fact.into()));
}

/// Starts an act in the write root that goes on until it is killed.
async fn keep_on(session: &Session, act: &[&str]) -> Child {
    let command = session.command(tool("act")).args(act.iter().copied()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().await.unwrap()
}

/// What a collector by path does: it looks, and opens with care for the last component only.
fn by_path(path: &Path) -> Option<Vec<u8>> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut file =
        fs::File::options().read(true).custom_flags(i32::try_from(flags.bits()).ok()?).open(path).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

cases! {
    /// C33, C96: a command plants links of every kind; each call on each of them fails, and nothing is made or changed
    /// where they lead.
    async fn c96_planted_links(world: &World) {
        let places = Places::of(world);
        let (root, outside) = (places.write_root(), places.outside());
        fs::write(places.outside_file(), SECRET).unwrap();
        let pinned = tree::pin(&root).unwrap();
        let session = places.open().await;
        let x = outside.display();
        done(&sh(&session, &format!(
            "ln -s {x}/f out; ln -s {x} hop; ln -s /proc/self p; ln -s ../../etc up; ln -s {x}/new dangling
             ln -s itself itself; mkdir real; printf 'of the command' > real/f; ln -s real/f inside; ln -s real in"
        )).await);
        fixture::assert_link(root.join("hop"), &outside);
        let before = Listing::of(&outside);
        let mut reader = reader(&pinned);
        for (path, component) in [
            ("out", "out"), ("hop/f", "hop"), ("p/environ", "p"), ("up/hostname", "up"), ("dangling", "dangling"),
            ("itself", "itself"), ("inside", "inside"), ("in/f", "in"), ("dangling/x", "dangling"),
        ] {
            assert_told(reader.read(path), ErrorKind::TreeRefused, component, "symbolic_link");
            assert_told(reader.list(path), ErrorKind::TreeRefused, component, "symbolic_link");
            assert_told(reader.copy(path, &mut std::io::sink()), ErrorKind::TreeRefused, component, "symbolic_link");
        }
        let mut files = Vec::new();
        reader.walk("", |visit| {
            match visit.found().map(|facts| facts.kind) {
                Ok(Kind::File) => files.push((visit.path().to_owned(), visit.read()?.bytes)),
                Ok(_) => {}
                Err(error) => assert_eq!(told(error).1, "symbolic_link"),
            }
            Ok::<_, Error>(Step::Enter)
        }).unwrap();
        assert_eq!(files, [("real/f".into(), GOOD.to_vec())]);
        // The twin: the same names, made without links by the same command.
        done(&sh(&session, "rm out hop && printf 'of the command' > out && mkdir hop && cp out hop/f").await);
        assert_eq!(reader.read("out").unwrap().bytes, GOOD);
        assert_eq!(reader.read("hop/f").unwrap().bytes, GOOD);
        close(&session).await;
        Remover::default().empty(&pinned).unwrap();
        before.assert_unchanged();
    }

    /// C97: a command leaves FIFOs and sockets, and exchanges a file for a FIFO at full speed. Nothing waits for it.
    async fn c97_special_files(world: &World, seconds = 240) {
        let places = Places::of(world);
        let root = places.write_root();
        let pinned = tree::pin(&root).unwrap();
        let session = places.open().await;
        done(&sh(&session, "mkfifo fifo pipe; printf 'of the command' > a").await);
        done(&session.command(tool("act")).args(["unix-listen", "socket"]).output().await.unwrap());
        fixture::assert_fifo(root.join("fifo"));
        fixture::assert_socket(root.join("socket"));
        let started = Instant::now();
        for name in ["fifo", "pipe", "socket"] {
            assert_told(reader(&pinned).read(name), ErrorKind::TreeRefused, name, "special_file");
        }
        assert_eq!(reader(&pinned).read("a").unwrap().bytes, GOOD);
        assert!(started.elapsed() < GENEROUS);

        let mut storm = keep_on(&session, &["exchange-forever", "a", "pipe"]).await;
        let mut reader = Reader::new(&pinned, unlimited()).unwrap();
        let (mut good, mut refusals, mut turns) = (0_u32, 0_u32, 0_u32);
        while turns < 2_000 || ((good == 0 || refusals == 0) && turns < 500_000) {
            turns += 1;
            match reader.read("a") {
                Ok(content) => {
                    assert_eq!(content.bytes, GOOD);
                    good += 1;
                }
                Err(error) if error.kind() == ErrorKind::TreeRefused => {
                    assert_eq!(told(&error), ("a".into(), "special_file".into()));
                    refusals += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::TreeChanged, "{}", error.report()),
            }
        }
        assert!(good > 0 && refusals > 0, "{good} read, {refusals} met the FIFO");
        // The control: a FIFO that nobody writes holds up whoever simply opens it.
        let path = root.join("fifo");
        let control = std::thread::spawn(move || fs::read(path).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!control.is_finished());
        done(&sh(&session, "printf late > fifo").await);
        assert_eq!(control.join().unwrap(), b"late");
        storm.kill().await.unwrap();
        close(&session).await;
    }

    /// C98: the command moves the directory away and leaves a link in its place.
    async fn c98_replaced_directory(world: &World) {
        let places = Places::of(world);
        let (root, old) = (places.write_root(), places.join("W.old"));
        fs::write(places.outside_file(), SECRET).unwrap();
        let pinned = tree::pin(&root).unwrap();
        let session = places.open().await;
        done(&sh(&session, "mkdir out; printf 'of the command' > out/f").await);
        assert_eq!(reader(&pinned).read("out/f").unwrap().bytes, GOOD);
        done(&sh(&session, &format!("mv out o2; ln -s {} out", places.outside().display())).await);
        assert_eq!(fs::read(root.join("out/f")).unwrap(), SECRET);
        assert_told(reader(&pinned).read("out/f"), ErrorKind::TreeRefused, "out", "symbolic_link");
        assert_told(reader(&pinned).list("out"), ErrorKind::TreeRefused, "out", "symbolic_link");
        assert_eq!(reader(&pinned).read("o2/f").unwrap().bytes, GOOD);
        // From outside, the root itself.
        fs::rename(&root, &old).unwrap();
        std::os::unix::fs::symlink(places.outside(), &root).unwrap();
        let error = refused(Reader::new(&pinned, Limits::default()), ErrorKind::TreeChanged);
        assert_eq!(told(&error).1, "moved");
        fs::remove_file(&root).unwrap();
        fs::rename(&old, &root).unwrap();
        assert_eq!(reader(&pinned).read("o2/f").unwrap().bytes, GOOD);
        close(&session).await;
    }

    /// C99: commands exchange a file and a directory with links to the outside at full speed. In 20,000 reads of each,
    /// nothing from there; a reader by path, in the same storm, returns it.
    async fn c99_swapped_at_full_speed(world: &World, seconds = 280) {
        const READS: u32 = 20_000;
        let places = Places::of(world);
        let (root, x) = (places.write_root(), places.outside());
        fs::write(places.outside_file(), SECRET).unwrap();
        let pinned = tree::pin(&root).unwrap();
        let session = places.open().await;
        done(&sh(&session, &format!(
            "printf 'of the command' > a; mkdir d; cp a d/f; ln -s {0}/f la; ln -s {0} ld", x.display()
        )).await);
        let mut storms = [
            keep_on(&session, &["exchange-forever", "a", "la"]).await,
            keep_on(&session, &["exchange-forever", "d", "ld"]).await,
        ];
        let mut reader = Reader::new(&pinned, unlimited()).unwrap();
        // For `a` and for `d/f`: read well, refused for a link, refused for a change.
        let mut counts = [[0_u32; 3]; 2];
        let mut leaks = 0_u32;
        let mut turns = 0;
        let seen_all = |counts: &[[u32; 3]; 2], leaks| {
            leaks > 0 && counts.iter().all(|count| count[0] > 0 && count[1] > 0)
        };
        while turns < READS || (!seen_all(&counts, leaks) && turns < READS * 20) {
            turns += 1;
            for (path, count) in ["a", "d/f"].into_iter().zip(&mut counts) {
                match reader.read(path) {
                    Ok(content) => {
                        assert_eq!(content.bytes, GOOD);
                        count[0] += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::TreeRefused => {
                        let component = path.split('/').next().unwrap();
                        assert_eq!(told(&error), (component.into(), "symbolic_link".into()));
                        count[1] += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TreeChanged, "{}", error.report());
                        count[2] += 1;
                    }
                }
            }
            if by_path(&root.join("d/f")).is_some_and(|bytes| bytes == SECRET) {
                leaks += 1;
            }
        }
        assert!(seen_all(&counts, leaks), "{turns} turns: {counts:?}, {leaks} leaks by path");
        for storm in &mut storms {
            storm.kill().await.unwrap();
        }
        close(&session).await;
    }

    /// C102: no command can make another name for a file of the host; one that the host made is told or refused.
    async fn c102_hard_links(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        let pinned = tree::pin(&root).unwrap();
        let store = tree::pin(places.private()).unwrap();
        let session = places.open().await;
        done(&sh(&session, "mkdir out").await);
        for target in [places.secret(), places.outside_file()] {
            let act = session.command(tool("act")).arg("link").arg(&target).arg(root.join("out/made"));
            assert!(!Report::parse(&*act.output().await.unwrap().stdout).ok);
        }
        assert!(reader(&pinned).list("out").unwrap().is_empty());
        let own = session.command(tool("act")).args(["link", "own", "out/own"]);
        done(&sh(&session, "echo own > own").await);
        Report::parse(&*own.output().await.unwrap().stdout).assert_done();
        assert_eq!(reader(&pinned).read("out/own").unwrap().facts.links, 2);

        let secret = reader(&store).look("db").unwrap().id;
        close(&session).await;
        fs::hard_link(places.secret(), root.join("out/x")).unwrap();
        fs::hard_link(places.outside_file(), root.join("out/y")).unwrap();
        let mut careful = reader(&pinned).refuse([&secret]);
        assert_told(careful.read("out/x"), ErrorKind::TreeRefused, "out/x", "protected");
        let content = careful.read("out/y").unwrap();
        assert_eq!((content.bytes.as_slice(), content.facts.links), (b"x".as_slice(), 2));
    }

    /// C103: a sparse terabyte, a file that grows while it is read, more files than anybody wants.
    async fn c103_size_traps(world: &World, seconds = 240) {
        const LINE: &str = "one line of the log\n";
        let places = Places::of(world);
        let root = places.write_root();
        let pinned = tree::pin(&root).unwrap();
        let session = places.open().await;
        done(&sh(&session, "truncate -s 1T s && mkdir many && cd many && seq 3000 | xargs touch").await);
        assert_eq!(fs::metadata(root.join("s")).unwrap().len(), 1 << 40);
        assert_told(reader(&pinned).read("s"), ErrorKind::TreeLimit, "s", "file_bytes");
        let entries = |entries| Reader::new(&pinned, Limits { entries, ..Limits::default() }).unwrap();
        assert_told(entries(3000).list("many"), ErrorKind::TreeLimit, "many", "entries");
        assert_eq!(entries(3001).list("many").unwrap().len(), 3000);

        let mut storm = keep_on(&session, &["append-forever", "log", LINE, "4000000"]).await;
        assert!(wait_until(GENEROUS, || root.join("log").exists()));
        let limits = Limits { file_bytes: 3_000_000, ..unlimited() };
        let mut reader = Reader::new(&pinned, limits).unwrap();
        let mut grew = 0;
        let over = loop {
            match reader.read("log") {
                // Where nothing was written for long enough it is whole; a write that crosses a page shows in two steps.
                Ok(content) => assert!(content.bytes.chunks(LINE.len()).all(|line| LINE.as_bytes().starts_with(line))),
                Err(error) if error.kind() == ErrorKind::TreeChanged => grew += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((over.kind(), told(&over)), (ErrorKind::TreeLimit, ("log".into(), "file_bytes".into())));
        assert!(grew > 0);
        // The twin: no longer written, and a limit that it fits.
        storm.kill().await.unwrap();
        close(&session).await;
        let content = Reader::new(&pinned, unlimited()).unwrap().read("log").unwrap();
        assert_eq!(content.bytes, fs::read(root.join("log")).unwrap());
    }

    /// What a command left goes, and nothing else; while one still makes files, the limits end it.
    async fn removed_whatever_commands_do(world: &World, seconds = 240) {
        let places = Places::of(world);
        let (root, x) = (places.write_root(), places.outside());
        fs::write(places.outside_file(), SECRET).unwrap();
        let pinned = tree::pin(&root).unwrap();
        let before = Listing::of(&x);
        let session = places.open().await;
        let script = format!(r"mkdir -p closed/inner d && echo x > closed/inner/x && ln -s {0} closed/link
            chmod 0 closed/inner closed
            i=0; p=.; while [ $i -lt 150 ]; do p=$p/deep-directory-name; i=$((i+1)); done; mkdir -p $p && echo x > $p/x
            mkfifo fifo && touch -- $(printf 'a\377b') '-rf' '...' && ln -s {0} l && mkdir fill", x.display());
        done(&sh(&session, &script).await);
        let mut storms = [
            keep_on(&session, &["exchange-forever", "d", "l"]).await,
            keep_on(&session, &["fill-forever", "fill"]).await,
        ];
        let limits = RemoveLimits { entries: 20_000, ..RemoveLimits::default() };
        let mut turns = 0;
        // With files being made all the time, it ends by itself or by its limit, and in no other way.
        while turns < 20 {
            turns += 1;
            if let Err(error) = Remover::new(limits).empty(&pinned) {
                assert!([ErrorKind::TreeLimit, ErrorKind::TreeNotRemoved].contains(&error.kind()), "{}", error.report());
            }
            before.assert_unchanged();
            fs::create_dir_all(root.join("fill")).unwrap();
        }
        for storm in &mut storms {
            // One that found its names gone has ended by itself.
            drop(storm.kill().await);
        }
        close(&session).await;
        Remover::default().empty(&pinned).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        before.assert_unchanged();
    }
}
