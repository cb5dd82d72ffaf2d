//! Hard links: which protected files have more than one name, and where in the write roots the others are.
//!
//! Two parts. An [`Inventory`] holds what is in a protected directory and finds cheaply, before each command, whether
//! the files with more than one name are still the same. A [`scan`] looks through write roots for names of given
//! objects; nobody has to ask for one as long as all protected files have one name each, because such a file has no
//! other name anywhere.
//!
//! Neither decides anything. What cannot be looked at is an error, never left out in silence.

#[cfg(feature = "_bench")]
pub mod bench;
mod closer;
mod fault;
mod glance;
mod inventory;
mod level;
mod linked;
mod listing;
mod scan;
mod shared;
mod single;
mod targets;
mod tree;
mod walker;

#[cfg(test)]
mod tests;

pub(super) use closer::WORK_NAMES;
pub(crate) use fault::{InventoryFault, ScanStop};
pub(crate) use glance::{Target, target_at};
pub(crate) use inventory::{Inventory, WalkLimits};
pub(crate) use linked::LinkedFile;
pub(super) use scan::open_list;
pub(crate) use scan::{ScanLimits, ScanProgress, ScanReport, Start, scan, scan_for_births, scan_for_handles};
pub(crate) use single::FileInventory;
