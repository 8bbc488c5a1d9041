//! A system that gives no more: descriptors, file sizes. The job fails as one whose destination cannot take the result,
//! and leaves nothing behind.

use crate::cli::{fixture, listed};
use std::path::Path;

/// Exit code and stderr of a reader made under what the shell does first.
fn reader_under(limit: &str, folder: &Path) -> (i32, String) {
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]).arg(assert_cmd::cargo::cargo_bin("eg2-convert"));
    shell.args(["reader", "--tokens", "40", "--config"]).arg(fixture("reader_plain/reader_config.json"));
    let output = shell.current_dir(folder).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn too_few_descriptors() {
    let mut codes = Vec::new();
    for descriptors in 4..=24 {
        let dir = tempfile::tempdir().unwrap();
        let (code, told) = reader_under(&format!("ulimit -n {descriptors}"), dir.path());
        let there = listed(&dir.path().join("out"));
        assert_eq!(there.len(), if code == 0 { 2 } else { 0 }, "{descriptors}: {there:?} {told}");
        assert!(matches!(code, 0 | 2 | 3), "{descriptors}: {code} {told}");
        codes.push(code);
    }
    assert!(codes.contains(&2), "some end once a folder is there: {codes:?}");
    assert_eq!(codes.last(), Some(&0));
}

#[test]
fn files_that_may_not_grow() {
    // The system's signal for it is ignored by whoever starts the job, or is the job's own to take.
    let signals = ["trap '' XFSZ; ", ""];
    for (blocks, expected) in [(1, 2), (20, 2), (1 << 20, 0)] {
        for signal in signals {
            let dir = tempfile::tempdir().unwrap();
            let (code, told) = reader_under(&format!("{signal}ulimit -f {blocks}"), dir.path());
            assert_eq!(code, expected, "{told}");
            if code != 0 {
                assert!(told.contains("the weight file could not be written"), "{told}");
                assert_eq!(listed(&dir.path().join("out")), [""; 0]);
            }
        }
    }
}
