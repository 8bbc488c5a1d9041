//! Clipped linears: clamp, project, clamp. The bounds are scalars of the checkpoint; a scale folded into the weight is
//! folded into the output bounds too, since `clamp(Wx, lo, hi) * s = clamp(sWx, s lo, s hi)` for `s > 0`.

use crate::checkpoint::{Scalar, Scope};
use crate::ir::{Binary, Builder, Edit, FactError, ValueId, Weight};
use crate::models::blocks::{self, AuthorError, Authored};
use crate::tensor::Shape;
use serde::Serialize;

/// A clamp bound that is not in the graph because it bounds nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DroppedBound {
    /// Name of the bound in the checkpoint.
    pub tensor: String,
    /// Its value.
    pub value: String,
}

/// A positive scale that is folded into a projection and its output bounds.
pub enum Fold<'s> {
    /// None.
    Nothing,
    /// One number for every output.
    Scale(f64),
    /// `factor * softplus(v[i % len])` for output `i`: the learned query scale of each head dim.
    Softplus {
        /// Name and length of `v`.
        vector: (&'s str, usize),
        /// The number.
        factor: f64,
    },
}

impl Fold<'_> {
    fn edit(&self) -> Option<Edit> {
        match self {
            Fold::Nothing => None,
            Fold::Scale(factor) => Some(Edit::Scale(*factor)),
            Fold::Softplus { vector: (tensor, period), factor } => {
                Some(Edit::ScaleRowsSoftplus { tensor: (*tensor).into(), period: *period, factor: *factor })
            }
        }
    }

    fn weight(&self, weight: Weight) -> Result<Weight, FactError> {
        self.edit().map_or(Ok(weight.clone()), |edit| weight.edit(edit))
    }

    /// A scalar bound as the clamp wants it: a vector wherever the scale differs by output.
    fn bound(&self, bound: Weight, outputs: usize) -> Result<Weight, FactError> {
        match self {
            Fold::Softplus { .. } => self.weight(bound.edit(Edit::Repeat(outputs))?),
            Fold::Nothing | Fold::Scale(_) => self.weight(bound),
        }
    }
}

/// Authors clipped linears, noting every bound it leaves out.
pub struct Clipped {
    /// False where the config says that linears do not clamp.
    pub enabled: bool,
    /// Bounds left out so far.
    pub dropped: Vec<DroppedBound>,
}

impl Clipped {
    /// `x [.., k]` to `[.., n]` by the clipped linear that `scope` names.
    ///
    /// # Errors
    /// A tensor is absent or misshapen, or a bound is NaN or above its partner.
    pub fn linear(
        &mut self,
        b: &mut Builder,
        scope: &Scope<'_>,
        label: &str,
        x: ValueId,
        [n, k]: [usize; 2],
        fold: &Fold<'_>,
    ) -> Authored<ValueId> {
        let scope = scope.scope(label);
        let weight = blocks::weight(&scope, "linear.weight", &[n, k])?;
        let weight = fold
            .weight(weight)
            .map_err(|source| AuthorError::Weight { tensor: scope.path("linear.weight"), source })?;
        let x = b.scope(label, |b| self.clamp(b, &scope, "input", x, &Fold::Nothing, k))?;
        let y = blocks::linear(b, label, x, weight, None)?;
        b.scope(label, |b| self.clamp(b, &scope, "output", y, fold, n))
    }

    fn clamp(
        &mut self,
        b: &mut Builder,
        scope: &Scope<'_>,
        side: &str,
        x: ValueId,
        fold: &Fold<'_>,
        width: usize,
    ) -> Authored<ValueId> {
        if !self.enabled {
            return Ok(x);
        }
        let low = scope.scalar(&format!("{side}_min"))?;
        let high = scope.scalar(&format!("{side}_max"))?;
        if low.value.is_nan() || low.value == f64::INFINITY {
            return Err(bad_bound(&low, "a number, or -inf for no bound"));
        }
        if high.value.is_nan() || high.value == f64::NEG_INFINITY {
            return Err(bad_bound(&high, "a number, or inf for no bound"));
        }
        if low.value > high.value {
            return Err(bad_bound(&low, &format!("at most {side}_max, which is {}", high.value)));
        }
        let mut y = x;
        for (bound, kind, end) in [(low, Binary::Maximum, "min"), (high, Binary::Minimum, "max")] {
            if bound.value.is_infinite() {
                self.dropped.push(DroppedBound { tensor: bound.name, value: bound.value.to_string() });
                continue;
            }
            let made = Weight::tensor(&bound.name, &bound.fact)
                .and_then(|w| if bound.fact.shape.rank() == 0 { Ok(w) } else { w.edit(Edit::Reshape(Shape::scalar())) })
                .and_then(|w| fold.bound(w, width))
                .map_err(|source| AuthorError::Weight { tensor: bound.name, source })?;
            let made = b.constant(&format!("{side}_{end}"), made);
            y = b.push(&format!("{side}_{}", kind.name()), crate::ir::Op::Binary(kind), &[y, made])?;
        }
        Ok(y)
    }
}

fn bad_bound(bound: &Scalar, expected: &str) -> AuthorError {
    let (tensor, place) = (bound.name.clone(), bound.place.clone());
    AuthorError::Bound { tensor, place, found: bound.value, expected: expected.into() }
}
