//! Attempts to outlive the session. What a command detaches runs on while the session lives; nothing of it is left when
//! `close` returns. Without a session it stays.

use bailiwick::{Layer, Network, Protection};
use bailiwick_test::places::close;
use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{Places, wait_until};

use crate::check::{Checker, Way, Worker};
use crate::row::{Mode, Row, act, row};

/// Their processes bear the name that [`name`] gives, and live longer than any test waits.
const KEEPER: &[Layer] = &[Layer::Keeper];
const PIDS: &[Layer] = &[Layer::Keeper, Layer::PidNamespace];

const fn outlives(
    id: &'static str,
    tries: &'static str,
    attempt: fn(&crate::ground::Ground) -> crate::row::Attempt,
) -> Row {
    row(id, Protection::Settlement, tries, attempt).by(KEEPER, PIDS).built_in()
}

pub(crate) const ROWS: &[Row] = &[
    outlives("daemon", "leaves a process that has cut every tie: parent, session, descriptors, name", |_| {
        act!["daemonize", "110", name()]
    }),
    outlives("sibling", "starts processes as children of the process above it (CLONE_PARENT)", |_| {
        act!["clone-parent", "3", "110", name()]
    }),
    outlives("daemon-of-memory", "leaves such a process from a program that lies in memory alone", |_| {
        act!["from-memory", "daemonize", "110", name()]
    }),
];

/// Fits into the 15 bytes that the kernel has for a name.
fn name() -> String {
    format!("bwout-{:x}", std::process::id())
}

fn left() -> Vec<process::Process> {
    process::named(&name())
}

/// Proves every row of this part.
///
/// # Panics
///
/// If something outlives a session, or nothing what has none.
pub(crate) async fn prove(places: &Places, mode: Mode) {
    for row in ROWS {
        let checker = Checker::new(places, mode);
        checker.start_directly(row);
        assert!(wait_until(GENEROUS, || !left().is_empty()), "{}: nothing stays without a session", row.id);
        end_leftovers();
        for way in [Way::Foreground, Way::Background] {
            let checker = Checker::new(places, mode);
            let session = checker.session(Worker::Whole, Network::Deny).await;
            checker.start(row, &session, way).await;
            assert!(wait_until(GENEROUS, || !left().is_empty()), "{}: it did not even begin", row.id);
            let kept = checker.compare_with_report(row, &row.layers(mode).unwrap(), &session).await;
            kept.unwrap_or_else(|fault| panic!("{}: {fault}", row.id));
            close(&session).await;
            let left = left();
            end_leftovers();
            assert!(left.is_empty(), "{} ({way:?}): outlives the session: {left:?}", row.id);
        }
        println!("ok      {:36} ended with the session", row.id);
    }
    places.assert_nothing_left();
}

fn end_leftovers() {
    let gone = wait_until(GENEROUS, || {
        left().iter().for_each(|one| process::kill(one.pid));
        left().is_empty()
    });
    assert!(gone);
}
