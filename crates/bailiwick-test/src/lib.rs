//! Test foundation of bailiwick. Not published; nothing that ships depends on it.
//!
//! - [`cases!`]: one body, two users. Every case runs as root and as a plain user, because the two see
//!   different kernels: capabilities on one side, ownership checks on the other.
//! - [`World`]: directories that a case may spoil, and [`Snapshot`] and [`Listing`], which prove that
//!   something did not change. A denial is asserted on the world, never on a message.
//! - [`requires!`]: a need that this machine lacks ends the test and leaves one line in the skip ledger.
//!   `cargo xtask test` compares the ledger with `tests/skips.toml`, so that no skip is silent.
//! - [`act`]: runs the program `act`, which tries one act and reports errno, bare (the positive control)
//!   or under `naive`, a deliberately incomplete Landlock wrapper (the proof that a test catches a hole).
//! - [`boundary`]: proves that a session refuses an act because of the layer that is said to stop it, with
//!   worker [images](image) that lack that layer. [`calls`]: acts that are a system call or two.
//! - [`machine`]: an emulated machine with another kernel.
//! - [`process`]: what `/proc` says about who is still alive. [`fixture`]: proofs that a fixture is what
//!   its test takes it for.
//!
//! # Terminology
//!
//! - **twin**: a second run that differs in one fact and must have the opposite outcome.
//! - **need**: something a test cannot do without and a machine may lack, such as Landlock ABI 6.
//! - **plain user**: a uid without capabilities, [`case::PLAIN_UID`] where the run started as root.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `BAILIWICK_TEST_LEDGER` | file that skips are appended to; default `test-ledger.jsonl` in the target directory |
//! | `BAILIWICK_TEST_REQUIRE` | needs, separated by commas, whose absence is a failure; `all` names every need |
//! | `BAILIWICK_TEST_LAYOUTS` | how many generated layouts the oracle judges beyond the fixed ones |
//! | `BAILIWICK_TEST_SEED` | the one layout that it judges instead |
//! | `BAILIWICK_TEST_ROLE`, `_PROOF`, `_TOOLS`, `_TOOLCHAIN` | set by a case for its re-run as a plain user, not by hand |

#![forbid(unsafe_code)]

pub mod act;
pub mod boundary;
pub mod calls;
pub mod case;
pub mod fixture;
pub mod host;
mod image;
pub mod ledger;
mod listing;
pub mod machine;
mod macros;
mod need;
pub mod places;
pub mod process;
pub mod pty;
mod remove;
mod snapshot;
pub mod tool;
mod world;

pub use boundary::session;
pub use image::{image, image_without, image_without_layers, image_without_namespaces, plain_image};
pub use listing::Listing;
pub use need::{Need, Toolchain, node, python3};
pub use places::Places;
pub use process::wait_until;
pub use snapshot::Snapshot;
pub use tool::tool;
pub use world::World;

/// The example of the README is compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
