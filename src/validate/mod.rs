//! Proof that a graph may be written or run: every rule a target's own tools let pass silently is checked here.
//!
//! Invariant: [`check`] alone makes a [`Checked`], so whoever takes one need not ask again. One file per kind of rule.
//!
//! Level 2: reads graphs and the rules of `target`; knows no writer.

mod constant;
mod features;
mod values;

#[cfg(test)]
mod tests;

use crate::ir::Graph;
use crate::target::{COREML8, NameFault, Target};
use crate::tensor::{DType, Fact, Shape};

/// A graph that passed [`check`]. Writers and the evaluator take nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'g> {
    graph: &'g Graph,
}

impl<'g> Checked<'g> {
    /// Any graph, for tests of what a stage refuses by itself.
    #[cfg(test)]
    pub(crate) fn unchecked(graph: &'g Graph) -> Checked<'g> {
        Checked { graph }
    }

    /// The graph that was checked.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }
}

/// One rule broken in one place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "path is the node's, name the feature's, side is input or output")]
pub enum Violation {
    #[error("the graph has no {side}")]
    NoFeature { side: &'static str },
    #[error("the name {name:?} of {what} {fault}")]
    Name { what: &'static str, name: String, fault: NameFault },
    #[error("the name {name:?} is given to two features, an {first} and an {second}; expected names of their own")]
    NameTwice { name: String, first: &'static str, second: &'static str },
    #[error("{side} {name:?} is {found}, expected a dtype of {expected}")]
    FeatureDType { side: &'static str, name: String, found: Fact, expected: String },
    #[error("{side} {name:?} is {found}, expected rank 1 or more: a feature without shape is not static")]
    FeatureScalar { side: &'static str, name: String, found: Fact },
    #[error("{path} is of rank {got}, expected {max} or less: {shape}")]
    Rank { path: String, got: usize, max: usize, shape: Shape },
    #[error("{path} is {found}, expected a dtype of {expected}")]
    DType { path: String, found: Fact, expected: String },
    #[error("fp32 value in an fp16 graph: {op} {path} is {found}, expected f16")]
    Fp32InFp16 { path: String, op: &'static str, found: Fact },
    #[error("dequantize {path} reads {operand}, which is computed, expected constants")]
    NotConstant { path: String, operand: String },
    #[error("{op} {path} is read by no node and no output")]
    Unused { path: String, op: &'static str },
    #[error("constant {path} holds {value:?}, expected a finite number within +-{limit:?} ({dtype})")]
    Magnitude { path: String, value: f64, dtype: DType, limit: f64 },
    #[error("constant {path} holds {value:?}, which becomes 0 in {dtype}")]
    Vanishes { path: String, value: f64, dtype: DType },
    #[error("constant {path} holds {value}, expected a whole number within {low}..={high} ({dtype})")]
    Integer { path: String, value: f64, dtype: DType, low: f64, high: f64 },
}

/// Checks `graph` against the rules of [`COREML8`].
///
/// # Errors
/// All violations at once: those of the features, then node by node.
pub fn check(graph: &Graph) -> Result<Checked<'_>, Vec<Violation>> {
    check_for(graph, &COREML8)
}

fn check_for<'g>(graph: &'g Graph, target: &Target) -> Result<Checked<'g>, Vec<Violation>> {
    let mut found = Vec::new();
    features::check(graph, target, &mut found);
    values::check(graph, target, &mut found);
    constant::check(graph, &mut found);
    if found.is_empty() { Ok(Checked { graph }) } else { Err(found) }
}

/// The names of `dtypes`, for messages.
fn list(dtypes: &[DType]) -> String {
    dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")
}
