//! The graph: values, facts, a small closed op set, weights as references with lazy edits, and a text form.
//!
//! Level 1: knows tensors, not files, models or targets. A fact is inferred when a node is wired, so a [`Graph`]
//! that exists is well-shaped; what a *target* asks for beyond that is `validate`'s to say.

mod builder;
mod graph;
mod materialize;
mod op;
mod quantize;
mod text;
mod weight;

pub use builder::{BuildError, Builder};
pub use graph::{Graph, Node, Output, ValueId, WeightId};
pub use materialize::{MaterializeError, Materializer};
pub use op::{Binary, ConvSpec, FactError, MAX_RANK, Op, Reduce, Unary};
pub use text::{ParseError, op_names, parse, print};
pub use weight::{Edit, LITERAL_MAX, Source, Table, Wave, Weight};
