//! Roots against what is protected, by identity.

use std::fs;

use bailiwick::guard::{self, Decision, Fact, ProtectedSet, Relation};
use bailiwick::store::{StoreDir, StorePlace};
use bailiwick::{ErrorKind, Policy};
use bailiwick_test::{Listing, World, cases};

use super::{assert_overlap, dir, granted, issue, link, number, path, protected_at, refusal, roots, text};

cases! {
    /// C01: a root around the store is refused with both objects and the relation, and nothing is made.
    fn c01_root_is_an_ancestor_of_the_store(world: &World) {
        let before = Listing::of(world.path());
        let error = refusal(world, &[world.path()]);
        assert_overlap(&error, world.path(), world.private(), "around");
        assert_eq!(number(&error, "root_index"), 0);
        assert_eq!(text(&error, "protected_kind"), "store");
        let meta = fs::metadata(world.path()).unwrap();
        assert_eq!(text(&error, "inode"), std::os::unix::fs::MetadataExt::ino(&meta).to_string());

        let error = refusal(world, &["/"]);
        assert_eq!(error.kind(), ErrorKind::RootForbidden);
        assert_eq!(path(&error, "root"), std::path::Path::new("/"));
        assert_eq!(path(&error, "protected"), world.private());
        assert_eq!(text(&error, "relation"), "around");
        assert_eq!(Listing::of(world.path()), before);

        // The twin is the store's neighbour; the hint ("directories below it that do not hold the store") works.
        assert_eq!(granted(&issue(world, &[world.write_root()]).unwrap()), [world.write_root()]);
        // The other way of the hint: the store outside of the root.
        let elsewhere = World::new();
        guard::issue(&roots(&[world.path()]), protected_at(elsewhere.private())).unwrap();
    }

    /// C01: a store that does not exist yet is protected at its place.
    fn c01_root_around_a_store_that_is_not_there_yet(world: &World) {
        let place = world.outside().join("new-store");
        let error = guard::issue(&roots(&[world.outside()]), protected_at(&place)).unwrap_err();
        assert_overlap(&error, world.outside(), &place, "around");
        assert!(!place.exists());
        guard::issue(&roots(&[world.write_root()]), protected_at(&place)).unwrap();
    }

    /// C02: inside the store, at any depth, also when it is made later; the remedy names nothing in the store.
    fn c02_root_inside_the_store(world: &World) {
        let protected = protected_at(world.private());
        let deep = dir(world.private().join("sub/deeper"));
        for root in [world.private().join("sub"), deep] {
            let error = guard::issue(&roots(&[&root]), protected.clone()).unwrap_err();
            assert_overlap(&error, &root, world.private(), "inside");
            assert!(!error.hints()[0].contains(root.to_str().unwrap()), "{:?}", error.hints());
            assert!(!error.hints()[0].contains(&format!("{}/", world.private().display())), "{:?}", error.hints());
        }
        let error = refusal(world, &[world.private()]);
        assert_overlap(&error, world.private(), world.private(), "same");
        let twin = dir(world.write_root().join("sub/deeper"));
        guard::issue(&roots(&[twin]), protected).unwrap();
    }

    /// C03: names that begin alike are no relation, in either direction.
    fn c03_neighbours_by_prefix(world: &World) {
        let (extra, longer) = (dir(world.path().join("P-extra")), dir(world.path().join("Pq")));
        assert_eq!(granted(&issue(world, &[&extra, &longer]).unwrap()), [extra.clone(), longer]);
        let inverse = guard::issue(&roots(&[world.private()]), protected_at(&extra)).unwrap();
        assert_eq!(granted(&inverse), [world.private()]);
        // The twin: the very name.
        let error = guard::issue(&roots(&[&extra]), protected_at(&extra)).unwrap_err();
        assert_overlap(&error, &extra, &extra, "same");
    }

    /// C04: every spelling of the store is refused with one code, every spelling of a root is one root.
    fn c04_spellings(world: &World) {
        let (p, w) = (world.private(), world.write_root());
        let (p, w, base) = (p.to_str().unwrap(), w.to_str().unwrap(), world.path().to_str().unwrap());
        let spell = |name: &str, target: &str| {
            vec![
                format!("{target}/"),
                format!("{target}//"),
                format!("/{target}"),
                format!("{base}/./{name}"),
                format!("{base}/X/../{name}"),
                format!("{target}/."),
                format!("{base}/X/../..//{}//{name}//.", base.rsplit('/').next().unwrap()),
            ]
        };
        for spelling in spell("P", p) {
            assert_overlap(&refusal(world, &[&spelling]), &spelling, p, "same");
        }
        let all = spell("W", w);
        let grant = issue(world, &all).unwrap();
        assert_eq!(granted(&grant), [world.write_root()]);
        assert_eq!(grant.roots()[0].given(), std::path::Path::new(&all[0]));
    }

    /// C05: a home that is reached by a link and by its target: all four ways open, its parent in neither.
    fn c05_home_behind_a_link(world: &World) {
        let home = dir(world.path().join("var/home/u"));
        let (_, w) = (dir(home.join("P")), dir(home.join("W")));
        let spelled = [home.clone(), link(world.path().join("var/home"), world.path().join("home")).join("u")];
        for store in &spelled {
            for root in &spelled {
                let protected = protected_at(store.join("P"));
                let grant = guard::issue(&roots(&[root.join("W")]), protected.clone()).unwrap();
                assert_eq!(granted(&grant), std::slice::from_ref(&w));
                let error = guard::issue(&roots(&[root]), protected).unwrap_err();
                assert_overlap(&error, root, home.join("P"), "around");
                assert_eq!(path(&error, "canonical"), home);
                assert_eq!(path(&error, "protected_given"), store.join("P"));
            }
        }
    }

    /// C06: what is missing is never replaced by its parent, nor skipped.
    fn c06_missing_root_and_linked_parent(world: &World) {
        let linked = link(world.private(), world.path().join("W2"));
        let error = refusal(world, &[linked.join("new/dir")]);
        assert_eq!(error.kind(), ErrorKind::RootNotFound);
        assert!(!world.private().join("new").exists());

        let error = refusal(world, &[world.write_root(), world.path().join("nope")]);
        assert_eq!(error.kind(), ErrorKind::RootNotFound);
        assert_eq!((path(&error, "root"), number(&error, "root_index")), (world.path().join("nope").as_path(), 1));

        let nowhere = link("nothing", world.path().join("dangling"));
        assert_eq!(refusal(world, &[&nowhere]).kind(), ErrorKind::RootNotFound);
        assert_eq!(refusal(world, &[world.outside_file().join("x")]).kind(), ErrorKind::RootNotFound);

        // Twins: the same names once they are there, the link leading elsewhere.
        dir(world.path().join("nope"));
        dir(world.path().join("nothing"));
        issue(world, &[world.write_root(), world.path().join("nope"), nowhere]).unwrap();
        let error = refusal(world, &[&linked]);
        assert_overlap(&error, &linked, world.private(), "same");
    }

    /// A protected directory and a protected file of the caller, either way round, and the ways out that the
    /// refusal names.
    fn caller_protects(world: &World) {
        let inner = dir(world.write_root().join("build/.git"));
        fs::write(world.write_root().join("build/key"), "k").unwrap();
        for protect in [inner.clone(), world.write_root().join("build/key")] {
            let with = |root: &std::path::Path, protect: &[std::path::PathBuf]| {
                let policy = Policy { protect: protect.to_vec(), ..roots(&[root]) };
                let place = StorePlace::find(world.private()).unwrap();
                let set = ProtectedSet::around_place(&place).protect(&policy.protect).build().unwrap();
                guard::issue(&policy, set)
            };
            let protect = [protect];
            let error = with(&world.write_root(), &protect).unwrap_err();
            assert_overlap(&error, world.write_root(), &protect[0], "around");
            assert_eq!(text(&error, "protected_kind"), "caller");
            with(&dir(world.write_root().join("build/out")), &protect).unwrap();
            with(&world.write_root(), &[]).unwrap();
        }
        let set = ProtectedSet::around_place(&StorePlace::find(world.private()).unwrap())
            .protect(std::slice::from_ref(&inner))
            .build()
            .unwrap();
        let below = dir(inner.join("hooks"));
        assert_overlap(&guard::issue(&roots(&[&below]), set).unwrap_err(), &below, &inner, "inside");
    }

    /// A path to protect that cannot be protected refuses the set, by index.
    fn caller_protects_what_is_not_there(world: &World) {
        let build = |paths: &[std::path::PathBuf]| {
            ProtectedSet::around_place(&StorePlace::find(world.private()).unwrap()).protect(paths).build()
        };
        for (bad, kind) in [
            (world.path().join("nope"), ErrorKind::ProtectedNotFound),
            ("relative".into(), ErrorKind::ProtectedInvalid),
            ("".into(), ErrorKind::ProtectedInvalid),
            ("/proc/self/root/tmp".into(), ErrorKind::ProtectedInvalid),
        ] {
            let error = build(&[world.outside(), bad.clone()]).unwrap_err();
            assert_eq!((error.kind(), number(&error, "protected_index")), (kind, 1), "{error:?}");
            assert_eq!(path(&error, "protected"), bad);
        }
        build(&[world.outside(), world.outside_file()]).unwrap();
    }

    /// The open store protects itself and its runtime home, and every root is reported, not only the first.
    fn explain_reports_every_root(world: &World) {
        let store = StoreDir::open_or_create(world.private()).unwrap();
        let inner = dir(world.write_root().join("inner"));
        let run = world.private().join("run");
        let policy = roots(&[
            world.write_root(),
            inner,
            run.clone(),
            world.path().join("nope"),
            "relative".into(),
            world.path().to_owned(),
            world.write_root(),
        ]);
        let set = ProtectedSet::for_session(&store, &policy).unwrap();
        let verdict = guard::explain(&policy, &set);
        assert!(!verdict.granted);
        let decisions: Vec<_> = verdict.roots.iter().map(|root| root.decision).collect();
        let (covered, refused) = (Decision::Covered(0), Decision::Refused);
        assert_eq!(decisions, [Decision::Granted, covered, refused, refused, refused, refused, covered]);
        let codes: Vec<_> = verdict.roots.iter().map(|root| root.refusals.iter().map(|e| e.kind()).collect::<Vec<_>>()).collect();
        let overlap = ErrorKind::RootOverlap;
        assert_eq!(codes[2], [overlap, overlap], "inside the store, and the runtime home itself");
        assert_eq!((codes[3].as_slice(), codes[4].as_slice()), ([ErrorKind::RootNotFound].as_slice(), [ErrorKind::RootInvalid].as_slice()));
        assert_eq!(codes[5], [overlap, overlap]);

        // Every root that exists was compared with every protected object, and the fact is told.
        assert!(set.objects().len() >= 2);
        for root in verdict.roots.iter().filter(|root| root.object.is_some()) {
            assert_eq!(root.comparisons.len(), set.objects().len());
        }
        let first = &verdict.roots[0].comparisons[0];
        assert_eq!(first.protected, world.private());
        assert!(first.relation.is_none() && matches!(first.fact, Fact::Apart { above_root: 1.., above_protected: 1.. }));
        let inside = &verdict.roots[2].comparisons[0];
        assert!(inside.relation == Some(Relation::Inside) && matches!(&inside.fact, Fact::Meet(meeting) if meeting.levels == 1));

        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!(json["granted"], false);
        assert_eq!(json["roots"][2]["refusals"][0]["code"], "ERR_BAILIWICK_ROOT_OVERLAP");
        assert_eq!(json["roots"][1]["decision"]["covered"], 0);

        // `issue` gives the first of these.
        let error = guard::issue(&policy, set).unwrap_err();
        assert_overlap(&error, &run, world.private(), "inside");
        assert_eq!(number(&error, "root_index"), 2);
    }

    /// Roots in roots collapse into the outermost, whichever comes first.
    fn nested_and_double_roots_collapse(world: &World) {
        let deep = dir(world.write_root().join("a/b"));
        let orders = [
            [world.write_root(), deep.clone(), world.outside(), world.write_root()],
            [deep.clone(), world.outside(), world.write_root(), deep],
        ];
        for order in orders {
            let mut found = granted(&issue(world, &order).unwrap());
            found.sort();
            assert_eq!(found, [world.write_root(), world.outside()]);
        }
        assert!(issue::<&str>(world, &[]).unwrap().roots().is_empty());
    }

    /// Thousands of roots: nested ones cost no descriptor; too many side by side are refused by name.
    fn thousands_of_roots(world: &World) {
        let mut many = Vec::new();
        for outer in 0..50 {
            for inner in 0..60 {
                many.push(dir(world.write_root().join(format!("{outer}/{inner}"))));
            }
        }
        let mut nested = many.clone();
        nested.extend((0..50).map(|outer| world.write_root().join(outer.to_string())));
        nested.push(world.write_root());
        let (soft, hard) = crate::sys::open_files_limit();
        let (protected, outermost) = (protected_at(world.private()), [world.write_root()]);
        crate::sys::with_open_files_limit(hard.min(8192), || {
            assert_eq!(granted(&guard::issue(&roots(&nested), protected.clone()).unwrap()), outermost);
            let grant = guard::issue(&roots(&many), protected.clone()).unwrap();
            assert_eq!(grant.roots().len(), many.len());
            grant.recheck().unwrap();
        });
        // The outer root first: those inside it give their descriptors back at once.
        nested.reverse();
        crate::sys::with_open_files_limit(soft.min(256), || {
            assert_eq!(granted(&guard::issue(&roots(&nested), protected.clone()).unwrap()), outermost);
        });
        crate::sys::with_open_files_limit(soft.min(1024), || {
            let error = guard::issue(&roots(&many), protected.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyRoots);
            guard::issue(&roots(&many[..100]), protected.clone()).unwrap();
        });
    }
}
