//! The closed op set and what each op infers of its result. One file per family; matches are exhaustive, so that a
//! new op breaks the build wherever a decision about it is due.

mod elementwise;
mod matrix;
mod quantized;
mod reduce;
mod shape;

pub use elementwise::{Binary, Unary};
pub use matrix::ConvSpec;
pub use reduce::Reduce;
pub(crate) use shape::permuted;

use super::graph::WeightId;
use crate::tensor::{DType, Fact, Shape};

/// Highest rank a value may have: beyond it Core ML refuses to load a package that its own tools convert.
pub const MAX_RANK: usize = 5;

/// An operation. Its operands are the node's `args`, in the order given here.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A value fed from outside, under that public name.
    Input(String),
    /// A constant.
    Const(WeightId),
    /// Cross-correlation of `x [n, c, *d]` with `weight [o, c / groups, *k]`, one or two spatial axes.
    Conv(ConvSpec),
    /// `x [.., k]` times the transpose of `weight [n, k]`, plus an optional third operand `bias [n]`.
    Linear,
    /// `x [.., m, k]` times `y [.., k, n]`, for each of the leading axes, which both have alike.
    MatMul,
    /// `x [n, c, h, w]` times `y [n, w, h, u]` to `[n, c, h, u]`, a product for each `n` and `h`: the one equation of two
    /// channel-first values that Core ML's einsum has, `nchw,nwhu->nchu`.
    Einsum,
    /// A function of each element.
    Unary(Unary),
    /// A function of two elements, numpy broadcasting both ways.
    Binary(Binary),
    /// A reduction over one axis, which stays with extent 1.
    Reduce {
        /// What is computed over the axis.
        kind: Reduce,
        /// The axis, from 0.
        axis: usize,
    },
    /// Index of the largest element over one axis, as i32; of the first where several are equal. The axis stays with
    /// extent 1.
    ArgMax {
        /// The axis, from 0.
        axis: usize,
    },
    /// Exponentials over one axis, divided by their sum.
    Softmax {
        /// The axis, from 0.
        axis: usize,
    },
    /// Axes in another order: result axis `i` is operand axis `perm[i]`.
    Transpose {
        /// The order.
        perm: Vec<usize>,
    },
    /// The same elements in row-major order under another shape.
    Reshape {
        /// The new shape.
        shape: Shape,
    },
    /// `begin[i]..end[i]` of every axis.
    Slice {
        /// First index of each axis.
        begin: Vec<usize>,
        /// One past the last index of each axis.
        end: Vec<usize>,
    },
    /// All operands one after the other along an axis.
    Concat {
        /// The axis, from 0.
        axis: usize,
    },
    /// Zeros around the operand.
    Pad {
        /// How many before and after, for each axis.
        amount: Vec<[usize; 2]>,
    },
    /// The same numbers in another dtype.
    Cast(DType),
    /// Levels `q` times `scale`, of the same rank; along each axis one scale stands for `q extent / scale extent` levels
    /// side by side. The result has the scale's dtype. Levels that do not start at zero would bring their offset as a
    /// third operand, of the scale's shape.
    Dequantize,
}

impl Op {
    /// The op's name in text, census and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::Const(_) => "const",
            Op::Conv(_) => "conv",
            Op::Linear => "linear",
            Op::MatMul => "matmul",
            Op::Einsum => "einsum",
            Op::Unary(u) => u.name(),
            Op::Binary(b) => b.name(),
            Op::Reduce { kind, .. } => kind.name(),
            Op::ArgMax { .. } => "argmax",
            Op::Softmax { .. } => "softmax",
            Op::Transpose { .. } => "transpose",
            Op::Reshape { .. } => "reshape",
            Op::Slice { .. } => "slice",
            Op::Concat { .. } => "concat",
            Op::Pad { .. } => "pad",
            Op::Cast(_) => "cast",
            Op::Dequantize => "dequantize",
        }
    }

    /// Dtype and shape of the result. `Input` and `Const` have facts of their own and are not asked.
    ///
    /// # Errors
    /// The operands do not fit the op; the caller adds the node's path.
    pub(super) fn infer(&self, args: &[&Fact]) -> Result<Fact, FactError> {
        let fact = match self {
            Op::Input(_) | Op::Const(_) => return Err(FactError::NoOperands { op: self.name() }),
            Op::Conv(spec) => matrix::conv(spec, args)?,
            Op::Linear => matrix::linear(args)?,
            Op::MatMul => matrix::matmul(args)?,
            Op::Einsum => matrix::einsum(args)?,
            Op::Unary(u) => elementwise::unary(*u, args)?,
            Op::Binary(b) => elementwise::binary(*b, args)?,
            Op::Reduce { kind, axis } => reduce::reduce(*kind, *axis, args)?,
            Op::ArgMax { axis } => reduce::argmax(*axis, args)?,
            Op::Softmax { axis } => reduce::softmax(*axis, args)?,
            Op::Transpose { perm } => shape::transpose(perm, args)?,
            Op::Reshape { shape } => shape::reshape(shape, args)?,
            Op::Slice { begin, end } => shape::slice(begin, end, args)?,
            Op::Concat { axis } => shape::concat(*axis, args)?,
            Op::Pad { amount } => shape::pad(amount, args)?,
            Op::Cast(dtype) => elementwise::cast(*dtype, args)?,
            Op::Dequantize => quantized::dequantize(args)?,
        };
        check_rank(self.name(), &fact.shape)?;
        Ok(fact)
    }
}

/// Refuses a shape of more than [`MAX_RANK`] axes, with no element, or of more elements than can be counted.
pub(super) fn check_rank(op: &'static str, shape: &Shape) -> Result<(), FactError> {
    if shape.rank() > MAX_RANK {
        return Err(FactError::RankAbove { op, max: MAX_RANK, got: shape.clone() });
    }
    match shape.checked_elements() {
        Some(n) if n > 0 && n <= u32::MAX as usize => Ok(()),
        _ => Err(FactError::Extent { op, got: shape.clone() }),
    }
}

/// Why operands do not fit an op. The node's path is added once, by the builder.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "op is the op's name, got what was found, want what it takes")]
pub enum FactError {
    #[error("{op} has no operands to infer from")]
    NoOperands { op: &'static str },
    #[error("{op} takes {want} operands, got {got}")]
    Arity { op: &'static str, want: &'static str, got: usize },
    #[error("{op} takes an operand of rank {want}, got {got}")]
    Rank { op: &'static str, want: &'static str, got: Shape },
    #[error("{op} would have a value of rank above {max}: {got}")]
    RankAbove { op: &'static str, max: usize, got: Shape },
    #[error("{op} would have no element, or more than can be counted: {got}")]
    Extent { op: &'static str, got: Shape },
    #[error("{op} takes {want}, got {got}")]
    DType { op: &'static str, want: &'static str, got: DType },
    #[error("{op} takes operands of one dtype, got {first} and {second}")]
    MixedDType { op: &'static str, first: DType, second: DType },
    #[error("{op} cannot bring {first} and {second} together")]
    Shapes { op: &'static str, first: Shape, second: Shape },
    #[error("{op} on axis {axis} of {got}, which has no such axis")]
    Axis { op: &'static str, axis: usize, got: Shape },
    #[error("{op} with parameter {parameter} {found} does not fit {got}")]
    Parameter { op: &'static str, parameter: &'static str, found: String, got: Shape },
}

/// The operands as an array of exactly `N`.
fn exactly<'a, const N: usize>(
    op: &'static str,
    want: &'static str,
    args: &[&'a Fact],
) -> Result<[&'a Fact; N], FactError> {
    <[&Fact; N]>::try_from(args).map_err(|_| FactError::Arity { op, want, got: args.len() })
}

fn float(op: &'static str, fact: &Fact) -> Result<(), FactError> {
    if fact.dtype.is_float() { Ok(()) } else { Err(FactError::DType { op, want: "floats", got: fact.dtype }) }
}

fn same_dtype(op: &'static str, first: &Fact, second: &Fact) -> Result<(), FactError> {
    if first.dtype == second.dtype {
        Ok(())
    } else {
        Err(FactError::MixedDType { op, first: first.dtype, second: second.dtype })
    }
}

fn axis_of(op: &'static str, axis: usize, fact: &Fact) -> Result<usize, FactError> {
    if axis < fact.shape.rank() { Ok(axis) } else { Err(FactError::Axis { op, axis, got: fact.shape.clone() }) }
}
