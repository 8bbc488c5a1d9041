//! The tower, written once: subsampling, conformer layers, output projection, `embed_audio`.

use super::attention::attention;
use super::clip::{Clipped, DroppedBound, Fold};
use super::config::{AudioConfig, FIXED_EPS};
use super::{Bucket, MEL_BINS};
use crate::checkpoint::{Consumption, Ledger, Scope};
use crate::ir::{Binary, Builder, ConvSpec, Edit, Graph, Op, Unary, ValueId, Weight};
use crate::models::blocks::{self, AuthorError, layer_norm, linear, rms_norm};
use crate::tensor::{DType, Fact, Shape};
use serde::Serialize;

/// A result of authoring this model.
pub type Authored<T> = Result<T, AuthorError>;

/// Where a checkpoint keeps the tower: EmbeddingGemma 2 at the top, Gemma 4 under `model.`.
const PREFIXES: [&str; 2] = ["", "model."];

/// What authoring read, left out and took for granted.
#[derive(Clone, Debug, Serialize)]
pub struct AuthorReport {
    /// Prefix of the tower's names in the checkpoint.
    pub prefix: String,
    /// Tensors read, and tensors of other parts that were passed over.
    pub tensors: Consumption,
    /// Clamp bounds left out because they are infinite.
    pub dropped_bounds: Vec<DroppedBound>,
    /// Config keys that were absent and took the published default.
    pub assumed: Vec<String>,
}

/// Authors the encoder of one bucket: `features [1, Tb, 128]` and `half_mask [1, Tb / 2]` to
/// `soft_tokens [1, Tb / 4, text_hidden]`, in f32.
///
/// # Errors
/// A tensor is absent, misshapen or left over, a clamp bound makes no sense, or an op does not fit.
pub fn author(config: &AudioConfig, bucket: Bucket, ledger: &Ledger<'_>) -> Authored<(Graph, AuthorReport)> {
    let prefix = ledger.prefixed(&PREFIXES, "audio_tower.output_proj.weight");
    let root = ledger.root().scope(prefix);
    let clipped = Clipped { enabled: config.clipped, dropped: Vec::new() };
    let mut tower = Tower { b: Builder::new("main"), config, clipped };

    let features = tower.b.input("features", Fact::new(DType::F32, [1, bucket.frames(), MEL_BINS]))?;
    let half_mask = tower.b.input("half_mask", Fact::new(DType::F32, [1, bucket.half()]))?;
    let audio = root.scope("audio_tower");
    let mut x = tower.subsample(&audio.scope("subsample_conv_projection"), features, half_mask)?;
    for index in 0..config.layers {
        x = tower.layer(&audio.scope("layers").index(index), index, x)?;
    }
    let x = tower.output(&audio, x)?;
    let soft = tower.embed(&root.scope("embed_audio"), x)?;
    tower.b.output("soft_tokens", soft);

    let owned = ["audio_tower.", "embed_audio."].map(|part| format!("{prefix}{part}"));
    let report = AuthorReport {
        prefix: prefix.into(),
        tensors: ledger.finish(&[&owned[0], &owned[1]])?,
        dropped_bounds: tower.clipped.dropped,
        assumed: config.assumed.clone(),
    };
    Ok((tower.b.finish(), report))
}

/// Path of the node that layer number `index` ends with: its value alone goes on to the next.
pub fn end_of_layer(index: usize) -> String {
    format!("layers.{index}.norm_out")
}

struct Tower<'c> {
    b: Builder,
    config: &'c AudioConfig,
    clipped: Clipped,
}

impl Tower<'_> {
    /// Two strided convolutions over time and frequency, then a projection of all that is left of a column.
    fn subsample(&mut self, scope: &Scope<'_>, features: ValueId, half_mask: ValueId) -> Authored<ValueId> {
        let config = self.config;
        let [first, second] = config.conv_channels;
        let frames = self.b.fact(features).shape.dims()[1];
        self.b.scope("subsample_conv_projection", |b| {
            let shape = [1, 1, frames, MEL_BINS].into();
            let image = b.push("image", Op::Reshape { shape }, &[features])?;
            let x = conv_layer(b, scope, "layer0", image, [first, 1], config.eps)?;
            let shape = [1, 1, frames / 2, 1].into();
            let mask = b.push("mask", Op::Reshape { shape }, &[half_mask])?;
            let x = b.push("masked", Op::Binary(Binary::Mul), &[x, mask])?;
            let x = conv_layer(b, scope, "layer1", x, [second, first], config.eps)?;
            let [_, channels, tokens, bins] = *b.fact(x).shape.dims() else { return Ok(x) };
            let columns = b.push("columns", Op::Transpose { perm: vec![0, 2, 3, 1] }, &[x])?;
            let shape = [1, tokens, bins * channels].into();
            let flat = b.push("flat", Op::Reshape { shape }, &[columns])?;
            let weight = blocks::weight(scope, "input_proj_linear.weight", &[config.hidden, bins * channels])?;
            linear(b, "input_proj_linear", flat, weight, None)
        })
    }

    fn layer(&mut self, scope: &Scope<'_>, index: usize, x: ValueId) -> Authored<ValueId> {
        let Tower { b, config, clipped } = self;
        b.scope(format!("layers.{index}"), |b| {
            let x = feed_forward(b, clipped, scope, "feed_forward1", config, x)?;
            let normed = norm(b, scope, "norm_pre_attn", x, FIXED_EPS)?;
            let attended =
                b.scope("self_attn", |b| attention(b, clipped, &scope.scope("self_attn"), config, normed))?;
            let normed = norm(b, scope, "norm_post_attn", attended, FIXED_EPS)?;
            let x = b.push("attn_residual", Op::Binary(Binary::Add), &[normed, x])?;
            let x = light_conv(b, clipped, &scope.scope("lconv1d"), config, x)?;
            let x = feed_forward(b, clipped, scope, "feed_forward2", config, x)?;
            norm(b, scope, "norm_out", x, FIXED_EPS)
        })
    }

    fn output(&mut self, audio: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
        let config = self.config;
        let weight = blocks::weight(audio, "output_proj.weight", &[config.output_dims, config.hidden])?;
        let bias = blocks::weight(audio, "output_proj.bias", &[config.output_dims])?;
        linear(&mut self.b, "output_proj", x, weight, Some(bias))
    }

    fn embed(&mut self, scope: &Scope<'_>, x: ValueId) -> Authored<ValueId> {
        let config = self.config;
        self.b.scope("embed_audio", |b| {
            let normed = rms_norm(b, "embedding_pre_projection_norm", x, None, config.eps)?;
            let dims = [config.text_hidden, config.output_dims];
            let weight = blocks::weight(scope, "embedding_projection.weight", &dims)?;
            linear(b, "embedding_projection", normed, weight, None)
        })
    }
}

/// RMSNorm over the tower's width by the weight `scope` keeps under that name.
fn norm(b: &mut Builder, scope: &Scope<'_>, name: &str, x: ValueId, eps: f64) -> Authored<ValueId> {
    let width = blocks::last_extent(b, x);
    let weight = blocks::weight(scope, &format!("{name}.weight"), &[width])?;
    rms_norm(b, name, x, Some(weight), eps)
}

/// 3x3 convolution with stride 2, LayerNorm over channels, ReLU. Its LayerNorm stays plain in fp16, where inputs are
/// at most 51: the max-abs form made one Neural Engine compile fail, and a mean folded into the kernel lost accuracy.
fn conv_layer(
    b: &mut Builder,
    scope: &Scope<'_>,
    label: &str,
    x: ValueId,
    [out, channels]: [usize; 2],
    eps: f64,
) -> Authored<ValueId> {
    let scope = scope.scope(label);
    let kernel = blocks::weight(&scope, "conv.weight", &[out, channels, 3, 3])?;
    let tensor = scope.path("norm.weight");
    let weight = blocks::weight(&scope, "norm.weight", &[out])?
        .edit(Edit::Reshape(Shape::from([1, out, 1, 1])))
        .map_err(|source| AuthorError::Weight { tensor, source })?;
    b.scope(label, |b| {
        let spec = ConvSpec { stride: vec![2, 2], pad: vec![[1, 1], [1, 1]], groups: 1 };
        let x = convolve(b, "conv", spec, x, kernel)?;
        let x = layer_norm(b, "norm", x, 1, weight, eps)?;
        Ok(b.unary(Unary::Relu, x)?)
    })
}

fn feed_forward(
    b: &mut Builder,
    clipped: &mut Clipped,
    scope: &Scope<'_>,
    label: &str,
    config: &AudioConfig,
    x: ValueId,
) -> Authored<ValueId> {
    let scope = scope.scope(label);
    let (narrow, wide) = (config.hidden, config.hidden * 4);
    let tensor = scope.path("post_layer_norm.weight");
    // The residual weight scales the post norm's result, so it goes into that norm's weight.
    let post = blocks::weight(&scope, "post_layer_norm.weight", &[narrow])?
        .edit(Edit::Scale(config.residual_weight))
        .map_err(|source| AuthorError::Weight { tensor, source })?;
    b.scope(label, |b| {
        let y = norm(b, &scope, "pre_layer_norm", x, FIXED_EPS)?;
        let y = clipped.linear(b, &scope, "ffw_layer_1", y, [wide, narrow], &Fold::Nothing)?;
        let y = b.unary(Unary::Silu, y)?;
        let y = clipped.linear(b, &scope, "ffw_layer_2", y, [narrow, wide], &Fold::Nothing)?;
        let y = rms_norm(b, "post_layer_norm", y, Some(post), FIXED_EPS)?;
        Ok(b.push("residual", Op::Binary(Binary::Add), &[y, x])?)
    })
}

/// Gated linear unit, causal depthwise convolution, norm, SiLU.
fn light_conv(
    b: &mut Builder,
    clipped: &mut Clipped,
    scope: &Scope<'_>,
    config: &AudioConfig,
    x: ValueId,
) -> Authored<ValueId> {
    let (width, taps) = (config.hidden, config.conv_kernel);
    let kernel = blocks::weight(scope, "depthwise_conv1d.weight", &[width, 1, taps])?;
    b.scope("lconv1d", |b| {
        let y = norm(b, scope, "pre_layer_norm", x, config.eps)?;
        let y = clipped.linear(b, scope, "linear_start", y, [width * 2, width], &Fold::Nothing)?;
        let y = gated(b, y, width)?;
        let y = b.push("channels_first", Op::Transpose { perm: vec![0, 2, 1] }, &[y])?;
        let spec = ConvSpec { stride: vec![1], pad: vec![[taps - 1, 0]], groups: width };
        let y = convolve(b, "depthwise_conv1d", spec, y, kernel)?;
        let y = b.push("channels_last", Op::Transpose { perm: vec![0, 2, 1] }, &[y])?;
        let y = norm(b, scope, "conv_norm", y, config.eps)?;
        let y = b.unary(Unary::Silu, y)?;
        let y = clipped.linear(b, scope, "linear_end", y, [width; 2], &Fold::Nothing)?;
        Ok(b.push("residual", Op::Binary(Binary::Add), &[y, x])?)
    })
}

/// First half of the last axis times the sigmoid of the second.
fn gated(b: &mut Builder, x: ValueId, width: usize) -> Authored<ValueId> {
    let tokens = b.fact(x).shape.dims()[1];
    let half = |from| Op::Slice { begin: vec![0, 0, from], end: vec![1, tokens, from + width] };
    let value = b.push("value", half(0), &[x])?;
    let gate = b.push("gate", half(width), &[x])?;
    let gate = b.unary(Unary::Sigmoid, gate)?;
    Ok(b.push("gated", Op::Binary(Binary::Mul), &[value, gate])?)
}

fn convolve(b: &mut Builder, label: &str, spec: ConvSpec, x: ValueId, kernel: Weight) -> Authored<ValueId> {
    let kernel = b.constant(&format!("{label}.weight"), kernel);
    Ok(b.push(label, Op::Conv(spec), &[x, kernel])?)
}
