//! Ops that look along one axis.

use super::{FactError, axis_of, exactly, float};
use crate::tensor::{DType, Fact, Shape};

/// What a reduction computes over its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the usual names of the functions")]
pub enum Reduce {
    Mean,
    Sum,
    Max,
}

impl Reduce {
    /// Every reduction, in declaration order.
    pub const ALL: [Reduce; 3] = [Reduce::Mean, Reduce::Sum, Reduce::Max];

    /// Its name in text and census.
    pub const fn name(self) -> &'static str {
        match self {
            Reduce::Mean => "reduce_mean",
            Reduce::Sum => "reduce_sum",
            Reduce::Max => "reduce_max",
        }
    }
}

pub(super) fn reduce(kind: Reduce, axis: usize, args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly(kind.name(), "1", args)?;
    float(kind.name(), x)?;
    let axis = axis_of(kind.name(), axis, x)?;
    let mut dims = x.shape.dims().to_vec();
    dims[axis] = 1;
    Ok(Fact { dtype: x.dtype, shape: Shape::new(dims) })
}

pub(super) fn argmax(axis: usize, args: &[&Fact]) -> Result<Fact, FactError> {
    const OP: &str = "argmax";
    let [x] = exactly(OP, "1", args)?;
    float(OP, x)?;
    let axis = axis_of(OP, axis, x)?;
    let mut dims = x.shape.dims().to_vec();
    if i32::try_from(dims[axis]).is_err() {
        return Err(FactError::Extent { op: OP, got: x.shape.clone() });
    }
    dims[axis] = 1;
    Ok(Fact { dtype: DType::I32, shape: Shape::new(dims) })
}

pub(super) fn softmax(axis: usize, args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("softmax", "1", args)?;
    float("softmax", x)?;
    axis_of("softmax", axis, x)?;
    Ok(x.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_an_i32_whatever_it_is_of() {
        for dtype in [DType::F32, DType::F16] {
            let x = Fact::new(dtype, [1, 750, 200_000]);
            assert_eq!(argmax(2, &[&x]).unwrap(), Fact::new(DType::I32, [1, 750, 1]));
            assert!(matches!(argmax(3, &[&x]), Err(FactError::Axis { .. })));
            assert!(matches!(argmax(2, &[&x, &x]), Err(FactError::Arity { .. })));
        }
        let wide = Fact::new(DType::F32, [1, 1 << 31]);
        assert!(matches!(argmax(1, &[&wide]), Err(FactError::Extent { .. })));
        assert!(matches!(argmax(0, &[&Fact::new(DType::I32, [4])]), Err(FactError::DType { .. })));
    }
}
