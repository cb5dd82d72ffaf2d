//! Any system calls, one after another: for acts that are a call or two and need no code of their own.
//!
//! `calls NUMBER ARGUMENT... [-- NUMBER ARGUMENT...]...`. All but the last call lead to the act and must
//! succeed; the last is the act, and its result is the value. In `course` the act is the whole course: the first
//! call that is refused is the answer. Arguments:
//!
//! | form | meaning |
//! |---|---|
//! | `-100`, `0x400` | a number |
//! | `$0` | the result of the first call, as a number |
//! | `s:TEXT` | address of the text, NUL-terminated; `{0}` in it is the result of the first call |
//! | `z:SIZE` | address of as many zero bytes |
//! | `w:1,$0,-1` | address of 64-bit words |
//! | `d:1,$0,-1` | address of 32-bit words |

use std::ffi::CString;

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _, cannot_try};
use crate::arguments::Arguments;
use crate::sys;

pub(crate) const ACTS: &[Act] = &[
    ("calls", "NUMBER ARGUMENT... [-- NUMBER ARGUMENT...]...", |a| calls(a, false)),
    ("course", "NUMBER ARGUMENT... [-- NUMBER ARGUMENT...]...", |a| calls(a, true)),
];

fn calls(arguments: &mut Arguments, any_may_be_refused: bool) -> Answer {
    let mut steps = vec![Vec::new()];
    while !arguments.is_empty() {
        match (arguments.text()?.as_str(), steps.last_mut()) {
            ("--", _) => steps.push(Vec::new()),
            (word, Some(step)) => step.push(word.to_owned()),
            (_, None) => {}
        }
    }
    let mut results = Vec::new();
    let last = steps.len() - 1;
    for (index, step) in steps.iter().enumerate() {
        let Some((number, words)) = step.split_first() else { return cannot_try("a call has no number") };
        // Kept for good: the kernel may write to them for as long as a descriptor refers to them.
        let memory: &mut Vec<Memory> = Box::leak(Box::default());
        let mut values = [0_i64; 6];
        for (value, word) in values.iter_mut().zip(words) {
            *value = word_value(word, &results, memory)?;
        }
        if words.len() > values.len() {
            return cannot_try("a call has six arguments at most");
        }
        let result = sys::any_call(word_value(number, &results, memory)?, values);
        if index < last && any_may_be_refused {
            results.push(result?);
        } else if index < last {
            results.push(result.prepare(&format!("call {index} ({})", step.join(" ")))?);
        } else {
            return Ok(result?.into());
        }
    }
    cannot_try("no call is given")
}

/// What an argument points to.
enum Memory {
    Text(CString),
    Bytes(Vec<u8>),
    Words(Vec<i64>),
    HalfWords(Vec<i32>),
}

impl Memory {
    fn address(&mut self) -> usize {
        match self {
            Memory::Text(text) => text.as_ptr().expose_provenance(),
            Memory::Bytes(bytes) => bytes.as_mut_ptr().expose_provenance(),
            Memory::Words(words) => words.as_mut_ptr().expose_provenance(),
            Memory::HalfWords(words) => words.as_mut_ptr().expose_provenance(),
        }
    }
}

fn word_value(word: &str, results: &[i64], memory: &mut Vec<Memory>) -> Result<i64, Failed> {
    let list = |list: &str| list.split(',').map(|item| number(item, results)).collect::<Result<Vec<_>, _>>();
    let mut pointed = match word.split_once(':') {
        None => return number(word, results),
        Some(("s", text)) => {
            let mut text = text.to_owned();
            for (index, result) in results.iter().enumerate() {
                text = text.replace(&format!("{{{index}}}"), &result.to_string());
            }
            Memory::Text(CString::new(text).prepare("a text")?)
        }
        Some(("z", size)) => Memory::Bytes(vec![0; size.parse().prepare("a size")?]),
        Some(("w", items)) => Memory::Words(list(items)?),
        Some(("d", items)) => {
            let words = list(items)?.into_iter().map(|item| i32::try_from(item).prepare("a 32-bit word"));
            Memory::HalfWords(words.collect::<Result<_, _>>()?)
        }
        Some((kind, _)) => return Err(Failed::CannotTry(format!("no argument begins with `{kind}:`"))),
    };
    let address = i64::try_from(pointed.address()).prepare("an address")?;
    memory.push(pointed); // moves the owner, not what it owns
    Ok(address)
}

fn number(word: &str, results: &[i64]) -> Result<i64, Failed> {
    let parsed = match (word.strip_prefix('$'), word.strip_prefix("0x")) {
        (Some(index), _) => index.parse::<usize>().ok().and_then(|index| results.get(index)).copied(),
        (None, Some(digits)) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        (None, None) => word.parse().ok(),
    };
    parsed.ok_or_else(|| Failed::CannotTry(format!("`{word}` is not an argument of a call")))
}
