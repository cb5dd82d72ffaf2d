//! What an emulated machine runs: `/init`, and, as its child, the scenes.
//!
//! Each scene puts up a layout, tries it with the SDK and with the naive wrapper, and prints one line of JSON with what
//! came of it. It judges nothing: `tests/old_kernel.rs` does. Whatever goes wrong in the setting up ends it, and the line
//! that says that everything was said stays away.

#![expect(
    clippy::unwrap_used,
    reason = "a machine that cannot set a scene up must not come to its end in order"
)]

mod attempt;
mod boot;
mod folding;
mod fuse;
mod groups;
mod hardened;
mod overlay;
mod share;
mod sys;

use std::fs::File;
use std::io::Write as _;

use serde_json::Value;

/// Where results go; the other serial line is the kernel's.
const CONSOLE: &str = "/dev/ttyS1";

fn main() {
    if std::process::id() == 1 {
        boot::run();
    }
    if std::env::args().nth(1).as_deref() == Some(groups::CHILD) {
        return groups::child();
    }
    let mut console = File::options().write(true).open(CONSOLE).unwrap();
    let mut say = |line: Value| {
        // At once: a line that was begun must not be cut by the end of the machine.
        console.write_all(format!("{line}\n").as_bytes()).unwrap();
        rustix::termios::tcdrain(&console).unwrap();
    };
    let kernel = attempt::Kernel::look();
    say(kernel.facts());
    folding::run(&kernel, &mut say);
    overlay::run(&kernel, &mut say);
    share::run(&kernel, &mut say);
    groups::run(&mut say);
    hardened::run(&kernel, &mut say);
}
