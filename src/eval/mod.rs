//! An interpreter over checked graphs: what a graph computes, in f32, or with every op's result rounded to f16.
//!
//! Invariants: arithmetic is f32, and an f16 result is rounded once, after its op; no value is computed before a
//! weight it needs is read, and none outlives its last reader, so neither a model nor all activations are ever held.
//! candle is the tensor library: its layouts make views free and its matrix products are the time that counts. What
//! lies between two products runs as row programs (`plan`, `rows`), because one pass over memory per op, which is
//! what a tensor library gives, would cost more than the products.
//!
//! Level 4: reads graphs and weights; knows no writer and no bundle.

mod accuracy;
mod block;
mod elementwise;
mod host;
mod inputs;
mod math;
mod matrix;
mod metrics;
mod plan;
mod pool;
mod quantized;
mod reduce;
mod rows;
mod run;
mod shape;
#[cfg(test)]
mod tests;
mod top;
mod value;
mod weights;
mod wer;

pub use accuracy::{Accuracy, accuracy};
pub use host::{HostError, HostTensor, Values};
pub use inputs::fit;
pub use metrics::{Comparison, MetricError, compare};
pub use run::Evaluator;
pub use wer::{WordErrors, word_errors};

use crate::ir::MaterializeError;
use crate::tensor::{DType, Fact, NotRepresentable};
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// How a graph is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Rounds inputs, weights and every op's result to f16 though the graph says f32.
    pub round_f16: bool,
    /// Looks at every value: fills [`Report::peaks`].
    pub trace: bool,
    /// Measures: fills [`Report::seconds`].
    pub profile: bool,
}

/// What happened during an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Inputs that were of another float dtype than declared.
    pub casts: Vec<InputCast>,
    /// The first node with a NaN or an infinity, where an output holds one, or any value under [`Options::trace`].
    pub non_finite: Option<NonFinite>,
    /// Largest finite absolute value of each node, in graph order; with [`Options::trace`].
    pub peaks: Vec<Peak>,
    /// Wall seconds by op name, and `const` for reading weights; with [`Options::profile`].
    pub seconds: BTreeMap<&'static str, f64>,
}

/// An input whose values were cast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputCast {
    /// Its name.
    pub input: String,
    /// Dtype of the values given.
    pub from: DType,
    /// Dtype the graph declares.
    pub to: DType,
}

/// A node whose result is not finite everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NonFinite {
    /// Its path.
    pub path: String,
    /// Its op.
    pub op: &'static str,
}

/// How large a node's values are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Its path.
    pub path: String,
    /// Its op.
    pub op: &'static str,
    /// Largest finite absolute value.
    pub peak: f32,
}

/// Why a graph was not evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// An input of the graph was not given.
    #[error("input {input} is missing; the graph takes {expected}")]
    Missing {
        /// Its name.
        input: String,
        /// All inputs of the graph with their facts.
        expected: String,
    },
    /// A tensor was given that the graph has no input for.
    #[error("there is no input {input}; the graph takes {expected}")]
    Unknown {
        /// The name given.
        input: String,
        /// All inputs of the graph with their facts.
        expected: String,
    },
    /// An input of another shape, or of a dtype that is not cast.
    #[error("input {input} is {found}, expected {expected}")]
    Input {
        /// Its name.
        input: String,
        /// What was given.
        found: Fact,
        /// What the graph declares.
        expected: Fact,
    },
    /// An input value that the declared dtype cannot hold.
    #[error("input {input} cannot be cast from {from}")]
    Cast {
        /// Its name.
        input: String,
        /// Dtype of the values given.
        from: DType,
        /// Which value.
        source: NotRepresentable,
    },
    /// A weight could not be made.
    #[error("weight {path}")]
    Weight {
        /// Path of its node.
        path: String,
        /// Why.
        source: MaterializeError<Infallible>,
    },
    /// A dtype the interpreter does not compute in.
    #[error("{op} at {path} is {found}, expected f32, f16 or i32")]
    Unsupported {
        /// Path of the node.
        path: String,
        /// Its op.
        op: &'static str,
        /// Its fact.
        found: Fact,
    },
    /// The tensor library refused an op.
    #[error("{op} at {path}")]
    Tensor {
        /// Path of the node.
        path: String,
        /// Its op.
        op: &'static str,
        /// What it said.
        source: candle_core::Error,
    },
    /// A result that is no host tensor.
    #[error("output {output}")]
    Output {
        /// Its name.
        output: String,
        /// Why.
        source: HostError,
    },
}
