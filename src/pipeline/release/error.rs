//! Why a release was not made.

use super::cache::CacheError;
use crate::bundle::{PublishError, TreeError};
use crate::checkpoint::NotFound;
use crate::digest::Digest;
use crate::pipeline::gate::clip_files::ClipFilesError;
use crate::pipeline::{CompileError, GateFailure, PipelineError, RunError, StripError};
use crate::recipe::RecipeError;
use std::io;
use std::path::PathBuf;

/// Why nothing was released, or not all of it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReleaseError {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("folder {} has no .toml file", path.display())]
    NoRecipes { path: PathBuf },
    #[error("folder {} could not be read", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("recipes {} and {} both release {name}, into one folder", first.display(), second.display())]
    OneFolder { name: String, first: PathBuf, second: PathBuf },
    #[error("--only names {name:?}, which no recipe releases; they release {}", have.join(", "))]
    Only { name: String, have: Vec<String> },
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("this program's own file could not be hashed")]
    Program { source: io::Error },
    #[error("release {name} was not made")]
    Stage { name: String, source: Box<StageError> },
    #[error("a thread that made releases did not finish")]
    Thread,
}

/// Why one release was not made.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage, or its message says it")]
pub enum StageError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "the recipe asks for an .aimodel, and Apple's serializer is not installed; run `eg2-convert tools install`"
    )]
    NoSerializer,
    #[error(transparent)]
    Author(#[from] PipelineError),
    #[error("source file {file} was written to while it was read; nothing of it is kept")]
    SourceChanged { file: String },
    #[error(transparent)]
    Strip(#[from] StripError),
    #[error("{artefact} has path-like strings: {found:?}")]
    Paths { artefact: String, found: Vec<String> },
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Gate(#[from] GateFailure),
    #[error(transparent)]
    Clips(#[from] ClipFilesError),
    #[error("inputs for the kit could not be made")]
    Inputs(#[from] RunError),
    #[error("{}, which the recipe's gate names, could not be read", path.display())]
    GateFile { path: PathBuf, source: io::Error },
    #[error("{}, which the recipe's gate names, is no artefact", path.display())]
    GateArtefact { path: PathBuf, source: TreeError },
    #[error("{file} was changed between its gate and its publication; nothing was published")]
    Changed { file: String },
    #[error("the gate failed: {}", failed.join("; "))]
    Failed { failed: Vec<String>, checks: serde_json::Value },
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("{} could not be read or written", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("a record could not be read or written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("interrupted; nothing was published, and what was finished is kept for the next run")]
    Interrupted,
}

/// Why the source of a release cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SourceError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error("no reader config at {}; name one with --config, or with source.config in the recipe", looked.display())]
    NoReader { looked: PathBuf },
    #[error(transparent)]
    Open(#[from] Box<PipelineError>),
    #[error("source.license_file, {}, could not be read", path.display())]
    License { path: PathBuf, source: io::Error },
    #[error("source file {file} has sha256 {found}, the recipe wants {expected}")]
    Digest { file: String, found: Digest, expected: Digest },
    #[error("the recipe has a sha256 of {file}, which is not read; read are {}", read.join(", "))]
    NotRead { file: String, read: Vec<String> },
    #[error("the checkpoint is of revision {found}, the recipe wants {expected}")]
    Revision { found: String, expected: String },
    #[error(
        "the recipe is unpinned: it has no sha256 of {}. If these files are the right ones, put under [source.sha256]:\n{}or \
         release it as unpinned with --allow-unpinned",
        files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        files.iter().map(|(name, sha256)| format!("  \"{name}\" = \"{sha256}\"\n")).collect::<String>()
    )]
    Unpinned { files: Vec<(String, Digest)> },
}
