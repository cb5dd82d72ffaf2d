//! Resource limits of each process: set always, read back inside the confinement, and reported as they were read.

#![cfg(test)]

use std::os::unix::process::ExitStatusExt as _;

use bailiwick::{ErrorKind, Field, Limit, LimitSource, Resource, ResourceLimits, Session};
use bailiwick_test::boundary::session;
use bailiwick_test::places::{close, done, open, refused, sh};
use bailiwick_test::{Places, case, cases};

/// A line of `/proc/PID/limits`, by what it begins with there.
const LINES: [(Resource, &str); 6] = [
    (Resource::Cpu, "Max cpu time"),
    (Resource::FileSize, "Max file size"),
    (Resource::Core, "Max core file size"),
    (Resource::Processes, "Max processes"),
    (Resource::OpenFiles, "Max open files"),
    (Resource::AddressSpace, "Max address space"),
];

fn values(limits: &str, resource: Resource) -> (u64, u64) {
    let (_, name) = LINES.into_iter().find(|(known, _)| *known == resource).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let value = |word: &str| if word == "unlimited" { Some(Limit::UNLIMITED) } else { word.parse().ok() };
    let mut words = line.split_whitespace().map(value);
    (words.next().flatten().unwrap(), words.next().flatten().unwrap())
}

/// What a command sees is what the session reports, for each limit of the report.
async fn assert_told(session: &Session, limits: &ResourceLimits) {
    let seen = done(&sh(session, "cat /proc/self/limits").await);
    for found in &limits.processes {
        let (soft, hard) = values(&seen, found.limit.resource);
        assert_eq!((found.limit.soft, found.limit.hard), (soft, hard), "{:?}: {seen}", found.limit);
        assert_eq!((found.read_back.soft, found.read_back.hard), (soft, hard));
    }
}

fn sources(limits: &ResourceLimits) -> Vec<(&'static str, LimitSource)> {
    limits.processes.iter().map(|found| (found.limit.resource.name(), found.source)).collect()
}

cases! {
    /// Without a word of the policy: no memory image, and all else as the host has it.
    async fn defaults_are_set_and_told(world: &World) {
        use LimitSource::{Default, Host};
        let session = open(session(world)).await;
        let limits = session.limits().await;
        assert_eq!(
            sources(&limits),
            [("file-size", Host), ("core", Default), ("processes", Host), ("open-files", Host)]
        );
        assert_told(&session, &limits).await;
        let ours = std::fs::read_to_string("/proc/self/limits").unwrap();
        for resource in [Resource::FileSize, Resource::Processes, Resource::OpenFiles] {
            let found = limits.of(resource).unwrap().limit;
            assert_eq!((found.soft, found.hard), values(&ours, resource), "{}", resource.name());
        }
        let core = limits.of(Resource::Core).unwrap();
        assert_eq!((core.limit.soft, core.limit.hard), (0, 0));
        // For good: not even up to what the host could.
        let raised = done(&sh(&session, "ulimit -c unlimited; ulimit -c; ulimit -Hc").await);
        assert_eq!(raised, "0\n0\n");
        close(&session).await;
    }

    /// What the policy asks for is what commands have, and the report says whose word it is.
    async fn limits_of_the_policy_are_told(world: &World) {
        let asked = [
            Limit { resource: Resource::OpenFiles, soft: 30, hard: 40 },
            Limit::of(Resource::FileSize, 4096),
            Limit::of(Resource::AddressSpace, 1 << 32),
            Limit::of(Resource::Cpu, 50),
        ];
        let builder = asked.into_iter().fold(session(world), |builder, limit| builder.limit(limit));
        let session = open(builder).await;
        let limits = session.limits().await;
        for limit in asked {
            let found = limits.of(limit.resource).unwrap();
            assert_eq!((found.limit, found.source), (limit, LimitSource::Policy));
        }
        assert_told(&session, &limits).await;
        // The limit holds, and its twin below it is no limit.
        done(&sh(&session, "head -c 4096 /dev/zero > fits").await);
        assert!(!sh(&session, "head -c 4097 /dev/zero > cut").await.status.success());
        assert_eq!(std::fs::metadata(world.write_root().join("cut")).unwrap().len(), 4096);
        // Another grant has the same.
        session.replace_write_roots([world.write_root()]).await.unwrap();
        assert_eq!(session.limits().await, limits);
        assert_told(&session, &limits).await;
        close(&session).await;
    }

    /// More than the host may have itself is refused before anything runs, with both values.
    async fn more_than_the_host_has_refuses(world: &World) {
        let ours = std::fs::read_to_string("/proc/self/limits").unwrap();
        let (_, hard) = values(&ours, Resource::OpenFiles);
        let above = Limit::of(Resource::OpenFiles, hard + 1);
        let error = refused(session(world).limit(above).open().await, ErrorKind::LimitNotKept);
        assert_eq!(error.field("resource").and_then(Field::as_text), Some("open-files"));
        assert_eq!(error.field("errno"), Some(&Field::Number(1)), "{}", error.report());
        assert_eq!(error.field("found_hard"), Some(&Field::Number(hard.try_into().unwrap())));
        Places::of(world).assert_nothing_left();
        let twin = open(session(world).limit(Limit::of(Resource::OpenFiles, hard))).await;
        assert_told(&twin, &twin.limits().await).await;
        close(&twin).await;
    }

    /// The limit on processes binds a plain user and not root, and the report says which.
    async fn who_is_bound_is_told(world: &World) {
        let session = open(session(world).limit(Limit::of(Resource::Processes, 1))).await;
        let limits = session.limits().await;
        let binds = limits.of(Resource::Processes).unwrap().binds;
        assert_eq!(binds, Some(!case::is_root()));
        // The shell is the one that it may have, and those of the session itself are more.
        let forked = sh(&session, "(exit 3); echo $?").await;
        assert_eq!(forked.stdout.text() == "3\n", binds == Some(false), "{}", forked.stderr.text());
        close(&session).await;
    }

    /// A limit that the kernel takes from a command at once, and one that ends whoever is above it.
    async fn limits_that_end_their_process(world: &World) {
        let session = open(session(world).limit(Limit::of(Resource::Cpu, 1))).await;
        let busy = sh(&session, "while :; do :; done").await;
        assert_eq!(busy.status.signal(), Some(9), "{}", busy.status);
        done(&sh(&session, "true").await);
        close(&session).await;
    }
}
