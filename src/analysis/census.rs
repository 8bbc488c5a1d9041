//! Counts: ops by name, constants, ranks, bytes of weights.

use crate::ir::{Graph, Op, Source};
use crate::tensor::DType;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many of what a graph holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// Ops by name; inputs and constants are none.
    pub ops: BTreeMap<&'static str, usize>,
    /// Constants.
    pub constants: usize,
    /// Inputs.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// Highest rank of a value.
    pub max_rank: usize,
}

impl Census {
    /// How many ops there are in all.
    pub fn total(&self) -> usize {
        self.ops.values().sum()
    }
}

/// Counts the nodes of `graph`.
pub fn census(graph: &Graph) -> Census {
    let mut census = Census { inputs: graph.inputs().len(), outputs: graph.outputs().len(), ..Census::default() };
    for (_, node) in graph.nodes() {
        census.max_rank = census.max_rank.max(node.fact.shape.rank());
        match &node.op {
            Op::Input(_) => {}
            Op::Const(_) => census.constants += 1,
            op @ (Op::Conv(_)
            | Op::Linear
            | Op::MatMul
            | Op::Einsum
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Reduce { .. }
            | Op::ArgMax { .. }
            | Op::Softmax { .. }
            | Op::Transpose { .. }
            | Op::Reshape { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Cast(_)
            | Op::Dequantize) => *census.ops.entry(op.name()).or_default() += 1,
        }
    }
    census
}

/// What the constants of a graph weigh.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeightReport {
    /// Bytes by dtype, dense.
    pub bytes: BTreeMap<DType, u64>,
    /// Bytes of all constants.
    pub total_bytes: u64,
    /// Elements of the constants that come from a tensor, scales of quantized ones apart.
    pub parameters: u64,
    /// Bits that an element of a constant takes on average, its share of a scale included; 0 where there is none.
    pub bits_per_weight: f64,
}

/// Weighs the constants of `graph`, each where it stands: a writer that stores equal ones once may write less.
pub fn weights(graph: &Graph) -> WeightReport {
    let bytes = weight_bytes(graph);
    let total_bytes = bytes.values().sum();
    let (mut elements, mut parameters) = (0u64, 0u64);
    for (value, node) in graph.nodes() {
        let Some(weight) = graph.constant(value) else { continue };
        // Their bytes count; their numbers are none of the model's.
        if weight.is_companion() {
            continue;
        }
        let n = node.fact.shape.elements() as u64;
        elements += n;
        match weight.source() {
            Source::Tensor(_) => parameters += n,
            Source::Literal(_) | Source::Table(_) => {}
        }
    }
    let bits_per_weight = if elements == 0 { 0.0 } else { total_bytes as f64 * 8.0 / elements as f64 };
    WeightReport { bytes, total_bytes, parameters, bits_per_weight }
}

/// Bytes of the constants of `graph` by dtype, dense.
pub fn weight_bytes(graph: &Graph) -> BTreeMap<DType, u64> {
    let mut bytes = BTreeMap::new();
    for (value, node) in graph.nodes() {
        if graph.constant(value).is_some() {
            *bytes.entry(node.fact.dtype).or_default() += node.fact.bytes() as u64;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;

    const TEXT: &str = "graph main
%x = input \"x\" : f32[1,8,6]
%w = const tensor \"w\" f32[4,6] | cast f16 : f16[4,6]
%s = const literal [0.5] f32[] : f32[]
%h = cast(%x) dtype=f16 : f16[1,8,6]
%p = linear(%h, %w) : f16[1,8,4]
%f = cast(%p) dtype=f32 : f32[1,8,4]
%y = mul(%f, %s) : f32[1,8,4]
output \"y\" = %y
";

    #[test]
    fn counts() {
        let graph = parse(TEXT).unwrap();
        insta::assert_snapshot!(serde_json::to_string(&census(&graph)).unwrap(), @r##"
        {"ops":{"cast":2,"linear":1,"mul":1},"constants":2,"inputs":1,"outputs":1,"max_rank":3}
        "##);
        assert_eq!(census(&graph).total(), 4);
        insta::assert_snapshot!(serde_json::to_string(&weights(&graph)).unwrap(), @r##"
        {"bytes":{"f32":4,"f16":48},"total_bytes":52,"parameters":24,"bits_per_weight":16.64}
        "##);
    }

    #[test]
    fn scales_weigh_but_are_no_parameters() {
        let text = "graph main
%x = input \"x\" : f32[1,8,64]
%q = const tensor \"w\" f32[4,64] | quantize_blocks 32 : i8[4,64]
%s = const tensor \"w\" f32[4,64] | block_scales 32 : f32[4,2]
%w = dequantize(%q, %s) : f32[4,64]
%y = linear(%x, %w) : f32[1,8,4]
output \"y\" = %y";
        insta::assert_snapshot!(serde_json::to_string(&weights(&parse(text).unwrap())).unwrap(), @r##"
        {"bytes":{"f32":32,"i8":256},"total_bytes":288,"parameters":256,"bits_per_weight":9.0}
        "##);
    }

    #[test]
    fn an_empty_graph_weighs_nothing() {
        let graph = parse("graph g").unwrap();
        assert_eq!(census(&graph), Census::default());
        assert_eq!(weights(&graph).bits_per_weight, 0.0);
    }
}
