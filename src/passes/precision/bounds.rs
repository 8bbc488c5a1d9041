//! Which constants bound clamps. A bound out of a dtype's range is no fault: the clamp is only narrower or absent there.

use crate::ir::{Binary, Graph, Node, Op, ValueId};
use std::collections::BTreeMap;

/// The nodes that read each value.
pub(super) fn readers(graph: &Graph) -> BTreeMap<ValueId, Vec<&Node>> {
    let mut readers: BTreeMap<ValueId, Vec<&Node>> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        for arg in &node.args {
            readers.entry(*arg).or_default().push(node);
        }
    }
    readers
}

/// Maximum or minimum, where every reader is that one clamp.
pub(super) fn clamp_of(readers: &[&Node]) -> Option<Binary> {
    let kind = |n: &&Node| if let Op::Binary(k @ (Binary::Maximum | Binary::Minimum)) = n.op { Some(k) } else { None };
    let first = readers.first().and_then(kind)?;
    readers.iter().all(|n| kind(n) == Some(first)).then_some(first)
}
