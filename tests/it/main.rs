//! One integration binary; each file is a boundary of the tool.

mod cli;
mod compile;
mod coreml;
mod encoder;
mod graphs;
mod layering;
mod python;
