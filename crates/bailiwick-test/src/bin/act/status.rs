//! What this process is, as `/proc/self/status` has it. Acts that only look.

use serde_json::{Map, Value};

use crate::Act;
use crate::answer::{Answer, Prepare as _};

pub(crate) const ACTS: &[Act] = &[
    ("capset-status", "", |_| {
        fields(&[
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
            "Seccomp_filters",
            "Uid",
            "Gid",
            "Groups",
        ])
    }),
    ("signals-status", "", |_| fields(&["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"])),
    ("do-nothing", "", |_| Err(crate::answer::Failed::Silent)),
];

fn fields(names: &[&str]) -> Answer {
    let status = std::fs::read_to_string("/proc/self/status").prepare("read /proc/self/status")?;
    let fields = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        names.contains(&name).then(|| (name.to_owned(), Value::from(value.trim())))
    });
    Ok(Value::Object(fields.collect::<Map<_, _>>()))
}
