//! Which system calls are judged, how, and why.
//!
//! Allowed is what is not named here and not newer than the table. The tests hold a second,
//! complete list with a decision for every number, so that a change here must be made there as
//! well.

use super::FilterPolicy;
use super::ioctl;
use super::rule::{Case, Rule, Word};

/// `AUDIT_ARCH_X86_64`: calls made with the `syscall` instruction by 64-bit code. `int 0x80` and
/// 32-bit programs have another; the x32 convention has the same one and numbers from 0x4000_0000.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// Error numbers, from `asm-generic/errno.h`.
pub(super) mod errno {
    /// The call is known and not permitted here.
    pub(in super::super) const EPERM: u16 = 1;
    /// The call does not exist, as on an older kernel: callers have another way and take it.
    pub(in super::super) const ENOSYS: u16 = 38;
    /// What the kernel answers for a netlink protocol that it lacks.
    pub(in super::super) const EPROTONOSUPPORT: u16 = 93;
    /// What the kernel answers for a socket family that it lacks.
    pub(in super::super) const EAFNOSUPPORT: u16 = 97;
}

/// Bits and values of arguments.
pub(super) mod value {
    /// S_ISUID and S_ISGID.
    pub(in super::super) const SET_ID: u32 = 0o6000;
    /// S_IFMT, the file type in a mode.
    pub(in super::super) const TYPE_MASK: u32 = 0o170_000;
    /// S_IFCHR.
    pub(in super::super) const CHARACTER_DEVICE: u32 = 0o020_000;
    /// S_IFBLK.
    pub(in super::super) const BLOCK_DEVICE: u32 = 0o060_000;
    /// O_CREAT, and the bit of O_TMPFILE that is its own: with one of them `open` looks at its
    /// mode.
    pub(in super::super) const CREATES: u32 = 0o100 | 0o20_000_000;
    /// F_SETLEASE.
    pub(in super::super) const F_SETLEASE: u32 = 1024;
    /// F_SETDELEG: a lease that directories can have too (Linux 6.19).
    pub(in super::super) const F_SETDELEG: u32 = 1040;
    /// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. CLONE_NEWTIME is absent:
    /// its bit belongs to the exit signal here, and the kernel takes it from `clone3` and `unshare`
    /// only.
    pub(in super::super) const NEW_NAMESPACES: u32 = 0x7e02_0000;
    /// CLONE_VM, FS, FILES, SIGHAND, THREAD and SYSVSEM: all that `unshare` does without a
    /// namespace.
    pub(in super::super) const UNSHARES: u32 = 0x0005_0f00;
    /// PRIO_PROCESS and PRIO_PGRP. After them comes PRIO_USER: every process of the user.
    pub(in super::super) const PRIORITY_OF: (u32, u32) = (0, 1);
    /// IOPRIO_WHO_PROCESS and IOPRIO_WHO_PGRP, before IOPRIO_WHO_USER.
    pub(in super::super) const IO_PRIORITY_OF: (u32, u32) = (1, 2);
    /// AF_UNIX.
    pub(in super::super) const AF_UNIX: u32 = 1;
    /// AF_INET.
    pub(in super::super) const AF_INET: u32 = 2;
    /// AF_INET6.
    pub(in super::super) const AF_INET6: u32 = 10;
    /// AF_NETLINK.
    pub(in super::super) const AF_NETLINK: u32 = 16;
    /// NETLINK_ROUTE.
    pub(in super::super) const NETLINK_ROUTE: u32 = 0;
    /// The part of a socket's type that is not a flag.
    pub(in super::super) const SOCKET_TYPE_MASK: u32 = 0xf;
    /// SOCK_STREAM and SOCK_DGRAM. Then come SOCK_RAW and rarer ones.
    pub(in super::super) const SOCKET_TYPES: (u32, u32) = (1, 2);
    /// SOCK_STREAM and SOCK_SEQPACKET: local sockets that send to nobody but their peer. SOCK_RAW is another
    /// name of SOCK_DGRAM there.
    pub(in super::super) const CONNECTED_TYPES: [u32; 2] = [1, 5];
}

/// System call numbers of x86_64, from `asm/unistd_64.h`; only those that are named below.
#[rustfmt::skip]
pub(super) mod nr {
    macro_rules! numbers {
        ($($name:ident $number:literal)*) => {
            $(pub(in super::super) const $name: u32 = $number;)*
            /// Every number above with its name, for the comparison with the kernel's header.
            #[cfg(test)]
            pub(in super::super) const ALL: &[(&str, u32)] = &[$((stringify!($name), $number)),*];
        };
    }
    numbers! {
        OPEN 2  IOCTL 16  SHMGET 29  SHMAT 30  SHMCTL 31  SOCKET 41  CONNECT 42  SOCKETPAIR 53  CLONE 56
        SEMGET 64  SEMOP 65  SEMCTL 66  MSGGET 68  MSGSND 69  MSGRCV 70  MSGCTL 71  FCNTL 72  MKDIR 83
        CREAT 85  CHMOD 90  FCHMOD 91  SYSLOG 103  MKNOD 133  USELIB 134  SETPRIORITY 141
        SCHED_SETPARAM 142  SCHED_SETSCHEDULER 144  VHANGUP 153  MODIFY_LDT 154  PIVOT_ROOT 155
        _SYSCTL 156  ADJTIMEX 159  CHROOT 161  ACCT 163  SETTIMEOFDAY 164  MOUNT 165  UMOUNT2 166
        SWAPON 167  SWAPOFF 168  REBOOT 169  SETHOSTNAME 170  SETDOMAINNAME 171  IOPL 172  IOPERM 173
        CREATE_MODULE 174  INIT_MODULE 175  DELETE_MODULE 176  GET_KERNEL_SYMS 177  QUERY_MODULE 178
        QUOTACTL 179  NFSSERVCTL 180  SCHED_SETAFFINITY 203  LOOKUP_DCOOKIE 212  SEMTIMEDOP 220
        CLOCK_SETTIME 227  MQ_OPEN 240  MQ_UNLINK 241  KEXEC_LOAD 246  ADD_KEY 248  REQUEST_KEY 249
        KEYCTL 250  IOPRIO_SET 251  MIGRATE_PAGES 256  OPENAT 257  MKDIRAT 258  MKNODAT 259
        FCHMODAT 268  UNSHARE 272  MOVE_PAGES 279  PERF_EVENT_OPEN 298  FANOTIFY_INIT 300
        FANOTIFY_MARK 301  PRLIMIT64 302  OPEN_BY_HANDLE_AT 304  CLOCK_ADJTIME 305  SETNS 308
        KCMP 312  FINIT_MODULE 313  SCHED_SETATTR 314  KEXEC_FILE_LOAD 320  BPF 321  USERFAULTFD 323
        URETPROBE 335  PIDFD_SEND_SIGNAL 424  IO_URING_SETUP 425  IO_URING_ENTER 426
        IO_URING_REGISTER 427  OPEN_TREE 428  MOVE_MOUNT 429  FSOPEN 430  FSCONFIG 431  FSMOUNT 432
        FSPICK 433  CLONE3 435  OPENAT2 437  PROCESS_MADVISE 440  MOUNT_SETATTR 442  QUOTACTL_FD 443
        PROCESS_MRELEASE 448  FCHMODAT2 452  OPEN_TREE_ATTR 467  FILE_SETATTR 469
    }
}

/// The newest call that was judged (Linux 6.17). What comes later cannot be, and does not exist.
pub(super) const NEWEST: u32 = nr::FILE_SETATTR;

/// Judges every call of `policy`'s sessions.
pub(super) fn rules(policy: FilterPolicy) -> Rule {
    let calls = Rule::switch(Word::Number, calls(policy), Rule::Allow);
    Rule::switch(Word::Architecture, vec![Case::one(AUDIT_ARCH_X86_64, calls)], absent())
}

const fn denied() -> Rule {
    Rule::Refuse(errno::EPERM)
}

const fn absent() -> Rule {
    Rule::Refuse(errno::ENOSYS)
}

fn calls(policy: FilterPolicy) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut set = |numbers: &[u32], rule: Rule| {
        cases.extend(numbers.iter().map(|&number| Case::one(number, rule.clone())));
    };

    // The ring does what other calls do, sockets and metadata included, and no filter sees its
    // requests.
    set(&[nr::IO_URING_SETUP, nr::IO_URING_ENTER, nr::IO_URING_REGISTER], denied());

    // A namespace of one's own gives back the capabilities that were dropped. Flags and modes that
    // travel by pointer cannot be judged: these two are absent, and every C library and runtime
    // falls back to the older call.
    set(&[nr::CLONE3, nr::OPENAT2], absent());
    set(&[nr::CLONE], clone());
    set(&[nr::UNSHARE], unshare());
    set(&[nr::SETNS], denied());

    // The mount tree. All of it needs a capability that a command lacks; `mount_setattr` is not
    // even asked of Landlock. Refused twice, since the read-only view rests on it.
    set(&[nr::MOUNT, nr::UMOUNT2, nr::PIVOT_ROOT, nr::CHROOT, nr::MOVE_MOUNT, nr::MOUNT_SETATTR], denied());
    set(&[nr::OPEN_TREE, nr::OPEN_TREE_ATTR, nr::FSOPEN, nr::FSCONFIG, nr::FSMOUNT, nr::FSPICK], denied());

    // The machine: swap, quota, accounting, modules, another kernel, names, clocks, ports, the
    // console. Reading the clock's discipline (`adjtimex` without a change) goes too; nothing but
    // clock daemons asks.
    set(&[nr::SWAPON, nr::SWAPOFF, nr::QUOTACTL, nr::QUOTACTL_FD, nr::ACCT, nr::REBOOT], denied());
    set(
        &[nr::KEXEC_LOAD, nr::KEXEC_FILE_LOAD, nr::INIT_MODULE, nr::FINIT_MODULE, nr::DELETE_MODULE],
        denied(),
    );
    set(&[nr::SETHOSTNAME, nr::SETDOMAINNAME, nr::SETTIMEOFDAY, nr::CLOCK_SETTIME], denied());
    set(&[nr::CLOCK_ADJTIME, nr::ADJTIMEX, nr::IOPL, nr::IOPERM, nr::SYSLOG, nr::VHANGUP], denied());

    // Old calls that no kernel of today has, or that only emulators want.
    set(&[nr::MODIFY_LDT, nr::LOOKUP_DCOOKIE, nr::NFSSERVCTL, nr::USELIB, nr::_SYSCTL], denied());
    set(&[nr::CREATE_MODULE, nr::GET_KERNEL_SYMS, nr::QUERY_MODULE], denied());

    // Objects that no path names and Landlock does not judge: keys are shared by all processes of
    // the user; programs, counters and fault handlers reach into the kernel; a handle opens a file
    // without its path.
    set(&[nr::ADD_KEY, nr::REQUEST_KEY, nr::KEYCTL, nr::BPF, nr::PERF_EVENT_OPEN, nr::USERFAULTFD], denied());
    set(&[nr::OPEN_BY_HANDLE_AT, nr::FANOTIFY_INIT, nr::FANOTIFY_MARK], denied());

    // Inode flags by path (Linux 6.17): the way around the list of `ioctl` requests.
    set(&[nr::FILE_SETATTR], denied());
    set(&[nr::IOCTL], requests(policy));
    set(&[nr::FCNTL], fcntl());

    // Other processes. Signals and memory are the Landlock domain's; limits, scheduling and
    // priorities are nobody's. A CPU limit of zero kills, so these are signals by another name. 0
    // is the caller.
    set(&[nr::PRLIMIT64, nr::SCHED_SETAFFINITY, nr::SCHED_SETSCHEDULER, nr::SCHED_SETPARAM], first_is_zero());
    set(&[nr::SCHED_SETATTR, nr::MIGRATE_PAGES, nr::MOVE_PAGES], first_is_zero());
    set(&[nr::SETPRIORITY], own(value::PRIORITY_OF));
    set(&[nr::IOPRIO_SET], own(value::IO_PRIORITY_OF));
    set(&[nr::KCMP, nr::PROCESS_MADVISE, nr::PROCESS_MRELEASE], denied());

    // Set-id bits, wherever a mode is given. `mkdir` drops them by itself, so its refusal is a
    // clear answer rather than a protection.
    set(&[nr::CHMOD, nr::FCHMOD, nr::CREAT, nr::MKDIR], mode(1));
    set(&[nr::FCHMODAT, nr::FCHMODAT2, nr::MKDIRAT], mode(2));
    set(&[nr::OPEN], created(1));
    set(&[nr::OPENAT], created(2));
    set(&[nr::MKNOD], node(1));
    set(&[nr::MKNODAT], node(2));

    set(&[nr::SOCKET, nr::SOCKETPAIR], socket(policy));
    // The address travels by pointer, and no layer of the kernel judges the name of a socket.
    if policy.broker {
        set(&[nr::CONNECT], Rule::Ask);
    }

    // Objects of the IPC namespace, shared with all processes of the user where there is only one.
    // Landlock asks about a POSIX queue too late or not at all (Linux 6.18, ABI 7): `mq_open` with
    // O_CREAT fails and the queue stays behind, and `mq_unlink` removes anybody's. `shmdt` and a
    // descriptor's own calls harm nobody.
    if policy.sysv_ipc {
        set(&[nr::MQ_OPEN], created(1));
    } else {
        set(&[nr::SHMGET, nr::SHMAT, nr::SHMCTL, nr::MSGGET, nr::MSGSND, nr::MSGRCV, nr::MSGCTL], denied());
        set(&[nr::SEMGET, nr::SEMOP, nr::SEMTIMEDOP, nr::SEMCTL, nr::MQ_OPEN, nr::MQ_UNLINK], denied());
    }

    // Numbers without a meaning: the gap in the table, what is newer than it, and x32.
    cases.push(Case { first: nr::URETPROBE + 1, last: nr::PIDFD_SEND_SIGNAL - 1, rule: absent() });
    cases.push(Case { first: NEWEST + 1, last: u32::MAX, rule: absent() });
    cases
}

/// `clone(flags, ..)`: the kernel takes an `unsigned long` and drops its upper half.
fn clone() -> Rule {
    Rule::any_bit(Word::Low(0), value::NEW_NAMESPACES, denied(), Rule::Allow)
}

/// `unshare(flags)`: the kernel looks at all 64 bits. Only bits known to make no namespace pass, so
/// that a flag of a later kernel does not.
fn unshare() -> Rule {
    let upper = Rule::switch(Word::High(0), vec![Case::one(0, Rule::Allow)], denied());
    Rule::any_bit(Word::Low(0), !value::UNSHARES, denied(), upper)
}

/// `ioctl(fd, request, ..)`: the request is an `unsigned int`.
fn requests(policy: FilterPolicy) -> Rule {
    let network = if policy.network { ioctl::NETWORK } else { &[] };
    let lists = [ioctl::TERMINAL, ioctl::DESCRIPTOR, ioctl::FILE, network];
    let cases = lists.concat().into_iter().map(|request| Case::one(request, Rule::Allow)).collect();
    Rule::switch(Word::Low(1), cases, denied())
}

/// `fcntl(fd, command, ..)`: a lease needs a descriptor for reading only, and holds up whoever
/// opens the file for writing, for `/proc/sys/fs/lease-break-time` (45 s) each time.
fn fcntl() -> Rule {
    let leases = [value::F_SETLEASE, value::F_SETDELEG];
    Rule::switch(Word::Low(1), leases.map(|command| Case::one(command, denied())).into(), Rule::Allow)
}

/// A call whose first argument is a process, and which may name the caller only.
fn first_is_zero() -> Rule {
    zero(0)
}

fn zero(argument: u8) -> Rule {
    Rule::switch(Word::Low(argument), vec![Case::one(0, Rule::Allow)], denied())
}

/// `setpriority(which, who, ..)` and `ioprio_set(which, who, ..)`: the caller, or its process
/// group.
fn own((first, last): (u32, u32)) -> Rule {
    Rule::switch(Word::Low(0), vec![Case { first, last, rule: zero(1) }], denied())
}

/// A mode (`umode_t`, 16 bits) without set-id bits.
fn mode(argument: u8) -> Rule {
    Rule::any_bit(Word::Low(argument), value::SET_ID, denied(), Rule::Allow)
}

/// `open` and its kin: flags, then a mode that counts if a file may be made.
fn created(flags: u8) -> Rule {
    Rule::any_bit(Word::Low(flags), value::CREATES, mode(flags + 1), Rule::Allow)
}

/// `mknod`: neither set-id bits nor a device. A whiteout (a character device numbered 0) is one
/// too.
fn node(argument: u8) -> Rule {
    let devices = [value::CHARACTER_DEVICE, value::BLOCK_DEVICE];
    let cases = devices.map(|device| Case::one(device, denied())).into();
    let plain = Rule::masked(Word::Low(argument), value::TYPE_MASK, cases, Rule::Allow);
    Rule::any_bit(Word::Low(argument), value::SET_ID, denied(), plain)
}

/// `socket(family, type, protocol)` and `socketpair`, by allow-list of families.
///
/// Families that a program can do without answer as if the kernel lacked them. IPv4 and IPv6 answer
/// EPERM, for there a plain reason helps more than a fallback.
fn socket(policy: FilterPolicy) -> Rule {
    // A datagram can be sent to any name without `connect`, so with a broker there are none. The kernel takes
    // no address from a sender on a connected type (measured, see the test `addresses_of_a_sender`).
    let local = if policy.broker {
        let types = value::CONNECTED_TYPES.map(|kind| Case::one(kind, Rule::Allow)).into();
        Rule::masked(Word::Low(1), value::SOCKET_TYPE_MASK, types, denied())
    } else {
        Rule::Allow
    };
    let mut cases = vec![Case::one(value::AF_UNIX, local)];
    let internet = if policy.network {
        let (first, last) = value::SOCKET_TYPES;
        let types = vec![Case { first, last, rule: Rule::Allow }];
        Rule::masked(Word::Low(1), value::SOCKET_TYPE_MASK, types, denied())
    } else {
        denied()
    };
    cases.extend([value::AF_INET, value::AF_INET6].map(|family| Case::one(family, internet.clone())));
    if policy.network {
        // The C library and node list interfaces with it; without capabilities it changes nothing.
        let route = vec![Case::one(value::NETLINK_ROUTE, Rule::Allow)];
        let netlink = Rule::switch(Word::Low(2), route, Rule::Refuse(errno::EPROTONOSUPPORT));
        cases.push(Case::one(value::AF_NETLINK, netlink));
    }
    Rule::switch(Word::Low(0), cases, Rule::Refuse(errno::EAFNOSUPPORT))
}
