//! Pieces that several models are made of.

use crate::checkpoint::{Scope, ScopeError};
use crate::ir::{Binary, BuildError, Builder, FactError, Op, Reduce, Unary, ValueId, Weight};

/// Smallest divisor of a max-abs norm. Its square root of eps over it squared stays inside fp16, and the square of
/// anything smaller would not: `(1e-3 / 2^-13)^2 = 67`, while `(2^-14)^2` has no fp16 value.
pub const NORM_FLOOR: f64 = 1.0 / 8192.0;

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
    #[error("tensor {tensor} is {found}, expected {expected}")]
    Bound {
        /// The bound's name.
        tensor: String,
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

/// RMSNorm over the last axis in the form that survives fp16: the row is divided by its largest magnitude before it is
/// squared, and eps by that magnitude squared, written `(sqrt(eps) / max)^2` since `max^2` would underflow. The value
/// is that of `x * rsqrt(mean(x^2) + eps) * weight` for every row, the all-zero one included.
///
/// # Errors
/// The weight does not fit the last axis.
pub fn rms_norm(b: &mut Builder, label: &str, x: ValueId, weight: Option<Weight>, eps: f64) -> Authored<ValueId> {
    let last = b.fact(x).shape.rank().saturating_sub(1);
    b.scope(label, |b| {
        let magnitude = b.unary(Unary::Abs, x)?;
        let largest = b.push("max_abs", Op::Reduce { kind: Reduce::Max, axis: last }, &[magnitude])?;
        let floor = b.constant("floor", Weight::scalar(NORM_FLOOR));
        let largest = b.binary(Binary::Maximum, largest, floor)?;
        let row = b.push("row", Op::Binary(Binary::Div), &[x, largest])?;
        let square = b.unary(Unary::Square, row)?;
        let mean = b.push("mean_square", Op::Reduce { kind: Reduce::Mean, axis: last }, &[square])?;
        let root_eps = b.constant("root_eps", Weight::scalar(eps.sqrt()));
        let eps = b.push("scaled_root_eps", Op::Binary(Binary::Div), &[root_eps, largest])?;
        let eps = b.push("scaled_eps", Op::Unary(Unary::Square), &[eps])?;
        let mean = b.binary(Binary::Add, mean, eps)?;
        let scale = b.unary(Unary::Rsqrt, mean)?;
        let Some(weight) = weight else {
            return Ok(b.push("", Op::Binary(Binary::Mul), &[row, scale])?);
        };
        let normed = b.push("normed", Op::Binary(Binary::Mul), &[row, scale])?;
        let weight = b.constant("weight", weight);
        Ok(b.push("", Op::Binary(Binary::Mul), &[normed, weight])?)
    })
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
