//! Reductions and softmax, over rows of a block or over an outer axis of a whole value. Sums are f32 in many partial
//! sums, so their error grows with the row length over the number of lanes.

use super::block::Rows;
use super::elementwise::maximum;
use super::math;
use crate::ir::Reduce;
use pulp::Arch;
use rayon::prelude::*;

/// Partial results of a row: two of the widest vector registers.
const LANES: usize = 32;

/// Elements of an outer-axis block: small enough that the partial results stay in the first-level cache.
const INNER_BLOCK: usize = 2048;

/// One number for each row of `x`.
pub(super) fn rows(kind: Reduce, x: Rows<'_>, out: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || match kind {
            Reduce::Sum => each(x, out, |row| fold(row, |a, v| a + v)),
            Reduce::Mean => each(x, out, |row| fold(row, |a, v| a + v) / row.len() as f32),
            Reduce::Max => each(x, out, |row| fold(row, maximum)),
        },
    );
}

#[inline(always)]
fn each(x: Rows<'_>, out: &mut [f32], f: impl Fn(&[f32]) -> f32) {
    for (i, o) in out.iter_mut().enumerate() {
        *o = f(x.row(i));
    }
}

/// Folds a row of one element or more, starting from its own elements: no identity, so a maximum never starts at 0.
#[inline(always)]
fn fold(row: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let Some((first, chunks)) = chunks.split_first() else {
        return rest.iter().copied().reduce(f).unwrap_or(0.0);
    };
    let mut lanes = *first;
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = f(*lane, *v);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = f(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    rest.iter().fold(lanes[0], |a, v| f(a, *v))
}

/// Softmax of each row, its maximum taken off first.
pub(super) fn softmax_rows(x: Rows<'_>, out: &mut [f32], width: usize) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (i, row) in out.chunks_exact_mut(width).enumerate() {
                let x = x.row(i);
                let max = fold(x, maximum);
                row.iter_mut().zip(x).for_each(|(o, v)| *o = v - max);
            }
            out.iter_mut().for_each(|v| *v = math::exp(*v));
            for row in out.chunks_exact_mut(width) {
                let sum = fold(row, |a, v| a + v);
                row.iter_mut().for_each(|v| *v /= sum);
            }
        },
    );
}

/// Reduces the middle of `x [outer, n, inner]`, dense, to `[outer, inner]`.
pub(super) fn axis(kind: Reduce, x: &[f32], n: usize, inner: usize) -> Vec<f32> {
    let mut out = vec![0f32; x.len() / n];
    over_blocks(x, &mut out, n, inner, |slab, at, out| {
        let step = |lane: &[f32], out: &mut [f32]| match kind {
            Reduce::Sum | Reduce::Mean => out.iter_mut().zip(lane).for_each(|(o, v)| *o += v),
            Reduce::Max => out.iter_mut().zip(lane).for_each(|(o, v)| *o = maximum(*o, *v)),
        };
        out.copy_from_slice(&slab[at..][..out.len()]);
        for i in 1..n {
            step(&slab[i * inner + at..][..out.len()], out);
        }
        if kind == Reduce::Mean {
            out.iter_mut().for_each(|v| *v /= n as f32);
        }
    });
    out
}

/// Runs `f(slab [n, inner], at, out)` for each block `at..` of the inner axis.
fn over_blocks<T: Send>(x: &[f32], out: &mut [T], n: usize, inner: usize, f: impl Fn(&[f32], usize, &mut [T]) + Sync) {
    out.par_chunks_mut(inner).zip(x.par_chunks(n * inner)).for_each(|(out, slab)| {
        out.par_chunks_mut(INNER_BLOCK).enumerate().for_each(|(block, out)| {
            Arch::new().dispatch(
                #[inline(always)]
                || f(slab, block * INNER_BLOCK, out),
            );
        });
    });
}

/// Softmax over the middle of `x [outer, n, inner]`, dense.
pub(super) fn axis_softmax(x: &[f32], n: usize, inner: usize) -> Vec<f32> {
    let max = axis(Reduce::Max, x, n, inner);
    let mut out = x.to_vec();
    let lanes = out.par_chunks_mut(n * inner).zip(max.par_chunks(inner));
    lanes.for_each(|(slab, max)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for row in slab.chunks_exact_mut(inner) {
                    row.iter_mut().zip(max).for_each(|(v, max)| *v = math::exp(*v - max));
                }
            },
        );
    });
    let sum = axis(Reduce::Sum, &out, n, inner);
    out.par_chunks_mut(n * inner).zip(sum.par_chunks(inner)).for_each(|(slab, sum)| {
        for row in slab.chunks_exact_mut(inner) {
            row.iter_mut().zip(sum).for_each(|(v, sum)| *v /= sum);
        }
    });
    out
}

/// The largest number of a sequence, and the index where it is first.
#[derive(Clone, Copy)]
pub(super) struct First {
    pub value: f32,
    pub at: i32,
}

impl Default for First {
    /// What any sequence begins with: nothing is smaller, and what is as small is first at 0.
    fn default() -> First {
        First { value: f32::NEG_INFINITY, at: 0 }
    }
}

/// Whether `v` is larger than `best`; a NaN is larger than all numbers.
#[inline(always)]
fn exceeds(v: f32, best: f32) -> bool {
    (v > best) | (v.is_nan() & !best.is_nan())
}

impl First {
    #[inline(always)]
    fn meet(&mut self, value: f32, at: i32) {
        let better = exceeds(value, self.value);
        self.value = if better { value } else { self.value };
        self.at = if better { at } else { self.at };
    }
}

/// The first largest number of a row.
#[inline(always)]
fn first_of_row(row: &[f32]) -> First {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [First::default().value; LANES];
    let mut chunk_of = [0i32; LANES];
    for (number, chunk) in (0i32..).zip(chunks) {
        for i in 0..LANES {
            let better = exceeds(chunk[i], lanes[i]);
            lanes[i] = if better { chunk[i] } else { lanes[i] };
            chunk_of[i] = if better { number } else { chunk_of[i] };
        }
    }
    let mut first = First::default();
    if !chunks.is_empty() {
        for (i, (&value, chunk)) in (0i32..).zip(lanes.iter().zip(chunk_of)) {
            let at = chunk * LANES as i32 + i;
            let earlier = !exceeds(first.value, value) && at < first.at;
            if exceeds(value, first.value) || earlier {
                first = First { value, at };
            }
        }
    }
    for (at, value) in (chunks.len() as i32 * LANES as i32..).zip(rest) {
        first.meet(*value, at);
    }
    first
}

/// Takes rows of `n` into the first largest of longer ones, of which they begin at `start`.
pub(super) fn first_of_rows(x: &[f32], n: usize, start: usize, best: &mut [First]) {
    best.par_iter_mut().zip(x.par_chunks(n)).for_each(|(best, row)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let first = first_of_row(row);
                best.meet(first.value, start as i32 + first.at);
            },
        );
    });
}

/// Index of the first largest number along the middle of `x [outer, n, inner]`, dense; a NaN counts as the largest.
pub(super) fn axis_argmax(x: &[f32], n: usize, inner: usize) -> Vec<i32> {
    let mut best = vec![First::default(); x.len() / n];
    if inner == 1 {
        first_of_rows(x, n, 0, &mut best);
    } else {
        over_blocks(x, &mut best, n, inner, |slab, at, best| {
            for i in 0..n {
                let lane = &slab[i * inner + at..][..best.len()];
                best.iter_mut().zip(lane).for_each(|(best, v)| best.meet(*v, i as i32));
            }
        });
    }
    best.into_iter().map(|first| first.at).collect()
}
