//! Real tools: the same results confined and bare, below the roots.

#![cfg(test)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bailiwick::SessionBuilder;
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::{Listing, Need, Places, Snapshot, cases, requires};

/// Variables that make git's results the same everywhere.
const GIT: [(&str, &str); 7] = [
    ("GIT_AUTHOR_NAME", "a"),
    ("GIT_AUTHOR_EMAIL", "a@example.org"),
    ("GIT_AUTHOR_DATE", "2020-01-02T03:04:05Z"),
    ("GIT_COMMITTER_NAME", "c"),
    ("GIT_COMMITTER_EMAIL", "c@example.org"),
    ("GIT_COMMITTER_DATE", "2020-01-02T03:04:05Z"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
];

/// Runs a script confined in `W/work` and bare in `bare/work`, with the same environment but for the temporary
/// directory, and asserts that status, standard output and the listing of `compare` are the same.
async fn same(places: &Places, variables: &[(&str, &str)], script: &str, compare: Option<&str>) -> String {
    let (confined, bare) = (places.write_root().join("work"), places.join("bare/work"));
    let temporary = places.join("bare/tmp");
    for directory in [&confined, &bare, &temporary] {
        fs::create_dir_all(directory).unwrap();
    }
    let session = open(places.session().envs(variables.iter().copied())).await;
    let command = session.command("/bin/sh").args(["-c", script]).current_dir(&confined);
    let output = command.output().await.unwrap();
    let alone = Command::new("/bin/sh")
        .args(["-c", script])
        .current_dir(&bare)
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8")])
        .envs([
            ("HOME", &temporary),
            ("TMPDIR", &temporary),
            ("TMP", &temporary),
            ("TEMP", &temporary),
            ("PWD", &bare),
        ])
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&alone.stderr);
    assert!(alone.status.success(), "bare: {}: {errors}", alone.status);
    assert!(output.status.success(), "confined: {}: {}", output.status, output.stderr.text());
    assert_eq!(output.stdout.text(), String::from_utf8_lossy(&alone.stdout), "{}", output.stderr.text());
    if let Some(name) = compare {
        let (expected, found) = (Listing::of(bare.join(name)), Listing::of(confined.join(name)));
        assert!(expected.count() > 1);
        let differences = expected.differences(&found);
        assert!(differences.is_empty(), "{differences:#?}");
    }
    assert!(output.still_running.is_empty(), "{:?}", output.still_running);
    close(&session).await;
    done(&output)
}

fn with_git(builder: SessionBuilder) -> SessionBuilder {
    builder.envs(GIT)
}

cases! {
    /// git: the objects have the same names, so the histories are the same.
    async fn git(world: &World, seconds = 240) {
        requires!(Need::Git, "works on a repository");
        let places = Places::of(world);
        let script = "set -e
            git init -q -b main repo && cd repo
            printf '1\\n2\\n3\\n' > a && git add a && git commit -qm one
            git checkout -q -b side && mkdir -p d/e && echo d > d/e/f && git add d && git commit -qm side
            git checkout -q main && echo 4 >> a && git commit -qam two && git tag -a -m tagged v1
            git rebase -q main side && git checkout -q main && git merge -q --no-ff -m merged side
            echo dirty >> a && git stash -q && git stash pop -q && git checkout -q -- a
            git mv a b && git commit -qm moved && git revert --no-edit HEAD >/dev/null && git reset -q --hard HEAD
            git gc -q --prune=now && git fsck --no-progress && git repack -qad
            git clone -q . ../clone && cd ../clone && git fetch -q && git submodule status
            git log --all --format='%H %T %s' && git ls-files -s && git for-each-ref && git status --porcelain
            git archive HEAD | tar t && git diff HEAD~1 --stat";
        let text = same(&places, &GIT, script, None).await;
        assert!(text.contains(" merged\n") && text.contains("refs/tags/v1"), "{text}");
        assert_eq!(fs::read(places.write_root().join("work/clone/d/e/f")).unwrap(), b"d\n");
    }

    /// C40: in a linked worktree git writes to the main repository, which must be a root too.
    async fn c40_git_worktree(world: &World) {
        requires!(Need::Git, "works in a linked worktree");
        let places = Places::of(world);
        let (main, linked) = (places.join("main"), places.join("linked"));
        let make = format!(
            "git init -q -b main {0} && cd {0} && echo 1 > f && git add f && git commit -qm one && git worktree add -q -b w {1}",
            main.display(),
            linked.display()
        );
        let made = Command::new("/bin/sh").args(["-c", &make]).envs(GIT).env("HOME", places.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let commit = "cd \"$LINKED\" && echo 2 >> f && git add f && git commit -qm two && git log --format=%s";
        let name = PathBuf::from(linked.file_name().unwrap());
        let narrow = main.join(".git/worktrees").join(name);
        for (roots, works) in [
            (vec![linked.clone()], false),
            (vec![linked.clone(), narrow], false),
            (vec![linked.clone(), main.join(".git")], true),
        ] {
            let before = Listing::of(&main);
            let builder = with_git(places.bare_session().write_roots(&roots)).env("LINKED", &linked);
            let session = open(builder).await;
            let output = sh(&session, commit).await;
            assert_eq!(output.status.success(), works, "{roots:?}: {}", output.stderr.text());
            assert_eq!(output.write_roots, roots);
            if works {
                assert_eq!(done(&output), "two\none\n");
            } else if roots.len() == 1 {
                before.assert_unchanged();
            }
            // Below a root git makes worktrees by itself.
            close(&session).await;
        }
        let session = open(with_git(places.session())).await;
        let script = "set -e
            git init -q -b main r && cd r && echo 1 > f && git add f && git commit -qm one
            git worktree add -q ../w && cd ../w && echo 2 > f && git commit -qam two && cd ../r
            git worktree list | wc -l && git worktree remove ../w && git worktree prune && git log --all --format=%s | sort";
        assert_eq!(done(&sh(&session, script).await), "2\none\ntwo\n");
        close(&session).await;
    }

    /// gcc and make, with several jobs.
    async fn gcc_and_make(world: &World) {
        requires!(Need::Gcc, "builds a program");
        let places = Places::of(world);
        let script = r#"set -e
            for i in 1 2 3 4; do printf 'int f%d(void) { return %d; }\n' $i $i > f$i.c; done
            printf '#include <stdio.h>\nint f1(void), f2(void), f3(void), f4(void);\nint main(void) { printf("%%d\\n", f1() + f2() + f3() + f4()); return 0; }\n' > main.c
            printf 'prog: main.o f1.o f2.o f3.o f4.o\n\t$(CC) -o $@ $^\nlib.a: f1.o f2.o\n\tar rc $@ $^\nclean:\n\trm -f *.o prog lib.a\n' > Makefile
            make -s -j4 prog lib.a && ./prog && nm lib.a | grep -c ' T '
            touch f1.c && make -j2 prog | grep -c 'f1.o' && ./prog && strip prog && ./prog
            gcc -shared -fPIC -o libf.so f1.c f2.c && make -s clean && ls"#;
        let text = same(&places, &[], script, None).await;
        assert!(text.starts_with("10\n2\n"), "{text}");
    }

    /// node: files, children, threads, a server on a socket in the root, its test runner.
    async fn node(world: &World) {
        requires!(Need::Node, "runs scripts");
        let places = Places::of(world);
        let script = r#"set -e
            cat > server.js <<'E'
const net = require('net'), fs = require('fs');
const server = net.createServer(socket => socket.on('data', data => socket.end('echo ' + data)));
server.listen('./p.sock', () => {
    const client = net.connect('./p.sock', () => client.write('hello'));
    client.on('data', data => console.log(String(data)));
    client.on('close', () => server.close(() => console.log('closed', fs.existsSync('p.sock'))));
});
E
            node server.js
            cat > more.js <<'E'
const { spawnSync, fork } = require('child_process'), { Worker, isMainThread, parentPort } = require('worker_threads');
const fs = require('fs'), crypto = require('crypto'), zlib = require('zlib');
if (!isMainThread) { parentPort.postMessage('from a thread'); }
else if (process.argv[2] === 'child') { process.send('from a child'); process.disconnect(); }
else {
    console.log(spawnSync('sh', ['-c', 'echo out; exit 3']).status);
    fs.mkdirSync('deep/er', { recursive: true });
    fs.writeFileSync('deep/er/f', 'x'); fs.copyFileSync('deep/er/f', 'deep/g'); fs.renameSync('deep', 'moved');
    fs.symlinkSync('moved', 'link'); fs.cpSync('moved', 'copied', { recursive: true });
    console.log(fs.readdirSync('.', { recursive: true }).filter(n => !n.endsWith('.js')).sort().join(' '));
    fs.rmSync('copied', { recursive: true });
    console.log(zlib.gunzipSync(zlib.gzipSync('zipped')).toString(), crypto.createHash('sha256').update('x').digest('hex'));
    new Worker(__filename).on('message', text => {
        console.log(text);
        fork(__filename, ['child']).on('message', text => console.log(text));
    });
    const watcher = fs.watch('.', () => {}); watcher.close();
}
E
            node more.js
            mkdir test
            cat > test/one.test.mjs <<'E'
import test from 'node:test'; import assert from 'node:assert';
test('one', () => assert.equal(1, 1)); test('two', async () => { await new Promise(r => setTimeout(r, 10)); });
E
            node --test test/ | grep -E '^# (tests|pass|fail)'"#;
        let text = same(&places, &[], script, None).await;
        assert!(text.starts_with("echo hello\nclosed false\n3\n"), "{text}");
        assert!(text.contains("from a thread\nfrom a child\n") && text.contains("# fail 0\n"), "{text}");
    }

    /// python: an environment of its own, children, archives, a database with a write-ahead log, local sockets.
    async fn python(world: &World) {
        requires!(Need::Python3, "runs scripts");
        let places = Places::of(world);
        let interpreter = bailiwick_test::python3().unwrap();
        let script = r#"set -e
            "$PYTHON" -m venv --without-pip env
            ./env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
            cat > s.py <<'E'
import asyncio, fcntl, mmap, os, queue, shutil, sqlite3, subprocess, sys, tarfile, threading
print(subprocess.run(['sh', '-c', 'cat; exit 4'], input=b'in', capture_output=True))
print(subprocess.check_output([sys.executable, '-c', 'print("child")'], text=True).strip())
db = sqlite3.connect('q.db')
print(db.execute('pragma journal_mode=wal').fetchone())
db.execute('create table t(x)')
db.executemany('insert into t values (?)', [(i,) for i in range(1000)])
db.commit()
print(sorted(n for n in os.listdir('.') if n.startswith('q.db')))
other = sqlite3.connect('q.db')
print(other.execute('select count(*), sum(x) from t').fetchone(), db.execute('pragma wal_checkpoint(truncate)').fetchone())
db.close(); other.close()
os.makedirs('a/b'); open('a/b/c', 'w').write('x'); os.utime('a/b/c', (1, 2)); os.chmod('a/b/c', 0o640)
with tarfile.open('a.tar.gz', 'w:gz') as t: t.add('a')
shutil.copytree('a', 'copy'); shutil.move('copy', 'moved'); shutil.rmtree('moved')
print(tarfile.open('a.tar.gz').getnames(), os.stat('a/b/c').st_mtime)
async def serve(r, w): w.write((await r.readline()).upper()); await w.drain(); w.close()
async def main():
    server = await asyncio.start_unix_server(serve, 'u.sock')
    r, w = await asyncio.open_unix_connection('u.sock'); w.write(b'shout\n'); print(await r.readline()); w.close()
    p = await asyncio.create_subprocess_exec('echo', 'async', stdout=subprocess.PIPE); print((await p.communicate())[0])
    server.close()
asyncio.run(main())
q = queue.Queue(); threading.Thread(target=lambda: q.put(1)).start(); print(q.get())
with open('m', 'w+b') as f:
    f.write(b'0' * 8192); f.flush(); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)
    m = mmap.mmap(f.fileno(), 0); m[0:1] = b'1'; m.flush(); m.close(); f.seek(0); print(f.read(2))
E
            "$PYTHON" s.py && ./env/bin/python -m compileall -q s.py && ls __pycache__ | wc -l"#;
        let text = same(&places, &[("PYTHON", interpreter.to_str().unwrap())], script, None).await;
        assert!(text.starts_with("True\n") && text.contains("['q.db', 'q.db-shm', 'q.db-wal']"), "{text}");
    }

    /// C52: reading a database with a write-ahead log is a write; outside of the roots it fails, and says so.
    async fn c52_database_outside(world: &World) {
        requires!(Need::Python3, "reads a database");
        let places = Places::of(world);
        let python = bailiwick_test::python3().unwrap();
        let make = "import sqlite3; d = sqlite3.connect('q.db'); d.execute('pragma journal_mode=wal'); \
                    d.execute('create table t(x)'); d.commit(); d.close()";
        for directory in [places.outside(), places.write_root()] {
            let made = Command::new(&python).args(["-c", make]).current_dir(directory).status().unwrap();
            assert!(made.success());
        }
        let session = places.open().await;
        let read = |database: String| {
            let code = format!(
                "import sqlite3; print(sqlite3.connect('file:{database}', uri=True).execute('select 1 from t').fetchall())"
            );
            session.command(&python).args(["-c", &code]).output()
        };
        let outside = places.outside().join("q.db");
        let before = Snapshot::of(places.outside());
        let output = read(outside.display().to_string()).await.unwrap();
        assert!(!output.status.success(), "{}", output.stdout.text());
        assert!(output.stderr.text().contains("OperationalError"), "{}", output.stderr.text());
        before.assert_unchanged();
        assert_eq!(done(&read(format!("{}?immutable=1", outside.display())).await.unwrap()), "[]\n");
        assert_eq!(done(&read(places.write_root().join("q.db").display().to_string()).await.unwrap()), "[]\n");
        close(&session).await;
    }

    /// tar, cp, find, sort, sed, install, touch, dd: what a build script is made of.
    async fn plain_tools(world: &World) {
        let places = Places::of(world);
        let script = r#"set -e
            mkdir -p tree/d/e && cd tree
            printf 'one\ntwo\n' > f && ln f hard && ln -s f soft && ln -s nowhere dangling && mkfifo pipe
            touch -d '2001-02-03 04:05:06 UTC' f d && chmod 640 f && chmod 1777 d && chmod 500 d/e
            cd .. && tar cf t.tar tree && mkdir out && tar xpf t.tar -C out && cp -a tree out/copied
            stat -c '%n %a %F %Y' out/tree/f out/tree/d out/copied/f out/copied/d
            rm tree/pipe && rm out/tree/pipe out/copied/pipe
            diff -r --no-dereference tree out/tree && diff -r --no-dereference tree out/copied
            [ out/tree/f -ef out/tree/hard ] && [ out/copied/f -ef out/copied/hard ] && echo linked
            sed -i s/one/1/ tree/f && cat tree/f && install -m 755 tree/f bin && stat -c %a bin
            seq 100000 | sort -rn -S 1M | head -2 && split -l 1 tree/f part- && ls part-*
            dd if=/dev/zero of=sparse bs=1 count=1 seek=1000000 status=none && stat -c %s sparse && truncate -s 5 sparse
            find . -name 'part-*' -delete && find . -newer t.tar -name bin | wc -l && xargs -n1 echo < tree/f
            gzip -n < tree/f | gunzip && (umask 077; touch private; stat -c %a private) && rm -f t.tar"#;
        let text = same(&places, &[], script, Some("out")).await;
        assert!(text.contains("linked\n1\ntwo\n755\n100000\n99999\n"), "{text}");
    }

    /// Shells: job control over background jobs, traps, process substitution, coprocesses, limits.
    async fn shells(world: &World) {
        let places = Places::of(world);
        let script = r#"bash -ec '
            sleep 0.05 & wait $!; echo $?
            trap "echo trapped" USR1; kill -USR1 $$
            set -m; sleep 600 & kill %1; wait %1 || echo $?; set +m
            diff <(seq 3) <(seq 3) && echo same
            coproc cat; echo through >&${COPROC[1]}; read line <&${COPROC[0]}; echo $line
            eval "exec ${COPROC[1]}>&-"; wait
            ulimit -n 100; ulimit -n; (exit 9) || echo $?
            printf "%s\n" {1..3} | while read n; do echo -n $n; done; echo
            timeout 0.1 sleep 5 || echo $?; nice -n 5 echo niced; nohup echo hupped 2>/dev/null; setsid -w echo apart
        '"#;
        let text = same(&places, &[], script, None).await;
        assert!(text.contains("143\nsame\nthrough\n"), "{text}");
    }

    /// Exit statuses and signals come through as they are.
    async fn statuses(world: &World) {
        use std::os::unix::process::ExitStatusExt as _;
        let places = Places::of(world);
        let session = places.open().await;
        for code in [0, 1, 2, 125, 126, 127, 255] {
            assert_eq!(sh(&session, &format!("exit {code}")).await.status.code(), Some(code));
        }
        for signal in [1, 2, 3, 6, 9, 11, 13, 15, 31, 64] {
            let status = sh(&session, &format!("kill -{signal} $$")).await.status;
            assert_eq!((status.code(), status.signal(), status.core_dumped()), (None, Some(signal), false));
        }
        close(&session).await;
    }
}
