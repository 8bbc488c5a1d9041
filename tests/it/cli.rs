//! The command as its user meets it: output, exit codes, files left behind.

use assert_cmd::Command;
use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The command in an empty folder, with no checkpoint in its surroundings.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::cargo_bin("eg2-convert").unwrap();
    command.current_dir(folder);
    for variable in ["EG2_CHECKPOINT", "EG2_COREAI_PYTHON", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"] {
        command.env_remove(variable);
    }
    command.env("HOME", folder);
    command
}

/// Runs the command and gives exit code, stdout and stderr.
fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(folder).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// `encoder` on the small fixture, with more arguments.
fn encoder(folder: &Path, more: &[&str]) -> (i32, String, String) {
    let checkpoint = fixture("encoder_eg2");
    let args = [&["encoder", "--bucket", "200", "--checkpoint", checkpoint.to_str().unwrap()], more].concat();
    run(folder, &args)
}

/// Names in a folder, hidden ones too; none where there is no such folder.
fn listed(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).map(|e| e.map(|e| e.unwrap().file_name().into_string().unwrap()));
    let mut names: Vec<String> = entries.map(Iterator::collect).unwrap_or_default();
    names.sort();
    names
}

/// Numbers that differ from run to run.
fn redacted(text: &str) -> String {
    let line =
        |l: &str| if l.starts_with("seconds") { "seconds          [seconds]".to_string() } else { l.to_string() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn encoder_publishes_once_and_then_says_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = encoder(dir.path(), &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(redacted(&out));
    assert_eq!(
        listed(&dir.path().join("out")),
        ["eg2_encoder_fp16_T200.mlpackage", "eg2_encoder_fp16_T200.record.json"]
    );
    let record = fs_err::read(dir.path().join("out/eg2_encoder_fp16_T200.record.json")).unwrap();
    let (code, out, _) = encoder(dir.path(), &[]);
    assert_eq!(code, 0);
    assert!(out.contains("unchanged"), "{out}");
    assert_eq!(fs_err::read(dir.path().join("out/eg2_encoder_fp16_T200.record.json")).unwrap(), record);
}

#[test]
fn another_artefact_is_not_replaced_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let synthetic = |seed, more: &[&str]| {
        let config = fixture("encoder_eg2/config.json");
        let args = ["encoder", "--bucket", "200", "--config", config.to_str().unwrap(), "--synthetic", seed];
        run(dir.path(), &[&args[..], more].concat())
    };
    let root = || {
        let record = fs_err::read(dir.path().join("out/eg2_encoder_fp16_T200.record.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        record["artefact"]["digest_root"].as_str().unwrap().to_string()
    };
    assert_eq!(synthetic("1", &[]).0, 0);
    let first = root();
    let (code, _, err) = synthetic("2", &[]);
    assert_eq!(code, 2);
    assert!(err.contains("is there already, with other content"), "{err}");
    assert!(err.contains("--force replaces it"), "{err}");
    assert_eq!(root(), first);
    assert_eq!(synthetic("2", &["--force"]).0, 0);
    assert_ne!(root(), first);
    assert_eq!(listed(&dir.path().join("out")).len(), 2, "nothing stays behind");
}

#[test]
fn two_runs_give_the_same_bytes() {
    let bytes = || {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(encoder(dir.path(), &[]).0, 0);
        let package = dir.path().join("out/eg2_encoder_fp16_T200.mlpackage");
        ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"]
            .map(|file| fs_err::read(package.join(file)).unwrap())
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn a_dry_run_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, _) = encoder(dir.path(), &["--dry-run"]);
    assert_eq!(code, 0);
    assert!(out.contains("dry run"), "{out}");
    assert!(listed(dir.path()).is_empty());
}

#[test]
fn json_is_one_object_errors_included() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = encoder(dir.path(), &["--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, err.as_str(), &json["outcome"]), (0, "", &Value::from("published")));
    for args in [&["encoder", "--bucket", "3", "--json"][..], &["encoder", "--json"], &["nonsense", "--json"]] {
        let (code, out, err) = run(dir.path(), args);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["error"]["exit_code"], code, "{args:?}");
        assert!(err.is_empty(), "{args:?}: {err}");
    }
}

#[test]
fn buckets_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    for bucket in ["0", "1", "201", "202", "20000", "18446744073709551615"] {
        let (code, out, err) = run(dir.path(), &["encoder", "--synthetic", "--bucket", bucket]);
        assert_eq!((code, out.as_str()), (2, ""));
        insta::allow_duplicates! {
            insta::with_settings!({ filters => vec![(r"bucket \d+", "bucket N")] }, {
                insta::assert_snapshot!(err, @"error: bucket N is not a number of frames from 4 to 16384 that four divides (3000 is 30 s)");
            });
        }
    }
    assert!(listed(dir.path()).is_empty());
}

#[test]
fn without_a_checkpoint_it_says_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = run(dir.path(), &["encoder"]);
    assert_eq!(code, 3);
    assert!(err.contains("./model.safetensors: absent") && err.contains("--synthetic"), "{err}");
}

#[test]
fn a_destination_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::write(dir.path().join("file"), "").unwrap();
    let (code, _, err) = encoder(dir.path(), &["--out", "file"]);
    assert_eq!(code, 2);
    assert!(err.starts_with("error: cannot write in file"), "{err}");
    let (code, _, err) = encoder(dir.path(), &["--out", "fresh"]);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn run_and_inspect_read_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(encoder(dir.path(), &["--precision", "fp32"]).0, 0);
    let package = "out/eg2_encoder_fp32_T200.mlpackage";
    let (code, out, _) = run(dir.path(), &["inspect", package]);
    assert_eq!(code, 0);
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]")] }, {
        insta::assert_snapshot!(out);
    });
    let inputs = fixture("encoder_eg2/golden.safetensors");
    let args = ["run", package, "--inputs", inputs.to_str().unwrap(), "--outputs", "o.safetensors"];
    let (code, _, err) = run(dir.path(), &args);
    assert_eq!(code, 3);
    assert!(err.contains("input half_mask is missing"), "{err}");
    assert_eq!(listed(dir.path()), ["out"]);
}

#[test]
fn inspect_refuses_what_is_no_package() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::create_dir(dir.path().join("empty.mlpackage")).unwrap();
    for name in ["empty.mlpackage", "absent.mlpackage"] {
        let (code, out, err) = run(dir.path(), &["inspect", name]);
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains("could not read") && err.contains("Manifest.json"), "{err}");
    }
}
