//! The protocol between a session and its worker: message types and their bytes, nothing else.
//!
//! A message travels as one datagram of a `SOCK_SEQPACKET` socket pair, with its descriptors attached.
//! A body larger than [`INLINE_LIMIT`] travels in a sealed memfd, which is then the first descriptor, so
//! that neither the length of a command line nor the size of a policy meets a socket limit.
//!
//! This crate uses only `std` and holds no system call, because it is compiled a second time into the
//! worker image, without cargo.
//!
//! # Terminology
//!
//! - **request**: what the session asks of the worker; **event**: what the worker tells the session.
//! - **epoch**: the number of a grant. Commands of one session may belong to different epochs.
//! - **finding**: the outcome of one forbidden act that the worker tried after it had confined itself.

#![forbid(unsafe_code)]

mod codec;
mod event;
mod plan;
mod probe;
mod request;

pub use codec::{Malformed, Reader, Writer};
pub use event::{Ended, Event, HowEnded, Lacking, Part, Process, Step};
pub use plan::{Hidden, Place, Plan};
pub use probe::{Finding, Outcome, Probe, Unusable};
pub use request::{Grant, Limit, LimitFound, Request, Spawn};

/// Version of the protocol. Session and worker refuse each other unless it is equal: both are built
/// from one source, so a difference means that an image was swapped.
pub const VERSION: u32 = 1;

/// Largest body, in bytes, that travels inside the datagram. Well below the smallest usual socket
/// buffer (`net.core.wmem_default`, 212992 bytes), which a datagram must fit in whole.
pub const INLINE_LIMIT: usize = 48 * 1024;

/// Largest body, in bytes, that is accepted from a memfd. A command line and its environment together
/// cannot exceed 6 MiB on Linux (three quarters of `_STK_LIM`), so anything above is not a message.
pub const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// Most descriptors that one message carries.
pub const DESCRIPTOR_LIMIT: usize = 16;

/// Where the source of this crate lies, for whoever compiles it into a worker image. `None` when it was
/// compiled without cargo.
pub const SOURCE_DIR: Option<&str> = option_env!("CARGO_MANIFEST_DIR");
