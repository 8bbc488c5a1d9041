//! Pieces that several models are made of.

use crate::checkpoint::{Scope, ScopeError};
use crate::ir::{
    Binary, BuildError, Builder, ConvSpec, Edit, FactError, Op, Reduce, Table, Unary, ValueId, Wave, Weight,
};

/// Smallest divisor of a max-abs norm. Its square root of eps over it squared stays inside fp16, and the square of
/// anything smaller would not: `(1e-3 / 2^-13)^2 = 67`, while `(2^-14)^2` has no fp16 value.
pub const NORM_FLOOR: f64 = 1.0 / 8192.0;

/// Smallest positive fp16 number of full precision, 2^-14.
const SMALLEST_NORMAL: f64 = 1.0 / 16384.0;

/// Why a model could not be authored from a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum AuthorError {
    /// A tensor is absent, of another shape, or left over.
    #[error(transparent)]
    Checkpoint(#[from] ScopeError),
    /// An op did not fit its operands.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A weight edit did not fit its tensor.
    #[error("tensor {tensor}: {source}")]
    Weight {
        /// The tensor's name.
        tensor: String,
        /// What does not fit.
        source: FactError,
    },
    /// A clamp bound that bounds nothing sensible.
    #[error("tensor {tensor} in {place} is {found}, expected {expected}")]
    Bound {
        /// The bound's name.
        tensor: String,
        /// Its file.
        place: String,
        /// Its value.
        found: f64,
        /// What it may be.
        expected: String,
    },
}

/// A result of authoring.
pub type Authored<T> = Result<T, AuthorError>;

/// The tensor `name` of exactly those extents, as an unedited f32 weight.
///
/// # Errors
/// It is absent, or of another shape or kind.
pub fn weight(scope: &Scope<'_>, name: &str, dims: &[usize]) -> Authored<Weight> {
    let tensor = scope.tensor(name, dims)?;
    Weight::tensor(&tensor.name, &tensor.fact).map_err(|source| AuthorError::Weight { tensor: tensor.name, source })
}

/// Extent of the last axis of `x`; 1 for a single number.
pub fn last_extent(b: &Builder, x: ValueId) -> usize {
    b.fact(x).shape.dims().last().copied().unwrap_or(1)
}

/// `x [.., k]` times the transpose of `weight [n, k]`, as node `label` with its weight beside it.
///
/// # Errors
/// The shapes do not fit.
pub fn linear(b: &mut Builder, label: &str, x: ValueId, weight: Weight, bias: Option<Weight>) -> Authored<ValueId> {
    let mut args = vec![x, b.constant(&format!("{label}.weight"), weight)];
    if let Some(bias) = bias {
        args.push(b.constant(&format!("{label}.bias"), bias));
    }
    Ok(b.push(label, Op::Linear, &args)?)
}

/// A linear layer of channel-first `x [n, k, h, l]` by `weight [n, k]`: the 1x1 convolution with the same numbers.
///
/// # Errors
/// The shapes do not fit.
pub fn pointwise(b: &mut Builder, label: &str, x: ValueId, weight: Weight, bias: Option<Weight>) -> Authored<ValueId> {
    let tall = |source| AuthorError::Weight { tensor: b.path(label), source };
    let dims = [weight.fact().shape.dims(), &[1, 1]].concat();
    let weight = weight.edit(Edit::Reshape(dims.into())).map_err(tall)?;
    let mut args = vec![x, b.constant(&format!("{label}.weight"), weight)];
    if let Some(bias) = bias {
        args.push(b.constant(&format!("{label}.bias"), bias));
    }
    let spec = ConvSpec { stride: vec![1, 1], pad: vec![[0, 0], [0, 0]], groups: 1 };
    Ok(b.push(label, Op::Conv(spec), &args)?)
}

/// A row over its largest magnitude, and that magnitude: what keeps squares and sums of squares inside fp16.
struct Leveled {
    /// The row, of magnitude 1 at most.
    row: ValueId,
    /// Its largest magnitude before, [`NORM_FLOOR`] at least.
    largest: ValueId,
}

/// Divides every row of `x`, which lies along `axis`, by its largest magnitude.
fn leveled(b: &mut Builder, x: ValueId, axis: usize) -> Authored<Leveled> {
    let magnitude = b.unary(Unary::Abs, x)?;
    let largest = b.push("max_abs", Op::Reduce { kind: Reduce::Max, axis }, &[magnitude])?;
    let floor = b.constant("floor", Weight::scalar(NORM_FLOOR));
    let largest = b.binary(Binary::Maximum, largest, floor)?;
    let row = b.push("row", Op::Binary(Binary::Div), &[x, largest])?;
    Ok(Leveled { row, largest })
}

/// `1 / sqrt(mean + eps)` of a mean square of leveled rows. eps is leveled with them, written `(sqrt(eps) / max)^2`, since
/// `max^2` would underflow.
fn leveled_rsqrt(b: &mut Builder, mean: ValueId, largest: ValueId, eps: f64) -> Authored<ValueId> {
    let root_eps = b.constant("root_eps", Weight::scalar(eps.sqrt()));
    let eps = b.push("scaled_root_eps", Op::Binary(Binary::Div), &[root_eps, largest])?;
    let eps = b.push("scaled_eps", Op::Unary(Unary::Square), &[eps])?;
    let mean = b.binary(Binary::Add, mean, eps)?;
    Ok(b.unary(Unary::Rsqrt, mean)?)
}

/// RMSNorm over the last axis in the form that survives fp16, on leveled rows. The value is that of
/// `x * rsqrt(mean(x^2) + eps) * weight` for every row, the all-zero one included.
///
/// # Errors
/// The weight does not fit the last axis.
pub fn rms_norm(b: &mut Builder, label: &str, x: ValueId, weight: Option<Weight>, eps: f64) -> Authored<ValueId> {
    let last = b.fact(x).shape.rank().saturating_sub(1);
    b.scope(label, |b| {
        let Leveled { row, largest } = leveled(b, x, last)?;
        let square = b.unary(Unary::Square, row)?;
        let mean = b.push("mean_square", Op::Reduce { kind: Reduce::Mean, axis: last }, &[square])?;
        let scale = leveled_rsqrt(b, mean, largest, eps)?;
        let Some(weight) = weight else {
            return Ok(b.push("", Op::Binary(Binary::Mul), &[row, scale])?);
        };
        let normed = b.push("normed", Op::Binary(Binary::Mul), &[row, scale])?;
        let weight = b.constant("weight", weight);
        Ok(b.push("", Op::Binary(Binary::Mul), &[normed, weight])?)
    })
}

/// LayerNorm over `axis` in the form that survives fp16, on leveled rows. The value is that of
/// `(x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias` for every row, the all-zero one included. `weight` and `bias`
/// broadcast against `x`.
///
/// # Errors
/// A weight does not fit.
pub fn leveled_layer_norm(
    b: &mut Builder,
    label: &str,
    x: ValueId,
    axis: usize,
    (weight, bias): (Weight, Option<Weight>),
    eps: f64,
) -> Authored<ValueId> {
    b.scope(label, |b| {
        let Leveled { row, largest } = leveled(b, x, axis)?;
        let mean = b.push("mean", Op::Reduce { kind: Reduce::Mean, axis }, &[row])?;
        let centred = b.push("centred", Op::Binary(Binary::Sub), &[row, mean])?;
        let square = b.unary(Unary::Square, centred)?;
        let variance = b.push("variance", Op::Reduce { kind: Reduce::Mean, axis }, &[square])?;
        let scale = leveled_rsqrt(b, variance, largest, eps)?;
        let normed = b.push("normed", Op::Binary(Binary::Mul), &[centred, scale])?;
        let weight = b.constant("weight", weight);
        let Some(bias) = bias else {
            return Ok(b.push("", Op::Binary(Binary::Mul), &[normed, weight])?);
        };
        let scaled = b.push("scaled", Op::Binary(Binary::Mul), &[normed, weight])?;
        let bias = b.constant("bias", bias);
        Ok(b.push("", Op::Binary(Binary::Add), &[scaled, bias])?)
    })
}

/// Every row of `x` (its last axis) over its length. A leveled row's length is 1 or more, unless the row lies below
/// [`NORM_FLOOR`] throughout: that one is divided by less than its length, and an all-zero row stays zero.
///
/// # Errors
/// An op does not fit.
pub fn unit_length(b: &mut Builder, label: &str, x: ValueId) -> Authored<ValueId> {
    let last = b.fact(x).shape.rank().saturating_sub(1);
    b.scope(label, |b| {
        let Leveled { row, .. } = leveled(b, x, last)?;
        let square = b.unary(Unary::Square, row)?;
        let sum = b.push("sum_of_squares", Op::Reduce { kind: Reduce::Sum, axis: last }, &[square])?;
        let least = b.constant("least", Weight::scalar(SMALLEST_NORMAL));
        let sum = b.binary(Binary::Maximum, sum, least)?;
        let scale = b.unary(Unary::Rsqrt, sum)?;
        Ok(b.push("", Op::Binary(Binary::Mul), &[row, scale])?)
    })
}

/// Half-split rotary embedding of `x [1, t, heads, width]`, both halves of a head turned by the angles of their row.
#[derive(Clone, Copy)]
pub struct Rotary {
    cos: ValueId,
    sin: ValueId,
}

impl Rotary {
    /// The tables of `positions` rows for heads of that width, as constants that every layer shares.
    ///
    /// # Errors
    /// The width is odd, or the base no positive number.
    pub fn new(b: &mut Builder, positions: usize, width: usize, base: f64) -> Authored<Rotary> {
        let mut table = |label: &str, wave| {
            let table = Weight::table(Table::Rotary { wave, positions, width, base });
            let table = table.and_then(|w| w.edit(Edit::Reshape([1, positions, 1, width].into())));
            let table = table.map_err(|source| AuthorError::Weight { tensor: label.into(), source })?;
            Ok::<_, AuthorError>(b.constant(label, table))
        };
        Ok(Rotary { cos: table("rotary_cos", Wave::Cos)?, sin: table("rotary_sin", Wave::Sin)? })
    }

    /// Turns `x`, as nodes under `label`.
    ///
    /// # Errors
    /// The shapes do not fit.
    pub fn turn(self, b: &mut Builder, label: &str, x: ValueId) -> Authored<ValueId> {
        let dims = b.fact(x).shape.dims().to_vec();
        let half = dims.last().map_or(0, |width| width / 2);
        b.scope(label, |b| {
            let mut part = |name: &str, from: usize| {
                let (mut begin, mut end) = (vec![0; dims.len()], dims.clone());
                if let (Some(begin), Some(end)) = (begin.last_mut(), end.last_mut()) {
                    (*begin, *end) = (from, from + half);
                }
                b.push(name, Op::Slice { begin, end }, &[x])
            };
            let (first, second) = (part("first", 0)?, part("second", half)?);
            let axis = dims.len().saturating_sub(1);
            let swapped = b.push("swapped", Op::Concat { axis }, &[second, first])?;
            let straight = b.push("straight", Op::Binary(Binary::Mul), &[x, self.cos])?;
            let crossed = b.push("crossed", Op::Binary(Binary::Mul), &[swapped, self.sin])?;
            Ok(b.push("", Op::Binary(Binary::Add), &[straight, crossed])?)
        })
    }
}

/// LayerNorm over `axis`, written out: a library op on fp16 input is computed with fp32 statistics and leaves the
/// Neural Engine. For inputs whose squares fit fp16; `weight` broadcasts against `x`.
///
/// # Errors
/// The weight does not fit.
pub fn layer_norm(
    b: &mut Builder,
    label: &str,
    x: ValueId,
    axis: usize,
    weight: Weight,
    eps: f64,
) -> Authored<ValueId> {
    b.scope(label, |b| {
        let mean = b.push("mean", Op::Reduce { kind: Reduce::Mean, axis }, &[x])?;
        let centred = b.push("centred", Op::Binary(Binary::Sub), &[x, mean])?;
        let square = b.unary(Unary::Square, centred)?;
        let variance = b.push("variance", Op::Reduce { kind: Reduce::Mean, axis }, &[square])?;
        let eps = b.constant("eps", Weight::scalar(eps));
        let variance = b.binary(Binary::Add, variance, eps)?;
        let scale = b.unary(Unary::Rsqrt, variance)?;
        let normed = b.push("normed", Op::Binary(Binary::Mul), &[centred, scale])?;
        let weight = b.constant("weight", weight);
        Ok(b.push("", Op::Binary(Binary::Mul), &[normed, weight])?)
    })
}
