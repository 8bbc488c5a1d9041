//! One graph cut into two that run one after the other.

use crate::ir::{BuildError, Builder, Graph, Op, ValueId};
use std::collections::BTreeMap;

/// Why a graph was not cut.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SplitError {
    /// No node has the path.
    #[error("the graph has no node {at} to cut behind")]
    Absent {
        /// The path looked for.
        at: String,
    },
    /// The node computes nothing, so a front would have nothing to do.
    #[error("{at} is of op {op}, expected a computed value to cut behind")]
    NotComputed {
        /// The node to cut behind.
        at: String,
        /// Its op.
        op: &'static str,
    },
    /// The node's value is a result of the graph, so a body would have nothing to do.
    #[error("{at} is output {output} itself, expected a value that something is computed from")]
    NothingBehind {
        /// The node to cut behind.
        at: String,
        /// The output.
        output: String,
    },
    /// A second value would have to cross.
    #[error("{path} crosses the cut behind {at} too, expected {at} alone")]
    Crosses {
        /// The node to cut behind.
        at: String,
        /// The value that crosses besides.
        path: String,
    },
    /// No output is computed from the node.
    #[error("no output is computed from {at}")]
    Unread {
        /// The node to cut behind.
        at: String,
    },
    /// A node does not fit its operands any more.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The halves of a graph, both under its function name. Run one after the other they compute what it computes, op by
/// op.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// All that the cut value is computed from; its one output is that value.
    pub front: Graph,
    /// All that the outputs are computed from it; its one input is that value.
    pub body: Graph,
}

/// ```text
/// a = f(x); y = g(a)   =>   front: a = f(x), output "hidden" = a
///                           body:  input "hidden"; y = g(hidden)
/// ```
///
/// Cuts behind the node of path `at`, whose value alone crosses, as a feature called `hidden`. A constant that both
/// halves read is in both; one that a half does not read is not in it.
///
/// # Errors
/// There is no such node, nothing is computed before or behind it, or another value would have to cross.
pub fn split(graph: &Graph, at: &str, hidden: &str) -> Result<Split, SplitError> {
    let cut = cut(graph, at)?;
    let before = needed(graph, [cut], None);
    let behind = needed(graph, graph.outputs().iter().map(|o| o.value), Some(cut));
    if !behind[cut.index()] {
        return Err(SplitError::Unread { at: at.into() });
    }
    let crosses = graph.nodes().filter(|(value, node)| {
        let computed = before[value.index()] && graph.constant(*value).is_none();
        *value != cut && behind[value.index()] && (computed || matches!(node.op, Op::Input(_)))
    });
    // Values ahead of the last may be there for its sake alone; the last itself is read behind the cut.
    if let Some((_, node)) = crosses.last() {
        return Err(SplitError::Crosses { at: at.into(), path: node.path.clone() });
    }

    let mut b = Builder::new(graph.name());
    let moved = copy(graph, &mut b, &before, BTreeMap::new())?;
    if let Some(value) = moved.get(&cut) {
        b.output(hidden, *value);
    }
    let front = b.finish();

    let mut b = Builder::new(graph.name());
    let input = b.input(hidden, graph.fact(cut).clone())?;
    let moved = copy(graph, &mut b, &behind, BTreeMap::from([(cut, input)]))?;
    for output in graph.outputs() {
        if let Some(value) = moved.get(&output.value) {
            b.output(&output.name, *value);
        }
    }
    Ok(Split { front, body: b.finish() })
}

/// The value made by the node of that path, where a cut behind it leaves something on either side.
fn cut(graph: &Graph, at: &str) -> Result<ValueId, SplitError> {
    let found = graph.nodes().find(|(_, node)| node.path == at);
    let (cut, node) = found.ok_or_else(|| SplitError::Absent { at: at.into() })?;
    if matches!(node.op, Op::Input(_) | Op::Const(_)) {
        return Err(SplitError::NotComputed { at: at.into(), op: node.op.name() });
    }
    match graph.outputs().iter().find(|output| output.value == cut) {
        Some(output) => Err(SplitError::NothingBehind { at: at.into(), output: output.name.clone() }),
        None => Ok(cut),
    }
}

/// For each node, whether `results` are computed from it; what `given` is computed from counts only by another way.
fn needed(graph: &Graph, results: impl IntoIterator<Item = ValueId>, given: Option<ValueId>) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes().len()];
    for value in results {
        needed[value.index()] = true;
    }
    let mut nodes: Vec<_> = graph.nodes().collect();
    // Operands come first in a graph, so from the end on every reader is known before what it reads.
    while let Some((value, node)) = nodes.pop() {
        if needed[value.index()] && Some(value) != given {
            node.args.iter().for_each(|arg| needed[arg.index()] = true);
        }
    }
    needed
}

/// Wires the `wanted` nodes of `graph` anew, but for those that `moved` has a value for already.
fn copy(
    graph: &Graph,
    b: &mut Builder,
    wanted: &[bool],
    mut moved: BTreeMap<ValueId, ValueId>,
) -> Result<BTreeMap<ValueId, ValueId>, BuildError> {
    for (value, node) in graph.nodes().filter(|(value, _)| wanted[value.index()]) {
        if moved.contains_key(&value) {
            continue;
        }
        let args: Vec<ValueId> = node.args.iter().filter_map(|arg| moved.get(arg).copied()).collect();
        let new = match (&node.op, graph.constant(value)) {
            (Op::Input(name), _) => b.input(name, node.fact.clone())?,
            (_, Some(weight)) => b.constant(&node.path, weight.clone()),
            (op, None) => b.push(&node.path, op.clone(), &args)?,
        };
        moved.insert(value, new);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{parse, print};

    /// `c` is read on both sides of `mid`, `d` behind it only.
    const CHAIN: &str = "\
graph T8
%x = input \"x\" : f32[1,2]
%c = const literal [2] f32[] : f32[]
%d = const literal [3] f32[] : f32[]
%first = mul(%x, %c) : f32[1,2]
%mid = abs(%first) : f32[1,2]
%third = add(%mid, %c) : f32[1,2]
%last = add(%third, %d) : f32[1,2]
output \"y\" = %last
";

    fn halves(text: &str, at: &str) -> Result<Split, SplitError> {
        split(&parse(text).unwrap(), at, "hidden")
    }

    #[test]
    fn constants_go_where_they_are_read() {
        let Split { front, body } = halves(CHAIN, "mid").unwrap();
        insta::assert_snapshot!(print(&front), @r#"
        graph T8
        %x = input "x" : f32[1,2]
        %c = const literal [2.0] f32[] : f32[]
        %first = mul(%x, %c) : f32[1,2]
        %mid = abs(%first) : f32[1,2]
        output "hidden" = %mid
        "#);
        insta::assert_snapshot!(print(&body), @r#"
        graph T8
        %hidden = input "hidden" : f32[1,2]
        %c = const literal [2.0] f32[] : f32[]
        %d = const literal [3.0] f32[] : f32[]
        %third = add(%hidden, %c) : f32[1,2]
        %last = add(%third, %d) : f32[1,2]
        output "y" = %last
        "#);
    }

    #[test]
    fn cuts_that_cannot_be() {
        let residual = CHAIN.replace("add(%third, %d)", "add(%third, %first)");
        let second_input = CHAIN.replace("const literal [3] f32[] : f32[]", "input \"d\" : f32[1,2]");
        let early_output = format!("{CHAIN}output \"z\" = %first\n");
        let side_output = CHAIN.replace("%last\n", "%first\n");
        let message = |text: &str, at: &str| halves(text, at).unwrap_err().to_string();
        let messages = [
            message(CHAIN, "absent"),
            message(CHAIN, "x"),
            message(CHAIN, "c"),
            message(CHAIN, "last"),
            message(&residual, "mid"),
            message(&second_input, "mid"),
            message(&early_output, "mid"),
            message(&side_output, "mid"),
        ];
        insta::assert_snapshot!(messages.join("\n"), @r"
        the graph has no node absent to cut behind
        x is of op input, expected a computed value to cut behind
        c is of op const, expected a computed value to cut behind
        last is output y itself, expected a value that something is computed from
        first crosses the cut behind mid too, expected mid alone
        d crosses the cut behind mid too, expected mid alone
        first crosses the cut behind mid too, expected mid alone
        no output is computed from mid
        ");
    }
}
