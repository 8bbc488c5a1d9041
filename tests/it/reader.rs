//! The word reader against PyTorch, on the fixtures of scripts/reader_goldens.py.

use crate::cli::{command, fixture};
use eg2_convert::checkpoint::{Checkpoint, Joined, Ledger, Named, sole_tensor, write_safetensors};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Values};
use eg2_convert::models::reader::{AuthorReport, ReaderConfig, TABLE, Tokens, author};
use eg2_convert::passes::{Precision, precision};
use eg2_convert::tensor::{DType, Fact, WeightSource};
use eg2_convert::validate::check;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Fixtures with the weights and the table of each, and the lengths of their goldens.
const FIXTURES: [(&str, &str, &str, &[usize]); 2] = [
    ("reader_plain", "reader.safetensors", "table.npy", &[40, 7]),
    ("reader_guessed", "reader.pt", "table.safetensors", &[40]),
];

/// What a run gave, or what PyTorch did.
struct Read {
    index: Vec<i32>,
    logit: Vec<f32>,
    blank: Vec<f32>,
}

struct Golden {
    file: Checkpoint,
    tokens: usize,
    read: Read,
    margin: Vec<f32>,
}

impl Golden {
    fn open(path: &Path) -> Golden {
        let file = Checkpoint::open_file(path).unwrap();
        let tokens = file.fact("token_mask").unwrap().shape.elements();
        let index = integers(&file, "top1_index");
        let read = Read { index, logit: floats(&file, "top1_logit"), blank: floats(&file, "blank_logit") };
        let margin = floats(&file, "margin");
        Golden { file, tokens, read, margin }
    }

    fn inputs(&self) -> BTreeMap<String, HostTensor> {
        let tensor = |name: &str| {
            let fact = Fact::new(DType::F32, self.file.fact(name).unwrap().shape.clone());
            (name.to_string(), HostTensor::new(fact, Values::F32(floats(&self.file, name))).unwrap())
        };
        BTreeMap::from([tensor("soft_tokens"), tensor("token_mask")])
    }

    /// Labels and blank decisions of all valid tokens equal wherever the golden's are clear; logits within `apart`.
    fn holds(&self, found: &Read, clear: f32, apart: f32, what: &str) {
        let mask = floats(&self.file, "token_mask");
        let valid = mask.iter().filter(|m| **m > 0.0).count();
        for t in 0..valid {
            let (index, logit, blank) = (self.read.index[t], self.read.logit[t], self.read.blank[t]);
            if self.margin[t] > clear {
                assert_eq!(found.index[t], index, "{what}, token {t}, margin {}", self.margin[t]);
            }
            if (blank - logit).abs() > clear {
                assert_eq!(found.blank[t] > found.logit[t], blank > logit, "{what}, token {t}");
            }
            assert!((found.logit[t] - logit).abs() <= apart, "{what}, token {t}: {} for {logit}", found.logit[t]);
            assert!((found.blank[t] - blank).abs() <= apart, "{what}, token {t}: {} for {blank}", found.blank[t]);
        }
    }
}

fn floats(file: &Checkpoint, name: &str) -> Vec<f32> {
    let mut values = vec![0.0; file.fact(name).unwrap().shape.elements()];
    file.read_f32(name, 0, &mut values).unwrap();
    values
}

fn integers(file: &Checkpoint, name: &str) -> Vec<i32> {
    let mut bytes = vec![0; file.fact(name).unwrap().bytes()];
    file.read(name, 0, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
}

fn joined(folder: &Path, weights: &str, table: &str) -> Joined {
    let table = Checkpoint::open(&folder.join(table)).unwrap();
    let stored = sole_tensor(&table, None).unwrap().to_string();
    Joined::new(Checkpoint::open(&folder.join(weights)).unwrap(), table, &stored, TABLE).unwrap()
}

fn config(folder: &Path) -> ReaderConfig {
    let text = fs_err::read_to_string(folder.join("reader_config.json")).unwrap();
    ReaderConfig::parse(&text, "reader_config.json").unwrap()
}

fn evaluated(folder: &Path, source: &Joined, golden: &Golden, to: Precision) -> (Read, AuthorReport) {
    let words = source.fact(TABLE).unwrap().shape.dims()[0];
    let tokens = Tokens::new(golden.tokens).unwrap();
    let (graph, report) = author(&config(folder), tokens, words, &Ledger::new(source)).unwrap();
    let (graph, _) = precision(&graph, to, source).unwrap();
    let evaluator = Evaluator::new(check(&graph).unwrap(), source, Options::default());
    let (outputs, seen) = evaluator.run(&golden.inputs()).unwrap();
    assert!(seen.non_finite.is_none(), "{seen:?}");
    let float = |name: &str| outputs[name].floats().unwrap().to_vec();
    let Values::I32(index) = outputs["top1_index"].values() else { panic!("an index is an integer") };
    (Read { index: index.clone(), logit: float("top1_logit"), blank: float("blank_logit") }, report)
}

#[test]
fn fp32_is_the_reader_in_pytorch_whatever_its_guesses() {
    for (name, weights, table, lengths) in FIXTURES {
        let folder = fixture(name);
        let source = joined(&folder, weights, table);
        for tokens in lengths {
            let golden = Golden::open(&folder.join(format!("golden_T{tokens}.safetensors")));
            let (found, report) = evaluated(&folder, &source, &golden, Precision::Fp32);
            golden.holds(&found, 1e-3, 2e-4, name);
            assert!((report.scale - 60.0).abs() < 1e-3);
            let (found, _) = evaluated(&folder, &source, &golden, Precision::Fp16W32);
            golden.holds(&found, 0.05, 0.05, name);
            let (found, _) = evaluated(&folder, &source, &golden, Precision::Fp16);
            golden.holds(&found, 0.1, 0.2, name);
        }
    }
}

/// A config that guesses wrongly gives another reader, so each guess is seen to be followed.
#[test]
fn every_guess_matters() {
    let (name, weights, table, _) = FIXTURES[1];
    let folder = fixture(name);
    let source = joined(&folder, weights, table);
    let golden = Golden::open(&folder.join("golden_T40.safetensors"));
    let text = fs_err::read_to_string(folder.join("reader_config.json")).unwrap();
    for (key, other, apart) in [
        ("rotary_layout", Value::from("half_split"), 0.1),
        ("gelu", Value::from("erf"), 1e-4),
        ("layer_norm_eps", Value::from(1e-4), 1e-4),
        ("blank_input", Value::from("before_normalization"), 0.1),
    ] {
        let mut json: Value = serde_json::from_str(&text).unwrap();
        json["assumed"][key] = other;
        let config = ReaderConfig::parse(&json.to_string(), "reader_config.json").unwrap();
        let words = source.fact(TABLE).unwrap().shape.dims()[0];
        let (graph, _) = author(&config, Tokens::new(40).unwrap(), words, &Ledger::new(&source)).unwrap();
        let evaluator = Evaluator::new(check(&graph).unwrap(), &source, Options::default());
        let (outputs, _) = evaluator.run(&golden.inputs()).unwrap();
        let worst = ["top1_logit", "blank_logit"]
            .into_iter()
            .zip([&golden.read.logit, &golden.read.blank])
            .flat_map(|(name, want)| outputs[name].floats().unwrap().iter().zip(want).take(33))
            .map(|(a, b)| (a - b).abs())
            .fold(0f32, f32::max);
        assert!(worst > apart, "{key}: nothing further off than {worst}");
    }
}

fn author_full(layers: usize) -> (eg2_convert::ir::Graph, AuthorReport) {
    let config = ReaderConfig { layers, ..ReaderConfig::v2() };
    author(&config, Tokens::new(750).unwrap(), 200_000, &Ledger::blueprint(0)).unwrap()
}

#[test]
fn the_published_readers_have_their_number_of_parameters() {
    for (layers, parameters) in [(4, 13_268_994), (6, 19_573_762)] {
        assert_eq!(author_full(layers).1.parameters, parameters);
    }
}

/// A maximum never starts at 0: with one word, its cosine comes out whatever its sign, and with the opposite word its
/// negative does.
#[test]
fn a_row_of_negative_cosines_gives_a_negative_logit() {
    let folder = fixture("reader_plain");
    let golden = Golden::open(&folder.join("golden_T40.safetensors"));
    let table = Checkpoint::open(&folder.join("table.npy")).unwrap();
    let mut row = vec![0.0; table.fact("tensor").unwrap().shape.dims()[1]];
    table.read_f32("tensor", 0, &mut row).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let [word, opposite] = [1.0, -1.0].map(|sign| {
        let bytes: Vec<u8> = row.iter().flat_map(|v| (sign * v).to_le_bytes()).collect();
        let fact = Fact::new(DType::F32, [1, row.len()]);
        let path = dir.path().join(format!("table{sign}.safetensors"));
        let named = vec![Named { name: TABLE, fact: &fact, bytes: &bytes }];
        write_safetensors(named, fs_err::File::create(&path).unwrap()).unwrap();
        let weights = Checkpoint::open(&folder.join("reader.safetensors")).unwrap();
        let source = Joined::new(weights, Checkpoint::open(&path).unwrap(), TABLE, TABLE).unwrap();
        [Precision::Fp32, Precision::Fp16].map(|to| evaluated(&folder, &source, &golden, to).0)
    });
    for (at, apart) in [1e-4, 0.1].into_iter().enumerate() {
        let logits = word[at].logit.iter().zip(&opposite[at].logit).take(33);
        assert!(logits.clone().any(|(a, _)| *a < -1.0) && logits.clone().any(|(a, _)| *a > 1.0));
        for (a, b) in logits {
            assert!((a + b).abs() <= apart, "{a} and {b}");
        }
        assert!(word[at].index.iter().all(|index| *index == 0));
    }
}

/// What a user sees, from files to a run.
#[test]
fn from_config_to_labels() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _, _, _) in FIXTURES {
        let config = fixture(name).join("reader_config.json");
        let golden = fixture(name).join("golden_T40.safetensors");
        let config = config.to_str().unwrap();
        let args = ["reader", "--config", config, "--tokens", "40", "--precision", "fp32", "--format", "mlpackage"];
        command(folder.path()).args(args).args(["--out", name]).assert().success();
        let tag = if name == "reader_plain" { "_v0" } else { "" };
        let artefact = format!("{name}/eg2_reader{tag}_fp32_T40.mlpackage");
        let run = ["run", &artefact, "--inputs", golden.to_str().unwrap(), "--outputs", "read.safetensors"];
        command(folder.path()).args(run).assert().success();
        let read = Checkpoint::open_file(&folder.path().join("read.safetensors")).unwrap();
        let found = Read {
            index: integers(&read, "top1_index"),
            logit: floats(&read, "top1_logit"),
            blank: floats(&read, "blank_logit"),
        };
        Golden::open(&golden).holds(&found, 1e-3, 2e-4, name);
    }
    let record = folder.path().join("reader_guessed/eg2_reader_fp32_T40.mlpackage.record.json");
    let record: Value = serde_json::from_str(&fs_err::read_to_string(record).unwrap()).unwrap();
    let author = &record["stages"]["functions"][0]["author"];
    assert_eq!((&author["prefix"], &author["matmul_mode"]), (&"model.".into(), &"TF32".into()));
    assert!(author["guesses"].as_array().unwrap().iter().any(|g| g["key"] == "assumed.gelu" && g["from"] == "config"));
    let files: Vec<&str> =
        record["source"]["files"].as_array().unwrap().iter().filter_map(|f| f["name"].as_str()).collect();
    assert_eq!(files, ["reader.pt", "table.safetensors", "words.txt", "reader_config.json"]);
}
