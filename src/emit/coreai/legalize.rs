//! The Core AI spelling of each op: a short chain of dialect operations whose last result is the node's.
//!
//! The parser checks few result shapes, so each step carries its own fact and none is left to be inferred.

use crate::ir::{Binary, ConvSpec, Op, Reduce, Unary, ValueId};
use crate::tensor::{DType, Fact, Shape};

/// One dialect operation.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    /// Its name after `coreai.`.
    pub kind: &'static str,
    /// Its operands, in the dialect's order.
    pub inputs: Vec<Operand>,
    /// What stands between operands and types.
    pub attribute: &'static str,
    /// Dtype and shape of its result.
    pub fact: Fact,
}

/// What a step reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    /// A value of the graph.
    Value(ValueId),
    /// The result of an earlier step of the same node.
    Step(usize),
    /// A constant of its own.
    Param(Param),
}

/// A parameter. The dialect is strict about its index types: unsigned for extents, signed for axes and bounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Param {
    /// Shapes, permutations, padding, strides.
    Extents(Vec<u32>),
    /// A group count.
    Extent(u32),
    /// Axes of a reduction, bounds of a slice.
    Axes(Vec<i32>),
    /// The one axis of softmax and concat.
    Axis(i32),
    /// Zero as a scalar.
    Zero(DType),
    /// Zeros of that shape.
    Zeros(DType, Vec<usize>),
}

const BEYOND: &str = "a parameter is beyond 32 bits";

/// Spells `op`. `args` are the node's operands with their facts, `fact` is that of its result.
///
/// # Errors
/// Why the dialect cannot say it.
pub(super) fn legalize(op: &Op, args: &[(ValueId, &Fact)], fact: &Fact) -> Result<Vec<Step>, &'static str> {
    let (x, x_fact) = *args.first().ok_or("it has no operand")?;
    let x = Operand::Value(x);
    let one = |kind, inputs| Ok(vec![Step { kind, inputs, attribute: "", fact: fact.clone() }]);
    match op {
        Op::Input(_) | Op::Const(_) => Err("it is not computed"),
        Op::Conv(spec) => conv(spec, args, fact),
        Op::Linear => linear(args, fact),
        Op::MatMul => {
            let (y, _) = *args.get(1).ok_or("it has one operand")?;
            one("batch_matmul", vec![x, Operand::Value(y)])
        }
        Op::Einsum => einsum(args, fact),
        Op::Unary(Unary::GeluTanh) => {
            let attribute = " approximate = <tanh>";
            Ok(vec![Step { kind: "gelu", inputs: vec![x], attribute, fact: fact.clone() }])
        }
        Op::Unary(Unary::Square) => one("mul", vec![x.clone(), x]),
        Op::Unary(kind) => one(unary(*kind), vec![x]),
        Op::Binary(kind) => {
            let (y, y_fact) = *args.get(1).ok_or("it has one operand")?;
            one(binary(*kind, x_fact.shape == y_fact.shape), vec![x, Operand::Value(y)])
        }
        Op::Reduce { kind, axis } => one(reduce(*kind), vec![x, axes([*axis])?]),
        Op::ArgMax { axis } => {
            // ui32 is the one dtype that holds every index: si32 is refused, ui16 crashes where an index does not fit.
            let index = Fact { dtype: DType::U32, shape: fact.shape.clone() };
            Ok(vec![
                Step { kind: "argmax", inputs: vec![x, self::axis(*axis)?], attribute: "", fact: index },
                Step { kind: "cast", inputs: vec![Operand::Step(0)], attribute: "", fact: fact.clone() },
            ])
        }
        Op::Softmax { axis } => one("softmax", vec![x, self::axis(*axis)?]),
        Op::Transpose { perm } => one("transpose", vec![x, extents(perm.iter().copied())?]),
        Op::Reshape { shape } => one("reshape", vec![x, extents(shape.dims().iter().copied())?]),
        Op::Slice { begin, end } => {
            let (from, to) = (axes(begin.iter().copied())?, axes(end.iter().copied())?);
            one("slice", vec![x, from, to, axes(begin.iter().map(|_| 1))?])
        }
        Op::Concat { axis } => {
            let values = args.iter().map(|(value, _)| Operand::Value(*value));
            one("concat", std::iter::once(self::axis(*axis)?).chain(values).collect())
        }
        Op::Pad { amount } => Ok(vec![pad(x, amount, fact.clone())?]),
        Op::Cast(_) => one("cast", vec![x]),
        Op::Dequantize => dequantize(args, fact),
    }
}

/// The axes that are no matrix' go to the front for the product, and back after it.
fn einsum(args: &[(ValueId, &Fact)], fact: &Fact) -> Result<Vec<Step>, &'static str> {
    const TURN: [usize; 4] = [0, 2, 1, 3];
    let [x, y] = args else { return Err("it does not have two operands") };
    let turned = |x: Operand, fact: &Fact| -> Result<Step, &'static str> {
        let [n, c, h, w] = *fact.shape.dims() else { return Err("an operand is not of rank 4") };
        let fact = Fact::new(fact.dtype, [n, h, c, w]);
        Ok(Step { kind: "transpose", inputs: vec![x, extents(TURN)?], attribute: "", fact })
    };
    let [first, second] = [turned(Operand::Value(x.0), x.1)?, turned(Operand::Value(y.0), y.1)?];
    let [n, c, h, u] = *fact.shape.dims() else { return Err("its result is not of rank 4") };
    let product = Fact::new(fact.dtype, [n, h, c, u]);
    let inputs = vec![Operand::Step(0), Operand::Step(1)];
    let product = Step { kind: "batch_matmul", inputs, attribute: "", fact: product };
    let back = vec![Operand::Step(2), extents(TURN)?];
    Ok(vec![first, second, product, Step { kind: "transpose", inputs: back, attribute: "", fact: fact.clone() }])
}

/// `scale * (q - zero) + bias`, where zero is of q's dtype and bias of the scale's: another dtype is taken and computes
/// garbage.
fn dequantize(args: &[(ValueId, &Fact)], fact: &Fact) -> Result<Vec<Step>, &'static str> {
    let [(q, q_fact), (scale, scale_fact)] = args else { return Err("it has no scale") };
    let zeros = |dtype| Operand::Param(Param::Zeros(dtype, scale_fact.shape.dims().to_vec()));
    let inputs = vec![Operand::Value(*q), Operand::Value(*scale), zeros(q_fact.dtype), zeros(scale_fact.dtype)];
    Ok(vec![Step { kind: "blockwise_shift_scale", inputs, attribute: "", fact: fact.clone() }])
}

/// The weight stays `[n, k]`, as it is in every other format, and is transposed in the graph: so its bytes are the
/// same everywhere and stream without being held whole.
fn linear(args: &[(ValueId, &Fact)], fact: &Fact) -> Result<Vec<Step>, &'static str> {
    let [(x, _), (weight, w), bias @ ..] = args else { return Err("it has no weight") };
    let [n, k] = *w.shape.dims() else { return Err("its weight is no matrix") };
    let mut steps = vec![
        Step {
            kind: "transpose",
            inputs: vec![Operand::Value(*weight), extents([1, 0])?],
            attribute: "",
            fact: Fact::new(w.dtype, [k, n]),
        },
        Step {
            kind: "decomposable.broadcasting_batch_matmul",
            inputs: vec![Operand::Value(*x), Operand::Step(0)],
            attribute: "",
            fact: fact.clone(),
        },
    ];
    if let Some((bias, _)) = bias.first() {
        steps.push(added(1, Operand::Value(*bias), fact));
    }
    Ok(steps)
}

/// `conv2d` pads nothing, adds nothing and has rank 4: padding and bias are steps of their own, and one spatial axis
/// becomes the second of two.
fn conv(spec: &ConvSpec, args: &[(ValueId, &Fact)], fact: &Fact) -> Result<Vec<Step>, &'static str> {
    let [(x, x_fact), (weight, w_fact), bias @ ..] = args else { return Err("it has no weight") };
    let mut steps: Vec<Step> = Vec::new();
    let flat = fact.shape.rank() == 3;
    let mut image = |value: ValueId, fact: &Fact| -> Result<(Operand, Fact), &'static str> {
        let [a, b, c] = *fact.shape.dims() else { return Ok((Operand::Value(value), fact.clone())) };
        let wide = Fact::new(fact.dtype, [a, b, 1, c]);
        steps.push(reshape(Operand::Value(value), wide.clone())?);
        Ok((Operand::Step(steps.len() - 1), wide))
    };
    let (mut input, mut padded) = image(*x, x_fact)?;
    let (kernel, _) = image(*weight, w_fact)?;
    let mut amount = vec![[0, 0]; 4 - spec.pad.len().min(4)];
    amount.extend(&spec.pad);
    if amount.iter().any(|a| *a != [0, 0]) {
        let dims = padded.shape.dims().iter().zip(&amount).map(|(d, [before, after])| d + before + after);
        padded.shape = Shape::new(dims.collect::<Vec<_>>());
        steps.push(pad(input, &amount, padded)?);
        input = Operand::Step(steps.len() - 1);
    }
    let stride = if flat { vec![1, *spec.stride.first().ok_or("it has no stride")?] } else { spec.stride.clone() };
    let mut out = fact.clone();
    if let (true, [n, c, l]) = (flat, fact.shape.dims()) {
        out.shape = [*n, *c, 1, *l].into();
    }
    let groups = Operand::Param(Param::Extent(u32::try_from(spec.groups).map_err(|_| BEYOND)?));
    steps.push(Step {
        kind: "conv2d",
        inputs: vec![input, kernel, extents(stride)?, extents([1, 1])?, groups],
        attribute: "",
        fact: out.clone(),
    });
    if let Some((bias, b_fact)) = bias.first() {
        let channels = Fact::new(b_fact.dtype, [1, b_fact.shape.elements(), 1, 1]);
        let product = steps.len() - 1;
        steps.push(reshape(Operand::Value(*bias), channels)?);
        steps.push(added(product, Operand::Step(product + 1), &out));
    }
    if flat {
        steps.push(reshape(Operand::Step(steps.len() - 1), fact.clone())?);
    }
    Ok(steps)
}

fn added(step: usize, bias: Operand, fact: &Fact) -> Step {
    let inputs = vec![Operand::Step(step), bias];
    Step { kind: "decomposable.broadcasting_add", inputs, attribute: "", fact: fact.clone() }
}

fn reshape(x: Operand, fact: Fact) -> Result<Step, &'static str> {
    let inputs = vec![x, extents(fact.shape.dims().iter().copied())?];
    Ok(Step { kind: "reshape", inputs, attribute: "", fact })
}

fn pad(x: Operand, amount: &[[usize; 2]], fact: Fact) -> Result<Step, &'static str> {
    let zero = Operand::Param(Param::Zero(fact.dtype));
    let inputs = vec![x, extents(amount.iter().flatten().copied())?, zero];
    Ok(Step { kind: "pad", inputs, attribute: " mode = <constant>", fact })
}

fn unary(kind: Unary) -> &'static str {
    match kind {
        Unary::Abs => "abs",
        Unary::Square => "mul",
        Unary::Rsqrt => "rsqrt",
        Unary::Tanh => "tanh",
        Unary::Sigmoid => "sigmoid",
        Unary::Silu => "silu",
        Unary::Relu => "relu",
        Unary::Gelu | Unary::GeluTanh => "gelu",
    }
}

/// The plain forms want two operands of one shape.
fn binary(kind: Binary, same_shape: bool) -> &'static str {
    match (kind, same_shape) {
        (Binary::Add, true) => "add",
        (Binary::Sub, true) => "sub",
        (Binary::Mul, true) => "mul",
        (Binary::Div, true) => "divide",
        (Binary::Maximum, true) => "maximum",
        (Binary::Minimum, true) => "minimum",
        (Binary::Add, false) => "decomposable.broadcasting_add",
        (Binary::Sub, false) => "decomposable.broadcasting_sub",
        (Binary::Mul, false) => "decomposable.broadcasting_mul",
        (Binary::Div, false) => "decomposable.broadcasting_divide",
        (Binary::Maximum, false) => "decomposable.broadcasting_maximum",
        (Binary::Minimum, false) => "decomposable.broadcasting_minimum",
    }
}

fn reduce(kind: Reduce) -> &'static str {
    match kind {
        Reduce::Mean => "reduce_mean",
        Reduce::Sum => "reduce_sum",
        Reduce::Max => "reduce_max",
    }
}

fn extents(values: impl IntoIterator<Item = usize>) -> Result<Operand, &'static str> {
    let values = values.into_iter().map(u32::try_from).collect::<Result<_, _>>().map_err(|_| BEYOND)?;
    Ok(Operand::Param(Param::Extents(values)))
}

fn axes(values: impl IntoIterator<Item = usize>) -> Result<Operand, &'static str> {
    let values = values.into_iter().map(i32::try_from).collect::<Result<_, _>>().map_err(|_| BEYOND)?;
    Ok(Operand::Param(Param::Axes(values)))
}

fn axis(value: usize) -> Result<Operand, &'static str> {
    i32::try_from(value).map(|v| Operand::Param(Param::Axis(v))).map_err(|_| BEYOND)
}

impl Param {
    /// Dtype, shape and little-endian values.
    pub fn tensor(&self) -> (Fact, Vec<u8>) {
        match self {
            Param::Extents(v) => (Fact::new(DType::U32, [v.len()]), v.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Param::Extent(v) => (Fact::new(DType::U32, []), v.to_le_bytes().to_vec()),
            Param::Axes(v) => (Fact::new(DType::I32, [v.len()]), v.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Param::Axis(v) => (Fact::new(DType::I32, []), v.to_le_bytes().to_vec()),
            Param::Zero(dtype) => (Fact::new(*dtype, []), vec![0; dtype.size()]),
            Param::Zeros(dtype, dims) => {
                let fact = Fact::new(*dtype, dims.clone());
                let bytes = vec![0; fact.bytes()];
                (fact, bytes)
            }
        }
    }

    /// The values as the dialect writes them.
    pub fn literal(&self) -> String {
        match self {
            Param::Extents(v) => format!("{v:?}"),
            Param::Axes(v) => format!("{v:?}"),
            Param::Extent(v) => v.to_string(),
            Param::Axis(v) => v.to_string(),
            Param::Zero(dtype) | Param::Zeros(dtype, _) => if dtype.is_float() { "0.0" } else { "0" }.to_owned(),
        }
    }
}
