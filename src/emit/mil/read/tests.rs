use super::{Content, Package, ReadError, Violation};
use crate::emit::mil::sample::{compressed, every_op, weights};
use crate::emit::mil::{Description, schema, write};
use crate::tensor::{DType, WeightSource};
use crate::validate::check;
use proptest::prelude::*;
use prost::Message;
use std::path::Path;
use std::sync::LazyLock;

const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";
const MANIFEST: &str = "Manifest.json";

fn sample() -> tempfile::TempDir {
    let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
    let graph = every_op("main", &memory, DType::F16);
    write(&[check(&graph).unwrap()], &memory, &Description::default(), dir.path()).unwrap();
    dir
}

/// The sample with its model message changed.
fn remodelled(change: impl FnOnce(&mut schema::Model)) -> tempfile::TempDir {
    let dir = sample();
    let path = dir.path().join(MODEL);
    let mut model = schema::Model::decode(fs_err::read(&path).unwrap().as_slice()).unwrap();
    change(&mut model);
    fs_err::write(path, model.encode_to_vec()).unwrap();
    dir
}

fn main_of(model: &mut schema::Model) -> &mut schema::Function {
    model.ml_program.as_mut().unwrap().functions.get_mut("main").unwrap()
}

fn operations(model: &mut schema::Model) -> &mut Vec<schema::Operation> {
    &mut main_of(model).block_specializations.get_mut("CoreML8").unwrap().operations
}

fn op<'m>(model: &'m mut schema::Model, kind: &str) -> &'m mut schema::Operation {
    operations(model).iter_mut().find(|op| op.r#type == kind).unwrap()
}

fn tensor(named: &mut schema::NamedValueType) -> &mut schema::TensorType {
    named.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap()
}

fn violations(change: impl FnOnce(&mut schema::Model)) -> String {
    let dir = remodelled(change);
    let package = Package::open(dir.path()).unwrap();
    package.violations().iter().map(|v| format!("{v}\n")).collect()
}

#[test]
fn what_a_loader_lets_pass_is_seen() {
    assert_eq!(violations(|_| {}), "");
    insta::assert_snapshot!(violations(|m| m.specification_version = 8), @"specification version 8 goes with opset CoreML7, but function main has CoreML8");
    insta::assert_snapshot!(violations(|m| op(m, "tanh").outputs[0].name = "abs".into()), @"function main: two values are called abs");
    insta::assert_snapshot!(violations(|m| op(m, "tanh").outputs[0].name = "a.b".into()), @r#"value "a.b" is no identifier"#);
    insta::assert_snapshot!(violations(|m| op(m, "tanh").outputs[0].name = "image".into()), @"function main: two values are called image");
    insta::assert_snapshot!(violations(|m| {
        let dim = tensor(&mut op(m, "tanh").outputs[0]).dimensions[0].clone();
        tensor(&mut op(m, "tanh").outputs[0]).dimensions.resize(6, dim);
    }), @"function main: value tanh has rank 6, above 5");
    insta::assert_snapshot!(violations(|m| tensor(&mut op(m, "tanh").outputs[0]).dimensions[0].constant = None), @"function main: value tanh has an extent that is not fixed");
    insta::assert_snapshot!(violations(|m| tensor(&mut op(m, "const").outputs[0]).data_type = 11), @r"
    function main: constant conv2d_weight is declared f32[4,1,3,3], but holds f16[4,1,3,3]
    function main: constant conv2d_weight is declared f32[4,1,3,3], but holds f16
    ");
}

#[test]
fn a_description_of_something_else_is_seen() {
    let description =
        |change: fn(&mut schema::ModelDescription)| violations(|m| change(m.description.as_mut().unwrap()));
    insta::assert_snapshot!(description(|d| d.input[0].name = "other".into()), @r"
    function main: input image is f16[1,1,8,6], but the description says not there
    function main: input other is not there, but the description says f16[1,1,8,6]
    ");
    insta::assert_snapshot!(description(|d| {
        d.output[2].r#type.as_mut().unwrap().multi_array_type.as_mut().unwrap().shape[0] = 2;
    }), @"");
    // An index is described as the 32-bit integer it is.
    insta::assert_snapshot!(description(|d| {
        d.output[1].r#type.as_mut().unwrap().multi_array_type.as_mut().unwrap().data_type = 65568;
    }), @"function main: output best is i32[1,20,1], but the description says f32[1,20,1]");
    insta::assert_snapshot!(description(|d| {
        d.functions.push(schema::FunctionDescription { name: "other".into(), ..Default::default() });
    }), @r#"
    function main stands only in the program
    function other stands only in the description
    the default function "" is not there
    "#);
}

#[test]
fn a_constant_that_is_not_as_declared_is_seen() {
    let val =
        |change: fn(&mut schema::Value)| violations(|m| change(op(m, "const").attributes.get_mut("val").unwrap()));
    insta::assert_snapshot!(val(|v| v.blob_file_value.as_mut().unwrap().offset = 128), @"function main: constant conv2d_weight refers to 128, where no record of the weight file is");
    insta::assert_snapshot!(val(|v| v.blob_file_value.as_mut().unwrap().offset = 64 * 4), @r"function main: constant conv2d_weight is declared f16[4,1,3,3], but holds 60 bytes");
    let infinite = violations(|m| {
        let consts = operations(m).iter_mut().find(|op| op.outputs[0].name == "conv2d_bias").unwrap();
        let value = consts.attributes.get_mut("val").unwrap().immediate_value.as_mut().unwrap();
        value.tensor.as_mut().unwrap().bytes.as_mut().unwrap().values[..2].copy_from_slice(&[0, 0x7c]);
    });
    insta::assert_snapshot!(infinite, @"function main: constant conv2d_bias holds a value that is not finite");
}

/// The sample with some bytes of a file changed.
fn patched(file: &str, at: usize, bytes: &[u8]) -> tempfile::TempDir {
    let dir = sample();
    let path = dir.path().join(file);
    let mut content = fs_err::read(&path).unwrap();
    content[at..at + bytes.len()].copy_from_slice(bytes);
    fs_err::write(path, content).unwrap();
    dir
}

#[test]
fn a_broken_weight_file_is_seen() {
    let first = |at: usize, bytes: &[u8]| {
        let dir = patched(WEIGHTS, at, bytes);
        Package::open(dir.path()).unwrap().violations().first().map(Violation::to_string).unwrap_or_default()
    };
    insta::assert_snapshot!(first(0, &[99]), @"weight file: count is 99, expected 5");
    insta::assert_snapshot!(first(4, &[1]), @"weight file: version is 1, expected 2");
    insta::assert_snapshot!(first(64, &[0]), @"weight file: record at 64: it starts with 0xdeadbe00, expected 0xdeadbeef");
    insta::assert_snapshot!(first(68, &[2]), @"function main: constant conv2d_weight is declared f16[4,1,3,3], but holds f32");
    insta::assert_snapshot!(first(72, &[0xff; 8]), @"weight file: record at 64: its data, 18446744073709551615 bytes at 128, leaves the 856 bytes of the file");
    insta::assert_snapshot!(first(80, &[129]), @"weight file: record at 64: its data is at 129, which is not aligned to 64 bytes");
    insta::assert_snapshot!(first(88, &[8]), @"weight file: record at 64: it leaves 8 bits of its last byte unused, of 0 to 7");
    insta::assert_snapshot!(first(100, &[1]), @"weight file: record at 64: its reserved bytes are not zero");
    insta::assert_snapshot!(first(128 + 72, &[1]), @"weight file: record at 64: the bytes behind its data are not zero");

    let dir = patched(WEIGHTS, 128, &[0, 0x7c]);
    let package = Package::open(dir.path()).unwrap();
    assert_eq!(package.violations(), []);
    assert_eq!(package.scan().unwrap().unwrap().not_finite, [64]);
}

/// What the weight file lacks is told as its fault, not as that of the operation that wants it.
#[test]
fn a_weight_file_that_lacks_constants_is_named() {
    let lifted = |change: &dyn Fn(&Path)| {
        let dir = sample();
        change(&dir.path().join(WEIGHTS));
        let hide = |e: ReadError| e.to_string().replace(dir.path().to_str().unwrap(), "");
        Package::open(dir.path()).and_then(|package| package.lift("main")).map(drop).map_err(hide)
    };
    let cut =
        |path: &Path, length: u64| fs_err::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
    let length = |path: &Path| fs_err::metadata(path).unwrap().len();
    assert_eq!(lifted(&|_| ()), Ok(()));
    // Bytes that no constant refers to change nothing that is computed.
    assert_eq!(lifted(&|path| cut(path, length(path) + 64)), Ok(()));
    insta::assert_snapshot!(lifted(&|path| cut(path, 200)).unwrap_err(), @"/Data/com.apple.CoreML/weights/weight.bin lacks weights: weight file: count is 5, expected 1");
    insta::assert_snapshot!(lifted(&|path| cut(path, 0)).unwrap_err(), @"/Data/com.apple.CoreML/weights/weight.bin lacks weights: weight file: length is 0, expected 64");
    insta::assert_snapshot!(lifted(&|path| fs_err::remove_file(path).unwrap()).unwrap_err(), @"/Data/com.apple.CoreML/model.mlmodel lacks weights: function main: constant bias_zeros_12_f16 refers to 768, where no record of the weight file is");
    let dangling = |path: &Path| {
        fs_err::remove_file(path).unwrap();
        std::os::unix::fs::symlink("nowhere", path).unwrap();
    };
    insta::assert_snapshot!(lifted(&dangling).unwrap_err(), @"could not read /Data/com.apple.CoreML/weights/weight.bin");
}

#[test]
fn an_operation_that_is_not_as_declared_is_refused() {
    let lifted = |change: fn(&mut schema::Model)| {
        let dir = remodelled(change);
        let error = Package::open(dir.path()).unwrap().lift("main").unwrap_err();
        let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
        format!("{error}{source}")
    };
    insta::assert_snapshot!(lifted(|m| tensor(&mut op(m, "tanh").outputs[0]).data_type = 11), @"function main: value tanh is declared f32[1,9,6], but its operands make it f16[1,9,6]");
    insta::assert_snapshot!(lifted(|m| op(m, "tanh").r#type = "erf".into()), @"function main: value tanh: erf is not an operation of ours, or not in this form: its type is unknown");
    insta::assert_snapshot!(lifted(|m| { op(m, "tanh").inputs.clear(); }), @"function main: value tanh: tanh is not an operation of ours, or not in this form: input x is missing");
    insta::assert_snapshot!(lifted(|m| {
        op(m, "tanh").inputs.get_mut("x").unwrap().arguments[0].name = Some("nope".into());
    }), @"function main: value tanh reads nope, which is not there");
    insta::assert_snapshot!(lifted(|m| {
        let weight = op(m, "linear").inputs["bias"].clone();
        op(m, "linear").inputs.insert("weight".into(), weight);
    }), @"function main: node layers_0_proj: linear takes an operand of rank 2 (weight), got [12]");
    insta::assert_snapshot!(lifted(|m| {
        let perm = op(m, "transpose").inputs["perm"].clone();
        op(m, "softmax").inputs.insert("axis".into(), perm);
    }), @"function main: value layers_0_soft: softmax is not an operation of ours, or not in this form: parameter axis has 4 values");
}

/// The sample of compressed constants with its model message changed.
fn recompressed(change: impl FnOnce(&mut schema::Model)) -> Result<(), String> {
    let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
    let graph = compressed("main", &memory);
    write(&[check(&graph).unwrap()], &memory, &Description::default(), dir.path()).unwrap();
    let path = dir.path().join(MODEL);
    let mut model = schema::Model::decode(fs_err::read(&path).unwrap().as_slice()).unwrap();
    change(&mut model);
    fs_err::write(path, model.encode_to_vec()).unwrap();
    let lifted = Package::open(dir.path()).unwrap().lift("main");
    lifted.map(|_| ()).map_err(|error| {
        let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
        format!("{error}{source}")
    })
}

const BLOCKS: &str = "constexpr_blockwise_shift_scale";
const CAST: &str = "constexpr_cast";

#[test]
fn compressed_constants_in_every_form_of_theirs() {
    assert_eq!(recompressed(|_| {}), Ok(()));
    // Operands of either opset's place.
    assert_eq!(
        recompressed(|m| {
            let op = op(m, BLOCKS);
            for (input, argument) in std::mem::take(&mut op.inputs) {
                op.attributes.insert(input, argument.arguments[0].value.clone().unwrap());
            }
        }),
        Ok(())
    );
    // An operand that is a constant of its own.
    assert_eq!(
        recompressed(|m| {
            let named = schema::Binding { name: Some("linear_weight".into()), value: None };
            let op = op(m, CAST);
            op.attributes.remove("source_val");
            op.inputs.insert("source_val".into(), schema::Argument { arguments: vec![named] });
        }),
        Ok(())
    );
}

#[test]
fn compressed_constants_of_another_kind_are_refused() {
    let refused = |change: fn(&mut schema::Model)| recompressed(change).unwrap_err();
    let report = [
        refused(|m| {
            let scale = op(m, BLOCKS).inputs["scale"].clone();
            op(m, BLOCKS).inputs.insert("offset".into(), scale);
        }),
        refused(|m| {
            op(m, BLOCKS).inputs.remove("scale");
        }),
        refused(|m| {
            let scale = op(m, BLOCKS).inputs["scale"].clone();
            op(m, BLOCKS).inputs.insert("data".into(), scale);
        }),
        refused(|m| op(m, BLOCKS).inputs.get_mut("data").unwrap().arguments.clear()),
        refused(|m| {
            op(m, CAST).attributes.get_mut("output_dtype").unwrap().clone_from(&super::super::value::string("fp16"))
        }),
        refused(|m| {
            op(m, CAST).attributes.remove("output_dtype");
        }),
        refused(|m| {
            let scale = op(m, BLOCKS).inputs["scale"].arguments[0].value.clone().unwrap();
            op(m, CAST).attributes.insert("source_val".into(), scale);
        }),
        refused(|m| tensor(&mut op(m, BLOCKS).outputs[0]).data_type = 10),
    ];
    insta::assert_snapshot!(report.join("\n"), @r##"
    function main: value flat_weight: constexpr_blockwise_shift_scale is not an operation of ours, or not in this form: it has an offset
    function main: value flat_weight: constexpr_blockwise_shift_scale is not an operation of ours, or not in this form: parameter scale is missing
    function main: node flat_weight: dequantize takes levels of i8, got f32
    function main: value flat_weight: constexpr_blockwise_shift_scale is not an operation of ours, or not in this form: operand data has no value
    function main: value linear_wide: constexpr_cast is not an operation of ours, or not in this form: it casts f16 to fp16, expected f16 to fp32
    function main: value linear_wide: constexpr_cast is not an operation of ours, or not in this form: output_dtype is missing
    function main: value linear_wide: constexpr_cast is not an operation of ours, or not in this form: it casts f32 to fp32, expected f16 to fp32
    function main: value flat_weight is declared f16[4,64], but its operands make it f32[4,64]
    "##);
}

#[test]
fn defaults_may_be_left_out() {
    let dir = remodelled(|m| {
        for (kind, input) in [
            ("conv", "dilations"),
            ("rsqrt", "epsilon"),
            ("softmax", "axis"),
            ("concat", "interleave"),
            ("pad", "mode"),
            ("pad", "constant_val"),
        ] {
            assert!(op(m, kind).inputs.remove(input).is_some(), "{kind} {input}");
        }
    });
    Package::open(dir.path()).unwrap().lift("main").unwrap();
}

#[test]
fn a_package_that_is_none() {
    let open = |file: &str, content: &str| {
        let dir = sample();
        fs_err::write(dir.path().join(file), content).unwrap();
        let error = Package::open(dir.path()).unwrap_err();
        let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
        format!("{error}{source}").replace(&dir.path().display().to_string(), "P")
    };
    insta::assert_snapshot!(open(MANIFEST, "{"), @"P/Manifest.json is no manifest of a package: EOF while parsing an object at line 1 column 1");
    insta::assert_snapshot!(open(MANIFEST, "{}"), @r#"P/Manifest.json is no manifest of a package: its version is "", expected "1.0.0""#);
    insta::assert_snapshot!(open(MANIFEST, r#"{"fileFormatVersion":"1.0.0","itemInfoEntries":{},"rootModelIdentifier":"A"}"#), @r#"P/Manifest.json is no manifest of a package: root model "A" is not among its items"#);
    let outside =
        r#"{"fileFormatVersion":"1.0.0","itemInfoEntries":{"A":{"path":"../../x"}},"rootModelIdentifier":"A"}"#;
    insta::assert_snapshot!(open(MANIFEST, outside), @r#"P/Manifest.json is no manifest of a package: item path "../../x" leaves the package"#);
    insta::assert_snapshot!(open(MODEL, ""), @"P/Data/com.apple.CoreML/model.mlmodel holds no ML program (specification version 0)");
    insta::assert_snapshot!(open(MODEL, "text"), @"P/Data/com.apple.CoreML/model.mlmodel is no Core ML model: byte 1: wire type 4, expected 0, 1, 2 or 5");
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Package::open(dir.path()), Err(ReadError::Io { .. })));
}

#[test]
fn a_package_of_coremltools_opens() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/coremltools.mlpackage");
    let package = Package::open(&dir).unwrap();
    assert_eq!(package.violations(), []);
    let listing: String = package.functions()[0]
        .operations
        .iter()
        .filter(|op| op.kind != "const")
        .map(|op| format!("{} {}\n", op.kind, op.label()))
        .collect();
    insta::assert_snapshot!(listing, @r"
    read_state read_state_0
    add add_0
    write_state write_state
    layer_norm layer_norm_0
    constexpr_blockwise_shift_scale constexpr_blockwise_shift_scale_0
    linear linear_0
    clip clip_0
    softmax probabilities
    ");
    let compressed: Vec<String> = package
        .constants()
        .values()
        .filter(|c| matches!(c.content, Content::Blob(_)))
        .map(|c| format!("{} {}", c.name, c.kind))
        .collect();
    insta::assert_snapshot!(compressed.join("\n"), @r"
    constexpr_blockwise_shift_scale_0.data i8[6,8]
    constexpr_blockwise_shift_scale_0.scale f16[6,2]
    ");
    let scan = package.scan().unwrap().unwrap();
    assert_eq!(scan.values.len(), package.records().len());
    assert!(package.lift("main").is_err());
}

/// The same graph in coremltools' spelling: defaults, masks, counted-back axes, clip, squeeze and expand_dims.
#[test]
fn usual_spellings_of_others_are_lifted() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/coremltools_spellings.mlpackage");
    let package = Package::open(&dir).unwrap();
    assert_eq!(package.violations(), []);
    let graph = package.lift("main").unwrap();
    let listing: String = graph
        .nodes()
        .filter(|(value, _)| graph.constant(*value).is_none())
        .map(|(_, node)| format!("{} {:?}\n", node.fact, node.op))
        .collect();
    insta::assert_snapshot!(listing, @r#"
    f16[1,4,8] Input("x")
    f16[1,6,6] Conv(ConvSpec { stride: [1], pad: [[0, 0]], groups: 1 })
    f16[1,6,6] Binary(Maximum)
    f16[1,6,6] Binary(Minimum)
    f16[1,4,6] Slice { begin: [0, 1, 0], end: [1, 5, 6] }
    f16[1,6,4] Transpose { perm: [0, 2, 1] }
    f16[1,6,1] Reduce { kind: Mean, axis: 2 }
    f16[1,6] Reshape { shape: Shape([1, 6]) }
    f16[1,6,1] Reshape { shape: Shape([1, 6, 1]) }
    f16[1,6,4] Binary(Sub)
    f16[1,6,4] Unary(Square)
    f16[1,1,4] Reduce { kind: Sum, axis: 1 }
    f16[1,1,1] Reduce { kind: Sum, axis: 2 }
    f16[1,1,1] Binary(Add)
    f16[1,1,1] Unary(Rsqrt)
    f16[1,6,4] Binary(Mul)
    f16[1,6,5] Pad { amount: [[0, 0], [0, 0], [1, 0]] }
    f16[1,30] Reshape { shape: Shape([1, 30]) }
    f16[1,3] Linear
    f16[1,1,3] Reshape { shape: Shape([1, 1, 3]) }
    f16[1,3] Reshape { shape: Shape([1, 3]) }
    f16[1,6] Concat { axis: 1 }
    f16[1,6] Softmax { axis: 1 }
    "#);
}

fn exercise(dir: &Path) {
    let Ok(package) = Package::open(dir) else { return };
    let _ = package.scan();
    for function in package.functions() {
        let _ = package.lift(&function.name);
    }
    for name in package.names() {
        let size = package.fact(name).map_or(0, |f| f.bytes()).min(1 << 20);
        let _ = package.read(name, 0, &mut vec![0; size]);
    }
}

/// The files of the sample.
static PRISTINE: LazyLock<[(&str, Vec<u8>); 3]> = LazyLock::new(|| {
    let dir = sample();
    [MODEL, WEIGHTS, MANIFEST].map(|file| (file, fs_err::read(dir.path().join(file)).unwrap()))
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bytes_of_a_stranger_never_panic(
        changes in prop::collection::vec((0usize..3, any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of((0usize..2, any::<prop::sample::Index>())),
    ) {
        let mut files = PRISTINE.clone();
        for (file, at, byte) in changes {
            let at = at.index(files[file].1.len());
            files[file].1[at] = byte;
        }
        if let Some((file, at)) = cut {
            let at = at.index(files[file].1.len());
            files[file].1.truncate(at);
        }
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(dir.path().join(WEIGHTS).parent().unwrap()).unwrap();
        for (file, content) in files {
            fs_err::write(dir.path().join(file), content).unwrap();
        }
        exercise(dir.path());
    }
}
