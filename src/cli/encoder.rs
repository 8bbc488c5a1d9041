//! `eg2-convert encoder`.

use super::destination::DestinationOpts;
use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::{Table, bytes, thousands};
use super::{Checks, Common, Report};
use crate::bundle::AiModelReadBackError;
use crate::checkpoint::{LocateEnv, locate};
use crate::emit::coreai::CoreAiError;
use crate::emit::mil::MilError;
use crate::models::gemma_audio::Buckets;
use crate::passes::{Kept, Precision};
use crate::pipeline::{Converted, EncoderOptions, Origin, PipelineError, encoder};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Most constants left in fp32 that the table names.
const KEPT_SHOWN: usize = 4;

/// Revision of google/embeddinggemma-2 that the goldens and gates belong to.
const PINNED_REVISION: &str = "914f7f89";

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
            let found = locate(opts.checkpoint.as_deref(), &LocateEnv::from_process(), PINNED_REVISION);
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

/// The exit code of each stage's error.
pub(super) fn failure(error: &PipelineError) -> Failure {
    let exit = match error {
        PipelineError::Checkpoint(_)
        | PipelineError::Config(_)
        | PipelineError::NoConfig { .. }
        | PipelineError::ConfigFile { .. }
        | PipelineError::Author(_)
        | PipelineError::Precision(_)
        | PipelineError::Io(_) => Exit::BadInput,
        PipelineError::Mil(MilError::Weight { .. }) => Exit::BadInput,
        PipelineError::Mil(MilError::Io { .. }) | PipelineError::Publish(_) | PipelineError::SplitRange { .. } => {
            Exit::Usage
        }
        PipelineError::Interrupted => Exit::Interrupted,
        PipelineError::ReadBack(_) => Exit::CheckFailed,
        PipelineError::CoreAi(CoreAiError::Weight { .. }) => Exit::BadInput,
        PipelineError::CoreAi(CoreAiError::WeightFile(_)) => Exit::Usage,
        PipelineError::Bridge(error) | PipelineError::AiModelReadBack(AiModelReadBackError::Bridge(error)) => {
            Exit::of_serializer(error)
        }
        PipelineError::AiModelReadBack(_) => Exit::CheckFailed,
        PipelineError::Invalid(_) => Exit::Unsupported,
        PipelineError::Mil(_)
        | PipelineError::CoreAi(_)
        | PipelineError::Split(_)
        | PipelineError::Record(_)
        | PipelineError::Hashing => Exit::Bug,
    };
    Failure::new(exit, error)
}

fn report(converted: &[Converted], seconds: f64) -> Report {
    let mut table = Table::default();
    for artefact in converted {
        rows(artefact, &mut table);
    }
    table.row("seconds", format!("{seconds:.1}"));
    let told = converted.iter().filter_map(|c| c.record.as_ref()).any(|record| !record.not_run.is_empty());
    let checks = if told { Checks::NotRun } else { Checks::Passed };
    Report { text: table.render(), json: json!({ "artefacts": converted, "seconds": seconds }), checks }
}

fn rows(converted: &Converted, table: &mut Table) {
    let Converted { path, outcome, no_region, functions, mlir, record } = converted;
    table.row("artefact", path.display()).row("outcome", outcome);
    for function in functions {
        let graph = &function.graph;
        let label = |what: &str| if functions.len() > 1 { format!("{what} {}", function.name) } else { what.into() };
        let (ops, constants) = (thousands(graph.census.total() as u64), thousands(graph.census.constants as u64));
        let shape = format!("{ops} ops, {constants} constants, rank at most {}", graph.census.max_rank);
        let weights = &graph.weights;
        let size = format!("{} parameters, {}", thousands(weights.parameters), bytes(weights.total_bytes));
        table.row(label("graph"), shape).row(label("weights"), size);
        let kept = &function.precision.kept_fp32;
        for (at, Kept { path, reason }) in kept.iter().enumerate().take(KEPT_SHOWN) {
            table.row(if at == 0 { label("kept fp32") } else { String::new() }, format!("{path}: {reason}"));
        }
        if kept.len() > KEPT_SHOWN {
            table.row("", format!("and {} more; the record lists them", kept.len() - KEPT_SHOWN));
        }
    }
    if let Some(reason) = no_region {
        table.row("neural engine", format!("none: {reason}"));
    }
    if let Some(mlir) = mlir {
        table.row("dialect text", mlir.display());
    }
    if let Some(record) = record {
        let size: u64 = record.artefact.files.iter().map(|f| f.size).sum();
        table.row("size", bytes(size)).row("digest root", record.artefact.digest_root);
        for check in &record.checks {
            table.row(check.name, "passed");
        }
        for not_run in &record.not_run {
            table.row(not_run.name, format!("not run ({})", not_run.reason));
        }
    }
}
