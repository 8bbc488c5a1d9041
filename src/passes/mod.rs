//! Rewrites of a graph, one file each.
//!
//! Level 3: a pass takes a graph and gives a graph; it knows models as little as targets.

mod precision;
mod split;

pub use precision::{Kept, Precision, PrecisionError, PrecisionReport, precision};
pub use split::{Split, SplitError, split};
