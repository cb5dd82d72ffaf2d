//! A session that opens can write in its roots: what is granted is tried from inside, where there are no capabilities.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use bailiwick::ErrorKind;
use bailiwick_test::boundary::session;
use bailiwick_test::case::PLAIN_UID;
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Listing, cases, root_cases};

root_cases! {
    /// Root may write everywhere; root's commands may not. At open and at replace, by name, instead of one failing
    /// command after another.
    async fn a_tree_of_another_owner(world: &World) {
        let (theirs, ours) = (world.path().join("theirs"), world.path().join("ours"));
        for directory in [&theirs, &ours] {
            fs::create_dir(directory).unwrap();
        }
        chown(&theirs, Some(PLAIN_UID), Some(PLAIN_UID)).unwrap();
        fs::write(theirs.join("f"), "").unwrap();
        let opened = session(world).write_root(&ours).write_root(&theirs).open().await;
        let error = refused(opened, ErrorKind::RootNotAccessible);
        assert_eq!(error.field("root").and_then(bailiwick::Field::as_path), Some(theirs.as_path()));
        let session = open(session(world).write_root(&ours)).await;
        let error = session.replace_write_roots([&ours, &theirs]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RootNotAccessible, "{error:?}");
        // The grant before is in force.
        done(&sh(&session, &format!("echo x > {}/kept", ours.display())).await);
        // The twin differs in the mode alone.
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
        session.replace_write_roots([&ours, &theirs]).await.unwrap();
        done(&sh(&session, &format!("echo x > {}/new", theirs.display())).await);
        close(&session).await;
    }
}

cases! {
    /// Trying leaves nothing behind.
    async fn nothing_is_left_in_a_root(world: &World) {
        fs::write(world.write_root().join("f"), "x").unwrap();
        let before = Listing::of(world.write_root());
        let session = open(session(world)).await;
        session.replace_write_roots([world.write_root()]).await.unwrap();
        close(&session).await;
        assert_eq!(Listing::of(world.write_root()), before);
    }

    /// The list of roots is longer than any message.
    async fn thousands_of_roots(world: &World) {
        let roots: Vec<_> = (0..3000).map(|number| world.write_root().join(format!("{:0>100}", number))).collect();
        for root in &roots {
            fs::create_dir(root).unwrap();
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        if limit.maximum.is_some_and(|maximum| maximum < 4000) {
            return;
        }
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
        let session = open(session(world)).await;
        session.replace_write_roots(&roots).await.unwrap();
        done(&sh(&session, &format!("echo x > {}/f", roots[2999].display())).await);
        close(&session).await;
    }
}
