//! fp16 storage under fp32 arithmetic.
//!
//! A constant that goes to the weight file is rounded to fp16 there and brought back to fp32 in the graph. A smaller one
//! saves nothing and stays exact. A bound of a clamp is rounded as well, unless a value of it has no finite fp16
//! counterpart: the clamp is computed in fp32, where that bound still bounds, so it must be neither dropped nor moved to
//! the end of fp16's range, and stays fp32. For any other constant such a value is the error that the fp16 form gives,
//! when the weight is read: a model whose weights leave fp16's range has no form with fp16 weights.

use super::bounds::{clamp_of, readers};
use super::{Kept, PrecisionError, PrecisionReport, with_constants};
use crate::ir::{Edit, Graph, Materializer, Op};
use crate::target::WEIGHT_FILE_FROM;
use crate::tensor::{DType, WeightSource};

/// ```text
/// w = const w: f32[n,k]   =>   h = const w | cast f16: f16[n,k]; w = cast(h): f32[n,k]
/// ```
pub(super) fn store_fp16(graph: &Graph, source: &dyn WeightSource) -> Result<(Graph, PrecisionReport), PrecisionError> {
    let readers = readers(graph);
    let mut values = Materializer::new(source);
    let mut report = PrecisionReport::default();
    let stored = with_constants(graph, |b, value, weight| {
        let (path, fact) = (&graph.node(value).path, weight.fact());
        if fact.dtype != DType::F32 || fact.shape.elements() < WEIGHT_FILE_FROM {
            return Ok(b.constant(path, weight.clone()));
        }
        if readers.get(&value).is_some_and(|r| clamp_of(r).is_some())
            && let Some(beyond) = values.read_f32(weight)?.into_iter().find(|v| !half::f16::from_f32(*v).is_finite())
        {
            let reason = format!("{beyond} is a bound beyond fp16's range");
            report.kept_fp32.push(Kept { path: path.clone(), reason });
            return Ok(b.constant(path, weight.clone()));
        }
        let unfit = |source| PrecisionError::Weight { path: path.clone(), source };
        let half = weight.clone().edit(Edit::Cast(DType::F16)).map_err(unfit)?;
        let half = b.constant(&format!("{path}.fp16"), half);
        report.compressed += 1;
        Ok(b.push(path, Op::Cast(DType::F32), &[half])?)
    })?;
    Ok((stored, report))
}
