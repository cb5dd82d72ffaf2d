//! A machine with another kernel, emulated, for what the kernel of this one does not have: file systems that fold case,
//! shares without a cache, an old Landlock.
//!
//! The machine runs the program `guest`, which tries things and prints what it saw, one line of JSON for each. It
//! judges nothing; the test that booted it does. No network, and nothing of this machine is written but the directories
//! that the test hands over.

mod archive;
mod kernel;
mod programs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use archive::Archive;
pub use kernel::Kernel;

use crate::{tool, wait_until};

/// The last line of a machine that came to its end.
pub const END: &str = "the machine has said everything";

/// What is loaded in the machine, with all that it depends on. ext4 asks for its checksum by name.
const MODULES: [&str; 8] =
    ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "overlay", "9pnet_virtio", "9p", "fuse"];

/// Far more than a loaded machine needs, and less than what nextest gives a test.
const LIMIT: Duration = Duration::from_secs(270);

const QEMU: &str = "qemu-system-x86_64";

/// Whether a machine can be booted here.
///
/// # Errors
///
/// What is missing, in one line.
pub(crate) fn probe() -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("programs that are built here are for another machine".to_owned());
    }
    for (program, argument) in [(QEMU, "--version"), ("mkfs.ext4", "-V")] {
        let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
        if !output.as_ref().is_ok_and(|output| output.status.success()) {
            return Err(format!("{program} {argument}: {output:?}"));
        }
    }
    match Kernel::ALL.into_iter().map(Kernel::image).find(|image| !image.is_file()) {
        Some(absent) => Err(format!("no {}, which `.ci/kernels` would bring", absent.display())),
        None => Ok(()),
    }
}

/// What a machine printed, and how long it took.
#[derive(Debug)]
pub struct Said {
    /// The lines, without [`END`].
    pub lines: Vec<serde_json::Value>,
    /// From power on to power off.
    pub took: Duration,
}

/// Boots a machine, waits for its end and reads what it printed.
///
/// It has an ext4 that can fold case on its first disk, and `share` as the 9p shares `share` and `cached`. Files of the machine itself
/// are made in `work`.
///
/// # Panics
///
/// If the machine does not come to its end in time, with all that it and its kernel printed.
#[must_use]
pub fn boot(kernel: Kernel, work: &Path, share: &Path) -> Said {
    let (first, disk) = (work.join("first.cpio"), work.join("disk.img"));
    let (log, console) = (work.join("kernel.log"), work.join("console"));
    write(&first, &first_file_system(kernel));
    make_disk(&disk);
    let mut command = Command::new(QEMU);
    command.args(["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot", "-nic", "none"]);
    command.args(["-accel", "tcg", "-cpu", "max", "-m", "512"]);
    command.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(&first);
    command.args(["-append", "console=ttyS0 loglevel=4 panic=-1"]);
    command.arg("-serial").arg(format!("file:{}", log.display()));
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe", disk.display()));
    // A share can be mounted once, so there are two of one directory.
    for tag in ["share", "cached"] {
        let share = share.display();
        command
            .arg("-virtfs")
            .arg(format!("local,path={share},mount_tag={tag},security_model=none,multidevs=remap"));
    }
    let errors = work.join("emulator.log");
    let errors = File::create(&errors).unwrap_or_else(|error| panic!("make {}: {error}", errors.display()));
    let start = Instant::now();
    let mut machine = Emulator::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors));
    let ended = machine.end();
    let took = start.elapsed();
    drop(machine);
    let text = |name: &str| {
        let bytes = fs::read(work.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let said = text("console");
    read(&said).map(|lines| Said { lines, took }).unwrap_or_else(|why| {
        let (emulator, kernel) = (text("emulator.log"), text("kernel.log"));
        panic!("{why}; {ended:?} after {took:?}\n== console\n{said}\n== kernel\n{kernel}\n== emulator\n{emulator}")
    })
}

/// A running emulator. It does not outlive the test, whatever becomes of that.
struct Emulator(Child);

impl Emulator {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("run {QEMU}: {error}")))
    }

    /// Waits for its end; `None` when that does not come in time.
    fn end(&mut self) -> Option<ExitStatus> {
        let mut ended = None;
        let in_time = wait_until(LIMIT, || {
            ended = self.0.try_wait().unwrap_or_else(|error| panic!("wait for {QEMU}: {error}"));
            ended.is_some()
        });
        ended.filter(|_| in_time)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ended_before = self.0.kill();
        let _waited_for_before = self.0.wait();
    }
}

fn read(said: &str) -> Result<Vec<serde_json::Value>, String> {
    let mut lines = Vec::new();
    for line in said.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if line == END {
            return Ok(lines);
        }
        lines.push(serde_json::from_str(line).map_err(|error| format!("not JSON ({error}): {line}"))?);
    }
    Err("the machine did not come to its end".to_owned())
}

fn first_file_system(kernel: Kernel) -> Vec<u8> {
    let mut archive = Archive::default();
    for directory in ["/proc", "/sys", "/dev", "/tmp", "/m", "/share", "/cached", "/t", "/bind", "/lookups"] {
        archive.directory(Path::new(directory));
    }
    // Before anything is mounted: a program without open standard streams gets `/dev/null`, or does not start.
    archive.device(Path::new("/dev/console"), (5, 1));
    archive.device(Path::new("/dev/null"), (1, 3));
    for (number, module) in kernel.modules(&MODULES).iter().enumerate() {
        archive.file(Path::new(&format!("/modules/{number:02}")), module);
    }
    let programs = [("/init", "guest"), ("/bin/act", "act"), ("/bin/naive", "naive")];
    programs::add(&mut archive, &programs.map(|(name, program)| (Path::new(name), tool(program))));
    archive.finish()
}

fn make_disk(disk: &Path) {
    const SIZE: u64 = 32 << 20;
    File::create(disk)
        .and_then(|file| file.set_len(SIZE))
        .unwrap_or_else(|error| panic!("make {}: {error}", disk.display()));
    let output = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-O", "casefold", "-E", "encoding=utf8"])
        .arg(disk)
        .output()
        .unwrap_or_else(|error| panic!("run mkfs.ext4: {error}"));
    assert!(output.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr));
}

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
}

/// The directory that cargo builds in.
fn target_directory() -> PathBuf {
    // target/PROFILE/deps/TEST-HASH
    match std::env::current_exe().ok().as_deref().and_then(|exe| exe.ancestors().nth(3)) {
        Some(target) => target.to_owned(),
        None => panic!("the test binary does not lie in a target directory"),
    }
}
