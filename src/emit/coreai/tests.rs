use super::*;
use crate::emit::mil::sample::{every_op, weights};
use crate::ir::{Builder, Graph, Op, Unary};
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
