//! Readers that are almost right: each is refused with a message and leaves nothing, and its twin is converted.

use crate::cli::{command, fixture, listed};
use eg2_convert::checkpoint::{Checkpoint, Named, write_safetensors};
use eg2_convert::tensor::{DType, Fact, WeightSource};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The files of a reader, to be edited.
struct Reader {
    weights: BTreeMap<String, (Fact, Vec<u8>)>,
    table: (Fact, Vec<u8>),
    words: Vec<String>,
    config: Value,
}

fn tensors(path: &Path) -> BTreeMap<String, (Fact, Vec<u8>)> {
    let file = Checkpoint::open_file(path).unwrap();
    let read = |name: &str| {
        let fact = file.fact(name).unwrap().clone();
        let mut bytes = vec![0; fact.bytes()];
        file.read(name, 0, &mut bytes).unwrap();
        (name.to_string(), (fact, bytes))
    };
    file.names().into_iter().map(read).collect()
}

impl Reader {
    fn of_fixture() -> Reader {
        let folder = fixture("reader_plain");
        let text = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
        let mut config: Value = serde_json::from_str(&text("reader_config.json")).unwrap();
        config["table"]["file"] = json!("table.safetensors");
        Reader {
            weights: tensors(&folder.join("reader.safetensors")),
            table: tensors(&folder.join("table.npy")).into_values().next().unwrap(),
            words: text("words.txt").lines().map(String::from).collect(),
            config,
        }
    }

    /// Sets row `row` of the table to `value` times what it is.
    fn scale_row(&mut self, row: usize, value: f32) {
        let width = self.table.0.shape.dims()[1];
        for bytes in self.table.1[row * width * 4..(row + 1) * width * 4].as_chunks_mut::<4>().0 {
            *bytes = (f32::from_le_bytes(*bytes) * value).to_le_bytes();
        }
    }

    fn scalar(&mut self, name: &str, value: f32) {
        self.weights.get_mut(name).unwrap().1 = value.to_le_bytes().to_vec();
    }

    fn write(&self, folder: &Path) {
        let write = |name: &str, tensors: Vec<Named<'_>>| {
            write_safetensors(tensors, fs_err::File::create(folder.join(name)).unwrap()).unwrap();
        };
        write(
            "reader.safetensors",
            self.weights.iter().map(|(name, (fact, bytes))| Named { name, fact, bytes }).collect(),
        );
        write("table.safetensors", vec![Named { name: "table", fact: &self.table.0, bytes: &self.table.1 }]);
        fs_err::write(folder.join("words.txt"), self.words.join("\n")).unwrap();
        fs_err::write(folder.join("reader_config.json"), self.config.to_string()).unwrap();
    }
}

/// Exit code and stderr of a conversion; nothing may be left behind where it fails.
fn convert(edit: impl FnOnce(&mut Reader), more: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = Reader::of_fixture();
    edit(&mut reader);
    reader.write(dir.path());
    let output = command(dir.path()).args(["reader", "--tokens", "40"]).args(more).output().unwrap();
    let code = output.status.code().unwrap();
    assert_eq!(listed(&dir.path().join("out")).len(), if code == 0 { 2 } else { 0 });
    (code, String::from_utf8(output.stderr).unwrap())
}

fn refused(edit: impl FnOnce(&mut Reader)) -> String {
    let (code, told) = convert(edit, &[]);
    assert_eq!(code, 3, "{told}");
    told
}

#[test]
fn the_twin_of_them_all_is_converted() {
    assert_eq!(convert(|_| (), &[]), (0, String::new()));
}

#[test]
fn depth_of_the_config_against_the_weights() {
    insta::assert_snapshot!(refused(|r| r.config["architecture"]["layers"] = json!(3)));
    insta::assert_snapshot!(refused(|r| r.config["architecture"]["layers"] = json!(1)));
    // The first release's config names no depth: it has 4 layers.
    insta::assert_snapshot!(refused(|r| drop(r.config["architecture"].as_object_mut().unwrap().remove("layers"))));
}

#[test]
fn tensors_that_are_absent_or_of_another_shape() {
    insta::assert_snapshot!(refused(|r| drop(r.weights.remove("layers.1.k_proj.bias"))));
    let narrow = |r: &mut Reader| {
        let (fact, bytes) = r.weights.get_mut("layers.0.attn_norm.weight").unwrap();
        *fact = Fact::new(DType::F32, [47]);
        bytes.truncate(47 * 4);
    };
    insta::assert_snapshot!(refused(narrow));
}

#[test]
fn guesses_against_the_weights() {
    insta::assert_snapshot!(refused(|r| r.config["assumed"] = json!({ "qkv": "fused" })));
    insta::assert_snapshot!(refused(|r| r.config["names"] = json!({ "blank": "blank_head" })));
    insta::assert_snapshot!(refused(|r| r.config["architecture"]["ff"] = json!(96)));
    insta::assert_snapshot!(refused(|r| r.config["architecture"]["table_dim"] = json!(24)));
}

#[test]
fn a_scale_that_is_none() {
    insta::assert_snapshot!(refused(|r| r.scalar("log_scale", 90.0)));
    insta::assert_snapshot!(refused(|r| r.scalar("log_scale", f32::NAN)));
}

#[test]
fn rows_that_are_no_unit_vectors() {
    insta::assert_snapshot!(refused(|r| r.scale_row(7, 0.0)));
    insta::assert_snapshot!(refused(|r| r.scale_row(330, 1.01)));
    insta::assert_snapshot!(refused(|r| r.scale_row(12, f32::NAN)));
}

/// Its words are not to blame.
#[test]
fn a_table_that_is_none() {
    let told = |dims: &[usize]| {
        refused(|r| {
            r.table.0 = Fact::new(DType::F32, dims.to_vec());
            r.table.1.truncate(r.table.0.bytes());
        })
    };
    insta::assert_snapshot!(told(&[]), @"error: table.safetensors: tensor table is f32[], expected a table of word vectors, [words, width], neither of them 0");
    insta::assert_snapshot!(told(&[331]), @"error: table.safetensors: tensor table is f32[331], expected a table of word vectors, [words, width], neither of them 0");
    insta::assert_snapshot!(told(&[331, 2, 3]), @"error: table.safetensors: tensor table is f32[331,2,3], expected a table of word vectors, [words, width], neither of them 0");
    insta::assert_snapshot!(told(&[0, 48]), @"error: table.safetensors: tensor table is f32[0,48], expected a table of word vectors, [words, width], neither of them 0");
    insta::assert_snapshot!(told(&[1; 100]), @"error: table.safetensors: tensor table is f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,.. 100 axes], expected a table of word vectors, [words, width], neither of them 0");
}

#[test]
fn configs_that_mean_two_things() {
    let told = |edit: fn(String) -> String| {
        let dir = tempfile::tempdir().unwrap();
        Reader::of_fixture().write(dir.path());
        let config = dir.path().join("reader_config.json");
        fs_err::write(&config, edit(fs_err::read_to_string(&config).unwrap())).unwrap();
        let output = command(dir.path()).args(["reader", "--tokens", "40"]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, twice) = told(|text| text.replacen('{', "{\"table\": {},", 1));
    assert_eq!(code, 3);
    assert!(
        twice.contains("reader_config.json cannot be read as JSON\n  caused by: key \"table\" is given twice"),
        "{twice}"
    );
    let (code, marked) = told(|text| format!("\u{feff}{text}"));
    assert_eq!(code, 3);
    insta::assert_snapshot!(marked, @"error: reader_config.json starts with a byte order mark; save it as UTF-8 without one");
    assert_eq!(told(|text| text).0, 0);
}

#[test]
fn words_that_do_not_fit_the_table() {
    insta::assert_snapshot!(refused(|r| drop(r.words.pop())));
    insta::assert_snapshot!(refused(|r| r.words.push("more".into())));
    insta::assert_snapshot!(refused(|r| r.words[30] = r.words[4].clone()));
    insta::assert_snapshot!(refused(|r| r.words[30] = String::new()));
}

#[test]
fn files_that_are_not_there_or_not_named() {
    insta::assert_snapshot!(refused(|r| drop(r.config.as_object_mut().unwrap().remove("table"))));
    insta::assert_snapshot!(refused(|r| r.config["weights"]["file"] = json!("other.safetensors")));
    insta::assert_snapshot!(refused(|r| r.config["table"]["tensor"] = json!("vectors")));
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path()).arg("reader").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap());
}

/// A state dict that would run a command where it is unpickled.
#[test]
fn code_in_a_pickle_is_named_and_never_run() {
    for name in ["system.pt", "foreign.pt"] {
        let weights = fixture("reader_inputs").join(name);
        let (code, told) = convert(|_| (), &["--weights", weights.to_str().unwrap()]);
        assert_eq!(code, 3);
        insta::assert_snapshot!(told);
    }
}

#[test]
fn lengths_and_names_that_do_not_fit() {
    for more in [
        &["--tokens", "0"][..],
        &["--tokens", "4097"],
        &["--release-name", "../v2"],
        &["--precision", "int8"],
        &["--tokens", "250,750"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        Reader::of_fixture().write(dir.path());
        let output = command(dir.path()).arg("reader").args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap());
    }
    let named = convert(|r| drop(r.config.as_object_mut().unwrap().remove("version")), &["--release-name", "v9"]);
    assert_eq!(named, (0, String::new()));
}

/// What fp16 cannot hold is refused there, and is no fault in fp32.
#[test]
fn a_weight_beyond_fp16() {
    let large = |r: &mut Reader| {
        let bytes = &mut r.weights.get_mut("layers.0.ff_in.weight").unwrap().1;
        bytes[..4].copy_from_slice(&1e5f32.to_le_bytes());
    };
    insta::assert_snapshot!(refused(large));
    assert_eq!(convert(large, &["--precision", "fp32"]).0, 0);
}

/// Integers are no weights, whatever their shape.
#[test]
fn a_table_of_integers() {
    insta::assert_snapshot!(refused(|r| r.table.0 = Fact { dtype: DType::I32, shape: r.table.0.shape.clone() }));
}
