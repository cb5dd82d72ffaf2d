//! The library that holds the SDK, where another program has loaded it: C19, and the protected kind `addon`.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick_test::act::{Scopes, naively};
use bailiwick_test::{Need, Places, python3, requires, root_cases};
use serde_json::Value;

/// Where cargo puts the library: beside the directory of this test program.
fn built() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let library = beside.ancestors().nth(2).unwrap().join("examples/libaddon.so");
    assert!(
        library.is_file(),
        "the library is not built: `cargo build -p bailiwick-test --example addon` builds it"
    );
    library
}

/// Has Python load the library and ask about a session.
fn explain(python: &Path, library: &Path, places: &Places, root: &Path, then: &str) -> Value {
    let script = format!(
        "import ctypes, os, sys; lib = ctypes.CDLL(sys.argv[1]); {then}; lib.bailiwick_test_explain()"
    );
    let output = Command::new(python)
        .args(["-c", &script])
        .arg(library)
        .env_clear()
        .env("BAILIWICK_TEST_STORE", places.private())
        .env("BAILIWICK_TEST_ROOT", root)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn kinds(verdict: &Value) -> Vec<&str> {
    let comparisons = verdict["roots"][0]["comparisons"].as_array().unwrap();
    comparisons.iter().map(|one| one["protected_kind"].as_str().unwrap()).collect()
}

#[track_caller]
fn assert_refused<'a>(verdict: &'a Value, library: &Path, relation: &str) -> &'a Value {
    assert_eq!(verdict["granted"], false, "{verdict}");
    let refusal = &verdict["roots"][0]["refusals"][0];
    assert_eq!(refusal["code"], "ERR_BAILIWICK_ROOT_OVERLAP", "{verdict}");
    let fields = &refusal["fields"];
    assert_eq!(
        (&fields["protected_kind"], &fields["relation"]),
        (&"addon".into(), &relation.into()),
        "{verdict}"
    );
    assert_eq!(fields["protected"], library.to_str().unwrap());
    refusal
}

root_cases! {
    /// C19: the library lies in the root, as in `node_modules`; under another name; beside the root; and removed.
    fn c19_addon(world: &World) {
        requires!(Need::Python3, "loads a library");
        requires!(Need::Landlock);
        let places = Places::of(world);
        let python = python3().unwrap();
        let (root, beside) = (places.write_root(), places.outside());
        let modules = root.join("node_modules/agent");
        let source = root.join("src");
        fs::create_dir_all(&modules).unwrap();
        fs::create_dir(&source).unwrap();
        let copy = |to: &Path| {
            fs::copy(built(), to).unwrap();
            fs::set_permissions(to, fs::Permissions::from_mode(0o644)).unwrap();
            to.to_owned()
        };
        let library = copy(&modules.join("addon.node"));
        let ask = |root: &Path| explain(&python, &library, &places, root, "pass");

        let verdict = ask(&root);
        assert_eq!(kinds(&verdict), ["store", "host-executable", "addon"]);
        let refusal = assert_refused(&verdict, &library, "around");
        assert!(refusal["hints"][0].as_str().unwrap().contains("outside of"), "{refusal}");
        assert_refused(&ask(&modules), &library, "around");
        // The harm: a command writes into the code of its own host.
        naively(&[&root], Scopes::None, &["open-append", library.to_str().unwrap()]).assert_done();
        // The ways out: a directory that does not hold it, and the package elsewhere.
        assert_eq!(ask(&source)["granted"], true);
        let elsewhere = copy(&beside.join("addon.node"));
        let verdict = explain(&python, &elsewhere, &places, &root, "pass");
        assert_eq!((&verdict["granted"], kinds(&verdict)), (&true.into(), vec!["store", "host-executable", "addon"]));
        // pnpm and bun link package files: one file, and another name of it in the root.
        fs::hard_link(&elsewhere, root.join("linked.node")).unwrap();
        let verdict = explain(&python, &elsewhere, &places, &root, "pass");
        let refusal = assert_refused(&verdict, &elsewhere, "alias");
        assert_eq!(refusal["fields"]["other_name"], root.join("linked.node").to_str().unwrap());
        assert_eq!(explain(&python, &elsewhere, &places, &source, "pass")["granted"], true);
        // Loaded by the name in the root, the file is the same one.
        let verdict = explain(&python, &root.join("linked.node"), &places, &beside, "pass");
        assert_refused(&verdict, &root.join("linked.node"), "alias");
        fs::remove_file(root.join("linked.node")).unwrap();
        assert_eq!(explain(&python, &elsewhere, &places, &root, "pass")["granted"], true);
        // An upgrade has removed it while it is loaded: nothing of it is left to protect, and that is said.
        let verdict = explain(&python, &library, &places, &root, "os.remove(sys.argv[1])");
        assert_eq!((&verdict["granted"], kinds(&verdict)), (&true.into(), vec!["store", "host-executable"]));
        assert_eq!(verdict["notes"].as_array().unwrap().len(), 1, "{verdict}");
        // One that was put in its place is another file.
        let library = copy(&modules.join("addon.node"));
        let replace = "os.rename(sys.argv[1], sys.argv[1] + '.old'); open(sys.argv[1], 'w').close()";
        let verdict = explain(&python, &library, &places, &source, replace);
        assert_eq!(verdict["granted"], true, "{verdict}");
        let old = modules.join("addon.node.old");
        assert!(old.is_file());
    }
}
