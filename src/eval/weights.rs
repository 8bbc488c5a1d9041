//! Weights that are a tensor as it is stored, which is what a package that was read back has: read by all cores at
//! once. Every other weight, and every error, is the materializer's.

use super::pool::Pool;
use super::rows::look;
use crate::ir::{Edit, Source, Weight};
use crate::tensor::{DType, WeightSource, round_f16};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that one task reads.
const CHUNK: usize = 1 << 16;

/// Elements `range` of the finished values of `weight`, or `None` where its edits change more than dtype and shape, where a read fails, or
/// where a value is not finite.
pub(super) fn read_plain(
    source: &dyn WeightSource,
    weight: &Weight,
    range: Range<usize>,
    pool: &mut Pool,
) -> Option<Vec<f32>> {
    let Source::Tensor(name) = weight.source() else { return None };
    let f16 = weight.fact().dtype == DType::F16;
    if !weight.fact().dtype.is_float() || !weight.edits().iter().all(keeps_values) {
        return None;
    }
    let mut values = pool.take(range.len());
    let failed = AtomicBool::new(false);
    values.par_chunks_mut(CHUNK).enumerate().for_each(|(at, out)| {
        let read = source.read_f32(name, range.start + at * CHUNK, out);
        if f16 {
            round_f16(out);
        }
        if read.is_err() || look(out).1 {
            failed.store(true, Ordering::Relaxed);
        }
    });
    (!failed.into_inner()).then_some(values)
}

fn keeps_values(edit: &Edit) -> bool {
    match edit {
        Edit::Cast(_) | Edit::Reshape(_) => true,
        Edit::Scale(_)
        | Edit::Exp
        | Edit::Rows { .. }
        | Edit::ScaleRowsSoftplus { .. }
        | Edit::Repeat(_)
        | Edit::ProjectSinusoid { .. }
        | Edit::Row(_)
        | Edit::Transpose(_)
        | Edit::Saturate(_)
        | Edit::QuantizeBlocks { .. }
        | Edit::BlockScales { .. } => false,
    }
}
