//! Numbers written in the graph: each must exist in the dtype it is stored in. Values of tensors are checked where they
//! are read, one by one, while they stream.

use super::Violation;
use crate::ir::{Edit, Graph, Node, Source, Table, Weight};
use crate::tensor::DType;

pub(super) fn check(graph: &Graph, found: &mut Vec<Violation>) {
    for (value, node) in graph.nodes() {
        if let Some(weight) = graph.constant(value) {
            found.extend(stored(weight).into_iter().filter_map(|value| misfit(node, value)));
        }
    }
}

/// The numbers of a literal or table after all edits, as far as the graph alone says.
fn stored(weight: &Weight) -> Vec<f64> {
    let mut values = match weight.source() {
        Source::Tensor(_) => return Vec::new(),
        Source::Literal(values) => values.clone(),
        Source::Table(Table::CausalBand { value, .. }) => vec![*value],
        // A wave's own zeros and small values are as good when they are rounded to 0.
        Source::Table(Table::Rotary { .. }) => vec![1.0],
    };
    for edit in weight.edits() {
        match edit {
            // A product is taken of the f32 that the number was read as.
            Edit::Scale(factor) => values.iter_mut().for_each(|v| *v = f64::from(*v as f32) * factor),
            Edit::Exp => values.iter_mut().for_each(|v| *v = f64::from(*v as f32).exp()),
            // NaN stays NaN here, and is refused below.
            Edit::Saturate(dtype) => {
                let limit = largest(*dtype);
                values.iter_mut().for_each(|v| *v = v.clamp(-limit, limit));
            }
            // By how much these scale or sum is known only with the tensors; the rest moves values.
            Edit::ScaleRowsSoftplus { .. } | Edit::ProjectSinusoid { .. } => return Vec::new(),
            // Levels and scales of finite numbers are always in range.
            Edit::QuantizeBlocks { .. } | Edit::BlockScales { .. } => return Vec::new(),
            Edit::Repeat(_)
            | Edit::Row(_)
            | Edit::Rows { .. }
            | Edit::Transpose(_)
            | Edit::Reshape(_)
            | Edit::Cast(_) => {}
        }
    }
    values
}

fn misfit(node: &Node, value: f64) -> Option<Violation> {
    let (path, dtype) = (node.path.clone(), node.fact.dtype);
    if let Some((low, high)) = whole(dtype) {
        let fits = value.fract() == 0.0 && (low..=high).contains(&value);
        return (!fits).then_some(Violation::Integer { path, value, dtype, low, high });
    }
    let limit = largest(dtype);
    if value.is_nan() || value.abs() > limit {
        return Some(Violation::Magnitude { path, value, dtype, limit });
    }
    // An epsilon that is rounded to nothing guards nothing.
    (value != 0.0 && rounded(value, dtype) == 0.0).then_some(Violation::Vanishes { path, value, dtype })
}

/// The largest finite number of a float dtype. bf16 and f64 are no dtypes of a value; `values` says so.
fn largest(dtype: DType) -> f64 {
    if dtype == DType::F16 { f64::from(half::f16::MAX) } else { f64::from(f32::MAX) }
}

fn rounded(value: f64, dtype: DType) -> f64 {
    if dtype == DType::F16 { half::f16::from_f64(value).to_f64() } else { f64::from(value as f32) }
}

/// The range of an integer dtype, `None` for floats.
///
/// The ends of the 64-bit ranges are those of exactly held integers, since literals are f64.
fn whole(dtype: DType) -> Option<(f64, f64)> {
    const EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => None,
        DType::I64 => Some((-EXACT, EXACT)),
        DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
        DType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
        DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
        DType::U64 => Some((0.0, EXACT)),
        DType::U32 => Some((0.0, u32::MAX.into())),
        DType::U16 => Some((0.0, u16::MAX.into())),
        DType::U8 => Some((0.0, u8::MAX.into())),
        DType::Bool => Some((0.0, 1.0)),
    }
}
