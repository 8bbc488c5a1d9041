//! What `run` says of an `.aimodel` or of inputs that it cannot use.

use crate::cli::{command, fixture, listed};
use crate::clip::{CLIP, inputs, write_inputs};
use crate::python::coreai_python;
use eg2_convert::checkpoint::{Named, write_safetensors};
use eg2_convert::digest::Digest;
use eg2_convert::tensor::{DType, Fact};
use std::path::Path;
use tempfile::TempDir;

/// A folder with `m.aimodel` and `m.mlpackage`, made of the small fixture, and inputs in `in`.
fn made() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = fixture("encoder_eg2");
    let args = ["encoder", "--bucket", "200", "--format", "mlpackage,aimodel", "--checkpoint"];
    let mut command = command(dir.path());
    command.env("EG2_COREAI_PYTHON", coreai_python()).args(args).arg(checkpoint).assert().success();
    for format in ["mlpackage", "aimodel"] {
        let from = dir.path().join(format!("out/eg2_encoder_fp16_T200.{format}"));
        fs_err::rename(from, dir.path().join(format!("m.{format}"))).unwrap();
    }
    write_inputs(&dir.path().join("in"), CLIP, 197);
    dir
}

/// A call that is refused: its exit code and stderr.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = command(folder).env("EG2_COREAI_PYTHON", coreai_python()).args(args).output().unwrap();
    assert!(output.stdout.is_empty() && !folder.join("tokens").exists(), "{args:?}");
    format!("{} {}", output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap().trim_end())
}

fn run(folder: &Path, artefact: &str, inputs: &str, more: &[&str]) -> String {
    refused(folder, &[&["run", artefact, "--inputs", inputs, "--outputs", "tokens"], more].concat())
}

/// Without offsets and sizes, which differ with every change of the graph.
fn places(text: &str) -> String {
    let word = |word: &str| match (word.strip_prefix("0x"), word.parse::<u64>()) {
        (Some(offset), _) if offset != "0:" => "[offset]:".into(),
        (None, Ok(number)) if number > 9 => "[n]".into(),
        (_, _) => word.to_string(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_damaged_bundle() {
    let dir = made();
    let (program, hash) = (dir.path().join("m.aimodel/main.mlirb"), dir.path().join("m.aimodel/main.hash"));
    let whole = fs_err::read(&program).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    fs_err::write(&program, &flipped).unwrap();
    let digests = [Digest::of(&whole), Digest::of(&flipped)].map(|d| d.to_string());
    let shown = |said: String| said.replace(&digests[0], "[written]").replace(&digests[1], "[found]");
    insta::assert_snapshot!(shown(run(dir.path(), "m.aimodel", "in", &[])), @"3 error: main.hash of m.aimodel is wrong: [written] is not the digest of main.mlirb ([found]); the bundle was damaged or changed after it was made");
    fs_err::write(&hash, b"short").unwrap();
    insta::assert_snapshot!(run(dir.path(), "m.aimodel", "in", &[]), @"3 error: main.hash of m.aimodel is wrong: 5 bytes long, expected 32; the bundle was damaged or changed after it was made");
    // Cut short by whoever also made its hash: in its properties, weights, operations, tables and at its
    // start.
    let mut said = Vec::new();
    for bytes in [whole.len() - 1, whole.len() / 2, 20_000, 100, 0] {
        fs_err::write(&program, &whole[..bytes]).unwrap();
        fs_err::write(&hash, Digest::of(&whole[..bytes]).bytes()).unwrap();
        let ran = run(dir.path(), "m.aimodel", "in", &[]);
        assert_eq!(ran, refused(dir.path(), &["inspect", "m.aimodel"]));
        said.push(places(&ran));
    }
    insta::assert_snapshot!(said.join("\n"), @"
    3 error: m.aimodel/main.mlirb at [offset]: property section has [n] bytes, [n] are left of the file; it is cut short or damaged
    3 error: m.aimodel/main.mlirb at [offset]: resource section has [n] bytes, [n] are left of the file; it is cut short or damaged
    3 error: m.aimodel/main.mlirb at [offset]: operation section has [n] bytes, [n] are left of the file; it is cut short or damaged
    3 error: m.aimodel/main.mlirb at [offset]: attribute offset section has [n] bytes, [n] are left of the file; it is cut short or damaged
    3 error: m.aimodel/main.mlirb at 0x0: found [], expected the start of MLIR bytecode, [4d, 4c, ef, 52]
    ");
    fs_err::remove_file(&program).unwrap();
    insta::assert_snapshot!(run(dir.path(), "m.aimodel", "in", &[]), @"
    3 error: could not read m.aimodel/main.mlirb
      caused by: No such file or directory (os error 2)
    ");
}

#[test]
fn inputs_that_do_not_fit() {
    let dir = made();
    let write = |name: &str, tensors: &[(&str, Fact, Vec<f32>)]| {
        let bytes: Vec<Vec<u8>> =
            tensors.iter().map(|(_, _, v)| v.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
        let named = tensors.iter().zip(&bytes).map(|((name, fact, _), bytes)| Named { name, fact, bytes }).collect();
        write_safetensors(named, fs_err::File::create(dir.path().join(name)).unwrap()).unwrap();
    };
    let [features, mask] = inputs(CLIP, 197);
    let (mut nan, mut short, mut ints) = (features.clone(), features.clone(), mask.clone());
    nan.2[300] = f32::NAN;
    (short.1, short.2) = (Fact::new(DType::F32, [1, 100, 128]), vec![0.0; 100 * 128]);
    ints.1 = Fact::new(DType::I32, [1, 100]);
    write("nan", &[nan, mask.clone()]);
    write("short", &[short, mask]);
    write("ints", &[features.clone(), ints]);
    write("missing", &[features]);
    fs_err::write(dir.path().join("cut"), &fs_err::read(dir.path().join("in")).unwrap()[..1000]).unwrap();
    // Both runtimes say the same.
    let said = ["nan", "short", "ints", "missing", "cut", "nowhere"].map(|inputs| {
        let said = run(dir.path(), "m.aimodel", inputs, &[]);
        assert_eq!(said, run(dir.path(), "m.mlpackage", inputs, &[]));
        said
    });
    insta::assert_snapshot!(said.join("\n"), @"
    3 error: tensor features of nan: element 300 is NaN, expected a number
    3 error: input features is f32[1,100,128], expected f16[1,200,128]
    3 error: input half_mask is i32[1,100], expected f16[1,100]
    3 error: input half_mask is missing; the graph takes features f16[1,200,128], half_mask f16[1,100]
    3 error: the inputs cannot be used
      caused by: cut has 840 bytes of data, expected 102800: it is cut short
    3 error: the inputs cannot be used
      caused by: nowhere cannot be read
      caused by: No such file or directory (os error 2)
    ");
}

#[test]
fn words_that_do_not_fit_the_bundle() {
    let dir = made();
    let said = [
        run(dir.path(), "m.aimodel", "in", &["--runtime", "reference"]),
        run(dir.path(), "m.mlpackage", "in", &["--runtime", "coreai"]),
        run(dir.path(), "m.aimodel", "in", &["--function", "T200"]),
        run(dir.path(), "nowhere.aimodel", "in", &[]),
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    6 error: runtime reference does not run m.aimodel; expected an .mlpackage
    6 error: runtime coreai does not run m.mlpackage; expected an .aimodel
    2 error: m.aimodel has no function T200; it has ["main"]
    3 error: there is no nowhere.aimodel
    "#);
    assert_eq!(listed(dir.path()), ["in", "m.aimodel", "m.mlpackage", "out"]);
}
