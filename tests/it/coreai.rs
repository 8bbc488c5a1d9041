//! `.aimodel` bundles where Apple's serializer is absent, or is not what it should be.

use crate::cli::{command, fixture};
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
