//! `eg2-convert run`.

use super::failure::{Exit, Failure};
use super::table::Table;
use super::{Checks, Common, Report};
use crate::eval::{EvalError, HostTensor, Options, Values};
use crate::pipeline::{Ran, RunError, RunOptions, Runtime, run as run_artefact};
use crate::toolchain::Interrupt;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Run an artefact on tensors of a file
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  eg2-convert run out/eg2_encoder_fp16_T3000.mlpackage --inputs clip.safetensors \
                        --outputs tokens.safetensors")]
pub struct Opts {
    /// The .mlpackage or .aimodel
    artefact: PathBuf,
    /// Safetensors file with a tensor for each input, by name; other tensors are left alone
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// Safetensors file the outputs are written to
    #[arg(long, value_name = "FILE")]
    outputs: PathBuf,
    /// The function to run [default: the package's own default, or the only one]
    #[arg(long)]
    function: Option<String>,
    /// What runs it: `reference`, this program's evaluator, for .mlpackage; `coreai`, Apple's runtime on the CPU, for
    /// .aimodel [default: what the format has]
    #[arg(long, value_enum, value_name = "RUNTIME")]
    runtime: Option<RuntimeArg>,
    /// Round every result to fp16, though the graph is fp32
    #[arg(long)]
    round_fp16: bool,
    /// Tell the seconds spent by op
    #[arg(long)]
    profile: bool,
    /// Tell the largest magnitude of every value
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RuntimeArg {
    Reference,
    #[value(name = "coreai")]
    CoreAi,
}

/// Runs the artefact and tells what came out.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let evaluate = Options { round_f16: opts.round_fp16, trace: opts.trace, profile: opts.profile };
    let options = RunOptions {
        artefact: opts.artefact,
        inputs: opts.inputs,
        outputs: opts.outputs,
        function: opts.function,
        runtime: opts.runtime.map(|runtime| match runtime {
            RuntimeArg::Reference => Runtime::Reference,
            RuntimeArg::CoreAi => Runtime::CoreAi,
        }),
        evaluate,
    };
    let started = Instant::now();
    let interrupt = Interrupt::listen().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let ran = run_artefact(&options, &interrupt).map_err(|e| failure(&e))?;
    let seconds = started.elapsed().as_secs_f64();
    if !common.quiet {
        for cast in &ran.report.casts {
            tracing::warn!("input {} was cast from {} to {}", cast.input, cast.from, cast.to);
        }
    }
    if let Some(found) = &ran.report.non_finite {
        tracing::warn!("{} at {} gave a value that is not finite", found.op, found.path);
    }
    Ok(report(&ran, seconds, &options))
}

fn failure(error: &RunError) -> Failure {
    Failure::new(exit_of(error), error)
}

/// The exit code of what kept an artefact from being run.
pub(super) const fn exit_of(error: &RunError) -> Exit {
    match error {
        RunError::Package(_)
        | RunError::Inputs(_)
        | RunError::Input { .. }
        | RunError::Host { .. }
        | RunError::NotANumber { .. }
        | RunError::Absent { .. }
        | RunError::NotRunnable { .. }
        | RunError::AiModel(_)
        | RunError::Hash { .. }
        | RunError::Invalid { .. } => Exit::BadInput,
        RunError::Runtime { .. } | RunError::Feature { .. } => Exit::Unsupported,
        RunError::Function { .. } | RunError::WhichFunction { .. } => Exit::Usage,
        RunError::Bridge(error) => Exit::of_serializer(error),
        RunError::Exchange(_) => Exit::Bug,
        RunError::Eval(e) => match e {
            EvalError::Missing { .. }
            | EvalError::Unknown { .. }
            | EvalError::Input { .. }
            | EvalError::Cast { .. }
            | EvalError::Weight { .. } => Exit::BadInput,
            EvalError::Unsupported { .. } => Exit::Unsupported,
            EvalError::Tensor { .. } | EvalError::Output { .. } => Exit::Bug,
        },
        RunError::Outputs { .. } | RunError::Overwrites { .. } => Exit::Usage,
    }
}

fn report(ran: &Ran, seconds: f64, options: &RunOptions) -> Report {
    let mut table = Table::default();
    for (name, tensor) in &ran.outputs {
        let figure = range(tensor).map_or_else(String::new, |[low, high]| format!("  {low:.6} to {high:.6}"));
        table.row(name, format!("{}{figure}", tensor.fact()));
    }
    table
        .row("runtime", ran.runtime)
        .row("written to", options.outputs.display())
        .row("seconds", format!("{seconds:.2}"));
    for (op, spent) in &ran.report.seconds {
        table.row(format!("  {op}"), format!("{spent:.3}"));
    }
    for peak in &ran.report.peaks {
        table.row(format!("  {}", peak.path), format!("{:e}", peak.peak));
    }
    let outputs: Vec<Value> = ran
        .outputs
        .iter()
        .map(|(name, tensor)| json!({ "name": name, "fact": tensor.fact(), "range": range(tensor) }))
        .collect();
    let json = json!({ "runtime": ran.runtime.name(), "outputs": outputs, "file": options.outputs.display().to_string(), "seconds": seconds, "report": ran.report });
    Report { text: table.render(), json, checks: Checks::Passed }
}

/// Smallest and largest value.
fn range(tensor: &HostTensor) -> Option<[f64; 2]> {
    let bounds = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(None, |range: Option<[f64; 2]>, v| match range {
            None => Some([v, v]),
            Some([low, high]) => Some([f64::min(low, v), f64::max(high, v)]),
        })
    };
    match tensor.values() {
        Values::F32(v) => bounds(&mut v.iter().map(|x| f64::from(*x))),
        Values::I32(v) => bounds(&mut v.iter().map(|x| f64::from(*x))),
    }
}
