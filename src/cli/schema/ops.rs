//! The closed set of ops, each as both formats spell it: what the writers make of a graph that has every op in every
//! form.

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
    use crate::ir::{Op, Source};
    use crate::tensor::{Memory, WeightSource};
    use crate::validate::check;
    use std::collections::BTreeSet;

    #[test]
    fn each_op_is_spelt_but_the_input() {
        let without: Vec<&str> =
            ops().unwrap().iter().filter(|op| op.mil.is_empty() || op.core_ai.is_empty()).map(|op| op.name).collect();
        assert_eq!(without, ["input"]);
    }

    /// The graph with every result given out, so that nothing is unused, and weights for it.
    fn every_op() -> (Graph, Memory) {
        let computed = |line: &&str| line.starts_with('%') && !["= input", "= const"].iter().any(|s| line.contains(s));
        let path = |line: &str| line.split(' ').next().unwrap().to_string();
        let paths = EVERY_OP.lines().filter(computed).map(path).enumerate();
        let outputs: String = paths.map(|(at, path)| format!("output \"out{at}\" = {path}\n")).collect();
        let graph = parse(&format!("{EVERY_OP}{outputs}")).unwrap();
        let mut memory = Memory::default();
        for (_, node) in graph.nodes() {
            let Op::Const(id) = &node.op else { continue };
            if let Source::Tensor(name) = graph.weight(*id).source() {
                let shape = &graph.weight(*id).source_fact().shape;
                memory.insert_f32(name, shape.dims(), &vec![0.5; shape.elements()]);
            }
        }
        assert!(memory.names().len() > 5);
        (graph, memory)
    }

    /// What the writers wrote, and what is told of them.
    #[test]
    fn the_writers_write_what_is_told() {
        let (graph, memory) = every_op();
        let checked = [check(&graph).unwrap()];
        let told = |of: fn(Spelling) -> Vec<String>| ops().unwrap().into_iter().flat_map(of).collect::<BTreeSet<_>>();
        let dir = tempfile::tempdir().unwrap();
        let report = mil::write(&checked, &memory, &Description::default(), dir.path()).unwrap();
        let mut written: BTreeSet<String> = report.ops.into_keys().collect();
        // What gives a constant out is no op of the graph.
        assert!(written.remove("identity"));
        assert_eq!(told(|op| op.mil), written);
        let program = coreai::write(&checked, &memory, std::io::Cursor::new(Vec::new())).unwrap();
        let mut written: BTreeSet<String> = program.census().into_keys().collect();
        // What ends a function is no op of it.
        assert!(written.remove("coreai.output"));
        assert_eq!(told(|op| op.core_ai), written);
    }
}
