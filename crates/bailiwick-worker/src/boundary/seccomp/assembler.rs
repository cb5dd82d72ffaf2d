//! Turns rules into classic BPF instructions.
//!
//! The machine has one accumulator, jumps only forward, and skips at most 255 instructions on a
//! comparison. The program is therefore built **from its end**: whatever is jumped to exists before
//! the jump, so each distance is known when it is written, nothing is patched later, and a target
//! which lies too far gets a stepping stone right behind the jump.

use super::Instruction;
use super::rule::{ALL_BITS, Case, Rule, Switch, Word};

/// Operations, from `linux/bpf_common.h`.
pub(super) mod op {
    /// Loads a word of `struct seccomp_data` into the accumulator (`BPF_LD | BPF_W | BPF_ABS`).
    pub(in super::super) const LOAD: u16 = 0x20;
    /// Masks the accumulator (`BPF_ALU | BPF_AND | BPF_K`).
    pub(in super::super) const AND: u16 = 0x54;
    /// Jumps always (`BPF_JMP | BPF_JA`).
    pub(in super::super) const JUMP: u16 = 0x05;
    /// Jumps by equality (`BPF_JMP | BPF_JEQ | BPF_K`).
    pub(in super::super) const IF_EQUAL: u16 = 0x15;
    /// Jumps by unsigned "greater" (`BPF_JMP | BPF_JGT | BPF_K`).
    pub(in super::super) const IF_GREATER: u16 = 0x25;
    /// Jumps by unsigned "greater or equal" (`BPF_JMP | BPF_JGE | BPF_K`).
    pub(in super::super) const IF_AT_LEAST: u16 = 0x35;
    /// Jumps by a common bit (`BPF_JMP | BPF_JSET | BPF_K`).
    pub(in super::super) const IF_ANY_BIT: u16 = 0x45;
    /// Ends the program with a constant (`BPF_RET | BPF_K`).
    pub(in super::super) const RETURN: u16 = 0x06;
}

/// Lets the call pass (`SECCOMP_RET_ALLOW`).
pub(super) const ALLOW: u32 = 0x7fff_0000;

/// Skips the call and returns the error number in the lower 16 bits (`SECCOMP_RET_ERRNO`).
pub(super) const ERRNO: u32 = 0x0005_0000;

/// Skips the call, asks the listener and returns its answer (`SECCOMP_RET_USER_NOTIF`).
pub(super) const ASK: u32 = 0x7fc0_0000;

/// How many values are compared one after the other rather than halved further. A comparison chain
/// needs one instruction per value where a tree needs two, and only costs time once a call has
/// arrived there.
const CHAIN: usize = 4;

/// An instruction, by its distance from the end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

/// A run of values and where they lead.
#[derive(Clone, Copy, Debug)]
struct Target {
    first: u32,
    last: u32,
    label: Label,
}

/// Turns a rule into a program.
pub(super) fn assemble(rule: &Rule) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let entry = assembler.rule(rule);
    assembler.follow(entry);
    assembler.reversed.reverse();
    assembler.reversed
}

/// A program that grows toward its first instruction.
#[derive(Debug, Default)]
struct Assembler<'rules> {
    /// The last instruction of the program comes first.
    reversed: Vec<Instruction>,
    /// Rules that have instructions already, to share them.
    known: Vec<(&'rules Rule, Label)>,
    /// Stepping stones: what was too far, and the nearest instruction that does the same.
    stones: Vec<(Label, Label)>,
}

impl<'rules> Assembler<'rules> {
    /// The instructions for a rule; equal rules share them.
    fn rule(&mut self, rule: &'rules Rule) -> Label {
        if let Some(&(_, label)) = self.known.iter().find(|(known, _)| *known == rule) {
            return label;
        }
        let label = match rule {
            Rule::Allow => self.push(op::RETURN, 0, 0, ALLOW),
            Rule::Refuse(errno) => self.push(op::RETURN, 0, 0, ERRNO | u32::from(*errno)),
            Rule::Ask => self.push(op::RETURN, 0, 0, ASK),
            Rule::Switch(switch) => self.switch(switch),
        };
        self.known.push((rule, label));
        label
    }

    fn switch(&mut self, switch: &'rules Switch) -> Label {
        let otherwise = self.rule(&switch.otherwise);
        let targets = self.targets(&switch.cases, otherwise);
        if targets.is_empty() {
            return otherwise;
        }
        // One zero beneath a mask is the question for which the machine has an instruction of its
        // own.
        if let ([Target { first: 0, last: 0, label }], true) = (targets.as_slice(), switch.mask != ALL_BITS) {
            let test = self.branch(op::IF_ANY_BIT, switch.mask, otherwise, *label);
            return self.load(switch.word, test);
        }
        let search = self.search(&targets, 0, u32::MAX, otherwise);
        let compare = if switch.mask == ALL_BITS {
            search
        } else {
            self.follow(search);
            self.push(op::AND, 0, 0, switch.mask)
        };
        self.load(switch.word, compare)
    }

    /// Cases in ascending order, neighbours that lead to one place joined.
    fn targets(&mut self, cases: &'rules [Case], otherwise: Label) -> Vec<Target> {
        let mut targets: Vec<Target> = cases
            .iter()
            .map(|case| Target { first: case.first, last: case.last, label: self.rule(&case.rule) })
            .filter(|target| target.label != otherwise)
            .collect();
        targets.sort_by_key(|target| target.first);
        targets.dedup_by(|next, kept| {
            let joined = kept.label == next.label && kept.last.checked_add(1) == Some(next.first);
            if joined {
                kept.last = next.last;
            }
            joined
        });
        targets
    }

    /// Finds the accumulator, known to lie in `low..=high`, among ascending targets.
    fn search(&mut self, targets: &[Target], low: u32, high: u32, otherwise: Label) -> Label {
        if targets.len() <= CHAIN {
            return self.chain(targets, low, high, otherwise);
        }
        let (below, above) = targets.split_at(targets.len() / 2);
        let pivot = above[0].first;
        let upper = self.search(above, pivot, high, otherwise);
        let lower = self.search(below, low, pivot - 1, otherwise);
        self.branch(op::IF_AT_LEAST, pivot, upper, lower)
    }

    fn chain(&mut self, targets: &[Target], low: u32, high: u32, otherwise: Label) -> Label {
        targets.iter().rev().fold(otherwise, |next, target| {
            if target.first == target.last {
                return self.branch(op::IF_EQUAL, target.first, target.label, next);
            }
            let inside = if target.first > low {
                self.branch(op::IF_AT_LEAST, target.first, target.label, otherwise)
            } else {
                target.label
            };
            if target.last < high { self.branch(op::IF_GREATER, target.last, next, inside) } else { inside }
        })
    }

    fn load(&mut self, word: Word, next: Label) -> Label {
        self.follow(next);
        self.push(op::LOAD, 0, 0, word.offset())
    }

    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        let yes = self.near(yes);
        let no = self.near(no);
        let (jt, jf) = (self.distance(yes), self.distance(no));
        let (Ok(jt), Ok(jf)) = (u8::try_from(jt), u8::try_from(jf)) else {
            unreachable!("`near` leaves distances of at most 255, not {jt} and {jf}");
        };
        self.push(code, jt, jf, k)
    }

    /// Makes `next` the instruction that the one pushed after this runs into.
    fn follow(&mut self, next: Label) {
        if self.distance(next) != 0 {
            self.stone(next);
        }
    }

    /// An instruction that does what `label` does and that a comparison pushed now, or one later,
    /// can skip to.
    fn near(&mut self, label: Label) -> Label {
        // One less than the machine's 255: the other branch may need a stone in between.
        const REACH: usize = 254;
        if self.distance(label) <= REACH {
            return label;
        }
        let stone = self.stones.iter().rev().find(|(target, _)| *target == label).map(|(_, stone)| *stone);
        match stone {
            Some(stone) if self.distance(stone) <= REACH => stone,
            _ => self.stone(label),
        }
    }

    fn stone(&mut self, label: Label) -> Label {
        let target = self.reversed[label.0];
        let stone = if target.code == op::RETURN {
            self.push(op::RETURN, 0, 0, target.k)
        } else {
            let Ok(distance) = u32::try_from(self.distance(label)) else {
                unreachable!("a program of four thousand million instructions");
            };
            self.push(op::JUMP, 0, 0, distance)
        };
        self.stones.push((label, stone));
        stone
    }

    /// How many instructions lie between `label` and the one pushed next.
    fn distance(&self, label: Label) -> usize {
        self.reversed.len() - 1 - label.0
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Label {
        self.reversed.push(Instruction { code, jt, jf, k });
        Label(self.reversed.len() - 1)
    }
}
