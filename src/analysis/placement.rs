//! Where a graph breaks a rule of the Neural Engine. A graph without a finding may still be placed elsewhere: only the
//! compiler's regions and a run on the device show where it runs.
//!
//! [`Rule::LibraryNorm`], [`Rule::Gather`] and [`Rule::DynamicShape`] are never found: the op set has no such op, and
//! every shape is fixed.

use crate::ir::{Edit, Graph, Node, Op, Source, ValueId};
use crate::target::{NEURAL_ENGINE_RANK, Rule};
use crate::tensor::DType;
use serde::Serialize;

/// A rule broken by one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The rule.
    pub rule: Rule,
    /// Who measured or reported it.
    pub source: &'static str,
    /// The node.
    pub path: String,
    /// What stands there.
    pub detail: String,
}

/// What would keep `graph`, read as an fp16 graph, off the Neural Engine or cost its accuracy there; in node order,
/// outputs last.
pub fn placement_blockers(graph: &Graph) -> Vec<Found> {
    let mut found = Vec::new();
    for (_, node) in graph.nodes() {
        found.extend(
            broken(graph, node)
                .into_iter()
                .flatten()
                .map(|rule| finding(rule, node, format!("{} {}", node.op.name(), node.fact))),
        );
    }
    for output in graph.outputs() {
        let node = graph.node(output.value);
        if node.fact.dtype == DType::F32 {
            found.push(finding(Rule::Fp32Feature, node, format!("output {:?} {}", output.name, node.fact)));
        }
    }
    found
}

fn finding(rule: Rule, node: &Node, detail: String) -> Found {
    Found { rule, source: rule.blocker().source, path: node.path.clone(), detail }
}

fn broken(graph: &Graph, node: &Node) -> [Option<Rule>; 3] {
    let single = node.fact.dtype == DType::F32;
    let high = node.fact.shape.rank() > NEURAL_ENGINE_RANK;
    let by_dtype = if matches!(node.op, Op::Input(_)) { Rule::Fp32Feature } else { Rule::Fp32Value };
    [single.then_some(by_dtype), high.then_some(Rule::Rank), by_op(graph, node)]
}

/// The rule an op breaks whatever its dtype.
fn by_op(graph: &Graph, node: &Node) -> Option<Rule> {
    match node.op {
        // A constant is cast when the model is loaded.
        Op::Cast(_) => node.args.iter().all(|x| graph.constant(*x).is_none()).then_some(Rule::Cast),
        Op::Linear | Op::Conv(_) => {
            node.args.get(1).is_some_and(|weight| uniform(graph, *weight)).then_some(Rule::MeanAsProduct)
        }
        Op::Input(_)
        | Op::Const(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Reduce { .. }
        | Op::MatMul
        | Op::Einsum
        | Op::ArgMax { .. }
        | Op::Softmax { .. }
        | Op::Transpose { .. }
        | Op::Reshape { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Dequantize => None,
    }
}

/// Whether a constant is one number throughout, by its source: no learned matrix is written as a literal.
fn uniform(graph: &Graph, value: ValueId) -> bool {
    let Some(weight) = graph.constant(value) else { return false };
    let even = |edit: &Edit| !matches!(edit, Edit::ScaleRowsSoftplus { .. } | Edit::ProjectSinusoid { .. });
    match weight.source() {
        Source::Literal(values) => values.windows(2).all(|w| w[0] == w[1]) && weight.edits().iter().all(even),
        Source::Tensor(_) | Source::Table(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;

    fn report(text: &str) -> String {
        let found = placement_blockers(&parse(&format!("graph main\n{text}")).unwrap());
        let line = |f: &Found| format!("{} {}: {}", f.rule.name(), f.path, f.detail);
        found.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_fp16_graph_within_the_rules() {
        let text = "%x = input \"x\" : f16[1,8,6]
%w = const tensor \"w\" f32[4,6] | cast f16 : f16[4,6]
%p = linear(%x, %w) : f16[1,8,4]
%y = reduce_mean(%p) axis=2 : f16[1,8,1]
output \"y\" = %y";
        assert_eq!(report(text), "");
    }

    #[test]
    fn each_rule_that_a_graph_can_break() {
        let text = "%x = input \"x\" : f32[1,8,6]
%h = cast(%x) dtype=f16 : f16[1,8,6]
%w = const literal [0.25] f32[] | repeat 6 | reshape [1,6] | cast f16 : f16[1,6]
%m = linear(%h, %w) : f16[1,8,1]
%r = reshape(%m) shape=[1,2,2,2,1] : f16[1,2,2,2,1]
%s = cast(%r) dtype=f32 : f32[1,2,2,2,1]
%c = const literal [0.5] f32[] : f32[]
%y = mul(%s, %c) : f32[1,2,2,2,1]
output \"y\" = %y";
        insta::assert_snapshot!(report(text), @r##"
        fp32_feature x: input f32[1,8,6]
        cast h: cast f16[1,8,6]
        mean_as_product m: linear f16[1,8,1]
        rank r: reshape f16[1,2,2,2,1]
        fp32_value s: cast f32[1,2,2,2,1]
        rank s: cast f32[1,2,2,2,1]
        cast s: cast f32[1,2,2,2,1]
        fp32_value c: const f32[]
        fp32_value y: mul f32[1,2,2,2,1]
        rank y: mul f32[1,2,2,2,1]
        fp32_feature y: output "y" f32[1,2,2,2,1]
        "##);
    }

    #[test]
    fn a_finding_serializes_with_its_source() {
        let graph = parse("graph g\n%x = input \"x\" : f32[2]").unwrap();
        insta::assert_snapshot!(serde_json::to_string(&placement_blockers(&graph)).unwrap(), @r##"
        [{"rule":"fp32_feature","source":"encoder port: the fp16 form that gets its region takes and returns fp16","path":"x","detail":"input f32[2]"}]
        "##);
    }
}
