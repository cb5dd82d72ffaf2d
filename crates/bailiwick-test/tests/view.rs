//! What commands find around them where the host permits namespaces: everything read-only but their roots, processes,
//! terminals and shared memory of their own, and nothing of what the session protects.

#![cfg(test)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use bailiwick::{ErrorKind, Layer, Network, Protection, Session, Standing, Stdio};
use bailiwick_test::boundary::{Victim, accepting_all, run};
use bailiwick_test::host::{self, Host, say};
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::process::{self, Process};
use bailiwick_test::{
    Need, Places, Snapshot, World, cases, fixture, image, image_without_namespaces, requires, root_cases,
    wait_until,
};
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount,
};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn layers(session: &Session, protection: Protection) -> Vec<Layer> {
    match session.enforcement().await.standing(protection).unwrap() {
        Standing::Kept { layers } => layers.clone(),
        other => panic!("{protection:?}: {other:?}"),
    }
}

/// The acts that change a file without touching its content, for one that belongs to this user.
fn changes(file: &Path) -> Vec<Vec<String>> {
    let owner = fs::metadata(file).unwrap();
    let (uid, gid) = (owner.uid().to_string(), owner.gid().to_string());
    let act = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    vec![
        act(&["chmod", text(file), "0750"]),
        act(&["chown", text(file), &uid, &gid]),
        act(&["utimes", text(file)]),
        act(&["setxattr", text(file)]),
    ]
}

cases! {
    /// C35: nothing outside changes but through the roots; without the view it does.
    async fn metadata_outside_the_roots_stays(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let weak = open(accepting_all(&places, "weak")._worker_image(image(Layer::MountView))).await;
        assert_eq!(layers(&session, Protection::Metadata).await, [Layer::Seccomp, Layer::MountView]);
        for file in [places.outside_file(), places.outside()] {
            let before = Snapshot::of(&file);
            for act in changes(&file) {
                run(&session, &act).await.assert_refused(&["EROFS"]);
            }
            before.assert_unchanged();
            for act in changes(&file) {
                run(&weak, &act).await.assert_done();
            }
            before.assert_changed();
        }
        let inside = places.write_root().join("own");
        fs::write(&inside, "x").unwrap();
        for file in [inside, places.write_root()] {
            let before = Snapshot::of(&file);
            for act in changes(&file) {
                run(&session, &act).await.assert_done();
            }
            before.assert_changed();
        }
        for session in [session, weak] {
            close(&session).await;
        }
        places.assert_nothing_left();
    }

    /// What a command is given by descriptor lies on its own mounts: its directory, and the null device.
    async fn descriptors_lead_nowhere_else(world: &World) {
        let places = Places::of(world);
        fs::set_permissions(places.outside_file(), fs::Permissions::from_mode(0o644)).unwrap();
        let before = Snapshot::of(places.outside_file());
        let session = places.open().await;
        for (directory, name) in [(places.write_root(), "../X/f"), (places.outside(), "f")] {
            let script = format!("chmod 600 {name}; echo $? && pwd && echo x >> {name}");
            let output = session.command("/bin/sh").args(["-c", &script]).current_dir(&directory).output().await;
            let output = output.unwrap();
            assert!(output.stdout.text().starts_with(&format!("1\n{}\n", directory.display())), "{output:?}");
        }
        before.assert_unchanged();
        // As it is: should it succeed, nothing is harmed.
        let mode = format!("{:o}", fs::metadata("/dev/null").unwrap().permissions().mode() & 0o777);
        for stream in ["0", "1"] {
            let act = format!("exec {} fchmod {stream} {mode} >&2", text(&bailiwick_test::tool("act")));
            let output = session.command("/bin/sh").args(["-c", &act]).stdin(Stdio::null()).output().await.unwrap();
            let report = bailiwick_test::act::Report::parse(&*output.stderr);
            match stream {
                "0" => report.assert_refused(&["EROFS", "EPERM"]),
                // A pipe is the command's own.
                _ => report.assert_done(),
            }
        }
        // Neither a directory nor a mere path is a stream.
        let directory = fs::File::open(places.outside()).unwrap();
        let path = rustix::fs::open(places.outside_file(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for (given, found) in [(Stdio::from(directory), "directory"), (Stdio::from(path), "path")] {
            let error = session.command("/bin/true").stdin(given).spawn().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CommandInvalid);
            assert_eq!(error.field("found").and_then(bailiwick::Field::as_text), Some(found));
        }
        let file = fs::File::open(places.outside_file()).unwrap();
        let output = session.command("/bin/cat").stdin(Stdio::from(file)).output().await.unwrap();
        assert_eq!(done(&output), "x");
        close(&session).await;
    }

    /// Host processes are neither seen nor reached, and yet the host is told its own numbers.
    async fn processes_have_two_numbers(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let victim = Victim::asleep();
        assert!(layers(&session, Protection::Signals).await.contains(&Layer::PidNamespace));
        let sleeper = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        assert!(is_asleep(sleeper.id()));
        assert_eq!(process::start_time(sleeper.id()), Some(sleeper.start_time()));
        let listed = session.processes().await.unwrap();
        assert_eq!(listed.iter().map(|one| one.pid).collect::<Vec<_>>(), [sleeper.id()]);
        let script = "cat /proc/1/comm; ls /proc | grep -c '^[0-9]'; readlink /proc/self | grep -c .; cat /proc/*/comm | sort -u";
        let seen = done(&sh(&session, script).await);
        assert!(seen.starts_with("bailiwick-work\n"), "{seen}");
        let count: usize = seen.lines().nth(1).unwrap().parse().unwrap();
        assert!(count < 20, "{seen}");
        assert!(!seen.contains("act"), "{seen}");
        run(&session, &["kill", &victim.argument(), "9"]).await.assert_refused(&["ESRCH", "EPERM"]);
        assert!(victim.is_alive());
        // A later command ends what an earlier one began, by the number that it sees.
        let script = "for p in /proc/[0-9]*; do read -r n < $p/comm; [ $n = sleep ] && kill ${p#/proc/}; done; true";
        done(&sh(&session, script).await);
        let mut sleeper = sleeper;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeper.wait().await.unwrap()), Some(15));
        assert_eq!(close(&session).await.killed(), 0);
    }

    /// A detached tree is its command's, whatever it did, also for a number that only the host knows.
    async fn what_detaches_stays_attributed(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        let script = "(setsid sh -c 'setsid sleep 601 & exec setsid sleep 602' &) ; setsid sleep 603 & sleep 604";
        let [one, other] = [
            session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap(),
            session.command("/bin/sh").args(["-c", script]).spawn().await.unwrap(),
        ];
        let settled = async {
            while session.processes().await.unwrap().iter().filter(|p| p.name == "sleep").count() < 8 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(process::GENEROUS, settled).await.expect("they do not start");
        let [first, second] = [one.processes().await.unwrap(), other.processes().await.unwrap()];
        for (tree, command) in [(&first, &one), (&second, &other)] {
            assert_eq!(tree.iter().filter(|process| process.name == "sleep").count(), 4, "{tree:?}");
            assert!(tree.iter().all(|process| process.command == Some(command.command_id())), "{tree:?}");
        }
        assert!(first.iter().all(|process| second.iter().all(|theirs| theirs.pid != process.pid)));
        let mut one = one;
        one.kill().await.unwrap();
        one.settled().await.unwrap();
        for process in &first {
            assert!(process::pid_gone(process.pid, process.start_time), "{process:?}");
        }
        assert!(second.iter().all(|process| !process::pid_ended(process.pid, process.start_time)));
        close(&session).await;
        places.assert_nothing_left();
    }

    /// What the session protects cannot be read, by any name; without the view it can.
    async fn protected_state_is_hidden(world: &World) {
        let places = Places::of(world);
        let (file, directory) = (places.join("secret-file"), places.join("secret-directory"));
        fs::create_dir(&directory).unwrap();
        for path in [&file, &directory.join("inner")] {
            fs::write(path, "s").unwrap();
        }
        let protected = |builder: bailiwick::SessionBuilder| builder.protect(&file).protect(&directory);
        let session = open(protected(places.session())).await;
        assert_eq!(layers(&session, Protection::HiddenState).await, [Layer::MountView]);
        let secrets = [places.secret(), file.clone(), directory.join("inner")];
        for secret in &secrets {
            run(&session, &["read", text(secret)]).await.assert_refused(&["EACCES", "ENOENT"]);
        }
        let weak = open(protected(accepting_all(&places, "weak"))._worker_image(image(Layer::MountView))).await;
        // Its own store is another one; what it was told to protect is the same.
        for secret in &secrets[1..] {
            run(&weak, &["read", text(secret)]).await.assert_done();
        }
        // Its neighbours can be read, and so can a program that is protected from writing only.
        run(&session, &["read", text(&places.outside_file())]).await.assert_done();
        run(&session, &["read-some", text(&std::env::current_exe().unwrap())]).await.assert_done();
        for session in [session, weak] {
            close(&session).await;
        }
    }

    /// C49, C50: terminals and shared memory of their own, without any gap accepted for them.
    async fn terminals_and_shared_memory_are_their_own(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        assert!(layers(&session, Protection::Terminals).await.contains(&Layer::MountView));
        run(&session, &["openpty"]).await.assert_done();
        let theirs = bailiwick_test::pty::Pty::new();
        assert!(Path::new(theirs.name()).exists());
        let script = format!("ls /dev/pts; test -e {} && echo seen", theirs.name());
        assert_eq!(sh(&session, &script).await.stdout.text(), "ptmx\n");
        let name = format!("bailiwick-test-{}", std::process::id());
        let script = format!("echo own > /dev/shm/{name} && chmod 600 /dev/shm/{name} && ls /dev/shm && cat /dev/shm/{name}");
        assert_eq!(done(&sh(&session, &script).await), format!("{name}\nown\n"));
        assert!(!Path::new("/dev/shm").join(&name).exists());
        // The next command of the same grant finds it.
        assert_eq!(done(&sh(&session, &format!("cat /dev/shm/{name}")).await), "own\n");
        let segment = bailiwick_test::act::bare(&["shmget"]);
        segment.assert_done();
        let number = segment.value.to_string();
        run(&session, &["shmat", &number]).await.assert_refused(&["EINVAL", "EIDRM", "EACCES"]);
        run(&session, &["shmget"]).await.assert_done();
        bailiwick_test::act::bare(&["shmrm", &number]).assert_done();
        close(&session).await;
    }

    /// A grant after the first is a view of its own: what was granted before is read-only in it.
    async fn each_grant_has_its_view(world: &World) {
        let places = Places::of(world);
        let second = places.join("W2");
        fs::create_dir(&second).unwrap();
        let session = places.open().await;
        let script = format!("echo 1 > {0}/a; chmod 700 {0}/a; echo 2 > {1}/a; chmod 700 {1}", text(&places.write_root()), text(&second));
        sh(&session, &script).await;
        assert!(places.write_root().join("a").exists() && !second.join("a").exists());
        session.replace_write_roots([&second]).await.unwrap();
        let old = Snapshot::of(places.write_root());
        sh(&session, &script.replace("/a", "/b")).await;
        old.assert_unchanged();
        assert!(!places.write_root().join("b").exists());
        assert_eq!(fs::read_to_string(second.join("b")).unwrap(), "2\n");
        session.replace_write_roots([places.write_root(), second.clone()]).await.unwrap();
        // Roots are mounts of their own: a rename between them is for `mv`, which copies.
        done(&sh(&session, &format!("mv {}/b {}/c", text(&second), text(&places.write_root()))).await);
        assert_eq!(fs::read_to_string(places.write_root().join("c")).unwrap(), "2\n");
        close(&session).await;
    }

    /// A loopback interface of their own: commands reach each other and nobody else.
    async fn loopback_is_their_own(world: &World) {
        requires!(Need::Python3, "listens on a port");
        let places = Places::of(world);
        let host = TcpListener::bind("127.0.0.1:0").unwrap();
        host.set_nonblocking(true).unwrap();
        let port = host.local_addr().unwrap().port().to_string();
        let session = open(places.session().network(Network::Loopback)).await;
        assert!(layers(&session, Protection::Network).await.contains(&Layer::NetNamespace));
        run(&session, &["tcp-connect", "127.0.0.1", &port]).await.assert_refused(&["ECONNREFUSED"]);
        assert!(host.accept().is_err());
        let listen = "import socket\ns = socket.create_server(('127.0.0.1', 4711))\nopen('ready', 'w').close()\nc, _ = s.accept()\nprint(c.recv(9).decode())";
        let server = session.command("python3").args(["-c", listen]).env("PATH", std::env::var_os("PATH").unwrap()).stdout(Stdio::piped()).spawn().await;
        let mut server = server.unwrap();
        let ready = places.write_root().join("ready");
        let wait = async {
            while !ready.exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(process::GENEROUS, wait).await.expect("it does not listen");
        run(&session, &["tcp-connect", "127.0.0.1", "4711"]).await.assert_done();
        assert!(server.wait().await.unwrap().success());
        close(&session).await;
        // Without namespaces it is refused by name, and never the host's interface in its place.
        let error = refused(places.session().network(Network::Loopback)._worker_image(image_without_namespaces()).open().await, ErrorKind::ProtectionUnavailable);
        assert_eq!(error.field("protection").and_then(bailiwick::Field::as_text), Some("network"));
        // The twin: denied, there is no interface to connect to.
        let session = places.open().await;
        run(&session, &["tcp-connect", "127.0.0.1", &port]).await.assert_refused(&["EPERM"]);
        close(&session).await;
    }

    /// Mounts inside a root keep what they were: writable, read-only, or covered.
    fn mounts_inside_a_root(world: &World) {
        play(world, "inside");
    }

    /// Somebody mounts the store in the root, and unmounts it, all the time: whatever a session says, it is not reached.
    fn mounts_that_come_and_go(world: &World, seconds = 240) {
        play(world, "storm");
    }

    /// No namespaces: refused by name, with what the kernel said; accepted by name, the session is as it is without.
    fn a_host_without_namespaces(world: &World) {
        let places = Places::of(world);
        play_as(&places, Host::in_user_namespace(&places, "host", "limited"), "limited");
    }

    /// A `/proc` that is masked, as in a container: the session opens, and says what it cannot hide.
    fn a_masked_proc(world: &World) {
        play(world, "masked");
    }
}

root_cases! {
    /// A view holds the directory that was granted, whatever gets its name.
    async fn a_root_is_the_directory_that_was_granted(world: &World) {
        let places = Places::of(world);
        let session = places.open().await;
        // Replaced by another one of the same name: the next command is refused, and nothing lands in the new one.
        fs::rename(places.write_root(), places.join("W.old")).unwrap();
        fs::create_dir(places.write_root()).unwrap();
        refused(session.command("/bin/true").output().await, ErrorKind::RootIdentityChanged);
        fs::remove_dir(places.write_root()).unwrap();
        fs::rename(places.join("W.old"), places.write_root()).unwrap();
        done(&sh(&session, "echo x > x").await);
        close(&session).await;
    }
}

/// Whether it is the sleeper; its program may still be setting up its arguments.
fn is_asleep(pid: u32) -> bool {
    wait_until(process::GENEROUS, || Process::of(pid).unwrap().arguments() == ["/bin/sleep", "600"])
}

fn play(world: &World, part: &str) {
    let places = Places::of(world);
    play_as(&places, Host::with_own_mounts(&places, "host", part), part);
}

fn play_as(places: &Places, command: std::process::Command, part: &str) {
    let mut host = Host::start(places, command);
    assert_eq!(host.hear("done"), part);
    host.finish();
    places.assert_nothing_left();
}

fn bind(source: &Path, target: &Path) {
    mount_bind(source, target).or_else(|_| mount_bind_recursive(source, target)).unwrap();
}

fn inside(places: &Places) {
    let root = places.write_root();
    let [scratch, fixed, covered] = ["scratch", "fixed", "covered"].map(|name| root.join(name));
    for directory in [&scratch, &fixed, &covered.join("deep")] {
        fs::create_dir_all(directory).unwrap();
    }
    mount("tmpfs", &scratch, "tmpfs", MountFlags::empty(), None).unwrap();
    bind(&places.outside(), &fixed);
    mount_remount(&fixed, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    mount("tmpfs", covered.join("deep"), "tmpfs", MountFlags::empty(), None).unwrap();
    mount("tmpfs", &covered, "tmpfs", MountFlags::empty(), None).unwrap();
    let outside = Snapshot::of(places.outside_file());
    host::block_on(async {
        let session = places.open().await;
        assert!(session.enforcement().await.keeps(Protection::Metadata));
        let script = "echo 1 > scratch/f && chmod 600 scratch/f && echo 2 > covered/f && chmod 600 covered/f && echo 3 > f";
        done(&sh(&session, script).await);
        let script = "chmod 600 fixed/f; echo evil >> fixed/f; touch fixed/new; echo $?";
        assert_eq!(sh(&session, script).await.stdout.text(), "1\n");
        close(&session).await;
    });
    outside.assert_unchanged();
    assert_eq!(fs::read_to_string(scratch.join("f")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(covered.join("f")).unwrap(), "2\n");
    unmount(&covered, UnmountFlags::DETACH).unwrap();
    assert_eq!(fs::read_dir(covered.join("deep")).unwrap().count(), 0);
    say(places, "done", "inside");
}

fn storm(places: &Places) {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let point = places.write_root().join("in");
    fs::create_dir(&point).unwrap();
    let (stop, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut opened, mut refusals) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                bind(&places.private(), &point);
                unmount(&point, UnmountFlags::DETACH).unwrap();
                turns.fetch_add(1, Ordering::Relaxed);
                // Long enough that some grants find it quiet.
                std::thread::sleep(std::time::Duration::from_millis(
                    turns.load(Ordering::Relaxed) as u64 % 23,
                ));
            }
        });
        host::block_on(async {
            for _ in 0..40 {
                match places.session().open().await {
                    Ok(session) => {
                        opened += 1;
                        for _ in 0..3 {
                            // Whether the host has it mounted or not, the command is refused or finds nothing there.
                            drop(
                                session
                                    .command("/bin/sh")
                                    .args(["-c", "echo evil > in/db; chmod 600 in/db"])
                                    .output()
                                    .await,
                            );
                            drop(session.replace_write_roots([places.write_root()]).await);
                        }
                        close(&session).await;
                    }
                    Err(error) => {
                        refusals += 1;
                        let expected = [ErrorKind::RootOverlap, ErrorKind::RootUnprovable];
                        assert!(expected.contains(&error.kind()), "{}", error.report());
                    }
                }
                assert_eq!(fs::read_to_string(places.secret()).unwrap(), "s");
            }
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert!(opened > 0 && turns.load(Ordering::Relaxed) > 10, "{opened} opened, {refusals} refused");
    // What was written while it was not mounted lies below it.
    say(places, "done", "storm");
}

fn limited(places: &Places) {
    // In a user namespace of its own, where limits are its own too.
    for kind in ["user", "mnt", "pid", "ipc", "uts", "net"] {
        fs::write(format!("/proc/sys/user/max_{kind}_namespaces"), "0").unwrap();
    }
    host::block_on(async {
        let bare = || {
            bailiwick::Session::builder(places.private())
                .temporary_parent(places.temporary())
                .write_root(places.write_root())
        };
        let error = refused(bare().open().await, ErrorKind::ProtectionUnavailable);
        let report = error.report().to_string();
        assert_eq!(error.field("protection").and_then(bailiwick::Field::as_text), Some("metadata"));
        assert!(report.contains("No space left on device") && report.contains("no namespaces"), "{report}");
        let session = open(bare().accept(Protection::Metadata).accept(Protection::NamedSockets)).await;
        assert!(!session.enforcement().await.keeps(Protection::Metadata));
        assert!(session.enforcement().await.keeps(Protection::Settlement));
        let secret = Snapshot::of(places.secret());
        sh(&session, &format!("echo x > x; echo evil > '{}'", text(&places.secret()))).await;
        secret.assert_unchanged();
        assert!(places.write_root().join("x").exists());
        close(&session).await;
    });
    say(places, "done", "limited");
}

fn masked(places: &Places) {
    mount("tmpfs", "/proc/sys", "tmpfs", MountFlags::RDONLY, None).unwrap();
    assert!(fixture::is_mount_point("/proc/sys"));
    // Without capabilities a session makes a user namespace, in which what is mounted here is locked.
    let nothing = rustix::thread::CapabilitySet::empty();
    let nothing =
        rustix::thread::CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
    rustix::thread::set_capabilities(None, nothing).unwrap();
    host::block_on(async {
        let session = places.open().await;
        let sleeper = session.command("/bin/sleep").arg("600").spawn().await.unwrap();
        assert!(is_asleep(sleeper.id()));
        assert_eq!(process::start_time(sleeper.id()), Some(sleeper.start_time()));
        let enforcement = session.enforcement().await;
        match enforcement.standing(Protection::Processes).unwrap() {
            // A program of root has its powers again: it makes no user namespace, and nothing is locked for it.
            Standing::Kept { .. } => assert!(bailiwick_test::case::is_root()),
            Standing::NotKept { cause, .. } => {
                assert!(cause.contains("/proc"), "{cause}");
                // Named, not hidden: the host's own list is what commands see.
                let host = std::process::id();
                assert_eq!(done(&sh(&session, &format!("cat /proc/{host}/comm | grep -c .")).await), "1\n");
            }
            other => panic!("{other:?}"),
        }
        for protection in [Protection::Metadata, Protection::Settlement, Protection::Signals] {
            assert!(enforcement.keeps(protection), "{protection:?}");
        }
        assert_eq!(close(&session).await.killed(), 1);
        assert!(process::pid_gone(sleeper.id(), sleeper.start_time()));
    });
    say(places, "done", "masked");
}

#[test]
#[ignore = "the host program of the cases of this file"]
fn host() {
    host::play(&[("inside", inside), ("storm", storm), ("limited", limited), ("masked", masked)]);
}
