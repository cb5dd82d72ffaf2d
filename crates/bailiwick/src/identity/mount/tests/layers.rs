//! Layers of overlays: their options, and the handles that show what the options only say.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::overlay::OverlayLayers;
use super::super::{handle, overlay_layers};
use super::{overlay, table, with_arena};

fn layers(options: &str) -> OverlayLayers {
    overlay_layers(options.as_bytes()).unwrap()
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

#[test]
fn options_as_kernels_write_them() {
    let found = layers(r"lowerdir=l\134\054o:l\134:o:l\134\134o::d,upperdir=u\134\054p,workdir=w,uuid=on");
    assert_eq!(found.lowers, paths(&["l,o", "l:o", r"l\o", "d"]));
    assert_eq!((found.upper, found.work), (Some("u,p".into()), Some("w".into())));
    assert_eq!(found.also, paths(&[r"u\,p"]));
    // By descriptors and single layers: no escapes of the mounter.
    let found =
        layers(r"seclabel,lowerdir+=/l\054o,lowerdir+=/l:o,lowerdir+=/l\134o,datadir+=/d,redirect_dir=on");
    assert_eq!(found.lowers, paths(&["/l,o", "/l:o", r"/l\o", "/d"]));
    assert_eq!((found.upper, found.work, found.also), (None, None, vec![]));
    let found = layers(r"lowerdir+=/l,upperdir=/u\134q,workdir=/a\040b");
    assert_eq!((found.upper, found.also), (Some("/uq".into()), paths(&[r"/u\q"])));
    assert_eq!(found.work, Some("/a b".into()));
    // Early 6.5.
    assert_eq!(layers(r"lowerdir=/a\072b:/c\134d::/e").lowers, paths(&["/a:b", r"/c\d", "/e"]));
}

#[test]
fn options_of_no_overlay() {
    for options in [
        "",
        "size=8k",
        "upperdir=u,workdir=w",
        "lowerdir=",
        "lowerdir=:a",
        "lowerdir=a:",
        "lowerdir=a::",
        "lowerdir=a:::b",
        r"lowerdir=a\134",
        r"lowerdir=a\1",
        r"lowerdir=a\b",
        "lowerdir=a,lowerdir=b",
        "lowerdir=a,lowerdir+=b",
        "lowerdir+=a,lowerdir=b",
        "lowerdir+=",
        "lowerdir=a,upperdir=",
        "lowerdir=a,upperdir=u,upperdir=v",
        r"lowerdir=a,workdir=w\134",
        r"lowerdir=a,upperdir=u\9",
    ] {
        assert!(overlay_layers(options.as_bytes()).is_err(), "{options}");
    }
    let message = overlay_layers(b"lowerdir=a\n:").unwrap_err().to_string();
    assert!(message.contains(r"`lowerdir=a\n:`"), "{message}");
}

/// What the kernel shows of real overlays names the real layers.
#[test]
fn real_overlays() {
    with_arena(|arena| {
        rustix::process::chdir(&arena.at).unwrap();
        let names = ["u,p", "u:p", r"u\p", "w", "l,o", "l:o", r"l\o", "a b\n#\\,:="];
        for name in names {
            arena.dir(name);
        }
        // The mounter's text on the left, the names it means on the right.
        let cases: &[(&str, Option<&str>, &[&str])] = &[
            (r"lowerdir=l\,o:l\:o:l\\o,upperdir=u\,p,workdir=w", Some("u,p"), &["l,o", "l:o", r"l\o"]),
            (r"lowerdir=l\:o,upperdir=u\:p,workdir=w", Some("u:p"), &["l:o"]),
            (r"lowerdir=l\\o,upperdir=u\\p,workdir=w", Some(r"u\p"), &[r"l\o"]),
            (concat!("lowerdir=a b\n#", r"\\\,\:=:l\,o"), None, &["a b\n#\\,:=", "l,o"]),
        ];
        for (number, (options, upper, lowers)) in cases.iter().enumerate() {
            let merged = arena.dir(format!("m{number}"));
            overlay(&merged, options.as_bytes());
            let table = table();
            let shown = table.iter().find(|mount| mount.point == merged).unwrap();
            assert_eq!(shown.fs_type, "overlay");
            let found = overlay_layers(&shown.options).unwrap();
            assert_eq!(found.upper, upper.map(PathBuf::from), "{options}");
            assert_eq!(found.work, upper.map(|_| "w".into()), "{options}");
            assert_eq!(found.lowers, paths(lowers), "{options}");
            if let Some(upper) = upper {
                // The name is that of the directory that takes what is written.
                let _file = File::create(merged.join(format!("in {number}"))).unwrap();
                assert!(Path::new(upper).join(format!("in {number}")).exists());
            }
            rustix::mount::unmount(&merged, rustix::mount::UnmountFlags::empty()).unwrap();
        }
    });
}

/// Makes an overlay of layers given one by one; `None` where this kernel takes no descriptors for layers.
fn overlay_by_descriptors(at: &Path, layers: &[(&str, &File)]) -> Option<()> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_fd, fsmount,
        fsopen, move_mount,
    };
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    for (key, layer) in layers {
        match fsconfig_set_fd(context.as_fd(), *key, layer) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return None,
            outcome => outcome.unwrap(),
        }
    }
    fsconfig_create(context.as_fd()).unwrap();
    let made = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
    move_mount(made, "", rustix::fs::CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
    Some(())
}

/// Layers given as descriptors: a backslash is itself, and a layer of a detached mount is shown by a path that leads
/// elsewhere. This is why a path that leads somewhere is no proof.
#[test]
fn layers_by_descriptor() {
    with_arena(|arena| {
        use rustix::mount::{OpenTreeFlags, open_tree};
        let (upper, work, merged) = (arena.dir("u\\p"), arena.dir("w"), arena.dir("m"));
        let lower = arena.dir("deep/inside/lower");
        let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let detached = open_tree(rustix::fs::CWD, arena.path("deep/inside"), tree).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let in_detached = rustix::fs::openat(&detached, "lower", flags, rustix::fs::Mode::empty()).unwrap();
        let (upper_fd, work_fd) = (File::open(&upper).unwrap(), File::open(&work).unwrap());
        let made = overlay_by_descriptors(
            &merged,
            &[("lowerdir+", &in_detached.into()), ("upperdir", &upper_fd), ("workdir", &work_fd)],
        );
        if made.is_none() {
            return; // a kernel before 6.13
        }
        let table = table();
        let shown = table.iter().find(|mount| mount.point == merged).unwrap();
        let found = overlay_layers(&shown.options).unwrap();
        assert_eq!((found.upper, found.also), (Some(arena.path("up")), vec![upper.clone()]));
        assert_eq!(found.work, Some(work));
        assert_ne!(found.lowers, vec![lower.clone()], "better than it was: then say so in its documentation");
        // What does prove something: the handles.
        let of = |path: &Path| handle(File::open(path).unwrap(), path).unwrap().unwrap();
        assert!(of(&merged).is_same_file(&of(&upper)));
        fs::write(lower.join("file"), "").unwrap();
        assert!(of(&merged.join("file")).is_same_file(&of(&lower.join("file"))));
    });
}

/// A file shown by an overlay and the file of a layer have one handle, and no other file has it. A file that was copied
/// up keeps the handle of the file that it was copied from.
#[test]
fn handles_see_through_overlays() {
    with_arena(|arena| {
        let (lower, upper, merged) = (arena.dir("l"), arena.dir("u"), arena.dir("m"));
        let work = arena.dir("w");
        for name in ["low", "changed", "d/in"] {
            arena.dir("l/d");
            fs::write(lower.join(name), "").unwrap();
        }
        fs::write(arena.path("other"), "").unwrap();
        let of = |path: &Path| handle(File::open(path).unwrap(), path).unwrap();
        if of(&lower).is_none() {
            return; // a kernel before 6.5
        }
        let of = |path: &Path| of(path).unwrap();
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        overlay(&merged, options.as_bytes());
        fs::write(merged.join("new"), "").unwrap();
        fs::write(merged.join("changed"), "x").unwrap();
        fs::write(merged.join("d/in"), "x").unwrap();
        fs::hard_link(merged.join("new"), merged.join("linked")).unwrap();
        fs::rename(merged.join("changed"), merged.join("renamed")).unwrap();
        for (shown, layer, is_upper) in [
            (".", upper.clone(), true),
            ("new", upper.join("new"), true),
            ("linked", upper.join("new"), true),
            ("low", lower.join("low"), false),
            // Copied up: shown by what they came from.
            ("renamed", lower.join("changed"), false),
            ("d", lower.join("d"), false),
            ("d/in", lower.join("d/in"), false),
        ] {
            let shown = of(&merged.join(shown));
            assert!(shown.is_same_file(&of(&layer)), "{layer:?}");
            assert_eq!(shown.layer().unwrap().upper, is_upper, "{layer:?}");
            assert_eq!(of(&layer).layer(), None);
            assert!(!shown.is_same_file(&of(&arena.path("other"))));
        }
        // What a write changes is the copy, and the handle does not say so.
        assert_eq!(fs::read(upper.join("renamed")).unwrap(), b"x");
        assert!(!of(&merged.join("renamed")).is_same_file(&of(&upper.join("renamed"))));
        // By a descriptor that only marks a place, too.
        let path = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let marked = rustix::fs::open(merged.join("new"), path, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(handle(marked, &merged).unwrap().unwrap(), of(&merged.join("new")));
    });
}

/// The number in a handle is the inode number, on every file system that is here.
#[test]
fn handles_hold_inode_numbers() {
    use std::os::unix::fs::MetadataExt as _;
    with_arena(|arena| {
        for name in ["one", "two/three"] {
            let dir = arena.dir(name);
            let Some(found) = handle(File::open(&dir).unwrap(), &dir).unwrap() else { return };
            let inode = fs::metadata(&dir).unwrap().ino();
            assert_eq!(found.inode(), Some(inode));
            assert_eq!(found.entry_numbers().collect::<Vec<_>>(), [inode]);
        }
        let [one, two] = ["one", "two"].map(|name| {
            let path = arena.path(name);
            handle(File::open(&path).unwrap(), &path).unwrap().unwrap()
        });
        assert!(one.has_form_of(&two) && !one.is_same_file(&two));
    });
}

/// A name of a layer, with every character that the kernel or the mounter writes in a special way.
fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![
            Just(b','),
            Just(b':'),
            Just(b'\\'),
            Just(b' '),
            Just(b'\n'),
            Just(b'='),
            Just(b'#'),
            Just(b'7'),
            Just(b'0'),
            1_u8..=255
        ],
        1..20,
    )
}

/// As the kernel writes a value: `seq_show_option` of `linux/seq_file.h`.
fn by_kernel(value: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    for byte in value {
        if b", \t\n\\".contains(byte) {
            shown.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            shown.push(*byte);
        }
    }
    shown
}

/// As a mounter must write a name in a list, or an upper layer.
fn by_mounter(name: &[u8]) -> Vec<u8> {
    name.iter()
        .flat_map(|byte| if b",:\\".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] })
        .collect()
}

proptest! {
    #[test]
    fn any_layers_are_found_again(
        lowers in vec(name(), 1..5),
        data in vec(name(), 0..3),
        upper in proptest::option::of((name(), name())),
        single in any::<bool>(),
    ) {
        let mut options = b"seclabel".to_vec();
        let mut show = |key: &str, value: &[u8]| {
            options.extend_from_slice(format!(",{key}=").as_bytes());
            options.extend(by_kernel(value));
        };
        if single {
            lowers.iter().for_each(|layer| show("lowerdir+", layer));
            data.iter().for_each(|layer| show("datadir+", layer));
        } else {
            let mut list = lowers.iter().map(|layer| by_mounter(layer)).collect::<Vec<_>>().join(&b':');
            for layer in &data {
                list.extend_from_slice(b"::");
                list.extend(by_mounter(layer));
            }
            show("lowerdir", &list);
        }
        if let Some((upper, work)) = &upper {
            show("upperdir", &by_mounter(upper));
            show("workdir", &by_mounter(work));
        }
        options.extend_from_slice(b",redirect_dir=on,userxattr");
        let found = overlay_layers(&options).unwrap();
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        prop_assert_eq!(found.lowers.into_iter().map(bytes).collect::<Vec<_>>(), [lowers, data].concat());
        let plain = |name: &[u8]| !name.iter().any(|byte| b",:\\".contains(byte));
        let doubtful = upper.iter().flat_map(|(upper, work)| [upper, work]).filter(|name| !plain(name)).count();
        prop_assert_eq!(found.also.len(), doubtful);
        prop_assert_eq!(found.upper.zip(found.work).map(|(upper, work)| (bytes(upper), bytes(work))), upper);
    }

    #[test]
    fn any_bytes_are_read_or_refused(options in vec(any::<u8>(), 0..200)) {
        let _either = overlay_layers(&options);
    }

    /// Text that is nearly right.
    #[test]
    fn any_list_is_read_or_refused(
        list in vec(prop::sample::select(&b"a:\\,=/0137 "[..]), 0..40),
        key in prop::sample::select(&["lowerdir", "lowerdir+", "datadir+", "upperdir", "workdir"][..]),
    ) {
        let mut options = b"lowerdir=base,".to_vec();
        options.extend_from_slice(key.as_bytes());
        options.push(b'=');
        options.extend_from_slice(&list);
        for options in [&options[..], &options[b"lowerdir=base,".len()..]] {
            if let Ok(found) = overlay_layers(options) {
                let all = found.lowers.iter().chain(&found.upper).chain(&found.work);
                for path in all.chain(&found.also) {
                    prop_assert!(!path.as_os_str().as_bytes().is_empty());
                }
                prop_assert!(!found.lowers.is_empty());
            }
        }
    }
}
