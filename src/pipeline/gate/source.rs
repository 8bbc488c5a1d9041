//! Whether the reference computed with the weights that the artefact was made of.

use super::golden::GoldenFile;
use crate::digest::Digest;
use crate::gate::Check;
use crate::provenance::StoredRecord;
use serde_json::json;
use std::path::PathBuf;

const NAME: &str = "source";

/// A golden of other weights: no clip of it says anything of the artefact.
#[derive(Debug, thiserror::Error)]
#[error(
    "golden {} is of source {golden_source}, and the artefact was made of {}",
    golden.display(), if made_of.is_empty() { "no file".into() } else { made_of.join(", ") }
)]
pub struct SourceMismatch {
    /// The golden.
    pub golden: PathBuf,
    /// Digest of its weights.
    pub golden_source: Digest,
    /// Name and digest of each file of the artefact's record.
    pub made_of: Vec<String>,
}

/// Holds what each golden says of its weights against the artefact's record.
///
/// # Errors
/// A golden names a file that is not among those the artefact was made of.
pub fn check(record: Option<&StoredRecord>, goldens: &[GoldenFile]) -> Result<Check, SourceMismatch> {
    let Some(record) = record else { return Ok(Check::not_run(NAME, "the artefact has no record beside it")) };
    let files = &record.source.files;
    if record.source.kind == "bundle" {
        return Ok(Check::not_run(NAME, "the artefact was made from a bundle, and its record names no weights"));
    }
    if goldens.is_empty() {
        return Ok(Check::not_run(NAME, "no golden is given, by --golden"));
    }
    for file in goldens {
        let other = file.sources.iter().find(|hash| files.iter().all(|f| f.sha256 != **hash));
        if let Some(hash) = other {
            return Err(SourceMismatch {
                golden: file.path.clone(),
                golden_source: *hash,
                made_of: files.iter().map(|f| format!("{} {}", f.name, f.sha256)).collect(),
            });
        }
    }
    let silent = goldens.iter().filter(|file| file.sources.is_empty()).count();
    if silent > 0 {
        let reason = format!("{silent} of {} goldens do not tell their source_sha256", goldens.len());
        return Ok(Check::not_run(NAME, reason));
    }
    let says = format!("all {} goldens are of the weights in the record", goldens.len());
    Ok(Check::run(NAME, true, says, json!({ "goldens": goldens.len() })))
}
