//! Opens an artefact, its goldens and its record, and has it gated by the file of its model.

mod audio;
pub(super) mod clip_files;
mod evidence;
mod golden;
mod halves;
mod laya;
mod question_set;
mod source;
mod speech;

pub use clip_files::ClipFilesError;
pub use evidence::{Evidence, EvidenceError, EvidenceKind};
pub use golden::GoldenFileError;
pub use halves::HalvesError;
pub use question_set::QuestionSetError;
pub use source::SourceMismatch;

use super::laya::ForeignWeights;
use super::model::{Model, UnknownModel};
use super::run::{Artefact, Callable, Functions, Runtime, runtime_of};
use super::told;
use super::transcribe::TranscribeError;
use super::{PipelineError, RunError};
use crate::bundle::{Tree, TreeError};
use crate::digest::Digest;
use crate::eval::{self, InputCast};
use crate::gate::{
    BadLimit, Check, GateError, GoldenError, LimitOverrides, Report, Subject, Tensors, TranscriptsError,
};
use crate::models::laya::host::{HostError, InputError};
use crate::models::reader::WordsError;
use crate::passes::Precision;
use crate::provenance::{StoredRecord, StoredRecordError};
use crate::tensor::{DType, Fact};
use crate::toolchain::Interrupt;
use golden::GoldenFile;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// What to gate, and by what.
#[derive(Clone, Debug, Default)]
pub struct GateOptions {
    /// The bundle.
    pub artefact: PathBuf,
    /// The body of an encoder whose front the bundle is.
    pub body: Option<PathBuf>,
    /// Safetensors files of one clip or question each, and folders of such.
    pub goldens: Vec<PathBuf>,
    /// Question sets, for a decision model.
    pub questions: Vec<PathBuf>,
    /// The checkpoint that a decision model was made of, whose host asks the questions.
    pub checkpoint: Option<PathBuf>,
    /// Folder of its configs, where they are not the checkpoint's own.
    pub config: Option<PathBuf>,
    /// The function; none for the one whose length is the golden's.
    pub function: Option<String>,
    /// The reader's words, one a line.
    pub words: Option<PathBuf>,
    /// The reference's transcripts.
    pub transcripts: Option<PathBuf>,
    /// What was truly said.
    pub truth: Option<PathBuf>,
    /// A reader for an encoder's soft tokens.
    pub reader: Option<PathBuf>,
    /// An encoder for a reader's recordings.
    pub encoder: Option<PathBuf>,
    /// WAV files, and folders of such.
    pub audio: Vec<PathBuf>,
    /// Tokens that windows of recordings share.
    pub overlap: usize,
    /// Runs of each clip that must agree.
    pub repeats: usize,
    /// Limits in the place of defaults.
    pub limits: LimitOverrides,
}

/// Why an artefact was not judged.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage, or its message says it")]
pub enum GateFailure {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Gate(#[from] GateError<RunError>),
    #[error(transparent)]
    Golden(#[from] GoldenFileError),
    #[error("golden {} cannot be used", path.display())]
    Clip { path: PathBuf, source: GoldenError },
    #[error(transparent)]
    Source(#[from] SourceMismatch),
    #[error(transparent)]
    Halves(#[from] HalvesError),
    #[error(transparent)]
    Clips(#[from] ClipFilesError),
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    #[error(transparent)]
    Audio(#[from] TranscribeError),
    #[error(
        "an artefact is judged by goldens, with --golden, by recordings, with --audio, or by question sets, with --questions: \
         none is given"
    )]
    NothingToJudgeBy,
    #[error(transparent)]
    Record(#[from] StoredRecordError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Limit(#[from] BadLimit),
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error("{} is {found}, expected {expected}", path.display())]
    Model { path: PathBuf, found: &'static str, expected: &'static str },
    #[error("golden {} has {input} of {found}; {} takes {have:?}", golden.display(), path.display())]
    Length { golden: PathBuf, input: &'static str, found: Fact, path: PathBuf, have: Vec<String> },
    #[error("golden {} has no tensor {input}, which {} takes", golden.display(), path.display())]
    NoInput { golden: PathBuf, input: &'static str, path: PathBuf },
    #[error("{} is {found}, which --{option} is not for", path.display())]
    Needless { path: PathBuf, found: &'static str, option: &'static str },
    #[error("{} is a decision model, judged with its host: give the checkpoint it was made of, with --checkpoint", path.display())]
    NoCheckpoint { path: PathBuf },
    #[error(transparent)]
    Weights(#[from] PipelineError),
    #[error(transparent)]
    Foreign(#[from] ForeignWeights),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("golden {} cannot be used", path.display())]
    Rows { path: PathBuf, source: InputError },
    #[error(transparent)]
    Questions(#[from] QuestionSetError),
    #[error("the graph's inputs cannot be made")]
    Tensors(#[from] eval::HostError),
    #[error("{} could not be read", path.display())]
    Text { path: PathBuf, source: io::Error },
    #[error("{} is not UTF-8 text", path.display())]
    NotText { path: PathBuf },
    #[error(transparent)]
    Words(#[from] WordsError),
    #[error("{} cannot be used", path.display())]
    Lines { path: PathBuf, source: TranscriptsError },
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Gated {
    /// Folder name.
    pub artefact: String,
    /// Digest of the bytes that were judged.
    pub digest_root: Digest,
    /// The body that was run behind it, where it is the front of an encoder.
    pub body: Option<OtherArtefact>,
    /// The reader of an encoder, or the encoder of a reader, that was given.
    pub other: Option<OtherArtefact>,
    /// `reference` or `coreai`.
    pub runtime: &'static str,
    /// The numbers whose limits were taken: the body's, where there is one.
    pub precision: Precision,
    /// `record`, `metadata` or `features`: who told the precision.
    pub precision_from: &'static str,
    /// Inputs that were of another dtype than declared.
    pub casts: Vec<InputCast>,
    /// The files it was judged by: goldens by name, then words, transcripts, what was said and recordings by name, or
    /// question sets and the host's files.
    pub evidence: Vec<Evidence>,
    /// The checks.
    pub report: Report,
}

/// An artefact that was run together with the one that is judged.
#[derive(Clone, Debug, Serialize)]
pub struct OtherArtefact {
    /// Folder name.
    pub artefact: String,
    /// Digest of its bytes.
    pub digest_root: Digest,
    /// `reference` or `coreai`.
    pub runtime: &'static str,
}

/// A function as the gate runs it.
struct Running<'a> {
    callable: Callable<'a>,
    interrupt: &'a Interrupt,
}

impl Subject for Running<'_> {
    type Error = RunError;

    fn inputs(&self) -> &[(String, Fact)] {
        &self.callable.inputs
    }

    fn run(&self, inputs: &Tensors) -> Result<Tensors, RunError> {
        if self.interrupt.raised() {
            return Err(RunError::Bridge(crate::emit::coreai::BridgeError::Interrupted));
        }
        Ok(self.callable.run.run(inputs)?.0)
    }
}

/// An artefact that is to be judged.
struct Opened<'o> {
    options: &'o GateOptions,
    runtime: Runtime,
    artefact: Artefact,
    digest_root: Digest,
    record: Option<StoredRecord>,
}

/// Gates the artefact.
///
/// # Errors
/// The artefact, its record, a golden or a text cannot be used, or belongs to others; or a run failed.
pub fn gate(options: &GateOptions, interrupt: &Interrupt) -> Result<Gated, GateFailure> {
    if options.goldens.is_empty() && options.audio.is_empty() && options.questions.is_empty() {
        return Err(GateFailure::NothingToJudgeBy);
    }
    let runtime = runtime_of(&options.artefact, None)?;
    let which = match &options.function {
        Some(name) => Functions::One(Some(name)),
        None => Functions::All,
    };
    let artefact = Artefact::open(&options.artefact, runtime, which, interrupt)?;
    let digest_root = Tree::of(&options.artefact)?.root();
    let record = StoredRecord::beside(&options.artefact, digest_root)?;
    let opened = Opened { options, runtime, artefact, digest_root, record };
    match Model::of(&options.artefact, &opened.artefact.functions(eval::Options::default())?) {
        Ok(Model::Laya) => laya::gate(&opened, interrupt),
        // A front is of no model before its body stands behind it.
        Ok(Model::Encoder | Model::Reader) | Err(_) => speech::gate(&opened, interrupt),
    }
}

/// Refuses what another model is judged by.
fn needless(path: &Path, model: Model, given: &[(&'static str, bool)]) -> Result<(), GateFailure> {
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(GateFailure::Needless { path: path.into(), found: model.name(), option }),
        None => Ok(()),
    }
}

fn name_of(path: &Path) -> String {
    Some(told::name_of(path)).filter(|name| !name.is_empty()).unwrap_or_else(|| path.display().to_string())
}

fn running<'a>(functions: Vec<Callable<'a>>, interrupt: &'a Interrupt) -> Vec<Running<'a>> {
    functions.into_iter().map(|callable| Running { callable, interrupt }).collect()
}

/// Precision by the record, else by what the bundle says of itself, else by the dtype of `input`: fp16w32 and int8 then
/// pass for fp32, which is stricter.
fn precision(
    record: Option<&StoredRecord>,
    artefact: &Artefact,
    input: &str,
) -> Result<(Precision, &'static str), RunError> {
    let recorded = record.and_then(|record| record.options["precision"].as_str().map(str::to_string));
    for (named, by) in [(recorded, "record"), (artefact.metadata("precision"), "metadata")] {
        if let Some(precision) = Precision::ALL.into_iter().find(|p| Some(p.name()) == named.as_deref()) {
            return Ok((precision, by));
        }
    }
    let half = |f: &Callable<'_>| f.inputs.iter().any(|(name, fact)| name == input && fact.dtype == DType::F16);
    let any = artefact.functions(eval::Options::default())?.iter().any(half);
    Ok((if any { Precision::Fp16 } else { Precision::Fp32 }, "features"))
}

/// The function that takes clips of the golden's length.
fn of_length<'f>(
    functions: &'f [Running<'_>],
    model: Model,
    file: &GoldenFile,
    artefact: &Path,
) -> Result<&'f Running<'f>, GateFailure> {
    let input = model.length_input();
    let given = file.golden.tensors.get(input).ok_or_else(|| GateFailure::NoInput {
        golden: file.path.clone(),
        input,
        path: artefact.into(),
    })?;
    let takes = |f: &&Running<'_>| f.input(input).is_some_and(|fact| fact.shape == given.fact().shape);
    functions.iter().find(takes).ok_or_else(|| GateFailure::Length {
        golden: file.path.clone(),
        input,
        found: given.fact().clone(),
        path: artefact.into(),
        have: functions.iter().filter_map(|f| f.input(input)).map(ToString::to_string).collect(),
    })
}

/// Inputs that are of another dtype than declared, each kind once.
fn casts<'c>(runs: impl IntoIterator<Item = (&'c dyn Subject<Error = RunError>, &'c Tensors)>) -> Vec<InputCast> {
    let mut found: Vec<InputCast> = Vec::new();
    for (subject, inputs) in runs {
        for (name, fact) in subject.inputs() {
            let Some(from) = inputs.get(name).map(|t| t.fact().dtype) else { continue };
            let cast = InputCast { input: name.clone(), from, to: fact.dtype };
            if from != fact.dtype && !found.contains(&cast) {
                found.push(cast);
            }
        }
    }
    found
}

/// The functions whose length nothing has: a pass of the others says nothing of them.
fn unjudged<'c>(
    functions: &[Running<'_>],
    judged: impl IntoIterator<Item = &'c dyn Subject<Error = RunError>>,
    what: &str,
) -> Option<Check> {
    let judged: Vec<_> = judged.into_iter().collect();
    let left = functions.iter().filter(|function| !judged.iter().any(|judged| std::ptr::addr_eq(*judged, *function)));
    let names: Vec<&str> = left.map(|f| f.callable.name.as_str()).collect();
    // Where there is nothing to judge by, every check says so.
    let some = !names.is_empty() && !judged.is_empty();
    some.then(|| Check::not_run("functions", format!("no {what} has the length of {}", names.join(", "))))
}
