//! Banded attention: `logit[t, d] = q_t . (k_{t-d} + relk_d)` for the `d` keys a query sees, its own first.
//!
//! The published module cuts the clip into blocks, unfolds their context and shifts relative logits by a reshape, at
//! rank 5 and 6. A band needs none of it: each distance is one slice of the padded keys.

use super::clip::{Clipped, Fold};
use super::config::AudioConfig;
use crate::checkpoint::Scope;
use crate::ir::{Binary, Builder, Edit, Op, Reduce, Table, Unary, ValueId, Weight};
use crate::models::blocks::{self, AuthorError, Authored};
use crate::tensor::Shape;

/// What is added to the logit of a key before the clip. Not lower: -1e9 is -inf in fp16, and a row of those is NaN.
const ABSENT_KEY: f64 = -1e4;

/// Self-attention over `x [1, t, hidden]`; `scope` is the checkpoint's `self_attn`.
///
/// # Errors
/// A tensor is absent or misshapen, or a bound makes no sense.
pub fn attention(
    b: &mut Builder,
    clipped: &mut Clipped,
    scope: &Scope<'_>,
    config: &AudioConfig,
    x: ValueId,
) -> Authored<ValueId> {
    let square = [config.hidden; 2];
    let per_dim = scope.tensor("per_dim_scale", &[config.head_dim()])?;
    // The published scales: head_dim^-0.5 / ln 2 times softplus for the query, ln(1 + e) / ln 2 for the key.
    let query = Fold::Softplus {
        vector: (&per_dim.name, config.head_dim()),
        factor: 1.0 / ((config.head_dim() as f64).sqrt() * std::f64::consts::LN_2),
    };
    let key = Fold::Scale(libm::log(1.0 + std::f64::consts::E) / std::f64::consts::LN_2);

    let q = clipped.linear(b, scope, "q_proj", x, square, &query)?;
    let k = clipped.linear(b, scope, "k_proj", x, square, &key)?;
    let v = clipped.linear(b, scope, "v_proj", x, square, &Fold::Nothing)?;
    let band = Band::new(b, config, x);
    let q = band.split_heads(b, "q", q)?;
    let k = band.split_heads(b, "k", k).and_then(|k| band.look_back(b, "k", k))?;
    let v = band.split_heads(b, "v", v).and_then(|v| band.look_back(b, "v", v))?;

    let relative = relative_keys(scope, config)?;
    let weights = band.weights(b, q, k, relative, config.logit_cap)?;
    let mixed = band.mix(b, weights, v)?;
    let merged = band.merge_heads(b, mixed)?;
    clipped.linear(b, scope, "post", merged, square, &Fold::Nothing)
}

/// One constant `[1, heads, 1, head_dim]` for each distance.
fn relative_keys(scope: &Scope<'_>, config: &AudioConfig) -> Authored<Vec<Weight>> {
    const NAME: &str = "relative_k_proj.weight";
    let project = Edit::ProjectSinusoid { positions: config.keys(), offset: config.first_position() };
    let row: Shape = [1, config.heads, 1, config.head_dim()].into();
    let base = blocks::weight(scope, NAME, &[config.hidden; 2])?;
    let tensor = base.origin().to_string();
    (0..config.keys())
        .map(|d| base.clone().edit(project.clone())?.edit(Edit::Row(d))?.edit(Edit::Reshape(row.clone())))
        .collect::<Result<_, _>>()
        .map_err(|source| AuthorError::Weight { tensor, source })
}

/// The shapes of the band over one clip.
struct Band {
    tokens: usize,
    keys: usize,
    heads: usize,
    head_dim: usize,
}

impl Band {
    fn new(b: &Builder, config: &AudioConfig, x: ValueId) -> Band {
        let tokens = b.fact(x).shape.dims()[1];
        Band { tokens, keys: config.keys(), heads: config.heads, head_dim: config.head_dim() }
    }

    /// `[1, t, hidden]` to `[1, heads, t, head_dim]`.
    fn split_heads(&self, b: &mut Builder, label: &str, x: ValueId) -> Authored<ValueId> {
        let shape = [1, self.tokens, self.heads, self.head_dim].into();
        let split = b.push(&format!("{label}_split"), Op::Reshape { shape }, &[x])?;
        Ok(b.push(&format!("{label}_heads"), Op::Transpose { perm: vec![0, 2, 1, 3] }, &[split])?)
    }

    /// `[1, heads, t, head_dim]` to `[1, t, hidden]`.
    fn merge_heads(&self, b: &mut Builder, x: ValueId) -> Authored<ValueId> {
        let split = b.push("merge_heads", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[x])?;
        let shape = [1, self.tokens, self.heads * self.head_dim].into();
        Ok(b.push("merged", Op::Reshape { shape }, &[split])?)
    }

    /// Zeros before the clip, one for each distance beyond the query's own key.
    fn look_back(&self, b: &mut Builder, label: &str, x: ValueId) -> Authored<ValueId> {
        if self.keys == 1 {
            return Ok(x);
        }
        let amount = vec![[0, 0], [0, 0], [self.keys - 1, 0], [0, 0]];
        Ok(b.push(&format!("{label}_padded"), Op::Pad { amount }, &[x])?)
    }

    /// Row `t` of the result is row `t - d` of what was padded.
    fn shifted(&self, b: &mut Builder, label: &str, padded: ValueId, d: usize) -> Authored<ValueId> {
        let first = self.keys - 1 - d;
        let begin = vec![0, 0, first, 0];
        let end = vec![1, self.heads, first + self.tokens, self.head_dim];
        Ok(b.push(&format!("{label}_shift{d}"), Op::Slice { begin, end }, &[padded])?)
    }

    /// Attention weights `[1, heads, t, keys]`.
    fn weights(&self, b: &mut Builder, q: ValueId, k: ValueId, relative: Vec<Weight>, cap: f64) -> Authored<ValueId> {
        let mut logits = Vec::with_capacity(self.keys);
        for (d, relk) in relative.into_iter().enumerate() {
            let key = self.shifted(b, "k", k, d)?;
            let relk = b.constant(&format!("relk{d}"), relk);
            let key = b.push(&format!("key{d}"), Op::Binary(Binary::Add), &[key, relk])?;
            let product = b.push(&format!("qk{d}"), Op::Binary(Binary::Mul), &[q, key])?;
            logits.push(b.push(&format!("logit{d}"), Op::Reduce { kind: Reduce::Sum, axis: 3 }, &[product])?);
        }
        let logits = b.push("logits", Op::Concat { axis: 3 }, &logits)?;
        let capped = self.soft_cap(b, logits, cap)?;
        let band = Table::CausalBand { tokens: self.tokens, keys: self.keys, value: ABSENT_KEY };
        let band =
            Weight::table(band).map_err(|source| AuthorError::Weight { tensor: "causal band".into(), source })?;
        let band = b.constant("band", band);
        let masked = b.push("masked", Op::Binary(Binary::Add), &[capped, band])?;
        Ok(b.push("weights", Op::Softmax { axis: 3 }, &[masked])?)
    }

    fn soft_cap(&self, b: &mut Builder, logits: ValueId, cap: f64) -> Authored<ValueId> {
        let inverse = b.constant("inverse_cap", Weight::scalar(1.0 / cap));
        let scaled = b.push("scaled", Op::Binary(Binary::Mul), &[logits, inverse])?;
        let bounded = b.unary(Unary::Tanh, scaled)?;
        let cap = b.constant("cap", Weight::scalar(cap));
        Ok(b.push("capped", Op::Binary(Binary::Mul), &[bounded, cap])?)
    }

    /// `[1, heads, t, head_dim]`: the sum over distances of weight times value.
    fn mix(&self, b: &mut Builder, weights: ValueId, v: ValueId) -> Authored<ValueId> {
        let mut sum = None;
        for d in 0..self.keys {
            let (begin, end) = (vec![0, 0, 0, d], vec![1, self.heads, self.tokens, d + 1]);
            let weight = b.push(&format!("weight{d}"), Op::Slice { begin, end }, &[weights])?;
            let value = self.shifted(b, "v", v, d)?;
            let part = b.push(&format!("part{d}"), Op::Binary(Binary::Mul), &[value, weight])?;
            sum = Some(match sum {
                None => part,
                Some(sum) => b.push(&format!("sum{d}"), Op::Binary(Binary::Add), &[sum, part])?,
            });
        }
        Ok(sum.unwrap_or(v))
    }
}
