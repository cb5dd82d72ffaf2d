//! C23: confinement is a property of a process tree that the worker makes, never of a thread of the host.

#![cfg(test)]

use std::fs;
use std::future::IntoFuture as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bailiwick::{Layer, Session};
use bailiwick_test::boundary::{accepting_all, session};
use bailiwick_test::places::{close, entries, open};
use bailiwick_test::{Listing, Places, cases, plain_image};

const THREADS: usize = 64;
const SESSIONS: usize = 8;
const RUNS_PER_THREAD: usize = 32;

/// Tries to write outside, then writes inside: that the second worked shows that the first was tried.
fn script(outside: &Path, inside: &Path, run: usize) -> String {
    format!("echo x > {}/leak.{run}; echo x > {}/ran.{run}", outside.display(), inside.display())
}

/// What the kernel says of every thread of this process.
fn threads_with(field: &str) -> Vec<String> {
    let tasks = entries(Path::new("/proc/self/task"));
    let statuses = tasks.iter().filter_map(|task| fs::read_to_string(task.join("status")).ok());
    let found = statuses.flat_map(|status| {
        let lines = status.lines().filter(|line| line.starts_with(field)).map(str::to_owned);
        lines.collect::<Vec<_>>()
    });
    found.collect()
}

async fn storm(places: &Places, sessions: Vec<Session>) -> usize {
    let sessions = Arc::new(sessions);
    let tasks: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (sessions, places) = (Arc::clone(&sessions), places.clone());
            tokio::spawn(async move {
                for index in 0..RUNS_PER_THREAD {
                    let run = thread * RUNS_PER_THREAD + index;
                    let session = &sessions[run % sessions.len()];
                    let script = script(&places.outside(), &places.write_root(), run);
                    let command = session.command("/bin/sh").args(["-c", &script]);
                    // Both ways to start, from whatever thread the task is on by then.
                    if run.is_multiple_of(2) {
                        command.output().await.unwrap();
                    } else {
                        command.spawn().await.unwrap().wait().await.unwrap();
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for session in sessions.iter() {
        close(session).await;
    }
    THREADS * RUNS_PER_THREAD
}

/// Has every thread of the runtime write a file outside, at the same time.
async fn write_from_every_thread(directory: PathBuf) {
    let barrier = Arc::new(std::sync::Barrier::new(THREADS));
    let tasks: Vec<_> = (0..THREADS)
        .map(|number| {
            let (barrier, path) = (Arc::clone(&barrier), directory.join(format!("host.{number}")));
            // Each blocks its thread until all have one: no thread can take two.
            tokio::spawn(async move {
                barrier.wait();
                fs::write(path, "host")
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

cases! {
    /// C23: not one of some thousand commands writes outside, and no thread of the host is confined.
    fn c23_no_thread_of_the_host_is_confined(world: &World, seconds = 100) {
        let places = Places::of(world);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
        let outside = Listing::of(world.outside());
        let before = [threads_with("NoNewPrivs:"), threads_with("Seccomp:")].map(|mut lines| {
            lines.sort();
            lines.dedup();
            lines
        });
        assert_eq!(
            before,
            [["NoNewPrivs:\t0"], ["Seccomp:\t0"]],
            "the run itself is confined, so nothing is learnt"
        );
        let runs = runtime.block_on(async {
            let mut sessions = Vec::new();
            for number in 0..SESSIONS {
                let store = places.join(format!("store-{number}"));
                let builder = Session::builder(store)
                    .temporary_parent(places.temporary())
                    .accept(bailiwick::Protection::Metadata)
                    .accept(bailiwick::Protection::NamedSockets)
                    .write_root(places.write_root());
                sessions.push(open(builder).await);
            }
            storm(&places, sessions).await
        });
        assert_eq!(entries(&world.write_root()).len(), runs, "not every command ran");
        outside.assert_unchanged();
        for field in ["NoNewPrivs:", "Seccomp:"] {
            let lines = threads_with(field);
            assert!(lines.len() >= THREADS, "{lines:?}");
            assert!(lines.iter().all(|line| line == &format!("{field}\t0")), "{lines:?}");
        }
        runtime.block_on(write_from_every_thread(world.outside()));
        assert_eq!(entries(&world.outside()).len(), THREADS + 1);
        places.assert_nothing_left();
    }

    /// Every future of a session may be handed to another thread, or none of the above could be asked for.
    async fn every_future_may_cross_threads(world: &World) {
        fn crosses<T: Send>(future: T) -> T {
            future
        }
        let session = crosses(session(world).open()).await.unwrap();
        crosses(session.command("/bin/true").output()).await.unwrap();
        let mut child = crosses(session.command("/bin/sleep").arg("60").spawn()).await.unwrap();
        assert!(child.try_wait().unwrap().is_none());
        crosses(child.signal(bailiwick::Signal::STOP)).await.unwrap();
        assert_eq!(crosses(child.processes()).await.unwrap().len(), 1);
        assert_eq!(crosses(session.processes()).await.unwrap().len(), 1);
        crosses(child.kill()).await.unwrap();
        crosses(child.wait()).await.unwrap();
        crosses(child.settled()).await.unwrap();
        crosses(session.replace_write_roots([world.write_root()]).into_future()).await.unwrap();
        crosses(session.enforcement()).await;
        crosses(session.write_roots()).await;
        crosses(session.close()).await.unwrap();
    }

    /// Without Landlock, the very same command leaks: the storm above looks in the right place.
    async fn c23_the_leak_would_be_seen(world: &World) {
        let places = Places::of(world);
        let session = open(accepting_all(&places, "landlock")._worker_image(plain_image(Layer::Landlock))).await;
        let script = script(&world.outside(), &world.write_root(), 7);
        session.command("/bin/sh").args(["-c", &script]).output().await.unwrap();
        assert!(world.outside().join("leak.7").is_file());
        close(&session).await;
    }
}
