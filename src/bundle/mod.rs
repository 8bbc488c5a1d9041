//! Finished artefacts on disk: what files they consist of, proof of what is in them, and publishing in one step.
//!
//! Level 5: knows the writers and readers below it and no model.

mod aimodel;
pub mod compiled;
mod mlpackage;
mod paths;
mod publish;
mod tree;

pub use aimodel::{AiModel, AiModelError, write_aimodel};
pub use mlpackage::{ReadBack, ReadBackError, read_back};
pub use paths::path_like;
pub use publish::{Outcome, PublishError, Replace, Stage, write_file};
pub use tree::{FileDigest, Tree, TreeError};
