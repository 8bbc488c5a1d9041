//! The forms of recipes, of records of releases and of what `verify` tells, and the files of `provenance/`, which
//! `EG2_UPDATE_EXAMPLES=1 cargo test --test it provenance` writes anew.

use crate::cli::run;
use crate::release::released;
use crate::schema::{CATALOGUE, faults, holds, objects};
use eg2_convert::recipe::Recipe;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The file of `provenance/` is `text`, to the byte.
fn kept(name: &str, text: &str) {
    let path = root("provenance").join(name);
    if std::env::var_os("EG2_UPDATE_EXAMPLES").is_some() {
        fs_err::write(&path, text).unwrap();
    }
    let kept = fs_err::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(text.lines()).position(|(a, b)| a != b);
    let at = first.map(|n| n + 1);
    assert!(kept == text, "provenance/{name} differs, first in line {at:?}; see the head of this file");
}

/// As [`kept`], but for the gate's figures, whose last digits go with the kernels of the machine that multiplies.
fn kept_but_for_figures(name: &str, text: &str) {
    fn without(value: &mut Value) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    match key.as_str() {
                        "says" => *value = Value::Null,
                        "number" => *value = json!((value.as_f64().unwrap() * 1e3).round()),
                        _ => without(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(without),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let bare = |text: &str| {
        let mut value: Value = serde_json::from_str(text).unwrap_or_default();
        without(&mut value);
        value
    };
    let there = fs_err::read_to_string(root("provenance").join(name)).unwrap_or_default();
    if bare(&there) != bare(text) || std::env::var_os("EG2_UPDATE_EXAMPLES").is_some() {
        kept(name, text);
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
}

#[test]
fn the_schemas_that_are_kept() {
    let (code, printed, _) = run(Path::new("."), &["schema", "release_record"]);
    assert_eq!(code, 0);
    kept("release.schema.json", &printed);
    let (_, printed, _) = run(Path::new("."), &["schema", "device_record"]);
    kept("device.schema.json", &printed);
    for (name, file) in
        [("record", "record"), ("recipe", "recipe"), ("release_record", "release"), ("device_record", "device")]
    {
        assert_eq!(CATALOGUE["schemas"][name], json(&root(&format!("provenance/{file}.schema.json"))), "{name}");
    }
}

#[test]
fn the_example_is_what_its_recipe_makes() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = root("provenance/example.recipe.toml");
    let (code, out, err) = run(dir.path(), &["release", recipe.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let record = fs_err::read_to_string(dir.path().join("dist/example/release.json")).unwrap();
    kept_but_for_figures("example.release.json", &record);
    let record = holds("release_record", record.as_bytes());
    assert_eq!(record["synthetic"], true);
}

/// A recipe as the schema sees it.
fn form(text: &str) -> Value {
    toml::from_str(text).unwrap()
}

/// The same with a key more, once for each table.
fn with_more(json: &Value) -> Vec<(String, Value)> {
    let mut places = Vec::new();
    objects(json, "", &mut places);
    let with = |place: String| {
        let mut twin = json.clone();
        twin.pointer_mut(&place).unwrap()["unexpected"] = json!("x");
        (place, twin)
    };
    places.into_iter().map(with).collect()
}

#[test]
fn recipes_are_as_their_schema_says() {
    let mut recipes = vec![root("provenance/example.recipe.toml")];
    for folder in ["recipes", "recipes/tiny", "recipes/synthetic"] {
        let files = fs_err::read_dir(root(folder)).unwrap().map(|entry| entry.unwrap().path());
        recipes.extend(files.filter(|path| path.extension().is_some_and(|ending| ending == "toml")));
    }
    assert!(recipes.len() >= 20);
    for path in recipes {
        let recipe = form(&fs_err::read_to_string(&path).unwrap());
        assert_eq!(faults("recipe", &recipe), Vec::<String>::new(), "{}", path.display());
        for (place, twin) in with_more(&recipe) {
            assert_ne!(faults("recipe", &twin), Vec::<String>::new(), "{} with more at {place:?}", path.display());
        }
    }
}

const ENCODER: &str = "version = 1
model = \"encoder\"
precision = \"fp16\"
formats = [\"mlpackage\", \"aimodel\"]
buckets = [1000, 3000]
[source]
revision = \"914f7f89\"
[source.sha256]
\"model.safetensors\" = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"
[[compile]]
platform = \"macOS\"
architectures = [\"h16c\"]
prefer = \"neural-engine\"
regions = 1
[gate]
goldens = [\"clips\"]
limits = { cosine_mean = 0.9999 }
";

const LAYA: &str = "version = 1
model = \"laya\"
precision = \"fp16\"
formats = [\"mlpackage\", \"aimodel\"]
lengths = [96, 192]
[source]
checkpoint = \"laya\"
[gate]
questions = [\"set.json\"]
limits = { probability = 0.02 }
";

const READER: &str = "version = 1
model = \"reader\"
precision = \"fp32\"
formats = [\"mlpackage\"]
tokens = 40
[source]
seed = 3
words = 100
";

/// Whether schema and program both take `text`, which they have to agree on.
fn taken(text: &str) -> bool {
    let own = Recipe::parse(text.into(), "name", Path::new("")).map(|_| ()).map_err(|e| e.to_string());
    let by_schema = faults("recipe", &form(text));
    assert_eq!(own.is_ok(), by_schema.is_empty(), "{own:?}, {by_schema:?}\n{text}");
    own.is_ok()
}

#[test]
fn the_schema_takes_the_recipes_that_the_program_takes() {
    let taken = |base: &str, old: &str, new: &str| {
        assert!(base.contains(old), "{old}");
        taken(&base.replacen(old, new, 1))
    };
    for (old, new) in [
        ("", ""),
        ("version = 1", "version = 1\nname = \"a.b-c_1\"\nsplit_after = 7"),
        ("\"fp16\"", "\"int8\""),
        ("regions = 1", ""),
        ("regions = 1", "regions = { h16c = 2 }"),
        ("\"ba7816bf", "\"BA7816BF"),
        ("cosine_mean = 0.9999", "cosine_mean = 1, wer_points = 0.5"),
        ("goldens", "formats = [\"aimodel\"]\nrepeats = 1000\naudio = [\"a.wav\"]\nreader = \"r.mlpackage\"\ngoldens"),
        ("revision", "license = \"MIT\"\nlicense_file = \"LICENSE\"\nsynthetic = true\nrevision"),
        ("revision", "license = \"Apache-2.0\"\ncheckpoint = \"a\"\nconfig = \"b\"\nrevision"),
    ] {
        assert!(taken(ENCODER, old, new), "{new}");
    }
    for (old, new) in [
        ("version = 1", ""),
        ("version = 1", "version = 2"),
        ("version = 1", "version = 1\nname = \"../up\""),
        ("version = 1", "version = 1\nname = \".hidden\""),
        ("version = 1", "version = 1\nsplit_after = 6"),
        ("version = 1", "version = 1\ntokens = 750"),
        ("version = 1", "version = 1\nrelease_name = \"v2\""),
        ("encoder", "decoder"),
        ("model = \"encoder\"", ""),
        ("precision = \"fp16\"", ""),
        ("\"fp16\"", "\"bf16\""),
        ("formats = [\"mlpackage\", \"aimodel\"]", ""),
        ("[\"mlpackage\", \"aimodel\"]", "[]"),
        ("[\"mlpackage\", \"aimodel\"]", "[\"aimodel\", \"aimodel\"]"),
        ("[\"mlpackage\", \"aimodel\"]", "[\"mlpackage\"]"),
        ("[\"mlpackage\", \"aimodel\"]", "[\"mlmodelc\"]"),
        ("buckets = [1000, 3000]", ""),
        ("[1000, 3000]", "[]"),
        ("[1000, 3000]", "[1002]"),
        ("[1000, 3000]", "[0]"),
        ("[1000, 3000]", "[16388]"),
        ("[1000, 3000]", "[3000, 3000]"),
        ("revision", "commit"),
        ("revision", "license = \"MIT\"\nrevision"),
        ("revision", "license_file = \"LICENSE\"\nrevision"),
        ("revision = \"914f7f89\"", "revision = \"914\\nf7f89\""),
        ("revision", "repository = \"a\\u001b[2J\"\nrevision"),
        ("revision", "license = \"MIT\\u2028\"\nlicense_file = \"LICENSE\"\nrevision"),
        ("revision", "license = \"MIT\\u202e\"\nlicense_file = \"LICENSE\"\nrevision"),
        ("revision", "words = 5\nrevision"),
        ("revision", "seed = 5\ncheckpoint = \"a\"\nrevision"),
        ("revision", "seed = -1\nrevision"),
        ("\"ba7816bf", "\"ba7816b"),
        ("macOS", "watchOS"),
        ("[\"h16c\"]", "[]"),
        ("[\"h16c\"]", "[\"m4\"]"),
        ("[\"h16c\"]", "[\"h16c\", \"h16c\"]"),
        ("neural-engine", "cpu"),
        ("regions = 1", "regions = -1"),
        ("regions = 1", "regions = \"1\""),
        ("regions = 1", "regions = { h16c = -1 }"),
        ("goldens = [\"clips\"]", "goldens = \"clips\""),
        ("goldens", "repeats = 0\ngoldens"),
        ("goldens", "repeats = 1001\ngoldens"),
        ("goldens", "formats = []\ngoldens"),
        ("goldens", "formats = [\"x\"]\ngoldens"),
        ("cosine_mean", "cosine"),
        ("cosine_mean = 0.9999", "cosine_mean = 1.5"),
        ("cosine_mean = 0.9999", "margin = -1"),
        ("cosine_mean = 0.9999", "flips_percent = 101"),
        ("cosine_mean = 0.9999", "transcripts_percent = -1"),
        ("cosine_mean = 0.9999", "wer_points = -0.1"),
    ] {
        assert!(!taken(ENCODER, old, new), "{new}");
    }
    for (old, new) in
        [("", ""), ("words = 100", ""), ("seed = 3\nwords = 100", ""), ("tokens", "release_name = \"v2\"\ntokens")]
    {
        assert!(taken(READER, old, new), "{new}");
    }
    for (old, new) in [
        ("fp32", "int8"),
        ("tokens = 40", ""),
        ("tokens = 40", "tokens = 0"),
        ("tokens = 40", "tokens = 4097"),
        ("tokens = 40", "buckets = [40]\ntokens = 40"),
        ("tokens = 40", "split_after = 7\ntokens = 40"),
        ("tokens = 40", "release_name = \"../x\"\ntokens = 40"),
        ("words = 100", "words = 0"),
        ("words = 100", "words = 1000001"),
        ("seed = 3", ""),
        ("seed = 3\nwords = 100", "checkpoint = \"x\""),
    ] {
        assert!(!taken(READER, old, new), "{new}");
    }
    for (old, new) in [
        ("", ""),
        ("[96, 192]", "[16, 2048]"),
        ("checkpoint = \"laya\"", ""),
        ("probability = 0.02", "probability = 0"),
        ("[gate]", "[[compile]]\nplatform = \"macOS\"\narchitectures = [\"h16c\"]\nprefer = \"gpu\"\n[gate]"),
        ("checkpoint = \"laya\"\n[gate]\nquestions = [\"set.json\"]\nlimits = { probability = 0.02 }", "seed = 3"),
    ] {
        assert!(taken(LAYA, old, new), "{new}");
    }
    for (old, new) in [
        ("[96, 192]", "[]"),
        ("[96, 192]", "[15]"),
        ("[96, 192]", "[2049]"),
        ("[96, 192]", "[96, 96]"),
        ("lengths = [96, 192]", ""),
        ("lengths = [96, 192]", "lengths = [96]\ntokens = 96"),
        ("lengths = [96, 192]", "lengths = [96]\nbuckets = [96]"),
        ("fp16", "int8"),
        ("checkpoint = \"laya\"", "seed = 3"),
        ("checkpoint = \"laya\"", "words = 3"),
        ("questions", "audio = [\"a.wav\"]\nquestions"),
        ("questions", "words = \"w.txt\"\nquestions"),
        ("questions", "transcripts = \"t.tsv\"\nquestions"),
        ("questions", "wer = \"t.tsv\"\nquestions"),
        ("questions", "reader = \"r.mlpackage\"\nquestions"),
        ("questions", "encoder = \"e.mlpackage\"\nquestions"),
        ("probability = 0.02", "probability = 1.01"),
    ] {
        assert!(!taken(LAYA, old, new), "{new}");
    }
    assert!(!taken(ENCODER, "goldens", "questions = [\"set.json\"]\ngoldens"));
    assert!(!taken(ENCODER, "version = 1", "version = 1\nlengths = [96]"));
}

#[test]
fn a_release_is_as_its_schemas_say_and_nothing_else_would_do() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let record = holds("release_record", &fs_err::read(release.join("release.json")).unwrap());
    for (place, twin) in with_more(&record) {
        assert_ne!(faults("release_record", &twin), Vec::<String>::new(), "with more at {place:?}");
    }
    let edits: [(&str, Value); 13] = [
        ("/release_version", json!(2)),
        ("/name", json!("../up")),
        ("/model", json!("decoder")),
        ("/source/kind", json!("bundle")),
        ("/recipe_sha256", json!("0")),
        ("/artefacts/0/format", json!("onnx")),
        ("/artefacts/0/strip/reason", json!("none")),
        ("/artefacts/0/loads_on_device/reason", Value::Null),
        ("/artefacts/0/loads_on_device/outcome", json!("skipped")),
        ("/artefacts/0/gate/judged", Value::Null),
        ("/artefacts/0/gate/judged/checks/1/measures/0/bound", json!("above")),
        ("/artefacts/0/gate/judged/evidence/0/kind", json!("rumour")),
        ("/artefacts/0/gate/judged/runtime", json!("device")),
    ];
    refused("release_record", &record, edits);
    let statement = holds("statement", &fs_err::read(release.join("release.intoto.json")).unwrap());
    let edits: [(&str, Value); 6] = [
        ("/_type", json!("https://in-toto.io/Statement/v0.1")),
        ("/predicateType", json!("https://slsa.dev/provenance/v0.2")),
        ("/subject", json!([])),
        ("/subject/0/digest/sha256", json!("0")),
        ("/predicate/buildDefinition/buildType", json!("other")),
        ("/predicate/buildDefinition/externalParameters", json!({})),
    ];
    refused("statement", &statement, edits);
    // Whoever signs it may add annotations.
    let mut more = statement;
    more["subject"][0]["annotations"] = json!({ "by": "x" });
    assert_eq!(faults("statement", &more), Vec::<String>::new());
}

/// None of the edits makes a `name`.
fn refused<const N: usize>(name: &str, good: &Value, edits: [(&str, Value); N]) {
    for (place, value) in edits {
        let mut twin = good.clone();
        let old = std::mem::replace(twin.pointer_mut(place).unwrap(), value);
        assert_ne!(faults(name, &twin), Vec::<String>::new(), "{place} instead of {old}");
    }
}

/// Changes of a release, each of which gives a fault of another kind.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 13] = [
    ("changed", |release| fs_err::write(release.join("LICENSE"), "other").unwrap()),
    ("missing", |release| fs_err::remove_file(release.join("NOTICE")).unwrap()),
    ("extra", |release| fs_err::write(release.join("more"), "").unwrap()),
    ("unreadable", |release| std::os::unix::fs::symlink("README.md", release.join("link")).unwrap()),
    ("line", |release| fs_err::write(release.join("SHA256SUMS"), "x\n").unwrap()),
    ("text", |release| fs_err::write(release.join("README.md"), "other").unwrap()),
    ("form", |release| edit(release, "release.json", |text| text.replacen("{\n", "{\n\n", 1))),
    ("record", |release| fs_err::write(release.join("release.json"), "{").unwrap()),
    ("recipe", |release| fs_err::write(release.join("recipe.toml"), "version = 9").unwrap()),
    ("field", |release| {
        edit(release, "release.json", |text| text.replace("\"synthetic\": true", "\"synthetic\": false"))
    }),
    ("check", |release| {
        edit(release, "release.json", |text| text.replace("\"outcome\": \"pass\"", "\"outcome\": \"fail\""))
    }),
    ("device", |release| {
        let other = r#""devices": [{
            "device_version": 1, "release": "other", "release_sha256": "DIGEST", "results": [], "programs": [],
            "tool": { "name": "eg2-convert", "version": "0" }, "machine": { "model": "Mac16,5", "system": "26.0" },
            "protocol": { "rounds": 2, "warmups": 1, "runs": 1 }
        }]"#;
        let other = other.replace("DIGEST", &"0".repeat(64));
        edit(release, "release.json", |text| text.replace("\"devices\": []", &other));
    }),
    ("bundle", |release| {
        fs_err::write(release.join("eg2_encoder_fp32_T200.mlpackage/Manifest.json"), "{}").unwrap();
    }),
];

fn edit(release: &Path, file: &str, change: impl Fn(&str) -> String) {
    let text = fs_err::read_to_string(release.join(file)).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text);
    fs_err::write(release.join(file), changed).unwrap();
}

#[test]
fn faults_of_every_kind_are_as_the_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let files = crate::release::contents(&release);
    let mut found = BTreeSet::new();
    for (kind, change) in CHANGES {
        let copy = dir.path().join(kind);
        for (path, bytes) in &files {
            fs_err::create_dir_all(copy.join(path).parent().unwrap()).unwrap();
            fs_err::write(copy.join(path), bytes).unwrap();
        }
        change(&copy);
        // Held against the schema by `run`.
        let (code, out, _) = run(dir.path(), &["verify", kind, "--json"]);
        let told: Value = serde_json::from_str(&out).unwrap();
        let kinds: Vec<&str> = told["releases"][0]["faults"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fault| fault["kind"].as_str().unwrap())
            .collect();
        assert!(code == 4 && kinds.contains(&kind), "{kind}: {kinds:?}");
        found.extend(kinds.into_iter().map(str::to_string));
    }
    let schema = CATALOGUE["schemas"]["verify"]["$defs"]["release_fault"]["oneOf"].as_array().unwrap();
    let all: BTreeSet<String> =
        schema.iter().map(|fault| fault["properties"]["kind"]["const"].as_str().unwrap().into()).collect();
    assert_eq!(found, all);
}
