//! `gate` on artefacts of the decision model, on the fixture of scripts/laya_fixture.py and scripts/laya_goldens.py.

use crate::cli::{command, fixture, run};
use crate::gate::held_to_what_is_told;
use crate::python::coreai_python;
use crate::schema::holds;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const SHORT: &str = "out/laya_fp32_L96.mlpackage";

/// Makes artefacts of the fixture.
fn laya(folder: &Path, more: &[&str]) {
    let mut command = command(folder);
    command.arg("laya").args(["--checkpoint"]).arg(fixture("laya")).args(more);
    command.env("EG2_COREAI_PYTHON", coreai_python()).assert().success();
}

fn golden(length: usize) -> String {
    fixture("laya/goldens").join(format!("golden_L{length}.safetensors")).to_str().unwrap().to_string()
}

fn questions() -> String {
    fixture("laya/goldens/questions.json").to_str().unwrap().to_string()
}

/// `gate` by the fixture's checkpoint.
fn gate(folder: &Path, artefact: &str, more: &[&str]) -> (i32, String, String) {
    let checkpoint = fixture("laya");
    run(folder, &[&["gate", artefact, "--checkpoint", checkpoint.to_str().unwrap()], more].concat())
}

fn redacted(text: &str) -> String {
    let line = |l: &str| if l.starts_with("seconds") { "seconds [seconds]".to_string() } else { l.to_string() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The verdict of each check in the JSON of `gate`.
fn verdicts(json: &Value) -> BTreeMap<String, String> {
    let one = |check: &Value| {
        let word = |value: &Value| value.as_str().unwrap().to_string();
        (word(&check["name"]), word(&check["verdict"]["outcome"]))
    };
    json["report"]["checks"].as_array().unwrap().iter().map(one).collect()
}

fn of_outcome(json: &Value, outcome: &str) -> Vec<String> {
    verdicts(json).into_iter().filter(|(_, found)| found == outcome).map(|(name, _)| name).collect()
}

#[test]
fn goldens_and_question_sets() {
    let dir = tempfile::tempdir().unwrap();
    laya(dir.path(), &["--length", "96,192", "--precision", "fp32", "--format", "mlpackage"]);
    laya(dir.path(), &["--length", "192", "--precision", "fp16", "--format", "mlpackage"]);
    let (code, out, err) = gate(dir.path(), SHORT, &["--golden", &golden(96), "--questions", &questions()]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]"), (r"\d\.\d{2}e-?\d+", "[apart]")] }, {
        insta::assert_snapshot!(redacted(&out));
    });
    // What was left out is no pass.
    assert_eq!(gate(dir.path(), SHORT, &["--golden", &golden(96), "--questions", &questions(), "--strict"]).0, 4);
    for precision in ["fp32", "fp16"] {
        let artefact = format!("out/laya_{precision}_L192.mlpackage");
        let more = ["--golden", &golden(192), "--questions", &questions(), "--strict", "--json"];
        let (code, out, err) = gate(dir.path(), &artefact, &more);
        assert_eq!(code, 0, "{out} {err}");
        let json = holds("gate", out.as_bytes());
        held_to_what_is_told(&json);
        assert_eq!((json["report"]["clips"].as_array().unwrap().len(), &json["precision"]), (20, &json!(precision)));
        let kinds: Vec<&str> =
            json["evidence"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["golden", "questions", "host", "host", "host", "host", "host"]);
    }
}

#[test]
fn apples_runtime() {
    let dir = tempfile::tempdir().unwrap();
    laya(dir.path(), &["--length", "96", "--precision", "fp32", "--format", "aimodel"]);
    let mut command = command(dir.path());
    command.args([
        "gate",
        "out/laya_fp32_L96.aimodel",
        "--golden",
        &golden(96),
        "--repeats",
        "1",
        "--json",
        "--checkpoint",
    ]);
    command.arg(fixture("laya")).env("EG2_COREAI_PYTHON", coreai_python());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json = holds("gate", &output.stdout);
    assert_eq!(of_outcome(&json, "not_run"), ["repeats", "tokens"]);
    assert_eq!((of_outcome(&json, "fail"), &json["runtime"]), (Vec::new(), &json!("coreai")));
}

/// Configs of the fixture with other entries of the encoder's.
fn configs(folder: &Path, entries: &Value) {
    let text = fs_err::read_to_string(fixture("laya/encoder/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config.as_object_mut().unwrap().extend(entries.as_object().unwrap().clone());
    fs_err::create_dir_all(folder.join("encoder")).unwrap();
    fs_err::write(folder.join("encoder/config.json"), config.to_string()).unwrap();
    fs_err::copy(fixture("laya/rl_agent_config.json"), folder.join("rl_agent_config.json")).unwrap();
}

#[test]
fn a_graph_of_another_architecture_fails() {
    let dir = tempfile::tempdir().unwrap();
    for (name, entries) in [
        ("kinds", json!({ "global_attn_every_n_layers": 2 })),
        ("rotary", json!({ "global_rope_theta": 100.0 })),
        ("norms", json!({ "norm_eps": 0.5 })),
    ] {
        configs(&dir.path().join(name), &entries);
        laya(
            dir.path(),
            &["--length", "96", "--format", "mlpackage", "--config", name, "--out", &format!("{name}.out")],
        );
        let artefact = format!("{name}.out/laya_fp16_L96.mlpackage");
        let more = ["--config", name, "--golden", &golden(96), "--questions", &questions(), "--json"];
        let (code, out, _) = gate(dir.path(), &artefact, &more);
        let json = holds("gate", out.as_bytes());
        assert_eq!(code, 4, "{name}: {out}");
        let failed = of_outcome(&json, "fail");
        assert!(
            failed.contains(&"probabilities".to_string()) || failed.contains(&"argmax".to_string()),
            "{name}: {failed:?}"
        );
        held_to_what_is_told(&json);
    }
}

/// A tensor as it is stored.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// The golden of 96 tokens with other tensors or another header.
fn spoilt(path: &Path, source: Option<&str>, change: impl Fn(&mut BTreeMap<String, Stored>)) -> String {
    let bytes = fs_err::read(golden(96)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let own = |view: TensorView<'_>| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
    let mut tensors: BTreeMap<String, Stored> =
        file.tensors().into_iter().map(|(name, view)| (name, own(view))).collect();
    change(&mut tensors);
    let view = |(name, (dtype, shape, data)): (&String, &Stored)| {
        (
            name.clone(),
            TensorView::new(*dtype, shape.clone(), data)
                .map(|v| (v.dtype(), v.shape().to_vec(), data.clone()))
                .unwrap(),
        )
    };
    let owned: Vec<(String, Stored)> = tensors.iter().map(view).collect();
    let views = owned
        .iter()
        .map(|(name, (dtype, shape, data))| (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let metadata = source.map(|source| HashMap::from([("source_sha256".to_string(), source.to_string())]));
    safetensors::serialize_to_file(views, metadata, path).unwrap();
    path.to_str().unwrap().to_string()
}

/// Puts a number in the place of one.
fn put(tensors: &mut BTreeMap<String, Stored>, name: &str, at: usize, value: &[u8]) {
    let (_, _, data) = tensors.get_mut(name).unwrap();
    data[at * value.len()..][..value.len()].copy_from_slice(value);
}

#[test]
fn goldens_that_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    laya(dir.path(), &["--length", "96", "--precision", "fp32", "--format", "mlpackage"]);
    let path = dir.path().join("golden.safetensors");
    let told = |source: Option<&str>, change: &dyn Fn(&mut BTreeMap<String, Stored>)| {
        let golden = spoilt(&path, source, change);
        let (code, _, err) = gate(dir.path(), SHORT, &["--golden", &golden]);
        format!("{code} {}", err.trim_end().replace(dir.path().to_str().unwrap(), ""))
    };
    let int = |name: &'static str, at: usize, value: i32| {
        move |tensors: &mut BTreeMap<String, Stored>| put(tensors, name, at, &value.to_le_bytes())
    };
    let float = |name: &'static str, at: usize, value: f32| {
        move |tensors: &mut BTreeMap<String, Stored>| put(tensors, name, at, &value.to_le_bytes())
    };
    let without = |name: &'static str| move |tensors: &mut BTreeMap<String, Stored>| drop(tensors.remove(name));
    let flat = |name: &'static str| {
        move |tensors: &mut BTreeMap<String, Stored>| {
            let (dtype, _, data) = tensors[name].clone();
            tensors.insert(name.into(), (dtype, vec![data.len() / 4], data));
        }
    };
    let other = "ab".repeat(32);
    let all = [
        told(None, &int("input_ids", 3, 512)),
        told(None, &int("input_ids", 3, -1)),
        told(None, &int("marker_pos", 1, 96)),
        told(None, &int("marker_mask", 1, 0)),
        told(None, &int("attention_mask", 3, 2)),
        told(None, &int("attention_mask", 3, 0)),
        told(None, &int("qtype", 0, 3)),
        told(None, &float("full_mask", 5, -1e9)),
        told(None, &float("local_mask", 0, -1e4)),
        told(None, &float("embeddings", 7, 9.0)),
        told(None, &float("type_vectors", 7, 9.0)),
        told(None, &float("marker_map", 0, 1.0)),
        told(None, &float("logits", 1, f32::NAN)),
        told(None, &without("logits")),
        told(None, &without("marker_pos")),
        told(None, &without("embeddings")),
        told(None, &flat("embeddings")),
        told(None, &flat("input_ids")),
        told(Some(&other), &|_| {}),
        told(Some("ab"), &|_| {}),
    ];
    let text = all.join("\n").replace(&digest(), "[the checkpoint's]");
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]")] }, { insta::assert_snapshot!(text, @r#"
    3 error: golden /golden.safetensors cannot be used
      caused by: input_ids has 512 at 3, expected an id below 512
    3 error: golden /golden.safetensors cannot be used
      caused by: input_ids has -1 at 3, expected an id below 512
    3 error: golden /golden.safetensors cannot be used
      caused by: marker_pos has 96 for slot 1, expected a position below 96
    3 error: golden /golden.safetensors cannot be used
      caused by: marker_mask is 1 at 2, expected ones and then zeros
    3 error: golden /golden.safetensors cannot be used
      caused by: attention_mask is 2 at 3, expected ones and then zeros
    3 error: golden /golden.safetensors cannot be used
      caused by: attention_mask is 1 at 4, expected ones and then zeros
    3 error: golden /golden.safetensors cannot be used
      caused by: qtype is 3, expected 0 for choice, 1 for score or 2 for noul
    3 error: golden /golden.safetensors cannot be used
      caused by: full_mask is -1000000000 at element 5, and the host makes 0 of the golden's rows
    3 error: golden /golden.safetensors cannot be used
      caused by: local_mask is -10000 at element 0, and the host makes 0 of the golden's rows
    3 error: golden /golden.safetensors cannot be used
      caused by: embeddings is 9 at element 7, and the host makes -0.09454346 of the golden's rows
    3 error: golden /golden.safetensors cannot be used
      caused by: type_vectors is 9 at element 7, and the host makes 0.09838867 of the golden's rows
    3 error: golden /golden.safetensors cannot be used
      caused by: marker_map is 1 at element 0, and the host makes 0 of the golden's rows
    3 error: golden /golden.safetensors cannot be used
      caused by: tensor logits of /golden.safetensors: element 1 is NaN, expected a number
    3 error: golden /golden.safetensors cannot be used
      caused by: there is no tensor logits
    3 error: golden /golden.safetensors cannot be used
      caused by: there is no tensor marker_pos
    3 error: golden /golden.safetensors has no tensor embeddings, which out/laya_fp32_L96.mlpackage takes
    3 error: golden /golden.safetensors has embeddings of f32[12288]; out/laya_fp32_L96.mlpackage takes ["f32[1,128,1,96]"]
    3 error: golden /golden.safetensors cannot be used
      caused by: input_ids is i32[96], expected one row of integers
    3 error: /golden.safetensors is of source [sha256], and the artefact was made of model.safetensors [the checkpoint's], config.json [sha256], rl_agent_config.json [sha256]
    3 error: golden /golden.safetensors: source_sha256 is "ab", expected SHA-256 digests of 64 hexadecimal digits
    "#); });

    // What a golden may lack is not run.
    let golden = spoilt(&path, None, |tensors| {
        tensors.remove("cls");
        tensors.remove("action");
    });
    let (code, out, _) = gate(dir.path(), SHORT, &["--golden", &golden, "--json"]);
    assert_eq!(code, 0);
    assert_eq!(of_outcome(&holds("gate", out.as_bytes()), "not_run"), ["action", "cls", "source", "tokens"]);
}

fn digest() -> String {
    eg2_convert::digest::Digest::of_file(&fixture("laya/model.safetensors")).unwrap().0.to_string()
}

#[test]
fn what_does_not_belong_together() {
    let dir = tempfile::tempdir().unwrap();
    laya(dir.path(), &["--length", "96,192", "--precision", "fp32", "--format", "mlpackage"]);
    let place = |name: &str| dir.path().join(name);
    for (name, spoil) in [("other", "rl_agent_config.json"), ("bare", "tokenizer/tokenizer.json")] {
        for file in [
            "model.safetensors",
            "rl_agent_config.json",
            "encoder/config.json",
            "tokenizer/tokenizer.json",
            "tokenizer/tokenizer_config.json",
        ] {
            let to = place(name).join(file);
            fs_err::create_dir_all(to.parent().unwrap()).unwrap();
            fs_err::copy(fixture("laya").join(file), &to).unwrap();
        }
        let path = place(name).join(spoil);
        match name {
            "other" => fs_err::write(&path, fs_err::read_to_string(&path).unwrap() + "\n").unwrap(),
            _ => fs_err::remove_file(&path).unwrap(),
        }
    }
    let mut set: Value = serde_json::from_str(&fs_err::read_to_string(questions()).unwrap()).unwrap();
    set["source_weights_sha256"] = json!("ab".repeat(32));
    fs_err::write(place("set.json"), set.to_string()).unwrap();
    set["source_weights_sha256"] = json!(digest());
    set["cases"][0]["items"][0]["ids"][3] = json!(512);
    fs_err::write(place("ids.json"), set.to_string()).unwrap();
    set["cases"][0]["items"][0]["ids"][3] = json!(7);
    set["cases"][1]["questions"] = json!({ "q": { "type": "guess" } });
    fs_err::write(place("kind.json"), set.to_string()).unwrap();
    let mut encoder = command(dir.path());
    encoder.args(["encoder", "--synthetic", "--bucket", "8", "--format", "mlpackage", "--config"]);
    encoder.arg(fixture("encoder_eg2/config.json")).assert().success();

    let checkpoint = fixture("laya");
    let checkpoint = checkpoint.to_str().unwrap();
    let told = |args: &[&str]| {
        let (code, _, err) = run(dir.path(), &[&["gate"], args].concat());
        let hide = err.trim_end().replace(dir.path().to_str().unwrap(), "").replace(checkpoint, "[fixture]");
        format!("{code} {hide}")
    };
    let golden = golden(96);
    let with = |more: &[&str]| told(&[&[SHORT, "--checkpoint", checkpoint], more].concat());
    let all = [
        told(&[SHORT, "--golden", &golden]),
        told(&[SHORT, "--golden", &golden, "--checkpoint", "other"]),
        told(&[SHORT, "--golden", &golden, "--checkpoint", "bare"]),
        told(&[SHORT, "--golden", &golden, "--checkpoint", "absent"]),
        told(&["out/laya_fp32_L192.mlpackage", "--golden", &golden, "--checkpoint", checkpoint]),
        told(&["out/eg2_encoder_fp16_T8.mlpackage", "--golden", &golden, "--checkpoint", checkpoint]),
        told(&["out/eg2_encoder_fp16_T8.mlpackage", "--questions", "set.json"]),
        with(&["--questions", "set.json"]),
        with(&["--questions", "ids.json"]),
        with(&["--questions", "kind.json"]),
        with(&["--questions", "absent.json"]),
        with(&["--golden", &golden, "--words", "words.txt"]),
        with(&["--golden", &golden, "--audio", "a.wav"]),
        with(&["--golden", &golden, "--probability", "2"]),
        with(&[]),
    ];
    let text = all
        .join("\n")
        .replace(&digest(), "[the checkpoint's]")
        .replace(&fixture("laya").display().to_string(), "[fixture]");
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]")] }, { insta::assert_snapshot!(text, @r#"
    2 error: out/laya_fp32_L96.mlpackage is a decision model, judged with its host: give the checkpoint it was made of, with --checkpoint
    3 error: out/laya_fp32_L96.mlpackage was made of another checkpoint: rl_agent_config.json is [sha256], its record says [sha256]
    3 error: bare/tokenizer/tokenizer.json is not there; a checkpoint has its tokenizer in tokenizer/tokenizer.json and tokenizer/tokenizer_config.json. Copy the folder `tokenizer` from where the checkpoint came from
    3 error: absent cannot be read
      caused by: No such file or directory (os error 2)
    3 error: golden [fixture]/goldens/golden_L96.safetensors has embeddings of f32[1,128,1,96]; out/laya_fp32_L192.mlpackage takes ["f32[1,128,1,192]"]
    2 error: out/eg2_encoder_fp16_T8.mlpackage is an encoder, which --checkpoint is not for
    2 error: out/eg2_encoder_fp16_T8.mlpackage is an encoder, which --questions is not for
    3 error: set.json is of source [sha256], and the artefact was made of model.safetensors [the checkpoint's], config.json [sha256], rl_agent_config.json [sha256]
    3 error: question set ids.json: case two labels cannot be asked
      caused by: input_ids has 512 at 3, expected an id below 512
    3 error: question set kind.json: case german, described labels cannot be asked
      caused by: question "q" has type "guess", expected "choice", "score" or "noul"
    3 error: question set absent.json could not be read
      caused by: No such file or directory (os error 2)
    2 error: out/laya_fp32_L96.mlpackage is a decision model, which --words is not for
    2 error: out/laya_fp32_L96.mlpackage is a decision model, which --audio is not for
    2 error: limit probability is 2, expected 0 to 1
    2 error: the following required arguments were not provided:
      --golden <FILE|DIR>...

    Usage: eg2-convert gate <ARTEFACT> [--golden <FILE|DIR>...] [--audio <FILE|DIR>...] [OPTIONS]

    For more information, try '--help'.
    "#); });
}

#[test]
fn another_layout_is_told() {
    let dir = tempfile::tempdir().unwrap();
    laya(dir.path(), &["--length", "96", "--precision", "fp32", "--format", "mlpackage"]);
    let mut set: Value = serde_json::from_str(&fs_err::read_to_string(questions()).unwrap()).unwrap();
    set["cases"].as_array_mut().unwrap().truncate(1);
    // What is asked is not what the reference was asked.
    set["cases"][0]["state"] = json!("The invoice was never paid.");
    fs_err::write(dir.path().join("set.json"), set.to_string()).unwrap();
    let (code, out, _) = gate(dir.path(), SHORT, &["--questions", "set.json", "--json"]);
    let json = holds("gate", out.as_bytes());
    assert_eq!((code, of_outcome(&json, "fail")), (4, vec!["tokens".to_string()]));
    let check = json["report"]["checks"].as_array().unwrap().iter().find(|check| check["name"] == "tokens").unwrap();
    insta::assert_snapshot!(check["figures"]["unlike"][0].as_str().unwrap(), @r"two labels/q0: 43 tokens, the reference has 40");
}

#[test]
fn where_every_question_is_too_long_nothing_was_checked() {
    let dir = tempfile::tempdir().unwrap();
    laya(dir.path(), &["--length", "16", "--precision", "fp32", "--format", "mlpackage"]);
    let (code, out, _) = gate(dir.path(), "out/laya_fp32_L16.mlpackage", &["--questions", &questions(), "--json"]);
    let json = holds("gate", out.as_bytes());
    assert_eq!((code, &json["verdict"], &json["passed"]), (0, &json!("not_run"), &json!(false)));
    assert_eq!(of_outcome(&json, "pass"), ["source"]);
    assert_eq!(gate(dir.path(), "out/laya_fp32_L16.mlpackage", &["--questions", &questions(), "--strict"]).0, 4);
}
