//! `eg2-convert reader`.

use super::converted::{failure, report};
use super::destination::DestinationOpts;
use super::failure::{Exit, Failure};
use super::precision::PrecisionArg;
use super::progress::Bar;
use super::{Common, Report};
use crate::models::reader::{RELEASE_NAME, Tokens, is_release_name};
use crate::pipeline::{ReaderOptions, ReaderOrigin, reader};
use std::path::PathBuf;
use std::time::Instant;

/// The config that is taken where none is named.
const DEFAULT_CONFIG: &str = "reader_config.json";

/// Convert the CTC word reader, which names the best of a table's words for each soft token
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert reader --config reader_config.json\n  eg2-convert reader --config reader_config.json \
                  --tokens 250 --precision fp32\n  eg2-convert reader --config reader_config.json \
                  --weights reader.pt --table table.npy --words words.txt\n  eg2-convert reader --synthetic"
)]
pub struct Opts {
    /// Sizes, guesses and tensor names of the reader, and the files it is made of [default: reader_config.json]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Static length in soft tokens of 40 ms, 1 to 4096
    #[arg(long, value_name = "TOKENS", default_value_t = 750, value_parser = one_length)]
    tokens: usize,
    /// Numbers the graph stores, computes and exchanges. fp16w32 stores fp16 and computes and exchanges fp32. Only fp16
    /// is for the Neural Engine
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fp16)]
    precision: PrecisionArg,
    /// The network's weights, in place of the config's: safetensors or a PyTorch state dict
    #[arg(long, value_name = "FILE", conflicts_with = "synthetic")]
    weights: Option<PathBuf>,
    /// The table of word vectors, in place of the config's: .npy, safetensors or a PyTorch state dict
    #[arg(long, value_name = "FILE", conflicts_with = "synthetic")]
    table: Option<PathBuf>,
    /// The words, one a line in the order of the table's rows, in place of the config's
    #[arg(long, value_name = "FILE", conflicts_with = "synthetic")]
    words: Option<PathBuf>,
    /// Seeded weights of the published shapes, or of those of --config, in place of files
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    synthetic: Option<u64>,
    /// What the artefact's name calls the release, where the config names no version
    #[arg(long, value_name = "NAME")]
    release_name: Option<String>,
    #[command(flatten)]
    destination: DestinationOpts,
}

/// No config is named, and none is where one is looked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "no reader config found. Looked at:\n  --config: not given\n  ./{DEFAULT_CONFIG}: absent\nName one with --config, or try \
     the job on seeded weights with --synthetic"
)]
struct NoConfig;

/// A number of tokens. Several, as an encoder takes buckets, are told of in words of their own.
fn one_length(text: &str) -> Result<usize, String> {
    if text.contains(',') {
        return Err("a reader takes one length".into());
    }
    text.parse().map_err(|e: std::num::ParseIntError| e.to_string())
}

/// The config that is named, or the default one where it is there.
fn config_or_default(named: Option<PathBuf>) -> Result<PathBuf, NoConfig> {
    named.or_else(|| Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists())).ok_or(NoConfig)
}

/// Runs the job and tells what it made.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let tokens = Tokens::new(opts.tokens).map_err(|e| Failure::new(Exit::Usage, &e))?;
    if let Some(name) = opts.release_name.as_ref().filter(|name| !is_release_name(name)) {
        return Err(Failure::usage(format!("--release-name is {name:?}, expected {RELEASE_NAME}")));
    }
    let Opts { config, weights, table, words, synthetic, .. } = opts;
    let origin = match synthetic {
        Some(seed) => ReaderOrigin::Synthetic { seed, config, words: None },
        None => {
            let config = config_or_default(config).map_err(|e| Failure::new(Exit::BadInput, &e))?;
            ReaderOrigin::Files { config, weights, table, words }
        }
    };
    let options = ReaderOptions { origin, tokens, precision: opts.precision.into(), release_name: opts.release_name };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let to = opts.destination.destination(bar.interrupt())?;
    let started = Instant::now();
    let converted = reader(&options, &to, &bar).map_err(|e| failure(&e))?;
    drop(bar);
    Ok(report(&converted, started.elapsed().as_secs_f64()))
}
