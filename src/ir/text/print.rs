//! Graph to text.

use super::lexis::{Name, Quoted};
use super::op::Parameters;
use super::weight::Spelling;
use crate::ir::{Graph, Node, Op};
use std::fmt::{self, Display};

/// The text of `graph`; see the [module](self) for its form.
pub fn print(graph: &Graph) -> String {
    Text(graph).to_string()
}

struct Text<'g>(&'g Graph);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = self.0;
        writeln!(f, "graph {}", Name(graph.name()))?;
        for (_, node) in graph.nodes() {
            write!(f, "%{} = ", Name(&node.path))?;
            computation(f, graph, node)?;
            writeln!(f, " : {}", node.fact)?;
        }
        for output in graph.outputs() {
            writeln!(f, "output {} = %{}", Quoted(&output.name), Name(&graph.node(output.value).path))?;
        }
        Ok(())
    }
}

fn computation(f: &mut fmt::Formatter<'_>, graph: &Graph, node: &Node) -> fmt::Result {
    let name = node.op.name();
    match &node.op {
        Op::Input(feature) => write!(f, "{name} {}", Quoted(feature)),
        Op::Const(id) => write!(f, "{name} {}", Spelling(graph.weight(*id))),
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
        | Op::Dequantize) => {
            write!(f, "{name}(")?;
            for (i, arg) in node.args.iter().enumerate() {
                let comma = if i > 0 { ", " } else { "" };
                write!(f, "{comma}%{}", Name(&graph.node(*arg).path))?;
            }
            write!(f, "){}", Parameters(op))
        }
    }
}
