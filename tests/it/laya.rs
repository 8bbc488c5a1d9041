//! The Laya graph against the published modules, on the fixtures of scripts/laya_variants.py.

use crate::cli::{command, fixture, listed, run};
use crate::python::{coreai_python, script};
use eg2_convert::checkpoint::{Checkpoint, Ledger};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Peak, Values};
use eg2_convert::models::laya::{AGENT_FILE, ENCODER_FILE, LayaConfig, Length, author, names};
use eg2_convert::passes::{Precision, precision};
use eg2_convert::tensor::{Fact, SourceError, WeightSource};
use eg2_convert::validate::check;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const VARIANTS: [&str; 3] = ["defaults", "own", "named"];
/// Tokens of the goldens.
const LENGTH: usize = 48;

fn variant(name: &str) -> PathBuf {
    fixture("laya_variants").join(name)
}

pub fn config(folder: &Path) -> LayaConfig {
    let read = |file: &str| fs_err::read_to_string(folder.join(file)).unwrap();
    LayaConfig::parse(&read(ENCODER_FILE), &read(AGENT_FILE), [ENCODER_FILE, AGENT_FILE]).unwrap()
}

fn tensor(file: &Checkpoint, name: &str) -> (Fact, Vec<f32>) {
    let fact = file.fact(name).unwrap().clone();
    let mut values = vec![0.0; fact.shape.elements()];
    file.read_f32(name, 0, &mut values).unwrap();
    (fact, values)
}

/// How far logits are from the reference, and cls by the largest of the reference's numbers.
fn distances(golden: &Checkpoint, output: impl Fn(&str) -> Vec<f32>) -> [f32; 2] {
    let largest = |values: &[f32]| values.iter().fold(0f32, |most, v| most.max(v.abs()));
    let apart = |name: &str| {
        let (_, want) = tensor(golden, name);
        let apart: Vec<f32> = output(name).iter().zip(&want).map(|(a, b)| a - b).collect();
        assert!(!apart.is_empty() && apart.iter().all(|d| d.is_finite()));
        (largest(&apart), largest(&want))
    };
    let ((logits, _), (cls, size)) = (apart(names::LOGITS), apart(names::CLS));
    [logits, cls / size]
}

fn golden_inputs(golden: &Checkpoint) -> BTreeMap<String, HostTensor> {
    let input = |name: &str| {
        let (fact, values) = tensor(golden, name);
        (name.to_string(), HostTensor::new(fact, Values::F32(values)).unwrap())
    };
    names::INPUTS.into_iter().map(input).collect()
}

/// The graph of a variant on the golden of a question type, authored and evaluated here.
fn evaluated(name: &str, kind: usize, numbers: Precision) -> [f32; 2] {
    let folder = variant(name);
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let golden = Checkpoint::open_file(&folder.join(format!("golden_q{kind}.safetensors"))).unwrap();
    let length = Length::new(LENGTH).unwrap();
    let (graph, _) = author(&config(&folder), length, &Ledger::new(&checkpoint)).unwrap();
    let (graph, _) = precision(&graph, numbers, &checkpoint).unwrap();
    let evaluator = Evaluator::new(check(&graph).unwrap(), &checkpoint, Options::default());
    let (outputs, report) = evaluator.run(&golden_inputs(&golden)).unwrap();
    assert!(report.non_finite.is_none(), "{report:?}");
    distances(&golden, |name| outputs[name].floats().unwrap().to_vec())
}

#[test]
fn fp32_is_the_published_model() {
    for name in VARIANTS {
        for kind in 0..3 {
            let [logits, cls] = evaluated(name, kind, Precision::Fp32);
            assert!(logits <= 1e-5 && cls <= 1e-5, "{name} {kind}: {logits} {cls}");
        }
    }
}

#[test]
fn narrower_numbers_stay_close() {
    for (numbers, limit) in [(Precision::Fp16, 2e-2), (Precision::Fp16W32, 4e-3)] {
        for name in VARIANTS {
            let [logits, cls] = evaluated(name, 0, numbers);
            assert!(logits <= limit && cls <= limit, "{} {name}: {logits} {cls}", numbers.name());
        }
    }
}

/// `laya` on a variant, with more arguments.
fn laya(folder: &Path, name: &str, more: &[&str]) -> (i32, String, String) {
    let checkpoint = variant(name);
    run(folder, &[&["laya", "--length", "48", "--checkpoint", checkpoint.to_str().unwrap()], more].concat())
}

#[test]
fn coremltools_infers_what_we_declare() {
    let dir = tempfile::tempdir().unwrap();
    for precision in ["fp16", "fp32", "fp16w32"] {
        let (code, _, err) = laya(dir.path(), "own", &["--precision", precision, "--format", "mlpackage"]);
        assert_eq!((code, err.as_str()), (0, ""));
        let package = dir.path().join(format!("out/laya_{precision}_L48.mlpackage"));
        let report = script("load_mlpackage.py", &[package.to_str().unwrap()]);
        let report: Value = serde_json::from_str(report.trim()).unwrap();
        assert_eq!(report["faults"], Value::Array(vec![]), "{precision}");
        let census = report["census"]["main"].as_object().unwrap();
        for banned in ["gather", "cast", "layer_norm", "scaled_dot_product_attention", "matmul", "linear", "reshape"] {
            assert!(!census.contains_key(banned), "{precision} has {banned}");
        }
        // Two products for each of the encoder's 4 heads in 3 layers and the decision head's one in 2, and the markers.
        assert_eq!(census["einsum"], 2 * (3 * 4 + 2) + 1);
    }
}

#[test]
fn apples_runtime_gives_the_published_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for name in VARIANTS {
        let checkpoint = variant(name);
        let mut convert = command(dir.path());
        convert.args(["laya", "--length", "48", "--precision", "fp32", "--format", "aimodel", "--out", name]);
        convert.arg("--checkpoint").arg(&checkpoint).env("EG2_COREAI_PYTHON", coreai_python()).assert().success();
        for kind in 0..3 {
            let golden = checkpoint.join(format!("golden_q{kind}.safetensors"));
            let mut run = command(dir.path());
            run.args(["run", &format!("{name}/laya_fp32_L48.aimodel"), "--outputs", "out.safetensors", "--inputs"]);
            run.arg(&golden).env("EG2_COREAI_PYTHON", coreai_python()).assert().success();
            let found = Checkpoint::open_file(&dir.path().join("out.safetensors")).unwrap();
            let golden = Checkpoint::open_file(&golden).unwrap();
            let [logits, cls] = distances(&golden, |name| tensor(&found, name).1);
            assert!(logits <= 1e-5 && cls <= 1e-5, "{name} {kind}: {logits} {cls}");
        }
    }
}

/// Numbers that differ from run to run.
fn redacted(text: &str) -> String {
    let line = |l: &str| if l.starts_with("seconds") { "seconds [seconds]".to_string() } else { l.to_string() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_artefact_for_each_length() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = run_lengths(dir.path(), &["16,48"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(redacted(&out));
    let artefacts = ["laya_fp16_L16.mlpackage", "laya_fp16_L48.mlpackage"];
    let both = artefacts.iter().flat_map(|name| [name.to_string(), format!("{name}.record.json")]).collect::<Vec<_>>();
    assert_eq!(listed(&dir.path().join("out")), both);
    let (_, again, _) = run_lengths(dir.path(), &["48,16"]);
    assert_eq!(again.matches("unchanged").count(), 2, "{again}");
}

fn run_lengths(folder: &Path, lengths: &[&str]) -> (i32, String, String) {
    let checkpoint = variant("named");
    let args = ["laya", "--checkpoint", checkpoint.to_str().unwrap(), "--format", "mlpackage", "--length"];
    run(folder, &[&args, lengths].concat())
}

#[test]
fn lengths_that_no_job_has() {
    let dir = tempfile::tempdir().unwrap();
    let told = |lengths: &str| {
        let (code, _, err) = run_lengths(dir.path(), &[lengths]);
        assert_eq!((code, listed(&dir.path().join("out"))), (2, Vec::new()));
        err
    };
    insta::assert_snapshot!(told("15"), @"error: 15 is not a length from 16 to 2048 tokens (96, 192 and 1024 are published)");
    insta::assert_snapshot!(told("96,192,96"), @"error: length 96 is given twice");
}

/// A checkpoint like `own`, with a file changed: its text by `change`, or left out.
fn spoilt(folder: &Path, file: &str, change: Option<(&str, &str)>) -> (i32, String) {
    let (from, to) = (variant("own"), folder.join("spoilt"));
    let _ = fs_err::remove_dir_all(&to);
    fs_err::create_dir_all(to.join("encoder")).unwrap();
    for name in ["model.safetensors", ENCODER_FILE, AGENT_FILE] {
        fs_err::copy(from.join(name), to.join(name)).unwrap();
    }
    match change {
        None => fs_err::remove_file(to.join(file)).unwrap(),
        Some((old, new)) => {
            let text = fs_err::read_to_string(to.join(file)).unwrap();
            assert!(text.contains(old), "{file} has no {old}");
            fs_err::write(to.join(file), text.replace(old, new)).unwrap();
        }
    }
    let (code, _, err) = run(folder, &["laya", "--checkpoint", "spoilt", "--format", "mlpackage"]);
    assert_eq!(listed(&folder.join("out")), Vec::<String>::new());
    (code, err)
}

#[test]
fn checkpoints_that_cannot_be_converted() {
    let dir = tempfile::tempdir().unwrap();
    let told = |file: &str, change| {
        let (code, err) = spoilt(dir.path(), file, change);
        assert_eq!(code, 3, "{err}");
        err.trim_end().to_string()
    };
    let encoder = |old, new| told(ENCODER_FILE, Some((old, new)));
    let all = [
        told(ENCODER_FILE, None),
        told(AGENT_FILE, None),
        encoder("\"modernbert\"", "\"bert\""),
        encoder("\"gelu\"", "\"silu\""),
        encoder("\"vocab_size\": 64", "\"vocab_size\": 65"),
        encoder("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2"),
        encoder("\"norm_bias\": true", "\"norm_bias\": false"),
        encoder("\"hidden_size\": 32", "\"hidden_size\": 48"),
        encoder("\"num_attention_heads\": 4", "\"num_attention_heads\": 5"),
        told(AGENT_FILE, Some(("\"sequential\"", "\"parallel\""))),
        told(AGENT_FILE, Some(("\"wait\": 1.0", ""))),
        told(AGENT_FILE, Some(("\"head_layers\": 2", "\"head_layers\": 3"))),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

/// The variant with the result of a feed forward scaled, so that the residual stream grows as the published one does.
struct Louder {
    inner: Checkpoint,
    tensor: &'static str,
    factor: f32,
}

impl WeightSource for Louder {
    fn names(&self) -> Vec<&str> {
        self.inner.names()
    }
    fn fact(&self, name: &str) -> Option<&Fact> {
        self.inner.fact(name)
    }
    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.inner.read(name, offset, out)?;
        if name == self.tensor {
            for value in out.as_chunks_mut::<4>().0 {
                *value = (f32::from_le_bytes(*value) * self.factor).to_le_bytes();
            }
        }
        Ok(())
    }
    fn place(&self, name: &str) -> String {
        self.inner.place(name)
    }
}

/// The published class token reaches 1.4e4 from layer 11 on, whose square is far beyond fp16.
#[test]
fn a_residual_stream_of_ten_thousand_stays_finite() {
    let folder = variant("defaults");
    let inner = Checkpoint::open(&folder).unwrap();
    let source = Louder { inner, tensor: "encoder.layers.1.mlp.Wo.weight", factor: 1.2e4 };
    let golden = Checkpoint::open_file(&folder.join("golden_q0.safetensors")).unwrap();
    let (graph, _) = author(&config(&folder), Length::new(LENGTH).unwrap(), &Ledger::new(&source)).unwrap();
    let run = |numbers| {
        let (graph, _) = precision(&graph, numbers, &source).unwrap();
        let options = Options { trace: true, ..Options::default() };
        Evaluator::new(check(&graph).unwrap(), &source, options).run(&golden_inputs(&golden)).unwrap()
    };
    let ((wide, report), (half, of_half)) = (run(Precision::Fp32), run(Precision::Fp16));
    assert!(of_half.non_finite.is_none(), "{of_half:?}");
    let peak = |end: &str| report.peaks.iter().find(|p| p.path.ends_with(end)).unwrap().peak;
    let stream = peak("layers.1.mlp_residual");
    assert!((8e3..6e4).contains(&stream) && stream * stream > f32::from(half::f16::MAX), "{stream}");
    // Of all values it is the largest: the norm behind it never squares it.
    let inside = |p: &&Peak| !p.path.contains("mask");
    let largest = of_half.peaks.iter().filter(inside).max_by(|a, b| a.peak.total_cmp(&b.peak)).unwrap();
    assert!(largest.path.contains("layers.1.mlp") || largest.peak <= stream * 1.01, "{largest:?}");
    for name in [names::LOGITS, names::CLS] {
        let [wide, half] = [&wide, &half].map(|outputs| outputs[name].floats().unwrap());
        let size = wide.iter().fold(0f32, |most, v| most.max(v.abs()));
        let apart = wide.iter().zip(half).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(apart <= 2e-2 * size, "{name}: {apart} of {size}");
    }
}
