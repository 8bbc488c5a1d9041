//! Forms that others write, made of packages of ours by changing their programs.

use crate::emit::mil::codes::codes;
use crate::emit::mil::read::Package;
use crate::emit::mil::{Description, schema, value, write};
use crate::ir::{Graph, Op, parse};
use crate::tensor::{DType, Memory};
use crate::validate::check;
use prost::Message;

/// A package of the graph that `text` is, with its model message changed.
fn lifted(text: &str, change: impl FnOnce(&mut schema::Model)) -> Result<Graph, String> {
    let (dir, graph) = (tempfile::tempdir().unwrap(), parse(text).unwrap());
    write(&[check(&graph).unwrap()], &Memory::default(), &Description::default(), dir.path()).unwrap();
    let path = dir.path().join("Data/com.apple.CoreML/model.mlmodel");
    let mut model = schema::Model::decode(fs_err::read(&path).unwrap().as_slice()).unwrap();
    change(&mut model);
    fs_err::write(path, model.encode_to_vec()).unwrap();
    Package::open(dir.path()).unwrap().lift("main").map_err(|error| {
        let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
        format!("{error}{source}")
    })
}

/// The first operation of that type.
fn op<'m>(model: &'m mut schema::Model, kind: &str) -> &'m mut schema::Operation {
    let function = model.ml_program.as_mut().unwrap().functions.get_mut("main").unwrap();
    let block = function.block_specializations.get_mut("CoreML8").unwrap();
    block.operations.iter_mut().find(|op| op.r#type == kind).unwrap()
}

/// The type of its result.
fn result<'m>(model: &'m mut schema::Model, kind: &str) -> &'m mut schema::TensorType {
    op(model, kind).outputs[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap()
}

/// What each op of `graph` computes, without constants and inputs.
fn computed(graph: &Graph) -> String {
    let nodes = graph.nodes().filter(|(_, node)| !matches!(node.op, Op::Const(_) | Op::Input(_)));
    nodes.map(|(_, node)| format!("{} {:?}\n", node.fact, node.op)).collect()
}

/// Binds `input` of the first `kind` to a value that stands there.
fn bind(model: &mut schema::Model, kind: &str, input: &str, value: schema::Value) {
    op(model, kind).inputs.insert(input.into(), value::at_hand(value));
}

fn immediate(dtype: DType, dims: &[usize], bytes: &[u8]) -> schema::Value {
    value::immediate(dtype, value::tensor_type(&codes(dtype).unwrap(), dims), bytes)
}

fn boolean(value: bool) -> schema::Value {
    immediate(DType::Bool, &[], &[u8::from(value)])
}

fn integers(values: &[i32], dims: &[usize]) -> schema::Value {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    immediate(DType::I32, dims, &bytes)
}

fn text(value: &str) -> schema::Value {
    value::string(value)
}

fn extents(model: &mut schema::Model, kind: &str, dims: &[u64]) {
    let dimension = |size: &u64| schema::Dimension { constant: Some(schema::ConstantDimension { size: *size }) };
    let tensor = result(model, kind);
    (tensor.rank, tensor.dimensions) = (dims.len() as i64, dims.iter().map(dimension).collect());
}

/// `x` and `y` of a product, each square in its last axes, so that it may be turned.
fn product(lead: &str) -> String {
    format!(
        "graph g\n%x = input \"x\" : f32[{lead}3,3]\n%y = input \"y\" : f32[{lead}3,3]\n\
         %z = matmul(%x, %y) : f32[{lead}3,3]\noutput \"out\" = %z\n"
    )
}

#[test]
fn a_product_of_turned_values_turns_them_before() {
    let as_written = lifted(&product("2,"), |_| {}).unwrap();
    assert_eq!(computed(&as_written), "f32[2,3,3] MatMul\n");
    for (lead, perm) in [("", "[1, 0]"), ("2,", "[0, 2, 1]"), ("1,2,", "[0, 1, 3, 2]")] {
        for turned in [&["transpose_x"][..], &["transpose_y"], &["transpose_x", "transpose_y"]] {
            let graph = lifted(&product(lead), |m| turned.iter().for_each(|t| bind(m, "matmul", t, boolean(true))));
            let turns = format!("f32[{lead}3,3] Transpose {{ perm: {perm} }}\n").repeat(turned.len());
            assert_eq!(computed(&graph.unwrap()), format!("{turns}f32[{lead}3,3] MatMul\n"), "{lead} {turned:?}");
        }
    }
    let defaults = lifted(&product("2,"), |m| {
        ["transpose_x", "transpose_y"].iter().for_each(|t| drop(op(m, "matmul").inputs.remove(*t)));
    });
    assert_eq!(defaults.unwrap(), as_written);
    let mixed = lifted(&product("2,"), |m| bind(m, "matmul", "transpose_y", text("yes"))).unwrap_err();
    insta::assert_snapshot!(mixed, @"function main: value out: matmul is not an operation of ours, or not in this form: parameter transpose_y holds no numbers");
    let narrow = "graph g\n%x = input \"x\" : f32[2,3]\n%y = input \"y\" : f32[3,4]\n\
                  %z = matmul(%x, %y) : f32[2,4]\noutput \"out\" = %z\n";
    let turned = lifted(narrow, |m| bind(m, "matmul", "transpose_y", boolean(true))).unwrap_err();
    insta::assert_snapshot!(turned, @"function main: node out: matmul cannot bring [2,3] and [4,3] together");
}

#[test]
fn a_product_with_a_constant_on_either_side() {
    for (x, y) in [("%x", "%c"), ("%c", "%x")] {
        let text = format!(
            "graph g\n%x = input \"x\" : f32[1,2,2]\n%c = const literal [1.0,2.0,3.0,4.0] f32[1,2,2] : f32[1,2,2]\n\
             %z = matmul({x}, {y}) : f32[1,2,2]\noutput \"out\" = %z\n"
        );
        let graph = lifted(&text, |m| bind(m, "matmul", "transpose_y", boolean(true))).unwrap();
        assert_eq!(computed(&graph), "f32[1,2,2] Transpose { perm: [0, 2, 1] }\nf32[1,2,2] MatMul\n", "{text}");
    }
}

#[test]
fn einsum_in_any_letters() {
    let text = "graph g\n%x = input \"x\" : f32[1,3,1,4]\n%y = input \"y\" : f32[1,4,1,5]\n\
                %z = einsum(%x, %y) : f32[1,3,1,5]\noutput \"out\" = %z\n";
    let with = |equation: &str| lifted(text, |m| bind(m, "einsum", "equation", self::text(equation)));
    for same in ["nchw,nwhu->nchu", "bkhc,bchq->bkhq", "bchk, bkhq -> bchq"] {
        assert_eq!(computed(&with(same).unwrap()), "f32[1,3,1,5] Einsum\n", "{same}");
    }
    for other in ["bchq,bkhc->bkhq", "nchw,nwhu->nchw", "nnhw,nwhu->nnhu", "chw,whr->chr", "nchw,nwhu", ""] {
        assert!(with(other).unwrap_err().contains("expected nchw,nwhu->nchu"), "{other}");
    }
}

#[test]
fn gelu_in_each_of_its_modes() {
    let gelu = |op: &str, change: fn(&mut schema::Model)| {
        let text = format!("graph g\n%x = input \"x\" : f16[2]\n%y = {op}(%x) : f16[2]\noutput \"out\" = %y\n");
        lifted(&text, change).map(|graph| computed(&graph))
    };
    let (exact, tanh) = (Ok("f16[2] Unary(Gelu)\n".to_string()), Ok("f16[2] Unary(GeluTanh)\n".to_string()));
    assert_eq!((gelu("gelu", |_| {}), gelu("gelu_tanh", |_| {})), (exact.clone(), tanh.clone()));
    assert_eq!(gelu("gelu_tanh", |m| drop(op(m, "gelu").inputs.remove("mode"))), exact);
    assert_eq!(gelu("gelu", |m| bind(m, "gelu", "mode", text("TANH_APPROXIMATION"))), tanh);
    let other = gelu("gelu", |m| bind(m, "gelu", "mode", text("SIGMOID_APPROXIMATION"))).unwrap_err();
    insta::assert_snapshot!(other, @"function main: value out: gelu is not an operation of ours, or not in this form: mode is SIGMOID_APPROXIMATION, expected EXACT or TANH_APPROXIMATION");
}

#[test]
fn argmax_in_its_usual_forms() {
    const TEXT: &str =
        "graph g\n%x = input \"x\" : f16[2,3,4]\n%y = argmax(%x) axis=2 : i32[2,3,1]\noutput \"out\" = %y\n";
    const KIND: &str = "reduce_argmax";
    let argmax = |change: fn(&mut schema::Model)| lifted(TEXT, change).map(|graph| computed(&graph));
    let kept = Ok("i32[2,3,1] ArgMax { axis: 2 }\n".to_string());
    assert_eq!(argmax(|_| {}), kept);
    assert_eq!(argmax(|m| bind(m, KIND, "axis", integers(&[-1], &[]))), kept);
    assert_eq!(argmax(|m| drop(op(m, KIND).inputs.remove("axis"))), kept);
    assert_eq!(argmax(|m| drop(op(m, KIND).inputs.remove("output_dtype"))), kept);
    let dropped = Ok("i32[2,3,1] ArgMax { axis: 2 }\ni32[2,3] Reshape { shape: Shape([2, 3]) }\n".to_string());
    let flat = |m: &mut schema::Model| {
        extents(m, KIND, &[2, 3]);
        let feature = m.description.as_mut().unwrap().output[0].r#type.as_mut().unwrap();
        feature.multi_array_type.as_mut().unwrap().shape.truncate(2);
    };
    assert_eq!(
        lifted(TEXT, |m| {
            bind(m, KIND, "keep_dims", boolean(false));
            flat(m)
        })
        .map(|g| computed(&g)),
        dropped
    );
    assert_eq!(
        lifted(TEXT, |m| {
            op(m, KIND).inputs.remove("keep_dims");
            flat(m)
        })
        .map(|g| computed(&g)),
        dropped
    );
    let refused = [
        argmax(|m| bind(m, KIND, "output_dtype", text("uint16"))),
        argmax(|m| bind(m, KIND, "axis", integers(&[3], &[]))),
        argmax(|m| bind(m, KIND, "axis", integers(&[-4], &[]))),
        argmax(|m| bind(m, KIND, "axis", integers(&[0, 1], &[2]))),
        argmax(|m| bind(m, KIND, "axis", integers(&[1], &[]))),
        argmax(|m| bind(m, KIND, "keep_dims", boolean(false))),
        argmax(|m| result(m, KIND).data_type = 32),
    ];
    let refused: Vec<String> = refused.into_iter().map(Result::unwrap_err).collect();
    insta::assert_snapshot!(refused.join("\n"), @"
    function main: value out: reduce_argmax is not an operation of ours, or not in this form: output_dtype is uint16, expected int32
    function main: value out: reduce_argmax is not an operation of ours, or not in this form: axis 3 of 3
    function main: value out: reduce_argmax is not an operation of ours, or not in this form: axis -4 of 3
    function main: value out: reduce_argmax is not an operation of ours, or not in this form: parameter axis has 2 values
    function main: value out is declared i32[2,3,1], but its operands make it i32[2,1,4]
    function main: value out is declared i32[2,3,1], but its operands make it i32[2,3]
    function main: value out is declared u16[2,3,1], but its operands make it i32[2,3,1]
    ");
}

/// A layer without bias is one whatever its width: the zeros that stand for none are short here and long there.
#[test]
fn a_bias_of_zeros_is_none_at_any_width() {
    for rows in [1, 9, 10, 5000] {
        let text = format!(
            "graph g\n%x = input \"x\" : f32[1,2]\n\
             %w = const literal [0.5] f32[] | repeat {} | reshape [{rows},2] : f32[{rows},2]\n\
             %y = linear(%x, %w) : f32[1,{rows}]\noutput \"out\" = %y\n",
            2 * rows
        );
        let graph = lifted(&text, |_| {}).unwrap();
        let layer = graph.nodes().find(|(_, node)| node.op == Op::Linear).unwrap().1;
        assert_eq!(layer.args.len(), 2, "{rows} rows");
    }
}
