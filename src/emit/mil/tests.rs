use super::read::{Content, Package};
use super::sample::{compressed, every_op, weights};
use super::{Description, MilError, MilReport, write};
use crate::digest::Digest;
use crate::ir::{Binary, Builder, Edit, Graph, Materializer, Op, Unary, Weight};
use crate::tensor::{DType, Fact, WeightSource};
use crate::validate::Checked;
use std::path::Path;

fn written(graphs: &[Graph], source: &dyn WeightSource, dir: &Path) -> Result<MilReport, MilError> {
    let checked: Vec<_> = graphs.iter().map(Checked::unchecked).collect();
    let description = Description {
        short: "every op".into(),
        version: "1.0".into(),
        author: "nobody".into(),
        license: "none".into(),
        user_defined: [("revision".into(), "0".into())].into(),
        features: [("image".into(), "a picture".into())].into(),
    };
    write(&checked, source, &description, dir)
}

/// Writes into a directory that is gone afterwards, for cases that fail.
fn refused(graph: Graph) -> String {
    let dir = tempfile::tempdir().unwrap();
    let error = written(&[graph], &weights(), dir.path()).unwrap_err();
    let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
    format!("{error}{source}")
}

#[test]
fn a_graph_comes_back_as_it_was() {
    for dtype in [DType::F32, DType::F16] {
        let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
        let graph = every_op("main", &memory, dtype);
        let report = written(std::slice::from_ref(&graph), &memory, dir.path()).unwrap();
        let package = Package::open(dir.path()).unwrap();
        assert_eq!(package.violations(), []);
        assert_eq!(package.census(), report.ops);
        let lifted = package.lift("main").unwrap();

        let computed = |g: &Graph| -> Vec<(Op, Fact)> {
            let nodes = g.nodes().filter(|(_, n)| !matches!(n.op, Op::Const(_)));
            nodes.map(|(_, n)| (n.op.clone(), n.fact.clone())).collect()
        };
        let sorted = |mut ops: Vec<(Op, Fact)>| {
            ops.sort_by_key(|op| format!("{op:?}"));
            ops
        };
        assert_eq!(sorted(computed(&lifted)), sorted(computed(&graph)), "{dtype}");
        let values = |g: &Graph, source: &dyn WeightSource| {
            let mut made = Materializer::new(source);
            let mut values: Vec<(Fact, Vec<u32>)> = g
                .nodes()
                .filter_map(|(v, _)| g.constant(v))
                .map(|w| (w.fact().clone(), made.read_f32(w).unwrap().iter().map(|v| v.to_bits()).collect()))
                .collect();
            values.sort_by_key(|(fact, values)| (fact.shape.clone(), values.clone()));
            values
        };
        assert_eq!(values(&lifted, &package), values(&graph, &memory));
    }
}

#[test]
fn compressed_constants_stand_at_what_reads_them() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
    let graph = compressed("main", &memory);
    let report = written(std::slice::from_ref(&graph), &memory, dir.path()).unwrap();
    let package = Package::open(dir.path()).unwrap();
    assert_eq!(package.violations(), []);
    let counts = ["constexpr_blockwise_shift_scale", "constexpr_cast", "identity", "const"].map(|k| report.ops[k]);
    assert_eq!(counts, [2, 1, 3, 3], "one constant is given out too, and layers without bias have zeros of two widths");
    let stored: Vec<String> = package
        .constants()
        .values()
        .filter(|c| c.name.contains('.') || c.name == "linear_weight")
        .map(|c| {
            let place = if matches!(c.content, Content::Blob(_)) { "file" } else { "program" };
            format!("{} {} {place}", c.name, c.kind)
        })
        .collect();
    insta::assert_snapshot!(stored.join("\n"), @r##"
    flat_weight.data i8[4,64] file
    flat_weight.scale f32[4,2] program
    linear_weight f16[12,6] file
    linear_wide.output_dtype string[] program
    linear_wide.source_val f16[12,6] file
    tall_weight.data i8[12,64] file
    tall_weight.scale f32[12,2] file
    "##);
    let lifted = package.lift("main").unwrap();
    let computed = |g: &Graph| -> Vec<(Op, Fact)> {
        let nodes = g.nodes().filter(|(_, n)| !matches!(n.op, Op::Const(_) | Op::Input(_)));
        nodes.map(|(_, n)| (n.op.clone(), n.fact.clone())).collect()
    };
    assert_eq!(computed(&lifted), computed(&graph));
    assert!(report.bytes_shared >= 72 * 2, "the constant that is given out is stored once");
}

#[test]
fn the_same_graph_has_the_same_bytes() {
    let memory = weights();
    let graphs = [every_op("short", &memory, DType::F16), every_op("long", &memory, DType::F32)];
    let files = || {
        let dir = tempfile::tempdir().unwrap();
        written(&graphs, &memory, dir.path()).unwrap();
        let data = dir.path().join("Data/com.apple.CoreML");
        [dir.path().join("Manifest.json"), data.join("model.mlmodel"), data.join("weights/weight.bin")]
            .map(|path| Digest::of_file(&path).unwrap())
    };
    assert_eq!(files(), files());
}

#[test]
fn several_functions_share_their_weights() {
    let memory = weights();
    let report = |names: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let graphs: Vec<Graph> = names.iter().map(|name| every_op(name, &memory, DType::F16)).collect();
        let report = written(&graphs, &memory, dir.path()).unwrap();
        let package = Package::open(dir.path()).unwrap();
        assert_eq!(package.violations(), []);
        let scan = package.scan().unwrap().unwrap();
        assert_eq!(scan.values.len() as u32, report.blobs_stored);
        (report, package)
    };
    let (one, _) = report(&["short"]);
    let (two, package) = report(&["short", "long"]);
    assert_eq!(
        (one.functions.as_slice(), two.functions.as_slice()),
        (&["main".into()][..], &["short".into(), "long".into()][..])
    );
    assert_eq!((one.bytes_stored, one.blobs_stored), (two.bytes_stored, two.blobs_stored));
    assert_eq!(two.blobs, 2 * one.blobs);
    assert!(one.bytes_shared >= 12 * 6 * 2, "linear.same is linear.weight");
    assert_eq!(package.description().default_function, "short");
    assert!(package.fact("long/conv2d_weight").is_some() && package.fact("conv2d_weight").is_none());
    package.lift("long").unwrap();
    let missing = package.lift("main").unwrap_err().to_string();
    insta::assert_snapshot!(missing, @r#"there is no function main; the package has ["long", "short"]"#);
}

#[test]
fn the_description_is_written() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
    written(&[every_op("main", &memory, DType::F32)], &memory, dir.path()).unwrap();
    let package = Package::open(dir.path()).unwrap();
    let description = package.description();
    assert_eq!(description.metadata.user_defined["revision"], "0");
    assert_eq!((description.metadata.short.as_str(), description.metadata.license.as_str()), ("every op", "none"));
    assert_eq!(description.top.inputs[0].text, "a picture");
    let names: Vec<&str> = description.top.outputs.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["soft_tokens", "best", "einsum", "hidden", "hidden_again", "wave_again", "one_out"]);
    assert_eq!(package.version(), 9);
}

#[test]
fn a_package_without_large_constants_has_no_weight_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(DType::F32, [3])).unwrap();
    let y = b.unary(Unary::Tanh, x).unwrap();
    b.output("y", y);
    let report = written(&[b.finish()], &weights(), dir.path()).unwrap();
    assert_eq!((report.blobs, report.blobs_stored), (0, 0));
    assert!(!dir.path().join("Data/com.apple.CoreML/weights").exists());
    let package = Package::open(dir.path()).unwrap();
    assert_eq!(package.violations(), []);
    assert_eq!(package.scan().unwrap(), None);
    assert!(package.lift("main").is_ok());
}

/// What a wide layer without bias adds is in the weight file: the program stays small.
#[test]
fn zeros_in_place_of_a_wide_bias_are_not_in_the_program() {
    const ROWS: usize = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(DType::F32, [1, 2])).unwrap();
    let weight = Weight::scalar(0.5).edit(Edit::Repeat(2 * ROWS)).and_then(|w| w.edit(Edit::Reshape([ROWS, 2].into())));
    let weight = b.constant("table", weight.unwrap());
    let y = b.push("scores", Op::Linear, &[x, weight]).unwrap();
    b.output("y", y);
    let report = written(&[b.finish()], &weights(), dir.path()).unwrap();
    assert_eq!((report.blobs_stored, report.bytes_stored), (2, 3 * 4 * ROWS as u64));
    let model = dir.path().join("Data/com.apple.CoreML/model.mlmodel");
    assert!(fs_err::metadata(model).unwrap().len() < 2000);
    let package = Package::open(dir.path()).unwrap();
    let lifted = package.lift("main").unwrap();
    let layer = lifted.nodes().find(|(_, node)| node.op == Op::Linear).unwrap().1;
    assert_eq!(layer.args.len(), 2, "the zeros are read as no bias");
}

/// A graph of one tanh from `x` to `y`.
fn tanh(x: &str, fact: Fact, y: &str) -> Graph {
    let mut b = Builder::new("g");
    let input = b.input(x, fact).unwrap();
    let out = b.unary(Unary::Tanh, input).unwrap();
    b.output(y, out);
    b.finish()
}

#[test]
fn features_that_cannot_be() {
    let fact = || Fact::new(DType::F32, [2]);
    insta::assert_snapshot!(refused(tanh("a.b", fact(), "y")), @r#"feature "a.b" is no legal name: expected a letter, then letters, digits and underscores"#);
    insta::assert_snapshot!(refused(tanh("state", fact(), "y")), @r#"feature "state" is no legal name: expected a letter, then letters, digits and underscores"#);
    insta::assert_snapshot!(refused(tanh("y", fact(), "y")), @"function main: two features are called y");
    insta::assert_snapshot!(refused(tanh("x", Fact::new(DType::F32, []), "y")), @"function main: feature x is f32[], expected f16, f32 or i32 of rank 1 or more");
    insta::assert_snapshot!(refused(tanh("x", Fact::new(DType::BF16, [2]), "y")), @"function main: feature x is bf16[2], expected f16, f32 or i32 of rank 1 or more");
}

#[test]
fn weights_that_cannot_be() {
    let with = |weight: Weight| {
        let mut b = Builder::new("g");
        let x = b.input("x", Fact::new(weight.fact().dtype, [12])).unwrap();
        let w = b.constant("layers.0.w", weight);
        let y = b.binary(Binary::Add, x, w).unwrap();
        b.output("y", y);
        b.finish()
    };
    let bias = Weight::tensor("linear.bias", &Fact::new(DType::F32, [12])).unwrap();
    let large = bias.clone().edit(Edit::Scale(1e6)).and_then(|w| w.edit(Edit::Cast(DType::F16))).unwrap();
    insta::assert_snapshot!(refused(with(large)), @"function main: node layers.0.w: weight could not be written: linear.bias in memory: element 0 is -537500, which f16 cannot hold as a finite number");
    let absent = Weight::tensor("nope", &Fact::new(DType::F32, [12])).unwrap();
    insta::assert_snapshot!(refused(with(absent)), @"function main: node layers.0.w: weight could not be written: tensor nope is not in memory");
    let dir = tempfile::tempdir().unwrap();
    written(&[with(bias)], &weights(), dir.path()).unwrap();
}

#[test]
fn ops_that_cannot_be() {
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(DType::F32, [2])).unwrap();
    let y = b.push("wide", Op::Cast(DType::I64), &[x]).unwrap();
    let y = b.push("narrow", Op::Cast(DType::F32), &[y]).unwrap();
    b.output("y", y);
    let computed = |dtype| {
        let mut b = Builder::new("g");
        let q = b.input("q", Fact::new(DType::I32, [2, 4])).unwrap();
        let q = b.push("levels", Op::Cast(DType::I8), &[q]).unwrap();
        let scale = b.input("scale", Fact::new(dtype, [2, 1])).unwrap();
        let y = b.push("y", Op::Dequantize, &[q, scale]).unwrap();
        b.output("out", y);
        refused(b.finish())
    };
    insta::assert_snapshot!(computed(DType::F32), @"function main: node y: dequantize of f32[2,4] cannot be written as an ML program: its levels and scales are not constants");
    insta::assert_snapshot!(refused(b.finish()), @"function main: node wide: cast of i64[2] cannot be written as an ML program: no cast to that dtype exists");
}

#[test]
fn functions_that_cannot_be() {
    let memory = weights();
    let case = |graphs: &[Graph]| {
        let dir = tempfile::tempdir().unwrap();
        written(graphs, &memory, dir.path()).unwrap_err().to_string()
    };
    let graph = |name: &str| every_op(name, &memory, DType::F16);
    insta::assert_snapshot!(case(&[]), @"there is no function to write");
    insta::assert_snapshot!(case(&[graph("a"), graph("a")]), @"two functions are called a");
    insta::assert_snapshot!(case(&[graph("a"), graph("b.c")]), @r#"function "b.c" is no legal name: expected a letter, then letters, digits and underscores"#);
    let dir = tempfile::tempdir().unwrap();
    fs_err::write(dir.path().join("x"), "").unwrap();
    let error = written(&[graph("a")], &memory, dir.path()).unwrap_err();
    assert!(matches!(error, MilError::NotEmpty { .. }), "{error}");
}
