//! Help, and arguments that do not follow the grammar. Its words are looked at loosely: they are for people.

use bailiwick_test::cases;

use crate::invoke::{bailiwick, outcome};

cases! {
    fn help_is_an_answer(world: &World) {
        for (args, words) in [
            (&["--help"][..], &["doctor", "explain", "run", "--accept metadata"][..]),
            (&["help", "run"], &["--write-root"]),
            (
                &["run", "--help"],
                &[
                    "Exit status",
                    "125",
                    "128+N",
                    "What is not protected",
                    "terminal",
                    "--json-status",
                    "TMPDIR",
                    "NO_COLOR",
                    "Examples",
                ],
            ),
            (&["explain", "--help"], &["Exit status", "125", "--json"]),
            (&["doctor", "--help"], &["Exit status", "125", "another host"]),
            (&["run", "-h"], &["--store", "--quiet"]),
            (&["--version"], &["bailiwick 0."]),
        ] {
            let shown = outcome(bailiwick(world).args(args));
            assert_eq!((shown.code(), shown.stderr.as_str()), (0, ""), "{args:?}");
            for word in words {
                assert!(shown.text().contains(word), "{word}: {}", shown.text());
            }
            assert!(!shown.text().contains('\u{1b}'));
        }
        let run = outcome(bailiwick(world).args(["run", "--help"])).text();
        for protection in bailiwick::Protection::ALL {
            assert!(run.contains(protection.name()), "{protection:?}");
        }
        for resource in bailiwick::Resource::ALL {
            assert!(run.contains(resource.name()), "{resource:?}");
        }
    }

    /// 2, the usual status, may be the command's own.
    fn everything_else_is_125(world: &World) {
        for args in [
            &[][..],
            &["--no-such"],
            &["no-such"],
            &["run"],
            &["run", "--"],
            &["run", "--no-such", "--", "true"],
            &["run", "--network", "maybe", "--", "true"],
            &["run", "--store", "/a", "--store", "/b", "--", "true"],
            &["explain", "--no-such"],
            &["explain", "--", "true"],
            &["doctor", "extra"],
        ] {
            let told = outcome(bailiwick(world).args(args));
            assert_eq!((told.code(), told.stdout.len()), (125, 0), "{args:?}: {told:?}");
            assert!(told.stderr.contains("code: ERR_BAILIWICK_CLI_USAGE; no command was run"), "{told:?}");
        }
    }
}
