//! Files below the roots behave as files do (C44, C46), and nothing crosses the border of the roots.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bailiwick::Session;
use bailiwick_test::act::{self, Report};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::{
    Listing, Need, Places, Snapshot, cases, fixture, image_without_namespaces, requires, tool,
};

/// Tries one act in a session.
async fn act<S: AsRef<std::ffi::OsStr>>(session: &Session, words: &[S]) -> Report {
    let words = words.iter().map(|word| word.as_ref().to_owned());
    let output = session.command(tool("act")).args(words).output().await.unwrap();
    done(&output);
    Report::parse(&*output.stdout)
}

cases! {
    /// C44: rename and link across directories of a root, and between two roots.
    async fn c44_across_directories_and_roots(world: &World) {
        let places = Places::of(world);
        let (root, second) = (places.write_root(), places.join("W2"));
        fs::create_dir(&second).unwrap();
        let session = open(places.session().write_root(&second)._worker_image(image_without_namespaces())).await;
        done(&sh(&session, "mkdir s s/deep && echo a > a && echo b > b && mkdir d && echo in > d/f").await);
        act(&session, &[Path::new("rename"), &root.join("a"), &root.join("s/a")]).await.assert_done();
        act(&session, &[Path::new("rename"), &root.join("s/a"), &root.join("s/deep/a")]).await.assert_done();
        act(&session, &[Path::new("link"), &root.join("s/deep/a"), &root.join("linked")]).await.assert_done();
        fixture::assert_hard_links(root.join("s/deep/a"), root.join("linked"));
        // Between roots: the temp-file-plus-rename habit, a whole directory, a link, and back.
        act(&session, &[Path::new("rename"), &root.join("b"), &second.join("b")]).await.assert_done();
        act(&session, &[Path::new("rename"), &root.join("d"), &second.join("d")]).await.assert_done();
        act(&session, &[Path::new("link"), &root.join("linked"), &second.join("linked")]).await.assert_done();
        fixture::assert_hard_links(root.join("linked"), second.join("linked"));
        act(&session, &[Path::new("rename-exchange"), &second.join("d"), &root.join("s")]).await.assert_done();
        assert_eq!(fs::read(root.join("s/f")).unwrap(), b"in\n");
        assert_eq!(fs::read(second.join("d/deep/a")).unwrap(), b"a\n");
        let temporary = session.temporary_dir().to_owned();
        done(&sh(&session, "echo t > $TMPDIR/t").await);
        act(&session, &[Path::new("rename"), &temporary.join("t"), &root.join("t")]).await.assert_done();
        assert_eq!(fs::read(root.join("t")).unwrap(), b"t\n");
        close(&session).await;
    }

    /// C44 in a mount view, where each root is a mount: within one all is as ever, between two the kernel answers as
    /// between file systems, and what moves files then copies them.
    async fn c44_between_roots_of_a_view(world: &World) {
        let places = Places::of(world);
        let (root, second) = (places.write_root(), places.join("W2"));
        fs::create_dir(&second).unwrap();
        let session = open(places.session().write_root(&second)).await;
        done(&sh(&session, "mkdir s s/deep && echo a > a && echo b > b && mkdir d && echo in > d/f").await);
        act(&session, &[Path::new("rename"), &root.join("a"), &root.join("s/a")]).await.assert_done();
        act(&session, &[Path::new("rename"), &root.join("s/a"), &root.join("s/deep/a")]).await.assert_done();
        act(&session, &[Path::new("link"), &root.join("s/deep/a"), &root.join("linked")]).await.assert_done();
        fixture::assert_hard_links(root.join("s/deep/a"), root.join("linked"));
        for (name, from, to) in [("rename", "b", "b"), ("link", "linked", "linked"), ("rename-exchange", "s", "d")] {
            let answer = act(&session, &[Path::new(name), &root.join(from), &second.join(to)]).await;
            answer.assert_refused(&["EXDEV", "ENOENT"]);
        }
        let script = format!("mv b d {0} && echo t > $TMPDIR/t && mv $TMPDIR/t . && cat {0}/d/f t", second.display());
        assert_eq!(done(&sh(&session, &script).await), "in\nt\n");
        assert_eq!(fs::read(second.join("b")).unwrap(), b"b\n");
        close(&session).await;
    }

    /// C44: nothing moves or is linked into a root from outside, nor out of it, by whichever name.
    async fn c44_across_the_border(world: &World) {
        let places = Places::of(world);
        let (root, outside) = (places.write_root(), places.outside());
        fs::write(root.join("own"), "own").unwrap();
        fs::create_dir(root.join("dir")).unwrap();
        fs::create_dir(outside.join("dir")).unwrap();
        fs::write(outside.join("over"), "over").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("way")).unwrap();
        let (inside, before) = (Snapshot::of(root.join("own")), Listing::of(&outside));
        let session = places.open().await;
        let pairs = [
            (outside.join("f"), root.join("f")),
            (root.join("own"), outside.join("own")),
            (root.join("own"), outside.join("over")),
            (root.join("own"), root.join("way/own")),
            (root.join("way/f"), root.join("f")),
            (outside.join("dir"), root.join("dir2")),
            (root.join("dir"), outside.join("dir2")),
            (places.secret(), root.join("db")),
        ];
        for (from, to) in &pairs {
            let moved = act(&session, &[Path::new("rename"), from, to]).await;
            moved.assert_refused(&["EXDEV", "EACCES", "EROFS", "ENOENT"]);
            if from.is_file() && !to.exists() {
                let linked = act(&session, &[Path::new("link"), from, to]).await;
                linked.assert_refused(&["EXDEV", "EACCES", "EROFS", "ENOENT"]);
            }
            assert!(!to.exists() || to.ends_with("over"), "{} appeared", to.display());
        }
        let exchanged = act(&session, &[Path::new("rename-exchange"), &root.join("own"), &outside.join("f")]).await;
        exchanged.assert_refused(&["EXDEV", "EACCES", "EROFS"]);
        before.assert_unchanged();
        inside.assert_unchanged();
        close(&session).await;
        // The control: each of these is possible for this user without a session.
        for (from, to) in &pairs[..5] {
            act::bare(&[Path::new("rename"), from, to]).assert_done();
            act::bare(&[Path::new("rename"), to, from]).assert_done();
            fs::write(outside.join("over"), "over").unwrap();
        }
    }

    /// C44: the incremental builds of a compiler move directories about.
    async fn c44_cargo_build(world: &World, seconds = 300) {
        requires!(Need::CargoForThisUser, "builds an empty crate");
        let places = Places::of(world);
        let toolchain = bailiwick_test::Toolchain::find().unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", toolchain.programs().display());
        let session = open(places.session().env("PATH", path)).await;
        let script = "set -e
            cargo --version >/dev/null
            cargo init --quiet --lib --vcs none --name empty pkg && cd pkg
            cargo build --offline --quiet
            echo '// changed' >> src/lib.rs
            cargo build --offline --quiet
            cargo test --offline --quiet -- --color never | grep '^test result'
            ls target/debug/libempty.rlib";
        let output = sh(&session, script).await;
        let text = done(&output);
        assert!(text.contains("test result: ok. 1 passed"), "{text}");
        assert!(places.write_root().join("pkg/target/debug/libempty.rlib").exists());
        close(&session).await;
    }

    /// C46: directories are renamed, removed, replaced and exchanged below the root.
    async fn c46_directories(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let script = "set -e
            mkdir a && mv a b && rmdir b
            mkdir -p tree/one/two/three && echo x > tree/one/two/three/f && ln -s /etc tree/link && rm -rf tree
            mkdir from to && echo x > from/f && mv -T from to && cat to/f
            mkdir -p x/y && mv x/y y && mv y x/z && ls x
            ln -s to l && mv -T l to2 && readlink to2
            find . -mindepth 1 -depth -exec rm -r {} + && ls -A";
        assert_eq!(done(&sh(&session, script).await), "x\nz\nto\n");
        assert_eq!(fs::read_dir(places.write_root()).unwrap().count(), 0);
        done(&sh(&session, "mkdir one two && echo 1 > one/f && echo 2 > two/f").await);
        let root = places.write_root();
        act(&session, &[Path::new("rename-exchange"), &root.join("one"), &root.join("two")]).await.assert_done();
        assert_eq!(fs::read(root.join("one/f")).unwrap(), b"2\n");
        close(&session).await;
    }

    /// C46: git swaps a file for a directory and back when it changes branches.
    async fn c46_git_checkout(world: &World) {
        requires!(Need::Git, "changes branches");
        let places = Places::of(world);
        let session = open(places.session()
            .env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@example.org")
            .env("GIT_COMMITTER_NAME", "a").env("GIT_COMMITTER_EMAIL", "a@example.org")).await;
        let script = "set -e
            git init -q -b main . && echo file > thing && git add . && git commit -qm file
            git checkout -q -b other && git rm -q thing && mkdir thing && echo dir > thing/inner && git add . && git commit -qm dir
            for i in 1 2 3; do git checkout -q main && cat thing && git checkout -q other && cat thing/inner; done
            git status --porcelain";
        assert_eq!(done(&sh(&session, script).await), "file\ndir\n".repeat(3));
        close(&session).await;
    }

    /// C46: the root itself can be neither removed nor renamed nor replaced, and stays usable.
    async fn c46_the_root_itself(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        let identity = fs::metadata(&root).unwrap().ino();
        fs::create_dir(places.join("empty")).unwrap();
        let before = Listing::of(places.path());
        let session = open(places.session()).await;
        for (act_name, from, to) in [
            ("rename", root.clone(), places.join("moved")),
            ("rename", root.clone(), places.join("empty")),
            ("rename", places.join("empty"), root.clone()),
            ("rename-exchange", root.clone(), places.join("empty")),
        ] {
            let answer = act(&session, &[Path::new(act_name), &from, &to]).await;
            answer.assert_refused(&["EXDEV", "EACCES", "EROFS", "EBUSY"]);
        }
        act(&session, &[Path::new("rmdir"), &root]).await.assert_refused(&["EACCES", "EROFS", "EBUSY"]);
        let output = sh(&session, &format!("echo x > x; rm -rf {}; ls -A", root.display())).await;
        // Emptied it is: that is what a root may be.
        assert_eq!(output.stdout.text(), "");
        assert_eq!(fs::metadata(&root).unwrap().ino(), identity);
        done(&sh(&session, "echo again > again && rm again").await);
        close(&session).await;
        // But for what the session has put in its store.
        let differences = before.differences(&Listing::of(places.path()));
        assert!(differences.iter().all(|line| line.starts_with(places.private().to_str().unwrap())), "{differences:?}");
        // The twin: a directory one level below, where its parent is in the root.
        fs::create_dir_all(root.join("below")).unwrap();
        let session = places.open().await;
        act(&session, &[Path::new("rename"), &root.join("below"), &root.join("moved")]).await.assert_done();
        act(&session, &[Path::new("rmdir"), &root.join("moved")]).await.assert_done();
        close(&session).await;
    }
}
