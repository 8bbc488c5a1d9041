//! How closely each op's f32 result follows the exact one: one table, for tests here and for gates that compare runs.

use crate::ir::{Binary, Op, Reduce, Unary};
use serde::Serialize;

/// An op's accuracy class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// No rounding: the result is one of the operand's numbers, or none is needed.
    Exact,
    /// A few roundings: within 4e-7 of the result.
    Rounded,
    /// A sum: within 1e-6 of the sum of its absolute terms.
    Accumulated,
}

/// The class of `op`.
pub fn accuracy(op: &Op) -> Accuracy {
    match op {
        Op::Conv(_) | Op::Linear | Op::MatMul | Op::Einsum => Accuracy::Accumulated,
        Op::Unary(Unary::Abs | Unary::Relu) | Op::Binary(Binary::Maximum | Binary::Minimum) => Accuracy::Exact,
        Op::Unary(
            Unary::Square | Unary::Rsqrt | Unary::Tanh | Unary::Sigmoid | Unary::Silu | Unary::Gelu | Unary::GeluTanh,
        ) => Accuracy::Rounded,
        Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div) => Accuracy::Rounded,
        Op::Reduce { kind: Reduce::Max, .. } => Accuracy::Exact,
        Op::Reduce { kind: Reduce::Mean | Reduce::Sum, .. } => Accuracy::Accumulated,
        Op::Softmax { .. } => Accuracy::Accumulated,
        Op::Input(_)
        | Op::Const(_)
        | Op::ArgMax { .. }
        | Op::Transpose { .. }
        | Op::Reshape { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Pad { .. } => Accuracy::Exact,
        // Once, to the new dtype.
        Op::Cast(_) | Op::Dequantize => Accuracy::Rounded,
    }
}
