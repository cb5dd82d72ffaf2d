//! Other threads that exchange, move and make names at full speed while a tree is read or removed. C99.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bailiwick::ErrorKind::{self, TreeChanged, TreeNotFound, TreeRefused};
use bailiwick::tree::Remover;
use bailiwick_test::{Listing, cases, root_cases};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::sys::in_a_cage;
use super::{dir, file, limited, link, pin};

/// Runs `body` while each of `acts` is repeated on a thread of its own; returns how often they were.
fn under<T>(acts: &[&(dyn Fn() + Sync)], body: impl FnOnce() -> T) -> (T, u64) {
    struct Stop<'s>(&'s AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = std::thread::scope(|scope| {
        for act in acts {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    act();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        body()
    });
    (outcome, rounds.into_inner())
}

fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).ok();
}

cases! {
    /// A directory and a link to one outside change places while the tree is removed.
    fn removal_under_exchange(world: &World, seconds = 240) {
        let root = world.write_root();
        for number in 0..200 {
            file(world.outside().join(number.to_string()), "kept");
        }
        let before = Listing::of(world.outside());
        let pinned = pin(&root);
        let (mut rounds, mut complete) = (0, 0);
        let enough = |turns, rounds, complete| turns >= 15 && rounds > 1000 && complete > 0;
        let mut turns = 0;
        while !enough(turns, rounds, complete) && turns < 500 {
            turns += 1;
            for number in 0..100 {
                dir(root.join(format!("d/{number}/e")));
            }
            link(world.outside(), root.join("link"));
            let (one, other) = (root.join("d"), root.join("link"));
            let (outcome, count) = under(&[&|| exchange(&one, &other)], || Remover::default().empty(&pinned));
            rounds += count;
            complete += u32::from(outcome.is_ok());
            before.assert_unchanged();
            Remover::default().empty(&pinned).unwrap();
        }
        assert!(enough(turns, rounds, complete), "{rounds} exchanges, {complete} removals were complete");
    }

    /// A walk under the same storm never returns what lies outside, and ends.
    fn walk_under_exchange(world: &World, seconds = 240) {
        let root = world.write_root();
        fs::write(world.outside_file(), "leak").unwrap();
        for name in ["a/f", "b/f", "b/c/f"] {
            dir(root.join(name).parent().unwrap());
            file(root.join(name), "good");
        }
        link(world.outside(), root.join("link"));
        link(world.outside_file(), root.join("b/link"));
        let pinned = pin(&root);
        let (one, other) = (root.join("a"), root.join("link"));
        let (three, four) = (root.join("b/f"), root.join("b/link"));
        let acts: [&(dyn Fn() + Sync); 2] = [&|| exchange(&one, &other), &|| exchange(&three, &four)];
        let ((good, told), rounds) = under(&acts, || {
            let (mut good, mut told) = (0, 0);
            let mut turns = 0;
            while turns < 300 || ((good == 0 || told == 0) && turns < 30_000) {
                turns += 1;
                let ended = limited(&pinned, |limits| limits.entries = 1000).walk("", |visit| {
                    match visit.found().map(|facts| facts.kind) {
                        Ok(bailiwick::tree::Kind::File) => match visit.read() {
                            Ok(content) => {
                                assert_eq!(content.bytes, b"good");
                                good += 1;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), TreeChanged, "{}", error.report());
                                told += 1;
                            }
                        },
                        Ok(_) => {}
                        Err(error) => {
                            assert!([TreeChanged, TreeRefused].contains(&error.kind()), "{}", error.report());
                            told += 1;
                        }
                    }
                    Ok::<_, bailiwick::Error>(bailiwick::tree::Step::Enter)
                });
                let known: [ErrorKind; 2] = [TreeChanged, TreeNotFound];
                assert!(ended.as_ref().err().is_none_or(|error| known.contains(&error.kind())), "{ended:?}");
            }
            (good, told)
        });
        assert!(good > 0 && told > 0 && rounds > 0, "{good} read, {told} refused, {rounds} exchanges");
    }
}

root_cases! {
    /// Directories are moved out of the tree and back while the remover is in them, in the part of the tree where it
    /// keeps descriptors and below. It comes to an end, and never climbs to what lies beside the place they were moved
    /// to. Caged: without the comparison of what is above, it would empty everything up to `/`.
    fn removal_under_moves(world: &World) {
        in_a_cage(world.path(), |cage| {
            moves(cage, 40, 20);
            moves(cage, 240, 200);
        });
    }
}

fn moves(cage: &Path, depth: usize, at: usize) {
    let (root, beside) = (cage.join("W"), dir(cage.join("X/beside")));
    file(beside.join("g"), "kept");
    file(cage.join("X/g"), "kept");
    let pinned = pin(&root);
    let levels = |count: usize| root.join((0..count).map(|level| format!("l{level}")).collect::<PathBuf>());
    let (lower, aside) = (levels(at), beside.join("aside"));
    let (mut turns, moved) = (0, AtomicU64::new(0));
    while turns < 15 || (moved.load(Ordering::Relaxed) < 100 && turns < 500) {
        turns += 1;
        for level in 1..=depth {
            let path = dir(levels(level));
            for number in 0..5 {
                file(path.join(number.to_string()), "");
            }
        }
        let there = || {
            if fs::rename(&lower, &aside).is_ok() {
                moved.fetch_add(1, Ordering::Relaxed);
            }
        };
        let back = || drop(fs::rename(&aside, &lower));
        under(&[&there, &back], || drop(Remover::default().empty(&pinned)));
        for kept in [cage.join("X/g"), beside.join("g")] {
            assert_eq!(fs::read(kept).unwrap(), b"kept");
        }
        fs::remove_dir_all(&aside).ok();
        Remover::default().empty(&pinned).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }
    assert!(moved.into_inner() >= 100);
}
