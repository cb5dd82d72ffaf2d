//! The form in which a decision is written down, before it becomes instructions.

/// A 32-bit word of what the kernel shows to a filter (`struct seccomp_data`).
///
/// Arguments have 64 bits. Where the kernel takes an `int`, an `unsigned int` or a `umode_t`, it
/// ignores the upper half of the register, and so must the filter: whoever compares both halves
/// lets the same call pass with rubbish in the upper one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The system call number.
    Number,
    /// The calling convention, an `AUDIT_ARCH_` value.
    Architecture,
    /// The lower half of an argument, counted from 0.
    Low(u8),
    /// The upper half of an argument, counted from 0.
    High(u8),
}

impl Word {
    /// Bytes from the start of `struct seccomp_data`, on a little-endian machine.
    pub(super) fn offset(self) -> u32 {
        const ARGUMENTS: u32 = 16;
        match self {
            Self::Number => 0,
            Self::Architecture => 4,
            Self::Low(argument) => ARGUMENTS + 8 * u32::from(argument),
            Self::High(argument) => ARGUMENTS + 8 * u32::from(argument) + 4,
        }
    }
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The kernel goes on with it.
    Allow,
    /// The kernel does nothing and returns this error number.
    Refuse(u16),
    /// The kernel asks whoever holds the listener of the filter, and returns what that answers.
    Ask,
    /// It depends on a word.
    Switch(Box<Switch>),
}

/// A choice by the value of a word, after `mask` is applied to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    /// What is looked at.
    pub(super) word: Word,
    /// The bits that count.
    pub(super) mask: u32,
    /// Values with a rule of their own, in any order. They may not overlap.
    pub(super) cases: Vec<Case>,
    /// The rule for all other values.
    pub(super) otherwise: Rule,
}

/// A run of values and their rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// The smallest value, unsigned.
    pub(super) first: u32,
    /// The largest value, inclusive.
    pub(super) last: u32,
    /// What holds for them.
    pub(super) rule: Rule,
}

/// Every bit of a word.
pub(super) const ALL_BITS: u32 = u32::MAX;

impl Case {
    /// A case for one value.
    pub(super) fn one(value: u32, rule: Rule) -> Self {
        Self { first: value, last: value, rule }
    }
}

impl Rule {
    /// A choice by the whole word.
    pub(super) fn switch(word: Word, cases: Vec<Case>, otherwise: Self) -> Self {
        Self::masked(word, ALL_BITS, cases, otherwise)
    }

    /// A choice by some bits of a word.
    pub(super) fn masked(word: Word, mask: u32, cases: Vec<Case>, otherwise: Self) -> Self {
        Self::Switch(Box::new(Switch { word, mask, cases, otherwise }))
    }

    /// `set` where any of `bits` is set in the word, `clear` where none is.
    pub(super) fn any_bit(word: Word, bits: u32, set: Self, clear: Self) -> Self {
        Self::masked(word, bits, vec![Case::one(0, clear)], set)
    }
}
