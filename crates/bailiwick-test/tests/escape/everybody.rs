//! Attempts on everybody at once. They are made under a uid of their own, or as root in a pid namespace, so that everybody is
//! nobody else.

use bailiwick::{Layer, Protection};
use bailiwick_test::boundary::Victim;
use bailiwick_test::calls::Calls;

use crate::processes::stat;
use crate::row::{Attempt, Row, row};

/// `PRIO_USER`.
const PRIORITY_OF_USER: i32 = 2;

pub(crate) const ROWS: &[Row] = &[
    row(
        "signal-everybody",
        Protection::Signals,
        "sends a signal to every process that it may (`kill(-1)`)",
        |s| {
            let heard = s.at("new");
            let victim = Victim::listening(libc::SIGWINCH, &heard);
            Attempt::calls(&Calls::of(libc::SYS_kill, [(-1).into(), libc::SIGWINCH.into()])).shown_by(
                move || {
                    assert!(victim.is_alive());
                    heard.exists()
                },
            )
        },
    )
    .by(&[Layer::Scope], &[Layer::Scope, Layer::PidNamespace])
    .silent(),
    row("renice-everybody", Protection::Limits, "lowers the priority of every process of the user", |_| {
        let victim = Victim::asleep();
        let before = stat(victim.pid(), 19).unwrap();
        // What was done cannot be undone by everybody, so it goes on from there.
        let lower = i32::try_from(before).unwrap() + 1;
        Attempt::calls(&Calls::of(libc::SYS_setpriority, [PRIORITY_OF_USER.into(), 0.into(), lower.into()]))
            .shown_by(move || stat(victim.pid(), 19) != Some(before))
    })
    .by(&[Layer::Seccomp], &[Layer::Seccomp, Layer::PidNamespace])
    .and_from_root(&[Layer::Capabilities])
    // It says whether it could for all of them.
    .silent(),
];
