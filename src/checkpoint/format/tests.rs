//! Files as torch and numpy wrote them (scripts/reader_inputs.py), each refused one with a twin that is read.

use super::UNNAMED;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::tensor::{DType, Fact, WeightSource};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reader_inputs").join(name)
}

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(&fixture(name)).unwrap()
}

fn refusal(name: &str) -> String {
    Checkpoint::open(&fixture(name)).unwrap_err().to_string()
}

fn open_bytes(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reader.pt");
    fs_err::write(&path, bytes).unwrap();
    Checkpoint::open(&path)
}

fn bytes(source: &Checkpoint, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; source.fact(name).unwrap().bytes()];
    source.read(name, 0, &mut bytes).unwrap();
    bytes
}

fn values(source: &Checkpoint, name: &str) -> Vec<f32> {
    let mut values = vec![0f32; source.fact(name).unwrap().shape.elements()];
    source.read_f32(name, 0, &mut values).unwrap();
    values
}

/// Same names, facts and bytes; and the bytes lie where `stretch` says.
fn same(name: &str, twin: &str) {
    let (found, wanted) = (open(name), open(twin));
    assert_eq!(found.names(), wanted.names(), "{name}");
    for tensor in wanted.names() {
        assert_eq!(found.fact(tensor), wanted.fact(tensor), "{tensor} of {name}");
        let stored = bytes(&found, tensor);
        assert_eq!(stored, bytes(&wanted, tensor), "{tensor} of {name}");
        let (path, begin) = found.stretch(tensor).unwrap();
        assert_eq!(fs_err::read(path).unwrap()[begin as usize..][..stored.len()], stored, "{tensor} of {name}");
    }
}

#[test]
fn state_dicts_are_their_safetensors_twins() {
    same("state.pt", "state.safetensors");
    same("nested.pt", "nested.safetensors");
    same("nested_protocol4.pt", "nested.safetensors");
    assert_eq!(values(&open("state.pt"), "rows.rest"), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]);
    assert_eq!(values(&open("parameter.pt"), "weight"), [-1.0, -0.5]);
    assert_eq!(open("tensor.pt").names(), [UNNAMED]);
    let float8 = open("float8.pt");
    assert_eq!((float8.names(), float8.fact("weight")), (vec!["bias", "weight"], None));
}

#[test]
fn archives_that_are_no_state_dict() {
    insta::assert_snapshot!(refusal("legacy.pt"), @"legacy.pt is in the format torch.save had before PyTorch 1.6; load it with torch.load(.., weights_only=True) and save it again, or as safetensors");
    insta::assert_snapshot!(refusal("torchscript.pt"), @"torchscript.pt is a TorchScript archive (torchscript.pt/code/__torch__/torch/nn/modules/linear.py), which holds code; save the module's state_dict() with torch.save");
    insta::assert_snapshot!(refusal("several.npz"), @"several.npz is a zip archive without a data.pkl, expected one written by torch.save; from an .npz save one array as .npy");
    insta::assert_snapshot!(refusal("deflated.pt"), @"deflated.pt is an archive whose archive/data.pkl is compressed; torch.save stores members as they are");
    insta::assert_snapshot!(refusal("big_endian.pt"), @r#"big_endian.pt was saved on a "big"-endian machine, expected "little""#);
    insta::assert_snapshot!(refusal("list.pt"), @"list.pt holds a list, expected a dict of tensors");
    insta::assert_snapshot!(refusal("storage_missing.pt"), @"storage_missing.pt lacks data/0, the storage of tensor tensor");
    insta::assert_snapshot!(refusal("storage_short.pt"), @"storage_short.pt has tensor tensor in bytes 0..24 of data/0, which is 23 bytes long");
    insta::assert_snapshot!(refusal("two_pickles.pt"), @"two_pickles.pt is a zip archive with several data.pkl: tensor/data.pkl, other/data.pkl");
    insta::assert_snapshot!(refusal("same_member.pt"), @"same_member.pt has a member twice in its archive");
    let whole = fs_err::read(fixture("tensor.pt")).unwrap();
    insta::assert_snapshot!(open_bytes(&whole[..whole.len() - 30]).unwrap_err(), @"reader.pt is not a whole zip archive: invalid Zip archive: Could not find EOCD");
    assert!(open_bytes(&whole).is_ok(), "the ending says nothing");
}

#[test]
fn code_in_a_pickle_is_named_and_not_run() {
    insta::assert_snapshot!(refusal("system.pt"), @"system.pt has a data.pkl that names posix.system at byte 177, which is code; only tensors are read");
    insta::assert_snapshot!(refusal("foreign.pt"), @"foreign.pt has a data.pkl that names __main__.Foreign at byte 17, which is code; only tensors are read");
    insta::assert_snapshot!(refusal("sparse.pt"), @"sparse.pt has a data.pkl that names torch._utils._rebuild_sparse_tensor at byte 18, which is code; only tensors are read");
}

#[test]
fn tensors_that_do_not_lie_in_row_major_order() {
    insta::assert_snapshot!(refusal("transposed.pt"), @"transposed.pt has tensor weight of shape [3,2] with strides [1,3], expected [2,1]: it is a view that does not lie in row-major order; save its .contiguous()");
    insta::assert_snapshot!(refusal("expanded.pt"), @"expanded.pt has tensor weight of shape [2,3] with strides [0,1], expected [3,1]: it is a view that does not lie in row-major order; save its .contiguous()");
    insta::assert_snapshot!(refusal("clash.pt"), @"clash.pt has two tensors called a.b");
}

#[test]
fn arrays_of_numpy() {
    let numbers = [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5];
    for name in ["version1.npy", "version2.npy", "version3.npy", "float64.npy", "float32.npy", "float16.npy"] {
        let source = open(name);
        assert_eq!((source.names(), values(&source, UNNAMED)), (vec![UNNAMED], numbers.into()), "{name}");
        assert_eq!(source.fact(UNNAMED).unwrap().shape.dims(), [2, 3]);
    }
    assert_eq!(open("scalar.npy").fact(UNNAMED), Some(&Fact::new(DType::F32, [])));
    assert_eq!(values(&open("scalar.npy"), UNNAMED), [0.5]);
    assert_eq!(open("int64.npy").fact(UNNAMED), Some(&Fact::new(DType::I64, [2, 3])));
    assert_eq!(open("uint16.npy").fact(UNNAMED), Some(&Fact::new(DType::U16, [2, 3])));
    assert_eq!(bytes(&open("bool.npy"), UNNAMED), [1, 1, 0, 1, 1, 1]);
}

#[test]
fn arrays_that_are_refused() {
    insta::assert_snapshot!(refusal("fortran.npy"), @"fortran.npy is in column-major order (fortran_order); save numpy.ascontiguousarray of it");
    insta::assert_snapshot!(refusal("big_endian.npy"), @r#"big_endian.npy has big-endian numbers (>f4); save them with .astype("<f4")"#);
    insta::assert_snapshot!(refusal("bfloat16.npy"), @"bfloat16.npy has raw pairs of bytes (|V2), as bfloat16 is saved; save float32, or bfloat16 as safetensors");
    insta::assert_snapshot!(refusal("record.npy"), @"record.npy has '[' at byte 10 of its header, expected a dtype such as '<f4'");
    insta::assert_snapshot!(refusal("object.npy"), @"object.npy has values of type |O, expected floats of 2, 4 or 8 bytes, integers or booleans");
    let whole = fs_err::read(fixture("version1.npy")).unwrap();
    insta::assert_snapshot!(open_bytes(&whole[..whole.len() - 1]).unwrap_err(), @"reader.pt has 23 bytes of data, expected 24 for f32[2,3]");
    insta::assert_snapshot!(open_bytes(&[&whole[..], &[0]].concat()).unwrap_err(), @"reader.pt has 25 bytes of data, expected 24 for f32[2,3]");
    insta::assert_snapshot!(open_bytes(&whole[..60]).unwrap_err(), @"reader.pt is 60 bytes long and cut short inside its header");
    insta::assert_snapshot!(open_bytes(&whole[..9]).unwrap_err(), @"reader.pt is 9 bytes long and cut short inside its header");
}

/// A version 1 `.npy` of that header and data.
fn npy(header: &str, data: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let length = (header.len() as u16).to_le_bytes();
    open_bytes(&[b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat())
}

#[test]
fn headers_of_numpy() {
    const GOOD: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    assert!(npy(GOOD, &[0; 8]).is_ok());
    assert!(npy("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}  \n", &[0; 8]).is_ok());
    let edit = |from: &str, to: &str| npy(&GOOD.replace(from, to), &[0; 8]).unwrap_err();
    insta::assert_snapshot!(edit("'descr': '<f4', ", ""), @"reader.pt lacks descr in its header");
    insta::assert_snapshot!(edit("'descr'", "'shape': (), 'descr'"), @"reader.pt has shape twice in its header");
    insta::assert_snapshot!(edit("'descr'", "'other'"), @"reader.pt has other at byte 9 of its header, expected descr, fortran_order or shape");
    insta::assert_snapshot!(edit("False", "0"), @"reader.pt has '0' at byte 34 of its header, expected True or False");
    insta::assert_snapshot!(edit("(2,)", "(-2,)"), @"reader.pt has '-' at byte 51 of its header, expected an extent");
    insta::assert_snapshot!(edit("(2,)", "(4611686018427387904, 4)"), @"reader.pt has an array of shape [4611686018427387904,4], which is larger than any file");
    insta::assert_snapshot!(edit("(2,)", "(99999999999999999999,)"), @"reader.pt has '9' at byte 51 of its header, expected an extent");
    insta::assert_snapshot!(edit("'<f4'", "__import__('os')"), @"reader.pt has '_' at byte 10 of its header, expected a dtype such as '<f4'");
    insta::assert_snapshot!(edit("'<f4'", "'<c8'"), @"reader.pt has values of type <c8, expected floats of 2, 4 or 8 bytes, integers or booleans");
    insta::assert_snapshot!(edit("<f4'", "<f4"), @r#"reader.pt has '\'' at byte 16 of its header, expected the end of a string"#);
    insta::assert_snapshot!(edit(" }", " } }"), @"reader.pt has '}' at byte 58 of its header, expected its end");
    insta::assert_snapshot!(edit(", }", ""), @"reader.pt has its end at byte 54 of its header, expected , or }");
    let huge = [b"\x93NUMPY\x02\x00", &u32::MAX.to_le_bytes()[..]].concat();
    insta::assert_snapshot!(open_bytes(&huge).unwrap_err(), @"reader.pt says its header is 4294967295 bytes long; at most 65536 are read");
    insta::assert_snapshot!(open_bytes(b"\x93NUMPY\x04\x00\x00\x00\x00\x00").unwrap_err(), @"reader.pt has version 4.0 of the .npy format, expected 1.0, 2.0 or 3.0");
}

#[test]
fn a_file_of_no_format() {
    insta::assert_snapshot!(open_bytes(b"#!/bin/sh\nexit 0\n").unwrap_err(), @"reader.pt says its header is 8299974037164990755 bytes long; the format allows 100000000: it is neither safetensors nor, by its first bytes, a PyTorch archive or .npy");
}

/// Everything a damaged file still gives can be read.
fn holds(bytes: &[u8]) {
    if let Ok(checkpoint) = open_bytes(bytes) {
        for name in checkpoint.names() {
            let size = checkpoint.fact(name).map_or(0, Fact::bytes);
            assert!(size <= bytes.len());
            checkpoint.read(name, 0, &mut vec![0; size]).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn no_damage_makes_it_panic(
        which in prop::sample::select(vec!["state.pt", "nested_protocol4.pt", "parameter.pt", "version1.npy", "version3.npy"]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = fs_err::read(fixture(which)).unwrap();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        holds(&bytes);
    }

    #[test]
    fn no_bytes_make_it_panic(
        magic in prop::sample::select(vec![&b"PK\x03\x04"[..], b"\x93NUMPY\x01\x00", b"\x93NUMPY\x03\x00", b"\x80\x02"]),
        bytes in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        holds(&[magic, &bytes].concat());
    }
}
