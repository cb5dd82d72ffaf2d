//! The kernel's side: its check of a program before it is accepted, and a machine that runs it.
//!
//! Written from the description of classic BPF in the kernel's documentation
//! (`networking/filter.rst`, `userspace-api/seccomp_filter.rst`) and with the header's constants,
//! not with the assembler's.

use linux_raw_sys::ptrace as bpf;

use super::super::Instruction;

/// What the kernel shows to a filter, before it is laid out in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) architecture: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

const fn code(parts: &[u32]) -> u32 {
    let mut sum = 0;
    let mut index = 0;
    while index < parts.len() {
        sum |= parts[index];
        index += 1;
    }
    sum
}

const LOAD: u32 = code(&[bpf::BPF_LD, bpf::BPF_W, bpf::BPF_ABS]);
const AND: u32 = code(&[bpf::BPF_ALU, bpf::BPF_AND, bpf::BPF_K]);
const JUMP: u32 = code(&[bpf::BPF_JMP, bpf::BPF_JA]);
const EQUAL: u32 = code(&[bpf::BPF_JMP, bpf::BPF_JEQ, bpf::BPF_K]);
const GREATER: u32 = code(&[bpf::BPF_JMP, bpf::BPF_JGT, bpf::BPF_K]);
const AT_LEAST: u32 = code(&[bpf::BPF_JMP, bpf::BPF_JGE, bpf::BPF_K]);
const ANY_BIT: u32 = code(&[bpf::BPF_JMP, bpf::BPF_JSET, bpf::BPF_K]);
const RETURN: u32 = code(&[bpf::BPF_RET, bpf::BPF_K]);

/// The lower half of a register.
pub(super) fn low(register: u64) -> u32 {
    u32::try_from(register & 0xffff_ffff).unwrap()
}

/// The upper half of a register.
pub(super) fn high(register: u64) -> u32 {
    u32::try_from(register >> 32).unwrap()
}

/// The instructions that may come after the one at `index`; none after a return.
///
/// # Panics
///
/// On an operation that this filter has no business to use.
fn next(instruction: Instruction, index: usize) -> Vec<usize> {
    let after = |distance: usize| index + 1 + distance;
    match u32::from(instruction.code) {
        RETURN => vec![],
        LOAD => {
            assert!(
                instruction.k < 64 && instruction.k.is_multiple_of(4),
                "{index}: load of {}",
                instruction.k
            );
            vec![after(0)]
        }
        AND => vec![after(0)],
        JUMP => vec![after(usize::try_from(instruction.k).unwrap())],
        EQUAL | GREATER | AT_LEAST | ANY_BIT => {
            vec![after(instruction.jt.into()), after(instruction.jf.into())]
        }
        other => panic!("{index}: operation {other:#x}"),
    }
}

/// Checks that each path stays within the program and ends in a return. Gives the instructions that
/// no path leads to.
pub(super) fn check(program: &[Instruction]) -> Vec<usize> {
    assert!(!program.is_empty() && program.len() <= 4096, "{} instructions", program.len());
    let mut reached = vec![false; program.len()];
    reached[0] = true;
    for (index, &instruction) in program.iter().enumerate() {
        if u32::from(instruction.code) == RETURN {
            let action = instruction.k & bpf::SECCOMP_RET_ACTION_FULL;
            let known = [bpf::SECCOMP_RET_ALLOW, bpf::SECCOMP_RET_ERRNO, bpf::SECCOMP_RET_USER_NOTIF];
            assert!(known.contains(&action), "{index}: action {action:#x}");
        }
        // Forward by construction, distances being unsigned.
        for target in next(instruction, index) {
            assert!(target < program.len(), "{index}: {instruction:?} leaves the program");
            reached[target] |= reached[index];
        }
    }
    (0..program.len()).filter(|&index| !reached[index]).collect()
}

/// What the kernel would do with the call, and after how many instructions.
pub(super) fn run(program: &[Instruction], call: &Call) -> (u32, usize) {
    let mut accumulator = 0;
    let mut index = 0;
    for steps in 1.. {
        let Instruction { code, jt, jf, k } = program[index];
        let choose = |holds: bool| usize::from(if holds { jt } else { jf });
        index += 1;
        match u32::from(code) {
            RETURN => return (k, steps),
            LOAD => accumulator = word(call, k),
            AND => accumulator &= k,
            JUMP => index += usize::try_from(k).unwrap(),
            EQUAL => index += choose(accumulator == k),
            GREATER => index += choose(accumulator > k),
            AT_LEAST => index += choose(accumulator >= k),
            ANY_BIT => index += choose(accumulator & k != 0),
            other => panic!("operation {other:#x}"),
        }
    }
    unreachable!("jumps go forward, so the loop returns");
}

fn word(call: &Call, offset: u32) -> u32 {
    match offset {
        0 => call.number,
        4 => call.architecture,
        // The instruction pointer, which no rule may rest on.
        8 | 12 => panic!("load of the instruction pointer"),
        _ => {
            let register = call.arguments[usize::try_from((offset - 16) / 8).unwrap()];
            if offset.is_multiple_of(8) { low(register) } else { high(register) }
        }
    }
}
