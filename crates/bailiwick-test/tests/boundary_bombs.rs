//! Fork bombs, under a uid of their own and a limit on its processes: the host stays in charge, and `close`
//! settles what there is.

#![cfg(test)]

use std::time::{Duration, Instant};

use bailiwick::{Limit, Resource, Session};
use bailiwick_test::boundary::session;
use bailiwick_test::places::open;
use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{Places, case, tool, user_cases, wait_until};

const COUNT: u64 = 400;

fn bombs(uid: u32) -> usize {
    process::of_uid(uid).iter().filter(|one| one.name == "act" && !one.is_zombie()).count()
}

/// Closes within a bounded time; nothing of the uid is left but this process.
async fn settle(session: &Session, uid: u32, least: usize) {
    let began = Instant::now();
    let report = session
        .close_within(Duration::from_secs(40))
        .await
        .unwrap_or_else(|error| panic!("{}", error.report()));
    println!("settled {} processes in {:?}", report.processes.len(), began.elapsed());
    assert!(report.killed() >= least, "{} of {least}", report.killed());
    assert!(began.elapsed() < Duration::from_secs(40));
    let ours = std::process::id();
    let left: Vec<_> = process::of_uid(uid).into_iter().filter(|one| one.pid != ours).collect();
    assert_eq!(left, [], "left behind");
}

async fn explode(world: &bailiwick_test::World, uid: u32, kind: &str, least: usize) {
    // Room for the machinery, where the bomb bounds itself.
    case::limit_processes(if kind == "refill" { COUNT } else { COUNT + 60 });
    let session = open(session(world)).await;
    let bomb =
        session.command(tool("act")).args(["fork-bomb", &COUNT.to_string(), kind]).spawn().await.unwrap();
    assert!(wait_until(GENEROUS, || bombs(uid) >= least), "{}", bombs(uid));
    drop(bomb);
    settle(&session, uid, least).await;
    Places::of(world).assert_nothing_left();
}

user_cases! {
    /// Each forks while there is room, all in one group.
    async fn bomb_in_one_group(world: &World, uid = 61321) {
        explode(world, 61321, "both", 300).await;
    }

    /// Each in a session of its own.
    async fn bomb_of_sessions(world: &World, uid = 61322) {
        explode(world, 61322, "setsid", 300).await;
    }

    /// It forks again for each that was killed, up to the limit of its user, so that the session itself can
    /// make no process any more.
    async fn bomb_that_refills(world: &World, uid = 61323) {
        explode(world, 61323, "refill", 300).await;
    }

    /// The same, ended by its handle, while another command of the session goes on.
    async fn bomb_that_refills_is_ended_by_its_handle(world: &World, uid = 61327) {
        case::limit_processes(COUNT);
        let session = open(session(world)).await;
        let mut other = session.command("/bin/sleep").arg("100").spawn().await.unwrap();
        let mut bomb = session
            .command(tool("act"))
            .args(["fork-bomb", &COUNT.to_string(), "refill"])
            .spawn()
            .await
            .unwrap();
        assert!(wait_until(GENEROUS, || bombs(61327) >= 300), "{}", bombs(61327));
        tokio::time::timeout(Duration::from_secs(60), bomb.kill()).await.expect("does not settle").unwrap();
        assert_eq!(bombs(61327), 0);
        assert!(other.try_wait().unwrap().is_none());
        let fine = session.command("/bin/sh").args(["-c", "echo fine"]).output().await.unwrap();
        assert_eq!(fine.stdout.text(), "fine\n");
        settle(&session, 61327, 1).await;
    }

    /// The same, and what could stop all at one stroke is killed when no process can be made any more. The
    /// session is over then; nothing is left all the same.
    async fn bomb_that_refills_without_a_launcher(world: &World, uid = 61328) {
        case::limit_processes(COUNT);
        let places = Places::of(world);
        let session = open(session(world)).await;
        let _bomb = session
            .command(tool("act"))
            .args(["fork-bomb", &COUNT.to_string(), "refill"])
            .spawn()
            .await
            .unwrap();
        assert!(wait_until(GENEROUS, || bombs(61328) >= 300), "{}", bombs(61328));
        let launchers: Vec<_> =
            places.machinery().into_iter().filter(|one| one.name == "bailiwick-sess").collect();
        assert_eq!(launchers.len(), 1);
        process::kill(launchers[0].pid);
        settle(&session, 61328, 0).await;
        places.assert_nothing_left();
    }

    /// The host drops the session in the middle of it.
    async fn bomb_that_refills_and_a_host_that_goes(world: &World, uid = 61329) {
        case::limit_processes(COUNT);
        let places = Places::of(world);
        let session = open(session(world)).await;
        let bomb = session
            .command(tool("act"))
            .args(["fork-bomb", &COUNT.to_string(), "refill"])
            .spawn()
            .await
            .unwrap();
        assert!(wait_until(GENEROUS, || bombs(61329) >= 300), "{}", bombs(61329));
        drop((bomb, session));
        let began = Instant::now();
        assert!(
            wait_until(GENEROUS * 2, || bombs(61329) == 0 && places.machinery().is_empty()),
            "{}",
            bombs(61329)
        );
        println!("gone after {:?}", began.elapsed());
        places.assert_nothing_left_soon();
    }

    /// Several commands at once, and one of them is ended by its handle while the others go on.
    async fn bombs_side_by_side(world: &World, uid = 61324) {
        case::limit_processes(COUNT + 60);
        let session = open(session(world)).await;
        let mut commands = Vec::new();
        for _ in 0..4 {
            commands.push(
                session.command(tool("act")).args(["fork-bomb", "80", "setsid"]).spawn().await.unwrap(),
            );
        }
        // Each of them makes as many, and is one itself.
        assert!(wait_until(GENEROUS, || bombs(61324) == 324), "{}", bombs(61324));
        let ended = tokio::time::timeout(Duration::from_secs(30), commands[0].kill());
        ended.await.expect("does not settle").unwrap();
        assert_eq!(bombs(61324), 243);
        let fine = session.command("/bin/sh").args(["-c", "echo fine"]).output().await.unwrap();
        assert_eq!(fine.stdout.text(), "fine\n");
        settle(&session, 61324, 243).await;
    }

    /// One that is never two at a time, and hops from process to process faster than a walk reads.
    async fn bomb_that_hops(world: &World, uid = 61325) {
        case::limit_processes(COUNT);
        let session = open(session(world)).await;
        // It ends with its marker, should the session fail to end it.
        std::fs::write(world.write_root().join("go"), "").unwrap();
        let hop = r#"test -e go || exit; sleep 0.002; setsid sh -c "$HOP" &"#;
        let mut child = session.command("/bin/sh").args(["-c", hop]).env("HOP", hop).spawn().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(child.wait().await.unwrap().success());
        let settled = tokio::time::timeout(Duration::from_millis(200), child.settled()).await;
        assert!(settled.is_err(), "it hops no more");
        settle(&session, 61325, 1).await;
    }

    /// A limit of the policy bounds a bomb, whatever the host allows.
    async fn bomb_within_the_limit_of_the_policy(world: &World, uid = 61326) {
        case::limit_processes(COUNT);
        let session = open(session(world).limit(Limit::of(Resource::Processes, 60))).await;
        let script = "for i in $(seq 200); do (sleep 60 &); done";
        let mut child = session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap();
        // The machinery and this test count as well. It never gets beyond, however long it tries.
        let count = || process::of_uid(61326).len();
        assert!(wait_until(GENEROUS, || count() >= 45), "{}", count());
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(count() <= 60, "{}", count());
        }
        child.kill().await.unwrap();
        settle(&session, 61326, 0).await;
    }
}
