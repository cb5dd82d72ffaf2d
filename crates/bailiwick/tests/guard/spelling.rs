//! However a directory is spelled, it is the same directory and gets the same answer.

use std::path::{Path, PathBuf};

use bailiwick::ErrorKind;
use bailiwick::guard::{self, Decision};
use bailiwick_test::cases;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{dir, link, protected_at, roots};

/// One step from a directory to the next part of a path, spelled in some way.
#[derive(Debug, Clone, Copy)]
enum Step {
    Plain,
    Slashes(u8),
    Dots(u8),
    /// Into a neighbour and back.
    ThereAndBack,
    /// By a link to the part, relative or absolute.
    Link {
        absolute: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Plain),
        (1..4_u8).prop_map(Step::Slashes),
        (1..4_u8).prop_map(Step::Dots),
        Just(Step::ThereAndBack),
        any::<bool>().prop_map(|absolute| Step::Link { absolute }),
    ]
}

/// Makes in `above` what the spellings of `part` need.
fn prepare(above: &Path, part: &str) {
    dir(above.join("neighbour"));
    link(part, above.join(format!("{part}.relative")));
    link(above.join(part), above.join(format!("{part}.absolute")));
}

fn spell(base: &Path, parts: &[&str], steps: &[Step], end: &str) -> PathBuf {
    let mut spelled = base.to_str().unwrap().to_owned();
    for (part, step) in parts.iter().zip(steps) {
        match step {
            Step::Plain => spelled.push('/'),
            Step::Slashes(count) => spelled.push_str(&"/".repeat(usize::from(*count) + 1)),
            Step::Dots(count) => spelled.push_str(&format!("/{}", "./".repeat(usize::from(*count)))),
            Step::ThereAndBack => spelled.push_str("/neighbour/../"),
            Step::Link { .. } => spelled.push('/'),
        }
        spelled.push_str(part);
        match step {
            Step::Link { absolute: true } => spelled.push_str(".absolute"),
            Step::Link { absolute: false } => spelled.push_str(".relative"),
            _ => {}
        }
    }
    spelled.push_str(end);
    spelled.into()
}

cases! {
    fn spelling_changes_neither_identity_nor_verdict(world: &World) {
        let parts = ["a", "b", "c"];
        for top in ["W", "P"] {
            let mut above = world.path().join(top);
            dir(above.join("a/b/c"));
            for part in parts {
                prepare(&above, part);
                above.push(part);
            }
        }
        let protected = protected_at(world.private().join("a/b/c"));
        let plain = world.write_root().join("a/b/c");
        let expected = guard::explain(&roots(&[&plain]), &protected);
        let strategy = (
            proptest::collection::vec(step(), parts.len()),
            prop_oneof![Just(""), Just("/"), Just("//"), Just("/."), Just("/./"), Just("/../c")],
        );
        TestRunner::new(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })
            .run(&strategy, |(steps, end)| {
                let root = spell(&world.write_root(), &parts, &steps, end);
                let verdict = guard::explain(&roots(&[&root]), &protected);
                let (got, want) = (&verdict.roots[0], &expected.roots[0]);
                prop_assert!(verdict.granted, "{:?}", got.refusals);
                prop_assert_eq!(got.decision, Decision::Granted);
                prop_assert_eq!(&got.given, &root);
                prop_assert_eq!(&got.canonical, &want.canonical);
                prop_assert_eq!(got.object, want.object);
                prop_assert_eq!(&got.comparisons, &want.comparisons);

                let grant = guard::issue(&roots(&[&root, &plain]), protected.clone()).unwrap();
                prop_assert_eq!(grant.roots().len(), 1);

                let root = spell(&world.private(), &parts, &steps, end);
                let refused = guard::issue(&roots(&[&root]), protected.clone()).unwrap_err();
                prop_assert_eq!(refused.kind(), ErrorKind::RootOverlap);
                prop_assert_eq!(crate::text(&refused, "relation"), "same");

                // The store spelled so, the root plain.
                let refused = guard::issue(&roots(&[world.private().join("a/b/c")]), protected_at(&root)).unwrap_err();
                prop_assert_eq!(refused.kind(), ErrorKind::RootOverlap);
                guard::issue(&roots(&[&plain]), protected_at(&root)).unwrap();
                Ok(())
            })
            .unwrap();
    }
}
