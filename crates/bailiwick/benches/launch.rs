//! What a confined command and a session cost, as ratios to a bare process of the same run.
//!
//! `cargo bench -p bailiwick --bench launch [-- --rounds N] [--json]`
//!
//! Every round runs each case once, in an order that is shuffled anew, so that no case always follows the
//! same one. The numbers are medians over the rounds; absolute times say little on a shared machine, the
//! ratios do. `docs/performance.md` has the method and results.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a benchmark prints, and fails where something is not as it should be"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick::{Protection, Session};

/// Memory that the host holds in the second half of the run.
const BALLAST: usize = 512 << 20;

type Times = BTreeMap<&'static str, Vec<Duration>>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let rounds: usize = value("--rounds").map_or(300, |rounds| rounds.parse().unwrap());
    let json = arguments.iter().any(|argument| argument == "--json");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let small = runtime.block_on(measure(rounds));
    let ballast = ballast();
    let large = runtime.block_on(measure(rounds));
    assert_eq!(ballast.last(), Some(&1), "the ballast was not kept");

    report("host of this size", &small, json);
    report("host with 512 MiB more resident", &large, json);
}

/// Memory that is really there: every page is written.
fn ballast() -> Vec<u8> {
    let mut ballast = vec![0_u8; BALLAST];
    ballast.iter_mut().for_each(|byte| *byte = 1);
    ballast
}

async fn measure(rounds: usize) -> Times {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let session = open(&place.path().join("store"), &root).await;
    let stores: Vec<_> = (0..2).map(|n| place.path().join(format!("store-{n}"))).collect();
    let bwrap = Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok();

    let mut cases =
        vec!["std output", "session output", "std spawn", "session spawn", "open and close", "replace roots"];
    if bwrap {
        cases.push("bwrap output");
    }
    let mut times = Times::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for round in 0..rounds + 10 {
        shuffle(&mut cases, &mut seed);
        for case in &cases {
            let begin = Instant::now();
            match *case {
                "std output" => assert!(Command::new("/bin/true").output().unwrap().status.success()),
                "session output" => {
                    assert!(session.command("/bin/true").output().await.unwrap().status.success());
                }
                "std spawn" => {
                    let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn().unwrap();
                    assert!(child.wait().unwrap().success());
                }
                "session spawn" => {
                    let mut child = session.command("/bin/true").spawn().await.unwrap();
                    assert!(child.wait().await.unwrap().success());
                }
                "open and close" => {
                    let opened = open(&stores[round % 2], &root).await;
                    assert!(opened.close().await.unwrap().processes.is_empty());
                }
                "replace roots" => {
                    session.replace_write_roots([if round % 2 == 0 { &other } else { &root }]).await.unwrap();
                }
                "bwrap output" => {
                    let mut command = Command::new("bwrap");
                    command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
                    command.args(["--unshare-net", "--unshare-pid", "/bin/true"]);
                    assert!(command.output().unwrap().status.success());
                }
                other => unreachable!("{other}"),
            }
            if round >= 10 {
                times.entry(case).or_default().push(begin.elapsed());
            }
        }
    }
    assert!(session.close().await.unwrap().processes.is_empty());
    times
}

async fn open(store: &Path, root: &Path) -> Session {
    Session::builder(store)
        .write_root(root)
        .accept(Protection::Metadata)
        .accept(Protection::NamedSockets)
        .open()
        .await
        .unwrap()
}

fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for last in (1..items.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        items.swap(last, (*seed % (last as u64 + 1)) as usize);
    }
}

fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2].as_secs_f64() * 1e6
}

fn report(title: &str, times: &Times, json: bool) {
    let base = |case: &str| match case {
        "session spawn" | "std spawn" => "std spawn",
        _ => "std output",
    };
    if !json {
        println!("\n{title}");
    }
    for (case, list) in times {
        let (own, bare) = (median(list), median(&times[base(case)]));
        let least = list.iter().min().unwrap().as_secs_f64() * 1e6;
        let bare_least = times[base(case)].iter().min().unwrap().as_secs_f64() * 1e6;
        if json {
            println!(
                "{{\"host\":\"{title}\",\"case\":\"{case}\",\"rounds\":{},\"median_us\":{own:.1},\"ratio\":{:.3},\"least_us\":{least:.1},\"least_ratio\":{:.3}}}",
                list.len(),
                own / bare,
                least / bare_least
            );
        } else {
            println!(
                "  {case:16} median {own:8.1} us  x{:5.2} of {}   least {least:8.1} us  x{:5.2}",
                own / bare,
                base(case),
                least / bare_least
            );
        }
    }
}
