//! A session on a host as it is, and on one that forbids more than others do. The last scenes: some of it cannot be taken
//! back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::attempt::{Kernel, act, refusal, session};
use crate::share::writes;

/// No tracing at all (Yama), no rings, no user namespaces for plain users (Debian's own setting).
const SETTINGS: [(&str, &str); 3] =
    [("yama/ptrace_scope", "3"), ("io_uring_disabled", "2"), ("unprivileged_userns_clone", "0")];

pub(crate) fn run(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    fs::create_dir_all("/m/confined").unwrap();
    fs::write("/m/beside", "beside").unwrap();
    say(json!({ "scene": "confined", "open": kernel.block_on(confined()) }));
    let set: Vec<&str> = SETTINGS
        .into_iter()
        .filter(|(name, value)| fs::write(format!("/proc/sys/kernel/{name}"), value).is_ok())
        .map(|(name, _)| name)
        .collect();
    fs::create_dir_all("/m/hardened/sub").unwrap();
    say(json!({ "scene": "hardened", "set": set, "open": kernel.block_on(open()) }));
}

/// The same acts inside the root and beside it, on files with content.
async fn confined() -> Value {
    let session = match session("/m/s").write_root("/m/confined").open().await {
        Err(error) => return refusal(&error),
        Ok(session) => session,
    };
    let mut line = json!({ "granted": true });
    for file in ["/m/confined/file", "/m/beside"] {
        fs::write(file, "content").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        let (chmod, truncate) =
            (act(&session, &["chmod", file, "0600"]).await, act(&session, &["truncate", file]).await);
        let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
        let content = fs::read_to_string(file).unwrap();
        line[file] =
            json!({ "chmod": chmod.name, "truncate": truncate.name, "mode": mode, "content": content });
    }
    session.close().await.unwrap();
    line
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
