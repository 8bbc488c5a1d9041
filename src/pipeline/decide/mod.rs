//! Requests to answers: the host of the decision model around artefacts of one or more lengths.

mod graphs;
mod request;

pub use graphs::GraphIdentity;
pub use request::{Request, RequestError};

use super::laya::{ForeignWeights, LayaWeights, tokenizer_files};
use super::model::UnknownModel;
use super::told::chain;
use super::{PipelineError, RunError};
use crate::bundle::TreeError;
use crate::models::laya::host::{
    Action, Answer, HeadStats, Host, HostError, Overlong, Prepared, Question, Replaced, State, StateStats,
    TokenizerError,
};
use crate::models::laya::{BadLengths, Lengths};
use crate::provenance::{SourceFile, StoredRecordError};
use crate::toolchain::Interrupt;
use graphs::{Graphs, Opened};
use serde::Serialize;
use std::io;
use std::path::PathBuf;

/// What to answer, and with what.
#[derive(Clone, Debug)]
pub struct DecideOptions {
    /// Artefacts of one length each; the shortest that a question fits answers it.
    pub artefacts: Vec<PathBuf>,
    /// The checkpoint they were made of: embeddings, action head, configs and tokenizer.
    pub checkpoint: PathBuf,
    /// What is asked.
    pub requests: Vec<Request>,
    /// What becomes of a state that fits no length.
    pub overlong: Overlong,
}

/// Why nothing was answered.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage, or its message says it")]
pub enum DecideError {
    #[error(transparent)]
    Weights(#[from] PipelineError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Record(#[from] StoredRecordError),
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error("no artefact is given to answer with")]
    NoArtefact,
    #[error("{} is {found}, expected a decision model", path.display())]
    Model { path: PathBuf, found: &'static str },
    #[error(transparent)]
    Lengths(#[from] BadLengths),
    #[error("{} is {length} tokens long, as an artefact before it", path.display())]
    Twice { path: PathBuf, length: usize },
    #[error("{} takes embeddings of {found:?}, expected [1, {channels}, 1, tokens]", path.display())]
    Shape { path: PathBuf, found: Vec<usize>, channels: usize },
    #[error(transparent)]
    Foreign(#[from] ForeignWeights),
    #[error("no artefact is {length} tokens long")]
    NoGraph { length: usize },
    #[error("the artefact gives no {name}")]
    Output { name: &'static str },
    #[error("input {name} cannot be made")]
    Feature { name: &'static str, source: crate::eval::HostError },
    #[error("{} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// All answers.
#[derive(Clone, Debug, Serialize)]
pub struct Decided {
    /// What answered, in the order in which they were given.
    pub artefacts: Vec<GraphIdentity>,
    /// The checkpoint's files: weights and configs, then the tokenizer's.
    pub checkpoint: Vec<SourceFile>,
    /// Temperatures of the config that were out of range, and what was taken in their place.
    pub temperatures_replaced: Vec<Replaced>,
    /// Requests that were answered.
    pub answered: usize,
    /// Requests that were not.
    pub refused: usize,
    /// What came of each request, in order.
    pub results: Vec<RequestResult>,
}

/// What came of a request.
#[derive(Clone, Debug, Serialize)]
pub struct RequestResult {
    /// Its name, else its number.
    pub name: String,
    /// Answers by question, as the published host gives them but for its rounding; none where it was refused.
    pub answers: Option<ByQuestion<Answer>>,
    /// How each came about.
    pub runs: Option<ByQuestion<QuestionRun>>,
    /// Why it was refused.
    pub refusal: Option<String>,
}

/// Entries by question, in the order of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct ByQuestion<T>(pub Vec<(String, T)>);

impl<T: Serialize> Serialize for ByQuestion<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, entry)| (id, entry)))
    }
}

/// How an answer came about.
#[derive(Clone, Debug, Serialize)]
pub struct QuestionRun {
    /// Length of the graph.
    pub length: usize,
    /// Tokens of the sequence.
    pub tokens: usize,
    /// What the budget did to the question.
    pub question: HeadStats,
    /// What became of the state.
    pub state: StateStats,
    /// The score of each option, in the order in which they were shown.
    pub logits: Vec<f32>,
    /// The action head's own numbers.
    pub action: Action,
}

/// Answers every request that can be answered.
///
/// # Errors
/// The checkpoint or an artefact cannot be used, or they do not belong together; or a run failed.
pub fn decide(options: &DecideOptions, interrupt: &Interrupt) -> Result<Decided, DecideError> {
    if options.artefacts.is_empty() {
        return Err(DecideError::NoArtefact);
    }
    let LayaWeights { config, source, files, .. } = LayaWeights::open(&options.checkpoint, None)?;
    let checkpoint = files.record()?;
    let open = |path: &PathBuf| Opened::open(path, &checkpoint, interrupt);
    let opened = options.artefacts.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let graphs = Graphs::of(&opened, config.encoder.hidden)?;
    let host = Host::open(source.folder(), &config, &source)?;
    let tokenizer = tokenizer_files(source.folder())
        .map_err(|error| DecideError::Io { path: source.folder().into(), source: error })?;
    let desk = Desk { host, lengths: graphs.lengths()?, graphs, overlong: options.overlong, interrupt };
    let mut results = Vec::new();
    for (index, request) in options.requests.iter().enumerate() {
        let name = request.name.clone().unwrap_or_else(|| index.to_string());
        results.push(desk.result(name, request)?);
    }
    let refused = results.iter().filter(|result| result.refusal.is_some()).count();
    Ok(Decided {
        artefacts: opened.iter().map(|one| one.identity.clone()).collect(),
        checkpoint: checkpoint.files.into_iter().chain(tokenizer).collect(),
        temperatures_replaced: desk.host.calibration().replaced().to_vec(),
        answered: results.len() - refused,
        refused,
        results,
    })
}

/// What answers requests.
struct Desk<'a> {
    host: Host<'a>,
    graphs: Graphs<'a>,
    lengths: Lengths,
    overlong: Overlong,
    interrupt: &'a Interrupt,
}

impl Desk<'_> {
    fn result(&self, name: String, request: &Request) -> Result<RequestResult, DecideError> {
        // All of a request is laid out before any of it is run: half an answer is none.
        let laid_out = match self.laid_out(request) {
            Ok(laid_out) => laid_out,
            Err(error) => {
                let refusal = Some(refused(error)?);
                return Ok(RequestResult { name, answers: None, runs: None, refusal });
            }
        };
        let (mut answers, mut runs) = (Vec::new(), Vec::new());
        for (question, prepared) in laid_out {
            if self.interrupt.raised() {
                return Err(DecideError::Interrupted);
            }
            let [logits, cls] = self.graphs.run(&prepared)?;
            let decision = self.host.decide(&question, &logits, &cls)?;
            let id = question.id().to_string();
            answers.push((id.clone(), decision.answer));
            let run = QuestionRun {
                length: prepared.length.get(),
                tokens: prepared.sequence.ids.len(),
                question: prepared.sequence.head,
                state: prepared.sequence.state,
                logits: logits.into_iter().take(question.options().len()).collect(),
                action: decision.action,
            };
            runs.push((id, run));
        }
        let (answers, runs) = (Some(ByQuestion(answers)), Some(ByQuestion(runs)));
        Ok(RequestResult { name, answers, runs, refusal: None })
    }

    fn laid_out(&self, request: &Request) -> Result<Vec<(Question, Prepared)>, HostError> {
        let questions = Question::parse_all(&request.questions)?;
        let state = self.host.state(&State::new(&request.state)?)?;
        let prepare = |question: Question| {
            let prepared = self.host.prepare(&question, &state, &self.lengths, self.overlong)?;
            Ok((question, prepared))
        };
        questions.into_iter().map(prepare).collect()
    }
}

/// What is told of a request that the host refused; other errors are none of the request's.
fn refused(error: HostError) -> Result<String, DecideError> {
    match error {
        HostError::Question(_)
        | HostError::State(_)
        | HostError::Sequence(_)
        | HostError::Tokenizer(TokenizerError::TooLong { .. } | TokenizerError::Encode { .. }) => Ok(chain(&error)),
        HostError::Tokenizer(_) | HostError::Input(_) | HostError::Action(_) => Err(error.into()),
    }
}
