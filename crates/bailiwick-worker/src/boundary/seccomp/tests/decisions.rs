//! Every system call of x86_64 up to the newest that was judged, with the decision made for it.
//!
//! Written apart from the filter's table and never derived from it: who changes the table must say
//! here what it now means, and a new kernel's calls get a line when they are looked at. The name
//! ties each number to the kernel's header.

/// What the filter does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Passes, whatever its arguments. The kernel, Landlock, capabilities and the mount view judge
    /// it.
    Allow,
    /// Fails with EPERM, whatever its arguments.
    Refuse,
    /// Fails with ENOSYS, whatever its arguments.
    Absent,
    /// Passes with an IPC namespace of its own, fails with EPERM without.
    Ipc,
    /// Asks the broker where there is one, passes where there is none.
    Broker,
    /// Depends on its arguments; the oracle knows how.
    Judge,
}

/// One line of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// As written here.
    pub(super) number: u32,
    /// As the kernel's header names it.
    pub(super) name: &'static str,
    /// The header's number for that name.
    pub(super) header: u32,
    pub(super) decision: Decision,
}

macro_rules! calls {
    ($($number:literal $name:ident $decision:ident,)*) => {
        &[$(Call {
            number: $number,
            name: stringify!($name),
            header: linux_raw_sys::general::$name,
            decision: calls!(@ $decision),
        }),*]
    };
    (@ allow) => { Decision::Allow };
    (@ refuse) => { Decision::Refuse };
    (@ absent) => { Decision::Absent };
    (@ ipc) => { Decision::Ipc };
    (@ broker) => { Decision::Broker };
    (@ judge) => { Decision::Judge };
}

/// All of them, ascending.
#[rustfmt::skip]
pub(super) const CALLS: &[Call] = calls! {
    0 __NR_read allow,
    1 __NR_write allow,
    2 __NR_open judge, // set-id bits of the mode, if it may create
    3 __NR_close allow,
    4 __NR_stat allow,
    5 __NR_fstat allow,
    6 __NR_lstat allow,
    7 __NR_poll allow,
    8 __NR_lseek allow,
    9 __NR_mmap allow,
    10 __NR_mprotect allow,
    11 __NR_munmap allow,
    12 __NR_brk allow,
    13 __NR_rt_sigaction allow,
    14 __NR_rt_sigprocmask allow,
    15 __NR_rt_sigreturn allow,
    16 __NR_ioctl judge, // allow-list of requests
    17 __NR_pread64 allow,
    18 __NR_pwrite64 allow,
    19 __NR_readv allow,
    20 __NR_writev allow,
    21 __NR_access allow,
    22 __NR_pipe allow,
    23 __NR_select allow,
    24 __NR_sched_yield allow,
    25 __NR_mremap allow,
    26 __NR_msync allow,
    27 __NR_mincore allow,
    28 __NR_madvise allow,
    29 __NR_shmget ipc,
    30 __NR_shmat ipc,
    31 __NR_shmctl ipc,
    32 __NR_dup allow,
    33 __NR_dup2 allow,
    34 __NR_pause allow,
    35 __NR_nanosleep allow,
    36 __NR_getitimer allow,
    37 __NR_alarm allow,
    38 __NR_setitimer allow,
    39 __NR_getpid allow,
    40 __NR_sendfile allow,
    41 __NR_socket judge, // families
    42 __NR_connect broker, // named sockets: the broker or nobody; abstract: the scope layer
    43 __NR_accept allow,
    44 __NR_sendto allow,
    45 __NR_recvfrom allow,
    46 __NR_sendmsg allow,
    47 __NR_recvmsg allow,
    48 __NR_shutdown allow,
    49 __NR_bind allow,
    50 __NR_listen allow,
    51 __NR_getsockname allow,
    52 __NR_getpeername allow,
    53 __NR_socketpair judge, // families
    54 __NR_setsockopt allow,
    55 __NR_getsockopt allow,
    56 __NR_clone judge, // namespaces
    57 __NR_fork allow,
    58 __NR_vfork allow,
    59 __NR_execve allow, // no_new_privs
    60 __NR_exit allow,
    61 __NR_wait4 allow,
    62 __NR_kill allow, // the scope layer
    63 __NR_uname allow,
    64 __NR_semget ipc,
    65 __NR_semop ipc,
    66 __NR_semctl ipc,
    67 __NR_shmdt allow, // harmless without shmat
    68 __NR_msgget ipc,
    69 __NR_msgsnd ipc,
    70 __NR_msgrcv ipc,
    71 __NR_msgctl ipc,
    72 __NR_fcntl judge, // leases
    73 __NR_flock allow, // locks on files that can only be read: not kept by any layer
    74 __NR_fsync allow,
    75 __NR_fdatasync allow,
    76 __NR_truncate allow, // Landlock, ABI 3
    77 __NR_ftruncate allow,
    78 __NR_getdents allow,
    79 __NR_getcwd allow,
    80 __NR_chdir allow,
    81 __NR_fchdir allow,
    82 __NR_rename allow, // Landlock
    83 __NR_mkdir judge,
    84 __NR_rmdir allow,
    85 __NR_creat judge,
    86 __NR_link allow, // Landlock
    87 __NR_unlink allow,
    88 __NR_symlink allow,
    89 __NR_readlink allow,
    90 __NR_chmod judge,
    91 __NR_fchmod judge,
    92 __NR_chown allow, // metadata: the mount layer
    93 __NR_fchown allow, // metadata
    94 __NR_lchown allow, // metadata
    95 __NR_umask allow,
    96 __NR_gettimeofday allow,
    97 __NR_getrlimit allow,
    98 __NR_getrusage allow,
    99 __NR_sysinfo allow,
    100 __NR_times allow,
    101 __NR_ptrace allow, // within the Landlock domain only: a debugger works
    102 __NR_getuid allow,
    103 __NR_syslog refuse,
    104 __NR_getgid allow,
    105 __NR_setuid allow, // no capability
    106 __NR_setgid allow,
    107 __NR_geteuid allow,
    108 __NR_getegid allow,
    109 __NR_setpgid allow,
    110 __NR_getppid allow,
    111 __NR_getpgrp allow,
    112 __NR_setsid allow,
    113 __NR_setreuid allow,
    114 __NR_setregid allow,
    115 __NR_getgroups allow,
    116 __NR_setgroups allow, // no capability
    117 __NR_setresuid allow,
    118 __NR_getresuid allow,
    119 __NR_setresgid allow,
    120 __NR_getresgid allow,
    121 __NR_getpgid allow,
    122 __NR_setfsuid allow,
    123 __NR_setfsgid allow,
    124 __NR_getsid allow,
    125 __NR_capget allow,
    126 __NR_capset allow, // cannot add
    127 __NR_rt_sigpending allow,
    128 __NR_rt_sigtimedwait allow,
    129 __NR_rt_sigqueueinfo allow, // the scope layer
    130 __NR_rt_sigsuspend allow,
    131 __NR_sigaltstack allow,
    132 __NR_utime allow, // metadata
    133 __NR_mknod judge,
    134 __NR_uselib refuse,
    135 __NR_personality allow, // of the caller
    136 __NR_ustat allow, // reads
    137 __NR_statfs allow,
    138 __NR_fstatfs allow,
    139 __NR_sysfs allow, // reads
    140 __NR_getpriority allow,
    141 __NR_setpriority judge,
    142 __NR_sched_setparam judge,
    143 __NR_sched_getparam allow,
    144 __NR_sched_setscheduler judge,
    145 __NR_sched_getscheduler allow,
    146 __NR_sched_get_priority_max allow,
    147 __NR_sched_get_priority_min allow,
    148 __NR_sched_rr_get_interval allow,
    149 __NR_mlock allow,
    150 __NR_munlock allow,
    151 __NR_mlockall allow,
    152 __NR_munlockall allow,
    153 __NR_vhangup refuse,
    154 __NR_modify_ldt refuse,
    155 __NR_pivot_root refuse,
    156 __NR__sysctl refuse,
    157 __NR_prctl allow, // of the caller; the one option that names a process asks as ptrace does
    158 __NR_arch_prctl allow,
    159 __NR_adjtimex refuse,
    160 __NR_setrlimit allow, // of the caller
    161 __NR_chroot refuse,
    162 __NR_sync allow, // slow at worst
    163 __NR_acct refuse,
    164 __NR_settimeofday refuse,
    165 __NR_mount refuse,
    166 __NR_umount2 refuse,
    167 __NR_swapon refuse,
    168 __NR_swapoff refuse,
    169 __NR_reboot refuse,
    170 __NR_sethostname refuse,
    171 __NR_setdomainname refuse,
    172 __NR_iopl refuse,
    173 __NR_ioperm refuse,
    174 __NR_create_module refuse,
    175 __NR_init_module refuse,
    176 __NR_delete_module refuse,
    177 __NR_get_kernel_syms refuse,
    178 __NR_query_module refuse,
    179 __NR_quotactl refuse,
    180 __NR_nfsservctl refuse,
    181 __NR_getpmsg allow, // never implemented
    182 __NR_putpmsg allow, // never implemented
    183 __NR_afs_syscall allow, // never implemented
    184 __NR_tuxcall allow, // never implemented
    185 __NR_security allow, // never implemented
    186 __NR_gettid allow,
    187 __NR_readahead allow,
    188 __NR_setxattr allow, // metadata
    189 __NR_lsetxattr allow, // metadata
    190 __NR_fsetxattr allow, // metadata
    191 __NR_getxattr allow,
    192 __NR_lgetxattr allow,
    193 __NR_fgetxattr allow,
    194 __NR_listxattr allow,
    195 __NR_llistxattr allow,
    196 __NR_flistxattr allow,
    197 __NR_removexattr allow, // metadata
    198 __NR_lremovexattr allow, // metadata
    199 __NR_fremovexattr allow, // metadata
    200 __NR_tkill allow, // the scope layer
    201 __NR_time allow,
    202 __NR_futex allow,
    203 __NR_sched_setaffinity judge,
    204 __NR_sched_getaffinity allow,
    205 __NR_set_thread_area allow, // 32-bit only
    206 __NR_io_setup allow, // descriptors that are open already
    207 __NR_io_destroy allow,
    208 __NR_io_getevents allow,
    209 __NR_io_submit allow,
    210 __NR_io_cancel allow,
    211 __NR_get_thread_area allow, // 32-bit only
    212 __NR_lookup_dcookie refuse,
    213 __NR_epoll_create allow,
    214 __NR_epoll_ctl_old allow, // never implemented
    215 __NR_epoll_wait_old allow, // never implemented
    216 __NR_remap_file_pages allow,
    217 __NR_getdents64 allow,
    218 __NR_set_tid_address allow,
    219 __NR_restart_syscall allow,
    220 __NR_semtimedop ipc,
    221 __NR_fadvise64 allow,
    222 __NR_timer_create allow,
    223 __NR_timer_settime allow,
    224 __NR_timer_gettime allow,
    225 __NR_timer_getoverrun allow,
    226 __NR_timer_delete allow,
    227 __NR_clock_settime refuse,
    228 __NR_clock_gettime allow,
    229 __NR_clock_getres allow,
    230 __NR_clock_nanosleep allow,
    231 __NR_exit_group allow,
    232 __NR_epoll_wait allow,
    233 __NR_epoll_ctl allow,
    234 __NR_tgkill allow, // the scope layer
    235 __NR_utimes allow, // metadata
    236 __NR_vserver allow, // never implemented
    237 __NR_mbind allow,
    238 __NR_set_mempolicy allow,
    239 __NR_get_mempolicy allow,
    240 __NR_mq_open judge, // refused, or set-id bits of the mode, by IPC namespace
    241 __NR_mq_unlink ipc, // Landlock does not ask
    242 __NR_mq_timedsend allow, // needs a descriptor of mq_open
    243 __NR_mq_timedreceive allow, // needs a descriptor of mq_open
    244 __NR_mq_notify allow,
    245 __NR_mq_getsetattr allow,
    246 __NR_kexec_load refuse,
    247 __NR_waitid allow,
    248 __NR_add_key refuse,
    249 __NR_request_key refuse,
    250 __NR_keyctl refuse,
    251 __NR_ioprio_set judge,
    252 __NR_ioprio_get allow,
    253 __NR_inotify_init allow,
    254 __NR_inotify_add_watch allow, // reads
    255 __NR_inotify_rm_watch allow,
    256 __NR_migrate_pages judge,
    257 __NR_openat judge,
    258 __NR_mkdirat judge,
    259 __NR_mknodat judge,
    260 __NR_fchownat allow, // metadata
    261 __NR_futimesat allow, // metadata
    262 __NR_newfstatat allow,
    263 __NR_unlinkat allow,
    264 __NR_renameat allow,
    265 __NR_linkat allow,
    266 __NR_symlinkat allow,
    267 __NR_readlinkat allow,
    268 __NR_fchmodat judge,
    269 __NR_faccessat allow,
    270 __NR_pselect6 allow,
    271 __NR_ppoll allow,
    272 __NR_unshare judge, // namespaces
    273 __NR_set_robust_list allow,
    274 __NR_get_robust_list allow, // as ptrace
    275 __NR_splice allow,
    276 __NR_tee allow,
    277 __NR_sync_file_range allow,
    278 __NR_vmsplice allow,
    279 __NR_move_pages judge,
    280 __NR_utimensat allow, // metadata
    281 __NR_epoll_pwait allow,
    282 __NR_signalfd allow,
    283 __NR_timerfd_create allow,
    284 __NR_eventfd allow,
    285 __NR_fallocate allow,
    286 __NR_timerfd_settime allow,
    287 __NR_timerfd_gettime allow,
    288 __NR_accept4 allow,
    289 __NR_signalfd4 allow,
    290 __NR_eventfd2 allow,
    291 __NR_epoll_create1 allow,
    292 __NR_dup3 allow,
    293 __NR_pipe2 allow,
    294 __NR_inotify_init1 allow,
    295 __NR_preadv allow,
    296 __NR_pwritev allow,
    297 __NR_rt_tgsigqueueinfo allow, // the scope layer
    298 __NR_perf_event_open refuse,
    299 __NR_recvmmsg allow,
    300 __NR_fanotify_init refuse,
    301 __NR_fanotify_mark refuse,
    302 __NR_prlimit64 judge,
    303 __NR_name_to_handle_at allow, // reads; opening the handle is refused
    304 __NR_open_by_handle_at refuse,
    305 __NR_clock_adjtime refuse,
    306 __NR_syncfs allow, // slow at worst
    307 __NR_sendmmsg allow,
    308 __NR_setns refuse,
    309 __NR_getcpu allow,
    310 __NR_process_vm_readv allow, // as ptrace
    311 __NR_process_vm_writev allow, // as ptrace
    312 __NR_kcmp refuse, // another process
    313 __NR_finit_module refuse,
    314 __NR_sched_setattr judge,
    315 __NR_sched_getattr allow,
    316 __NR_renameat2 allow, // Landlock; a whiteout that it leaves opens nothing
    317 __NR_seccomp allow, // filters only add up
    318 __NR_getrandom allow,
    319 __NR_memfd_create allow, // memory
    320 __NR_kexec_file_load refuse,
    321 __NR_bpf refuse,
    322 __NR_execveat allow, // no_new_privs
    323 __NR_userfaultfd refuse,
    324 __NR_membarrier allow,
    325 __NR_mlock2 allow,
    326 __NR_copy_file_range allow,
    327 __NR_preadv2 allow,
    328 __NR_pwritev2 allow,
    329 __NR_pkey_mprotect allow,
    330 __NR_pkey_alloc allow,
    331 __NR_pkey_free allow,
    332 __NR_statx allow,
    333 __NR_io_pgetevents allow,
    334 __NR_rseq allow,
    335 __NR_uretprobe allow, // serves probes that the host placed; later kernels never show it to filters
    // 336 to 423: no such calls. (336 serves probes from Linux 6.18 on, and is never shown to
    // filters.)
    424 __NR_pidfd_send_signal allow, // the scope layer
    425 __NR_io_uring_setup refuse,
    426 __NR_io_uring_enter refuse,
    427 __NR_io_uring_register refuse,
    428 __NR_open_tree refuse,
    429 __NR_move_mount refuse,
    430 __NR_fsopen refuse,
    431 __NR_fsconfig refuse,
    432 __NR_fsmount refuse,
    433 __NR_fspick refuse,
    434 __NR_pidfd_open allow,
    435 __NR_clone3 absent, // flags by pointer
    436 __NR_close_range allow,
    437 __NR_openat2 absent, // flags and mode by pointer
    438 __NR_pidfd_getfd allow, // as ptrace
    439 __NR_faccessat2 allow,
    440 __NR_process_madvise refuse, // another process
    441 __NR_epoll_pwait2 allow,
    442 __NR_mount_setattr refuse,
    443 __NR_quotactl_fd refuse,
    444 __NR_landlock_create_ruleset allow,
    445 __NR_landlock_add_rule allow,
    446 __NR_landlock_restrict_self allow, // domains only add up
    447 __NR_memfd_secret allow, // memory
    448 __NR_process_mrelease refuse, // another process
    449 __NR_futex_waitv allow,
    450 __NR_set_mempolicy_home_node allow,
    451 __NR_cachestat allow,
    452 __NR_fchmodat2 judge,
    453 __NR_map_shadow_stack allow,
    454 __NR_futex_wake allow,
    455 __NR_futex_wait allow,
    456 __NR_futex_requeue allow,
    457 __NR_statmount allow, // reads
    458 __NR_listmount allow, // reads
    459 __NR_lsm_get_self_attr allow,
    460 __NR_lsm_set_self_attr allow, // of the caller, as its security module permits
    461 __NR_lsm_list_modules allow,
    462 __NR_mseal allow,
    463 __NR_setxattrat allow, // metadata
    464 __NR_getxattrat allow,
    465 __NR_listxattrat allow,
    466 __NR_removexattrat allow, // metadata
    467 __NR_open_tree_attr refuse,
    468 __NR_file_getattr allow, // reads
    469 __NR_file_setattr refuse, // inode flags
};
