//! The only `unsafe` of the crate.
#![expect(unsafe_code, reason = "tokio cannot know that a descriptor stays open; its owner here does")]

pub(crate) mod landlock;
pub(crate) mod mount;
#[cfg(test)]
pub(crate) mod unshared;

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor.
///
/// # Errors
/// The descriptor cannot be registered.
///
/// # Panics
/// Outside of a tokio runtime with I/O enabled.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is one open descriptor until it is dropped, `AsyncFd` is its only owner, and its
    // contents are only borrowed from there.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(Into::into)
}
