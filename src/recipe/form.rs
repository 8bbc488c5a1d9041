//! A recipe as it is written: every key of version 1, none other.

use crate::digest::Digest;
use crate::gate::LimitOverrides;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Read before all else, by [`super::Recipe::parse`].
    #[serde(rename = "version")]
    pub _version: u32,
    pub name: Option<String>,
    pub model: String,
    pub precision: String,
    pub formats: Vec<String>,
    pub buckets: Option<Vec<usize>>,
    pub split_after: Option<usize>,
    pub tokens: Option<usize>,
    pub lengths: Option<Vec<usize>>,
    pub release_name: Option<String>,
    pub source: Source,
    #[serde(default)]
    pub compile: Vec<Compile>,
    pub gate: Option<Gate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub repository: Option<String>,
    pub revision: Option<String>,
    pub license: Option<String>,
    pub license_file: Option<PathBuf>,
    #[serde(default)]
    pub synthetic: bool,
    pub seed: Option<u64>,
    pub words: Option<usize>,
    pub checkpoint: Option<PathBuf>,
    pub config: Option<PathBuf>,
    #[serde(default)]
    pub sha256: BTreeMap<String, Digest>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compile {
    pub platform: String,
    pub architectures: Vec<String>,
    pub prefer: String,
    pub regions: Option<Regions>,
}

/// A count for each architecture, or one for all.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a count of regions, or counts by architecture")]
pub enum Regions {
    Each(usize),
    Named(BTreeMap<String, usize>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    pub goldens: Vec<PathBuf>,
    pub audio: Vec<PathBuf>,
    pub questions: Vec<PathBuf>,
    pub words: Option<PathBuf>,
    pub transcripts: Option<PathBuf>,
    pub wer: Option<PathBuf>,
    pub reader: Option<PathBuf>,
    pub encoder: Option<PathBuf>,
    pub formats: Option<Vec<String>>,
    pub repeats: Option<usize>,
    pub limits: LimitOverrides,
}
