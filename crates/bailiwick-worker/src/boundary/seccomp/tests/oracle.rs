//! What must happen to a call, in the kernel's words and with its header's constants.

use linux_raw_sys::{errno, general, ioctl, net, netlink, ptrace};

use super::super::FilterPolicy;
use super::decisions::{CALLS, Decision};
use super::machine::{Call, low};

/// The answer that lets a call pass.
pub(super) const ALLOW: u32 = ptrace::SECCOMP_RET_ALLOW;

/// The answer that refuses it with an error number.
pub(super) const fn error(number: u32) -> u32 {
    ptrace::SECCOMP_RET_ERRNO | number
}

pub(super) const EPERM: u32 = error(errno::EPERM);
pub(super) const ENOSYS: u32 = error(errno::ENOSYS);
pub(super) const EAFNOSUPPORT: u32 = error(errno::EAFNOSUPPORT);
pub(super) const EPROTONOSUPPORT: u32 = error(errno::EPROTONOSUPPORT);

/// The answer that asks the listener.
pub(super) const ASK: u32 = ptrace::SECCOMP_RET_USER_NOTIF;

/// Requests that pass everywhere.
pub(super) const REQUESTS: &[u32] = &[
    ioctl::TCGETS,
    ioctl::TCSETS,
    ioctl::TCSETSW,
    ioctl::TCSETSF,
    ioctl::TCGETA,
    ioctl::TCSETA,
    ioctl::TCSETAW,
    ioctl::TCSETAF,
    ioctl::TCSBRK,
    ioctl::TCXONC,
    ioctl::TCFLSH,
    ioctl::TIOCEXCL,
    ioctl::TIOCNXCL,
    ioctl::TIOCSCTTY,
    ioctl::TIOCGPGRP,
    ioctl::TIOCSPGRP,
    ioctl::TIOCOUTQ,
    ioctl::TIOCGWINSZ,
    ioctl::TIOCSWINSZ,
    ioctl::TIOCMGET,
    ioctl::TIOCPKT,
    ioctl::TIOCNOTTY,
    ioctl::TIOCGETD,
    ioctl::TCSBRKP,
    ioctl::TIOCGSID,
    ioctl::TIOCGPTPEER,
    ioctl::TIOCSPTLCK,
    ioctl::TCSETS2,
    ioctl::TCSETSW2,
    ioctl::TCSETSF2,
    ioctl::TIOCGPTN,
    ioctl::TIOCGDEV,
    ioctl::TIOCGPKT,
    ioctl::TIOCGPTLCK,
    ioctl::TIOCGEXCL,
    ioctl::TCGETS2,
    ioctl::FIONREAD,
    ioctl::FIONBIO,
    ioctl::FIONCLEX,
    ioctl::FIOCLEX,
    ioctl::FIOASYNC,
    ioctl::FIOQSIZE,
    ioctl::SIOCATMARK,
    ioctl::FIGETBSZ,
    ioctl::FICLONE,
    ioctl::FICLONERANGE,
    ioctl::FS_IOC_GETFLAGS,
    ioctl::FS_IOC_GETVERSION,
    ioctl::FS_IOC_FSGETXATTR,
    ioctl::FS_IOC_FIEMAP,
];

/// Requests that pass with a network.
pub(super) const NETWORK_REQUESTS: &[u32] = &[
    net::SIOCGSTAMP_OLD,
    net::SIOCGSTAMPNS_OLD,
    ioctl::SIOCGIFNAME,
    ioctl::SIOCGIFCONF,
    ioctl::SIOCGIFFLAGS,
    ioctl::SIOCGIFADDR,
    ioctl::SIOCGIFDSTADDR,
    ioctl::SIOCGIFBRDADDR,
    ioctl::SIOCGIFNETMASK,
    ioctl::SIOCGIFMETRIC,
    ioctl::SIOCGIFMTU,
    ioctl::SIOCGIFHWADDR,
    ioctl::SIOCGIFINDEX,
    ioctl::SIOCGIFTXQLEN,
    ioctl::SIOCGIFMAP,
    ioctl::SIOCGSTAMP_NEW,
    ioctl::SIOCGSTAMPNS_NEW,
];

const NAMESPACES: [u32; 7] = [
    general::CLONE_NEWNS,
    general::CLONE_NEWCGROUP,
    general::CLONE_NEWUTS,
    general::CLONE_NEWIPC,
    general::CLONE_NEWUSER,
    general::CLONE_NEWPID,
    general::CLONE_NEWNET,
];

/// The filter's answer to `call`.
pub(super) fn expected(policy: FilterPolicy, call: &Call) -> u32 {
    if call.architecture != ptrace::AUDIT_ARCH_X86_64 {
        return ENOSYS;
    }
    let Some(known) = CALLS.iter().find(|known| known.header == call.number) else { return ENOSYS };
    match known.decision {
        Decision::Allow => ALLOW,
        Decision::Refuse => EPERM,
        Decision::Absent => ENOSYS,
        Decision::Ipc => permit(policy.sysv_ipc),
        Decision::Broker if policy.broker => ASK,
        Decision::Broker => ALLOW,
        Decision::Judge => judge(policy, known.name, call.arguments),
    }
}

fn permit(yes: bool) -> u32 {
    if yes { ALLOW } else { EPERM }
}

fn judge(policy: FilterPolicy, name: &str, arguments: [u64; 6]) -> u32 {
    // As the kernel's prototypes declare them: an int or a pid is the lower half, with a sign, a
    // mode its lower 16 bits.
    let unsigned = |index: usize| low(arguments[index]);
    let int = |index: usize| unsigned(index).cast_signed();
    let mode = |index: usize| unsigned(index) & 0xffff;
    let plain = |mode: u32| mode & general::S_ISUID == 0 && mode & general::S_ISGID == 0;
    let creates = |flags: u32| flags & general::O_CREAT != 0 || flags & general::__O_TMPFILE != 0;
    match name {
        "__NR_chmod" | "__NR_fchmod" | "__NR_creat" | "__NR_mkdir" => permit(plain(mode(1))),
        "__NR_fchmodat" | "__NR_fchmodat2" | "__NR_mkdirat" => permit(plain(mode(2))),
        "__NR_open" => permit(!creates(unsigned(1)) || plain(mode(2))),
        "__NR_openat" => permit(!creates(unsigned(2)) || plain(mode(3))),
        "__NR_mq_open" => permit(policy.sysv_ipc && (!creates(unsigned(1)) || plain(mode(2)))),
        "__NR_mknod" => permit(plain(mode(1)) && !device(mode(1))),
        "__NR_mknodat" => permit(plain(mode(2)) && !device(mode(2))),
        "__NR_prlimit64"
        | "__NR_sched_setaffinity"
        | "__NR_sched_setscheduler"
        | "__NR_sched_setparam"
        | "__NR_sched_setattr"
        | "__NR_migrate_pages"
        | "__NR_move_pages" => permit(int(0) == 0),
        "__NR_setpriority" => permit(matches!(int(0), 0 | 1) && int(1) == 0),
        "__NR_ioprio_set" => permit(matches!(int(0), 1 | 2) && int(1) == 0),
        "__NR_clone" => permit(NAMESPACES.iter().all(|flag| unsigned(0) & flag == 0)),
        "__NR_unshare" => {
            let harmless = general::CLONE_VM
                | general::CLONE_FS
                | general::CLONE_FILES
                | general::CLONE_SIGHAND
                | general::CLONE_THREAD
                | general::CLONE_SYSVSEM;
            permit(arguments[0] & !u64::from(harmless) == 0)
        }
        "__NR_fcntl" => permit(unsigned(1) != general::F_SETLEASE && unsigned(1) != general::F_SETLEASE + 16),
        "__NR_ioctl" => {
            let network = policy.network && NETWORK_REQUESTS.contains(&unsigned(1));
            permit(network || REQUESTS.contains(&unsigned(1)))
        }
        "__NR_socket" | "__NR_socketpair" => socket(policy, unsigned(0), unsigned(1), unsigned(2)),
        other => panic!("{other} has no oracle"),
    }
}

fn device(mode: u32) -> bool {
    let kind = mode & general::S_IFMT;
    kind == general::S_IFBLK || kind == general::S_IFCHR
}

fn socket(policy: FilterPolicy, family: u32, kind: u32, protocol: u32) -> u32 {
    let network = policy.network;
    match family {
        net::AF_UNIX if policy.broker => {
            let kind = kind & !(general::O_CLOEXEC | general::O_NONBLOCK) & 0xf;
            permit(kind == net::SOCK_STREAM || kind == net::SOCK_SEQPACKET)
        }
        net::AF_UNIX => ALLOW,
        net::AF_INET | net::AF_INET6 => {
            let kind = kind & !(general::O_CLOEXEC | general::O_NONBLOCK) & 0xf;
            permit(network && (kind == net::SOCK_STREAM || kind == net::SOCK_DGRAM))
        }
        net::AF_NETLINK if network && protocol == netlink::NETLINK_ROUTE => ALLOW,
        net::AF_NETLINK if network => EPROTONOSUPPORT,
        _ => EAFNOSUPPORT,
    }
}
