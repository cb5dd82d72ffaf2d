//! Numbers and structures that are written out by hand, against the `libc` crate.

use super::{file, mount, number};

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
        FACCESSAT2 SYS_faccessat2, SETNS SYS_setns, MOVE_MOUNT SYS_move_mount, FSOPEN SYS_fsopen,
        FSCONFIG SYS_fsconfig, FSMOUNT SYS_fsmount, MOUNT_SETATTR SYS_mount_setattr, STATX SYS_statx,
        LANDLOCK_ADD_RULE SYS_landlock_add_rule, UTIMENSAT SYS_utimensat, SETXATTR SYS_setxattr,
        FCHOWNAT SYS_fchownat, SHMAT SYS_shmat, GETEUID SYS_geteuid, GETEGID SYS_getegid,
        MMAP SYS_mmap, GETSOCKOPT SYS_getsockopt, FSTATFS SYS_fstatfs,
        GETTID SYS_gettid, TIMER_CREATE SYS_timer_create, TIMER_SETTIME SYS_timer_settime,
        TIMER_DELETE SYS_timer_delete, KCMP SYS_kcmp, PIDFD_GETFD SYS_pidfd_getfd,
    );
    assert_eq!(checked, number::ALL.len(), "a number is not compared");
}

#[test]
fn flags_of_mounts_and_namespaces_are_the_kernels() {
    let namespaces = [
        (mount::CLONE_NEWNS, libc::CLONE_NEWNS),
        (mount::CLONE_NEWUTS, libc::CLONE_NEWUTS),
        (mount::CLONE_NEWIPC, libc::CLONE_NEWIPC),
        (mount::CLONE_NEWUSER, libc::CLONE_NEWUSER),
        (mount::CLONE_NEWPID, libc::CLONE_NEWPID),
        (mount::CLONE_NEWNET, libc::CLONE_NEWNET),
    ];
    for (ours, theirs) in namespaces {
        assert_eq!(i32::try_from(ours), Ok(theirs));
    }
    let attributes = [
        (mount::ATTR_RDONLY, libc::MOUNT_ATTR_RDONLY),
        (mount::ATTR_NOSUID, libc::MOUNT_ATTR_NOSUID),
        (mount::ATTR_NODEV, libc::MOUNT_ATTR_NODEV),
        (mount::ATTR_NOEXEC, libc::MOUNT_ATTR_NOEXEC),
    ];
    for (ours, theirs) in attributes {
        assert_eq!(ours, theirs);
    }
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

#[test]
fn what_the_broker_passes_is_the_kernels() {
    use super::{caller, listen};
    let numbers = [
        (caller::PIDFD_THREAD as u64, u64::from(libc::PIDFD_THREAD)),
        (caller::SO_DOMAIN as u64, libc::SO_DOMAIN as u64),
        (caller::SO_SNDTIMEO as u64, libc::SO_SNDTIMEO as u64),
        (caller::ST_RDONLY as u64, libc::ST_RDONLY),
        (caller::ALARM as u64, libc::SIGALRM as u64),
        (listen::NEW_LISTENER as u64, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
        (listen::WAIT_KILLABLE as u64, libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV),
        (listen::RECEIVE as u64, ioctl(3, 0, size_of::<libc::seccomp_notif>())),
        (listen::SEND as u64, ioctl(3, 1, size_of::<libc::seccomp_notif_resp>())),
        (listen::IS_VALID as u64, ioctl(1, 2, 8)),
        (listen::SET_FLAGS as u64, ioctl(1, 4, 8)),
    ];
    for (position, (ours, theirs)) in numbers.into_iter().enumerate() {
        assert_eq!(ours, theirs, "number {position}");
    }
    let sizes = [
        (size_of::<listen::Question>(), size_of::<libc::seccomp_notif>()),
        (size_of::<listen::Response>(), size_of::<libc::seccomp_notif_resp>()),
        (size_of::<caller::SignalAction>(), size_of::<libc::sigaction>()),
        (std::mem::offset_of!(caller::SignalAction, flags), std::mem::offset_of!(libc::sigaction, sa_flags)),
        (std::mem::offset_of!(caller::SignalAction, mask), std::mem::offset_of!(libc::sigaction, sa_mask)),
        (size_of::<libc::statfs>(), 15 * 8),
        (size_of::<libc::sigevent>(), 64),
        (size_of::<libc::itimerspec>(), 32),
    ];
    for (position, (ours, theirs)) in sizes.into_iter().enumerate() {
        assert_eq!(ours, theirs, "size {position}");
    }
}

/// `_IOC(direction, '!', number, size)` of `asm-generic/ioctl.h`.
fn ioctl(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | u64::from(b'!') << 8 | number
}

/// What `fstatfs` tells, read by its offset, is what the mount table says.
#[test]
fn read_only_mounts_are_told() {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let file = super::open_at(super::AT_FDCWD, c"/proc", super::O_PATH, 0).unwrap();
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc")).unwrap();
    let options = line.split(' ').nth(5).unwrap();
    assert_eq!(super::is_read_only(&file).unwrap(), options.split(',').any(|option| option == "ro"));
}
