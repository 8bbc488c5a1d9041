//! The closed set of ops, each as both formats spell it: what the writers make of a graph that has every op in every form.

use crate::emit::{coreai, mil};
use crate::ir::{Graph, ParseError, op_names, parse};
use serde::Serialize;

/// A graph with every op, once for each way in which a format spells it; nothing runs it.
const EVERY_OP: &str = include_str!("ops.txt");

/// An op and what it becomes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Spelling {
    /// Its name in texts of graphs.
    pub name: &'static str,
    /// Types of MIL operations: one of them, by what the operands are.
    pub mil: Vec<String>,
    /// Core AI operations: some of them in a chain, by shapes and operands.
    pub core_ai: Vec<String>,
}

/// Every op, as graphs have them.
pub(super) fn ops() -> Result<Vec<Spelling>, ParseError> {
    let graph = parse(EVERY_OP)?;
    Ok(op_names().map(|name| spelling(name, &graph)).collect())
}

fn spelling(name: &'static str, graph: &Graph) -> Spelling {
    let values = || graph.nodes().filter(|(_, node)| node.op.name() == name).map(|(value, _)| value);
    let mil = values().filter_map(|value| mil::spelling(graph, value)).map(str::to_string);
    let core_ai = values().flat_map(|value| coreai::spelling(graph, value));
    Spelling { name, mil: distinct(mil), core_ai: distinct(core_ai) }
}

/// Each once, in the order of their coming.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    names.fold(Vec::new(), |mut list, name| {
        if !list.contains(&name) {
            list.push(name);
        }
        list
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::mil::Description;
    use crate::ir::{Builder, Source};
    use crate::tensor::Memory;
    use crate::validate::check;
    use std::collections::BTreeSet;

    #[test]
    fn each_op_has_its_spellings() {
        let lines = ops().unwrap().into_iter().map(|op| {
            format!("{}: {}; {}", op.name, op.mil.join(" "), op.core_ai.join(" "))
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
    }
}
