//! From an authored graph to a published, checked package with its record.

use super::Progress;
use super::origin::{Counted, SourceFiles};
use crate::analysis::{self, Census, WeightReport};
use crate::bundle::{self, Outcome, PublishError, ReadBackError, Replace, Stage};
use crate::checkpoint::CheckpointError;
use crate::digest::Digest;
use crate::emit::mil::{self, Description, MilError};
use crate::ir::{Graph, print};
use crate::models::blocks::AuthorError;
use crate::models::gemma_audio::ConfigError;
use crate::passes::{Precision, PrecisionError, precision};
use crate::provenance::{Artefact, Check, RECORD_VERSION, Record, Tool, needs_a_device};
use crate::tensor::WeightSource;
use crate::validate::{self, Violation};
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;

/// Why a conversion ended early.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage")]
pub enum PipelineError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Author(#[from] AuthorError),
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    #[error("the graph breaks {} rules of its target: {}", .0.len(), list(.0))]
    Invalid(Vec<Violation>),
    #[error(transparent)]
    Mil(#[from] MilError),
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Io(io::Error),
    #[error("no config.json beside {}; give one with --config", checkpoint.display())]
    NoConfig { checkpoint: PathBuf },
    #[error("the record could not be written as JSON")]
    Record(#[from] serde_json::Error),
    #[error("the thread that hashes the source files did not finish")]
    Hashing,
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Where an artefact goes, and what may be there.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The folder it is put in.
    pub folder: PathBuf,
    /// Its name without the ending, e.g. `eg2_encoder_fp16_T3000`.
    pub name: String,
    /// Replace another artefact of that name.
    pub force: bool,
    /// Do all but write.
    pub dry_run: bool,
}

/// What a conversion made.
#[derive(Debug)]
pub struct Converted {
    /// The bundle.
    pub path: PathBuf,
    /// `published`, `unchanged` or `dry run`.
    pub outcome: &'static str,
    /// What the graph is made of.
    pub graph: GraphFigures,
    /// The record; none for a dry run.
    pub record: Option<Record>,
}

/// A graph on its way to disk.
pub(super) struct Job<'a> {
    /// As authored, in f32.
    pub graph: Graph,
    /// Where its weights are.
    pub source: &'a dyn WeightSource,
    /// Precision of the artefact.
    pub precision: Precision,
    /// Texts of the model and its features.
    pub description: Description,
    /// Options that shaped the graph, for the record.
    pub options: Value,
    /// The author's report.
    pub authoring: Value,
    /// What to hash.
    pub files: SourceFiles,
}

/// Takes `job` to a published package.
///
/// # Errors
/// Any stage's; nothing is left half-written.
pub(super) fn package(job: Job<'_>, to: &Destination, progress: &dyn Progress) -> Result<Converted, PipelineError> {
    let (graph, precision_report) = precision(&job.graph, job.precision, job.source)?;
    let checked = validate::check(&graph).map_err(PipelineError::Invalid)?;
    let figures = GraphFigures::of(&graph);
    let path = to.folder.join(format!("{}.mlpackage", to.name));
    if to.dry_run {
        return Ok(Converted { path, outcome: "dry run", graph: figures, record: None });
    }
    std::thread::scope(|threads| {
        let source = threads.spawn(|| job.files.record());
        let stage = Stage::new(&path, needed(&figures))?;
        progress.stage("writing", analysis::weights(&job.graph).total_bytes);
        let counted = Counted { inner: job.source, progress };
        let written = mil::write(&[checked], &counted, &job.description, stage.path())?;
        progress.stage("reading back", 0);
        let read_back = bundle::read_back(stage.path(), &written, &[checked])?;
        let source = source.join().map_err(|_| PipelineError::Hashing)??;
        let replace = if to.force { Replace::Force } else { Replace::Never };
        let outcome = stage.commit(&read_back.tree, replace)?;

        let mut stages = serde_json::Map::new();
        stages.insert("author".into(), job.authoring);
        stages.insert("precision".into(), serde_json::to_value(&precision_report)?);
        stages.insert("graph".into(), serde_json::to_value(&figures)?);
        stages.insert("mil".into(), serde_json::to_value(&written)?);
        let record = Record {
            record_version: RECORD_VERSION,
            tool: Tool::this(),
            artefact: Artefact {
                name: format!("{}.mlpackage", to.name),
                format: "mlpackage",
                digest_root: read_back.tree.root(),
                files: read_back.tree.files.clone(),
            },
            source,
            options: job.options,
            stages,
            checks: vec![Check {
                name: "read_back",
                figures: json!({
                    "functions": read_back.functions,
                    "operations": read_back.operations,
                    "constants": read_back.constants,
                }),
            }],
            not_run: needs_a_device(),
        };
        bundle::write_file(&to.folder.join(format!("{}.record.json", to.name)), &record.to_bytes()?)?;
        let outcome = match outcome {
            Outcome::Published => "published",
            Outcome::Unchanged => "unchanged",
        };
        Ok(Converted { path: path.clone(), outcome, graph: figures, record: Some(record) })
    })
}

/// Bytes that a package of that graph will take: weights, alignment, and the program beside them.
fn needed(figures: &GraphFigures) -> u64 {
    let nodes = (figures.census.total() + figures.census.constants) as u64;
    figures.weights.total_bytes + nodes * 2048
}

/// What a graph is made of, and the digest of its text.
#[derive(Clone, Debug, Serialize)]
pub struct GraphFigures {
    /// Digest of the graph's text: names, shapes and edits, no values.
    pub text_sha256: Digest,
    /// Ops by name, constants apart.
    pub census: Census,
    /// What the constants take.
    pub weights: WeightReport,
}

impl GraphFigures {
    fn of(graph: &Graph) -> GraphFigures {
        GraphFigures {
            text_sha256: Digest::of(print(graph).as_bytes()),
            census: analysis::census(graph),
            weights: analysis::weights(graph),
        }
    }
}
