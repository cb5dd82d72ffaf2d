//! C75 and C76: output without bound, and output byte for byte.

#![cfg(test)]

use std::time::{Duration, Instant};

use bailiwick::{Session, Stdio};
use bailiwick_test::host::{self, Host, say, usage};
use bailiwick_test::places::{close, done};
use bailiwick_test::process::{GENEROUS, pid_gone};
use bailiwick_test::{Places, cases};
use tokio::io::AsyncReadExt as _;

fn shell<'s>(session: &'s Session, script: &str) -> bailiwick::Command<'s> {
    session.command("/bin/sh").args(["-c", script])
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    usage(std::process::id())["resident_kib"].as_u64().unwrap()
}

cases! {
    /// C75: writers that never stop are ended on time, on one stream and on both, by one process and by many.
    async fn c75_endless_output_and_a_time_limit(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        for script in [
            "exec yes",
            "exec yes >&2",
            "yes & yes >&2 & wait",
            "for i in 1 2 3 4 5 6; do yes & yes >&2 & done; exec cat /dev/zero",
        ] {
            // On a busy machine the first limit may be over before anything is written: more time, then.
            let mut flooded = false;
            for limit in [400, 1600, 6400, 25_600].map(Duration::from_millis) {
                let before = Instant::now();
                let output = shell(&session, script).timeout(limit).output_limit(10_000).output().await.unwrap();
                assert!(output.timed_out, "{script}");
                assert!(before.elapsed() >= limit && before.elapsed() < limit + GENEROUS, "{script}: {:?}", before.elapsed());
                let stream = if output.stdout.total() > output.stderr.total() { &output.stdout } else { &output.stderr };
                flooded = stream.truncated() && stream.len() == 10_000 && stream.total() > 1_000_000;
                if flooded {
                    break;
                }
            }
            assert!(flooded, "{script} wrote nothing");
        }
        // A writer in the background does not keep the result back; it goes on unread, and close ends it.
        let script = "yes & yes >&2 & while [ $(cat /proc/$!/comm) != yes ]; do :; done; echo over";
        let output = shell(&session, script).output_limit(10_000).output().await.unwrap();
        assert!(output.status.success() && !output.timed_out);
        assert!(output.still_running.iter().any(|process| process.name == "yes"), "{:?}", output.still_running);
        close(&session).await;
        places.assert_nothing_left();
    }

    /// C75: the memory of the host is bounded by what is kept, in `output` and where nobody reads.
    fn c75_memory_of_the_host(world: &World) {
        let places = Places::of(world);
        let mut host = Host::start(&places, Host::command(&places, "host", "flooded"));
        assert_eq!(host.hear("total"), 300_000_000);
        // 16 MiB are kept of each stream, half of it twice for a moment, and the rest is slack.
        let grown = host.hear("grown_kib").as_u64().unwrap();
        assert!(grown < 64 * 1024, "{grown} KiB");
        let grown = host.hear("unread_kib").as_u64().unwrap();
        assert!(grown < 16 * 1024, "{grown} KiB");
        host.finish();
    }

    /// C75: a reader that never consumes stops the command, which `close` ends; one that reads late gets all.
    async fn c75_a_reader_that_does_not_read(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let unread = shell(&session, "exec yes").stdout(Stdio::piped()).spawn().await.unwrap();
        let command = shell(&session, "seq 1 200000; echo end >&2");
        let mut late = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().await.unwrap();
        // Another command is not held up by it.
        done(&shell(&session, "true").output().await.unwrap());
        assert!(late.try_wait().unwrap().is_none());
        let mut text = String::new();
        late.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text.lines().count(), 200_000);
        assert!(text.ends_with("\n200000\n"));
        assert!(late.wait().await.unwrap().success());
        // The streams of a command that has ended can still be read.
        text.clear();
        late.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "end\n");
        assert_eq!(close(&session).await.killed(), 1);
        assert!(pid_gone(unread.id(), unread.start_time()));
    }

    /// C75: totals are exact, beginning and end are kept.
    async fn c75_exact_totals(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let output = shell(&session, "dd if=/dev/zero bs=1 count=200000 status=none; printf end").output().await.unwrap();
        assert_eq!((output.stdout.total(), output.stdout.truncated()), (200_003, false));
        assert!(output.stdout.ends_with(b"\0\0end"));

        let output = shell(&session, "seq 1 1000000; seq 1 3 >&2").output_limit(1001).output().await.unwrap();
        let total: u64 = (1..=1_000_000_u64).map(|line| u64::from(line.ilog10()) + 2).sum();
        assert_eq!((output.stdout.total(), output.stdout.len()), (total, 1001));
        assert!(output.stdout.truncated());
        assert!(output.stdout.head().starts_with(b"1\n2\n3\n") && output.stdout.head().len() == 501);
        assert!(output.stdout.tail().ends_with(b"\n999999\n1000000\n") && output.stdout.tail().len() == 500);
        assert_eq!((output.stderr.text().as_ref(), output.stderr.truncated()), ("1\n2\n3\n", false));

        let output = shell(&session, "printf 12345").output_limit(0).output().await.unwrap();
        assert_eq!((output.stdout.total(), output.stdout.len(), output.stdout.truncated()), (5, 0, true));
        let output = shell(&session, "printf 12345").output_limit(5).output().await.unwrap();
        assert_eq!((&*output.stdout, output.stdout.truncated()), (&b"12345"[..], false));
        close(&session).await;
    }

    /// C76: bytes are exact; the text joins what was cut between two writes, and replaces only what is invalid.
    async fn c76_characters_and_bytes(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let run = async |script: &str| shell(&session, script).output().await.unwrap().stdout;
        let split = run(r"printf '\342'; sleep 0.1; printf '\202\254'").await;
        assert_eq!((&*split, split.text().as_ref()), (&b"\xe2\x82\xac"[..], "\u{20ac}"));
        let many = run(r"for i in 1 2 3 4 5; do for j in $(seq 10000); do printf '\342\202\254'; done; done").await;
        assert_eq!(many.total(), 150_000);
        assert!(many.text().chars().all(|character| character == '\u{20ac}'));
        let cut = run(r"printf 'a\342\202'").await;
        assert_eq!((&*cut, cut.text().as_ref()), (&b"a\xe2\x82"[..], "a\u{fffd}"));
        let invalid = run(r"printf 'a\377\376b\303\244'").await;
        assert_eq!((&*invalid, invalid.text().as_ref()), (&b"a\xff\xfeb\xc3\xa4"[..], "a\u{fffd}\u{fffd}b\u{e4}"));
        let all = run(r#"awk 'BEGIN { for (i = 0; i < 256; i++) printf "%c", i }' | LC_ALL=C cat"#).await;
        assert!(all.total() >= 256);
        let nul = run(r"printf '\0\0a\0'").await;
        assert_eq!(nul.into_bytes(), b"\0\0a\0");
        close(&session).await;
    }
}

/// Takes three hundred megabytes, then as much that nobody reads, and tells by how much it has grown.
fn flooded(places: &Places) {
    host::block_on(async {
        let session = places.open().await;
        done(&shell(&session, "head -c 1000000 /dev/zero").output().await.unwrap());
        let before = resident();
        let output = session.command("head").args(["-c", "300000000", "/dev/zero"]).output().await.unwrap();
        say(places, "grown_kib", resident().saturating_sub(before));
        say(places, "total", output.stdout.total());
        drop(output);
        let before = resident();
        let mut children = Vec::new();
        for _ in 0..8 {
            let child =
                shell(&session, "exec cat /dev/zero").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            children.push(child.await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        say(places, "unread_kib", resident().saturating_sub(before));
        assert_eq!(close(&session).await.killed(), 8);
    });
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("flooded", flooded)]);
}
