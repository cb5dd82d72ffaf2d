//! The text of a mount table: generated ones are read as they were meant, damaged ones are refused.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::super::{Device, Mount, MountTable};

/// Lines as kernels write them.
const LINES: &str = "\
22 28 0:21 / /proc rw,nosuid - proc proc rw
28 1 254:0 / / ro,relatime shared:1 master:2 propagate_from:3 - ext4 /dev/root rw
30 28 0:25 /a\\040b//deleted /mnt/c\\012d\\134e#f rw unbindable new_tag - fuse.sshfs host:/x\\043 ro,user_id=0
31 28 0:4 net:[4026531840] /run/n rw - nsfs nsfs rw
32 28 0:46 / /t rw,relatime - tmpfs  rw,size=8k
";

#[test]
fn lines_as_kernels_write_them() {
    let table = MountTable::parse(LINES.as_bytes()).unwrap();
    assert_eq!(table.iter().count(), 5);
    let root = table.get(28).unwrap();
    assert!(root.read_only && root.options.is_empty());
    assert_eq!((root.parent, root.device), (1, Device { major: 254, minor: 0 }));
    let escaped = table.get(30).unwrap();
    assert_eq!((escaped.root.as_path(), escaped.root_removed), (Path::new("/a b"), true));
    assert_eq!(escaped.point, Path::new("/mnt/c\nd\\e#f"));
    assert_eq!((&*escaped.fs_type, &*escaped.source), ("fuse.sshfs", "host:/x#".as_ref()));
    assert!(escaped.read_only);
    assert_eq!(escaped.options, b"user_id=0");
    assert_eq!(table.get(31).unwrap().root, Path::new("net:[4026531840]"));
    assert_eq!(
        (table.get(32).unwrap().source.is_empty(), &table.get(32).unwrap().options[..]),
        (true, &b"size=8k"[..])
    );
    assert_eq!(MountTable::parse(b"").unwrap().iter().count(), 0);
}

#[test]
fn lines_that_no_kernel_writes() {
    for line in [
        "\n",
        "22 28 0:21 / /proc rw - proc proc rw", // cut off
        "22 28 0:21 / /proc rw - proc proc\n",
        "22 28 0:21 / /proc rw proc proc rw\n",
        "+22 28 0:21 / /proc rw - proc proc rw\n",
        "22 -1 0:21 / /proc rw - proc proc rw\n",
        "22 28 021 / /proc rw - proc proc rw\n",
        "22 28 0:21:3 / /proc rw - proc proc rw\n",
        "22 28 0:99999999999 / /proc rw - proc proc rw\n",
        "22 28 0:21  /proc rw - proc proc rw\n",
        "22 28 0:21 / proc rw - proc proc rw\n",
        "22 28 0:21 / /pr\\oc rw - proc proc rw\n",
        "22 28 0:21 / /proc\\40 rw - proc proc rw\n",
        "22 28 0:21 / /proc\\400 rw - proc proc rw\n",
        "22 28 0:21 / /proc rwx - proc proc rw\n",
        "22 28 0:21 / /proc rw  - proc proc rw\n",
        "22 28 0:21 / /proc rw -  proc rw\n",
        "22 28 0:21 / /proc rw - proc proc size=1\n",
        "22 28 0:21 / /proc rw - proc proc rw\n22 28 0:22 / /sys rw - sysfs sysfs rw\n",
        "22 28 0:21 / /proc rw - proc proc rw\n\n",
    ] {
        assert!(MountTable::parse(line.as_bytes()).is_err(), "{line:?}");
    }
    let error = MountTable::parse(b"22 28 0:21 / \x1b[2J rw - proc proc rw\n").unwrap_err().to_string();
    assert!(error.contains("the point is no absolute path") && !error.contains('\x1b'), "{error}");
}

/// A mount with the tags of its propagation, which the table does not keep.
#[derive(Debug, Clone)]
struct Line {
    mount: Mount,
    mount_read_only: bool,
    tags: Vec<String>,
}

/// Bytes of a name: no NUL, no slash, and those often that are escaped.
fn name(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(&b" \t\n\\#,:-.073"[..]);
    let any = (1_u8..=255).prop_filter("a slash ends a name", |byte| *byte != b'/');
    vec(prop_oneof![special, any], length)
}

fn path() -> impl Strategy<Value = OsString> {
    vec(name(1..8), 0..4).prop_map(|names| {
        let joined = names.join(&b'/');
        OsString::from_vec([b"/", &joined[..]].concat())
    })
}

fn line(id: u64) -> impl Strategy<Value = Line> {
    let tags =
        prop::sample::select(&["shared:1", "master:22", "propagate_from:3", "unbindable", "later"][..]);
    let options = "[a-z]{1,8}(=[a-z0-9\\\\,]{1,9})?(,uid=[0-9]{1,3})?";
    (
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>(), any::<bool>()),
        (path(), path(), "[a-z0-9]{1,8}(\\.[a-z0-9]{1,8})?", name(0..9), vec(tags, 0..3)),
        proptest::option::of(options.prop_filter("as if it were general", |text| {
            !["rw", "ro", "sync", "dirsync", "mand", "lazytime"]
                .contains(&text.split(',').next().unwrap_or(""))
        })),
    )
        .prop_map(move |(numbers, names, options)| {
            let (parent, major, minor, root_removed, read_only) = numbers;
            let (root, point, fs_type, source, tags) = names;
            Line {
                mount: Mount {
                    id,
                    parent: parent.into(),
                    device: Device { major, minor },
                    root: root.into(),
                    root_removed,
                    point: point.into(),
                    fs_type,
                    source: OsString::from_vec(source),
                    options: options.unwrap_or_default().into_bytes(),
                    read_only,
                },
                mount_read_only: read_only && minor % 2 == 0,
                tags: tags.into_iter().map(str::to_owned).collect(),
            }
        })
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    btree_map(any::<u32>(), any::<u8>(), 0..12)
        .prop_flat_map(|ids| ids.into_keys().map(|id| line(id.into())).collect::<Vec<_>>())
}

/// The fields of a line as the kernel writes it: `show_mountinfo` of `fs/proc_namespace.c`.
fn fields(line: &Line) -> Vec<Vec<u8>> {
    let Line { mount, mount_read_only, tags } = line;
    let escape = |bytes: &[u8], also: &[u8]| {
        let mut shown = Vec::new();
        for byte in bytes {
            if b" \t\n\\".contains(byte) || also.contains(byte) {
                shown.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            } else {
                shown.push(*byte);
            }
        }
        shown
    };
    let flag = |read_only| if read_only { "ro" } else { "rw" };
    let mut root = mount.root.as_os_str().as_bytes().to_vec();
    if mount.root_removed {
        root.extend_from_slice(b"//deleted");
    }
    let mut options = flag(mount.read_only && !mount_read_only).as_bytes().to_vec();
    if !mount.options.is_empty() {
        options.push(b',');
        options.extend_from_slice(&mount.options);
    }
    let mut fields = vec![
        mount.id.to_string().into_bytes(),
        mount.parent.to_string().into_bytes(),
        mount.device.to_string().into_bytes(),
        escape(&root, b""),
        escape(mount.point.as_os_str().as_bytes(), b""),
        format!("{},relatime", flag(*mount_read_only)).into_bytes(),
    ];
    fields.extend(tags.iter().map(|tag| tag.clone().into_bytes()));
    fields.push(b"-".to_vec());
    fields.push(escape(mount.fs_type.as_bytes(), b"#"));
    fields.push(escape(mount.source.as_bytes(), b"#"));
    fields.push(options);
    fields
}

fn text(lines: &[Line]) -> Vec<u8> {
    lines.iter().flat_map(|line| [fields(line).join(&b' '), b"\n".to_vec()].concat()).collect()
}

proptest! {
    #[test]
    fn any_table_is_read_as_it_was_meant(lines in lines()) {
        let table = MountTable::parse(&text(&lines)).unwrap();
        let meant: Vec<Mount> = lines.into_iter().map(|line| line.mount).collect();
        prop_assert_eq!(table.iter().cloned().collect::<Vec<_>>(), meant);
    }

    #[test]
    fn a_line_that_lost_a_field_is_refused(line in line(7), lost in any::<prop::sample::Index>()) {
        let mut fields = fields(&line);
        let lost = lost.index(fields.len());
        let is_tag = (6..6 + line.tags.len()).contains(&lost);
        fields.remove(lost);
        let text = [fields.join(&b' '), b"\n".to_vec()].concat();
        // A tag is the one field that a line may do without.
        prop_assert_eq!(MountTable::parse(&text).is_ok(), is_tag);
    }

    #[test]
    fn a_text_cut_off_is_refused(lines in lines(), cut in any::<prop::sample::Index>()) {
        let text = text(&lines);
        let cut = &text[..cut.index(text.len() + 1)];
        let is_whole = cut.is_empty() || cut.ends_with(b"\n");
        prop_assert_eq!(MountTable::parse(cut).is_ok(), is_whole);
    }

    #[test]
    fn any_bytes_are_read_or_refused(text in vec(any::<u8>(), 0..300)) {
        let _either = MountTable::parse(&text);
    }

    /// Text that is nearly right: one byte of a good table replaced.
    #[test]
    fn a_damaged_table_is_read_or_refused(lines in lines(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = text(&lines);
        if !text.is_empty() {
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(table) = MountTable::parse(&text) {
                prop_assert!(table.iter().all(|mount| mount.point.is_absolute() && !mount.fs_type.is_empty()));
            }
        }
    }
}
