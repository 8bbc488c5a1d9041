//! Products with a weight. Matrix products are candle's, straight from the weight as it is stored; convolutions are
//! brought to them, and depthwise ones have a loop of their own, since candle runs one product per group.

use super::shape::dense;
use super::value::{Reading, tensor};
use crate::ir::ConvSpec;
use candle_core::{Error, Tensor};
use pulp::Arch;
use rayon::prelude::*;

/// Elements of the unfolded operand a dense convolution makes at a time.
const UNFOLDED: usize = 1 << 20;

/// Output rows of a depthwise convolution that one task makes.
const ROWS: usize = 16;

/// `x [.., k]` times the transpose of `weight [n, k]`, plus `bias [n]`.
pub(super) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let (n, k) = weight.dims2()?;
    let mut dims = x.dims().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = n;
    }
    let x = dense(x)?.reshape((x.elem_count() / k, k))?;
    let y = x.matmul(&dense(weight)?.t()?)?;
    match bias {
        Some(bias) => y.broadcast_add(bias)?.reshape(dims),
        None => y.reshape(dims),
    }
}

/// `x [.., m, k]` times `y [.., k, n]`, one product for each position of the leading axes.
pub(super) fn matmul(x: &Tensor, y: &Tensor) -> Result<Tensor, Error> {
    let mut dims = x.dims().to_vec();
    if let (Some(last), Some(n)) = (dims.last_mut(), y.dims().last()) {
        *last = *n;
    }
    batches(x)?.matmul(&batches(y)?)?.reshape(dims)
}

/// `x [n, c, h, w]` times `y [n, w, h, u]`: a product for each `n` and `h`, whose axes stand before the matrices meanwhile.
pub(super) fn einsum(x: &Tensor, y: &Tensor) -> Result<Tensor, Error> {
    const TURN: (usize, usize, usize, usize) = (0, 2, 1, 3);
    matmul(&x.permute(TURN)?, &y.permute(TURN)?)?.permute(TURN)
}

/// `x` with at most one axis before its matrices, which a product then takes with whatever strides they have: heads
/// are read where they lie. Copied only where several axes do not merge into one.
fn batches(x: &Tensor) -> Result<Tensor, Error> {
    let mut x = x.clone();
    for axis in (0..x.rank().saturating_sub(2)).rev() {
        if x.dims()[axis] == 1 {
            x = x.squeeze(axis)?;
        }
    }
    match x.dims() {
        [outer @ .., m, k] if outer.len() > 1 => {
            let dims = (outer.iter().product::<usize>(), *m, *k);
            dense(&x)?.reshape(dims)
        }
        _ => Ok(x),
    }
}

/// One spatial axis of a convolution.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    before: usize,
    out: usize,
}

impl Axis {
    const ONE: Axis = Axis { size: 1, kernel: 1, stride: 1, before: 0, out: 1 };

    /// The operand position under output `o` and tap `k`, where there is one.
    #[inline(always)]
    fn at(&self, o: usize, k: usize) -> Option<usize> {
        (o * self.stride + k).checked_sub(self.before).filter(|i| *i < self.size)
    }

    /// Copies to each output what lies under tap `k`, leaving those outside the operand as they are.
    #[inline(always)]
    fn under_tap(&self, k: usize, line: &[f32], out: &mut [f32]) {
        let first = self.before.saturating_sub(k).div_ceil(self.stride);
        let Some(start) = self.at(first, k) else { return };
        match out.get_mut(first..) {
            Some(out) if self.stride == 1 => {
                let n = out.len().min(self.size - start);
                out[..n].copy_from_slice(&line[start..start + n]);
            }
            Some(out) => out.iter_mut().zip(line[start..].iter().step_by(self.stride)).for_each(|(o, v)| *o = *v),
            None => {}
        }
    }

    fn plain(&self) -> bool {
        self.kernel == 1 && self.stride == 1 && self.out == self.size
    }
}

/// Cross-correlation of `x [n, c, *d]` with `weight [o, c / groups, *k]`, plus `bias [o]`.
pub(super) fn conv(spec: &ConvSpec, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let mut axes: Vec<Axis> = (0..spec.stride.len())
        .map(|i| {
            let (size, kernel) = (x.dims()[i + 2], weight.dims()[i + 2]);
            let ([before, after], stride) = (spec.pad[i], spec.stride[i]);
            Axis { size, kernel, stride, before, out: (size + before + after - kernel) / stride + 1 }
        })
        .collect();
    let line = axes.len() == 1;
    let (x, weight) = if line {
        axes.insert(0, Axis::ONE);
        (x.unsqueeze(2)?, dense(weight)?.unsqueeze(2)?)
    } else {
        (x.clone(), dense(weight)?)
    };
    let [h, w] = [axes[0], axes[1]];
    let y = if spec.groups > 1 && weight.dims()[1] == 1 {
        depthwise(&x, &weight, spec.groups, h, w)?
    } else {
        grouped(&x, &weight, spec.groups, h, w)?
    };
    let y = if line { y.squeeze(2)? } else { y };
    match bias {
        Some(bias) => {
            let shape: Vec<usize> = (0..y.rank()).map(|i| if i == 1 { y.dims()[1] } else { 1 }).collect();
            y.broadcast_add(&bias.reshape(shape)?)
        }
        None => Ok(y),
    }
}

/// Each group a matrix product of the weight `[o, c * kh * kw]` with the unfolded operand, some output rows at a time.
fn grouped(x: &Tensor, weight: &Tensor, groups: usize, h: Axis, w: Axis) -> Result<Tensor, Error> {
    let (batch, _, _, _) = x.dims4()?;
    let (outs, c, _, _) = weight.dims4()?;
    let (o, k, plane) = (outs / groups, c * h.kernel * w.kernel, h.out * w.out);
    let x = dense(x)?;
    let mut out = vec![0f32; batch * outs * plane];
    for (at, out) in out.chunks_exact_mut(o * plane).enumerate() {
        let (n, group) = (at / groups, at % groups);
        let x = x.narrow(0, n, 1)?.narrow(1, group * c, c)?;
        let weight = weight.narrow(0, group * o, o)?.reshape((o, k))?;
        if h.plain() && w.plain() {
            copy_columns(&weight.matmul(&x.reshape((c, plane))?)?, out, plane, 0)?;
            continue;
        }
        let rows = (UNFOLDED / (k * w.out)).clamp(1, h.out);
        for first in (0..h.out).step_by(rows) {
            let rows = rows.min(h.out - first);
            let unfolded = unfold(&x, first, rows, h, w)?;
            copy_columns(&weight.matmul(&unfolded)?, out, plane, first * w.out)?;
        }
    }
    tensor(out, &[batch, outs, h.out, w.out])
}

/// Copies `part [o, n]` to columns `at..at + n` of `out [o, plane]`.
fn copy_columns(part: &Tensor, out: &mut [f32], plane: usize, at: usize) -> Result<(), Error> {
    let n = part.dims()[1];
    let reading = Reading::of(part);
    let part = reading.floats()?.dense()?;
    out.par_chunks_mut(plane).zip(part.par_chunks(n)).for_each(|(out, part)| out[at..at + n].copy_from_slice(part));
    Ok(())
}

/// `[c * kh * kw, rows * w.out]`: what each weight element meets at each output of rows `first..first + rows`.
fn unfold(x: &Tensor, first: usize, rows: usize, h: Axis, w: Axis) -> Result<Tensor, Error> {
    let (_, c, _, _) = x.dims4()?;
    let reading = Reading::of(x);
    let x = reading.floats()?.dense()?;
    let (k, columns) = (c * h.kernel * w.kernel, rows * w.out);
    let mut out = vec![0f32; k * columns];
    out.par_chunks_mut(columns).enumerate().for_each(|(at, out)| {
        let (channel, kh, kw) = (at / (h.kernel * w.kernel), at / w.kernel % h.kernel, at % w.kernel);
        for (row, out) in out.chunks_exact_mut(w.out).enumerate() {
            let Some(i) = h.at(first + row, kh) else { continue };
            let line = &x[(channel * h.size + i) * w.size..][..w.size];
            w.under_tap(kw, line, out);
        }
    });
    tensor(out, &[k, columns])
}

/// One or more output channels per operand channel, computed with the channel innermost, where taps are products of
/// whole rows. The result is a view in the usual order, so that a transpose behind it costs nothing.
fn depthwise(x: &Tensor, weight: &Tensor, groups: usize, h: Axis, w: Axis) -> Result<Tensor, Error> {
    let (batch, c, _, _) = x.dims4()?;
    let outs = weight.dims()[0];
    let each = outs / groups;
    let x = dense(&x.permute((0, 2, 3, 1))?)?;
    // [kh, kw, outs]
    let taps = dense(&weight.reshape((outs, h.kernel * w.kernel))?.t()?)?;
    let (x, taps) = (Reading::of(&x), Reading::of(&taps));
    let (x, taps) = (x.floats()?.dense()?, taps.floats()?.dense()?);
    let mut out = vec![0f32; batch * h.out * w.out * outs];
    out.par_chunks_mut(outs * ROWS).enumerate().for_each(|(chunk, out)| {
        for (row, out) in out.chunks_exact_mut(outs).enumerate() {
            let at = chunk * ROWS + row;
            let (n, oh, ow) = (at / (h.out * w.out), at / w.out % h.out, at % w.out);
            for (tap, weight) in taps.chunks_exact(outs).enumerate() {
                if let (Some(i), Some(j)) = (h.at(oh, tap / w.kernel), w.at(ow, tap % w.kernel)) {
                    multiply_add(&x[((n * h.size + i) * w.size + j) * c..][..c], weight, each, out);
                }
            }
        }
    });
    tensor(out, &[batch, h.out, w.out, outs])?.permute((0, 3, 1, 2))
}

/// `out[o] += x[o / each] * weight[o]`.
fn multiply_add(x: &[f32], weight: &[f32], each: usize, out: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            if each == 1 {
                out.iter_mut().zip(x).zip(weight).for_each(|((o, x), w)| *o += x * w);
            } else {
                let pairs = out.chunks_exact_mut(each).zip(weight.chunks_exact(each)).zip(x);
                pairs.for_each(|((o, w), x)| o.iter_mut().zip(w).for_each(|(o, w)| *o += x * w));
            }
        },
    );
}
