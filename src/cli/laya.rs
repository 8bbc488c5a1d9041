//! `eg2-convert laya`.

use super::converted::{failure, report};
use super::destination::DestinationOpts;
use super::failure::{Exit, Failure};
use super::precision::PrecisionArg;
use super::progress::Bar;
use super::{Common, Report};
use crate::checkpoint::{LAYA, LocateEnv, locate};
use crate::models::laya::Lengths;
use crate::pipeline::{LayaOptions, Origin, laya};
use std::path::PathBuf;
use std::time::Instant;

/// Convert the Laya decision model, which scores up to 32 options of a question about a text
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert laya --length 96\n  eg2-convert laya --length 96,192,1024 --checkpoint DIR\n  eg2-convert \
                  laya --length 96 --precision fp32\n  eg2-convert laya --length 96 --synthetic"
)]
pub struct Opts {
    /// Static length in tokens, 16 to 2048. Several, separated by commas, become an artefact each
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "96")]
    length: Vec<usize>,
    /// Numbers the graph stores, computes and exchanges. fp16w32 stores fp16 and computes and exchanges fp32. Only fp16
    /// is for the Neural Engine
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fp16)]
    precision: PrecisionArg,
    /// A folder with model.safetensors, encoder/config.json and rl_agent_config.json, or a Hugging Face snapshot
    /// [default: $EG2_CHECKPOINT, then ./model.safetensors, then the Hugging Face cache]
    #[arg(long, value_name = "PATH", conflicts_with = "synthetic")]
    checkpoint: Option<PathBuf>,
    /// Seeded weights of the published shapes, or of those of --config, in place of a checkpoint
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    synthetic: Option<u64>,
    /// A folder with encoder/config.json and rl_agent_config.json, in place of the checkpoint's own
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    #[command(flatten)]
    destination: DestinationOpts,
}

/// Runs the job and tells what it made.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let lengths = Lengths::new(&opts.length).map_err(|e| Failure::new(Exit::Usage, &e))?;
    let origin = match opts.synthetic {
        Some(seed) => Origin::Synthetic(seed),
        None => {
            let found = locate(opts.checkpoint.as_deref(), &LocateEnv::from_process(), LAYA, None);
            Origin::Checkpoint(found.map_err(|e| Failure::new(Exit::BadInput, &e))?)
        }
    };
    let options = LayaOptions { origin, config: opts.config, lengths, precision: opts.precision.into() };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let to = opts.destination.destination(bar.interrupt())?;
    let started = Instant::now();
    let converted = laya(&options, &to, &bar).map_err(|e| failure(&e))?;
    drop(bar);
    Ok(report(&converted, started.elapsed().as_secs_f64()))
}
