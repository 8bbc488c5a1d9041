//! Why a kit was not run.

use super::plan::{Differences, KIT_FILE, PlanFault};
use super::runner::RunnerError;
use crate::bundle::compiled::CompiledError;
use crate::bundle::{PublishError, TreeError};
use crate::digest::Digest;
use crate::pipeline::CompileError;
use crate::provenance::release::SUMS_FILE;
use crate::toolchain::Missing;
use std::io;
use std::path::PathBuf;

/// Why a kit was not run. A bundle that fails is no such reason: that is what a kit is for.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum KitError {
    #[error("{} could not be read or written", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the kit's files cannot be listed")]
    Tree(#[from] TreeError),
    #[error("{} is no kit: it has no {file}", path.display())]
    NoKit { path: PathBuf, file: &'static str },
    #[error("the kit is not as it was made, by its {SUMS_FILE}: {found}")]
    Changed { found: Differences },
    #[error(transparent)]
    Plan(#[from] PlanFault),
    #[error("the kit's release.json has sha256 {found}, and {KIT_FILE} is for {expected}")]
    OtherRelease { found: Digest, expected: Digest },
    #[error("{name} of the kit has digest root {found}, and {KIT_FILE} is for {expected}")]
    OtherBytes { name: String, found: Digest, expected: Digest },
    #[error("{} is there already; --force replaces it", path.display())]
    Exists { path: PathBuf },
    #[error("{} is not installed; {}", .0.tool.name(), .0.how_to_install)]
    NotInstalled(Missing),
    #[error("Apple's runtime cannot be told which unit to prefer here; that takes a Mac with macOS 27 or later")]
    NoUnits,
    #[error(transparent)]
    Runner(#[from] RunnerError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error("{name}, which the release has compiled, cannot be read")]
    Shipped { name: String, source: CompiledError },
    #[error("an output of {bundle} cannot be read")]
    Output { bundle: String, source: io::Error },
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("the record could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("interrupted; nothing was written")]
    Interrupted,
}
