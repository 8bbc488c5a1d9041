//! Files that are read and files that are refused, each refused one with a twin that is read.

use super::*;
use crate::tensor::{DType, Fact, Shape, SourceError, WeightSource};
use proptest::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};

/// A file of that header text and data.
fn file_of(dir: &Path, name: &str, header: &[u8], data: &[u8]) -> PathBuf {
    let path = dir.join(name);
    let length = (header.len() as u64).to_le_bytes();
    fs_err::write(&path, [&length[..], header, data].concat()).unwrap();
    path
}

fn open_bytes(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs_err::write(&path, bytes).unwrap();
    Checkpoint::open(&path)
}

fn open_header(header: &str, data: usize) -> Result<Checkpoint, CheckpointError> {
    let dir = tempfile::tempdir().unwrap();
    Checkpoint::open(&file_of(dir.path(), "model.safetensors", header.as_bytes(), &vec![0; data]))
}

/// The message and the messages of its causes.
fn refusal(result: Result<Checkpoint, CheckpointError>) -> String {
    let error = result.unwrap_err();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

const GOOD: &str = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}}"#;

#[test]
fn a_good_file_is_read() {
    let checkpoint = open_header(GOOD, 12).unwrap();
    assert_eq!(checkpoint.names(), ["a", "b"]);
    assert_eq!(checkpoint.fact("b"), Some(&Fact::new(DType::BF16, [1, 2])));
    assert!(open_header(&format!("{GOOD}   "), 12).is_ok(), "a header may be padded with blanks");
    let metadata = GOOD.replacen('{', r#"{"__metadata__":{"format":"pt"},"#, 1);
    assert!(open_header(&metadata, 12).is_ok());
}

#[test]
fn files_cut_short_or_too_long() {
    insta::assert_snapshot!(refusal(open_bytes(b"")), @"model.safetensors is 0 bytes long, too short for the length of a safetensors header (8 bytes)");
    insta::assert_snapshot!(refusal(open_bytes(&200u64.to_le_bytes())), @"model.safetensors says its header is 200 bytes long, but the file has 8; it is cut short or not safetensors");
    insta::assert_snapshot!(refusal(open_bytes(&u64::MAX.to_le_bytes())), @"model.safetensors says its header is 18446744073709551615 bytes long; the format allows 100000000: it is neither safetensors nor, by its first bytes, a PyTorch archive or .npy");
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1225047384\n";
    insta::assert_snapshot!(refusal(open_bytes(pointer)), @"model.safetensors is a Git LFS pointer, not the file it points to; fetch it with `git lfs pull`");
    insta::assert_snapshot!(refusal(open_header(GOOD, 11)), @"model.safetensors has 11 bytes of data, expected 12: it is cut short");
    insta::assert_snapshot!(refusal(open_header(GOOD, 13)), @"model.safetensors has 13 bytes of data, expected 12: bytes trail behind the last tensor");
}

#[test]
fn headers_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let bad = file_of(dir.path(), "model.safetensors", b"{\"a\xff\":1}", b"");
    insta::assert_snapshot!(refusal(Checkpoint::open(&bad)), @"the header of model.safetensors is not UTF-8 from byte 3 on");
    insta::assert_snapshot!(refusal(open_header("[]", 0)), @"the header of model.safetensors is not a safetensors header: invalid type: sequence, expected an object of tensors at line 1 column 0");
    let twice = GOOD.replace("\"b\"", "\"a\"");
    insta::assert_snapshot!(refusal(open_header(&twice, 12)), @"the header of model.safetensors is not a safetensors header: tensor a is given twice at line 1 column 111");
    let twice = GOOD.replace(r#""dtype":"F32","#, r#""dtype":"F32","dtype":"F32","#);
    insta::assert_snapshot!(refusal(open_header(&twice, 12)), @"the header of model.safetensors is not a safetensors header: duplicate field `dtype` at line 1 column 27");
    for rest in ["null", "{", "{}x", r#"{"a":{}}"#, r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#] {
        assert!(matches!(open_header(rest, 0), Err(CheckpointError::Header { .. })), "{rest}");
    }
}

#[test]
fn tensors_that_do_not_tile_the_data() {
    let edit = |from: &str, to: &str, data| refusal(open_header(&GOOD.replace(from, to), data));
    insta::assert_snapshot!(edit("[0,8]", "[0,7]", 12), @"model.safetensors: tensor a of F32[2] takes 8 bytes, but its data_offsets 0..7 hold 7");
    insta::assert_snapshot!(edit("[0,8]", "[8,0]", 12), @"model.safetensors: tensor a has data_offsets 8..0, which run backwards");
    insta::assert_snapshot!(edit("[8,12]", "[9,13]", 13), @"model.safetensors: the data of tensor b starts at byte 9, expected 8, where the tensor before it ends");
    insta::assert_snapshot!(edit("[8,12]", "[4,8]", 12), @"model.safetensors: the data of tensor b starts at byte 4, expected 8, where the tensor before it ends");
    insta::assert_snapshot!(edit("[2]", "[4611686018427387904,4]", 12), @"model.safetensors: tensor a of shape [4611686018427387904,4] is larger than any file");
}

#[test]
fn odd_offsets_and_empty_tensors_are_read() {
    let header = r#"{"odd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},"none":{"dtype":"F32","shape":[0,3],"data_offsets":[5,5]}}"#;
    let dir = tempfile::tempdir().unwrap();
    let data = [&[7u8][..], &1.5f32.to_le_bytes()].concat();
    let checkpoint = Checkpoint::open(&file_of(dir.path(), "m.safetensors", header.as_bytes(), &data)).unwrap();
    let mut x = [0f32];
    checkpoint.read_f32("x", 0, &mut x).unwrap();
    assert_eq!(x, [1.5]);
    // An empty tensor may lie in a file; a model never wants one.
    let ledger = Ledger::new(&checkpoint);
    let wanted = ledger.root().tensor("none", &[3, 3]).unwrap_err();
    insta::assert_snapshot!(wanted, @"tensor none in m.safetensors is f32[0,3], expected f64, f32, f16 or bf16 of shape [3,3]");
}

#[test]
fn a_dtype_that_is_not_read_matters_only_where_it_is_wanted() {
    let header = r#"{"q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}"#;
    let checkpoint = open_header(header, 2).unwrap();
    let error = Ledger::new(&checkpoint).root().tensor("q", &[2]).unwrap_err();
    insta::assert_snapshot!(error, @"tensor q in model.safetensors is of a dtype that is not read here, expected f64, f32, f16 or bf16 of shape [2]");
}

fn sharded(weight_map: serde_json::Value, shards: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    for (name, tensor) in shards {
        let header = json!({ *tensor: { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } }).to_string();
        file_of(dir.path(), name, header.as_bytes(), &[0; 4]);
    }
    let index = json!({ "metadata": {}, "weight_map": weight_map }).to_string();
    fs_err::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    let path = dir.path().to_path_buf();
    (dir, path)
}

#[test]
fn shards() {
    let two = [("1.safetensors", "a"), ("2.safetensors", "b")];
    let good = json!({ "a": "1.safetensors", "b": "2.safetensors" });
    let (_dir, path) = sharded(good, &two);
    assert_eq!(Checkpoint::open(&path).unwrap().names(), ["a", "b"]);
    assert_eq!(Checkpoint::open(&path).unwrap().files().len(), 3);
    assert_eq!(Checkpoint::open(&path.join("model.safetensors.index.json")).unwrap().names(), ["a", "b"]);

    let refused = |map, shards: &[(&str, &str)]| {
        let (_dir, path) = sharded(map, shards);
        refusal(Checkpoint::open(&path))
    };
    insta::assert_snapshot!(refused(json!({ "a": "1.safetensors", "b": "3.safetensors" }), &two), @"model.safetensors.index.json names the shard 3.safetensors, which is missing: No such file or directory (os error 2)");
    insta::assert_snapshot!(refused(json!({ "a": "1.safetensors", "c": "2.safetensors" }), &two), @"model.safetensors.index.json says that 2.safetensors holds tensor c, which it lacks");
    insta::assert_snapshot!(refused(json!({ "a": "../1.safetensors" }), &two), @r#"model.safetensors.index.json names the shard "../1.safetensors", expected a file name inside its own folder"#);
    insta::assert_snapshot!(refused(json!({ "a": "/1.safetensors" }), &two), @r#"model.safetensors.index.json names the shard "/1.safetensors", expected a file name inside its own folder"#);
    insta::assert_snapshot!(refused(json!({ "a": "1.safetensors", "b": "2.safetensors" }), &[("1.safetensors", "a"), ("2.safetensors", "a")]), @"model.safetensors.index.json says that 2.safetensors holds tensor b, which it lacks");
    insta::assert_snapshot!(refused(json!(["a"]), &two), @"model.safetensors.index.json is not an index of shards: invalid type: sequence, expected a map at line 1 column 28");
    let (dir, path) = sharded(json!({}), &[("1.safetensors", "a")]);
    fs_err::write(
        path.join("model.safetensors.index.json"),
        r#"{"weight_map":{"a":"1.safetensors","a":"1.safetensors"}}"#,
    )
    .unwrap();
    insta::assert_snapshot!(refusal(Checkpoint::open(dir.path())), @"model.safetensors.index.json is not an index of shards: key \"a\" is given twice at line 1 column 55");
}

#[test]
fn the_same_tensor_in_two_shards() {
    let (_dir, path) = sharded(json!({ "a": "1.safetensors", "b": "2.safetensors" }), &[("1.safetensors", "a")]);
    let both = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    file_of(&path, "2.safetensors", both.as_bytes(), &[0; 8]);
    insta::assert_snapshot!(refusal(Checkpoint::open(&path)), @"tensor a is in both 1.safetensors and 2.safetensors");
}

#[test]
fn hugging_face_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let commit = "914f7f89".repeat(5);
    let (blobs, snapshot) = (dir.path().join("blobs"), dir.path().join("snapshots").join(&commit));
    fs_err::create_dir_all(&blobs).unwrap();
    fs_err::create_dir_all(&snapshot).unwrap();
    file_of(&blobs, "0123", GOOD.as_bytes(), &[0; 12]);
    std::os::unix::fs::symlink("../../blobs/0123", snapshot.join("model.safetensors")).unwrap();
    fs_err::write(snapshot.join("config.json"), "{}").unwrap();
    for path in [dir.path(), &snapshot, &snapshot.join("model.safetensors")] {
        let checkpoint = Checkpoint::open(path).unwrap();
        assert_eq!(checkpoint.revision(), Some(commit.as_str()), "{}", path.display());
        assert!(checkpoint.config_path().is_some());
    }
    let other = dir.path().join("snapshots/other");
    fs_err::create_dir_all(&other).unwrap();
    assert!(matches!(Checkpoint::open(dir.path()), Err(CheckpointError::Snapshots { .. })));
    fs_err::create_dir_all(dir.path().join("refs")).unwrap();
    fs_err::write(dir.path().join("refs/main"), format!("{commit}\n")).unwrap();
    assert!(Checkpoint::open(dir.path()).is_ok());
    assert!(matches!(Checkpoint::open(&other), Err(CheckpointError::NoModel { .. })));
    assert!(matches!(Checkpoint::open(&dir.path().join("absent")), Err(CheckpointError::Io { .. })));
}

#[test]
fn a_file_cut_short_after_opening_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), "m.safetensors", GOOD.as_bytes(), &[0; 12]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let length = fs_err::metadata(&path).unwrap().len();
    fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 4).unwrap();
    assert!(matches!(checkpoint.read("b", 0, &mut [0; 4]), Err(SourceError::Io { .. })));
    assert!(matches!(checkpoint.read("a", 4, &mut [0; 8]), Err(SourceError::Range { .. })));
    assert!(matches!(checkpoint.read("c", 0, &mut [0; 4]), Err(SourceError::Missing { .. })));
}

#[test]
fn the_ledger_knows_what_nobody_read() {
    let header = r#"{"model.t.a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"model.t.b":{"dtype":"I64","shape":[1],"data_offsets":[4,12]},"text":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}"#;
    let checkpoint = open_header(header, 16).unwrap();
    let ledger = Ledger::new(&checkpoint);
    assert_eq!(ledger.prefixed(&["", "model."], "t.a"), "model.");
    assert_eq!(ledger.prefixed(&["", "model."], "t.z"), "");
    let scope = ledger.root().scope("model.").scope("t");
    assert_eq!(scope.scalar("a").unwrap().value, 0.0);
    insta::assert_snapshot!(scope.tensor("b", &[1]).unwrap_err(), @"tensor model.t.b in model.safetensors is i64[1], expected f64, f32, f16 or bf16 of shape [1]");
    insta::assert_snapshot!(scope.tensor("c", &[1]).unwrap_err(), @"tensor model.t.c is not in model.safetensors, expected f64, f32, f16 or bf16 of shape [1]; it has model.t.a, model.t.b");
    insta::assert_snapshot!(ledger.finish(&["model.t."]).unwrap_err(), @"1 tensor of the model in model.safetensors was not read: model.t.b");
    assert_eq!(ledger.finish(&["model.t.a"]).unwrap(), Consumption { read: 1, parameters: 1, ignored: 2 });
}

#[test]
fn synthetic_values_are_the_same_from_anywhere() {
    let ledger = Ledger::blueprint(7);
    let scope = ledger.root().scope("tower");
    scope.tensor("linear.weight", &[64, 100]).unwrap();
    let low = scope.scalar("input_min").unwrap();
    let synthetic = ledger.into_synthetic();
    assert_eq!(synthetic.names(), ["tower.input_min", "tower.linear.weight"]);
    let mut whole = vec![0f32; 6400];
    synthetic.read_f32("tower.linear.weight", 0, &mut whole).unwrap();
    let mut part = vec![0u8; 41];
    synthetic.read("tower.linear.weight", 4 * 100 + 3, &mut part).unwrap();
    let bytes: Vec<u8> = whole.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(part, bytes[403..444]);
    let mut again = [0f32];
    synthetic.read_f32("tower.input_min", 0, &mut again).unwrap();
    assert_eq!(f64::from(again[0]), low.value);
    assert!(low.value < -2.0 && low.value > -4.0);
    // The first values of a seed are part of what a record means by it.
    assert_eq!(whole[..3], [-0.182_516_02, -0.035_969_87, -0.202_076_12]);
    let mean = whole.iter().sum::<f32>() / 6400.0;
    let variance = whole.iter().map(|v| v * v).sum::<f32>() / 6400.0;
    assert!(mean.abs() < 0.005 && (variance * 100.0 - 1.0).abs() < 0.05, "{mean} {variance}");
    assert!(matches!(synthetic.read("tower.linear.weight", 25_598, &mut [0; 4]), Err(SourceError::Range { .. })));
}

fn tensors() -> impl Strategy<Value = Vec<(String, Vec<usize>, u8)>> {
    let dtype = 0u8..4;
    let shape = prop::collection::vec(0usize..5, 0..4);
    prop::collection::btree_map("[a-z.é\"\\\\]{1,8}", (shape, dtype), 0..6)
        .prop_map(|m| m.into_iter().map(|(name, (shape, dtype))| (name, shape, dtype)).collect())
}

proptest! {
    /// What we write the published crate reads, and the other way round.
    #[test]
    fn files_agree_with_the_published_crate(tensors in tensors()) {
        use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
        let kinds = [(DType::F32, Dtype::F32), (DType::BF16, Dtype::BF16), (DType::I64, Dtype::I64), (DType::U8, Dtype::U8)];
        let made: Vec<(String, Fact, Dtype, Vec<u8>)> = tensors
            .into_iter()
            .map(|(name, dims, kind)| {
                let (ours, theirs) = kinds[kind as usize];
                let fact = Fact::new(ours, dims);
                let bytes = (0..fact.bytes()).map(|i| i as u8).collect();
                (name, fact, theirs, bytes)
            })
            .collect();
        let mut ours = Vec::new();
        write_safetensors(made.iter().map(|(name, fact, _, bytes)| Named { name, fact, bytes }).collect(), &mut ours).unwrap();
        let read = SafeTensors::deserialize(&ours).unwrap();
        for (name, fact, dtype, bytes) in &made {
            let view = read.tensor(name).unwrap();
            prop_assert_eq!((view.shape(), view.dtype(), view.data()), (fact.shape.dims(), *dtype, &bytes[..]));
        }
        let views = made.iter().map(|(name, fact, dtype, bytes)| {
            (name.as_str(), TensorView::new(*dtype, fact.shape.dims().to_vec(), bytes).unwrap())
        });
        let theirs = open_bytes(&serialize(views, None).unwrap()).unwrap();
        for (name, fact, _, bytes) in &made {
            let mut back = vec![0; bytes.len()];
            theirs.read(name, 0, &mut back).unwrap();
            prop_assert_eq!((theirs.fact(name), &back), (Some(fact), bytes));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(edits in prop::collection::vec((0usize..140, any::<u8>()), 0..6), cut in 0usize..200) {
        let mut bytes = [&(GOOD.len() as u64).to_le_bytes()[..], GOOD.as_bytes(), &[0; 12]].concat();
        for (at, byte) in edits {
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
        }
        bytes.truncate(cut.max(8));
        if let Ok(checkpoint) = open_bytes(&bytes) {
            for name in checkpoint.names() {
                let size = checkpoint.fact(name).map_or(0, Fact::bytes);
                checkpoint.read(name, 0, &mut vec![0; size]).unwrap();
            }
        }
    }

    #[test]
    fn no_header_makes_it_panic(header in "\\PC{0,80}", data in 0usize..20) {
        let _ = open_header(&header, data);
    }
}

#[test]
fn bytes_that_are_not_the_facts_are_not_written() {
    let fact = Fact { dtype: DType::F32, shape: Shape::from([2]) };
    let error = write_safetensors(vec![Named { name: "x", fact: &fact, bytes: &[0; 7] }], Vec::new()).unwrap_err();
    insta::assert_snapshot!(error, @"tensor x of f32[2] has 7 bytes");
}
