//! Inventory and scan on real file systems.

mod scan;
