//! Emitted packages in coremltools: its own type inference, its own reading of every constant.

use crate::cli::{command, fixture};
use crate::python::script;
use eg2_convert::bundle::Tree;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The package of a fixture in that precision.
fn package(folder: &Path, name: &str, precision: &str) -> PathBuf {
    let checkpoint = fixture(name);
    let args = ["encoder", "--bucket", "200", "--precision", precision, "--checkpoint"];
    command(folder).args(args).arg(checkpoint).args(["--out", name]).assert().success();
    folder.join(name).join(format!("eg2_encoder_{precision}_T200.mlpackage"))
}

#[test]
fn coremltools_infers_what_we_declare() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["encoder_eg2", "encoder_gemma4"] {
        for precision in ["fp16", "fp32", "fp16w32", "int8"] {
            let package = package(dir.path(), name, precision);
            let root = Tree::of(&package).unwrap().root();
            let report: Value =
                serde_json::from_str(script("load_mlpackage.py", &[package.to_str().unwrap()]).trim()).unwrap();
            assert_eq!(report["faults"], Value::Array(vec![]), "{name} {precision}");
            assert!(report["compared"].as_u64().unwrap() > 500);
            let census = report["census"]["main"].as_object().unwrap();
            for (op, of) in [("constexpr_cast", "fp16w32"), ("constexpr_blockwise_shift_scale", "int8")] {
                assert_eq!(census.contains_key(op), of == precision, "{name} {precision}: {op}");
            }
            for banned in ["gather", "cast", "layer_norm", "scaled_dot_product_attention", "matmul", "reverse"] {
                assert!(!census.contains_key(banned), "{name} {precision} has {banned}");
            }
            assert_eq!(Tree::of(&package).unwrap().root(), root, "loading must not change the artefact");
        }
    }
}
