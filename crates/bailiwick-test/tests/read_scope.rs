//! What commands may read, limited: nothing beside it is read, listed or executed, and ordinary tools work.

#![cfg(test)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bailiwick::{Error, ErrorKind, Field, Layer, Protection, Session, SessionBuilder, Standing};
use bailiwick_test::boundary::{Victim, accepting_all, run};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{
    Listing, Need, Places, cases, image_without_layers, image_without_namespaces, requires, tool,
};

/// A session with the root `W` that reads the base set and where its test program lies.
fn limited(places: &Places) -> SessionBuilder {
    places.session().read_root(programs())
}

/// As on this host, and as on one without namespaces.
fn both(builder: impl Fn() -> SessionBuilder) -> [SessionBuilder; 2] {
    [builder(), builder()._worker_image(image_without_namespaces())]
}

/// The directory of the test programs, by its canonical path.
fn programs() -> PathBuf {
    tool("act").parent().unwrap().canonicalize().unwrap()
}

fn file(path: impl Into<PathBuf>, content: &str) -> PathBuf {
    let path = path.into();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

fn field<'a>(error: &'a Error, name: &str) -> &'a Path {
    error.field(name).and_then(Field::as_path).unwrap_or_else(|| panic!("no `{name}`: {}", error.report()))
}

async fn assert_read(session: &Session, path: &Path, content: &str) {
    let report = run(session, &[OsStr::new("read"), path.as_os_str()]).await;
    report.assert_done();
    assert_eq!(report.value, content, "{}", path.display());
}

async fn assert_unreadable(session: &Session, path: &Path) {
    run(session, &[OsStr::new("read"), path.as_os_str()]).await.assert_refused(&["EACCES"]);
}

cases! {
    /// The twin differs in one root.
    async fn a_sibling_is_neither_read_nor_listed_nor_executed(world: &World) {
        let places = Places::of(world);
        let (sibling, program) = (file(world.outside().join("d/f"), "theirs"), world.outside().join("d/p"));
        fs::copy("/bin/true", &program).unwrap();
        let own = file(world.write_root().join("f"), "ours");
        let directory = sibling.parent().unwrap();
        let list = |directory: &Path| format!("ls {}", directory.display());

        for builder in both(|| limited(&places)) {
            let narrow = open(builder).await;
            assert_read(&narrow, &own, "ours").await;
            assert_unreadable(&narrow, &sibling).await;
            for unlisted in [directory, world.outside().as_path(), world.path(), Path::new("/tmp"), Path::new("/")] {
                let output = sh(&narrow, &list(unlisted)).await;
                assert!(!output.status.success() && output.stdout.text().is_empty(), "{}", unlisted.display());
            }
            let error = refused(narrow.command(&program).output().await, ErrorKind::CommandNotExecutable);
            assert_eq!(field(&error, "outside"), program);
            assert!(error.hints()[0].contains("read roots"), "{}", error.report());
            done(&sh(&narrow, "ls . && test -z \"$(ls -A $TMPDIR)\" && echo x > $TMPDIR/f && cat $TMPDIR/f").await);
            close(&narrow).await;
        }

        let wide = open(limited(&places).read_root(directory)).await;
        assert_read(&wide, &sibling, "theirs").await;
        assert_eq!(done(&sh(&wide, &list(directory)).await), "f\np\n");
        assert!(wide.command(&program).output().await.unwrap().status.success());
        // What is beside the root, and above it, stays closed.
        assert_unreadable(&wide, &world.outside_file()).await;
        assert!(!sh(&wide, &list(&world.outside())).await.status.success());
        // Nothing became writable.
        let before = Listing::of(world.outside());
        assert!(!sh(&wide, &format!("echo x > {0}/new; echo x > {0}/f; rm {0}/f", directory.display())).await.status.success());
        before.assert_unchanged();
        close(&wide).await;
    }

    /// The directory above two workspaces belongs to neither session.
    async fn sessions_on_sibling_directories(world: &World) {
        let places = Places::of(world);
        let session_of = |name: &str| {
            let (home, workspace) = (places.join(format!("{name}/home")), places.join(format!("{name}/project")));
            for directory in [&home, &workspace] {
                fs::create_dir_all(directory).unwrap();
                fs::write(directory.join("f"), name).unwrap();
            }
            Session::builder(places.join(format!("store-{name}")))
                .temporary_parent(places.temporary())
                .accept(Protection::Metadata)
                .accept(Protection::NamedSockets)
                .write_roots([&workspace, &home])
                .env("HOME", &home)
                .read_roots(Vec::<PathBuf>::new())
        };
        let (one, other) = (open(session_of("one")).await, open(session_of("other")).await);
        for (session, own, foreign) in [(&one, "one", "other"), (&other, "other", "one")] {
            let own_files = format!("cat f ~/f && echo {own} > new && echo {own} > ~/new && ls ~");
            assert_eq!(done(&sh(session, &own_files).await), format!("{own}{own}f\nnew\n"));
            let before = Listing::of(places.join(foreign));
            let top = world.path().display();
            for script in [
                format!("cat {top}/{foreign}/project/f"),
                format!("cat {top}/{foreign}/home/f"),
                format!("ls {top}/{foreign}/project"),
                format!("ls {top}/{foreign}"),
                format!("ls {top}/{own}"),
                format!("ls {top}"),
                format!("echo x > {top}/{own}/new"),
                format!("echo x > {top}/{foreign}/project/new"),
            ] {
                let output = sh(session, &script).await;
                assert!(!output.status.success() && output.stdout.text().is_empty(), "{own}: {script}");
            }
            before.assert_unchanged();
        }
        close(&one).await;
        close(&other).await;
    }

    /// A name is judged by where it leads, a second name of a file by where that name is.
    async fn links(world: &World) {
        let places = Places::of(world);
        let (root, outside) = (places.join("R"), world.outside_file());
        let own = file(root.join("own"), "own");
        symlink(&outside, root.join("out")).unwrap();
        symlink("own", root.join("in")).unwrap();
        fs::hard_link(&outside, root.join("linked")).unwrap();
        let session = open(limited(&places).read_root(&root)).await;
        assert_unreadable(&session, &root.join("out")).await;
        assert_read(&session, &root.join("in"), "own").await;
        // Whoever put it there made it part of the root.
        assert_read(&session, &root.join("linked"), "x").await;
        assert_unreadable(&session, &outside).await;
        // A command cannot put it there.
        let new = world.write_root().join("linked");
        let link = [OsStr::new("link"), outside.as_os_str(), new.as_os_str()];
        run(&session, &link).await.assert_refused(&["EXDEV", "EACCES", "EPERM"]);
        let renamed = world.write_root().join("renamed");
        let rename = [OsStr::new("rename"), own.as_os_str(), renamed.as_os_str()];
        run(&session, &rename).await.assert_refused(&["EXDEV", "EACCES", "EROFS"]);
        assert!(!new.exists() && !renamed.exists() && own.exists());
        close(&session).await;
    }

    /// Names of `/proc` can be listed, for shells; no file in it can be read, of whatever process.
    async fn proc_is_listed_and_not_read(world: &World) {
        let places = Places::of(world);
        let victim = Victim::asleep();
        for builder in both(|| limited(&places)) {
            let session = open(builder).await;
            for path in ["/proc/self/status", "/proc/self/maps", "/proc/self/environ", "/proc/version", "/proc/meminfo"] {
                assert_unreadable(&session, Path::new(path)).await;
            }
            for name in ["cmdline", "status", "environ", "cgroup"] {
                let path = format!("/proc/{}/{name}", victim.pid());
                run(&session, &["read", &path]).await.assert_refused(&["EACCES", "ENOENT"]);
            }
            let script = "ls /proc | grep -cx self; ls /proc/self/fd | grep -cx 1; ls /dev/fd/ | grep -cx 1; readlink /proc/self/exe | grep -c /";
            assert_eq!(done(&sh(&session, script).await), "1\n1\n1\n1\n");
            close(&session).await;
        }
        let everything = open(places.session()).await;
        done(&sh(&everything, "cat /proc/self/status /proc/version").await);
        close(&everything).await;
    }

    /// Of `/dev` the plain devices, and nothing is listed or made.
    async fn plain_devices_only(world: &World) {
        let places = Places::of(world);
        let session = open(limited(&places)).await;
        let script = "echo x > /dev/null && cat /dev/null && head -c 4 /dev/zero | od -An -tx1 && head -c 1 /dev/urandom >/dev/null";
        assert_eq!(done(&sh(&session, script).await), " 00 00 00 00\n");
        for script in ["ls /dev", "cat /dev/kmsg", "echo > /dev/new", "rm /dev/null", "mkdir /dev/d", "ln -s x /dev/l"] {
            assert!(!sh(&session, script).await.status.success(), "{script}");
        }
        assert!(Path::new("/dev/null").exists());
        close(&session).await;
    }

    /// What a command is told of does not depend on what it may read.
    async fn processes_keep_their_start_times(world: &World) {
        let places = Places::of(world);
        for builder in both(|| limited(&places)) {
            let session = open(builder).await;
            for script in ["exec sleep 60", "sleep 60 & wait"] {
                let mut child = session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap();
                let seen = bailiwick_test::process::start_time(child.id());
                assert_eq!(Some(child.start_time()), seen, "{script}");
                child.kill().await.unwrap();
                child.wait().await.unwrap();
            }
            for _ in 0..20 {
                let mut child = session.command("/bin/true").spawn().await.unwrap();
                assert!(child.start_time() > 0);
                child.settled().await.unwrap();
            }
            close(&session).await;
        }
        places.assert_nothing_left();
    }

    /// Private state is hidden by the limit alone, on every host; without Landlock the session says no.
    async fn private_state_is_hidden(world: &World) {
        let places = Places::of(world);
        for builder in both(|| limited(&places)) {
            let session = open(builder).await;
            let standing = session.enforcement().await.standing(Protection::HiddenState).cloned();
            assert!(matches!(standing, Some(Standing::Kept { ref layers }) if layers.contains(&Layer::Landlock)), "{standing:?}");
            assert_unreadable(&session, &world.secret()).await;
            assert!(!sh(&session, &format!("ls {}", world.private().display())).await.status.success());
            close(&session).await;
        }

        let everything = open(places.session()).await;
        if !everything.enforcement().await.keeps(Protection::HiddenState) {
            assert_read(&everything, &world.secret(), "s").await;
        }
        close(&everything).await;

        // Required once it is asked for: everything else is accepted.
        let without = |name| accepting_all(&places, name).read_root(programs())._worker_image(image_without_layers());
        let session = open(without("gap")).await;
        assert!(!session.enforcement().await.keeps(Protection::HiddenState));
        assert_read(&session, &world.secret(), "s").await;
        close(&session).await;
        let builder = Protection::ALL.iter().filter(|one| **one != Protection::HiddenState).fold(
            Session::builder(places.join("store-no-gap")).temporary_parent(places.temporary()),
            |builder, one| builder.accept(*one),
        );
        let builder = builder.read_root(programs())._worker_image(image_without_layers());
        let error = refused(builder.open().await, ErrorKind::ProtectionUnavailable);
        assert_eq!(error.field("protection").and_then(Field::as_text), Some("hidden-state"));
    }
}

cases! {
    /// With the base set alone, in a write root.
    async fn shells_and_plain_tools(world: &World) {
        let places = Places::of(world);
        let session = open(places.session().read_roots(Vec::<PathBuf>::new())).await;
        let script = r#"set -e
            cat <(echo substituted) - <<< here; cat /dev/fd/3 3< <(echo third); echo out > /dev/stdout; echo err > /dev/stderr
            a=$(printf '%s\n' b a | sort | tr '\n' ' '); echo "$a"; id -u >/dev/null; date -d @0 +%Y; getent hosts localhost >/dev/null
            printf 'all: x\n\tcat x\nx:\n\techo made > x\n' > Makefile; command -v make >/dev/null && make -s -j2 || echo made
            mkdir d; touch d/f; tar cf t.tar d; tar tf t.tar; cp -a d e; find e -type f; sed -n 1p Makefile | awk '{print $1}'
            ls -l Makefile | wc -l; stat -c %U Makefile | wc -l; perl -e 'print "perl\n"' 2>/dev/null || echo perl"#;
        let output = session.command("/bin/bash").args(["-c", script]).output().await.unwrap();
        let text = done(&output);
        assert_eq!(text, "substituted\nhere\nthird\nout\na b \n1970\nmade\nd/\nd/f\ne/f\nall:\n1\n1\nperl\n", "{}", output.stderr.text());
        assert_eq!(output.stderr.text(), "err\n");
        close(&session).await;
    }

    async fn git(world: &World) {
        requires!(Need::Git, "works on a repository that is the only thing it reads");
        let places = Places::of(world);
        let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        let session = open(places.session().read_roots(Vec::<PathBuf>::new()).envs(names.map(|name| (name, "a")))).await;
        let script = "set -e
            git init -q -b main r && cd r && echo 1 > f && git add f && git commit -qm one
            git checkout -q -b side && echo 2 >> f && git commit -qam two && git checkout -q main && git merge -q side
            git worktree add -q ../w && git gc -q && git fsck --no-progress && git log --format=%s && git status --porcelain";
        let output = sh(&session, script).await;
        assert_eq!(done(&output), "two\none\n");
        assert_eq!(output.stderr.text(), "");
        // A repository beside it is not there to be cloned; the twin is.
        let outside = world.outside().join("r");
        assert!(std::process::Command::new("git").args(["init", "-q"]).arg(&outside).status().unwrap().success());
        let clone = format!("git clone -q {} c", outside.display());
        assert!(!sh(&session, &clone).await.status.success() && !world.write_root().join("c/.git").exists());
        session.replace_write_roots([world.write_root()]).read_scope(places.session().read_root(world.outside()).policy().read.clone()).await.unwrap();
        done(&sh(&session, &clone).await);
        close(&session).await;
    }

    /// An interpreter outside of the base set is read from where it is installed.
    async fn python(world: &World) {
        requires!(Need::Python3, "runs scripts");
        let places = Places::of(world);
        let python = bailiwick_test::python3().unwrap().canonicalize().unwrap();
        let mut builder = places.session().read_roots(Vec::<PathBuf>::new());
        if !python.starts_with("/usr") {
            builder = builder.read_root(python.ancestors().nth(2).unwrap());
        }
        let session = open(builder).await;
        let script = r#"
import ctypes, hashlib, json, multiprocessing, os, pwd, socket, sqlite3, ssl, subprocess, sys, tempfile, threading, time
print(subprocess.check_output([sys.executable, '-c', 'print("child")'], text=True).strip())
ssl.create_default_context(); time.localtime(); pwd.getpwall(); hashlib.sha256(b'x').hexdigest()
with tempfile.TemporaryDirectory() as d: open(os.path.join(d, 'f'), 'w').write('x')
a, b = multiprocessing.Pipe(); p = multiprocessing.Process(target=lambda: b.send(1)); p.start(); print(a.recv()); p.join()
db = sqlite3.connect('q.db'); db.execute('pragma journal_mode=wal'); db.execute('create table t(x)'); db.commit()
try: open(sys.argv[1])
except PermissionError: print('closed')
try: os.listdir(sys.argv[2])
except PermissionError: print('unlisted')
"#;
        let (inner, outer) = (world.outside_file(), world.path().to_owned());
        let output = session.command(&python).args(["-c", script]).args([&inner, &outer]).output().await.unwrap();
        assert_eq!(done(&output), "child\n1\nclosed\nunlisted\n");
        assert_eq!(output.stderr.text(), "");
        close(&session).await;
    }

    async fn node(world: &World) {
        requires!(Need::Node, "runs scripts");
        let places = Places::of(world);
        let node = bailiwick_test::node().unwrap().canonicalize().unwrap();
        let mut builder = places.session().read_roots(Vec::<PathBuf>::new());
        if !node.starts_with("/usr") {
            builder = builder.read_root(node.ancestors().nth(2).unwrap());
        }
        let session = open(builder).await;
        let script = r#"
const { spawnSync } = require('child_process'), { Worker } = require('worker_threads'), fs = require('fs');
console.log(spawnSync(process.execPath, ['-e', 'console.log(1)']).stdout.toString().trim(), require('crypto').randomBytes(4).length);
fs.writeFileSync('f', 'x'); new Worker('console.log(new Date(0).getTime())', { eval: true });
for (const act of [() => fs.readFileSync(process.argv[1]), () => fs.readdirSync(process.argv[2])])
    try { act(); } catch (error) { console.log(error.code); }
"#;
        let (inner, outer) = (world.outside_file(), world.path().to_owned());
        let output = session.command(&node).args(["-e", script, "--"]).args([&inner, &outer]).output().await.unwrap();
        let text = done(&output);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "1 4", "EACCES", "EACCES"], "{}", output.stderr.text());
        close(&session).await;
    }

    async fn gcc(world: &World) {
        requires!(Need::Gcc, "builds a program");
        let places = Places::of(world);
        let session = open(places.session().read_roots(Vec::<PathBuf>::new())).await;
        let header = file(world.outside().join("h.h"), "#define SECRET 7\n");
        let script = r#"set -e
            printf '#include <stdio.h>\n#include <math.h>\nint main(void) { printf("%%g\\n", sqrt(4)); return 0; }\n' > m.c
            gcc -O1 -o m m.c -lm && ./m && gcc -shared -fPIC -o lib.so -x c /dev/null && ls lib.so"#;
        let output = sh(&session, script).await;
        assert_eq!(done(&output), "2\nlib.so\n", "{}", output.stderr.text());
        let includes = format!("echo '#include \"{}\"' | gcc -E -", header.display());
        let output = sh(&session, &includes).await;
        assert!(!output.status.success() && !output.stdout.text().contains("SECRET"));
        close(&session).await;
    }

    /// A toolchain in a home is read where it is named, and only then.
    async fn cargo(world: &World, seconds = 240) {
        requires!(Need::CargoForThisUser, "builds a program");
        let places = Places::of(world);
        let toolchain = bailiwick_test::Toolchain::find().unwrap();
        let root = toolchain.root().canonicalize().unwrap();
        let script = "cargo new -q p --vcs none && cd p && cargo run -q --offline";
        let with = |builder: SessionBuilder| {
            builder.env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display())).env("CARGO_HOME", world.write_root().join("home"))
        };
        let session = open(with(places.session().read_root(&root))).await;
        let output = sh(&session, script).await;
        assert_eq!(done(&output), "Hello, world!\n", "{}", output.stderr.text());
        close(&session).await;
        if !root.starts_with("/usr") {
            let session = open(with(places.session().read_roots(Vec::<PathBuf>::new()))).await;
            let error = refused(session.command("cargo").output().await, ErrorKind::CommandNotExecutable);
            assert!(field(&error, "outside").starts_with(&root));
            close(&session).await;
        }
    }
}
