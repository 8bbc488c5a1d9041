//! Models, each written once and for no target in particular: config, authoring, host rules.
//!
//! Level 2: reads checkpoints and wires graphs. Precision, compression and target spelling are passes or writers.

pub mod blocks;
pub mod gemma_audio;
pub mod laya;
pub mod reader;
pub mod section;
pub mod windows;
