//! The gate on readers as they are shipped: what passes, what fails, and what it refuses to judge.

use crate::cli::{command, fixture};
use crate::python::coreai_python;
use crate::schema::holds;
use eg2_convert::checkpoint::Checkpoint;
use eg2_convert::tensor::{DType, WeightSource};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Makes the reader of a fixture and gives its path.
fn reader(folder: &Path, name: &str, precision: &str, format: &str) -> String {
    let mut command = command(folder);
    command.args(["reader", "--json", "--tokens", "40", "--precision", precision, "--format", format, "--config"]);
    command.arg(fixture(name).join("reader_config.json")).args(["--out", name]);
    command.env("EG2_COREAI_PYTHON", coreai_python());
    let output = command.output().unwrap();
    let json = holds("reader", &output.stdout);
    json["artefacts"][0]["artefact"].as_str().unwrap().to_string()
}

/// Exit code and the JSON of a gate.
fn gate(folder: &Path, artefact: &str, golden: &Path, more: &[&str]) -> (i32, Value) {
    let mut command = command(folder);
    command.args(["gate", artefact, "--json", "--golden"]).arg(golden).args(more);
    command.env("EG2_COREAI_PYTHON", coreai_python());
    let output = command.output().unwrap();
    (output.status.code().unwrap(), holds("gate", &output.stdout))
}

/// Each check's verdict.
fn verdicts(json: &Value) -> BTreeMap<String, String> {
    let checks = json["report"]["checks"].as_array().unwrap_or_else(|| panic!("{json}"));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    checks.iter().map(|c| (text(&c["name"]), text(&c["verdict"]["outcome"]))).collect()
}

/// A golden of the plain fixture whose tensor `name` is edited.
fn edited(path: &Path, name: &str, edit: impl Fn(usize, f32) -> f32) {
    let file = Checkpoint::open_file(&fixture("reader_plain/golden_T40.safetensors")).unwrap();
    let mut stored = Vec::new();
    for tensor in file.names() {
        let fact = file.fact(tensor).unwrap();
        let mut bytes = vec![0; fact.bytes()];
        file.read(tensor, 0, &mut bytes).unwrap();
        if tensor == name {
            for (at, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *word = if fact.dtype == DType::I32 {
                    (edit(at, i32::from_le_bytes(*word) as f32) as i32).to_le_bytes()
                } else {
                    edit(at, f32::from_le_bytes(*word)).to_le_bytes()
                };
            }
        }
        let dtype = if fact.dtype == DType::I32 { Dtype::I32 } else { Dtype::F32 };
        stored.push((tensor, dtype, fact.shape.dims().to_vec(), bytes));
    }
    let views =
        stored.iter().map(|(n, dtype, shape, data)| (*n, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let source = file.metadata("source_sha256").unwrap().to_string();
    safetensors::serialize_to_file(views, Some(HashMap::from([("source_sha256".to_string(), source)])), path).unwrap();
}

#[test]
fn readers_pass_in_every_precision_and_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["reader_plain", "reader_guessed"] {
        let golden = fixture(name).join("golden_T40.safetensors");
        let words = fixture(name).join("words.txt");
        for (precision, format) in
            [("fp32", "mlpackage"), ("fp16", "mlpackage"), ("fp16w32", "mlpackage"), ("fp32", "aimodel")]
        {
            let artefact = reader(dir.path(), name, precision, format);
            let (code, json) = gate(dir.path(), &artefact, &golden, &["--words", words.to_str().unwrap()]);
            assert_eq!(code, 0, "{artefact}: {json:#}");
            let verdicts = verdicts(&json);
            for check in ["source", "labels", "flips", "blanks", "finite", "repeats"] {
                assert_eq!(verdicts[check], "pass", "{artefact} {check}: {json:#}");
            }
            assert!(verdicts.iter().any(|(n, v)| n.contains("second") && v == "pass"), "{verdicts:?}");
        }
    }
}

#[test]
fn wrong_labels_and_blanks_fail() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = reader(dir.path(), "reader_plain", "fp32", "mlpackage");
    let golden = dir.path().join("golden.safetensors");
    for (tensor, edit, check) in [
        ("top1_index", (|at, v| if at == 3 { (v + 1.0) % 331.0 } else { v }) as fn(usize, f32) -> f32, "labels"),
        ("blank_logit", |at, v| if at == 5 { v + if v > 8.0 { -100.0 } else { 100.0 } } else { v }, "blanks"),
    ] {
        edited(&golden, tensor, edit);
        let (code, json) = gate(dir.path(), &artefact, &golden, &[]);
        assert_eq!(code, 4, "{json:#}");
        assert_eq!(verdicts(&json)[check], "fail", "{json:#}");
    }
    // Behind the clip nothing is read, so nothing there is wrong.
    edited(&golden, "top1_index", |at, v| if at >= 33 { 0.0 } else { v });
    assert_eq!(gate(dir.path(), &artefact, &golden, &[]).0, 0);
}

#[test]
fn another_readers_golden_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = reader(dir.path(), "reader_plain", "fp32", "mlpackage");
    let (code, json) = gate(dir.path(), &artefact, &fixture("reader_guessed/golden_T40.safetensors"), &[]);
    assert_eq!(code, 3, "{json:#}");
    let golden = dir.path().join("golden.safetensors");
    edited(&golden, "token_mask", |_, _| 0.5);
    assert_eq!(gate(dir.path(), &artefact, &golden, &[]).0, 3, "a mask is 0 or 1");
    edited(&golden, "top1_index", |at, v| if at == 3 { 331.0 } else { v });
    let (code, json) = gate(dir.path(), &artefact, &golden, &[]);
    let cause = &json["error"]["causes"][0];
    assert_eq!(
        (code, cause),
        (3, &Value::from("top1_index is 331 at 3, and the reader's table has 331 rows")),
        "{json:#}"
    );
}

/// With the words, a reader is judged by what it reads.
#[test]
fn transcripts_and_word_errors() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = reader(dir.path(), "reader_plain", "fp16", "mlpackage");
    let golden = fixture("reader_plain/golden_T40.safetensors");
    let words = fixture("reader_plain/words.txt");
    let base = ["--words", words.to_str().unwrap(), "--transcripts", "reference.tsv", "--wer", "said.tsv"];
    let mut texts = Vec::new();
    for text in ["word1", ""] {
        fs_err::write(dir.path().join("reference.tsv"), format!("golden_T40\t{text}\n")).unwrap();
        fs_err::write(dir.path().join("said.tsv"), "golden_T40\tword1 word2\n").unwrap();
        let (code, json) = gate(dir.path(), &artefact, &golden, &base);
        assert_eq!((code, verdicts(&json)["transcripts"].as_str()), (4, "fail"), "{json:#}");
        texts.push(json);
    }
    let found = find_text(&texts[0]).unwrap_or_else(|| panic!("no text in {:#}", texts[0]));
    fs_err::write(dir.path().join("reference.tsv"), format!("golden_T40\t{found}\n")).unwrap();
    let (code, json) = gate(dir.path(), &artefact, &golden, &base);
    assert_eq!(code, 0, "{json:#}");
    let verdicts = verdicts(&json);
    assert_eq!((verdicts["transcripts"].as_str(), verdicts["wer"].as_str()), ("pass", "pass"));
}

/// A list of other words says nothing of what a reader reads.
#[test]
fn words_of_another_reader_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = reader(dir.path(), "reader_plain", "fp16", "mlpackage");
    let golden = fixture("reader_plain/golden_T40.safetensors");
    let list = fs_err::read_to_string(fixture("reader_plain/words.txt")).unwrap();
    for (words, code) in [(list.clone(), 0), (format!("{list}more\n"), 3), ("one\n".to_string(), 3)] {
        fs_err::write(dir.path().join("list.txt"), &words).unwrap();
        let (found, json) = gate(dir.path(), &artefact, &golden, &["--words", "list.txt"]);
        assert_eq!(found, code, "{json:#}");
        let told = json["error"]["message"].as_str().unwrap_or_default();
        let counts =
            format!("list.txt has {} words, expected 331, one for each row of the table", words.lines().count());
        assert_eq!(told, if code == 0 { "" } else { counts.as_str() });
    }
}

/// A golden is told by its path: clips of several folders may have like names.
#[test]
fn a_golden_that_cannot_be_used_is_told_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = reader(dir.path(), "reader_plain", "fp32", "mlpackage");
    fs_err::create_dir(dir.path().join("clips")).unwrap();
    edited(&dir.path().join("clips/g.safetensors"), "margin", |at, v| if at == 7 { -1.0 } else { v });
    let (code, json) = gate(dir.path(), &artefact, Path::new("clips"), &[]);
    assert_eq!(code, 3, "{json:#}");
    assert_eq!(json["error"]["message"], "golden clips/g.safetensors cannot be used");
}

/// The longest text of words in the report: what the artefact read.
fn find_text(json: &Value) -> Option<String> {
    match json {
        Value::String(text) if text.starts_with("word") && text.split(' ').count() > 2 => Some(text.clone()),
        Value::Array(items) => items.iter().find_map(find_text),
        Value::Object(map) => map.values().find_map(find_text),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
