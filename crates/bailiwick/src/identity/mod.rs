//! What paths really are.
//!
//! A path is looked at once, through a descriptor that stays open ([`PinnedDir`], `PinnedFile`); afterwards the
//! descriptor is what gets compared and granted, never the name again. The ancestors of an object are walked by
//! descriptor too (`ancestors`), because after a rename neither device, inode nor name of the object differs:
//! only the chain above it does.
//!
//! This room answers what things are; whether that is good enough is the guard's to say.
//!
//! One object may be seen in many places. `mount` reads where file systems are mounted, `views` finds every place
//! at which an object is seen through them and through overlays, and `links` finds the other names of a file.

mod access;
mod ancestors;
mod database;
mod fault;
mod filesystem;
mod image;
mod links;
mod mount;
mod object;
mod pinned;
mod resolve;
mod views;

#[cfg(feature = "_bench")]
#[doc(hidden)]
pub use links::bench as links_bench;
pub use object::{Birth, ObjectId};
pub use pinned::PinnedDir;
pub use views::AliasKind;

pub(crate) use access::{check_access, user};
pub(crate) use ancestors::Walk;
pub(crate) use database::{DatabaseFault, pin_database};
pub(crate) use fault::{Fault, Missing, Role};
pub(crate) use filesystem::{is_kernel_interface, kernel_interface, promises};
pub(crate) use image::{Library, loaded_library};
pub(crate) use links::{
    FileInventory, Inventory, InventoryFault, LinkedFile, ScanLimits, ScanProgress, ScanReport, ScanStop,
    Start, Target, WalkLimits, scan, scan_for_births, scan_for_handles, target_at,
};
pub(crate) use mount::{Device, FileHandle, Location, Mount, MountTable, MountWatch, Overlap, Spelling};
pub(crate) use object::{Key, Look, Node};
pub(crate) use pinned::{Pin, PinnedName, host_executable};
pub(crate) use resolve::look_exact;
pub(crate) use views::{
    Beneath, Inside, Overlays, Points, RealPlace, Sharing, Stack, Step, Unresolved, View, Views, born_at,
    elsewhere, find_views, open_location,
};
