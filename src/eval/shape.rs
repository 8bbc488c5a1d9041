//! Ops that move elements: free as views where the layout allows it, else a copy of rows.

use super::block::Rows;
use super::value::{Floats, Reading, is_float, tensor};
use candle_core::{Error, Tensor};
use rayon::prelude::*;

/// Rows of a transposed value that are filled together: the 16 floats of one cache line.
const LINE: usize = 16;

/// Elements of a parallel chunk of output rows.
const CHUNK: usize = 1 << 14;

/// The operands' rows one after the other.
pub(super) fn concat_rows<'a>(operands: impl Iterator<Item = Rows<'a>>, out: &mut [f32], width: usize) {
    let mut start = 0;
    for x in operands {
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            row[start..start + x.width].copy_from_slice(x.row(i));
        }
        start += x.width;
    }
}

/// Elements `begin..begin + width` of each row.
pub(super) fn slice_rows(x: Rows<'_>, begin: usize, out: &mut [f32], width: usize) {
    for (i, row) in out.chunks_exact_mut(width).enumerate() {
        row.copy_from_slice(&x.row(i)[begin..begin + width]);
    }
}

/// The rows as they are.
pub(super) fn copy_rows(x: Rows<'_>, out: &mut [f32], width: usize) {
    slice_rows(x, 0, out, width);
}

/// `x` with its elements in row-major order; itself where they are.
pub(super) fn dense(x: &Tensor) -> Result<Tensor, Error> {
    if x.is_contiguous() || !is_float(x) {
        return x.contiguous();
    }
    let reading = Reading::of(x);
    let view = reading.floats()?;
    let mut out = vec![0f32; x.elem_count()];
    let (dims, strides) = (view.dims(), view.strides());
    match (dims, strides) {
        ([outer @ .., rows, width], [outer_strides @ .., 1, step]) if *step > 1 => {
            let matrix = rows * width;
            out.par_chunks_mut(matrix).enumerate().for_each(|(at, out)| {
                let base = view.offset() + position(at, outer, outer_strides);
                out.par_chunks_mut(LINE * width).enumerate().for_each(|(strip, out)| {
                    transpose_strip(&view.data()[base + strip * LINE..], *step, *width, out);
                });
            });
        }
        _ => pull_rows(dims, &mut out, |index, row| copy_row(&view, index, row)),
    }
    tensor(out, x.dims())
}

/// Fills up to [`LINE`] rows of `width`: row `r`, element `i` is `from[r + i * step]`.
fn transpose_strip(from: &[f32], step: usize, width: usize, out: &mut [f32]) {
    let rows = out.len() / width;
    for i in 0..width {
        let line = &from[i * step..][..rows];
        for (r, v) in line.iter().enumerate() {
            out[r * width + i] = *v;
        }
    }
}

/// Offset of the `index`-th position of `dims` under `strides`.
fn position(mut index: usize, dims: &[usize], strides: &[usize]) -> usize {
    let mut offset = 0;
    for (extent, stride) in dims.iter().zip(strides).rev() {
        offset += index % extent * stride;
        index /= extent;
    }
    offset
}

/// Calls `f(index of the leading axes, row)` for every row of a dense value of extents `dims`.
fn pull_rows(dims: &[usize], out: &mut [f32], f: impl Fn(&[usize], &mut [f32]) + Sync) {
    let Some((&width, lead)) = dims.split_last() else {
        return f(&[], out);
    };
    let rows = (CHUNK / width).max(1);
    out.par_chunks_mut(rows * width).enumerate().for_each(|(chunk, out)| {
        let mut index = vec![0usize; lead.len()];
        let mut rest = chunk * rows;
        for (i, extent) in index.iter_mut().zip(lead).rev() {
            *i = rest % extent;
            rest /= extent;
        }
        for row in out.chunks_exact_mut(width) {
            f(&index, row);
            for (i, extent) in index.iter_mut().zip(lead).rev() {
                *i += 1;
                if *i < *extent {
                    break;
                }
                *i = 0;
            }
        }
    });
}

/// Row `index` of `view`, whatever its strides.
fn copy_row(view: &Floats<'_>, index: &[usize], out: &mut [f32]) {
    let start = view.offset() + index.iter().zip(view.strides()).map(|(i, s)| i * s).sum::<usize>();
    match view.strides().last() {
        Some(&step) if step != 1 => {
            out.iter_mut().enumerate().for_each(|(i, o)| *o = view.data()[start + i * step]);
        }
        Some(_) | None => out.copy_from_slice(&view.data()[start..][..out.len()]),
    }
}

/// Zeros around `x`.
pub(super) fn pad(x: &Tensor, amount: &[[usize; 2]]) -> Result<Tensor, Error> {
    if !is_float(x) {
        return amount
            .iter()
            .enumerate()
            .try_fold(x.clone(), |x, (axis, [before, after])| x.pad_with_zeros(axis, *before, *after));
    }
    let dims: Vec<usize> = x.dims().iter().zip(amount).map(|(d, [before, after])| d + before + after).collect();
    let mut out = vec![0f32; dims.iter().product()];
    let reading = Reading::of(x);
    let view = reading.floats()?;
    let left = amount.last().map_or(0, |a| a[0]);
    pull_rows(&dims, &mut out, |index, row| {
        let inside = |((i, [before, _]), d): ((&usize, &[usize; 2]), &usize)| i.checked_sub(*before).filter(|i| i < d);
        let from: Option<Vec<usize>> = index.iter().zip(amount).zip(view.dims()).map(inside).collect();
        if let Some(from) = from {
            copy_row(&view, &from, &mut row[left..left + view.width()]);
        }
    });
    tensor(out, &dims)
}

/// All of `operands` one after the other along `axis`.
pub(super) fn concat(operands: &[Tensor], axis: usize) -> Result<Tensor, Error> {
    let float = operands.iter().all(is_float);
    let [first, ..] = operands else { return Err(Error::Msg("concat of nothing".into())) };
    if !float || axis + 1 == first.rank() {
        return Tensor::cat(operands, axis);
    }
    let mut dims = first.dims().to_vec();
    dims[axis] = operands.iter().map(|x| x.dims()[axis]).sum();
    let readings: Vec<Reading<'_>> = operands.iter().map(Reading::of).collect();
    let views = readings.iter().map(Reading::floats).collect::<Result<Vec<_>, _>>()?;
    let mut out = vec![0f32; dims.iter().product()];
    pull_rows(&dims, &mut out, |index, row| {
        let mut index = index.to_vec();
        for view in &views {
            if index[axis] < view.dims()[axis] {
                return copy_row(view, &index, row);
            }
            index[axis] -= view.dims()[axis];
        }
    });
    tensor(out, &dims)
}

/// A cut of `x`, as a view.
pub(super) fn slice(x: &Tensor, begin: &[usize], end: &[usize]) -> Result<Tensor, Error> {
    begin.iter().zip(end).enumerate().try_fold(x.clone(), |x, (axis, (b, e))| x.narrow(axis, *b, e - b))
}
