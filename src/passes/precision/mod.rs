//! Arithmetic and storage of a graph in other numbers. A graph is authored in fp32 and takes one of four forms; what
//! each does to constants is in a file of its own.

mod bounds;
mod half;
mod int8;
mod storage;

use crate::ir::{BuildError, Builder, FactError, Graph, MaterializeError, Op, ValueId, Weight};
use crate::tensor::WeightSource;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// In which numbers a graph computes and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything in fp16, inputs and outputs too: the form the Neural Engine runs.
    Fp16,
    /// Everything in fp32, as authored.
    Fp32,
    /// Constants of the weight file in fp16; arithmetic, inputs and outputs in fp32.
    Fp16W32,
    /// Weights of linear layers in 8-bit levels, a scale for each run of 32 inputs; all else as in fp32.
    Int8,
}

impl Precision {
    /// Every precision, in declaration order.
    pub const ALL: [Precision; 4] = [Precision::Fp16, Precision::Fp32, Precision::Fp16W32, Precision::Int8];

    /// Its name on the command line, in records and in artefact names.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::Fp16 => "fp16",
            Precision::Fp32 => "fp32",
            Precision::Fp16W32 => "fp16w32",
            Precision::Int8 => "int8",
        }
    }

    /// Why a graph in this precision forms no region of the Neural Engine; `None` for the one that can.
    ///
    /// The counts are those of the encoder port, on h16c.
    pub const fn no_region(self) -> Option<&'static str> {
        match self {
            Precision::Fp16 => None,
            Precision::Fp32 => Some("fp32 arithmetic forms no region"),
            Precision::Fp16W32 => Some("fp16 is storage only: its fp32 arithmetic forms no region"),
            Precision::Int8 => {
                Some("int8 is storage only: it compiles back to the size of fp32, whose arithmetic forms no region")
            }
        }
    }
}

/// What the pass did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PrecisionReport {
    /// Paths of clamp bounds that lie beyond fp16's range on every channel, so that they are no clamp there.
    pub dropped_bounds: Vec<String>,
    /// How many constants are stored in fewer bits than they are computed in.
    pub compressed: usize,
    /// Constants that are not, though others of their kind are.
    pub kept_fp32: Vec<Kept>,
}

/// A constant that stays as it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Why a graph could not be brought to another precision.
#[derive(Debug, thiserror::Error)]
pub enum PrecisionError {
    /// A clamp bound could not be read.
    #[error(transparent)]
    Values(#[from] MaterializeError<Infallible>),
    /// A node does not fit its operands any more.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A weight cannot take the edit.
    #[error("weight {path}: {source}")]
    Weight {
        /// The constant's path.
        path: String,
        /// What does not fit.
        source: FactError,
    },
}

/// The graph in that precision, and what was done for it. Weights stay references; of their values only clamp bounds
/// are read here, from `source`.
///
/// # Errors
/// A clamp bound cannot be read, or the graph does not hold together any more.
pub fn precision(
    graph: &Graph,
    to: Precision,
    source: &dyn WeightSource,
) -> Result<(Graph, PrecisionReport), PrecisionError> {
    match to {
        Precision::Fp32 => Ok((graph.clone(), PrecisionReport::default())),
        Precision::Fp16 => half::to_fp16(graph, source),
        Precision::Fp16W32 => storage::store_fp16(graph, source),
        Precision::Int8 => int8::quantize_linears(graph),
    }
}

/// `graph` with the value of each constant wired by `constant`, and every other node as it was.
fn with_constants(
    graph: &Graph,
    mut constant: impl FnMut(&mut Builder, ValueId, &Weight) -> Result<ValueId, PrecisionError>,
) -> Result<Graph, PrecisionError> {
    let mut b = Builder::new(graph.name());
    let mut moved: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (value, node) in graph.nodes() {
        let args: Vec<ValueId> = node.args.iter().filter_map(|a| moved.get(a).copied()).collect();
        let new = match (&node.op, graph.constant(value)) {
            (Op::Input(name), _) => b.input(name, node.fact.clone())?,
            (_, Some(weight)) => constant(&mut b, value, weight)?,
            (op, None) => b.push(&node.path, op.clone(), &args)?,
        };
        moved.insert(value, new);
    }
    for output in graph.outputs() {
        if let Some(value) = moved.get(&output.value) {
            b.output(&output.name, *value);
        }
    }
    Ok(b.finish())
}

#[cfg(test)]
mod tests;
