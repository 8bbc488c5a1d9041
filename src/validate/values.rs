//! Rules on every value: rank, dtype, no fp32 in an fp16 graph, levels that are constants, nothing computed for nobody.

use super::{Violation, list};
use crate::ir::{Graph, Op};
use crate::target::Target;
use crate::tensor::DType;

pub(super) fn check(graph: &Graph, target: &Target, found: &mut Vec<Violation>) {
    let half = is_half(graph);
    let uses = graph.uses();
    for ((_, node), uses) in graph.nodes().zip(uses) {
        let (path, op, fact) = (&node.path, node.op.name(), &node.fact);
        let got = fact.shape.rank();
        if got > target.max_rank {
            let (path, shape) = (path.clone(), fact.shape.clone());
            found.push(Violation::Rank { path, got, max: target.max_rank, shape });
        }
        if !target.value_dtypes.contains(&fact.dtype) {
            let expected = list(target.value_dtypes);
            found.push(Violation::DType { path: path.clone(), found: fact.clone(), expected });
        }
        if half && fact.dtype == DType::F32 {
            found.push(Violation::Fp32InFp16 { path: path.clone(), op, found: fact.clone() });
        }
        // Levels are brought back to floats when a model is loaded, or as a part of the product that reads them.
        if node.op == Op::Dequantize
            && let Some(operand) = node.args.iter().find(|x| graph.constant(**x).is_none())
        {
            let operand = graph.node(*operand).path.clone();
            found.push(Violation::NotConstant { path: path.clone(), operand });
        }
        if uses == 0 {
            found.push(Violation::Unused { path: path.clone(), op });
        }
    }
}

/// Whether the graph is meant to compute in fp16: its float inputs are, or its float outputs where it takes no floats.
///
/// Forms that only store fp16 have fp32 inputs and outputs.
fn is_half(graph: &Graph) -> bool {
    let floats = |values: &mut dyn Iterator<Item = DType>| values.filter(|d| d.is_float()).collect::<Vec<_>>();
    let mut features = floats(&mut graph.inputs().iter().map(|v| graph.fact(*v).dtype));
    if features.is_empty() {
        features = floats(&mut graph.outputs().iter().map(|o| graph.fact(o.value).dtype));
    }
    !features.is_empty() && features.iter().all(|d| *d == DType::F16)
}
