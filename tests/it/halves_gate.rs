//! `gate` on an encoder in two artefacts, and on what is no such pair.

use crate::cli::{command, fixture, run};
use crate::gate::{Golden, all_classes, encoder, held_to_what_is_told};
use crate::python::coreai_python;
use serde_json::{Value, json};
use std::path::Path;

/// Makes the halves of the encoder of that precision, cut behind its first layer, and gives their paths.
fn halves(folder: &Path, precision: &str, more: &[&str]) -> [String; 2] {
    let front = encoder(folder, precision, &[&["--split-after", "1"], more].concat());
    let body = front.replace("front1_fp32", &format!("body1_{precision}"));
    assert!(folder.join(&body).is_dir(), "{body}");
    [front, body]
}

/// Exit code and JSON of the gate on a front and a body.
fn gated(folder: &Path, front: &str, body: &str, golden: &str, more: &[&str]) -> (i32, Value) {
    let mut command = command(folder);
    command.env("EG2_COREAI_PYTHON", coreai_python());
    command.args(["gate", front, "--body", body, "--golden", golden, "--json", "-q"]).args(more);
    let output = command.output().unwrap();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// Exit code and message of the gate where it judges nothing.
fn refused(folder: &Path, front: &str, body: &str, golden: &str) -> String {
    let (code, json) = gated(folder, front, body, golden, &[]);
    format!("{code} {}", json["error"]["message"].as_str().unwrap_or_else(|| panic!("{json:#}")))
}

fn root(folder: &Path, artefact: &str) -> Value {
    let record = fs_err::read(folder.join(format!("{artefact}.record.json"))).unwrap();
    serde_json::from_slice::<Value>(&record).unwrap()["artefact"]["digest_root"].clone()
}

/// What each check says, by name.
fn verdict(json: &Value, name: &str) -> String {
    let checks = json["report"]["checks"].as_array().unwrap_or_else(|| panic!("{json:#}"));
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    let says = if check["verdict"]["reason"].is_null() { &check["says"] } else { &check["verdict"]["reason"] };
    format!("{} {says}", check["verdict"]["outcome"]).replace('"', "")
}

#[test]
fn halves_pass_as_one_encoder() {
    let dir = tempfile::tempdir().unwrap();
    let clips = all_classes(dir.path());
    for precision in ["fp32", "fp16", "int8"] {
        let [front, body] = halves(dir.path(), precision, &["--bucket", "200"]);
        let (code, json) = gated(dir.path(), &front, &body, clips.to_str().unwrap(), &[]);
        assert_eq!(code, 0, "{json:#}");
        held_to_what_is_told(&json);
        assert_eq!((&json["precision"], &json["precision_from"]), (&json!(precision), &json!("record")));
        let name = Path::new(&body).file_name().unwrap().to_str();
        let identity = json!({ "artefact": name, "digest_root": root(dir.path(), &body), "runtime": "reference" });
        assert_eq!((&json["digest_root"], &json["body"]), (&root(dir.path(), &front), &identity));
        let cast = json!([{ "input": "hidden", "from": "f32", "to": "f16" }]);
        assert_eq!(json["casts"], if precision == "fp16" { cast } else { json!([]) });
        assert_eq!(verdict(&json, "halves"), "pass cut behind layer 1, of the same source, by their records");
        for check in ["source", "cosine", "red arm half_mask", "red arm padding"] {
            assert!(verdict(&json, check).starts_with("pass"), "{check}: {json:#}");
        }
    }
}

#[test]
fn halves_of_apples_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::of(198).write(&dir.path().join("clip.safetensors"));
    let [front, body] = halves(dir.path(), "fp32", &["--bucket", "200", "--format", "aimodel,mlpackage"])
        .map(|path| path.replace(".mlpackage", ".aimodel"));
    let (code, json) = gated(dir.path(), &front, &body, &golden, &[]);
    assert_eq!((code, &json["runtime"], &json["body"]["runtime"]), (0, &json!("coreai"), &json!("coreai")), "{json:#}");
    let (code, json) = gated(dir.path(), &front.replace(".aimodel", ".mlpackage"), &body, &golden, &[]);
    assert_eq!((code, &json["runtime"]), (0, &json!("reference")), "a half of each format: {json:#}");
}

/// Functions are joined by their lengths, in whichever order they are.
#[test]
fn halves_of_several_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let short = Golden::of(198).write(&dir.path().join("short.safetensors"));
    let [front, body] = halves(dir.path(), "fp16", &["--bucket", "200,400"]);
    let [small, _] = halves(dir.path(), "fp16", &["--bucket", "200"]);
    assert_eq!(gated(dir.path(), &front, &body, &short, &[]).0, 0);
    assert_eq!(gated(dir.path(), &front, &body, &short, &["--function", "T200"]).0, 0);
    assert_eq!(gated(dir.path(), &front, &body, &short, &["--function", "T400"]).0, 3, "of another length");
    assert_eq!(gated(dir.path(), &small, &body, &short, &[]).0, 0, "main and T200 are of one length");
    let small_body = small.replace("front1_fp32", "body1_fp16");
    assert_eq!(
        refused(dir.path(), &front, &small_body, &short),
        format!(
            "3 function T400 of front {front} has no body for its hidden, f32[1,100,48]; {small_body} takes [\"f16[1,50,48]\"]"
        )
    );
}

#[test]
fn what_is_no_pair_of_halves() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::of(198).write(&dir.path().join("clip.safetensors"));
    let [front, body] = halves(dir.path(), "fp32", &["--bucket", "200"]);
    let whole = encoder(dir.path(), "fp32", &["--bucket", "200"]);
    let told = [
        refused(dir.path(), &whole, &body, &golden),
        refused(dir.path(), &front, &whole, &golden),
        refused(dir.path(), &body, &front, &golden),
        refused(dir.path(), &front, &front, &golden),
        refused(dir.path(), &front, "out/absent.mlpackage", &golden),
    ];
    insta::assert_snapshot!(told.join("\n"), @"
    2 out/eg2_encoder_fp32_T200.mlpackage has a function of features, half_mask -> soft_tokens, expected the front of an encoder, of features, half_mask -> hidden
    2 out/eg2_encoder_fp32_T200.mlpackage has a function of features, half_mask -> soft_tokens, expected the body of an encoder, of hidden -> soft_tokens
    2 out/eg2_encoder_front1_fp32_T200.mlpackage has a function of features, half_mask -> hidden, expected the body of an encoder, of hidden -> soft_tokens
    2 out/eg2_encoder_front1_fp32_T200.mlpackage has a function of features, half_mask -> hidden, expected the body of an encoder, of hidden -> soft_tokens
    3 there is no out/absent.mlpackage
    ");
    let alone = [&front, &body].map(|half| {
        let (code, out, err) = run(dir.path(), &["gate", half, "--golden", &golden]);
        format!("{code} {out}{}", err.trim_end())
    });
    insta::assert_snapshot!(alone.join("\n"), @"
    2 error: out/eg2_encoder_front1_fp32_T200.mlpackage is the front of an encoder, which is judged together with the body of an encoder: eg2-convert gate FRONT --body BODY
    2 error: out/eg2_encoder_body1_fp32_T200.mlpackage is the body of an encoder, which is judged together with the front of an encoder: eg2-convert gate FRONT --body BODY
    ");
}

/// Each half may be right, and of another encoder than the other: the records tell.
#[test]
fn halves_of_different_encoders() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::of(198).write(&dir.path().join("clip.safetensors"));
    let [front, body] = halves(dir.path(), "fp32", &["--bucket", "200"]);
    let record = dir.path().join(format!("{body}.record.json"));
    let text = fs_err::read_to_string(&record).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut edited: Value = serde_json::from_str(&text).unwrap();
        change(&mut edited);
        fs_err::write(&record, edited.to_string()).unwrap();
        refused(dir.path(), &front, &body, &golden)
    };
    let cut = with(&|record| record["options"]["split_after"] = json!(2));
    assert_eq!(
        cut,
        format!("3 front {front} is of a cut behind layer 1, and body {body} of one behind layer 2, by their records")
    );
    let file = with(&|record| record["source"]["files"][0]["sha256"] = json!("0".repeat(64)));
    assert!(file.starts_with(&format!("3 front {front} was made of model.safetensors ")), "{file}");
    assert!(file.contains(&format!("and body {body} of model.safetensors {}", "0".repeat(64))), "{file}");
    let seed = with(&|record| record["source"]["seed"] = json!(7));
    assert!(seed.contains("of seed 7, "), "{seed}");
    // Another folder's names of the same files are no difference.
    let mut renamed: Value = serde_json::from_str(&text).unwrap();
    renamed["source"]["files"][0]["name"] = json!("weights.safetensors");
    fs_err::write(&record, renamed.to_string()).unwrap();
    assert_eq!(gated(dir.path(), &front, &body, &golden, &[]).0, 0);
    let config = fixture("encoder_eg2/config.json");
    let seeded = |seed: &str| {
        let mut command = command(dir.path());
        command.args(["encoder", "--synthetic", seed, "--bucket", "200", "--split-after", "1", "--out", seed]);
        command.args(["--precision", "fp32", "-q", "--config"]).arg(&config).assert().success();
        ["front1", "body1"].map(|half| format!("{seed}/eg2_encoder_{half}_fp32_T200.mlpackage"))
    };
    let ([one, _], [_, other]) = (seeded("1"), seeded("2"));
    let told = refused(
        dir.path(),
        &one,
        &other,
        &Golden { source: None, ..Golden::of(198) }.write(&dir.path().join("plain.safetensors")),
    );
    assert!(told.starts_with(&format!("3 front {one} was made of seed 1, config.json ")), "{told}");
    // Without a record it is not known, which is no pass.
    fs_err::remove_file(&record).unwrap();
    let (code, json) = gated(dir.path(), &front, &body, &golden, &[]);
    assert_eq!((code, verdict(&json, "halves").as_str()), (0, "not_run the body has no record beside it"));
    assert_eq!(json["precision_from"], "metadata");
}

/// The gate sees what is wrong on either side of the cut.
#[test]
fn a_wrong_half_fails() {
    let dir = tempfile::tempdir().unwrap();
    let [front, body] = halves(dir.path(), "fp16", &["--bucket", "200"]);
    let negated = |v: &mut Vec<f32>| v.iter_mut().take(24).for_each(|x| *x = -*x);
    let golden = Golden { tokens: negated, ..Golden::of(198) }.write(&dir.path().join("wrong.safetensors"));
    let (code, json) = gated(dir.path(), &front, &body, &golden, &[]);
    assert_eq!(code, 4, "{json:#}");
    assert!(verdict(&json, "cosine").starts_with("fail"), "{json:#}");
}
