//! The record of what was made from what, by what, and of what was and was not checked.
//!
//! Level 7: composes the reports of the stages below, none of which knows it exists. A record holds no clock, no
//! machine path and no random id, so that the same input and options give the same record.

pub mod device;
mod intoto;
pub mod release;
mod stored;
pub mod texts;

pub use stored::{StoredFile, StoredRecord, StoredRecordError, StoredSource};

use crate::bundle::FileDigest;
use crate::digest::Digest;
use serde::Serialize;
use serde_json::Value;

/// Version of the record's form; raised when a field is added or changes its meaning.
pub const RECORD_VERSION: u32 = 1;

/// One artefact's record, written beside it as `ARTEFACT.record.json`, its ending included: one name may stand for
/// several formats.
#[derive(Debug, Serialize)]
pub struct Record {
    /// Always [`RECORD_VERSION`].
    pub record_version: u32,
    /// What wrote the artefact.
    pub tool: Tool,
    /// What was written.
    pub artefact: Artefact,
    /// What it was made from.
    pub source: SourceRecord,
    /// Options that shaped it.
    pub options: Value,
    /// The reports of the stages, by stage.
    pub stages: serde_json::Map<String, Value>,
    /// What was checked.
    pub checks: Vec<Check>,
    /// What was not, and why. Never to be read as a pass.
    pub not_run: Vec<NotRun>,
}

/// A program and its version.
#[derive(Debug, Serialize)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Tool {
    /// This program.
    pub const fn this() -> Tool {
        Tool { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") }
    }
}

/// A bundle on disk.
#[derive(Debug, Serialize)]
pub struct Artefact {
    /// Folder name.
    pub name: String,
    /// `mlpackage`, `aimodel`, `mlmodelc` or `aimodelc`.
    pub format: &'static str,
    /// Digest of the sorted lines `sha256  path` of all its files.
    pub digest_root: Digest,
    /// Every file in it.
    pub files: Vec<FileDigest>,
}

/// Where the weights came from.
#[derive(Clone, Debug, Serialize)]
pub struct SourceRecord {
    /// `checkpoint`, `synthetic`, or `bundle` for what was compiled from one.
    pub kind: &'static str,
    /// Revision of the checkpoint's repository, where its path tells it.
    pub revision: Option<String>,
    /// Seed of synthetic weights.
    pub seed: Option<u64>,
    /// Every file that was read, by name.
    pub files: Vec<SourceFile>,
}

/// A file the artefact was made from.
#[derive(Clone, Debug, Serialize)]
pub struct SourceFile {
    /// File name, without its folder.
    pub name: String,
    /// Digest of its content.
    pub sha256: Digest,
    /// Its size.
    pub bytes: u64,
}

/// A check that passed (one that fails stops the job), with its figures.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// Figures of it.
    pub figures: Value,
}

/// A check that was not run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NotRun {
    /// What would have been checked.
    pub name: &'static str,
    /// Why it was not.
    pub reason: &'static str,
}

/// Why checks of a device are not run where a bundle is made.
pub const NEEDS_A_DEVICE: &str = "needs Apple hardware";

/// Checks that need Apple hardware: fields of their own, because no other check stands in for them.
pub fn needs_a_device() -> Vec<NotRun> {
    not_run(["compiles", LOADS_ON_DEVICE, "placed_on_ane", "ane_regions"], NEEDS_A_DEVICE)
}

/// Those that still need it when the bundle is compiled: neither its exit code nor its regions tell.
pub fn needs_a_load() -> Vec<NotRun> {
    not_run(LOADS, NEEDS_A_DEVICE)
}

/// The same of what was not loaded for another reason.
pub fn not_loaded(reason: &'static str) -> Vec<NotRun> {
    not_run(LOADS, reason)
}

/// Whether a device takes the bundle, which neither a compiler's exit code nor its regions tell.
pub const LOADS_ON_DEVICE: &str = "loads_on_device";

/// What only a device that loads the bundle can tell.
const LOADS: [&str; 2] = [LOADS_ON_DEVICE, "placed_on_ane"];

fn not_run<const N: usize>(names: [&'static str; N], reason: &'static str) -> Vec<NotRun> {
    names.map(|name| NotRun { name, reason }).into()
}

impl Record {
    /// What its file is called.
    pub fn file_name(&self) -> String {
        format!("{}.record.json", self.artefact.name)
    }

    /// The record's bytes: indented JSON, ended by a newline.
    ///
    /// # Errors
    /// A stage's report has a key that is not a string.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
