//! Roots and stores on a 9p share: without a cache the kernel makes an inode for each lookup.

use std::fs;

use bailiwick::Session;
use serde_json::{Value, json};

use crate::attempt::{self, Kernel, Layout, act, refusal, session};
use crate::fuse;

pub(crate) fn run(kernel: &Kernel, say: &mut impl FnMut(Value)) {
    fs::create_dir_all("/share/W/sub").unwrap();
    fs::create_dir_all("/share/P/sub").unwrap();
    fs::create_dir_all("/share/sub").unwrap();
    fs::write("/share/P/sub/f", "kept").unwrap();
    fs::create_dir_all("/m/s/sub").unwrap();
    for store in ["/share/P", "/m/s"] {
        rustix::fs::chmod(store, rustix::fs::Mode::from(0o700)).unwrap();
    }
    // Commands have no capabilities, and these belong to the user who runs the emulator.
    for root in ["/share", "/share/sub", "/share/W", "/share/W/sub"] {
        rustix::fs::chmod(root, rustix::fs::Mode::from(0o777)).unwrap();
    }
    // The root of a mount is kept by the mount.
    for (name, root) in [("share", "/share/W"), ("share cached", "/cached/W"), ("share whole", "/share")] {
        say(json!({ "scene": name, "naive": naively(kernel, root), "open": kernel.block_on(open(root)) }));
    }
    // A file system on which holding on to a directory does not help.
    fuse::serve("/lookups");
    for name in ["lost", "kept"] {
        let root = format!("/lookups/{name}");
        say(
            json!({ "scene": format!("lookups {name}"), "naive": naively(kernel, &root), "open": kernel.block_on(once(&root)) }),
        );
    }
    let (store, kept) = ("/share/P", "/share/P/sub/f");
    let layouts = [
        Layout { name: "store on the share", store, root: "/share/W", kept, reach: kept },
        Layout {
            name: "store on the share, twice mounted",
            store,
            root: "/cached/P/sub",
            kept,
            reach: "/cached/P/sub/f",
        },
        Layout { name: "twin share", store, root: "/m/s/sub", kept, reach: kept },
    ];
    // What lies there belongs to the user who runs the emulator, who is not always root: then no session takes the
    // store, and only what is refused before it is looked into is the same for both.
    for layout in layouts {
        let mut line = kernel.judge(&layout);
        if !layout.name.starts_with("twin") {
            line["open"] = kernel.block_on(attempt::open(&layout));
        }
        say(line);
    }
}

fn naively(kernel: &Kernel, root: &str) -> Value {
    let made = format!("{root}/naive");
    let report = kernel.naively(root, &["create", &made]);
    let exists = fs::exists(&made).unwrap();
    let _absent_if_it_was_refused = fs::remove_file(&made);
    json!({ "done": report.ok, "errno": report.name, "exists": exists })
}

/// Opens a session with the root, or has the root replace another, and writes in it.
async fn once(root: &str) -> Value {
    let opened = match session("/m/s").write_root(root).open().await {
        Err(error) => refusal(&error),
        Ok(session) => created(session, root).await,
    };
    let replaced = match session("/m/s").write_root("/share/W").open().await {
        Err(error) => json!({ "unopened": refusal(&error) }),
        Ok(session) => match session.replace_write_roots([root]).await {
            Ok(()) => created(session, root).await,
            Err(error) => {
                let still = writes(&session, "/share/W").await;
                session.close().await.unwrap();
                json!({ "refusal": refusal(&error), "still": still })
            }
        },
    };
    json!({ "opened": opened, "replaced": replaced })
}

async fn created(session: Session, root: &str) -> Value {
    let path = format!("{root}/new");
    let report = act(&session, &["create", &path]).await;
    let exists = fs::exists(&path).unwrap();
    let _absent_if_it_was_refused = fs::remove_file(&path);
    session.close().await.unwrap();
    json!({ "granted": true, "done": report.ok, "errno": report.name, "exists": exists })
}

/// Opens a session with the root, and writes in it and below.
async fn open(root: &str) -> Value {
    match session("/m/s").write_root(root).open().await {
        Err(error) => refusal(&error),
        Ok(session) => {
            let made = writes(&session, root).await;
            let replaced = session.replace_write_roots([root]).await;
            let again = match replaced {
                Ok(()) => writes(&session, root).await,
                Err(error) => refusal(&error),
            };
            session.close().await.unwrap();
            json!({ "granted": true, "made": made, "again": again })
        }
    }
}

/// Writes in a root and below it, in a session.
pub(crate) async fn writes(session: &Session, root: &str) -> Value {
    let mut made = Vec::new();
    for name in ["new", "sub/new"] {
        let path = format!("{root}/{name}");
        let report = act(session, &["create", &path]).await;
        let exists = fs::exists(&path).unwrap();
        let _absent_if_it_was_refused = fs::remove_file(&path);
        made.push(json!({ "name": name, "done": report.ok, "errno": report.name, "exists": exists }));
    }
    made.into()
}
