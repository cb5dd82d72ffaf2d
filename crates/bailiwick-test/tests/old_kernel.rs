//! What only other kernels show: directories that fold case (ext4), shares without a cache (9p), roots that are another
//! object at each lookup (FUSE), and a Landlock and a mount table of years ago. Each test boots one kernel in an emulated machine, once for all cases.
//!
//! The old kernel's Landlock cannot refuse `truncate`, nor requests to devices: sessions that accept the latter open there
//! all the same, since a mount view keeps what is outside as it is.

#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;

use bailiwick::ErrorKind;
use bailiwick_test::machine::{self, Kernel};
use bailiwick_test::{Need, requires};
use serde_json::{Value, json};

/// Names that ext4 takes for one: case, accents composed and not, letters that fold across the border of ASCII, one
/// letter that folds to two, a letter that counts for nothing.
const SPELLINGS: [&str; 6] = ["ascii", "accent", "decomposed", "kelvin", "sharp-s", "ignorable"];

/// Layouts in which a command could reach the store, by relation and kind of alias.
const REACHED: [(&str, &str, Option<&str>); 7] = [
    ("same", "same", None),
    ("around", "around", None),
    ("around, above", "around", None),
    ("link", "alias", Some("hard-link")),
    ("overlay lower", "alias", Some("overlay-layer")),
    ("overlay upper", "alias", Some("overlay-layer")),
    ("overlay merged", "alias", Some("overlay-merged")),
];

/// Layouts that differ from those in one fact.
const APART: [&str; 6] =
    ["twin name", "twin bind", "twin plain", "twin plain bind", "twin link", "twin overlay"];

/// In how many ways the guard is asked.
const EVERY_WAY: [&str; 4] = ["explain", "issue", "open", "replace"];

/// What a machine said, scene by scene.
struct Scenes {
    kernel: Kernel,
    scenes: BTreeMap<String, Value>,
}

impl Scenes {
    fn of(kernel: Kernel) -> Self {
        // The machine makes the share writable for everybody, so it lies where nobody else comes.
        let work = tempfile::tempdir().unwrap();
        let share = work.path().join("share");
        std::fs::create_dir(&share).unwrap();
        let said = machine::boot(kernel, work.path(), &share);
        assert_only(&share, &["P", "W", "sub"]);
        // Trying whether a root can be written leaves nothing.
        assert_only(&share.join("W"), &["sub"]);
        let mut scenes = BTreeMap::new();
        for line in said.lines {
            let name = line["scene"].as_str().unwrap().to_owned();
            assert!(scenes.insert(name, line).is_none(), "a scene was played twice");
        }
        println!("{kernel:?}: {} scenes in {:?}", scenes.len(), said.took);
        Self { kernel, scenes }
    }

    /// Takes a scene away, so that none is left that nobody looked at.
    fn take(&mut self, name: &str) -> Value {
        self.scenes
            .remove(name)
            .unwrap_or_else(|| panic!("the scene `{name}` was not played: {:?}", self.scenes))
    }

    /// The guard refuses in every way in which it was asked.
    #[track_caller]
    fn assert_refused(&self, scene: &Value, ways: &[&str], kind: ErrorKind) {
        for way in ways {
            assert_refused(&scene[way], kind);
        }
    }

    /// The naive wrapper writes the store's file through the root, and the guard refuses the root.
    #[track_caller]
    fn assert_reached(&mut self, name: &str, ways: &[&str], relation: &str, alias: Option<&str>) {
        let scene = self.take(name);
        assert_eq!(scene["naive"], json!({ "done": true, "errno": "", "changed": true }), "{scene}");
        self.assert_refused(&scene, ways, ErrorKind::RootOverlap);
        for way in ways {
            let refusal = &scene[way];
            assert_eq!(
                (&refusal["relation"], refusal["alias"].as_str()),
                (&json!(relation), alias),
                "{way}: {scene}"
            );
        }
    }

    /// Neither the naive wrapper nor a session reaches the store's file through the root, and the root is granted.
    #[track_caller]
    fn assert_apart(&mut self, name: &str) {
        let scene = self.take(name);
        assert_eq!(scene["naive"], json!({ "done": false, "errno": "EACCES", "changed": false }), "{scene}");
        for way in ["explain", "issue"] {
            assert_eq!(scene[way]["granted"], true, "{scene}");
        }
        for way in ["open", "replace"] {
            let used = json!({
                "granted": true,
                "made": "", "made_exists": true,
                "done": false, "errno": "EACCES", "changed": false,
            });
            assert_eq!(scene[way], used, "{way}: {scene}");
        }
    }

    /// All that is true on both kernels.
    fn assert_all(mut self) {
        for name in SPELLINGS {
            assert_eq!(self.take(&format!("fixture {name}"))["same"], true, "{name}");
            let ways: &[&str] = if name == "ascii" { &EVERY_WAY } else { &["explain", "issue"] };
            self.assert_reached(&format!("inside {name}"), ways, "inside", None);
            self.assert_reached(&format!("part {name}"), ways, "alias", Some("mount"));
            // The mount table has another spelling than the disk.
            let (shown, end) =
                (self.take(&format!("shown {name}")), format!("{name} is spelled as on the disk"));
            let store = shown["store"].as_str().unwrap().strip_prefix("/m").unwrap().to_owned();
            assert_ne!(shown["whole"], store, "{end}");
            assert_ne!(shown["part"], format!("{store}/sub"), "{end}");
            // What the mount shows is the very directory of the store.
            self.assert_reached(&format!("whole {name}"), ways, "inside", None);
        }
        self.assert_files();
        assert_eq!(self.take("fixture plain")["same"], false);
        for (name, relation, alias) in REACHED {
            self.assert_reached(name, &EVERY_WAY, relation, alias);
        }
        for name in APART {
            self.assert_apart(name);
        }
        let later = self.take("later");
        assert_eq!(
            (&later["before"]["granted"], &later["after"]["granted"]),
            (&json!(true), &json!(true)),
            "{later}"
        );
        assert_refused(&later["during"], ErrorKind::RootOverlap);
        self.assert_shares();
        self.assert_lookups();
        self.assert_groups();
        self.assert_confined();
        // What the host forbids anyway takes nothing away from a session.
        let hardened = self.take("hardened");
        assert!(hardened["set"].as_array().unwrap().contains(&json!("yama/ptrace_scope")), "{hardened}");
        assert_eq!(hardened["open"]["made"], made(), "{hardened}");
        assert!(self.scenes.is_empty(), "nobody looked at {:?}", self.scenes);
    }

    /// Files that are protected by one spelling and mounted in the root by another.
    fn assert_files(&mut self) {
        for (name, granted) in [("secret", false), ("database", false), ("beside", false), ("twin", true)] {
            let scene = self.take(&format!("file {name}"));
            assert_eq!(scene["naive"]["changed"], true, "{scene}");
            if granted {
                assert_eq!(scene["explain"]["granted"], true, "{scene}");
            } else {
                assert_refused(&scene["explain"], ErrorKind::RootOverlap);
                assert_eq!(scene["explain"]["alias"], "mount", "{scene}");
            }
        }
    }

    /// Where a directory is another object at each lookup, holding it open does not help, and the session is refused:
    /// at open and at replace, with the grant before left in force. The twin keeps its object.
    fn assert_lookups(&mut self) {
        for (name, kept) in [("lookups lost", false), ("lookups kept", true)] {
            let scene = self.take(name);
            let (opened, replaced) = (&scene["open"]["opened"], &scene["open"]["replaced"]);
            assert_eq!(scene["naive"]["exists"], kept, "{scene}");
            if kept {
                let created = json!({ "granted": true, "done": true, "errno": "", "exists": true });
                assert_eq!((opened, replaced), (&created, &created), "{scene}");
            } else {
                for refusal in [opened, &replaced["refusal"]] {
                    if self.kernel == Kernel::New {
                        assert_refused(refusal, ErrorKind::RootNotEnforceable);
                        assert_eq!(refusal["fs_type"], "fuse.sshfs", "{scene}");
                    } else {
                        // No view can be made of it, and nothing else keeps content there.
                        assert_refused(refusal, ErrorKind::ProtectionUnavailable);
                        assert_eq!(refusal["protections"], json!(["content"]), "{scene}");
                    }
                }
                assert_eq!(replaced["still"], made(), "{scene}");
            }
        }
    }

    /// Inside the root mode and content change; beside it the mount answers, whatever Landlock can refuse.
    fn assert_confined(&mut self) {
        let scene = self.take("confined");
        let inside = json!({ "chmod": "", "truncate": "", "mode": 0o600, "content": "" });
        let beside = json!({ "chmod": "EROFS", "truncate": "EROFS", "mode": 0o644, "content": "content" });
        let told = (&scene["open"]["/m/confined/file"], &scene["open"]["/m/beside"]);
        assert_eq!(told, (&inside, &beside), "{scene}");
    }

    /// A session has a group for itself wherever its host may make one, with what it asked for; nowhere else, and then the
    /// refusal says why. No group outlives its session, nor its host.
    fn assert_groups(&mut self) {
        let refused = [
            ("none mounted", "no-cgroup-v2"),
            ("internal", "internal-processes"),
            ("not delegated", "not-delegated"),
            ("not entered", "not-entered"),
        ];
        for (name, cause) in refused {
            let scene = self.take(&format!("groups {name}"));
            assert_refused(&scene["host"], ErrorKind::SessionLimitUnavailable);
            let told = (&scene["host"]["cause"], &scene["host"]["limit"], &scene["left"]);
            assert_eq!(told, (&json!(cause), &json!("memory-max"), &json!([])), "{scene}");
        }
        for name in ["topmost", "named", "killed", "delegated", "delegated, killed", "internal, accepted"] {
            let scene = self.take(&format!("groups {name}"));
            let host = &scene["host"];
            assert_eq!(scene["left"], json!([]), "{scene}");
            let limit = |name: &str, value: u64, read_back: u64| {
                let (state, group) = ("kept", &host["group"]);
                json!({ "limit": name, "value": value, "state": state, "read_back": read_back, "group": group })
            };
            let kept = json!([limit("memory-max", (32 << 20) + 1, 32 << 20), limit("processes-max", 20, 20)]);
            if name == "internal, accepted" {
                let states =
                    [&host["limits"][0], &host["limits"][1]].map(|limit| (&limit["state"], &limit["cause"]));
                assert_eq!(states, [(&json!("not-kept"), &json!("internal-processes")); 2], "{scene}");
                continue;
            }
            assert_eq!(host["limits"], kept, "{scene}");
            if name.contains("killed") {
                assert_eq!((&host["was_there"], &host["gone"]), (&json!(true), &json!(true)), "{scene}");
                continue;
            }
            let files = json!({ "memory.max": "33554432", "memory.swap.max": "0", "pids.max": "20" });
            assert_eq!((&host["files"], &host["holds_host"]), (&files, &json!(false)), "{scene}");
            // The world: what fits ran and what does not was ended; at the limit of processes nothing starts, and
            // something does once there is room.
            for (fact, value) in
                [("fits", true), ("beyond", false), ("refused", true), ("again", true), ("gone", true)]
            {
                assert_eq!(host[fact], value, "{fact}: {scene}");
            }
            assert!((4..20).contains(&host["ran"].as_u64().unwrap()), "{scene}");
        }
    }

    /// Without a cache, the rule of the naive wrapper lies on an inode that no later lookup finds: all is refused. A
    /// session holds its roots open, so that there is nothing to look up anew: all works. Never is one opened in which
    /// every write fails.
    fn assert_shares(&mut self) {
        let (lost, kept) = (
            json!({ "done": false, "errno": "EACCES", "exists": false }),
            json!({ "done": true, "errno": "", "exists": true }),
        );
        for (name, naive) in [("share", lost), ("share cached", kept.clone()), ("share whole", kept)] {
            let scene = self.take(name);
            assert_eq!(scene["naive"], naive, "{scene}");
            let made = made();
            assert_eq!(scene["open"], json!({ "granted": true, "made": made, "again": made }), "{scene}");
        }
        // Names and numbers tell nothing there, so a store and a root on one share cannot be told apart.
        for (name, naive) in [("store on the share", false), ("store on the share, twice mounted", true)] {
            let scene = self.take(name);
            assert_eq!(scene["naive"]["changed"], naive, "{scene}");
            self.assert_refused(&scene, &["explain", "issue", "open"], ErrorKind::RootUnprovable);
        }
        let twin = self.take("twin share");
        assert_eq!(twin["naive"]["changed"], false, "{twin}");
        assert_eq!(
            (&twin["explain"]["granted"], &twin["issue"]["granted"]),
            (&json!(true), &json!(true)),
            "{twin}"
        );
    }
}

/// What a session says that wrote in its root and below.
fn made() -> Value {
    let made = |name| json!({ "name": name, "done": true, "errno": "", "exists": true });
    json!([made("new"), made("sub/new")])
}

#[track_caller]
fn assert_refused(refusal: &Value, kind: ErrorKind) {
    let seen = (&refusal["granted"], &refusal["code"], &refusal["ran"]);
    assert_eq!(seen, (&json!(false), &json!(kind.code()), &json!("Nothing")), "{refusal}");
}

#[track_caller]
fn assert_only(directory: &Path, expected: &[&str]) {
    let list = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, expected, "in {}", directory.display());
}

/// The guard on a kernel without system calls for the mount table and without handles that tell layers apart.
#[test]
fn old_kernel() {
    requires!(Need::OtherKernels, "boots a kernel whose Landlock is old");
    let mut scenes = Scenes::of(Kernel::Old);
    let facts = scenes.take("facts");
    for fact in ["truncate", "scopes", "statmount", "identifying_handles"] {
        assert_eq!(facts[fact], false, "{fact}");
    }
    scenes.assert_all();
}

/// Sessions on file systems that this machine's own kernel does not have.
#[test]
fn new_kernel() {
    requires!(Need::OtherKernels, "boots a kernel that folds case");
    let mut scenes = Scenes::of(Kernel::New);
    let facts = scenes.take("facts");
    for fact in ["truncate", "scopes", "statmount", "identifying_handles"] {
        assert_eq!(facts[fact], true, "{fact}");
    }
    scenes.assert_all();
}
