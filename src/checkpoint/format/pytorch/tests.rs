//! Pickles by hand: what the machine takes and refuses, opcode by opcode.

use super::archive::Archive;
use super::pickle::{Value, read};
use super::state_dict;
use proptest::prelude::*;

/// A tensor of `size` and `stride` in storage '0', without its closing opcodes.
const STORAGE: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQK\0";

/// `{name: tensor}` of that size and stride, each the opcodes of a tuple.
fn tensor(name: &str, size: &[u8], stride: &[u8]) -> Vec<u8> {
    let name = [b"\x8c", &[name.len() as u8][..], name.as_bytes()].concat();
    [b"\x80\x02}", &name, STORAGE, size, stride, b"\x89}tRs."].concat()
}

fn refusal(pickle: &[u8]) -> String {
    read(pickle).unwrap_err().to_string()
}

/// The entries, or the message, with one storage of 24 bytes called '0'.
fn entries(pickle: &[u8]) -> Result<Vec<String>, String> {
    let archive = Archive::of_storages([("0", 100..124)]);
    let pickle = read(pickle).map_err(|e| e.to_string())?;
    let entries = state_dict::entries(&pickle, &archive).map_err(|e| e.to_string())?;
    Ok(entries.into_iter().map(|(name, e)| format!("{name} {}..{}", e.begin, e.end)).collect())
}

#[test]
fn tensors_are_places_in_a_storage() {
    assert_eq!(entries(&tensor("w", b"K\x02K\x03\x86", b"K\x03K\x01\x86")).unwrap(), ["w 100..124"]);
    assert_eq!(entries(&tensor("w", b"K\x01K\x03\x86", b"K\x63K\x01\x86")).unwrap(), ["w 100..112"]);
    assert_eq!(entries(&tensor("w", b"K\0K\x03\x86", b"K\x63K\x63\x86")).unwrap(), ["w 100..100"]);
    let refused = |size: &[u8], stride: &[u8]| entries(&tensor("w", size, stride)).unwrap_err();
    insta::assert_snapshot!(refused(b"K\x02K\x04\x86", b"K\x04K\x01\x86"), @"");
    insta::assert_snapshot!(refused(b"K\x02K\x03\x86", b"K\x01\x85"), @"");
    insta::assert_snapshot!(refused(b"K\x02K\x03\x86", b"K\x01K\x02\x86"), @"");
    insta::assert_snapshot!(refused(b"J\xff\xff\xff\xff\x85", b"K\x01\x85"), @"");
    insta::assert_snapshot!(refused(b"N\x85", b"K\x01\x85"), @"");
    insta::assert_snapshot!(refused(b"\x8a\x08\0\0\0\0\0\0\0\x7f\x85", b"K\x01\x85"), @"");
    insta::assert_snapshot!(refused(b"K\x02", b"K\x01\x85"), @"");
}

#[test]
fn numbers_and_texts() {
    let int = |pickle: &[u8]| {
        let pickle = read(pickle).unwrap();
        pickle.get(pickle.root).clone()
    };
    assert_eq!(int(b"\x80\x02J\xfe\xff\xff\xff."), Value::Int(-2));
    assert_eq!(int(b"\x80\x02M\x01\x02."), Value::Int(513));
    assert_eq!(int(b"\x80\x02\x8a\0."), Value::Int(0));
    assert_eq!(int(b"\x80\x02\x8a\x01\xff."), Value::Int(-1));
    assert_eq!(int(b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."), Value::Other);
    assert_eq!(int(b"\x80\x04\x8d\x02\0\0\0\0\0\0\0\xc3\xa9."), Value::Text("é"));
}

#[test]
fn pickles_that_are_refused() {
    insta::assert_snapshot!(refusal(b""), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02}"), @"");
    insta::assert_snapshot!(refusal(b"\x80\x01}."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02}.."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02}(."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02X\xff\xff\xff\xffabc."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02\x8c\x01\xff."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02}t."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02}(NNNu."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02]NNs."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02}Na."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02h\x05."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02)\x81."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02cbuiltins\neval\nX\x01\0\0\x001\x85R."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x04\x8c\x05posix\x8c\x06system\x93."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch\nhub\n."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch\nfloat32\n)R."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02})R."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02ccollections\nOrderedDict\n]\x85R."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch._utils\n_rebuild_parameter\nK\x01\x85R."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02X\x01\0\0\x000Q."), @"");
    insta::assert_snapshot!(refusal(b"\x80\x02]}b."), @"");
}

#[test]
fn shared_and_cyclic_dicts_end() {
    // A dict of two keys for the dict before it, thirty deep: 2^30 paths in a few hundred bytes.
    let mut laughs = b"\x80\x04}\x94".to_vec();
    for level in 0u8..30 {
        laughs.extend([b'}', 0x94, b'(', 0x8c, 1, b'a', b'h', level, 0x8c, 1, b'b', b'h', level, b'u']);
    }
    laughs.push(b'.');
    insta::assert_snapshot!(entries(&laughs).unwrap_err(), @"");
    insta::assert_snapshot!(entries(b"\x80\x02}q\0X\x01\0\0\0ah\0s.").unwrap_err(), @"");
    insta::assert_snapshot!(entries(b"\x80\x02}.").unwrap_err(), @"");
    // A list that holds itself is no dict to walk.
    insta::assert_snapshot!(entries(b"\x80\x02}X\x01\0\0\0a]q\0h\0as.").unwrap_err(), @"");
}

#[test]
fn values_are_bounded() {
    let many = [b"\x80\x02", &[b'N'; (1 << 21) + 1][..], b"."].concat();
    insta::assert_snapshot!(refusal(&many), @"");
    let many = [b"\x80\x04N", &[0x94; (1 << 21) + 1][..], b"."].concat();
    insta::assert_snapshot!(refusal(&many), @"");
}

proptest! {
    #[test]
    fn no_pickle_makes_it_panic(
        parts in prop::collection::vec(prop_oneof![
            prop::sample::select(b"()}]tNKqhQRbsuae.\x85\x86\x87\x88\x94\x93".to_vec()).prop_map(|b| vec![b]),
            Just(b"ccollections\nOrderedDict\n".to_vec()),
            Just(b"ctorch._utils\n_rebuild_tensor_v3\n".to_vec()),
            Just(STORAGE.to_vec()),
            Just(b"\x8c\x01a".to_vec()),
            Just(b"ctorch\nuint16\n".to_vec()),
            any::<u8>().prop_map(|b| vec![b]),
        ], 0..40),
    ) {
        let pickle = [b"\x80\x02".to_vec(), parts.concat(), b".".to_vec()].concat();
        let _ = entries(&pickle);
    }
}
