//! Writers of Apple's bundle formats, and the readers that check them.
//!
//! Level 4: takes checked graphs and a weight source; knows no model and no evaluator.

pub mod coreai;
pub mod mil;
