//! `release` of decision models, on the fixture of scripts/laya_fixture.py and scripts/laya_goldens.py.

use crate::cli::{fixture, listed, run};
use crate::release::{contents, recipe};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The fixture's checkpoint and goldens in `folder`, for a test to change.
fn copied(folder: &Path) {
    for (name, bytes) in contents(&fixture("laya")) {
        let to = folder.join("laya").join(name);
        fs_err::create_dir_all(to.parent().unwrap()).unwrap();
        fs_err::write(to, bytes).unwrap();
    }
}

/// A recipe of the copied fixture, with what its gate is.
fn decisions(lengths: &str, gate: &str) -> String {
    format!(
        "version = 1\nmodel = \"laya\"\nprecision = \"fp32\"\nformats = [\"mlpackage\"]\nlengths = [{lengths}]\n[source]\n\
         synthetic = true\ncheckpoint = \"laya\"\n[gate]\n{gate}\n"
    )
}

const BOTH: &str = "goldens = [\"laya/goldens\"]\nquestions = [\"laya/goldens/questions.json\"]";

/// Releases a recipe. The exit code, what was told and the errors.
fn release(folder: &Path, text: &str) -> (i32, Value, String) {
    let recipe = recipe(folder, "laya", text);
    let (code, out, err) = run(folder, &["release", &recipe, "--allow-unpinned", "--force", "--json"]);
    (code, serde_json::from_str(&out).unwrap(), err)
}

/// The exit code and the errors for people.
fn refused(folder: &Path, text: &str) -> String {
    let recipe = recipe(folder, "laya", text);
    let (code, _, err) = run(folder, &["release", &recipe, "--allow-unpinned", "--force"]);
    format!("{code} {}", err.trim_end().replace(folder.to_str().unwrap(), "[dir]"))
}

/// The stages that were not taken from the cache, and how often each.
fn made(told: &Value) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for stage in told["releases"][0]["stages"].as_array().unwrap() {
        if stage["reused"] == json!(false) {
            *made.entry(stage["stage"].as_str().unwrap().to_string()).or_default() += 1;
        }
    }
    made
}

/// The names of the goldens and question sets that each bundle was judged by.
fn evidence(told: &Value) -> Vec<Vec<String>> {
    let of = |bundle: &Value| {
        let evidence = bundle["gate"]["judged"]["evidence"].as_array().unwrap().iter();
        let named = evidence.filter(|file| file["kind"] != "host");
        named.map(|file| file["name"].as_str().unwrap().to_string()).collect()
    };
    told["releases"][0]["record"]["artefacts"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn what_a_verdict_follows_from_is_judged_anew() {
    let dir = tempfile::tempdir().unwrap();
    copied(dir.path());
    let text = decisions("96, 192", BOTH);
    let (code, told, err) = release(dir.path(), &text);
    assert_eq!((code, err.as_str()), (0, ""), "{told}");
    // Each is judged by the goldens of its length.
    let by = |length: usize| vec![format!("golden_L{length}.safetensors"), "questions.json".into()];
    assert_eq!(evidence(&told), [by(96), by(192)]);
    let kinds = |told: &Value| {
        let evidence = told["releases"][0]["record"]["artefacts"][0]["gate"]["judged"]["evidence"].clone();
        let all = evidence.as_array().unwrap().iter().filter(|file| file["kind"] == "host");
        all.map(|file| file["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let host = ["model.safetensors", "config.json", "rl_agent_config.json", "tokenizer.json", "tokenizer_config.json"];
    assert_eq!(kinds(&told), host);
    assert_eq!(run(dir.path(), &["verify", "dist/laya"]).0, 0);
    let (_, told, _) = release(dir.path(), &text);
    assert_eq!(made(&told), BTreeMap::new());

    // The tokenizer is no part of an artefact, and what it says is part of a verdict.
    let tokenizer = dir.path().join("laya/tokenizer/tokenizer.json");
    let was = fs_err::read_to_string(&tokenizer).unwrap();
    fs_err::write(&tokenizer, was.clone() + "\n").unwrap();
    let (code, told, _) = release(dir.path(), &text);
    assert_eq!((code, made(&told)), (0, BTreeMap::from([("gate".into(), 2), ("publish".into(), 1)])));
    fs_err::write(&tokenizer, &was).unwrap();

    let set = dir.path().join("laya/goldens/questions.json");
    let mut changed: Value = serde_json::from_str(&fs_err::read_to_string(&set).unwrap()).unwrap();
    changed["cases"].as_array_mut().unwrap().truncate(1);
    fs_err::write(&set, changed.to_string()).unwrap();
    let (code, told, _) = release(dir.path(), &text);
    assert_eq!((code, made(&told)), (0, BTreeMap::from([("gate".into(), 2), ("publish".into(), 1)])));
    // Other limits are another recipe, of the same artefacts.
    let (code, told, _) =
        release(dir.path(), &decisions("96, 192", &format!("{BOTH}\nlimits = {{ probability = 0.5 }}")));
    assert_eq!((code, made(&told)), (0, BTreeMap::from([("gate".into(), 2), ("publish".into(), 1)])));
    let limits = &told["releases"][0]["record"]["artefacts"][0]["gate"]["judged"]["limits"];
    assert_eq!(limits["probability"], json!(0.5));
}

#[test]
fn what_is_not_judged_is_said_and_what_fails_is_not_published() {
    let dir = tempfile::tempdir().unwrap();
    copied(dir.path());
    let outcome = |told: &Value| {
        let gates = told["releases"][0]["record"]["artefacts"].as_array().unwrap().iter();
        gates.map(|bundle| bundle["gate"]["reason"].as_str().unwrap_or("judged").to_string()).collect::<Vec<_>>()
    };
    for (gate, expected) in [
        ("", ["the recipe names nothing to judge by"; 2]),
        ("questions = [\"absent.json\"]", ["absent.json is not there"; 2]),
        ("goldens = [\"laya/goldens/golden_L96.safetensors\"]", ["judged", "the recipe names no golden of its length"]),
    ] {
        let (code, told, err) = release(dir.path(), &decisions("96, 192", gate));
        assert_eq!((code, outcome(&told)), (0, expected.map(String::from).to_vec()), "{err}");
    }
    // A question that is too long for every bundle judges none, though its weights are theirs.
    let (code, told, err) = release(dir.path(), &decisions("16, 17", "questions = [\"laya/goldens/questions.json\"]"));
    assert_eq!((code, outcome(&told)), (0, vec!["none of its checks could be run".to_string(); 2]), "{err}");
    fs_err::remove_dir_all(dir.path().join("dist")).unwrap();

    // Question sets of other weights, other limits, no tokenizer, a golden of no length of the recipe's, and no config.
    let set = dir.path().join("laya/goldens/questions.json");
    let mut other: Value = serde_json::from_str(&fs_err::read_to_string(&set).unwrap()).unwrap();
    other["source_weights_sha256"] = json!("ab".repeat(32));
    fs_err::write(dir.path().join("other.json"), other.to_string()).unwrap();
    fs_err::write(dir.path().join("none.json"), "[]").unwrap();
    let mut all = Vec::new();
    for (lengths, gate) in [
        ("96", "questions = [\"other.json\"]"),
        ("96", "questions = [\"none.json\"]"),
        ("96", "goldens = [\"laya/goldens\"]"),
        ("64, 96", "goldens = [\"laya/goldens\"]"),
        ("96", "questions = [\"laya/goldens/questions.json\"]\nlimits = { probability = 0.0 }"),
    ] {
        all.push(refused(dir.path(), &decisions(lengths, gate)));
    }
    fs_err::rename(dir.path().join("laya/tokenizer"), dir.path().join("tokenizer")).unwrap();
    all.push(refused(dir.path(), &decisions("96", BOTH)));
    fs_err::remove_file(dir.path().join("laya/rl_agent_config.json")).unwrap();
    all.push(refused(dir.path(), &decisions("96", BOTH)));
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]"), (r"\d\.\d{2}e-?\d+", "[apart]"), (r"room-\w+/\.laya\.\w+", "[room]")] }, {
        insta::assert_snapshot!(all.join("\n"), @r#"
        3 error: release laya was not made
          caused by: [dir]/other.json is of source [sha256], and the artefact was made of model.safetensors [sha256], config.json [sha256], rl_agent_config.json [sha256]
        3 error: release laya was not made
          caused by: question set [dir]/none.json is not of the form that is read
          caused by: invalid length 0, expected an object with cases
        3 error: release laya was not made
          caused by: golden [dir]/laya/goldens/golden_L192.safetensors has embeddings of f32[1,128,1,192]; [dir]/dist/.release/work/[room]/laya/laya_fp32_L96.mlpackage takes ["f32[1,128,1,96]"]
        3 error: release laya was not made
          caused by: golden [dir]/laya/goldens/golden_L192.safetensors has embeddings of f32[1,128,1,192]; [dir]/dist/.release/work/[room]/laya/laya_fp32_L64.mlpackage takes ["f32[1,128,1,64]"]
        4 error: release laya was not made
          caused by: the gate failed: laya_fp32_L96.mlpackage: probabilities: calibrated shares apart by [apart] at emoji and joined signs/q0 (limit 0), logits by [apart]; 2 of 13 questions have a share above 0.99, which hides what happens to logits; laya_fp32_L96.mlpackage: action: shares apart by [apart] at two labels/q2 (limit 0), 13 questions
        3 error: release laya was not made
          caused by: [dir]/laya/tokenizer/tokenizer.json is not there; a checkpoint has its tokenizer in tokenizer/tokenizer.json and tokenizer/tokenizer_config.json. Copy the folder `tokenizer` from where the checkpoint came from
        3 error: release laya was not made
          caused by: [dir]/laya/rl_agent_config.json is absent; a Laya checkpoint has its configs beside its weights, or give their folder with --config
        "#);
    });
    assert_eq!(listed(&dir.path().join("dist")), [".release"], "nothing is published");
}
