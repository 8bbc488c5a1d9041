//! Ops that act on each element by itself.

use super::{FactError, exactly, float, same_dtype};
use crate::tensor::{DType, Fact, Shape};

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the usual names of the functions")]
pub enum Unary {
    Abs,
    Square,
    /// One divided by the square root; the operand is positive wherever our models use it.
    Rsqrt,
    Tanh,
    Sigmoid,
    /// `x * sigmoid(x)`.
    Silu,
    Relu,
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// Its approximation `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
    GeluTanh,
}

impl Unary {
    /// Every function, in declaration order.
    pub const ALL: [Unary; 9] = [
        Unary::Abs,
        Unary::Square,
        Unary::Rsqrt,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Silu,
        Unary::Relu,
        Unary::Gelu,
        Unary::GeluTanh,
    ];

    /// Its name in text and census.
    pub const fn name(self) -> &'static str {
        match self {
            Unary::Abs => "abs",
            Unary::Square => "square",
            Unary::Rsqrt => "rsqrt",
            Unary::Tanh => "tanh",
            Unary::Sigmoid => "sigmoid",
            Unary::Silu => "silu",
            Unary::Relu => "relu",
            Unary::Gelu => "gelu",
            Unary::GeluTanh => "gelu_tanh",
        }
    }
}

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the usual names of the functions")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
}

impl Binary {
    /// Every function, in declaration order.
    pub const ALL: [Binary; 6] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Maximum, Binary::Minimum];

    /// Its name in text and census.
    pub const fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Maximum => "maximum",
            Binary::Minimum => "minimum",
        }
    }
}

pub(super) fn unary(kind: Unary, args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly(kind.name(), "1", args)?;
    float(kind.name(), x)?;
    Ok(x.clone())
}

pub(super) fn binary(kind: Binary, args: &[&Fact]) -> Result<Fact, FactError> {
    let op = kind.name();
    let [a, b] = exactly(op, "2", args)?;
    same_dtype(op, a, b)?;
    float(op, a)?;
    let shape = broadcast(&a.shape, &b.shape).ok_or_else(|| FactError::Shapes {
        op,
        first: a.shape.clone(),
        second: b.shape.clone(),
    })?;
    Ok(Fact { dtype: a.dtype, shape })
}

pub(super) fn cast(dtype: DType, args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("cast", "1", args)?;
    Ok(Fact { dtype, shape: x.shape.clone() })
}

/// The numpy broadcast of two shapes: aligned at the last axis, an extent of 1 stretches.
fn broadcast(a: &Shape, b: &Shape) -> Option<Shape> {
    let rank = a.rank().max(b.rank());
    let extent = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |j| s.dims()[j]);
    (0..rank)
        .map(|i| match (extent(a, i), extent(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()
        .map(Shape::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_is_numpys() {
        let case = |a: &[usize], b: &[usize]| broadcast(&Shape::new(a), &Shape::new(b)).map(|s| s.dims().to_vec());
        assert_eq!(case(&[1, 5, 4], &[4]), Some(vec![1, 5, 4]));
        assert_eq!(case(&[], &[2, 3]), Some(vec![2, 3]));
        assert_eq!(case(&[2, 1, 4], &[3, 1]), Some(vec![2, 3, 4]));
        assert_eq!(case(&[2, 3], &[2, 4]), None);
        assert_eq!(case(&[3], &[2]), None);
    }

    #[test]
    fn mixed_dtypes_are_refused() {
        let (a, b) = (Fact::new(DType::F32, [2]), Fact::new(DType::F16, [2]));
        assert!(matches!(binary(Binary::Add, &[&a, &b]), Err(FactError::MixedDType { .. })));
        assert!(matches!(binary(Binary::Add, &[&a]), Err(FactError::Arity { .. })));
        let i = Fact::new(DType::I32, [2]);
        assert!(matches!(unary(Unary::Tanh, &[&i]), Err(FactError::DType { .. })));
    }
}
