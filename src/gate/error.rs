//! Why a gate could not judge. What it judged and found wanting is a verdict, not an error.

use super::TranscriptsError;
use crate::models::reader::HostRuleError;
use crate::tensor::Fact;
use std::error::Error;

/// Why a clip cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum GoldenError {
    #[error("there is no tensor {tensor}")]
    Missing { tensor: &'static str },
    #[error("{tensor} is {found}, expected {expected}")]
    Shape { tensor: &'static str, found: Fact, expected: String },
    #[error("{tensor} has a value that is not finite at element {index}")]
    NotFinite { tensor: &'static str, index: usize },
    #[error("margin is {value} at {index}, expected the best word's logit less the second's, 0 or more")]
    Margin { index: usize, value: f32 },
    #[error("{tensor} is {value} at {index}, expected ones and then zeros")]
    Mask { tensor: &'static str, index: usize, value: f32 },
    #[error("top1_index is {label} at {index}, and the reader's table has {rows} rows")]
    Label { index: usize, label: i32, rows: usize },
    #[error("no token is valid")]
    Empty,
    #[error(
        "features are not all zero in row {row}, past the {frames} frames that half_mask has at most; padding is 0, \
         not silence"
    )]
    Padding { row: usize, frames: usize },
    #[error(
        "features end after {rows} frames, and half_mask has {half} valid columns, which is {} or {} frames",
        half.saturating_mul(2).saturating_sub(1), half.saturating_mul(2)
    )]
    Frames { rows: usize, half: usize },
    #[error("n_tokens is {found}, and half_mask has {half} valid columns, which is {expected} tokens")]
    Tokens { found: i64, half: usize, expected: usize },
    #[error("{tensor} is {found} at element {index}, and the host makes {expected} of the golden's rows")]
    Input { tensor: &'static str, index: usize, found: f32, expected: f32 },
    #[error("its own labels cannot be read")]
    Labels(#[from] HostRuleError),
}

/// Why a gate could not judge.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum GateError<E: Error + 'static> {
    #[error("golden {clip} cannot be used")]
    Golden {
        clip: String,
        #[source]
        source: GoldenError,
    },
    #[error("clip {clip} was not run")]
    Run {
        clip: String,
        #[source]
        source: E,
    },
    #[error("{input} of the {model} is {found}, expected {expected}")]
    Input { model: &'static str, input: &'static str, found: String, expected: String },
    #[error("{output} of the {model} for clip {clip} is {found}, expected {expected}")]
    Output { model: &'static str, clip: String, output: &'static str, found: String, expected: String },
    #[error("the reader cannot take clip {clip}: it has {tokens} tokens, and the reader {length}")]
    TooLong { clip: String, tokens: usize, length: usize },
    #[error("the reference's reading of clip {clip} makes no words")]
    Reading {
        clip: String,
        #[source]
        source: HostRuleError,
    },
    #[error(transparent)]
    Transcripts(#[from] TranscriptsError),
}
