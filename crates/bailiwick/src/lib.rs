//! Sessions for agents, confined by the kernel.
//!
//! A session has *write roots*: directories below which its commands may write. Nothing else on the host changes by
//! what they do, however they try, and when the session is closed none of their processes is left. What this host
//! cannot keep is named, and refuses the session unless the caller accepts it by name.
//!
//! # Terminology
//!
//! - **write root**: a directory below which commands may write.
//! - **protected object**: a directory or file that no write root may reach; at least the store and its runtime home.
//! - **store**: the directory in which a session keeps its history. One session holds it at a time.
//! - **runtime home**: a private directory of the running session, inside the store.
//! - **pinned**: opened once by its path, and used through that descriptor ever after.
//! - **chain**: the directories above an object, up to `/`, walked by descriptor.
//! - **overlap**: a root and a protected object are the `same`, or the root is `inside` it, `around` it, or an `alias`.
//! - **grant**: the guard's yes to a policy: roots that have been compared with everything protected, held open.
//! - **protection**: a promise in the user's words; **layer**: a mechanism that may keep it on this host.
//! - **tree**: a pinned directory and all below it, where commands may have put anything.
//! - **settle**: to wait until no process of a tree is left.
//!
//! # The walk
//!
//! A request goes one way, and each room makes what the next one takes:
//! [`policy`] (what is asked; pure) → [`identity`] (what the paths are) → [`guard`] (yes or no; makes the
//! [`Grant`](guard::Grant)) → worker (the boundary) → [`store`] (what is kept). [`tree`] reads and removes what
//! commands left in their roots. [`error`] is for all of them.
//!
//! The library prints nothing, never exits, and reads no environment variable.

#![deny(unsafe_code)]
// `clippy.toml` of this crate lists what reads the environment. Its tests may.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod error;
pub mod guard;
pub mod identity;
pub mod policy;
pub mod session;
pub mod store;
mod sys;
pub mod tree;
mod worker;

pub use error::{Error, ErrorKind, Field, Ran};
pub use policy::{
    Environment, Layer, Limit, Network, Policy, Protection, ReadScope, Readable, Resource, RootCapabilities,
    SessionLimit,
};
pub use rustix::process::Signal;
pub use session::{
    Captured, Child, ChildStderr, ChildStdin, ChildStdout, CloseReport, ClosedProcess, Command, CommandId,
    Ending, LimitInForce, LimitSource, Mark, Output, Process, ReadBack, Replace, ResourceLimits, Session,
    SessionBuilder, Stdio, WhenBusy,
};
#[cfg(feature = "_test-image")]
#[doc(hidden)]
pub use worker::TestImage;
pub use worker::{Enforcement, GroupCause, Kept, SessionLimitInForce, SessionLimitStanding, Standing};
