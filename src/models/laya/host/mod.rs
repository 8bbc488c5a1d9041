//! What a program does around the graph: a request to a sequence of tokens, to the graph's inputs, and from its outputs to
//! an answer. The published host's rules, to the token and to the digit.
//!
//! Two differences, both on the side of refusing: nothing is cut unless that is asked for, and two labels that would be
//! one key of the answer are no question.
//!
//! Knows the configs and the weights of a checkpoint; the graph runs elsewhere. In order:
//!
//! ```text
//! Question, State -> Head, StateTokens -> Sequence -> Rows -> Features -> (the graph) -> Action, Answer
//! ```

mod action;
mod answer;
mod calibration;
mod inputs;
mod numbers;
mod options;
mod question;
mod render;
mod sequence;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use action::{Action, ActionError, ActionHead, active};
pub use answer::{Answer, AnswerAction, ByOption, probabilities, shares};
pub use calibration::{Calibration, Replaced};
pub use inputs::{Feature, Features, InputError, RowError, Rows, check_mask, masks};
pub use numbers::{argmax, softmax};
pub use question::{Question, QuestionError, QuestionFault, QuestionOption, QuestionType};
pub use sequence::{Head, HeadStats, NoState, Overlong, Sequence, SequenceError, State, StateStats, StateTokens};
pub use tokenizer::{TEXT_MAX, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer, TokenizerError};

use super::{LayaConfig, Length, Lengths};
use crate::tensor::WeightSource;
use serde::Serialize;
use std::path::Path;

/// All that a checkpoint has for the host, opened once for any number of requests.
pub struct Host<'a> {
    config: &'a LayaConfig,
    source: &'a dyn WeightSource,
    tokenizer: Tokenizer,
    action: ActionHead,
    calibration: Calibration,
}

/// A question laid out for a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The length whose graph it is for.
    pub length: Length,
    /// The sequence.
    pub sequence: Sequence,
    /// The graph's inputs.
    pub features: Features,
}

/// What comes of a question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The answer.
    pub answer: Answer,
    /// The action head's own numbers.
    pub action: Action,
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sources speak for themselves")]
pub enum HostError {
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Question(#[from] QuestionError),
    #[error(transparent)]
    State(#[from] NoState),
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Action(#[from] ActionError),
}

impl<'a> Host<'a> {
    /// The host of the checkpoint in folder `checkpoint`, of that config and those weights.
    ///
    /// # Errors
    /// The tokenizer or the action head is absent or unusable.
    pub fn open(
        checkpoint: &Path,
        config: &'a LayaConfig,
        source: &'a dyn WeightSource,
    ) -> Result<Host<'a>, HostError> {
        Ok(Host {
            config,
            source,
            tokenizer: Tokenizer::open(checkpoint)?,
            action: ActionHead::read(config, source)?,
            calibration: Calibration::new(&config.agent),
        })
    }

    /// The temperatures, for what was replaced among them.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// The action head.
    pub fn action_head(&self) -> &ActionHead {
        &self.action
    }

    /// The rows of tokens `ids` with options at `markers` in a graph of `length`, filled up as the tokenizer has it.
    ///
    /// # Errors
    /// There are more tokens, or more options than slots.
    pub fn rows(&self, ids: &[u32], markers: &[usize], kind: QuestionType, length: Length) -> Result<Rows, RowError> {
        Rows::new(ids, markers, kind, self.tokenizer.pad(), length)
    }

    /// The graph's inputs for rows that come from elsewhere.
    ///
    /// # Errors
    /// An entry is out of its range, or a weight cannot be read.
    pub fn features(&self, rows: &Rows, length: Length) -> Result<Features, InputError> {
        Features::new(rows, &self.config.encoder, length, self.source)
    }

    /// The tokens of `state`, which serve every question about it.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn state(&self, state: &State) -> Result<StateTokens, HostError> {
        Ok(state.tokens(&self.tokenizer)?)
    }

    /// `question` about `state` for the shortest of `lengths` that takes all of it, within the model's own limit. Where
    /// none does, the longest is for a cut state, or for the refusal to say how much there is.
    ///
    /// # Errors
    /// A text cannot be encoded, the sequence does not fit, or a weight cannot be read.
    pub fn prepare(
        &self,
        question: &Question,
        state: &StateTokens,
        lengths: &Lengths,
        overlong: Overlong,
    ) -> Result<Prepared, HostError> {
        let head = self.head(question)?;
        let needed = head.needed(state);
        let length = lengths.iter().find(|length| length.get() >= needed).unwrap_or(lengths.longest());
        let limit = length.get().min(self.config.agent.max_len);
        let sequence = head.sequence(state, limit, overlong)?;
        let rows = self.rows(&sequence.ids, &sequence.markers, sequence.kind, length).map_err(InputError::from)?;
        let features = self.features(&rows, length)?;
        Ok(Prepared { length, sequence, features })
    }

    /// The sequence of `question` about `state`, of at most `limit` tokens.
    ///
    /// # Errors
    /// A text cannot be encoded, or the sequence does not fit.
    pub fn sequence(
        &self,
        question: &Question,
        state: &StateTokens,
        limit: usize,
        overlong: Overlong,
    ) -> Result<Sequence, HostError> {
        Ok(self.head(question)?.sequence(state, limit, overlong)?)
    }

    fn head(&self, question: &Question) -> Result<Head, HostError> {
        Ok(Head::new(&self.tokenizer, question, self.config.agent.head_max_len)?)
    }

    /// The decision on `question` from the graph's `logits` `[32]` and `cls` `[C]`.
    ///
    /// # Errors
    /// They are of another length, or not finite.
    pub fn decide(&self, question: &Question, logits: &[f32], cls: &[f32]) -> Result<Decision, HostError> {
        let action = self.action.decide(logits, cls, question.options().len())?;
        let shares = probabilities(question, logits, &self.calibration)?;
        Ok(Decision { answer: Answer::new(question, &shares, &action), action })
    }
}
