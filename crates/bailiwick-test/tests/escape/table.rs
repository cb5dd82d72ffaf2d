//! The table as a whole, and as a document.

use crate::row::Row;
use crate::{files, kernel, machine, metadata, objects, processes, sockets};

/// A part of the table. Each is a test of its own, so that they run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Files,
    Metadata,
    Processes,
    Sockets,
    Objects,
    Kernel,
    Machine,
}

const PARTS: [(Part, &str, &[Row]); 7] = [
    (Part::Files, "Content and names", files::ROWS),
    (Part::Metadata, "Metadata", metadata::ROWS),
    (Part::Processes, "Other processes", processes::ROWS),
    (Part::Sockets, "Daemons and sockets", sockets::ROWS),
    (Part::Objects, "Shared objects, terminals and devices", objects::ROWS),
    (Part::Kernel, "The kernel and privileges", kernel::ROWS),
    (Part::Machine, "The machine", machine::ROWS),
];

pub(crate) fn rows(part: Part) -> Vec<&'static Row> {
    PARTS.iter().filter(|(known, ..)| *known == part).flat_map(|(_, _, rows)| rows.iter()).collect()
}

pub(crate) fn rows_but(part: Part) -> Vec<&'static Row> {
    PARTS.iter().filter(|(known, ..)| *known != part).flat_map(|(_, _, rows)| rows.iter()).collect()
}
