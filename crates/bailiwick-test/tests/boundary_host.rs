//! C38: what root could do to the machine. A command of root's session holds no capability, and the calls
//! are refused besides: each of the two is enough.
//!
//! The acts run in name, network and mount namespaces of their own, where they may happen once no layer
//! is left, and where the machine is not changed by it.

#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::Command;

use bailiwick::{Layer, Network, Session};
use bailiwick_test::act::Report;
use bailiwick_test::boundary::{Arena, Denial, accepting_all, run, session};
use bailiwick_test::calls::{Calls, Word};
use bailiwick_test::host::{self, Host, block_on};
use bailiwick_test::places::{close, open, sh};
use bailiwick_test::{Places, cases, fixture, plain_image, root_cases};
use rustix::mount::{MountFlags, UnmountFlags};

const BOTH: &[Layer] = &[Layer::Seccomp, Layer::Capabilities];
/// Mounting is Landlock's business as well, and a domain of scopes is a domain.
const MOUNTS: &[Layer] = &[Layer::Landlock, Layer::Scope, Layer::Seccomp, Layer::Capabilities];

#[test]
#[ignore = "runs as a program of its own"]
fn host() {
    host::play(&[("names", names), ("network", network), ("mounts", mounts)]);
}

/// Runs a part of this file where it cannot harm the machine.
fn apart(world: &bailiwick_test::World, part: &str) {
    let places = Places::of(world);
    let wrapper = ["unshare", "--uts", "--net", "--mount", "--propagation", "private", "--"];
    Host::start(&places, Host::wrapped(&places, &wrapper, "host", part)).finish();
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn names(places: &Places) {
    let world = bailiwick_test::World::new();
    assert_ne!(places.path(), world.path());
    block_on(async {
        let arena = Arena::open(&world, BOTH).await;
        let ours = hostname();
        let put_back = || rustix::system::sethostname(ours.as_bytes()).unwrap();
        let rename = Denial::of(BOTH, &["sethostname", "zz"]).scene(put_back).harm(|| hostname() == "zz");
        arena.denies(&rename).await;
        put_back();
        let domain = |name: &str| {
            let length = i32::try_from(name.len()).unwrap();
            Calls::of(libc::SYS_setdomainname, [name.into(), length.into()])
        };
        arena.denies(&Denial::of_calls(BOTH, &domain("zz"))).await;
        arena.denies(&Denial::of(BOTH, &["settimeofday"])).await;
        // The clock itself has no namespace, so it is only tried where it must be refused, and to what it is.
        let output =
            sh(arena.whole(), "hostname zz; test $? -ne 0 && date -s @$(date +%s); test $? -ne 0").await;
        assert!(output.status.success(), "{}", output.stderr.text());
        assert_eq!(hostname(), ours);
        for calls in [
            Calls::of(libc::SYS_clock_settime, [0.into(), Word::Zeros(16)]),
            Calls::of(libc::SYS_clock_adjtime, [0.into(), Word::Zeros(256)]),
            Calls::of(libc::SYS_adjtimex, [Word::Zeros(256)]),
        ] {
            run(arena.whole(), calls.arguments()).await.assert_refused(&["EPERM"]);
        }
        arena.close().await;
    });
}

fn network(_: &Places) {
    let world = bailiwick_test::World::new();
    let is_up = || {
        let output = Command::new("ip").args(["-o", "link", "show", "lo"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).contains("LOOPBACK,UP")
    };
    let down = || assert!(Command::new("ip").args(["link", "set", "lo", "down"]).status().unwrap().success());
    let script = "ip link set lo up";
    let try_in = async |session: &Session| {
        down();
        let output = session
            .command("/bin/sh")
            .args(["-c", script])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output();
        let output = output.await.unwrap();
        assert_eq!(output.status.success(), is_up(), "{}", output.stderr.text());
        is_up()
    };
    block_on(async {
        // With the network allowed, netlink sockets exist, and capabilities alone decide.
        let allow = |builder: bailiwick::SessionBuilder| builder.network(Network::Allow);
        let arena = Arena::open_with(&world, &[Layer::Capabilities], allow).await;
        assert!(!try_in(arena.whole()).await);
        assert!(try_in(arena.without(Layer::Capabilities)).await);
        let dummy = "ip link add dummy9 type dummy";
        let output =
            arena.whole().command("/bin/sh").args(["-c", dummy]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        assert!(!output.output().await.unwrap().status.success());
        arena.close().await;
        let arena = Arena::open(&world, BOTH).await;
        assert!(!try_in(arena.whole()).await);
        for layer in BOTH {
            assert!(!try_in(arena.without(*layer)).await);
        }
        arena.close().await;
        let bare =
            accepting_all(&Places::of(&world), "bare")._worker_image(bailiwick_test::image_without_layers());
        let bare = open(bare).await;
        assert!(try_in(&bare).await);
        close(&bare).await;
    });
}

fn mounts(_: &Places) {
    let world = bailiwick_test::World::new();
    let (outside, inside) = (world.outside().join("m"), world.write_root().join("m"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&inside).unwrap();
    let set = |mounted: &Path, free: &Path| {
        while fixture::is_mount_point(free) {
            rustix::mount::unmount(free, UnmountFlags::empty()).unwrap();
        }
        if !fixture::is_mount_point(mounted) {
            rustix::mount::mount("host", mounted, "tmpfs", MountFlags::empty(), None).unwrap();
        }
    };
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    block_on(async {
        // Opened on what the acts find: a root that holds no mount.
        set(&outside, &inside);
        let arena = Arena::open(&world, MOUNTS).await;
        let scene = || set(&outside, &inside);
        let umount = Denial::of(MOUNTS, &["umount", &path(&outside)]).scene(scene);
        arena.denies(&umount.harm(|| !fixture::is_mount_point(&outside))).await;
        let mount = Denial::of(MOUNTS, &["mount", &path(&inside)]).scene(scene);
        arena.denies(&mount.harm(|| fixture::is_mount_point(&inside))).await;
        let pivot = Calls::of(libc::SYS_pivot_root, [(&outside).into(), (&outside).into()]);
        run(arena.whole(), pivot.arguments()).await.assert_refused(&["EPERM"]);
        let is_read_only =
            || rustix::fs::statvfs(&outside).unwrap().f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
        let fresh = || {
            if is_read_only() {
                rustix::mount::unmount(&outside, UnmountFlags::empty()).unwrap();
            }
            scene();
        };
        let read_only = Denial::of(BOTH, &["mount-setattr", &path(&outside)]).scene(fresh).harm(is_read_only);
        arena.denies(&read_only).await;
        fresh();
        let nsenter = ["setns", "1", "mnt"];
        run(arena.whole(), &nsenter).await.assert_refused(&["EACCES", "EPERM"]);
        assert!(!sh(arena.whole(), "nsenter -t 1 -m true").await.status.success());
        // What `move_mount` and its kin need first.
        for calls in [
            Calls::of(libc::SYS_fsopen, ["tmpfs".into(), 0.into()]),
            Calls::of(libc::SYS_open_tree, [libc::AT_FDCWD.into(), (&outside).into(), 1.into()]),
            Calls::of(libc::SYS_fspick, [libc::AT_FDCWD.into(), (&outside).into(), 0.into()]),
            Calls::of(libc::SYS_chroot, [(&outside).into()]),
        ] {
            arena.denies(&Denial::of_calls(BOTH, &calls)).await;
        }
        // What no file system or kernel of today lets everybody try harmlessly.
        for calls in [
            Calls::of(libc::SYS_move_mount, [0.into(), "".into(), 0.into(), "".into(), 0.into()]),
            Calls::of(libc::SYS_iopl, [3.into()]),
            Calls::of(libc::SYS_ioperm, [0x80.into(), 1.into(), 1.into()]),
        ] {
            run(arena.whole(), calls.arguments()).await.assert_refused(&["EPERM"]);
        }
        scene();
        arena.close().await;
    });
    for mount in [&outside, &inside] {
        let _not_mounted = rustix::mount::unmount(mount, UnmountFlags::empty());
    }
}

/// Calls that end in another error than `EPERM` once they are permitted, because what they ask for is
/// nothing that exists.
fn host_controls() -> Vec<Calls> {
    let nothing = "no such thing";
    vec![
        Calls::of(libc::SYS_delete_module, [nothing.into(), 0.into()]),
        Calls::of(libc::SYS_init_module, [Word::Zeros(8), 8.into(), "".into()]),
        Calls::of(libc::SYS_finit_module, [0.into(), "".into(), 0.into()]),
        Calls::of(libc::SYS_swapon, [nothing.into(), 0.into()]),
        Calls::of(libc::SYS_swapoff, [nothing.into()]),
        Calls::of(libc::SYS_acct, ["/no/such/thing".into()]),
        Calls::of(libc::SYS_reboot, [0.into(), 0.into(), 0.into(), 0.into()]),
        Calls::of(libc::SYS_quotactl, [0.into(), 0.into(), 0.into(), 0.into()]),
        Calls::of(libc::SYS_kexec_load, [0.into(), 99.into(), 0.into(), 0.into()]),
    ]
}

fn capabilities(report: &Report) -> Vec<u64> {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"];
    sets.iter().map(|set| u64::from_str_radix(report.value[set].as_str().unwrap(), 16).unwrap()).collect()
}

root_cases! {
    /// C38: host and domain name, clock and time zone.
    fn c38_names_and_clock(world: &World) {
        apart(world, "names");
    }

    /// C38: interfaces.
    fn c38_network_interfaces(world: &World) {
        apart(world, "network");
    }

    /// C38: mounts, other namespaces, ports of the hardware.
    fn c38_mounts(world: &World) {
        apart(world, "mounts");
    }

    /// C38: modules, swap, accounting, power, quotas, another kernel. The twin without layers is refused
    /// only because there is no such module, file or device.
    async fn c38_modules_swap_and_power(world: &World) {
        let whole = open(session(world)).await;
        let bare =
            accepting_all(&Places::of(world), "bare")._worker_image(bailiwick_test::image_without_layers());
        let bare = open(bare).await;
        for calls in host_controls() {
            run(&whole, calls.arguments()).await.assert_refused(&["EPERM"]);
            let report = run(&bare, calls.arguments()).await;
            assert!(!report.ok && report.name != "EPERM", "{report:?}");
        }
        close(&whole).await;
        close(&bare).await;
    }

    /// C38: device nodes, which would give the raw disk away, wherever they are made.
    async fn c38_device_nodes(world: &World) {
        let layers = [Layer::Landlock, Layer::Seccomp, Layer::Capabilities];
        let arena = Arena::open(world, &layers).await;
        let node = world.write_root().join("node");
        let words = [node.to_str().unwrap().to_owned()];
        for act in ["mknod-blk", "mknod-chr"] {
            let denial = Denial::of(&layers, &[act, &words[0]])
                .scene(|| drop(fs::remove_file(&node)))
                .harm(|| fs::symlink_metadata(&node).is_ok());
            arena.denies(&denial).await;
        }
        fs::remove_file(&node).unwrap();
        // The twin: a node that is no device.
        arena.permits(&["mkfifo", &words[0]]).await;
        fixture::assert_fifo(&node);
        arena.close().await;
    }
}

cases! {
    /// C38: every set of capabilities is empty, in all that a command starts.
    async fn c38_capabilities(world: &World) {
        let whole = open(session(world)).await;
        let report = run(&whole, &["capset-status"]).await;
        let sets = capabilities(&report);
        assert_eq!(sets[..4], [0; 4], "{report:?}");
        assert_eq!(report.value["NoNewPrivs"], "1");
        assert_eq!(report.value["Seccomp"], "2");
        if bailiwick_test::case::is_root() {
            // A plain user may not touch the bounding set, and cannot profit from it.
            assert_eq!(sets[4], 0, "{report:?}");
            let without = accepting_all(&Places::of(world), "c")._worker_image(plain_image(Layer::Capabilities));
            let without = open(without).await;
            let report = run(&without, &["capset-status"]).await;
            assert_ne!(capabilities(&report)[1..3], [0; 2], "{report:?}");
            close(&without).await;
        }
        close(&whole).await;
    }
}
