//! Every op in both formats, outside of this program: coremltools' type inference, Apple's reader and CPU runtime.

use crate::cli::command;
use crate::clip::evaluate;
use crate::mil_sample::{compressed, every_op, weights};
use crate::python::{coreai_python, script};
use eg2_convert::bundle::{AiModel, read_back, read_back_aimodel};
use eg2_convert::checkpoint::{Checkpoint, Named, write_safetensors};
use eg2_convert::emit::coreai::{self, Bridge, Metadata, RawTensor};
use eg2_convert::emit::mil::{self, Description, read::Package};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Values, compare};
use eg2_convert::ir::{Graph, parse};
use eg2_convert::tensor::{DType, Fact, Memory, WeightSource};
use eg2_convert::toolchain::Interrupt;
use eg2_convert::validate::check;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

type Tensors = BTreeMap<String, HostTensor>;

#[test]
fn coremltools_infers_what_we_declare() {
    let memory = weights();
    for dtype in [DType::F16, DType::F32] {
        let (dir, graph) = (tempfile::tempdir().unwrap(), every_op("main", &memory, dtype));
        let checked = [check(&graph).unwrap()];
        let package = dir.path().join("every_op.mlpackage");
        fs_err::create_dir(&package).unwrap();
        let report = mil::write(&checked, &memory, &Description::default(), &package).unwrap();
        read_back(&package, &report, &checked).unwrap();
        let best = &Package::open(&package).unwrap().lift("main").unwrap();
        let best = best.outputs().iter().find(|output| output.name == "best").map(|o| best.fact(o.value).clone());
        assert_eq!(best, Some(Fact::new(DType::I32, [1, 20, 1])));
        let report = script("load_mlpackage.py", &[package.to_str().unwrap()]);
        let report: Value = serde_json::from_str(report.trim()).unwrap();
        assert_eq!(report["faults"], Value::Array(vec![]), "{dtype}");
        let census = &report["census"]["main"];
        let counts = ["matmul", "einsum", "gelu", "reduce_argmax"].map(|kind| census[kind].as_u64());
        assert_eq!(counts, [Some(1), Some(1), Some(2), Some(1)], "{dtype}");
    }
}

/// Writes `graph` as the bundle `folder/graph.aimodel`, reads it back, runs it on Apple's runtime.
fn on_apples_runtime(folder: &Path, graph: &Graph, source: &dyn WeightSource, inputs: &Tensors) -> Tensors {
    let (bridge, bundle) = (Bridge::at(coreai_python(), &Interrupt::never()), folder.join("graph.aimodel"));
    let weights = folder.join("weights");
    let checked = [check(graph).unwrap()];
    let program = coreai::write(&checked, source, fs_err::File::create(&weights).unwrap()).unwrap();
    bridge.start(folder).unwrap().save(&program, &weights, &Metadata::default(), &bundle).unwrap();
    let found = read_back_aimodel(&bundle, &program, bridge.start(folder).unwrap()).unwrap();
    // This program's reader of the file counts what Apple's counts, under the names that stand in the file.
    assert_eq!(plain(&AiModel::open(&bundle).unwrap().functions[0].ops), plain(&found.ops));
    let raw = inputs.iter().enumerate().map(|(at, (name, tensor))| {
        let file = folder.join(format!("input{at}"));
        let (bytes, dtype) = tensor.to_bytes();
        fs_err::write(&file, bytes).unwrap();
        let shape = tensor.fact().shape.dims().to_vec();
        (name.clone(), RawTensor { file, dtype: dtype.name().into(), shape })
    });
    let outputs = bridge.run(&bundle, "main", &raw.collect(), folder).unwrap();
    let read = |raw: RawTensor| {
        let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == raw.dtype).unwrap();
        HostTensor::from_bytes(Fact::new(dtype, raw.shape), &fs_err::read(raw.file).unwrap()).unwrap()
    };
    outputs.into_iter().map(|(name, raw)| (name, read(raw))).collect()
}

/// How many operations there are of each name, without dialect and version: `coreai.argmax` is `aicode.argmax_v1`.
fn plain(ops: &BTreeMap<String, usize>) -> BTreeMap<&str, usize> {
    let mut plain = BTreeMap::new();
    for (name, n) in ops {
        let name = name.rsplit('.').next().unwrap();
        let name = name.rsplit_once("_v").map_or(name, |(name, _)| name);
        *plain.entry(name).or_default() += n;
    }
    plain
}

fn floats(fact: Fact, value: impl Fn(usize) -> f32) -> HostTensor {
    let values = (0..fact.shape.elements()).map(value).collect();
    HostTensor::new(fact, Values::F32(values)).unwrap()
}

fn integers(tensor: &HostTensor) -> &[i32] {
    match tensor.values() {
        Values::I32(values) => values,
        Values::F32(_) => panic!("{}", tensor.fact()),
    }
}

/// Holds what Apple's runtime computes of `graph` against what the evaluator does: floats within `apart`, integers and
/// facts exactly.
fn the_same(graph: &Graph, memory: &Memory, inputs: &Tensors, apart: f64, left_out: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let found = on_apples_runtime(dir.path(), graph, memory, inputs);
    let ours = Evaluator::new(check(graph).unwrap(), memory, Options::default()).run(inputs).unwrap().0;
    assert_eq!(found.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
    for (name, want) in ours.iter().filter(|(name, _)| !left_out.contains(&name.as_str())) {
        let got = &found[name];
        assert_eq!(got.fact(), want.fact(), "{name}");
        match (got.floats(), want.floats()) {
            (Some(got), Some(want)) => {
                let compared = compare(got, want, got.len()).unwrap();
                assert!(compared.max_abs <= apart, "{name}: {compared:?}");
            }
            (_, _) => assert_eq!(integers(got), integers(want), "{name}"),
        }
    }
}

#[test]
fn apples_runtime_computes_what_the_evaluator_does() {
    let memory = weights();
    let wave = |i: usize| ((i * 37) % 19) as f32 / 19.0 - 0.4;
    let every = |dtype, apart, left_out: &[&str]| {
        let inputs = Tensors::from([
            ("image".to_string(), floats(Fact::new(dtype, [1, 1, 8, 6]), wave)),
            ("wave".to_string(), floats(Fact::new(dtype, [1, 6, 9]), wave)),
        ]);
        the_same(&every_op("main", &memory, dtype), &memory, &inputs, apart, left_out);
    };
    every(DType::F32, 1e-5, &[]);
    // Near scores change places where each side rounds in its own way; and a cast to integers and back, which no model
    // of ours has, Apple's runtime leaves out, fractions and all.
    every(DType::F16, 2e-2, &["best", "soft_tokens"]);
    let inputs = Tensors::from([
        ("x".to_string(), floats(Fact::new(DType::F32, [1, 3, 64]), wave)),
        ("z".to_string(), floats(Fact::new(DType::F32, [1, 2, 6]), wave)),
    ]);
    the_same(&compressed("main", &memory), &memory, &inputs, 1e-5, &[]);
}

/// The words of a table, nearest and how near.
fn words(dtype: DType, rows: usize) -> Graph {
    let table = if dtype == DType::F32 { "" } else { " | cast f16" };
    let text = format!(
        "graph words\n%x = input \"x\" : {dtype}[1,5,4]\n\
         %table = const tensor \"table\" f32[{rows},4]{table} : {dtype}[{rows},4]\n\
         %scores = linear(%x, %table) : {dtype}[1,5,{rows}]\n\
         %index = argmax(%scores) axis=2 : i32[1,5,1]\n%top = reduce_max(%scores) axis=2 : {dtype}[1,5,1]\n\
         output \"top1_index\" = %index\noutput \"top1_score\" = %top\n"
    );
    parse(&text).unwrap()
}

/// A table whose ordinary words are all alike.
fn table(rows: usize) -> Memory {
    let mut table = vec![1.0f32; rows * 4];
    let mut put = |row: usize, values: [f32; 4]| table[row * 4..][..4].copy_from_slice(&values);
    put(32_768, [2.0, 1.0, 1.0, 1.0]);
    put(65_536, [1.0, 2.0, 1.0, 1.0]);
    put(rows - 1, [1.0, 1.0, 3.0, 1.0]);
    put(65_999, [1.0, 1.0, 1.0, 2.0]);
    put(66_001, [1.0, 1.0, 1.0, 2.0]);
    put(69_000, [0.5, 0.5, 0.5, 0.5]);
    let mut memory = Memory::default();
    memory.insert_f32("table", &[rows, 4], &table);
    memory
}

/// A direction along each axis, then one against all.
fn asked(dtype: DType) -> HostTensor {
    floats(Fact::new(dtype, [1, 5, 4]), |i| if i >= 16 { -1.0 } else { f32::from(u8::from(i / 4 == i % 4)) })
}

/// Indices that no 16-bit integer holds, of either sign; of equal scores the first; and rows below zero throughout.
#[test]
fn the_nearest_of_many_words() {
    for rows in [70_000, 200_000] {
        let memory = table(rows);
        for dtype in [DType::F32, DType::F16] {
            let inputs = Tensors::from([("x".to_string(), asked(dtype))]);
            let (dir, graph) = (tempfile::tempdir().unwrap(), words(dtype, rows));
            let found = on_apples_runtime(dir.path(), &graph, &memory, &inputs);
            let want = [32_768, 65_536, i32::try_from(rows - 1).unwrap(), 65_999, 69_000];
            assert_eq!(integers(&found["top1_index"]), want, "{dtype} {rows}");
            assert_eq!(found["top1_score"].floats(), Some(&[2.0, 2.0, 3.0, 2.0, -2.0][..]), "{dtype} {rows}");
            let ours = Evaluator::new(check(&graph).unwrap(), &memory, Options::default()).run(&inputs).unwrap().0;
            assert_eq!(ours, found, "{dtype} {rows}");
        }
    }
}

/// The command, on a model that gives integers, in each format.
#[test]
fn indices_are_written_looked_into_and_run_as_integers() {
    let (dir, graph, memory) = (tempfile::tempdir().unwrap(), words(DType::F32, 70_000), table(70_000));
    let inputs = Tensors::from([("x".to_string(), asked(DType::F32))]);
    on_apples_runtime(dir.path(), &graph, &memory, &inputs);
    let package = dir.path().join("graph.mlpackage");
    fs_err::create_dir(&package).unwrap();
    mil::write(&[check(&graph).unwrap()], &memory, &Description::default(), &package).unwrap();
    let x = &inputs["x"];
    let (bytes, _) = x.to_bytes();
    let given = vec![Named { name: "x", fact: x.fact(), bytes: &bytes }];
    write_safetensors(given, fs_err::File::create(dir.path().join("in")).unwrap()).unwrap();
    let mut seen = Vec::new();
    for artefact in ["graph.mlpackage", "graph.aimodel"] {
        evaluate(dir.path(), artefact, "main", "in", artefact.trim_start_matches("graph."));
        let found = Checkpoint::open_file(&dir.path().join(artefact.trim_start_matches("graph."))).unwrap();
        assert_eq!(found.fact("top1_index"), Some(&Fact::new(DType::I32, [1, 5, 1])), "{artefact}");
        let mut bytes = [0; 20];
        found.read("top1_index", 0, &mut bytes).unwrap();
        let indices: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        assert_eq!(indices, [32_768, 65_536, 69_999, 65_999, 69_000], "{artefact}");
        let mut inspect = command(dir.path());
        inspect.env("EG2_COREAI_PYTHON", coreai_python()).args(["inspect", "--json", artefact]);
        let out = inspect.assert().success().get_output().stdout.clone();
        let out: Value = serde_json::from_slice(&out).unwrap();
        seen.push(out);
    }
    let function = &seen[0]["functions"][0];
    assert_eq!(function["outputs"], json!(["top1_index i32[1,5,1]", "top1_score f32[1,5,1]"]));
    assert_eq!(function["ops"], json!({ "linear": 1, "reduce_argmax": 1, "reduce_max": 1 }));
    assert_eq!((&seen[0]["violations"], &seen[1]["faults"]), (&json!([]), &json!([])));
    let ops = &seen[1]["model"]["functions"][0]["ops"];
    assert_eq!((&ops["aicode.argmax_v1"], &ops["aicode.primitive.cast_v1"]), (&json!(1), &json!(1)));
}
