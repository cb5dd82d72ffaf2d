//! A worker that lacks a layer is found out: the session is refused, by the name of everything that the
//! layer keeps, before anything runs.

#![cfg(test)]

use bailiwick::{ErrorKind, Layer, Protection, Standing, TestImage};
use bailiwick_test::boundary::{accepting_all, session};
use bailiwick_test::places::{close, done, entries, open, refused, sh};
use bailiwick_test::{Listing, Places, World, case, cases, image_without_layers, plain_image, tool};

/// What each layer alone keeps. What another layer keeps as well is not named when one is missing.
fn kept_by(layer: Layer) -> &'static [&'static str] {
    match layer {
        Layer::Landlock => &["content", "devices", "terminals"],
        Layer::Scope => &["signals", "abstract-sockets"],
        Layer::Seccomp => {
            &["content", "limits", "network", "shared-memory", "privileges", "kernel-interfaces", "terminals"]
        }
        // A plain user has none to lose, so that nothing is missing.
        Layer::Capabilities if case::is_root() => &["privileges", "host-controls"],
        Layer::Hygiene => &["descriptors"],
        _ => &[],
    }
}

const LAYERS: [Layer; 5] =
    [Layer::Landlock, Layer::Scope, Layer::Seccomp, Layer::Capabilities, Layer::Hygiene];

/// Opens under the default policy, and returns the protections that the refusal names.
async fn named_without(world: &World, image: TestImage) -> Vec<String> {
    let places = Places::of(world);
    let opened = session(world)._worker_image(image).open().await;
    let error = refused(opened, ErrorKind::ProtectionUnavailable);
    assert_eq!(error.code(), "ERR_BAILIWICK_PROTECTION_UNAVAILABLE");
    places.assert_nothing_left();
    assert!(entries(&places.write_root()).is_empty(), "something ran");
    let list = |field| error.field(field).and_then(|field| field.as_list()).unwrap();
    let names: Vec<String> =
        list("protections").iter().map(|name| name.as_text().unwrap().to_owned()).collect();
    assert_eq!(list("causes").len(), names.len());
    assert_eq!(
        error.field("protection").and_then(|field| field.as_text()),
        names.first().map(String::as_str)
    );
    // Each gap can be accepted by its name.
    for name in &names {
        assert!(Protection::from_name(name).is_some(), "{name}");
        assert!(error.hints().iter().any(|hint| hint.contains(&format!("`{name}`"))), "{}", error.report());
    }
    names
}

cases! {
    /// One layer missing: exactly what it keeps is named, nothing ran, nothing is left.
    async fn each_missing_layer_refuses(world: &World) {
        let outside = [Listing::of(world.outside()), Listing::of(world.private())];
        for layer in LAYERS {
            let expected = kept_by(layer);
            if expected.is_empty() {
                let session = open(session(world)._worker_image(plain_image(layer))).await;
                assert_eq!(done(&sh(&session, "echo ran").await), "ran\n");
                close(&session).await;
                continue;
            }
            assert_eq!(named_without(world, plain_image(layer)).await, expected, "without {}", layer.name());
        }
        outside[0].assert_unchanged();
        assert_eq!(std::fs::read_to_string(world.secret()).unwrap(), "s");
    }

    /// The twin: with every layer the session opens, on the very store that the others were refused.
    async fn every_layer_opens(world: &World) {
        for layer in LAYERS {
            drop(session(world)._worker_image(plain_image(layer)).open().await);
        }
        let session = open(session(world)).await;
        let enforcement = session.enforcement().await;
        for kept in enforcement.protections() {
            let not_kept = [
                Protection::Metadata,
                Protection::NamedSockets,
                Protection::Processes,
                Protection::HiddenState,
            ];
            assert_eq!(
                enforcement.keeps(kept.protection),
                !not_kept.contains(&kept.protection),
                "{enforcement}"
            );
        }
        assert_eq!(done(&sh(&session, "echo ran > f && cat f").await), "ran\n");
        close(&session).await;
        Places::of(world).assert_nothing_left();
    }

    /// All layers missing: all is named but what the keeper keeps.
    async fn no_layer_refuses_everything(world: &World) {
        let mut expected: Vec<&str> = Protection::ALL
            .iter()
            .filter(|protection| protection.required_by_default())
            .filter(|protection| {
                !matches!(
                    protection,
                    Protection::Metadata | Protection::NamedSockets | Protection::Settlement
                )
            })
            .map(|protection| protection.name())
            .collect();
        if !case::is_root() {
            // The host refuses a plain user by itself.
            expected.retain(|name| *name != "host-controls");
        }
        assert_eq!(named_without(world, image_without_layers()).await, expected);
    }

    /// A gap is opened by its own name only: with one name fewer the session is refused.
    async fn every_gap_must_be_accepted(world: &World) {
        for layer in LAYERS {
            for left_out in kept_by(layer) {
                let mut builder = session(world)._worker_image(plain_image(layer));
                for name in kept_by(layer).iter().filter(|name| *name != left_out) {
                    builder = builder.accept(Protection::from_name(name).unwrap());
                }
                let error = refused(builder.open().await, ErrorKind::ProtectionUnavailable);
                let named = error.field("protections").and_then(|field| field.as_list()).unwrap();
                assert_eq!(named.len(), 1, "{}", error.report());
                assert_eq!(named[0].as_text(), Some(*left_out));
            }
            let builder = session(world)._worker_image(plain_image(layer));
            let names = kept_by(layer).iter().map(|name| Protection::from_name(name).unwrap());
            let session = open(names.fold(builder, |builder, name| builder.accept(name))).await;
            // What is accepted is told all the same.
            let enforcement = session.enforcement().await;
            for name in kept_by(layer) {
                let standing = enforcement.standing(Protection::from_name(name).unwrap());
                assert!(matches!(standing, Some(Standing::NotKept { accepted: true, .. })), "{enforcement}");
            }
            close(&session).await;
        }
    }

    /// Trying what is forbidden changes nothing for good, also where it happens: what was found stays
    /// found when launchers are made again, and commands are the user that they should be.
    async fn probes_leave_no_trace(world: &World) {
        let places = Places::of(world);
        let us = rustix::process::geteuid().as_raw().to_string();
        let images = LAYERS.map(|layer| (layer.name(), plain_image(layer)));
        for (name, image) in images.into_iter().chain([("none", image_without_layers())]) {
            let session = open(accepting_all(&places, name)._worker_image(image)).await;
            let sentinel = places.join(format!("store-{name}/run"));
            assert_eq!(entries(&sentinel), [sentinel.join("sentinel")], "without {name}");
            let namespaces =
                "readlink /proc/self/ns/user /proc/self/ns/net /proc/self/ns/mnt /proc/self/ns/ipc";
            let ours = std::process::Command::new("sh").args(["-c", namespaces]).output().unwrap();
            assert_eq!(done(&sh(&session, namespaces).await).as_bytes(), ours.stdout, "without {name}");
            // Without `scope` this would reach the machinery of other sessions: by name it reaches those.
            let launchers = places.machinery().into_iter().filter(|process| process.name == "bailiwick-lnch");
            for launcher in launchers {
                let act = [tool("act").into(), "kill".into(), launcher.pid.to_string().into(), "9".into()];
                let [program, arguments @ ..]: [std::ffi::OsString; 4] = act;
                session.command(program).args(arguments).output().await.unwrap();
            }
            for _ in 0..3 {
                assert_eq!(done(&sh(&session, "id -u").await).trim(), us, "without {name}");
            }
            close(&session).await;
        }
        places.assert_nothing_left();
    }
}
