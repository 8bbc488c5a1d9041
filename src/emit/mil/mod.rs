//! Core ML ML programs: [`write`] makes an `.mlpackage` of checked graphs, [`read`] opens any and lifts ours back.
//!
//! The writer spells out every parameter, so that no default of another tool decides what a model computes. Reader
//! and writer share [`ValueDigest`] and no fact about the format: each spells out the field numbers, codes and layout
//! it needs, so an error in one is seen by the other.

mod blob;
mod codes;
mod compressed;
mod description;
mod digest;
mod function;
mod legalize;
mod names;
pub mod read;
#[cfg(test)]
#[path = "../../../tests/support/mil_sample.rs"]
pub(crate) mod sample;
mod schema;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub use description::Description;
pub use digest::{ValueDigest, ValueHasher};
pub use writer::write;

use crate::digest::Digest;
use crate::ir::{Graph, MaterializeError, Op, ValueId};
use crate::tensor::Fact;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// The type of the operation that a node becomes; none for an input, and where MIL cannot say it.
pub fn spelling(graph: &Graph, value: ValueId) -> Option<&'static str> {
    let node = graph.node(value);
    let args: Vec<(ValueId, &Fact)> = node.args.iter().map(|x| (*x, graph.fact(*x))).collect();
    if let Op::Const(_) = node.op {
        return Some(value::CONST);
    }
    match compressed::compressed(graph, node) {
        Some(stored) => Some(stored.kind),
        None => legalize::legalize(&node.op, &args, &node.fact).ok().map(|call| call.kind),
    }
}

/// Names a constant: the function it stands in, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConstantName {
    /// Name of the function in the package.
    pub function: String,
    /// Name of the constant's value.
    pub name: String,
}

/// What [`write`] wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MilReport {
    /// The functions, the default one first.
    pub functions: Vec<String>,
    /// How many operations of each type there are, constants included.
    pub ops: BTreeMap<String, usize>,
    /// Constants whose values stand in `model.mlmodel`.
    pub immediates: usize,
    /// Constants whose values stand in `weight.bin`.
    pub blobs: usize,
    /// Distinct blobs in `weight.bin`.
    pub blobs_stored: u32,
    /// Bytes of values in `weight.bin`.
    pub bytes_stored: u64,
    /// Bytes of values that were there already when a constant came to need them.
    pub bytes_shared: u64,
    /// Digest of `model.mlmodel`.
    pub model: Digest,
    /// Digest of `Manifest.json`.
    pub manifest: Digest,
    /// Digest of each constant's values; strings have none.
    #[serde(skip)]
    pub values: BTreeMap<ConstantName, ValueDigest>,
    /// For each function, the digest of each constant of its graph by the node's index.
    #[serde(skip)]
    pub nodes: Vec<BTreeMap<usize, ValueDigest>>,
}

/// Why a package could not be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "function, node and op say where, found what was there")]
pub enum MilError {
    #[error("there is no function to write")]
    NoFunction,
    #[error("two functions are called {name}")]
    SameFunction { name: String },
    #[error("{what} {name:?} is no legal name: expected a letter, then letters, digits and underscores")]
    IllegalName { what: &'static str, name: String },
    #[error("function {function}: two features are called {name}")]
    SameFeature { function: String, name: String },
    #[error("function {function}: feature {name} is {found}, expected f16, f32 or i32 of rank 1 or more")]
    Feature { function: String, name: String, found: Fact },
    #[error("function {function}: node {node}: {op} of {found} cannot be written as an ML program: {reason}")]
    Unsupported { function: String, node: String, op: &'static str, found: Fact, reason: &'static str },
    #[error("function {function}: node {node}: weight could not be written")]
    Weight {
        function: String,
        node: String,
        #[source]
        source: Box<MaterializeError<io::Error>>,
    },
    #[error("function {function}: node {node}: the weight file could not be written")]
    WeightFile {
        function: String,
        node: String,
        #[source]
        source: io::Error,
    },
    #[error("staging directory {path} is not empty")]
    NotEmpty { path: String },
    #[error("could not write {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
}
