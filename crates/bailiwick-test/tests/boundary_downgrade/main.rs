//! C24: a kernel that lacks Landlock, or parts of it, is found out. Nothing degrades in silence.
//!
//! The kernels are emulated: the test runs itself again under a filter that answers
//! `landlock_create_ruleset` as such a kernel would. For an older version, another thread reads what is
//! asked for and refuses what that version did not know.

#![cfg(test)]

mod sys;

use std::time::Duration;

use bailiwick::{ErrorKind, Layer, Protection, Standing};
use bailiwick_test::boundary::{run, session};
use bailiwick_test::case::{Case, Rerun, is_root};
use bailiwick_test::places::{close, entries, open, refused};
use bailiwick_test::{Need, Places, Snapshot, World, cases, requires};
use sys::Kernel;

/// Runs an ignored test of this file again, on a kernel that is emulated.
fn on(kernel: Kernel, test: &str) {
    let outcome = sys::emulate(kernel, || Rerun::new(test, Duration::from_secs(60)).run());
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

fn inner(test: &'static str, body: fn(&World)) {
    let case = Case::new(test, body)
        .binary("act", option_env!("CARGO_BIN_EXE_act"))
        .binary("naive", option_env!("CARGO_BIN_EXE_naive"));
    if is_root() { case.as_root() } else { case.as_user() }
}

/// Opens a session that accepts nothing beyond the usual, and returns the protections that are named.
async fn named(world: &World) -> Vec<String> {
    let error = refused(session(world).open().await, ErrorKind::ProtectionUnavailable);
    nothing_ran(world);
    let list = error.field("protections").and_then(|field| field.as_list()).unwrap();
    list.iter().map(|name| name.as_text().unwrap().to_owned()).collect()
}

async fn assert_unsupported(world: &World, needs: &str) {
    let mut builder = session(world);
    // Not even accepting everything opens a session without the layer that content stands on.
    for protection in Protection::ALL {
        builder = builder.accept(*protection);
    }
    let error = refused(builder.open().await, ErrorKind::PlatformUnsupported);
    assert_eq!(error.code(), "ERR_BAILIWICK_PLATFORM_UNSUPPORTED");
    assert_eq!(error.field("needs").and_then(|field| field.as_text()), Some("Landlock"));
    assert!(error.to_string().contains(needs), "{}", error.report());
    nothing_ran(world);
}

#[track_caller]
fn nothing_ran(world: &World) {
    Places::of(world).assert_nothing_left();
    assert!(entries(&world.write_root()).is_empty());
}

/// Inner tests: each is run again on the kernel that its name says.
mod kernel {
    use super::*;

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn without_landlock() {
        inner("boundary_downgrade::kernel::without_landlock", |world| {
            world.block_on(async { assert_unsupported(world, "no Landlock ruleset").await });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn below_abi_3() {
        inner("boundary_downgrade::kernel::below_abi_3", |world| {
            world.block_on(async { assert_unsupported(world, "ABI 3").await });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn abi_3() {
        inner("boundary_downgrade::kernel::abi_3", |world| {
            world.block_on(async {
                assert_eq!(named(world).await, ["devices", "signals", "abstract-sockets"]);
                // Content is kept, `truncate` included, and what is accepted is told.
                let session = session(world)
                    .accept(Protection::Devices)
                    .accept(Protection::Signals)
                    .accept(Protection::AbstractSockets);
                let session = open(session).await;
                let enforcement = session.enforcement().await;
                assert!(enforcement.keeps(Protection::Content), "{enforcement}");
                for gap in [Protection::Devices, Protection::Signals, Protection::AbstractSockets] {
                    let standing = enforcement.standing(gap);
                    assert!(
                        matches!(standing, Some(Standing::NotKept { accepted: true, .. })),
                        "{enforcement}"
                    );
                }
                let (outside, root) = (world.outside_file(), world.write_root());
                let before = Snapshot::of(&outside);
                run(&session, &["truncate", outside.to_str().unwrap()]).await.assert_refused(&["EACCES"]);
                before.assert_unchanged();
                // The twin: rename across directories inside the root.
                let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
                for act in [
                    vec!["mkdir".to_owned(), path("d")],
                    vec!["create".to_owned(), path("f")],
                    vec!["rename".to_owned(), path("f"), path("d/f")],
                    vec!["truncate".to_owned(), path("d/f")],
                ] {
                    run(&session, &act).await.assert_done();
                }
                close(&session).await;
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn abi_5() {
        inner("boundary_downgrade::kernel::abi_5", |world| {
            world.block_on(async {
                assert_eq!(named(world).await, ["signals", "abstract-sockets"]);
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn abi_6() {
        inner("boundary_downgrade::kernel::abi_6", |world| {
            world.block_on(async {
                let session = open(session(world)).await;
                let enforcement = session.enforcement().await;
                let Some(Standing::Kept { layers }) = enforcement.standing(Protection::Signals) else {
                    panic!("{enforcement}")
                };
                assert_eq!(*layers, [Layer::Scope]);
                let outside = world.outside_file();
                run(&session, &["truncate", outside.to_str().unwrap()]).await.assert_refused(&["EACCES"]);
                close(&session).await;
            });
        });
    }
}

cases! {
    /// The call does not exist: the kernel was built without Landlock, or a container profile hides it.
    fn c24_landlock_is_absent(_world: &World) {
        on(Kernel::Refuses(libc::ENOSYS), "kernel::without_landlock");
    }

    /// The call exists and is switched off: Landlock is not among the security modules of this boot.
    fn c24_landlock_is_off(_world: &World) {
        on(Kernel::Refuses(libc::EOPNOTSUPP), "kernel::without_landlock");
    }

    /// A container profile that answers EPERM.
    fn c24_landlock_is_forbidden(_world: &World) {
        on(Kernel::Refuses(libc::EPERM), "kernel::without_landlock");
    }

    /// Linux 5.13 (ABI 1) cannot let a file move between directories, 5.19 (ABI 2) not refuse `truncate`.
    fn c24_landlock_is_too_old(_world: &World) {
        requires!(Need::Landlock, "emulates an older version");
        on(Kernel::Version(1), "kernel::without_landlock");
        on(Kernel::Version(2), "kernel::below_abi_3");
    }

    /// Linux 6.2 (ABI 3) keeps content; 6.10 (ABI 5) keeps devices; signals want 6.12 (ABI 6).
    fn c24_landlock_keeps_a_part(_world: &World) {
        requires!(Need::LandlockAbi6, "emulates an older version");
        on(Kernel::Version(3), "kernel::abi_3");
        on(Kernel::Version(5), "kernel::abi_5");
    }

    /// The twin: the same emulation of a version that has all.
    fn c24_landlock_keeps_all(_world: &World) {
        requires!(Need::LandlockAbi6, "emulates an older version");
        on(Kernel::Version(6), "kernel::abi_6");
    }
}
