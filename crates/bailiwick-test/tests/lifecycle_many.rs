//! Many sessions, many commands, and what they cost the host.

#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use bailiwick::{Protection, Session, SessionBuilder};
use bailiwick_test::host::{self, Host, say, usage};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::process::{self, GENEROUS, pid_gone};
use bailiwick_test::{Places, cases};
use serde_json::Value;

/// A session with a store and a root of its own.
fn numbered(places: &Places, number: usize) -> SessionBuilder {
    let root = places.join(format!("W/{number}"));
    std::fs::create_dir_all(&root).unwrap();
    Session::builder(places.join(format!("store-{number}")))
        .write_root(root)
        .temporary_parent(places.temporary())
        .accept(Protection::Metadata)
        .accept(Protection::NamedSockets)
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no `{field}` in {value}"))
}

cases! {
    /// Fifty sessions at once: none sees, signals or waits for another, and each closes for itself.
    async fn fifty_sessions(world: &World, seconds = 240) {
        let places = Places::of(world);
        let opening = (0..50).map(|number| tokio::spawn(numbered(&places, number).open())).collect::<Vec<_>>();
        let mut sessions = Vec::new();
        for session in opening {
            sessions.push(Arc::new(session.await.unwrap().unwrap()));
        }
        let mut children = Vec::new();
        for session in &sessions {
            let script = "setsid sleep 600 & echo $PWD > here; exec sleep 600";
            children.push(session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap());
        }
        for (number, session) in sessions.iter().enumerate() {
            let alive = session.processes().await.unwrap();
            assert!(!alive.is_empty() && alive.len() <= 2, "{number}: {alive:?}");
            // A neighbour's process is out of reach.
            let neighbour = &children[(number + 1) % children.len()];
            let output = sh(session, &format!("kill -9 {}", neighbour.id())).await;
            assert!(!output.status.success(), "{number} killed its neighbour");
            // So is its root.
            let path = format!("W/{}/x", (number + 1) % children.len());
            assert!(!sh(session, &format!("echo x > {}", places.join(&path).display())).await.status.success());
            assert!(!places.join(&path).exists());
        }
        // Every second one is closed, all at the same time; the others stay as they are.
        let (odd, even): (Vec<_>, Vec<_>) = sessions.iter().cloned().enumerate().partition(|(number, _)| number % 2 == 1);
        let closing: Vec<_> = odd.iter().map(|(_, session)| {
            let session = Arc::clone(session);
            tokio::spawn(async move { session.close().await.unwrap().killed() })
        }).collect();
        for killed in closing {
            assert_eq!(killed.await.unwrap(), 2);
        }
        for (number, child) in children.iter().enumerate() {
            assert_eq!(pid_gone(child.id(), child.start_time()), number % 2 == 1, "{number}");
        }
        for (_, session) in &even {
            done(&sh(session, "echo still > still").await);
        }
        // The rest is dropped.
        drop((sessions, odd, even));
        let gone = async {
            while children.iter().any(|child| !pid_gone(child.id(), child.start_time())) || !places.machinery().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(GENEROUS, gone).await.expect("dropped sessions leave processes");
        places.assert_nothing_left_soon();
    }

    /// Commands at once in one session, more than reapers are kept: all run, and none waits for another.
    async fn many_commands_at_once(world: &World) {
        let places = Places::of(world);
        let session = Arc::new(places.open().await);
        let commands: Vec<_> = (0..60).map(|number| {
            let session = Arc::clone(&session);
            tokio::spawn(async move {
                // They wait for each other, so all must run at the same time.
                let script = format!("echo > r-{number}; while [ $(ls | grep -c ^r-) -lt 60 ]; do sleep 0.05; done; echo {number}");
                session.command("/bin/sh").args(["-c", &script]).output().await
            })
        }).collect();
        for (number, command) in commands.into_iter().enumerate() {
            let output = tokio::time::timeout(GENEROUS * 2, command).await.expect("a command waits for ever");
            let output = output.unwrap().unwrap();
            assert_eq!(done(&output), format!("{number}\n"));
        }
        assert_eq!(close(&session).await.killed(), 0);
    }

    /// Two thousand commands, some of which leave something that ends later: neither host nor worker grows.
    fn two_thousand_commands(world: &World, seconds = 300) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "many"));
        let [mut before, mut after] = [Value::Null, Value::Null];
        for who in ["host", "worker"] {
            before = host.hear(&format!("{who}_before"));
            after = host.hear(&format!("{who}_after"));
            // Only root may list those of the worker.
            if who == "host" || bailiwick_test::case::is_root() {
                assert!(number(&after, "descriptors") <= number(&before, "descriptors") + 4, "{who}: {before} {after}");
            }
            // The runtime keeps a thread for what may block as long as it pleases.
            assert!(number(&after, "threads") <= number(&before, "threads") + 2, "{who}: {before} {after}");
            assert_eq!(number(&after, "zombies"), 0, "{who}: {after}");
            let grown = number(&after, "resident_kib").saturating_sub(number(&before, "resident_kib"));
            assert!(grown < 4096, "{who}: {grown} KiB in 2,000 commands");
        }
        drop((before, after));
        // The worker, two launchers, and the idle reapers that are kept, of which there are at most eight.
        let processes = host.hear("processes_after").as_u64().unwrap();
        assert!(processes <= 11, "{processes} processes of the session's own");
        assert_eq!(host.hear("count"), 2000);
        host.finish();
        places.assert_nothing_left();
    }

    /// A hundred sessions one after the other in one host: as above.
    fn hundred_sessions(world: &World, seconds = 300) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "sessions"));
        let (before, after) = (host.hear("before"), host.hear("after"));
        assert_eq!(number(&after, "descriptors"), number(&before, "descriptors"), "{before} {after}");
        assert_eq!(number(&after, "zombies"), 0);
        // The runtime keeps a thread that has compared roots, for the next one.
        assert!(number(&after, "threads") <= number(&before, "threads") + 2, "{before} {after}");
        let grown = number(&after, "resident_kib").saturating_sub(number(&before, "resident_kib"));
        assert!(grown < 4096, "{grown} KiB in 100 sessions");
        host.finish();
        places.assert_nothing_left();
    }
}

/// Descriptors are closed by the runtime's next turn, so they are read again until they are as expected.
async fn settled_usage(pid: u32, expected: Option<&Value>) -> Value {
    let mut found = usage(pid);
    for _ in 0..1000 {
        let as_expected =
            expected.is_none_or(|expected| found["descriptors"].as_u64() <= expected["descriptors"].as_u64());
        if as_expected && number(&found, "zombies") == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        found = usage(pid);
    }
    found
}

fn many(places: &Places) {
    host::block_on(async {
        let session = places.open().await;
        let (keeper, worker) = session.own_processes();
        let run = async |number: usize| {
            let script = match number % 20 {
                0 => "sleep 0.05 & exit 3",
                1 => "(setsid sleep 0.02 &); exit 3",
                2 => "no-such-program; exit 3",
                _ => "exit 3",
            };
            let output = session.command("/bin/sh").args(["-c", script]).output().await.unwrap();
            assert_eq!(output.status.code(), Some(3));
            // What cannot start costs nothing either.
            if number.is_multiple_of(50) {
                session.command("/no/such/program").output().await.unwrap_err();
                session.command("/bin/true").current_dir("/no/such").output().await.unwrap_err();
            }
        };
        // Warm: reapers, buffers, the allocator's arenas.
        for number in 0..200 {
            run(number).await;
        }
        let idle = async || {
            while !session.processes().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        idle().await;
        let own = std::process::id();
        let (host_before, worker_before) =
            (settled_usage(own, None).await, settled_usage(worker, None).await);
        for number in 0..2000 {
            run(number).await;
        }
        idle().await;
        say(places, "host_before", host_before.clone());
        say(places, "host_after", settled_usage(own, Some(&host_before)).await);
        say(places, "worker_before", worker_before.clone());
        say(places, "worker_after", settled_usage(worker, Some(&worker_before)).await);
        say(places, "processes_after", process::descendants(keeper).len());
        say(places, "count", 2000);
        close(&session).await;
    });
}

fn sessions(places: &Places) {
    host::block_on(async {
        let turn = async |number: usize| {
            let session = open(places.session()).await;
            let _child = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
            done(&sh(&session, "setsid sleep 600 & true").await);
            if number.is_multiple_of(2) {
                assert_eq!(close(&session).await.killed(), 2);
            } else {
                drop(session);
            }
        };
        for number in 0..20 {
            turn(number).await;
        }
        let gone = async || {
            while !places.machinery().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        gone().await;
        let own = std::process::id();
        let before = settled_usage(own, None).await;
        for number in 0..100 {
            turn(number).await;
        }
        gone().await;
        say(places, "after", settled_usage(own, Some(&before)).await);
        say(places, "before", before);
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("many", many), ("sessions", sessions)]);
}
