//! Pickles by hand: what the machine takes and refuses, opcode by opcode.

use super::archive::Archive;
use super::pickle::read;
use super::state_dict;
use super::value::Value;
use proptest::prelude::*;

/// A tensor of `size` and `stride` in storage '0', without its closing opcodes.
const STORAGE: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQK\0";

/// `{name: tensor}` of that size and stride, each the opcodes of a tuple.
fn tensor(name: &str, size: &[u8], stride: &[u8]) -> Vec<u8> {
    let name = [b"\x8c", &[name.len() as u8][..], name.as_bytes()].concat();
    [b"\x80\x02}", &name[..], STORAGE, size, stride, b"\x89}tRs."].concat()
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
    insta::assert_snapshot!(refused(b"K\x02K\x04\x86", b"K\x04K\x01\x86"), @"has tensor w in bytes 0..32 of data/0, which is 24 bytes long");
    insta::assert_snapshot!(refused(b"K\x02K\x03\x86", b"K\x01\x85"), @"has 2 extents and 1 strides for tensor w");
    insta::assert_snapshot!(refused(b"K\x02K\x03\x86", b"K\x01K\x02\x86"), @"has tensor w of shape [2,3] with strides [1,2], expected [3,1]: it is a view that does not lie in row-major order; save its .contiguous()");
    insta::assert_snapshot!(refused(b"J\xff\xff\xff\xff\x85", b"K\x01\x85"), @"has a negative number in the size or stride of tensor w, expected up to 64 extents");
    insta::assert_snapshot!(refused(b"N\x85", b"K\x01\x85"), @"has None or a float in the size or stride of tensor w, expected up to 64 extents");
    insta::assert_snapshot!(refused(b"\x8a\x08\0\0\0\0\0\0\0\x7f\x85", b"K\x01\x85"), @"has tensor w of shape [9151314442816847872], which is larger than any file");
    insta::assert_snapshot!(refused(b"K\x02", b"K\x01\x85"), @"has a call of _rebuild_tensor_v2 at byte 101 with arguments it does not take: expected storage, offset, size, stride");
}

/// `{'w': tensor}` whose `_rebuild_tensor_v2` takes `metadata`, the opcodes of a value, as its seventh argument, or whose
/// `_rebuild_tensor_v3` takes it as its eighth.
fn with_metadata(metadata: &[u8]) -> [Vec<u8>; 2] {
    let head = [b"\x80\x02}\x8c\x01w", STORAGE, b"K\x06\x85K\x01\x85\x89}"].concat();
    let v2 = [&head[..], metadata, b"tRs."].concat();
    let v3 = [&head[..], b"ctorch\nfloat32\n", metadata, b"tRs."].concat();
    let at = v3.windows(3).position(|w| w == b"_v2").unwrap();
    [v2, [&v3[..at], b"_v3", &v3[at + 3..]].concat()]
}

#[test]
fn tensors_whose_bytes_are_not_their_values_are_refused() {
    for none in [&b"N"[..], b"}", b"ccollections\nOrderedDict\n)R"] {
        with_metadata(none).iter().for_each(|pickle| assert_eq!(entries(pickle).unwrap(), ["w 100..124"]));
    }
    let refused = |metadata: &[u8]| {
        let [v2, v3] = with_metadata(metadata).map(|pickle| entries(&pickle).unwrap_err());
        assert_eq!(v2, v3);
        v2
    };
    insta::assert_snapshot!(refused(b"}X\x03\0\0\0neg\x88s"), @"has tensor w with metadata (neg), so that its bytes are not its values: it may be a negated or conjugated view; save its .resolve_neg().resolve_conj()");
    insta::assert_snapshot!(refused(b"}X\x04\0\0\0conj\x89s"), @"has tensor w with metadata (conj), so that its bytes are not its values: it may be a negated or conjugated view; save its .resolve_neg().resolve_conj()");
    insta::assert_snapshot!(refused(b"}K\x01\x88s"), @"has tensor w with metadata (an integer), so that its bytes are not its values: it may be a negated or conjugated view; save its .resolve_neg().resolve_conj()");
    insta::assert_snapshot!(refused(b"\x88"), @"has tensor w with metadata (a boolean), so that its bytes are not its values: it may be a negated or conjugated view; save its .resolve_neg().resolve_conj()");
    // Filled after the call: the dict is looked at once the pickle is read.
    let late =
        [b"\x80\x02}\x8c\x01w", STORAGE, b"K\x06\x85K\x01\x85\x89}}q\0tRs\x8c\x01mh\0\x8c\x03neg\x88ss."].concat();
    assert!(entries(&late).unwrap_err().contains("with metadata (neg)"));
}

#[test]
fn numbers_and_texts() {
    fn int(pickle: &[u8]) -> Value<'_> {
        let pickle = read(pickle).unwrap();
        pickle.get(pickle.root).clone()
    }
    assert_eq!(int(b"\x80\x02J\xfe\xff\xff\xff."), Value::Int(-2));
    assert_eq!(int(b"\x80\x02M\x01\x02."), Value::Int(513));
    assert_eq!(int(b"\x80\x02\x8a\0."), Value::Int(0));
    assert_eq!(int(b"\x80\x02\x8a\x01\xff."), Value::Int(-1));
    assert_eq!(int(b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."), Value::Other);
    assert_eq!(int(b"\x80\x04\x8d\x02\0\0\0\0\0\0\0\xc3\xa9."), Value::Text("é"));
}

#[test]
fn pickles_that_are_refused() {
    insta::assert_snapshot!(refusal(b""), @"ends inside the opcode at byte 0");
    insta::assert_snapshot!(refusal(b"\x80\x02}"), @"ends inside the opcode at byte 3");
    insta::assert_snapshot!(refusal(b"\x80\x01}."), @"has protocol 1, expected 2 to 5");
    insta::assert_snapshot!(refusal(b"\x80\x02}.."), @"ends at byte 4, but 1 bytes follow");
    insta::assert_snapshot!(refusal(b"\x80\x02."), @"has an opcode at byte 2 that finds an empty stack, expected a value");
    insta::assert_snapshot!(refusal(b"\x80\x02}(."), @"has an opcode at byte 4 that finds an empty stack, expected a value");
    insta::assert_snapshot!(refusal(b"\x80\x02X\xff\xff\xff\xffabc."), @"ends inside the opcode at byte 2");
    insta::assert_snapshot!(refusal(b"\x80\x02\x8c\x01\xff."), @"has bytes that are not UTF-8 in the text at byte 2");
    insta::assert_snapshot!(refusal(b"\x80\x02}t."), @"has an opcode at byte 3 that finds no mark, expected one");
    insta::assert_snapshot!(refusal(b"\x80\x02}(NNNu."), @"has an opcode at byte 7 that finds a key without a value, expected pairs");
    insta::assert_snapshot!(refusal(b"\x80\x02]NNs."), @"has an opcode at byte 5 that finds a list, expected a dict");
    insta::assert_snapshot!(refusal(b"\x80\x02}Na."), @"has an opcode at byte 4 that finds a dict, expected a list");
    insta::assert_snapshot!(refusal(b"\x80\x02h\x05."), @"refers to memo 5 at byte 2, which is empty");
    insta::assert_snapshot!(refusal(b"\x80\x02)\x81."), @"has opcode 0x81 at byte 3, which torch.save does not write for tensors");
    insta::assert_snapshot!(refusal(b"\x80\x02cbuiltins\neval\nX\x01\0\0\x001\x85R."), @"names builtins.eval at byte 2, which is code; only tensors are read");
    insta::assert_snapshot!(refusal(b"\x80\x04\x8c\x05posix\x8c\x06system\x93."), @"names posix.system at byte 17, which is code; only tensors are read");
    insta::assert_snapshot!(refusal(b"\x80\x02c\x1b[2J\nhub\n."), @r"names \u{1b}[2J.hub at byte 2, which is code; only tensors are read");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch\nhub\n."), @"names torch.hub at byte 2, which is code; only tensors are read");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch\nfloat32\n)R."), @"has an opcode at byte 18 that finds a type, expected a function");
    insta::assert_snapshot!(refusal(b"\x80\x02})R."), @"has an opcode at byte 4 that finds a dict, expected a name to call");
    insta::assert_snapshot!(refusal(b"\x80\x02ccollections\nOrderedDict\n]\x85R."), @"has a call of OrderedDict at byte 29 with arguments it does not take: expected none");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R."), @"has a call of _rebuild_tensor_v2 at byte 36 with arguments it does not take: expected storage, offset, size, stride");
    insta::assert_snapshot!(refusal(b"\x80\x02ctorch._utils\n_rebuild_parameter\nK\x01\x85R."), @"has a call of a parameter at byte 38 with arguments it does not take: expected a tensor first");
    insta::assert_snapshot!(refusal(b"\x80\x02X\x01\0\0\x000Q."), @"has an opcode at byte 8 that finds a text, expected a tuple");
    insta::assert_snapshot!(refusal(b"\x80\x02]}b."), @"has an opcode at byte 4 that finds a list, expected a dict or a tensor");
}

#[test]
fn shared_and_cyclic_dicts_end() {
    // A dict of two keys for the dict before it, thirty deep: 2^30 paths in a few hundred bytes.
    let mut laughs = b"\x80\x04}\x94".to_vec();
    for level in 0u8..30 {
        laughs.extend([b'}', 0x94, b'(', 0x8c, 1, b'a', b'h', level, 0x8c, 1, b'b', b'h', level, b'u']);
    }
    laughs.push(b'.');
    insta::assert_snapshot!(entries(&laughs).unwrap_err(), @"has dicts that share dicts so often that their tensors cannot be listed");
    insta::assert_snapshot!(entries(b"\x80\x02}q\0X\x01\0\0\0ah\0s.").unwrap_err(), @"has dicts nested more than 32 deep, or one inside itself");
    insta::assert_snapshot!(entries(b"\x80\x02}.").unwrap_err(), @"holds no tensor");
    // A list that holds itself is no dict to walk.
    insta::assert_snapshot!(entries(b"\x80\x02}X\x01\0\0\0a]q\0h\0as.").unwrap_err(), @"holds no tensor");
}

#[test]
fn values_are_bounded() {
    let many = [b"\x80\x02", &[b'N'; (1 << 21) + 1][..], b"."].concat();
    insta::assert_snapshot!(refusal(&many), @"makes more than 2097152 values");
    let many = [b"\x80\x04N", &[0x94; (1 << 21) + 1][..], b"."].concat();
    insta::assert_snapshot!(refusal(&many), @"makes more than 2097152 values");
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
