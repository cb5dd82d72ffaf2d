//! The helper process of a session.
//!
//! One image plays every part: the host starts it as *keeper*, which copies itself into the *worker*,
//! which copies itself into the *launchers*, which copy themselves into the *reapers*, which start
//! commands. `ARCHITECTURE.md` says why there are five. It is started by the SDK alone, from a sealed
//! memfd; there is nothing to run by hand.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod boundary;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod broker;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod child;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod group;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod keeper;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod launcher;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod namespaces;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod reaper;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod switches;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sys;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod temporary;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tree;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod worker;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    keeper::run()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
