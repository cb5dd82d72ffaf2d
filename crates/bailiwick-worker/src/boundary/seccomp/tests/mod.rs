//! The filter against the kernel's header, against an oracle written apart from it, and against
//! changes of itself.

mod assembly;
mod decisions;
mod machine;
mod oracle;
mod samples;

use linux_raw_sys::{errno, general, ioctl, net, netlink, ptrace};

use super::assembler::{self, op};
use super::rule::{Case, Rule, Switch};
use super::table::{self, nr, value};
use super::{FilterPolicy, Instruction, program};
use decisions::{CALLS, Decision};
use machine::{Call, check, run};
use oracle::{ALLOW, ASK, EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, expected};
use samples::{Random, samples};

const POLICIES: [FilterPolicy; 8] = {
    let closed = FilterPolicy { network: false, sysv_ipc: false, broker: false };
    [
        closed,
        FilterPolicy { sysv_ipc: true, ..closed },
        FilterPolicy { network: true, ..closed },
        FilterPolicy { network: true, sysv_ipc: true, ..closed },
        FilterPolicy { broker: true, ..closed },
        FilterPolicy { broker: true, sysv_ipc: true, ..closed },
        FilterPolicy { broker: true, network: true, ..closed },
        FilterPolicy { broker: true, network: true, sysv_ipc: true },
    ]
};

const CLOSED: FilterPolicy = POLICIES[0];
const OPEN: FilterPolicy = POLICIES[3];
/// As [`OPEN`], with a broker.
const BROKERED: FilterPolicy = POLICIES[7];

fn native(number: u32, arguments: [u64; 6]) -> Call {
    Call { architecture: ptrace::AUDIT_ARCH_X86_64, number, arguments }
}

fn answer(policy: FilterPolicy, number: u32, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    run(&program(policy), &native(number, all)).0
}

/// The first sample that `program` and the oracle judge differently.
fn difference<'a>(program: &[Instruction], judged: &'a [(Call, u32)]) -> Option<&'a (Call, u32)> {
    judged.iter().find(|(call, expected)| run(program, call).0 != *expected)
}

fn judged(policy: FilterPolicy) -> Vec<(Call, u32)> {
    samples().into_iter().map(|call| (call, expected(policy, &call))).collect()
}

#[test]
fn system_call_numbers_are_the_headers() {
    for &(name, number) in nr::ALL {
        let header = format!("__NR_{}", name.to_lowercase());
        let call = CALLS.iter().find(|call| call.name == header).unwrap_or_else(|| panic!("{header}"));
        assert_eq!(number, call.header, "{name}");
    }
    assert_eq!(table::NEWEST, general::__NR_file_setattr);
}

#[test]
fn the_list_of_decisions_is_complete() {
    for call in CALLS {
        assert_eq!(call.number, call.header, "{}", call.name);
    }
    // 0 to 335 and 424 to the newest, without a hole and without a double.
    let listed = CALLS.iter().map(|call| call.number);
    assert!(listed.eq((0..=335).chain(424..=table::NEWEST)));
}

#[test]
fn values_of_arguments_are_the_headers() {
    assert_eq!(value::SET_ID, general::S_ISUID | general::S_ISGID);
    assert_eq!(value::TYPE_MASK, general::S_IFMT);
    assert_eq!(value::CHARACTER_DEVICE, general::S_IFCHR);
    assert_eq!(value::BLOCK_DEVICE, general::S_IFBLK);
    assert_eq!(value::CREATES, general::O_CREAT | general::__O_TMPFILE);
    assert_eq!(value::F_SETLEASE, general::F_SETLEASE);
    let namespaces = general::CLONE_NEWNS
        | general::CLONE_NEWCGROUP
        | general::CLONE_NEWUTS
        | general::CLONE_NEWIPC
        | general::CLONE_NEWUSER
        | general::CLONE_NEWPID
        | general::CLONE_NEWNET;
    assert_eq!(value::NEW_NAMESPACES, namespaces);
    assert_eq!(value::UNSHARES & (namespaces | general::CLONE_NEWTIME), 0);
    assert_eq!(value::PRIORITY_OF, (general::PRIO_PROCESS, general::PRIO_PGRP));
    assert_eq!(value::IO_PRIORITY_OF, (1, 2)); // In no header that a crate carries: linux/ioprio.h.
    assert_eq!(value::AF_UNIX, net::AF_UNIX);
    assert_eq!(value::AF_INET, net::AF_INET);
    assert_eq!(value::AF_INET6, net::AF_INET6);
    assert_eq!(value::AF_NETLINK, net::AF_NETLINK);
    assert_eq!(value::NETLINK_ROUTE, netlink::NETLINK_ROUTE);
    assert_eq!(value::SOCKET_TYPES, (net::SOCK_STREAM, net::SOCK_DGRAM));
    assert_eq!(value::CONNECTED_TYPES, [net::SOCK_STREAM, net::SOCK_SEQPACKET]);
    assert_eq!(u32::from(table::errno::EPERM), errno::EPERM);
    assert_eq!(u32::from(table::errno::ENOSYS), errno::ENOSYS);
    assert_eq!(u32::from(table::errno::EAFNOSUPPORT), errno::EAFNOSUPPORT);
    assert_eq!(u32::from(table::errno::EPROTONOSUPPORT), errno::EPROTONOSUPPORT);
}

#[test]
fn requests_are_the_headers() {
    let listed = [super::ioctl::TERMINAL, super::ioctl::DESCRIPTOR, super::ioctl::FILE].concat();
    assert_eq!(listed, oracle::REQUESTS);
    assert_eq!(super::ioctl::NETWORK, oracle::NETWORK_REQUESTS);
}

#[test]
fn operations_are_the_headers() {
    use linux_raw_sys::ptrace as bpf;
    let pairs = [
        (op::LOAD, bpf::BPF_LD | bpf::BPF_W | bpf::BPF_ABS),
        (op::AND, bpf::BPF_ALU | bpf::BPF_AND | bpf::BPF_K),
        (op::JUMP, bpf::BPF_JMP | bpf::BPF_JA),
        (op::IF_EQUAL, bpf::BPF_JMP | bpf::BPF_JEQ | bpf::BPF_K),
        (op::IF_GREATER, bpf::BPF_JMP | bpf::BPF_JGT | bpf::BPF_K),
        (op::IF_AT_LEAST, bpf::BPF_JMP | bpf::BPF_JGE | bpf::BPF_K),
        (op::IF_ANY_BIT, bpf::BPF_JMP | bpf::BPF_JSET | bpf::BPF_K),
        (op::RETURN, bpf::BPF_RET | bpf::BPF_K),
    ];
    for (ours, header) in pairs {
        assert_eq!(u32::from(ours), header);
    }
    assert_eq!(assembler::ALLOW, bpf::SECCOMP_RET_ALLOW);
    assert_eq!(assembler::ERRNO, bpf::SECCOMP_RET_ERRNO);
    assert_eq!(assembler::ASK, bpf::SECCOMP_RET_USER_NOTIF);
    assert_eq!(size_of::<Instruction>(), 8);
}

/// The only inputs are the eight policies, so this test sees every table there is.
#[test]
fn no_choice_has_overlapping_cases() {
    fn visit(rule: &Rule) {
        let Rule::Switch(switch) = rule else { return };
        let Switch { mask, cases, otherwise, .. } = switch.as_ref();
        let mut runs: Vec<(u32, u32)> =
            cases.iter().map(|Case { first, last, .. }| (*first, *last)).collect();
        runs.sort_unstable();
        for &(first, last) in &runs {
            assert!(first <= last, "{first}..={last} in {switch:?}");
            assert_eq!((first & mask, last & mask), (first, last), "a case that the mask hides: {switch:?}");
        }
        for pair in runs.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{pair:?} overlap");
        }
        cases.iter().for_each(|case| visit(&case.rule));
        visit(otherwise);
    }
    for policy in POLICIES {
        visit(&table::rules(policy));
    }
}

#[test]
fn the_kernel_would_accept_the_program() {
    for policy in POLICIES {
        assert_eq!(check(&program(policy)), [0_usize; 0], "idle instructions for {policy:?}");
    }
}

/// Installing costs about a microsecond per instruction, once for each grant.
#[test]
fn the_filter_is_short() {
    for (policy, limit) in POLICIES.into_iter().zip([180, 180, 210, 210, 190, 190, 220, 220]) {
        let length = program(policy).len();
        assert!(length <= limit, "{policy:?}: {length} instructions");
    }
}

#[test]
fn each_call_takes_few_steps() {
    for policy in POLICIES {
        let program = program(policy);
        let longest = samples().iter().map(|call| run(&program, call).1).max();
        assert!(longest <= Some(30), "{longest:?}");
    }
}

#[test]
fn the_filter_agrees_with_the_oracle() {
    for policy in POLICIES {
        let judged = judged(policy);
        assert!(judged.len() > 100_000, "{} samples", judged.len());
        assert_eq!(difference(&program(policy), &judged), None, "{policy:?}");
    }
}

#[test]
fn the_filter_agrees_with_the_oracle_on_random_calls() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    for policy in POLICIES {
        let program = program(policy);
        for _ in 0..200_000 {
            let call = random.call();
            assert_eq!(run(&program, &call).0, expected(policy, &call), "{policy:?} {call:x?}");
        }
    }
}

/// Decisions hold for all samples, and a call that is judged by its arguments has both outcomes.
#[test]
fn decisions_hold() {
    let samples = samples();
    for call in CALLS {
        let answers = |policy| -> Vec<u32> {
            let program = program(policy);
            let mut answers: Vec<u32> = samples
                .iter()
                .filter(|sample| {
                    sample.number == call.header && sample.architecture == ptrace::AUDIT_ARCH_X86_64
                })
                .map(|sample| run(&program, sample).0)
                .collect();
            answers.sort_unstable();
            answers.dedup();
            answers
        };
        match call.decision {
            Decision::Allow => assert_eq!(answers(CLOSED), [ALLOW], "{}", call.name),
            Decision::Refuse => assert_eq!(answers(OPEN), [EPERM], "{}", call.name),
            Decision::Absent => assert_eq!(answers(OPEN), [ENOSYS], "{}", call.name),
            Decision::Ipc => {
                assert_eq!(answers(CLOSED), [EPERM], "{}", call.name);
                assert_eq!(answers(OPEN), [ALLOW], "{}", call.name);
            }
            Decision::Broker => {
                assert_eq!(answers(OPEN), [ALLOW], "{}", call.name);
                assert_eq!(answers(BROKERED), [ASK], "{}", call.name);
            }
            Decision::Judge => {
                let open = answers(OPEN);
                assert!(open.contains(&ALLOW) && open.contains(&EPERM), "{}: {open:x?}", call.name);
            }
        }
    }
}

/// A foreign convention must not get through with any number, for the numbers mean other calls
/// there.
#[test]
fn foreign_architectures_have_no_calls() {
    // i386, aarch64, arm, the native one without its 64-bit mark, none, all bits.
    let foreign = [0x4000_0003, 0xc000_00b7, 0x4000_0028, 0x0000_003e, 0x8000_003e, 0, u32::MAX];
    for policy in POLICIES {
        let program = program(policy);
        for architecture in foreign {
            for number in (0..600).chain([0x4000_0000, u32::MAX]) {
                let call = Call { architecture, number, arguments: [0; 6] };
                assert_eq!(run(&program, &call).0, ENOSYS, "{call:x?}");
            }
        }
    }
}

#[test]
fn unknown_and_x32_numbers_have_no_calls() {
    let x32 = 0x4000_0000;
    for policy in POLICIES {
        for number in
            (336..=423).chain(470..1100).chain(x32..x32 + 1100).chain([0x7fff_ffff, x32 - 1, u32::MAX])
        {
            assert_eq!(answer(policy, number, &[]), ENOSYS, "{number:#x}");
        }
    }
}

/// A change of any one instruction changes an answer: nothing in the program is idle, and the
/// samples see all of it.
#[test]
fn the_samples_notice_a_change_of_any_instruction() {
    for policy in [CLOSED, OPEN, BROKERED] {
        let judged = judged(policy);
        let original = program(policy);
        for index in 0..original.len() {
            for change in changes(original[index]) {
                let mut changed = original.clone();
                changed[index] = change;
                let caught = difference(&changed, &judged);
                assert!(caught.is_some(), "{index}: {:?} -> {change:?}", original[index]);
            }
        }
    }
}

fn changes(instruction: Instruction) -> Vec<Instruction> {
    let Instruction { code, jt, jf, k } = instruction;
    let swapped = Instruction { jt: jf, jf: jt, ..instruction };
    let more = Instruction { k: k + 1, ..instruction };
    match code {
        op::RETURN => vec![Instruction { k: if k == ALLOW { EPERM } else { ALLOW }, ..instruction }],
        // The other half of the register, or the next word of the header.
        op::LOAD => vec![Instruction { k: k ^ 4, ..instruction }],
        op::JUMP => vec![Instruction { k: k - 1, ..instruction }],
        // One bit of a mask less.
        op::AND => vec![Instruction { k: k & (k - 1), ..instruction }],
        op::IF_ANY_BIT => {
            let bits = (0..32).map(|bit| 1 << bit).filter(|bit| k & bit != 0);
            let fewer = bits.map(|bit| Instruction { k: k & !bit, ..instruction });
            fewer.chain([swapped]).collect()
        }
        // A fork of the search may sit lower, between two cases, and mean the same; not higher.
        op::IF_AT_LEAST => vec![swapped, more],
        _ => vec![swapped, more, Instruction { k: k.wrapping_sub(1), ..instruction }],
    }
}

/// Requests that must never pass, whatever the policy, with their upper half clean and filled.
#[test]
fn dangerous_requests_are_refused() {
    let never = [
        ("TIOCSTI", ioctl::TIOCSTI),
        ("TIOCLINUX", ioctl::TIOCLINUX),
        ("TIOCCONS", ioctl::TIOCCONS),
        ("TIOCSETD", ioctl::TIOCSETD),
        ("TIOCSIG", ioctl::TIOCSIG),
        ("TIOCVHANGUP", ioctl::TIOCVHANGUP),
        ("TIOCSSERIAL", ioctl::TIOCSSERIAL),
        ("TIOCGSERIAL", ioctl::TIOCGSERIAL),
        ("TIOCSLCKTRMIOS", ioctl::TIOCSLCKTRMIOS),
        ("TIOCMSET", ioctl::TIOCMSET),
        ("KDSKBENT", ioctl::KDSKBENT),
        ("FS_IOC_SETFLAGS", ioctl::FS_IOC_SETFLAGS),
        ("FS_IOC_SETVERSION", ioctl::FS_IOC_SETVERSION),
        ("FS_IOC_FSSETXATTR", ioctl::FS_IOC_FSSETXATTR),
        ("FS_IOC_SETFSLABEL", ioctl::FS_IOC_SETFSLABEL),
        ("FIFREEZE", ioctl::FIFREEZE),
        ("FITRIM", ioctl::FITRIM),
        ("FIBMAP", ioctl::FIBMAP),
        ("FIDEDUPERANGE", ioctl::FIDEDUPERANGE),
        ("BTRFS_IOC_SNAP_CREATE_V2", ioctl::BTRFS_IOC_SNAP_CREATE_V2),
        ("BTRFS_IOC_SNAP_DESTROY_V2", ioctl::BTRFS_IOC_SNAP_DESTROY_V2),
        ("BTRFS_IOC_SUBVOL_CREATE", ioctl::BTRFS_IOC_SUBVOL_CREATE),
        ("BTRFS_IOC_RM_DEV", ioctl::BTRFS_IOC_RM_DEV),
        ("BTRFS_IOC_TREE_SEARCH", ioctl::BTRFS_IOC_TREE_SEARCH),
        ("BLKROSET", ioctl::BLKROSET),
        ("BLKDISCARD", ioctl::BLKDISCARD),
        ("BLKZEROOUT", ioctl::BLKZEROOUT),
        ("BLKPG", ioctl::BLKPG),
        ("TUNSETIFF", ioctl::TUNSETIFF),
        ("NS_GET_USERNS", ioctl::NS_GET_USERNS),
        ("RNDADDENTROPY", ioctl::RNDADDENTROPY),
        ("SIOCGIFBR", ioctl::SIOCGIFBR),
        ("FIOSETOWN", ioctl::FIOSETOWN),
        ("BTRFS_IOC_SNAP_CREATE", 0x5000_9401),
        ("LOOP_SET_FD", 0x4c00),
        ("SIOCETHTOOL", 0x8946),
        ("SIOCSIFFLAGS", 0x8914),
        ("UFFDIO_API", 0xc018_aa3f),
        ("USERFAULTFD_IOC_NEW", 0xaa00),
    ];
    for policy in POLICIES {
        for (name, request) in never {
            for upper in [0, 1, 0xffff_ffff] {
                let request = upper << 32 | u64::from(request);
                assert_eq!(answer(policy, general::__NR_ioctl, &[0, request]), EPERM, "{name}");
            }
        }
    }
}

/// One act of each kind with its twin that differs in one fact and passes.
#[test]
fn acts_and_their_twins() {
    use linux_raw_sys::general as g;
    let n = u64::from;
    let acts: &[(&str, u32, &[u64], &[u64])] = &[
        ("set-user-id by path", g::__NR_chmod, &[0, 0o4755], &[0, 0o755]),
        ("set-group-id by descriptor", g::__NR_fchmod, &[3, 0o2755], &[3, 0o1777]),
        ("set-user-id by the newest call", g::__NR_fchmodat2, &[3, 0, 0o4700, 0], &[3, 0, 0o700, 0]),
        ("set-user-id at creation", g::__NR_openat, &[3, 0, 0o101, 0o4755], &[3, 0, 0o1, 0o4755]),
        (
            "set-user-id without a name",
            g::__NR_openat,
            &[3, 0, 0o20200001, 0o4755],
            &[3, 0, 0o20200001, 0o755],
        ),
        ("set-user-id at creation, old call", g::__NR_open, &[0, 0o102, 0o6755], &[0, 0o102, 0o644]),
        ("block device", g::__NR_mknodat, &[3, 0, 0o060_660, 0x700], &[3, 0, 0o010_660, 0]),
        ("whiteout", g::__NR_mknod, &[0, 0o020_000, 0], &[0, 0o100_644, 0]),
        ("a host's CPU limit", g::__NR_prlimit64, &[4711, 0, 1, 0], &[0, 0, 1, 0]),
        ("another's scheduling", g::__NR_sched_setattr, &[4711, 1, 0], &[0, 1, 0]),
        ("a user's priority", g::__NR_setpriority, &[2, 0, 19], &[0, 0, 19]),
        ("another group's priority", g::__NR_setpriority, &[1, 4711, 19], &[1, 0, 19]),
        ("a user's disk priority", g::__NR_ioprio_set, &[3, 0, 0], &[1, 0, 0]),
        ("user namespace", g::__NR_clone, &[n(g::CLONE_NEWUSER) | 17, 0], &[17, 0]),
        ("time namespace", g::__NR_unshare, &[n(g::CLONE_NEWTIME)], &[n(g::CLONE_FS)]),
        ("a flag of a later kernel", g::__NR_unshare, &[1 << 37], &[n(g::CLONE_FILES)]),
        ("lease", g::__NR_fcntl, &[3, 1024, 0], &[3, 6, 0]),
        ("raw socket", g::__NR_socket, &[2, 3, 1], &[2, 0x80002, 0]),
    ];
    for (name, number, act, twin) in acts {
        assert_eq!(answer(OPEN, *number, act), EPERM, "{name}");
        assert_eq!(answer(OPEN, *number, twin), ALLOW, "twin of {name}");
        // The kernel does not look at the upper half of these arguments, and a filter that does can
        // be fooled.
        let filled =
            |arguments: &[u64]| arguments.iter().map(|a| a | 0xffff_ffff_0000_0000).collect::<Vec<_>>();
        assert_eq!(answer(OPEN, *number, &filled(act)), EPERM, "{name}, upper half filled");
        if *number != g::__NR_unshare {
            assert_eq!(answer(OPEN, *number, &filled(twin)), ALLOW, "twin of {name}, upper half filled");
        }
    }
}

#[test]
fn sockets_by_family() {
    let make = |policy, family: u32, kind: u32, protocol: u32| {
        answer(policy, general::__NR_socket, &[family.into(), kind.into(), protocol.into()])
    };
    for policy in POLICIES {
        let internet = if policy.network { ALLOW } else { EPERM };
        for kind in [1, 5, 0x80001, 0x801, 0x80805] {
            assert_eq!(make(policy, net::AF_UNIX, kind, 0), ALLOW);
        }
        // SOCK_RAW is one of datagrams there (`unix_create` in `net/unix/af_unix.c`).
        for kind in [0, 2, 3, 0x80002, 0x803, 15] {
            let expected = if policy.broker { EPERM } else { ALLOW };
            assert_eq!(make(policy, net::AF_UNIX, kind, 0), expected);
        }
        assert_eq!(make(policy, net::AF_INET, net::SOCK_STREAM | general::O_CLOEXEC, 6), internet);
        assert_eq!(make(policy, net::AF_INET6, net::SOCK_DGRAM | general::O_NONBLOCK, 17), internet);
        for kind in [0, 3, 4, 5, 6, 10, 15] {
            assert_eq!(make(policy, net::AF_INET, kind, 0), EPERM);
        }
        let (route, audit) =
            if policy.network { (ALLOW, EPROTONOSUPPORT) } else { (EAFNOSUPPORT, EAFNOSUPPORT) };
        assert_eq!(make(policy, net::AF_NETLINK, net::SOCK_RAW, netlink::NETLINK_ROUTE), route);
        assert_eq!(make(policy, net::AF_NETLINK, net::SOCK_RAW, 9), audit);
        // Unspecified, packet, algorithms, vsock, XDP, and one that does not exist.
        for family in [0, 17, 38, 40, 44, 99, u32::MAX] {
            assert_eq!(make(policy, family, 1, 0), EAFNOSUPPORT, "{family}");
        }
    }
}
