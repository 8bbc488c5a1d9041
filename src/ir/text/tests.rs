use super::{ParseError, op, parse, print};
use crate::ir::{Binary, Builder, ConvSpec, Edit, Graph, Op, Reduce, Source, Table, Unary, Wave, Weight};
use crate::tensor::{DType, Fact, Shape};
use proptest::prelude::*;

/// A graph with every kind of line.
fn sample() -> Graph {
    let mut b = Builder::new("main");
    let x = b.input("features", Fact::new(DType::F16, [1, 1, 8, 6])).unwrap();
    let half = |w: Weight| w.edit(Edit::Cast(DType::F16)).unwrap();
    let kernel = Weight::tensor("tower.conv \"0\"", &Fact::new(DType::BF16, [4, 1, 3, 3])).unwrap();
    let kernel = b.constant("conv.weight", half(kernel.edit(Edit::Scale(0.5)).unwrap()));
    let spec = ConvSpec { stride: vec![2, 2], pad: vec![[1, 1], [1, 1]], groups: 1 };
    let y = b.push("conv", Op::Conv(spec), &[x, kernel]).unwrap();
    let y = b.scope("layers.0", |b| {
        let scale = b.constant("softcap", half(Weight::scalar(0.02)));
        let y = b.binary(Binary::Mul, y, scale).unwrap();
        b.unary(Unary::Tanh, y).unwrap()
    });
    let rows = Weight::tensor("relk", &Fact::new(DType::F32, [6, 8])).unwrap();
    let row = rows
        .edit(Edit::ScaleRowsSoftplus { tensor: "per_dim".into(), period: 3, factor: 0.125 })
        .and_then(|w| w.edit(Edit::ProjectSinusoid { positions: 3, offset: -1 }))
        .and_then(|w| w.edit(Edit::Transpose(vec![1, 0])))
        .and_then(|w| w.edit(Edit::Row(2)))
        .and_then(|w| w.edit(Edit::Reshape([1, 1, 1, 3].into())))
        .and_then(|w| w.edit(Edit::Saturate(DType::F16)))
        .unwrap();
    let row = b.constant("relk", row);
    let y = b.binary(Binary::Add, y, row).unwrap();
    let band = b.constant("band", half(Weight::table(Table::CausalBand { tokens: 4, keys: 3, value: -1e4 }).unwrap()));
    let y = b.binary(Binary::Add, y, band).unwrap();
    let y = b.push("softmax", Op::Softmax { axis: 3 }, &[y]).unwrap();
    let y = b.push("swap", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[y]).unwrap();
    let y = b.push("merge", Op::Reshape { shape: [1, 4, 12].into() }, &[y]).unwrap();
    let y = b.push("pad", Op::Pad { amount: vec![[0, 0], [2, 0], [0, 0]] }, &[y]).unwrap();
    let y = b.push("cut", Op::Slice { begin: vec![0, 1, 0], end: vec![1, 5, 12] }, &[y]).unwrap();
    let y = b.push("twice", Op::Concat { axis: 1 }, &[y, y]).unwrap();
    let y = b.push("mean", Op::Reduce { kind: Reduce::Mean, axis: 2 }, &[y]).unwrap();
    let ones = Weight::scalar(1.0).edit(Edit::Repeat(5)).and_then(|w| w.edit(Edit::Reshape([5, 1].into()))).unwrap();
    let ones = b.constant("ones", half(ones));
    let y = b.push("head", Op::Linear, &[y, ones]).unwrap();
    let matrix = || Weight::tensor("levels", &Fact::new(DType::F32, [5, 64])).unwrap();
    let q = b.constant("proj.q", matrix().edit(Edit::QuantizeBlocks { block: 32 }).unwrap());
    let scale = b.constant("proj.scale", matrix().edit(Edit::BlockScales { block: 32 }).unwrap());
    let levels = b.push("proj", Op::Dequantize, &[q, scale]).unwrap();
    let z = b.push("wide", Op::Cast(DType::F32), &[y]).unwrap();
    let scale = Weight::tensor("log_scale", &Fact::new(DType::F32, [9])).unwrap();
    let scale = scale.edit(Edit::Rows { begin: 4, count: 5 }).and_then(|w| w.edit(Edit::Exp)).unwrap();
    let scale = b.constant("scale", scale);
    let z = b.binary(Binary::Mul, z, scale).unwrap();
    let turn = Table::Rotary { wave: Wave::Sin, positions: 5, width: 4, base: 1e4 };
    let turn = Weight::table(turn).and_then(|w| w.edit(Edit::Reshape([1, 5, 4].into()))).unwrap();
    let turn = b.constant("turn", turn);
    let scores = b.push("scores", Op::MatMul, &[z, turn]).unwrap();
    let z = b.unary(Unary::Gelu, scores).unwrap();
    let z = b.unary(Unary::GeluTanh, z).unwrap();
    let best = b.push("best", Op::ArgMax { axis: 2 }, &[z]).unwrap();
    b.output("half", y);
    b.output("soft_tokens", z);
    b.output("levels", levels);
    b.output("best", best);
    b.finish()
}

#[test]
fn the_form() {
    insta::assert_snapshot!(print(&sample()), @r##"
    graph main
    %features = input "features" : f16[1,1,8,6]
    %conv.weight = const tensor "tower.conv \"0\"" f32[4,1,3,3] | scale 0.5 | cast f16 : f16[4,1,3,3]
    %conv = conv(%features, %conv.weight) stride=[2,2] pad=[[1,1],[1,1]] groups=1 : f16[1,4,4,3]
    %layers.0.softcap = const literal [0.02] f32[] | cast f16 : f16[]
    %layers.0.mul = mul(%conv, %layers.0.softcap) : f16[1,4,4,3]
    %layers.0.tanh = tanh(%layers.0.mul) : f16[1,4,4,3]
    %relk = const tensor "relk" f32[6,8] | scale_rows_softplus "per_dim" period=3 factor=0.125 | project_sinusoid positions=3 offset=-1 | transpose [1,0] | row 2 | reshape [1,1,1,3] | saturate f16 : f16[1,1,1,3]
    %add = add(%layers.0.tanh, %relk) : f16[1,4,4,3]
    %band = const table causal_band tokens=4 keys=3 value=-10000.0 | cast f16 : f16[1,1,4,3]
    %add_2 = add(%add, %band) : f16[1,4,4,3]
    %softmax = softmax(%add_2) axis=3 : f16[1,4,4,3]
    %swap = transpose(%softmax) perm=[0,2,1,3] : f16[1,4,4,3]
    %merge = reshape(%swap) shape=[1,4,12] : f16[1,4,12]
    %pad = pad(%merge) amount=[[0,0],[2,0],[0,0]] : f16[1,6,12]
    %cut = slice(%pad) begin=[0,1,0] end=[1,5,12] : f16[1,4,12]
    %twice = concat(%cut, %cut) axis=1 : f16[1,8,12]
    %mean = reduce_mean(%twice) axis=2 : f16[1,8,1]
    %ones = const literal [1.0] f32[] | repeat 5 | reshape [5,1] | cast f16 : f16[5,1]
    %head = linear(%mean, %ones) : f16[1,8,5]
    %proj.q = const tensor "levels" f32[5,64] | quantize_blocks 32 : i8[5,64]
    %proj.scale = const tensor "levels" f32[5,64] | block_scales 32 : f32[5,2]
    %proj = dequantize(%proj.q, %proj.scale) : f32[5,64]
    %wide = cast(%head) dtype=f32 : f32[1,8,5]
    %scale = const tensor "log_scale" f32[9] | rows begin=4 count=5 | exp : f32[5]
    %mul = mul(%wide, %scale) : f32[1,8,5]
    %turn = const table rotary_sin positions=5 width=4 base=10000.0 | reshape [1,5,4] : f32[1,5,4]
    %scores = matmul(%mul, %turn) : f32[1,8,4]
    %gelu = gelu(%scores) : f32[1,8,4]
    %gelu_tanh = gelu_tanh(%gelu) : f32[1,8,4]
    %best = argmax(%gelu_tanh) axis=2 : i32[1,8,1]
    output "half" = %head
    output "soft_tokens" = %gelu_tanh
    output "levels" = %proj
    output "best" = %best
    "##);
}

#[test]
fn what_is_printed_is_read_back() {
    let graph = sample();
    assert_eq!(parse(&print(&graph)).unwrap(), graph);
    let empty = Builder::new("").finish();
    assert_eq!(parse(&print(&empty)).unwrap(), empty);
}

#[test]
fn every_op_with_operands_is_known_by_its_name() {
    for sample in op::samples() {
        assert_eq!(op::find(sample.name()).as_ref(), Some(&sample));
    }
    assert_eq!(op::find("input"), None);
    assert_eq!(op::find("const"), None);
}

#[test]
fn odd_names_are_quoted() {
    let odd =
        ["", "a b", "a-b", "%", "\"", "\\", "a\nb", "tab\t", "\u{0}", "\u{2028}", "\r", "stra\u{df}e", "\u{1F600}"];
    let mut b = Builder::new("a graph");
    for name in odd {
        b.input(name, Fact::new(DType::F32, [2])).unwrap();
        let weight = Weight::tensor(name, &Fact::new(DType::I64, [])).unwrap();
        let value = b.constant(name, weight);
        b.output(name, value);
    }
    let graph = b.finish();
    let text = print(&graph);
    assert_eq!(text.lines().count(), 1 + 3 * odd.len());
    assert_eq!(parse(&text).unwrap(), graph);
}

#[test]
fn an_input_may_have_another_path_than_its_name() {
    let mut b = Builder::new("g");
    let x = b.scope("front", |b| b.input("x", Fact::new(DType::F32, [2]))).unwrap();
    let y = b.scope("front", |b| b.input("x", Fact::new(DType::F32, [2]))).unwrap();
    b.output("x", x);
    b.output("y", y);
    let graph = b.finish();
    insta::assert_snapshot!(print(&graph), @r##"
    graph g
    %front.x = input "x" : f32[2]
    %front.x_2 = input "x" : f32[2]
    output "x" = %front.x
    output "y" = %front.x_2
    "##);
    assert_eq!(parse(&print(&graph)).unwrap(), graph);
}

/// The message for `line` put behind three good ones, and that the twin is accepted.
fn refused(line: &str, twin: &str) -> String {
    let text = |line: &str| {
        format!("graph g\n%x = input \"x\" : f32[2,3]\n\n%w = const tensor \"w\" f32[4,3] : f32[4,3]\n{line}\n")
    };
    parse(&text(twin)).unwrap_or_else(|e| panic!("twin {twin:?}: {e}"));
    parse(&text(line)).expect_err(line).to_string()
}

#[test]
fn faults_name_line_found_and_expected() {
    let good = "%y = linear(%x, %w) : f32[2,4]";
    let tensor = "%c = const tensor \"t\" f32[2] : f32[2]";
    let literal = "%c = const literal [0.5] f32[] : f32[]";
    let report: Vec<String> = [
        ("%y = liner(%x, %w) : f32[2,4]", good),
        ("%y = linear(%x, %v) : f32[2,4]", good),
        ("%y = linear(%y, %w) : f32[2,4]", good),
        ("%x = linear(%x, %w) : f32[2,4]", good),
        ("%y = linear(%x, %w) : f32[2,5]", good),
        ("%y = linear(%x, %w) : f16[2,4]", good),
        ("%y = linear(%x, %w) : f33[2,4]", good),
        ("%y = linear(%x, %w)", good),
        ("%y = linear(%x, %w) : f32[2,4] x", good),
        ("%y = linear(%x %w) : f32[2,4]", good),
        ("%y = linear(%w, %x) : f32[2,4]", "%y = linear(%w, %w) : f32[4,4]"),
        ("%y = linear() : f32[]", good),
        ("y = linear(%x, %w) : f32[2,4]", good),
        ("%\"y = linear(%x, %w) : f32[2,4]", "%\"y\" = linear(%x, %w) : f32[2,4]"),
        ("%\"\\q\" = tanh(%x) : f32[2,3]", "%\"\\\\\" = tanh(%x) : f32[2,3]"),
        ("%\"\\u{d800}\" = tanh(%x) : f32[2,3]", "%\"\\u{d7ff}\" = tanh(%x) : f32[2,3]"),
        ("%y = softmax(%x) : f32[2,3]", "%y = softmax(%x) axis=1 : f32[2,3]"),
        ("%y = softmax(%x) axis=2 : f32[2,3]", "%y = softmax(%x) axis=1 : f32[2,3]"),
        ("%y = softmax(%x) axis=-1 : f32[2,3]", "%y = softmax(%x) axis=0 : f32[2,3]"),
        ("%y = pad(%x) amount=[[0,0],[1]] : f32[2,4]", "%y = pad(%x) amount=[[0,0],[1,0]] : f32[2,4]"),
        ("%y = reshape(%x) shape=[1,1,1,1,2,3] : f32[2,4]", "%y = reshape(%x) shape=[1,1,1,2,3] : f32[1,1,1,2,3]"),
        ("%y = slice(%x) begin=[0,0 end=[1,1] : f32[1,1]", "%y = slice(%x) begin=[0,0] end=[1,1] : f32[1,1]"),
        ("%c = const tensor t f32[2] : f32[2]", tensor),
        ("%c = const tensor \"t\" f16[2] : f32[2]", tensor),
        ("%c = const tensor \"t\" f32[99999999999999999999] : f32[2]", tensor),
        ("%c = const tensor \"t\" f32[4294967296] : f32[4294967296]", tensor),
        ("%c = const tensor \"t\" f32[0] : f32[0]", tensor),
        ("%c = const tensor \"t\" f32[2] | twist 2 : f32[2]", tensor),
        ("%c = const tensor \"t\" f32[2] | row 3 : f32[2]", tensor),
        (
            "%c = const tensor \"t\" f32[4] | quantize_blocks 3 : i8[4]",
            "%c = const tensor \"t\" f32[4] | quantize_blocks 2 : i8[4]",
        ),
        (
            "%c = const tensor \"t\" f32[4] | block_scales 2 : i8[2]",
            "%c = const tensor \"t\" f32[4] | block_scales 2 : f32[2]",
        ),
        (
            "%c = const tensor \"t\" f32[4] | quantize_blocks : i8[4]",
            "%c = const tensor \"t\" f32[4] | quantize_blocks 4 : i8[4]",
        ),
        ("%y = dequantize(%w, %w) : f32[4,3]", good),
        ("%c = const shape [2] : f32[2]", tensor),
        ("%c = const literal [0.5,1.0] f32[] : f32[]", literal),
        ("%c = const literal [1e999] f32[] : f32[]", "%c = const literal [inf] f32[] : f32[]"),
        ("%c = const literal [0x5] f32[] : f32[]", literal),
        (
            "%c = const literal [0.5] f32[] | repeat 4294967296 : f32[]",
            "%c = const literal [0.5] f32[] | repeat 2 : f32[2]",
        ),
        (
            "%c = const table band tokens=2 keys=2 value=0.0 : f32[1,1,2,2]",
            "%c = const table causal_band tokens=2 keys=2 value=0.0 : f32[1,1,2,2]",
        ),
        (
            "%c = const table rotary_cos tokens=2 width=2 base=1.0 : f32[1,1,2,2]",
            "%c = const table rotary_cos positions=2 width=2 base=1.0 : f32[1,1,2,2]",
        ),
        (
            "%c = const table rotary_sin positions=2 width=3 base=1.0 : f32[1,1,2,3]",
            "%c = const table rotary_sin positions=2 width=4 base=1.0 : f32[1,1,2,4]",
        ),
        (
            "%c = const table rotary_sin positions=2 width=2 base=0.0 : f32[1,1,2,2]",
            "%c = const table rotary_sin positions=2 width=2 base=0.5 : f32[1,1,2,2]",
        ),
        (
            "%c = const table rotary_cos positions=2 width=2 base=inf : f32[1,1,2,2]",
            "%c = const table rotary_cos positions=2 width=2 base=1e300 : f32[1,1,2,2]",
        ),
        (
            "%c = const table rotary_cos positions=2 width=0 base=1.0 : f32[1,1,2,0]",
            "%c = const table rotary_cos positions=1 width=2 base=1.0 : f32[1,1,1,2]",
        ),
        (
            "%c = const tensor \"t\" f32[3,2] | rows begin=2 count=2 : f32[2,2]",
            "%c = const tensor \"t\" f32[3,2] | rows begin=1 count=2 : f32[2,2]",
        ),
        (
            "%c = const tensor \"t\" f32[3,2] | rows 1 2 : f32[2,2]",
            "%c = const tensor \"t\" f32[3,2] | rows begin=0 count=3 : f32[3,2]",
        ),
        ("%c = const literal [0.5] f32[] | rows begin=0 count=1 : f32[]", literal),
        ("%c = const tensor \"t\" f32[2] | exp 2 : f32[2]", "%c = const tensor \"t\" f32[2] | exp : f32[2]"),
        ("%y = matmul(%x, %w) : f32[2,4]", "%t = transpose(%w) perm=[1,0] : f32[3,4]\n%y = matmul(%x, %t) : f32[2,4]"),
        ("%y = argmax(%x) axis=1 : f32[2,1]", "%y = argmax(%x) axis=1 : i32[2,1]"),
        ("%y = argmax(%x) axis=2 : i32[2,3]", "%y = argmax(%x) axis=0 : i32[1,3]"),
        ("%y = argmax(%x) : i32[2,1]", "%y = argmax(%x) axis=1 : i32[2,1]"),
        ("output \"y\" = %y", "output \"y\" = %x"),
        ("output y = %x", "output \"y\" = %x"),
        ("output \"y\" = %x\n%z = tanh(%x) : f32[2,3]", "output \"y\" = %x\noutput \"z\" = %x"),
        ("end", "  "),
    ]
    .iter()
    .map(|(line, twin)| refused(line, twin))
    .collect();
    insta::assert_snapshot!(report.join("\n"), @r#"
    line 5: found op liner, expected one of conv, linear, matmul, einsum, argmax, softmax, transpose, reshape, slice, concat, pad, cast, dequantize, abs, square, rsqrt, tanh, sigmoid, silu, relu, gelu, gelu_tanh, add, sub, mul, div, maximum, minimum, reduce_mean, reduce_sum, reduce_max
    line 5: found %v, expected a value defined above
    line 5: found %y, expected a value defined above
    line 5: found %x again, expected a path other than that of line 2
    line 5: found %y declared f32[2,5], expected f32[2,4]
    line 5: found %y declared f16[2,4], expected f32[2,4]
    line 5: found f33[2,4], expected a dtype
    line 5: found the end of the line, expected :
    line 5: found x, expected the end of the line
    line 5: found %w) : f32[2,4], expected , or )
    line 5: found %y declared f32[2,4], expected f32[4,2]
    line 5: node y: linear takes 2 or 3 operands, got 0
    line 5: found y = linear(%x, %w) : f32[2,4], expected output
    line 5: found "y = linear(%x, %w) : f32[2,4], expected a string closed by " on its line
    line 5: found "\q" = tanh(%x) : f32[2,3], expected a string with no other escapes than \\ \" \n \u{hex}
    line 5: found "\u{d800}" = tanh(%x) : f32[2,3], expected a string with no other escapes than \\ \" \n \u{hex}
    line 5: found : f32[2,3], expected axis
    line 5: node y: softmax on axis 2 of [2,3], which has no such axis
    line 5: found -1 : f32[2,3], expected a non-negative integer
    line 5: found [1]] : f32[2,4], expected a pair of integers
    line 5: node y: reshape would have a value of rank above 5: [1,1,1,1,2,3]
    line 5: found end=[1,1] : f32[1,1], expected , or ]
    line 5: found t f32[2] : f32[2], expected the name of a tensor in quotes
    line 5: found %c declared f16[2], expected f32[2]
    line 5: found 99999999999999999999] : f32[2], expected a non-negative integer
    line 5: node c: const would have no element, or more than can be counted: [4294967296]
    line 5: node c: const would have no element, or more than can be counted: [0]
    line 5: found twist 2 : f32[2], expected the name of an edit
    line 5: node c: row takes an operand of rank 2, got [2]
    line 5: node c: quantize_blocks with parameter block 3 does not fit [4]
    line 5: found %c declared i8[2], expected f32[2]
    line 5: found : i8[4], expected a non-negative integer
    line 5: node y: dequantize takes levels of i8, got f32
    line 5: found shape [2] : f32[2], expected tensor, literal or table
    line 5: node c: const with parameter literal of 2 numbers does not fit []
    line 5: found 1e999] f32[] : f32[], expected a number within the range of f64
    line 5: found 0x5] f32[] : f32[], expected a number
    line 5: node c: repeat would have no element, or more than can be counted: [4294967296]
    line 5: found band tokens=2 keys=2 value=0.0 : f32[1,1..., expected the name of a table
    line 5: found tokens=2 width=2 base=1.0 : f32[1,1,2,2], expected positions
    line 5: node c: rotary_sin with parameter width 3 does not fit [1,1,2,3]
    line 5: node c: rotary_sin with parameter base 0 does not fit [1,1,2,2]
    line 5: node c: rotary_cos with parameter base inf does not fit [1,1,2,2]
    line 5: node c: const would have no element, or more than can be counted: [1,1,2,0]
    line 5: node c: rows with parameter range 2+2 does not fit [3,2]
    line 5: found 1 2 : f32[2,2], expected begin
    line 5: node c: rows takes an operand of rank 1 or more, got []
    line 5: found 2 : f32[2], expected :
    line 5: node y: matmul cannot bring [2,3] and [4,3] together
    line 5: found %y declared f32[2,1], expected i32[2,1]
    line 5: node y: argmax on axis 2 of [2,3], which has no such axis
    line 5: found : i32[2,1], expected axis
    line 5: found %y, expected a value defined above
    line 5: found y = %x, expected the name of an output in quotes
    line 6: found %z = tanh(%x) : f32[2,3], expected output
    line 5: found end, expected output
    "#);
}

#[test]
fn the_first_line_names_the_graph() {
    for text in ["", "\n \n", "grph g", "graph", "graph a b", "%x = input \"x\" : f32[1]"] {
        assert!(matches!(parse(text), Err(ParseError::Syntax { .. })), "{text:?}");
    }
    assert_eq!(parse("\n\ngraph g\r\n").unwrap().name(), "g");
}

#[test]
fn floats_keep_their_bits() {
    for value in [0.1, 1.0 / 3.0, -0.0, 1e-320, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
    {
        let mut b = Builder::new("g");
        let c = b.constant("c", Weight::scalar(value));
        b.output("c", c);
        let back = parse(&print(&b.finish())).unwrap();
        let Some(Source::Literal(values)) = back.constant(back.outputs()[0].value).map(Weight::source) else {
            panic!()
        };
        assert_eq!(values[0].to_bits(), value.to_bits(), "{value}");
    }
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-c]{0,2}", 1 => "[a-z0-9_.]{1,9}", 1 => any::<String>()]
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![3 => Just(vec![2, 3]), 1 => prop::collection::vec(1usize..4, 0..5)].prop_map(Shape::new)
}

fn float() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO | prop::num::f64::INFINITE
}

fn edit() -> impl Strategy<Value = Edit> {
    let dtype = prop::sample::select(&DType::ALL[..]);
    prop_oneof![
        float().prop_map(Edit::Scale),
        (any::<String>(), 1usize..4, float()).prop_map(|(tensor, period, factor)| Edit::ScaleRowsSoftplus {
            tensor,
            period,
            factor
        }),
        (1usize..5).prop_map(Edit::Repeat),
        (1usize..5, any::<i64>()).prop_map(|(positions, offset)| Edit::ProjectSinusoid { positions, offset }),
        (0usize..3).prop_map(Edit::Row),
        Just(Edit::Exp),
        (0usize..3, 0usize..3).prop_map(|(begin, count)| Edit::Rows { begin, count }),
        Just(Edit::Transpose(vec![1, 0])),
        shape().prop_map(Edit::Reshape),
        dtype.clone().prop_map(Edit::Cast),
        dtype.prop_map(Edit::Saturate),
        (0usize..4).prop_map(|block| Edit::QuantizeBlocks { block }),
        (0usize..4).prop_map(|block| Edit::BlockScales { block }),
    ]
}

fn weight() -> impl Strategy<Value = Weight> {
    let dtype = prop::sample::select(&DType::ALL[..]);
    let start = prop_oneof![
        (any::<String>(), dtype.clone(), shape()).prop_filter_map("a fact", |(n, d, s)| Weight::tensor(
            n,
            &Fact::new(d, s)
        )
        .ok()),
        float().prop_map(Weight::scalar),
        (prop::collection::vec(float(), 1..17), dtype).prop_filter_map("few numbers", |(v, d)| {
            let fact = Fact::new(d, [v.len()]);
            Weight::literal(v, fact).ok()
        }),
        (1usize..9, 1usize..9, float()).prop_filter_map("a table", |(tokens, keys, value)| {
            Weight::table(Table::CausalBand { tokens, keys, value }).ok()
        }),
        (prop::sample::select(&[Wave::Cos, Wave::Sin][..]), 1usize..9, 1usize..9, float()).prop_filter_map(
            "a table",
            |(wave, positions, width, base)| Weight::table(Table::Rotary { wave, positions, width, base }).ok()
        ),
    ];
    (start, prop::collection::vec(edit(), 0..5)).prop_map(|(start, edits)| {
        edits.into_iter().fold(start, |weight, edit| weight.clone().edit(edit).unwrap_or(weight))
    })
}

fn operation() -> impl Strategy<Value = Op> {
    let axis = 0usize..3;
    let small = || prop::collection::vec(0usize..4, 1..4);
    prop_oneof![
        prop::sample::select(&Unary::ALL[..]).prop_map(Op::Unary),
        prop::sample::select(&Binary::ALL[..]).prop_map(Op::Binary),
        (prop::sample::select(&Reduce::ALL[..]), axis.clone()).prop_map(|(kind, axis)| Op::Reduce { kind, axis }),
        prop::sample::select(&DType::ALL[..]).prop_map(Op::Cast),
        Just(Op::Linear),
        Just(Op::MatMul),
        Just(Op::Dequantize),
        axis.clone().prop_map(|axis| Op::ArgMax { axis }),
        axis.clone().prop_map(|axis| Op::Softmax { axis }),
        axis.prop_map(|axis| Op::Concat { axis }),
        Just(Op::Transpose { perm: vec![1, 0] }),
        shape().prop_map(|shape| Op::Reshape { shape }),
        (small(), small()).prop_map(|(begin, end)| Op::Slice { begin, end }),
        prop::collection::vec([0usize..3, 0usize..3], 1..4).prop_map(|amount| Op::Pad { amount }),
        (1usize..3, 0usize..2).prop_map(|(s, p)| Op::Conv(ConvSpec { stride: vec![s], pad: vec![[p, 0]], groups: 1 })),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Input(String, String, Fact),
    Const(String, Weight),
    Push(String, Op, Vec<prop::sample::Index>),
    Output(String, prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let dtype = prop_oneof![3 => Just(DType::F32), 1 => prop::sample::select(&DType::ALL[..])];
    prop_oneof![
        1 => (label(), label(), dtype, shape()).prop_map(|(s, n, d, shape)| Step::Input(s, n, Fact::new(d, shape))),
        2 => (label(), weight()).prop_map(|(l, w)| Step::Const(l, w)),
        6 => (label(), operation(), prop::collection::vec(any::<prop::sample::Index>(), 1..4))
            .prop_map(|(l, op, args)| Step::Push(l, op, args)),
        1 => (label(), any::<prop::sample::Index>()).prop_map(|(n, i)| Step::Output(n, i)),
    ]
}

/// Wires the steps that fit and drops the others.
fn graph() -> impl Strategy<Value = Graph> {
    (label(), prop::collection::vec(step(), 0..40)).prop_map(|(name, steps)| {
        let mut b = Builder::new(name);
        let mut values = vec![b.input("x", Fact::new(DType::F32, [2, 3])).unwrap()];
        for step in steps {
            match step {
                Step::Input(scope, name, fact) => values.extend(b.scope(scope, |b| b.input(&name, fact)).ok()),
                Step::Const(label, weight) => values.push(b.constant(&label, weight)),
                Step::Push(label, op, args) => {
                    let args: Vec<_> = args.iter().map(|i| *i.get(&values)).collect();
                    values.extend(b.push(&label, op, &args).ok());
                }
                Step::Output(name, index) => b.output(name, *index.get(&values)),
            }
        }
        b.finish()
    })
}

proptest! {
    #[test]
    fn any_graph_round_trips(graph in graph()) {
        let text = print(&graph);
        prop_assert_eq!(parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?, graph);
    }

    #[test]
    fn any_text_is_answered(text in any::<String>(), tail in "[%\"a-z0-9=:\\[\\](),.| -]{0,80}") {
        let answers = [parse(&text), parse(&format!("graph g\n%x = {tail}")), parse(&format!("graph g\n{text}"))];
        prop_assert!(answers.iter().all(|a| a.is_err() || a.is_ok()));
    }

    /// A text with a piece replaced is refused, or is a graph that prints to a text of the same graph.
    #[test]
    fn a_changed_text_is_answered(
        at in any::<prop::sample::Index>(),
        cut in 0usize..12,
        put in prop_oneof![
            "[%\"a-z0-9=:\\[\\](),.| -]{0,4}",
            Just("18446744073709551615".to_owned()),
            Just("9223372036854775807".to_owned()),
            Just("4294967295".to_owned()),
            Just("[0]".to_owned()),
            any::<String>(),
        ],
    ) {
        let mut chars: Vec<char> = print(&sample()).chars().collect();
        let start = at.index(chars.len());
        let end = (start + cut).min(chars.len());
        chars.splice(start..end, put.chars());
        let text: String = chars.into_iter().collect();
        if let Ok(graph) = parse(&text) {
            let again = parse(&print(&graph));
            prop_assert!(again.is_ok_and(|again| print(&again) == print(&graph)));
        }
    }
}
