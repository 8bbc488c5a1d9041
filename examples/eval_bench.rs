//! Times the evaluator on conformer layers of the encoder's full width with random weights, and says where the time
//! goes: `cargo run --release --example eval_bench -- [LAYERS] [TOKENS] [RUNS]`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use eg2_convert::eval::{Evaluator, HostTensor, Options, Values};
use eg2_convert::ir::{Binary, BuildError, Builder, ConvSpec, Graph, Op, Reduce, Table, Unary, ValueId, Weight};
use eg2_convert::tensor::{DType, Fact, Shape, SourceError, WeightSource};
use eg2_convert::validate::check;
use std::collections::BTreeMap;
use std::time::Instant;

const HIDDEN: usize = 1024;
const HEADS: usize = 8;
const KEYS: usize = 12;

/// Serves every tensor from one short stream of noise.
struct Noise {
    facts: BTreeMap<String, Fact>,
    values: Vec<f32>,
}

impl Noise {
    fn new() -> Noise {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.05
        };
        Noise { facts: BTreeMap::new(), values: (0..1 << 22).map(|_| next()).collect() }
    }
}

impl WeightSource for Noise {
    fn names(&self) -> Vec<&str> {
        self.facts.keys().map(String::as_str).collect()
    }
    fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.get(name)
    }
    fn read(&self, _: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let mut values = vec![0f32; out.len().div_ceil(4)];
        self.read_f32("", offset as usize / 4, &mut values)?;
        out.iter_mut().zip(values.iter().flat_map(|v| v.to_le_bytes())).for_each(|(o, b)| *o = b);
        Ok(())
    }
    fn read_f32(&self, _: &str, start: usize, out: &mut [f32]) -> Result<(), SourceError> {
        let (mut at, mut rest) = (start % self.values.len(), out);
        while !rest.is_empty() {
            let n = rest.len().min(self.values.len() - at);
            rest[..n].copy_from_slice(&self.values[at..at + n]);
            rest = &mut rest[n..];
            at = 0;
        }
        Ok(())
    }
    fn place(&self, _: &str) -> String {
        "noise".into()
    }
}

type Made = Result<ValueId, BuildError>;

/// Wires the layers and notes the tensors they take.
struct Wiring<'n> {
    b: Builder,
    noise: &'n mut Noise,
}

impl Wiring<'_> {
    fn weight(&mut self, name: &str, dims: &[usize]) -> ValueId {
        let path = self.b.path(name);
        let fact = Fact::new(DType::F32, Shape::new(dims));
        self.noise.facts.insert(path.clone(), fact.clone());
        match Weight::tensor(path, &fact) {
            Ok(weight) => self.b.constant(name, weight),
            Err(_) => self.number(0.0),
        }
    }

    fn number(&mut self, v: f64) -> ValueId {
        self.b.constant("number", Weight::scalar(v))
    }

    fn with(&mut self, kind: Binary, x: ValueId, v: f64) -> Made {
        let v = self.number(v);
        self.b.binary(kind, x, v)
    }

    fn reduce(&mut self, kind: Reduce, axis: usize, x: ValueId) -> Made {
        self.b.push(kind.name(), Op::Reduce { kind, axis }, &[x])
    }

    fn clamp(&mut self, x: ValueId) -> Made {
        let x = self.with(Binary::Maximum, x, -40.0)?;
        self.with(Binary::Minimum, x, 40.0)
    }

    fn linear(&mut self, name: &str, x: ValueId, k: usize, n: usize) -> Made {
        let x = self.clamp(x)?;
        let w = self.weight(name, &[n, k]);
        let y = self.b.push(name, Op::Linear, &[x, w])?;
        self.clamp(y)
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Made {
        let a = self.b.unary(Unary::Abs, x)?;
        let m = self.reduce(Reduce::Max, 2, a)?;
        let m = self.with(Binary::Maximum, m, 1.2e-4)?;
        let x = self.b.binary(Binary::Div, x, m)?;
        let s = self.b.unary(Unary::Square, x)?;
        let s = self.reduce(Reduce::Mean, 2, s)?;
        let eps = self.number(1e-3);
        let e = self.b.binary(Binary::Div, eps, m)?;
        let e = self.b.unary(Unary::Square, e)?;
        let s = self.b.binary(Binary::Add, s, e)?;
        let r = self.b.unary(Unary::Rsqrt, s)?;
        let x = self.b.binary(Binary::Mul, x, r)?;
        let w = self.weight(name, &[HIDDEN]);
        self.b.binary(Binary::Mul, x, w)
    }

    fn feed_forward(&mut self, name: &str, x: ValueId) -> Made {
        let h = self.norm(&format!("{name}.pre"), x)?;
        let h = self.linear(&format!("{name}.up"), h, HIDDEN, 4 * HIDDEN)?;
        let h = self.b.unary(Unary::Silu, h)?;
        let h = self.linear(&format!("{name}.down"), h, 4 * HIDDEN, HIDDEN)?;
        let h = self.norm(&format!("{name}.post"), h)?;
        let h = self.with(Binary::Mul, h, 0.5)?;
        self.b.binary(Binary::Add, x, h)
    }

    fn heads(&mut self, name: &str, x: ValueId, t: usize) -> Made {
        let y = self.linear(name, x, HIDDEN, HIDDEN)?;
        let y = self.b.push("split", Op::Reshape { shape: [1, t, HEADS, HIDDEN / HEADS].into() }, &[y])?;
        self.b.push("split", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[y])
    }

    fn back(&mut self, x: ValueId, d: usize, t: usize) -> Made {
        let (begin, end) = (vec![0, 0, KEYS - 1 - d, 0], vec![1, HEADS, KEYS - 1 - d + t, HIDDEN / HEADS]);
        self.b.push("back", Op::Slice { begin, end }, &[x])
    }

    fn attention(&mut self, x: ValueId, t: usize) -> Made {
        let h = self.norm("norm_pre_attn", x)?;
        let q = self.heads("q_proj", h, t)?;
        let mut padded = |name: &str| {
            let y = self.heads(name, h, t)?;
            let amount = vec![[0, 0], [0, 0], [KEYS - 1, 0], [0, 0]];
            self.b.push("pad", Op::Pad { amount }, &[y])
        };
        let (k, v) = (padded("k_proj")?, padded("v_proj")?);
        let mut logits = Vec::new();
        for d in 0..KEYS {
            let key = self.back(k, d, t)?;
            let rel = self.weight(&format!("relk_{d}"), &[1, HEADS, 1, HIDDEN / HEADS]);
            let key = self.b.binary(Binary::Add, key, rel)?;
            let product = self.b.binary(Binary::Mul, key, q)?;
            logits.push(self.reduce(Reduce::Sum, 3, product)?);
        }
        let l = self.b.push("logits", Op::Concat { axis: 3 }, &logits)?;
        let l = self.with(Binary::Mul, l, 0.02)?;
        let l = self.b.unary(Unary::Tanh, l)?;
        let l = self.with(Binary::Mul, l, 50.0)?;
        let band = Weight::table(Table::CausalBand { tokens: t, keys: KEYS, value: -1e4 });
        let band = band.map_err(|source| BuildError { path: "band".into(), source })?;
        let band = self.b.constant("band", band);
        let l = self.b.binary(Binary::Add, l, band)?;
        let p = self.b.push("softmax", Op::Softmax { axis: 3 }, &[l])?;
        let mut sum = None;
        for d in 0..KEYS {
            let value = self.back(v, d, t)?;
            let (begin, end) = (vec![0, 0, 0, d], vec![1, HEADS, t, d + 1]);
            let weight = self.b.push("weight", Op::Slice { begin, end }, &[p])?;
            let part = self.b.binary(Binary::Mul, value, weight)?;
            sum = Some(match sum {
                Some(sum) => self.b.binary(Binary::Add, sum, part)?,
                None => part,
            });
        }
        let y = self.b.push("merge", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[sum.unwrap_or(x)])?;
        let y = self.b.push("merge", Op::Reshape { shape: [1, t, HIDDEN].into() }, &[y])?;
        let y = self.linear("post", y, HIDDEN, HIDDEN)?;
        let y = self.norm("norm_post_attn", y)?;
        self.b.binary(Binary::Add, x, y)
    }

    fn light_conv(&mut self, x: ValueId, t: usize) -> Made {
        let h = self.norm("lconv1d.pre", x)?;
        let h = self.linear("linear_start", h, HIDDEN, 2 * HIDDEN)?;
        let mut half = |from: usize| {
            let (begin, end) = (vec![0, 0, from], vec![1, t, from + HIDDEN]);
            self.b.push("glu", Op::Slice { begin, end }, &[h])
        };
        let (a, gate) = (half(0)?, half(HIDDEN)?);
        let gate = self.b.unary(Unary::Sigmoid, gate)?;
        let h = self.b.binary(Binary::Mul, a, gate)?;
        let h = self.b.push("swap", Op::Transpose { perm: vec![0, 2, 1] }, &[h])?;
        let w = self.weight("depthwise", &[HIDDEN, 1, 5]);
        let spec = ConvSpec { stride: vec![1], pad: vec![[4, 0]], groups: HIDDEN };
        let h = self.b.push("depthwise", Op::Conv(spec), &[h, w])?;
        let h = self.b.push("swap", Op::Transpose { perm: vec![0, 2, 1] }, &[h])?;
        let h = self.norm("conv_norm", h)?;
        let h = self.b.unary(Unary::Silu, h)?;
        let h = self.linear("linear_end", h, HIDDEN, HIDDEN)?;
        self.b.binary(Binary::Add, x, h)
    }

    fn subsample(&mut self, name: &str, x: ValueId, from: usize, to: usize) -> Made {
        let w = self.weight(&format!("{name}.conv"), &[to, from, 3, 3]);
        let spec = ConvSpec { stride: vec![2, 2], pad: vec![[1, 1], [1, 1]], groups: 1 };
        let y = self.b.push("conv", Op::Conv(spec), &[x, w])?;
        let m = self.reduce(Reduce::Mean, 1, y)?;
        let y = self.b.binary(Binary::Sub, y, m)?;
        let s = self.b.unary(Unary::Square, y)?;
        let s = self.reduce(Reduce::Mean, 1, s)?;
        let s = self.with(Binary::Add, s, 1e-6)?;
        let r = self.b.unary(Unary::Rsqrt, s)?;
        let y = self.b.binary(Binary::Mul, y, r)?;
        let w = self.weight(&format!("{name}.norm"), &[to, 1, 1]);
        let y = self.b.binary(Binary::Mul, y, w)?;
        self.b.unary(Unary::Relu, y)
    }
}

fn encoder(noise: &mut Noise, layers: usize, t: usize) -> Result<Graph, BuildError> {
    let mut w = Wiring { b: Builder::new("bench"), noise };
    let x = w.b.input("features", Fact::new(DType::F32, [1, 1, 4 * t, 128]))?;
    let x = w.subsample("layer0", x, 1, 128)?;
    let x = w.subsample("layer1", x, 128, 32)?;
    let x = w.b.push("flatten", Op::Transpose { perm: vec![0, 2, 3, 1] }, &[x])?;
    let x = w.b.push("flatten", Op::Reshape { shape: [1, t, 1024].into() }, &[x])?;
    let mut x = w.linear("input_proj", x, 1024, HIDDEN)?;
    for layer in 0..layers {
        // Layers share their noise, not their names.
        let mut scoped = Wiring { b: w.b, noise: w.noise };
        let prefix = format!("layers.{layer}");
        x = scoped.feed_forward(&format!("{prefix}.feed_forward1"), x)?;
        x = scoped.attention(x, t)?;
        x = scoped.light_conv(x, t)?;
        x = scoped.feed_forward(&format!("{prefix}.feed_forward2"), x)?;
        x = scoped.norm(&format!("{prefix}.norm_out"), x)?;
        w = scoped;
    }
    w.b.output("hidden", x);
    Ok(w.b.finish())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let at = |i: usize, default: usize| args.get(i).copied().unwrap_or(default);
    let (layers, tokens, runs) = (at(0, 1), at(1, 750), at(2, 3));
    let mut noise = Noise::new();
    let graph = encoder(&mut noise, layers, tokens)?;
    let checked = check(&graph).map_err(|e| format!("{e:?}"))?;
    let fact = graph.fact(graph.inputs()[0]).clone();
    let ramp = (0..fact.shape.elements()).map(|i| (i % 97) as f32 * 0.05 - 2.0).collect();
    let inputs = BTreeMap::from([("features".to_string(), HostTensor::new(fact, Values::F32(ramp))?)]);
    for (name, options) in [
        ("f32", Options::default()),
        ("f32, profiled", Options { profile: true, ..Options::default() }),
        ("f16 rounding", Options { round_f16: true, ..Options::default() }),
    ] {
        let evaluator = Evaluator::new(checked, &noise, options);
        let mut best = f64::INFINITY;
        let mut seconds = BTreeMap::new();
        for _ in 0..runs {
            let start = Instant::now();
            let (_, report) = evaluator.run(&inputs)?;
            let elapsed = start.elapsed().as_secs_f64();
            if elapsed < best {
                (best, seconds) = (elapsed, report.seconds);
            }
        }
        println!("{name}: {layers} layers, {tokens} tokens, best of {runs}: {:.1} ms", best * 1e3);
        let mut sorted: Vec<_> = seconds.into_iter().collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (op, s) in sorted {
            println!("  {op:12} {:8.1} ms", s * 1e3);
        }
    }
    Ok(())
}
