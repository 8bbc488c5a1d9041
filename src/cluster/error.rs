//! Why values were not clustered.

use super::MOST;

/// What was asked for is not possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// A palette of no entry, or of more than an index can name.
    #[error("a palette of {found} entries, expected 1 to {MOST}")]
    Entries {
        /// How many were asked for.
        found: usize,
    },
    /// There is nothing to cluster.
    #[error("no values to make a palette of")]
    Empty,
    /// A NaN or an infinity.
    #[error("value {index} is {value}, expected finite numbers")]
    NotFinite {
        /// Where it is.
        index: usize,
        /// What it is.
        value: f32,
    },
}
