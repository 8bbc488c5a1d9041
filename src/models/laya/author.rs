//! The network, written once: embedding norm, ModernBERT encoder, type vector, decision head, and the scorer of markers.
//!
//! Activations are `[1, channels, 1, tokens]` throughout. Every linear layer is a 1x1 convolution with the stored weight,
//! attention is computed a head at a time with scores `[1, key, 1, query]` under a softmax over keys, and nothing is
//! reshaped. The rotary embedding turns all heads of a layer at once, by tables that repeat for each.
//!
//! The class token's activations reach 1.4e4 in the published weights, so norms are in the form whose squares stay inside
//! fp16.

use super::config::{Encoder, LayaConfig, LayerKind};
use super::{Length, SLOTS, stored};
use crate::checkpoint::{Consumption, Ledger, Scope};
use crate::ir::{Binary, Builder, Edit, Graph, Op, Table, Unary, ValueId, Wave, Weight};
use crate::models::blocks::{self, AuthorError, Authored, leveled_layer_norm, pointwise};
use crate::tensor::{DType, Fact};
use serde::Serialize;

/// eps of the norms of the decision head and the scorer, which have none in a config.
const HEAD_EPS: f64 = 1e-5;

/// Axis of the channels.
const CHANNELS: usize = 1;

/// Names of the graph's inputs and outputs, as hosts of the published package feed and read them.
pub mod names {
    /// `[1, C, 1, L]`: the rows of the table of embeddings.
    pub const EMBEDDINGS: &str = "embeddings";
    /// `[1, L, 1, L]`, key by query: what is added to the scores of global layers.
    pub const FULL_MASK: &str = "full_mask";
    /// The same for local layers.
    pub const LOCAL_MASK: &str = "local_mask";
    /// `[1, C, 1, 1]`: the vector of the question's type.
    pub const TYPE_VECTORS: &str = "type_vectors";
    /// `[1, L, 1, 32]`: for each option, 1 at the position of its marker.
    pub const MARKER_MAP: &str = "marker_map";
    /// `[1, 1, 1, 32]`: the score of each option.
    pub const LOGITS: &str = "logits";
    /// `[1, C, 1, 1]`: what the action head reads.
    pub const CLS: &str = "cls";

    /// Every input, in the order in which the published package takes them.
    pub const INPUTS: [&str; 5] = [EMBEDDINGS, FULL_MASK, LOCAL_MASK, TYPE_VECTORS, MARKER_MAP];
    /// Every output, in the same order.
    pub const OUTPUTS: [&str; 2] = [LOGITS, CLS];
}

/// What authoring read and took for granted.
#[derive(Clone, Debug, Serialize)]
pub struct AuthorReport {
    /// Tensors read, those of the host among them.
    pub tensors: Consumption,
    /// Numbers that stay with the host: embeddings, type vectors, action head, temperatures.
    pub host_parameters: u64,
    /// Config keys that were absent and took the default.
    pub assumed: Vec<String>,
}

/// Authors the graph of one length, in f32; what goes in and out is in [`names`].
///
/// # Errors
/// A tensor is absent, misshapen or left over, or an op does not fit.
pub fn author(config: &LayaConfig, length: Length, ledger: &Ledger<'_>) -> Authored<(Graph, AuthorReport)> {
    let root = ledger.root();
    let host_parameters = host(config, &root)?;
    let (c, l) = (config.encoder.hidden, length.get());
    let mut b = Builder::new("main");
    let mut input = |name: &str, dims: [usize; 4]| b.input(name, Fact::new(DType::F32, dims));
    let embeddings = input(names::EMBEDDINGS, [1, c, 1, l])?;
    let full = input(names::FULL_MASK, [1, l, 1, l])?;
    let local = input(names::LOCAL_MASK, [1, l, 1, l])?;
    let types = input(names::TYPE_VECTORS, [1, c, 1, 1])?;
    let markers = input(names::MARKER_MAP, [1, l, 1, SLOTS])?;

    let encoded =
        b.scope("encoder", |b| encoder(b, &config.encoder, &root.scope("encoder"), embeddings, [full, local]))?;
    let mut x = b.push("typed", Op::Binary(Binary::Add), &[encoded, types])?;
    let layers = root.scope("head.layers");
    for index in 0..config.agent.layers {
        x = b.scope(format!("head.layers.{index}"), |b| head_layer(b, config, &layers.index(index), x, full))?;
    }
    let cls = b.push("class_token", Op::Slice { begin: vec![0; 4], end: vec![1, c, 1, 1] }, &[x])?;
    let marked = b.push("markers", Op::Einsum, &[x, markers])?;
    let logits = b.scope("scorer", |b| scorer(b, &root.scope("scorer"), marked))?;
    b.output(names::LOGITS, logits);
    b.output(names::CLS, cls);
    let tensors = ledger.finish(&[""])?;
    Ok((b.finish(), AuthorReport { tensors, host_parameters, assumed: config.assumed.clone() }))
}

/// Notes the tensors that stay with the host, so that a checkpoint without them is refused here and not by its users.
fn host(config: &LayaConfig, root: &Scope<'_>) -> Authored<u64> {
    let mut parameters = 0;
    for (name, dims) in stored::all(config) {
        parameters += root.tensor(&name, &dims)?.fact.shape.elements() as u64;
    }
    Ok(parameters)
}

/// Embedding norm, layers, final norm.
fn encoder(
    b: &mut Builder,
    config: &Encoder,
    scope: &Scope<'_>,
    embeddings: ValueId,
    [full, local]: [ValueId; 2],
) -> Authored<ValueId> {
    let length = blocks::last_extent(b, embeddings);
    let local_tables = |b: &mut Builder| Rotary::new(b, "local_rotary", config, length, config.local_theta);
    let (far, near) = if config.layers.contains(&LayerKind::Global) {
        let far = Rotary::new(b, "global_rotary", config, length, config.global_theta)?;
        // Where both kinds turn alike, as published, one set of tables serves both.
        let alike = config.local_theta.to_bits() == config.global_theta.to_bits();
        (far, if alike { far } else { local_tables(b)? })
    } else {
        let near = local_tables(b)?;
        (near, near)
    };
    let norm = |b: &mut Builder, part: &str, scope: &Scope<'_>, x| {
        let weights = norm_weights(&scope.scope(part), config.hidden, config.norm_bias)?;
        leveled_layer_norm(b, part, x, CHANNELS, weights, config.eps)
    };
    let mut x = norm(b, "embeddings.norm", scope, embeddings)?;
    let layers = scope.scope("layers");
    for (index, kind) in config.layers.iter().enumerate() {
        let (mask, rotary) = match kind {
            LayerKind::Global => (full, far),
            LayerKind::Local => (local, near),
        };
        let scope = layers.index(index);
        x = b.scope(format!("layers.{index}"), |b| {
            // The embedding norm stands right before the first layer, which has none of its own.
            let normed = if index == 0 { x } else { norm(b, "attn_norm", &scope, x)? };
            let attended =
                b.scope("attn", |b| encoder_attention(b, config, &scope.scope("attn"), normed, mask, rotary))?;
            let x = b.push("attn_residual", Op::Binary(Binary::Add), &[x, attended])?;
            let normed = norm(b, "mlp_norm", &scope, x)?;
            let fed = b.scope("mlp", |b| gated(b, config, &scope.scope("mlp"), normed))?;
            Ok::<_, AuthorError>(b.push("mlp_residual", Op::Binary(Binary::Add), &[x, fed])?)
        })?;
    }
    norm(b, "final_norm", scope, x)
}

/// Weight, and bias where there is one, as `[1, c, 1, 1]`.
fn norm_weights(scope: &Scope<'_>, channels: usize, bias: bool) -> Authored<(Weight, Option<Weight>)> {
    let tall = |name: &str| {
        let weight = blocks::weight(scope, name, &[channels])?;
        let weight = weight.edit(Edit::Reshape([1, channels, 1, 1].into()));
        weight.map_err(|source| AuthorError::Weight { tensor: scope.path(name), source })
    };
    Ok((tall("weight")?, bias.then(|| tall("bias")).transpose()?))
}

/// The linear layer of that name to so many channels.
fn projected(
    b: &mut Builder,
    scope: &Scope<'_>,
    name: &str,
    x: ValueId,
    channels: usize,
    bias: bool,
) -> Authored<ValueId> {
    let inner = channels_of(b, x);
    let scope = scope.scope(name);
    let weight = blocks::weight(&scope, "weight", &[channels, inner])?;
    let bias = bias.then(|| blocks::weight(&scope, "bias", &[channels])).transpose()?;
    pointwise(b, name, x, weight, bias)
}

fn channels_of(b: &Builder, x: ValueId) -> usize {
    b.fact(x).shape.dims().get(CHANNELS).copied().unwrap_or(1)
}

/// GeGLU: the first half through an exact GELU, the second multiplies.
fn gated(b: &mut Builder, config: &Encoder, scope: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
    let width = config.intermediate;
    let both = projected(b, scope, "Wi", x, 2 * width, config.mlp_bias)?;
    let value = cut(b, "value", both, CHANNELS, 0, width)?;
    let gate = cut(b, "gate", both, CHANNELS, width, width)?;
    let value = b.unary(Unary::Gelu, value)?;
    let product = b.push("product", Op::Binary(Binary::Mul), &[value, gate])?;
    projected(b, scope, "Wo", product, config.hidden, config.mlp_bias)
}

/// `count` of the extent of `axis`, from `begin` on; the value itself where that is all of it, as with a single head.
fn cut(b: &mut Builder, label: &str, x: ValueId, axis: usize, begin: usize, count: usize) -> Authored<ValueId> {
    let mut end = b.fact(x).shape.dims().to_vec();
    if begin == 0 && end.get(axis) == Some(&count) {
        return Ok(x);
    }
    let mut from = vec![0; end.len()];
    if let (Some(from), Some(end)) = (from.get_mut(axis), end.get_mut(axis)) {
        (*from, *end) = (begin, begin + count);
    }
    Ok(b.push(label, Op::Slice { begin: from, end }, &[x])?)
}

/// Query, key and value of all heads: thirds of one projection.
fn thirds(b: &mut Builder, both: ValueId) -> Authored<[ValueId; 3]> {
    let width = channels_of(b, both) / 3;
    Ok([
        cut(b, "query", both, CHANNELS, 0, width)?,
        cut(b, "key", both, CHANNELS, width, width)?,
        cut(b, "value", both, CHANNELS, 2 * width, width)?,
    ])
}

fn encoder_attention(
    b: &mut Builder,
    config: &Encoder,
    scope: &Scope<'_>,
    x: ValueId,
    mask: ValueId,
    rotary: Rotary,
) -> Authored<ValueId> {
    let all = projected(b, scope, "Wqkv", x, 3 * config.hidden, config.attention_bias)?;
    let [query, key, value] = thirds(b, all)?;
    let query = turned(b, "query_turned", query, config, rotary.query)?;
    let key = turned(b, "key_turned", key, config, rotary.key)?;
    let mixed = attention(b, [query, key, value], config.heads, mask)?;
    projected(b, scope, "Wo", mixed, config.hidden, config.attention_bias)
}

/// Scores, softmax over keys and mixture of each head, side by side again. The query carries the scores' scale.
fn attention(b: &mut Builder, [query, key, value]: [ValueId; 3], heads: usize, mask: ValueId) -> Authored<ValueId> {
    const LAST: usize = 3;
    let width = channels_of(b, query) / heads.max(1);
    let keys = b.push("keys", Op::Transpose { perm: vec![0, 3, 2, 1] }, &[key])?;
    let mut mixed = Vec::new();
    for head in 0..heads {
        let one = b.scope(format!("heads.{head}"), |b| {
            let query = cut(b, "query", query, CHANNELS, head * width, width)?;
            let keys = cut(b, "keys", keys, LAST, head * width, width)?;
            let value = cut(b, "value", value, CHANNELS, head * width, width)?;
            let scores = b.push("scores", Op::Einsum, &[keys, query])?;
            let masked = b.push("masked", Op::Binary(Binary::Add), &[scores, mask])?;
            let weights = b.push("weights", Op::Softmax { axis: 1 }, &[masked])?;
            Ok::<_, AuthorError>(b.push("mixed", Op::Einsum, &[value, weights])?)
        })?;
        mixed.push(one);
    }
    match mixed[..] {
        [one] => Ok(one),
        _ => Ok(b.push("mixed", Op::Concat { axis: CHANNELS }, &mixed)?),
    }
}

/// Half-split rotary tables of one base for all heads, `[1, c, 1, l]`.
#[derive(Clone, Copy)]
struct Rotary {
    query: [ValueId; 2],
    key: [ValueId; 2],
}

impl Rotary {
    /// Cosines and sines for so many positions. The query's carry the scale of the scores, which keeps their products
    /// inside fp16.
    fn new(b: &mut Builder, label: &str, config: &Encoder, positions: usize, base: f64) -> Authored<Rotary> {
        let (width, heads) = (config.head_width(), config.heads);
        let scale = 1.0 / (width as f64).sqrt();
        let mut table = |name: &str, wave, scale: f64| {
            let edits = [
                Edit::Scale(scale),
                Edit::Transpose(vec![3, 0, 1, 2]),
                Edit::Repeat(heads),
                Edit::Reshape([1, config.hidden, 1, positions].into()),
            ];
            let table = Weight::table(Table::Rotary { wave, positions, width, base });
            let plain = |edit: &Edit| matches!(edit, Edit::Scale(factor) if *factor == 1.0);
            let edited = table.and_then(|w| edits.into_iter().filter(|e| !plain(e)).try_fold(w, Weight::edit));
            let path = b.path(&format!("{label}.{name}"));
            let edited = edited.map_err(|source| AuthorError::Weight { tensor: path, source })?;
            Ok::<_, AuthorError>(b.constant(&format!("{label}.{name}"), edited))
        };
        Ok(Rotary {
            query: [table("query_cos", Wave::Cos, scale)?, table("query_sin", Wave::Sin, scale)?],
            key: [table("key_cos", Wave::Cos, 1.0)?, table("key_sin", Wave::Sin, 1.0)?],
        })
    }
}

/// `x [1, c, 1, l]` turned by its positions, the halves of each head by the same angles.
fn turned(b: &mut Builder, label: &str, x: ValueId, config: &Encoder, [cos, sin]: [ValueId; 2]) -> Authored<ValueId> {
    let half = config.head_width() / 2;
    b.scope(label, |b| {
        let mut halves = Vec::new();
        for head in 0..config.heads {
            halves.push(cut(b, "second", x, CHANNELS, (2 * head + 1) * half, half)?);
            halves.push(cut(b, "first", x, CHANNELS, 2 * head * half, half)?);
        }
        let swapped = b.push("swapped", Op::Concat { axis: CHANNELS }, &halves)?;
        let straight = b.push("straight", Op::Binary(Binary::Mul), &[x, cos])?;
        let crossed = b.push("crossed", Op::Binary(Binary::Mul), &[swapped, sin])?;
        Ok(b.push("", Op::Binary(Binary::Add), &[straight, crossed])?)
    })
}

/// A pre-norm transformer layer of the decision head, whose feed forward is a ReLU.
fn head_layer(b: &mut Builder, config: &LayaConfig, scope: &Scope<'_>, x: ValueId, mask: ValueId) -> Authored<ValueId> {
    let channels = config.encoder.hidden;
    let norm = |b: &mut Builder, part: &str, x| {
        leveled_layer_norm(b, part, x, CHANNELS, norm_weights(&scope.scope(part), channels, true)?, HEAD_EPS)
    };
    let normed = norm(b, "norm1", x)?;
    let attended = b.scope("self_attn", |b| head_attention(b, config, &scope.scope("self_attn"), normed, mask))?;
    let x = b.push("attn_residual", Op::Binary(Binary::Add), &[x, attended])?;
    let y = norm(b, "norm2", x)?;
    let y = projected(b, scope, "linear1", y, 4 * channels, true)?;
    let y = b.unary(Unary::Relu, y)?;
    let y = projected(b, scope, "linear2", y, channels, true)?;
    Ok(b.push("mlp_residual", Op::Binary(Binary::Add), &[x, y])?)
}

fn head_attention(
    b: &mut Builder,
    config: &LayaConfig,
    scope: &Scope<'_>,
    x: ValueId,
    mask: ValueId,
) -> Authored<ValueId> {
    let (channels, heads) = (config.encoder.hidden, config.agent_heads());
    let weight = blocks::weight(scope, "in_proj_weight", &[3 * channels, channels])?;
    let bias = blocks::weight(scope, "in_proj_bias", &[3 * channels])?;
    let all = pointwise(b, "in_proj", x, weight, Some(bias))?;
    let [query, key, value] = thirds(b, all)?;
    let scale = b.constant("scale", Weight::scalar(1.0 / ((channels / heads) as f64).sqrt()));
    let query = b.push("query_scaled", Op::Binary(Binary::Mul), &[query, scale])?;
    let mixed = attention(b, [query, key, value], heads, mask)?;
    projected(b, scope, "out_proj", mixed, channels, true)
}

/// The score of each marker: norm, linear, exact GELU, linear to one.
fn scorer(b: &mut Builder, scope: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
    let channels = channels_of(b, x);
    let x = leveled_layer_norm(b, "0", x, CHANNELS, norm_weights(&scope.scope("0"), channels, true)?, HEAD_EPS)?;
    let x = projected(b, scope, "1", x, channels, true)?;
    let x = b.unary(Unary::Gelu, x)?;
    projected(b, scope, "3", x, 1, true)
}
