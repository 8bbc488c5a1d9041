//! `eg2-convert encoder`.

use super::converted::{failure, report};
use super::destination::DestinationOpts;
use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::{Common, Report};
use crate::checkpoint::{EMBEDDING_GEMMA2, LocateEnv, locate};
use crate::models::gemma_audio::Buckets;
use crate::passes::Precision;
use crate::pipeline::{EncoderOptions, Origin, encoder};
use std::path::PathBuf;
use std::time::Instant;

/// Convert the audio tower and embed_audio of EmbeddingGemma 2 (or any Gemma 4 with audio)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert encoder --bucket 3000\n  eg2-convert encoder --bucket 1000,3000\n  eg2-convert encoder \
                  --split-after 7\n  eg2-convert encoder --bucket 3000 --synthetic"
)]
pub struct Opts {
    /// Static length in frames of 10 ms; four frames make one soft token. Several, separated by commas, become
    /// functions of one artefact that share their weights: T1000, T3000; the longest is the default
    #[arg(long, value_name = "FRAMES", value_delimiter = ',', default_value = "3000")]
    bucket: Vec<usize>,
    /// Cut behind that many layers into two artefacts: a front, always fp32, and a body of --precision
    #[arg(long, value_name = "LAYERS")]
    split_after: Option<usize>,
    /// Numbers the graph stores, computes and exchanges. fp16w32 stores fp16 and int8 the weights of linear layers in
    /// 8 bits; both compute and exchange fp32. Only fp16 is for the Neural Engine
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fp16)]
    precision: PrecisionArg,
    /// A safetensors file, a folder of shards, or a Hugging Face snapshot [default: $EG2_CHECKPOINT, then
    /// ./model.safetensors, then the Hugging Face cache]
    #[arg(long, value_name = "PATH", conflicts_with = "synthetic")]
    checkpoint: Option<PathBuf>,
    /// Seeded weights of the real shapes, or of those of --config, in place of a checkpoint
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    synthetic: Option<u64>,
    /// A config.json in place of the checkpoint's own
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    destination: DestinationOpts,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PrecisionArg {
    Fp16,
    Fp32,
    #[value(name = "fp16w32")]
    Fp16W32,
    Int8,
}

/// Runs the job and tells what it made.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let buckets = Buckets::new(&opts.bucket).map_err(|e| Failure::new(Exit::Usage, &e))?;
    let origin = match opts.synthetic {
        Some(seed) => Origin::Synthetic(seed),
        None => {
            let found = locate(opts.checkpoint.as_deref(), &LocateEnv::from_process(), EMBEDDING_GEMMA2, None);
            Origin::Checkpoint(found.map_err(|e| Failure::new(Exit::BadInput, &e))?)
        }
    };
    let precision = match opts.precision {
        PrecisionArg::Fp16 => Precision::Fp16,
        PrecisionArg::Fp32 => Precision::Fp32,
        PrecisionArg::Fp16W32 => Precision::Fp16W32,
        PrecisionArg::Int8 => Precision::Int8,
    };
    let options = EncoderOptions { origin, config: opts.config, buckets, precision, split_after: opts.split_after };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let to = opts.destination.destination(bar.interrupt())?;
    let started = Instant::now();
    let converted = encoder(&options, &to, &bar).map_err(|e| failure(&e))?;
    drop(bar);
    Ok(report(&converted, started.elapsed().as_secs_f64()))
}
