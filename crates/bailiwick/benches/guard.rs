//! What a grant costs to issue, and to check again before a command.
//!
//! `cargo bench -p bailiwick --bench guard`
//!
//! Medians of wall time in microseconds. Roots lie six directories deep; "side by side" are siblings. The protected
//! set is the store, its runtime home and this executable.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and fails where it cannot run"
)]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailiwick::Policy;
use bailiwick::guard::{self, ProtectedSet};
use bailiwick::store::StoreDir;

const SIDE_BY_SIDE: [usize; 4] = [1, 5, 20, 500];

fn main() {
    let place = tempfile::tempdir().unwrap();
    let store = StoreDir::open_or_create(place.path().join("store")).unwrap();
    println!("{:>14} {:>12} {:>12}", "roots", "issue us", "recheck us");
    for count in SIDE_BY_SIDE {
        let write_roots: Vec<PathBuf> = (0..count).map(|n| place.path().join(format!("a/b/c/{n}"))).collect();
        for root in &write_roots {
            fs::create_dir_all(root).unwrap();
        }
        let policy = Policy { write_roots, ..Policy::default() };
        let protected = ProtectedSet::for_session(&store, &policy).unwrap();
        let grant = guard::issue(&policy, protected.clone()).unwrap();
        let issue = median(|| drop(guard::issue(&policy, protected.clone()).unwrap()));
        let recheck = median(|| grant.recheck().unwrap());
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        println!("{count:>14} {:>12.1} {:>12.1}", us(issue), us(recheck));
    }
}

fn median(mut act: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let begin = Instant::now();
            act();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
