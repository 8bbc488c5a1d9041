//! What is in a `.aimodelc`.

use super::{InspectError, hashed_and_scanned};
use crate::bundle::Tree;
use crate::bundle::compiled::CompiledBundle;
use crate::digest::Digest;
use crate::provenance::{NotRun, needs_a_load};
use serde::Serialize;
use std::path::Path;

/// Everything found in a `.aimodelc`.
#[derive(Debug, Serialize)]
pub struct CompiledView {
    /// Folder name.
    pub artefact: String,
    /// Bundle format.
    pub format: &'static str,
    /// Architectures, regions, signals, hash, metadata, statistics.
    pub bundle: CompiledBundle,
    /// Digest of the sorted lines `sha256  path`: the bundle's only identity, which `main.hash` is not.
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
pub(super) fn view(path: &Path) -> Result<CompiledView, InspectError> {
    let bundle = CompiledBundle::open(path)?;
    let (tree, path_like) = hashed_and_scanned(&bundle.path)?;
    Ok(CompiledView {
        artefact: bundle.name.clone(),
        format: "aimodelc",
        digest_root: tree.root(),
        tree,
        faults: bundle.faults().iter().map(ToString::to_string).collect(),
        path_like,
        not_run: needs_a_load(),
        bundle,
    })
}
