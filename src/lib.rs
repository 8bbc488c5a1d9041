//! Turns published model weights into static graphs that Apple hardware runs well, and proves what it wrote.
//!
//! Data flows one way; the modules below are listed in that order, and a module imports only those above it in level
//! (a test reads the sources and enforces it):
//!
//! ```text
//! checkpoint -> model authoring -> graph -> passes -> (validate) -> emit / evaluate -> bundle -> gate -> provenance
//! ```

// So that test support reads the same from within and from outside.
#[cfg(test)]
extern crate self as eg2_convert;

pub mod cluster;
pub mod digest;
pub mod dsp;
pub mod files;
pub mod json;
mod plural;
pub mod tensor;

pub mod checkpoint;
pub mod ir;
pub mod target;
pub mod toolchain;

pub mod analysis;
pub mod models;
pub mod validate;

pub mod passes;

pub mod emit;
pub mod eval;

pub mod bundle;

pub mod gate;

pub mod provenance;
pub mod recipe;

pub mod pipeline;

pub mod cli;
