//! What is in a `.aimodel`.

use super::{InspectError, hashed_and_scanned};
use crate::bundle::{AiModel, Tree};
use crate::digest::Digest;
use crate::provenance::{NotRun, needs_a_load};
use serde::Serialize;
use std::path::Path;

/// Everything found in a `.aimodel`.
#[derive(Debug, Serialize)]
pub struct AiModelView {
    /// Folder name.
    pub artefact: String,
    /// Bundle format.
    pub format: &'static str,
    /// Header, hash, metadata.
    pub model: AiModel,
    /// Digest of the sorted lines `sha256  path`.
    pub digest_root: Digest,
    /// Every file.
    pub tree: Tree,
    /// What is wrong with it.
    pub faults: Vec<String>,
    /// Path-like strings in any file.
    pub path_like: Vec<String>,
    /// What this look cannot tell.
    pub not_run: Vec<NotRun>,
}

/// Looks into the bundle at `path`.
pub(super) fn view(path: &Path) -> Result<AiModelView, InspectError> {
    let model = AiModel::open(path)?;
    let (tree, path_like) = hashed_and_scanned(&model.path)?;
    let features = NotRun { name: "features", reason: "needs Apple's reader" };
    let faults = if model.hash.is_wrong() { vec![format!("main.hash is wrong: {}", model.hash)] } else { Vec::new() };
    Ok(AiModelView {
        artefact: model.name.clone(),
        format: "aimodel",
        digest_root: tree.root(),
        tree,
        faults,
        path_like,
        not_run: [features].into_iter().chain(needs_a_load()).collect(),
        model,
    })
}
