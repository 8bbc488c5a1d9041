//! Parameters of ops: each op's spelling and its reading side by side.

use super::ParseError;
use super::lexis::{Cursor, List};
use crate::ir::{Binary, ConvSpec, Op, Reduce, Unary};
use crate::tensor::{DType, Shape};
use std::fmt::{self, Display};

/// An op's parameters as ` key=value`, in the order in which [`parameters`] reads them.
pub(super) struct Parameters<'g>(pub &'g Op);

impl Display for Parameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Op::Input(_)
            | Op::Const(_)
            | Op::Linear
            | Op::MatMul
            | Op::Einsum
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Dequantize => Ok(()),
            Op::Conv(ConvSpec { stride, pad, groups }) => {
                write!(f, " stride={} pad={} groups={groups}", List(stride.iter()), pairs(pad))
            }
            Op::Reduce { kind: _, axis } | Op::ArgMax { axis } | Op::Softmax { axis } | Op::Concat { axis } => {
                write!(f, " axis={axis}")
            }
            Op::Transpose { perm } => write!(f, " perm={}", List(perm.iter())),
            Op::Reshape { shape } => write!(f, " shape={shape}"),
            Op::Slice { begin, end } => write!(f, " begin={} end={}", List(begin.iter()), List(end.iter())),
            Op::Pad { amount } => write!(f, " amount={}", pairs(amount)),
            Op::Cast(dtype) => write!(f, " dtype={dtype}"),
        }
    }
}

/// Reads the parameters of the op that `kind` is a sample of.
pub(super) fn parameters(kind: Op, line: &mut Cursor<'_>) -> Result<Op, ParseError> {
    Ok(match kind {
        Op::Linear | Op::MatMul | Op::Einsum | Op::Unary(_) | Op::Binary(_) | Op::Dequantize => kind,
        Op::Conv(_) => Op::Conv(ConvSpec {
            stride: line.parameter("stride", Cursor::counts)?,
            pad: line.parameter("pad", Cursor::pairs)?,
            groups: line.parameter("groups", Cursor::count)?,
        }),
        Op::Reduce { kind, .. } => Op::Reduce { kind, axis: axis(line)? },
        Op::ArgMax { .. } => Op::ArgMax { axis: axis(line)? },
        Op::Softmax { .. } => Op::Softmax { axis: axis(line)? },
        Op::Concat { .. } => Op::Concat { axis: axis(line)? },
        Op::Transpose { .. } => Op::Transpose { perm: line.parameter("perm", Cursor::counts)? },
        Op::Reshape { .. } => Op::Reshape { shape: line.parameter("shape", Cursor::shape)? },
        Op::Slice { .. } => {
            Op::Slice { begin: line.parameter("begin", Cursor::counts)?, end: line.parameter("end", Cursor::counts)? }
        }
        Op::Pad { .. } => Op::Pad { amount: line.parameter("amount", Cursor::pairs)? },
        Op::Cast(_) => Op::Cast(line.parameter("dtype", Cursor::dtype)?),
        // They have no operands, so their lines are read by `parse` itself and `find` does not know them.
        Op::Input(_) | Op::Const(_) => return Err(line.unexpected("an op with operands")),
    })
}

/// A sample of the op of that name.
pub(super) fn find(name: &str) -> Option<Op> {
    samples().find(|op| op.name() == name)
}

/// The names of all ops with operands, for messages.
pub(super) fn names() -> String {
    samples().map(|op| op.name()).collect::<Vec<_>>().join(", ")
}

/// One of each op with operands. A new op belongs here and in [`parameters`], where the compiler asks for it.
pub(super) fn samples() -> impl Iterator<Item = Op> {
    let plain = [
        Op::Conv(ConvSpec { stride: Vec::new(), pad: Vec::new(), groups: 1 }),
        Op::Linear,
        Op::MatMul,
        Op::Einsum,
        Op::ArgMax { axis: 0 },
        Op::Softmax { axis: 0 },
        Op::Transpose { perm: Vec::new() },
        Op::Reshape { shape: Shape::scalar() },
        Op::Slice { begin: Vec::new(), end: Vec::new() },
        Op::Concat { axis: 0 },
        Op::Pad { amount: Vec::new() },
        Op::Cast(DType::F32),
        Op::Dequantize,
    ];
    let reduce = Reduce::ALL.map(|kind| Op::Reduce { kind, axis: 0 });
    plain.into_iter().chain(Unary::ALL.map(Op::Unary)).chain(Binary::ALL.map(Op::Binary)).chain(reduce)
}

fn axis(line: &mut Cursor<'_>) -> Result<usize, ParseError> {
    line.parameter("axis", Cursor::count)
}

fn pairs(pairs: &[[usize; 2]]) -> List<impl Iterator<Item = impl Display> + Clone> {
    List(pairs.iter().map(|pair| List(pair.iter())))
}
