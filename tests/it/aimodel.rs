//! `.aimodel` bundles on Apple's CPU runtime: against the published implementation, and against the package of the same
//! graph.

use crate::cli::{command, fixture, run};
use crate::clip::{CLASSES, CLIP, WIDTH, against_golden, evaluate, tokens, write_inputs};
use crate::python::coreai_python;
use eg2_convert::eval::{Comparison, compare};
use serde_json::Value;
use std::path::Path;

/// `encoder` on the small fixture, in both formats; gives stdout.
fn encoder(folder: &Path, args: &[&str]) -> String {
    let mut command = command(folder);
    command.env("EG2_COREAI_PYTHON", coreai_python());
    command.args(["encoder", "--format", "mlpackage,aimodel", "--checkpoint"]).arg(fixture("encoder_eg2")).args(args);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
    out
}

/// Soft tokens of a clip by one function of both bundles called `name`: Apple's against the published ones, and against
/// the evaluator's.
fn both(folder: &Path, name: &str, function: &str, bucket: usize, valid: usize) -> [Comparison; 2] {
    write_inputs(&folder.join("in"), bucket, valid);
    evaluate(folder, &format!("out/{name}.aimodel"), function, "in", "apples");
    evaluate(folder, &format!("out/{name}.mlpackage"), function, "in", "ours");
    let found = tokens(&folder.join("apples"));
    assert!(found.iter().all(|v| v.is_finite()), "{name}, {valid} frames");
    let of_ours = compare(&found, &tokens(&folder.join("ours")), WIDTH).unwrap();
    [against_golden(&folder.join("apples"), valid), of_ours]
}

/// Bytes of a bundle's program and of the weights in it.
fn bytes(folder: &Path, name: &str) -> [f64; 2] {
    let (code, out, err) = run(folder, &["inspect", "--json", &format!("out/{name}.aimodel")]);
    assert_eq!(code, 0, "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    ["program_bytes", "blob_bytes"].map(|key| found["model"][key].as_f64().unwrap())
}

#[test]
fn fp32_is_the_published_encoder_and_the_package() {
    let dir = tempfile::tempdir().unwrap();
    encoder(dir.path(), &["--bucket", "200", "--precision", "fp32"]);
    for valid in CLASSES {
        let [golden, ours] = both(dir.path(), "eg2_encoder_fp32_T200", "main", CLIP, valid);
        assert!(golden.cosine_min >= 0.99999, "{valid} frames: {golden:?}");
        assert!(ours.max_abs <= 1e-5, "{valid} frames: {ours:?}");
    }
}

/// Where the arithmetic is fp32, both runtimes agree; fp16 is rounded by each in its own way.
#[test]
fn narrower_numbers_stay_close() {
    let dir = tempfile::tempdir().unwrap();
    for (precision, apart) in [("fp16", f64::INFINITY), ("fp16w32", 1e-5), ("int8", 1e-5)] {
        encoder(dir.path(), &["--bucket", "200", "--precision", precision]);
        for valid in [198, 199] {
            let [golden, ours] = both(dir.path(), &format!("eg2_encoder_{precision}_T200"), "main", CLIP, valid);
            assert!(golden.cosine_mean >= 0.999, "{precision}, {valid} frames: {golden:?}");
            assert!(ours.max_abs <= apart, "{precision}, {valid} frames: {ours:?}");
        }
    }
}

#[test]
fn each_bucket_is_a_function_and_weights_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    encoder(dir.path(), &["--bucket", "400", "--precision", "fp32"]);
    encoder(dir.path(), &["--bucket", "200,400", "--precision", "fp32"]);
    let [one, two] = ["T400", "T200_T400"].map(|name| format!("eg2_encoder_fp32_{name}"));
    for (bucket, valid) in [(CLIP, 197), (CLIP, 198), (2 * CLIP, 199), (2 * CLIP, 200)] {
        let [golden, ours] = both(dir.path(), &two, &format!("T{bucket}"), bucket, valid);
        assert!(golden.cosine_min >= 0.99999, "T{bucket}, {valid} frames: {golden:?}");
        assert!(ours.max_abs <= 1e-5, "T{bucket}, {valid} frames: {ours:?}");
    }
    let named_none = ["run", &format!("out/{two}.aimodel"), "--inputs", "in", "--outputs", "none"];
    let output = command(dir.path()).env("EG2_COREAI_PYTHON", coreai_python()).args(named_none).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @r#"error: out/eg2_encoder_fp32_T200_T400.aimodel has several functions; choose one with --function: ["T400", "T200"]"#);
    let ([one, one_weights], [two, two_weights]) = (bytes(dir.path(), &one), bytes(dir.path(), &two));
    // What is there twice is the operations, 38 kB.
    assert!(two <= 1.10 * one, "{two} for two buckets, {one} for one");
    assert!(two_weights <= 1.01 * one_weights, "{two_weights} for two buckets, {one_weights} for one");
}

#[test]
fn front_and_body_are_the_encoder() {
    let dir = tempfile::tempdir().unwrap();
    for (precision, classes) in [("fp32", &CLASSES[..]), ("fp16", &[198])] {
        encoder(dir.path(), &["--bucket", "200", "--split-after", "1", "--precision", precision]);
        let [front, body] = ["front1_fp32".to_string(), format!("body1_{precision}")]
            .map(|part| format!("out/eg2_encoder_{part}_T200.aimodel"));
        for valid in classes.iter().copied() {
            write_inputs(&dir.path().join("in"), CLIP, valid);
            evaluate(dir.path(), &front, "main", "in", "hidden");
            evaluate(dir.path(), &body, "main", "hidden", "apples");
            let found = against_golden(&dir.path().join("apples"), valid);
            let least = if precision == "fp32" { found.cosine_min >= 0.99999 } else { found.cosine_mean >= 0.999 };
            assert!(least, "{precision}, {valid} frames: {found:?}");
        }
    }
}

#[test]
fn the_same_call_gives_the_same_bytes() {
    let [one, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let args = ["--bucket", "200,400", "--precision", "int8"];
    let records = [&one, &other].map(|dir| {
        assert_eq!(encoder(dir.path(), &args).matches("published").count(), 2);
        ["mlpackage", "aimodel"].map(|format| {
            let record = dir.path().join(format!("out/eg2_encoder_int8_T200_T400.{format}.record.json"));
            let record: Value = serde_json::from_slice(&fs_err::read(record).unwrap()).unwrap();
            record["artefact"]["digest_root"].as_str().unwrap().to_string()
        })
    });
    assert_eq!(records[0], records[1]);
    let again = encoder(one.path(), &args);
    assert_eq!((again.matches("unchanged").count(), again.matches("published").count()), (2, 0), "{again}");
}

/// Floats that are widened as they are read, in shards: what is handed over is not what is stored.
#[test]
fn a_checkpoint_in_bf16() {
    let dir = tempfile::tempdir().unwrap();
    let mut convert = command(dir.path());
    convert.env("EG2_COREAI_PYTHON", coreai_python()).arg("encoder").arg("--checkpoint").arg(fixture("encoder_gemma4"));
    convert.args(["--bucket", "200", "--precision", "fp32", "--format", "mlpackage,aimodel"]).assert().success();
    write_inputs(&dir.path().join("in"), CLIP, 198);
    let found = ["aimodel", "mlpackage"].map(|format| {
        evaluate(dir.path(), &format!("out/eg2_encoder_fp32_T200.{format}"), "main", "in", format);
        tokens(&dir.path().join(format))
    });
    let apart = found[0].iter().zip(&found[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart <= 1e-5 && found[0].len() == found[1].len(), "{apart}");
}
