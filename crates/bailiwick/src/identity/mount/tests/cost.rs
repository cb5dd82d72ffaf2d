//! What the table costs.
//!
//! `cargo test --release -p bailiwick --lib mount::tests::cost -- --ignored --nocapture`

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::super::{MountTable, MountWatch};
use super::{bind, with_arena};

/// Medians of wall time, in microseconds. Judges nothing: a machine in use gives any number.
#[test]
#[ignore = "prints numbers that only a quiet machine gives"]
fn table_and_watch_mount() {
    with_arena(|arena| {
        let source = arena.dir("source");
        let mut number = 0;
        for wanted in [50, 200, 1000] {
            while MountTable::read().unwrap().iter().count() < wanted {
                bind(&source, arena.dir(format!("point/{number}")));
                number += 1;
            }
            let watch = MountWatch::new().unwrap();
            println!(
                "{wanted:>5} mounts: by calls {:>8.1}, by text {:>8.1}, new watch {:>6.1}, changed {:>6.2}",
                median(|| drop(black_box(MountTable::read_by_calls().unwrap()))),
                median(|| drop(black_box(MountTable::read_by_text().unwrap()))),
                median(|| drop(black_box(MountWatch::new().unwrap()))),
                median(|| assert!(!watch.changed().unwrap())),
            );
        }
    });
}

fn median(mut act: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..301)
        .map(|_| {
            let begin = Instant::now();
            act();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}
