//! `schema`, and everything that is printed or written as JSON held against what it prints.

use crate::cli::{command, fixture};
use crate::clip::write_inputs;
use crate::compile::{self, CALL, pids};
use crate::compiled_tree::Tree;
use crate::gate::Golden;
use crate::kit;
use crate::python::coreai_python;
use crate::regions::hybrid;
use crate::release::encoder_recipe;
use crate::tools;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;

/// All that `schema --json` prints.
pub static CATALOGUE: LazyLock<Value> = LazyLock::new(|| {
    let output = command(Path::new(".")).args(["schema", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
});

static VALIDATORS: LazyLock<BTreeMap<&str, Validator>> = LazyLock::new(|| {
    let schemas = CATALOGUE["schemas"].as_object().unwrap().iter();
    schemas.map(|(name, schema)| (name.as_str(), jsonschema::draft202012::new(schema).unwrap())).collect()
});

/// What `command` printed, which has to be as its schema says; a word that is no command prints an error.
pub fn holds(command: &str, stdout: &[u8]) -> Value {
    let json: Value = serde_json::from_slice(stdout)
        .unwrap_or_else(|e| panic!("{command}: {e}: {}", String::from_utf8_lossy(stdout)));
    let faults = faults(command, &json);
    assert!(faults.is_empty(), "{command}: {faults:#?}\n{json:#}");
    json
}

/// What keeps `json` from being as the schema of that name says.
pub fn faults(name: &str, json: &Value) -> Vec<String> {
    VALIDATORS.get(name).unwrap_or(&VALIDATORS["error"]).iter_errors(json).flat_map(|error| told(&error)).collect()
}

/// Each fault with its place; where none of several forms fits, the faults of each.
fn told(error: &ValidationError<'_>) -> Vec<String> {
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind() {
        return context.iter().flatten().flat_map(told).collect();
    }
    vec![format!("{}: {}", error.instance_path(), error.masked())]
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn the_schemas_are_schemas_and_each_command_has_one() {
    let schemas = CATALOGUE["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{name}");
        let output = command(Path::new(".")).args(["schema", name]).output().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), *schema, "{name}");
        open_objects(schema, name);
    }
    let without: Vec<_> = names(&CATALOGUE["commands"]).into_iter().filter(|c| !schemas.contains_key(*c)).collect();
    assert!(without.is_empty(), "no schema of {without:?}");
    let kinds = &schemas["error"]["properties"]["error"]["properties"];
    let failing = CATALOGUE["exit_codes"].as_array().unwrap().iter().filter(|exit| exit["code"] != 0);
    let (names, codes): (Vec<_>, Vec<_>) = failing.map(|exit| (exit["name"].clone(), exit["code"].clone())).unzip();
    assert_eq!((&kinds["kind"]["enum"], &kinds["exit_code"]["enum"]), (&json!(names), &json!(codes)));
}

/// Every object whose form is ours is closed, but for those whose descriptions say that more may be added.
fn open_objects(schema: &Value, place: &str) {
    match schema {
        Value::Object(object) => {
            let described = object.get("properties").is_some_and(Value::is_object) && object.get("type").is_some();
            let growing = object.get("description").and_then(Value::as_str).is_some_and(|d| d.contains("More may be"));
            let closed = object.get("additionalProperties") == Some(&json!(false));
            assert!(!described || closed || growing || place.ends_with("/json_schema"), "{place} is open");
            object.iter().for_each(|(key, below)| open_objects(below, &format!("{place}/{key}")));
        }
        Value::Array(items) => items.iter().for_each(|below| open_objects(below, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_name_that_is_no_schema() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = crate::cli::run(dir.path(), &["schema", "nonsense"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("nonsense") && err.contains("encoder, error, features"), "{err}");
    let (code, out, _) = crate::cli::run(dir.path(), &["schema", "nonsense", "--json"]);
    assert_eq!(code, 2);
    assert!(out.contains("encoder, error, features"), "{out}");
}

#[test]
fn the_table_for_people() {
    let (code, out, err) = crate::cli::run(Path::new("."), &["schema"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    for command in names(&CATALOGUE["commands"]) {
        assert!(out.contains(&format!("\n{command}  ")) || out.starts_with(command), "{command}: {out}");
    }
    let ops: Vec<&str> =
        out.lines().skip_while(|l| !l.starts_with("op ")).take_while(|l| !l.starts_with("schemas")).collect();
    insta::assert_snapshot!(ops.join("\n"));
}

#[test]
fn help_and_readme_tell_the_exit_codes() {
    let readme = fs_err::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, help, _) = crate::cli::run(Path::new("."), &["--help"]);
    for exit in CATALOGUE["exit_codes"].as_array().unwrap() {
        let (code, meaning) = (&exit["code"], exit["meaning"].as_str().unwrap());
        assert!(readme.contains(&format!("\n| {code} | {meaning} |\n")), "{code} {meaning}");
        assert!(
            help.lines().any(|l| l.trim().strip_prefix(&code.to_string()).is_some_and(|l| l.trim() == meaning)),
            "{help}"
        );
    }
}

/// A call and what came of it.
struct Told {
    command: String,
    code: i32,
    json: Value,
}

/// Calls of every command and what they printed, each held against its schema.
struct Calls {
    dir: tempfile::TempDir,
    told: Vec<Told>,
}

impl Calls {
    /// A call whose words are parted by spaces; `@NAME` is a fixture.
    fn call(&mut self, code: i32, words: &str) {
        let fixtures = words.split(' ').map(|word| match word.strip_prefix('@') {
            Some(name) => fixture(name).to_str().unwrap().to_string(),
            None => word.to_string(),
        });
        let mut command = command(self.dir.path());
        command.args(fixtures).arg("--json").env("EG2_COREAI_PYTHON", coreai_python());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words}: {}", String::from_utf8_lossy(&output.stdout));
        self.keep(words, code, &output.stdout);
    }

    fn keep(&mut self, words: &str, code: i32, stdout: &[u8]) {
        let command = words.split(' ').next().unwrap().to_string();
        let json = holds(&command, stdout);
        self.told.push(Told { command, code, json });
    }
}

/// Results, unchanged and dry runs, what is not run, what failed, and errors of every command.
fn calls() -> Calls {
    let mut calls = Calls { dir: tempfile::tempdir().unwrap(), told: Vec::new() };
    let folder = calls.dir.path().to_path_buf();
    hybrid(&folder, "a.aimodelc");
    let other = hybrid(&folder, "b.aimodelc");
    other.write("resources", b"more");
    hybrid(&folder, "damaged.aimodelc").write("main.hash", b"short");
    Tree::empty(&folder, "empty.aimodelc").write("main.hash", &[0; 32]);
    Tree::empty(&folder, "a.mlmodelc");
    write_inputs(&folder.join("in"), 200, 198);
    Golden::of(198).write(&folder.join("clip.safetensors"));
    let wrong = Golden { tokens: |tokens| tokens.iter_mut().for_each(|v| *v = -*v), ..Golden::of(198) };
    wrong.write(&folder.join("wrong.safetensors"));
    let mixed = json!([{ "state": 1, "questions": {} }, { "state": null, "questions": {} }]);
    fs_err::write(folder.join("mixed.json"), mixed.to_string()).unwrap();
    let encoder = "encoder --bucket 200 --checkpoint @encoder_eg2";
    for (code, words) in [
        (0, "completions bash"),
        (0, "completions powershell"),
        (2, "completions tcsh"),
        (0, "schema"),
        (0, "schema record"),
        (2, "schema nonsense"),
        (0, "doctor"),
        (4, "doctor --strict"),
        (0, &format!("{encoder} --precision fp32 --format mlpackage,aimodel --emit mlir")),
        (0, &format!("{encoder} --precision fp32 --format mlpackage")),
        (0, &format!("{encoder} --precision int8 --format mlpackage --dry-run")),
        (0, &format!("{encoder} --precision fp16 --split-after 1 --format aimodel")),
        (4, &format!("{encoder} --precision fp16 --format mlpackage --strict")),
        (2, "encoder --bucket 3"),
        (3, "encoder"),
        (0, "reader --config @reader_plain/reader_config.json --tokens 40 --format mlpackage,aimodel"),
        (3, "reader --config absent"),
        (0, "laya --length 48 --checkpoint @laya_variants/own --format mlpackage"),
        (3, "laya --checkpoint absent"),
        (0, "laya --length 96 --checkpoint @laya --format mlpackage"),
        (0, "decide --artifact out/laya_fp16_L96.mlpackage --checkpoint @laya --state s --question q --options a b"),
        (
            0,
            "decide --artifact out/laya_fp16_L96.mlpackage --checkpoint @laya --state s --question q --type score --options a b",
        ),
        (0, "decide --artifact out/laya_fp16_L96.mlpackage --checkpoint @laya --state s --question q"),
        (3, "decide --artifact out/laya_fp16_L96.mlpackage --checkpoint @laya --request mixed.json"),
        (3, "decide --artifact out/laya_fp16_L96.mlpackage --checkpoint @laya --state s --question q --options a a"),
        (0, "inspect out/eg2_encoder_fp32_T200.mlpackage"),
        (0, "inspect @coremltools_spellings.mlpackage"),
        (0, "inspect out/eg2_encoder_fp32_T200.aimodel"),
        (0, "inspect @traced.aimodel"),
        (0, "inspect a.aimodelc"),
        (0, "inspect damaged.aimodelc"),
        (3, "inspect absent.mlpackage"),
        (0, "diff a.aimodelc a.aimodelc"),
        (4, "diff a.aimodelc b.aimodelc --exit-code"),
        (0, "diff out/eg2_encoder_fp32_T200.mlpackage out/eg2_encoder_fp32_T200.aimodel"),
        (3, "diff a.aimodelc absent"),
        (0, "regions a.aimodelc"),
        (0, "regions a.aimodelc --expect h16c=3,h18p=0"),
        (4, "regions a.aimodelc --expect 1"),
        (4, "regions a.aimodelc --expect h17=1"),
        (4, "regions damaged.aimodelc --expect 1"),
        (3, "regions absent.aimodelc"),
        (2, "regions a.aimodelc --expect one"),
        (0, "run out/eg2_encoder_fp32_T200.mlpackage --inputs in --outputs tokens --trace --profile"),
        (0, "run out/eg2_encoder_fp32_T200.aimodel --inputs in --outputs tokens2"),
        (3, "run out/eg2_encoder_fp32_T200.mlpackage --inputs absent --outputs o"),
        (0, "gate out/eg2_encoder_fp32_T200.mlpackage --golden clip.safetensors"),
        (4, "gate out/eg2_encoder_fp32_T200.mlpackage --golden wrong.safetensors"),
        (0, "gate out/eg2_reader_v0_fp16_T40.mlpackage --golden @reader_plain/golden_T40.safetensors --repeats 1"),
        (3, "gate out/eg2_encoder_fp32_T200.mlpackage --golden absent"),
        (0, "features @spoken.wav -o features --bucket 1000"),
        (3, "features in -o features"),
        (0, "transcribe @spoken.wav --encoder @encoder_eg2 --reader @reader_plain/reader_config.json --bucket 400"),
        (2, "transcribe @spoken.wav"),
        (0, "strip @traced.aimodel --out clean"),
        (3, "strip a.aimodelc --out clean"),
    ] {
        calls.call(code, words);
    }
    #[cfg(not(target_os = "macos"))]
    for words in ["regions a.mlmodelc", "regions a.mlmodelc --expect 1"] {
        calls.call(0, words);
    }
    calls.released();
    calls.compiled();
    calls.installed();
    calls.tried();
    calls
}

impl Calls {
    fn released(&mut self) {
        let folder = self.dir.path().to_path_buf();
        let recipe = encoder_recipe("\"mlpackage\"");
        fs_err::write(folder.join("tiny.toml"), &recipe).unwrap();
        let clips = fixture("encoder_eg2/clips");
        let wrong = recipe.replace(clips.to_str().unwrap(), "wrong.safetensors");
        fs_err::write(folder.join("wrong.toml"), wrong).unwrap();
        for (code, words) in [
            (0, "release tiny.toml"),
            (0, "release tiny.toml"),
            (4, "release wrong.toml"),
            (4, "release tiny.toml --strict"),
            (3, "release absent.toml"),
            (2, "release tiny.toml --shard 3"),
            (0, "verify dist/tiny"),
            (3, "verify absent"),
        ] {
            self.call(code, words);
        }
        fs_err::write(folder.join("dist/tiny/NOTICE"), "other").unwrap();
        self.call(4, "verify dist/tiny");
    }

    fn compiled(&mut self) {
        for (mode, code) in [("success", 0), ("partly", 4), ("killed", 5), ("other", 5), ("two", 5)] {
            let place = compile::Place::new();
            let output = place.command(mode, &CALL).arg("--json").output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{mode}");
            self.keep("compile", code, &output.stdout);
        }
        let place = compile::Place::new();
        let output = place.command("partly", &CALL).args(["--expect", "1", "--json"]).output().unwrap();
        self.keep("compile", 0, &output.stdout);
        place.tool("xcrun", compile::XCRUN);
        place.write("encoder.mlpackage/Manifest.json", "{}");
        let output = place.command("", &["compile", "encoder.mlpackage", "--out", "build", "--json"]).output().unwrap();
        self.keep("compile", 0, &output.stdout);
        for ending in ["aimodelc", "mlmodelc"] {
            let name = if ending == "aimodelc" { "encoder.h16c" } else { "encoder" };
            let record = place.at(&format!("build/{name}.{ending}.record.json"));
            holds("record", &fs_err::read(record).unwrap());
        }
    }

    fn tried(&mut self) {
        for (mode, code) in [("good", 0), ("same", 4), ("old_mac", 5)] {
            let mac = kit::Mac::new();
            let output = mac.command(mode, &["--json"]).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{mode}");
            self.keep("kit", code, &output.stdout);
        }
    }

    fn installed(&mut self) {
        let place = tools::Place::new(&["python3"]);
        for (code, mode, args) in [
            (5, "", &["tools", "install"][..]),
            (5, "mismatch", &["tools", "install", "--yes"]),
            (0, "", &["tools", "install", "--yes"]),
            (0, "", &["tools", "install"]),
            (0, "", &["tools", "remove"]),
            (0, "", &["tools", "remove"]),
        ] {
            let output = place.command(&[("MODE", mode)], args).args(["--json", "--quiet"]).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{args:?}");
            self.keep("tools", code, &output.stdout);
        }
    }
}

/// Every place of an object in `json`, but below those that may grow.
pub fn objects(json: &Value, place: &str, found: &mut Vec<String>) {
    match json {
        Value::Object(object) => {
            found.push(place.to_string());
            for (key, below) in object.iter().filter(|(key, _)| !["stages", "options"].contains(&key.as_str())) {
                let free = key == "figures" && object.keys().eq(["name", "figures"]) || key == "schemas";
                if !free {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    objects(below, &format!("{place}/{key}"), found);
                }
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, below)| objects(below, &format!("{place}/{at}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The same with something more at `place`, and with each key less there at the top.
fn twins(json: &Value) -> Vec<(String, Value)> {
    let mut places = Vec::new();
    objects(json, "", &mut places);
    // Of long lists of the like, some.
    let step = places.len().div_ceil(60);
    let more = places.into_iter().step_by(step).map(|place| {
        let mut twin = json.clone();
        twin.pointer_mut(&place).unwrap()["unexpected"] = Value::Null;
        (format!("with more at {place:?}"), twin)
    });
    let without = |key: &String| {
        let rest: Map<String, Value> =
            json.as_object().unwrap().clone().into_iter().filter(|(other, _)| other != key).collect();
        (format!("without {key}"), Value::Object(rest))
    };
    more.chain(json.as_object().unwrap().keys().map(without)).collect()
}

#[test]
fn every_command_prints_what_its_schema_says_and_nothing_else_would_do() {
    let calls = calls();
    let of = |done: bool| calls.told.iter().filter(move |t| (t.code == 0) == done).map(|t| t.command.as_str());
    let commands = names(&CATALOGUE["commands"]);
    assert_eq!(of(true).collect::<BTreeSet<_>>(), commands, "a result of each");
    assert_eq!(of(false).collect::<BTreeSet<_>>(), commands, "an error or a failed check of each");
    for Told { command, json, .. } in calls.told.iter().filter(|t| t.json.get("$schema").is_none()) {
        for (what, twin) in twins(json) {
            assert!(!VALIDATORS[command.as_str()].is_valid(&twin), "{command} {what} should not do");
        }
    }
    for folder in ["out", "clean"] {
        let written = crate::cli::listed(&calls.dir.path().join(folder));
        let records: Vec<_> = written.iter().filter(|name| name.ends_with(".record.json")).collect();
        assert!(!records.is_empty());
        for name in records {
            let record = holds("record", &fs_err::read(calls.dir.path().join(folder).join(name)).unwrap());
            for (what, twin) in twins(&record) {
                assert!(!VALIDATORS["record"].is_valid(&twin), "{name} {what} should not do");
            }
        }
    }
}

/// One call for each exit code but that of a bug.
#[test]
fn every_exit_code_is_reached() {
    let place = compile::Place::new();
    hybrid(place.dir.path(), "a.aimodelc");
    fs_err::create_dir(place.at("a.mlpackage")).unwrap();
    let calls: [(i32, &[&str]); 6] = [
        (0, &["regions", "a.aimodelc", "--json"]),
        (2, &["regions", "a.aimodelc", "--expect", "one", "--json"]),
        (3, &["regions", "absent.aimodelc", "--json"]),
        (4, &["regions", "a.aimodelc", "--expect", "9", "--json"]),
        (5, &[&CALL[..], &["--json"]].concat()),
        (6, &["run", "a.mlpackage", "--runtime", "coreai", "--inputs", "i", "--outputs", "o", "--json"]),
    ];
    let mut reached: BTreeSet<i32> = [interrupted(&place)].into();
    for (want, args) in calls {
        let (code, out, _) = place.run("other", args);
        assert_eq!(code, want, "{args:?}: {out}");
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["error"]["exit_code"].as_i64().unwrap_or(want.into()), i64::from(want), "{out}");
        reached.insert(code);
    }
    let codes = CATALOGUE["exit_codes"].as_array().unwrap().iter().map(|exit| exit["code"].as_i64().unwrap());
    assert_eq!(
        reached.into_iter().map(i64::from).collect::<Vec<_>>(),
        codes.filter(|code| *code != 1).collect::<Vec<_>>()
    );
}

/// The exit code of a job that Ctrl-C ends.
fn interrupted(place: &compile::Place) -> i32 {
    let mut ours = std::process::Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"));
    ours.current_dir(place.dir.path()).args(CALL).arg("--json").env("MODE", "hang").stdout(Stdio::piped());
    ours.env("PATH", format!("{}:/usr/bin:/bin", place.at("bin").display()));
    let ours = ours.spawn().unwrap();
    pids(place);
    let told = std::process::Command::new("kill").args(["-INT", &ours.id().to_string()]).status().unwrap();
    assert!(told.success());
    let output = ours.wait_with_output().unwrap();
    let json = holds("compile", &output.stdout);
    assert_eq!(json["error"]["kind"], "interrupted");
    output.status.code().unwrap()
}
