//! The golden clip of the small fixture: what goes into an artefact, and how far what comes out is from the reference.

use crate::cli::{command, fixture};
use crate::python::coreai_python;
use eg2_convert::checkpoint::{Checkpoint, Named, write_safetensors};
use eg2_convert::eval::{Comparison, compare};
use eg2_convert::models::gemma_audio::MEL_BINS;
use eg2_convert::tensor::{DType, Fact, WeightSource};
use std::path::Path;

/// Frames of the golden clip, its frames that count in each class of n % 4, and the width of a soft token.
pub const CLIP: usize = 200;
pub const CLASSES: [usize; 4] = [197, 198, 199, 200];
pub const WIDTH: usize = 24;

pub fn golden(name: &str) -> Vec<f32> {
    let file = Checkpoint::open_file(&fixture("encoder_eg2/golden.safetensors")).unwrap();
    let mut values = vec![0.0; file.fact(name).unwrap().shape.elements()];
    file.read_f32(name, 0, &mut values).unwrap();
    values
}

/// The clip of so many valid frames in a bucket: features and half_mask.
pub fn inputs(bucket: usize, valid: usize) -> [(&'static str, Fact, Vec<f32>); 2] {
    let mut features = golden("features");
    features.truncate(valid * MEL_BINS);
    features.resize(bucket * MEL_BINS, 0.0);
    let mask = (0..bucket / 2).map(|i| f32::from(u8::from(2 * i < valid))).collect();
    [
        ("features", Fact::new(DType::F32, [1, bucket, MEL_BINS]), features),
        ("half_mask", Fact::new(DType::F32, [1, bucket / 2]), mask),
    ]
}

pub fn write_inputs(path: &Path, bucket: usize, valid: usize) {
    let stored = inputs(bucket, valid)
        .map(|(name, fact, values)| (name, fact, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()));
    let named = stored.iter().map(|(name, fact, bytes)| Named { name, fact, bytes }).collect();
    write_safetensors(named, fs_err::File::create(path).unwrap()).unwrap();
}

/// Runs a function with the command: of a package by the evaluator, of an `.aimodel` by Apple's runtime.
pub fn evaluate(folder: &Path, artefact: &str, function: &str, from: &str, to: &str) {
    let mut command = command(folder);
    if artefact.ends_with(".aimodel") {
        command.env("EG2_COREAI_PYTHON", coreai_python());
    }
    let args = ["run", artefact, "--function", function, "--inputs", from, "--outputs", to];
    command.args(args).assert().success();
}

/// Soft tokens in a file, those past the clip too.
pub fn tokens(path: &Path) -> Vec<f32> {
    let file = Checkpoint::open_file(path).unwrap();
    let mut found = vec![0.0; file.fact("soft_tokens").unwrap().shape.elements()];
    file.read_f32("soft_tokens", 0, &mut found).unwrap();
    found
}

/// Soft tokens in a file, held against the reference.
pub fn against_golden(path: &Path, valid: usize) -> Comparison {
    let reference = golden(&format!("soft_tokens_{valid}"));
    compare(&tokens(path)[..reference.len()], &reference, WIDTH).unwrap()
}
