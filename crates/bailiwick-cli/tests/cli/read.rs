//! What a command may read: `--read-root`, `--program-dir`, `--read-base`.

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick_test::{Need, cases, requires};
use serde_json::Value;

use crate::invoke::{Call, bailiwick, home, outcome};

fn entry<'a>(document: &'a Value, given: &str) -> &'a Value {
    let reads = document["reads"].as_array().unwrap();
    reads.iter().find(|read| read["given"] == given).unwrap_or_else(|| panic!("no {given}: {document}"))
}

cases! {
    fn one_root_limits_the_rest(world: &World) {
        requires!(Need::LandlockAbi6);
        fs::write(home(world).join(".secret"), "token").unwrap();
        let (outside, file) = (world.outside(), world.outside_file());
        let (outside, file) = (outside.to_str().unwrap(), file.to_str().unwrap());
        let secret = home(world).join(".secret");
        let read = format!("cat {file} 2>/dev/null; cat {} 2>/dev/null; ls / >/dev/null 2>&1 && echo listed", secret.display());
        // Twin of both: nothing is named, so everything is read.
        assert_eq!(Call::new(world, &["-q"]).script(&read).text(), "xtokenlisted\n");
        assert_eq!(Call::new(world, &["-q", "--read-base", "default"]).script(&read).text(), "");
        assert_eq!(Call::new(world, &["-q", "--read-root", outside]).script(&read).text(), "x");
        let both = ["-q", "--read-base", "default", "--read-base", file];
        assert_eq!(Call::new(world, &both).script(&read).text(), "x");
    }

    /// Tools that find a home and cannot read in it give up, so none is handed on.
    fn the_home_is_handed_on_where_it_can_be_read(world: &World) {
        requires!(Need::LandlockAbi6);
        let home = home(world);
        let told = |options: &[&str]| Call::new(world, options).script("echo $HOME; echo $TMPDIR").text();
        let lines = |text: String| text.lines().map(PathBuf::from).collect::<Vec<_>>();
        let limited = lines(told(&["-q", "--read-base", "default"]));
        assert_eq!(limited[0], limited[1]);
        assert_eq!(lines(told(&["-q"]))[0], home);
        let store = world.private();
        let asked = ["-q", "--store", store.to_str().unwrap(), "--read-root", home.to_str().unwrap(), "--env", "HOME"];
        assert_eq!(lines(told(&asked))[0], home);
    }

    fn refusals_name_the_option(world: &World) {
        let (link, missing) = (world.path().join("link"), world.path().join("missing"));
        std::os::unix::fs::symlink(world.outside(), &link).unwrap();
        let store = world.private();
        for (option, value, code, named) in [
            ("--read-root", link.as_path(), "READ_INVALID", "`--read-root` `"),
            ("--program-dir", missing.as_path(), "READ_INVALID", "`--program-dir`"),
            ("--read-root", Path::new("outside"), "READ_INVALID", "from here that is `--read-root`"),
            ("--read-root", Path::new("/proc"), "READ_FORBIDDEN", "`--read-root` `/proc`"),
            ("--read-base", Path::new("/"), "READ_OVERLAP", "`--read-base P`"),
            ("--read-root", store.as_path(), "READ_OVERLAP", "`--store D`"),
        ] {
            let options = ["--store", store.to_str().unwrap(), option, value.to_str().unwrap()];
            let refused = Call::new(world, &options).script("touch ran");
            refused.assert_refused(&format!("ERR_BAILIWICK_{code}"));
            assert!(refused.stderr.contains(named), "{named}: {refused:?}");
            assert!(!world.write_root().join("ran").exists() && !missing.exists());
            let explained = outcome(bailiwick(world).args(["explain", "--json"]).args(options));
            assert_eq!(explained.code(), 125, "{explained:?}");
            let document = explained.document();
            let read = entry(&document, value.to_str().unwrap());
            assert_eq!((&read["decision"], &read["refusals"][0]["code"]), (&"refused".into(), &format!("ERR_BAILIWICK_{code}").into()));
            assert!(read["refusals"][0]["hints"].to_string().contains(option), "{read}");
        }
    }

    fn a_program_that_cannot_be_read_is_named(world: &World) {
        requires!(Need::LandlockAbi6);
        let program = world.outside().join("true");
        fs::copy("/bin/true", &program).unwrap();
        let path = format!("PATH={}:/usr/bin:/bin", world.outside().display());
        let options = ["--read-base", "default", "--env", &path];
        fs::rename(&program, world.outside().join("only-here")).unwrap();
        let refused = Call::new(world, &options).end(&["only-here"]);
        refused.assert_refused("ERR_BAILIWICK_COMMAND_NOT_EXECUTABLE");
        let hint = format!("`--program-dir` `{}`", world.outside().display());
        assert!(refused.stderr.contains(&hint), "{refused:?}");
        let options = ["--program-dir", world.outside().to_str().unwrap(), "--env", &path].map(str::to_owned);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Call::new(world, &options).end(&["only-here"]).assert_exited(0);
    }

    fn explain_lists_what_would_be_read(world: &World) {
        let root = world.outside();
        let root = root.to_str().unwrap();
        let ask = |options: &[&str]| outcome(bailiwick(world).arg("explain").args(options));
        let everything = ask(&["--json"]).document();
        assert!(everything["reads"].is_null() && everything["granted"] == true, "{everything}");
        assert!(ask(&[]).text().contains("reads: what you may read"));

        let document = ask(&["--json", "--read-root", root]).document();
        let (named, usr) = (entry(&document, root), entry(&document, "/usr"));
        assert_eq!((&named["purpose"], &named["decision"], &named["canonical"]), (&"root".into(), &"readable".into(), &root.into()));
        assert_eq!((&usr["purpose"], &usr["decision"]), (&"base".into(), &"readable".into()));
        let words = ask(&["--read-root", root]).text();
        assert!(words.contains(&format!("read root 0 `{root}`: readable")) && words.contains("`/usr`, "), "{words}");
        let narrow = ask(&["--json", "--read-base", "/usr", "--read-base", "/no/such"]).document();
        assert_eq!(narrow["reads"].as_array().unwrap().len(), 2);
        assert_eq!(entry(&narrow, "/no/such")["decision"], "absent");
        assert_eq!(narrow["granted"], true);
    }
}
