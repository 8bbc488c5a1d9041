//! Several buckets in one artefact, and an encoder cut into front and body.

use crate::cli::{fixture, listed, run};
use crate::clip::{CLASSES, CLIP, against_golden, evaluate, inputs, write_inputs};
use crate::python::script;
use eg2_convert::checkpoint::{Checkpoint, Ledger};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Values};
use eg2_convert::models::gemma_audio::{AudioConfig, Bucket, author, end_of_layer};
use eg2_convert::passes::{Split, split};
use eg2_convert::validate::check;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// `encoder` on the small fixture.
fn encoder(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let checkpoint = fixture("encoder_eg2");
    run(folder, &[&["encoder", "--checkpoint", checkpoint.to_str().unwrap()], args].concat())
}

fn coremltools(package: &Path) -> Value {
    let report: Value = serde_json::from_str(script("load_mlpackage.py", &[package.to_str().unwrap()]).trim()).unwrap();
    assert_eq!(report["faults"], Value::Array(vec![]), "{}", package.display());
    report
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
}

#[test]
fn each_bucket_is_a_function_that_gives_the_published_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = encoder(dir.path(), &["--bucket", "400,200", "--precision", "fp32"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let name = "out/eg2_encoder_fp32_T200_T400.mlpackage";
    for valid in CLASSES {
        for bucket in [CLIP, 2 * CLIP] {
            write_inputs(&dir.path().join("in.safetensors"), bucket, valid);
            evaluate(dir.path(), name, &format!("T{bucket}"), "in.safetensors", "out.safetensors");
            let found = against_golden(&dir.path().join("out.safetensors"), valid);
            assert!(found.cosine_min >= 0.99999, "T{bucket}, {valid} frames: {found:?}");
        }
    }
    // A host that names no function gets the longest bucket.
    let default = ["run", name, "--inputs", "in.safetensors", "--outputs", "default.safetensors"];
    assert_eq!(run(dir.path(), &default).0, 0);
    let read = |file: &str| fs_err::read(dir.path().join(file)).unwrap();
    assert_eq!(read("default.safetensors"), read("out.safetensors"));
    let census = coremltools(&dir.path().join(name))["census"].clone();
    assert_eq!(census.as_object().unwrap().keys().collect::<Vec<_>>(), ["T200", "T400"]);
    let record = json(&dir.path().join("out/eg2_encoder_fp32_T200_T400.mlpackage.record.json"));
    assert_eq!(record["options"]["bucket"], serde_json::json!([200, 400]));
    let functions = record["stages"]["functions"].as_array().unwrap();
    let names: Vec<_> = functions.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["T400", "T200"], "the default one first");
    assert!(functions.iter().all(|f| f["graph"]["census"]["ops"].is_object()));
    assert_eq!(record["checks"][0]["figures"]["functions"], 2);
    let (code, out, _) = run(dir.path(), &["inspect", name]);
    assert!(code == 0 && out.contains("T200 (") && out.contains("T400 ("), "{out}");
}

#[test]
fn weights_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let size = |buckets: &str, name: &str| {
        assert_eq!(encoder(dir.path(), &["--bucket", buckets]).0, 0);
        let weights = format!("out/{name}.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
        fs_err::metadata(dir.path().join(weights)).unwrap().len()
    };
    let (one, two) = (size("400", "eg2_encoder_fp16_T400"), size("200,400", "eg2_encoder_fp16_T200_T400"));
    assert!(two as f64 <= 1.01 * one as f64, "{two} for two buckets, {one} for one");
}

#[test]
fn front_and_body_are_the_encoder() {
    let dir = tempfile::tempdir().unwrap();
    for precision in ["fp32", "fp16"] {
        let args = ["--bucket", "200", "--split-after", "1", "--precision", precision];
        let (code, out, err) = encoder(dir.path(), &args);
        assert_eq!(code, 0, "{err}");
        assert_eq!(err.contains("7 or more are advised"), precision == "fp16", "{err}");
        assert_eq!(out.matches("artefact ").count(), 2, "{out}");
        let [front, body] = ["front1_fp32".to_string(), format!("body1_{precision}")]
            .map(|part| format!("out/eg2_encoder_{part}_T200.mlpackage"));
        for package in [&front, &body] {
            coremltools(&dir.path().join(package));
        }
        for valid in CLASSES {
            write_inputs(&dir.path().join("in.safetensors"), CLIP, valid);
            evaluate(dir.path(), &front, "main", "in.safetensors", "hidden.safetensors");
            evaluate(dir.path(), &body, "main", "hidden.safetensors", "out.safetensors");
            let found = against_golden(&dir.path().join("out.safetensors"), valid);
            if precision == "fp32" {
                assert!(found.cosine_min >= 0.99999, "{valid} frames: {found:?}");
            } else {
                assert!(found.cosine_mean >= 0.999, "{valid} frames: {found:?}");
            }
        }
    }
    let names = ["body1_fp16", "body1_fp32", "front1_fp32"];
    let wanted =
        names.iter().flat_map(|n| ["mlpackage", "mlpackage.record.json"].map(|e| format!("eg2_encoder_{n}_T200.{e}")));
    assert_eq!(listed(&dir.path().join("out")), wanted.collect::<Vec<_>>());
}

#[test]
fn a_cut_changes_no_bit() {
    let config = fs_err::read_to_string(fixture("encoder_eg2/config.json")).unwrap();
    let config = AudioConfig::parse(&config, "config.json").unwrap();
    let checkpoint = Checkpoint::open(&fixture("encoder_eg2")).unwrap();
    let (whole, _) = author(&config, Bucket::new(CLIP).unwrap(), &Ledger::new(&checkpoint)).unwrap();
    let Split { front, body } = split(&whole, &end_of_layer(0), "hidden").unwrap();
    let run = |graph, inputs: &BTreeMap<String, HostTensor>| {
        Evaluator::new(check(graph).unwrap(), &checkpoint, Options::default()).run(inputs).unwrap().0
    };
    let clip: BTreeMap<String, HostTensor> = inputs(CLIP, 197)
        .map(|(name, fact, values)| (name.to_string(), HostTensor::new(fact, Values::F32(values)).unwrap()))
        .into();
    let (one, two) = (run(&whole, &clip), run(&body, &run(&front, &clip)));
    let bits = |outputs: &BTreeMap<String, HostTensor>| {
        outputs["soft_tokens"].floats().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(&one), bits(&two));
}

#[test]
fn a_front_is_not_published_without_its_body() {
    let dir = tempfile::tempdir().unwrap();
    let body = dir.path().join("out/eg2_encoder_body1_fp16_T200.mlpackage");
    fs_err::create_dir_all(&body).unwrap();
    let (code, _, err) = encoder(dir.path(), &["--bucket", "200", "--split-after", "1"]);
    assert!(code == 2 && err.contains("is there already, with other content"), "{err}");
    assert_eq!(listed(&dir.path().join("out")), ["eg2_encoder_body1_fp16_T200.mlpackage"]);
}

#[test]
fn buckets_and_cuts_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    for (args, message) in [
        (&["--bucket", "200,200"][..], "bucket 200 is given twice"),
        (&["--bucket", "200,3"], "bucket 3 is not a number of frames"),
        (&["--bucket", ""], "invalid value ''"),
        (&["--bucket", "200,"], "invalid value ''"),
        (&["--split-after", "0"], "a split after 0 layers leaves one half without any"),
        (&["--split-after", "2"], "the model has 2, expected 1 to 1"),
        (&["--split-after", "99"], "a split after 99 layers leaves one half without any"),
    ] {
        let (code, out, err) = encoder(dir.path(), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
    }
    assert!(listed(dir.path()).is_empty());
}
