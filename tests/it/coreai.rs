//! `.aimodel` bundles where Apple's serializer is absent, or is not what it should be.

use crate::cli::{command, fixture, listed};
use crate::clip::{CLIP, write_inputs};
use crate::python::coreai_python;
use eg2_convert::emit::coreai::{Bridge, BridgeError, Metadata, Program, write};
use eg2_convert::ir::parse;
use eg2_convert::tensor::Memory;
use eg2_convert::toolchain::Interrupt;
use eg2_convert::validate::check;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// `encoder --format aimodel`, with that interpreter; gives exit code and stderr.
fn aimodel(folder: &Path, python: Option<&str>) -> (i32, String) {
    let mut command = command(folder);
    command.args(["encoder", "--bucket", "200", "--format", "aimodel", "--checkpoint"]).arg(fixture("encoder_eg2"));
    if let Some(python) = python {
        command.env("EG2_COREAI_PYTHON", python);
    }
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A program that stands in for the interpreter; the request is its fourth argument.
fn stand_in(folder: &Path, script: &str) -> String {
    let path = folder.join("python");
    fs_err::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn without_the_serializer_it_says_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    for python in [None, Some("/nowhere/python")] {
        let (code, err) = aimodel(dir.path(), python);
        assert_eq!(code, 5, "{err}");
        assert!(err.contains("EG2_COREAI_PYTHON") && err.contains("coreai-core 1.0.0b3"), "{err}");
    }
}

#[test]
fn a_serializer_that_dies_leaves_the_old_bundle_whole() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("out/eg2_encoder_fp16_T200.aimodel");
    fs_err::create_dir_all(&old).unwrap();
    fs_err::write(old.join("main.mlirb"), "old").unwrap();
    let answer = |json: &str| format!("printf '%s' '{json}' > \"$(dirname \"$4\")/answer.json\"");
    let cases = [
        ("kill -SEGV $$".to_string(), "signal 11 (SIGSEGV)"),
        ("echo no such module >&2; exit 1".to_string(), "exit code 1 and no answer; its last words: no such module"),
        (answer("{\"ok\":"), "makes no sense"),
        (
            answer("{\"error\":{\"kind\":\"version\",\"message\":\"coreai-core is 9\",\"line\":null}}"),
            "coreai-core is 9",
        ),
        (answer("{\"error\":{\"kind\":\"verifier\",\"message\":\"bad op\",\"line\":2}}"), "refuses node main: bad op"),
    ];
    for (script, want) in cases {
        let python = stand_in(dir.path(), &script);
        let (code, err) = aimodel(dir.path(), Some(&python));
        assert_eq!(code, 5, "{err}");
        assert!(err.contains(want), "{err}");
        assert_eq!(fs_err::read_to_string(old.join("main.mlirb")).unwrap(), "old");
        assert_eq!(fs_err::read_dir(dir.path().join("out")).unwrap().count(), 1, "nothing stays behind");
    }
}

/// A stand-in that is the real interpreter with the serializer, after a few lines of Python.
fn tampered(folder: &Path, lines: &str) -> String {
    let script = format!("{lines}\nimport sys\nexec(sys.argv.pop(1))");
    stand_in(folder, &format!("exec '{}' -I -c '{script}' \"$3\" \"$4\"", coreai_python().display()))
}

/// The versions that the real script finds, for a conversion and a run alike.
#[test]
fn another_python_or_wheel_is_named_with_what_is_expected() {
    let dir = tempfile::tempdir().unwrap();
    let (code, err) = aimodel(dir.path(), Some(coreai_python().to_str().unwrap()));
    assert_eq!(code, 0, "{err}");
    let bundle = "out/eg2_encoder_fp16_T200.aimodel";
    write_inputs(&dir.path().join("in"), CLIP, 200);
    let version =
        |body: &str| format!("import importlib.metadata as m\ndef version(name):\n    {body}\nm.version = version");
    let cases = [
        "import sys\nsys.version_info, sys.version = (3, 9, 2), \"3.9.2 (old)\"".to_string(),
        version("return \"1.0.0b2\""),
        version("raise m.PackageNotFoundError(name)"),
    ];
    let mut said = Vec::new();
    let mut both = |python: &str| {
        let (code, converting) = aimodel(dir.path(), Some(python));
        let args = ["run", bundle, "--inputs", "in", "--outputs", "tokens"];
        let output = command(dir.path()).env("EG2_COREAI_PYTHON", python).args(args).output().unwrap();
        let running = String::from_utf8(output.stderr).unwrap();
        assert_eq!((code, output.status.code(), &converting), (5, Some(5), &running));
        said.push(running.trim_end().to_string());
    };
    for lines in cases {
        both(&tampered(dir.path(), &lines));
    }
    both("/nowhere/python");
    insta::assert_snapshot!(said.join("\n"), @"
    error: Apple's serializer cannot be used: Python is 3.9.2, expected 3.11 or later; EG2_COREAI_PYTHON names the Python to use
    error: Apple's serializer cannot be used: coreai-core is 1.0.0b2, expected 1.0.0b3; EG2_COREAI_PYTHON names the Python to use
    error: Apple's serializer cannot be used: coreai-core is not installed, expected 1.0.0b3; EG2_COREAI_PYTHON names the Python to use
    error: /nowhere/python is no program: set EG2_COREAI_PYTHON to a Python that has coreai-core 1.0.0b3, or unset it and run `eg2-convert tools install`
    ");
    assert!(!dir.path().join("tokens").exists());
}

/// The bundle is complete on disk, and nobody has said so yet.
#[test]
fn a_serializer_that_is_killed_after_the_save_leaves_the_old_bundle_whole() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("out/eg2_encoder_fp16_T200.aimodel");
    fs_err::create_dir_all(&old).unwrap();
    fs_err::write(old.join("main.mlirb"), "old").unwrap();
    let python = tampered(
        dir.path(),
        "import os, pathlib, sys\n\
         save = pathlib.Path.write_text\n\
         def kill(path, text):\n    \
             if path.name != \"answer.json\":\n        \
                 return save(path, text)\n    \
             print(text, file=sys.stderr, flush=True)\n    \
             os.kill(os.getpid(), 9)\n\
         pathlib.Path.write_text = kill",
    );
    let (code, err) = aimodel(dir.path(), Some(&python));
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("SIGKILL") && err.contains("no answer; its last words: {\"ok\": {\"bytes\": "), "{err}");
    assert_eq!(fs_err::read_to_string(old.join("main.mlirb")).unwrap(), "old");
    assert_eq!(listed(&dir.path().join("out")), ["eg2_encoder_fp16_T200.aimodel"]);
}

const GRAPH: &str = "\
graph main
%x = input \"x\" : f32[2,6]
%layers.3.attention.bounded = tanh(%x) : f32[2,6]
%layers.3.attention.heads = reshape(%layers.3.attention.bounded) shape=[2,3,2] : f32[2,3,2]
%layers.3.out = sigmoid(%layers.3.attention.heads) : f32[2,3,2]
output \"y\" = %layers.3.out
";

/// No graph that this program makes is refused by Apple's verifier, so the text is spoilt behind its back.
#[test]
fn what_apples_verifier_refuses_is_told_with_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let weights = dir.path().join("weights");
    let program = || -> Program {
        let graph = parse(GRAPH).unwrap();
        let file = fs_err::File::create(&weights).unwrap();
        write(&[check(&graph).unwrap()], &Memory::default(), file).unwrap()
    };
    let bridge = Bridge::at(coreai_python(), &Interrupt::never());
    let save = |program: &Program, name: &str| {
        bridge.start(dir.path()).unwrap().save(program, &weights, &Metadata::default(), &dir.path().join(name))
    };
    assert!(save(&program(), "good.aimodel").unwrap() > 0);
    let spoilt = |from: &str, to: &str| {
        let mut program = program();
        assert!(program.text.contains(from), "{}", program.text);
        program.text = program.text.replace(from, to);
        match save(&program, "bad.aimodel") {
            Err(error @ BridgeError::Verifier { .. }) => error.to_string(),
            other => panic!("{from} to {to}: {other:?}"),
        }
    };
    let said = [
        spoilt("coreai.tanh", "coreai.tangent"),
        spoilt("reshape %1,", "reshape %7,"),
        spoilt("tensor<2x6xf32> -> tensor<2x6xf32>", "tensor<2x6xf32> -> tensor<2x9xf32>"),
        spoilt("tensor<2x3x2xf32>", "tensor<2x3x9xf32>"),
        spoilt("tensor<2x3x2xf32>", "tensor<2x3x2xf16>"),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    Apple's verifier refuses node layers.3.attention.bounded: custom op 'coreai.tangent' is unknown
    Apple's verifier refuses node layers.3.attention.heads: use of undeclared SSA value name
    Apple's verifier refuses node layers.3.attention.heads: use of value '%1' expects different type than prior uses: 'tensor<2x6xf32>' vs 'tensor<2x9xf32>'
    Apple's verifier refuses node layers.3.attention.heads: return type #0 dimension #2 mismatch: existing dimension size 9 does not match inferred dimension size 2
    Apple's verifier refuses node layers.3.attention.heads: 'coreai.reshape' op failed to verify that Result 0 element type must match element type of operand 0.
    ");
    assert!(!dir.path().join("bad.aimodel").exists());
}

/// The text is this program's own: it needs no serializer.
#[test]
fn the_dialect_text_is_written_beside_a_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let encoder = |more: &[&str]| {
        let mut command = command(dir.path());
        command.args(["encoder", "--bucket", "200", "--emit", "mlir", "--checkpoint"]).arg(fixture("encoder_eg2"));
        command.args(more).assert().success();
    };
    encoder(&["--dry-run"]);
    assert!(!dir.path().join("out").exists());
    encoder(&[]);
    let text = fs_err::read_to_string(dir.path().join("out/eg2_encoder_fp16_T200.mlir")).unwrap();
    let graph = r#"  coreai.graph @main(%0: tensor<1x200x128xf16> {coreai.name = "features"} loc(unknown), "#;
    assert!(text.starts_with(&format!("module {{\n{graph}")) && text.ends_with("} loc(unknown)\n"));
    assert!(text.contains("dense_resource<p0>"));
}

/// The processes whose environment has that variable; the tool gives the workers its own.
#[cfg(target_os = "linux")]
fn processes(variable: &str) -> Vec<String> {
    let of = |pid: String| {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        variables.split(|byte| *byte == 0).any(|have| have == variable.as_bytes()).then_some(pid)
    };
    let entries = fs_err::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter_map(of).collect()
}

/// Killed before the interpreter has begun, while it loads the libraries, and when it waits for the request.
#[cfg(target_os = "linux")]
#[test]
fn no_serializer_outlives_a_tool_that_was_killed() {
    use std::time::{Duration, Instant};
    let dir = tempfile::tempdir().unwrap();
    let mark = format!("EG2_TEST_MARK={}", dir.path().display());
    // As slow as from a cold disk, so that the kill comes first.
    let slow = |name: &str, before: &str| {
        let python = dir.path().join(name);
        fs_err::rename(tampered(dir.path(), before), &python).unwrap();
        python
    };
    let begins = "import time\ntime.sleep(2)";
    let loading = "\
import sys
class Slow:
    def find_spec(self, name, *rest):
        if name == \"coreai\":
            import time
            time.sleep(2)
sys.meta_path.insert(0, Slow())";
    for (python, after) in [(slow("begins", begins), 300), (slow("loads", loading), 600), (coreai_python(), 300)] {
        let mut tool = std::process::Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"));
        tool.current_dir(dir.path()).env("HOME", dir.path()).env("EG2_COREAI_PYTHON", &python);
        tool.env("EG2_TEST_MARK", dir.path()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        tool.args(["encoder", "--bucket", "200", "--format", "aimodel", "--checkpoint"]).arg(fixture("encoder_eg2"));
        let mut tool = tool.spawn().unwrap();
        let alone = Instant::now();
        while processes(&mark).len() < 2 {
            assert!(alone.elapsed() < Duration::from_secs(60), "no worker was started");
            assert!(tool.try_wait().unwrap().is_none(), "the tool ended first");
        }
        std::thread::sleep(Duration::from_millis(after));
        tool.kill().unwrap();
        tool.wait().unwrap();
        let killed = Instant::now();
        while !processes(&mark).is_empty() {
            assert!(killed.elapsed() < Duration::from_secs(10), "a worker is still there");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
