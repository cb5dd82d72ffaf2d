//! Entries into the kernel by another ABI than that of the program. Each is tried in a child, because the
//! kernel may kill whoever does it.

use std::arch::asm;

use rustix::io::Errno;

use crate::answer::{Answer, Failed, Prepare as _, done};

use super::processes::{Ended, in_child};

// i386 numbers of asm/unistd_32.h.
const I386_GETPID: u32 = 20;
const I386_SOCKET: u32 = 359;

/// Bit that marks a call number of the x32 ABI (`__X32_SYSCALL_BIT`).
const X32_BIT: i64 = 0x4000_0000;

/// Status of a child whose call returned something that it should not.
const WRONG_ANSWER: i32 = 200;

pub(crate) fn compatible_getpid() -> Answer {
    tried(|| {
        let ours = rustix::process::getpid().as_raw_nonzero().get();
        if interrupt(I386_GETPID, [0; 3]) == ours { 0 } else { WRONG_ANSWER }
    })
}

pub(crate) fn compatible_socket() -> Answer {
    // AF_INET, SOCK_STREAM: no pointer, so the call is complete in 32 bits.
    tried(|| interrupt(I386_SOCKET, [2, 1, 0]).min(0).wrapping_neg())
}

pub(crate) fn x32_getpid() -> Answer {
    tried(|| {
        // SAFETY: getpid takes no argument and touches no memory, whatever the ABI.
        let answer = super::check(unsafe { libc::syscall(X32_BIT | libc::SYS_getpid) });
        let ours = i64::from(rustix::process::getpid().as_raw_nonzero().get());
        match answer {
            Ok(pid) if pid == ours => 0,
            Ok(_) => WRONG_ANSWER,
            Err(error) => error.raw_os_error(),
        }
    })
}

/// A child exits with the error number, 0 if there was none.
fn tried(act: impl FnOnce() -> i32) -> Answer {
    match in_child(act).prepare("fork")? {
        Ended::Exited(0) => done(()),
        Ended::Exited(WRONG_ANSWER) => Err(Failed::Nothing("WRONGANSWER")),
        Ended::Exited(errno) => Err(Errno::from_raw_os_error(errno).into()),
        Ended::Signalled { signal, .. } => Err(Failed::Killed(signal)),
    }
}

/// Enters the kernel by interrupt 0x80, with an i386 call number. Returns what the kernel put into `eax`.
fn interrupt(number: u32, [first, second, third]: [u32; 3]) -> i32 {
    let answer: i32;
    // SAFETY: the calls used here take no pointer. `rbx` may not be an operand, so it is exchanged and put
    // back; r8 to r11 are clobbered by kernels before 4.17. Where the kernel lacks the entry, the
    // instruction faults and the child dies, which its parent reports.
    unsafe {
        asm!(
            "xchg rbx, {first:r}",
            "int 0x80",
            "xchg rbx, {first:r}",
            first = inout(reg) u64::from(first) => _,
            inlateout("eax") number => answer,
            in("ecx") second,
            in("edx") third,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    answer
}
