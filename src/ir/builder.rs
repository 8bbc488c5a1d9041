//! Wires nodes one at a time; each gets its fact at once, and an error gets the node's path once, here.

use super::graph::{Node, Output, ValueId, WeightId};
use super::op::check_rank;
use super::{Binary, FactError, Graph, Op, Unary, Weight};
use crate::tensor::Fact;
use std::collections::HashMap;

/// A node that could not be wired.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("node {path}: {source}")]
pub struct BuildError {
    /// The path the node would have had.
    pub path: String,
    /// What does not fit.
    pub source: FactError,
}

/// Makes a [`Graph`].
pub struct Builder {
    graph: Graph,
    scope: Vec<String>,
    used: HashMap<String, u32>,
}

impl Builder {
    /// An empty graph of that function name.
    pub fn new(name: impl Into<String>) -> Builder {
        let graph = Graph {
            name: name.into(),
            nodes: Vec::new(),
            weights: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        Builder { graph, scope: Vec::new(), used: HashMap::new() }
    }

    /// Runs `body` with `name` appended to the path of every node it wires.
    pub fn scope<T>(&mut self, name: impl Into<String>, body: impl FnOnce(&mut Builder) -> T) -> T {
        self.scope.push(name.into());
        let result = body(self);
        self.scope.pop();
        result
    }

    /// The path a node of that label would get; `label` alone at the top, the scope alone where `label` is empty.
    pub fn path(&self, label: &str) -> String {
        let parts: Vec<&str> =
            self.scope.iter().map(String::as_str).chain(Some(label)).filter(|p| !p.is_empty()).collect();
        parts.join(".")
    }

    /// Dtype and shape of a value wired before.
    pub fn fact(&self, value: ValueId) -> &Fact {
        self.graph.fact(value)
    }

    /// An input of the graph, fed under that name.
    ///
    /// # Errors
    /// The fact is one that no value may have.
    pub fn input(&mut self, name: &str, fact: Fact) -> Result<ValueId, BuildError> {
        self.input_at(self.path(name), name, fact)
    }

    /// An input whose path is not its name; text may say so.
    pub(super) fn input_at(&mut self, path: String, name: &str, fact: Fact) -> Result<ValueId, BuildError> {
        check_rank("input", &fact.shape).map_err(|source| BuildError { path: path.clone(), source })?;
        let value = self.place(Op::Input(name.into()), Vec::new(), fact, path);
        self.graph.inputs.push(value);
        Ok(value)
    }

    /// A constant.
    pub fn constant(&mut self, label: &str, weight: Weight) -> ValueId {
        let fact = weight.fact().clone();
        let id = WeightId(self.graph.weights.len() as u32);
        self.graph.weights.push(weight);
        let path = self.path(label);
        self.place(Op::Const(id), Vec::new(), fact, path)
    }

    /// Any other op over values wired before.
    ///
    /// # Errors
    /// The operands do not fit the op.
    pub fn push(&mut self, label: &str, op: Op, args: &[ValueId]) -> Result<ValueId, BuildError> {
        let facts: Vec<&Fact> = args.iter().map(|a| self.graph.fact(*a)).collect();
        let fact = op.infer(&facts).map_err(|source| BuildError { path: self.path(label), source })?;
        let path = self.path(label);
        Ok(self.place(op, args.to_vec(), fact, path))
    }

    /// A function of each element, labelled by its name.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn unary(&mut self, kind: Unary, x: ValueId) -> Result<ValueId, BuildError> {
        self.push(kind.name(), Op::Unary(kind), &[x])
    }

    /// A function of two elements, labelled by its name.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn binary(&mut self, kind: Binary, a: ValueId, b: ValueId) -> Result<ValueId, BuildError> {
        self.push(kind.name(), Op::Binary(kind), &[a, b])
    }

    /// Gives `value` out under that name.
    pub fn output(&mut self, name: impl Into<String>, value: ValueId) {
        self.graph.outputs.push(Output { name: name.into(), value });
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    fn place(&mut self, op: Op, args: Vec<ValueId>, fact: Fact, wanted: String) -> ValueId {
        let path = self.unique(wanted);
        self.graph.nodes.push(Node { op, args, fact, path });
        ValueId((self.graph.nodes.len() - 1) as u32)
    }

    /// The path itself where it is free, else with the next number behind it.
    fn unique(&mut self, wanted: String) -> String {
        let count = self.used.get(&wanted).copied().unwrap_or(0);
        if count == 0 {
            self.used.insert(wanted.clone(), 1);
            return wanted;
        }
        let mut n = count + 1;
        loop {
            let path = format!("{wanted}_{n}");
            if !self.used.contains_key(&path) {
                self.used.insert(wanted, n);
                self.used.insert(path.clone(), 1);
                return path;
            }
            n += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn paths_are_unique_and_scoped() {
        let mut b = Builder::new("g");
        let x = b.input("x", Fact::new(DType::F32, [2])).unwrap();
        let (p, q, r) = b.scope("layers.0", |b| {
            let p = b.unary(Unary::Abs, x).unwrap();
            let q = b.unary(Unary::Abs, p).unwrap();
            (p, q, b.push("", Op::Unary(Unary::Tanh), &[q]).unwrap())
        });
        let g = b.finish();
        let paths: Vec<&str> = [x, p, q, r].iter().map(|v| g.node(*v).path.as_str()).collect();
        assert_eq!(paths, ["x", "layers.0.abs", "layers.0.abs_2", "layers.0"]);
    }

    #[test]
    fn rank_above_five_is_refused_with_its_path() {
        let mut b = Builder::new("g");
        let x = b.input("x", Fact::new(DType::F32, [64])).unwrap();
        let shape = [2, 2, 2, 2, 2, 2].into();
        let err = b.scope("attn", |b| b.push("heads", Op::Reshape { shape }, &[x])).unwrap_err();
        insta::assert_snapshot!(err, @"node attn.heads: reshape would have a value of rank above 5: [2,2,2,2,2,2]");
        let fine = b.push("heads", Op::Reshape { shape: [2, 2, 2, 2, 4].into() }, &[x]);
        assert!(fine.is_ok());
    }
}
