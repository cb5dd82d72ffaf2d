//! Signals that ask bailiwick to end.

use std::fs;
use std::io::Read as _;

use bailiwick_test::process::{self, GENEROUS};
use bailiwick_test::{Need, World, cases, requires, wait_until};
use rustix::process::Signal;

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
        let ours = running.child.id();
        let keeper = process::descendants(ours).into_iter().find(|one| one.parent == ours).unwrap();
        let worker = process::descendants(ours).into_iter().find(|one| one.parent == keeper.pid).unwrap();
        process::kill(worker.pid);
        let ended = running.end();
        assert_eq!((ended.code(), &ended.json["outcome"]), (125, &"failed".into()), "{ended:?}");
        assert_eq!(ended.json["code"], "ERR_BAILIWICK_WORKER_LOST");
        assert_ne!(ended.json["ran"], "nothing");
        assert!(ended.json.get("exit_code").is_none(), "{ended:?}");
        // The keeper has ended everything by then.
        assert!(left.gone() && own.gone() && !fs::exists(&temporary).unwrap());
        assert_eq!(below(&home(world)), Vec::<std::path::PathBuf>::new());
    }
}
