//! What paths really are.
//!
//! A path is looked at once, through a descriptor that stays open ([`PinnedDir`], `PinnedFile`); afterwards the
//! descriptor is what gets compared and granted, never the name again. The ancestors of an object are walked by
//! descriptor too (`ancestors`), because after a rename neither device, inode nor name of the object differs:
//! only the chain above it does.
//!
//! This room answers what things are; whether that is good enough is the guard's to say.
//!
//! What belongs here and is not built yet: the mount table (bind mounts below either side), overlay layers, and
//! hard links. Until then two names of one *directory* are recognised by device and inode wherever one of them
//! is a root, a protected object or an ancestor of one; an alias of something further below is not.

mod access;
mod ancestors;
mod fault;
mod filesystem;
mod links;
mod object;
mod pinned;
mod resolve;

#[cfg(feature = "_bench")]
#[doc(hidden)]
pub use links::bench as links_bench;
pub use object::{Birth, ObjectId};
pub use pinned::PinnedDir;

pub(crate) use access::{check_access, user};
pub(crate) use ancestors::Walk;
pub(crate) use fault::{Fault, Missing, Role};
pub(crate) use filesystem::kernel_interface;
pub(crate) use object::{Key, Look, Node};
pub(crate) use pinned::{Pin, PinnedName, host_executable};
