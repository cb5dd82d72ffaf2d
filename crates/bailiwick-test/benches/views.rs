//! What a mount view costs, and what confinement costs real work, as ratios of one run.
//!
//! `cargo bench -p bailiwick-test --bench views [-- --rounds N --files N]`
//!
//! Each round runs every case once, in an order shuffled anew. Cases are measured against the case that their line names.
//! Both kinds of session run the same image, which was built for tests: compare them with each other, not with other
//! benchmarks. `docs/performance.md` has the method and results.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails where something is not right"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick::{Session, SessionBuilder};
use bailiwick_test::boundary::accepting_all;
use bailiwick_test::{Places, image_without, image_without_namespaces};

const WAYS: [&str; 4] = ["bare", "landlock only", "mount view", "bwrap"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str, usual: usize| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map_or(usual, |value| value.parse().unwrap())
    };
    let (rounds, files) = (value("--rounds", 15), value("--files", 50_000));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(rounds, files));
}

async fn measure(rounds: usize, files: usize) {
    let place = tempfile::Builder::new().prefix("bv").tempdir_in("/tmp").unwrap();
    let places = Places::make_at(place.path().join("w"));
    let root = places.write_root();
    prepare(&root, files);
    let open = async |name: &str, builder: fn(SessionBuilder) -> SessionBuilder| {
        builder(accepting_all(&places, name)).open().await.unwrap()
    };
    let plain = open("plain", |builder| builder._worker_image(image_without_namespaces())).await;
    let view = open("view", |builder| builder._worker_image(image_without(&[]))).await;
    let jobs = [
        ("true", "true".to_owned(), rounds * 20),
        ("tar", "rm -rf out && mkdir out && tar xf archive.tar -C out".to_owned(), rounds.div_ceil(3)),
        ("git status", "git -C repo status --porcelain >/dev/null".to_owned(), rounds),
    ];
    for (name, script, rounds) in jobs {
        let mut times: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        let mut ways = WAYS.to_vec();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..=rounds {
            shuffle(&mut ways, &mut seed);
            for way in &ways {
                let begin = Instant::now();
                match *way {
                    "landlock only" => run(&plain, &script).await,
                    "mount view" => run(&view, &script).await,
                    way => run_beside(&root, way == "bwrap", &script),
                }
                // The first round warms up.
                if round > 0 {
                    times.entry(way).or_default().push(begin.elapsed());
                }
            }
        }
        report(name, rounds, &times);
    }
    for session in [plain, view] {
        session.close().await.unwrap();
    }
}

/// A tree in an archive, and a repository.
fn prepare(root: &Path, files: usize) {
    let script = format!(
        "mkdir src && cd src && seq 1 {files} | while read n; do d=$((n / 500)); [ -d $d ] || mkdir $d; echo $n > $d/$n; done
         cd .. && tar cf archive.tar src && mkdir repo && cd repo && git init -q . && \
         seq 1 20000 | while read n; do d=$((n / 500)); [ -d $d ] || mkdir $d; echo $n > $d/$n; done && \
         git add . && git -c user.name=b -c user.email=b@example.org commit -qm all"
    );
    let prepared = Command::new("sh").args(["-c", &script]).current_dir(root).status().unwrap();
    assert!(prepared.success());
}

async fn run(session: &Session, script: &str) {
    let output = session.command("/bin/sh").args(["-c", script]).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn run_beside(root: &Path, wrapped: bool, script: &str) {
    let mut command = if wrapped {
        let mut command = Command::new("bwrap");
        command
            .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind"])
            .arg(root)
            .arg(root);
        command.args(["--unshare-net", "--unshare-pid", "--unshare-ipc", "/bin/sh"]);
        command
    } else {
        Command::new("/bin/sh")
    };
    let output = command.args(["-c", script]).current_dir(root).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for last in (1..items.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let other = usize::try_from(*seed % (u64::try_from(last).unwrap() + 1)).unwrap();
        items.swap(last, other);
    }
}

fn report(job: &str, rounds: usize, times: &BTreeMap<&str, Vec<Duration>>) {
    let of = |way: &str| {
        let mut sorted = times[way].clone();
        sorted.sort();
        (sorted[sorted.len() / 2].as_secs_f64() * 1e3, sorted[0].as_secs_f64() * 1e3)
    };
    println!("\n{job} ({rounds} rounds)");
    let (bare, bare_least) = of("bare");
    let (plain, plain_least) = of("landlock only");
    for way in WAYS {
        let (median, least) = of(way);
        println!(
            "  {way:<14} {median:>9.2} ms  to bare {:.2} (least {:.2})  to landlock only {:.2} (least {:.2})",
            median / bare,
            least / bare_least,
            median / plain,
            least / plain_least
        );
    }
}
