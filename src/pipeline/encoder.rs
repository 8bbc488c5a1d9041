//! The encoder job: checkpoint or seed to a package of one bucket.

use super::origin::SourceFiles;
use super::package::{Job, package};
use super::{Converted, Destination, Origin, PipelineError, Progress};
use crate::checkpoint::{Checkpoint, Ledger};
use crate::emit::mil::Description;
use crate::models::gemma_audio::{AudioConfig, Bucket, author};
use crate::passes::Precision;
use crate::tensor::WeightSource;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to convert, and how.
#[derive(Clone, Debug)]
pub struct EncoderOptions {
    /// Where weights come from.
    pub origin: Origin,
    /// Config in place of the checkpoint's own, or for synthetic weights of another size.
    pub config: Option<PathBuf>,
    /// Static length.
    pub bucket: Bucket,
    /// Precision of the artefact.
    pub precision: Precision,
}

impl EncoderOptions {
    /// The artefact's name: `eg2_encoder_fp16_T3000`.
    pub fn name(&self) -> String {
        format!("eg2_encoder_{}_T{}", self.precision.name(), self.bucket.frames())
    }
}

/// Converts the audio tower and `embed_audio` to a checked package.
///
/// # Errors
/// Any stage's; nothing is left half-written.
pub fn encoder(
    options: &EncoderOptions,
    to: &Destination,
    progress: &dyn Progress,
) -> Result<Converted, PipelineError> {
    match &options.origin {
        Origin::Checkpoint(path) => {
            let checkpoint = Checkpoint::open(path)?;
            let config_path = match (&options.config, checkpoint.config_path()) {
                (Some(given), _) => given.clone(),
                (None, Some(beside)) => beside.to_path_buf(),
                (None, None) => return Err(PipelineError::NoConfig { checkpoint: path.clone() }),
            };
            let config = read_config(&config_path)?;
            let files = SourceFiles::checkpoint(&checkpoint, &config_path);
            let revision = checkpoint.revision().map(str::to_string);
            convert(options, &config, &checkpoint, files, revision, to, progress)
        }
        Origin::Synthetic(seed) => {
            let config = options.config.as_deref().map_or_else(|| Ok(AudioConfig::embedding_gemma2()), read_config)?;
            let blueprint = Ledger::blueprint(*seed);
            author(&config, options.bucket, &blueprint)?;
            let weights = blueprint.into_synthetic();
            let files = SourceFiles::synthetic(*seed, options.config.as_deref());
            convert(options, &config, &weights, files, None, to, progress)
        }
    }
}

fn read_config(path: &Path) -> Result<AudioConfig, PipelineError> {
    let text = fs_err::read_to_string(path).map_err(PipelineError::Io)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(AudioConfig::parse(&text, &name)?)
}

fn convert(
    options: &EncoderOptions,
    config: &AudioConfig,
    source: &dyn WeightSource,
    files: SourceFiles,
    revision: Option<String>,
    to: &Destination,
    progress: &dyn Progress,
) -> Result<Converted, PipelineError> {
    let (graph, report) = author(config, options.bucket, &Ledger::new(source))?;
    let job = Job {
        graph,
        source,
        precision: options.precision,
        description: describe(options, config, revision.as_deref()),
        options: json!({
            "model": "encoder",
            "bucket": options.bucket.frames(),
            "tokens": options.bucket.tokens(),
            "precision": options.precision,
        }),
        authoring: serde_json::to_value(&report)?,
        files,
    };
    package(job, to, progress)
}

fn describe(options: &EncoderOptions, config: &AudioConfig, revision: Option<&str>) -> Description {
    let (frames, tokens) = (options.bucket.frames(), options.bucket.tokens());
    let synthetic = matches!(options.origin, Origin::Synthetic(_));
    let source = match config.model_type.as_deref() {
        _ if synthetic => "seeded synthetic weights",
        Some("embedding_gemma2") => "google/embeddinggemma-2",
        Some(other) => other,
        None => "a checkpoint whose config names no model_type",
    };
    let features = [
        (
            "features",
            format!("log-mel features, one row for each 10 ms frame ({frames}); rows past the clip are exactly 0"),
        ),
        ("half_mask", "1 for every second frame of the clip, 0 past it".to_string()),
        (
            "soft_tokens",
            format!("one row of {} for each 40 ms ({tokens}); rows past the clip mean nothing", config.text_hidden),
        ),
    ];
    let mut user_defined = BTreeMap::from([
        ("source".to_string(), source.to_string()),
        ("modified".to_string(), "re-authored as a static graph".to_string()),
        ("precision".to_string(), options.precision.name().to_string()),
    ]);
    if let Some(revision) = revision {
        user_defined.insert("source_revision".into(), revision.into());
    }
    Description {
        short: format!("Gemma audio encoder with embed_audio, {frames} frames to {tokens} soft tokens"),
        version: env!("CARGO_PKG_VERSION").into(),
        author: if synthetic { "eg2-convert".into() } else { "Google; converted by eg2-convert".into() },
        license: "Apache-2.0".into(),
        user_defined,
        features: features.map(|(name, text)| (name.to_string(), text)).into(),
    }
}
