//! The command line's contract, asked of the program itself, as root and as a plain user.
//!
//! A refusal is asserted on what did not happen, by codes and fields; words are looked at only where a person needs
//! them to go on.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

mod doctor;
mod environment;
mod explain;
mod explain_aliases;
mod help;
mod invoke;
mod read;
mod refused;
mod run;
mod signals;
mod state;
mod status;
mod streams;
