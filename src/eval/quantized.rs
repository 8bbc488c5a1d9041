//! Levels to floats.

use super::shape::dense;
use super::value::{Reading, tensor};
use candle_core::{Error, Tensor};
use rayon::prelude::*;

/// `q` times the scale of its block; on each axis a scale stands for as many levels as the extents say.
pub(super) fn dequantize(q: &Tensor, scale: Option<&Tensor>) -> Result<Tensor, Error> {
    let scale = scale.ok_or_else(|| Error::Msg("levels without scales".into()))?;
    let (dims, blocks) = (q.dims(), scale.dims());
    let (q, scale) = (dense(q)?, dense(scale)?);
    let (q, scale) = (Reading::of(&q), Reading::of(&scale));
    let (q, scale) = (q.floats()?.dense()?, scale.floats()?.dense()?);
    let (width, count) = (last(dims), last(blocks));
    let mut out = vec![0f32; q.len()];
    out.par_chunks_mut(width).zip(q.par_chunks(width)).enumerate().for_each(|(row, (out, q))| {
        let scales = &scale[row_of_scales(row, dims, blocks) * count..][..count];
        let parts = out.chunks_mut(width / count).zip(q.chunks(width / count)).zip(scales);
        parts.for_each(|((out, q), scale)| out.iter_mut().zip(q).for_each(|(o, q)| *o = q * scale));
    });
    tensor(out, dims)
}

fn last(dims: &[usize]) -> usize {
    dims.last().copied().unwrap_or(1)
}

/// Which row of the scales belongs to row number `row` of the levels.
fn row_of_scales(mut row: usize, dims: &[usize], blocks: &[usize]) -> usize {
    let (mut at, mut stride) = (0, 1);
    for (extent, count) in dims.iter().zip(blocks).rev().skip(1) {
        at += row % extent / (extent / count) * stride;
        row /= extent;
        stride *= count;
    }
    at
}
