//! `regions`, `inspect` and `diff` of compiled bundles, as their user meets them.

use crate::cli::{fixture, run};
use crate::compiled_tree::{Manifest, NO_REGIONS, Tree, package, symbol};
use serde_json::Value;
use std::path::Path;

/// A bundle with three regions for h16c, in two functions, and none for h18p.
pub fn hybrid(folder: &Path, name: &str) -> Tree {
    let tree = Tree::new(folder, name, &["h16c", "h18p"]);
    let [main, extend] = [symbol("main", 'h'), symbol("extend_1", 'k')];
    tree.region("h16c", &format!("{main}_ANE_region_0_0"), Some(40));
    tree.region("h16c", &format!("{main}_ANE_region_1_0"), None);
    tree.region("h16c", &format!("{extend}_ANE_region_0_0"), None);
    let flags = vec!["mps.fullyPlacedOnANE", "mps.noGPUActivity"];
    tree.manifest(
        "h16c",
        &Manifest {
            hashes: [("h16c", format!("{0}_{0}", "1".repeat(64)))].into(),
            entries: [(main.as_str(), flags), (extend.as_str(), vec![])].into(),
            bundles: vec!["binary_0.llir.bundle"],
        },
    );
    tree.manifest("h18p", &Manifest { hashes: [("h18p", NO_REGIONS.to_string())].into(), ..Manifest::default() });
    tree
}

/// Text that differs with no content: digests.
fn snapshot(text: &str) -> String {
    let hex = |word: &str| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let line = |line: &str| line.split(' ').map(|w| if hex(w) { "[sha256]" } else { w }).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn regions_with_and_without_expectation() {
    let dir = tempfile::tempdir().unwrap();
    hybrid(dir.path(), "a.aimodelc");
    let (code, out, err) = run(dir.path(), &["regions", "a.aimodelc"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!("regions", out);
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    fs_err::write(dir.path().join("want.txt"), "h16c=3\nh18p=0 # never built for the phone\n").unwrap();
    for (expect, want) in [("h16c=3,h18p=0", 0), ("h16c=3", 0), ("@want.txt", 0), ("3", 4), ("h16c=2", 4), ("h17=1", 4)]
    {
        let (code, out, err) = run(dir.path(), &["regions", "a.aimodelc", "--expect", expect]);
        assert_eq!((code, err.as_str()), (want, ""), "{expect}: {out}");
        assert_eq!(out.contains("verdict         passed") || out.contains("passed\n"), want == 0, "{out}");
        assert!(out.contains("device load") && out.contains("not run"), "{out}");
    }
    let (code, out, _) = run(dir.path(), &["regions", "a.aimodelc", "--expect", "1"]);
    assert_eq!(code, 4);
    insta::assert_snapshot!("regions_not_as_expected", out);
    let (code, _, _) = run(dir.path(), &["regions", "a.aimodelc", "--expect", "h16c=3", "--strict"]);
    assert_eq!(code, 4, "loading it on a device was not run");
}

#[test]
fn contradictions_fail_only_with_an_expectation() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path(), "a.aimodelc", &["h16c"]);
    let (symbol, flags) = (symbol("main", 'h'), vec!["mps.fullyPlacedOnANE"]);
    tree.manifest("h16c", &Manifest { entries: [(symbol.as_str(), flags)].into(), ..Manifest::default() });
    let (code, out, _) = run(dir.path(), &["regions", "a.aimodelc"]);
    assert_eq!(code, 0);
    assert!(out.contains("DISAGREES"), "{out}");
    let (code, out, _) = run(dir.path(), &["regions", "a.aimodelc", "--expect", "0"]);
    assert_eq!(code, 4);
    insta::assert_snapshot!("regions_contradicted", out);
}

#[test]
fn json_has_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    hybrid(dir.path(), "a.aimodelc");
    let (code, out, err) = run(dir.path(), &["regions", "a.aimodelc", "--expect", "h16c=3", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, err.as_str(), &json["passed"]), (0, "", &Value::from(true)));
    assert_eq!(json["verdict"]["architectures"]["h16c"]["found"], 3);
    let not_run = serde_json::json!({ "name": "loads_on_device", "reason": "needs Apple hardware" });
    assert_eq!(json["not_run"][0], not_run);
    let (code, out, _) = run(dir.path(), &["regions", "a.aimodelc", "--expect", "9", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["passed"], json["faults"].as_array().unwrap().len()), (4, &Value::from(false), 2));
}

#[test]
fn what_is_no_compiled_bundle() {
    let dir = tempfile::tempdir().unwrap();
    Tree::empty(dir.path(), "empty.aimodelc");
    Tree::empty(dir.path(), "other").write("notes.txt", b"");
    Tree::empty(dir.path(), "a.aimodel").write("main.mlirb", b"");
    fs_err::write(dir.path().join("file.aimodelc"), "").unwrap();
    fs_err::write(dir.path().join("file.mlpackage"), "").unwrap();
    for name in ["empty.aimodelc", "other", "a.aimodel", "file.aimodelc", "absent.aimodelc", "file.mlpackage"] {
        let (code, out, err) = run(dir.path(), &["regions", name, "--expect", "0"]);
        assert_eq!((code, out.as_str()), (3, ""), "{name}: {err}");
    }
    let (code, _, err) = run(dir.path(), &["regions", "empty.aimodelc", "--expect", "one"]);
    assert_eq!(code, 2);
    insta::assert_snapshot!(err, @r#"error: expected regions "one": "one" is neither a count nor ARCHITECTURE=COUNT"#);
}

#[test]
fn a_link_to_a_bundle_is_told() {
    let dir = tempfile::tempdir().unwrap();
    hybrid(dir.path(), "a.aimodelc");
    std::os::unix::fs::symlink("a.aimodelc", dir.path().join("b.aimodelc")).unwrap();
    let (code, out, _) = run(dir.path(), &["regions", "b.aimodelc/", "--expect", "h16c=3"]);
    assert_eq!(code, 0);
    assert!(out.contains("the bundle was named by a link"), "{out}");
}

#[cfg(not(target_os = "macos"))]
#[test]
fn core_ml_placement_is_not_run_here() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.mlpackage", "a.mlmodelc"] {
        Tree::empty(dir.path(), name);
        let (code, out, _) = run(dir.path(), &["regions", name]);
        assert_eq!(code, 0);
        assert!(out.contains("not run (Core ML's compute plan needs macOS)"), "{out}");
        assert_eq!(run(dir.path(), &["regions", name, "--strict"]).0, 4);
        let (code, out, _) = run(dir.path(), &["regions", name, "--expect", "1"]);
        assert_eq!(code, 0);
        assert!(out.contains("not run, which is no pass") && !out.contains("passed"), "{out}");
        assert_eq!(run(dir.path(), &["regions", name, "--expect", "1", "--strict"]).0, 4);
    }
}

#[test]
fn inspect_of_a_compiled_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let tree = hybrid(dir.path(), "a.aimodelc");
    tree.write(&format!("{}/specialized_model_1.mpsgraph", package("h16c")), b"ML\xefR\0/Users/someone/model.py\0");
    let (code, out, err) = run(dir.path(), &["inspect", "a.aimodelc"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!("inspect_aimodelc", snapshot(&out));
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let (_, out, _) = run(dir.path(), &["inspect", "a.aimodelc", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["format"], &json["bundle"]["stats"]["operations"]["mul"]), (&"aimodelc".into(), &3.into()));
}

#[test]
fn inspect_of_an_aimodel() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::empty(dir.path(), "a.aimodel");
    let program = fs_err::read(fixture("two_functions.aimodel/main.mlirb")).unwrap();
    tree.write("main.mlirb", &program);
    tree.write("main.hash", &[0; 32]);
    tree.write("metadata.json", br#"{"producer": "someone", "assetVersion": "2.0"}"#);
    let (code, out, _) = run(dir.path(), &["inspect", "a.aimodel"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("inspect_aimodel", snapshot(&out));
    tree.write("main.mlirb", &program[..1000]);
    let (code, out, err) = run(dir.path(), &["inspect", "a.aimodel"]);
    assert_eq!((code, out.as_str()), (3, ""));
    insta::assert_snapshot!(err, @"error: a.aimodel/main.mlirb at 0x14b: operation section has 984 bytes, 666 are left of the file; it is cut short or damaged");
    let (code, _, err) = run(dir.path(), &["inspect", "a.mlmodelc"]);
    assert_eq!(code, 3);
    insta::assert_snapshot!(err, @"error: a.mlmodelc is an .mlmodelc, which no reader here takes apart; inspect the package it was made of");
}

#[test]
fn diff_tells_what_changed_and_warns_of_a_shared_hash() {
    let dir = tempfile::tempdir().unwrap();
    hybrid(dir.path(), "a.aimodelc");
    let tree = hybrid(dir.path(), "b.aimodelc");
    assert!(run(dir.path(), &["diff", "a.aimodelc", "b.aimodelc", "--exit-code"]).1.contains("every file"));
    tree.region("h18p", &format!("{}_ANE_region_0_0", symbol("main", 'h')), None);
    tree.write(&format!("{}/resources.bin", package("h16c")), b"other weights");
    tree.write("stats.json", br#"{"operationDistribution":[{"count":1200,"name":"mul"},{"name":"cos","count":2}]}"#);
    tree.write("metadata.json", br#"{"assetVersion": "2.0", "producer": "another"}"#);
    let (code, out, err) = run(dir.path(), &["diff", "a.aimodelc", "b.aimodelc"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!("diff_aimodelc", out);
    assert_eq!(run(dir.path(), &["diff", "a.aimodelc", "b.aimodelc", "--exit-code"]).0, 4);
    let (_, out, _) = run(dir.path(), &["diff", "a.aimodelc", "b.aimodelc", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["region_counts"]["changed"]["h18p"], serde_json::json!([0, 1]));
    assert_eq!(json["shared_hash"]["roots"].as_object().unwrap().len(), 2);
    let (code, _, err) = run(dir.path(), &["diff", "a.aimodelc", "absent.aimodelc"]);
    assert_eq!(code, 3);
    assert!(err.starts_with("error: absent.aimodelc could not be looked into"), "{err}");
}

#[test]
fn diff_of_packages_has_features_and_operations() {
    let dir = tempfile::tempdir().unwrap();
    let config = crate::cli::fixture("encoder_eg2/config.json");
    for (bucket, out) in [("100", "a"), ("200", "b")] {
        let args = ["encoder", "--bucket", bucket, "--config", config.to_str().unwrap(), "--synthetic", "--out", out];
        assert_eq!(run(dir.path(), &args).0, 0);
    }
    let [a, b] = ["a/eg2_encoder_fp16_T100.mlpackage", "b/eg2_encoder_fp16_T200.mlpackage"];
    let (code, out, _) = run(dir.path(), &["diff", a, b]);
    assert_eq!(code, 0);
    assert!(out.contains("~ main in features: f16[1,100,128] -> f16[1,200,128]"), "{out}");
    assert!(run(dir.path(), &["diff", a, a]).1.contains("every file"));
}
