//! Functions of one or two elements over a block of rows.

use super::block::Rows;
use super::math;
use crate::ir::{Binary, Unary};
use pulp::Arch;

/// `out = kind(x)`; rows of `width`.
pub(super) fn unary(kind: Unary, x: Rows<'_>, out: &mut [f32], width: usize) {
    Arch::new().dispatch(
        #[inline(always)]
        || match kind {
            Unary::Abs => map(f32::abs, x, out, width),
            Unary::Square => map(|v| v * v, x, out, width),
            Unary::Rsqrt => map(|v| 1.0 / v.sqrt(), x, out, width),
            Unary::Tanh => map(math::tanh, x, out, width),
            Unary::Sigmoid => map(math::sigmoid, x, out, width),
            Unary::Silu => map(|v| v * math::sigmoid(v), x, out, width),
            Unary::Gelu => map(math::gelu, x, out, width),
            Unary::GeluTanh => map(math::gelu_tanh, x, out, width),
            Unary::Relu => map(math::relu, x, out, width),
        },
    );
}

/// `out = kind(a, b)`; rows of `width`, an operand's row being that wide or one element.
pub(super) fn binary(kind: Binary, a: Rows<'_>, b: Rows<'_>, out: &mut [f32], width: usize) {
    Arch::new().dispatch(
        #[inline(always)]
        || match kind {
            Binary::Add => zip(|x, y| x + y, a, b, out, width),
            Binary::Sub => zip(|x, y| x - y, a, b, out, width),
            Binary::Mul => zip(|x, y| x * y, a, b, out, width),
            Binary::Div => zip(|x, y| x / y, a, b, out, width),
            Binary::Maximum => zip(maximum, a, b, out, width),
            Binary::Minimum => zip(|x, y| -maximum(-x, -y), a, b, out, width),
        },
    );
}

/// The larger of two; NaN where either is, unlike [`f32::max`], so that a NaN does not vanish in a clamp.
#[inline(always)]
pub(super) fn maximum(x: f32, y: f32) -> f32 {
    if x > y || x.is_nan() { x } else { y }
}

#[inline(always)]
fn map(f: impl Fn(f32) -> f32, x: Rows<'_>, out: &mut [f32], width: usize) {
    if x.dense(width) {
        map_row(&f, x.data, out);
    } else {
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            map_row(&f, x.row(i), row);
        }
    }
}

#[inline(always)]
fn map_row(f: &impl Fn(f32) -> f32, x: &[f32], out: &mut [f32]) {
    for (o, x) in out.iter_mut().zip(x) {
        *o = f(*x);
    }
}

#[inline(always)]
fn zip(f: impl Fn(f32, f32) -> f32, a: Rows<'_>, b: Rows<'_>, out: &mut [f32], width: usize) {
    match (a.dense(width), b.dense(width)) {
        (true, true) => zip_row(&f, a.data, b.data, out),
        (true, false) if b.one() => map_row(&|x| f(x, b.data[0]), a.data, out),
        (false, true) if a.one() => map_row(&|y| f(a.data[0], y), b.data, out),
        (true | false, true | false) => {
            for (i, row) in out.chunks_exact_mut(width).enumerate() {
                match (a.row(i), b.row(i)) {
                    ([x], [y]) => row.fill(f(*x, *y)),
                    (x, [y]) => map_row(&|x| f(x, *y), x, row),
                    ([x], y) => map_row(&|y| f(*x, y), y, row),
                    (x, y) => zip_row(&f, x, y, row),
                }
            }
        }
    }
}

#[inline(always)]
fn zip_row(f: &impl Fn(f32, f32) -> f32, a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((o, x), y) in out.iter_mut().zip(a).zip(b) {
        *o = f(*x, *y);
    }
}
