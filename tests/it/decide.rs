//! `decide` against the published host, and what it refuses; on the fixture of scripts/laya_fixture.py.

use crate::cli::{command, fixture, run};
use crate::laya_requests::apart;
use crate::python::coreai_python;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// How far a share or a logit may be off.
const CLOSE: f64 = 1e-4;

/// The fixture's `max_len`, which is the end of every length.
const MAX_LEN: u64 = 160;

/// A folder with a copy of the checkpoint, and artefacts of it.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        let files = [
            "model.safetensors",
            "rl_agent_config.json",
            "encoder/config.json",
            "tokenizer/tokenizer.json",
            "tokenizer/tokenizer_config.json",
        ];
        for file in files {
            let to = place.at("checkpoint").join(file);
            fs_err::create_dir_all(to.parent().unwrap()).unwrap();
            fs_err::copy(fixture("laya").join(file), to).unwrap();
        }
        place.converts("96,192", "fp32", "mlpackage");
        place
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn converts(&self, lengths: &str, precision: &str, format: &str) {
        let mut command = command(self.folder());
        let args = ["laya", "--checkpoint", "checkpoint", "--length", lengths, "--precision", precision, "--format"];
        command.args(args).arg(format).env("EG2_COREAI_PYTHON", coreai_python()).assert().success();
    }

    /// `decide` with these artefacts and more arguments.
    fn decide(&self, artefacts: &[&str], more: &[&str]) -> (i32, String, String) {
        run(self.folder(), &[&["decide", "--checkpoint", "checkpoint", "--artifact"], artefacts, more].concat())
    }

    /// Writes requests and has them answered.
    fn answered(&self, artefacts: &[&str], requests: &Value, more: &[&str]) -> (i32, Value) {
        fs_err::write(self.at("requests.json"), requests.to_string()).unwrap();
        let (code, out, err) = self.decide(artefacts, &[&["--request", "requests.json", "--json"], more].concat());
        (code, serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {err}")))
    }
}

const SHORT: &str = "out/laya_fp32_L96.mlpackage";
const LONG: &str = "out/laya_fp32_L192.mlpackage";

fn published() -> Vec<Value> {
    let text = fs_err::read_to_string(fixture("laya/requests.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The fixture's requests in the form of a request file.
fn requests(published: &[Value]) -> Value {
    let request = |r: &Value| json!({ "name": r["name"], "state": r["state"], "questions": { "q": r["question"] } });
    published.iter().map(request).collect()
}

/// Held against the published host at the length that was chosen: the shortest that all of a request fits, else the
/// longest, where its state is cut.
fn hold(found: &Value, published: &[Value], lengths: &[u64]) -> (usize, usize) {
    let (mut answered, mut refused) = (0, 0);
    for (result, request) in found["results"].as_array().unwrap().iter().zip(published) {
        let name = &request["name"];
        assert_eq!(&result["name"], name);
        let fits = |length: &&u64| request["needed"].as_u64().is_some_and(|needed| needed <= **length);
        let length = lengths.iter().find(fits).or(lengths.last()).unwrap();
        let want = &request["at"][length.to_string()];
        if want.get("error").is_some() {
            assert!(result["refusal"].is_string() && result["answers"].is_null(), "{name}");
            refused += 1;
            continue;
        }
        let run = &result["runs"]["q"];
        assert_eq!(run["length"].as_u64(), Some(*length), "{name}");
        assert_eq!(run["tokens"].as_u64(), Some(want["ids"].as_array().unwrap().len() as u64), "{name}");
        let off = apart(&result["answers"]["q"], &want["answer"]).max(apart(&run["logits"], &want["logits"]));
        assert!(off <= CLOSE, "{name} is {off} off: {result} {want}");
        answered += 1;
    }
    assert_eq!((found["answered"].as_u64(), found["refused"].as_u64()), (Some(answered as u64), Some(refused as u64)));
    (answered, refused)
}

#[test]
fn answers_are_those_of_the_published_host() {
    let (place, published) = (Place::new(), published());
    let all = requests(&published);
    for (artefacts, lengths, count) in
        [(&[LONG, SHORT][..], &[96, 192][..], (25, 16)), (&[LONG], &[192], (25, 16)), (&[SHORT], &[96], (23, 18))]
    {
        let (code, found) = place.answered(artefacts, &all, &["--truncate"]);
        assert_eq!((code, hold(&found, &published, lengths)), (3, count), "{artefacts:?}");
    }
    place.converts("96,192", "fp32", "aimodel");
    let models = ["out/laya_fp32_L96.aimodel", "out/laya_fp32_L192.aimodel"];
    fs_err::write(place.at("requests.json"), all.to_string()).unwrap();
    let mut apples = command(place.folder());
    apples.args(["decide", "--checkpoint", "checkpoint", "--truncate", "--json", "--request", "requests.json"]);
    let output = apples.arg("--artifact").args(models).env("EG2_COREAI_PYTHON", coreai_python()).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["artefacts"][0]["runtime"], "coreai");
    assert_eq!(hold(&found, &published, &[96, 192]), (25, 16));
}

#[test]
fn nothing_is_cut_unless_asked() {
    let (place, published) = (Place::new(), published());
    let (code, found) = place.answered(&[SHORT, LONG], &requests(&published), &[]);
    assert_eq!(code, 3);
    for (result, request) in found["results"].as_array().unwrap().iter().zip(&published) {
        let asks = request["at"]["192"].get("error").is_none();
        let fits = asks && request["needed"].as_u64().is_some_and(|needed| needed <= MAX_LEN);
        assert_eq!(fits, result["refusal"].is_null(), "{}: {}", request["name"], result["refusal"]);
        assert!(result["runs"]["q"]["state"]["truncated"] != true);
    }
    let told = |name: &str| {
        let result = found["results"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap();
        result["refusal"].as_str().unwrap().to_string()
    };
    let named = ["a long text", "33 options", "a label twice", "no state", "unknown type", "no options"];
    insta::assert_snapshot!(named.map(told).join("\n"), @r#"
    question "q" takes 501 tokens, 32 of them for itself, and 160 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut
    question "q" has 33 options, expected at most 32
    question "q" has label 2 ("a") that repeats label 0; labels are the keys of the answer
    the state is null, expected a text, an object or a list
    question "q" has type "bool", expected "choice", "score" or "noul"
    question "q" has no options, expected 1 to 32 criteria
    "#);
}

#[test]
fn the_question_of_the_command_line() {
    let place = Place::new();
    let state = ["--state", "The invoice was paid twice."];
    let asked = |more: &[&str]| place.decide(&[SHORT, LONG], &[&state[..], more].concat());
    let all = [
        asked(&["--question", "Which team?", "--options", "billing", "support"]),
        asked(&["--question", "How urgent?", "--type", "score", "--options", "no", "a little", "very"]),
        asked(&["--question", "Is it about money?"]),
        asked(&["--question", "Is it about money?", "--type", "noul", "--options", "no", "yes"]),
    ];
    let told = |(code, out, err): (i32, String, String)| format!("{code}\n{out}{err}");
    insta::assert_snapshot!(all.map(told).join("\n"), @r#"
    0
    question    support
      shares    billing 0.0016, support 0.9984
      go by it  0.9929
      tokens    40 of 96
     WARN the config's temperature temperature[1] is 7.0, and 5 was taken for it
     WARN the config's temperature temperature_by_options["choice:2"] is 0.1, and 0.5 was taken for it

    0
    question    level 1.1266
      shares    0 0.2300, 1 0.4133, 2 0.3566
      go by it  0.9984
      tokens    49 of 96
     WARN the config's temperature temperature[1] is 7.0, and 5 was taken for it
     WARN the config's temperature temperature_by_options["choice:2"] is 0.1, and 0.5 was taken for it

    0
    question    true by 0.4661
      go by it  0.9995
      tokens    57 of 96
     WARN the config's temperature temperature[1] is 7.0, and 5 was taken for it
     WARN the config's temperature temperature_by_options["choice:2"] is 0.1, and 0.5 was taken for it

    0
    question    true by 0.3985
      go by it  0.9998
      tokens    56 of 96
     WARN the config's temperature temperature[1] is 7.0, and 5 was taken for it
     WARN the config's temperature temperature_by_options["choice:2"] is 0.1, and 0.5 was taken for it
    "#);
    let wrong = [
        asked(&["--question", "Which?", "--options", "a", "b", "a"]),
        asked(&["--question", "Which?", "--type", "noul", "--options", "a", "b", "c"]),
        asked(&["--question", " ", "--options", "a", "b"]),
        asked(&["--question", "Which?", "--type", "choice"]),
        asked(
            &[&["--question", "Which?", "--options"][..], &(0..33).map(|i| ["a", "b", "c"][i % 3]).collect::<Vec<_>>()]
                .concat(),
        ),
        place.decide(&[SHORT], &["--state", &"word ".repeat(200), "--question", "Which?", "--options", "a", "b"]),
    ];
    let told = |(code, out, err): (i32, String, String)| {
        assert_eq!(out, "");
        format!(
            "{code} {}",
            err.lines()
                .filter(|line| line.starts_with("error") || line.starts_with("  caused"))
                .collect::<Vec<_>>()
                .join("\n")
        )
    };
    insta::assert_snapshot!(wrong.map(told).join("\n"), @r#"
    3 error: question "question" has label 2 ("a") that repeats label 0; labels are the keys of the answer
    2 error: a noul has 3 --options, expected the words for false and true
    3 error: question "question" has no instructions, expected the text to answer
    3 error: question "question" has no options, expected 1 to 32 criteria
    3 error: question "question" has label 3 ("a") that repeats label 0; labels are the keys of the answer
    3 error: question "question" takes 818 tokens, 16 of them for itself, and 96 fit; ask with a shorter state, a longer graph (the model's max_len is its end), or for the state to be cut
    "#);
}

const ASK: [&str; 7] = ["--state", "s", "--question", "Which?", "--options", "a", "b"];

#[test]
fn what_does_not_belong_together() {
    let place = Place::new();
    let told = |artefacts: &[&str]| {
        let (code, _, err) = place.decide(artefacts, &ASK);
        format!("{code} {}", err.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n"))
    };
    // The same numbers under another config.
    let agent = place.at("checkpoint/rl_agent_config.json");
    let text = fs_err::read_to_string(&agent).unwrap();
    let mut all = Vec::new();
    fs_err::write(&agent, format!("{text}\n")).unwrap();
    all.push(told(&[SHORT]));
    fs_err::write(&agent, &text).unwrap();
    let weights = place.at("checkpoint/model.safetensors");
    let bytes = fs_err::read(&weights).unwrap();
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    fs_err::write(&weights, other).unwrap();
    all.push(told(&[SHORT]));
    fs_err::write(&weights, bytes).unwrap();
    let tokenizer = place.at("checkpoint/tokenizer");
    fs_err::rename(&tokenizer, place.at("elsewhere")).unwrap();
    all.push(told(&[SHORT]));
    fs_err::rename(place.at("elsewhere"), &tokenizer).unwrap();
    fs_err::rename(place.at("checkpoint/encoder"), place.at("elsewhere")).unwrap();
    all.push(told(&[SHORT]));
    fs_err::rename(place.at("elsewhere"), place.at("checkpoint/encoder")).unwrap();
    all.push(told(&[SHORT, SHORT]));
    all.push(told(&["absent.mlpackage"]));
    let encoder = fixture("encoder_eg2");
    let args = ["encoder", "--bucket", "200", "--format", "mlpackage", "--checkpoint", encoder.to_str().unwrap()];
    command(place.folder()).args(args).assert().success();
    fs_err::remove_file(place.at("out/eg2_encoder_fp16_T200.mlpackage.record.json")).unwrap();
    all.push(told(&["out/eg2_encoder_fp16_T200.mlpackage"]));
    let config = place.at("checkpoint");
    let args = ["laya", "--synthetic", "--length", "16", "--format", "mlpackage", "--config", config.to_str().unwrap()];
    command(place.folder()).args(args).assert().success();
    all.push(told(&["out/laya_fp16_L16.mlpackage"]));
    // A byte of the package.
    let blob = place.at(SHORT).join("Data/com.apple.CoreML/weights/weight.bin");
    let mut bytes = fs_err::read(&blob).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs_err::write(&blob, bytes).unwrap();
    all.push(told(&[SHORT]).split(": it says").next().unwrap().to_string());
    insta::assert_snapshot!(all.join("\n"), @"
    3 error: out/laya_fp32_L96.mlpackage was made of another checkpoint: rl_agent_config.json is 47ca58a13d4795c84cbbed457bb5ae68e9c761eba7c18bbf584dc185abc9def7, its record says ee960d92ad3e558cc6aaab205dc6a4d200aebb62cecc0e89208918944c639f2d
    3 error: out/laya_fp32_L96.mlpackage was made of another checkpoint: model.safetensors is 8c49ef035deb30073b5c4f2f7e625ede073e1848e4ae52dd6b9d3ea2845773f7, its record says 2fa391e8a96fdea5d6951537207d1c45e11b5944f4e1e05834d21eb20fcb10c6
    3 error: checkpoint/tokenizer/tokenizer.json is not there; a checkpoint has its tokenizer in tokenizer/tokenizer.json and tokenizer/tokenizer_config.json. Copy the folder `tokenizer` from where the checkpoint came from
    3 error: checkpoint/encoder/config.json is absent; a Laya checkpoint has its configs beside its weights, or give their folder with --config
    2 error: out/laya_fp32_L96.mlpackage is 96 tokens long, as an artefact before it
    3 error: there is no absent.mlpackage
    2 error: out/eg2_encoder_fp16_T200.mlpackage is an encoder, expected a decision model
    3 error: out/laya_fp16_L16.mlpackage was made of synthetic weights and not of a checkpoint, so that no host belongs to it
    3 error: record out/laya_fp32_L96.mlpackage.record.json is of other bytes
    ");
    // Without a record nothing is known, which is said.
    fs_err::remove_file(place.at(&format!("{LONG}.record.json"))).unwrap();
    let (code, _, err) = place.decide(&[LONG], &ASK);
    assert_eq!(code, 0);
    assert!(err.contains("laya_fp32_L192.mlpackage has no record"), "{err}");
    assert_eq!(place.decide(&[LONG], &[&ASK[..], &["--strict"]].concat()).0, 4);
}
