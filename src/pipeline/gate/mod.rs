//! Opens an artefact, its goldens and its record, and has it gated by the file of its model.

mod audio;
pub(super) mod clip_files;
mod evidence;
mod golden;
mod halves;
mod source;

pub use clip_files::ClipFilesError;
pub use evidence::{Evidence, EvidenceError, EvidenceKind};
pub use golden::GoldenFileError;
pub use halves::HalvesError;
pub use source::SourceMismatch;

use super::RunError;
use super::encoder::HIDDEN;
use super::model::{Model, UnknownModel};
use super::run::{Artefact, Callable, Functions, runtime_of};
use super::told;
use super::transcribe::TranscribeError;
use crate::bundle::{Tree, TreeError};
use crate::digest::Digest;
use crate::eval::{self, InputCast};
use crate::files;
use crate::gate::{
    self, BadLimit, Case, GateError, GoldenError, LimitOverrides, Limits, Options, Report, Subject, Tensors,
    Transcripts, TranscriptsError,
};
use crate::models::gemma_audio::FRAMES_PER_TOKEN;
use crate::models::reader::{Words, WordsError};
use crate::passes::Precision;
use crate::provenance::{StoredRecord, StoredRecordError};
use crate::tensor::{DType, Fact};
use crate::toolchain::Interrupt;
use golden::GoldenFile;
use halves::Body;
use serde::Serialize;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};

/// What to gate, and by what.
#[derive(Clone, Debug, Default)]
pub struct GateOptions {
    /// The bundle.
    pub artefact: PathBuf,
    /// The body of an encoder whose front the bundle is.
    pub body: Option<PathBuf>,
    /// Safetensors files of one clip each, and folders of such.
    pub goldens: Vec<PathBuf>,
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
    #[error("an artefact is judged by goldens, with --golden, or by recordings, with --audio: neither is given")]
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
    /// The files it was judged by: goldens by name, words, transcripts, what was said, recordings by name.
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

/// Gates the artefact.
///
/// # Errors
/// The artefact, its record, a golden or a text cannot be used, or belongs to others; or a run failed.
pub fn gate(options: &GateOptions, interrupt: &Interrupt) -> Result<Gated, GateFailure> {
    if options.goldens.is_empty() && options.audio.is_empty() {
        return Err(GateFailure::NothingToJudgeBy);
    }
    let runtime = runtime_of(&options.artefact, None)?;
    let mut texts = Texts::read(options)?;
    let goldens = golden::read_all(&options.goldens)?;
    let which = match &options.function {
        Some(name) => Functions::One(Some(name)),
        None => Functions::All,
    };
    let artefact = Artefact::open(&options.artefact, runtime, which, interrupt)?;
    let body = options.body.as_deref().map(|path| Body::open(path, interrupt)).transpose()?;
    let functions = running(callables(options, &artefact, body.as_ref())?, interrupt);
    let model = Model::of(&options.artefact, functions.iter().map(|f| &f.callable))?;
    let digest_root = Tree::of(&options.artefact)?.root();
    let record = StoredRecord::beside(&options.artefact, digest_root)?;
    let source = source::check(record.as_ref(), &goldens)?;
    let halves = body.as_ref().map(|body| body.check(&options.artefact, record.as_ref())).transpose()?;
    let (precision, precision_from) = match &body {
        Some(body) => precision(body.record.as_ref(), &body.artefact, HIDDEN)?,
        None => precision(record.as_ref(), &artefact, model.length_input())?,
    };
    let limits = Limits::of(precision);
    let limits = record.as_ref().and_then(StoredRecord::scale).map_or(limits, |scale| limits.at_scale(scale));
    let limits = limits.with(&options.limits)?;

    let other = Other::of(options, model, interrupt)?;
    let together = other.as_ref().map(Other::identity).transpose()?;
    texts.read_words(options, model, &artefact, other.as_ref())?;
    let readers = match &other {
        Some(reader) if reader.model == Model::Reader => {
            running(reader.artefact.functions(eval::Options::default())?, interrupt)
        }
        Some(_) | None => Vec::new(),
    };
    let mut cases = Vec::new();
    for file in &goldens {
        let subject = of_length(&functions, model, file, &options.artefact)?;
        cases.push(Case { golden: &file.golden, subject, reader: long_enough(&readers, model, file) });
    }
    let judged = Options {
        limits,
        repeats: options.repeats,
        rows: rows(&artefact).filter(|_| model == Model::Reader),
        words: texts.words.as_ref().map(|words| words as &dyn gate::Vocabulary),
        transcripts: texts.transcripts.as_ref(),
        truth: texts.truth.as_ref(),
    };
    let report = match model {
        Model::Encoder => gate::encoder(&cases, &judged),
        Model::Reader => gate::reader(&cases, &judged),
        Model::Laya => return Err(no_gate(&options.artefact)),
    };
    let mut report = report.map_err(|error| with_path(error, &goldens))?;
    let unjudged = unjudged(&functions, &cases).filter(|_| options.function.is_none());
    report.checks.splice(0..0, std::iter::once(source).chain(halves).chain(unjudged));
    let mut evidence: Vec<Evidence> = goldens.iter().map(|file| file.evidence.clone()).collect();
    evidence.append(&mut texts.evidence);
    if !options.audio.is_empty() {
        let own = Some((options.artefact.as_path(), callables(options, &artefact, body.as_ref())?));
        let pair = match (model, Other::half(other.as_ref())?) {
            (Model::Encoder, reader) => [own, reader],
            (Model::Reader, encoder) => [encoder, own],
            (Model::Laya, _) => return Err(no_gate(&options.artefact)),
        };
        let found = audio::checks(options, &judged, &texts, pair, interrupt)?;
        report.checks.extend(found.checks);
        report.clips.extend(found.heard.iter().map(|heard| json!(heard)));
        evidence.extend(found.evidence);
    }
    let mut casts = casts(&cases);
    casts.extend(body.as_ref().map(|body| body.casts(&artefact)).transpose()?.into_iter().flatten());
    Ok(Gated {
        artefact: name_of(&options.artefact),
        digest_root,
        body: body.as_ref().map(Body::identity),
        other: together,
        runtime: runtime.name(),
        precision,
        precision_from,
        casts,
        evidence,
        report,
    })
}

/// The functions that no golden has the length of: a pass of the others says nothing of them.
fn unjudged(functions: &[Running<'_>], cases: &[Case<'_, RunError>]) -> Option<gate::Check> {
    let judged = |function: &&Running<'_>| cases.iter().any(|case| std::ptr::addr_eq(case.subject, *function));
    let names: Vec<&str> = functions.iter().filter(|f| !judged(f)).map(|f| f.callable.name.as_str()).collect();
    // Where there is no golden, every check says so.
    let some = !names.is_empty() && !cases.is_empty();
    some.then(|| gate::Check::not_run("functions", format!("no golden has the length of {}", names.join(", "))))
}

/// A golden that breaks its model's contract, by its path.
fn with_path(error: GateError<RunError>, goldens: &[GoldenFile]) -> GateFailure {
    if let GateError::Golden { clip, source } = &error
        && let Some(file) = goldens.iter().find(|file| file.golden.name == *clip)
    {
        return GateFailure::Clip { path: file.path.clone(), source: source.clone() };
    }
    error.into()
}

fn no_gate(path: &Path) -> GateFailure {
    let found = Model::Laya.name();
    GateFailure::Model { path: path.into(), found, expected: "an encoder or a reader, which are what is judged" }
}

fn name_of(path: &Path) -> String {
    Some(told::name_of(path)).filter(|name| !name.is_empty()).unwrap_or_else(|| path.display().to_string())
}

/// The functions of what is judged: of the artefact, or of a front with its body behind.
fn callables<'a>(
    options: &GateOptions,
    artefact: &'a Artefact,
    body: Option<&'a Body<'_>>,
) -> Result<Vec<Callable<'a>>, GateFailure> {
    let functions = artefact.functions(eval::Options::default())?;
    match body {
        Some(body) => body.behind(&options.artefact, functions),
        None => {
            halves::whole(&options.artefact, &functions)?;
            Ok(functions)
        }
    }
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

/// The shortest reader that takes all tokens of a clip of the golden's length, else the longest: the clip may be
/// shorter than its bucket.
fn long_enough<'f>(
    readers: &'f [Running<'_>],
    model: Model,
    file: &GoldenFile,
) -> Option<&'f dyn Subject<Error = RunError>> {
    let input = file.golden.tensors.get(model.length_input())?;
    let tokens = input.fact().shape.dims().get(1)? / FRAMES_PER_TOKEN;
    let length = |reader: &Running<'_>| Model::Reader.length(&reader.callable).unwrap_or(0);
    let enough = readers.iter().filter(|r| length(r) >= tokens).min_by_key(|r| length(r));
    let reader = enough.or_else(|| readers.iter().max_by_key(|r| length(r)))?;
    Some(reader)
}

/// The reader given for an encoder, or the encoder given for a reader.
struct Other<'p> {
    path: &'p Path,
    model: Model,
    artefact: Artefact,
}

impl<'p> Other<'p> {
    fn of(options: &'p GateOptions, model: Model, interrupt: &Interrupt) -> Result<Option<Other<'p>>, GateFailure> {
        let wrong = |path: &Path, found: Model, expected| {
            Err(GateFailure::Model { path: path.into(), found: found.name(), expected })
        };
        let (path, expected) = match (model, &options.reader, &options.encoder) {
            (Model::Laya, ..) => return Err(no_gate(&options.artefact)),
            (Model::Encoder, _, Some(_)) => {
                return wrong(&options.artefact, model, "a reader, whose recordings --encoder encodes");
            }
            (Model::Reader, Some(_), _) => {
                return wrong(&options.artefact, model, "an encoder, whose soft tokens --reader reads");
            }
            (Model::Encoder, Some(reader), None) => (reader, Model::Reader),
            (Model::Reader, None, Some(encoder)) => (encoder, Model::Encoder),
            (Model::Encoder | Model::Reader, None, None) => return Ok(None),
        };
        let artefact = Artefact::open(path, runtime_of(path, None)?, Functions::All, interrupt)?;
        let found = Model::of(path, &artefact.functions(eval::Options::default())?)?;
        if found == expected {
            Ok(Some(Other { path, model: found, artefact }))
        } else {
            wrong(path, found, expected.name())
        }
    }

    fn identity(&self) -> Result<OtherArtefact, GateFailure> {
        let digest_root = Tree::of(self.path)?.root();
        // A record of other bytes is refused, as that of the artefact that is judged.
        StoredRecord::beside(self.path, digest_root)?;
        let runtime = runtime_of(self.path, None)?.name();
        Ok(OtherArtefact { artefact: name_of(self.path), digest_root, runtime })
    }

    fn half<'o>(other: Option<&'o Other<'p>>) -> Result<Option<audio::Half<'o>>, GateFailure> {
        let functions = |o: &'o Other<'p>| Ok((o.path, o.artefact.functions(eval::Options::default())?));
        other.map(functions).transpose()
    }
}

/// Inputs of goldens whose dtype is not the declared one, each kind once.
fn casts(cases: &[Case<'_, RunError>]) -> Vec<InputCast> {
    let mut found: Vec<InputCast> = Vec::new();
    for case in cases {
        for (name, fact) in case.subject.inputs() {
            let Some(from) = case.golden.tensors.get(name).map(|t| t.fact().dtype) else { continue };
            let cast = InputCast { input: name.clone(), from, to: fact.dtype };
            if from != fact.dtype && !found.contains(&cast) {
                found.push(cast);
            }
        }
    }
    found
}

/// Words and transcripts the user gave.
struct Texts {
    words: Option<Words>,
    transcripts: Option<Transcripts>,
    truth: Option<Transcripts>,
    /// The files, words first.
    evidence: Vec<Evidence>,
}

/// Rows of a reader's table, by what it says of itself.
fn rows(reader: &Artefact) -> Option<usize> {
    reader.metadata("words")?.parse().ok()
}

impl Texts {
    /// All but the words, which are held against a reader.
    fn read(options: &GateOptions) -> Result<Texts, GateFailure> {
        let mut evidence = Vec::new();
        let mut lines = |kind, path: Option<&Path>| {
            let Some(path) = path else { return Ok(None) };
            let (found, file) = Evidence::of(kind, path, || {
                let parsed = Transcripts::parse(&text(path)?);
                parsed.map_err(|source| GateFailure::Lines { path: path.into(), source })
            })?;
            evidence.push(file);
            Ok::<_, GateFailure>(Some(found))
        };
        let transcripts = lines(EvidenceKind::Transcripts, options.transcripts.as_deref())?;
        let truth = lines(EvidenceKind::Truth, options.truth.as_deref())?;
        Ok(Texts { words: None, transcripts, truth, evidence })
    }

    /// The reader's words: as many as the reader that is judged, or else the one that is given, has rows.
    fn read_words(
        &mut self,
        options: &GateOptions,
        model: Model,
        artefact: &Artefact,
        other: Option<&Other<'_>>,
    ) -> Result<(), GateFailure> {
        let reader = match model {
            Model::Reader => Some(artefact),
            Model::Encoder => other.map(|other| &other.artefact),
            Model::Laya => None,
        };
        let Some(path) = options.words.as_deref() else { return Ok(()) };
        let (words, file) = Evidence::of(EvidenceKind::Words, path, || {
            Ok::<_, GateFailure>(Words::read(path, reader.and_then(rows))?)
        })?;
        self.words = Some(words);
        self.evidence.insert(0, file);
        Ok(())
    }
}

fn text(path: &Path) -> Result<String, GateFailure> {
    let bytes = files::read(path, files::TEXT_MAX).map_err(|source| GateFailure::Text { path: path.into(), source })?;
    String::from_utf8(bytes).map_err(|_| GateFailure::NotText { path: path.into() })
}
