//! `gate` on artefacts of the small fixture: by the evaluator and by Apple's runtime.

use crate::cli::{command, fixture, run};
use crate::clip::{CLASSES, CLIP, WIDTH, golden, inputs};
use crate::python::coreai_python;
use crate::schema::holds;
use eg2_convert::digest::Digest;
use eg2_convert::gate::Bound;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A golden as one is made by scripts: a clip of so many frames, with the digest of its checkpoint in the header.
pub struct Golden {
    pub bucket: usize,
    pub frames: usize,
    pub source: Option<String>,
    pub features: fn(&mut Vec<f32>),
    pub tokens: fn(&mut Vec<f32>),
}

impl Golden {
    pub fn of(frames: usize) -> Golden {
        Golden { bucket: CLIP, frames, source: Some(checkpoint()), features: |_| {}, tokens: |_| {} }
    }

    pub fn write(&self, path: &Path) -> String {
        let [(_, _, mut features), (_, _, mask)] = inputs(self.bucket, self.frames);
        let mut tokens = golden(&format!("soft_tokens_{}", self.frames));
        (self.features)(&mut features);
        (self.tokens)(&mut tokens);
        let count = tokens.len() / WIDTH;
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let stored = [
            ("features", vec![1, self.bucket, features.len() / self.bucket], Dtype::F32, bytes(&features)),
            ("half_mask", vec![1, self.bucket / 2], Dtype::F32, bytes(&mask)),
            ("soft_tokens", vec![1, count, WIDTH], Dtype::F32, bytes(&tokens)),
            ("n_tokens", vec![1], Dtype::I64, (count as i64).to_le_bytes().to_vec()),
        ];
        let views = stored
            .iter()
            .map(|(name, shape, dtype, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        let metadata = self.source.clone().map(|source| HashMap::from([("source_sha256".to_string(), source)]));
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        safetensors::serialize_to_file(views, metadata, path).unwrap();
        path.to_str().unwrap().to_string()
    }
}

fn checkpoint() -> String {
    Digest::of_file(&fixture("encoder_eg2/model.safetensors")).unwrap().0.to_string()
}

/// Makes the encoder and gives its path; `more` are further arguments.
pub fn encoder(folder: &Path, precision: &str, more: &[&str]) -> String {
    let mut command = command(folder);
    command.args(["encoder", "--precision", precision, "--checkpoint"]).arg(fixture("encoder_eg2")).args(more);
    if more.iter().any(|arg| arg.contains("aimodel")) {
        command.env("EG2_COREAI_PYTHON", coreai_python());
    }
    let output = command.args(["--json"]).output().unwrap();
    let json = holds("encoder", &output.stdout);
    json["artefacts"][0]["artefact"].as_str().unwrap().to_string()
}

pub fn all_classes(folder: &Path) -> PathBuf {
    for frames in CLASSES {
        Golden::of(frames).write(&folder.join(format!("clips/f{frames}.safetensors")));
    }
    folder.join("clips")
}

fn redacted(text: &str) -> String {
    let line = |l: &str| if l.starts_with("seconds") { "seconds [seconds]".to_string() } else { l.to_string() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

macro_rules! table {
    ($text:expr) => {
        insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]"), (r"\d\.\d{7}|\d\.\d{5}\b", "[cosine]"), (r"least\s+f\d+", "least [clip]"), (r"at f\d+ token \d+", "at [token]")] }, {
            insta::assert_snapshot!(redacted(&$text));
        });
    };
}

/// Makes each verdict again of the numbers and limits in the JSON.
pub fn held_to_what_is_told(json: &Value) {
    for check in json["report"]["checks"].as_array().unwrap() {
        let measures = check["measures"].as_array().unwrap();
        let holds = |m: &Value| {
            let bound: Bound = serde_json::from_value(m["bound"].clone()).unwrap();
            m["number"].as_f64().zip(m["limit"].as_f64()).is_some_and(|(number, limit)| bound.holds(number, limit))
        };
        let verdict = match (measures.is_empty(), measures.iter().all(holds)) {
            (true, _) => "not_run",
            (false, true) => "pass",
            (false, false) => "fail",
        };
        assert_eq!(check["verdict"]["outcome"], verdict, "{check:#}");
    }
}

#[test]
fn encoders_pass() {
    let dir = tempfile::tempdir().unwrap();
    let clips = all_classes(dir.path());
    for precision in ["fp32", "fp16", "fp16w32", "int8"] {
        let artefact = encoder(dir.path(), precision, &["--bucket", "200"]);
        let (code, out, err) = run(dir.path(), &["gate", &artefact, "--golden", clips.to_str().unwrap()]);
        assert_eq!(code, 0, "{precision}: {out}{err}");
        assert_eq!(err.contains("cast from f32 to f16"), precision == "fp16", "{err}");
        if precision == "fp32" {
            table!(out);
        }
        let args = ["gate", &artefact, "--golden", clips.to_str().unwrap(), "--json", "--strict", "-q"];
        let (code, out, err) = run(dir.path(), &args);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, err.as_str()), (4, ""), "transcripts and wer are not run");
        assert_eq!((&json["passed"], &json["precision"]), (&Value::Bool(true), &Value::from(precision)));
        let arms = |name: &str| {
            let checks = json["report"]["checks"].as_array().unwrap();
            let check = checks.iter().find(|c| c["name"] == format!("red arm {name}")).unwrap();
            (check["verdict"]["outcome"].clone(), check["figures"]["broke"].clone())
        };
        let evidence = json["evidence"].as_array().unwrap();
        let names: Vec<String> =
            evidence.iter().map(|e| format!("{} {}", e["kind"], e["name"]).replace('"', "")).collect();
        assert_eq!(names, CLASSES.map(|n| format!("golden f{n}.safetensors")), "by name");
        let of_file = Digest::of_file(&clips.join(format!("f{}.safetensors", CLASSES[0]))).unwrap().0.to_string();
        assert_eq!(evidence[0]["sha256"], of_file);
        held_to_what_is_told(&json);
        assert_eq!(arms("half_mask"), ("pass".into(), serde_json::json!(["f198"])));
        assert_eq!(arms("padding"), ("pass".into(), serde_json::json!(["f197", "f199"])));
    }
}

#[test]
fn each_length_has_its_function() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = encoder(dir.path(), "fp32", &["--bucket", "200,400"]);
    let short = Golden::of(198).write(&dir.path().join("short.safetensors"));
    let long = Golden { bucket: 400, ..Golden::of(199) }.write(&dir.path().join("long.safetensors"));
    let (code, out, err) = run(dir.path(), &["gate", &artefact, "--golden", &short, &long, "--repeats", "1"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("one run repeats nothing"), "{out}");
    let (code, _, err) = run(dir.path(), &["gate", &artefact, "--golden", &short, "--function", "T400"]);
    assert_eq!(code, 3);
    assert!(err.contains("has features of f32[1,200,128]") && err.contains("f32[1,400,128]"), "{err}");
}

#[test]
fn one_wrong_token_fails() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = encoder(dir.path(), "fp32", &["--bucket", "200"]);
    let negated = |v: &mut Vec<f32>| v[7 * WIDTH..8 * WIDTH].iter_mut().for_each(|x| *x = -*x);
    let golden = Golden { tokens: negated, ..Golden::of(198) };
    let path = golden.write(&dir.path().join("wrong.safetensors"));
    let (code, out, err) = run(dir.path(), &["gate", &artefact, "--golden", &path]);
    assert_eq!((code, err.as_str()), (4, ""));
    assert!(out.contains("at token 7"), "{out}");
    table!(out);
    let (code, out, _) = run(dir.path(), &["gate", &artefact, "--golden", &path, "--json"]);
    assert_eq!(code, 4);
    held_to_what_is_told(&serde_json::from_str(&out).unwrap());
    let lax = ["gate", &artefact, "--golden", &path, "--cosine-min", "-1", "--cosine-mean", "0.9"];
    assert_eq!(run(dir.path(), &lax).0, 0, "limits are the user's");
}

/// What was made of other weights, or does not keep to the contract, is refused before anything is judged.
#[test]
fn goldens_that_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = encoder(dir.path(), "fp32", &["--bucket", "200"]);
    let refused = |golden: Golden, expected: &str| {
        let path = golden.write(&dir.path().join("clip.safetensors"));
        let (code, out, err) = run(dir.path(), &["gate", &artefact, "--golden", &path]);
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains(expected), "{err}");
    };
    let other = Digest::of(b"others").to_string();
    let with = |source: &str| Golden { source: Some(source.into()), ..Golden::of(198) };
    refused(with(&other), &format!("is of source {other}, and the artefact was made of "));
    refused(with(&format!("{},{other}", checkpoint())), &format!("model.safetensors {}", checkpoint()));
    refused(with("abc"), "expected SHA-256 digests");
    let silence = |v: &mut Vec<f32>| v[199 * 128..].fill(-6.9078);
    refused(Golden { features: silence, ..Golden::of(198) }, "padding is 0, not silence");
    refused(Golden { bucket: 400, ..Golden::of(198) }, "has features of f32[1,400,128]");

    let plain = Golden { source: None, ..Golden::of(198) }.write(&dir.path().join("plain.safetensors"));
    let (code, out, _) = run(dir.path(), &["gate", &artefact, "--golden", &plain]);
    assert_eq!(code, 0);
    assert!(out.contains("no source_sha256 in 1 of 1 golden"), "{out}");
    let (code, _, err) = run(dir.path(), &["gate", &artefact, "--golden", &plain, &plain]);
    assert_eq!(code, 3);
    assert!(err.contains("both called plain"), "{err}");
    let (code, _, err) = run(dir.path(), &["gate", &artefact, "--golden", &plain, "--margin=-1"]);
    assert_eq!(code, 2);
    assert!(err.contains("limit margin is -1"), "{err}");
}

#[test]
fn the_record_is_of_the_bytes_that_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let clips = all_classes(dir.path());
    let artefact = encoder(dir.path(), "fp32", &["--bucket", "200"]);
    let record = format!("{artefact}.record.json");
    let text = fs_err::read_to_string(dir.path().join(&record)).unwrap();
    let gate = || run(dir.path(), &["gate", &artefact, "--golden", clips.to_str().unwrap(), "--repeats", "1"]);
    let root = serde_json::from_str::<Value>(&text).unwrap()["artefact"]["digest_root"].as_str().unwrap().to_string();
    fs_err::write(dir.path().join(&record), text.replace(&root, &Digest::of(b"").to_string())).unwrap();
    let (code, _, err) = gate();
    assert_eq!(code, 3);
    assert!(err.contains("is of other bytes"), "{err}");
    fs_err::remove_file(dir.path().join(&record)).unwrap();
    let (code, out, err) = gate();
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("the artefact has no record beside it") && out.contains("fp32, by its metadata"), "{out}");
}

#[test]
fn what_the_gate_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::of(198).write(&dir.path().join("clip.safetensors"));
    let other = fixture("coremltools_spellings.mlpackage");
    let (code, _, err) = run(dir.path(), &["gate", other.to_str().unwrap(), "--golden", &golden]);
    assert_eq!(code, 6, "{err}");
    assert!(err.contains("known are encoders (features, half_mask -> soft_tokens)"), "{err}");
    let whole = encoder(dir.path(), "fp32", &["--bucket", "200"]);
    let (code, _, err) = run(dir.path(), &["gate", &whole, "--golden", &golden, "--reader", &whole]);
    assert_eq!(code, 2);
    assert!(err.contains("is an encoder, expected a reader"), "{err}");
}

#[test]
fn apples_runtime_is_gated_alike() {
    let dir = tempfile::tempdir().unwrap();
    let artefact = encoder(dir.path(), "fp32", &["--bucket", "200", "--format", "aimodel"]);
    let golden = Golden::of(198).write(&dir.path().join("clip.safetensors"));
    let mut command = command(dir.path());
    command.env("EG2_COREAI_PYTHON", coreai_python()).args(["gate", &artefact, "--golden", &golden]);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains("coreai") && out.contains("broke 1 of 1"), "{out}");
}

/// `--golden` takes all that follows, so that a shell may expand its files; what is forgotten then is said.
#[test]
fn an_artefact_that_is_not_given_or_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let told = |args: &[&str]| {
        let (code, out, err) = run(dir.path(), args);
        format!("{code} {}", format!("{out}{err}").trim_end())
    };
    insta::assert_snapshot!(told(&["gate", "--golden", "clip.safetensors", "a.mlpackage"]), @"
    2 error: the following required arguments were not provided:
      <ARTEFACT>

      tip: give the artefact before --golden and --audio, which take every path after them

    Usage: eg2-convert gate <ARTEFACT> [--golden <FILE|DIR>...] [--audio <FILE|DIR>...] [OPTIONS]

    For more information, try '--help'.
    ");
    let json = told(&["gate", "--golden", "clip.safetensors", "a.mlpackage", "--json"]);
    assert!(json.contains("not provided: <ARTEFACT>; tip: give the artefact before"), "{json}");
    fs_err::write(dir.path().join("clip.wav"), "no bundle").unwrap();
    for (path, expected) in [
        ("a.mlpackage", "3 error: there is no a.mlpackage"),
        ("clip.wav", "3 error: clip.wav is no bundle that can be run, expected an .mlpackage or an .aimodel"),
        (".", "3 error: . is no bundle that can be run, expected an .mlpackage or an .aimodel"),
    ] {
        assert_eq!(told(&["gate", path, "--golden", "clip.safetensors"]), expected);
        assert_eq!(told(&["run", path, "--inputs", "i", "--outputs", "o"]), expected);
    }
}
