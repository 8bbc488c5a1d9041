//! Finished artefacts on disk: what files they consist of, proof of what is in them, and publishing in one step.
//!
//! Level 5: knows the writers and readers below it and no model.

pub mod aimodel;
pub mod bytecode;
pub mod compiled;
mod format;
mod main_hash;
mod metadata;
mod mlpackage;
mod paths;
mod publish;
mod stored;
mod tree;

pub use aimodel::{AiModel, AiModelError, AiModelReadBack, AiModelReadBackError, read_back_aimodel};
pub use format::Format;
pub use main_hash::HashCheck;
pub use mlpackage::{ReadBack, ReadBackError, read_back};
pub use paths::{Leaks, path_like, people, words_in};
pub use publish::{Outcome, PublishError, Replace, Stage, commit, persist_file, prepare_file, write_file};
pub use stored::{Expected, StoredError, blobs, check_stored, leaks};
pub use tree::{FileDigest, Listing, Tree, TreeError};
