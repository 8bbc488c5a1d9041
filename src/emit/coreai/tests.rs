use super::*;
use crate::emit::mil::sample::{compressed, every_op, weights};
use crate::ir::{Binary, Builder, Edit, Graph, Op, Unary, Weight};
use crate::tensor::DType;
use std::io::Cursor;

fn written(graphs: &[Graph]) -> Result<Program, CoreAiError> {
    let checked: Vec<_> = graphs.iter().map(Checked::unchecked).collect();
    write(&checked, &weights(), Cursor::new(Vec::new()))
}

#[test]
fn text_of_every_op() {
    let program = written(&[every_op("main", &weights(), DType::F16)]).unwrap();
    assert_eq!(program.text.lines().count(), program.paths.len());
    insta::assert_snapshot!(program.text);
}

#[test]
fn text_of_compressed_constants() {
    let program = written(&[compressed("main", &weights())]).unwrap();
    let lines: Vec<&str> =
        program.text.lines().filter(|l| l.contains("resource") || l.contains("shift_scale")).collect();
    insta::assert_snapshot!(lines.join("\n"), @r##"
    %2 = coreai.constant dense_resource<p0> : tensor<4x64xsi8> loc(unknown)
    %6 = coreai.blockwise_shift_scale %2, %3, %4, %5 : (tensor<4x64xsi8>, tensor<4x2xf32>, tensor<4x2xsi8>, tensor<4x2xf32>) -> tensor<4x64xf32> loc(unknown)
    %7 = coreai.constant dense_resource<p1> : tensor<12x64xsi8> loc(unknown)
    %8 = coreai.constant dense_resource<p2> : tensor<12x2xf32> loc(unknown)
    %11 = coreai.blockwise_shift_scale %7, %8, %9, %10 : (tensor<12x64xsi8>, tensor<12x2xf32>, tensor<12x2xsi8>, tensor<12x2xf32>) -> tensor<12x64xf32> loc(unknown)
    %17 = coreai.constant dense_resource<p3> : tensor<12x6xf16> loc(unknown)
    %18 = coreai.constant dense_resource<p4> : tensor<12x6xf32> loc(unknown)
    "##);
}

/// A large constant is cast by the program, a small one stands there in f32: the serializer would make it so.
#[test]
fn small_casts_of_constants_are_folded() {
    let rows = |n: usize| {
        let mut b = Builder::new("g");
        let x = b.input("x", Fact::new(DType::F32, [n, 1000])).unwrap();
        let w = Weight::scalar(0.1).edit(Edit::Repeat(n * 1000)).unwrap();
        let w = w.edit(Edit::Reshape([n, 1000].into())).and_then(|w| w.edit(Edit::Cast(DType::F16))).unwrap();
        let w = b.constant("w.fp16", w);
        let w = b.push("w", Op::Cast(DType::F32), &[w]).unwrap();
        let y = b.push("y", Op::Binary(Binary::Add), &[x, w]).unwrap();
        b.output("out", y);
        let program = written(&[b.finish()]).unwrap();
        (program.census().contains_key("coreai.cast"), program.weight_bytes, program.functions[0].lines[0].value)
    };
    let rounded = f32::from(half::f16::from_f32(0.1)).to_le_bytes().repeat(250_000);
    assert_eq!(rows(250), (false, 1_000_000, Some(Digest::of(&rounded))));
    let (cast, bytes, _) = rows(251);
    assert_eq!((cast, bytes), (true, 502_016));
}

#[test]
fn several_functions_share_their_weights() {
    let memory = weights();
    let (one, two) = (every_op("short", &memory, DType::F16), every_op("long", &memory, DType::F16));
    let (alone, both) = (written(std::slice::from_ref(&one)).unwrap(), written(&[one, two]).unwrap());
    assert_eq!((alone.functions[0].name.as_str(), both.functions[1].name.as_str()), ("main", "long"));
    assert_eq!((alone.weight_bytes, &alone.blobs), (both.weight_bytes, &both.blobs));
    assert!(both.text.contains("coreai.graph @short(") && both.text.contains("coreai.graph @long("));
}

#[test]
fn what_cannot_be_written() {
    let case = |graphs: &[Graph]| written(graphs).unwrap_err().to_string();
    let graph = |x: &str, y: &str| {
        let mut b = Builder::new("g");
        let input = b.input(x, Fact::new(DType::F32, [2])).unwrap();
        let out = b.unary(Unary::Tanh, input).unwrap();
        b.output(y, out);
        b.finish()
    };
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(DType::F32, [2])).unwrap();
    let y = b.push("wide", Op::Cast(DType::I64), &[x]).unwrap();
    let y = b.push("narrow", Op::Cast(DType::F32), &[y]).unwrap();
    b.output("y", y);
    insta::assert_snapshot!(case(&[b.finish()]), @"function main: node wide: cast of i64[2] cannot be written for Core AI: no tensor of that dtype is taken");
    insta::assert_snapshot!(case(&[]), @"there is no function to write");
    insta::assert_snapshot!(case(&[graph("x", "y"), graph("x", "y")]), @"two functions are called g");
    insta::assert_snapshot!(case(&[graph("y", "y")]), @"function main: two features are called y");
    insta::assert_snapshot!(case(&[graph("a\"b", "y")]), @r#"feature "a\"b" is no legal name: expected a letter, then letters, digits and underscores"#);
}
