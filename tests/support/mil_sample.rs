//! Graphs with every op, and weights for them, for tests of the writers. Uses the public interface only.

use eg2_convert::ir::{Binary, Builder, ConvSpec, Edit, Graph, Op, Reduce, Unary, ValueId, Weight};
use eg2_convert::tensor::{DType, Fact, Memory, Shape};

const TENSORS: [(&str, &[usize]); 9] = [
    ("conv2d.weight", &[4, 1, 3, 3]),
    ("conv2d.bias", &[4]),
    ("conv1d.weight", &[6, 1, 5]),
    ("linear.weight", &[12, 6]),
    ("linear.bias", &[12]),
    ("linear.same", &[12, 6]),
    ("square.weight", &[6, 6]),
    ("flat.weight", &[4, 64]),
    ("tall.weight", &[12, 64]),
];

/// Weights that the graphs here refer to; `linear.same` holds what `linear.weight` holds.
pub fn weights() -> Memory {
    let tensor = |(name, dims): &(&str, &[usize])| {
        let fact = Fact::new(DType::F32, Shape::new(*dims));
        let value = |i: usize| ((i * 7 + dims.len()) % 23) as f32 / 16.0 - 0.6;
        let bytes = (0..fact.shape.elements()).flat_map(|i| value(i).to_le_bytes()).collect();
        (name.to_string(), (fact, bytes))
    };
    Memory(TENSORS.iter().map(tensor).collect())
}

struct Sample<'m> {
    b: Builder,
    memory: &'m Memory,
    dtype: DType,
}

impl Sample<'_> {
    fn weight(&mut self, name: &str) -> ValueId {
        let weight = Weight::tensor(name, &self.memory.0[name].0).unwrap();
        let weight = if self.dtype == DType::F32 { weight } else { weight.edit(Edit::Cast(self.dtype)).unwrap() };
        self.b.constant(name, weight)
    }

    fn literal(&mut self, label: &str, values: Vec<f64>, dims: &[usize]) -> ValueId {
        self.b.constant(label, Weight::literal(values, Fact::new(self.dtype, Shape::new(dims))).unwrap())
    }

    fn op(&mut self, label: &str, op: Op, args: &[ValueId]) -> ValueId {
        self.b.push(label, op, args).unwrap()
    }
}

/// A graph called `name` that uses every op, each unary, binary and reduction, and every kind of constant.
pub fn every_op(name: &str, memory: &Memory, dtype: DType) -> Graph {
    let mut s = Sample { b: Builder::new(name), memory, dtype };
    let image = s.b.input("image", Fact::new(dtype, [1, 1, 8, 6])).unwrap();
    let wave = s.b.input("wave", Fact::new(dtype, [1, 6, 9])).unwrap();

    let (w, bias) = (s.weight("conv2d.weight"), s.weight("conv2d.bias"));
    let spec = ConvSpec { stride: vec![2, 2], pad: vec![[1, 1], [1, 1]], groups: 1 };
    let conv = s.op("subsample.0.conv", Op::Conv(spec), &[image, w, bias]);
    let relu = s.b.unary(Unary::Relu, conv).unwrap();
    let moved = s.op("subsample.0.moved", Op::Transpose { perm: vec![0, 2, 3, 1] }, &[relu]);
    let flat = s.op("subsample.flat", Op::Reshape { shape: [1, 4, 12].into() }, &[moved]);

    let w = s.weight("conv1d.weight");
    let spec = ConvSpec { stride: vec![1], pad: vec![[4, 0]], groups: 6 };
    let depthwise = s.op("lconv1d", Op::Conv(spec), &[wave, w]);
    let tokens = s.op("lconv1d.tokens", Op::Transpose { perm: vec![0, 2, 1] }, &[depthwise]);

    let mut x = tokens;
    for kind in Unary::ALL {
        x = match kind {
            // One divided by the root asks for positive numbers.
            Unary::Rsqrt => {
                let one = s.literal("one", vec![1.0], &[]);
                let above = s.b.binary(Binary::Add, x, one).unwrap();
                s.b.unary(kind, above).unwrap()
            }
            Unary::Abs
            | Unary::Square
            | Unary::Tanh
            | Unary::Sigmoid
            | Unary::Silu
            | Unary::Relu
            | Unary::Gelu
            | Unary::GeluTanh => s.b.unary(kind, x).unwrap(),
        };
    }
    let vector = s.literal("bound", vec![0.5, 1.0, 1.5, 2.0, 2.5, 3.0], &[6]);
    for kind in Binary::ALL {
        x = s.b.binary(kind, x, vector).unwrap();
    }
    for kind in Reduce::ALL {
        let reduced = s.op(kind.name(), Op::Reduce { kind, axis: 2 }, &[x]);
        x = s.b.binary(Binary::Sub, x, reduced).unwrap();
    }
    let (w, bias) = (s.weight("linear.weight"), s.weight("linear.bias"));
    let biased = s.op("layers.0.proj", Op::Linear, &[x, w, bias]);
    let same = s.weight("linear.same");
    let plain = s.op("layers.0.proj", Op::Linear, &[x, same]);
    let joined = s.op("layers.0.joined", Op::Concat { axis: 1 }, &[biased, plain, flat]);
    let cut = s.op("layers.0.cut", Op::Slice { begin: vec![0, 2, 0], end: vec![1, 20, 12] }, &[joined]);
    let padded = s.op("layers.0.padded", Op::Pad { amount: vec![[0, 0], [2, 0], [0, 0]] }, &[cut]);
    let soft = s.op("layers.0.soft", Op::Softmax { axis: 2 }, &[padded]);
    let turned = s.op("layers.0.turned", Op::Transpose { perm: vec![0, 2, 1] }, &[soft]);
    let scores = s.op("layers.0.scores", Op::MatMul, &[soft, turned]);
    let best = s.op("layers.0.best", Op::ArgMax { axis: 2 }, &[scores]);
    let channels = s.op("channels", Op::Reshape { shape: [2, 3, 2, 20].into() }, &[soft]);
    let keys = s.op("keys", Op::Transpose { perm: vec![0, 3, 2, 1] }, &[channels]);
    let einsum = s.op("einsum", Op::Einsum, &[channels, keys]);
    // An fp16 graph holds no fp32 value.
    let other = if dtype == DType::F32 { DType::F16 } else { DType::I32 };
    let there = s.op("there", Op::Cast(other), &[soft]);
    let back = s.op("back", Op::Cast(dtype), &[there]);

    s.b.output("soft_tokens", back);
    s.b.output("best", best);
    s.b.output("einsum", einsum);
    s.b.output("hidden", x);
    s.b.output("hidden_again", x);
    s.b.output("wave_again", wave);
    s.b.output("one_out", vector);
    s.b.finish()
}

/// A graph called `name` with every kind of compressed constant: levels with scales in the program and in the weight
/// file, fp16 that is brought to fp32, and such values and constants given out besides.
pub fn compressed(name: &str, memory: &Memory) -> Graph {
    let mut s = Sample { b: Builder::new(name), memory, dtype: DType::F32 };
    let x = s.b.input("x", Fact::new(DType::F32, [1, 3, 64])).unwrap();
    let z = s.b.input("z", Fact::new(DType::F32, [1, 2, 6])).unwrap();
    let mut quantized = |name: &str| {
        let weight = || Weight::tensor(name, &s.memory.0[name].0).unwrap();
        let levels =
            s.b.constant(&format!("{name}.levels"), weight().edit(Edit::QuantizeBlocks { block: 32 }).unwrap());
        let scales = s.b.constant(&format!("{name}.scales"), weight().edit(Edit::BlockScales { block: 32 }).unwrap());
        s.b.push(name, Op::Dequantize, &[levels, scales]).unwrap()
    };
    let (flat, tall) = (quantized("flat.weight"), quantized("tall.weight"));
    let first = s.op("first", Op::Linear, &[x, flat]);
    let second = s.op("second", Op::Linear, &[x, tall]);
    s.dtype = DType::F16;
    let half = s.weight("linear.weight");
    let wide = s.op("linear.wide", Op::Cast(DType::F32), &[half]);
    let third = s.op("third", Op::Linear, &[z, wide]);
    for (name, value) in
        [("y1", first), ("y2", second), ("y3", third), ("levels_out", flat), ("wide_out", wide), ("half_out", half)]
    {
        s.b.output(name, value);
    }
    s.b.finish()
}
