//! `eg2-convert encoder`.

use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::{Table, bytes, thousands};
use super::{Common, Report};
use crate::bundle::AiModelError;
use crate::checkpoint::{LocateEnv, locate};
use crate::emit::coreai::{Bridge, BridgeError, CoreAiError};
use crate::emit::mil::MilError;
use crate::models::gemma_audio::Bucket;
use crate::passes::Precision;
use crate::pipeline::{Bundle, Converted, Destination, EncoderOptions, Format, Origin, PipelineError, encoder};
use crate::toolchain::Interrupt;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Revision of google/embeddinggemma-2 that the goldens and gates belong to.
const PINNED_REVISION: &str = "914f7f89";

/// Convert the audio tower and embed_audio of EmbeddingGemma 2 (or any Gemma 4 with audio)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert encoder --bucket 3000\n  eg2-convert encoder --bucket 3000 --synthetic"
)]
pub struct Opts {
    /// Static length in frames of 10 ms; four frames make one soft token
    #[arg(long, default_value_t = 3000)]
    bucket: usize,
    /// Floats the graph stores, computes and exchanges
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
    /// Folder that takes the artefact and its record
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Bundle formats [default: mlpackage, and aimodel where Apple's serializer is]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMATS")]
    format: Vec<FormatArg>,
    /// Replace another artefact of the same name
    #[arg(long)]
    force: bool,
    /// Author, check and count, but write nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PrecisionArg {
    Fp16,
    Fp32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FormatArg {
    Mlpackage,
    Aimodel,
}

/// Why no `.aimodel` was written by default.
const NO_SERIALIZER: &str = "Apple's serializer is not here";

/// What to write, with what, and what is left out for want of a tool.
fn formats(asked: &[FormatArg], interrupt: &Interrupt) -> (Vec<Format>, Option<Bridge>, Option<&'static str>) {
    let bridge = Bridge::find(interrupt);
    let mut formats: Vec<Format> = Vec::new();
    for format in asked {
        let format = match format {
            FormatArg::Mlpackage => Format::Mlpackage,
            FormatArg::Aimodel => Format::Aimodel,
        };
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    match (asked, &bridge) {
        ([], Some(_)) => (vec![Format::Mlpackage, Format::Aimodel], bridge, None),
        ([], None) => (vec![Format::Mlpackage], None, Some(NO_SERIALIZER)),
        _ => (formats, bridge, None),
    }
}

/// Runs the job and tells what it made.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let bucket = Bucket::new(opts.bucket).map_err(|e| Failure::new(Exit::Usage, &e))?;
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
    };
    let options = EncoderOptions { origin, config: opts.config, bucket, precision };
    // Only a tool needs to be told of Ctrl-C; without one it ends this process, as ever.
    let tool = opts.format != [FormatArg::Mlpackage] && Bridge::find(&Interrupt::never()).is_some();
    let interrupt = if tool { Interrupt::listen() } else { Ok(Interrupt::never()) };
    let interrupt = interrupt.map_err(|e| Failure::new(Exit::Bug, &e))?;
    let (formats, bridge, left_out) = formats(&opts.format, &interrupt);
    let to = Destination {
        folder: opts.out,
        name: options.name(),
        force: opts.force,
        dry_run: opts.dry_run,
        formats,
        bridge,
        left_out,
    };
    let started = Instant::now();
    let bar = Bar::new(common);
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
        | PipelineError::Author(_)
        | PipelineError::Precision(_)
        | PipelineError::Io(_) => Exit::BadInput,
        PipelineError::Mil(MilError::Weight { .. }) => Exit::BadInput,
        PipelineError::Mil(MilError::Io { .. }) | PipelineError::Publish(_) => Exit::Usage,
        PipelineError::ReadBack(_) => Exit::CheckFailed,
        PipelineError::AiModel(error) => aimodel(error),
        PipelineError::Invalid(_) => Exit::Unsupported,
        PipelineError::Mil(_) | PipelineError::Record(_) | PipelineError::Hashing => Exit::Bug,
    };
    Failure::new(exit, error)
}

fn aimodel(error: &AiModelError) -> Exit {
    match error {
        AiModelError::Write(CoreAiError::Weight { .. }) => Exit::BadInput,
        AiModelError::Write(CoreAiError::WeightFile(_)) | AiModelError::Io { .. } => Exit::Usage,
        AiModelError::Write(_) => Exit::Bug,
        AiModelError::Bridge(BridgeError::Interrupted) => Exit::Interrupted,
        AiModelError::Bridge(_) => Exit::Tool,
        AiModelError::Tree(_)
        | AiModelError::Functions { .. }
        | AiModelError::Features { .. }
        | AiModelError::Wiring { .. }
        | AiModelError::Hash
        | AiModelError::Path { .. } => Exit::CheckFailed,
    }
}

fn report(converted: &Converted, seconds: f64) -> Report {
    let Converted { graph, bundles } = converted;
    let mut table = Table::default();
    for Bundle { artefact, outcome, .. } in bundles {
        table.row("artefact", artefact.display()).row("outcome", outcome);
    }
    let (ops, constants) = (thousands(graph.census.total() as u64), thousands(graph.census.constants as u64));
    table.row("graph", format!("{ops} ops, {constants} constants, rank at most {}", graph.census.max_rank));
    let weights = &graph.weights;
    table.row("weights", format!("{} parameters, {}", thousands(weights.parameters), bytes(weights.total_bytes)));
    let records = || bundles.iter().filter_map(|b| b.record.as_ref());
    for record in records() {
        let size: u64 = record.artefact.files.iter().map(|f| f.size).sum();
        table.row("size", bytes(size)).row("digest root", record.artefact.digest_root);
        for check in &record.checks {
            table.row(check.name, "passed");
        }
    }
    for not_run in records().next().into_iter().flat_map(|r| &r.not_run) {
        table.row(not_run.name, format!("not run ({})", not_run.reason));
    }
    table.row("seconds", format!("{seconds:.1}"));
    let first = bundles.first();
    let json = json!({
        "artefact": first.map(|b| &b.artefact),
        "outcome": first.map(|b| b.outcome),
        "seconds": seconds,
        "graph": graph,
        "record": first.map(|b| &b.record),
        "bundles": bundles,
    });
    Report { text: table.render(), json }
}
