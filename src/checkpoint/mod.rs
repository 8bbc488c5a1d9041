//! Published weights on disk: weight files in any of three formats, shards, where to look for them, and the ledger of what was read.
//!
//! Level 1: a [`Checkpoint`] is a [`WeightSource`](crate::tensor::WeightSource). Values are read by position, not
//! through a memory map: a file cut short under a map ends the process with a signal instead of an error, and every page
//! touched would count against the 400 MiB a conversion may use.

mod error;
mod file;
mod format;
mod joined;
mod locate;
mod open;
mod scope;
mod synthetic;
#[cfg(test)]
mod tests;
mod unit_rows;
mod write;

pub use error::CheckpointError;
pub use format::UNNAMED;
pub use format::npy::NpyError;
pub use format::pytorch::PyTorchError;
pub use joined::{Joined, sole_tensor};
pub use locate::{EMBEDDING_GEMMA2, LAYA, LocateEnv, NotFound, Published, locate};
pub use open::Checkpoint;
pub use scope::{Consumption, Ledger, Scalar, Scope, ScopeError, Tensor};
pub use synthetic::Synthetic;
pub use unit_rows::{UnitRowsError, check_unit_rows};
pub use write::{Named, write_safetensors, write_safetensors_header};
