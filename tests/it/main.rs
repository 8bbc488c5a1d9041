//! One integration binary; each file is a boundary of the tool.

mod bad_checkpoints;
mod cli;
mod coreml;
mod encoder;
mod graphs;
mod headroom;
mod layering;
mod python;
