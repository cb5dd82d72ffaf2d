//! A store on an overlay, on a kernel that tells about mounts in text alone.

use std::fs;

use serde_json::Value;

use crate::attempt::{Kernel, Layout};
use crate::boot::put;

pub(crate) fn run(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    // The space comes out of the mount table as an escape.
    for directory in ["/t/lo wer/P/sub", "/t/upper/P2/sub", "/t/work", "/t/merged", "/t/other/sub"] {
        fs::create_dir_all(directory).unwrap();
    }
    for store in ["/t/lo wer/P", "/t/upper/P2", "/t/other"] {
        rustix::fs::chmod(store, rustix::fs::Mode::from(0o700)).unwrap();
        fs::write(format!("{store}/sub/f"), "kept").unwrap();
    }
    put("overlay", "/t/merged", "overlay", c"lowerdir=/t/lo wer,upperdir=/t/upper,workdir=/t/work");
    let (lower, upper) = ("/t/merged/P", "/t/merged/P2");
    let layout = |name, store, root, kept, reach| Layout { name, store, root, kept, reach };
    let layouts = [
        layout("overlay lower", lower, "/t/lo wer/P/sub", "/t/merged/P/sub/f", "/t/lo wer/P/sub/f"),
        layout("overlay upper", upper, "/t/upper/P2/sub", "/t/merged/P2/sub/f", "/t/upper/P2/sub/f"),
        layout(
            "overlay merged",
            "/t/upper/P2",
            "/t/merged/P2/sub",
            "/t/upper/P2/sub/f",
            "/t/merged/P2/sub/f",
        ),
        layout("twin overlay", upper, "/t/other/sub", "/t/merged/P2/sub/f", "/t/upper/P2/sub/f"),
    ];
    for layout in layouts {
        say(kernel.attempt(&layout));
    }
}
