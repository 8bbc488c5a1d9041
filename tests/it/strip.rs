//! `strip` on a bundle that coreai-torch made, with the debug locations it puts in.

use crate::cli::{command, fixture, listed};
use crate::python::coreai_python;
use eg2_convert::checkpoint::{Named, write_safetensors};
use eg2_convert::digest::Digest;
use eg2_convert::tensor::{DType, Fact};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A bundle of coreai-torch as `m.aimodel`: made now where `$EG2_TEST_COREAI_TORCH_PYTHON` has coreai-torch, which is too
/// large to install for every run; else the one that scripts/traced_aimodel.py made.
fn traced() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("m.aimodel");
    match std::env::var_os("EG2_TEST_COREAI_TORCH_PYTHON") {
        Some(python) => {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/traced_aimodel.py");
            assert!(Command::new(python).arg(script).arg(&model).status().unwrap().success());
        }
        None => {
            fs_err::create_dir(&model).unwrap();
            for file in ["main.mlirb", "main.hash", "metadata.json"] {
                fs_err::copy(fixture("traced.aimodel").join(file), model.join(file)).unwrap();
            }
        }
    }
    dir
}

fn strip(folder: &Path, python: &Path, args: &[&str]) -> (i32, String) {
    let output = command(folder).env("EG2_COREAI_PYTHON", python).arg("strip").args(args).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), out + &err)
}

fn stripped(folder: &Path, args: &[&str]) -> String {
    let (code, said) = strip(folder, &coreai_python(), args);
    assert_eq!(code, 0, "{said}");
    said
}

fn files(bundle: &Path) -> Vec<(String, Vec<u8>)> {
    listed(bundle).into_iter().map(|name| (name.clone(), fs_err::read(bundle.join(name)).unwrap())).collect()
}

/// Output of the model for fixed inputs, as bytes.
fn ran(folder: &Path, model: &str) -> Vec<u8> {
    let fact = Fact::new(DType::F32, [1, 6, 8]);
    let bytes: Vec<u8> = (0..48).flat_map(|n: u8| (f32::from(n) * 0.37).sin().to_le_bytes()).collect();
    let inputs = vec![Named { name: "features", fact: &fact, bytes: &bytes }];
    write_safetensors(inputs, fs_err::File::create(folder.join("in")).unwrap()).unwrap();
    let args = ["run", model, "--inputs", "in", "--outputs", "tokens"];
    command(folder).env("EG2_COREAI_PYTHON", coreai_python()).args(args).assert().success();
    fs_err::read(folder.join("tokens")).unwrap()
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn locations_go_and_all_else_stays() {
    let dir = traced();
    let said = stripped(dir.path(), &["m.aimodel", "--out", "clean"]);
    let removed: Vec<&str> = said.lines().filter_map(|line| Some(line.split_once("  removed")?.1.trim())).collect();
    assert!(removed.iter().any(|path| path.ends_with("traced_aimodel.py")), "{said}");
    let before = fs_err::read(dir.path().join("m.aimodel/main.mlirb")).unwrap();
    let clean = dir.path().join("clean/m.aimodel");
    for (name, bytes) in files(&clean) {
        for leak in removed.iter().copied().chain([".py", "site-packages"]) {
            assert!(!has(&bytes, leak), "{name} still has {leak}");
        }
    }
    assert!(removed.iter().all(|leak| has(&before, leak)));
    let program = fs_err::read(clean.join("main.mlirb")).unwrap();
    assert_eq!(fs_err::read(clean.join("main.hash")).unwrap(), Digest::of(&program).bytes());
    assert_eq!(ran(dir.path(), "m.aimodel"), ran(dir.path(), "clean/m.aimodel"));
    let record = fs_err::read(dir.path().join("clean/m.aimodel.record.json")).unwrap();
    assert!(!has(&record, "traced_aimodel.py"), "the record would carry on what was removed");
    if std::env::var_os("EG2_TEST_COREAI_TORCH_PYTHON").is_none() {
        let seconds = |line: &&str| !line.starts_with("seconds");
        insta::assert_snapshot!(said.lines().filter(seconds).collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn what_is_clean_stays_as_it_is() {
    let dir = traced();
    stripped(dir.path(), &["m.aimodel", "--in-place"]);
    let once = files(&dir.path().join("m.aimodel"));
    let said = stripped(dir.path(), &["m.aimodel", "--in-place"]);
    assert!(said.contains("unchanged\nlocated operations  0 -> 0"), "{said}");
    assert_eq!(files(&dir.path().join("m.aimodel")), once);
    // What this program writes has no locations from the start.
    let encoder = ["encoder", "--bucket", "200", "--format", "aimodel", "--checkpoint"];
    let mut command = command(dir.path());
    command.env("EG2_COREAI_PYTHON", coreai_python()).args(encoder).arg(fixture("encoder_eg2")).assert().success();
    let ours = "out/eg2_encoder_fp16_T200.aimodel";
    let before = files(&dir.path().join(ours));
    assert!(stripped(dir.path(), &[ours, "--in-place"]).contains("unchanged"));
    assert_eq!(files(&dir.path().join(ours)), before);
}

#[test]
fn what_cannot_be_stripped() {
    let dir = traced();
    let at = |name: &str| dir.path().join(name);
    let said = |args: &[&str]| {
        let (code, said) = strip(dir.path(), &coreai_python(), args);
        format!("{code} {}", said.trim_end().replace(&dir.path().canonicalize().unwrap().display().to_string(), "DIR"))
    };
    for (folder, file) in [("c.aimodelc", "main.hash"), ("p.mlpackage", "Manifest.json"), ("x", "y")] {
        fs_err::create_dir(at(folder)).unwrap();
        fs_err::write(at(folder).join(file), "").unwrap();
    }
    insta::assert_snapshot!(said(&["c.aimodelc", "--out", "o"]), @"3 error: c.aimodelc is a compiled bundle, which cannot be stripped; strip the .aimodel it was compiled from");
    insta::assert_snapshot!(said(&["p.mlpackage", "--out", "o"]), @"3 error: p.mlpackage is no .aimodel");
    insta::assert_snapshot!(said(&["x", "--out", "o"]), @"3 error: x is no .aimodel");
    insta::assert_snapshot!(said(&["m.aimodel", "--out", "."]), @"2 error: the stripped bundle would take the place of DIR/m.aimodel itself; --in-place does that");
    assert!(said(&["m.aimodel"]).starts_with("2 "));
    // Another bundle of its name.
    fs_err::create_dir_all(at("o/m.aimodel")).unwrap();
    fs_err::write(at("o/m.aimodel/main.mlirb"), "old").unwrap();
    assert!(said(&["m.aimodel", "--out", "o"]).starts_with("2 error: DIR/o/m.aimodel is there already"));
    assert_eq!(fs_err::read(at("o/m.aimodel/main.mlirb")).unwrap(), b"old");
    assert!(said(&["m.aimodel", "--out", "o", "--force"]).starts_with("0 "));
    // A path that is no debug location.
    let metadata = fs_err::read_to_string(at("m.aimodel/metadata.json")).unwrap();
    fs_err::write(at("m.aimodel/metadata.json"), metadata.replacen('{', r#"{"author": "/Users/ada/models","#, 1))
        .unwrap();
    insta::assert_snapshot!(said(&["m.aimodel", "--out", "left"]), @r#"4 error: metadata.json still has ["/Users/ada/models"]: it is no debug location, and has to be changed where the model is made"#);
    // Damaged ones.
    let program = fs_err::read(at("m.aimodel/main.mlirb")).unwrap();
    fs_err::write(at("m.aimodel/main.hash"), [7; 32]).unwrap();
    assert!(said(&["m.aimodel", "--out", "left"]).starts_with("3 error: main.hash of m.aimodel"));
    fs_err::write(at("m.aimodel/main.mlirb"), &program[..program.len() / 2]).unwrap();
    assert!(said(&["m.aimodel", "--out", "left"]).starts_with("3 error: m.aimodel/main.mlirb at 0x"));
    assert!(listed(&at("left")).is_empty(), "nothing is left half-written");
}

#[test]
fn without_the_serializer_or_when_it_dies_the_bundle_is_whole() {
    let dir = traced();
    let before = files(&dir.path().join("m.aimodel"));
    command(dir.path()).args(["strip", "m.aimodel", "--in-place"]).assert().code(5);
    // Killed while it strips; what it is asked for is in the file that its last argument names.
    let python: PathBuf = dir.path().join("python");
    let real = coreai_python();
    let script = format!(
        "#!/bin/sh\nuntil test -e \"$4\"; do sleep 0.01; done\ngrep -q '\"strip\"' \"$4\" && kill -KILL $$\nexec {} \"$@\"\n",
        real.display()
    );
    fs_err::write(&python, script).unwrap();
    fs_err::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (code, said) = strip(dir.path(), &python, &["m.aimodel", "--in-place"]);
    assert!(code == 5 && said.contains("SIGKILL"), "{said}");
    assert_eq!(files(&dir.path().join("m.aimodel")), before);
    assert_eq!(listed(dir.path()), ["m.aimodel", "python"]);
}
