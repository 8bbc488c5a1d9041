//! Decision models: goldens of the graph's inputs, and question sets, which the host of the artefact's checkpoint asks.

use super::evidence::{Evidence, EvidenceKind};
use super::golden::{self, GoldenFile};
use super::question_set::{self, Expected, QuestionSet, QuestionSetError, SetCase};
use super::{
    GateFailure, GateOptions, Gated, Opened, Running, casts, name_of, needless, of_length, precision, running, source,
    unjudged,
};
use crate::eval::{self, HostError as TensorError};
use crate::gate::Limits;
use crate::gate::laya::{self, Asked, Judge, Layout, Questions};
use crate::models::laya::host::{Host, HostError, Overlong, Question, QuestionType, State, StateTokens};
use crate::models::laya::{LayaConfig, Length, names};
use crate::pipeline::RunError;
use crate::pipeline::laya::{LayaWeights, made_of, tokenizer_files};
use crate::pipeline::model::Model;
use crate::pipeline::told::chain;
use crate::provenance::SourceFile;
use crate::toolchain::Interrupt;
use std::path::Path;

/// Gates a decision model.
pub fn gate(opened: &Opened<'_>, interrupt: &Interrupt) -> Result<Gated, GateFailure> {
    let Opened { options, runtime, artefact, digest_root, record } = opened;
    let path = options.artefact.as_path();
    needless(path, Model::Laya, &foreign(options))?;
    let folder = options.checkpoint.as_deref().ok_or_else(|| GateFailure::NoCheckpoint { path: path.into() })?;
    let LayaWeights { config, source, files, .. } = LayaWeights::open(folder, options.config.as_deref())?;
    let weights = files.record()?;
    if let Some(record) = record {
        made_of(path, record, &weights)?;
    }
    let host = Host::open(source.folder(), &config, &source)?;
    let judge = Judge { calibration: host.calibration(), action: host.action_head(), window: config.encoder.window };
    let goldens = golden::read_all(&options.goldens, &laya::TENSORS)?;
    let read = |path| question_set::read(path, judge.action.actions());
    let sets = options.questions.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let golden_sources = goldens.iter().map(|file| (file.path.as_path(), file.sources.as_slice()));
    let set_sources = sets.iter().map(|set| (set.path.as_path(), set.sources.as_slice()));
    let of_source = source::check(record.as_ref(), golden_sources.chain(set_sources))?;
    let (precision, precision_from) = precision(record.as_ref(), artefact, names::EMBEDDINGS)?;
    let limits = Limits::of(precision).with(&options.limits)?;

    let functions = running(artefact.functions(eval::Options::default())?, interrupt);
    let desk = Desk { path, host: &host, config: &config, judge, functions: &functions };
    let mut questions = Questions { asked: Vec::new(), skipped: Vec::new() };
    for file in &goldens {
        questions.asked.push(desk.golden(file)?);
    }
    for set in &sets {
        desk.set(set, &mut questions)?;
    }
    let mut report = laya::laya(&questions, &desk.judge, limits, options.repeats)?;
    let asked = questions.asked.iter();
    let unjudged = unjudged(&functions, asked.clone().map(|asked| asked.subject), "question");
    let unjudged = unjudged.filter(|_| options.function.is_none());
    report.checks.splice(0..0, std::iter::once(of_source).chain(unjudged));
    let tokenizer = tokenizer_files(source.folder())
        .map_err(|error| GateFailure::Text { path: source.folder().into(), source: error })?;
    let host_files = weights.files.into_iter().chain(tokenizer).map(of_host);
    Ok(Gated {
        artefact: name_of(path),
        digest_root: *digest_root,
        body: None,
        other: None,
        runtime: runtime.name(),
        precision,
        precision_from,
        casts: casts(asked.map(|asked| (asked.subject, &asked.inputs))),
        evidence: goldens
            .iter()
            .map(|file| file.evidence.clone())
            .chain(sets.iter().map(|set| set.evidence.clone()))
            .chain(host_files)
            .collect(),
        report,
    })
}

fn foreign(options: &GateOptions) -> [(&'static str, bool); 7] {
    [
        ("body", options.body.is_some()),
        ("words", options.words.is_some()),
        ("transcripts", options.transcripts.is_some()),
        ("wer", options.truth.is_some()),
        ("reader", options.reader.is_some()),
        ("encoder", options.encoder.is_some()),
        ("audio", !options.audio.is_empty()),
    ]
}

fn of_host(file: SourceFile) -> Evidence {
    Evidence { kind: EvidenceKind::Host, name: file.name, sha256: file.sha256 }
}

/// What lays questions out for an artefact.
struct Desk<'a, 'h> {
    path: &'a Path,
    host: &'a Host<'h>,
    config: &'a LayaConfig,
    judge: Judge<'a>,
    functions: &'a [Running<'a>],
}

impl<'a> Desk<'a, '_> {
    /// The question of a golden. What its tensors say the graph takes must be what the host makes of its rows.
    fn golden(&self, file: &GoldenFile) -> Result<Asked<'a, RunError>, GateFailure> {
        let clip = |source| GateFailure::Clip { path: file.path.clone(), source };
        let subject = of_length(self.functions, Model::Laya, file, self.path)?;
        let length = length_of(subject).ok_or_else(|| GateFailure::Model {
            path: self.path.into(),
            found: "a decision model of another length",
            expected: "16 to 2048 tokens",
        })?;
        let rows = laya::rows(&file.golden).map_err(clip)?;
        let made = self.host.features(&rows, length);
        let features = made.map_err(|source| GateFailure::Rows { path: file.path.clone(), source })?;
        laya::same_inputs(&file.golden, &features).map_err(clip)?;
        let kind = usize::try_from(rows.qtype).ok().and_then(|row| QuestionType::ALL.get(row).copied());
        Ok(Asked {
            name: file.golden.name.clone(),
            // The rows were checked when features were made of them.
            kind: kind.unwrap_or(QuestionType::Choice),
            valid: rows.valid(),
            inputs: laya::tensors(&features)?,
            reference: laya::reference(&file.golden, &rows, &self.judge).map_err(clip)?,
            layout: None,
            subject,
        })
    }

    /// The questions of a set, or that they are longer than the artefact.
    fn set(&self, set: &QuestionSet, questions: &mut Questions<'a, RunError>) -> Result<(), GateFailure> {
        for case in &set.cases {
            self.case(case, questions).map_err(|fault| fault.of(&set.path, &case.name))?;
        }
        Ok(())
    }

    fn case(&self, case: &SetCase, questions: &mut Questions<'a, RunError>) -> Result<(), Fault> {
        let parsed = Question::parse_all(&case.definitions).map_err(HostError::from)?;
        let state = self.host.state(&State::new(&case.state).map_err(HostError::from)?)?;
        for (question, expected) in parsed.iter().zip(&case.expected) {
            let name = if parsed.len() == 1 { case.name.clone() } else { format!("{}/{}", case.name, question.id()) };
            match self.shortest(expected.ids.len()) {
                Some((length, subject)) => {
                    let layout = self.layout(question, &state, expected);
                    questions.asked.push(self.asked(name, expected, layout, length, subject)?);
                }
                None => questions.skipped.push((name, expected.ids.len())),
            }
        }
        Ok(())
    }

    /// Whether the host makes the reference's tokens of a question, as far as the model itself goes. The reference cuts
    /// what is longer.
    fn layout(&self, question: &Question, state: &StateTokens, expected: &Expected) -> Layout {
        let max_len = self.config.agent.max_len;
        let found = match self.host.sequence(question, state, max_len, Overlong::CutState) {
            Ok(found) => found,
            Err(error) => return Layout::Other { says: chain(&error) },
        };
        let other = found.ids.iter().zip(&expected.ids).position(|(found, expected)| found != expected);
        let says = match other {
            _ if found.ids.len() != expected.ids.len() => {
                format!("{} tokens, the reference has {}", found.ids.len(), expected.ids.len())
            }
            Some(position) => format!("another token at {position} of {}", expected.ids.len()),
            None if found.markers != expected.markers => {
                format!("options at {:?}, the reference has them at {:?}", found.markers, expected.markers)
            }
            None if found.kind != expected.kind => format!("a {}, the reference has a {}", found.kind, expected.kind),
            None => return Layout::Same,
        };
        Layout::Other { says }
    }

    /// A question of the reference's own tokens, so that its numbers are judged apart from the layout.
    fn asked(
        &self,
        name: String,
        expected: &Expected,
        layout: Layout,
        length: Length,
        subject: &'a Running<'a>,
    ) -> Result<Asked<'a, RunError>, Fault> {
        let rows = self.host.rows(&expected.ids, &expected.markers, expected.kind, length);
        let rows = rows.map_err(|error| HostError::Input(error.into()))?;
        let features = self.host.features(&rows, length).map_err(HostError::from)?;
        Ok(Asked {
            name,
            kind: expected.kind,
            valid: rows.valid(),
            inputs: laya::tensors(&features)?,
            reference: expected.reference.clone(),
            layout: Some(layout),
            subject,
        })
    }

    /// The shortest function that takes so many tokens.
    fn shortest(&self, tokens: usize) -> Option<(Length, &'a Running<'a>)> {
        let lengths = self.functions.iter().filter_map(|function| Some((length_of(function)?, function)));
        lengths.filter(|(length, _)| length.get() >= tokens).min_by_key(|(length, _)| *length)
    }
}

/// The length of a function; none where it is of no graph of ours.
fn length_of(function: &Running<'_>) -> Option<Length> {
    Model::Laya.length(&function.callable).and_then(|length| Length::new(length).ok())
}

/// Why a case was not asked.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Fault {
    /// The same of a case in the set at `path`.
    fn of(self, path: &Path, case: &str) -> GateFailure {
        match self {
            Fault::Host(source) => {
                QuestionSetError::Case { path: path.into(), case: case.into(), source: Box::new(source) }.into()
            }
            Fault::Tensor(source) => source.into(),
        }
    }
}
