//! What it costs to find other names of protected files.
//!
//! `cargo bench -p bailiwick --features _bench --bench links [-- PLACE]`
//!
//! Makes a tree of 1000 directories with 1000 files each in PLACE (`$TMPDIR` by default; a minute or so), and removes
//! it. Prints the scan as a ratio to a bare walk of the same tree (`openat`, `getdents64`, `close`), the median of
//! pairs run in turn; the largest resident size of a process that scans trees of three sizes; and what a second look
//! at a protected directory costs per file. Caches are warm.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and fails where it cannot run"
)]
#![expect(unsafe_code, reason = "the bare walk is bare")]

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bailiwick::identity::{PinnedDir, links_bench};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, mkdirat, openat, statx};

const ROUNDS: usize = 15;

/// Says to a process of its own which tree it should scan, to have its memory measured.
const MEASURE: &str = "--measure";

fn main() {
    // `cargo bench` adds an option of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        [option, tree] if option == MEASURE => measure(Path::new(tree)),
        [place] => run(Path::new(place)),
        _ => run(&std::env::temp_dir()),
    }
}

fn run(place: &Path) {
    let place = tempfile::Builder::new().prefix("bailiwick-links-").tempdir_in(place).unwrap();
    let tree = place.path().join("tree");
    let protected = place.path().join("protected");
    fs::write(&protected, "").unwrap();
    fs::create_dir(&tree).unwrap();
    println!("{:>10} {:>14} {:>14}", "files", "1 thread KiB", "2 threads KiB");
    let mut made = 0;
    for directories in [10, 100, 1000] {
        fill(&tree, made..directories);
        made = directories;
        let peak = |threads: &str| {
            let program = std::env::current_exe().unwrap();
            let mut command = Command::new(program);
            let output = command.arg(MEASURE).arg(&tree).env("THREADS", threads).output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        println!("{:>10} {:>14} {:>14}", directories * 1000, peak("1"), peak("2"));
    }
    fs::hard_link(&protected, tree.join("d0500/other-name")).unwrap();
    compare(&tree, &protected);
    refresh(place.path());
}

/// Makes directories of a thousand empty files.
fn fill(tree: &Path, directories: std::ops::Range<usize>) {
    let tree = File::open(tree).unwrap();
    for directory in directories {
        let name = format!("d{directory:04}");
        mkdirat(&tree, &name, Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&tree, &name, flags, Mode::empty()).unwrap();
        for file in 0..1000 {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            drop(openat(&directory, format!("file_{file:04}.txt"), flags, Mode::RUSR).unwrap());
        }
    }
}

fn compare(tree: &Path, protected: &Path) {
    let dir = PinnedDir::working_directory(tree).unwrap();
    let protected = File::open(protected).unwrap();
    let expected = vec![tree.join("d0500/other-name")];
    let scan = |threads| {
        let begin = Instant::now();
        let (names, entries, _) = links_bench::scan_for(&dir, &[&protected], threads).unwrap();
        let time = begin.elapsed();
        assert_eq!((names, entries), (expected.clone(), 1_001_001));
        time
    };
    let bare = || {
        let begin = Instant::now();
        assert_eq!(bare_walk(tree), 1_001_001);
        begin.elapsed()
    };
    let _warm = (bare(), scan(1), scan(2));
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        let round = [bare(), scan(1), scan(2)];
        for (times, time) in times.iter_mut().zip(round) {
            times.push(time);
        }
        for (ratios, time) in ratios.iter_mut().zip(&round[1..]) {
            ratios.push(time.as_secs_f64() / round[0].as_secs_f64());
        }
    }
    println!("\n{:>10} {:>10} {:>10} {:>14} {:>10}", "", "min ms", "median ms", "ratio, median", "of mins");
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let least: Vec<Duration> = times.iter().map(|times| *times.iter().min().unwrap()).collect();
    for (place, name) in ["bare", "1 thread", "2 threads"].into_iter().enumerate() {
        times[place].sort();
        let median = times[place][ROUNDS / 2];
        let ratio = place.checked_sub(1).map_or(1.0, |place| {
            ratios[place].sort_by(f64::total_cmp);
            ratios[place][ROUNDS / 2]
        });
        let of_mins = ms(least[place]) / ms(least[0]);
        println!("{name:>10} {:>10.0} {:>10.0} {ratio:>14.2} {of_mins:>10.2}", ms(least[place]), ms(median));
    }
}

/// Counts the entries below a directory with nothing but the calls that it takes.
fn bare_walk(tree: &Path) -> u64 {
    let mut buffer = vec![0_u8; 128 << 10];
    let mut left = vec![tree.to_owned()];
    let mut entries = 0;
    while let Some(path) = left.pop() {
        let dir = File::open(&path).unwrap();
        loop {
            // SAFETY: the kernel writes at most `len` bytes to the buffer, which lives until the call has returned.
            let read = unsafe {
                libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
            };
            let mut batch = &buffer[..usize::try_from(read).unwrap()];
            if batch.is_empty() {
                break;
            }
            while !batch.is_empty() {
                let length = usize::from(u16::from_ne_bytes([batch[16], batch[17]]));
                let is_directory = batch[18] == libc::DT_DIR;
                let dot = batch[19] == b'.' && (batch[20] == 0 || (batch[20] == b'.' && batch[21] == 0));
                if !dot {
                    entries += 1;
                    if is_directory {
                        left.push(path.join(name(&batch[19..length])));
                    }
                }
                batch = &batch[length..];
            }
        }
    }
    entries
}

fn name(bytes: &[u8]) -> &str {
    std::ffi::CStr::from_bytes_until_nul(bytes).unwrap().to_str().unwrap()
}

/// Prints the largest resident size of this process, in KiB, after a scan.
fn measure(tree: &Path) {
    let dir = PinnedDir::working_directory(tree).unwrap();
    let file = File::open(tree.with_file_name("protected")).unwrap();
    let threads = std::env::var("THREADS").unwrap().parse().unwrap();
    links_bench::scan_for(&dir, &[&file], threads).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("{}", peak.trim().trim_end_matches(" kB"));
}

fn refresh(place: &Path) {
    println!("\n{:>10} {:>12} {:>14} {:>20}", "files", "refresh us", "us per file", "bare statx, per file");
    for count in [10_usize, 1000, 10_000] {
        let dir: PathBuf = place.join(format!("flat-{count}"));
        fs::create_dir(&dir).unwrap();
        let names: Vec<CString> =
            (0..count).map(|file| CString::new(format!("receipt_{file:06}")).unwrap()).collect();
        for name in &names {
            File::create(dir.join(name.to_str().unwrap())).unwrap();
        }
        // Until then a new file could hide behind the old time of the directory, and it is listed each time.
        std::thread::sleep(Duration::from_millis(100));
        let mut kept = links_bench::Kept::take(&PinnedDir::working_directory(&dir).unwrap()).unwrap();
        let mut times: Vec<Duration> = (0..200)
            .map(|_| {
                let begin = Instant::now();
                assert!(kept.is_fresh().unwrap());
                begin.elapsed()
            })
            .collect();
        times.sort();
        let median = times[times.len() / 2].as_secs_f64() * 1e6;
        let files = f64::from(u32::try_from(count).unwrap());
        let bare = bare_statx(&File::open(&dir).unwrap(), &names).as_secs_f64() * 1e6;
        println!("{count:>10} {median:>12.1} {:>14.3} {:>20.3}", median / files, bare / files);
    }
}

/// The median time of one `statx` of each file, by name.
fn bare_statx(dir: &File, names: &[CString]) -> Duration {
    let once = || {
        let begin = Instant::now();
        for name in names {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
            statx(dir, name, flags, StatxFlags::INO | StatxFlags::NLINK | StatxFlags::CTIME).unwrap();
        }
        begin.elapsed()
    };
    let mut times: Vec<Duration> = (0..200).map(|_| once()).collect();
    times.sort();
    times[times.len() / 2]
}
