//! Times k-means: `cargo run --release --example kmeans_bench -- FILE VALUES BITS...` on each group of so many values of
//! a file of little-endian f32, a line for each: bits, seconds (the least of three runs) and squared error;
//! `... -- body THREADS BITS...` on weights of the shapes of a full-size Laya, seeded, by groups of 32 rows and by tensor.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use eg2_convert::cluster::{ClusterError, kmeans};
use half::f16;
use rayon::prelude::*;
use std::error::Error;
use std::time::Instant;

/// Rows and columns of the matrices of an encoder layer and of a head layer, and how many layers there are.
const BODY: [(usize, &[(usize, usize)]); 2] = [
    (22, &[(2304, 768), (768, 768), (2304, 768), (768, 1152)]),
    (2, &[(2304, 768), (768, 768), (3072, 768), (768, 3072)]),
];

/// Weights of a bell shape, as fp16 holds them.
fn weights(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        // The finalizer of SplitMix64, on a counter.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut bell = || (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
    (0..count).map(|_| f16::from_f64(0.02 * bell()).to_f32()).collect()
}

fn file(path: &str, group: usize, bits: &[u32]) -> Result<(), Box<dyn Error>> {
    let bytes = fs_err::read(path)?;
    let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    for bits in bits {
        for group in values.chunks(group) {
            let (mut seconds, mut error) = (f64::INFINITY, 0.0);
            for _ in 0..3 {
                let start = Instant::now();
                error = kmeans(group, 1 << bits)?.squared_error;
                seconds = seconds.min(start.elapsed().as_secs_f64());
            }
            println!("{bits} {seconds:e} {error:e}");
        }
    }
    Ok(())
}

fn body(threads: usize, bits: &[u32]) -> Result<(), Box<dyn Error>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let shapes: Vec<(usize, usize)> = BODY.iter().flat_map(|(layers, shapes)| shapes.repeat(*layers)).collect();
    let mut figures = vec![[(0.0, 0.0); 2]; bits.len()];
    let mut total = 0;
    // A layer's worth at a time, which bounds the memory.
    for (layer, shapes) in shapes.chunks(4).enumerate() {
        let tensors: Vec<(Vec<f32>, usize)> = (shapes.iter().enumerate())
            .map(|(i, (rows, columns))| (weights((layer * 4 + i) as u64, rows * columns), 32 * columns))
            .collect();
        total += tensors.iter().map(|(values, _)| values.len()).sum::<usize>();
        for (bits, figures) in bits.iter().zip(&mut figures) {
            for (by_tensor, (seconds, error)) in figures.iter_mut().enumerate() {
                let groups =
                    tensors.iter().flat_map(|(v, group)| v.chunks(if by_tensor == 1 { v.len() } else { *group }));
                let groups: Vec<&[f32]> = groups.collect();
                let start = Instant::now();
                let each = |group: &&[f32]| kmeans(group, 1 << bits).map(|palette| palette.squared_error);
                let errors: Result<Vec<f64>, ClusterError> =
                    pool.install(|| groups.par_iter().with_max_len(1).map(each).collect());
                *seconds += start.elapsed().as_secs_f64();
                *error += errors?.iter().sum::<f64>();
            }
        }
    }
    println!("{total} weights, {threads} threads");
    for (bits, figures) in bits.iter().zip(figures) {
        for (what, (seconds, error)) in ["groups of 32 rows", "tensors"].iter().zip(figures) {
            println!("{bits} bits, {what:17}  {seconds:6.2} s, squared error {error:e}");
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, number, bits @ ..] = args.as_slice() else {
        return Err("FILE VALUES BITS... or body THREADS BITS...".into());
    };
    let bits = bits.iter().map(|b| b.parse()).collect::<Result<Vec<u32>, _>>()?;
    if what == "body" { body(number.parse()?, &bits) } else { file(what, number.parse()?, &bits) }
}
