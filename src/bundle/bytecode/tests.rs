use super::*;
use proptest::prelude::*;

const FIXTURE: &str = "tests/fixtures/two_functions.aimodel/main.mlirb";

fn fixture() -> Vec<u8> {
    std::fs::read(FIXTURE).unwrap()
}

fn read(bytes: &[u8]) -> Result<Bytecode, String> {
    take_apart(bytes).map_err(|stop| match stop {
        Stop::At(offset, fault) => format!("{offset:#x}: {fault}"),
        Stop::Io(error) => format!("io: {error}"),
    })
}

/// A file with each section's content changed by `change`, its length set right.
fn rebuilt(change: impl Fn(Part, &mut Vec<u8>)) -> Vec<u8> {
    let bytes = fixture();
    let found = read(&bytes).unwrap();
    let mut out = bytes[..bytes.iter().position(|b| *b == 0).unwrap() + 1].to_vec();
    for section in &found.sections {
        let mut content = bytes[section.range.start as usize..section.range.end as usize].to_vec();
        change(section.part, &mut content);
        let padding = |at: usize| at.next_multiple_of(section.alignment as usize) - at;
        out.push(section.part as u8 | if section.alignment > 1 { 0x80 } else { 0 });
        out.push(0);
        out.extend_from_slice(&(content.len() as u64).to_le_bytes());
        if section.alignment > 1 {
            out.push(0);
            out.extend_from_slice(&section.alignment.to_le_bytes());
            out.resize(out.len() + padding(out.len()), 0xcb);
        }
        out.extend_from_slice(&content);
    }
    out
}

/// A file whose section `part` has other content.
fn with(part: Part, content: &[u8]) -> Vec<u8> {
    rebuilt(|which, bytes| {
        if which == part {
            *bytes = content.to_vec();
        }
    })
}

fn summary(found: &Bytecode) -> String {
    let mut lines = vec![format!("version {} by {}, {} bytes", found.version, found.producer, found.bytes)];
    lines.extend(found.sections.iter().map(|s| format!("{}: {:x?} at {}", s.part, s.range, s.alignment)));
    lines.extend(found.dialects.iter().map(|d| format!("{} {:?}: {} operations", d.name, d.version, d.ops.len())));
    let resource = |r: &Resource| format!("{} of {}: {:?} {:x?} at {}", r.name, r.owner, r.kind, r.range, r.alignment);
    lines.extend(found.resources.iter().map(resource));
    lines.extend(found.functions.iter().map(|f| format!("{}: {:?} with {:?}", f.kind, f.ops, f.nested)));
    lines.join("\n")
}

#[test]
fn what_a_file_consists_of() {
    insta::assert_snapshot!(summary(&read(&fixture()).unwrap()), @r#"
    version 6 by MLIR22.0.0git, 1987 bytes
    dialect section: 15..30 at 1
    attribute offset section: 32..69 at 1
    attribute section: 6c..14b at 1
    operation section: 14e..526 at 1
    resource offset section: 528..531 at 1
    resource section: 540..5c0 at 64
    string section: 5c3..791 at 1
    property section: 793..7c3 at 1
    aicode Some(2): 19 operations
    weight of aicode: Blob 580..5b0 at 64
    bias of aicode: Blob 5b4..5c0 at 4
    aicode.dataflow.graph_v1: {"aicode.broadcasting_add_v1": 1, "aicode.broadcasting_batch_matmul_v1": 1, "aicode.broadcasting_mul_v1": 1, "aicode.dataflow.output_v1": 1, "aicode.primitive.constant_v1": 3, "aicode.silu_v1": 1} with {"aicode.broadcasting_add_v1": 1, "aicode.broadcasting_divide_v1": 1, "aicode.broadcasting_mul_v1": 1, "aicode.broadcasting_sub_v1": 1, "aicode.dataflow.yield_v1": 8, "aicode.primitive.add_v1": 2, "aicode.primitive.batch_matmul_v1": 1, "aicode.primitive.broadcast_in_dims_v1": 5, "aicode.primitive.constant_v1": 17, "aicode.primitive.divide_v1": 1, "aicode.primitive.exp_v1": 1, "aicode.primitive.mul_v1": 2, "aicode.primitive.reshape_v2": 5, "aicode.primitive.sub_v1": 1}
    aicode.dataflow.graph_v1: {"aicode.broadcasting_add_v1": 1, "aicode.broadcasting_batch_matmul_v1": 1, "aicode.broadcasting_mul_v1": 1, "aicode.dataflow.output_v1": 1, "aicode.primitive.constant_v1": 3, "aicode.silu_v1": 1} with {"aicode.broadcasting_add_v1": 1, "aicode.broadcasting_divide_v1": 1, "aicode.broadcasting_mul_v1": 1, "aicode.broadcasting_sub_v1": 1, "aicode.dataflow.yield_v1": 8, "aicode.primitive.add_v1": 2, "aicode.primitive.batch_matmul_v1": 1, "aicode.primitive.broadcast_in_dims_v1": 5, "aicode.primitive.constant_v1": 17, "aicode.primitive.divide_v1": 1, "aicode.primitive.exp_v1": 1, "aicode.primitive.mul_v1": 2, "aicode.primitive.reshape_v2": 5, "aicode.primitive.sub_v1": 1}
    "#);
}

#[test]
fn opening() {
    let found = Bytecode::open(Path::new(FIXTURE)).unwrap();
    assert_eq!(found, read(&fixture()).unwrap());
    insta::assert_snapshot!(Bytecode::open(Path::new("tests/fixtures")).unwrap_err(), @"could not read tests/fixtures");
    insta::assert_snapshot!(Bytecode::open(Path::new("tests/fixtures/two_functions.aimodel/main.hash")).unwrap_err(), @"tests/fixtures/two_functions.aimodel/main.hash at 0x0: found [6c, bd, 92, 0f], expected the start of MLIR bytecode, [4d, 4c, ef, 52]");
}

#[test]
fn a_file_cut_short_is_never_read() {
    let bytes = fixture();
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut to {end} bytes");
    }
    let cut = |end: usize| read(&bytes[..end]).unwrap_err();
    insta::assert_snapshot!(cut(0), @"0x0: found [], expected the start of MLIR bytecode, [4d, 4c, ef, 52]");
    insta::assert_snapshot!(cut(10), @"0x5: producer is not ended by a zero byte");
    insta::assert_snapshot!(cut(0x13), @"0x13: there is no string section");
    insta::assert_snapshot!(cut(0x14), @"0x14: section header ends here, expected 1 more bytes; the file is cut short or damaged");
    insta::assert_snapshot!(cut(0x200), @"0x14b: operation section has 984 bytes, 178 are left of the file; it is cut short or damaged");
    insta::assert_snapshot!(cut(0x600), @"0x5c0: string section has 462 bytes, 61 are left of the file; it is cut short or damaged");
    insta::assert_snapshot!(cut(0x793 - 2), @"0x152: property 0 is named, there are 0");
}

#[test]
fn each_changed_byte_is_read_or_refused() {
    let mut bytes = fixture();
    for at in 0..bytes.len() {
        let kept = bytes[at];
        for value in (0..8).map(|bit| kept ^ (1 << bit)).chain([0, 0xff]) {
            bytes[at] = value;
            within(&bytes);
        }
        bytes[at] = kept;
    }
}

/// What is read of any bytes lies within them.
fn within(bytes: &[u8]) {
    if let Ok(found) = read(bytes) {
        let ranges = found.sections.iter().map(|s| &s.range).chain(found.resources.iter().map(|r| &r.range));
        for range in ranges {
            assert!(range.start <= range.end && range.end <= bytes.len() as u64, "{range:?}");
        }
    }
}

#[test]
fn sections_that_lie() {
    assert_eq!(read(&rebuilt(|_, _| {})).unwrap().resources.len(), 2, "rebuilding as such changes nothing");
    let with = |part: Part, content: &[u8]| read(&with(part, content)).unwrap_err();
    let tail = |part: Part, extra: &[u8]| {
        read(&rebuilt(|which, bytes| bytes.extend_from_slice(if which == part { extra } else { &[] }))).unwrap_err()
    };
    const HUGE: &[u8] = &[0, 255, 255, 255, 255, 255, 255, 255, 127];
    insta::assert_snapshot!(with(Part::Strings, HUGE), @"0x60a: 9223372036854775807 strings are announced, there is room for 0");
    insta::assert_snapshot!(with(Part::Strings, &[3, 3, b'a']), @"0x60c: string is not ended by a zero byte");
    insta::assert_snapshot!(with(Part::Strings, &[3, 5, 0xff, 0]), @"0x60c: string is no UTF-8");
    insta::assert_snapshot!(with(Part::Dialects, HUGE), @"0x1d: 9223372036854775807 dialects are announced, there is room for 0");
    insta::assert_snapshot!(with(Part::Dialects, &[3, 0xff]), @"0x1e: string 63 is named, there are 29");
    insta::assert_snapshot!(with(Part::Dialects, &[3, 1, 3, 1, 1, 1]), @"0x21: 0 operation names are announced, there is room for 1");
    insta::assert_snapshot!(with(Part::AttributeAndTypeOffsets, HUGE), @"0x42: 9223372036854775807 attributes are announced, there is room for 0");
    insta::assert_snapshot!(tail(Part::AttributesAndTypes, &[0]), @"0x79: attributes and types take 223 bytes, expected 224");
    insta::assert_snapshot!(with(Part::Operations, HUGE), @"0x16c: 4611686018427387903 operations are announced, there is room for 0");
    insta::assert_snapshot!(with(Part::Operations, &[5, 0xff, 0, 0, 0]), @"0x16d: operation name 127 is named, there are 19");
    insta::assert_snapshot!(with(Part::Operations, &[5, 1, 0x80, 1]), @"0x16e: operation has the marks 0x80, expected bits of 0x7f");
    insta::assert_snapshot!(tail(Part::Operations, &[0, 0]), @"0x544: 2 bytes are left over after operation section");
    insta::assert_snapshot!(with(Part::ResourceOffsets, HUGE), @"0x54e: 9223372036854775807 resource groups are announced, there is room for 0");
    insta::assert_snapshot!(with(Part::ResourceOffsets, &[1, 1, 3, 3, 0xff, 0]), @"0x581: blob take 48 bytes, expected 63");
    insta::assert_snapshot!(with(Part::ResourceOffsets, &[1, 1, 3, 3, 3, 9]), @"0x553: resource primitive.constant_v1 is of kind 9, expected 0 to 2");
    insta::assert_snapshot!(with(Part::ResourceOffsets, &[1, 1, 5, 3, 1, 1, 3, 1, 1]), @"0x554: a second resource primitive.constant_v1");
    insta::assert_snapshot!(with(Part::ResourceOffsets, &[1]), @"0x580: 128 bytes are left over after the last resource");
    insta::assert_snapshot!(with(Part::Resources, &[7, 3]), @"0x552: resource section has 112 bytes, 2 are left of the file; it is cut short or damaged");
    insta::assert_snapshot!(tail(Part::Resources, &[1]), @"0x600: 1 bytes are left over after the last resource");
    insta::assert_snapshot!(with(Part::Properties, &[3, 0xff]), @"0x7e4: property section ends here, expected 127 more bytes; the file is cut short or damaged");
}

/// Regions within regions, down to what would exhaust the stack.
#[test]
fn nesting_ends() {
    // Each level: a block of one operation that has one region, which has one block.
    let deep = [5, 1, 0x10, 1, 5, 3, 1].repeat(10_000);
    insta::assert_snapshot!(read(&with(Part::Operations, &deep)).unwrap_err(), @"0x333: operations are nested deeper than 64");
}

proptest! {
    #[test]
    fn no_input_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in 0usize..64) {
        let mut bytes = fixture();
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        bytes.truncate(bytes.len() - cut / 8);
        within(&bytes);
    }

    #[test]
    fn no_section_panics(part in 0u8..9, content in prop::collection::vec(any::<u8>(), 0..200)) {
        within(&with(Part::of(part).unwrap(), &content));
    }
}
