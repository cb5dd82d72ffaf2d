//! Calls to try: every number with values at the borders of every rule, and random ones.

use linux_raw_sys::{general, net, ptrace};

use super::decisions::{CALLS, Decision};
use super::machine::Call;
use super::native;
use super::oracle::{NETWORK_REQUESTS, REQUESTS};

/// What fills the upper half of a register that the kernel reads as 32 bits.
const FILLED: u64 = 0xffff_ffff_0000_0000;

/// Values that some rule tells apart, for pairs of arguments.
const PAIRED: &[u64] = &[
    0,
    1,
    2,
    3,
    5,
    10,
    16,
    0o100,        // O_CREAT
    0o102,        // O_CREAT | O_RDWR
    0o20_200_000, // O_TMPFILE
    0o20_000_000, // its own bit
    0o200_000,    // O_DIRECTORY, the other part
    0o2000,       // S_ISGID
    0o4000,       // S_ISUID
    0o755,
    0o1777,
    0o6755,
    0o020_600, // S_IFCHR
    0o060_600, // S_IFBLK
    0o040_700,
    0o100_644,
    0o140_600,
    0x80001,     // SOCK_STREAM | SOCK_CLOEXEC
    0xffff_ffff, // -1
    FILLED,
    FILLED | 1,
    FILLED | 2,
    FILLED | 0o100,
    FILLED | 0o4755,
];

fn requests() -> impl Iterator<Item = u64> {
    REQUESTS.iter().chain(NETWORK_REQUESTS).map(|&request| u64::from(request))
}

/// Values for one argument while the others rest.
fn single() -> Vec<u64> {
    let bits = (0..64).map(|bit| 1 << bit);
    let types = (0..16).map(|kind| kind << 12 | 0o644);
    let commands = 1020..1045;
    let around = requests().flat_map(|request| [request - 1, request, request + 1, request | FILLED]);
    let mut values: Vec<u64> =
        PAIRED.iter().copied().chain(bits).chain(types).chain(commands).chain(around).collect();
    values.extend([0x7fff_ffff, 0x8000_0000, u64::MAX, 0x1_0000_0000]);
    values.extend((0..64).map(|bit| !(1 << bit)));
    values.extend((0..=20).chain([38, 40, 44]));
    values.sort_unstable();
    values.dedup();
    values
}

/// Calls worth trying, the same for each policy.
pub(super) fn samples() -> Vec<Call> {
    let mut calls = Vec::new();
    let rest = [[0; 6], [u64::MAX; 6], [2, 2, 0, 0, 0, 0], [1; 6]];
    for number in 0..=520 {
        calls.extend(rest.map(|arguments| native(number, arguments)));
    }
    for number in [0x3fff_ffff, 0x4000_0000, 0x4000_0010, 0x4000_0208, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        calls.push(native(number, [0; 6]));
    }
    for architecture in [0x4000_0003, ptrace::AUDIT_ARCH_X86_64 - 1, ptrace::AUDIT_ARCH_X86_64 + 1, 0] {
        for number in [0, 1, 20, 59, 470, general::__NR_ioctl, general::__NR_openat] {
            calls.push(Call { architecture, number, arguments: [0; 6] });
        }
    }
    let single = single();
    let judged = CALLS.iter().filter(|call| call.decision == Decision::Judge).map(|call| call.header);
    for number in judged {
        for base in rest {
            for position in 0..4 {
                calls.extend(single.iter().map(|&value| {
                    let mut arguments = base;
                    arguments[position] = value;
                    native(number, arguments)
                }));
            }
        }
        for (left, right) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
            for &first in PAIRED {
                calls.extend(PAIRED.iter().map(|&second| {
                    let mut arguments = [0; 6];
                    arguments[left] = first;
                    arguments[right] = second;
                    native(number, arguments)
                }));
            }
        }
    }
    calls.extend(sockets());
    calls
}

fn sockets() -> impl Iterator<Item = Call> {
    let families = (0..=46).chain([net::AF_INET, net::AF_NETLINK].map(|family| FILLED | u64::from(family)));
    families.flat_map(|family| {
        let types =
            (0..16).chain([0x80001, 0x80003, 0x802, 0x80802, 0x11, 0x7fff_fff1, FILLED | 1, FILLED | 3]);
        types.flat_map(move |kind| {
            [0, 1, 4, 6, 9, 15, 16, 17, 255, FILLED, 1 << 16].into_iter().flat_map(move |protocol| {
                let arguments = [family, kind, protocol, 0, 0, 0];
                [general::__NR_socket, general::__NR_socketpair].map(|number| native(number, arguments))
            })
        })
    })
}

/// A generator of pseudo-random numbers (xorshift), seeded so that a failure repeats.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A call with a likely number, and arguments that are small, sparse or anything.
    pub(super) fn call(&mut self) -> Call {
        let number = match self.below(8) {
            0 => u32::try_from(self.next() >> 32).unwrap(),
            _ => u32::try_from(self.below(500)).unwrap(),
        };
        let architecture = if self.below(32) == 0 {
            u32::try_from(self.next() >> 32).unwrap()
        } else {
            ptrace::AUDIT_ARCH_X86_64
        };
        let arguments = std::array::from_fn(|_| match self.below(5) {
            0 => self.below(4),
            1 => self.next() & self.next() & self.next(),
            2 => self.below(0x1_0000),
            3 => self.below(0x1_0000) | FILLED,
            _ => self.next(),
        });
        Call { architecture, number, arguments }
    }
}
