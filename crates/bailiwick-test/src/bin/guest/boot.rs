//! The first process: mounts what every program expects, loads modules, runs the scenes, and turns the machine off.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use bailiwick_test::machine::END;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

/// Never returns: the machine is off then.
pub(crate) fn run() -> ! {
    // Where anything panics in this process the kernel does too, and the machine ends without the last line.
    put("proc", "/proc", "proc", c"");
    put("sys", "/sys", "sysfs", c"");
    put("dev", "/dev", "devtmpfs", c"");
    put("tmp", "/tmp", "tmpfs", c"mode=1777");
    let mut modules: Vec<_> = fs::read_dir("/modules").unwrap().map(|entry| entry.unwrap().path()).collect();
    modules.sort();
    for module in modules {
        finit_module(File::open(&module).unwrap(), c"", 0)
            .unwrap_or_else(|error| panic!("{module:?}: {error}"));
    }
    put("/dev/vda", "/m", "ext4", c"");
    put("share", "/share", "9p", c"trans=virtio,version=9p2000.L,cache=none");
    put("cached", "/cached", "9p", c"trans=virtio,version=9p2000.L,cache=loose");
    put("t", "/t", "tmpfs", c"");
    let status = Command::new("/init").status().unwrap();
    if status.success() {
        let mut console = File::options().write(true).open(crate::CONSOLE).unwrap();
        console.write_all(format!("{END}\n").as_bytes()).unwrap();
        rustix::termios::tcdrain(&console).unwrap();
    }
    reboot(RebootCommand::Restart).unwrap();
    panic!("the machine goes on after its end")
}

/// Mounts.
pub(crate) fn put(source: &str, target: &str, fs_type: &str, options: &CStr) {
    mount(source, target, fs_type, MountFlags::empty(), Some(options))
        .unwrap_or_else(|error| panic!("mount {fs_type} at {target}: {error}"));
}
