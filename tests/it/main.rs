//! One integration binary; each file is a boundary of the tool.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod aimodel;
mod audio_gate;
mod bad_aimodels;
mod bad_checkpoints;
mod bad_readers;
mod buckets;
mod cli;
mod clip;
mod compile;
#[path = "../support/compiled_tree.rs"]
mod compiled_tree;
mod coreai;
mod coreml;
mod decide;
mod encoder;
mod features;
mod gate;
mod graphs;
mod halves_gate;
mod headroom;
mod kit;
mod laya;
mod laya_gate;
mod laya_release;
mod laya_requests;
mod layering;
#[path = "../support/mil_sample.rs"]
mod mil_sample;
mod ops;
mod precision;
mod provenance;
mod python;
mod reader;
mod reader_gate;
mod regions;
mod release;
mod schema;
mod strained;
mod strip;
mod tools;
mod transcribe;
mod verify;
mod workflow;
