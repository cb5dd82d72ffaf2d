//! Signals that ask bailiwick to end.

use std::fs;
use std::io::Read as _;

use bailiwick_test::process::{self, GENEROUS, Process};
use bailiwick_test::{Need, World, cases, requires, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::invoke::{Alive, Call, Running, below, home, line_in};

/// A command with a detached child, both of which ignore what can be ignored.
const STUBBORN: &str = "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM INT HUP; echo $$ > left; sleep 1000; sleep 1000' & \
    echo $TMPDIR > tmp; echo $$ > own; while :; do sleep 1; done";

struct Started {
    running: Running,
    left: Alive,
    own: Alive,
    temporary: String,
}

fn start(world: &World, options: &[&str]) -> Started {
    started(world, Call::new(world, options).start(STUBBORN))
}

fn started(world: &World, running: Running) -> Started {
    let root = world.write_root();
    let left = Alive::in_file(root.join("left"));
    let own = Alive::in_file(root.join("own"));
    Started { running, left, own, temporary: line_in(root.join("tmp")) }
}

/// The worker of the session, by its place: the only child of the keeper that is there from the beginning.
fn worker_of(running: &Running) -> Process {
    let ours = running.child.id();
    let family = process::descendants(ours);
    let keeper = family.iter().find(|one| one.parent == ours).unwrap();
    family
        .iter()
        .filter(|one| one.parent == keeper.pid)
        .min_by_key(|one| (one.start_time, one.pid))
        .unwrap()
        .clone()
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn forget(world: &World) {
    for name in ["left", "own", "tmp"] {
        fs::remove_file(world.write_root().join(name)).unwrap();
    }
}

cases! {
    fn they_close_the_session_in_order(world: &World) {
        requires!(Need::LandlockAbi6);
        for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
            let Started { running, left, own, temporary } = start(world, &[]);
            assert!(!below(&home(world)).is_empty(), "the store of the run should be there");
            running.signal(signal);
            let ended = running.end();
            assert_eq!(ended.code(), 128 + number, "{ended:?}");
            // At once: bailiwick ended only when everything had.
            assert!(left.gone() && own.gone());
            assert!(!fs::exists(&temporary).unwrap());
            assert_eq!(below(&home(world)), Vec::<std::path::PathBuf>::new());
            assert_eq!(
                (&ended.json["outcome"], &ended.json["interrupted_by"]),
                (&"interrupted".into(), &number.into())
            );
            assert!(ended.json.get("exit_code").is_none(), "{ended:?}");
            let closed = ended.json["closed"]["processes"].as_array().unwrap();
            for process in [left, own] {
                assert!(
                    closed.iter().any(|one| one["pid"] == process.pid && one["ending"] == "killed"),
                    "{ended:?}"
                );
            }
            // Told are those that were left, not the command, which is meant to end.
            assert!(ended.stderr.contains(&format!("{} `sh`", left.pid)), "{ended:?}");
            assert!(!ended.stderr.contains(&format!("{} `sh`", own.pid)), "{ended:?}");
            forget(world);
        }
    }

    /// `nohup`, and shells that start something in the background, ignore a signal on purpose.
    fn one_that_was_ignored_stays_ignored(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &[]);
        let mut inner: Vec<_> = call.shell.get_args().map(ToOwned::to_owned).collect();
        inner[1] = "trap '' INT HUP; exec \"$@\" 3>\"$0\"".into();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(inner).env("HOME", home(world)).current_dir(world.write_root());
        call.shell = shell;
        let Started { running, left, .. } = started(world, call.start(STUBBORN));
        running.signal(Signal::INT);
        running.signal(Signal::HUP);
        running.signal(Signal::TERM);
        let ended = running.end();
        assert_eq!((ended.code(), &ended.json["interrupted_by"]), (143, &15.into()), "{ended:?}");
        assert!(left.gone());
    }

    /// A pager that waits for its user holds up the output, not the end.
    fn output_that_nobody_takes_does_not_hold_up_the_end(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut running = Call::new(world, &["--quiet"]).start("echo $$ > own; exec yes");
        let own = Alive::in_file(world.write_root().join("own"));
        let mut stdout = running.child.stdout.take().unwrap();
        let full = || rustix::io::ioctl_fionread(&stdout).unwrap() >= 60_000;
        assert!(wait_until(GENEROUS, full), "the pipe should fill up");
        running.signal(Signal::TERM);
        let status = running.child.wait().unwrap();
        assert_eq!(status.code(), Some(143));
        assert!(own.gone());
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        assert!(rest.len() >= 60_000);
    }

    /// SIGKILL leaves us no time; the keeper ends the processes, and the next run removes the store.
    fn killed_hard_nothing_runs_on_and_the_next_run_tidies_up(world: &World) {
        requires!(Need::LandlockAbi6);
        let Started { running, left, own, temporary } = start(world, &[]);
        let sessions = home(world).join(".local/state/bailiwick/sessions");
        assert_eq!(fs::read_dir(&sessions).unwrap().count(), 1);
        running.signal(Signal::KILL);
        let status = running.end().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        assert!(wait_until(GENEROUS, || left.gone() && own.gone()), "{left:?} {own:?}");
        assert!(wait_until(GENEROUS, || !fs::exists(&temporary).unwrap()));
        assert_eq!(fs::read_dir(&sessions).unwrap().count(), 1);
        Call::new(world, &[]).end(&["true"]).assert_exited(0);
        assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
    }

    /// Whatever the command's own status would have been: what was promised is not certain any more.
    fn a_worker_that_is_killed_is_a_failure(world: &World) {
        requires!(Need::LandlockAbi6);
        let Started { running, left, own, temporary } = start(world, &[]);
        process::kill(worker_of(&running).pid);
        let ended = running.end();
        assert_eq!((ended.code(), &ended.json["outcome"]), (125, &"failed".into()), "{ended:?}");
        assert_eq!(ended.json["code"], "ERR_BAILIWICK_WORKER_LOST");
        assert_ne!(ended.json["ran"], "nothing");
        assert!(ended.json.get("exit_code").is_none(), "{ended:?}");
        // The keeper has ended everything by then.
        assert!(left.gone() && own.gone() && !fs::exists(&temporary).unwrap());
        assert_eq!(below(&home(world)), Vec::<std::path::PathBuf>::new());
    }

    /// Closing cannot end while the worker stands still. Whoever asks twice is not kept waiting for that.
    fn the_second_one_does_not_wait_for_the_close(world: &World) {
        requires!(Need::LandlockAbi6);
        let Started { mut running, left, own, .. } = start(world, &[]);
        let worker = worker_of(&running);
        send(worker.pid, Signal::STOP);
        running.signal(Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(running.child.try_wait().unwrap().is_none(), "the first one is for an orderly close");
        let asked = std::time::Instant::now();
        running.signal(Signal::INT);
        let ended = running.end();
        // Closing would have given up after 10 s at the earliest.
        assert!(asked.elapsed() < std::time::Duration::from_secs(8), "{:?}", asked.elapsed());
        assert_eq!((ended.code(), &ended.json["interrupted_by"]), (143, &15.into()), "{ended:?}");
        assert!(ended.json.get("closed").is_none(), "nobody knows yet what ended: {ended:?}");
        assert_eq!(below(&home(world)), Vec::<std::path::PathBuf>::new());
        send(worker.pid, Signal::CONT);
        assert!(wait_until(GENEROUS, || left.gone() && own.gone()));
    }

    /// Some parents ignore SIGCHLD, and the kernel then keeps no status of children.
    fn an_ignored_sigchld_changes_nothing(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &["-q"]);
        let mut inner: Vec<_> = call.shell.get_args().map(ToOwned::to_owned).collect();
        inner[1] = "trap '' CHLD; exec \"$@\" 3>\"$0\"".into();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(inner).env("HOME", home(world)).current_dir(world.write_root());
        call.shell = shell;
        let ended = call.script("sleep 1000 & exit 6");
        ended.assert_exited(6);
        assert_eq!(ended.json["closed"]["processes"].as_array().unwrap().len(), 1, "{ended:?}");
        assert_eq!(below(&home(world)), Vec::<std::path::PathBuf>::new());
    }
}
