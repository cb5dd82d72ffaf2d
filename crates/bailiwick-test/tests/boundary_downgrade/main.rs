//! C24: a kernel that lacks Landlock, or parts of it, is found out. Nothing degrades in silence.
//!
//! The kernels are emulated: the test runs itself again under a filter that answers
//! `landlock_create_ruleset` as such a kernel would. For an older version, another thread reads what is
//! asked for and refuses what that version did not know.

#![cfg(test)]

mod sys;

use std::time::Duration;

use bailiwick::{Error, ErrorKind, Field, Layer, Limit, Protection, Resource, Session, Standing};
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
    protections(&error).into_iter().map(str::to_owned).collect()
}

/// What a refusal names as not kept.
#[track_caller]
fn protections(error: &Error) -> Vec<&str> {
    let list = error.field("protections").and_then(|field| field.as_list()).unwrap();
    list.iter().map(|name| name.as_text().unwrap()).collect()
}

/// The twin: all of it inside the root, with a rename across directories.
async fn works_inside(session: &Session, world: &World) {
    let root = world.write_root();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    for act in [
        vec!["mkdir".to_owned(), path("d")],
        vec!["create".to_owned(), path("f")],
        vec!["rename".to_owned(), path("f"), path("d/f")],
        vec!["truncate".to_owned(), path("d/f")],
        vec!["open-append".to_owned(), path("d/f")],
    ] {
        run(session, &act).await.assert_done();
    }
}

/// No session opens, whatever is accepted, and the refusal names the cause.
async fn assert_unsupported(world: &World, cause: &str) -> Error {
    let mut builder = session(world);
    // Not even accepting everything opens a session without the layer that content stands on.
    for protection in Protection::ALL {
        builder = builder.accept(*protection);
    }
    let error = refused(builder.open().await, ErrorKind::PlatformUnsupported);
    assert_eq!(error.code(), "ERR_BAILIWICK_PLATFORM_UNSUPPORTED");
    assert_eq!(error.field("needs").and_then(|field| field.as_text()), Some("Landlock"));
    assert_eq!(error.field("cause").and_then(|field| field.as_text()), Some(cause), "{}", error.report());
    nothing_ran(world);
    error
}

/// The versions that an error names: what the kernel reports, and what is needed.
#[track_caller]
fn assert_versions(error: &Error, reported: Option<i64>) {
    assert_eq!(error.field("reported_abi"), reported.map(Field::Number).as_ref(), "{}", error.report());
    assert_eq!(error.field("needed_abi"), Some(&Field::Number(2)));
}

#[track_caller]
fn refused_rights(error: &Error) -> Vec<&str> {
    let list = error.field("refused_rights").and_then(|field| field.as_list()).unwrap_or_default();
    list.iter().map(|name| name.as_text().unwrap()).collect()
}

/// Whether this machine says, apart from Landlock's own calls, that Landlock is in force.
fn is_listed() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|list| list.contains("landlock"))
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
    fn blocked() {
        inner("boundary_downgrade::kernel::blocked", |world| {
            world.block_on(async {
                let error = assert_unsupported(world, "blocked").await;
                assert_versions(&error, None);
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn hidden() {
        inner("boundary_downgrade::kernel::hidden", |world| {
            world.block_on(async {
                // Nothing of Landlock answers. What else the kernel shows of itself tells that it is there all the same.
                let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
                let is_shown = is_listed() || types.windows(18).any(|part| part == b"landlock_hierarchy");
                let cause = match (is_shown, types.is_empty()) {
                    (true, _) => "blocked",
                    (false, true) => "not-built-in-or-blocked",
                    (false, false) => "not-built-in",
                };
                assert_versions(&assert_unsupported(world, cause).await, None);
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn off() {
        inner("boundary_downgrade::kernel::off", |world| {
            world.block_on(async {
                let cause = if is_listed() { "blocked" } else { "disabled-at-boot" };
                assert_versions(&assert_unsupported(world, cause).await, None);
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn abi_1() {
        inner("boundary_downgrade::kernel::abi_1", |world| {
            world.block_on(async {
                assert_versions(&assert_unsupported(world, "too-old").await, Some(1));
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn abi_2() {
        inner("boundary_downgrade::kernel::abi_2", |world| {
            world.block_on(async {
                // By itself it does not keep content, and is told as the cause.
                let error = refused(session(world).open().await, ErrorKind::ProtectionUnavailable);
                nothing_ran(world);
                assert_eq!(protections(&error), ["content", "devices", "signals", "abstract-sockets"]);
                assert_eq!(error.field("cause").and_then(|field| field.as_text()), Some("too-old"));
                assert_eq!(error.field("reported_abi"), Some(&Field::Number(2)));
                assert!(error.hints().iter().any(|hint| hint.contains("ABI 3 keeps `content`")));
                // With a mount view it does: nothing but requests to devices is left.
                let places = Places::of(world);
                let error = refused(places.session().open().await, ErrorKind::ProtectionUnavailable);
                nothing_ran(world);
                assert_eq!(protections(&error), ["devices"]);
                let session = open(places.session().accept(Protection::Devices)).await;
                let enforcement = session.enforcement().await;
                let layers = vec![Layer::Landlock, Layer::Seccomp, Layer::MountView];
                let standing = enforcement.standing(Protection::Content);
                assert_eq!(standing, Some(&Standing::Kept { layers }), "{enforcement}");
                let outside = world.outside_file();
                let before = Snapshot::of(&outside);
                for act in [&["truncate"][..], &["open-append"]] {
                    let act = [act, &[outside.to_str().unwrap()]].concat();
                    run(&session, &act).await.assert_refused(&["EROFS"]);
                }
                before.assert_unchanged();
                works_inside(&session, world).await;
                close(&session).await;
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn claims_more() {
        inner("boundary_downgrade::kernel::claims_more", |world| {
            world.block_on(async {
                let error = refused(session(world).open().await, ErrorKind::ProtectionUnavailable);
                nothing_ran(world);
                assert_eq!(protections(&error), ["content", "devices"]);
                assert_eq!(error.field("cause").and_then(|field| field.as_text()), Some("claims-more"));
                assert_eq!(error.field("reported_abi"), Some(&Field::Number(6)));
                assert_eq!(refused_rights(&error), ["truncate"]);
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn claims_devices() {
        inner("boundary_downgrade::kernel::claims_devices", |world| {
            world.block_on(async {
                // Falls back as far as content is kept, and no further: what is lost is named, and why.
                let error = refused(session(world).open().await, ErrorKind::ProtectionUnavailable);
                assert_eq!(error.field("protection").and_then(|field| field.as_text()), Some("devices"));
                assert_eq!(error.field("cause").and_then(|field| field.as_text()), Some("claims-more"));
                assert_eq!(error.field("reported_abi"), Some(&Field::Number(6)));
                assert_eq!(refused_rights(&error), ["ioctl-dev"]);
                nothing_ran(world);
                let session = open(session(world).accept(Protection::Devices)).await;
                let outside = world.outside_file();
                run(&session, &["truncate", outside.to_str().unwrap()]).await.assert_refused(&["EACCES"]);
                close(&session).await;
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn claims_scopes() {
        inner("boundary_downgrade::kernel::claims_scopes", |world| {
            world.block_on(async {
                let error = refused(session(world).open().await, ErrorKind::ProtectionUnavailable);
                assert_eq!(error.field("cause").and_then(|field| field.as_text()), Some("claims-more"));
                assert_eq!(refused_rights(&error), ["scope-signal"]);
                nothing_ran(world);
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn no_entry() {
        inner("boundary_downgrade::kernel::no_entry", |world| {
            world.block_on(async {
                let error = assert_unsupported(world, "cannot-restrict").await;
                assert_eq!(
                    error.field("errno"),
                    Some(&Field::Number(libc::EPERM.into())),
                    "{}",
                    error.report()
                );
                assert_eq!(error.field("step").and_then(|field| field.as_text()), Some("Landlock"));
            });
        });
    }

    #[test]
    #[ignore = "runs on an emulated kernel"]
    fn fakes_limits() {
        inner("boundary_downgrade::kernel::fakes_limits", |world| {
            world.block_on(async {
                // That a limit was set is not believed: it is read back.
                let asked = Limit::of(Resource::OpenFiles, 77);
                let error = refused(session(world).limit(asked).open().await, ErrorKind::LimitNotKept);
                assert_ne!(error.field("found_hard"), error.field("hard"), "{}", error.report());
                nothing_ran(world);
            });
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
                let outside = world.outside_file();
                let before = Snapshot::of(&outside);
                run(&session, &["truncate", outside.to_str().unwrap()]).await.assert_refused(&["EACCES"]);
                before.assert_unchanged();
                works_inside(&session, world).await;
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
        on(Kernel::RefusesAll(libc::ENOSYS), "kernel::hidden");
    }

    /// The call exists and is switched off: Landlock is not among the security modules of this boot.
    fn c24_landlock_is_off(_world: &World) {
        on(Kernel::RefusesAll(libc::EOPNOTSUPP), "kernel::off");
    }

    /// A container profile that answers EPERM.
    fn c24_landlock_is_forbidden(_world: &World) {
        on(Kernel::RefusesAll(libc::EPERM), "kernel::blocked");
    }

    /// A container profile that says ENOSYS of the one call, of a kernel that has the others.
    fn c24_landlock_is_half_hidden(_world: &World) {
        requires!(Need::Landlock, "looks behind a filter");
        on(Kernel::Refuses(libc::ENOSYS), "kernel::blocked");
    }

    /// Everything is there, and may not be entered.
    fn c24_landlock_cannot_be_entered(_world: &World) {
        requires!(Need::Landlock, "refuses the last step");
        on(Kernel::RefusesEntry(libc::EPERM), "kernel::no_entry");
    }

    /// C92: a version that lacks what belongs to it. A right that content needs, one that devices need, a scope.
    fn c92_kernel_claims_more(_world: &World) {
        const TRUNCATE: u64 = 1 << 14;
        const IOCTL_DEV: u64 = 1 << 15;
        const SIGNAL: u64 = 1 << 1;
        requires!(Need::LandlockAbi6, "emulates a version with holes");
        let claims = |lacks_files, lacks_scopes| Kernel::Claims { version: 6, lacks_files, lacks_scopes };
        on(claims(TRUNCATE, 0), "kernel::claims_more");
        on(claims(IOCTL_DEV, 0), "kernel::claims_devices");
        on(claims(0, SIGNAL), "kernel::claims_scopes");
        // The twin lacks nothing.
        on(claims(0, 0), "kernel::abi_6");
    }

    /// A kernel, or a filter before it, that says yes to a limit and sets none.
    fn limits_are_not_believed(_world: &World) {
        requires!(Need::LandlockAbi6, "opens a session but for this");
        on(Kernel::FakesLimits, "kernel::fakes_limits");
    }

    /// Linux 5.13 (ABI 1) cannot let a file move between directories, 5.19 (ABI 2) not refuse `truncate`: that takes a mount
    /// view.
    fn c24_landlock_is_too_old(_world: &World) {
        requires!(Need::Landlock, "emulates an older version");
        on(Kernel::Version(1), "kernel::abi_1");
        on(Kernel::Version(2), "kernel::abi_2");
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
