//! 8-bit weights of linear layers, under fp32 arithmetic.
//!
//! Only matrices that linear layers alone read are quantized: they are nearly all of a model, and each output sums so
//! many products that the error of one level hardly shows. Kernels, norms, bounds and tables stay exact.

use super::bounds::readers;
use super::{Kept, PrecisionError, PrecisionReport, with_constants};
use crate::ir::{Edit, Graph, Node, Op, ValueId};
use crate::tensor::{DType, Fact};

/// Inputs that share a scale: 9 bits for a weight, scale included.
const BLOCK: usize = 32;

/// ```text
/// w = const w: f32[n,k]   =>   q = const w | quantize_blocks 32: i8[n,k]
///                              s = const w | block_scales 32: f32[n,k/32]
///                              w = dequantize(q, s): f32[n,k]
/// ```
pub(super) fn quantize_linears(graph: &Graph) -> Result<(Graph, PrecisionReport), PrecisionError> {
    let readers = readers(graph);
    let mut report = PrecisionReport::default();
    let quantized = with_constants(graph, |b, value, weight| {
        let path = &graph.node(value).path;
        let plain = readers.get(&value).map_or(&[][..], Vec::as_slice);
        if !plain.iter().any(|node| is_weight(node, value)) {
            return Ok(b.constant(path, weight.clone()));
        }
        if let Some(reason) = unfit(weight.fact(), plain, value) {
            report.kept_fp32.push(Kept { path: path.clone(), reason });
            return Ok(b.constant(path, weight.clone()));
        }
        let edited =
            |edit| weight.clone().edit(edit).map_err(|source| PrecisionError::Weight { path: path.clone(), source });
        let levels = b.constant(&format!("{path}.levels"), edited(Edit::QuantizeBlocks { block: BLOCK })?);
        let scales = b.constant(&format!("{path}.scales"), edited(Edit::BlockScales { block: BLOCK })?);
        report.compressed += 1;
        Ok(b.push(path, Op::Dequantize, &[levels, scales])?)
    })?;
    Ok((quantized, report))
}

/// Whether `node` is a linear layer with `value` as its weight.
fn is_weight(node: &Node, value: ValueId) -> bool {
    node.op == Op::Linear && node.args.get(1) == Some(&value)
}

/// Why a linear layer's weight cannot be quantized.
fn unfit(fact: &Fact, readers: &[&Node], value: ValueId) -> Option<String> {
    let k = fact.shape.dims().last().copied().unwrap_or(0);
    if fact.dtype != DType::F32 {
        return Some(format!("it is {}, expected f32", fact.dtype));
    }
    if !k.is_multiple_of(BLOCK) {
        return Some(format!("its {k} inputs are not a multiple of {BLOCK}"));
    }
    let alone = |node: &&&Node| node.op == Op::Linear && node.args.iter().filter(|arg| **arg == value).count() == 1;
    let other = readers.iter().find(|node| !(alone(node) && is_weight(node, value)))?;
    Some(format!("{} {} reads it too, as no weight of a linear layer", other.op.name(), other.path))
}
