//! The Laya job: checkpoint or seed to one package for each length.

use super::origin::{SourceFiles, config_text};
use super::package::{Function, Job, Plan, package};
use super::told::name_of;
use super::{Converted, Destination, Origin, PipelineError, Progress};
use crate::checkpoint::{Checkpoint, Ledger};
use crate::digest::Digest;
use crate::emit::mil::Description;
use crate::models::laya::host::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};
use crate::models::laya::{AGENT_FILE, ENCODER_FILE, LayaConfig, Length, Lengths, SLOTS, author, names};
use crate::passes::Precision;
use crate::provenance::{SourceFile, SourceRecord, StoredRecord};
use crate::tensor::WeightSource;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What to convert, and how.
#[derive(Clone, Debug)]
pub struct LayaOptions {
    /// Where weights come from.
    pub origin: Origin,
    /// Folder of both configs, in place of the checkpoint's own or for synthetic weights of another size.
    pub config: Option<PathBuf>,
    /// Static lengths; each becomes an artefact.
    pub lengths: Lengths,
    /// Precision of the artefacts.
    pub precision: Precision,
}

/// Converts the decision model to a checked package for each length. They are published together, so that a host which
/// chooses among them never meets two checkpoints.
///
/// # Errors
/// Any stage's; nothing is left half-written.
pub fn laya(options: &LayaOptions, to: &Destination, progress: &dyn Progress) -> Result<Vec<Converted>, PipelineError> {
    let LayaWeights { config, source, files, revision } = match &options.origin {
        Origin::Checkpoint(path) => LayaWeights::open(path, options.config.as_deref())?.boxed(),
        Origin::Synthetic(seed) => synthetic(*seed, options)?,
    };
    let plan = |length: Length| {
        let (graph, report) = author(&config, length, &Ledger::new(&*source))?;
        Ok::<_, PipelineError>(Plan {
            name: format!("laya_{}_L{}", options.precision.name(), length.get()),
            functions: vec![Function { graph, authoring: serde_json::to_value(&report)? }],
            precision: options.precision,
            description: describe(options, &config, length, revision.as_deref()),
            options: json!({
                "model": "laya",
                "length": length.get(),
                "slots": SLOTS,
                "precision": options.precision,
            }),
        })
    };
    let artefacts = options.lengths.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    package(Job { artefacts, source: &*source, files }, to, progress)
}

/// A decision model's weights, and the configs that shape its graph.
pub(super) struct LayaWeights<S> {
    pub config: LayaConfig,
    pub source: S,
    pub files: SourceFiles,
    revision: Option<String>,
}

impl LayaWeights<Checkpoint> {
    /// Those of the checkpoint at `path`, with its own configs unless they are in the folder `config`.
    pub fn open(path: &Path, config: Option<&Path>) -> Result<Self, PipelineError> {
        let checkpoint = Checkpoint::open(path)?;
        let folder = config.unwrap_or(checkpoint.folder());
        let files = checkpoint.files().iter().cloned().chain(config_files(folder)).collect();
        let revision = checkpoint.revision().map(str::to_string);
        let files = SourceFiles::of(files).at(revision.clone());
        Ok(LayaWeights { config: read_configs(folder)?, source: checkpoint, files, revision })
    }

    fn boxed(self) -> LayaWeights<Box<dyn WeightSource + Send>> {
        let LayaWeights { config, source, files, revision } = self;
        LayaWeights { config, source: Box::new(source), files, revision }
    }
}

/// An artefact that is not of the checkpoint beside it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ForeignWeights {
    #[error("{} was made of {kind} weights and not of a checkpoint, so that no host belongs to it", artefact.display())]
    NoCheckpoint { artefact: PathBuf, kind: String },
    #[error("{} was made of another checkpoint: {file} is {found}, its record says {recorded}", artefact.display())]
    OtherCheckpoint { artefact: PathBuf, file: String, found: Digest, recorded: String },
}

/// Whether the artefact at `path` was made of these very files, by its record.
pub(super) fn made_of(path: &Path, record: &StoredRecord, source: &SourceRecord) -> Result<(), ForeignWeights> {
    if record.source.kind != "checkpoint" {
        let kind = record.source.kind.clone();
        return Err(ForeignWeights::NoCheckpoint { artefact: path.into(), kind });
    }
    for file in &source.files {
        let recorded = record.source.files.iter().find(|recorded| recorded.name == file.name);
        if recorded.map(|recorded| recorded.sha256) != Some(file.sha256) {
            return Err(ForeignWeights::OtherCheckpoint {
                artefact: path.into(),
                file: file.name.clone(),
                found: file.sha256,
                recorded: recorded.map_or_else(|| "no such file".into(), |recorded| recorded.sha256.to_string()),
            });
        }
    }
    Ok(())
}

/// The tokenizer's files in a checkpoint, which no record has: which tokens a text becomes is decided by them.
pub(super) fn tokenizer_files(checkpoint: &Path) -> io::Result<Vec<SourceFile>> {
    let one = |file: &str| {
        let path = checkpoint.join(file);
        let (sha256, bytes) = Digest::of_file(&path)?;
        Ok(SourceFile { name: name_of(&path), sha256, bytes })
    };
    [TOKENIZER_FILE, TOKENIZER_CONFIG_FILE].into_iter().map(one).collect()
}

fn synthetic(seed: u64, options: &LayaOptions) -> Result<LayaWeights<Box<dyn WeightSource + Send>>, PipelineError> {
    let config = options.config.as_deref().map_or_else(|| Ok(LayaConfig::multilingual()), read_configs)?;
    let blueprint = Ledger::blueprint(seed);
    // Every length reads the same tensors.
    for length in options.lengths.iter().take(1) {
        author(&config, length, &blueprint)?;
    }
    let files = options.config.as_deref().map(|folder| config_files(folder).to_vec()).unwrap_or_default();
    let files = SourceFiles::of(files).seeded(seed);
    Ok(LayaWeights { config, source: Box::new(blueprint.into_synthetic()), files, revision: None })
}

/// Both configs of a folder.
pub(super) fn config_files(folder: &Path) -> [PathBuf; 2] {
    [folder.join(ENCODER_FILE), folder.join(AGENT_FILE)]
}

fn read_configs(folder: &Path) -> Result<LayaConfig, PipelineError> {
    let read = |path: PathBuf| {
        if !path.exists() {
            return Err(PipelineError::NoLayaConfig { path });
        }
        Ok(config_text(&path)?.0)
    };
    let [encoder, agent] = config_files(folder);
    Ok(LayaConfig::parse(&read(encoder)?, &read(agent)?, [ENCODER_FILE, AGENT_FILE])?)
}

fn describe(options: &LayaOptions, config: &LayaConfig, length: Length, revision: Option<&str>) -> Description {
    let (l, c) = (length.get(), config.encoder.hidden);
    let synthetic = matches!(options.origin, Origin::Synthetic(_));
    let features = [
        (names::EMBEDDINGS, format!("rows of the table of embeddings, {c} channels by {l} tokens")),
        (names::FULL_MASK, "added to scores, key by query: 0 for a key that is there, else -1e4".to_string()),
        (
            names::LOCAL_MASK,
            format!("the same within {} tokens of a query, and for queries past the end", config.encoder.window / 2),
        ),
        (names::TYPE_VECTORS, "the row of the question's type".to_string()),
        (names::MARKER_MAP, format!("for each of {SLOTS} options, 1 at its marker and 0 elsewhere")),
        (names::LOGITS, "the score of each option; those without a marker mean nothing".to_string()),
        (names::CLS, "what the action head reads, on the host".to_string()),
    ];
    let source = if synthetic { "seeded synthetic weights" } else { "a Laya decision model" };
    let mut user_defined = BTreeMap::from([
        ("source".to_string(), source.to_string()),
        ("modified".to_string(), "re-authored as a static graph".to_string()),
        ("precision".to_string(), options.precision.name().to_string()),
        ("length".to_string(), l.to_string()),
    ]);
    if let Some(revision) = revision {
        user_defined.insert("source_revision".into(), revision.into());
    }
    Description {
        short: format!("Laya decision model, {l} tokens and {SLOTS} options"),
        version: env!("CARGO_PKG_VERSION").into(),
        author: if synthetic { "eg2-convert".into() } else { "Convai Innovations; converted by eg2-convert".into() },
        license: "Apache-2.0".into(),
        user_defined,
        features: features.map(|(name, text)| (name.to_string(), text)).into(),
    }
}
