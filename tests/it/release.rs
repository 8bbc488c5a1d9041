//! `release`: recipes to folders, as whoever cuts a release meets it.

use crate::cli::{command, fixture, listed, run};
use crate::compiled_tree::Tree;
use crate::python::coreai_python;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/tiny")
}

/// A recipe of the small encoder, all of it, with golden clips.
pub fn encoder_recipe(formats: &str) -> String {
    let at = |path: &str| fixture(path).display().to_string();
    format!(
        "version = 1\nmodel = \"encoder\"\nprecision = \"fp32\"\nformats = [{formats}]\nbuckets = [200]\n[source]\n\
         synthetic = true\ncheckpoint = \"{}\"\n[source.sha256]\n\
         \"model.safetensors\" = \"50eb455e4682e4691e3cca8efed42342c7c4a52ae040f1e3dd32937e9bc0687d\"\n\
         \"config.json\" = \"67a68b0bc729d8bbfbcdd5f35df46d777c3bca0648afbf62af76ec725c7a7476\"\n[gate]\ngoldens = [\"{}\"]\n",
        at("encoder_eg2"),
        at("encoder_eg2/clips"),
    )
}

/// Writes a recipe and gives its path.
pub fn recipe(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    fs_err::write(&path, text).unwrap();
    path.display().to_string()
}

/// Releases the small encoder as a package into `dist/enc`, once for all tests that only look at it.
pub fn released(folder: &Path) -> PathBuf {
    let recipe = recipe(folder, "enc", &encoder_recipe("\"mlpackage\""));
    let (code, out, err) = run(folder, &["release", &recipe]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    folder.join("dist/enc")
}

/// Every file of a folder, hidden folders apart, by its path in it.
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs_err::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with('.') {
                continue;
            }
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(name, fs_err::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    if folder.exists() {
        walk(folder, folder, &mut found);
    }
    found
}

fn record(release: &Path) -> Value {
    serde_json::from_slice(&fs_err::read(release.join("release.json")).unwrap()).unwrap()
}

/// Numbers and digests that go with the machine's clock or the program's version.
fn redacted(text: &str) -> String {
    let mut settings = Vec::new();
    for line in text.lines() {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| match word {
                word if word.parse::<f64>().is_ok() && word.contains('.') => "[s]".to_string(),
                word if word.len() == 64 => "[digest]".to_string(),
                word => word.to_string(),
            })
            .collect();
        settings.push(words.join(" "));
    }
    settings.join("\n")
}

fn release_both(folder: &Path, more: &[&str]) -> (i32, String, String) {
    let recipes = recipes();
    let args = [&["release", recipes.to_str().unwrap()], more].concat();
    let output = command(folder).env("EG2_COREAI_PYTHON", coreai_python()).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn both_formats_of_the_small_models() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = release_both(dir.path(), &[]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    insta::assert_snapshot!(redacted(&out));
    let dist = dir.path().join("dist");
    assert_eq!(
        listed(&dist),
        [
            ".release",
            "encoder-tiny-fp32",
            "encoder-tiny-seeded",
            "encoder-tiny-split",
            "laya-tiny-fp16",
            "laya-tiny-fp32",
            "reader-tiny-fp16"
        ]
    );
    let first = contents(&dist);
    for (name, bundles) in [
        ("encoder-tiny-fp32", 2),
        ("encoder-tiny-seeded", 2),
        ("laya-tiny-fp16", 2),
        ("laya-tiny-fp32", 2),
        ("reader-tiny-fp16", 2),
    ] {
        let checked = std::process::Command::new("sha256sum")
            .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
            .current_dir(dist.join(name))
            .status();
        assert!(checked.unwrap().success());
        let record = record(&dist.join(name));
        assert_eq!((&record["synthetic"], &record["pinned"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(record["artefacts"].as_array().unwrap().len(), bundles);
    }
    let split = record(&dist.join("encoder-tiny-split"));
    for bundle in split["artefacts"].as_array().unwrap() {
        let front = bundle["name"].as_str().unwrap().contains("front");
        let (outcome, body) = (&bundle["gate"]["outcome"], &bundle["gate"]["judged"]["body"]["name"]);
        assert_eq!((outcome == "pass", body.is_string()), (front, front), "{bundle}");
    }
    let (code, out, _) = release_both(dir.path(), &["--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    for release in told["releases"].as_array().unwrap() {
        assert_eq!((&release["outcome"], &release["no_work"]), (&"unchanged".into(), &true.into()), "{out}");
        let stages = release["stages"].as_array().unwrap();
        assert!(stages.iter().all(|stage| stage["reused"] == true), "{out}");
    }
    assert_eq!(contents(&dist), first);
    // Without the folder, the cache alone makes it again.
    fs_err::remove_dir_all(dist.join("reader-tiny-fp16")).unwrap();
    let (code, out, _) = release_both(dir.path(), &["--json", "--only", "reader-tiny-fp16"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    let stages = told["releases"][0]["stages"].as_array().unwrap().clone();
    let made: Vec<&Value> = stages.iter().filter(|stage| stage["reused"] == false).map(|s| &s["stage"]).collect();
    assert_eq!((code, made), (0, vec![&Value::from("publish")]));
    assert_eq!(contents(&dist), first);
    let args: Vec<String> =
        ["encoder-tiny-fp32", "encoder-tiny-seeded", "reader-tiny-fp16"].map(|name| format!("dist/{name}")).into();
    let args: Vec<&str> = ["verify"].into_iter().chain(args.iter().map(String::as_str)).collect();
    let (code, out, err) = run(dir.path(), &args);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
}

#[test]
fn a_release_that_was_killed_goes_on_and_ends_the_same() {
    let undisturbed = tempfile::tempdir().unwrap();
    let started = Instant::now();
    assert_eq!(release_both(undisturbed.path(), &[]).0, 0);
    let whole = started.elapsed();
    let expected = contents(&undisturbed.path().join("dist"));
    let dir = tempfile::tempdir().unwrap();
    let recipes = recipes();
    let mut killed = 0;
    for point in 1..=10 {
        // Spread over all of it; what earlier rounds finished is not done again, so later ones come to other stages.
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"))
            .args(["release", recipes.to_str().unwrap(), "-q"])
            .current_dir(dir.path())
            .env("EG2_COREAI_PYTHON", coreai_python())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(point) / 25.0).max(Duration::from_millis(20)));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            killed += 1;
        }
        child.wait().unwrap();
        // A folder that is there is whole.
        for (path, bytes) in contents(&dir.path().join("dist")) {
            assert_eq!(expected.get(&path), Some(&bytes), "{path} after {point}");
        }
    }
    assert!(killed > 0);
    assert_eq!(release_both(dir.path(), &[]).0, 0);
    assert_eq!(contents(&dir.path().join("dist")), expected);
    assert!(listed(&dir.path().join("dist/.release/work")).is_empty(), "what killed ones left is removed");
}

/// The message for a recipe that is `text`, released with more arguments.
fn refused(text: &str, more: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let recipe = recipe(dir.path(), "bad", text);
    let (code, out, err) = run(dir.path(), &[&["release", &recipe], more].concat());
    assert_eq!(out, "");
    assert_eq!(contents(&dir.path().join("dist")), BTreeMap::new(), "nothing is published");
    let hide = |text: String| text.replace(dir.path().to_str().unwrap(), "[dir]");
    (code, hide(err))
}

#[test]
fn recipes_that_are_refused() {
    let good = encoder_recipe("\"mlpackage\"");
    let with = |old: &str, new: &str| {
        assert!(good.contains(old), "{old}");
        refused(&good.replace(old, new), &[])
    };
    let (code, told) = with("buckets", "bukets");
    assert_eq!(code, 3);
    insta::assert_snapshot!(told, @r"
    error: recipe [dir]/bad.toml cannot be used
      caused by: TOML parse error at line 5, column 1
      |
    5 | bukets = [200]
      | ^^^^^^
    unknown field `bukets`, expected one of `version`, `name`, `model`, `precision`, `formats`, `buckets`, `split_after`, `tokens`, `lengths`, `release_name`, `source`, `compile`, `gate`
    ");
    let (code, told) = with("version = 1", "version = 9");
    assert_eq!(code, 3);
    insta::assert_snapshot!(told, @"
    error: recipe [dir]/bad.toml cannot be used
      caused by: version is 9, expected 1
    ");
    let (code, told) = with("= \"50eb455e", "= \"00000000");
    assert_eq!(code, 3);
    insta::assert_snapshot!(told, @"
    error: release bad was not made
      caused by: source file model.safetensors has sha256 50eb455e4682e4691e3cca8efed42342c7c4a52ae040f1e3dd32937e9bc0687d, the recipe wants 000000004682e4691e3cca8efed42342c7c4a52ae040f1e3dd32937e9bc0687d
    ");
    let (code, told) = with("\"config.json\"", "\"conf.json\"");
    assert_eq!(code, 3);
    insta::assert_snapshot!(told, @"
    error: release bad was not made
      caused by: the recipe has a sha256 of conf.json, which is not read; read are model.safetensors, config.json
    ");
    let (code, told) = with("\"mlpackage\"", "\"aimodel\"");
    assert_eq!(code, 5);
    insta::assert_snapshot!(told, @"
    error: release bad was not made
      caused by: the recipe asks for an .aimodel, and Apple's serializer is not installed; run `eg2-convert tools install`
    ");
    let (code, told) = refused(&good, &["--only", "other"]);
    assert_eq!(code, 2);
    insta::assert_snapshot!(told, @r#"error: --only names "other", which no recipe releases; they release bad"#);
    let unpinned: String = good.split("[source.sha256]").next().unwrap().into();
    let (code, told) = refused(&unpinned, &[]);
    assert_eq!(code, 2);
    insta::assert_snapshot!(told, @r#"
    error: release bad was not made
      caused by: the recipe is unpinned: it has no sha256 of model.safetensors, config.json. If these files are the right ones, put under [source.sha256]:
      "model.safetensors" = "50eb455e4682e4691e3cca8efed42342c7c4a52ae040f1e3dd32937e9bc0687d"
      "config.json" = "67a68b0bc729d8bbfbcdd5f35df46d777c3bca0648afbf62af76ec725c7a7476"
    or release it as unpinned with --allow-unpinned
    "#);
}

#[test]
fn files_that_a_recipe_names_and_that_cannot_be_read() {
    let good = encoder_recipe("\"mlpackage\"");
    let config = fixture("encoder_eg2/config.json").display().to_string();
    let clips = fixture("encoder_eg2/clips").display().to_string();
    for (old, new, part) in [
        ("[source]", "[source]\nlicense = \"MIT\"\nlicense_file = \"gone\"".to_string(), "source.license_file, "),
        ("[gate]", format!("[gate]\nwords = \"{clips}\""), "clips, which the recipe's gate names, could not be read"),
        (
            "[gate]",
            format!("[gate]\nreader = \"{config}\""),
            "config.json, which the recipe's gate names, is no artefact",
        ),
    ] {
        let (code, told) = refused(&good.replace(old, &new), &[]);
        assert!(code == 3 && told.contains(part), "{code}: {told}");
    }
}

#[test]
fn a_bundle_that_is_written_to_behind_its_gate_is_not_released() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = recipe(dir.path(), "enc", &encoder_recipe("\"mlpackage\", \"aimodel\""));
    // The package is judged first; it is written to when Apple's runtime is asked for the other.
    let python = dir.path().join("python");
    let release = |text: &str| {
        let script = format!(
            "#!/bin/sh\nfor file in {}/dist/.release/work/*/.enc.*/enc/*.mlpackage/Manifest.json; do\n\
             [ -f \"$file\" ] && printf '{text}' >> \"$file\"\ndone\nexec {} \"$@\"\n",
            dir.path().display(),
            coreai_python().display()
        );
        fs_err::write(&python, script).unwrap();
        fs_err::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = command(dir.path()).env("EG2_COREAI_PYTHON", &python).args(["release", &recipe]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = release(" ");
    let part = "eg2_encoder_fp32_T200.mlpackage/Manifest.json was changed between its gate and its publication";
    assert!(code == 4 && told.contains(part), "{code}: {told}");
    assert!(contents(&dir.path().join("dist")).is_empty());
    assert_eq!(release("").0, 0);
    assert_eq!(run(dir.path(), &["verify", "dist/enc"]).0, 0);
}

#[test]
fn a_function_without_a_golden_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = recipe(dir.path(), "enc", &encoder_recipe("\"mlpackage\"").replace("[200]", "[100, 200]"));
    let (code, out, _) = run(dir.path(), &["release", &recipe]);
    assert!(code == 0 && out.contains("functions: not run (no golden has the length of T100)"), "{out}");
    let (code, out, _) = run(dir.path(), &["verify", "dist/enc"]);
    assert!(code == 0 && out.contains("gate.functions (no golden has the length of T100)"), "{out}");
}

#[test]
fn a_source_that_is_written_to_meanwhile_is_not_released() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    fs_err::create_dir(&copy).unwrap();
    for name in ["model.safetensors", "config.json"] {
        fs_err::copy(fixture("encoder_eg2").join(name), copy.join(name)).unwrap();
    }
    let text = encoder_recipe("\"aimodel\"").split("[gate]").next().unwrap().to_string();
    let text = text.replace(fixture("encoder_eg2").to_str().unwrap(), copy.to_str().unwrap());
    let recipe = recipe(dir.path(), "enc", &text);
    // Written to and as it was again, when only this program's own hashes could tell.
    let python = dir.path().join("python");
    let script = |model: &str| format!("#!/bin/sh\ntouch {model}\nexec {} \"$@\"\n", coreai_python().display());
    let release = |model: &str| {
        fs_err::write(&python, script(model)).unwrap();
        fs_err::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = command(dir.path()).env("EG2_COREAI_PYTHON", &python).args(["release", &recipe]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = release(copy.join("model.safetensors").to_str().unwrap());
    assert!(code == 3 && told.contains("source file model.safetensors was written to while it was read"), "{told}");
    assert!(contents(&dir.path().join("dist")).is_empty());
    assert_eq!(release("other").0, 0, "nothing of it was kept");
}

#[test]
fn an_unpinned_release_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let unpinned: String = encoder_recipe("\"mlpackage\"").split("[source.sha256]").next().unwrap().into();
    let recipe = recipe(dir.path(), "loose", &unpinned);
    let (code, out, _) = run(dir.path(), &["release", &recipe, "--allow-unpinned"]);
    assert_eq!(code, 0);
    assert!(out.contains("unpinned"), "{out}");
    let release = dir.path().join("dist/loose");
    let record = record(&release);
    assert_eq!((&record["pinned"], &record["source"]["files"][0]["pinned"]), (&false.into(), &false.into()));
    assert!(fs_err::read_to_string(release.join("README.md")).unwrap().contains("Unpinned"));
    assert_eq!(run(dir.path(), &["verify", "dist/loose"]).0, 0);
}

#[test]
fn two_recipes_of_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    let text = encoder_recipe("\"mlpackage\"").replace("version = 1", "version = 1\nname = \"Same\"");
    let [a, b] = ["a", "b"].map(|name| recipe(dir.path(), name, &text));
    fs_err::write(&b, text.replace("Same", "same")).unwrap();
    let (code, _, err) = run(dir.path(), &["release", &a, &b]);
    assert_eq!((code, dir.path().join("dist").exists()), (2, false));
    insta::assert_snapshot!(err.replace(dir.path().to_str().unwrap(), "[dir]"), @"error: recipes [dir]/a.toml and [dir]/b.toml both release same, into one folder");
}

#[test]
fn a_gate_without_goldens_is_not_run() {
    let good = encoder_recipe("\"mlpackage\"");
    let clips = fixture("encoder_eg2/clips").display().to_string();
    for (text, reason) in [
        (good.split("[gate]").next().unwrap().to_string(), "the recipe has no gate"),
        (good.replace(&format!("goldens = [\"{clips}\"]"), ""), "the recipe names nothing to judge by"),
        (good.replace(&clips, "gone"), "gone is not there"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let recipe = recipe(dir.path(), "enc", &text);
        let (code, out, _) = run(dir.path(), &["release", &recipe]);
        assert_eq!(code, 0, "{out}");
        assert!(out.contains(&format!("not run ({reason})")), "{out}");
        let record = record(&dir.path().join("dist/enc"));
        assert_eq!(record["artefacts"][0]["gate"]["outcome"], "not_run");
        assert_eq!(run(dir.path(), &["release", &recipe, "--strict"]).0, 4, "red");
        assert_eq!(run(dir.path(), &["verify", "dist/enc", "--strict"]).0, 4, "red");
    }
}

#[test]
fn a_failed_gate_publishes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // What the reference gives of the one clip is said to be of the other.
    let clips = [fixture("encoder_eg2/clips/n197.safetensors"), fixture("encoder_eg2/clips/n198.safetensors")];
    let [good, other] = clips.map(|clip| fs_err::read(clip).unwrap());
    let size = 8 + usize::try_from(u64::from_le_bytes(good[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&good[8..size]).unwrap();
    let at = header["soft_tokens"]["data_offsets"][0].as_u64().unwrap() as usize + size;
    let mut wrong = good.clone();
    wrong[at + 96..at + 192].copy_from_slice(&other[at..at + 96]);
    fs_err::write(dir.path().join("wrong.safetensors"), wrong).unwrap();
    let text =
        encoder_recipe("\"mlpackage\"").replace(fixture("encoder_eg2/clips").to_str().unwrap(), "wrong.safetensors");
    let recipe = recipe(dir.path(), "enc", &text);
    let (code, out, _) = run(dir.path(), &["release", &recipe, "--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, contents(&dir.path().join("dist"))), (4, BTreeMap::new()));
    assert!(
        told["error"]["causes"][0]
            .as_str()
            .unwrap()
            .contains("the gate failed: eg2_encoder_fp32_T200.mlpackage: cosine")
    );
    let checks = &told["error"]["details"]["gates"][0]["judged"]["checks"];
    assert_eq!((&checks[1]["name"], &checks[1]["outcome"]), (&"cosine".into(), &"fail".into()), "{checks}");
}

#[test]
fn another_release_of_that_name_is_not_replaced_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let before = contents(&release);
    let text = encoder_recipe("\"mlpackage\"").replace("[200]", "[100]");
    // The goldens are of another length.
    let other = recipe(dir.path(), "enc", text.split("[gate]").next().unwrap());
    let (code, _, err) = run(dir.path(), &["release", &other]);
    assert!(code == 2 && contents(&release) == before, "{err}");
    assert!(err.contains("--force replaces it"), "{err}");
    assert_eq!(run(dir.path(), &["release", &other, "--force"]).0, 0);
    assert!(release.join("eg2_encoder_fp32_T100.mlpackage").exists());
    assert_eq!(run(dir.path(), &["verify", "dist/enc"]).0, 0);
}

#[test]
fn shards_are_parts_that_make_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let text = encoder_recipe("\"mlpackage\"").split("[gate]").next().unwrap().to_string();
    fs_err::create_dir(dir.path().join("r")).unwrap();
    for name in ["a", "b", "c"] {
        recipe(&dir.path().join("r"), name, &text);
    }
    let names = |args: &[&str]| -> Vec<String> {
        let (code, out, _) = run(dir.path(), &[&["release", "r", "--json"], args].concat());
        assert_eq!(code, 0);
        let told: Value = serde_json::from_str(&out).unwrap();
        told["releases"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap().into()).collect()
    };
    assert_eq!(names(&["--shard", "1/2"]), ["a", "c"]);
    assert_eq!(names(&["--shard", "2/2", "--jobs", "2"]), ["b"]);
    assert_eq!(names(&["--only", "c,a", "--jobs", "3"]), ["a", "c"]);
    assert!(names(&["--shard", "4/4"]).is_empty());
    assert_eq!(names(&["--jobs", "2"]), ["a", "b", "c"]);
}

/// `coreai-build` that leaves a bundle of so many regions for the architecture it is told.
pub fn compiler(folder: &Path, regions: usize) -> String {
    let made = Tree::new(&folder.join("made"), "made", &["h16c"]);
    for index in 0..regions {
        made.region("h16c", &format!("main_AAAAAAAAAAAAAAAAAAAAAA_0_ANE_region_0_{index}"), None);
    }
    let script = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'coreai-build 3600.79.1'; exit 0; fi\n\
                  echo run >> \"$(dirname \"$0\")/../runs\"\ncp -R \"$(dirname \"$0\")/../made/made\" \"$4/model.aimodelc\"\n";
    let bin = folder.join("bin");
    fs_err::create_dir_all(&bin).unwrap();
    fs_err::write(bin.join("coreai-build"), script).unwrap();
    fs_err::set_permissions(bin.join("coreai-build"), std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", bin.display())
}

/// A recipe of the small encoder that is compiled for one architecture.
pub fn compiled_recipe(regions: usize) -> String {
    let text = encoder_recipe("\"aimodel\"").split("[gate]").next().unwrap().replace("fp32", "fp16");
    format!(
        "{text}[[compile]]\nplatform = \"macOS\"\narchitectures = [\"h16c\"]\nprefer = \"neural-engine\"\nregions = {regions}\n"
    )
}

#[test]
fn what_is_compiled_is_counted_and_ships() {
    let dir = tempfile::tempdir().unwrap();
    let path = compiler(dir.path(), 1);
    let recipe = recipe(dir.path(), "enc", &compiled_recipe(1));
    let release = || {
        let mut command = command(dir.path());
        command.env("EG2_COREAI_PYTHON", coreai_python()).env("PATH", &path).args(["release", &recipe]);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, out) = release();
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("h16c: 1 found, 1 expected"), "{out}");
    let record = record(&dir.path().join("dist/enc"));
    let compiled = &record["artefacts"][1];
    assert_eq!(compiled["name"], "eg2_encoder_fp16_T200.h16c.aimodelc");
    assert_eq!(compiled["compiled_from"]["digest_root"], record["artefacts"][0]["digest_root"]);
    assert_eq!(compiled["regions"]["architectures"]["h16c"], serde_json::json!({ "found": 1, "expected": 1 }));
    assert_eq!(
        (&compiled["loads_on_device"]["outcome"], &compiled["placed_on_ane"]["outcome"]),
        (&"not_run".into(), &"not_run".into())
    );
    let commands = record["commands"].as_array().unwrap();
    assert!(commands.iter().any(|c| c["stage"] == "compile" && c["argv"][0] == "coreai-build"), "{commands:?}");
    assert_eq!(run(dir.path(), &["verify", "dist/enc"]).0, 0);
    let (code, out) = release();
    assert!(code == 0 && out.contains("no work was needed"), "{out}");
    assert_eq!(fs_err::read_to_string(dir.path().join("runs")).unwrap(), "run\n", "compiled once");
}

#[test]
fn other_regions_than_the_recipe_wants_end_the_release() {
    let dir = tempfile::tempdir().unwrap();
    let path = compiler(dir.path(), 1);
    let recipe = recipe(dir.path(), "enc", &compiled_recipe(2));
    let mut command = command(dir.path());
    command.env("EG2_COREAI_PYTHON", coreai_python()).env("PATH", &path).args(["release", &recipe]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("h16c: regions found 1, expected 2"), "{told}");
    assert_eq!(contents(&dir.path().join("dist")), BTreeMap::new());
}

#[test]
fn an_artefact_of_a_release_is_judged_by_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let bundle = release.join("eg2_encoder_fp32_T200.mlpackage").display().to_string();
    let clips = fixture("encoder_eg2/clips").display().to_string();
    let (code, out, _) = run(dir.path(), &["gate", &bundle, "--golden", &clips]);
    assert_eq!(code, 0);
    assert!(out.contains("encoder in fp32, by its record"), "{out}");
    fs_err::write(Path::new(&bundle).join("more"), "").unwrap();
    let (code, _, err) = run(dir.path(), &["gate", &bundle, "--golden", &clips]);
    assert_eq!(code, 3);
    assert!(err.contains("is of other bytes"), "{err}");
}

#[test]
fn every_recipe_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
    let mut names = Vec::new();
    for folder in ["", "tiny", "synthetic"] {
        for entry in fs_err::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                let recipe = eg2_convert::recipe::Recipe::read(&path).unwrap();
                names.push(recipe.name);
            }
        }
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), count), (27, 27), "each into a folder of its own");
}
