//! The network, written once: input projection, pre-norm transformer layers, output projection, and the two heads.
//!
//! Activations are `[1, t, width]`. The words' head is a product with the table of unit vectors, so its maximum is a
//! cosine; the learned scale multiplies that maximum alone, since it changes no order. Which word is best is decided in
//! the graph, where 200,000 numbers a token never leave the device.
//!
//! fp16 has 2^-13 between cosines about 0.15: at scale 90 that is 0.01 logits, and words nearer than that tie. So the
//! product's bias takes [`chance`] off every cosine before it is rounded, and the maximum gets it back: what decides then
//! lies near 0, where fp16 is fine. Of 3,000 tokens of random readers, 7 labels differ from fp32's without it and 1 with.

use super::config::{BlankInput, Gelu, Qkv, ReaderConfig, RotaryLayout};
use super::{Guess, Tokens};
use crate::checkpoint::{Consumption, Ledger, Scope};
use crate::ir::{Binary, Builder, Edit, Graph, Op, Reduce, Unary, ValueId, Weight};
use crate::models::blocks::{self, AuthorError, Authored, Rotary, leveled_layer_norm, linear, unit_length};
use crate::tensor::{DType, Fact, Shape};
use serde::Serialize;

/// Name of the table of word vectors among the weights.
pub const TABLE: &str = "table";

/// Where a weight file may keep the network: at its top, or under the name a training script gave it.
const PREFIXES: [&str; 6] = ["", "model.", "module.", "reader.", "state_dict.", "model_state_dict."];

/// Added to the score of a token that is not there. Not lower: -1e9 is -inf in fp16, and a row of those is NaN.
const ABSENT: f64 = -1e4;

/// Largest logarithm of the scale: its exponential must be a finite fp16 number, e^11 = 59,874.
const MAX_LOG_SCALE: f64 = 11.0;

/// What authoring read and took for granted.
#[derive(Clone, Debug, Serialize)]
pub struct AuthorReport {
    /// Prefix of the network's names in its weight file.
    pub prefix: String,
    /// Tensors read, the table among them, and tensors of other parts that were passed over.
    pub tensors: Consumption,
    /// Numbers of the network, without the table.
    pub parameters: u64,
    /// Rows of the table.
    pub words: usize,
    /// What the largest cosine is multiplied by.
    pub scale: f64,
    /// Matmul mode that the weights were trained in, as the config spells it.
    pub matmul_mode: Option<String>,
    /// What is not known of the published reader, and what was taken for it.
    pub guesses: Vec<Guess>,
    /// Config keys of the architecture that were absent and took the published default.
    pub assumed: Vec<String>,
    /// Config keys that mean nothing here.
    pub ignored: Vec<String>,
}

/// Authors the reader of one length: `soft_tokens [1, t, in]` and `token_mask [1, t]` (1 for a token, 0 behind them) to
/// `top1_index` (i32), `top1_logit` and `blank_logit`, each `[1, t]`, in f32. The table is the tensor [`TABLE`] of
/// `words` rows.
///
/// # Errors
/// A tensor is absent, misshapen or left over, the scale makes no sense, or an op does not fit.
pub fn author(
    config: &ReaderConfig,
    tokens: Tokens,
    words: usize,
    ledger: &Ledger<'_>,
) -> Authored<(Graph, AuthorReport)> {
    let probe = config.names.of("log_scale");
    let prefix = ledger.prefixed(&PREFIXES, probe);
    let scope = ledger.root().scope(prefix);
    let mut b = Builder::new("main");
    let t = tokens.get();
    let soft = b.input("soft_tokens", Fact::new(DType::F32, [1, t, config.input_width]))?;
    let mask = b.input("token_mask", Fact::new(DType::F32, [1, t]))?;
    let rotary = Rotary::new(&mut b, t, config.head_width(), config.rotary_base)?;
    let network = Network { config, tokens: t, rotary, absent: absent(&mut b, mask, t)? };

    let x = network.norm(&mut b, &scope, "input_norm", soft)?;
    let mut x = network.linear(&mut b, &scope, "input_proj", x, config.width)?;
    let layers = scope.scope(config.names.of("layers"));
    for index in 0..config.layers {
        x = b.scope(format!("layers.{index}"), |b| network.layer(b, &layers.index(index), x))?;
    }
    let x = network.norm(&mut b, &scope, "output_norm", x)?;
    let vector = network.linear(&mut b, &scope, "output_proj", x, config.table_width)?;
    let unit = unit_length(&mut b, "unit", vector)?;
    let blank = match config.guesses.blank_input {
        BlankInput::BeforeNormalization => network.blank(&mut b, &scope, vector)?,
        BlankInput::AfterNormalization => network.blank(&mut b, &scope, unit)?,
    };
    let table = blocks::weight(&ledger.root(), TABLE, &[words, config.table_width])?;
    let (scale, factor) = scale(&scope, config)?;
    let [index, logit] = b.scope("top1", |b| network.best(b, unit, table, factor))?;
    b.output("top1_index", index);
    b.output("top1_logit", logit);
    b.output("blank_logit", blank);

    let owned = [prefix.to_string(), TABLE.to_string()];
    let tensors = ledger.finish(&[&owned[0], &owned[1]])?;
    let parameters = tensors.parameters.saturating_sub((words * config.table_width) as u64);
    let report = AuthorReport {
        prefix: prefix.into(),
        tensors,
        parameters,
        words,
        scale,
        matmul_mode: config.matmul_mode.clone(),
        guesses: config.listed.clone(),
        assumed: config.assumed.clone(),
        ignored: config.ignored.clone(),
    };
    Ok((b.finish(), report))
}

/// `[1, 1, 1, t]`: 0 for a token, [`ABSENT`] for none.
fn absent(b: &mut Builder, mask: ValueId, t: usize) -> Authored<ValueId> {
    b.scope("absent", |b| {
        let shape = [1, 1, 1, t].into();
        let keys = b.push("keys", Op::Reshape { shape }, &[mask])?;
        let one = b.constant("one", Weight::scalar(1.0));
        let none = b.push("none", Op::Binary(Binary::Sub), &[one, keys])?;
        let score = b.constant("score", Weight::scalar(ABSENT));
        Ok(b.push("", Op::Binary(Binary::Mul), &[none, score])?)
    })
}

/// About the largest cosine that one of so many words has to a vector which has nothing to do with them: the cosines of
/// random vectors of width `w` have variance `1 / w`, and the largest of `n` lies near `sqrt(2 ln(n) / w)`. A number of fp16, so
/// that what is taken off is given back to the last bit however constants are stored.
fn chance(table: &Fact) -> f64 {
    match *table.shape.dims() {
        [words, width] if width > 0 => {
            let largest = (2.0 * libm::log(words as f64) / width as f64).sqrt().min(1.0);
            half::f16::from_f64(largest).to_f64()
        }
        _ => 0.0,
    }
}

/// The learned scale as a number and as a constant.
fn scale(scope: &Scope<'_>, config: &ReaderConfig) -> Authored<(f64, Weight)> {
    let log = scope.scalar(config.names.of("log_scale"))?;
    if log.value.is_nan() || log.value.abs() > MAX_LOG_SCALE {
        let expected = format!("a number from -{MAX_LOG_SCALE} to {MAX_LOG_SCALE}, the logarithm of a scale");
        return Err(AuthorError::Bound { tensor: log.name, place: log.place, found: log.value, expected });
    }
    let factor = Weight::tensor(&log.name, &log.fact)
        .and_then(|w| if log.fact.shape.rank() == 0 { Ok(w) } else { w.edit(Edit::Reshape(Shape::scalar())) })
        .and_then(|w| w.edit(Edit::Exp))
        .map_err(|source| AuthorError::Weight { tensor: log.name, source })?;
    Ok((libm::exp(log.value), factor))
}

/// What all layers share.
struct Network<'c> {
    config: &'c ReaderConfig,
    tokens: usize,
    rotary: Rotary,
    /// What is added to the scores of each key.
    absent: ValueId,
}

impl Network<'_> {
    fn norm(&self, b: &mut Builder, scope: &Scope<'_>, part: &str, x: ValueId) -> Authored<ValueId> {
        let width = blocks::last_extent(b, x);
        let named = scope.scope(self.config.names.of(part));
        let weights = (blocks::weight(&named, "weight", &[width])?, Some(blocks::weight(&named, "bias", &[width])?));
        let last = b.fact(x).shape.rank().saturating_sub(1);
        leveled_layer_norm(b, part, x, last, weights, self.config.guesses.layer_norm_eps)
    }

    fn linear(&self, b: &mut Builder, scope: &Scope<'_>, part: &str, x: ValueId, width: usize) -> Authored<ValueId> {
        let inner = blocks::last_extent(b, x);
        let named = scope.scope(self.config.names.of(part));
        let weight = blocks::weight(&named, "weight", &[width, inner])?;
        let bias = blocks::weight(&named, "bias", &[width])?;
        linear(b, part, x, weight, Some(bias))
    }

    fn layer(&self, b: &mut Builder, scope: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
        let normed = self.norm(b, scope, "attn_norm", x)?;
        let mixed = b.scope("attn", |b| self.attention(b, scope, normed))?;
        let attended = self.linear(b, scope, "out_proj", mixed, self.config.width)?;
        let x = b.push("attn_residual", Op::Binary(Binary::Add), &[x, attended])?;
        let y = self.norm(b, scope, "ff_norm", x)?;
        let y = self.linear(b, scope, "ff_in", y, self.config.feed_forward)?;
        let gelu = match self.config.guesses.gelu {
            Gelu::Erf => Unary::Gelu,
            Gelu::Tanh => Unary::GeluTanh,
        };
        let y = b.unary(gelu, y)?;
        let y = self.linear(b, scope, "ff_out", y, self.config.width)?;
        Ok(b.push("ff_residual", Op::Binary(Binary::Add), &[x, y])?)
    }

    /// Every token looks at every other.
    fn attention(&self, b: &mut Builder, scope: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
        let q = self.heads(b, scope, Role::Query, x)?;
        let k = self.heads(b, scope, Role::Key, x)?;
        let v = self.heads(b, scope, Role::Value, x)?;
        let (q, k) = (self.rotary.turn(b, "q_turned", q)?, self.rotary.turn(b, "k_turned", k)?);
        let q = b.push("queries", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[q])?;
        let k = b.push("keys", Op::Transpose { perm: vec![0, 2, 3, 1] }, &[k])?;
        let v = b.push("values", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[v])?;
        let scores = b.push("scores", Op::MatMul, &[q, k])?;
        let masked = b.push("masked", Op::Binary(Binary::Add), &[scores, self.absent])?;
        let weights = b.push("weights", Op::Softmax { axis: 3 }, &[masked])?;
        let mixed = b.push("mixed", Op::MatMul, &[weights, v])?;
        let merged = b.push("merge_heads", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[mixed])?;
        let shape = [1, self.tokens, self.config.width].into();
        Ok(b.push("merged", Op::Reshape { shape }, &[merged])?)
    }

    /// `x [1, t, width]` projected and split: `[1, t, heads, head width]`.
    fn heads(&self, b: &mut Builder, scope: &Scope<'_>, role: Role, x: ValueId) -> Authored<ValueId> {
        let (width, part) = (self.config.width, role.part());
        let weight = self.projection(scope, role, "weight", &[width, width])?;
        let bias = self.projection(scope, role, "bias", &[width])?;
        let y = linear(b, part, x, weight, Some(bias))?;
        let shape = [1, self.tokens, self.config.heads, self.config.head_width()].into();
        Ok(b.push(&format!("{part}.heads"), Op::Reshape { shape }, &[y])?)
    }

    /// Weight or bias of a projection. The query's carry the scores' scale `head^-0.5`, and an interleaved rotary layout is
    /// brought to half-split by the order of the query's and key's rows, which their product does not see.
    fn projection(&self, scope: &Scope<'_>, role: Role, kind: &str, dims: &[usize]) -> Authored<Weight> {
        let config = self.config;
        let mut edits = Vec::new();
        let (part, stored) = match config.guesses.qkv {
            Qkv::Separate => (role.part(), dims.to_vec()),
            Qkv::Fused => {
                edits.push(Edit::Rows { begin: role as usize * config.width, count: config.width });
                let rest = dims.iter().skip(1).copied();
                ("qkv_proj", std::iter::once(3 * config.width).chain(rest).collect())
            }
        };
        if role != Role::Value && config.guesses.rotary_layout == RotaryLayout::Interleaved {
            let pairs = [config.heads, config.head_width() / 2, 2, dims.iter().skip(1).product()];
            edits.push(Edit::Reshape(pairs.into()));
            edits.push(Edit::Transpose(vec![0, 2, 1, 3]));
            edits.push(Edit::Reshape(Shape::new(dims)));
        }
        if role == Role::Query {
            edits.push(Edit::Scale(1.0 / (config.head_width() as f64).sqrt()));
        }
        let named = scope.scope(config.names.of(part));
        let weight = blocks::weight(&named, kind, &stored)?;
        let edited = edits.into_iter().try_fold(weight, Weight::edit);
        edited.map_err(|source| AuthorError::Weight { tensor: named.path(kind), source })
    }

    /// `[1, t]`: the logit of no word.
    fn blank(&self, b: &mut Builder, scope: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
        let blank = self.linear(b, scope, "blank", x, 1)?;
        Ok(b.push("blank_logit", Op::Reshape { shape: [1, self.tokens].into() }, &[blank])?)
    }

    /// `[1, t]` each: index and logit of the word whose vector is nearest to `unit`.
    fn best(&self, b: &mut Builder, unit: ValueId, table: Weight, factor: Weight) -> Authored<[ValueId; 2]> {
        let shape: Shape = [1, self.tokens].into();
        let chance = chance(table.fact());
        let words = table.fact().shape.dims().first().copied().unwrap_or(1);
        let off = Weight::scalar(-chance).edit(Edit::Repeat(words));
        let off = off.map_err(|source| AuthorError::Weight { tensor: TABLE.into(), source })?;
        let cosines = linear(b, "above_chance", unit, table, Some(off))?;
        let best = b.push("best", Op::ArgMax { axis: 2 }, &[cosines])?;
        let index = b.push("index", Op::Reshape { shape: shape.clone() }, &[best])?;
        let largest = b.push("largest", Op::Reduce { kind: Reduce::Max, axis: 2 }, &[cosines])?;
        let largest = b.push("largest_above", Op::Reshape { shape }, &[largest])?;
        let chance = b.constant("chance", Weight::scalar(chance));
        let cosine = b.push("cosine", Op::Binary(Binary::Add), &[largest, chance])?;
        let factor = b.constant("scale", factor);
        Ok([index, b.push("logit", Op::Binary(Binary::Mul), &[cosine, factor])?])
    }
}

/// Which projection of attention; the order is that of a fused one's rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Query,
    Key,
    Value,
}

impl Role {
    fn part(self) -> &'static str {
        match self {
            Role::Query => "q_proj",
            Role::Key => "k_proj",
            Role::Value => "v_proj",
        }
    }
}
