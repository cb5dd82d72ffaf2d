//! The place where a session keeps its history: for now its directory, its lock and its runtime home.
//!
//! A store is a directory of mode 0700 that belongs to the effective user. In it lie `lock`, held exclusively while
//! a session is open, and `run`, the runtime home, with the file that a worker's probes try to change. Whatever
//! else lies there is left alone. Everything inside is opened relative to the pinned directory, and a symbolic link
//! there is refused.
//!
//! The journal and the receipts will lie beside these.

mod directory;
mod lock;
mod place;

pub use directory::{SENTINEL, StoreDir};
pub use place::StorePlace;
