//! The system call filter that every command of a session runs under.
//!
//! Landlock judges files by path, and nothing else. What a process can do without naming a file
//! that Landlock judges (namespaces, mounts, requests to devices and file systems, other processes'
//! limits, queues, keys, a second way into the kernel) is refused here. The filter sees numbers
//! only: it cannot follow a pointer and it cannot tell a path inside a write root from one outside,
//! so metadata calls (`chmod`, `chown`, `utimensat`, `setxattr`) pass it and are the mount layer's
//! work.
//!
//! This module computes the program; installing it is the launcher's. [`table`] holds the decisions
//! with their reasons, [`rule`] the form in which they are written, [`assembler`] turns them into
//! instructions.
//!
//! # What a command notices
//!
//! Refused on purpose, path-blind, and therefore inside the write roots too:
//!
//! - set-user-id and set-group-id bits: `chmod u+s`, `install -m 4755`, `chmod g+s DIR`, `git init
//!   --shared`, and `cp -p`, `tar -p` or `shutil.copystat` of a set-group-id directory fail with
//!   EPERM. A directory made beneath a set-group-id directory still inherits the bit, for the
//!   kernel sets that one itself.
//! - `chattr` and other changes of inode flags; `btrfs subvolume`; deduplication; `mknod` of a
//!   device or whiteout.
//! - anything that needs a namespace (nested containers, `bwrap`, a browser's own sandbox), a
//!   keyring (`kinit` with a kernel cache), `perf`, `rr`, `bpf`, 32-bit and x32 programs, GPU and
//!   KVM devices (their requests are not listed).
//! - naming a process by number in `prlimit`, `renice`, `taskset` and `ionice`, be it the caller
//!   itself: a filter cannot tell its own number from another. `pthread_setaffinity_np` and
//!   `pthread_setschedparam` pass a number as well; `sched_setaffinity(0, ..)` is the way that
//!   works.
//! - without a private IPC namespace: System V shared memory, semaphores and queues (PostgreSQL,
//!   the System V variant of `fakeroot`) and POSIX message queues. POSIX semaphores and shared
//!   memory are files and not concerned.
//! - without a network: listing interfaces (`getifaddrs`; node's `os.networkInterfaces` throws).
//! - file leases. Locks work.
//! - with a broker: local datagram sockets (`syslog(3)`, `sd_notify(3)`, `socketpair` of datagrams), since a
//!   datagram needs no `connect` to reach a name.
//!
//! # Kernel
//!
//! Needs seccomp filters after ptrace (Linux 4.8), which every kernel with Landlock has.
//!
//! # Source
//!
//! seccomp(2), bpf(4), `include/uapi/linux/{seccomp,filter,audit}.h`; numbers are compared with the
//! `linux-raw-sys` crate by the tests.
#![forbid(unsafe_code)]

mod assembler;
mod ioctl;
mod rule;
mod table;

#[cfg(test)]
mod tests;

/// One classic BPF instruction, laid out as the kernel reads it (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    /// The operation.
    pub code: u16,
    /// How many instructions to skip where the comparison holds.
    pub jt: u8,
    /// How many instructions to skip where it does not.
    pub jf: u8,
    /// The operand: a constant, an offset into `struct seccomp_data`, or a distance.
    pub k: u32,
}

/// What the filter depends on. Everything else is the same for every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterPolicy {
    /// Whether IPv4 and IPv6 sockets may be made, and the kernel asked for interfaces and routes.
    pub network: bool,
    /// Whether the command has an IPC namespace of its own, so that no System V object and no POSIX
    /// message queue that it can name belongs to anybody else.
    pub sysv_ipc: bool,
    /// Whether a broker makes connections on the command's behalf, and so judges the names of sockets.
    pub broker: bool,
}

/// Computes the filter for `policy`.
///
/// Calls that are not judged are allowed; calls unknown to the table do not exist (ENOSYS).
///
/// # Security
///
/// The program holds only together with `no_new_privs` and without capabilities. It must be
/// installed before anything untrusted runs in the thread, and on every thread that exists by then.
/// It binds whoever installs it, too: from then on `clone3` and `openat2` do not exist.
///
/// # Kernel
///
/// The length stays below the kernel's limit of 4096 instructions by a factor of ten; installing
/// costs time in proportion to it, see the test `the_filter_is_short`.
pub(crate) fn program(policy: FilterPolicy) -> Vec<Instruction> {
    assembler::assemble(&table::rules(policy))
}
