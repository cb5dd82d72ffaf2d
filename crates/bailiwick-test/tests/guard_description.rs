//! C94: what a session says of itself and what its commands can do are the same, for policies at random.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bailiwick::{Protection, Session, Standing};
use bailiwick_test::places::{close, done, open, sh};
use bailiwick_test::{Listing, Places, cases, image_without_namespaces};

const POLICIES: u64 = 60;
const SEED: u64 = 0x5eed_0094;

/// The places outside of every root that are tried, beside the directories of the world.
const SYSTEM: [&str; 12] = [
    "/",
    "/tmp",
    "/var/tmp",
    "/dev",
    "/dev/shm",
    "/etc",
    "/run",
    "/home",
    "/var/lib",
    "/proc/self",
    "/sys",
    "/usr/bin",
];

/// Devices that are documented as writable without being granted.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Numbers that look random and are the same in every run. Xorshift (Marsaglia 2003), 64 bits.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// Directories of a tree three deep, each of which may be granted.
fn tree(places: &Places) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for one in ["a", "b", "c", "ab", "a b"] {
        for two in ["", "x", "x/deep", "y"] {
            let path = places.join("D").join(one).join(two);
            // Without the slash that an empty name leaves.
            let path: PathBuf = path.components().collect();
            fs::create_dir_all(&path).unwrap();
            all.push(path);
        }
    }
    all
}

/// A policy: some directories, some of them in another spelling or through a link, some more than once.
fn roots(numbers: &mut Numbers, tree: &[PathBuf], link: &Path) -> Vec<PathBuf> {
    let count = numbers.below(6);
    (0..count)
        .map(|_| {
            let path = &tree[numbers.below(tree.len())];
            let name = path.file_name().unwrap();
            match numbers.below(5) {
                0 => path.join("."),
                1 => path.join("..").join(name),
                2 => link.join(path.strip_prefix(link.parent().unwrap().join("D")).unwrap()),
                _ => path.clone(),
            }
        })
        .collect()
}

/// What the policy grants, computed from its text and the tree alone: outermost directories, in its order.
fn expected(roots: &[PathBuf]) -> Vec<PathBuf> {
    let canonical: Vec<PathBuf> = roots.iter().map(|root| fs::canonicalize(root).unwrap()).collect();
    let mut seen = BTreeSet::new();
    canonical
        .iter()
        .filter(|root| !canonical.iter().any(|other| root.starts_with(other) && *root != other))
        .filter(|root| seen.insert((*root).clone()))
        .cloned()
        .collect()
}

/// A script that tries to make a file in every place given, and says where it could. What it makes it
/// leaves, for the world to show.
fn probes(places: &[PathBuf], name: &str) -> String {
    let mut script = String::new();
    for place in places {
        let place = place.display();
        script.push_str(&format!("(: > '{place}/{name}') 2>/dev/null && echo '{place}'\n"));
    }
    script.push_str("true\n");
    script
}

/// Where the session says that its commands can write, and where they can.
async fn compare(session: &Session, places: &Places, tree: &[PathBuf], turn: &str) {
    let said = session.write_roots().await;
    let temporary = session.temporary_dir().to_owned();
    let mut tried: Vec<PathBuf> = tree.to_vec();
    tried.extend([places.private(), places.outside(), places.write_root(), places.path().to_owned()]);
    tried.extend([places.join("D"), temporary.clone(), places.temporary()]);
    tried.extend(SYSTEM.iter().map(PathBuf::from));
    let name = format!("bw-probe-{}-{turn}", std::process::id());
    let output = session.command("/bin/sh").args(["-c", &probes(&tried, &name)]).current_dir("/").output();
    let output = output.await.unwrap();
    let could: BTreeSet<PathBuf> = done(&output).lines().map(PathBuf::from).collect();
    assert_eq!(output.write_roots, said, "{turn}");

    // The world is asked, not the command; in places that this user cannot look at there is nothing to find.
    let there: BTreeSet<PathBuf> =
        tried.iter().filter(|place| fs::symlink_metadata(place.join(&name)).is_ok()).cloned().collect();
    for place in &there {
        fs::remove_file(place.join(&name)).unwrap();
    }
    let described: BTreeSet<PathBuf> = tried
        .iter()
        .filter(|place| said.iter().any(|root| place.starts_with(root)) || **place == temporary)
        .cloned()
        .collect();
    assert_eq!(there, described, "{turn}: the world, and what the session says of itself");
    let mut described = described;
    if session.enforcement().await.keeps(Protection::Metadata) {
        // In a mount view shared memory is the grant's own; nothing of it is seen in the world.
        described.insert(PathBuf::from("/dev/shm"));
    }
    assert_eq!(could, described, "{turn}: what the command saw, and what the session says of itself");
}

/// The documented implicit places beside the temporary directory: standard devices, terminals of the session's own in a
/// mount view, and no other device.
async fn compare_devices(session: &Session) {
    for device in DEVICES {
        // Opening is what is granted: `/dev/full` then reports no space.
        done(&sh(session, &format!("exec 3<>{device}")).await);
    }
    let has_view = session.enforcement().await.keeps(Protection::Metadata);
    let opened = sh(session, "exec 3<>/dev/ptmx").await;
    assert_eq!(opened.status.success(), has_view);
    let standing = session.enforcement().await;
    assert!(matches!(standing.standing(Protection::Terminals), Some(Standing::Kept { .. })));
}

cases! {
    /// C94: sixty policies, each opened and then replaced by the next.
    async fn c94_description_and_enforcement(world: &World, seconds = 240) {
        let places = Places::of(world);
        let tree = tree(&places);
        let link = places.join("L");
        symlink("D", &link).unwrap();
        let before = Listing::of(places.join("D"));
        let mut numbers = Numbers(SEED);
        let mut shapes: BTreeMap<usize, u32> = BTreeMap::new();
        for policy in 0..POLICIES {
            let given = roots(&mut numbers, &tree, &link);
            let turn = format!("{policy}-open");
            // Every other one as on a host without namespaces.
            let builder = places.bare_session().write_roots(&given);
            let session = open(match policy % 2 {
                0 => builder,
                _ => builder._worker_image(image_without_namespaces()),
            })
            .await;
            assert_eq!(session.write_roots().await, expected(&given), "{turn}: {given:?}");
            compare(&session, &places, &tree, &turn).await;
            let enforcement = session.enforcement().await;
            assert!(enforcement.keeps(Protection::Content), "{turn}");
            let has_view = policy % 2 == 0;
            assert_eq!(enforcement.keeps(Protection::Metadata), has_view, "{turn}");

            let given = roots(&mut numbers, &tree, &link);
            let turn = format!("{policy}-replaced");
            session.replace_write_roots(&given).await.unwrap();
            assert_eq!(session.write_roots().await, expected(&given), "{turn}: {given:?}");
            compare(&session, &places, &tree, &turn).await;
            assert_eq!(session.enforcement().await, enforcement, "{turn}");
            *shapes.entry(expected(&given).len()).or_default() += 1;
            if matches!(policy % 20, 0 | 1) {
                compare_devices(&session).await;
            }
            close(&session).await;
            assert!(!session.temporary_dir().exists());
        }
        // The policies were as different as they should be.
        assert!(shapes.len() >= 4, "{shapes:?}");
        before.assert_unchanged();

        // The control: without confinement the same probes succeed in every directory of the world.
        let mut writable = tree.clone();
        writable.extend([places.private(), places.outside(), places.write_root(), places.join("D")]);
        let script = probes(&writable, "bare");
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        let could: BTreeSet<PathBuf> = String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect();
        assert_eq!(could, writable.into_iter().collect());
    }

    /// C94: `terminals`, once accepted, is described as not kept, and is open.
    async fn c94_accepted_gaps_are_described_and_open(world: &World) {
        let places = Places::of(world);
        let plain = places.session()._worker_image(image_without_namespaces());
        let session = open(plain.accept(Protection::Terminals)).await;
        let standing = session.enforcement().await;
        assert!(matches!(standing.standing(Protection::Terminals), Some(Standing::NotKept { accepted: true, .. })));
        done(&sh(&session, "exec 3<>/dev/ptmx").await);
        close(&session).await;
    }
}
