//! From an authored graph to a published, checked package with its record.

use super::Progress;
use super::origin::{Counted, SourceFiles};
use crate::analysis::{self, Census, WeightReport};
use crate::bundle::{self, AiModelError, Outcome, PublishError, ReadBackError, Replace, Stage, Tree};
use crate::checkpoint::CheckpointError;
use crate::digest::Digest;
use crate::emit::coreai::{Bridge, BridgeError, Metadata};
use crate::emit::mil::{self, Description, MilError};
use crate::ir::{Graph, print};
use crate::models::blocks::AuthorError;
use crate::models::gemma_audio::ConfigError;
use crate::passes::{Precision, PrecisionError, precision};
use crate::provenance::{Artefact, Check, NotRun, RECORD_VERSION, Record, Tool, needs_a_device};
use crate::tensor::WeightSource;
use crate::validate::{self, Checked, Violation};
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
    AiModel(#[from] AiModelError),
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

/// A bundle format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Core ML; written by this program alone.
    Mlpackage,
    /// Core AI; written through Apple's serializer.
    Aimodel,
}

impl Format {
    /// Ending of the bundle's folder.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Mlpackage => "mlpackage",
            Format::Aimodel => "aimodel",
        }
    }

    /// Ending of the record's file; the plain one is that of the first format there was.
    const fn record(self) -> &'static str {
        match self {
            Format::Mlpackage => "record.json",
            Format::Aimodel => "aimodel.record.json",
        }
    }
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
    /// What to write, in that order.
    pub formats: Vec<Format>,
    /// Apple's serializer, which [`Format::Aimodel`] needs.
    pub bridge: Option<Bridge>,
    /// What was left out and is to be recorded as such.
    pub left_out: Option<&'static str>,
}

/// What a conversion made.
#[derive(Debug)]
pub struct Converted {
    /// What the graph is made of.
    pub graph: GraphFigures,
    /// The bundles, in the order they were asked for.
    pub bundles: Vec<Bundle>,
}

/// A bundle and how it got there.
#[derive(Debug, Serialize)]
pub struct Bundle {
    /// Where it is.
    pub artefact: PathBuf,
    /// `published`, `unchanged` or `dry run`.
    pub outcome: &'static str,
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

/// A bundle that is written and checked, and not yet where it belongs.
struct Staged {
    format: Format,
    stage: Stage,
    tree: Tree,
    /// The writer's report.
    report: Value,
    read_back: Value,
}

/// Takes `job` to published bundles. None is published before all are written and checked.
///
/// # Errors
/// Any stage's; nothing is left half-written.
pub(super) fn package(job: Job<'_>, to: &Destination, progress: &dyn Progress) -> Result<Converted, PipelineError> {
    let (graph, precision_report) = precision(&job.graph, job.precision, job.source)?;
    let checked = validate::check(&graph).map_err(PipelineError::Invalid)?;
    let figures = GraphFigures::of(&graph);
    if to.dry_run {
        let dry = |format: &Format| Bundle { artefact: path_of(to, *format), outcome: "dry run", record: None };
        return Ok(Converted { graph: figures, bundles: to.formats.iter().map(dry).collect() });
    }
    std::thread::scope(|threads| {
        let source = threads.spawn(|| job.files.record());
        let stage = |format: &Format| stage(*format, &job, checked, &figures, to, progress);
        let staged = to.formats.iter().map(stage).collect::<Result<Vec<_>, _>>()?;
        let source = source.join().map_err(|_| PipelineError::Hashing)??;
        let mut bundles = Vec::new();
        for Staged { format, stage, tree, report, read_back } in staged {
            let replace = if to.force { Replace::Force } else { Replace::Never };
            let outcome = stage.commit(&tree, replace)?;
            let mut stages = serde_json::Map::new();
            stages.insert("author".into(), job.authoring.clone());
            stages.insert("precision".into(), serde_json::to_value(&precision_report)?);
            stages.insert("graph".into(), serde_json::to_value(&figures)?);
            let writer = match format {
                Format::Mlpackage => "mil",
                Format::Aimodel => "coreai",
            };
            stages.insert(writer.into(), report);
            let left_out = to.left_out.map(|reason| NotRun { name: Format::Aimodel.name(), reason });
            let record = Record {
                record_version: RECORD_VERSION,
                tool: Tool::this(),
                artefact: Artefact {
                    name: format!("{}.{}", to.name, format.name()),
                    format: format.name(),
                    digest_root: tree.root(),
                    files: tree.files,
                },
                source: source.clone(),
                options: job.options.clone(),
                stages,
                checks: vec![Check { name: "read_back", figures: read_back }],
                not_run: needs_a_device().into_iter().chain(left_out).collect(),
            };
            let file = to.folder.join(format!("{}.{}", to.name, format.record()));
            bundle::write_file(&file, &record.to_bytes()?)?;
            let outcome = match outcome {
                Outcome::Published => "published",
                Outcome::Unchanged => "unchanged",
            };
            bundles.push(Bundle { artefact: path_of(to, format), outcome, record: Some(record) });
        }
        Ok(Converted { graph: figures.clone(), bundles })
    })
}

fn path_of(to: &Destination, format: Format) -> PathBuf {
    to.folder.join(format!("{}.{}", to.name, format.name()))
}

/// Writes a bundle beside where it belongs and reads it back.
fn stage(
    format: Format,
    job: &Job<'_>,
    checked: Checked<'_>,
    figures: &GraphFigures,
    to: &Destination,
    progress: &dyn Progress,
) -> Result<Staged, PipelineError> {
    let total = analysis::weights(&job.graph).total_bytes;
    let counted = Counted { inner: job.source, progress };
    match format {
        Format::Mlpackage => {
            let stage = Stage::new(&path_of(to, format), needed(figures))?;
            progress.stage("writing", total);
            let written = mil::write(&[checked], &counted, &job.description, stage.path())?;
            progress.stage("reading back", 0);
            let found = bundle::read_back(stage.path(), &written, &[checked])?;
            let read_back = json!({
                "functions": found.functions,
                "operations": found.operations,
                "constants": found.constants,
            });
            Ok(Staged { format, stage, tree: found.tree, report: serde_json::to_value(&written)?, read_back })
        }
        Format::Aimodel => {
            let bridge = to.bridge.as_ref().ok_or(AiModelError::Bridge(BridgeError::NotInstalled))?;
            // The weights are on disk twice until the bundle is saved.
            let stage = Stage::new(&path_of(to, format), 2 * needed(figures))?;
            let parent = stage.destination().parent().unwrap_or(&to.folder);
            let scratch =
                tempfile::Builder::new().prefix(".eg2-convert.").tempdir_in(parent).map_err(PipelineError::Io)?;
            progress.stage("writing", total);
            let metadata = metadata(&job.description);
            let written = bundle::write_aimodel(&[checked], &counted, &metadata, bridge, stage.path(), scratch.path())?;
            let report = json!({
                "functions": written.functions,
                "ops": written.ops,
                "blobs_stored": written.blobs_stored,
                "bytes_shared": written.bytes_shared,
            });
            let read_back = json!({ "functions": written.functions.len(), "ops": written.read_back });
            Ok(Staged { format, stage, tree: written.tree, report, read_back })
        }
    }
}

fn metadata(description: &Description) -> Metadata {
    let features = description.features.iter().map(|(name, text)| (format!("feature.{name}"), text.clone()));
    let version = ("version".to_string(), description.version.clone());
    Metadata {
        description: description.short.clone(),
        author: description.author.clone(),
        license: description.license.clone(),
        custom: features.chain([version]).chain(description.user_defined.clone()).collect(),
    }
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
