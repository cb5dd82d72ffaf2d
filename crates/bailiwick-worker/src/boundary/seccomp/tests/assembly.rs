//! The assembler on rules far larger than the filter's, against a plain reading of the same rules.

use super::super::assembler::{ALLOW, ASK, ERRNO, assemble, op};
use super::super::rule::{ALL_BITS, Case, Rule, Word};
use super::machine::{Call, check, high, low, run};
use super::samples::Random;

/// What a rule says, read without any program.
fn read(rule: &Rule, call: &Call) -> u32 {
    let switch = match rule {
        Rule::Allow => return ALLOW,
        Rule::Refuse(errno) => return ERRNO | u32::from(*errno),
        Rule::Ask => return ASK,
        Rule::Switch(switch) => switch,
    };
    let word = match switch.word {
        Word::Number => call.number,
        Word::Architecture => call.architecture,
        Word::Low(argument) => low(call.arguments[usize::from(argument)]),
        Word::High(argument) => high(call.arguments[usize::from(argument)]),
    } & switch.mask;
    let case = switch.cases.iter().find(|case| (case.first..=case.last).contains(&word));
    read(case.map_or(&switch.otherwise, |case| &case.rule), call)
}

/// A rule of about `size` cases, with values below 4096 and at both ends, so that random words hit
/// them.
fn any_rule(random: &mut Random, size: u64, depth: u32) -> Rule {
    if depth == 0 || random.below(6) == 0 {
        // Few outcomes, so that neighbours join and rules are shared.
        return match random.below(5) {
            0 => Rule::Allow,
            4 => Rule::Ask,
            errno => Rule::Refuse(u16::try_from(errno).unwrap()),
        };
    }
    let word = match random.below(10) {
        0 => Word::Number,
        1 => Word::Architecture,
        2 => Word::High(1),
        argument => Word::Low(u8::try_from(argument % 6).unwrap()),
    };
    let mask = if random.below(3) == 0 { small(random) | 0x0f0 } else { ALL_BITS };
    let mut cases = Vec::new();
    let mut first = u32::try_from(random.below(3)).unwrap();
    for _ in 0..random.below(size) {
        let last = first + u32::try_from(random.below(3)).unwrap();
        cases.push(Case { first, last, rule: any_rule(random, size / 4, depth - 1) });
        first = last + 1 + u32::try_from(random.below(4)).unwrap();
    }
    if random.below(4) == 0 {
        cases.push(Case { first: u32::MAX - 7, last: u32::MAX, rule: any_rule(random, size / 4, depth - 1) });
    }
    cases.reverse();
    Rule::masked(word, mask, cases, any_rule(random, size / 4, depth - 1))
}

fn small(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => u32::MAX - u32::try_from(random.below(9)).unwrap(),
        _ => u32::try_from(random.below(120)).unwrap(),
    }
}

fn any_call(random: &mut Random) -> Call {
    let mut register = || u64::from(small(random)) << 32 | u64::from(small(random));
    let arguments = std::array::from_fn(|_| register());
    Call { architecture: small(random), number: small(random), arguments }
}

#[test]
fn programs_say_what_the_rules_say() {
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let (mut longest, mut jumps) = (0, 0);
    for round in 0..300 {
        let rule = any_rule(&mut random, 60, 3);
        let program = assemble(&rule);
        if program.len() > 4096 {
            continue;
        }
        check(&program);
        longest = longest.max(program.len());
        jumps += program.iter().filter(|instruction| instruction.code == op::JUMP).count();
        for _ in 0..500 {
            let call = any_call(&mut random);
            assert_eq!(run(&program, &call).0, read(&rule, &call), "round {round}: {call:x?} in {rule:?}");
        }
    }
    // The point of the size: comparisons that cannot reach their target in one skip.
    assert!(longest > 1000 && jumps > 100, "longest {longest}, {jumps} stepping stones");
}

/// More outcomes than one comparison can skip over, each reached by one value.
#[test]
fn targets_beyond_the_reach_of_a_comparison() {
    let outcomes = 1..=1000_u16;
    let cases = outcomes.clone().map(|errno| Case::one(u32::from(errno) * 2, Rule::Refuse(errno))).collect();
    let program = assemble(&Rule::switch(Word::Low(0), cases, Rule::Allow));
    check(&program);
    let answer =
        |value: u64| run(&program, &Call { architecture: 0, number: 0, arguments: [value, 0, 0, 0, 0, 0] }).0;
    for errno in outcomes {
        assert_eq!(answer(u64::from(errno) * 2), ERRNO | u32::from(errno));
        assert_eq!(answer(u64::from(errno) * 2 - 1), ALLOW);
    }
    assert_eq!((answer(2002), answer(u64::MAX)), (ALLOW, ALLOW));
}

#[test]
fn a_rule_without_a_choice_is_one_instruction() {
    let idle = Rule::switch(Word::Number, vec![Case::one(7, Rule::Refuse(1))], Rule::Refuse(1));
    assert_eq!(assemble(&idle), assemble(&Rule::Refuse(1)));
    assert_eq!(assemble(&idle).len(), 1);
}
