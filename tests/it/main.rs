//! One integration binary; each file is a boundary of the tool.

mod encoder;
mod graphs;
mod layering;
