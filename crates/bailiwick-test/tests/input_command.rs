//! Bad input to a command: every refusal has a code, names index and value, says that nothing ran, and the
//! session goes on. Each has a twin that runs.

#![cfg(test)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use bailiwick::{Command, Error, ErrorKind, Field, Session};
use bailiwick_test::places::{close, done, open, refused};
use bailiwick_test::{Places, Snapshot, cases, fixture, user_cases};

fn number(error: &Error, field: &str) -> i64 {
    error.field(field).and_then(Field::as_number).unwrap_or_else(|| panic!("no number `{field}`: {error:?}"))
}

/// Refused by `output` and `spawn` alike; nothing of the session runs, and the root is as it was.
async fn refuse<'s>(session: &'s Session, describe: impl Fn() -> Command<'s>, kind: ErrorKind) -> Error {
    let root = session.write_roots().await.remove(0);
    let before = Snapshot::of(&root);
    let error = refused(describe().output().await, kind);
    let spawned = refused(describe().spawn().await, kind);
    assert_eq!(error.to_string(), spawned.to_string());
    assert!(session.processes().await.unwrap().is_empty());
    before.assert_unchanged();
    error
}

/// A file of the given mode.
fn program(path: PathBuf, content: &[u8], mode: u32) -> PathBuf {
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

cases! {
    /// Programs that are empty, hold a NUL, do not exist, cannot be executed.
    async fn programs(world: &World) {
        let places = Places::of(world);
        let root = places.write_root();
        let session = places.open().await;

        refuse(&session, || session.command(""), ErrorKind::CommandInvalid).await;
        let error = refuse(&session, || session.command("/bin/tr\0ue"), ErrorKind::CommandInvalid).await;
        assert_eq!(error.field("program").and_then(Field::as_path), Some(Path::new("/bin/tr\0ue")));

        let nope = places.join("nope/program");
        for missing in [nope.clone(), places.outside_file().join("x"), "no-such-program-on-path".into(), "./nope".into()] {
            let error = refuse(&session, || session.command(&missing), ErrorKind::CommandNotFound).await;
            assert_eq!(error.field("program").and_then(Field::as_path), Some(missing.as_path()));
        }
        // Looked up in the command's own `PATH`, not in that of this process; an empty one finds nothing.
        refuse(&session, || session.command("true").env("PATH", "/nonexistent"), ErrorKind::CommandNotFound).await;
        refuse(&session, || session.command("true").env("PATH", ""), ErrorKind::CommandNotFound).await;
        refuse(&session, || session.command("true").env_clear(), ErrorKind::CommandNotFound).await;
        done(&session.command("true").output().await.unwrap());
        done(&session.command("true").env_clear().env("PATH", "/usr/bin:/bin").output().await.unwrap());
        // An empty entry does not stand for the working directory.
        program(root.join("here"), b"#!/bin/sh\necho here\n", 0o755);
        refuse(&session, || session.command("here").env("PATH", "::/bin:"), ErrorKind::CommandNotFound).await;
        assert_eq!(done(&session.command("here").env("PATH", &root).output().await.unwrap()), "here\n");
        assert_eq!(done(&session.command("./here").output().await.unwrap()), "here\n");
        assert_eq!(done(&session.command("./here").current_dir(&root).output().await.unwrap()), "here\n");

        let plain = program(places.join("plain"), b"#!/bin/sh\necho plain\n", 0o644);
        let error = refuse(&session, || session.command(&plain), ErrorKind::CommandNotExecutable).await;
        assert_eq!(error.field("program").and_then(Field::as_path), Some(plain.as_path()));
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(done(&session.command(&plain).output().await.unwrap()), "plain\n");

        refuse(&session, || session.command(&root), ErrorKind::CommandNotExecutable).await;
        refuse(&session, || session.command("/dev/null"), ErrorKind::CommandNotExecutable).await;
        let formless = program(places.join("formless"), b"neither a script nor ELF", 0o755);
        refuse(&session, || session.command(&formless), ErrorKind::CommandNotExecutable).await;
        let empty = program(places.join("empty"), b"", 0o755);
        refuse(&session, || session.command(&empty), ErrorKind::CommandNotExecutable).await;
        let cut = program(places.join("cut"), b"\x7fELF\x02\x01\x01", 0o755);
        refuse(&session, || session.command(&cut), ErrorKind::CommandNotExecutable).await;

        let bad = program(places.join("bad"), b"#!/no/such/interpreter\n", 0o755);
        let error = refuse(&session, || session.command(&bad), ErrorKind::CommandNotFound).await;
        assert!(error.hints()[0].contains("interpreter"), "{}", error.report());
        program(places.join("bad"), b"#!/bin/cat\nread\n", 0o755);
        assert_eq!(done(&session.command(&bad).output().await.unwrap()), "#!/bin/cat\nread\n");

        let looped = places.join("loop");
        symlink(&looped, &looped).unwrap();
        let error = refuse(&session, || session.command(&looped), ErrorKind::CommandNotFound).await;
        assert!(error.hints()[0].contains("circle"), "{}", error.report());
        let long = format!("/{}", "a/".repeat(3000));
        refuse(&session, || session.command(&long), ErrorKind::CommandNotFound).await;
        // Still being written: not executable for now.
        let written = program(places.join("written"), b"", 0o755);
        fs::copy("/bin/true", &written).unwrap();
        let writer = fs::OpenOptions::new().append(true).open(&written).unwrap();
        let error = refuse(&session, || session.command(&written), ErrorKind::CommandNotExecutable).await;
        assert!(error.hints()[0].contains("writing"), "{}", error.report());
        drop(writer);
        done(&session.command(&written).output().await.unwrap());
        close(&session).await;
    }

    /// NUL bytes in arguments and in the environment of a command, named by index.
    async fn arguments_and_variables(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let error = refuse(
            &session,
            || session.command("/bin/echo").args(["zero", "one", "tw\0o"]),
            ErrorKind::CommandInvalid,
        )
        .await;
        assert_eq!(number(&error, "index"), 2);
        assert_eq!(error.field("argument").and_then(Field::as_path), Some(Path::new("tw\0o")));
        for (name, value) in [("A=B", "secret"), ("", "secret"), ("A\0", "secret"), ("A", "sec\0ret")] {
            let command = || session.command("/bin/true").env("FIRST", "1").env(name, value);
            let error = refuse(&session, command, ErrorKind::EnvInvalid).await;
            assert_eq!(number(&error, "index"), 1);
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let output = session.command("printf").args(["%s|", "", "a b", "'\"$x`", "\u{20ac}\n"]).output().await;
        assert_eq!(done(&output.unwrap()), "|a b|'\"$x`|\u{20ac}\n|");
        close(&session).await;
    }

    /// C59: the kernel takes a single string of 131,071 bytes, and no longer one.
    async fn c59_long_arguments(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let count = |length: usize| {
            session.command("/bin/sh").args(["-c", r#"printf %s "$1" | wc -c"#, "sh"]).arg("x".repeat(length))
        };
        for length in [131_070, 131_071] {
            assert_eq!(done(&count(length).output().await.unwrap()).trim(), length.to_string());
        }
        for length in [131_072, 1_000_000] {
            let error = refuse(&session, || count(length), ErrorKind::CommandTooLarge).await;
            assert_eq!(number(&error, "index"), 3, "{}", error.report());
            assert_eq!(number(&error, "length"), i64::try_from(length).unwrap());
            assert_eq!(number(&error, "length_limit"), 131_071);
        }
        // Many short ones, over every limit: also over what is handed to the worker at all.
        let many = |count: usize| session.command("/bin/true").args(vec!["x".repeat(100_000); count]);
        for number_of in [100, 200] {
            let error = refuse(&session, || many(number_of), ErrorKind::CommandTooLarge).await;
            assert!(number(&error, "size") > number(&error, "limit"), "{error:?}");
        }
        done(&many(10).output().await.unwrap());
        close(&session).await;
    }

    /// C59: an environment of 1.5 MB does what it does without confinement; a value of 200 kB is refused by
    /// its name.
    async fn c59_large_environment(world: &World) {
        let places = Places::of(world);
        let variables: Vec<(String, String)> =
            (0..15).map(|index| (format!("BIG{index}"), "v".repeat(100_000))).collect();
        let bare = std::process::Command::new("/bin/true").envs(variables.clone()).stdin(Stdio::null()).status();
        let session = open(places.session().envs(variables)).await;
        let script = "awk 'BEGIN { for (n in ENVIRON) if (n ~ /^BIG/) s += length(ENVIRON[n]); print s }'";
        let output = session.command("/bin/sh").args(["-c", script]).output().await;
        match bare {
            Ok(status) => {
                assert!(status.success());
                assert_eq!(done(&output.unwrap()).trim(), "1500000");
            }
            Err(_) => drop(refused(output, ErrorKind::CommandTooLarge)),
        }
        let command = || session.command("/bin/true").env("HUGE", "secret".repeat(35_000));
        let error = refuse(&session, command, ErrorKind::CommandTooLarge).await;
        assert_eq!(error.field("name").and_then(Field::as_text), Some("HUGE"), "{}", error.report());
        assert!(!format!("{error:?}{}", error.report()).contains("secret"));
        close(&session).await;
        // Given to the session, it is refused at the first command, by the same name.
        let session = open(places.session().env("HUGE", "secret".repeat(35_000))).await;
        let error = refuse(&session, || session.command("/bin/true"), ErrorKind::CommandTooLarge).await;
        assert_eq!(error.field("name").and_then(Field::as_text), Some("HUGE"));
        done(&session.command("/bin/true").env_remove("HUGE").output().await.unwrap());
        close(&session).await;
    }

    /// Working directories.
    async fn working_directories(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let in_directory = |path: &Path| {
            let path = path.to_owned();
            let session = &session;
            move || session.command("/bin/pwd").current_dir(&path)
        };
        for (bad, kind) in [
            (places.join("nope"), ErrorKind::CwdNotFound),
            (places.outside_file(), ErrorKind::CwdNotDirectory),
            ("relative".into(), ErrorKind::CwdInvalid),
            ("".into(), ErrorKind::CwdInvalid),
            ("~".into(), ErrorKind::CwdInvalid),
            ("/tmp\0".into(), ErrorKind::CwdInvalid),
            ("/proc/self/cwd".into(), ErrorKind::CwdInvalid),
            ("/proc/self/fd/0".into(), ErrorKind::CwdInvalid),
            ("/dev/fd/0".into(), ErrorKind::CwdInvalid),
        ] {
            let error = refuse(&session, in_directory(&bad), kind).await;
            assert_eq!(error.field("cwd").and_then(Field::as_path), Some(bad.as_path()), "{error:?}");
        }
        // Outside of the roots it is a place like any other, and permits nothing.
        let before = Snapshot::of(places.outside());
        let output = session.command("/bin/sh").args(["-c", "pwd; echo x > here"]).current_dir(places.outside());
        let output = output.output().await.unwrap();
        assert_eq!(output.stdout.text(), format!("{}\n", places.outside().display()));
        assert!(!output.status.success());
        before.assert_unchanged();
        // A link is followed to what it leads to, and the command is shown the caller's spelling.
        symlink(places.write_root(), places.join("link")).unwrap();
        let output = session.command("/bin/sh").args(["-c", "pwd; pwd -P"]).current_dir(places.join("link"));
        let expected = format!("{}\n{}\n", places.join("link").display(), places.write_root().display());
        assert_eq!(done(&output.output().await.unwrap()), expected);
        close(&session).await;
    }

    /// A program and its arguments reach the command byte for byte, also where they are no UTF-8.
    async fn bytes_that_are_no_utf8(world: &World) {
        use std::os::unix::ffi::OsStringExt as _;
        let places = Places::of(world);
        let session = places.open().await;
        let odd = OsString::from_vec((1..=255).collect());
        let output = session.command("/bin/sh").args(["-c", r#"printf %s "$1""#, "sh"]).arg(odd).output().await;
        assert_eq!(&*output.unwrap().stdout, (1..=255).collect::<Vec<u8>>());
        let name = places.write_root().join(OsString::from_vec(b"pro\xffgram".to_vec()));
        program(name.clone(), b"#!/bin/sh\nprintf '%s' \"${0##*/}\"\n", 0o755);
        assert_eq!(&*session.command(&name).output().await.unwrap().stdout, b"pro\xffgram");
        let missing = name.with_extension("no");
        let error = refuse(&session, || session.command(&missing), ErrorKind::CommandNotFound).await;
        assert_eq!(error.field("program").and_then(Field::as_path), Some(missing.as_path()));
        close(&session).await;
    }
}

user_cases! {
    /// Directories and programs that this user cannot reach.
    async fn what_this_user_cannot_reach(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let closed = places.join("closed");
        fs::create_dir(&closed).unwrap();
        program(closed.join("program"), b"#!/bin/sh\n", 0o755);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        fixture::assert_unreadable(&closed);
        for cwd in [&closed, &closed.join("below")] {
            let command = || session.command("/bin/true").current_dir(cwd);
            let error = refuse(&session, command, ErrorKind::CwdNotAccessible).await;
            assert_eq!(error.field("cwd").and_then(Field::as_path), Some(cwd.as_path()));
        }
        refuse(&session, || session.command(closed.join("program")), ErrorKind::CommandNotExecutable).await;
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        done(&session.command("/bin/true").current_dir(&closed).output().await.unwrap());
        done(&session.command(closed.join("program")).output().await.unwrap());
        close(&session).await;
    }
}
