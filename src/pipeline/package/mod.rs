//! From authored graphs to published, checked bundles with their records: one job may make several artefacts, each of
//! several functions and in several formats, and publishes all of them or none.

mod write;

pub use write::Writer;

use super::origin::SourceFiles;
use super::{Progress, told};
use crate::analysis::{self, Census, WeightReport};
use crate::bundle::{self, AiModelReadBackError, Outcome, PublishError, ReadBackError, Replace, Stage};
use crate::checkpoint::{CheckpointError, UnitRowsError};
use crate::digest::Digest;
use crate::emit::coreai::{self, BridgeError, CoreAiError};
use crate::emit::mil::{Description, MilError};
use crate::files::{FolderLock, Replacement};
use crate::ir::{Graph, print};
use crate::models::blocks::AuthorError;
use crate::models::reader::WordsError;
use crate::models::section::ConfigError;
use crate::passes::{Precision, PrecisionError, PrecisionReport, SplitError, precision};
use crate::plural::counted;
use crate::provenance::{Artefact, Check, NotRun, RECORD_VERSION, Record, SourceRecord, Tool, needs_a_device};
use crate::tensor::WeightSource;
use crate::validate::{self, Checked, Violation};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use write::{Content, Written, write};

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
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error("a split after {after} layers leaves one half without any: the model has {layers}, expected 1 to {}", layers.saturating_sub(1))]
    SplitRange { after: usize, layers: usize },
    #[error("the graph breaks {} of its target: {}", counted(.0.len(), "rule"), list(.0))]
    Invalid(Vec<Violation>),
    #[error(transparent)]
    Mil(#[from] MilError),
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    #[error(transparent)]
    CoreAi(#[from] CoreAiError),
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    AiModelReadBack(#[from] AiModelReadBackError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Io(io::Error),
    #[error("no config.json beside {}; give one with --config", checkpoint.display())]
    NoConfig { checkpoint: PathBuf },
    #[error("{} is absent; a Laya checkpoint has its configs beside its weights, or give their folder with --config", path.display())]
    NoLayaConfig { path: PathBuf },
    #[error(transparent)]
    Words(#[from] WordsError),
    #[error(transparent)]
    UnitRows(#[from] UnitRowsError),
    #[error("{file}: tensor {tensor} is {found}, expected a table of word vectors, [words, width], neither of them 0")]
    Table { file: String, tensor: String, found: String },
    #[error("{} has no {key}; name the file there or with {option}", config.display())]
    NoReaderFile { config: PathBuf, key: &'static str, option: &'static str },
    #[error("{} cannot be read", path.display())]
    ConfigFile { path: PathBuf, source: io::Error },
    #[error("interrupted; nothing was published")]
    Interrupted,
    #[error("the record could not be written as JSON")]
    Record(#[from] serde_json::Error),
    #[error("the thread that hashes the source files did not finish")]
    Hashing,
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Where artefacts go, and what may be there.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The folder they are put in.
    pub folder: PathBuf,
    /// Replace other artefacts of their names.
    pub force: bool,
    /// Do all but write.
    pub dry_run: bool,
    /// The formats, in that order.
    pub writers: Vec<Writer>,
    /// A format that was left out, to be recorded as such.
    pub left_out: Option<NotRun>,
    /// Write each artefact's Core AI dialect text beside it as `NAME.mlir`, for people to read.
    pub emit_mlir: bool,
}

/// An artefact that a conversion made.
#[derive(Debug, Serialize)]
pub struct Converted {
    /// The bundle.
    #[serde(rename = "artefact", serialize_with = "told::shown")]
    pub path: PathBuf,
    /// `published`, `unchanged` or `dry run`; in JSON `dry_run`.
    #[serde(serialize_with = "as_a_name")]
    pub outcome: &'static str,
    /// Why it forms no region of the Neural Engine, where that is known of its precision.
    pub no_region: Option<&'static str>,
    /// Its functions, the default one first.
    pub functions: Vec<FunctionReport>,
    /// The dialect text, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "told::shown_if")]
    pub mlir: Option<PathBuf>,
    /// The record; none for a dry run.
    pub record: Option<Record>,
}

/// Words with underscores between them, as all names in JSON have them.
fn as_a_name<S: serde::Serializer>(words: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&words.replace(' ', "_"))
}

/// One function of an artefact, as authored, in f32.
pub(super) struct Function {
    /// The graph; its name is the function's.
    pub graph: Graph,
    /// The author's report.
    pub authoring: Value,
}

/// An artefact to be made.
pub(super) struct Plan {
    /// Its name without the ending, e.g. `eg2_encoder_fp16_T3000`.
    pub name: String,
    /// Its functions, the default one first; they share one weight file.
    pub functions: Vec<Function>,
    /// Its precision.
    pub precision: Precision,
    /// Texts of the model and its features.
    pub description: Description,
    /// Options that shaped it, for the record.
    pub options: Value,
}

/// Artefacts on their way to disk, all made from the same weights.
pub(super) struct Job<'a> {
    /// What is made of them.
    pub artefacts: Vec<Plan>,
    /// Where the weights are.
    pub source: &'a dyn WeightSource,
    /// What to hash.
    pub files: SourceFiles,
}

/// What was done for one function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionReport {
    /// Its name.
    pub name: String,
    /// The author's report.
    pub author: Value,
    /// What bringing it to the artefact's precision did.
    pub precision: PrecisionReport,
    /// What its graph is made of.
    pub graph: GraphFigures,
}

/// Takes `job` to published bundles.
///
/// # Errors
/// Any stage's; nothing is left half-written, and no artefact is published without the others.
pub(super) fn package(
    job: Job<'_>,
    to: &Destination,
    progress: &dyn Progress,
) -> Result<Vec<Converted>, PipelineError> {
    let Job { artefacts, source, files } = job;
    let ready = artefacts.into_iter().map(|plan| Ready::new(plan, source)).collect::<Result<Vec<_>, _>>()?;
    let planned = || ready.iter().flat_map(|artefact| to.writers.iter().map(move |writer| (artefact, writer)));
    if to.dry_run {
        return Ok(planned().map(|(artefact, writer)| artefact.converted(writer, to, "dry run", None)).collect());
    }
    let (written, record_of_source) = std::thread::scope(|threads| {
        // Two cores have work while weights are made for Apple's serializer, one while it saves: the source is hashed then.
        let (made, is_made) = mpsc::channel::<()>();
        let later = matches!(to.writers.first(), Some(Writer::AiModel(_)));
        let hashed = threads.spawn(move || {
            if later {
                // Where nobody says so any more, it is time too.
                let _ = is_made.recv();
            }
            files.record()
        });
        let weights_made = || {
            let _ = made.send(());
        };
        let written = planned()
            .map(|(artefact, writer)| artefact.write(writer, source, to, progress, &weights_made))
            .collect::<Result<Vec<_>, _>>();
        drop(made);
        let written = written?;
        Ok::<_, PipelineError>((written, hashed.join().map_err(|_| PipelineError::Hashing)??))
    })?;
    if progress.stopped() {
        return Err(PipelineError::Interrupted);
    }
    let texts = ready
        .iter()
        .filter(|_| to.emit_mlir)
        .map(|artefact| artefact.text(source, to))
        .collect::<Result<Vec<_>, _>>()?;
    let (stages, reports): (Vec<Stage>, Vec<Written>) = written.into_iter().unzip();
    let replace = if to.force { Replace::Force } else { Replace::Never };
    let bundles = stages.into_iter().zip(reports.iter().map(|written| &written.tree)).collect();
    // A bundle and its record change together: another process waits, and a record that cannot be is known before.
    let _lock = FolderLock::of(&to.folder);
    let mut records = Vec::new();
    for ((artefact, writer), written) in planned().zip(&reports) {
        let record = artefact.record(writer, written, record_of_source.clone(), to.left_out)?;
        let file = to.folder.join(record.file_name());
        records.push((bundle::prepare_file(&file, &record.to_bytes()?)?, record));
    }
    let outcomes = bundle::commit(bundles, replace)?;
    for text in texts {
        bundle::persist_file(text)?;
    }
    let mut converted = Vec::new();
    for (((artefact, writer), (file, record)), outcome) in planned().zip(records).zip(outcomes) {
        bundle::persist_file(file)?;
        let outcome = match outcome {
            Outcome::Published => "published",
            Outcome::Unchanged => "unchanged",
        };
        converted.push(artefact.converted(writer, to, outcome, Some(record)));
    }
    Ok(converted)
}

/// An artefact whose graphs are in their final precision and keep every rule.
struct Ready {
    plan: Plan,
    graphs: Vec<Graph>,
    reports: Vec<FunctionReport>,
}

impl Ready {
    fn new(plan: Plan, source: &dyn WeightSource) -> Result<Ready, PipelineError> {
        let (mut graphs, mut reports) = (Vec::new(), Vec::new());
        for Function { graph, authoring } in &plan.functions {
            let (graph, report) = precision(graph, plan.precision, source)?;
            validate::check(&graph).map_err(PipelineError::Invalid)?;
            reports.push(FunctionReport {
                name: graph.name().into(),
                author: authoring.clone(),
                precision: report,
                graph: GraphFigures::of(&graph),
            });
            graphs.push(graph);
        }
        Ok(Ready { plan, graphs, reports })
    }

    /// Folder name of the bundle in that format.
    fn name(&self, writer: &Writer) -> String {
        format!("{}.{}", self.plan.name, writer.format().ending())
    }

    /// Where its dialect text goes.
    fn text_path(&self, to: &Destination) -> PathBuf {
        to.folder.join(format!("{}.mlir", self.plan.name))
    }

    /// The dialect text, to be put in its place.
    fn text(&self, source: &dyn WeightSource, to: &Destination) -> Result<Replacement, PipelineError> {
        let text = coreai::text(&self.checked()?, source)?;
        Ok(bundle::prepare_file(&self.text_path(to), text.as_bytes())?)
    }

    fn checked(&self) -> Result<Vec<Checked<'_>>, PipelineError> {
        self.graphs.iter().map(validate::check).collect::<Result<_, _>>().map_err(PipelineError::Invalid)
    }

    /// Writes the bundle beside its destination and reads it back.
    fn write(
        &self,
        writer: &Writer,
        source: &dyn WeightSource,
        to: &Destination,
        progress: &dyn Progress,
        weights_made: &dyn Fn(),
    ) -> Result<(Stage, Written), PipelineError> {
        let functions = self.checked()?;
        let content = Content {
            functions: &functions,
            source,
            description: &self.plan.description,
            needed: self.needed(),
            read: self.plan.functions.iter().map(|f| analysis::weights(&f.graph).total_bytes).sum(),
            weights_made,
        };
        write(writer, &content, &to.folder.join(self.name(writer)), progress)
    }

    /// Bytes that a bundle will take: weights, which functions share, alignment, and the program beside them.
    fn needed(&self) -> u64 {
        let figures = || self.reports.iter().map(|report| &report.graph);
        let nodes: usize = figures().map(|f| f.census.total() + f.census.constants).sum();
        figures().map(|f| f.weights.total_bytes).max().unwrap_or(0) + nodes as u64 * 2048
    }

    fn record(
        &self,
        writer: &Writer,
        written: &Written,
        source: SourceRecord,
        left_out: Option<NotRun>,
    ) -> Result<Record, PipelineError> {
        let Written { tree, report, read_back } = written;
        let mut stages = Map::new();
        stages.insert("functions".into(), serde_json::to_value(&self.reports)?);
        stages.insert(writer.stage().into(), report.clone());
        if let Some(reason) = self.plan.precision.no_region() {
            stages.insert("neural_engine".into(), json!({ "expected_regions": 0, "reason": reason }));
        }
        Ok(Record {
            record_version: RECORD_VERSION,
            tool: Tool::this(),
            artefact: Artefact {
                name: self.name(writer),
                format: writer.format().ending(),
                digest_root: tree.root(),
                files: tree.files.clone(),
            },
            source,
            options: self.plan.options.clone(),
            stages,
            checks: vec![Check { name: "read_back", figures: read_back.clone() }],
            not_run: needs_a_device().into_iter().chain(left_out).collect(),
        })
    }

    fn converted(&self, writer: &Writer, to: &Destination, outcome: &'static str, record: Option<Record>) -> Converted {
        let no_region = self.plan.precision.no_region();
        let path = to.folder.join(self.name(writer));
        let mlir = (to.emit_mlir && !to.dry_run).then(|| self.text_path(to));
        Converted { path, outcome, no_region, functions: self.reports.clone(), mlir, record }
    }
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
