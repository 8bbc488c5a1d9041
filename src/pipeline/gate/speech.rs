//! Encoders and readers: goldens and recordings, with a body, a reader, an encoder and words where they are given.

use super::evidence::{Evidence, EvidenceKind};
use super::golden::{self, GoldenFile};
use super::halves::{self, Body};
use super::{
    GateFailure, GateOptions, Gated, Opened, OtherArtefact, Running, audio, casts, name_of, needless, of_length,
    precision, running, source, unjudged,
};
use crate::bundle::Tree;
use crate::eval;
use crate::files;
use crate::gate::{self, Case, GateError, Limits, Options, Subject, Transcripts};
use crate::models::gemma_audio::FRAMES_PER_TOKEN;
use crate::models::reader::Words;
use crate::pipeline::RunError;
use crate::pipeline::encoder::HIDDEN;
use crate::pipeline::model::Model;
use crate::pipeline::run::{Artefact, Callable, Functions, runtime_of};
use crate::provenance::StoredRecord;
use crate::toolchain::Interrupt;
use serde_json::json;
use std::path::Path;

/// What a golden of these models may have; other tensors are left alone.
const TENSORS: [&str; 9] = [
    "features",
    "half_mask",
    "soft_tokens",
    "n_tokens",
    "token_mask",
    "top1_index",
    "top1_logit",
    "blank_logit",
    "margin",
];

/// Gates an encoder or a reader.
pub fn gate(opened: &Opened<'_>, interrupt: &Interrupt) -> Result<Gated, GateFailure> {
    let Opened { options, runtime, artefact, digest_root, record } = opened;
    let (runtime, digest_root, record) = (*runtime, *digest_root, record.as_ref());
    let mut texts = Texts::read(options)?;
    let goldens = golden::read_all(&options.goldens, &TENSORS)?;
    let body = options.body.as_deref().map(|path| Body::open(path, interrupt)).transpose()?;
    let functions = running(callables(options, artefact, body.as_ref())?, interrupt);
    let model = Model::of(&options.artefact, functions.iter().map(|f| &f.callable))?;
    let foreign = [
        ("checkpoint", options.checkpoint.is_some()),
        ("config", options.config.is_some()),
        ("questions", !options.questions.is_empty()),
    ];
    needless(&options.artefact, model, &foreign)?;
    let source = source::check(record, goldens.iter().map(|file| (file.path.as_path(), file.sources.as_slice())))?;
    let halves = body.as_ref().map(|body| body.check(&options.artefact, record)).transpose()?;
    let (precision, precision_from) = match &body {
        Some(body) => precision(body.record.as_ref(), &body.artefact, HIDDEN)?,
        None => precision(record, artefact, model.length_input())?,
    };
    let limits = Limits::of(precision);
    let limits = record.and_then(StoredRecord::scale).map_or(limits, |scale| limits.at_scale(scale));
    let limits = limits.with(&options.limits)?;

    let other = Other::of(options, model, interrupt)?;
    let together = other.as_ref().map(Other::identity).transpose()?;
    texts.read_words(options, model, artefact, other.as_ref())?;
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
        rows: rows(artefact).filter(|_| model == Model::Reader),
        words: texts.words.as_ref().map(|words| words as &dyn gate::Vocabulary),
        transcripts: texts.transcripts.as_ref(),
        truth: texts.truth.as_ref(),
    };
    let report = match model {
        Model::Encoder => gate::encoder(&cases, &judged),
        Model::Reader => gate::reader(&cases, &judged),
        Model::Laya => return Err(no_speech(&options.artefact)),
    };
    let mut report = report.map_err(|error| with_path(error, &goldens))?;
    let unjudged =
        unjudged(&functions, cases.iter().map(|case| case.subject), "golden").filter(|_| options.function.is_none());
    report.checks.splice(0..0, std::iter::once(source).chain(halves).chain(unjudged));
    let mut evidence: Vec<Evidence> = goldens.iter().map(|file| file.evidence.clone()).collect();
    evidence.append(&mut texts.evidence);
    if !options.audio.is_empty() {
        let own = Some((options.artefact.as_path(), callables(options, artefact, body.as_ref())?));
        let pair = match (model, Other::half(other.as_ref())?) {
            (Model::Encoder, reader) => [own, reader],
            (Model::Reader, encoder) => [encoder, own],
            (Model::Laya, _) => return Err(no_speech(&options.artefact)),
        };
        let found = audio::checks(options, &judged, &texts, pair, interrupt)?;
        report.checks.extend(found.checks);
        report.clips.extend(found.heard.iter().map(|heard| json!(heard)));
        evidence.extend(found.evidence);
    }
    let mut casts = casts(cases.iter().map(|case| (case.subject, &case.golden.tensors)));
    casts.extend(body.as_ref().map(|body| body.casts(artefact)).transpose()?.into_iter().flatten());
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

/// A golden that breaks its model's contract, by its path.
fn with_path(error: GateError<RunError>, goldens: &[GoldenFile]) -> GateFailure {
    if let GateError::Golden { clip, source } = &error
        && let Some(file) = goldens.iter().find(|file| file.golden.name == *clip)
    {
        return GateFailure::Clip { path: file.path.clone(), source: source.clone() };
    }
    error.into()
}

fn no_speech(path: &Path) -> GateFailure {
    GateFailure::Model { path: path.into(), found: Model::Laya.name(), expected: "an encoder or a reader" }
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
            (Model::Laya, ..) => return Err(no_speech(&options.artefact)),
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

/// Words and transcripts the user gave.
pub struct Texts {
    pub words: Option<Words>,
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
