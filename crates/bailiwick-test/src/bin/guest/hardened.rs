//! A session on a host that forbids more than others do. The last scene: some of it cannot be taken back.

use std::fs;

use serde_json::{Value, json};

use crate::attempt::{Kernel, refusal, session};
use crate::share::writes;

/// No tracing at all (Yama), no rings, no user namespaces for plain users (Debian's own setting).
const SETTINGS: [(&str, &str); 3] =
    [("yama/ptrace_scope", "3"), ("io_uring_disabled", "2"), ("unprivileged_userns_clone", "0")];

pub(crate) fn run(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    let set: Vec<&str> = SETTINGS
        .into_iter()
        .filter(|(name, value)| fs::write(format!("/proc/sys/kernel/{name}"), value).is_ok())
        .map(|(name, _)| name)
        .collect();
    fs::create_dir_all("/m/hardened/sub").unwrap();
    say(json!({ "scene": "hardened", "set": set, "open": kernel.block_on(open()) }));
}

async fn open() -> Value {
    match session("/m/s").write_root("/m/hardened").open().await {
        Err(error) => refusal(&error),
        Ok(session) => {
            let made = writes(&session, "/m/hardened").await;
            session.close().await.unwrap();
            json!({ "granted": true, "made": made })
        }
    }
}
