//! Ops that look along one axis.

use super::{FactError, axis_of, exactly, float};
use crate::tensor::{Fact, Shape};

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

pub(super) fn softmax(axis: usize, args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("softmax", "1", args)?;
    float("softmax", x)?;
    axis_of("softmax", axis, x)?;
    Ok(x.clone())
}
