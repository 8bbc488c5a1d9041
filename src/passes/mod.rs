//! Rewrites of a graph, one file each, and the helper they share.
//!
//! Level 3: a pass takes a graph and gives a graph; it knows models as little as targets.

mod precision;
mod split;

pub use precision::{Precision, PrecisionError, PrecisionReport, precision};
pub use split::{Split, SplitError, split};
