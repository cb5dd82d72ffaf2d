//! Futures that are dropped half-way: what they had begun is taken back or goes on, and the session is never
//! in a state that it does not describe.

#![cfg(test)]

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bailiwick::{ErrorKind, Protection, Ran, Session, WhenBusy};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::{GENEROUS, pid_gone};
use bailiwick_test::{Places, Snapshot, cases};

/// Polls a future so many times, with time in between for what it waits for, and drops it.
async fn cancelled<F: Future>(future: F, polls: usize, pause: Duration) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        tokio::time::sleep(pause).await;
    }
    None
}

/// Which of two directories a command can write, and which one the session names.
async fn assert_only(session: &Session, granted: &std::path::Path, other: &std::path::Path, turn: &str) {
    assert_eq!(session.write_roots().await, [granted], "{turn}");
    let before = Snapshot::of(other);
    let script = format!("echo {turn} > {0}/t; echo {turn} > {1}/t", granted.display(), other.display());
    let output = sh(session, &script).await;
    assert_eq!(output.write_roots, [granted], "{turn}");
    assert_eq!(std::fs::read_to_string(granted.join("t")).unwrap(), format!("{turn}\n"));
    assert!(!output.status.success(), "{turn}");
    before.assert_unchanged();
}

cases! {
    /// An opening that is dropped at any point leaves neither process nor temporary directory, and the store
    /// is free.
    async fn opening(world: &World) {
        let places = Places::of(world);
        for polls in 0..8 {
            for pause in [Duration::ZERO, Duration::from_millis(2)] {
                match cancelled(places.session().open(), polls, pause).await {
                    None => {}
                    Some(session) => drop(close(&session.unwrap()).await),
                }
                let deadline = Instant::now() + GENEROUS;
                while !places.machinery().is_empty() {
                    assert!(Instant::now() < deadline, "{polls}: {:?}", places.machinery());
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }
        places.assert_nothing_left_soon();
        let session = places.open().await;
        done(&sh(&session, "true").await);
        close(&session).await;
    }

    /// A replacement that is dropped at any point leaves the grant before or the one after in force, whole;
    /// and what it had begun does not leak into the next one.
    async fn replacing(world: &World, seconds = 240) {
        let places = Places::of(world);
        let third = places.join("Y");
        std::fs::create_dir(&third).unwrap();
        let (first, second) = (places.write_root(), places.outside());
        let session = places.open().await;
        for polls in 0..8 {
            for pause in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(3)] {
                let turn = format!("{polls}-{}", pause.as_micros());
                session.replace_write_roots([&first]).await.unwrap();
                assert_only(&session, &first, &second, &turn).await;
                let dropped = cancelled(session.replace_write_roots([&third]).into_future(), polls, pause).await;
                if dropped.is_none() {
                    assert_only(&session, &first, &third, &turn).await;
                }
                // At once, while what was dropped may still be under way.
                let dropped = cancelled(session.replace_write_roots([&third]).into_future(), polls, pause).await;
                session.replace_write_roots([&second]).await.unwrap();
                for command in 0..4 {
                    assert_only(&session, &second, &third, &format!("{turn}-{command}")).await;
                    assert_only(&session, &second, &first, &format!("{turn}-{command}")).await;
                }
                drop(dropped);
            }
        }
        close(&session).await;
        places.assert_nothing_left();
    }

    /// A replacement that is refused for what runs, or dropped while it waits, does not hold commands up.
    async fn waiting_to_replace(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        for polls in [1, 3] {
            let waiting = session.replace_write_roots([places.outside()]).when_busy(WhenBusy::Wait(GENEROUS));
            assert!(cancelled(waiting.into_future(), polls, Duration::from_millis(1)).await.is_none());
            assert_only(&session, &places.write_root(), &places.outside(), "waiting").await;
        }
        assert!(!pid_gone(child.id(), child.start_time()));
        close(&session).await;
    }

    /// A close that is dropped goes on by itself, and the next call tells all of it.
    async fn closing(world: &World) {
        let places = Places::of(world);
        for polls in 0..8 {
            for pause in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(20)] {
                let session = places.open().await;
                let child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
                let first = cancelled(session.close(), polls, pause).await;
                if polls > 0 {
                    let error = session.command("/bin/true").output().await.unwrap_err();
                    assert_eq!((error.kind(), error.ran()), (ErrorKind::SessionClosed, Ran::Nothing), "{error:?}");
                }
                // Long enough for the worker to have ended, should the first call have asked it to.
                tokio::time::sleep(pause).await;
                let report = close(&session).await;
                assert!(!report.by_keeper, "{polls} {pause:?}: {report:?}");
                assert_eq!(report.killed(), 1, "{polls} {pause:?}: {report:?}");
                assert_eq!(report.processes[0].process.pid, child.id());
                if let Some(first) = first {
                    assert_eq!(first.unwrap(), report);
                }
                assert!(pid_gone(child.id(), child.start_time()));
                assert_eq!(session.processes().await.unwrap_err().kind(), ErrorKind::SessionClosed);
                drop(session);
                places.assert_nothing_left();
            }
        }
    }

    /// Dropped questions and signals do no harm.
    async fn asking(world: &World) {
        let places = Places::of(world);
        let session = open(places.session().accept(Protection::SharedMemory)).await;
        let mut child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        for polls in 0..4 {
            drop(cancelled(session.processes(), polls, Duration::from_millis(1)).await);
            drop(cancelled(child.processes(), polls, Duration::from_millis(1)).await);
            drop(cancelled(child.signal(bailiwick::Signal::CONT), polls, Duration::from_millis(1)).await);
            drop(cancelled(child.wait(), polls, Duration::from_millis(1)).await);
        }
        assert_eq!(session.processes().await.unwrap().len(), 1);
        drop(cancelled(child.kill(), 1, Duration::ZERO).await);
        child.settled().await.unwrap();
        assert!(pid_gone(child.id(), child.start_time()));
        close(&session).await;
    }
}
