//! What tests need and machines may lack. Each need is found by trying, never by a version number.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetStatus, Scope,
};

use crate::{act, case, machine};

/// Something that a test cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// Effective uid 0.
    Root,
    /// Landlock refuses a write (ABI 3: truncation included).
    Landlock,
    /// Landlock scopes signals and abstract sockets.
    LandlockAbi6,
    /// `git` runs for this user.
    Git,
    /// `cargo` and `rustc` run for this user; a toolchain may lie in a home that is closed to others.
    CargoForThisUser,
    /// `node` runs for this user.
    Node,
    /// A real Python 3 interpreter, not the shim of a version manager, runs for this user.
    Python3,
    /// `gcc` runs for this user.
    Gcc,
    /// `tmux` runs for this user.
    Tmux,
    /// `script` (util-linux) runs for this user.
    Script,
    /// `strace` runs for this user.
    Strace,
    /// `io_uring_setup` gives this user a ring.
    IoUring,
    /// `int 0x80` enters the kernel from a 64-bit program.
    Ia32,
    /// The kernel answers call numbers of the x32 ABI.
    X32,
    /// `AF_VSOCK` sockets exist.
    Vsock,
    /// The kernel writes memory images into the working directory of who crashed.
    CoreFiles,
    /// A btrfs can be made in a file and mounted by loop device.
    Btrfs,
    /// `bindfs` serves a file system from a program of this user.
    Fuse,
    /// An exfat can be made in a file and served by `exfat-fuse`.
    ExfatFuse,
    /// The call `file_setattr` (Linux 6.17).
    FileSetattr,
    /// The call `removexattrat` (Linux 6.13).
    Removexattrat,
    /// Characters can be put into the input of a terminal (`dev.tty.legacy_tiocsti`).
    Tiocsti,
    /// A process can make itself a user namespace.
    UserNamespaces,
    /// A hierarchy of control groups is mounted.
    ControlGroups,
    /// A machine with another kernel can be emulated: `qemu`, and the kernels that `.ci/kernels` brings.
    OtherKernels,
}

impl Need {
    /// Every need, in the order of the table in `tests/skips.toml`.
    pub const ALL: [Need; 25] = [
        Need::Root,
        Need::Landlock,
        Need::LandlockAbi6,
        Need::Git,
        Need::CargoForThisUser,
        Need::Node,
        Need::Python3,
        Need::Gcc,
        Need::Tmux,
        Need::Script,
        Need::Strace,
        Need::IoUring,
        Need::Ia32,
        Need::X32,
        Need::Vsock,
        Need::CoreFiles,
        Need::Btrfs,
        Need::Fuse,
        Need::ExfatFuse,
        Need::FileSetattr,
        Need::Removexattrat,
        Need::Tiocsti,
        Need::UserNamespaces,
        Need::ControlGroups,
        Need::OtherKernels,
    ];

    /// Its name in the ledger, in `BAILIWICK_TEST_REQUIRE` and in `tests/skips.toml`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Landlock => "landlock",
            Need::LandlockAbi6 => "landlock-abi-6",
            Need::Git => "git",
            Need::CargoForThisUser => "cargo-for-this-user",
            Need::Node => "node",
            Need::Python3 => "python3",
            Need::Gcc => "gcc",
            Need::Tmux => "tmux",
            Need::Script => "script",
            Need::Strace => "strace",
            Need::IoUring => "io_uring",
            Need::Ia32 => "ia32",
            Need::X32 => "x32",
            Need::Vsock => "vsock",
            Need::CoreFiles => "core-files",
            Need::Btrfs => "btrfs",
            Need::Fuse => "fuse",
            Need::ExfatFuse => "exfat-fuse",
            Need::FileSetattr => "file-setattr",
            Need::Removexattrat => "removexattrat",
            Need::Tiocsti => "tiocsti",
            Need::UserNamespaces => "user-namespaces",
            Need::ControlGroups => "control-groups",
            Need::OtherKernels => "other-kernels",
        }
    }

    /// Tries it, as this user, here and now.
    ///
    /// # Errors
    ///
    /// What was found instead, in one line for the ledger.
    pub fn probe(self) -> Result<(), String> {
        match self {
            Need::Root if case::is_root() => Ok(()),
            Need::Root => Err(format!("the effective uid is {}", rustix::process::geteuid().as_raw())),
            Need::Landlock => on_a_thread_of_its_own(landlock_refuses_a_write),
            Need::LandlockAbi6 => landlock_has_scopes(),
            Need::Git => runs(Path::new("git"), "--version"),
            Need::CargoForThisUser => Toolchain::find().ok_or("no toolchain was found")?.probe(),
            Need::Node => node().map(drop),
            Need::Python3 => python3().map(drop),
            Need::Gcc => runs(Path::new("gcc"), "--version"),
            Need::Tmux => runs(Path::new("tmux"), "-V"),
            Need::Script => runs(Path::new("script"), "--version"),
            Need::Strace => runs(Path::new("strace"), "--version"),
            Need::IoUring => act_succeeds(&["io-uring-setup"]),
            Need::Ia32 => act_succeeds(&["int80"]),
            Need::X32 => act_succeeds(&["x32-getpid"]),
            Need::Vsock => act_succeeds(&["socket", "vsock", "stream", "0"]),
            Need::CoreFiles => core_files(),
            Need::Btrfs => runs(Path::new("mkfs.btrfs"), "--version").and_then(|()| loop_device()),
            Need::Fuse => runs(Path::new("bindfs"), "--version").and_then(|()| fuse_device()),
            Need::ExfatFuse => runs(Path::new("mount.exfat-fuse"), "-V")
                .and_then(|()| on_path("mkfs.exfat").ok_or("mkfs.exfat is not on PATH".to_owned()))
                .and_then(|_program| fuse_device().and_then(|()| loop_device())),
            Need::FileSetattr => call_exists(&["calls", "469", "-1", "s:", "z:24", "24", "0"]),
            Need::Removexattrat => call_exists(&["calls", "466", "-1", "s:", "0", "s:user.act"]),
            Need::Tiocsti => typing(),
            Need::UserNamespaces => act_succeeds(&["clone-newuser"]),
            Need::ControlGroups => control_groups(),
            Need::OtherKernels => machine::probe(),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust toolchain by its root, so that a command with an empty environment can use it without rustup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    root: PathBuf,
}

impl Toolchain {
    pub(crate) const VARIABLE: &'static str = "BAILIWICK_TEST_TOOLCHAIN";

    /// The toolchain that runs this test, else the one on `PATH`. This user may lack access to it.
    #[must_use]
    pub fn find() -> Option<Self> {
        if let Some(root) = std::env::var_os(Self::VARIABLE) {
            return Some(Toolchain { root: root.into() });
        }
        // `CARGO` names the real program, behind rustup's proxy.
        let running = std::env::var_os("CARGO").and_then(|cargo| {
            let root = Path::new(&cargo).parent()?.parent()?.to_owned();
            root.join("bin/rustc").exists().then_some(root)
        });
        let on_path = || {
            let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
            let root = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| PathBuf::from(root.trim_end()))
        };
        running.or_else(on_path).map(|root| Toolchain { root })
    }

    /// Its root, `rustc --print sysroot`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that holds `cargo` and `rustc`, to be put on a command's `PATH`.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.root.join("bin")
    }

    fn probe(&self) -> Result<(), String> {
        runs(&self.programs().join("cargo"), "--version")?;
        runs(&self.programs().join("rustc"), "--version")
    }
}

/// Path of the real Python 3 interpreter that this user can run.
///
/// # Errors
///
/// What was tried, in one line.
pub fn python3() -> Result<PathBuf, String> {
    let mut found = Vec::new();
    for candidate in ["python3", "/usr/bin/python3", "/usr/local/bin/python3"] {
        let output = Command::new(candidate)
            .args(["-c", "import sys; print(sys.executable)"])
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
                match is_program_file(&path) {
                    Ok(true) => return Ok(path),
                    Ok(false) => found.push(format!("{} is a script", path.display())),
                    Err(error) => found.push(format!("{}: {error}", path.display())),
                }
            }
            Ok(output) => found.push(format!("{candidate}: {}", output.status)),
            Err(error) => found.push(format!("{candidate}: {error}")),
        }
    }
    Err(found.join("; "))
}

/// Path of the `node` on `PATH`, if this user can run it.
///
/// # Errors
///
/// What was found instead, in one line.
pub fn node() -> Result<PathBuf, String> {
    let path = on_path("node").ok_or("node is not on PATH")?;
    runs(&path, "--version").map(|()| path)
}

/// The first file on `PATH` with that name that somebody may execute.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| {
        fs::metadata(candidate).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

fn is_program_file(path: &Path) -> io::Result<bool> {
    let mut magic = [0_u8; 4];
    fs::File::open(path)?.read_exact(&mut magic)?;
    Ok(magic == *b"\x7fELF")
}

fn runs(program: &Path, argument: &str) -> Result<(), String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{} {argument}: {}", program.display(), output.status)),
        Err(error) => Err(format!("{}: {error}", program.display())),
    }
}

fn core_files() -> Result<(), String> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").map_err(|error| error.to_string())?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    match (pattern.trim_end(), limit) {
        (pattern, _) if pattern.contains('/') || pattern.contains('|') => {
            Err(format!("the pattern is `{pattern}`"))
        }
        (_, Some(0)) => Err("the limit of memory images is 0".to_owned()),
        _ => Ok(()),
    }
}

fn loop_device() -> Result<(), String> {
    fs::File::open("/dev/loop-control").map(drop).map_err(|error| format!("/dev/loop-control: {error}"))
}

fn fuse_device() -> Result<(), String> {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    device.map(drop).map_err(|error| format!("/dev/fuse: {error}"))
}

fn act_succeeds(act: &[&str]) -> Result<(), String> {
    let report = act::bare(act);
    if report.ok { Ok(()) } else { Err(format!("{}: {}", act.join(" "), report.name)) }
}

fn control_groups() -> Result<(), String> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let is_mounted = table.lines().any(|line| line.contains(" - cgroup"));
    if is_mounted { Ok(()) } else { Err("no hierarchy of control groups is mounted".to_owned()) }
}

fn typing() -> Result<(), String> {
    // Absent before Linux 6.2, where it cannot be switched off.
    match fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti") {
        Ok(value) if value.trim() == "0" => Err("dev.tty.legacy_tiocsti is 0".to_owned()),
        _ => Ok(()),
    }
}

/// Whether the kernel knows a call, by a use of it that cannot succeed.
fn call_exists(act: &[&str]) -> Result<(), String> {
    match act::bare(act).name.as_str() {
        "ENOSYS" => Err(format!("{}: ENOSYS", act.join(" "))),
        _ => Ok(()),
    }
}

/// Landlock confines the thread that asks, so a probe asks on one that ends with it.
fn on_a_thread_of_its_own(probe: fn() -> Result<(), String>) -> Result<(), String> {
    std::thread::spawn(probe).join().unwrap_or_else(|_panic| Err("the probe panicked".to_owned()))
}

fn landlock_refuses_a_write() -> Result<(), String> {
    let file = std::env::temp_dir();
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(ABI::V3))
        .and_then(|ruleset| ruleset.create())
        .and_then(|ruleset| ruleset.restrict_self())
        .map_err(|error| format!("Landlock ABI 3: {error}"))?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(format!("Landlock ABI 3 is {:?}", status.ruleset));
    }
    // An unnamed file leaves nothing behind if the refusal fails.
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(&file, flags, rustix::fs::Mode::RUSR) {
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        Err(error) => Err(format!("a write in {} failed for another reason: {error}", file.display())),
        Ok(_file) => Err(format!("a write in {} was not refused", file.display())),
    }
}

fn landlock_has_scopes() -> Result<(), String> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal | Scope::AbstractUnixSocket)
        .and_then(|ruleset| ruleset.create())
        .map(drop)
        .map_err(|error| format!("Landlock ABI 6: {error}"))
}
