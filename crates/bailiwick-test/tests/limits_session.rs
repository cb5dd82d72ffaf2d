//! Limits of a whole session. Whether they can be kept depends on the machine: here it is shown that the answer is true
//! whatever it is, and in an emulated machine (`old_kernel`) that it is yes where it must be.

#![cfg(test)]

use bailiwick::{ErrorKind, Field, SessionLimit, SessionLimitStanding};
use bailiwick_test::boundary::session;
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Places, cases};

const MEMORY: u64 = 64 << 20;

cases! {
    /// Kept and true, or refused by cause and nothing left; accepted by name, the session opens and says so.
    async fn a_limit_is_kept_or_refused(world: &World) {
        let builder = || session(world).memory_max(MEMORY).processes_max(64);
        match builder().open().await {
            Ok(session) => {
                for found in session.limits().await.session {
                    let SessionLimitStanding::Kept { read_back, group } = found.standing else { panic!("{found:?}") };
                    let file = if found.limit == SessionLimit::MemoryMax { "memory.max" } else { "pids.max" };
                    let shown = std::fs::read_to_string(group.join(file)).unwrap();
                    assert_eq!((shown.trim(), read_back), (found.value.to_string().as_str(), found.value));
                }
                let own = done(&sh(&session, "cat /proc/self/cgroup").await);
                assert!(own.lines().any(|line| line.starts_with("0::") && line.contains("/bailiwick-")), "{own}");
                close(&session).await;
            }
            Err(_) => {
                let error = refused(builder().open().await, ErrorKind::SessionLimitUnavailable);
                Places::of(world).assert_nothing_left();
                let cause = error.field("cause").and_then(Field::as_text).unwrap().to_owned();
                let accepting = builder().accept_limit(SessionLimit::MemoryMax);
                // By its own name only.
                let other = refused(accepting.open().await, ErrorKind::SessionLimitUnavailable);
                assert_eq!(other.field("limit").and_then(Field::as_text), Some("processes-max"));
                let both = SessionLimit::ALL.iter().fold(builder(), |builder, limit| builder.accept_limit(*limit));
                let session = open(both).await;
                let limits = session.limits().await;
                assert_eq!(limits.session.len(), 2);
                for found in &limits.session {
                    let told = serde_json::to_value(found).unwrap();
                    assert_eq!((&told["state"], &told["cause"]), (&"not-kept".into(), &cause.as_str().into()), "{limits}");
                }
                done(&sh(&session, "true").await);
                close(&session).await;
            }
        }
    }

    /// What leaves no room for the session itself, and a parent that is no group.
    async fn limits_that_mean_nothing(world: &World) {
        for (builder, limit) in [
            (session(world).memory_max((16 << 20) - 1), "memory-max"),
            (session(world).processes_max(15), "processes-max"),
        ] {
            let error = refused(builder.open().await, ErrorKind::LimitInvalid);
            assert_eq!(error.field("limit").and_then(Field::as_text), Some(limit));
        }
        for parent in [world.outside(), world.outside_file(), world.path().join("nope"), "relative".into()] {
            let builder = session(world).processes_max(64).group_parent(&parent);
            let error = refused(builder.open().await, ErrorKind::SessionLimitUnavailable);
            assert_eq!(error.field("cause").and_then(Field::as_text), Some("not-a-group"), "{}", error.report());
            assert_eq!(error.field("group").and_then(Field::as_path), Some(parent.as_path()));
        }
        Places::of(world).assert_nothing_left();
        // The twin: a parent is of no importance where no limit needs a group.
        let session = open(session(world).group_parent("relative")).await;
        close(&session).await;
    }
}
