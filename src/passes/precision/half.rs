//! Everything in fp16.

use super::bounds::{clamp_of, readers};
use super::{PrecisionError, PrecisionReport};
use crate::ir::{Binary, Builder, Edit, Graph, Materializer, Op, ValueId, Weight};
use crate::tensor::{DType, Fact, WeightSource};
use std::collections::BTreeMap;

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

/// ```text
/// x: f32; y = linear(x, w)   =>   x: f16; y = linear(x, w | cast f16)
/// y = maximum(x, -1e30)      =>   y = x
/// ```
pub(super) fn to_fp16(graph: &Graph, source: &dyn WeightSource) -> Result<(Graph, PrecisionReport), PrecisionError> {
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
    let mut values = Materializer::new(source);
    let mut roles = BTreeMap::new();
    for (value, readers) in readers(graph) {
        let Some(weight) = graph.constant(value) else { continue };
        let role = match clamp_of(&readers) {
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
