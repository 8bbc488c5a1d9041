//! The command as its user meets it: output, exit codes, files left behind.

use crate::schema::holds;
use assert_cmd::Command;
use eg2_convert::checkpoint::{Checkpoint, Named, write_safetensors};
use eg2_convert::tensor::{DType, Fact, WeightSource};
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

/// Runs the command and gives exit code, stdout and stderr; JSON is held against its schema.
pub fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(folder).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if args.contains(&"--json") {
        holds(args[0], &output.stdout);
    }
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// `encoder` on the small fixture, with more arguments.
fn encoder(folder: &Path, more: &[&str]) -> (i32, String, String) {
    let checkpoint = fixture("encoder_eg2");
    let args = [&["encoder", "--bucket", "200", "--checkpoint", checkpoint.to_str().unwrap()], more].concat();
    run(folder, &args)
}

/// Names in a folder, hidden ones too; none where there is no such folder.
pub fn listed(folder: &Path) -> Vec<String> {
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
        ["eg2_encoder_fp16_T200.mlpackage", "eg2_encoder_fp16_T200.mlpackage.record.json"]
    );
    let record = fs_err::read(dir.path().join("out/eg2_encoder_fp16_T200.mlpackage.record.json")).unwrap();
    let (code, out, _) = encoder(dir.path(), &[]);
    assert_eq!(code, 0);
    assert!(out.contains("unchanged"), "{out}");
    assert_eq!(fs_err::read(dir.path().join("out/eg2_encoder_fp16_T200.mlpackage.record.json")).unwrap(), record);
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
        let record = fs_err::read(dir.path().join("out/eg2_encoder_fp16_T200.mlpackage.record.json")).unwrap();
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
    assert_eq!((code, err.as_str(), &json["artefacts"][0]["outcome"]), (0, "", &Value::from("published")));
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
    assert!(err.starts_with("error: cannot write file"), "{err}");
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

/// Both forms say that the Neural Engine does not run them, and can be inspected and run; so can the body of a split.
#[test]
fn forms_that_store_less_than_they_compute() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Checkpoint::open_file(&fixture("encoder_eg2/golden.safetensors")).unwrap();
    let mut features = vec![0u8; 200 * 128 * 4];
    golden.read("features", 0, &mut features).unwrap();
    let facts = [Fact::new(DType::F32, [1, 200, 128]), Fact::new(DType::F32, [1, 100])];
    let mask = 1f32.to_le_bytes().repeat(100);
    let named = vec![
        Named { name: "features", fact: &facts[0], bytes: &features },
        Named { name: "half_mask", fact: &facts[1], bytes: &mask },
    ];
    write_safetensors(named, fs_err::File::create(dir.path().join("in")).unwrap()).unwrap();
    for (precision, op, element) in
        [("fp16w32", "constexpr_cast", "f16"), ("int8", "constexpr_blockwise_shift_scale", "i8")]
    {
        let (code, out, err) = encoder(dir.path(), &["--precision", precision]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("neural engine") && out.contains("forms no region"), "{out}");
        let package = format!("out/eg2_encoder_{precision}_T200.mlpackage");
        let record = fs_err::read_to_string(dir.path().join(format!("{package}.record.json"))).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["stages"]["neural_engine"]["expected_regions"], 0);
        assert_eq!(record["options"]["precision"], precision);
        let (code, out, err) = run(dir.path(), &["inspect", &package]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains(op) && out.contains(element), "{out}");
        let (code, _, err) = run(dir.path(), &["run", &package, "--inputs", "in", "--outputs", precision]);
        assert_eq!(code, 0, "{err}");
        let (code, out, err) = encoder(dir.path(), &["--precision", precision, "--split-after", "1"]);
        assert_eq!((code, err.as_str()), (0, ""), "the advice on splits is about fp16: {out}");
        assert!(dir.path().join(format!("out/eg2_encoder_body1_{precision}_T200.mlpackage")).exists(), "{out}");
    }
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

/// What is no regular file is neither read, which may never end, nor replaced.
#[test]
fn pipes_devices_and_inputs_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    assert!(std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    for args in [
        &["encoder", "--checkpoint", "pipe"][..],
        &["encoder", "--synthetic", "--config", "pipe"],
        &["encoder", "--synthetic", "--config", "/dev/zero"],
        &["encoder", "--checkpoint", "/dev/zero"],
    ] {
        let (code, _, err) = run(dir.path(), args);
        assert_eq!(code, 3, "{args:?}: {err}");
        assert!(err.contains("expected a regular file"), "{err}");
    }
    assert_eq!(encoder(dir.path(), &["--precision", "fp32"]).0, 0);
    let package = "out/eg2_encoder_fp32_T200.mlpackage";
    let golden = Checkpoint::open_file(&fixture("encoder_eg2/golden.safetensors")).unwrap();
    let mut features = vec![0u8; 200 * 128 * 4];
    golden.read("features", 0, &mut features).unwrap();
    let facts = [Fact::new(DType::F32, [1, 200, 128]), Fact::new(DType::F32, [1, 100])];
    let mask = 1f32.to_le_bytes().repeat(100);
    let named = vec![
        Named { name: "features", fact: &facts[0], bytes: &features },
        Named { name: "half_mask", fact: &facts[1], bytes: &mask },
    ];
    write_safetensors(named, fs_err::File::create(dir.path().join("in")).unwrap()).unwrap();
    let to = |outputs: &str| run(dir.path(), &["run", package, "--inputs", "in", "--outputs", outputs]);
    for (outputs, message) in [
        ("in", "the outputs would replace in, which is read"),
        ("out/eg2_encoder_fp32_T200.mlpackage/Manifest.json", "which is read"),
        ("pipe", "the outputs could not be written to pipe"),
        ("out", "the outputs could not be written to out"),
    ] {
        let (code, _, err) = to(outputs);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(message), "{err}");
    }
    assert_eq!(to("tokens").0, 0);
    assert_eq!(run(dir.path(), &["inspect", package]).0, 0, "the artefact is whole");
}

#[test]
fn names_that_are_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let folder = std::ffi::OsStr::from_bytes(b"n\xff");
    for json in [false, true] {
        let mut command = command(dir.path());
        command
            .args(["encoder", "--bucket", "200", "--checkpoint"])
            .arg(fixture("encoder_eg2"))
            .arg("--out")
            .arg(folder);
        let output = if json { command.arg("--json") } else { &mut command }.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8(output.stdout).unwrap().contains("eg2_encoder_fp16_T200.mlpackage"));
    }
}

/// The bundle and its record stand or fall together.
#[test]
fn a_record_that_cannot_be_written_holds_the_bundle_back() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs_err::create_dir_all(out.join("eg2_encoder_fp16_T200.mlpackage.record.json")).unwrap();
    let (code, _, err) = encoder(dir.path(), &[]);
    assert_eq!(code, 2, "{err}");
    assert_eq!(listed(&out), ["eg2_encoder_fp16_T200.mlpackage.record.json"]);
    fs_err::remove_dir(out.join("eg2_encoder_fp16_T200.mlpackage.record.json")).unwrap();
    assert_eq!(encoder(dir.path(), &[]).0, 0);
}

/// Ctrl-C in the middle of a conversion: exit 130, and nothing is left.
#[test]
fn ctrl_c_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"))
        .args(["encoder", "--synthetic", "--bucket", "3000"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let out = dir.path().join("out");
    while listed(&out).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it wrote anything");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"error: interrupted; nothing was published");
    assert!(listed(&out).is_empty());
}

#[test]
fn completions_know_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let (_, help, _) = run(dir.path(), &["--help"]);
    // Two spaces in: a description that is continued stands further in.
    let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let named = listed.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
    let commands: Vec<&str> = named.collect();
    assert!(commands.contains(&"transcribe") && commands.len() > 10, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, err) = run(dir.path(), &["completions", shell]);
        assert_eq!((code, err.as_str()), (0, ""));
        for command in &commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(script.contains("soft-tokens"), "{shell}");
    }
    // What bash makes of the script.
    let (_, script, _) = run(dir.path(), &["completions", "bash"]);
    let asked = format!(
        "{script}\nCOMP_WORDS=(eg2-convert tran); COMP_CWORD=1; _eg2__convert eg2-convert tran eg2-convert; echo ${{COMPREPLY[*]}}"
    );
    let output = std::process::Command::new("bash").args(["-c", &asked]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "transcribe");
    assert_eq!(run(dir.path(), &["completions", "tcsh"]).0, 2);
}
