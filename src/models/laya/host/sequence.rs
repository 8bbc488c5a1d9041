//! A question and a state as one sequence of tokens:
//!
//! ```text
//! [CLS] <type> question: instructions [SEP] ([MASK] option)* [SEP] state [SEP]
//! ```
//!
//! The part before the state has a budget of its own, which cuts options and instructions alike in every host of the
//! model; what it cut is told. The state is cut where that is asked for, and only there.

use super::question::{Question, QuestionType};
use super::render;
use super::tokenizer::{Tokenizer, TokenizerError};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Most tokens of an option's text.
const OPTION_MAX: usize = 48;

/// Fewest tokens that options leave to instructions before they are cut themselves.
const INSTRUCTIONS_WANTED: usize = 16;

/// Fewest tokens of instructions, whatever the budget.
const INSTRUCTIONS_MIN: usize = 8;

/// Fewest tokens of an option with its marker, whatever the budget.
const OPTION_MIN: usize = 4;

/// What the budget did to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeadStats {
    /// Options of the question.
    pub options: usize,
    /// Options that still differ in their tokens.
    pub options_distinct: usize,
    /// Most tokens of each option with its marker, where the budget cut them.
    pub tokens_per_option: Option<usize>,
    /// Tokens of option texts that were cut.
    pub option_tokens_dropped: usize,
    /// Tokens of the instructions that were cut.
    pub instruction_tokens_dropped: usize,
}

/// The part of a sequence before its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    question: String,
    kind: QuestionType,
    ids: Vec<u32>,
    markers: Vec<usize>,
    stats: HeadStats,
    /// What a sequence ends with.
    sep: u32,
}

/// What a question is about, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    text: String,
    newest_last: bool,
}

/// A state that says nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state is null, expected a text, an object or a list")]
pub struct NoState;

/// A state in tokens, for any number of questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTokens {
    ids: Vec<u32>,
    newest_last: bool,
}

/// What became of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateStats {
    /// Tokens of the state.
    pub state_tokens: usize,
    /// Tokens that are in the sequence.
    pub state_tokens_used: usize,
    /// Tokens that were cut.
    pub state_tokens_dropped: usize,
    /// Whether any were.
    pub truncated: bool,
}

/// A sequence for a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Tokens.
    pub ids: Vec<u32>,
    /// Position of each option's marker, in the order in which they are shown.
    pub markers: Vec<usize>,
    /// What kind of answer is wanted.
    pub kind: QuestionType,
    /// What the budget did to the question.
    pub head: HeadStats,
    /// What became of the state.
    pub state: StateStats,
}

/// What is done with a sequence that is longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlong {
    /// It is refused.
    Refuse,
    /// The state is cut: its end, or the oldest of a list.
    CutState,
}

/// A sequence that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum SequenceError {
    #[error(
        "question {question:?} takes {needed} tokens, {head} of them for itself, and {limit} fit; ask with a shorter state, a \
         longer graph (the model's max_len is its end), or for the state to be cut"
    )]
    TooLong { question: String, needed: usize, head: usize, limit: usize },
    #[error(
        "question {question:?} has option {option} at token {position}, past the {limit} that fit; ask with fewer or shorter \
         options"
    )]
    Marker { question: String, option: usize, position: usize, limit: usize },
}

impl State {
    /// The state of a request: a text as it is, anything else as JSON on one line.
    ///
    /// # Errors
    /// It is null.
    pub fn new(value: &Value) -> Result<State, NoState> {
        if value.is_null() {
            Err(NoState)
        } else {
            Ok(State { text: render::text(value), newest_last: value.is_array() })
        }
    }

    /// Its tokens.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<StateTokens, TokenizerError> {
        let ids = tokenizer.encode(&tokenizer.without_mask(&self.text))?;
        Ok(StateTokens { ids, newest_last: self.newest_last })
    }
}

impl Head {
    /// The tokens of `question`, of which `head_max_len` are the budget.
    ///
    /// # Errors
    /// A text cannot be encoded.
    pub fn new(tokenizer: &Tokenizer, question: &Question, head_max_len: usize) -> Result<Head, TokenizerError> {
        let instructions = tokenizer.without_mask(question.instructions());
        let mut instructions = tokenizer.encode(&format!("{} question: {instructions}", question.kind()))?;
        let mut options = Vec::new();
        let mut option_tokens = 0;
        for option in question.shown_options() {
            let text = tokenizer.encode(&format!(" {}", tokenizer.without_mask(&option.text)))?;
            option_tokens += 1 + text.len();
            options.push(std::iter::once(tokenizer.mask()).chain(text.into_iter().take(OPTION_MAX)).collect());
        }
        let tokens_per_option = cut_options(&mut options, head_max_len);

        let used: usize = options.iter().map(Vec::len).sum();
        let kept = instructions.len().min(head_max_len.saturating_sub(used).max(INSTRUCTIONS_MIN));
        let stats = HeadStats {
            options: options.len(),
            options_distinct: options.iter().collect::<BTreeSet<_>>().len(),
            tokens_per_option,
            option_tokens_dropped: option_tokens - used,
            instruction_tokens_dropped: instructions.len() - kept,
        };
        instructions.truncate(kept);

        let sep = tokenizer.sep();
        let mut ids = vec![tokenizer.cls()];
        ids.extend(instructions);
        ids.push(sep);
        let mut markers = Vec::with_capacity(options.len());
        for option in options {
            markers.push(ids.len());
            ids.extend(option);
        }
        ids.push(sep);
        Ok(Head { question: question.id().into(), kind: question.kind(), ids, markers, stats, sep })
    }

    /// Tokens of the sequence with all of `state`.
    pub fn needed(&self, state: &StateTokens) -> usize {
        self.ids.len() + state.ids.len() + 1
    }

    /// The sequence with `state`, of `limit` tokens at most.
    ///
    /// # Errors
    /// It is longer, and not to be cut; or a marker is past the limit.
    pub fn sequence(&self, state: &StateTokens, limit: usize, overlong: Overlong) -> Result<Sequence, SequenceError> {
        let question = || self.question.clone();
        if let Some((option, position)) = self.markers.iter().copied().enumerate().find(|(_, at)| *at >= limit) {
            return Err(SequenceError::Marker { question: question(), option, position, limit });
        }
        let (needed, head) = (self.needed(state), self.ids.len());
        if needed > limit && overlong == Overlong::Refuse {
            return Err(SequenceError::TooLong { question: question(), needed, head, limit });
        }
        let kept = state.ids.len().min(limit.saturating_sub(head + 1));
        let skipped = if state.newest_last { state.ids.len() - kept } else { 0 };
        let mut ids = self.ids.clone();
        ids.extend(state.ids.iter().skip(skipped).take(kept));
        ids.push(self.sep);
        // A head that fills the limit loses its last tokens, but no marker.
        ids.truncate(limit);
        let stats = StateStats {
            state_tokens: state.ids.len(),
            state_tokens_used: kept,
            state_tokens_dropped: state.ids.len() - kept,
            truncated: kept < state.ids.len(),
        };
        Ok(Sequence { ids, markers: self.markers.clone(), kind: self.kind, head: self.stats.clone(), state: stats })
    }
}

/// Cuts all options to the same length where they leave too little to the instructions; says to which.
fn cut_options(options: &mut [Vec<u32>], head_max_len: usize) -> Option<usize> {
    let used: usize = options.iter().map(Vec::len).sum();
    if used + INSTRUCTIONS_WANTED <= head_max_len {
        return None;
    }
    let each = head_max_len.saturating_sub(INSTRUCTIONS_WANTED) / options.len().max(1);
    let each = each.max(OPTION_MIN);
    options.iter_mut().for_each(|option| option.truncate(each));
    Some(each)
}

#[cfg(test)]
mod tests {
    use super::super::tests::FIXTURE;
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn head(definition: &Value, budget: usize) -> Head {
        let tokenizer = Tokenizer::open(Path::new(FIXTURE)).unwrap();
        Head::new(&tokenizer, &Question::parse("team", definition).unwrap(), budget).unwrap()
    }

    fn tokens(value: &Value) -> StateTokens {
        State::new(value).unwrap().tokens(&Tokenizer::open(Path::new(FIXTURE)).unwrap()).unwrap()
    }

    #[test]
    fn nothing_is_cut_unasked() {
        let head = head(&json!({"type": "choice", "instructions": "Which?", "criteria": ["a", "b"]}), 80);
        let state = tokens(&json!("0123456789"));
        let needed = head.needed(&state);
        let whole = head.sequence(&state, needed, Overlong::Refuse).unwrap();
        assert_eq!((whole.ids.len(), whole.state.truncated), (needed, false));
        assert_eq!(head.sequence(&state, needed, Overlong::CutState).unwrap(), whole);

        let refused = head.sequence(&state, needed - 1, Overlong::Refuse).unwrap_err();
        insta::assert_snapshot!(refused, @r#"question "team" takes 27 tokens, 16 of them for itself, and 26 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut"#);
        let cut = head.sequence(&state, needed - 1, Overlong::CutState).unwrap();
        assert_eq!((cut.ids.len(), cut.state.state_tokens_dropped), (needed - 1, 1));
        assert_eq!(cut.ids[..needed - 2], whole.ids[..needed - 2]);
    }

    #[test]
    fn a_list_loses_its_oldest() {
        let head = head(&json!({"type": "noul", "instructions": "Paid?"}), 80);
        let state = tokens(&json!(["0123456789", "9876543210"]));
        let needed = head.needed(&state);
        let cut = head.sequence(&state, needed - 5, Overlong::CutState).unwrap();
        assert_eq!(cut.ids[head.ids.len()..needed - 6], state.ids[5..]);
    }

    #[test]
    fn markers_stay_inside() {
        let head = head(&json!({"type": "choice", "instructions": "Which?", "criteria": ["a", "b", "c"]}), 80);
        let last = head.markers[2];
        let empty = tokens(&json!(""));
        let refused = head.sequence(&empty, last, Overlong::CutState).unwrap_err();
        insta::assert_snapshot!(refused, @r#"question "team" has option 2 at token 15, past the 15 that fit; ask with fewer or shorter options"#);
        let barely = head.sequence(&empty, last + 1, Overlong::CutState).unwrap();
        assert_eq!((barely.ids.len(), barely.ids[last]), (last + 1, 4));
        assert!(head.sequence(&empty, 0, Overlong::CutState).is_err());
    }

    #[test]
    fn budgets() {
        let long = json!({"type": "choice", "instructions": "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9",
            "criteria": {"a": "9 8 7 6 5 4 3 2 1 0", "b": "9 8 7 6 5 4 3 2 1 0"}});
        let roomy = head(&long, 200).stats;
        assert_eq!(
            (roomy.tokens_per_option, roomy.option_tokens_dropped, roomy.instruction_tokens_dropped),
            (None, 0, 0)
        );
        let tight = head(&long, 36).stats;
        assert_eq!(tight.tokens_per_option, Some(10));
        assert!(tight.option_tokens_dropped > 0 && tight.instruction_tokens_dropped > 0);
        for none in [0, 1, 16, 23] {
            let stats = head(&long, none).stats;
            assert_eq!((stats.tokens_per_option, stats.options_distinct), (Some(4), 2), "{none}");
        }
        insta::assert_snapshot!(State::new(&Value::Null).unwrap_err(), @"the state is null, expected a text, an object or a list");
    }
}
