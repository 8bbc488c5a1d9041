use super::*;
use crate::ir::{Materializer, parse, print};
use crate::tensor::Memory;
use crate::validate::check;

/// Two linear layers, one of 33 inputs, and a clamp by a vector and by a number.
const LAYERS: &str = include_str!("../../../tests/support/layers.txt");

fn memory(low: f32) -> Memory {
    let mut memory = Memory::default();
    let wave = |n: usize, by: f32| (0..n).map(|i| (i as f32 * by).sin()).collect::<Vec<f32>>();
    let mut bound = wave(64, 0.1);
    bound[7] = low;
    memory.insert_f32("low", &[64], &bound);
    memory.insert_f32("proj", &[33, 64], &wave(33 * 64, 0.37));
    memory.insert_f32("bias", &[33], &wave(33, 0.9));
    memory.insert_f32("odd", &[4, 33], &wave(4 * 33, 0.53));
    memory
}

fn made(text: &str, to: Precision, memory: &Memory) -> (Graph, PrecisionReport) {
    precision(&parse(text).unwrap(), to, memory).unwrap()
}

#[test]
fn int8_takes_the_weights_of_linear_layers() {
    let (graph, report) = made(LAYERS, Precision::Int8, &memory(-0.5));
    insta::assert_snapshot!(print(&graph), @r##"
    graph main
    %x = input "x" : f32[1,3,64]
    %low = const tensor "low" f32[64] : f32[64]
    %bounded = maximum(%x, %low) : f32[1,3,64]
    %high = const literal [1.5] f32[] : f32[]
    %clamped = minimum(%bounded, %high) : f32[1,3,64]
    %proj.weight.levels = const tensor "proj" f32[33,64] | scale 0.5 | quantize_blocks 32 : i8[33,64]
    %proj.weight.scales = const tensor "proj" f32[33,64] | scale 0.5 | block_scales 32 : f32[33,2]
    %proj.weight = dequantize(%proj.weight.levels, %proj.weight.scales) : f32[33,64]
    %proj.bias = const tensor "bias" f32[33] : f32[33]
    %proj = linear(%clamped, %proj.weight, %proj.bias) : f32[1,3,33]
    %odd.weight = const tensor "odd" f32[4,33] : f32[4,33]
    %odd = linear(%proj, %odd.weight) : f32[1,3,4]
    output "y" = %odd
    "##);
    insta::assert_snapshot!(serde_json::to_string(&report).unwrap(), @r#"{"dropped_bounds":[],"compressed":1,"kept_fp32":[{"path":"odd.weight","reason":"its 33 inputs are not a multiple of 32"}]}"#);
}

#[test]
fn fp16w32_takes_what_goes_to_the_weight_file() {
    let (graph, report) = made(LAYERS, Precision::Fp16W32, &memory(-0.5));
    insta::assert_snapshot!(print(&graph), @r##"
    graph main
    %x = input "x" : f32[1,3,64]
    %low.fp16 = const tensor "low" f32[64] | cast f16 : f16[64]
    %low = cast(%low.fp16) dtype=f32 : f32[64]
    %bounded = maximum(%x, %low) : f32[1,3,64]
    %high = const literal [1.5] f32[] : f32[]
    %clamped = minimum(%bounded, %high) : f32[1,3,64]
    %proj.weight.fp16 = const tensor "proj" f32[33,64] | scale 0.5 | cast f16 : f16[33,64]
    %proj.weight = cast(%proj.weight.fp16) dtype=f32 : f32[33,64]
    %proj.bias.fp16 = const tensor "bias" f32[33] | cast f16 : f16[33]
    %proj.bias = cast(%proj.bias.fp16) dtype=f32 : f32[33]
    %proj = linear(%clamped, %proj.weight, %proj.bias) : f32[1,3,33]
    %odd.weight.fp16 = const tensor "odd" f32[4,33] | cast f16 : f16[4,33]
    %odd.weight = cast(%odd.weight.fp16) dtype=f32 : f32[4,33]
    %odd = linear(%proj, %odd.weight) : f32[1,3,4]
    output "y" = %odd
    "##);
    assert_eq!((report.compressed, report.kept_fp32.len()), (4, 0));
}

#[test]
fn a_bound_beyond_fp16_stays_and_a_weight_is_refused() {
    for (low, kept) in [(-65519.0, 0), (-65520.0, 1), (f32::MIN, 1)] {
        let memory = memory(low);
        let (graph, report) = made(LAYERS, Precision::Fp16W32, &memory);
        assert_eq!((report.compressed, report.kept_fp32.len()), (4 - kept, kept), "{low}");
        assert_eq!(print(&graph).contains("%low = const tensor \"low\" f32[64] : f32[64]\n"), kept == 1, "{low}");
    }
    let (_, report) = made(LAYERS, Precision::Fp16W32, &memory(-1e9));
    insta::assert_snapshot!(serde_json::to_string(&report.kept_fp32).unwrap(), @r#"[{"path":"low","reason":"-1000000000 is a bound beyond fp16's range"}]"#);
    // As an addend the same vector is a weight like others: the fault is told when it is read, in fp16 as well.
    let added = LAYERS.replace("maximum(%x, %low)", "add(%x, %low)");
    for to in [Precision::Fp16, Precision::Fp16W32] {
        let memory = memory(-1e9);
        let (graph, _) = made(&added, to, &memory);
        let weights = graph.nodes().filter_map(|(value, _)| graph.constant(value));
        let faults: Vec<String> =
            weights.filter_map(|w| Materializer::new(&memory).read_f32(w).err()).map(|e| e.to_string()).collect();
        assert_eq!(faults, ["low in memory: element 7 is -1000000000, which f16 cannot hold as a finite number"]);
    }
}

#[test]
fn a_matrix_that_something_else_reads_stays() {
    let shared = |user: &str| {
        let text = format!(
            "graph main\n%x = input \"x\" : f32[1,64]\n%w = const tensor \"w\" f32[64,64] : f32[64,64]\n%y = linear(%x, %w) : f32[1,64]\n{user}\noutput \"y\" = %y\noutput \"z\" = %z"
        );
        let (graph, report) = made(&text, Precision::Int8, &Memory::default());
        (report.compressed, report.kept_fp32, graph)
    };
    let (compressed, kept, graph) = shared("%z = linear(%y, %w) : f32[1,64]");
    assert_eq!((compressed, kept), (1, vec![]));
    assert_eq!(graph.nodes().filter(|(_, n)| n.op == Op::Dequantize).count(), 1, "one for both layers");
    for (user, reader) in [("%z = mul(%y, %w) : f32[64,64]", "mul z"), ("%z = linear(%w, %w) : f32[64,64]", "linear z")]
    {
        let (compressed, kept, graph) = shared(user);
        assert_eq!(compressed, 0);
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].reason, format!("{reader} reads it too, as no weight of a linear layer"));
        assert!(check(&graph).is_ok());
    }
}

#[test]
fn only_fp16_is_for_the_neural_engine() {
    for precision in Precision::ALL {
        assert_eq!(precision.no_region().is_none(), precision == Precision::Fp16);
        assert_eq!(serde_json::to_value(precision).unwrap(), precision.name());
    }
}
