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
mod mount;
mod object;
mod pinned;
mod resolve;

pub use object::{Birth, ObjectId};
pub use pinned::PinnedDir;

pub(crate) use access::{check_access, user};
pub(crate) use ancestors::Walk;
pub(crate) use fault::{Fault, Missing, Role};
pub(crate) use filesystem::kernel_interface;
#[expect(unused_imports, reason = "the comparisons that they are for are not built yet")]
pub(crate) use mount::{
    Device, FileHandle, Layer, Location, MalformedMountinfo, MalformedOptions, Mount, MountTable, MountWatch,
    Overlap, OverlayLayers, Spelling, Trust, folds_case, handle, overlay_layers, trust,
};
pub(crate) use object::{Key, Look, Node};
pub(crate) use pinned::{Pin, PinnedName, host_executable};
