//! The escape suite: one table of attempts to leave the write boundary.
//!
//! Every attempt is made without confinement, where it must happen; in a session, in the foreground and in the
//! background while another command runs, where it must be refused and the world stay as it is; and in sessions whose
//! worker was built without the layers that the table names, where it must happen again. Each runs as root and as a
//! plain user, with namespaces and without.
//!
//! `cargo nextest run -p bailiwick-test --test escape --no-capture` prints the table with what came of each row.

#![cfg(test)]

mod check;
mod command;
mod everybody;
mod files;
mod ground;
mod kernel;
mod machine;
mod metadata;
mod objects;
mod outlive;
mod processes;
mod row;
mod sockets;
mod table;

use bailiwick_test::host::{self, Host, block_on};
use bailiwick_test::{Places, World, cases, root_cases, user_cases};

use check::Checker;
use row::Mode;
use table::Part;

async fn prove(world: &World, part: Part, mode: Mode) {
    Checker::new(&Places::of(world), mode).prove(&table::rows(part)).await;
}

cases! {
    async fn files_without_namespaces(world: &World) {
        prove(world, Part::Files, Mode::LandlockOnly).await;
    }

    async fn metadata_without_namespaces(world: &World) {
        prove(world, Part::Metadata, Mode::LandlockOnly).await;
    }

    async fn processes_without_namespaces(world: &World) {
        prove(world, Part::Processes, Mode::LandlockOnly).await;
    }

    async fn sockets_without_namespaces(world: &World) {
        prove(world, Part::Sockets, Mode::LandlockOnly).await;
    }

    async fn objects_without_namespaces(world: &World) {
        prove(world, Part::Objects, Mode::LandlockOnly).await;
    }

    async fn kernel_without_namespaces(world: &World) {
        prove(world, Part::Kernel, Mode::LandlockOnly).await;
    }

    async fn files_with_namespaces(world: &World) {
        prove(world, Part::Files, Mode::Namespaces).await;
    }

    async fn metadata_with_namespaces(world: &World) {
        prove(world, Part::Metadata, Mode::Namespaces).await;
    }

    async fn processes_with_namespaces(world: &World) {
        prove(world, Part::Processes, Mode::Namespaces).await;
    }

    async fn sockets_with_namespaces(world: &World) {
        prove(world, Part::Sockets, Mode::Namespaces).await;
    }

    async fn objects_with_namespaces(world: &World) {
        prove(world, Part::Objects, Mode::Namespaces).await;
    }

    async fn kernel_with_namespaces(world: &World) {
        prove(world, Part::Kernel, Mode::Namespaces).await;
    }

    async fn a_command_without_namespaces(world: &World) {
        command::is_as_documented(&Places::of(world), Mode::LandlockOnly).await;
    }

    async fn a_command_with_namespaces(world: &World) {
        command::is_as_documented(&Places::of(world), Mode::Namespaces).await;
    }

    async fn outliving_without_namespaces(world: &World) {
        outlive::prove(&Places::of(world), Mode::LandlockOnly).await;
    }

    async fn outliving_with_namespaces(world: &World) {
        outlive::prove(&Places::of(world), Mode::Namespaces).await;
    }

    /// The boundary widened to everything: the checker sees every row escape, or it would see nothing.
    async fn without_any_layer_every_row_escapes(world: &World) {
        Checker::new(&Places::of(world), Mode::LandlockOnly).notices(&table::ordinary_rows()).await;
    }
}

#[test]
#[ignore = "runs as a program of its own"]
fn host() {
    host::play(&[
        ("without", |_| apart(|checker, rows| block_on(checker.prove(&rows)), Mode::LandlockOnly)),
        ("with", |_| apart(|checker, rows| block_on(checker.prove(&rows)), Mode::Namespaces)),
        ("everybody-without", |places| everybody(places, Mode::LandlockOnly)),
        ("everybody-with", |places| everybody(places, Mode::Namespaces)),
        ("notices", |_| apart(|checker, rows| block_on(checker.notices(&rows)), Mode::LandlockOnly)),
    ]);
}

fn apart(what: impl FnOnce(Checker, Vec<&'static row::Row>), mode: Mode) {
    let world = World::new();
    let places = Places::of(&world);
    machine::prepare(&places);
    what(Checker::new(&places, mode), table::rows(Part::Machine));
    let mounted = places.join("B");
    if mounted.exists() {
        rustix::mount::unmount(&mounted, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

fn everybody(places: &Places, mode: Mode) {
    let world = World::new();
    block_on(prove(&world, Part::Everybody, mode));
    if mode == Mode::LandlockOnly {
        let world = World::new();
        block_on(Checker::new(&Places::of(&world), mode).notices(&table::rows(Part::Everybody)));
    }
    host::say(places, "everybody", true);
}

const APART: &[&str] = &["unshare", "--uts", "--net", "--mount", "--propagation", "private"];

fn apart_command(places: &Places, wrapper: &[&str], part: &str) -> std::process::Command {
    let wrapper: Vec<&str> = APART.iter().chain(wrapper).copied().collect();
    let mut command = Host::wrapped(places, &wrapper, "host", part);
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Runs a part of this file where it cannot harm the machine.
fn start_apart(world: &World, part: &str) {
    let places = Places::of(world);
    let mut host = Host::start(&places, apart_command(&places, &["--"], part));
    host.wait();
    print!("{}", host.output());
    host.finish();
}

/// The same where it sees nobody else. It runs under another number there than the one that was started.
fn start_alone(world: &World, part: &str) {
    let places = Places::of(world);
    // The program is held before its link, which names a process of the other `/proc`, leads nowhere.
    let script = "exec 9< \"$1\" && mount -t proc proc /proc && shift && exec /proc/self/fd/9 \"$@\"";
    let wrapper = ["--pid", "--fork", "--kill-child", "--", "sh", "-c", script, "sh"];
    let mut host = Host::start(&places, apart_command(&places, &wrapper, part));
    let status = host.wait();
    print!("{}", host.output());
    assert!(status.success() && host.heard("everybody").is_some(), "{status}");
}

root_cases! {
    fn machine_without_namespaces_mount(world: &World) {
        start_apart(world, "without");
    }

    fn machine_with_namespaces_mount(world: &World) {
        start_apart(world, "with");
    }

    fn machine_without_any_layer_mount(world: &World) {
        start_apart(world, "notices");
    }

    fn everybody_without_namespaces(world: &World) {
        start_alone(world, "everybody-without");
    }

    fn everybody_with_namespaces(world: &World) {
        start_alone(world, "everybody-with");
    }
}

user_cases! {
    async fn machine_without_namespaces(world: &World) {
        prove(world, Part::Machine, Mode::LandlockOnly).await;
    }

    async fn machine_with_namespaces(world: &World) {
        prove(world, Part::Machine, Mode::Namespaces).await;
    }

    async fn everybody_without_namespaces_of_a_uid(world: &World, uid = 61350) {
        prove(world, Part::Everybody, Mode::LandlockOnly).await;
        Checker::new(&Places::of(world), Mode::LandlockOnly).notices(&table::rows(Part::Everybody)).await;
    }

    async fn everybody_with_namespaces_of_a_uid(world: &World, uid = 61351) {
        prove(world, Part::Everybody, Mode::Namespaces).await;
    }
}
