//! The `ioctl` requests that a command may make.
//!
//! An allow-list, for requests are beyond counting, and those of a file system work on a descriptor
//! that was opened only for reading: a btrfs snapshot, inode flags and a frozen file system are each
//! one request away, and Landlock asks about `ioctl` on devices only. A request counts by its number
//! alone, whatever the descriptor is. The lists are what editors, shells, terminals, compilers,
//! language runtimes, version control and archivers ask for.

/// Terminals and pseudo-terminals: line discipline, size, job control, making a pair.
///
/// Shells and everything with a prompt (TCGETS, TCSETS*, TIOCGPGRP, TIOCSPGRP, TIOCGSID, TIOCSCTTY,
/// TIOCNOTTY); screen sizes (TIOCGWINSZ, TIOCSWINSZ); `openpty` and `forkpty` of `script`, `tmux`,
/// Python, node and debuggers (TIOCGPTN, TIOCSPTLCK, TIOCGPTPEER, TIOCPKT); flow, break and flush
/// of `termios` (TCSBRK, TCXONC, TCFLSH); reading state.
///
/// Absent with intent: TIOCSTI and TIOCLINUX put input into a terminal or paste into it, TIOCCONS
/// takes over the console, TIOCSETD loads line disciplines, TIOCSIG and TIOCVHANGUP reach processes
/// past every signal rule, TIOCSSERIAL and the modem lines drive hardware.
pub(super) const TERMINAL: &[u32] = &[
    0x5401,      // TCGETS
    0x5402,      // TCSETS
    0x5403,      // TCSETSW
    0x5404,      // TCSETSF
    0x5405,      // TCGETA
    0x5406,      // TCSETA
    0x5407,      // TCSETAW
    0x5408,      // TCSETAF
    0x5409,      // TCSBRK
    0x540a,      // TCXONC
    0x540b,      // TCFLSH
    0x540c,      // TIOCEXCL
    0x540d,      // TIOCNXCL
    0x540e,      // TIOCSCTTY
    0x540f,      // TIOCGPGRP
    0x5410,      // TIOCSPGRP
    0x5411,      // TIOCOUTQ, SIOCOUTQ on sockets
    0x5413,      // TIOCGWINSZ
    0x5414,      // TIOCSWINSZ
    0x5415,      // TIOCMGET
    0x5420,      // TIOCPKT
    0x5422,      // TIOCNOTTY
    0x5424,      // TIOCGETD
    0x5425,      // TCSBRKP
    0x5429,      // TIOCGSID
    0x5441,      // TIOCGPTPEER
    0x4004_5431, // TIOCSPTLCK
    0x402c_542b, // TCSETS2
    0x402c_542c, // TCSETSW2
    0x402c_542d, // TCSETSF2
    0x8004_5430, // TIOCGPTN
    0x8004_5432, // TIOCGDEV
    0x8004_5438, // TIOCGPKT
    0x8004_5439, // TIOCGPTLCK
    0x8004_5440, // TIOCGEXCL
    0x802c_542a, // TCGETS2
];

/// What any descriptor answers: bytes waiting, blocking mode, close-on-exec, signal on input, size.
///
/// Pipes, sockets, inotify and terminals (FIONREAD: Java's `available`, event loops); FIONBIO and
/// FIOCLEX are how Rust's std, node and Python set up descriptors; FIOASYNC is O_ASYNC, whose
/// signal the scope layer judges.
pub(super) const DESCRIPTOR: &[u32] = &[
    0x541b, // FIONREAD, also TIOCINQ and SIOCINQ
    0x5421, // FIONBIO
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX
    0x5452, // FIOASYNC
    0x5460, // FIOQSIZE
    0x8905, // SIOCATMARK, on sockets
];

/// Reading about a file, and copying blocks into one that is open for writing.
///
/// `lsattr`, archivers and `rsync` read flags and project (FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR),
/// `filefrag` and sparse copies read extents (FS_IOC_FIEMAP, FIGETBSZ), `cp`, node and others clone
/// (FICLONE, FICLONERANGE: the kernel wants the destination open for writing, and opening is
/// Landlock's).
///
/// Absent with intent: FS_IOC_SETFLAGS, FS_IOC_SETVERSION, FS_IOC_FSSETXATTR and FIDEDUPERANGE work
/// on a descriptor opened for reading; FIFREEZE, FITRIM and FIBMAP concern the whole file system;
/// all that btrfs, ext4, xfs and f2fs have of their own (SQLite asks f2fs for atomic writes and
/// does without).
pub(super) const FILE: &[u32] = &[
    0x0000_0002, // FIGETBSZ
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0x8008_6601, // FS_IOC_GETFLAGS
    0x8008_7601, // FS_IOC_GETVERSION
    0x801c_581f, // FS_IOC_FSGETXATTR
    0xc020_660b, // FS_IOC_FIEMAP
];

/// Reading about interfaces and the arrival of packets; only where there is a network.
///
/// `ifconfig`, Java and Python list interfaces this way. Absent with intent: SIOCGIFBR, a "get"
/// whose argument can ask for changes; SIOCETHTOOL; everything that sets.
pub(super) const NETWORK: &[u32] = &[
    0x8906,      // SIOCGSTAMP_OLD
    0x8907,      // SIOCGSTAMPNS_OLD
    0x8910,      // SIOCGIFNAME
    0x8912,      // SIOCGIFCONF
    0x8913,      // SIOCGIFFLAGS
    0x8915,      // SIOCGIFADDR
    0x8917,      // SIOCGIFDSTADDR
    0x8919,      // SIOCGIFBRDADDR
    0x891b,      // SIOCGIFNETMASK
    0x891d,      // SIOCGIFMETRIC
    0x8921,      // SIOCGIFMTU
    0x8927,      // SIOCGIFHWADDR
    0x8933,      // SIOCGIFINDEX
    0x8942,      // SIOCGIFTXQLEN
    0x8970,      // SIOCGIFMAP
    0x8010_8906, // SIOCGSTAMP_NEW
    0x8010_8907, // SIOCGSTAMPNS_NEW
];
