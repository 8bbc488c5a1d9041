//! Arithmetic and storage of a graph in another float dtype.

use crate::ir::{
    Binary, BuildError, Builder, Edit, FactError, Graph, MaterializeError, Materializer, Node, Op, ValueId, Weight,
};
use crate::tensor::{DType, Fact, WeightSource};
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// In which floats a graph computes and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything in fp16, inputs and outputs too: the form the Neural Engine runs.
    Fp16,
    /// Everything in fp32, as authored.
    Fp32,
}

impl Precision {
    /// Its name on the command line, in records and in artefact names.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::Fp16 => "fp16",
            Precision::Fp32 => "fp32",
        }
    }
}

/// What the pass did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PrecisionReport {
    /// Paths of clamp bounds that lie beyond fp16's range on every channel, so that they are no clamp there.
    pub dropped_bounds: Vec<String>,
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

/// ```text
/// x: f32; y = linear(x, w)   =>   x: f16; y = linear(x, w | cast f16)      for fp16
/// y = maximum(x, -1e30)      =>   y = x
/// ```
///
/// # Errors
/// A clamp bound cannot be read from `source`, or the graph does not hold together in the new dtype.
pub fn precision(
    graph: &Graph,
    to: Precision,
    source: &dyn WeightSource,
) -> Result<(Graph, PrecisionReport), PrecisionError> {
    match to {
        Precision::Fp32 => Ok((graph.clone(), PrecisionReport::default())),
        Precision::Fp16 => to_fp16(graph, source),
    }
}

/// What a constant is for, which decides how a value out of range is taken.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// A factor or addend: out of range is an error.
    Value,
    /// The bound of a clamp: out of range is the end of the range.
    Bound,
    /// A bound that no fp16 value reaches.
    NoBound,
}

fn to_fp16(graph: &Graph, source: &dyn WeightSource) -> Result<(Graph, PrecisionReport), PrecisionError> {
    let roles = roles(graph, source)?;
    let mut report = PrecisionReport::default();
    let mut b = Builder::new(graph.name());
    let mut moved: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (value, node) in graph.nodes() {
        let half = |fact: &Fact| Fact {
            dtype: if fact.dtype.is_float() { DType::F16 } else { fact.dtype },
            shape: fact.shape.clone(),
        };
        let args: Vec<ValueId> = node.args.iter().filter_map(|a| moved.get(a).copied()).collect();
        let new = match (&node.op, graph.constant(value)) {
            (Op::Input(name), _) => b.input(name, half(&node.fact))?,
            (_, Some(weight)) => match roles.get(&value) {
                Some(Role::NoBound) => {
                    report.dropped_bounds.push(node.path.clone());
                    continue;
                }
                role => b.constant(&node.path, to_half(weight, role, &node.path)?),
            },
            (Op::Binary(Binary::Maximum | Binary::Minimum), _) if args.len() == 1 => args[0],
            (op, _) => b.push(&node.path, op.clone(), &args)?,
        };
        moved.insert(value, new);
    }
    for output in graph.outputs() {
        if let Some(value) = moved.get(&output.value) {
            b.output(&output.name, *value);
        }
    }
    Ok((b.finish(), report))
}

fn to_half(weight: &Weight, role: Option<&Role>, path: &str) -> Result<Weight, PrecisionError> {
    if !weight.fact().dtype.is_float() {
        return Ok(weight.clone());
    }
    let edit = if role == Some(&Role::Bound) { Edit::Saturate(DType::F16) } else { Edit::Cast(DType::F16) };
    weight.clone().edit(edit).map_err(|source| PrecisionError::Weight { path: path.into(), source })
}

/// The role of every constant that is some clamp's bound.
fn roles(graph: &Graph, source: &dyn WeightSource) -> Result<BTreeMap<ValueId, Role>, PrecisionError> {
    let mut uses: BTreeMap<ValueId, Vec<&Node>> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        for arg in &node.args {
            uses.entry(*arg).or_default().push(node);
        }
    }
    let mut values = Materializer::new(source);
    let mut roles = BTreeMap::new();
    for (value, users) in uses {
        let Some(weight) = graph.constant(value) else { continue };
        let role = match clamp_of(&users) {
            None => Role::Value,
            Some(kind) => {
                let limit = f32::from(half::f16::MAX);
                let bounds = values.read_f32(weight)?;
                let open = bounds.iter().all(|b| if kind == Binary::Minimum { *b >= limit } else { *b <= -limit });
                if open { Role::NoBound } else { Role::Bound }
            }
        };
        roles.insert(value, role);
    }
    Ok(roles)
}

/// Maximum or minimum, where every user is that one clamp with this constant as its second operand.
fn clamp_of(users: &[&Node]) -> Option<Binary> {
    let kind = |n: &&Node| if let Op::Binary(k @ (Binary::Maximum | Binary::Minimum)) = n.op { Some(k) } else { None };
    let first = users.first().and_then(kind)?;
    users.iter().all(|n| kind(n) == Some(first)).then_some(first)
}
