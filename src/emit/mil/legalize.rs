//! The MIL spelling of each op. Every parameter is written, also where the opset has a default.

use super::codes::codes;
use crate::ir::{Binary, ConvSpec, Op, Reduce, Unary, ValueId};
use crate::tensor::{DType, Fact};

/// A MIL operation over values of the graph; its result has the node's fact.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    /// The operation's type.
    pub kind: &'static str,
    /// Its inputs, in no particular order.
    pub inputs: Vec<(&'static str, Operand)>,
}

/// What an input is bound to.
#[derive(Debug, PartialEq)]
pub(super) enum Operand {
    /// One value of the graph.
    Value(ValueId),
    /// Several.
    Values(Vec<ValueId>),
    /// A constant of its own.
    Param(Param),
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Param {
    Int(i32),
    Ints(Vec<i32>),
    Bool(bool),
    Text(&'static str),
    /// Zero as a scalar.
    Zero(DType),
    /// A vector of that many zeros.
    Zeros(DType, usize),
}

/// Spells `op`. `args` are the node's operands with their facts, `fact` is that of its result.
///
/// # Errors
/// Why MIL cannot say it.
pub(super) fn legalize(op: &Op, args: &[(ValueId, &Fact)], fact: &Fact) -> Result<Call, &'static str> {
    let (x, x_fact) = *args.first().ok_or("it has no operand")?;
    let mut inputs = vec![("x", Operand::Value(x))];
    let kind = match op {
        Op::Input(_) | Op::Const(_) => return Err("it is not computed"),
        Op::Conv(spec) => {
            conv(spec, args, &mut inputs)?;
            "conv"
        }
        Op::Linear => {
            linear(args, &mut inputs)?;
            "linear"
        }
        Op::MatMul => {
            let (y, _) = *args.get(1).ok_or("it has one operand")?;
            inputs.push(("y", Operand::Value(y)));
            inputs.push(("transpose_x", Operand::Param(Param::Bool(false))));
            inputs.push(("transpose_y", Operand::Param(Param::Bool(false))));
            "matmul"
        }
        Op::Einsum => {
            let values = Operand::Values(args.iter().map(|(value, _)| *value).collect());
            inputs = vec![("values", values), ("equation", Operand::Param(Param::Text("nchw,nwhu->nchu")))];
            "einsum"
        }
        Op::Unary(kind) => unary(*kind, x_fact, &mut inputs),
        Op::Binary(kind) => {
            let (y, _) = *args.get(1).ok_or("it has one operand")?;
            inputs.push(("y", Operand::Value(y)));
            binary(*kind)
        }
        Op::Reduce { kind, axis } => {
            inputs.push(("axes", ints([*axis])?));
            inputs.push(("keep_dims", Operand::Param(Param::Bool(true))));
            reduce(*kind)
        }
        Op::ArgMax { axis } => {
            inputs.push(("axis", int(*axis)?));
            inputs.push(("keep_dims", Operand::Param(Param::Bool(true))));
            // The other choice, uint16, ends at 65,535.
            inputs.push(("output_dtype", Operand::Param(Param::Text("int32"))));
            "reduce_argmax"
        }
        Op::Softmax { axis } => {
            inputs.push(("axis", int(*axis)?));
            "softmax"
        }
        Op::Transpose { perm } => {
            inputs.push(("perm", ints(perm.iter().copied())?));
            "transpose"
        }
        Op::Reshape { shape } => {
            inputs.push(("shape", ints(shape.dims().iter().copied())?));
            "reshape"
        }
        Op::Slice { begin, end } => {
            inputs.push(("begin", ints(begin.iter().copied())?));
            inputs.push(("end", ints(end.iter().copied())?));
            "slice_by_index"
        }
        Op::Concat { axis } => {
            let values = Operand::Values(args.iter().map(|(value, _)| *value).collect());
            inputs = vec![("values", values), ("axis", int(*axis)?)];
            inputs.push(("interleave", Operand::Param(Param::Bool(false))));
            "concat"
        }
        Op::Pad { amount } => {
            pad(amount, x_fact, &mut inputs)?;
            "pad"
        }
        Op::Cast(dtype) => {
            let name = codes(*dtype).ok_or("no cast to that dtype exists")?.cast;
            inputs.push(("dtype", Operand::Param(Param::Text(name))));
            "cast"
        }
        Op::Dequantize => return Err("its levels and scales are not constants"),
    };
    codes(fact.dtype).map(|_| Call { kind, inputs }).ok_or("no tensor of that dtype exists")
}

type Inputs = Vec<(&'static str, Operand)>;

fn conv(spec: &ConvSpec, args: &[(ValueId, &Fact)], inputs: &mut Inputs) -> Result<(), &'static str> {
    let (weight, _) = *args.get(1).ok_or("it has no weight")?;
    inputs.push(("weight", Operand::Value(weight)));
    if let Some((bias, _)) = args.get(2) {
        inputs.push(("bias", Operand::Value(*bias)));
    }
    inputs.push(("strides", ints(spec.stride.iter().copied())?));
    // `pad` counts under this padding type only; under the default it is ignored.
    inputs.push(("pad_type", Operand::Param(Param::Text("custom"))));
    inputs.push(("pad", ints(spec.pad.iter().flatten().copied())?));
    inputs.push(("dilations", ints(spec.stride.iter().map(|_| 1))?));
    inputs.push(("groups", int(spec.groups)?));
    Ok(())
}

/// A layer without bias gets one of zeros, as coremltools writes it: Apple's compiler is known to take that form.
fn linear(args: &[(ValueId, &Fact)], inputs: &mut Inputs) -> Result<(), &'static str> {
    let (weight, weight_fact) = *args.get(1).ok_or("it has no weight")?;
    inputs.push(("weight", Operand::Value(weight)));
    let rows = weight_fact.shape.dims().first().copied().ok_or("its weight is a scalar")?;
    let zeros = Operand::Param(Param::Zeros(weight_fact.dtype, rows));
    inputs.push(("bias", args.get(2).map_or(zeros, |(bias, _)| Operand::Value(*bias))));
    Ok(())
}

fn unary(kind: Unary, x: &Fact, inputs: &mut Inputs) -> &'static str {
    match kind {
        Unary::Abs => "abs",
        Unary::Square => "square",
        Unary::Rsqrt => {
            // The default is 1e-12, which is 0 in f16 and in f32 is not; of x's dtype, or the literal would be f32.
            inputs.push(("epsilon", Operand::Param(Param::Zero(x.dtype))));
            "rsqrt"
        }
        Unary::Tanh => "tanh",
        Unary::Sigmoid => "sigmoid",
        Unary::Silu => "silu",
        Unary::Relu => "relu",
        Unary::Gelu => {
            inputs.push(("mode", Operand::Param(Param::Text("EXACT"))));
            "gelu"
        }
        Unary::GeluTanh => {
            inputs.push(("mode", Operand::Param(Param::Text("TANH_APPROXIMATION"))));
            "gelu"
        }
    }
}

fn binary(kind: Binary) -> &'static str {
    match kind {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "real_div",
        Binary::Maximum => "maximum",
        Binary::Minimum => "minimum",
    }
}

fn reduce(kind: Reduce) -> &'static str {
    match kind {
        Reduce::Mean => "reduce_mean",
        Reduce::Sum => "reduce_sum",
        Reduce::Max => "reduce_max",
    }
}

/// MIL pads the last axes only; those before the first that is padded are left out.
fn pad(amount: &[[usize; 2]], x: &Fact, inputs: &mut Inputs) -> Result<(), &'static str> {
    let first = amount.iter().position(|a| *a != [0, 0]).unwrap_or(amount.len().saturating_sub(1));
    inputs.push(("pad", ints(amount[first..].iter().flatten().copied())?));
    inputs.push(("mode", Operand::Param(Param::Text("constant"))));
    inputs.push(("constant_val", Operand::Param(Param::Zero(x.dtype))));
    if x.dtype.is_float() { Ok(()) } else { Err("only floats are padded") }
}

fn int(value: usize) -> Result<Operand, &'static str> {
    i32::try_from(value).map(|v| Operand::Param(Param::Int(v))).map_err(|_| "a parameter is beyond 32 bits")
}

fn ints(values: impl IntoIterator<Item = usize>) -> Result<Operand, &'static str> {
    let values: Vec<i32> =
        values.into_iter().map(i32::try_from).collect::<Result<_, _>>().map_err(|_| "a parameter is beyond 32 bits")?;
    if values.is_empty() { Err("a scalar has no axes") } else { Ok(Operand::Param(Param::Ints(values))) }
}

impl Param {
    /// Dtype, shape and little-endian values; a string has none.
    pub fn tensor(&self) -> Option<(Fact, Vec<u8>)> {
        Some(match self {
            Param::Int(value) => (Fact::new(DType::I32, []), value.to_le_bytes().to_vec()),
            Param::Ints(values) => {
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                (Fact::new(DType::I32, [values.len()]), bytes)
            }
            Param::Bool(value) => (Fact::new(DType::Bool, []), vec![u8::from(*value)]),
            Param::Zero(dtype) => (Fact::new(*dtype, []), vec![0; dtype.size()]),
            Param::Zeros(dtype, n) => (Fact::new(*dtype, [*n]), vec![0; n.saturating_mul(dtype.size())]),
            Param::Text(_) => return None,
        })
    }

    /// A name that says the value, as far as it goes.
    pub fn label(&self, input: &str) -> String {
        match self {
            Param::Int(value) => format!("{input}_{value}"),
            Param::Ints(values) => values.iter().fold(input.to_owned(), |name, value| format!("{name}_{value}")),
            Param::Bool(value) => format!("{input}_{value}"),
            Param::Text(text) => format!("{input}_{text}"),
            Param::Zero(dtype) => format!("{input}_0_{dtype}"),
            Param::Zeros(dtype, n) => format!("{input}_zeros_{n}_{dtype}"),
        }
    }
}
