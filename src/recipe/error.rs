//! What is wrong with a recipe.

use super::VERSION;
use crate::bundle::compiled::ExpectationError;
use crate::gate::BadLimit;
use crate::models::gemma_audio::BadBuckets;
use crate::models::laya::BadLengths;
use crate::models::reader::BadTokens;
use crate::toolchain::ArchitectureError;
use std::io;
use std::path::PathBuf;

/// A recipe that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("recipe {} cannot be used", path.display())]
pub struct RecipeError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: RecipeFault,
}

/// Why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RecipeFault {
    #[error("it could not be read")]
    Io(#[from] io::Error),
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("{0}")]
    Toml(String),
    #[error("it has no version, expected `version = {VERSION}`")]
    NoVersion,
    #[error("version is {found}, expected {VERSION}")]
    Version { found: String },
    #[error("{key} is {found:?}, expected {expected}")]
    Value { key: &'static str, found: String, expected: &'static str },
    #[error("{key} belongs to {owner}; the recipe's model is {model}")]
    OtherModel { key: &'static str, owner: &'static str, model: &'static str },
    #[error("{key} is not given; {why}")]
    Missing { key: &'static str, why: &'static str },
    #[error("{key} says nothing: {why}")]
    Needless { key: &'static str, why: &'static str },
    #[error("{key} names {found} twice")]
    Twice { key: &'static str, found: String },
    #[error(
        "split_after is {after}, expected {least} or more: behind fewer layers an fp16 body loses the published accuracy"
    )]
    Split { after: usize, least: usize },
    #[error(transparent)]
    Buckets(#[from] BadBuckets),
    #[error(transparent)]
    Tokens(#[from] BadTokens),
    #[error(transparent)]
    Lengths(#[from] BadLengths),
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    #[error(transparent)]
    Expectation(#[from] ExpectationError),
    #[error(transparent)]
    Limit(#[from] BadLimit),
}
