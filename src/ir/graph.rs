//! The arena: nodes in topological order, each with one value; a value is named by its node.

use super::{Op, Weight};
use crate::tensor::Fact;

/// Names a node's value within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(super) u32);

/// Names a weight within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub(super) u32);

impl ValueId {
    /// Position in [`Graph::nodes`], for side tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation, its operands and what is known of its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Values it reads, all earlier in the graph.
    pub args: Vec<ValueId>,
    /// Inferred dtype and shape of the result.
    pub fact: Fact,
    /// Where it stands in the model, e.g. `layers.3.self_attn.q_proj`; unique within the graph, and only for people.
    pub path: String,
}

/// A result of the graph, under its public name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Name of the feature.
    pub name: String,
    /// The value given out.
    pub value: ValueId,
}

/// A static graph of one function. Built by [`Builder`](super::Builder) only, so every fact holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(super) name: String,
    pub(super) nodes: Vec<Node>,
    pub(super) weights: Vec<Weight>,
    pub(super) inputs: Vec<ValueId>,
    pub(super) outputs: Vec<Output>,
}

impl Graph {
    /// The function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same graph as a function of another name.
    pub fn named(mut self, name: impl Into<String>) -> Graph {
        self.name = name.into();
        self
    }

    /// All nodes in an order in which each follows its operands.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (ValueId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (ValueId(i as u32), n))
    }

    /// The node that makes `value`.
    pub fn node(&self, value: ValueId) -> &Node {
        &self.nodes[value.index()]
    }

    /// Dtype and shape of `value`.
    pub fn fact(&self, value: ValueId) -> &Fact {
        &self.node(value).fact
    }

    /// The weight of that id.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0 as usize]
    }

    /// The weight behind `value`, where it is a constant.
    pub fn constant(&self, value: ValueId) -> Option<&Weight> {
        if let Op::Const(id) = self.node(value).op { Some(self.weight(id)) } else { None }
    }

    /// The graph's inputs in their public order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The graph's outputs in their public order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// For each node, whether it is read, and by nodes that `kind` accepts alone; outputs are other readers.
    pub fn read_only_by(&self, kind: impl Fn(&Node) -> bool) -> Vec<bool> {
        let mut by_kind = vec![0; self.nodes.len()];
        for value in self.nodes.iter().filter(|node| kind(node)).flat_map(|node| &node.args) {
            by_kind[value.index()] += 1;
        }
        by_kind.into_iter().zip(self.uses()).map(|(by_kind, all)| by_kind > 0 && by_kind == all).collect()
    }

    /// For each node, how many operands and outputs read its value.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        let read = self.nodes.iter().flat_map(|n| &n.args).chain(self.outputs.iter().map(|o| &o.value));
        for value in read {
            uses[value.index()] += 1;
        }
        uses
    }
}
