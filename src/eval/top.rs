//! Products of which only each row's largest element, or its place, is wanted: a choice among as many words as the
//! weight has rows. Neither the product nor the weight is ever whole: some rows of the weight are read, multiplied and
//! looked through at a time. The numbers are those of the ops one by one.

use super::matrix;
use super::reduce::{self, First};
use super::rows::look;
use super::shape::dense;
use super::value::{Reading, RoundF16};
use crate::ir::{Graph, Op, Reduce, ValueId};
use crate::tensor::DType;
use candle_core::{Error, Tensor};
use rayon::prelude::*;
use std::collections::HashMap;

/// Elements of a part of the weight, and of its product, at most: 8 MB each.
const PART: usize = 1 << 21;

/// A linear op whose result is only reduced.
pub(super) struct Top {
    pub linear: ValueId,
    /// What its weight is read from.
    pub weight: ValueId,
    /// The op that widens the weight for it alone.
    pub cast: Option<ValueId>,
    /// The reductions.
    pub readers: Vec<ValueId>,
}

impl Top {
    /// Ops that are done along with the linear one.
    pub fn others(&self) -> impl Iterator<Item = ValueId> {
        self.readers.iter().chain(&self.cast).copied()
    }
}

/// Every linear op of `graph` that is read by nothing but maxima and their places over its last axis.
pub(super) fn find(graph: &Graph, uses: &[usize]) -> HashMap<ValueId, Top> {
    let mut readers: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
    for (id, node) in graph.nodes() {
        if let (Op::Reduce { kind: Reduce::Max, axis } | Op::ArgMax { axis }, [x]) = (&node.op, node.args.as_slice())
            && matches!(graph.node(*x).op, Op::Linear)
            && axis + 1 == graph.fact(*x).shape.rank()
        {
            readers.entry(*x).or_default().push(id);
        }
    }
    readers.retain(|linear, readers| readers.len() == uses[linear.index()]);
    let top = |(linear, readers): (ValueId, Vec<ValueId>)| {
        let (weight, cast) = weight_of(graph, uses, linear)?;
        Some((linear, Top { linear, weight, cast, readers }))
    };
    readers.into_iter().filter_map(top).collect()
}

/// What the weight of a linear op is read from: the constant under a cast that only this op reads, with the cast.
fn weight_of(graph: &Graph, uses: &[usize], linear: ValueId) -> Option<(ValueId, Option<ValueId>)> {
    let weight = *graph.node(linear).args.get(1)?;
    let node = graph.node(weight);
    match (&node.op, node.args.as_slice()) {
        (Op::Cast(DType::F32), [stored])
            if uses[weight.index()] == 1
                && graph.constant(*stored).is_some_and(|stored| stored.fact().dtype.is_float()) =>
        {
            Some((*stored, Some(weight)))
        }
        _ => Some((weight, None)),
    }
}

/// Rows of a weight `[n, k]` that are multiplied at a time by a value of `rows` rows.
pub(super) fn rows_of_part(rows: usize, n: usize, k: usize) -> usize {
    (PART / rows.max(k)).clamp(1, n)
}

/// The largest of each row so far.
pub(super) struct Fold {
    x: Tensor,
    round: bool,
    watch: bool,
    best: Vec<First>,
    peak: f32,
    non_finite: bool,
}

/// The largest element of each row and its place, and what was seen of the product where it was looked at: the largest
/// finite magnitude, and whether something was not finite.
pub(super) struct Found {
    pub largest: Vec<f32>,
    pub places: Vec<i32>,
    pub peak: f32,
    pub non_finite: bool,
}

impl Fold {
    /// Of the products of `x [.., k]`, rounded to f16 where `round` says so, and looked at where `watch` does.
    pub fn new(x: &Tensor, round: bool, watch: bool) -> Result<Fold, Error> {
        let k = x.dims().last().copied().unwrap_or(1);
        let x = dense(x)?.reshape((x.elem_count() / k, k))?;
        let best = vec![First::default(); x.dims()[0]];
        Ok(Fold { x, round, watch, best, peak: 0.0, non_finite: false })
    }

    /// How many rows `x` has.
    pub fn rows(&self) -> usize {
        self.best.len()
    }

    /// The product with some rows of the weight, and their part of the bias.
    pub fn multiply(&self, part: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
        let product = matrix::linear(&self.x, part, bias)?;
        if self.round {
            product.inplace_op1(&RoundF16)?;
        }
        Ok(product)
    }

    /// Takes in `product`, whose first column is number `first` of all.
    pub fn add(&mut self, product: &Tensor, first: usize) -> Result<(), Error> {
        let reading = Reading::of(product);
        let values = reading.floats()?.dense()?;
        let n = values.len() / self.rows();
        reduce::first_of_rows(values, n, first, &mut self.best);
        if self.watch {
            let seen = values.par_chunks(n).map(look);
            let (peak, bad) = seen.reduce(|| (0.0, false), |a, b| (a.0.max(b.0), a.1 | b.1));
            self.peak = self.peak.max(peak);
            self.non_finite |= bad;
        }
        Ok(())
    }

    /// What was found, after all products.
    pub fn finish(self) -> Found {
        Found {
            largest: self.best.iter().map(|b| b.value).collect(),
            places: self.best.iter().map(|b| b.at).collect(),
            peak: self.peak,
            non_finite: self.non_finite,
        }
    }
}
