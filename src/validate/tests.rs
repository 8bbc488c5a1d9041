use super::{Violation, check, check_for};
use crate::ir::{Graph, parse};
use crate::target::{COREML8, Target};

/// A graph of these lines; `text` starts with the nodes.
fn graph(text: &str) -> Graph {
    parse(&format!("graph main\n{text}")).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The messages for `text`, one a line; empty where it is accepted.
fn report(text: &str) -> String {
    match check(&graph(text)) {
        Ok(_) => String::new(),
        Err(found) => found.iter().map(Violation::to_string).collect::<Vec<_>>().join("\n"),
    }
}

/// Puts `line` before an fp16 graph that uses its value `%c`.
fn half(line: &str) -> String {
    report(&format!("%x = input \"x\" : f16[2]\n{line}\n%y = mul(%x, %c) : f16[2]\noutput \"y\" = %y"))
}

/// As [`half`], in fp32.
fn single(line: &str) -> String {
    report(&format!("%x = input \"x\" : f32[2]\n{line}\n%y = mul(%x, %c) : f32[2]\noutput \"y\" = %y"))
}

#[test]
fn a_checked_graph_gives_its_graph() {
    let graph = graph("%x = input \"x\" : f16[2]\n%y = tanh(%x) : f16[2]\noutput \"y\" = %y");
    assert_eq!(check(&graph).unwrap().graph(), &graph);
}

#[test]
fn a_graph_has_inputs_and_outputs() {
    insta::assert_snapshot!(report(""), @r##"
    the graph has no input
    the graph has no output
    "##);
}

#[test]
fn names_are_legal_and_unique() {
    let text = |input: &str, other: &str, output: &str| {
        report(&format!(
            "%x = input {input} : f16[2]\n%z = input {other} : f16[2]\n%y = add(%x, %z) : f16[2]\noutput {output} = %y"
        ))
    };
    assert_eq!(text("\"x\"", "\"z\"", "\"y\""), "");
    let report = [
        text("\"\"", "\"z\"", "\"y\""),
        text("\"x\"", "\"1z\"", "\"y\""),
        text("\"x\"", "\"z\"", "\"a.y\""),
        text("\"tensor\"", "\"z\"", "\"y\""),
        text("\"x\"", "\"x\"", "\"y\""),
        text("\"x\"", "\"z\"", "\"x\""),
    ];
    insta::assert_snapshot!(report.join("\n"), @r##"
    the name "" of input is empty
    the name "1z" of input is not of the form [A-Za-z_][A-Za-z0-9_]*
    the name "a.y" of output is not of the form [A-Za-z_][A-Za-z0-9_]*
    the name "tensor" of input is a reserved word
    the name "x" is given to two features, an input and an input; expected names of their own
    the name "x" is given to two features, an input and an output; expected names of their own
    "##);
    let twice = "%x = input \"x\" : f16[2]\n%y = tanh(%x) : f16[2]\noutput \"y\" = %y\noutput \"y\" = %y";
    insta::assert_snapshot!(self::report(twice), @r##"
    the name "y" is given to two features, an output and an output; expected names of their own
    "##);
    let graph =
        parse("graph \"my graph\"\n%x = input \"x\" : f16[2]\n%y = tanh(%x) : f16[2]\noutput \"y\" = %y").unwrap();
    assert!(matches!(check(&graph).unwrap_err()[..], [Violation::Name { what: "the graph", .. }]));
}

#[test]
fn features_have_a_dtype_and_a_shape() {
    let text = |input: &str, output: &str| {
        report(&format!(
            "%x = input \"x\" : {input}\n%y = cast(%x) dtype={output} : {output}{}\noutput \"y\" = %y",
            &input[input.find('[').unwrap()..]
        ))
    };
    assert_eq!(text("f32[1]", "i32"), "");
    assert_eq!(text("i32[1]", "f16"), "");
    let report = [text("f64[1]", "f32"), text("f16[1]", "bool"), text("f32[]", "f32")];
    insta::assert_snapshot!(report.join("\n"), @r##"
    input "x" is f64[1], expected a dtype of f32, f16, i32
    x is f64[1], expected a dtype of f32, f16, i32, i16, i8, u16, u8, bool
    output "y" is bool[1], expected a dtype of f32, f16, i32
    input "x" is f32[], expected rank 1 or more: a feature without shape is not static
    output "y" is f32[], expected rank 1 or more: a feature without shape is not static
    "##);
}

/// Writers give such an output an op of its own.
#[test]
fn an_output_may_be_an_input_or_a_constant() {
    let text = "%x = input \"x\" : f16[2]\n%c = const literal [1.0,2.0] f16[2] : f16[2]\n";
    assert_eq!(report(&format!("{text}output \"y\" = %x\noutput \"z\" = %c")), "");
}

#[test]
fn rank_is_the_targets() {
    let graph = graph("%x = input \"x\" : f16[2,3,4]\n%y = tanh(%x) : f16[2,3,4]\noutput \"y\" = %y");
    assert!(check(&graph).is_ok());
    let flat = Target { max_rank: 2, ..COREML8 };
    let found = check_for(&graph, &flat).unwrap_err();
    assert_eq!(found.len(), 2);
    insta::assert_snapshot!(found[1], @r##"
    y is of rank 3, expected 2 or less: [2,3,4]
    "##);
}

#[test]
fn values_have_a_dtype_of_the_target() {
    for (dtype, fine) in [("f64", false), ("bf16", false), ("i64", false), ("u32", false), ("u8", true), ("i16", true)]
    {
        let text = format!(
            "%x = input \"x\" : f32[2]\n%c = cast(%x) dtype={dtype} : {dtype}[2]\n%y = cast(%c) dtype=f32 : f32[2]\noutput \"y\" = %y"
        );
        assert_eq!(report(&text).is_empty(), fine, "{dtype}");
    }
    insta::assert_snapshot!(
        report("%x = input \"x\" : f32[2]\n%c = cast(%x) dtype=i64 : i64[2]\n%y = cast(%c) dtype=i32 : i32[2]\noutput \"y\" = %y"),
        @r##"
        c is i64[2], expected a dtype of f32, f16, i32, i16, i8, u16, u8, bool
        "##
    );
}

#[test]
fn an_fp16_graph_holds_no_fp32() {
    let body = "%c = const literal [0.5] f32[] : f32[]\n%w = cast(%x) dtype=f32 : f32[2]\n%p = mul(%w, %c) : f32[2]\n%y = cast(%p) dtype=f16 : f16[2]\noutput \"y\" = %y";
    insta::assert_snapshot!(report(&format!("%x = input \"x\" : f16[2]\n{body}")), @r##"
    fp32 value in an fp16 graph: const c is f32[], expected f16
    fp32 value in an fp16 graph: cast w is f32[2], expected f16
    fp32 value in an fp16 graph: mul p is f32[2], expected f16
    "##);
    assert_eq!(report(&format!("%x = input \"x\" : f32[2]\n{body}")), "");
    // ids in, fp16 out: the outputs say what the graph is
    let ids = "%x = input \"x\" : i32[2]\n%w = cast(%x) dtype=f32 : f32[2]\n%y = cast(%w) dtype=DTYPE : DTYPE[2]\noutput \"y\" = %y";
    assert_ne!(report(&ids.replace("DTYPE", "f16")), "");
    assert_eq!(report(&ids.replace("DTYPE", "f32")), "");
}

#[test]
fn levels_and_scales_are_constants() {
    let text = |q: &str, scale: &str| {
        report(&format!(
            "%x = input \"x\" : f32[1,64]\n%q = {q} : i8[4,64]\n%s = {scale} : f32[4,1]\n%w = dequantize(%q, %s) : f32[4,64]\n%y = linear(%x, %w) : f32[1,4]\noutput \"y\" = %y"
        ))
    };
    let (q, scale) =
        ("const tensor \"w\" f32[4,64] | quantize_blocks 64", "const tensor \"w\" f32[4,64] | block_scales 64");
    assert_eq!(text(q, scale), "");
    let fed = text(q, "input \"s\"");
    insta::assert_snapshot!(fed, @"dequantize w reads s, which is computed, expected constants");
}

#[test]
fn nothing_is_computed_for_nobody() {
    let text = "%x = input \"x\" : f16[2]\n%z = input \"z\" : f16[2]\n%y = tanh(%x) : f16[2]\n%u = tanh(%x) : f16[2]\noutput \"y\" = %y";
    insta::assert_snapshot!(report(text), @r##"
    input z is read by no node and no output
    tanh u is read by no node and no output
    "##);
    assert_eq!(
        report(&format!("{}\noutput \"u\" = %u\noutput \"z2\" = %y", text.replace("tanh(%x)", "add(%x, %z)"))),
        ""
    );
}

#[test]
fn constants_exist_in_their_dtype() {
    for fine in [
        "%c = const literal [-1e4] f32[] | cast f16 : f16[]",
        "%c = const literal [65504.0] f32[] | cast f16 : f16[]",
        "%c = const literal [inf] f32[] | saturate f16 : f16[]",
        "%c = const literal [1e9] f32[] | scale 1e-6 | cast f16 : f16[]",
        "%c = const literal [1e-6,0.0] f32[2] | cast f16 : f16[2]",
        "%c = const table causal_band tokens=1 keys=2 value=-1e4 | reshape [2] | cast f16 : f16[2]",
    ] {
        assert_eq!(half(fine), "", "{fine}");
    }
    let report: Vec<String> = [
        "%c = const literal [-1e9] f32[] | cast f16 : f16[]",
        "%c = const literal [65505.0] f32[] | cast f16 : f16[]",
        "%c = const literal [NaN] f32[] | saturate f16 : f16[]",
        "%c = const literal [100.0] f32[] | scale 1e3 | cast f16 : f16[]",
        "%c = const literal [1.0,1e-12] f32[2] | cast f16 : f16[2]",
        "%c = const table causal_band tokens=1 keys=2 value=-1e9 | reshape [2] | cast f16 : f16[2]",
        "%c = const literal [inf] f16[] : f16[]",
    ]
    .map(half)
    .into();
    insta::assert_snapshot!(report.join("\n"), @r##"
    constant c holds -1000000000.0, expected a finite number within +-65504.0 (f16)
    constant c holds 65505.0, expected a finite number within +-65504.0 (f16)
    constant c holds NaN, expected a finite number within +-65504.0 (f16)
    constant c holds 100000.0, expected a finite number within +-65504.0 (f16)
    constant c holds 1e-12, which becomes 0 in f16
    constant c holds -1000000000.0, expected a finite number within +-65504.0 (f16)
    constant c holds inf, expected a finite number within +-65504.0 (f16)
    "##);
    assert_eq!(single("%c = const literal [-1e9] f32[] : f32[]"), "");
    assert_ne!(single("%c = const literal [1e39] f32[] | scale 1e-9 : f32[]"), "", "infinite before it is scaled");
    insta::assert_snapshot!(single("%c = const literal [1e39,-inf] f32[2] : f32[2]"), @r##"
    constant c holds 1e39, expected a finite number within +-3.4028234663852886e38 (f32)
    constant c holds -inf, expected a finite number within +-3.4028234663852886e38 (f32)
    "##);
}

#[test]
fn integer_constants_are_whole_and_in_range() {
    let text = |value: &str, dtype: &str| {
        report(&format!(
            "%x = input \"x\" : f32[1]\n%i = const literal [{value}] {dtype}[1] : {dtype}[1]\n%c = cast(%i) dtype=f32 : f32[1]\n%y = mul(%x, %c) : f32[1]\noutput \"y\" = %y"
        ))
    };
    for (value, dtype) in [("-2147483648", "i32"), ("255", "u8"), ("1", "bool")] {
        assert_eq!(text(value, dtype), "");
    }
    let report =
        [text("1.5", "i32"), text("2147483648", "i32"), text("256", "u8"), text("NaN", "i16"), text("2", "bool")];
    insta::assert_snapshot!(report.join("\n"), @r##"
    constant i holds 1.5, expected a whole number within -2147483648..=2147483647 (i32)
    constant i holds 2147483648, expected a whole number within -2147483648..=2147483647 (i32)
    constant i holds 256, expected a whole number within 0..=255 (u8)
    constant i holds NaN, expected a whole number within -32768..=32767 (i16)
    constant i holds 2, expected a whole number within 0..=1 (bool)
    "##);
}
