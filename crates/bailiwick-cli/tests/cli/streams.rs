//! What the command reads and writes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use bailiwick_test::pty::Pty;
use bailiwick_test::{Need, cases, requires};

use crate::invoke::{Call, file};

/// Every byte value, in no simple order.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

cases! {
    /// All bytes, and more of them than any buffer on the way holds, on both streams at once.
    fn output_is_passed_on_byte_for_byte(world: &World) {
        requires!(Need::LandlockAbi6);
        let (large, small) = (bytes(24 << 20), bytes(3 << 20));
        fs::write(world.outside().join("large"), &large).unwrap();
        fs::write(world.outside().join("small"), &small).unwrap();
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stderr(file(world.path().join("stderr")));
        let ended = call.script("cat ../X/small >&2 & cat ../X/large; wait; printf 'no newline'");
        ended.assert_exited(0);
        let (body, tail) = ended.stdout.split_at(large.len());
        assert!(body == large, "the bytes differ");
        assert_eq!(tail, b"no newline");
        assert!(fs::read(world.path().join("stderr")).unwrap() == small, "the bytes differ");
    }

    /// The file behind our standard output is not the command's to open: it lies in no root. And what was in it
    /// stays, which opening it anew would not have let stay.
    fn dev_stdout_works_where_our_output_is_a_file(world: &World) {
        requires!(Need::LandlockAbi6);
        let path = world.outside().join("out");
        let mut out = file(&path);
        out.write_all(b"before\n").unwrap();
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdout(out.try_clone().unwrap()).stderr(Stdio::null());
        call.script("echo one > /dev/stdout; echo two > /dev/stderr; echo three > /proc/self/fd/1")
            .assert_exited(0);
        out.write_all(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\none\nthree\nafter\n");
    }

    fn the_order_of_both_streams_is_kept_where_both_lead_to_one_place(world: &World) {
        requires!(Need::LandlockAbi6);
        let path = world.outside().join("out");
        let out = file(&path);
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdout(out.try_clone().unwrap()).stderr(out);
        call.script("for i in $(seq 300); do echo o$i; echo e$i >&2; done").assert_exited(0);
        let expected: String = (1..=300).map(|i| format!("o{i}\ne{i}\n")).collect();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    /// As without us: whoever writes to nobody gets SIGPIPE.
    fn a_reader_that_has_gone_ends_the_command(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut running = Call::new(world, &["--quiet"]).start("exec yes");
        let mut first = [0; 2];
        running.child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        assert_eq!(&first, b"y\n");
        let ended = running.end();
        assert_eq!((ended.code(), &ended.json["signal"]), (128 + 13, &13.into()), "{ended:?}");
    }

    /// A status of 0 would say that all of the output is there.
    fn output_that_is_lost_is_a_failure(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.args(["sh", "-c", "echo lost"]);
        call.shell.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let ended = call.end(&[]);
        assert_eq!((ended.code(), &ended.json["outcome"]), (125, &"failed".into()), "{ended:?}");
        assert_eq!(
            (&ended.json["code"], &ended.json["exit_code"]),
            (&"ERR_BAILIWICK_CLI_RELAY".into(), &0.into())
        );
        assert_eq!(
            (&ended.json["ran"], &ended.json["fields"]["stream"]),
            (&"something".into(), &"stdout".into())
        );
    }

    /// The command reads as much as it wants, and the rest is still there for whoever comes after.
    fn a_file_is_handed_on_with_its_position(world: &World) {
        requires!(Need::LandlockAbi6);
        fs::write(world.outside_file(), "abcdefgh").unwrap();
        let mut input = File::open(world.outside_file()).unwrap();
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdin(input.try_clone().unwrap());
        let ended = call.end(&["dd", "bs=3", "count=1", "status=none"]);
        assert_eq!(ended.text(), "abc", "{ended:?}");
        assert_eq!(input.stream_position().unwrap(), 3);
    }

    fn a_pipe_is_handed_on(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdin(Stdio::piped());
        let mut running = call.start("read -r line; echo got $line; cat");
        let mut stdin = running.child.stdin.take().unwrap();
        stdin.write_all(b"one\n").unwrap();
        let mut got = [0; 8];
        running.child.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
        assert_eq!(&got, b"got one\n");
        stdin.write_all(b"two\n").unwrap();
        drop(stdin);
        let ended = running.end();
        ended.assert_exited(0);
        assert_eq!(ended.text(), "two\n");
    }

    /// A file that is open for writing gives its bytes and nothing else: it lies in no root.
    fn a_file_that_could_be_written_is_copied(world: &World) {
        requires!(Need::LandlockAbi6);
        let open = || OpenOptions::new().read(true).write(true).open(world.outside_file()).unwrap();
        let script = "cat; echo written >&0";
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdin(open());
        let ended = call.script(script);
        assert_eq!((ended.text().as_str(), ended.code() == 0), ("x", false), "{ended:?}");
        assert_eq!(fs::read_to_string(world.outside_file()).unwrap(), "x");
        // Twin: without us it is written.
        let bare = std::process::Command::new("/bin/sh").args(["-c", script]).stdin(open()).output().unwrap();
        assert!(bare.status.success());
        assert_eq!(fs::read_to_string(world.outside_file()).unwrap(), "xwritten\n");
    }

    /// Programs often get a socket from their parent instead of a pipe. The command gets a pipe all the same.
    fn a_socket_is_copied(world: &World) {
        requires!(Need::LandlockAbi6);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let data = bytes(300_000);
        let (sent, received) = (data.clone(), data);
        let writer = std::thread::spawn(move || {
            ours.write_all(&sent).unwrap();
            ours.shutdown(std::net::Shutdown::Write).unwrap();
            ours
        });
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdin(OwnedFd::from(theirs));
        let ended = call.script("readlink /proc/self/fd/0 >&2; cat");
        assert!(ended.stdout == received, "the bytes differ: {} of them", ended.stdout.len());
        assert!(ended.stderr.starts_with("pipe:"), "{}", ended.stderr);
        drop(writer.join().unwrap());
    }

    /// What we were given and the command did not ask for must not hold us up.
    fn input_that_nobody_reads_does_not_matter(world: &World) {
        requires!(Need::LandlockAbi6);
        for stdin in [Stdio::from(File::open("/dev/zero").unwrap()), Stdio::piped()] {
            let mut call = Call::new(world, &["--quiet"]);
            call.shell.stdin(stdin);
            let mut running = call.start("exit 4");
            let kept_open = running.child.stdin.take();
            running.end().assert_exited(4);
            drop(kept_open);
        }
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdin(File::open("/").unwrap());
        let ended = call.script("cat; exit 5");
        ended.assert_exited(5);
    }

    /// Whoever holds a terminal can control it, so the command gets none, and does not wait for somebody to type.
    fn a_terminal_is_not_handed_on(world: &World) {
        requires!(Need::LandlockAbi6);
        let pty = Pty::new();
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdin(pty.subordinate());
        let ended =
            call.script("cat; for n in 0 1 2; do test -t $n && echo $n; done; readlink /proc/self/fd/0");
        ended.assert_exited(0);
        assert_eq!(ended.text(), "/dev/null\n");
        // Twin: the fixture is a terminal.
        let bare =
            std::process::Command::new("/bin/sh").args(["-c", "test -t 0"]).stdin(pty.subordinate()).status();
        assert!(bare.unwrap().success());

        // And where our output is one, the command's bytes arrive there, but its streams are pipes.
        let pty = Pty::new();
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdout(pty.subordinate()).stderr(pty.subordinate());
        call.script("for n in 0 1 2; do test -t $n && echo $n; done; echo shown; echo so too >&2")
            .assert_exited(0);
        pty.expect("shown\nso too\n");
    }

    /// Some parents set their end of a pipe so that writing does not wait, and the setting is shared.
    fn an_output_that_does_not_block_loses_nothing(world: &World) {
        requires!(Need::LandlockAbi6);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut call = Call::new(world, &["--quiet"]);
        call.shell.stdout(OwnedFd::from(theirs));
        let running = call.shell.args(["head", "-c", "5000000", "/dev/zero"]).spawn().unwrap();
        // The sides of the call must not stay open here, or there is no end.
        drop(call);
        let mut read = Vec::new();
        std::thread::sleep(std::time::Duration::from_millis(200));
        ours.read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 5_000_000);
        assert!(running.wait_with_output().unwrap().status.success());
    }

    /// A status file keeps what was there, as for every program that is given a descriptor.
    fn the_status_line_is_appended_where_the_file_was_opened_so(world: &World) {
        requires!(Need::LandlockAbi6);
        let path = world.path().join("log");
        fs::write(&path, "first\n").unwrap();
        let mut call = Call::new(world, &["--quiet"]);
        let mut inner: Vec<_> = call.shell.get_args().map(ToOwned::to_owned).collect();
        inner[1] = "exec \"$@\" 3>>\"$0\"".into();
        inner[2] = path.clone().into();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(inner).env("HOME", crate::invoke::home(world)).current_dir(world.write_root());
        call.shell = shell;
        assert_eq!(call.end(&["true"]).code(), 0);
        let mut text = String::new();
        let mut log = File::open(&path).unwrap();
        log.seek(SeekFrom::Start(0)).unwrap();
        log.read_to_string(&mut text).unwrap();
        let (first, line) = text.split_once('\n').unwrap();
        assert_eq!(first, "first");
        assert!(line.starts_with("{\"outcome\":\"exited\",\"exit_code\":0,"), "{line}");
    }

    /// What is closed for us is `/dev/null` for the command, and never another descriptor of ours.
    fn closed_streams_stay_without_effect(world: &World) {
        requires!(Need::LandlockAbi6);
        let mut call = Call::new(world, &["--quiet"]);
        let mut inner: Vec<_> = call.shell.get_args().map(ToOwned::to_owned).collect();
        inner[1] = "exec \"$@\" 3>\"$0\" <&- >&- 2>&-".into();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(inner).env("HOME", crate::invoke::home(world)).current_dir(world.write_root());
        call.shell = shell;
        let ended = call.script("cat > input; echo out; echo err >&2; echo done > ran");
        ended.assert_exited(0);
        assert_eq!(fs::read_to_string(world.write_root().join("input")).unwrap(), "");
        assert_eq!(fs::read_to_string(world.write_root().join("ran")).unwrap(), "done\n");
    }
}
