//! What a graph consists of, for reports: op census, weight bytes, and what would keep it off the Neural Engine.
//!
//! Invariant: reads only, and takes any graph, checked or not, since a report is wanted of a bad one too.
//!
//! Level 2: knows graphs and `target`'s rules.

mod census;
mod placement;

pub use census::{Census, WeightReport, census, weight_bytes, weights};
pub use placement::{Found, placement_blockers};
