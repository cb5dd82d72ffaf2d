//! Numbers and structures that are written out by hand, against the `libc` crate.

use super::{file, number};

#[test]
fn system_call_numbers_are_the_kernels() {
    macro_rules! check {
        ($($name:ident $libc:ident),+ $(,)?) => {{
            let checked = [$((stringify!($name), number::$name, libc::$libc)),+];
            for (name, ours, theirs) in checked {
                assert_eq!(ours, theirs, "{name}");
            }
            checked.len()
        }};
    }
    let checked = check!(
        READ SYS_read, POLL SYS_poll, LSEEK SYS_lseek, RT_SIGACTION SYS_rt_sigaction, RT_SIGPROCMASK SYS_rt_sigprocmask, RT_SIGTIMEDWAIT SYS_rt_sigtimedwait,
        IOCTL SYS_ioctl, GETPID SYS_getpid, SOCKET SYS_socket, CONNECT SYS_connect, SENDMSG SYS_sendmsg,
        RECVMSG SYS_recvmsg, BIND SYS_bind, LISTEN SYS_listen, GETSOCKNAME SYS_getsockname,
        SOCKETPAIR SYS_socketpair, CLONE SYS_clone, WAIT4 SYS_wait4, KILL SYS_kill, FCNTL SYS_fcntl,
        TRUNCATE SYS_truncate, FCHDIR SYS_fchdir, FCHMOD SYS_fchmod, SETSID SYS_setsid,
        CAPGET SYS_capget, CAPSET SYS_capset, GETPRIORITY SYS_getpriority,
        SETPRIORITY SYS_setpriority, PRCTL SYS_prctl, CHROOT SYS_chroot, SETTIMEOFDAY SYS_settimeofday,
        MOUNT SYS_mount, SETHOSTNAME SYS_sethostname, GETDENTS64 SYS_getdents64,
        EXIT_GROUP SYS_exit_group, OPENAT SYS_openat, MKDIRAT SYS_mkdirat, MKNODAT SYS_mknodat,
        UNLINKAT SYS_unlinkat, RENAMEAT SYS_renameat, LINKAT SYS_linkat, FCHMODAT SYS_fchmodat,
        UNSHARE SYS_unshare, SHMGET SYS_shmget, SHMCTL SYS_shmctl, SIGNALFD4 SYS_signalfd4,
        DUP3 SYS_dup3, PERF_EVENT_OPEN SYS_perf_event_open, FANOTIFY_INIT SYS_fanotify_init,
        PRLIMIT64 SYS_prlimit64, PROCESS_VM_READV SYS_process_vm_readv, SECCOMP SYS_seccomp,
        BPF SYS_bpf, USERFAULTFD SYS_userfaultfd, EXECVE SYS_execve, KEYCTL SYS_keyctl,
        PIDFD_SEND_SIGNAL SYS_pidfd_send_signal, IO_URING_SETUP SYS_io_uring_setup,
        OPEN_TREE SYS_open_tree, PIDFD_OPEN SYS_pidfd_open, CLOSE_RANGE SYS_close_range, OPENAT2 SYS_openat2,
        LANDLOCK_RESTRICT_SELF SYS_landlock_restrict_self, MEMFD_CREATE SYS_memfd_create, PTRACE SYS_ptrace,
        FACCESSAT2 SYS_faccessat2, GETEUID SYS_geteuid,
    );
    assert_eq!(checked, number::ALL.len(), "a number is not compared");
}

#[test]
fn flags_of_open_are_the_kernels() {
    let ours = [
        (file::O_WRONLY, libc::O_WRONLY),
        (file::O_RDWR, libc::O_RDWR),
        (file::O_CREAT, libc::O_CREAT),
        (file::O_EXCL, libc::O_EXCL),
        (file::O_NOCTTY, libc::O_NOCTTY),
        (file::O_NONBLOCK, libc::O_NONBLOCK),
        (file::O_DIRECTORY, libc::O_DIRECTORY),
        (file::O_TMPFILE, libc::O_TMPFILE),
        (file::O_NOFOLLOW, libc::O_NOFOLLOW),
        (file::O_CLOEXEC, libc::O_CLOEXEC),
        (file::O_PATH, libc::O_PATH),
        (file::AT_REMOVEDIR, libc::AT_REMOVEDIR),
        (file::AT_FDCWD, libc::AT_FDCWD),
    ];
    for (ours, theirs) in ours {
        assert_eq!(ours, theirs);
    }
    let resolve = [
        (file::RESOLVE_NO_XDEV, libc::RESOLVE_NO_XDEV),
        (file::RESOLVE_NO_MAGICLINKS, libc::RESOLVE_NO_MAGICLINKS),
        (file::RESOLVE_NO_SYMLINKS, libc::RESOLVE_NO_SYMLINKS),
        (file::RESOLVE_BENEATH, libc::RESOLVE_BENEATH),
    ];
    for (ours, theirs) in resolve {
        assert_eq!(ours, theirs);
    }
    assert_eq!(size_of::<libc::open_how>(), 24);
}

#[test]
fn messages_arrive_whole_with_their_descriptors() {
    use super::{Channel, Errno, socket_pair};
    use std::os::fd::{AsRawFd as _, OwnedFd};

    let (left, right) = socket_pair().unwrap();
    let (mut left, right) = (Channel::new(left), Channel::new(right));
    let descriptor: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let bodies = [
        vec![1],
        vec![2; bailiwick_wire::INLINE_LIMIT],
        vec![3; bailiwick_wire::INLINE_LIMIT + 1],
        vec![4; 3_000_000],
    ];
    for body in &bodies {
        left.send(body.clone(), vec![descriptor.try_clone().unwrap()]).unwrap();
        let received = right.receive(true).unwrap().unwrap();
        assert_eq!(&received.bytes, body);
        assert_eq!(received.descriptors.len(), 1);
        let fd = received.descriptors[0].as_raw_fd();
        assert_eq!(
            std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap(),
            std::path::Path::new("/dev/null")
        );
    }
    assert_eq!(right.receive(false).unwrap_err(), Errno::AGAIN);

    // A full socket keeps order, and loses nothing.
    for number in 0..2000_u32 {
        left.send(number.to_le_bytes().repeat(200), Vec::new()).unwrap();
    }
    assert!(left.wants_write());
    for number in 0..2000_u32 {
        assert_eq!(right.receive(true).unwrap().unwrap().bytes, number.to_le_bytes().repeat(200));
        left.flush().unwrap();
    }
    assert!(!left.wants_write());
    drop(left);
    assert!(right.receive(true).unwrap().is_none());
}
