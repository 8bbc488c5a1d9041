//! What each MIL operation is among our ops, in the form we write and in the usual others.

#[cfg(test)]
mod tests;

use super::lift::{Lifter, Refusal};
use super::program::Operation;
use crate::ir::{Binary, ConvSpec, Op, Reduce, Unary, ValueId};
use crate::tensor::{DType, Shape};

type Lifted<T> = Result<T, Refusal>;

/// Wires `op`; the result has its declared type only if it was read rightly, which the caller checks.
pub(super) fn operation<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let known = match op.kind.as_str() {
        "abs" => Op::Unary(Unary::Abs),
        "square" => Op::Unary(Unary::Square),
        "tanh" => Op::Unary(Unary::Tanh),
        "sigmoid" => Op::Unary(Unary::Sigmoid),
        "silu" => Op::Unary(Unary::Silu),
        "relu" => Op::Unary(Unary::Relu),
        "add" => Op::Binary(Binary::Add),
        "sub" => Op::Binary(Binary::Sub),
        "mul" => Op::Binary(Binary::Mul),
        "real_div" => Op::Binary(Binary::Div),
        "maximum" => Op::Binary(Binary::Maximum),
        "minimum" => Op::Binary(Binary::Minimum),
        "identity" => return lifter.operand(op, "x"),
        "matmul" => return matmul(lifter, op),
        "einsum" => return einsum(lifter, op),
        "gelu" => return gelu(lifter, op),
        "reduce_argmax" => return argmax(lifter, op),
        "rsqrt" => return rsqrt(lifter, op),
        "clip" => return clip(lifter, op),
        "conv" => return conv(lifter, op),
        "linear" => return linear(lifter, op),
        "reduce_mean" => return reduce(lifter, op, Reduce::Mean),
        "reduce_sum" => return reduce(lifter, op, Reduce::Sum),
        "reduce_max" => return reduce(lifter, op, Reduce::Max),
        "softmax" => return softmax(lifter, op),
        "transpose" => return transpose(lifter, op),
        "reshape" => return reshape(lifter, op),
        "expand_dims" | "squeeze" => return resized(lifter, op),
        "slice_by_index" => return slice(lifter, op),
        "concat" => return concat(lifter, op),
        "pad" => return pad(lifter, op),
        "cast" => return cast(lifter, op),
        "constexpr_cast" => return widened(lifter, op),
        "constexpr_blockwise_shift_scale" => return dequantized(lifter, op),
        _ => return Err(form("its type is unknown")),
    };
    let mut args = vec![lifter.operand(op, "x")?];
    if let Op::Binary(_) = known {
        args.push(lifter.operand(op, "y")?);
    }
    lifter.push(op, known, &args)
}

fn form(reason: impl Into<String>) -> Refusal {
    Refusal::Form(reason.into())
}

/// `1 / sqrt(x + epsilon)`; ours writes 0 there.
fn rsqrt<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let mut x = lifter.operand(op, "x")?;
    let dtype = lifter.fact(x).dtype;
    // The opset's default, which no f16 can hold.
    let default = if dtype == DType::F16 { 0.0 } else { 1e-12 };
    let epsilon = lifter.float(op, "epsilon")?.unwrap_or(default);
    if epsilon != 0.0 {
        let epsilon = lifter.scalar(&format!("{}_epsilon", op.label()), epsilon, dtype)?;
        x = lifter.push(op, Op::Binary(Binary::Add), &[x, epsilon])?;
    }
    lifter.push(op, Op::Unary(Unary::Rsqrt), &[x])
}

/// A transposed operand becomes a transpose of its own.
fn matmul<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let mut side = |input, flipped| {
        let x = lifter.operand(op, input)?;
        let rank = lifter.fact(x).shape.rank();
        if rank < 2 || !flag(lifter, op, flipped)? {
            return Ok(x);
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        lifter.push(op, Op::Transpose { perm }, &[x])
    };
    let (x, y) = (side("x", "transpose_x")?, side("y", "transpose_y")?);
    lifter.push(op, Op::MatMul, &[x, y])
}

fn einsum<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let values = lifter.operands(op, "values")?;
    let equation = required(lifter.text(op, "equation")?, "equation")?;
    if !is_channel_first(equation) {
        return Err(form(format!("equation is {equation}, expected nchw,nwhu->nchu or the same in other letters")));
    }
    lifter.push(op, Op::Einsum, &values)
}

/// Whether an equation is `nchw,nwhu->nchu` up to its letters.
fn is_channel_first(equation: &str) -> bool {
    let letters: Vec<char> = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let [n, c, h, w, ',', n1, w1, h1, u, '-', '>', n2, c2, h2, u2] = *letters.as_slice() else { return false };
    let five = [n, c, h, w, u];
    let distinct = five.iter().enumerate().all(|(i, a)| a.is_alphabetic() && !five[..i].contains(a));
    distinct && [n1, w1, h1, n2, c2, h2, u2] == [n, w, h, n, c, h, u]
}

fn gelu<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let kind = match lifter.text(op, "mode")?.unwrap_or("EXACT") {
        "EXACT" => Unary::Gelu,
        "TANH_APPROXIMATION" => Unary::GeluTanh,
        other => return Err(form(format!("mode is {other}, expected EXACT or TANH_APPROXIMATION"))),
    };
    lifter.push(op, Op::Unary(kind), &[x])
}

fn argmax<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let axis = one(lifter.ints(op, "axis")?.unwrap_or(vec![-1]), "axis")?;
    let axis = axis_of(axis, lifter.fact(x).shape.rank())?;
    if let Some(other) = lifter.text(op, "output_dtype")?.filter(|dtype| *dtype != "int32") {
        return Err(form(format!("output_dtype is {other}, expected int32")));
    }
    let index = lifter.push(op, Op::ArgMax { axis }, &[x])?;
    kept_or_dropped(lifter, op, index, &[axis])
}

fn clip<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let (x, alpha, beta) = (lifter.operand(op, "x")?, lifter.operand(op, "alpha")?, lifter.operand(op, "beta")?);
    let above = lifter.push(op, Op::Binary(Binary::Maximum), &[x, alpha])?;
    lifter.push(op, Op::Binary(Binary::Minimum), &[above, beta])
}

fn conv<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let mut args = vec![lifter.operand(op, "x")?, lifter.operand(op, "weight")?];
    args.extend(lifter.optional(op, "bias")?);
    let spatial = lifter.fact(args[0]).shape.rank().saturating_sub(2);
    let stride = sizes(lifter.ints(op, "strides")?.unwrap_or(vec![1; spatial]), "strides")?;
    let pad = match lifter.text(op, "pad_type")?.unwrap_or("valid") {
        "custom" => lifter.ints(op, "pad")?.unwrap_or(vec![0; 2 * spatial]),
        "valid" => vec![0; 2 * spatial],
        other => return Err(form(format!("pad_type is {other}, expected custom or valid"))),
    };
    let pad = pairs(&sizes(pad, "pad")?, "pad")?;
    if lifter.ints(op, "dilations")?.is_some_and(|d| d.iter().any(|d| *d != 1)) {
        return Err(form("it is dilated"));
    }
    let groups = one(lifter.ints(op, "groups")?.unwrap_or(vec![1]), "groups")?;
    let groups = usize::try_from(groups).map_err(|_| form(format!("groups is {groups}")))?;
    lifter.push(op, Op::Conv(ConvSpec { stride, pad, groups }), &args)
}

/// A bias of zeros is none: that is how a layer without bias is written.
fn linear<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let mut args = vec![lifter.operand(op, "x")?, lifter.operand(op, "weight")?];
    if !lifter.is_zero(op, "bias")? {
        args.extend(lifter.optional(op, "bias")?);
    }
    lifter.push(op, Op::Linear, &args)
}

fn reduce<'p>(lifter: &mut Lifter<'p>, op: &'p Operation, kind: Reduce) -> Lifted<ValueId> {
    let mut x = lifter.operand(op, "x")?;
    let rank = lifter.fact(x).shape.rank();
    let axes = lifter.ints(op, "axes")?.unwrap_or_else(|| (0..rank as i64).collect());
    let axes = axes.into_iter().map(|axis| axis_of(axis, rank)).collect::<Lifted<Vec<_>>>()?;
    for axis in &axes {
        x = lifter.push(op, Op::Reduce { kind, axis: *axis }, &[x])?;
    }
    kept_or_dropped(lifter, op, x, &axes)
}

/// A result whose reduced axes, of extent 1, go unless the operation keeps them.
fn kept_or_dropped<'p>(lifter: &mut Lifter<'p>, op: &'p Operation, x: ValueId, axes: &[usize]) -> Lifted<ValueId> {
    if flag(lifter, op, "keep_dims")? {
        return Ok(x);
    }
    let dims = lifter.fact(x).shape.dims().iter().enumerate();
    let shape = Shape::new(dims.filter(|(axis, _)| !axes.contains(axis)).map(|(_, d)| *d).collect::<Vec<_>>());
    lifter.push(op, Op::Reshape { shape }, &[x])
}

fn softmax<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let axis = one(lifter.ints(op, "axis")?.unwrap_or(vec![-1]), "axis")?;
    let axis = axis_of(axis, lifter.fact(x).shape.rank())?;
    lifter.push(op, Op::Softmax { axis }, &[x])
}

fn transpose<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let rank = lifter.fact(x).shape.rank();
    let perm = required(lifter.ints(op, "perm")?, "perm")?;
    let perm = perm.into_iter().map(|axis| axis_of(axis, rank)).collect::<Lifted<_>>()?;
    lifter.push(op, Op::Transpose { perm }, &[x])
}

/// 0 copies an extent and -1 stands for the one that is left; the declared shape says both.
fn reshape<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let asked = required(lifter.ints(op, "shape")?, "shape")?;
    let shape = lifter.declared(op)?;
    let source = lifter.fact(x).shape.dims();
    let fits = asked.len() == shape.rank()
        && asked.iter().zip(shape.dims()).enumerate().all(|(i, (want, got))| match *want {
            -1 => true,
            0 => source.get(i) == Some(got),
            size => usize::try_from(size) == Ok(*got),
        });
    if !fits {
        return Err(form(format!("shape is {asked:?}, but its result is declared {shape}")));
    }
    lifter.push(op, Op::Reshape { shape }, &[x])
}

/// Adds or drops extents of 1; which ones, the declared shape says.
fn resized<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let shape = lifter.declared(op)?;
    let long = |dims: &[usize]| dims.iter().copied().filter(|d| *d != 1).collect::<Vec<_>>();
    if long(shape.dims()) != long(lifter.fact(x).shape.dims()) {
        return Err(form(format!("{} cannot become {shape}", lifter.fact(x))));
    }
    lifter.push(op, Op::Reshape { shape }, &[x])
}

fn slice<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let dims = lifter.fact(x).shape.dims().to_vec();
    if lifter.ints(op, "stride")?.is_some_and(|s| s.iter().any(|s| *s != 1)) {
        return Err(form("it has a stride"));
    }
    if lifter.bools(op, "squeeze_mask")?.is_some_and(|m| m.contains(&true)) {
        return Err(form("it drops an axis"));
    }
    let bound = |input, mask: &str, open: &[usize]| {
        let given = required(lifter.ints(op, input)?, input)?;
        let masked = lifter.bools(op, mask)?.unwrap_or(vec![false; dims.len()]);
        if given.len() != dims.len() || masked.len() != dims.len() {
            return Err(form(format!("{input} is {given:?} on {} axes", dims.len())));
        }
        let at = |(i, value): (usize, i64)| match (masked[i], value) {
            (true, _) => Ok(open[i]),
            (false, negative @ ..0) => usize::try_from(negative.saturating_add(dims[i] as i64)),
            (false, plain) => usize::try_from(plain),
        };
        given
            .into_iter()
            .enumerate()
            .map(at)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| form(format!("{input} is out of range")))
    };
    let begin = bound("begin", "begin_mask", &vec![0; dims.len()])?;
    let end = bound("end", "end_mask", &dims)?;
    lifter.push(op, Op::Slice { begin, end }, &[x])
}

fn concat<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let values = lifter.operands(op, "values")?;
    if flag(lifter, op, "interleave")? {
        return Err(form("it interleaves"));
    }
    let rank = values.first().map_or(0, |value| lifter.fact(*value).shape.rank());
    let axis = axis_of(one(required(lifter.ints(op, "axis")?, "axis")?, "axis")?, rank)?;
    lifter.push(op, Op::Concat { axis }, &values)
}

/// The amounts are those of the last axes.
fn pad<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let mode = lifter.text(op, "mode")?.unwrap_or("constant");
    if mode != "constant" || lifter.float(op, "constant_val")?.unwrap_or(0.0) != 0.0 {
        return Err(form(format!("it pads with other than zeros ({mode})")));
    }
    let last = pairs(&sizes(required(lifter.ints(op, "pad")?, "pad")?, "pad")?, "pad")?;
    let rank = lifter.fact(x).shape.rank();
    let before = rank.checked_sub(last.len()).ok_or_else(|| form(format!("it pads {} of {rank} axes", last.len())))?;
    let mut amount = vec![[0, 0]; before];
    amount.extend(last);
    lifter.push(op, Op::Pad { amount }, &[x])
}

fn cast<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = lifter.operand(op, "x")?;
    let dtype = match lifter.text(op, "dtype")?.ok_or_else(|| form("dtype is missing"))? {
        "fp16" => DType::F16,
        "fp32" => DType::F32,
        "int32" => DType::I32,
        "int16" => DType::I16,
        "int8" => DType::I8,
        "uint16" => DType::U16,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        other => return Err(form(format!("dtype is {other}"))),
    };
    lifter.push(op, Op::Cast(dtype), &[x])
}

/// A stored f16 constant as f32, the one cast of constants there is.
fn widened<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let x = required(lifter.stored(op, "source_val")?, "source_val")?;
    let to = lifter.text(op, "output_dtype")?.ok_or_else(|| form("output_dtype is missing"))?;
    let from = lifter.fact(x).dtype;
    if from != DType::F16 || to != "fp32" {
        return Err(form(format!("it casts {from} to {to}, expected f16 to fp32")));
    }
    lifter.push(op, Op::Cast(DType::F32), &[x])
}

fn dequantized<'p>(lifter: &mut Lifter<'p>, op: &'p Operation) -> Lifted<ValueId> {
    let data = required(lifter.stored(op, "data")?, "data")?;
    let scale = required(lifter.stored(op, "scale")?, "scale")?;
    if lifter.stored(op, "offset")?.is_some() {
        return Err(form("it has an offset"));
    }
    lifter.push(op, Op::Dequantize, &[data, scale])
}

fn required<T>(value: Option<T>, input: &str) -> Lifted<T> {
    value.ok_or_else(|| form(format!("parameter {input} is missing")))
}

fn one(values: Vec<i64>, input: &str) -> Lifted<i64> {
    match values.as_slice() {
        [value] => Ok(*value),
        _ => Err(form(format!("parameter {input} has {} values", values.len()))),
    }
}

fn flag(lifter: &Lifter<'_>, op: &Operation, input: &str) -> Lifted<bool> {
    Ok(lifter.bools(op, input)?.is_some_and(|values| values.contains(&true)))
}

fn sizes(values: Vec<i64>, input: &str) -> Lifted<Vec<usize>> {
    let sizes = values.iter().map(|v| usize::try_from(*v)).collect::<Result<_, _>>();
    sizes.map_err(|_| form(format!("parameter {input} is {values:?}")))
}

fn pairs(values: &[usize], input: &str) -> Lifted<Vec<[usize; 2]>> {
    match values.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.to_vec()),
        _ => Err(form(format!("parameter {input} has {} values, an odd number", values.len()))),
    }
}

/// An axis counted from either end.
fn axis_of(axis: i64, rank: usize) -> Lifted<usize> {
    let counted = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let axis_in = counted.and_then(|a| usize::try_from(a).ok()).filter(|a| *a < rank);
    axis_in.ok_or_else(|| form(format!("axis {axis} of {rank}")))
}
