//! `bailiwick explain`.

use std::path::PathBuf;

use bailiwick_test::{Listing, World, cases};

use crate::invoke::{Outcome, bailiwick, below, home, outcome};

fn explain(world: &World, options: &[&str]) -> Outcome {
    outcome(bailiwick(world).arg("explain").args(options))
}

cases! {
    fn it_answers_in_words(world: &World) {
        let (root, protected) = (world.write_root(), world.secret());
        let (root, around) = (root.to_str().unwrap(), world.path().to_str().unwrap());
        let before = Listing::of(world.path());
        let granted = explain(world, &["--write-root", root, "--protect", protected.to_str().unwrap()]);
        assert_eq!((granted.code(), granted.stderr.as_str()), (0, ""), "{granted:?}");
        for words in [
            &format!("write root 0 `{root}`: granted"),
            "(store)",
            "(host-executable)",
            "(caller)",
            "inode",
            "would be granted",
        ] {
            assert!(granted.text().contains(words), "{words}: {granted:?}");
        }
        // Twin: around the protected object.
        let refused = explain(world, &["--write-root", around, "--protect", protected.to_str().unwrap()]);
        assert_eq!(refused.code(), 125);
        for words in [
            "refused",
            "around",
            "they meet in inode",
            "code: ERR_BAILIWICK_ROOT_OVERLAP",
            "hint: ",
            "--protect",
            "would be refused",
        ] {
            assert!(refused.text().contains(words), "{words}: {refused:?}");
        }
        assert!(!granted.text().contains('\u{1b}') && !refused.text().contains('\u{1b}'));
        home(world);
        assert_eq!(below(&home(world)), Vec::<PathBuf>::new());
        let added: Vec<_> = below(world.path()).into_iter().filter(|path| path.starts_with("home")).collect();
        assert_eq!(added, [PathBuf::from("home")]);
        drop(before);
    }

    fn it_answers_in_json_of_one_shape(world: &World) {
        home(world);
        let before = Listing::of(world.path());
        let (root, inner) = (world.write_root(), world.write_root().join("inner"));
        let _exists_already = std::fs::create_dir(&inner);
        let before = {
            drop(before);
            Listing::of(world.path())
        };
        let options =
            ["--json", "--write-root", root.to_str().unwrap(), "--write-root", inner.to_str().unwrap()];
        let answer = explain(world, &options);
        let document = answer.document();
        assert_eq!((answer.code(), &document["granted"]), (0, &true.into()), "{answer:?}");
        let roots = document["roots"].as_array().unwrap();
        assert_eq!(
            (&roots[0]["decision"], &roots[1]["decision"]),
            (&"granted".into(), &serde_json::json!({"covered": 0}))
        );
        assert_eq!((&roots[0]["given"], &roots[0]["index"]), (&root.to_str().unwrap().into(), &0.into()));
        let comparisons = roots[0]["comparisons"].as_array().unwrap();
        let kinds: Vec<_> = comparisons.iter().map(|one| one["protected_kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["store", "host-executable"]);
        assert!(comparisons.iter().all(|one| one["relation"].is_null() && one["fact"]["apart"].is_object()));

        let refused = explain(
            world,
            &["--json", "--write-root", "/", "--write-root", "W", "--write-root", root.to_str().unwrap()],
        );
        let document = refused.document();
        assert_eq!((refused.code(), &document["granted"]), (125, &false.into()));
        let roots = document["roots"].as_array().unwrap();
        let code = |index: usize| roots[index]["refusals"][0]["code"].clone();
        assert_eq!(
            (code(0), code(1)),
            ("ERR_BAILIWICK_ROOT_FORBIDDEN".into(), "ERR_BAILIWICK_ROOT_INVALID".into())
        );
        // Every root is judged, whatever the others are.
        assert_eq!(roots[2]["decision"], "granted");
        assert!(roots[1]["refusals"][0]["hints"].to_string().contains("--write-root"), "{document}");

        // What cannot be asked has the same shape.
        for options in [
            &["--json", "--protect", "/no/such"][..],
            &["--json", "--accept", "all"],
            &["--json", "--env", "UNSET"],
        ] {
            let document = explain(world, options).document();
            assert_eq!(document["granted"], false);
            assert!(document["roots"].is_array() && document["notes"].is_array());
            assert!(
                document["refusals"][0]["code"].as_str().unwrap().starts_with("ERR_BAILIWICK_"),
                "{document}"
            );
        }
        before.assert_unchanged();
    }

    /// What `run` would refuse is refused here, by the same code, and nothing else is.
    fn it_agrees_with_run(world: &World) {
        let around = world.path().to_str().unwrap().to_owned();
        let root = world.write_root().to_str().unwrap().to_owned();
        let store = world.private().to_str().unwrap().to_owned();
        for options in [
            vec!["--write-root", root.as_str()],
            vec!["--write-root", around.as_str()],
            vec!["--store", store.as_str(), "--write-root", root.as_str()],
            vec!["--store", store.as_str(), "--write-root", around.as_str()],
            vec!["--store", store.as_str(), "--write-root", store.as_str()],
            vec!["--store", "relative"],
            vec!["--env", "TMPDIR=/t"],
            vec!["--env", "=x"],
            vec!["--limit", "core=0", "--limit", "core=0"],
            vec![],
        ] {
            let asked = explain(world, &[&["--json"][..], &options].concat());
            let ran = outcome(
                bailiwick(world).arg("run").args(&options).args(crate::invoke::GAPS).args(["--", "true"]),
            );
            assert_eq!(asked.code(), ran.code(), "{options:?}: {asked:?} {ran:?}");
            if asked.code() == 125 {
                let document = asked.document();
                let mut refusals = document["roots"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|root| &root["refusals"])
                    .chain([&document["refusals"]]);
                let first = refusals.find_map(|list| list.get(0)).unwrap();
                assert!(ran.stderr.contains(first["code"].as_str().unwrap()), "{options:?}: {first} {ran:?}");
            }
        }
    }

    /// A file name must not write to the terminal of whoever reads the answer.
    fn names_are_escaped(world: &World) {
        let evil = world.write_root().join("\u{1b}[2Jwrite root 0 granted\n");
        std::fs::create_dir(&evil).unwrap();
        let answer = explain(world, &["--write-root", evil.to_str().unwrap()]);
        assert_eq!(answer.code(), 0, "{answer:?}");
        assert!(!answer.text().contains('\u{1b}') && answer.text().contains("\\u{1b}[2J"), "{answer:?}");
    }
}
